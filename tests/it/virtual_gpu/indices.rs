//! Sorts, compaction and sums at indices, whose kernels on a GPU are others than on the CPU.

use anyhow::ensure;
use genesis::ops::Index;
use genesis::{DType, Device, ScatterReduce, Tensor, Unique};

use super::{is_on, pass};

/// One call, on the device of its operands: floats `[2, 3000]`, integers of the same shape, and an index below 300.
type Call = fn(&Tensor, &Tensor, &Tensor) -> genesis::Result<Vec<Tensor>>;

fn pair((a, b): (Tensor, Tensor)) -> genesis::Result<Vec<Tensor>> {
    Ok(vec![a, b])
}

fn distinct(found: Unique) -> genesis::Result<Vec<Tensor>> {
    Ok([Some(found.values), found.inverse, found.counts].into_iter().flatten().collect())
}

/// Rows of two parts and of one, keys of 16, 32 and 64 bits, both directions; slices and elements at indices that occur
/// often, once and never.
const CALLS: &[(&str, Call)] = &[
    ("sort", |x, _, _| pair(x.sort(-1, false)?)),
    ("sort down", |x, _, _| pair(x.narrow(1, 0, 1500)?.sort(-1, true)?)),
    ("sort of 16 bits", |x, _, _| pair(x.to_dtype(DType::BF16)?.sort(-1, true)?)),
    ("sort of integers", |_, i, _| pair(i.narrow(0, 0, 1)?.sort(-1, false)?)),
    ("sort of few", |_, i, _| pair(i.to_dtype(DType::I32)?.narrow(1, 0, 40)?.sort(-1, true)?)),
    ("topk", |x, _, _| pair(x.topk(20, -1, true)?)),
    ("median", |x, _, _| pair(x.median_dim(-1, false)?)),
    ("nonzero", |_, i, _| Ok(vec![i.remainder_scalar(3.0)?.nonzero()?])),
    ("masked_select", |x, _, _| Ok(vec![x.masked_select(&x.gt_scalar(0.5)?)?])),
    ("nonzero of three axes", |_, i, _| {
        Ok(vec![i.reshape(&[20, 3, 100])?.remainder_scalar(3.0)?.nonzero()?])
    }),
    ("unique", |_, i, _| distinct(i.remainder_scalar(100.0)?.unique(true, true)?)),
    ("unique of many", |x, i, _| {
        let numbers = i.remainder_scalar(700.0)?;
        let floats = Tensor::cat(&[x, &x.mul_scalar(0.5)?], 0)?;
        let halves = floats.to_dtype(DType::BF16)?;
        [&Tensor::cat(&[&numbers, i], 1)?, &numbers.to_dtype(DType::U8)?, &floats, &halves]
            .into_iter()
            .map(|x| Ok(x.unique(false, false)?.values))
            .collect()
    }),
    ("counts of many", |x, _, _| {
        let all = Tensor::cat(&[x, x], 1)?.mul_scalar(10.0)?.round()?;
        let mut found = distinct(all.unique(true, true)?)?;
        found.extend(distinct(all.sort(1, false)?.0.unique_consecutive(true, true)?)?);
        found.extend(distinct(all.gt_scalar(3.0)?.unique_consecutive(true, true)?)?);
        Ok(found)
    }),
    ("unique_dim", |x, i, _| {
        let rows = i.remainder_scalar(2.0)?.reshape(&[300, 20])?.narrow(1, 0, 7)?;
        let mut found = distinct(rows.unique_dim(0, true, true)?)?;
        found.extend(distinct(x.narrow(1, 0, 40)?.round()?.unique_dim(1, true, true)?)?);
        found.extend(distinct(i.remainder_scalar(5.0)?.unique_dim(1, true, false)?)?);
        // Rows of more than one piece, of which many are equal.
        let wide = Tensor::cat(&[i, i], 1)?.remainder_scalar(3.0)?.reshape(&[2400, 5])?;
        found.extend(distinct(wide.unique_dim(0, true, true)?)?);
        Ok(found)
    }),
    ("masks", |x, i, _| {
        let even = i.remainder_scalar(2.0)?.eq_scalar(0.0)?;
        let many = Tensor::cat(&[x, x], 1)?;
        let mask = Tensor::cat(&[&even, &x.gt_scalar(1.0)?], 1)?;
        let rows = even.narrow(1, 0, 300)?.select(0, 0)?;
        let wide = x.reshape(&[300, 20])?;
        let part = |t: &Tensor| t.narrow(1, 0, 900);
        Ok(vec![
            many.masked_select(&mask)?,
            many.masked_scatter(&mask, &many.neg()?)?,
            part(x)?.masked_scatter(&part(&even)?, x)?,
            wide.index(&[Index::Tensor(rows.clone())])?,
            wide.index_put(&[Index::Tensor(rows.clone())], &wide.narrow(0, 0, 1)?, false)?,
            wide.index_put(&[Index::Tensor(rows)], &wide.narrow(0, 0, 1)?, true)?,
        ])
    }),
    ("writes", |x, i, at| {
        let wide = x.reshape(&[300, 20])?;
        let source = x.narrow(1, 0, 2000)?.reshape(&[200, 20])?;
        let each = i.remainder_scalar(300.0)?.narrow(1, 0, 1000)?.reshape(&[100, 20])?;
        let whole = each.sub_scalar(150.0)?;
        Ok(vec![
            wide.index_copy(0, at, &source)?,
            wide.index_fill(0, at, 3.0)?,
            wide.index_fill(1, &at.remainder_scalar(20.0)?.narrow(0, 0, 1)?, 3.0)?,
            wide.scatter_value(0, &whole, 7.0)?,
            wide.scatter_value(0, &whole.narrow(1, 0, 9)?, 7.0)?,
            wide.with_index(&[Index::At(-2)], &source.select(0, 0)?)?,
            wide.with_index(
                &[Index::Range(Some(3), None, 7), Index::At(2)],
                &source.narrow(0, 0, 1)?.select(1, 3)?,
            )?,
            wide.index_put(
                &[Index::Ellipsis, Index::Tensor(at.narrow(0, 0, 9)?.remainder_scalar(20.0)?)],
                &wide.narrow(1, 0, 9)?,
                false,
            )?,
            wide.index_put(
                &[Index::Tensor(at.clone()), Index::Tensor(at.remainder_scalar(20.0)?)],
                &source.select(1, 0)?,
                false,
            )?,
        ])
    }),
    ("sums of few and of many", |x, i, at| {
        // More than one block has the place that all of 3000 values go to.
        let places = Tensor::cat(&[&i.remainder_scalar(6000.0)?, &i.remainder_scalar(1.0)?], 1)?;
        let (values, some) = (Tensor::cat(&[x, x], 1)?, x.narrow(1, 0, 100)?);
        let finite = |t: &Tensor| t.nan_to_num(0.0, None, None);
        let (values, some, x) = (finite(&values)?, finite(&some)?, finite(x)?);
        let (half, ones) = (x.to_dtype(DType::BF16)?, values.mul_scalar(1e-3)?.add_scalar(1.0)?);
        let whole = i.remainder_scalar(2.0)?;
        Ok(vec![
            x.put(&at.reshape(&[2, 100])?.sub_scalar(150.0)?, &some, true)?,
            half.put(&at.reshape(&[2, 100])?, &some.to_dtype(DType::BF16)?, true)?,
            x.put(&places, &values, true)?,
            x.put(&places.narrow(1, 2500, 2000)?, &values.narrow(1, 0, 2000)?, true)?,
            x.scatter_add(0, &whole, &x)?,
            x.scatter_reduce(0, &whole, &x, ScatterReduce::Prod, true)?,
            x.add_scalar(1.0)?
                .reshape(&[6000])?
                .scatter_reduce(0, &places.ravel()?, &ones.ravel()?, ScatterReduce::Prod, true)?
                .div_scalar(1e3)?,
        ])
    }),
    ("extremes", |x, i, at| {
        let wide = x.reshape(&[300, 20])?;
        let source = x.narrow(1, 0, 2000)?.reshape(&[200, 20])?;
        let whole = i.remainder_scalar(2.0)?.sub_scalar(2.0)?;
        let axes = |t: &Tensor| t.reshape(&[2, 3, 2, 5, 100]);
        let five = axes(&i.remainder_scalar(3.0)?)?;
        let own = x.nan_to_num(0.0, None, None)?.requires_grad_(true)?;
        own.scatter_reduce(0, &whole, &own, ScatterReduce::Amax, false)?.sum()?.backward()?;
        Ok(vec![
            wide.index_reduce(0, at, &source, ScatterReduce::Amax, true)?,
            wide.index_reduce(0, at, &source, ScatterReduce::Amin, false)?,
            i.scatter_reduce(0, &whole, &i.mul_scalar(3.0)?, ScatterReduce::Amin, true)?,
            axes(x)?.scatter_reduce(1, &five, &axes(&x.neg()?)?, ScatterReduce::Amax, false)?,
            wide.index_reduce(0, at, &source, ScatterReduce::Mean, false)?,
            own.grad().expect("a gradient"),
        ])
    }),
    ("gradients of reads", |x, i, at| {
        let x = x.nan_to_num(0.0, None, None)?;
        let weight = x.mul_scalar(0.5)?;
        let of = |f: &dyn Fn(&Tensor) -> genesis::Result<Tensor>| -> genesis::Result<Tensor> {
            let own = x.detach().requires_grad_(true)?;
            f(&own)?.sum()?.backward()?;
            Ok(own.grad().expect("a gradient"))
        };
        let (mask, all) = (weight.gt_scalar(0.1)?, i.remainder_scalar(6000.0)?);
        let rows = mask.narrow(1, 0, 300)?.select(0, 0)?;
        let fit = |y: Tensor| y.mul(&weight.ravel()?.narrow(0, 0, y.numel())?.reshape(y.shape())?);
        let wide = |x: &Tensor| x.reshape(&[300, 20]);
        Ok(vec![
            of(&|x| fit(x.take(&all)?))?,
            of(&|x| fit(x.take(at)?))?,
            of(&|x| fit(x.masked_select(&mask)?))?,
            of(&|x| fit(x.masked_scatter(&mask, x)?))?,
            of(&|x| fit(wide(x)?.index(&[Index::Tensor(rows.clone())])?))?,
            of(&|x| fit(wide(x)?.index_select(0, at)?))?,
            of(&|x| fit(wide(x)?.index_copy(0, at, &wide(x)?.narrow(0, 0, 200)?)?))?,
            of(&|x| fit(wide(x)?.index_fill(0, at, 3.0)?))?,
            of(&|x| fit(wide(x)?.scatter_value(0, &at.reshape(&[10, 20])?, 7.0)?))?,
            of(&|x| fit(wide(x)?.with_index(&[Index::At(-2)], &wide(x)?.select(0, 7)?)?))?,
            of(&|x| fit(x.put(at, &x.ravel()?.narrow(0, 0, 200)?, true)?))?,
            of(&|x| fit(x.gather(0, &i.remainder_scalar(2.0)?)?))?,
        ])
    }),
    ("index_select", |x, _, at| Ok(vec![x.index_select(1, at)?, x.t()?.index_select(0, at)?])),
    ("index_add", |x, i, at| {
        let wide = x.reshape(&[300, 20])?;
        let source = x.narrow(1, 0, 2000)?.reshape(&[200, 20])?;
        let whole = i.reshape(&[300, 20])?;
        let integers = i.narrow(1, 0, 2000)?.reshape(&[200, 20])?;
        Ok(vec![
            wide.index_add(0, at, &source, 2.0)?,
            wide.t()?.index_add(1, at, &source.t()?, 1.0)?,
            whole.index_add(0, at, &integers, 1.0)?,
            wide.index_put(&[Index::Tensor(at.clone())], &source, true)?,
        ])
    }),
    ("gather and scatter", |x, _, at| {
        let index = at.reshape(&[2, 100])?;
        let part = x.narrow(1, 0, 100)?;
        Ok(vec![
            x.gather(1, &index)?,
            x.scatter_add(1, &index, &part)?,
            x.scatter(1, &index, &part)?,
            x.t()?.contiguous()?.scatter_add(0, &index.t()?, &part.t()?)?,
        ])
    }),
];

#[test]
fn sorts_and_sums_at_indices_are_those_of_the_cpu() -> anyhow::Result<()> {
    const MACHINE: &str = "devices=1";
    if !is_on(MACHINE) {
        let own = "virtual_gpu::indices::sorts_and_sums_at_indices_are_those_of_the_cpu";
        return pass(MACHINE, &[own]);
    }
    let mut state = 1_u64;
    let mut draw = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut floats: Vec<f64> = (0..6000).map(|_| (draw() % 4001) as f64 / 1000.0 - 2.0).collect();
    (floats[5], floats[6], floats[7]) = (f64::NAN, -0.0, 0.0);
    let integers: Vec<i64> = (0..6000).map(|_| (draw() << 20) as i64 - (1 << 50)).collect();
    let at: Vec<i64> = (0..200).map(|k| if k < 50 { 7 } else { (draw() % 300) as i64 }).collect();
    let x = Tensor::from_f64(&floats, &[2, 3000], (DType::F32, Device::Cpu))?;
    let i = Tensor::from_slice_on(&integers, &[2, 3000], Device::Cpu)?;
    let at = Tensor::from_slice_on(&at, &[200], Device::Cpu)?;
    let there = [&x, &i, &at].map(|t| t.to_device(Device::Cuda(0)));
    let [x2, i2, at2] = there;
    let (x2, i2, at2) = (x2?, i2?, at2?);
    for (what, call) in CALLS {
        let wanted = call(&x, &i, &at)?;
        let got = call(&x2, &i2, &at2)?;
        for (number, (wanted, got)) in wanted.iter().zip(&got).enumerate() {
            ensure!(got.shape() == wanted.shape(), "{what} {number}: {:?}", got.shape());
            let (wanted, got) = (wanted.to_f64_vec()?, got.to_f64_vec()?);
            // Sums of the CPU are of one element after the other, those of a GPU of four lanes.
            let is_close = |(a, b): (&f64, &f64)| {
                a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-5 * a.abs().max(1.0)
            };
            let wrong = wanted.iter().zip(&got).position(|both| !is_close(both));
            if let Some(at) = wrong {
                anyhow::bail!("{what} {number}, element {at}: {} and not {}", got[at], wanted[at]);
            }
        }
    }
    Ok(())
}
