//! One rounding of 16-bit floats, signs of zeros, and what happens at NaN and where formulas overflow;
//! the answers are PyTorch's.

use genesis::ops::info::{Family, all};
use genesis::ops::{Conv, GridPadding, GridSample, Index, ScatterReduce};
use genesis::{DType, Device, Result, Tensor};

use crate::gpu::devices;

fn of(values: &[f64], dtype: DType) -> Result<Tensor> {
    Tensor::from_f64(values, &[values.len()], (dtype, Device::Cpu))
}

fn single(values: &[f64]) -> Result<Tensor> {
    of(values, DType::F32)
}

/// The gradients of the sum of `f`, one tensor an input.
fn slopes<const N: usize>(
    inputs: [&[f64]; N],
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
) -> Result<Vec<Vec<f64>>> {
    let leaves = inputs.iter().map(|v| single(v)?.requires_grad_(true));
    let leaves = leaves.collect::<Result<Vec<Tensor>>>()?;
    f(&leaves)?.sum()?.backward()?;
    leaves.iter().map(|x| x.grad().expect("backward reached it").to_f64_vec()).collect()
}

/// The same bits, but of any NaN.
#[track_caller]
fn assert_same(got: &[f64], want: &[f64]) {
    let is_same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    let all_same = got.len() == want.len() && got.iter().zip(want).all(is_same);
    assert!(all_same, "got {got:?}, want {want:?}");
}

#[test]
fn addcmul_and_addcdiv_promote_first_and_round_once() -> Result<()> {
    let (x, b) = (single(&[0.3, -1.7])?, single(&[0.7, 1.9])?);
    let a = of(&[1.234375, -2.578125], DType::BF16)?;
    let (xs, a_s, bs) = (x.to_f64_vec()?, a.to_f64_vec()?, b.to_f64_vec()?);
    let quotient = x.addcdiv(&a, &b, 3.0)?;
    let product = x.addcmul(&a, &a, 3.3)?;
    assert_eq!((quotient.dtype(), product.dtype()), (DType::F32, DType::F32));
    for i in 0..2 {
        let want = xs[i] + 3.0 * a_s[i] / bs[i];
        assert!((quotient.to_f64_vec()?[i] - want).abs() < 1e-6 * want.abs());
        let want = xs[i] + 3.3 * a_s[i] * a_s[i];
        assert!((product.to_f64_vec()?[i] - want).abs() < 1e-6 * want.abs());
    }
    Ok(())
}

/// A number without axes does not wrap to the integers beside it on its way to a float.
#[test]
fn integers_become_floats_as_they_are() -> Result<()> {
    for device in crate::gpu::devices("integers and floats") {
        let x = Tensor::from_slice_on(&[3u8, 0], &[2], device)?;
        let y = Tensor::from_slice_on(&[-2i32], &[], device)?;
        assert_eq!(x.div(&y)?.to_f64_vec()?, [-1.5, -0.0]);
        assert_eq!(x.copysign(&y)?.to_f64_vec()?, [-3.0, -0.0]);
        assert_eq!(x.copysign_scalar(-2.0)?.to_f64_vec()?, [-3.0, -0.0]);
        assert_eq!(y.div(&x)?.to_f64_vec()?, [f64::from(-2f32 / 3.0), f64::NEG_INFINITY]);
        let of_floats = x.to_dtype(DType::F32)?.atan2(&y.to_dtype(DType::F32)?)?;
        assert_eq!(x.atan2(&y)?.to_f64_vec()?, of_floats.to_f64_vec()?);
        assert_eq!(x.atan2_scalar(-2.0)?.to_f64_vec()?, of_floats.to_f64_vec()?);
    }
    Ok(())
}

#[test]
fn lerp_by_a_number_keeps_its_fraction_and_promotes() -> Result<()> {
    let (x, y) = (of(&[1.0, 4.0], DType::I32)?, of(&[2.0, 8.0], DType::I64)?);
    let z = x.lerp_scalar(&y, 0.5)?;
    assert_eq!(z.dtype(), DType::F32);
    assert_eq!(z.to_f64_vec()?, [1.5, 6.0]);
    let z = of(&[1.0, 4.0], DType::BF16)?.lerp_scalar(&single(&[2.0, 8.0])?, 0.3)?;
    assert_eq!(z.dtype(), DType::F32);
    assert!((z.to_f64_vec()?[0] - 1.3).abs() < 1e-6);
    Ok(())
}

type Call = fn(&[Tensor]) -> Result<Tensor>;

/// Calls that are made of several ops and have no row of their own in the table.
fn composites() -> Vec<(&'static str, Call)> {
    vec![
        ("addcmul", |x| x[0].addcmul(&x[1], &x[2], 0.7)),
        ("addcdiv", |x| x[0].addcdiv(&x[1], &x[2], 0.7)),
        ("lerp", |x| x[0].lerp(&x[1], &x[2])),
        ("lerp_scalar", |x| x[0].lerp_scalar(&x[1], 0.3)),
        ("pow_scalar 3", |x| x[0].pow_scalar(3.0)),
        ("rpow_scalar", |x| x[0].rpow_scalar(1.3)),
        ("cross", |x| x[0].cross(&x[1], -1)),
        ("logit", |x| x[0].mul_scalar(0.125)?.logit(Some(0.1))),
        ("logaddexp2", |x| x[0].logaddexp2(&x[1])),
        ("gelu_tanh", |x| x[0].gelu_tanh()),
        ("elu", |x| x[0].neg()?.elu(1.3)),
        ("selu", |x| x[0].neg()?.selu()),
        ("celu", |x| x[0].neg()?.celu(1.3)),
        ("mish", |x| x[0].mish()),
        ("softplus", |x| x[0].softplus(1.3, 20.0)),
        ("hardswish", |x| x[0].hardswish()),
        ("softsign", |x| x[0].softsign()),
    ]
}

/// In 16 bits each gives what f32 gives of the same numbers, rounded.
#[test]
fn composites_of_16_bit_floats_round_once() -> Result<()> {
    let mut wrong = Vec::new();
    for dtype in [DType::BF16, DType::F16] {
        let line = |by: f64| {
            let draws: Vec<f64> =
                (1..=96).map(|i| 0.1 + (f64::from(i) * by).fract() * 3.0).collect();
            of(&draws, dtype)?.reshape(&[32, 3])
        };
        let narrow = [line(0.618)?, line(0.414)?, line(0.732)?];
        let wide = narrow.iter().map(|t| t.to_dtype(DType::F32)).collect::<Result<Vec<_>>>()?;
        for (name, call) in composites() {
            let (got, want) = (call(&narrow)?, call(&wide)?.to_dtype(dtype)?);
            assert_eq!(got.dtype(), dtype, "{name}");
            if got.to_f64_vec()? != want.to_f64_vec()? {
                wrong.push(format!("{name} of {dtype}"));
            }
        }
    }
    assert!(wrong.is_empty(), "rounded in between: {wrong:?}");
    Ok(())
}

/// The same of every elementwise op of the table: what is computed in f64 for f32 may round a tie the
/// other way, one element in eight.
#[test]
fn elementwise_ops_of_the_table_round_once() -> Result<()> {
    let mut wrong = Vec::new();
    for op in all() {
        let is_elementwise = matches!(op.family, Family::Arithmetic | Family::Transcendental);
        if !is_elementwise || !op.dtypes.contains(&DType::BF16) || !op.index_inputs.is_empty() {
            continue;
        }
        let (mut differ, mut count) = (0, 0);
        for &sample in op.samples {
            let (low, high) = op.range;
            let draw = |(i, shape): (usize, &&[usize])| {
                let n: usize = shape.iter().product();
                let step = [0.618, 0.414, 0.732][i % 3];
                let values: Vec<f64> =
                    (1..=n).map(|k| low + (k as f64 * step).fract() * (high - low)).collect();
                Tensor::from_f64(&values, shape, (DType::BF16, Device::Cpu))
            };
            let narrow = sample.iter().enumerate().map(draw).collect::<Result<Vec<_>>>()?;
            let wide = narrow.iter().map(|t| t.to_dtype(DType::F32)).collect::<Result<Vec<_>>>()?;
            let (got, want) = ((op.call)(&narrow)?, (op.call)(&wide)?);
            let (got, want) = (got.to_f64_vec()?, want.to_dtype(got.dtype())?.to_f64_vec()?);
            count += got.len();
            let is_other = |(a, b): &(&f64, &f64)| a != b && !(a.is_nan() && b.is_nan());
            differ += got.iter().zip(&want).filter(is_other).count();
        }
        if differ * 8 > count {
            wrong.push(format!("{}: {differ} of {count}", op.name));
        }
    }
    assert!(wrong.is_empty(), "rounded in between: {wrong:?}");
    Ok(())
}

#[test]
fn gradients_at_nan_and_infinity_are_pytorchs() -> Result<()> {
    const NAN: f64 = f64::NAN;
    let at: &[f64] = &[NAN, -1.0, 0.0, 2.0];
    assert_same(&slopes([at], |x| x[0].relu())?[0], &[1.0, 0.0, 0.0, 1.0]);
    let elu = &slopes([&[NAN, f64::INFINITY, 2.0]], |x| x[0].elu(1.0))?[0];
    assert_same(elu, &[1.0, 1.0, 1.0]);
    let bent = &slopes([&[NAN, f64::INFINITY, -9.0, 4.0]], |x| x[0].hardswish())?[0];
    assert_same(bent, &[1.0, 1.0, 0.0, 1.0]);
    let (a, b): (&[f64], &[f64]) = (&[NAN, 1.0, 2.0, 3.0], &[1.0, NAN, 2.0, 1.0]);
    let grads = slopes([a, b], |x| x[0].maximum(&x[1]))?;
    assert_same(&grads[0], &[1.0, 1.0, 0.5, 1.0]);
    assert_same(&grads[1], &[1.0, 1.0, 0.5, 0.0]);
    let grads = slopes([a, b], |x| x[0].minimum(&x[1]))?;
    assert_same(&grads[0], &[1.0, 1.0, 0.5, 0.0]);
    assert_same(&grads[1], &[1.0, 1.0, 0.5, 1.0]);
    // An infinite gradient does not go through a closed relu.
    let x = single(&[-1.0, 1.0])?.requires_grad_(true)?;
    x.relu()?.mul_scalar(f64::INFINITY)?.sum()?.backward()?;
    assert_same(&x.grad().expect("it has one").to_f64_vec()?, &[0.0, f64::INFINITY]);
    Ok(())
}

#[test]
fn nan_stays_and_zeros_keep_their_sign() -> Result<()> {
    let (at, want) = ([f64::NAN, -0.0, 0.0], [f64::NAN, -0.0, 0.0]);
    let calls: [fn(&Tensor) -> Result<Tensor>; 5] =
        [|x| x.relu(), |x| x.elu(1.0), |x| x.selu(), |x| x.celu(2.0), |x| x.expm1()];
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        for call in calls {
            assert_same(&call(&of(&at, dtype)?)?.to_f64_vec()?, &want);
        }
    }
    let (nan, one) = (single(&[f64::NAN, 1.0])?, single(&[1.0, f64::NAN])?);
    assert_same(&nan.maximum(&one)?.to_f64_vec()?, &[f64::NAN; 2]);
    assert_same(&nan.minimum(&one)?.to_f64_vec()?, &[f64::NAN; 2]);
    Ok(())
}

#[test]
fn the_angle_of_the_origin_has_no_slope() -> Result<()> {
    let grads = slopes([&[0.0, 1.0], &[0.0, 1.0]], |x| x[0].atan2(&x[1]))?;
    assert_eq!(grads, [[0.0, 0.5], [0.0, -0.5]]);
    // Not the origin, though the square is 0: the slope is that of a quotient by it.
    let grads = slopes([&[0.0], &[1e-39]], |x| x[0].atan2(&x[1]))?;
    assert_eq!(grads[0], [f64::INFINITY]);
    // A quotient by 16 bits' least numbers may be finite, where no square is left of them.
    for dtype in [DType::F32, DType::BF16] {
        let y = of(&[0.0], dtype)?.requires_grad_(true)?;
        let x = of(&[4e-39], dtype)?;
        y.atan2(&x)?.sum()?.backward()?;
        let slope = y.grad().expect("it has one").to_f64_vec()?[0];
        assert!((slope * x.to_f64_vec()?[0] - 1.0).abs() < 5e-3, "{dtype}: {slope:e}");
    }
    Ok(())
}

#[test]
fn the_power_of_minus_one_half_has_the_slope_of_a_power() -> Result<()> {
    let at = [4.0, -0.0, f64::INFINITY, f64::NEG_INFINITY];
    let grads = slopes([&at], |x| x[0].pow_scalar(-0.5))?;
    assert_eq!(grads[0], [-0.0625, f64::NEG_INFINITY, 0.0, 0.0]);
    Ok(())
}

#[test]
fn reductions_have_more_planes_than_a_grid_along_y() -> Result<()> {
    let planes = 65_540;
    let numbers: Vec<f32> = (0..planes * 4).map(|i| (i * 7 % 11) as f32).collect();
    let pairs = || numbers.chunks(4).flat_map(|plane| [[plane[0], plane[2]], [plane[1], plane[3]]]);
    let of = |f: fn([f32; 2]) -> f32| pairs().map(|pair| f64::from(f(pair))).collect::<Vec<_>>();
    for on in devices("many planes") {
        let x = Tensor::from_slice_on(&numbers, &[planes, 2, 2], on)?;
        assert_eq!(x.sum_dims(&[1], false)?.to_f64_vec()?, of(|[a, b]| a + b));
        assert_eq!(x.max_dims(&[1], false)?.to_f64_vec()?, of(|[a, b]| a.max(b)));
        let var = x.var_dims(&[1], 1.0, false)?.to_f64_vec()?;
        assert_eq!(var, of(|[a, b]| (a - b) * (a - b) / 2.0));
        let last = of(|[a, b]| if b > a { 1.0 } else { 0.0 });
        assert_eq!(x.argmax(1)?.to_f64_vec()?, last);
    }
    Ok(())
}

#[test]
fn points_of_a_picture_of_one_pixel_have_no_slope() -> Result<()> {
    for on in devices("slopes of points") {
        let x = Tensor::full(&[2, 1, 1, 1], 3.0, (DType::F32, on))?.requires_grad_(true)?;
        let grid = Tensor::full(&[2, 2, 5, 2], 0.3, (DType::F32, on))?.requires_grad_(true)?;
        let (padding, align_corners) = (GridPadding::Border, true);
        let options = GridSample { padding, align_corners, ..GridSample::default() };
        x.grid_sample(&grid, &options)?.sum()?.backward()?;
        assert_eq!(x.grad().expect("a gradient").to_vec::<f32>()?, [10.0; 2]);
        let of_points = grid.grad().map(|grad| grad.to_vec::<f32>()).transpose()?;
        assert!(of_points.is_none_or(|of| of == [0.0; 40]));
    }
    Ok(())
}

#[test]
fn slopes_of_mish_far_out() -> Result<()> {
    let at = [25.0, 1e20, f64::INFINITY, f64::NEG_INFINITY, -200.0];
    let grads = slopes([&at], |x| x[0].mish())?;
    assert_same(&grads[0], &[1.0, 1.0, f64::NAN, f64::NAN, 0.0]);
    Ok(())
}

#[test]
fn gelu_of_the_largest_numbers_is_finite() -> Result<()> {
    let y = single(&[3e38, -3e38, 2e38])?.gelu_tanh()?;
    assert_eq!(y.to_vec::<f32>()?, [3e38, -0.0, 2e38]);
    Ok(())
}

#[test]
fn any_number_of_decimals_can_be_asked_for() -> Result<()> {
    let x = single(&[14.5, 2.0])?;
    assert_eq!(x.round_decimals(-1)?.to_vec::<f32>()?, [10.0, 0.0]);
    for decimals in [i32::MIN, i32::MAX] {
        assert_eq!(x.round_decimals(decimals)?.numel(), 2);
    }
    Ok(())
}

#[test]
fn bools_added_at_places_stay_bools() -> Result<()> {
    let x = of(&[0.0, 1.0, 0.0], DType::Bool)?;
    let (index, ones) = (of(&[2.0, 2.0, 1.0], DType::I64)?, of(&[1.0; 3], DType::Bool)?);
    for y in [
        x.index_add(0, &index, &ones, 1.0)?,
        x.index_add(0, &index, &ones, 2.0)?,
        x.scatter_add(0, &index, &ones)?,
        x.put(&index, &ones, true)?,
    ] {
        assert_eq!(y.dtype(), DType::Bool);
        assert_eq!(y.to_f64_vec()?, [0.0, 1.0, 1.0]);
    }
    Ok(())
}

#[test]
fn integers_take_no_fraction_of_a_product() -> Result<()> {
    let matrix = Tensor::ones(&[2, 2], (DType::I32, Device::Cpu))?;
    let batch = Tensor::ones(&[1, 2, 2], (DType::I32, Device::Cpu))?;
    let vector = Tensor::ones(&[2], (DType::I32, Device::Cpu))?;
    let calls = [
        ("addmm", matrix.addmm(&matrix, &matrix, 0.5, 1.0)),
        ("baddbmm", batch.baddbmm(&batch, &batch, 1.5, 1.0)),
        ("addbmm", matrix.addbmm(&batch, &batch, 1.0, 0.5)),
        ("addmv", vector.addmv(&matrix, &vector, 0.5, 1.0)),
        ("addr", matrix.addr(&vector, &vector, f64::NAN, 1.0)),
    ];
    for (op, result) in calls {
        let message = result.expect_err(op).to_string();
        assert!(message.starts_with(&format!("{op}: alpha and beta of i32 tensors")), "{message}");
    }
    assert_eq!(matrix.addmm(&matrix, &matrix, 3.0, 2.0)?.to_vec::<i32>()?, [8; 4]);
    Ok(())
}

#[test]
fn group_norm_of_no_channels_is_refused() -> Result<()> {
    let x = Tensor::zeros(&[2, 0, 3], (DType::F32, Device::Cpu))?;
    let error = x.group_norm(1, None, None, 1e-5).expect_err("there is nothing to normalize");
    assert_eq!(error.to_string(), "group_norm: shape [2, 0, 3] has no channels");
    Ok(())
}

#[test]
fn slopes_at_nan_and_at_ties_go_as_in_pytorch() -> Result<()> {
    const NAN: f64 = f64::NAN;
    let (a, b) = ([1.0, NAN, 2.0, 2.0, NAN], [NAN, 1.0, 2.0, 3.0, NAN]);
    let pair = |f: fn(&Tensor, &Tensor) -> Result<Tensor>| slopes([&a, &b], |t| f(&t[0], &t[1]));
    for (f, x, y) in [
        (
            Tensor::fmax as fn(&Tensor, &Tensor) -> _,
            [1.0, 0.0, 1.0, 0.0, 1.0],
            [0.0, 1.0, 0.0, 1.0, 0.0],
        ),
        (Tensor::fmin, [1.0, 0.0, 1.0, 1.0, 1.0], [0.0, 1.0, 0.0, 0.0, 0.0]),
        (Tensor::clamp_min, [0.0, 0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, 0.0]),
        (Tensor::clamp_max, [0.0, 0.0, 1.0, 1.0, 0.0], [0.0; 5]),
    ] {
        let got = pair(f)?;
        assert_same(&got[0], &x);
        assert_same(&got[1], &y);
    }
    // Of all elements those that are NaN share it; along an axis all are NaN.
    assert_same(&slopes([&[1.0, NAN, NAN]], |t| t[0].max())?[0], &[0.0, 0.5, 0.5]);
    assert_same(&slopes([&[1.0, NAN, 2.0]], |t| t[0].min())?[0], &[0.0, 1.0, 0.0]);
    assert_same(&slopes([&[1.0, NAN, 2.0]], |t| t[0].max_dims(&[0], false))?[0], &[NAN; 3]);
    let far = [f64::NEG_INFINITY, -5.0, 0.0, 5.0, f64::INFINITY];
    assert_same(&slopes([&far], |t| t[0].hardswish())?[0], &[0.0, 0.0, 0.5, 1.0, 1.0]);
    // The length is the least f16, of which the inverse is infinite.
    let tiny = of(&[6e-8], DType::F16)?.requires_grad_(true)?;
    tiny.hypot(&of(&[0.0], DType::F16)?)?.sum()?.backward()?;
    assert_eq!(tiny.grad().expect("a gradient").to_f64_vec()?, [1.0]);
    Ok(())
}

#[test]
fn sums_of_products_round_once() -> Result<()> {
    let half = |values: &[f64], shape: &[usize]| of(values, DType::F16)?.reshape(shape);
    // 2048 + 1 is no f16, 2048 + 1 + 1 is one.
    let (a, b) = (half(&[2048.0, 1.0, 1.0], &[3, 1, 1])?, half(&[1.0; 3], &[3, 1, 1])?);
    let zero = half(&[0.0], &[1, 1])?;
    assert_eq!(zero.addbmm(&a, &b, 1.0, 1.0)?.to_f64_vec()?, [2050.0]);
    // 3 times 1367 is 4101, which is no f16; less 4096 it is one.
    let one = half(&[1.0], &[1, 1])?;
    let (odd, near) = (half(&[1367.0], &[1, 1])?, half(&[2048.0], &[1, 1])?);
    assert_eq!(near.addmm(&odd, &one, 3.0, -2.0)?.to_f64_vec()?, [5.0]);
    assert!(zero.addbmm(&a, &half(&[1.0; 2], &[2, 1, 1])?, 1.0, 1.0).is_err());
    Ok(())
}

#[test]
fn the_covariance_of_one_row_has_no_axes() -> Result<()> {
    let x = single(&[1.0, 2.0, 4.0])?.reshape(&[1, 3])?;
    assert_eq!(x.cov(1.0)?.shape(), [0usize; 0]);
    assert_eq!(x.corrcoef()?.to_f64_vec()?, [1.0]);
    assert_eq!(x.corrcoef()?.shape(), [0usize; 0]);
    Ok(())
}

#[test]
fn transposed_convolutions_leave_something() -> Result<()> {
    let x = Tensor::ones(&[1, 1, 2], (DType::F32, Device::Cpu))?;
    let weight = Tensor::ones(&[1, 1, 1], (DType::F32, Device::Cpu))?;
    let conv = Conv { padding: vec![[1, 1]], ..Conv::new(1) };
    let error = x.conv_transpose(&weight, None, &conv, &[0]).expect_err("it crops all");
    assert!(error.to_string().contains("nothing is left of axis 0"), "{error}");
    Ok(())
}

#[test]
fn slopes_of_quotients_do_not_overflow_in_between() -> Result<()> {
    // The divisor is a number of f32 of which the inverse is not.
    let got = slopes([&[-0.0, 1e-30], &[1e-40, 1e-20]], |t| t[0].div(&t[1]))?;
    assert_eq!(got[0], [f64::INFINITY, f64::from(1.0f32 / 1e-20)]);
    assert_eq!(got[1][0], 0.0);
    assert!((got[1][1] + 1e10).abs() < 1e4, "{got:?}");
    // The square of 300 is no f16, nor is 0.38 over the least of them.
    let far = of(&[300.0], DType::F16)?.requires_grad_(true)?;
    far.rdiv_scalar(1000.0)?.sum()?.backward()?;
    let slope = far.grad().expect("a gradient").to_f64_vec()?[0];
    assert!((slope + 1000.0 / 90_000.0).abs() < 1e-4, "{slope}");
    let tiny = of(&[6e-8], DType::F16)?.requires_grad_(true)?;
    let product = of(&[0.38], DType::F16)?.xlogy(&tiny)?;
    product.mul_scalar(0.004)?.sum()?.backward()?;
    let slope = tiny.grad().expect("a gradient").to_f64_vec()?[0];
    assert!((slope / 25_500.0 - 1.0).abs() < 0.1, "{slope}");
    Ok(())
}

#[test]
fn the_slope_of_sinc_is_exact_near_0() -> Result<()> {
    let x = f64::from(1e-3f32);
    let want = -std::f64::consts::PI.powi(2) * x / 3.0;
    let got = slopes([&[x, -x, 0.0]], |t| t[0].sinc())?;
    for (got, want) in got[0].iter().zip([want, -want, 0.0]) {
        assert!((got - want).abs() <= 1e-5 * want.abs(), "{got:e}, not {want:e}");
    }
    Ok(())
}

#[test]
fn what_is_added_at_places_is_rounded_once() -> Result<()> {
    // 2049 and 4098 are no numbers of f16; the odd one of the sum would be gone before it is added.
    let (x, source) = (of(&[1.0], DType::F16)?, of(&[2048.0, 1.0], DType::F16)?);
    let at = of(&[0.0, 0.0], DType::I64)?;
    assert_eq!(x.scatter_add(0, &at, &source)?.to_f64_vec()?, [2050.0]);
    assert_eq!(x.index_add(0, &at, &source, 1.0)?.to_f64_vec()?, [2050.0]);
    let [sum, mean, prod] = [ScatterReduce::Sum, ScatterReduce::Mean, ScatterReduce::Prod]
        .map(|reduce| x.scatter_reduce(0, &at, &source, reduce, true));
    assert_eq!(sum?.to_f64_vec()?, [2050.0]);
    assert_eq!(mean?.to_f64_vec()?, of(&[2050.0 / 3.0], DType::F16)?.to_f64_vec()?);
    assert_eq!(prod?.to_f64_vec()?, [2048.0]);
    // 300 times 300 is no f16, a tenth of it is one.
    let (x, source) = (of(&[0.1], DType::F16)?, of(&[300.0, 300.0], DType::F16)?);
    let got = x.scatter_reduce(0, &at, &source, ScatterReduce::Prod, true)?.to_f64_vec()?[0];
    assert!((got - 9000.0).abs() < 8.0, "{got}");
    Ok(())
}

#[test]
fn an_index_without_axes_takes_one_element_as_a_number_does() -> Result<()> {
    let x = Tensor::from_f64(
        &(0..120).map(f64::from).collect::<Vec<_>>(),
        &[5, 4, 6],
        (DType::F32, Device::Cpu),
    )?;
    let (one, line) = (of(&[3.0], DType::I64)?.reshape(&[])?, of(&[0.0, -1.0, 2.0], DType::I64)?);
    let odd = Index::Range(Some(1), None, 2);
    for (parts, by_number) in [
        (
            [Index::Tensor(one.clone()), odd.clone(), Index::Tensor(line.clone())],
            [Index::At(3), odd.clone(), Index::Tensor(line.clone())],
        ),
        (
            [Index::Tensor(line.clone()), odd.clone(), Index::Tensor(one.clone())],
            [Index::Tensor(line.clone()), odd.clone(), Index::At(3)],
        ),
        (
            [Index::Tensor(line.clone()), Index::Tensor(one.clone()), Index::Tensor(line.clone())],
            [Index::Tensor(line.clone()), Index::At(3), Index::Tensor(line.clone())],
        ),
    ] {
        let (got, want) = (x.index(&parts)?, x.index(&by_number)?);
        assert_eq!(
            (got.shape(), got.to_vec::<f32>()?),
            (want.shape(), want.to_vec::<f32>()?),
            "{parts:?}"
        );
    }
    Ok(())
}

#[test]
fn an_index_of_nothing_fits_any_tensor() -> Result<()> {
    let x = Tensor::ones(&[9, 1, 3], (DType::F32, Device::Cpu))?;
    let at = Tensor::zeros(&[0, 4, 6], (DType::I64, Device::Cpu))?;
    assert_eq!(x.gather(2, &at)?.shape(), [0, 4, 6]);
    assert!(x.gather(2, &Tensor::zeros(&[1, 4, 6], (DType::I64, Device::Cpu))?).is_err());
    Ok(())
}

/// The slope of a matrix that a whole batch is multiplied by is rounded once, on either side.
#[test]
fn the_slope_of_one_matrix_beside_a_batch_is_rounded_once() -> Result<()> {
    const ROWS: usize = 300;
    let number = |i: usize| ((i * 7919 + 13) % 1009) as f64 / 500.0 - 1.0;
    for device in devices("slopes of one matrix") {
        let of = |shape: &[usize], from: usize, dtype: DType| {
            let values: Vec<f64> =
                (from..from + shape.iter().product::<usize>()).map(number).collect();
            let x = Tensor::from_f64(&values, shape, (DType::BF16, device))?;
            x.to_dtype(dtype)?.requires_grad_(true)
        };
        let slopes = |dtype: DType| -> Result<Vec<Tensor>> {
            let (batch, weight) = (of(&[7, ROWS, 5], 0, dtype)?, of(&[5, 3], 99, dtype)?);
            let (left, vector) = (of(&[1, 4, ROWS], 7, dtype)?, of(&[5], 31, dtype)?);
            let y = batch.matmul(&weight)?.sum()?.add(&left.matmul(&batch)?.sum()?)?;
            y.add(&batch.matmul(&vector)?.sum()?)?.backward()?;
            [weight, left, vector]
                .iter()
                .map(|t| t.grad().expect("a slope").to_dtype(dtype))
                .collect()
        };
        for (got, want) in slopes(DType::BF16)?.iter().zip(slopes(DType::F64)?) {
            assert_eq!(got.shape(), want.shape());
            for (got, want) in got.to_f64_vec()?.into_iter().zip(want.to_f64_vec()?) {
                // Half a unit in the last place, and what sums in f32 leave.
                let limit = want.abs() * 2f64.powi(-8) + 1e-3;
                assert!((got - want).abs() <= limit, "{got}, not {want}, on {device}");
            }
        }
    }
    Ok(())
}

/// The distance of two points, and how it grows with each coordinate of the first.
fn distance(x: &[f64], y: &[f64], p: f64) -> (f64, Vec<f64>) {
    let off: Vec<f64> = x.iter().zip(y).map(|(x, y)| x - y).collect();
    let sizes = off.iter().map(|v| v.abs());
    if p == 0.0 {
        return (sizes.filter(|&v| v != 0.0).count() as f64, vec![0.0; off.len()]);
    }
    if p.is_infinite() {
        let most = sizes.fold(0.0, f64::max);
        let slope = |v: &f64| if v.abs() == most { v.signum() } else { 0.0 };
        return (most, off.iter().map(slope).collect());
    }
    let length = sizes.map(|v| v.powf(p)).sum::<f64>().powf(1.0 / p);
    (length, off.iter().map(|v| v.signum() * (v.abs() / length).powf(p - 1.0)).collect())
}

#[test]
fn distances_of_every_order() -> Result<()> {
    const D: usize = 70;
    let number = |i: usize| ((i * 7919 + 13) % 1009) as f64 / 500.0 - 1.0;
    let (a, b): (Vec<f64>, Vec<f64>) =
        ((0..4 * D).map(number).collect(), (500..500 + 3 * D).map(number).collect());
    let near = |got: &[f64], want: &[f64], what: &str| {
        for (got, want) in got.iter().zip(want) {
            assert!((got - want).abs() <= 1e-10 * want.abs().max(1.0), "{what}: {got}, not {want}");
        }
    };
    for device in devices("distances") {
        for p in [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, f64::INFINITY] {
            let x = Tensor::from_f64(&a, &[2, 2, D], (DType::F64, device))?.requires_grad_(true)?;
            let y = Tensor::from_f64(&b, &[3, D], (DType::F64, device))?.requires_grad_(true)?;
            let z = x.cdist(&y, p)?;
            assert_eq!(z.shape(), [2, 2, 3]);
            z.sum()?.backward()?;
            let (mut lengths, mut dx, mut dy) = (Vec::new(), vec![0.0; 4 * D], vec![0.0; 3 * D]);
            for (i, j) in (0..4).flat_map(|i| (0..3).map(move |j| (i, j))) {
                let (length, slopes) = distance(&a[i * D..][..D], &b[j * D..][..D], p);
                lengths.push(length);
                for (d, slope) in slopes.into_iter().enumerate() {
                    dx[i * D + d] += slope;
                    dy[j * D + d] -= slope;
                }
            }
            let slope = |t: &Tensor| t.grad().expect("it has one").to_f64_vec();
            near(&z.to_f64_vec()?, &lengths, &format!("order {p} on {device}"));
            near(&slope(&x)?, &dx, &format!("slopes of order {p} on {device}"));
            near(&slope(&y)?, &dy, &format!("slopes of the others, order {p} on {device}"));
        }
    }
    Ok(())
}

/// Distances of order 2 of many points are made of products, but for those of points that lie near each other.
#[test]
fn distances_of_near_points_do_not_cancel() -> Result<()> {
    let [n, m, d] = [130, 100, 96];
    let number = |i: usize| ((i * 7919 + 13) % 1009) as f32 / 500.0 - 1.0;
    // Two in three lie about 0; the others near each other, around 1000; some are the same.
    let coordinate = |i: usize, first: usize| match (i / d) % 3 {
        2 => 1000.0 + number(first + i) / 64.0,
        _ => number(first + i),
    };
    let mut a: Vec<f32> = (0..n * d).map(|i| coordinate(i, 0)).collect();
    let b: Vec<f32> = (0..m * d).map(|i| coordinate(i, 500)).collect();
    a[5 * d..][..d].copy_from_slice(&b[8 * d..][..d]);
    let wide = |x: &[f32]| x.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
    let (wide_a, wide_b) = (wide(&a), wide(&b));
    let slope_of = |at: usize| ((at * 31) % 17) as f64 / 8.0 - 1.0;
    let (mut lengths, mut dx, mut dy) = (Vec::new(), vec![0.0; n * d], vec![0.0; m * d]);
    for (i, j) in (0..n).flat_map(|i| (0..m).map(move |j| (i, j))) {
        let (length, slopes) = distance(&wide_a[i * d..][..d], &wide_b[j * d..][..d], 2.0);
        for (c, slope) in slopes.into_iter().enumerate().filter(|_| length > 0.0) {
            dx[i * d + c] += slope * slope_of(lengths.len());
            dy[j * d + c] -= slope * slope_of(lengths.len());
        }
        lengths.push(length);
    }
    let slopes: Vec<f64> = (0..n * m).map(slope_of).collect();
    for device in devices("distances of near points") {
        let f32_on = (DType::F32, device);
        let x = Tensor::from_slice_on(&a, &[n, d], device)?.requires_grad_(true)?;
        let y = Tensor::from_slice_on(&b, &[m, d], device)?.requires_grad_(true)?;
        let z = x.cdist(&y, 2.0)?;
        z.mul(&Tensor::from_f64(&slopes, &[n, m], f32_on)?)?.sum()?.backward()?;
        for (at, (got, want)) in z.to_f64_vec()?.iter().zip(&lengths).enumerate() {
            let error = (got - want).abs();
            assert!(error <= 2e-6 * want, "distance {at} on {device}: {got}, not {want}");
        }
        for (t, want) in [(&x, &dx), (&y, &dy)] {
            let got = t.grad().expect("it has one").to_f64_vec()?;
            for (at, (got, want)) in got.iter().zip(want).enumerate() {
                let error = (got - want).abs();
                assert!(error <= 2e-5, "slope {at} on {device}: {got}, not {want}");
            }
        }
    }
    Ok(())
}

/// What is wrong of an index is told by the next read of the device: a write of nothing leaves nothing to tell.
#[test]
fn slices_are_written_by_an_index() -> Result<()> {
    for device in devices("slices written by an index") {
        let none = Tensor::zeros(&[0], (DType::I64, device))?;
        let x = Tensor::arange(0.0, 6.0, 1.0, (DType::F32, device))?.reshape(&[3, 2])?;
        let nothing = Tensor::zeros(&[0, 2], (DType::F32, device))?;
        assert_eq!(x.index_copy(0, &none, &nothing)?.to_f64_vec()?, x.to_f64_vec()?);
        assert_eq!(x.index_fill(0, &none, 9.0)?.to_f64_vec()?, x.to_f64_vec()?);
        // Of several writes to one slice the last stays, and gets the slope.
        let at = Tensor::from_slice_on(&[2i64, 0, 2], &[3], device)?;
        let source = Tensor::arange(10.0, 16.0, 1.0, (DType::F32, device))?.reshape(&[3, 2])?;
        let (x, source) = (x.requires_grad_(true)?, source.requires_grad_(true)?);
        let y = x.index_copy(0, &at, &source)?;
        assert_eq!(y.to_f64_vec()?, [12.0, 13.0, 2.0, 3.0, 14.0, 15.0]);
        y.sum()?.backward()?;
        let slope = |t: &Tensor| t.grad().map(|grad| grad.to_f64_vec()).transpose();
        assert_eq!(slope(&x)?, Some(vec![0.0, 0.0, 1.0, 1.0, 0.0, 0.0]));
        assert_eq!(slope(&source)?, Some(vec![0.0, 0.0, 1.0, 1.0, 1.0, 1.0]));
    }
    Ok(())
}
