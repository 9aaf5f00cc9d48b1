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
            check("digamma", x.narrow(0, 3, 1)?.digamma(), &[-INF]);
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
        check("unique", Ok(nothing.unique()?.values), &[]);
        check("unique counts", Ok(nothing.unique()?.counts), &[]);
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
