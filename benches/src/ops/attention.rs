//! Attention, forward and backward.
//!
//! A shape is `b4h16s4096d128`: batch, heads, length, elements of a head; `b4h14g2s4096d64` has 2 heads
//! of keys and values for 14 of queries. What stands after it is any of `causal`, `flash` (beside torch's
//! flash backend, not cuDNN) and, of the backward, `deterministic` (beside torch's flash backend told to
//! be).

use genesis::Tensor;
use genesis::autograd::BackwardOptions;
use genesis::ops::Attention;
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
}

impl Call {
    fn of(name: &CaseName) -> anyhow::Result<Call> {
        let (batch, heads, own, len, size) = match name.dims[..] {
            [b, h, s, d] => (b, h, h, s, d),
            [b, h, g, s, d] => (b, h, g, s, d),
            _ => anyhow::bail!("{} needs a shape such as b4h16s4096d128", name.text),
        };
        let mut is_causal = false;
        for part in name.variant.split('/') {
            match part {
                "causal" => is_causal = true,
                "" | "flash" | "deterministic" => {}
                other => anyhow::bail!("there are causal, flash and deterministic, not {other}"),
            }
        }
        Ok(Call { batch, heads, own, len, size, is_causal })
    }

    fn options(&self) -> Attention {
        let groups = self.own != self.heads;
        Attention { is_causal: self.is_causal, groups, ..Attention::default() }
    }

    fn queries(&self, setup: &Setup<'_>) -> genesis::Result<Tensor> {
        setup.randn(&[self.batch, self.heads, self.len, self.size])
    }

    fn keys(&self, setup: &Setup<'_>) -> genesis::Result<Tensor> {
        setup.randn(&[self.batch, self.own, self.len, self.size])
    }
}

/// Two products forward, five backward, of half the scores where attention is causal.
fn work(name: &CaseName, is_backward: bool) -> Work {
    let Ok(call) = Call::of(name) else { return Work::default() };
    let (queries, keys) = (call.batch * call.heads * call.len, call.batch * call.own * call.len);
    let scores = (queries * call.len * call.size) as f64 * if call.is_causal { 0.5 } else { 1.0 };
    let (tensors, products) = if is_backward { (4, 10.0) } else { (2, 4.0) };
    let moved = Work::elements(name, tensors * (queries + keys) * call.size);
    Work { flops: products * scores, ..moved }
}

fn forward(setup: &Setup<'_>) -> anyhow::Result<Prepared> {
    let call = Call::of(setup.name)?;
    let sets = setup.each(|| Ok([call.queries(setup)?, call.keys(setup)?, call.keys(setup)?]))?;
    let options = call.options();
    let op = move |[q, k, v]: &[Tensor; 3]| q.scaled_dot_product_attention(k, v, &options);
    Prepared::new(sets, op, |[q, k, v], y| {
        let mut worst = 0.0f64;
        for (batch, head) in call.sampled() {
            let scores = call.head([q, k, v], (batch, head))?;
            let y = part(y, batch, head)?;
            for i in sample(call.len, 8) {
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
    let options = call.options();
    let sets = setup.each(|| {
        let inputs = [call.queries(setup)?, call.keys(setup)?, call.keys(setup)?];
        let [q, k, v] = inputs.map(|t| t.requires_grad_(true));
        let [q, k, v] = [q?, k?, v?];
        let y = q.scaled_dot_product_attention(&k, &v, &options)?;
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
    let at = sample(call.len, 6);
    let mut worst = 0.0f64;
    let mut sums = vec![[vec![0.0; d], vec![0.0; d]]; at.len()];
    for head in own * each..(own + 1) * each {
        let scores = call.head([&q, &k, &v], (batch, head))?;
        let dy = part(&set.dy, batch, head)?;
        let got = part(dq, batch, head)?;
        for &i in &at {
            worst = worst.max(within(&got[i * d..][..d], &scores.query_gradient(&dy, i)));
        }
        for (sums, part) in sums.iter_mut().zip(scores.key_gradients(&dy, &at)) {
            for (sum, part) in sums.iter_mut().zip(part) {
                sum.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
            }
        }
    }
    for (t, which) in [(dk, 0), (dv, 1)] {
        let got = part(t, batch, own)?;
        for (&j, want) in at.iter().zip(&sums) {
            worst = worst.max(within(&got[j * d..][..d], &want[which]));
        }
    }
    Ok(worst)
}

/// How far a row is from what is wanted, relative to its largest element.
fn within(got: &[f64], want: &[f64]) -> f64 {
    distance(got, want, want.iter().fold(0.0, |top, x| top.max(x.abs())))
}

/// A head of a batch, its rows one after the other.
fn part(t: &Tensor, batch: usize, head: usize) -> genesis::Result<Vec<f64>> {
    t.detach().select(0, batch)?.select(0, head)?.to_f64_vec()
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
        let (q, k, v) = (part(q, at.0, at.1)?, part(k, at.0, own)?, part(v, at.0, own)?);
        Ok(Head { q, k, v, call: *self })
    }
}

impl Head {
    fn row<'a>(&self, of: &'a [f64], i: usize) -> &'a [f64] {
        &of[i * self.call.size..][..self.call.size]
    }

    /// The weights that query `i` gives to the keys that it sees.
    fn weights(&self, i: usize) -> Vec<f64> {
        let (scale, q) = (1.0 / (self.call.size as f64).sqrt(), self.row(&self.q, i));
        let seen = if self.call.is_causal { i + 1 } else { self.call.len };
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
        (0..self.call.len).into_par_iter().fold(zero, add).reduce(zero, join)
    }
}
