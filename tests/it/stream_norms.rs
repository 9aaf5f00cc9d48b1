//! Norms of a residual stream: of a sum in one launch with it, in the precision that products take, and whose gradient is
//! added to the one that came along the stream.

use genesis::amp::autocast;
use genesis::autograd::{GradOptions, grad};
use genesis::models::Norm;
use genesis::nn::{LayerNorm, Parameter, RmsNorm};
use genesis::profiler::{ProfilerOptions, profile};
use genesis::random::Generator;
use genesis::{DType, Device, Result, Tensor};

use crate::gpu::devices;

/// A norm of `x + residual`, with the sum.
type OfSum = fn(&Tensor, &Tensor, &[Tensor; 2]) -> Result<(Tensor, Tensor)>;

/// Each norm of a sum in one launch, and by two ops.
const NORMS: [(OfSum, OfSum); 2] = [
    (
        |x, r, [w, b]| x.add_layer_norm(r, w, b, 1e-5),
        |x, r, [w, b]| {
            let sum = x.add(r)?;
            let y = sum.layer_norm(w, b, 1e-5)?;
            Ok((sum, y))
        },
    ),
    (
        |x, r, [w, _]| x.add_rms_norm(r, w, 1e-5),
        |x, r, [w, _]| {
            let sum = x.add(r)?;
            let y = sum.rms_norm(w, 1e-5)?;
            Ok((sum, y))
        },
    ),
];

fn randn(random: &Generator, shape: &[usize], dtype: DType, on: Device) -> Result<Tensor> {
    random.randn(shape, Device::Cpu)?.to_dtype(dtype)?.to_device(on)?.requires_grad_(true)
}

fn all(tensors: &[Option<Tensor>]) -> Result<Vec<Option<Vec<f64>>>> {
    tensors.iter().map(|t| t.as_ref().map(Tensor::to_f64_vec).transpose()).collect()
}

/// Gradients of `x`, `residual` and the parameters where both the sum and its norm are read.
fn gradients(
    of: OfSum,
    operands: [&Tensor; 2],
    params: &[Tensor; 2],
    dys: [&Tensor; 2],
) -> Result<Vec<Option<Vec<f64>>>> {
    let [x, residual] = operands;
    let (sum, y) = of(x, residual, params)?;
    let dys = dys.map(Some);
    let options = GradOptions { grad_outputs: &dys, allow_unused: true, ..GradOptions::default() };
    let inputs = [x, residual, &params[0], &params[1]];
    let mut values = all(&grad(&[&sum, &y], &inputs, options)?)?;
    values.extend([Some(sum.detach().to_f64_vec()?), Some(y.detach().to_f64_vec()?)]);
    Ok(values)
}

#[test]
fn a_norm_of_a_sum_has_the_bits_of_both() -> Result<()> {
    let random = Generator::new(5);
    for on in devices("norms of sums") {
        for dtype in [DType::F32, DType::BF16, DType::F16, DType::F64] {
            for shape in [&[3, 7][..], &[2, 3, 40], &[5, 896], &[2, 17_000], &[0, 8]] {
                let width = &shape[shape.len() - 1..];
                let operand = || randn(&random, shape, dtype, on);
                let param = || randn(&random, width, dtype, on);
                let (x, residual, params) = (operand()?, operand()?, [param()?, param()?]);
                let dys = [operand()?.detach(), operand()?.detach()];
                for (number, (joined, apart)) in NORMS.iter().enumerate() {
                    let of =
                        |f: &OfSum| gradients(*f, [&x, &residual], &params, [&dys[0], &dys[1]]);
                    assert_eq!(of(joined)?, of(apart)?, "{on} {dtype} {shape:?} norm {number}");
                }
            }
        }
    }
    Ok(())
}

/// Under autocast a stream of f32 takes a term of 16 bits; what is added up and normalized is that term in f32.
#[test]
fn a_stream_in_f32_takes_terms_of_16_bits() -> Result<()> {
    let random = Generator::new(6);
    for on in devices("mixed streams") {
        let x = randn(&random, &[6, 96], DType::F32, on)?;
        let term = randn(&random, &[6, 96], DType::BF16, on)?;
        let params =
            [randn(&random, &[96], DType::F32, on)?, randn(&random, &[96], DType::F32, on)?];
        let dys =
            [randn(&random, &[6, 96], DType::F32, on)?, randn(&random, &[6, 96], DType::F32, on)?];
        let dys = [&dys[0].detach(), &dys[1].detach()];
        for (joined, apart) in NORMS {
            let of = |f| autocast(DType::BF16, || gradients(f, [&x, &term], &params, dys));
            assert_eq!(of(joined)?, of(apart)?, "{on}");
        }
    }
    Ok(())
}

#[test]
fn layers_normalize_sums_as_they_normalize() -> Result<()> {
    let random = Generator::new(7);
    for on in devices("layers of sums") {
        let layers = (LayerNorm::new(24, on)?, RmsNorm::with_eps(24, 1e-6, on)?);
        let wide = LayerNorm::new([2, 12], on)?;
        let [x, r] = [(); 2].map(|()| randn(&random, &[4, 24], DType::F32, on));
        let (x, r) = (x?, r?);
        let sum = x.add(&r)?;
        let check = |(s, y): (Tensor, Tensor), wanted: Tensor| -> Result<()> {
            assert_eq!(s.detach().to_f64_vec()?, sum.detach().to_f64_vec()?);
            assert_eq!(y.detach().to_f64_vec()?, wanted.detach().to_f64_vec()?);
            Ok(())
        };
        check(layers.0.after_add(&x, &r)?, layers.0.forward(&sum)?)?;
        check(layers.1.after_add(&x, &r)?, layers.1.forward(&sum)?)?;
        let square = |t: &Tensor| t.reshape(&[4, 2, 12]);
        check(wide.after_add(&square(&x)?, &square(&r)?)?, wide.forward(&square(&sum)?)?)?;
        let error = layers.0.after_add(&square(&x)?, &square(&r)?).unwrap_err().to_string();
        assert!(error.contains("the last axis of [4, 2, 12] is not 24"), "{error}");
    }
    Ok(())
}

/// What does not fit a norm is refused as by the op, whichever way it comes.
#[test]
fn norms_of_models_refuse_what_does_not_fit() -> Result<()> {
    let norm = Norm { weight: Parameter::new(Tensor::ones(&[4], ())?)?, eps: 1e-6, offset: 0.0 };
    let shifted = Norm { weight: norm.weight.clone(), eps: 1e-6, offset: 1.0 };
    let integers = Tensor::zeros(&[2, 4], (DType::I64, Device::Cpu))?;
    let said = |result: Result<Tensor>| result.unwrap_err().to_string();
    for norm in [&norm, &shifted] {
        let text = said(norm.forward(&Tensor::ones(&[2, 3], ())?));
        assert!(
            text.contains("rms_norm: weight is [4], the last axis of [2, 3] needs [3]"),
            "{text}"
        );
        let text = said(norm.forward(&integers));
        assert!(text.contains("rms_norm: needs a float dtype"), "{text}");
        let text = said(norm.forward(&Tensor::ones(&[], ())?));
        assert!(text.contains("needs at least 1 dimension(s)"), "{text}");
    }
    Ok(())
}

/// The gradients of a tensor that a norm and something else read, and of one that is cast beside, are added where the
/// last of them is computed.
#[test]
fn gradients_are_added_where_they_are_computed() -> Result<()> {
    let random = Generator::new(8);
    for on in devices("added gradients") {
        for dtype in [DType::F32, DType::BF16] {
            let x = randn(&random, &[8, 64], dtype, on)?;
            let weight = Parameter::new(randn(&random, &[64], dtype, on)?.detach())?;
            let block = |x: &Tensor| -> Result<Tensor> {
                let x = x.mul_scalar(2.0)?;
                let y = x.rms_norm(&weight, 1e-5)?.mul_scalar(3.0)?;
                x.add(&y)?.to_dtype(DType::F32)?.add(&x.to_dtype(DType::F32)?)
            };
            let (dx, launches) = {
                let y = block(&x)?;
                let dy = Tensor::ones_like(&y)?;
                let options = GradOptions { grad_outputs: &[Some(&dy)], ..GradOptions::default() };
                let (grads, profile) =
                    profile(ProfilerOptions::default(), |_| grad(&[&y], &[&x], options))?;
                let launches = &profile.events().launches;
                let names: Vec<_> = launches.iter().map(|launch| launch.kernel).collect();
                (grads[0].as_ref().expect("y depends on x").to_f64_vec()?, names)
            };
            // Each part alone, then the sums in the order of the tape.
            let part = |f: &dyn Fn(&Tensor) -> Result<Tensor>, dy: &Tensor| -> Result<Tensor> {
                let x = x.mul_scalar(2.0)?.detach().requires_grad_(true)?;
                let options = GradOptions { grad_outputs: &[Some(dy)], ..GradOptions::default() };
                let dx = grad(&[&f(&x)?], &[&x], options)?.remove(0);
                Ok(dx.expect("it depends on x"))
            };
            let one = Tensor::ones(&[8, 64], (dtype, on))?;
            let norm = part(&|x| x.rms_norm(&weight, 1e-5)?.mul_scalar(3.0), &one)?;
            let sum = one.add(&one)?.add(&norm)?.mul_scalar(2.0)?;
            assert_eq!(dx, sum.to_f64_vec()?, "{on} {dtype}: {launches:?}");
            if on.is_cuda() {
                let sums = launches.iter().filter(|name| name.contains("add")).count();
                let composed = if dtype == DType::F32 { 0 } else { 1 };
                assert!(sums <= composed + 1, "{launches:?}");
            }
        }
    }
    Ok(())
}

/// Of products that read one tensor, all but the first that is differentiated add to its gradient as they are computed.
#[test]
fn products_add_their_gradients_to_one() -> Result<()> {
    let random = Generator::new(10);
    let of = |on: Device, dtype: DType| -> Result<(Vec<f64>, usize)> {
        let random =
            |shape: &[usize]| random.randn(shape, Device::Cpu)?.to_dtype(dtype)?.to_device(on);
        let x = random(&[2, 32, 64])?.requires_grad_(true)?;
        let weights = [random(&[64, 48])?, random(&[64, 16])?, random(&[64, 80])?];
        let bias = random(&[80])?;
        let inner = x.mul_scalar(2.0)?;
        let [a, b] = [0, 1].map(|at| inner.matmul(&weights[at]));
        let c = inner.matmul_bias(&weights[2], &bias)?;
        let outputs = [a?, b?, c];
        let dys = outputs.iter().map(|y| random(y.shape())).collect::<Result<Vec<_>>>()?;
        let dys: Vec<Option<&Tensor>> = dys.iter().map(Some).collect();
        let options = GradOptions { grad_outputs: &dys, ..GradOptions::default() };
        let outputs = outputs.each_ref();
        let (grads, profile) =
            profile(ProfilerOptions::default(), |_| grad(&outputs, &[&x], options))?;
        let launches = &profile.events().launches;
        let added = launches.iter().filter(|launch| launch.kernel == "matmul_add").count();
        Ok((grads[0].as_ref().expect("it depends on x").to_f64_vec()?, added))
    };
    for on in devices("products that add") {
        for dtype in [DType::F32, DType::BF16] {
            random.manual_seed(10);
            let (ours, added) = of(on, dtype)?;
            random.manual_seed(10);
            let (wanted, _) = of(Device::Cpu, dtype)?;
            let within = if dtype == DType::F32 { 1e-5 } else { 2e-2 };
            for (a, b) in ours.iter().zip(&wanted) {
                assert!((a - b).abs() <= within * b.abs().max(10.0), "{on} {dtype}: {a} {b}");
            }
            assert_eq!(added, if on.is_cuda() { 2 } else { 0 }, "{on} {dtype}");
        }
    }
    Ok(())
}

/// A second derivative goes through the ops one by one.
#[test]
fn norms_of_sums_are_differentiated_twice() -> Result<()> {
    let random = Generator::new(9);
    let make = |shape: &[usize]| randn(&random, shape, DType::F64, Device::Cpu);
    let (x, r, w, b) = (make(&[3, 5])?, make(&[3, 5])?, make(&[5])?, make(&[5])?);
    for (joined, _) in NORMS {
        genesis::autograd::gradgradcheck(
            |args| {
                let params = [args[2].clone(), args[3].clone()];
                let (sum, y) = joined(&args[0], &args[1], &params)?;
                // So that both parameters are read, whichever norm it is.
                Ok(vec![sum.square()?, y.add(&args[3].mul(&args[2])?)?])
            },
            &[&x, &r, &w, &b],
            genesis::autograd::GradCheck::default(),
        )?;
    }
    Ok(())
}
