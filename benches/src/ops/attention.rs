//! Attention, forward and backward.
//!
//! A shape is `b4h16s4096d128`: batch, heads, length, elements of a head; `b4h14g2s4096d64` has 2 heads
//! of keys and values for 14 of queries. What stands after it is any of `causal`, `flash` (beside torch's
//! flash backend, not cuDNN) and, of the backward, `deterministic` (beside torch's flash backend told to
//! be).
//!
//! `b8h16s8192d128/varlen` packs 8 sequences of lengths from a 64th of the longest to it, evenly spread by
//! their ratio; the peer takes them one by one.

use genesis::autograd::BackwardOptions;
use genesis::ops::{Attention, Varlen};
use genesis::{DType, Tensor};
use rayon::prelude::*;

use super::{Op, Prepared, Setup, distance, sample};
use crate::name::CaseName;
use crate::roofline::Work;

/// The ops of this file.
pub(super) fn ops() -> Vec<Op> {
    vec![
        Op { name: "attention", work: |name| work(name, false), prepare: forward },
        Op { name: "attention_bwd", work: |name| work(name, true), prepare: backward },
    ]
}

/// A backward that may run again on the same graph.
const AGAIN: BackwardOptions = BackwardOptions { retain_graph: true, create_graph: false };

/// Attention of queries, keys and values.
type Run = Box<dyn Fn([&Tensor; 3]) -> genesis::Result<Tensor>>;

/// What a name says.
#[derive(Clone, Copy)]
struct Call {
    batch: usize,
    heads: usize,
    /// Heads of keys and values.
    own: usize,
    len: usize,
    size: usize,
    is_causal: bool,
    is_packed: bool,
}

impl Call {
    fn of(name: &CaseName) -> anyhow::Result<Call> {
        let (batch, heads, own, len, size) = match name.dims[..] {
            [b, h, s, d] => (b, h, h, s, d),
            [b, h, g, s, d] => (b, h, g, s, d),
            _ => anyhow::bail!("{} needs a shape such as b4h16s4096d128", name.text),
        };
        let (mut is_causal, mut is_packed) = (false, false);
        for part in name.variant.split('/') {
            match part {
                "causal" => is_causal = true,
                "varlen" => is_packed = true,
                "" | "flash" | "deterministic" => {}
                other => {
                    anyhow::bail!("there are causal, varlen, flash and deterministic, not {other}")
                }
            }
        }
        Ok(Call { batch, heads, own, len, size, is_causal, is_packed })
    }

    fn options(&self) -> Attention {
        let groups = self.own != self.heads;
        Attention { is_causal: self.is_causal, groups, ..Attention::default() }
    }

    /// The op on queries, keys and values.
    fn run(&self, setup: &Setup<'_>) -> anyhow::Result<Run> {
        let options = self.options();
        if !self.is_packed {
            return Ok(Box::new(move |[q, k, v]| q.scaled_dot_product_attention(k, v, &options)));
        }
        let mut ends = vec![0.0];
        self.lengths().iter().for_each(|&len| ends.push(ends[ends.len() - 1] + len as f64));
        let ends = Tensor::from_f64(&ends, &[ends.len()], (DType::I64, setup.device))?;
        let longest = self.len;
        Ok(Box::new(move |[q, k, v]| {
            let lengths = Varlen {
                cu_seqlens_q: &ends,
                cu_seqlens_k: &ends,
                max_seqlen_q: longest,
                max_seqlen_k: longest,
            };
            q.varlen_attn(k, v, &lengths, &options)
        }))
    }

    fn queries(&self, setup: &Setup<'_>) -> genesis::Result<Tensor> {
        setup.randn(&self.shape(self.heads))
    }

    fn keys(&self, setup: &Setup<'_>) -> genesis::Result<Tensor> {
        setup.randn(&self.shape(self.own))
    }

    fn shape(&self, heads: usize) -> Vec<usize> {
        match self.is_packed {
            true => vec![self.lengths().iter().sum(), heads, self.size],
            false => vec![self.batch, heads, self.len, self.size],
        }
    }

    /// The length of each sequence.
    fn lengths(&self) -> Vec<usize> {
        let last = self.batch.saturating_sub(1).max(1) as f64;
        let length = |i: usize| (self.len as f64 * 64f64.powf(i as f64 / last - 1.0)) as usize;
        match self.is_packed {
            true => (0..self.batch).map(|i| length(i).max(1)).collect(),
            false => vec![self.len; self.batch],
        }
    }

    /// A head of a sequence, its rows one after the other.
    fn part(&self, t: &Tensor, batch: usize, head: usize) -> genesis::Result<Vec<f64>> {
        if !self.is_packed {
            return t.detach().select(0, batch)?.select(0, head)?.to_f64_vec();
        }
        let lengths = self.lengths();
        let first = lengths[..batch].iter().sum();
        t.detach().narrow(0, first, lengths[batch])?.select(1, head)?.to_f64_vec()
    }
}

/// Two products forward, five backward, of half the scores where attention is causal.
fn work(name: &CaseName, is_backward: bool) -> Work {
    let Ok(call) = Call::of(name) else { return Work::default() };
    let lengths = call.lengths();
    let rows: usize = lengths.iter().sum();
    let pairs: f64 = lengths.iter().map(|&len| (len * len) as f64).sum();
    let share = if call.is_causal { 0.5 } else { 1.0 };
    let scores = share * pairs * (call.heads * call.size) as f64;
    let (queries, keys) = (rows * call.heads, rows * call.own);
    let (tensors, products) = if is_backward { (4, 10.0) } else { (2, 4.0) };
    let moved = Work::elements(name, tensors * (queries + keys) * call.size);
    Work { flops: products * scores, ..moved }
}

fn forward(setup: &Setup<'_>) -> anyhow::Result<Prepared> {
    let call = Call::of(setup.name)?;
    let sets = setup.each(|| Ok([call.queries(setup)?, call.keys(setup)?, call.keys(setup)?]))?;
    let run = call.run(setup)?;
    let op = move |[q, k, v]: &[Tensor; 3]| run([q, k, v]);
    Prepared::new(sets, op, |[q, k, v], y| {
        let mut worst = 0.0f64;
        for (batch, head) in call.sampled() {
            let scores = call.head([q, k, v], (batch, head))?;
            let y = call.part(y, batch, head)?;
            for i in sample(scores.len, 8) {
                let got = &y[i * call.size..][..call.size];
                worst = worst.max(within(got, &scores.result(i)));
            }
        }
        Ok(worst)
    })
}

/// A set of the backward: inputs, result with its history, and the gradient that comes in.
struct Backward {
    inputs: [Tensor; 3],
    y: Tensor,
    dy: Tensor,
}

fn backward(setup: &Setup<'_>) -> anyhow::Result<Prepared> {
    let call = Call::of(setup.name)?;
    let run = call.run(setup)?;
    let sets = setup.each(|| {
        let inputs = [call.queries(setup)?, call.keys(setup)?, call.keys(setup)?];
        let [q, k, v] = inputs.map(|t| t.requires_grad_(true));
        let [q, k, v] = [q?, k?, v?];
        let y = run([&q, &k, &v])?;
        Ok(Backward { inputs: [q, k, v], y, dy: call.queries(setup)? })
    })?;
    let op = |set: &Backward| {
        set.y.backward_with(Some(&set.dy), AGAIN)?;
        let grads = set.inputs.each_ref().map(Tensor::grad);
        // The next run makes them anew and adds nothing up.
        set.inputs.iter().for_each(Tensor::zero_grad);
        Ok(grads)
    };
    Prepared::new(sets, op, move |set, grads| check_backward(&call, set, grads))
}

/// Rows of the gradients of a head of queries, and of the head of keys and values that it looks at.
fn check_backward(call: &Call, set: &Backward, grads: &[Option<Tensor>; 3]) -> anyhow::Result<f64> {
    let [Some(dq), Some(dk), Some(dv)] = grads else { anyhow::bail!("a gradient is missing") };
    let [q, k, v] = set.inputs.each_ref().map(Tensor::detach);
    let (batch, own) = (call.batch - 1, call.own / 2);
    let (each, d) = (call.heads / call.own, call.size);
    let at = sample(call.lengths()[batch], 6);
    let mut worst = 0.0f64;
    let mut sums = vec![[vec![0.0; d], vec![0.0; d]]; at.len()];
    for head in own * each..(own + 1) * each {
        let scores = call.head([&q, &k, &v], (batch, head))?;
        let dy = call.part(&set.dy, batch, head)?;
        let got = call.part(dq, batch, head)?;
        let wanted: Vec<Vec<f64>> = at.iter().map(|&i| scores.query_gradient(&dy, i)).collect();
        worst = worst.max(rows_within(&got, &at, &wanted));
        for (sums, part) in sums.iter_mut().zip(scores.key_gradients(&dy, &at)) {
            for (sum, part) in sums.iter_mut().zip(part) {
                sum.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
            }
        }
    }
    for (t, which) in [(dk, 0), (dv, 1)] {
        let got = call.part(t, batch, own)?;
        let wanted: Vec<Vec<f64>> = sums.iter().map(|sums| sums[which].clone()).collect();
        worst = worst.max(rows_within(&got, &at, &wanted));
    }
    Ok(worst)
}

/// How far a row is from what is wanted, relative to its largest element.
fn within(got: &[f64], want: &[f64]) -> f64 {
    distance(got, want, want.iter().fold(0.0, |top, x| top.max(x.abs())))
}

/// How far these rows are from what is wanted, relative to the largest element of all: the gradient of a
/// query that sees one key is 0.
fn rows_within(got: &[f64], at: &[usize], wanted: &[Vec<f64>]) -> f64 {
    let top = wanted.iter().flatten().fold(0.0f64, |top, x| top.max(x.abs()));
    let row =
        |(&i, want): (&usize, &Vec<f64>)| distance(&got[i * want.len()..][..want.len()], want, top);
    at.iter().zip(wanted).map(row).fold(0.0, f64::max)
}

/// A product of two rows, in eight sums at once.
fn inner(x: &[f64], y: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (x, y) = (x.chunks_exact(8), y.chunks_exact(8));
    let rest: f64 = x.remainder().iter().zip(y.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in x.zip(y) {
        for (sum, (x, y)) in sums.iter_mut().zip(x.iter().zip(y)) {
            *sum += x * y;
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// One head in f64: the definition.
struct Head {
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    /// Queries, and keys.
    len: usize,
    call: Call,
}

impl Call {
    /// A few heads, the first and the last among them.
    fn sampled(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let heads = self.heads;
        sample(self.batch * heads, 3).into_iter().map(move |at| (at / heads, at % heads))
    }

    fn head(&self, [q, k, v]: [&Tensor; 3], at: (usize, usize)) -> genesis::Result<Head> {
        let own = at.1 * self.own / self.heads;
        let (q, k, v) =
            (self.part(q, at.0, at.1)?, self.part(k, at.0, own)?, self.part(v, at.0, own)?);
        Ok(Head { q, k, v, len: self.lengths()[at.0], call: *self })
    }
}

impl Head {
    fn row<'a>(&self, of: &'a [f64], i: usize) -> &'a [f64] {
        &of[i * self.call.size..][..self.call.size]
    }

    /// The weights that query `i` gives to the keys that it sees.
    fn weights(&self, i: usize) -> Vec<f64> {
        let (scale, q) = (1.0 / (self.call.size as f64).sqrt(), self.row(&self.q, i));
        let seen = if self.call.is_causal { i + 1 } else { self.len };
        let scores: Vec<f64> = (0..seen).map(|j| scale * inner(q, self.row(&self.k, j))).collect();
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
        let total: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|w| *w /= total);
        weights
    }

    /// Rows of `of` in these weights.
    fn mixed(&self, weights: &[f64], of: &[f64]) -> Vec<f64> {
        let mut sum = vec![0.0; self.call.size];
        for (j, w) in weights.iter().enumerate() {
            sum.iter_mut().zip(self.row(of, j)).for_each(|(sum, x)| *sum += w * x);
        }
        sum
    }

    fn result(&self, i: usize) -> Vec<f64> {
        self.mixed(&self.weights(i), &self.v)
    }

    /// `w (dw - sum(w dw))` times the scale, `dw` being `dy v'`.
    fn query_gradient(&self, dy: &[f64], i: usize) -> Vec<f64> {
        let (mut weights, dy) = (self.weights(i), self.row(dy, i));
        let below = inner(dy, &self.mixed(&weights, &self.v));
        let scale = 1.0 / (self.call.size as f64).sqrt();
        for (j, w) in weights.iter_mut().enumerate() {
            *w *= scale * (inner(dy, self.row(&self.v, j)) - below);
        }
        self.mixed(&weights, &self.k)
    }

    /// The gradients of these keys and values: sums over all queries.
    fn key_gradients(&self, dy: &[f64], at: &[usize]) -> Vec<[Vec<f64>; 2]> {
        let (d, scale) = (self.call.size, 1.0 / (self.call.size as f64).sqrt());
        let zero = || vec![[vec![0.0; d], vec![0.0; d]]; at.len()];
        let add = |mut sums: Vec<[Vec<f64>; 2]>, i: usize| {
            let (weights, dy, q) = (self.weights(i), self.row(dy, i), self.row(&self.q, i));
            let below = inner(dy, &self.mixed(&weights, &self.v));
            for (&j, [dk, dv]) in at.iter().zip(&mut sums) {
                let Some(w) = weights.get(j) else { continue };
                let ds = w * scale * (inner(dy, self.row(&self.v, j)) - below);
                dk.iter_mut().zip(q).for_each(|(sum, x)| *sum += ds * x);
                dv.iter_mut().zip(dy).for_each(|(sum, x)| *sum += w * x);
            }
            sums
        };
        let join = |mut a: Vec<[Vec<f64>; 2]>, b: Vec<[Vec<f64>; 2]>| {
            for (a, b) in a.iter_mut().flatten().zip(b.iter().flatten()) {
                a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            }
            a
        };
        (0..self.len).into_par_iter().fold(zero, add).reduce(zero, join)
    }
}
