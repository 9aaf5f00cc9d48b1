//! Special values: where NaN, infinities, zeros of both signs, scalars and tensors of nothing go. The
//! expected values are PyTorch's.

use genesis::ops::{Reduction, Window};
use genesis::{DType, Device, Result, Tensor};

use crate::gpu::devices;

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

fn of(values: &[f64], dtype: DType, on: Device) -> Result<Tensor> {
    Tensor::from_f64(values, &[values.len()], (dtype, on))
}

/// Equal, NaN to NaN and the sign of zero too.
fn check(what: &str, got: Result<Tensor>, want: &[f64]) {
    let got = got.and_then(|t| t.to_f64_vec()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let same = |a: &f64, b: &f64| (a.is_nan() && b.is_nan()) || a.to_bits() == b.to_bits();
    let all = got.len() == want.len() && got.iter().zip(want).all(|(a, b)| same(a, b));
    assert!(all, "{what} is {got:?}, not {want:?}");
}

#[test]
fn nan_wins_and_comes_last() -> Result<()> {
    for on in devices("special values") {
        for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
            let x = of(&[1.0, NAN, 3.0, -INF], dtype, on)?;
            let y = of(&[NAN, 2.0, 2.0, NAN], dtype, on)?;
            check("maximum", x.maximum(&y), &[NAN, NAN, 3.0, NAN]);
            check("minimum", x.minimum(&y), &[NAN, NAN, 2.0, NAN]);
            check("max", x.max(), &[NAN]);
            check("min", x.min(), &[NAN]);
            check("argmax", x.argmax(0), &[1.0]);
            check("argmin", x.argmin(0), &[1.0]);
            check("clamp", x.clamp(0.0, 2.0), &[1.0, NAN, 2.0, 0.0]);
            check(
                "clamp_min",
                x.clamp_min(&Tensor::zeros(&[], (dtype, on))?),
                &[1.0, NAN, 3.0, 0.0],
            );
            check("sort", Ok(x.sort(0, false)?.0), &[-INF, 1.0, 3.0, NAN]);
            check("sort down", Ok(x.sort(0, true)?.0), &[NAN, 3.0, 1.0, -INF]);
            check("topk", Ok(x.topk(2, 0, true)?.0), &[NAN, 3.0]);
            check("median", x.median(), &[NAN]);
            check("kthvalue", Ok(x.kthvalue(4, 0, false)?.0), &[NAN]);
            check("cummax", Ok(x.cummax(0)?.0), &[1.0, NAN, NAN, NAN]);
            check("cummax at", Ok(x.cummax(0)?.1), &[0.0, 1.0, 1.0, 1.0]);
            check("relu", x.relu(), &[1.0, NAN, 3.0, 0.0]);
            check("eq", x.eq(&x), &[1.0, 0.0, 1.0, 1.0]);
            check("ne", x.ne(&x), &[0.0, 1.0, 0.0, 0.0]);
            check("sign", x.sign(), &[1.0, 0.0, 1.0, -1.0]);
            check("nansum", x.narrow(0, 0, 3)?.nansum(&[0], false), &[4.0]);
            check("logical_not", x.logical_not(), &[0.0; 4]);
        }
    }
    Ok(())
}

#[test]
fn zeros_keep_their_sign() -> Result<()> {
    for on in devices("special values") {
        let x = of(&[-0.0, 0.0, -0.3], DType::F32, on)?;
        check("signbit", x.signbit(), &[1.0, 0.0, 1.0]);
        check("round", x.round(), &[-0.0, 0.0, -0.0]);
        check("trunc", x.trunc(), &[-0.0, 0.0, -0.0]);
        check("abs", x.abs(), &[0.0, 0.0, f64::from(0.3f32)]);
        check("neg", x.neg(), &[0.0, -0.0, f64::from(0.3f32)]);
        check("sin", x.narrow(0, 0, 2)?.sin(), &[-0.0, 0.0]);
        check("atan", x.narrow(0, 0, 2)?.atan(), &[-0.0, 0.0]);
        check("sinh", x.narrow(0, 0, 2)?.sinh(), &[-0.0, 0.0]);
        check("asinh", x.narrow(0, 0, 2)?.asinh(), &[-0.0, 0.0]);
        check("copysign", Tensor::ones(&[3], on)?.copysign(&x), &[-1.0, 1.0, -1.0]);
        check("reciprocal", x.narrow(0, 0, 2)?.reciprocal(), &[-INF, INF]);
        check("sqrt", x.narrow(0, 0, 2)?.sqrt(), &[-0.0, 0.0]);
    }
    Ok(())
}

#[test]
fn functions_at_their_poles() -> Result<()> {
    for on in devices("special values") {
        for dtype in [DType::F32, DType::F64] {
            let x = of(&[INF, -INF, NAN, 0.0, 1.0, -1.0], dtype, on)?;
            check("exp", x.narrow(0, 0, 4)?.exp(), &[INF, 0.0, NAN, 1.0]);
            check("expm1", x.narrow(0, 0, 4)?.expm1(), &[INF, -1.0, NAN, 0.0]);
            check("log", x.narrow(0, 0, 5)?.log(), &[INF, NAN, NAN, -INF, 0.0]);
            check("log1p", x.narrow(0, 0, 4)?.log1p(), &[INF, NAN, NAN, 0.0]);
            check("log1p", x.narrow(0, 5, 1)?.log1p(), &[-INF]);
            check("cosh", x.narrow(0, 0, 4)?.cosh(), &[INF, INF, NAN, 1.0]);
            check("sinh", x.narrow(0, 0, 4)?.sinh(), &[INF, -INF, NAN, 0.0]);
            check("asinh", x.narrow(0, 0, 4)?.asinh(), &[INF, -INF, NAN, 0.0]);
            check("acosh", x.acosh(), &[INF, NAN, NAN, NAN, 0.0, NAN]);
            check("atanh", x.atanh(), &[NAN, NAN, NAN, 0.0, INF, -INF]);
            check("lgamma", x.lgamma(), &[INF, INF, NAN, INF, 0.0, INF]);
            check("erfinv", x.erfinv(), &[NAN, NAN, NAN, 0.0, INF, -INF]);
            check("sinc", x.narrow(0, 2, 2)?.sinc(), &[NAN, 1.0]);
            check("digamma", x.narrow(0, 0, 4)?.digamma(), &[INF, NAN, NAN, -INF]);
            check("digamma", x.narrow(0, 5, 1)?.digamma(), &[NAN]);
            check("digamma", of(&[-0.0], dtype, on)?.digamma(), &[INF]);
            check("trigamma", x.narrow(0, 0, 4)?.polygamma(1), &[0.0, NAN, NAN, INF]);
            check("trigamma", x.narrow(0, 5, 1)?.polygamma(1), &[INF]);
            let y = of(&[NAN, 1.0, INF, -INF, 0.0, 0.0], dtype, on)?;
            check("hypot", x.hypot(&y), &[INF, INF, INF, INF, 1.0, 1.0]);
            check(
                "logaddexp",
                of(&[-INF, INF, INF], dtype, on)?.logaddexp(&of(&[-INF, INF, -INF], dtype, on)?),
                &[-INF, INF, INF],
            );
            check(
                "xlogy",
                of(&[0.0, 0.0, 1.0], dtype, on)?.xlogy(&of(&[0.0, NAN, 0.0], dtype, on)?),
                &[0.0, NAN, -INF],
            );
            check(
                "atan2",
                of(&[0.0, INF, -INF], dtype, on)?
                    .atan2(&of(&[1.0, INF, 0.0], dtype, on)?)?
                    .to_dtype(DType::F32)?
                    .to_dtype(DType::F64),
                &[
                    0.0,
                    f64::from(std::f32::consts::FRAC_PI_4),
                    f64::from(-std::f32::consts::FRAC_PI_2),
                ],
            );
            check(
                "nan_to_num",
                x.narrow(0, 0, 3)?.nan_to_num(5.0, Some(1.0), Some(-1.0)),
                &[1.0, -1.0, 5.0],
            );
            check("logsumexp", of(&[-INF, -INF], dtype, on)?.logsumexp(&[0], false), &[-INF]);
            check(
                "logcumsumexp",
                of(&[-INF, 0.0, INF], dtype, on)?.logcumsumexp(0),
                &[-INF, 0.0, INF],
            );
        }
    }
    Ok(())
}

#[test]
fn scalars_and_tensors_of_nothing() -> Result<()> {
    for on in devices("special values") {
        let (scalar, nothing) = (Tensor::full(&[], 2.0, on)?, Tensor::zeros(&[0, 3], on)?);
        check("sum", nothing.sum(), &[0.0]);
        check("sum_dims", nothing.sum_dims(&[0], false), &[0.0, 0.0, 0.0]);
        check("prod", nothing.prod(), &[1.0]);
        check("mean", nothing.mean(), &[NAN]);
        check("median", nothing.median(), &[NAN]);
        check("cumsum", nothing.cumsum(0), &[]);
        check("sort", Ok(nothing.sort(0, false)?.0), &[]);
        check("unique", Ok(nothing.unique(false, false)?.values), &[]);
        check("unique counts", Ok(nothing.unique(false, true)?.counts.expect("counts")), &[]);
        check("nonzero", nothing.nonzero(), &[]);
        check("bincount", Tensor::zeros(&[0], (DType::I64, on))?.bincount(None, 3), &[0.0; 3]);
        check("diff", nothing.diff(1, 0), &[]);
        check("searchsorted", Tensor::zeros(&[0], on)?.searchsorted(&scalar, false), &[0.0]);
        check("sort of a scalar", Ok(scalar.sort(0, false)?.0), &[2.0]);
        check("median of a scalar", scalar.median(), &[2.0]);
        check("cummax of a scalar", Ok(scalar.cummax(0)?.0), &[2.0]);
        check("logcumsumexp of a scalar", scalar.logcumsumexp(0), &[2.0]);
        check("unfold of a scalar", scalar.unfold(0, 1, 1), &[2.0]);
        check("mode of a scalar", Ok(scalar.mode(0, false)?.0), &[2.0]);
        check(
            "index_fill",
            scalar.index_fill(0, &Tensor::zeros(&[1], (DType::I64, on))?, 7.0),
            &[7.0],
        );
        check("isin nothing", scalar.isin(&Tensor::zeros(&[0], on)?), &[0.0]);
    }
    Ok(())
}

/// By one kernel, which reads the scores of a class that is not there nowhere.
#[test]
fn classes_that_are_not_there_are_refused() -> Result<()> {
    for on in devices("classes out of range") {
        let logits = Tensor::randn(&[3, 5], on)?;
        for wrong in [5i64, -1] {
            let target = Tensor::from_slice_on(&[0, wrong, -100], &[3], on)?;
            let read = logits.cross_entropy(&target, Reduction::Mean).and_then(|loss| loss.item());
            let text = read.expect_err("there are 5 classes").to_string();
            let why = format!(" {wrong} is out of range for 5 ");
            assert!(text.starts_with("cross_entropy: ") && text.contains(&why), "{text}");
        }
        let target = Tensor::from_slice_on(&[0i64, 4, -100], &[3], on)?;
        assert!(logits.cross_entropy(&target, Reduction::Mean)?.item()?.is_finite());
    }
    Ok(())
}

#[test]
fn means_of_integers_are_divided_towards_zero() -> Result<()> {
    for on in devices("means of integers") {
        let values: [i64; 35] = std::array::from_fn(|i| (i * i * 37 % 101) as i64 - 50);
        let x = Tensor::from_slice_on(&values, &[1, 1, 5, 7], on)?;
        let mean = |rows: &[usize], cols: &[usize], by: i64| {
            let sum: i64 =
                rows.iter().flat_map(|r| cols.iter().map(move |c| values[r * 7 + c])).sum();
            (sum / by) as f64
        };
        let window = Window { padding: vec![1, 1], ..Window::new(&[2, 3]) };
        let rows: [&[usize]; 3] = [&[0], &[1, 2], &[3, 4]];
        let cols: [&[usize]; 3] = [&[0, 1], &[2, 3, 4], &[5, 6]];
        let all = |by: &dyn Fn(&[usize], &[usize]) -> i64| -> Vec<f64> {
            let cells = rows.iter().flat_map(|r| cols.iter().map(move |c| (r, c)));
            cells.map(|(r, c)| mean(r, c, by(r, c))).collect()
        };
        let inside = |r: &[usize], c: &[usize]| (r.len() * c.len()) as i64;
        check("avg_pool", x.avg_pool(&window, false, None), &all(&inside));
        check("avg_pool, padded", x.avg_pool(&window, true, None), &all(&|_, _| 6));
        check("avg_pool by -7", x.avg_pool(&window, true, Some(-7)), &all(&|_, _| -7));
        let shared: [&[usize]; 3] = [&[0, 1], &[1, 2, 3], &[3, 4]];
        let want = shared.map(|r| mean(r, &[0, 1, 2, 3, 4, 5, 6], 7 * r.len() as i64));
        check("adaptive_avg_pool", x.adaptive_avg_pool(&[3, 1]), &want);
    }
    Ok(())
}

/// A function of one operand in f32 and where it is looked at.
type Sweep = (&'static str, fn(&Tensor) -> genesis::Result<Tensor>, f64, f64);

/// The error of each value of an f32 result, in units of its last place, beside what f64 gives.
fn ulps(single: &Tensor, double: &Tensor) -> Vec<f64> {
    let (got, want) = (single.to_f64_vec().unwrap(), double.to_f64_vec().unwrap());
    let of = |(got, want): (&f64, &f64)| {
        let least = f64::from(f32::MIN_POSITIVE);
        let place = want.abs().max(least).log2().floor().exp2() * f64::from(f32::EPSILON);
        (got - want).abs() / place
    };
    got.iter().zip(&want).map(of).collect()
}

/// So many numbers of f32 from `low` to `high`: half of them evenly, half by their magnitude.
fn numbers(low: f64, high: f64) -> Tensor {
    const HALF: usize = 50_000;
    let even = (0..HALF).map(|i| low + (high - low) * i as f64 / HALF as f64);
    let size = low.abs().max(high.abs());
    let near_zero = (0..HALF).map(|i| size * (-30.0 * i as f64 / HALF as f64).exp2());
    let signed = near_zero.enumerate().map(|(i, v)| if i % 2 == 0 { v } else { -v });
    let all: Vec<f32> = even.chain(signed).map(|v| v.clamp(low, high) as f32).collect();
    Tensor::from_slice_on(&all, &[all.len()], Device::default()).unwrap()
}

#[test]
fn functions_of_f32_are_right_to_4_places() {
    let sweeps: [Sweep; 23] = [
        ("asin", Tensor::asin, -1.0, 1.0),
        ("acos", Tensor::acos, -1.0, 1.0),
        ("atan", Tensor::atan, -50.0, 50.0),
        ("asinh", Tensor::asinh, -1e6, 1e6),
        ("asinh near 0", Tensor::asinh, -2.0, 2.0),
        ("acosh", Tensor::acosh, 1.0, 4.0),
        ("acosh far out", Tensor::acosh, 1.0, 1e12),
        ("atanh", Tensor::atanh, -0.9999, 0.9999),
        ("erfc", Tensor::erfc, -3.0, 9.0),
        ("erfc where its two ways meet", Tensor::erfc, 0.7, 0.8),
        ("lgamma", Tensor::lgamma, 0.001, 60.0),
        ("lgamma beside its zeros", Tensor::lgamma, 0.9, 2.1),
        ("lgamma far out", Tensor::lgamma, 2.9, 1e6),
        ("erfinv", Tensor::erfinv, -1.0 + 1e-6, 1.0 - 1e-6),
        ("sinc", Tensor::sinc, -0.9, 0.9),
        ("tan", Tensor::tan, -1.5, 1.5),
        ("tan far out", Tensor::tan, -3e6, 3e6),
        ("log1p", Tensor::log1p, -0.99, 50.0),
        ("sinh", Tensor::sinh, -5.0, 5.0),
        ("digamma", Tensor::digamma, 0.01, 60.0),
        ("digamma beside its zero", Tensor::digamma, 1.46, 1.463),
        ("trigamma", |x| x.polygamma(1), 0.01, 60.0),
        ("trigamma left of 0", |x| x.polygamma(1), -3.9, -0.01),
    ];
    let mut worst = Vec::new();
    for (name, f, low, high) in sweeps {
        let x = numbers(low, high);
        let (y, reference) = (f(&x).unwrap(), f(&x.to_dtype(DType::F64).unwrap()).unwrap());
        worst.push((name.to_owned(), ulps(&y, &reference)));
    }
    type Pair = fn(&Tensor, &Tensor) -> genesis::Result<Tensor>;
    let pairs: [(&str, Pair, [f64; 4]); 5] = [
        ("pow", Tensor::pow, [0.01, 30.0, -8.0, 8.0]),
        ("pow far out", Tensor::pow, [0.6, 1.6, -150.0, 150.0]),
        ("hypot", Tensor::hypot, [-1e20, 1e20, -1e20, 1e20]),
        ("atan2", Tensor::atan2, [-3.0, 3.0, -3.0, 3.0]),
        ("logaddexp", Tensor::logaddexp, [1.0, 20.0, -20.0, 20.0]),
    ];
    for (name, f, [a, b, c, d]) in pairs {
        let (x, y) = (numbers(a, b), numbers(c, d).flip(&[0]).unwrap());
        let wide = |t: &Tensor| t.to_dtype(DType::F64).unwrap();
        let (z, reference) = (f(&x, &y).unwrap(), f(&wide(&x), &wide(&y)).unwrap());
        worst.push((name.to_owned(), ulps(&z, &reference)));
    }
    for (name, errors) in worst {
        let (index, worst) =
            errors.iter().copied().enumerate().fold((0, 0.0), |most, own| {
                if own.1 > most.1 || own.1.is_nan() { own } else { most }
            });
        println!("{name}: {worst:.2} at {index}");
        // The square of a quotient there doubles its error.
        let most = if name == "trigamma left of 0" { 8.0 } else { 4.0 };
        assert!(worst <= most, "{name} is off by {worst} places at number {index}");
    }
}

#[test]
fn decimals_are_rounded_as_pytorch_rounds_them() {
    let x: &[f32] = &[0.25, 0.35, -0.04, 1e38, 16_777_217.0, -0.0, f32::INFINITY, f32::NAN];
    let x = Tensor::from_slice_on(x, &[8], Device::default()).unwrap();
    let y = x.round_decimals(1).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(y[..7], [0.2, 0.4, -0.0, 1e38, 16_777_216.0, -0.0, f32::INFINITY]);
    assert!(y[2].is_sign_negative() && y[5].is_sign_negative() && y[7].is_nan());
    let tens = x.round_decimals(-1).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(tens[..3], [0.0, 0.0, -0.0]);
}
