//! Attention to a cache in pages: beside the definition in f64, and the same bits however it is called.

use genesis::ops::{PagedAttention, PagedLayout};
use genesis::random::Generator;
use genesis::{DType, Device, Result, Tensor};

use crate::gpu::devices;

/// A model's heads, and the cache.
#[derive(Clone, Copy, Debug)]
struct Shape {
    heads: usize,
    groups: usize,
    d: usize,
    page_size: usize,
    dtype: DType,
    on: Device,
}

/// Queries, keys and values of every token of some sequences.
struct Sequences {
    shape: Shape,
    /// `[len, H or G, D]` of each sequence, rounded to the dtype.
    tokens: Vec<[Tensor; 3]>,
}

/// New tokens of a sequence: which, from which token on, and to which.
type Part = (usize, usize, usize);

impl Sequences {
    fn new(shape: Shape, lengths: &[usize]) -> Result<Sequences> {
        let random = Generator::new(23);
        let draw =
            |len, heads| random.randn(&[len, heads, shape.d], Device::Cpu)?.to_dtype(shape.dtype);
        let one = |&len: &usize| {
            Ok([draw(len, shape.heads)?, draw(len, shape.groups)?, draw(len, shape.groups)?])
        };
        Ok(Sequences { shape, tokens: lengths.iter().map(one).collect::<Result<_>>()? })
    }

    /// The results of parts in one call, `[n, H, D]` of each; pages are given out from the back where
    /// `is_turned`, and a few rows follow that belong to no sequence.
    fn run(
        &self,
        parts: &[Part],
        is_turned: bool,
        options: &PagedAttention,
    ) -> Result<Vec<Tensor>> {
        let Shape { page_size, dtype, on, groups, d, .. } = self.shape;
        let of = |&(_, _, end): &Part| end.div_ceil(page_size);
        let used: usize = parts.iter().map(of).sum();
        let columns = parts.iter().map(of).max().unwrap_or(0) + 1;
        let pages = used + 3;
        let full = Tensor::full(&[pages, page_size, groups, d], f64::NAN, (dtype, on))?;
        let cache = [full.copy()?, full];
        let (mut next, mut starts, mut table) = (0, vec![0i64], Vec::new());
        let mut queries = Vec::new();
        for part in parts {
            let &(s, begin, end) = part;
            let number = |p: usize| (if is_turned { pages - 1 - p } else { p }) as i64;
            let own: Vec<i64> = (next..next + of(part)).map(number).collect();
            next += of(part);
            let slot = |i: usize| own[i / page_size] * page_size as i64 + (i % page_size) as i64;
            let slots: Vec<i64> = (0..end).map(slot).collect();
            let slots = Tensor::from_slice_on(&slots, &[end], on)?;
            for (cache, rows) in cache.iter().zip(&self.tokens[s][1..]) {
                cache.write_slots_(&rows.narrow(0, 0, end)?.to_device(on)?, &slots)?;
            }
            table.extend(own.iter().copied().chain(std::iter::repeat(-7)).take(columns));
            starts.push(starts[starts.len() - 1] + (end - begin) as i64);
            queries.push(self.tokens[s][0].narrow(0, begin, end - begin)?);
        }
        queries.push(self.tokens[0][0].narrow(0, 0, 2)?);
        let q = Tensor::cat(&queries.iter().collect::<Vec<_>>(), 0)?.to_device(on)?;
        let lengths: Vec<i64> = parts.iter().map(|&(_, _, end)| end as i64).collect();
        let whole = |v: &[i64], shape: &[usize]| Tensor::from_slice_on(v, shape, on);
        let layout = PagedLayout {
            query_starts: &whole(&starts, &[starts.len()])?,
            key_lengths: &whole(&lengths, &[parts.len()])?,
            pages: &whole(&table, &[parts.len(), columns])?,
            max_queries: parts.iter().map(|&(_, begin, end)| end - begin).max().unwrap_or(0),
            max_keys: parts.iter().map(|&(_, _, end)| end).max().unwrap_or(0),
        };
        let y =
            q.paged_attention(&cache[0], &cache[1], &layout, options)?.to_device(Device::Cpu)?;
        let rest = y.narrow(0, starts[parts.len()] as usize, 2)?.to_f64_vec()?;
        assert!(rest.iter().all(|&x| x == 0.0), "rows of no sequence are 0");
        let part = |i: usize| y.narrow(0, starts[i] as usize, (starts[i + 1] - starts[i]) as usize);
        (0..parts.len()).map(part).collect()
    }

    /// The definition, in f64.
    fn reference(&self, (s, begin, end): Part, options: &PagedAttention) -> Result<Vec<f64>> {
        let Shape { heads, groups, d, .. } = self.shape;
        let [q, k, v] = self.tokens[s].each_ref().map(Tensor::to_f64_vec);
        let (q, k, v) = (q?, k?, v?);
        let sinks = options.sinks.as_ref().map(Tensor::to_f64_vec).transpose()?;
        let scale = options.scale.unwrap_or(1.0 / (d as f64).sqrt());
        let mut y = Vec::new();
        for i in begin..end {
            let first = options.window.map_or(0, |window| (i + 1).saturating_sub(window));
            for h in 0..heads {
                let at = |j: usize| (j * groups + h * groups / heads) * d;
                let score = |j: usize| {
                    let row = &q[(i * heads + h) * d..][..d];
                    let x: f64 =
                        row.iter().zip(&k[at(j)..]).map(|(a, b)| a * b).sum::<f64>() * scale;
                    options.softcap.map_or(x, |cap| cap * (x / cap).tanh())
                };
                let scores: Vec<f64> = (first..=i).map(score).collect();
                let sink = sinks.as_ref().map_or(f64::NEG_INFINITY, |sinks| sinks[h]);
                let top = scores.iter().copied().fold(sink, f64::max);
                let total =
                    scores.iter().map(|x| (x - top).exp()).sum::<f64>() + (sink - top).exp();
                for c in 0..d {
                    let weighted = scores.iter().enumerate();
                    let weighted = weighted.map(|(j, x)| (x - top).exp() * v[at(first + j) + c]);
                    y.push(weighted.sum::<f64>() / total);
                }
            }
        }
        Ok(y)
    }
}

/// Every option.
fn options(heads: usize) -> Result<[PagedAttention; 4]> {
    let sinks: Vec<f32> = (0..heads).map(|h| h as f32 - 1.0).collect();
    let usual = PagedAttention::default;
    Ok([
        usual(),
        PagedAttention { window: Some(37), ..usual() },
        PagedAttention { softcap: Some(2.0), scale: Some(0.3), ..usual() },
        PagedAttention {
            window: Some(300),
            sinks: Some(Tensor::from_slice_on(&sinks, &[heads], Device::Cpu)?),
            ..usual()
        },
    ])
}

fn on_device(options: &PagedAttention, on: Device) -> Result<PagedAttention> {
    let sinks = options.sinks.as_ref().map(|sinks| sinks.to_device(on)).transpose()?;
    Ok(PagedAttention { sinks, ..options.clone() })
}

fn shapes(on: Device) -> Vec<Shape> {
    let shape =
        |heads, groups, d, page_size, dtype| Shape { heads, groups, d, page_size, dtype, on };
    vec![
        shape(6, 2, 64, 16, DType::F32),
        shape(4, 4, 24, 64, DType::F32),
        shape(7, 1, 64, 16, DType::BF16),
        shape(4, 2, 128, 64, DType::F16),
    ]
}

#[test]
fn new_tokens_attend_as_the_definition_says() -> Result<()> {
    for on in devices("paged attention") {
        for shape in shapes(on) {
            let sequences = Sequences::new(shape, &[9, 300, 1, 530])?;
            let parts =
                [(0, 0, 9), (1, 290, 300), (2, 0, 1), (3, 529, 530), (1, 41, 41), (0, 5, 6)];
            for (number, options) in options(shape.heads)?.iter().enumerate() {
                let y = sequences.run(&parts, number % 2 == 1, &on_device(options, on)?)?;
                for (&part, y) in parts.iter().zip(&y) {
                    let (y, wanted) = (y.to_f64_vec()?, sequences.reference(part, options)?);
                    let within = if shape.dtype == DType::F32 { 2e-5 } else { 2e-2 };
                    assert_eq!(y.len(), wanted.len());
                    let far = |(a, b): (&f64, &f64)| (a - b).abs() > within || a.is_nan();
                    if let Some(i) = y.iter().zip(&wanted).position(far) {
                        panic!("{shape:?} {options:?} {part:?}: [{i}] {} not {}", y[i], wanted[i]);
                    }
                }
            }
        }
    }
    Ok(())
}

/// The bits of a tensor's values.
fn bits(t: &Tensor) -> Result<Vec<u64>> {
    Ok(t.to_f64_vec()?.into_iter().map(f64::to_bits).collect())
}

/// Each token alone in a call of its own is the measure; then batches, chunks and other pages.
#[test]
fn a_token_has_the_same_bits_in_every_batch_chunk_and_page() -> Result<()> {
    for on in devices("invariance of paged attention") {
        for shape in shapes(on) {
            let lengths = [70, 300, 1, 530];
            let sequences = Sequences::new(shape, &lengths)?;
            for options in &options(shape.heads)? {
                let options = &on_device(options, on)?;
                let alone = |s: usize, i: usize| -> Result<Vec<u64>> {
                    bits(&sequences.run(&[(s, i, i + 1)], false, options)?[0])
                };
                let compare = |parts: &[Part], is_turned: bool, what: &str| -> Result<()> {
                    let ys = sequences.run(parts, is_turned, options)?;
                    for (&(s, begin, end), y) in parts.iter().zip(&ys) {
                        let step = ((end - begin) / 5).max(1);
                        for i in (begin..end).step_by(step).chain((end > begin).then(|| end - 1)) {
                            let row = y.narrow(0, i - begin, 1)?;
                            let is_same = bits(&row)? == alone(s, i)?;
                            assert!(is_same, "{what}: {shape:?} {options:?} token {i} of {s}");
                        }
                    }
                    Ok(())
                };
                compare(&[(3, 0, 530)], false, "whole")?;
                compare(&[(0, 69, 70), (1, 299, 300), (2, 0, 1), (3, 529, 530)], true, "decode")?;
                compare(&[(3, 250, 270), (0, 0, 70), (1, 299, 300)], true, "mixed")?;
                compare(&[(1, 0, 3), (1, 3, 300)], false, "chunks")?;
            }
        }
    }
    Ok(())
}

#[test]
fn paged_attention_refuses_what_does_not_fit() -> Result<()> {
    let f = |shape: &[usize]| Tensor::zeros(shape, DType::F32);
    let i = |shape: &[usize]| Tensor::zeros(shape, DType::I64);
    let (starts, lengths, pages) = (i(&[3])?, i(&[2])?, i(&[2, 1])?);
    let layout = PagedLayout {
        query_starts: &starts,
        key_lengths: &lengths,
        pages: &pages,
        max_queries: 1,
        max_keys: 1,
    };
    let usual = PagedAttention::default();
    let refusal = |q: &Tensor, kv: &Tensor, layout: &PagedLayout<'_>, options: &PagedAttention| {
        q.paged_attention(kv, kv, layout, options).expect_err("does not fit").to_string()
    };
    let (q, kv) = (f(&[2, 4, 8])?, f(&[3, 16, 2, 8])?);
    assert_eq!(
        refusal(&q, &f(&[3, 16, 3, 8])?, &layout, &usual),
        "paged_attention: 4 heads are no multiple of 3"
    );
    assert_eq!(
        refusal(&q, &f(&[3, 16, 2, 9])?, &layout, &usual),
        "paged_attention: heads of 8 and 9 channels are not equal and 1 to 256"
    );
    assert_eq!(
        refusal(&q, &kv, &PagedLayout { key_lengths: &starts, ..layout }, &usual),
        "paged_attention: query_starts [S + 1], key_lengths [S] and pages [S, P] are [3], [3] and [2, 1]"
    );
    assert_eq!(
        refusal(&q, &kv, &layout, &PagedAttention { window: Some(0), ..usual.clone() }),
        "paged_attention: a window has at least one key, the token's own"
    );
    let wanted = f(&[2, 4, 8])?.requires_grad_(true)?;
    assert_eq!(
        refusal(&wanted, &kv, &layout, &usual),
        "paged_attention: has no gradient; call it inside of no_grad, or use varlen_attn"
    );
    Ok(())
}

#[test]
fn slots_are_written_and_those_that_are_not_there_are_skipped() -> Result<()> {
    for on in devices("slots of a cache") {
        for (pages, size, groups, d, n) in [(3, 4, 2, 3, 7), (5, 16, 3, 64, 40)] {
            let cache = Tensor::zeros(&[pages, size, groups, d], (DType::F32, on))?;
            let rows = Generator::new(5).randn(&[n, groups, d], Device::Cpu)?;
            // Every second slot from the back; the first and the last row go nowhere.
            let mut slots: Vec<i64> = (0..n).map(|i| ((pages * size - 1) - i) as i64).collect();
            slots[0] = -1;
            slots[n - 1] = (pages * size) as i64;
            // A view of a wider product, as keys are of q, k and v together.
            let wide = Tensor::cat(&[&rows, &rows], 2)?.to_device(on)?;
            let slots_on = Tensor::from_slice_on(&slots, &[n], on)?;
            cache.write_slots_(&wide.narrow(2, d, d)?, &slots_on)?;
            let (cache, rows) = (cache.to_vec::<f32>()?, rows.to_vec::<f32>()?);
            let width = groups * d;
            let mut wanted = vec![0.0f32; pages * size * width];
            for (i, &slot) in slots.iter().enumerate().take(n - 1).skip(1) {
                let row = &rows[i * width..][..width];
                wanted[slot as usize * width..][..width].copy_from_slice(row);
            }
            assert!(cache == wanted, "{on}");
        }
    }
    Ok(())
}
