//! Attention's two forms beside each other: results, gradients, what a row that sees nothing gives.

use genesis::autograd::{BackwardOptions, GradCheck, gradcheck, gradgradcheck};
use genesis::ops::{Attention, AttentionBackend};
use genesis::random::Generator;
use genesis::{DType, Device, Result, Tensor};

use crate::gpu::devices;

/// Batch, heads, groups of keys, queries, keys, elements of a head.
#[derive(Clone, Copy, Debug)]
struct Shape(usize, usize, usize, usize, usize, usize);

fn with(options: &Attention, backend: AttentionBackend) -> Attention {
    Attention { backend, ..options.clone() }
}

/// Result and gradients of both forms, the composed one in f64.
fn check(shape: Shape, dtype: DType, on: Device, options: &Attention) -> Result<()> {
    let Shape(b, h, g, m, n, d) = shape;
    let random = Generator::new((m * 1000 + n) as u64);
    let draw = |h: usize, n: usize| random.randn(&[b, h, n, d], Device::Cpu)?.to_dtype(dtype);
    let (inputs, dy) = ([draw(h, m)?, draw(g, n)?, draw(g, n)?], draw(h, m)?);
    let run = |dtype: DType, on: Device, backend: AttentionBackend| -> Result<Vec<Vec<f64>>> {
        let at = |t: &Tensor| t.to_dtype(dtype)?.to_device(on);
        let own = |t: &Tensor| at(t)?.detach().requires_grad_(true);
        let [q, k, v] = [own(&inputs[0])?, own(&inputs[1])?, own(&inputs[2])?];
        let mut options = with(options, backend);
        options.mask = options.mask.map(|mask| mask.to_device(on)).transpose()?;
        let y = q.scaled_dot_product_attention(&k, &v, &options)?;
        y.backward_with(Some(&at(&dy)?), BackwardOptions::default())?;
        let grads = [&q, &k, &v].map(|t| t.grad().expect("all want a gradient").to_f64_vec());
        [y.detach().to_f64_vec()].into_iter().chain(grads).collect()
    };
    let ours = run(dtype, on, AttentionBackend::Flash)?;
    let theirs = run(DType::F64, Device::Cpu, AttentionBackend::Composed)?;
    let within = match dtype {
        DType::F64 | DType::F32 => 1e-4,
        DType::F16 => 0.01,
        _ => 0.06,
    };
    for (what, (a, b)) in ["y", "dq", "dk", "dv"].iter().zip(ours.iter().zip(&theirs)) {
        let close = |(a, b): (&f64, &f64)| (a - b).abs() <= within * (1.0 + b.abs());
        if let Some(i) = a.iter().zip(b).position(|pair| !close(pair)) {
            panic!("{shape:?} {dtype} {on}: {what}[{i}] is {}, not {}: {options:?}", a[i], b[i]);
        }
    }
    Ok(())
}

/// What calls differ in.
fn calls(m: usize, n: usize) -> Result<Vec<Attention>> {
    let random = Generator::new(3);
    let usual = Attention { groups: true, ..Attention::default() };
    let floats = random.randn(&[1, 1, m, n], Device::Cpu)?;
    // Every third key is hidden; with `causal` the first rows see nothing.
    let hidden = Tensor::arange(0.0, n as f64, 1.0, Device::Cpu)?.remainder_scalar(3.0)?;
    let keys = hidden.gt_scalar(0.0)?.reshape(&[1, 1, 1, n])?;
    Ok(vec![
        usual.clone(),
        Attention { is_causal: true, ..usual.clone() },
        Attention { window: Some((5, 2)), scale: Some(0.3), ..usual.clone() },
        Attention { window: Some((40, 9)), is_causal: true, softcap: Some(1.5), ..usual.clone() },
        Attention { mask: Some(floats), ..usual.clone() },
        Attention { mask: Some(keys), is_causal: true, ..usual },
    ])
}

#[test]
fn both_forms_agree() -> Result<()> {
    for on in devices("attention") {
        for (m, n) in [(1, 1), (37, 70), (64, 32)] {
            for options in calls(m, n)? {
                check(Shape(2, 4, 2, m, n, 24), DType::F32, on, &options)?;
            }
        }
    }
    Ok(())
}

#[test]
fn both_forms_agree_in_every_dtype_and_head() -> Result<()> {
    for on in devices("attention of 16 bits") {
        for (dtype, d) in [(DType::F16, 64), (DType::BF16, 80), (DType::BF16, 16)] {
            let options = Attention { is_causal: true, ..Attention::default() };
            check(Shape(1, 2, 2, 130, 130, d), dtype, on, &options)?;
        }
        check(Shape(1, 1, 1, 20, 40, 256), DType::BF16, on, &Attention::default())?;
        check(Shape(1, 2, 2, 20, 40, 8), DType::F64, on, &Attention::default())?;
    }
    Ok(())
}

/// Masks, windows, caps and dropped weights have tiles of their own, by the size of heads.
#[test]
fn both_forms_agree_in_16_bits_with_every_feature() -> Result<()> {
    for on in devices("attention of 16 bits with masks and caps") {
        let heads: &[usize] = if on.is_cuda() { &[32, 64, 128, 256] } else { &[64] };
        for &d in heads {
            for options in calls(192, 256)? {
                check(Shape(1, 2, 1, 192, 256, d), DType::BF16, on, &options)?;
            }
            let leaf = || Tensor::ones(&[1, 2, 256, d], (DType::BF16, on))?.requires_grad_(true);
            let (q, k, v) = (leaf()?, leaf()?, leaf()?);
            let usual = Attention { backend: AttentionBackend::Flash, ..Attention::default() };
            let options = Attention { dropout: 0.5, softcap: Some(2.0), ..usual };
            let y = q.scaled_dot_product_attention(&k, &v, &options)?;
            // Half of the weights, twice as large.
            let mean = y.detach().mean()?.to_f64_vec()?[0];
            assert!((mean - 1.0).abs() < 0.05, "{on} {d}: {mean}");
            y.sum()?.backward()?;
            let dv = v.grad().expect("it wants one").mean()?.to_f64_vec()?[0];
            assert!((dv - 1.0).abs() < 0.05, "{on} {d}: {dv}");
        }
    }
    Ok(())
}

#[test]
fn strided_operands_and_fewer_axes_agree() -> Result<()> {
    for on in devices("attention of strided tensors") {
        let random = Generator::new(9);
        // Heads beside each other, as a projection leaves them.
        let packed = random.randn(&[2, 33, 3, 4, 16], Device::Cpu)?.to_device(on)?;
        let part = |i: usize| packed.select(2, i)?.transpose(1, 2);
        let (q, k, v) = (part(0)?, part(1)?, part(2)?);
        let run = |q: &Tensor, k: &Tensor, v: &Tensor, backend| {
            let options = Attention { is_causal: true, backend, ..Attention::default() };
            q.scaled_dot_product_attention(k, v, &options)?.to_f64_vec()
        };
        let close = |a: Vec<f64>, b: Vec<f64>| a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-4);
        use AttentionBackend::{Composed, Flash};
        assert!(close(run(&q, &k, &v, Flash)?, run(&q, &k, &v, Composed)?));
        let one = |t: &Tensor| t.select(0, 1)?.select(0, 2);
        let (q, k, v) = (one(&q)?, one(&k)?, one(&v)?);
        assert!(close(run(&q, &k, &v, Flash)?, run(&q, &k, &v, Composed)?));
    }
    Ok(())
}

/// Scores that grow from block to block, by little at first: whether what a row has is scaled or not,
/// the result is the same.
#[test]
fn rows_whose_scores_grow_agree() -> Result<()> {
    let random = Generator::new(6);
    let n = 384;
    for growth in [0.01, 0.1, 3.0] {
        let [q, k, v] = [0; 3].map(|_| random.randn(&[1, 2, n, 16], Device::Cpu));
        let steps = Tensor::arange(0.0, n as f64, 1.0, Device::Cpu)?.mul_scalar(growth)?;
        // Every query has a 1 where keys have their place.
        let first = Tensor::arange(0.0, 16.0, 1.0, Device::Cpu)?.lt_scalar(1.0)?;
        let q = first.where_(&Tensor::ones(&[1], Device::Cpu)?, &q?)?;
        let k = first.where_(&steps.reshape(&[n, 1])?, &k?)?;
        let run = |on: Device, backend| -> Result<Vec<f64>> {
            let at = |t: &Tensor| t.to_device(on);
            let options = Attention { backend, ..Attention::default() };
            let y = at(&q)?.scaled_dot_product_attention(
                &at(&k)?,
                &at(v.as_ref().expect("it is drawn"))?,
                &options,
            )?;
            y.to_f64_vec()
        };
        let theirs = run(Device::Cpu, AttentionBackend::Composed)?;
        for on in devices("attention of growing scores") {
            let ours = run(on, AttentionBackend::Flash)?;
            let is_close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-4 * (1.0 + b.abs());
            assert!(ours.iter().zip(&theirs).all(is_close), "{on} {growth}");
        }
    }
    Ok(())
}

/// With few keys a gradient of scores is a large weight times a small difference, which the mean that is
/// subtracted must not have from a rounded output: its error is that of one rounding, not of two.
#[test]
fn gradients_of_few_keys_are_rounded_once() -> Result<()> {
    for on in devices("attention to few keys") {
        let random = Generator::new(5);
        let draw = |rows: usize| {
            let t = random.randn(&[64, 2, rows, 8], Device::Cpu)?.mul_scalar(2.0)?;
            t.to_dtype(DType::BF16)
        };
        let (inputs, dy) = ([draw(5)?, draw(4)?, draw(4)?], draw(5)?);
        for is_causal in [false, true] {
            let run = |dtype: DType, on: Device, backend: AttentionBackend| {
                let at = |t: &Tensor| t.to_dtype(dtype)?.to_device(on);
                let own = |t: &Tensor| at(t)?.detach().requires_grad_(true);
                let [q, k, v] = [own(&inputs[0])?, own(&inputs[1])?, own(&inputs[2])?];
                let options = Attention { is_causal, backend, ..Attention::default() };
                let y = q.scaled_dot_product_attention(&k, &v, &options)?;
                y.backward_with(Some(&at(&dy)?), BackwardOptions::default())?;
                let grads = [&q, &k].map(|t| t.grad().expect("both want one").to_f64_vec());
                grads.into_iter().collect::<Result<Vec<_>>>()
            };
            let ours = run(DType::BF16, on, AttentionBackend::Flash)?;
            let theirs = run(DType::F64, Device::Cpu, AttentionBackend::Composed)?;
            let norm = |t: &mut dyn Iterator<Item = f64>| t.map(|x| x * x).sum::<f64>().sqrt();
            for (a, b) in ours.iter().zip(&theirs) {
                let error = norm(&mut a.iter().zip(b).map(|(a, b)| a - b));
                let relative = error / norm(&mut b.iter().copied());
                assert!(relative < 0.003, "{on} causal {is_causal}: {relative}");
            }
        }
    }
    Ok(())
}

/// Programs of a GPU share the keys then, whatever shape the operands have and however their queries are grouped.
#[test]
fn few_queries_see_all_of_many_keys() -> Result<()> {
    for on in devices("few queries against many keys") {
        for (queries, keys, groups, cap) in
            [(1, 520, 2, None), (2, 513, 1, None), (3, 640, 4, Some(5.0)), (20, 516, 4, None)]
        {
            let draw = |shape: &[usize]| Tensor::randn(shape, (DType::BF16, on));
            let q = draw(&[2, 4, queries, 40])?;
            let (k, v) = (draw(&[2, groups, keys, 40])?, draw(&[2, groups, keys, 40])?);
            let options = Attention { groups: true, softcap: cap, ..Attention::default() };
            let composed = Attention { backend: AttentionBackend::Composed, ..options.clone() };
            let wants = q.scaled_dot_product_attention(&k, &v, &composed)?;
            let found = q.scaled_dot_product_attention(&k, &v, &options)?;
            assert_eq!((found.shape(), found.dtype()), (wants.shape(), wants.dtype()));
            let off = found.sub(&wants)?.abs()?.max()?.item()?;
            assert!(off < 4e-3, "{queries} queries, {keys} keys: off by {off}");
        }
    }
    Ok(())
}

/// One key has all of the weight, however large its score is.
#[test]
fn one_key_gives_its_queries_no_gradient() -> Result<()> {
    for on in devices("attention to one key") {
        let random = Generator::new(11);
        for dtype in [DType::BF16, DType::F16] {
            let draw = |by: f64| {
                let t = random.randn(&[3, 2, 1, 16], Device::Cpu)?.mul_scalar(by)?;
                t.to_dtype(dtype)?.to_device(on)?.requires_grad_(true)
            };
            let (q, k, v) = (draw(30.0)?, draw(30.0)?, draw(30.0)?);
            let backend = AttentionBackend::Flash;
            let options = Attention { backend, ..Attention::default() };
            q.scaled_dot_product_attention(&k, &v, &options)?.sum()?.backward()?;
            for t in [&q, &k] {
                let grad = t.grad().expect("it was asked for").to_f64_vec()?;
                assert!(grad.iter().all(|&x| x == 0.0), "{on} {dtype} {grad:?}");
            }
        }
    }
    Ok(())
}

/// The largest weight of a row is exactly 1, wherever its key stands, so that a result which is that weight
/// over the sum is rounded once, when it is written.
#[test]
fn the_largest_weight_is_exact() -> Result<()> {
    let (m, n, d, largest) = (64, 256, 16, 200);
    let matrix = |rows: usize, of: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
        (0..rows * d).map(|i| of(i / d, i % d)).collect()
    };
    // Scores: 0 of the first key, up to 5 of the largest, -1000 of all others.
    let q = matrix(m, &|i, c| [1.0, 0.05 + 0.07 * i as f64, 0.0][c.min(2)]);
    let k = matrix(n, &|j, c| match (j, c) {
        (j, 1) if j == largest => 1.0,
        (j, 0) if j != 0 && j != largest => -1000.0,
        _ => 0.0,
    });
    let v = matrix(n, &|j, _| f64::from(u8::from(j == largest)));
    let backend = AttentionBackend::Flash;
    let options = Attention { backend, scale: Some(1.0), ..Attention::default() };
    for on in devices("attention whose largest weights come late") {
        for (dtype, half_step) in [(DType::BF16, 0.5f64.powi(9)), (DType::F16, 0.5f64.powi(12))] {
            let tensor = |data: &[f64], rows| {
                Tensor::from_f64(data, &[1, 1, rows, d], (DType::F32, on))?.to_dtype(dtype)
            };
            let q = tensor(&q, m)?;
            let y = q.scaled_dot_product_attention(&tensor(&k, n)?, &tensor(&v, n)?, &options)?;
            for (y, q) in y.to_f64_vec()?.chunks(d).zip(q.to_f64_vec()?.chunks(d)) {
                let right = 1.0 / (1.0 + (-q[1]).exp());
                let is_near = |y: &f64| (y - right).abs() <= half_step + 1e-6;
                assert!(y.iter().all(is_near), "{on} {dtype}: {} for {right}", y[0]);
            }
        }
    }
    Ok(())
}

#[test]
fn a_score_that_is_nan_makes_its_row_nan_and_no_other() -> Result<()> {
    for on in devices("attention to what is no number") {
        let random = Generator::new(7);
        let draw = || random.randn(&[1, 1, 96, 16], Device::Cpu)?.to_device(on);
        let (q, k, v) = (draw()?, draw()?, draw()?);
        // The third query's score of the key that is first in its block, in it, or last.
        for key in [32, 40, 95] {
            let at = |row: usize, column: usize| (row == 2 && column == key) as u8 as f64;
            let bias: Vec<f64> = (0..96 * 96)
                .map(|i| if at(i / 96, i % 96) == 1.0 { f64::NAN } else { 0.0 })
                .collect();
            let mask = Tensor::from_f64(&bias, &[96, 96], (DType::F32, on))?;
            let backend = AttentionBackend::Flash;
            let options = Attention { mask: Some(mask), backend, ..Attention::default() };
            let y = q.scaled_dot_product_attention(&k, &v, &options)?.to_f64_vec()?;
            let is_right = |(i, x): (usize, &f64)| x.is_nan() == (i / 16 == 2);
            assert!(y.iter().enumerate().all(is_right), "{on} {key}");
        }
    }
    Ok(())
}

#[test]
fn rows_that_see_nothing_are_exactly_zero() -> Result<()> {
    for on in devices("attention to nothing") {
        let random = Generator::new(1);
        let draw = || random.randn(&[1, 1, 4, 8], Device::Cpu)?.to_device(on)?.requires_grad_(true);
        let (q, k, v) = (draw()?, draw()?, draw()?);
        // The second and the last query see nothing.
        let rows = [1.0, 0.0, 1.0, 0.0];
        let mask = Tensor::from_f64(&rows, &[4, 1], (DType::Bool, on))?.broadcast_to(&[4, 4])?;
        let backend = AttentionBackend::Flash;
        let options = Attention { mask: Some(mask), backend, ..Attention::default() };
        let y = q.scaled_dot_product_attention(&k, &v, &options)?;
        y.sum()?.backward()?;
        for (t, what) in [(&y.detach(), "y"), (&q.grad().expect("it was asked for"), "dq")] {
            let all = t.to_f64_vec()?;
            let blank = all[8..16].iter().chain(&all[24..]).all(|&x| x == 0.0);
            assert!(blank && all.iter().all(|x| x.is_finite()), "{what} {all:?}");
        }
    }
    Ok(())
}

#[test]
fn first_and_second_derivatives_agree_with_differences() -> Result<()> {
    let random = Generator::new(2);
    let draw = |h: usize, n: usize| {
        random.randn(&[1, h, n, 4], (DType::F64, Device::Cpu))?.requires_grad_(true)
    };
    let (q, k, v) = (draw(2, 3)?, draw(1, 4)?, draw(1, 4)?);
    let options = Attention {
        is_causal: true,
        groups: true,
        softcap: Some(2.0),
        backend: AttentionBackend::Flash,
        ..Attention::default()
    };
    let f = |x: &[Tensor]| Ok(vec![x[0].scaled_dot_product_attention(&x[1], &x[2], &options)?]);
    gradcheck(f, &[&q, &k, &v], GradCheck::default())?;
    gradgradcheck(f, &[&q, &k, &v], GradCheck::default())
}

#[test]
fn the_choice_is_explained() -> Result<()> {
    let t = |shape: &[usize]| Tensor::zeros(shape, Device::Cpu);
    let options = Attention::default();
    let why = |q: &Tensor, options: &Attention| q.attention_backend(q, q, options);
    let q = t(&[1, 2, 3, 8])?;
    let picked = why(&q, &options)?;
    assert_eq!(picked.0, AttentionBackend::Composed);
    assert_eq!(picked.1, "on the CPU products are a library's");
    let flash = with(&options, AttentionBackend::Flash);
    let refused = why(&t(&[1, 2, 3, 300])?, &flash).unwrap_err().to_string();
    let text = "scaled_dot_product_attention: the flash form can't be used: heads of 300 and 300 elements \
                are not equal and 256 at most";
    assert_eq!(refused, text);
    let capped = Attention { softcap: Some(0.0), ..options };
    let refused = why(&q, &capped).unwrap_err().to_string();
    assert_eq!(refused, "scaled_dot_product_attention: softcap must be a positive number");
    Ok(())
}
