//! Attention to a cache in pages of 16 keys.
//!
//! A shape is `b64h14g2n1s8192d64`: sequences, heads of queries and of keys, new tokens, keys of a sequence,
//! elements of a head. The peer has keys and values in a row, which is as good as any pages.

use genesis::ops::{PagedAttention, PagedLayout};
use genesis::{DType, Tensor};

use super::{Op, Prepared, Setup, distance, sample};
use crate::name::CaseName;
use crate::roofline::Work;

/// The ops of this file.
pub(super) fn ops() -> Vec<Op> {
    vec![Op { name: "paged_attention", work, prepare }]
}

/// Keys of a page.
const PAGE: usize = 16;

/// What a name says.
#[derive(Clone, Copy)]
struct Call {
    batch: usize,
    heads: usize,
    own: usize,
    new: usize,
    keys: usize,
    size: usize,
}

impl Call {
    fn of(name: &CaseName) -> anyhow::Result<Call> {
        let &[batch, heads, own, new, keys, size] = &name.dims[..] else {
            anyhow::bail!("{} needs a shape such as b64h14g2n1s8192d64", name.text);
        };
        Ok(Call { batch, heads, own, new, keys, size })
    }

    /// Pages of a sequence.
    fn pages(&self) -> usize {
        self.keys.div_ceil(PAGE)
    }

    /// The page of a sequence's page `number`: those of all sequences in turns.
    fn page(&self, sequence: usize, number: usize) -> usize {
        number * self.batch + sequence
    }
}

/// Keys and values once, queries and results; two products of the pairs that see each other.
fn work(name: &CaseName) -> Work {
    let Ok(call) = Call::of(name) else { return Work::default() };
    let Call { batch, heads, own, new, keys, size } = call;
    let pairs = batch * heads * new * (2 * keys + 1 - new.min(keys)) / 2;
    let moved = Work::elements(name, 2 * batch * size * (own * keys + heads * new));
    Work { flops: 4.0 * (pairs * size) as f64, ..moved }
}

/// A set of buffers.
struct Buffers {
    q: Tensor,
    keys: Tensor,
    values: Tensor,
}

fn prepare(setup: &Setup<'_>) -> anyhow::Result<Prepared> {
    let call = Call::of(setup.name)?;
    let Call { batch, heads, own, new, keys, size } = call;
    let on = (DType::I64, setup.device);
    let numbers = |all: Vec<usize>, shape: &[usize]| {
        Tensor::from_f64(&all.iter().map(|&n| n as f64).collect::<Vec<f64>>(), shape, on)
    };
    let starts = numbers((0..=batch).map(|s| s * new).collect(), &[batch + 1])?;
    let lengths = numbers(vec![keys; batch], &[batch])?;
    let all = (0..batch).flat_map(|s| (0..call.pages()).map(move |p| call.page(s, p)));
    let table = numbers(all.collect(), &[batch, call.pages()])?;
    let sets = setup.each(|| {
        let cache = || setup.randn(&[batch * call.pages(), PAGE, own, size]);
        Ok(Buffers {
            q: setup.randn(&[batch * new, heads, size])?,
            keys: cache()?,
            values: cache()?,
        })
    })?;
    let op = move |set: &Buffers| {
        let layout = PagedLayout {
            query_starts: &starts,
            key_lengths: &lengths,
            pages: &table,
            max_queries: new,
            max_keys: keys,
        };
        set.q.paged_attention(&set.keys, &set.values, &layout, &PagedAttention::default())
    };
    Prepared::new(sets, op, |set, y| check(&call, set, y))
}

/// A few rows beside the definition in f64.
fn check(call: &Call, set: &Buffers, y: &Tensor) -> anyhow::Result<f64> {
    let mut worst = 0.0f64;
    for sequence in sample(call.batch, 2) {
        for head in sample(call.heads, 2) {
            let line = |cache: &Tensor| -> genesis::Result<Vec<f64>> {
                let heads = cache.select(2, head * call.own / call.heads)?;
                let page = |p| heads.select(0, call.page(sequence, p))?.to_f64_vec();
                let pages = (0..call.pages()).map(page).collect::<genesis::Result<Vec<_>>>()?;
                Ok(pages.concat())
            };
            let (keys, values) = (line(&set.keys)?, line(&set.values)?);
            for token in sample(call.new, 3) {
                let row = |t: &Tensor| {
                    t.select(0, sequence * call.new + token)?.select(0, head)?.to_f64_vec()
                };
                let seen = (call.keys + token + 1).saturating_sub(call.new);
                let want = mean(&row(&set.q)?, &keys, &values, seen);
                let top = want.iter().fold(0.0, |top: f64, x| top.max(x.abs()));
                worst = worst.max(distance(&row(y)?, &want, top));
            }
        }
    }
    Ok(worst)
}

/// The first `seen` values in the weights of their keys.
fn mean(q: &[f64], keys: &[f64], values: &[f64], seen: usize) -> Vec<f64> {
    let d = q.len();
    let score =
        |key: &[f64]| key.iter().zip(q).map(|(a, b)| a * b).sum::<f64>() / (d as f64).sqrt();
    let scores: Vec<f64> = keys.chunks(d).take(seen).map(score).collect();
    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = scores.iter().map(|s| (s - top).exp()).sum();
    let mut y = vec![0.0; d];
    for (s, value) in scores.iter().zip(values.chunks(d)) {
        let w = (s - top).exp() / total;
        y.iter_mut().zip(value).for_each(|(y, v)| *y += w * v);
    }
    y
}
