//! Autocast over the table of ops, its cache of weights, and scaling of gradients.

use std::collections::BTreeSet;

use genesis::amp::{
    Autocast, GradScaler, GradScalerOptions, OPS, Precision, autocast, autocast_dtype,
    cast_arguments, is_autocast_enabled, without_autocast,
};
use genesis::autograd::checkpoint;
use genesis::nn::{Linear, Module, Relu, Sequential};
use genesis::ops::info::all;
use genesis::optim::{AdamW, AdamWOptions, Optimizer, Sgd, SgdOptions, clip_grad_norm_};
use genesis::random::thread_rng;
use genesis::{DType, Device, Result, Tensor, no_grad};

use crate::ops::{Lay, inputs};

const CPU: Device = Device::Cpu;

fn precision(name: &str) -> Option<Precision> {
    let bare = name.split('/').next().unwrap_or(name);
    OPS.iter().find(|(op, _)| *op == bare).map(|&(_, precision)| precision)
}

/// Ops whose operands come in 16 bits, and whose result is of f32: a product and a loss in one.
const ENDING_IN_F32: [&str; 1] = ["linear_cross_entropy"];

#[test]
fn every_op_of_the_table_runs_in_its_precision() -> Result<()> {
    let (mut half, mut single) = (0, 0);
    let mut as_they_came = BTreeSet::new();
    let all = all();
    for info in all.iter().filter(|info| info.dtypes.contains(&DType::F32)) {
        let sample = info.samples[0];
        for dtype in [DType::F32, DType::BF16].into_iter().filter(|d| info.dtypes.contains(d)) {
            let (_, x) = inputs(info, sample, dtype, Lay::Contiguous, CPU)?;
            let plain = (info.call)(&x)?;
            let cast = autocast(DType::BF16, || (info.call)(&x))?;
            let is_float = |t: &Tensor| t.dtype().is_float();
            if !x.iter().any(is_float) || !is_float(&plain) {
                assert_eq!(cast.dtype(), plain.dtype(), "{}", info.name);
                continue;
            }
            match precision(info.name) {
                Some(Precision::Half) if ENDING_IN_F32.contains(&info.base_name()) => {
                    assert_eq!(cast.dtype(), DType::F32, "{} of {dtype}", info.name);
                }
                Some(Precision::Half) if cast.dtype() != DType::BF16 => {
                    as_they_came.insert(info.name.split('/').next().unwrap_or_default());
                }
                Some(Precision::Half) => half += 1,
                Some(Precision::Single) if cast.dtype() != DType::F32 => {
                    as_they_came.insert(info.name.split('/').next().unwrap_or_default());
                }
                Some(Precision::Single) => {
                    single += 1;
                }
                Some(Precision::Widest) => {
                    assert_eq!(cast.dtype(), plain.dtype(), "{} of {dtype}", info.name);
                }
                // Some are made of ops that are in the table.
                None => {}
            }
        }
    }
    assert!(as_they_came.is_empty(), "{as_they_came:?} give the dtype that came");
    assert!(half >= 4 && single >= 15, "{half} ops in 16 bits, {single} in f32");
    Ok(())
}

#[test]
fn gradients_have_the_dtype_of_what_they_are_of() -> Result<()> {
    for info in all().iter().filter(|i| i.is_differentiable && i.dtypes.contains(&DType::F32)) {
        let sample = info.samples[0];
        let (_, x) = inputs(info, sample, DType::F32, Lay::Contiguous, CPU)?;
        let leaf = |t: Tensor| {
            if t.dtype().is_float() { t.requires_grad_(true) } else { Ok(t) }
        };
        let x: Vec<Tensor> = x.into_iter().map(leaf).collect::<Result<_>>()?;
        let y = autocast(DType::BF16, || (info.call)(&x))?;
        if !y.requires_grad() {
            continue;
        }
        // A backward inside of a region computes in what the forward did, too.
        autocast(DType::BF16, || {
            let sum = without_autocast(|| y.to_dtype(DType::F32)?.sum())?;
            sum.backward()
        })?;
        for t in &x {
            if let Some(grad) = t.grad() {
                assert_eq!(grad.dtype(), t.dtype(), "{}", info.name);
            }
        }
    }
    Ok(())
}

/// The sums of a weight's gradient are in f32, and no rounding to the 16 bits of the product is in between.
#[test]
fn gradients_of_weights_are_sums_as_they_are() -> Result<()> {
    const ROWS: usize = 257;
    for half in [DType::BF16, DType::F16] {
        let leaf = |shape: &[usize]| Tensor::ones(shape, (DType::F32, CPU))?.requires_grad_(true);
        let x = Tensor::full(&[ROWS, 3], 1.0 + 1.0 / 64.0, (DType::F32, CPU))?;
        type Product = fn(&Tensor, &Tensor) -> Result<Tensor>;
        let products: [(&[usize], Product); 6] = [
            (&[3, 2], |x, w| x.matmul(w)),
            (&[2, 3], |x, w| x.matmul(&w.t()?)),
            (&[2, 3], |x, w| w.matmul(&x.t()?)),
            (&[3, 2], |x, w| x.matmul_bias(w, &Tensor::zeros(&[2], (w.dtype(), CPU))?)),
            (&[3, 2], |x, w| x.reshape(&[1, ROWS, 3])?.matmul(w)),
            // Cast by hand, and used twice.
            (&[3, 2], |x, w| {
                let half = autocast_dtype(CPU).expect("it is in a region");
                let (x, w) = (x.to_dtype(half)?, w.to_dtype(half)?);
                let first = x.narrow(0, 0, 1)?;
                Tensor::cat(&[&first.matmul(&w)?, &x.narrow(0, 1, ROWS - 1)?.matmul(&w)?], 0)
            }),
        ];
        for (number, (shape, product)) in products.into_iter().enumerate() {
            let w = leaf(shape)?;
            let y = autocast(half, || product(&x, &w))?;
            assert_ne!(y.dtype(), DType::F32);
            y.to_dtype(DType::F32)?.sum()?.backward()?;
            let sum = (ROWS as f32) * (1.0 + 1.0 / 64.0);
            assert_eq!(sum, 261.015_63, "more digits than 16 bits have");
            let grad = w.grad().expect("w requires a gradient");
            assert_eq!(grad.dtype(), DType::F32);
            assert_eq!(grad.to_vec::<f32>()?, [sum; 6], "product {number} in {half}");
        }
    }
    Ok(())
}

fn square(values: &[f32]) -> Result<Tensor> {
    Tensor::from_slice_on(values, &[2, 2], CPU)
}

#[test]
fn regions_nest_and_end() -> Result<()> {
    let x = square(&[1.0, 2.0, 3.0, 4.0])?;
    let dtype = || x.matmul(&x).map(|y| y.dtype());
    assert_eq!((dtype()?, is_autocast_enabled(CPU)), (DType::F32, false));
    autocast(DType::BF16, || {
        assert_eq!(dtype()?, DType::BF16);
        autocast(DType::F16, || {
            assert_eq!((dtype()?, autocast_dtype(CPU)), (DType::F16, Some(DType::F16)));
            Ok(())
        })?;
        let island = Autocast { enabled: false, ..DType::BF16.into() };
        assert_eq!(autocast(island, dtype)?, DType::F32);
        assert_eq!(without_autocast(dtype)?, DType::F32);
        let gpu_only = Autocast { cpu: false, ..DType::F16.into() };
        assert_eq!(autocast(gpu_only, dtype)?, DType::BF16, "the outer region is for the CPU");
        let elsewhere = std::thread::scope(|scope| scope.spawn(dtype).join().expect("no panic"))?;
        assert_eq!(elsewhere, DType::F32, "regions are of a thread");
        Ok(())
    })?;
    assert!(autocast(DType::BF16, || -> Result<()> { Err(genesis::Error::io("no")) }).is_err());
    assert_eq!(dtype()?, DType::F32);
    let error = autocast(DType::F64, dtype).expect_err("f64 has 64 bits").to_string();
    assert_eq!(error, "autocast: casts to bf16 or f16, not to f64");
    Ok(())
}

#[test]
fn mixed_operands_meet() -> Result<()> {
    let x = square(&[1.0, 2.0, 3.0, 4.0])?;
    let (half, wide) = (x.to_dtype(DType::BF16)?, x.to_dtype(DType::F64)?);
    autocast(DType::BF16, || {
        assert_eq!(half.matmul(&x)?.dtype(), DType::BF16);
        assert_eq!(half.softmax(-1)?.dtype(), DType::F32);
        assert_eq!(half.add(&half)?.dtype(), DType::BF16, "as it comes");
        assert_eq!(half.add(&x)?.dtype(), DType::F32, "the wider one");
        assert_eq!(wide.matmul(&wide)?.dtype(), DType::F64, "f64 is left alone");
        let cast = cast_arguments(DType::F32, &[&half, &wide])?;
        assert_eq!((cast[0].dtype(), cast[1].dtype()), (DType::F32, DType::F64));
        Ok(())
    })?;
    assert_eq!(cast_arguments(DType::F32, &[&half])?[0].dtype(), DType::BF16);
    assert!(half.matmul(&x).is_err(), "without autocast nothing is chosen");
    Ok(())
}

/// Whatever happens to a kept weight: the gradient is that of all its uses, and its newest values count.
#[test]
fn kept_weights_are_as_good_as_new_ones() -> Result<()> {
    let w = square(&[1.0, 2.0, 3.0, 4.0])?.requires_grad_(true)?;
    let x = square(&[1.0, 0.0, 0.0, 1.0])?;
    autocast(DType::BF16, || {
        // First without gradients.
        no_grad(|| x.matmul(&w))?;
        for _ in 0..2 {
            // Twice, once as a view, with a backward that frees the graph inside the region.
            let y = x.matmul(&w)?.add(&x.matmul(&w.t()?)?)?;
            y.to_dtype(DType::F32)?.sum()?.backward()?;
        }
        assert_eq!(w.grad().expect("w has one").to_vec::<f32>()?, [4.0; 4]);
        no_grad(|| w.fill_(5.0))?;
        assert_eq!(x.matmul(&w)?.to_f64_vec()?, [5.0; 4]);
        Ok(())
    })
}

#[test]
fn a_checkpoint_runs_again_in_its_region() -> Result<()> {
    let w = square(&[1.1, 2.2, 3.3, 4.4])?.requires_grad_(true)?;
    let gradient = |again: bool| -> Result<Vec<f32>> {
        w.zero_grad();
        let part = |x: &[Tensor]| x[0].matmul(&x[0])?.sin()?.to_dtype(DType::F32)?.sum();
        let loss = autocast(DType::BF16, || {
            if again { checkpoint(part, &[&w]) } else { part(std::slice::from_ref(&w)) }
        })?;
        loss.backward()?;
        w.grad().expect("w has one").to_vec()
    };
    assert_eq!(gradient(true)?, gradient(false)?);
    Ok(())
}

fn model() -> Result<Sequential> {
    let _own = thread_rng(3);
    Ok(Sequential::new().with(Linear::new(4, 16, CPU)?).with(Relu).with(Linear::new(16, 1, CPU)?))
}

#[test]
fn training_in_sixteen_bits_follows_f32() -> Result<()> {
    let x = Tensor::from_f64(
        &(0..32).map(|i| f64::from((i * 7) % 13) / 6.0 - 1.0).collect::<Vec<_>>(),
        &[8, 4],
        CPU,
    )?;
    let target = x.sum_dims(&[1], true)?;
    let run = |dtype: Option<DType>| -> Result<Vec<f64>> {
        let model = model()?;
        let mut optimizer =
            AdamW::new(model.named_parameters(), AdamWOptions { lr: 0.01, ..Default::default() });
        let mut scaler = GradScaler::new(
            GradScalerOptions { enabled: dtype == Some(DType::F16), ..Default::default() },
            CPU,
        )?;
        let mut losses = Vec::new();
        for _ in 0..20 {
            optimizer.zero_grad();
            let forward = || model.forward(&x)?.sub(&target)?.square()?.mean();
            let loss = match dtype {
                Some(dtype) => autocast(dtype, forward)?,
                None => forward()?,
            };
            scaler.scale(&loss)?.backward()?;
            scaler.unscale_(&optimizer)?;
            clip_grad_norm_(optimizer.parameters(), 1.0, 2.0)?;
            scaler.step(&mut optimizer)?;
            scaler.update()?;
            losses.push(loss.item()?);
        }
        Ok(losses)
    };
    let exact = run(None)?;
    assert!(exact[19] < 0.7 * exact[0], "{exact:?}");
    for dtype in [DType::BF16, DType::F16] {
        for (a, b) in exact.iter().zip(run(Some(dtype))?) {
            assert!((a - b).abs() < 0.05 * exact[0], "{dtype}: {a} and {b}");
        }
    }
    Ok(())
}

fn scaled_sgd(values: &[f64]) -> Result<(Tensor, Sgd)> {
    let w = Tensor::from_f64(values, &[values.len()], CPU)?.requires_grad_(true)?;
    let sgd = Sgd::new(vec![w.clone()], SgdOptions { lr: 1.0, ..Default::default() });
    Ok((w, sgd))
}

fn gradients(w: &Tensor, values: &[f64]) -> Result<()> {
    w.set_grad(Some(Tensor::from_f64(values, &[values.len()], CPU)?));
    Ok(())
}

#[test]
fn the_scale_grows_and_backs_off() -> Result<()> {
    let options = GradScalerOptions { init_scale: 8.0, growth_interval: 2, ..Default::default() };
    let mut scaler = GradScaler::new(options, CPU)?;
    let (w, mut sgd) = scaled_sgd(&[1.0, 2.0])?;
    let mut seen = Vec::new();
    for bad in [false, false, false, true, false, false, true, true] {
        gradients(&w, &[8.0, if bad { f64::INFINITY } else { 0.0 }])?;
        scaler.step(&mut sgd)?;
        assert_eq!(scaler.found_inf(&sgd)?, bad);
        scaler.update()?;
        seen.push(scaler.get_scale()?);
    }
    assert_eq!(seen, [8.0, 16.0, 16.0, 8.0, 8.0, 16.0, 8.0, 4.0]);
    // Five good steps of 8 over the scale of their time.
    assert_eq!(w.to_vec::<f32>()?, [1.0 - 1.0 - 1.0 - 0.5 - 1.0 - 1.0, 2.0]);
    let state = scaler.state_dict()?;
    assert_eq!((state.numbers["scale"], state.numbers["growth_tracker"]), (4.0, 0.0));
    let mut other = GradScaler::new(GradScalerOptions::default(), CPU)?;
    other.load_state_dict(&state)?;
    assert_eq!(other.state_dict()?.numbers, state.numbers);
    Ok(())
}

#[test]
fn each_optimizer_is_unscaled_once_and_skipped_alone() -> Result<()> {
    let mut scaler =
        GradScaler::new(GradScalerOptions { init_scale: 4.0, ..Default::default() }, CPU)?;
    let ((a, mut first), (b, mut second)) = (scaled_sgd(&[1.0])?, scaled_sgd(&[1.0])?);
    gradients(&a, &[f64::NAN])?;
    // Two backwards of one scale add up.
    for _ in 0..2 {
        scaler.scale(&b.mul(&b)?.sum()?)?.backward()?;
    }
    scaler.unscale_(&second)?;
    assert_eq!(b.grad().expect("b has one").to_vec::<f32>()?, [4.0]);
    let again = scaler.unscale_(&second).expect_err("once").to_string();
    assert_eq!(again, "unscale_: was called since the last update already");
    let norm = clip_grad_norm_(second.parameters(), 0.5, 2.0)?.item()?;
    assert_eq!(norm, 4.0);
    scaler.step(&mut first)?;
    scaler.step(&mut second)?;
    assert!(scaler.step(&mut second).is_err());
    assert!((b.to_vec::<f32>()?[0] - 0.5).abs() < 1e-6);
    assert_eq!(a.to_vec::<f32>()?, [1.0]);
    scaler.update()?;
    assert_eq!(scaler.get_scale()?, 2.0, "one of them overflowed");
    assert!(scaler.update().is_err(), "nothing was stepped");
    let half = Tensor::zeros(&[1], (DType::F16, CPU))?.requires_grad_(true)?;
    half.set_grad(Some(half.detach()));
    let narrow = Sgd::new(vec![half], SgdOptions::default());
    assert!(scaler.unscale_(&narrow).is_err(), "f16 holds no small gradients");
    Ok(())
}
