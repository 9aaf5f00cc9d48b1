//! Writes, extremes and selections at places: what is done in no order has one result.

use genesis::autograd::{BackwardOptions, grad};
use genesis::random::thread_rng;
use genesis::{DType, Device, Result, ScatterReduce, Tensor};

use crate::gpu::devices;

const NAN: f64 = f64::NAN;

fn same(what: &str, got: &Tensor, want: &[f64]) -> Result<()> {
    let got = got.to_f64_vec()?;
    let is_same = |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan();
    assert!(got.len() == want.len() && got.iter().zip(want).all(is_same), "{what} is {got:?}");
    Ok(())
}

#[test]
fn extremes_of_floats_are_found_whatever_they_are() -> Result<()> {
    for on in devices("extremes at indices") {
        let index = Tensor::from_slice_on(&[0i64, 0, 1, 4, 4], &[5], on)?;
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let of = |values: &[f64]| -> Result<Tensor> {
                Tensor::from_slice_on(values, &[5], on)?.to_dtype(dtype)
            };
            let (x, y) = (of(&[10.0, -2.0, 7.0, 5.0, -40.0])?, of(&[3.0, -9.0, NAN, -1.0, -6.0])?);
            let wants = [
                (ScatterReduce::Amax, true, [10.0, NAN, 7.0, 5.0, -1.0]),
                (ScatterReduce::Amax, false, [3.0, NAN, 7.0, 5.0, -1.0]),
                (ScatterReduce::Amin, true, [-9.0, NAN, 7.0, 5.0, -40.0]),
                (ScatterReduce::Amin, false, [-9.0, NAN, 7.0, 5.0, -6.0]),
            ];
            for (reduce, with_self, want) in wants {
                let got = x.scatter_reduce(0, &index, &y, reduce, with_self)?;
                same(&format!("{reduce:?} of {dtype}"), &got, &want)?;
            }
        }
    }
    Ok(())
}

#[test]
fn extremes_of_integers_are_found_up_to_their_bounds() -> Result<()> {
    for on in devices("extremes at indices") {
        let index = Tensor::from_slice_on(&[0i64, 1], &[2], on)?;
        let of = |t: Tensor, y: Tensor, reduce, with_self| {
            t.scatter_reduce(0, &index, &y, reduce, with_self)
        };
        let x = || Tensor::from_slice_on(&[7i64, -7, 3], &[3], on);
        let y = || Tensor::from_slice_on(&[i64::MIN, i64::MAX], &[2], on);
        let (low, high) = (i64::MIN, i64::MAX);
        let get = |reduce, with_self| of(x()?, y()?, reduce, with_self)?.to_vec::<i64>();
        assert_eq!(get(ScatterReduce::Amax, false)?, [low, high, 3]);
        assert_eq!(get(ScatterReduce::Amax, true)?, [7, high, 3]);
        assert_eq!(get(ScatterReduce::Amin, false)?, [low, high, 3]);
        assert_eq!(get(ScatterReduce::Amin, true)?, [low, -7, 3]);
        let (x, y) = ([1u64 << 63, 5, 3], [9u64, u64::MAX]);
        let get = |reduce| {
            let x = Tensor::from_slice_on(&x, &[3], on)?;
            of(x, Tensor::from_slice_on(&y, &[2], on)?, reduce, true)?.to_vec::<u64>()
        };
        assert_eq!(get(ScatterReduce::Amax)?, [1 << 63, u64::MAX, 3]);
        assert_eq!(get(ScatterReduce::Amin)?, [9, 5, 3]);
        let truth = |values: &[bool]| Tensor::from_slice_on(values, &[values.len()], on);
        let got = of(truth(&[true; 3])?, truth(&[true, false])?, ScatterReduce::Amin, true)?;
        assert_eq!(got.to_vec::<bool>()?, [true, false, true]);
    }
    Ok(())
}

/// A gradient that is written has what one that is added up has.
#[test]
fn what_is_read_once_gets_its_gradient() -> Result<()> {
    for on in devices("gradients of places") {
        let _own = thread_rng(3);
        let values = Tensor::randn(&[5, 300], on)?;
        let weight = Tensor::randn(&[5, 300], on)?;
        let grads = |f: &dyn Fn(&Tensor) -> Result<Tensor>| -> Result<Vec<f64>> {
            let x = values.detach().requires_grad_(true)?;
            f(&x)?.sum()?.backward()?;
            x.grad().expect("a gradient").to_f64_vec()
        };
        let order = values.argsort(1, false)?;
        let sorted = grads(&|x| x.sort(1, false)?.0.mul(&weight))?;
        assert_eq!(sorted, grads(&|x| x.gather(1, &order)?.mul(&weight))?);
        let top = |x: &Tensor| x.topk(7, 1, true)?.0.mul(&weight.narrow(1, 0, 7)?);
        let index = values.argsort(1, true)?.narrow(1, 0, 7)?.contiguous()?;
        let wants = grads(&|x| x.gather(1, &index)?.mul(&weight.narrow(1, 0, 7)?))?;
        assert_eq!(grads(&top)?, wants);
        let mask = values.gt_scalar(0.5)?;
        let chosen = grads(&|x| x.masked_select(&mask)?.mul_scalar(3.0))?;
        assert_eq!(chosen, mask.to_dtype(DType::F64)?.mul_scalar(3.0)?.to_f64_vec()?);
    }
    Ok(())
}

/// Rows with equal elements, of a few shapes and dtypes.
fn rows(n: usize, dtype: DType, on: Device) -> Result<Tensor> {
    let x = Tensor::randint(-40, 40, &[3, n], (DType::I64, on))?;
    if dtype.is_float() { x.to_dtype(dtype)?.div_scalar(8.0) } else { x.to_dtype(dtype) }
}

#[test]
fn selections_are_what_a_sort_begins_with() -> Result<()> {
    for on in devices("selections") {
        let _own = thread_rng(11);
        let dtypes = [DType::F32, DType::BF16, DType::F64, DType::I8, DType::I64];
        let cases = [70, 129, 2500].into_iter().flat_map(|n| dtypes.map(|d| (n, d)));
        // More than a tile of a GPU holds.
        for (n, dtype) in cases.chain([DType::F32, DType::I64].map(|d| (9000, d))) {
            let x = rows(n, dtype, on)?;
            for largest in [true, false] {
                let (values, index) = x.topk(9, 1, largest)?;
                let order = x.argsort(1, largest)?.narrow(1, 0, 9)?;
                assert_eq!(index.to_vec::<i64>()?, order.to_vec::<i64>()?, "{n} {dtype}");
                let wants = x.gather(1, &order.contiguous()?)?;
                assert_eq!(values.to_f64_vec()?, wants.to_f64_vec()?, "{n} {dtype}");
            }
            for k in [1, n / 3, n] {
                let index = x.kthvalue(k, 1, true)?.1;
                let order = x.argsort(1, false)?.narrow(1, k - 1, 1)?;
                assert_eq!(index.to_vec::<i64>()?, order.to_vec::<i64>()?, "{n} {dtype} {k}");
            }
        }
    }
    Ok(())
}

/// A rank of each row, which only the device knows.
#[test]
fn medians_leave_out_what_is_not_a_number() -> Result<()> {
    for on in devices("medians") {
        for n in [9, 2500, 9000] {
            let values: Vec<f64> = (0..3 * n)
                .map(|i| if i * 31 % 7 < i / n { f64::NAN } else { (i * 7919 % 1009) as f64 })
                .collect();
            let x = Tensor::from_f64(&values, &[3, n], (DType::F32, on))?;
            let wants: Vec<f64> = values
                .chunks(n)
                .map(|row| {
                    let mut row: Vec<f64> = row.iter().copied().filter(|v| !v.is_nan()).collect();
                    row.sort_by(f64::total_cmp);
                    row[(row.len() - 1) / 2]
                })
                .collect();
            let (values, index) = x.nanmedian_dim(1, true)?;
            assert_eq!(values.to_f64_vec()?, wants, "{n}");
            assert_eq!(x.gather(1, &index)?.to_f64_vec()?, wants, "{n}");
            let has_nan = x.median_dim(1, false)?.0.isnan()?.to_dtype(DType::F32)?;
            assert_eq!(has_nan.to_f64_vec()?, [0.0, 1.0, 1.0], "{n}");
        }
    }
    Ok(())
}

/// Windows that share elements, and running extremes with equals, against sums at places.
#[test]
fn gradients_of_runs_and_windows_are_sums_at_places() -> Result<()> {
    for on in devices("gradients of runs and windows") {
        let _own = thread_rng(13);
        for (n, size, step) in [(40, 3, 1), (41, 7, 3), (40, 2, 5), (300, 100, 1)] {
            let x = Tensor::randn(&[2, n, 3], on)?.requires_grad_(true)?;
            let windows = x.unfold(1, size, step)?;
            let weight = Tensor::randn(windows.shape(), on)?;
            windows.mul(&weight)?.sum()?.backward()?;
            let at = Tensor::arange(0.0, n as f64, 1.0, (DType::I64, on))?.reshape(&[1, n, 1])?;
            let at =
                at.broadcast_to(&[2, n, 3])?.contiguous()?.unfold(1, size, step)?.contiguous()?;
            let (count, zeros) = (weight.shape()[1], Tensor::zeros(&[2, n, 3], on)?);
            let flat = |t: &Tensor| t.transpose(2, 3)?.contiguous()?.reshape(&[2, count * size, 3]);
            let wants = zeros.scatter_add(1, &flat(&at)?, &flat(&weight)?)?;
            let off = x.grad().expect("a leaf").sub(&wants)?.abs()?.max()?.item()?;
            assert!(off < 1e-4, "{size} by {step}: off by {off}");
        }
        for n in [1, 5, 700, 3000] {
            let x = Tensor::randint(0, 9, &[3, n], (DType::I64, on))?.to_dtype(DType::F32)?;
            let x = x.requires_grad_(true)?;
            for is_largest in [true, false] {
                let (values, index) = if is_largest { x.cummax(1)? } else { x.cummin(1)? };
                let weight = Tensor::randn(&[3, n], on)?;
                let found =
                    grad(&[&values.mul(&weight)?.sum()?], &[&x], BackwardOptions::default())?;
                let zeros = Tensor::zeros(&[3, n], on)?;
                let wants = zeros.scatter_add(1, &index, &weight)?;
                let found = found[0].as_ref().expect("it is used");
                let off = found.sub(&wants)?.abs()?.max()?.item()?;
                assert!(off < 1e-3, "{n}: off by {off}");
            }
        }
    }
    Ok(())
}

#[test]
fn products_with_a_vector_are_sums_of_products() -> Result<()> {
    for on in devices("products with a vector") {
        let _own = thread_rng(5);
        for (dtype, limit) in [(DType::F32, 1e-5), (DType::F64, 1e-13)] {
            let a = Tensor::randn(&[2, 33, 47], (dtype, on))?;
            let (x, y) = (Tensor::randn(&[47], (dtype, on))?, Tensor::randn(&[33], (dtype, on))?);
            let wide = |t: &Tensor| t.to_dtype(DType::F64);
            let column = wide(&a)?.mul(&wide(&x)?)?.sum_dims(&[2], false)?;
            let row = wide(&a)?.mul(&wide(&y)?.unsqueeze(-1)?)?.sum_dims(&[1], false)?;
            for (got, want) in [(a.matmul(&x)?, column), (y.matmul(&a)?, row)] {
                assert_eq!((got.shape(), got.dtype()), (want.shape(), dtype));
                let off = wide(&got)?.sub(&want)?.abs()?.max()?.item()?;
                assert!(off < limit * 40.0, "{dtype}: off by {off}");
            }
        }
    }
    Ok(())
}
