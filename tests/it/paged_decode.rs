//! A decode step's attention as one launch: the bits of its parts, and caches of floats of 8 bits.

use genesis::ops::{CacheSlots, PagedAttention, PagedLayout, Rotation};
use genesis::random::Generator;
use genesis::{DType, Device, Result, Tensor};

use crate::gpu::devices;

/// Heads of queries and of keys, channels, turned channels, tokens of a page.
#[derive(Clone, Copy, Debug)]
struct Model {
    heads: usize,
    groups: usize,
    d: usize,
    turned: usize,
    page_size: usize,
    dtype: DType,
    cache: DType,
    is_normed: bool,
}

impl Model {
    const SMALL: Model = Model {
        heads: 14,
        groups: 2,
        d: 64,
        turned: 64,
        page_size: 16,
        dtype: DType::BF16,
        cache: DType::BF16,
        is_normed: false,
    };
}

/// What each call is given: one new token for each sequence, of these lengths with it.
struct Step {
    model: Model,
    joined: Tensor,
    keys: Tensor,
    values: Tensor,
    weights: [Tensor; 2],
    inv_freq: Tensor,
    lengths: Vec<i64>,
    on: Device,
}

impl Step {
    fn new(model: Model, lengths: &[i64], on: Device) -> Result<Step> {
        let Model { heads, groups, d, page_size, dtype, .. } = model;
        let random = Generator::new(17);
        let draw = |shape: &[usize], dtype: DType| {
            random.randn(shape, Device::Cpu)?.to_dtype(dtype)?.to_device(on)
        };
        let pages = lengths.len() * Step::columns(lengths, page_size);
        let cache = [pages, page_size, groups, d];
        let freq = |c: usize| 10000f32.powf(-2.0 * c as f32 / model.turned.max(1) as f32);
        let inv_freq: Vec<f32> = (0..model.turned / 2).map(freq).collect();
        Ok(Step {
            model,
            joined: draw(&[lengths.len(), heads + 2 * groups, d], dtype)?,
            keys: draw(&cache, model.cache)?,
            values: draw(&cache, model.cache)?,
            weights: [draw(&[d], dtype)?, draw(&[d], dtype)?],
            inv_freq: Tensor::from_slice_on(&inv_freq, &[inv_freq.len()], on)?,
            lengths: lengths.to_vec(),
            on,
        })
    }

    fn columns(lengths: &[i64], page_size: usize) -> usize {
        lengths.iter().max().map_or(1, |&most| (most as usize).div_ceil(page_size).max(1))
    }

    /// The result and the caches, by one op or by the two that it stands for.
    fn run(&self, is_one: bool, options: &PagedAttention) -> Result<[Vec<f64>; 3]> {
        let Model { heads, groups, page_size, .. } = self.model;
        let n = self.lengths.len();
        let columns = Step::columns(&self.lengths, page_size);
        let whole = |all: Vec<i64>, shape: &[usize]| Tensor::from_slice_on(&all, shape, self.on);
        // Pages are given out from the last on; a sequence of no keys has no slot.
        let page = |s: usize, i: usize| (n * columns - 1 - (s * columns + i)) as i64;
        let slot = |(s, &len): (usize, &i64)| match len {
            0 => -1,
            len => {
                let at = len as usize - 1;
                page(s, at / page_size) * page_size as i64 + (at % page_size) as i64
            }
        };
        let (keys, values) = (self.keys.copy()?, self.values.copy()?);
        let (a, b) = (&self.weights[0], &self.weights[1]);
        let last = |&len: &i64| (len - 1).max(0);
        let rotation = Rotation {
            positions: &whole(self.lengths.iter().map(last).collect(), &[n])?,
            inv_freq: &self.inv_freq,
            scale: 1.5,
            norm: self.model.is_normed.then_some((a, b, 1e-6)),
        };
        let slots = whole(self.lengths.iter().enumerate().map(slot).collect(), &[n])?;
        let cache = CacheSlots { keys: &keys, values: &values, slots: &slots };
        let table = (0..n).flat_map(|s| (0..columns).map(move |i| page(s, i))).collect();
        let layout = PagedLayout {
            query_starts: &whole((0..=n as i64).collect(), &[n + 1])?,
            key_lengths: &whole(self.lengths.clone(), &[n])?,
            pages: &whole(table, &[n, columns])?,
            max_queries: 1,
            max_keys: *self.lengths.iter().max().expect("there are sequences") as usize,
        };
        let part = |first, heads| self.joined.narrow(1, first, heads);
        let (q, k, v) = (part(0, heads)?, part(heads, groups)?, part(heads + groups, groups)?);
        let y = if is_one {
            q.rotate_and_attend(&k, &v, &rotation, &cache, &layout, options)?
        } else {
            let q = q.rotate_and_cache(&k, &v, &rotation, &cache)?;
            q.paged_attention(&keys, &values, &layout, options)?
        };
        let all = [y, keys, values].map(|t| t.to_f64_vec());
        let [y, keys, values] = all;
        Ok([y?, keys?, values?])
    }
}

/// Both ways give the same bits.
fn check(model: Model, lengths: &[i64], options: &PagedAttention) -> Result<()> {
    for on in devices("attention of a decode step") {
        let step = Step::new(model, lengths, on)?;
        let sinks = options.sinks.as_ref().map(|t| t.to_device(on)).transpose()?;
        let options = PagedAttention { sinks, ..options.clone() };
        let (one, two) = (step.run(true, &options)?, step.run(false, &options)?);
        for (what, (a, b)) in ["y", "keys", "values"].iter().zip(one.iter().zip(&two)) {
            let differs = a.iter().zip(b).position(|(a, b)| a != b && !(a.is_nan() && b.is_nan()));
            if let Some(i) = differs {
                panic!("{on} {model:?} {lengths:?}: {what}[{i}] is {} and not {}", a[i], b[i]);
            }
        }
        assert!(one[0].iter().all(|x| x.is_finite()) && one[0].iter().any(|&x| x != 0.0));
    }
    Ok(())
}

const LENGTHS: [i64; 6] = [1, 128, 0, 129, 300, 17];

#[test]
fn one_launch_has_the_bits_of_two() -> Result<()> {
    let usual = PagedAttention::default();
    check(Model::SMALL, &LENGTHS, &usual)?;
    check(Model::SMALL, &[257], &usual)?;
    let windowed = PagedAttention { window: Some(40), ..usual.clone() };
    check(Model::SMALL, &LENGTHS, &windowed)?;
    let capped = PagedAttention { softcap: Some(3.0), scale: Some(0.3), ..usual.clone() };
    check(Model { is_normed: true, ..Model::SMALL }, &LENGTHS, &capped)
}

#[test]
fn one_launch_has_the_bits_of_two_for_other_models() -> Result<()> {
    let usual = PagedAttention::default();
    let of = |heads, groups, d, turned, page_size| Model {
        heads,
        groups,
        d,
        turned,
        page_size,
        ..Model::SMALL
    };
    check(Model { is_normed: true, ..of(8, 2, 128, 128, 16) }, &LENGTHS, &usual)?;
    // Some channels stay; heads that are no power of two, and pages that blocks do not divide.
    check(Model { is_normed: true, ..of(5, 1, 80, 32, 12) }, &[1, 40, 65], &usual)?;
    check(
        Model { is_normed: true, dtype: DType::F16, cache: DType::F16, ..of(4, 1, 256, 256, 16) },
        &[3, 50],
        &usual,
    )?;
    let f32 = Model { dtype: DType::F32, cache: DType::F32, ..of(4, 2, 64, 64, 16) };
    let sinks = Some(Tensor::from_slice(&[0.5f32, -1.0, 2.0, 0.0], &[4])?);
    check(f32, &[1, 33, 70], &PagedAttention { sinks, ..usual })
}

#[test]
fn a_cache_of_8_bits_gives_what_its_numbers_give() -> Result<()> {
    let usual = PagedAttention::default();
    for cache in [DType::F8E4M3, DType::F8E5M2] {
        let model = Model { cache, ..Model::SMALL };
        check(model, &LENGTHS, &usual)?;
        // Beside a cache of bf16 that holds the same numbers.
        for on in devices("a cache of 8 bits") {
            let narrow = Step::new(model, &[130, 5], on)?;
            let mut wide = Step::new(Model::SMALL, &[130, 5], on)?;
            let [y, keys, values] = narrow.run(true, &usual)?;
            let as_bf16 = |all: &[f64], like: &Tensor| {
                Tensor::from_f64(all, like.shape(), (DType::F64, on))?.to_dtype(DType::BF16)
            };
            wide.keys = as_bf16(&keys, &wide.keys)?;
            wide.values = as_bf16(&values, &wide.values)?;
            // Only the new key and value are rounded otherwise.
            let [wanted, ..] = wide.run(true, &usual)?;
            let far = y.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(far < 0.3, "{on} {cache}: {far}");
        }
    }
    Ok(())
}

#[test]
fn what_8_bits_do_not_hold_is_their_largest_number() -> Result<()> {
    for on in devices("large keys") {
        let model = Model { cache: DType::F8E4M3, turned: 0, ..Model::SMALL };
        let mut step = Step::new(model, &[3], on)?;
        step.joined = step.joined.mul_scalar(1e4)?;
        let [y, keys, values] = step.run(true, &PagedAttention::default())?;
        assert!([&y, &keys, &values].iter().all(|all| all.iter().all(|x| x.is_finite())), "{on}");
        assert!(keys.contains(&448.0) && values.contains(&-448.0), "{on}");
    }
    Ok(())
}

#[test]
fn caches_of_other_dtypes_are_refused() -> Result<()> {
    let model = Model { cache: DType::F32, ..Model::SMALL };
    let error = Step::new(model, &[3], Device::Cpu)?.run(true, &PagedAttention::default());
    let text = error.expect_err("f32 beside bf16").to_string();
    assert!(text.contains("bf16") && text.contains("f32"), "{text}");
    let mut step = Step::new(Model { cache: DType::F8E4M3, ..Model::SMALL }, &[3], Device::Cpu)?;
    step.values = step.values.to_dtype(DType::F8E5M2)?;
    let error = step.run(true, &PagedAttention::default()).expect_err("two dtypes");
    let text = error.to_string();
    assert!(text.contains("values of the dtype of keys"), "{text}");
    Ok(())
}
