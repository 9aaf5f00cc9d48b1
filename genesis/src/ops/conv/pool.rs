//! Pools: the largest element of each window, its mean, its norm.
//!
//! All look by a [`Table`] an axis, so that windows of a fixed size and those that share out an input are
//! one kernel each way. A mean is a sum with weights, whose gradient is the same with the tables turned.

#[cfg(feature = "op-info")]
pub(super) mod info;

use std::sync::Arc;

use genesis_kernel::ir::DType;

use super::window::Window;
use crate::autograd::SavedTensors;
use crate::dispatch::trace;
use crate::error::{Error, Result};
use crate::launch::axis::{Axis, Table, three, try_map};
use crate::launch::window as device;
use crate::ops::{Op, apply, wrong_dtype};
use crate::shape::{self, inverse, memory_order};
use crate::tensor::{Tensor, host};

impl Tensor {
    /// The largest element of each window over the last one to three axes, and where it stands in the
    /// row-major order of those axes. The gradient goes to that element.
    ///
    /// # Shapes
    /// `[N, C, ..]` or `[C, ..]` gives as many windows along each of the last axes as fit.
    /// # Numerics
    /// Exact. NaN wins; padding never does; of equals the first.
    /// # Errors
    /// If the windows do not fit, or padding is more than half of them.
    /// # Source
    /// `torch.nn.functional.max_pool2d` with `return_indices`.
    #[track_caller]
    pub fn max_pool(&self, window: &Window) -> Result<(Tensor, Tensor)> {
        const NAME: &str = "max_pool";
        window.check(NAME, self)?;
        check_padding(NAME, window)?;
        let lead = self.rank() - window.kernel.len();
        let axes = window.axes(NAME, &self.shape()[lead..])?;
        let tables: Vec<Table> = axes.iter().map(Axis::table).collect::<Result<_>>()?;
        largest(NAME, self, &tables)
    }

    /// The largest element of each of `size` windows that share out the last axes as evenly as can be,
    /// and where it stands.
    ///
    /// # Errors
    /// If there are more sizes than axes, or an axis is empty.
    /// # Source
    /// `torch.nn.functional.adaptive_max_pool2d`.
    #[track_caller]
    pub fn adaptive_max_pool(&self, size: &[usize]) -> Result<(Tensor, Tensor)> {
        const NAME: &str = "adaptive_max_pool";
        check_pooled(NAME, self)?;
        if let Some(empty) = of_nothing(NAME, self, size)? {
            return Ok((empty.clone(), empty.to_dtype(DType::I64)?));
        }
        let tables = shared_out(NAME, self, size)?;
        largest(NAME, self, &tables)
    }

    /// The mean of each window over the last one to three axes. Padding counts as zeros where
    /// `count_padding` is set; `divisor` takes the place of the number of elements.
    ///
    /// # Shapes
    /// As [`max_pool`](Tensor::max_pool).
    /// # Numerics
    /// Sums are in f32 for f16 and bf16; integers are divided towards zero.
    /// # Errors
    /// If the windows do not fit, padding is more than half of them, or the divisor is 0.
    /// # Source
    /// `torch.nn.functional.avg_pool2d`.
    #[track_caller]
    pub fn avg_pool(
        &self,
        window: &Window,
        count_padding: bool,
        divisor: Option<i64>,
    ) -> Result<Tensor> {
        const NAME: &str = "avg_pool";
        window.check(NAME, self)?;
        check_padding(NAME, window)?;
        if divisor == Some(0) {
            return Err(Error::op(NAME, "the divisor is 0"));
        }
        if window.dilation.iter().any(|&n| n != 1) {
            return Err(Error::op(NAME, "means are of neighbours: dilation must be 1"));
        }
        let lead = self.rank() - window.kernel.len();
        let axes = window.axes(NAME, &self.shape()[lead..])?;
        let size = |axis: &Axis, o: usize| match divisor {
            Some(_) => 1.0,
            None => size_of(axis, o, count_padding),
        };
        let mut tables: Vec<Table> = axes.iter().map(Axis::table).collect::<Result<_>>()?;
        for (table, axis) in tables.iter_mut().zip(&axes) {
            table.scale(|o| 1.0 / size(axis, o));
        }
        if let (Some(divisor), Some(table)) = (divisor, tables.first_mut()) {
            table.scale(|_| 1.0 / divisor as f64);
        }
        mean(NAME, self, &tables)
    }

    /// The mean of each of `size` windows that share out the last axes as evenly as can be; window `i` of
    /// `n` over `m` elements is `floor(i m / n) .. ceil((i + 1) m / n)`.
    ///
    /// # Errors
    /// If there are more sizes than axes, or an axis is empty.
    /// # Source
    /// `torch.nn.functional.adaptive_avg_pool2d`.
    #[track_caller]
    pub fn adaptive_avg_pool(&self, size: &[usize]) -> Result<Tensor> {
        const NAME: &str = "adaptive_avg_pool";
        check_pooled(NAME, self)?;
        if let Some(empty) = of_nothing(NAME, self, size)? {
            return Ok(empty);
        }
        let mut tables = shared_out(NAME, self, size)?;
        if size.iter().all(|&n| n == 1) && self.dtype().is_arithmetic_float() {
            let dims: Vec<i64> = (1..=size.len() as i64).map(|axis| -axis).collect();
            return self.mean_dims(&dims, true);
        }
        for table in &mut tables {
            let mut counts: Vec<usize> = host::reserve(NAME, table.outputs)?;
            counts.extend((0..table.outputs).map(|o| table.count(o)));
            table.scale(|o| 1.0 / counts[o] as f64);
        }
        mean(NAME, self, &tables)
    }

    /// The norm of each window over the last one to three axes: `sum(x^p)^(1/p)`.
    ///
    /// # Errors
    /// If the windows do not fit, or are padded.
    /// # Source
    /// `torch.nn.functional.lp_pool2d`: as there, a window that leaves the tensor counts as if it were
    /// whole, by the mean of what is inside, and the gradient of a window of zeros is NaN for `p > 1`.
    #[track_caller]
    pub fn lp_pool(&self, p: f64, window: &Window) -> Result<Tensor> {
        if window.padding.iter().any(|&n| n != 0) {
            return Err(Error::op("lp_pool", "has no padding"));
        }
        let mean = self.pow_scalar(p)?.avg_pool(window, true, None)?;
        let elements: f64 = window.kernel.iter().map(|&extent| extent as f64).product::<f64>();
        let sum = mean.sign()?.mul(&mean.abs()?.relu()?)?.mul_scalar(elements)?;
        sum.pow_scalar(1.0 / p)
    }

    /// Puts elements back where [`max_pool`](Tensor::max_pool) found them, zeros elsewhere; `size` is of the
    /// last axes.
    ///
    /// # Errors
    /// If `which` has another shape or is not i64.
    /// # Source
    /// `torch.nn.functional.max_unpool2d`.
    #[track_caller]
    pub fn max_unpool(&self, which: &Tensor, size: &[usize]) -> Result<Tensor> {
        const NAME: &str = "max_unpool";
        if which.shape() != self.shape() || size.is_empty() || size.len() >= self.rank() {
            let message =
                format!("places {:?} do not put {:?} into {size:?}", which.shape(), self.shape());
            return Err(Error::op(NAME, message));
        }
        let lead = &self.shape()[..self.rank() - size.len()];
        shape::numel(NAME, &[lead, size].concat())?;
        let (outer, all) = (shape::product(lead), shape::product(size));
        let each = shape::product(&self.shape()[lead.len()..]);
        let zero = Tensor::zeros(&[1, 1], (self.dtype(), self.device()))?;
        let zeros = zero.broadcast_to(&[outer, all])?;
        let which = which.reshape(&[outer, each])?;
        let filled = zeros.scatter(1, &which, &self.reshape(&[outer, each])?)?;
        filled.reshape(&[lead, size].concat())
    }
}

fn check_padding(op: &str, window: &Window) -> Result<()> {
    if window.padding.iter().zip(&window.kernel).any(|(&pad, &kernel)| pad > kernel / 2) {
        let message =
            format!("padding {:?} is more than half of {:?}", window.padding, window.kernel);
        return Err(Error::op(op, message));
    }
    Ok(())
}

/// The elements that a window's mean is of.
fn size_of(axis: &Axis, o: usize, count_padding: bool) -> f64 {
    let start = (o * axis.stride) as i64 - axis.before as i64;
    let end = (start + axis.kernel as i64).min((axis.input + axis.before) as i64);
    match count_padding {
        true => (end - start) as f64,
        false => (end.min(axis.input as i64) - start.max(0)) as f64,
    }
}

/// Tables of windows that share out the last axes.
fn shared_out(op: &str, x: &Tensor, size: &[usize]) -> Result<Vec<Table>> {
    let fits = (1..=3).contains(&size.len()) && size.len() < x.rank();
    let lead = x.rank().saturating_sub(size.len());
    if !fits || x.shape()[lead..].contains(&0) {
        let message = format!("{size:?} windows do not share out shape {:?}", x.shape());
        return Err(Error::op(op, message));
    }
    let shape = [&x.shape()[..lead], size].concat();
    shape::numel(op, &shape)?;
    let table = |(&n, &m): (&usize, &usize)| {
        if i32::try_from(n.max(m)).is_err() {
            let message = format!("an axis of {m} can't become one of {n}");
            return Err(Error::op(op, message));
        }
        let window = |i: usize| i * m / n..((i + 1) * m).div_ceil(n);
        Table::of([m, n], widest(m, n), |i| window(i).map(|at| (Some(at), 1.0)))
    };
    size.iter().zip(&x.shape()[lead..]).map(table).collect()
}

/// The result where windows share out an empty batch: however long its axes are, there is nothing to look up.
fn of_nothing(op: &str, x: &Tensor, size: &[usize]) -> Result<Option<Tensor>> {
    if !(1..x.rank()).contains(&size.len()) {
        return Ok(None);
    }
    let (batch, axes) = x.shape().split_at(x.rank() - size.len());
    if !batch.contains(&0) || axes.contains(&0) {
        return Ok(None);
    }
    let shape = [batch, size].concat();
    shape::numel(op, &shape)?;
    // A sum of nothing, so that a gradient finds its way back.
    let zero = x.sum()?.to_dtype(x.dtype())?;
    Ok(Some(zero.broadcast_to(&shape)?.contiguous()?))
}

/// The length of the longest of `n` windows `i m / n .. ceil((i + 1) m / n)`.
///
/// With `m = q n + r`, a window has `q` elements and one more for each end that is inside of an element. Where a
/// window begins `s` n-ths into one, its end is in the next but one if `s + r > n`; the largest `s` is
/// `n - gcd(r, n)`.
fn widest(m: usize, n: usize) -> usize {
    let Some(r) = m.checked_rem(n) else { return 0 };
    let (mut gcd, mut rest) = (n, r);
    while rest > 0 {
        (gcd, rest) = (rest, gcd % rest);
    }
    m / n + usize::from(r > 0) + usize::from(r > gcd && r > 0)
}

/// Refuses dtypes without pools.
fn check_pooled(op: &'static str, x: &Tensor) -> Result<()> {
    match x.dtype().is_f8() || x.dtype() == DType::Bool {
        true => Err(wrong_dtype(op, "a number", x.dtype())),
        false => Ok(()),
    }
}

/// A tensor as `[outer, D, H, W]`, of which `axes` are along the last ones.
pub(super) fn planes(x: &Tensor, axes: usize) -> Result<Tensor> {
    let (lead, last) = x.shape().split_at(x.rank() - axes);
    let [d, h, w] = three(last, 1);
    x.reshape(&[shape::product(lead.iter()), d, h, w])?.contiguous()
}

/// The result's shape: that of `x` with the last axes as the tables have them.
fn result_shape(x: &Tensor, tables: &[Table]) -> Vec<usize> {
    let lead = &x.shape()[..x.rank() - tables.len()];
    lead.iter().copied().chain(tables.iter().map(|table| table.outputs)).collect()
}

fn largest(op: &'static str, x: &Tensor, tables: &[Table]) -> Result<(Tensor, Tensor)> {
    check_pooled(op, x)?;
    let shape = result_shape(x, tables);
    let [d, h, w] = three(&shape[x.rank() - tables.len()..], 1);
    let x = planes(x, tables.len())?;
    let which = Tensor::uninitialized(&[x.shape()[0], d, h, w], (DType::I64, x.device()))?;
    let tables = Arc::new(three(tables, Table::unit()));
    let y = apply(MaxPool { tables, which: which.clone() }, &[&x])?;
    Ok((y.reshape(&shape)?, which.reshape(&shape)?))
}

/// Sums with weights; integers are summed and divided exactly.
fn mean(op: &'static str, x: &Tensor, tables: &[Table]) -> Result<Tensor> {
    check_pooled(op, x)?;
    if x.dtype().is_arithmetic_float() {
        return resample(x, tables);
    }
    let mut ones = tables.to_vec();
    ones.iter_mut().for_each(|table| table.weight.fill(1.0));
    let sums = resample(&x.to_dtype(DType::F64)?, &ones)?;
    // One axis after the other: what is left of a quotient does not depend on the order, and products of all
    // axes would take as much memory as the sums.
    for (axis, table) in tables.iter().enumerate() {
        let count = |o: usize| (1.0 / table.weight_of(o)).round();
        let mut line = Tensor::from_fn(op, table.outputs, count, (DType::F64, x.device()))?;
        for _ in axis + 1..tables.len() {
            line = line.unsqueeze(-1)?;
        }
        sums.div_(&line)?;
        sums.trunc_()?;
    }
    sums.to_dtype(x.dtype())
}

/// `x` with its last axes made anew by tables.
pub(super) fn resample(x: &Tensor, tables: &[Table]) -> Result<Tensor> {
    if let Some(y) = as_it_lies(x, tables)? {
        return Ok(y);
    }
    let shape = result_shape(x, tables);
    let x = planes(x, tables.len())?;
    let tables = Arc::new(three(tables, Table::unit()));
    apply(Resample { tables }, &[&x])?.reshape(&shape)
}

/// The longest axes that stay as they are and have a table for that.
const MOST_KEPT: usize = 1 << 16;

/// [`resample`] of a tensor that is dense with its axes in another order, as images whose channels are last; the
/// result lies likewise. None where other axes lie between more of the resized ones than a launch has.
fn as_it_lies(x: &Tensor, tables: &[Table]) -> Result<Option<Tensor>> {
    if x.is_contiguous() || trace::is_on() || x.numel() == 0 {
        return Ok(None);
    }
    let Some(order) = memory_order(x.shape(), &[x.strides()]) else { return Ok(None) };
    let signed = |order: &[usize]| order.iter().map(|&axis| axis as i64).collect::<Vec<i64>>();
    let laid = x.permute(&signed(&order))?;
    let lead = x.rank() - tables.len();
    let first = order.iter().position(|&axis| axis >= lead);
    let Some(first) = first.filter(|_| laid.is_contiguous()) else { return Ok(None) };
    let (mut own, mut kept): (Vec<Table>, bool) = (Vec::new(), false);
    let mut shape: Vec<usize> = order[..first].iter().map(|&axis| x.shape()[axis]).collect();
    for &axis in &order[first..] {
        let extent = x.shape()[axis];
        let table = axis.checked_sub(lead).map(|at| &tables[at]);
        shape.push(table.map_or(extent, |table| table.outputs));
        // Axes that stay and follow each other are one.
        let joined = if kept && table.is_none() { own.pop().map_or(1, |t| t.inputs) } else { 1 };
        let extent = extent.saturating_mul(joined);
        if table.is_none() && extent > MOST_KEPT {
            return Ok(None);
        }
        kept = table.is_none();
        own.push(match table {
            Some(table) => table.clone(),
            None => Table::of([extent, extent], 1, |o| [(Some(o), 1.0)])?,
        });
    }
    if own.len() > 3 {
        return Ok(None);
    }
    let extents = three(&own.iter().map(|table| table.inputs).collect::<Vec<_>>(), 1);
    let outer = shape::product(&shape[..first]);
    let rows = laid.reshape(&[&[outer][..], &extents].concat())?;
    let y = apply(Resample { tables: Arc::new(three(&own, Table::unit())) }, &[&rows])?;
    y.reshape(&shape)?.permute(&signed(&inverse(&order))).map(Some)
}

/// A sum with weights along three axes of `[outer, D, H, W]`.
struct Resample {
    tables: Arc<[Table; 3]>,
}

fn turned(tables: &[Table; 3]) -> Result<Arc<[Table; 3]>> {
    Ok(Arc::new(try_map(tables, Table::turned)?))
}

/// A fresh tensor for what tables make of `x: [outer, D, H, W]`.
fn fresh(tables: &[Table; 3], x: &Tensor) -> Result<Tensor> {
    let [d, h, w] = [0, 1, 2].map(|axis| tables[axis].outputs);
    Tensor::uninitialized(&[x.shape()[0], d, h, w], (x.dtype(), x.device()))
}

impl Op for Resample {
    fn name(&self) -> &'static str {
        "resample"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0].contiguous()?;
        let y = fresh(&self.tables, &x)?;
        device::resample(&self.tables, &x, &y)?;
        Ok(y)
    }

    fn backward(&self, _saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(apply(Resample { tables: turned(&self.tables)? }, &[dy])?)])
    }
}

/// The largest elements, and as a side effect where they stand.
struct MaxPool {
    tables: Arc<[Table; 3]>,
    which: Tensor,
}

impl Op for MaxPool {
    fn name(&self) -> &'static str {
        "max_pool"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let y = fresh(&self.tables, inputs[0])?;
        device::max_pool(&self.tables, inputs[0], &y, &self.which)?;
        Ok(y)
    }

    fn backward(&self, _saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let op = MaxPoolBwd { tables: turned(&self.tables)?, which: self.which.clone() };
        Ok(vec![Some(apply(op, &[dy])?)])
    }
}

/// The gradient of [`MaxPool`].
struct MaxPoolBwd {
    tables: Arc<[Table; 3]>,
    which: Tensor,
}

impl Op for MaxPoolBwd {
    fn name(&self) -> &'static str {
        "max_pool_bwd"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let dy = inputs[0].contiguous()?;
        let dx = fresh(&self.tables, &dy)?;
        device::max_pool_bwd(&self.tables, &dy, &self.which, &dx)?;
        Ok(dx)
    }

    fn backward(&self, _saved: &SavedTensors, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (outer, windows) = (g.shape()[0], shape::product(self.which.shape()[1..].iter()));
        let all = shape::product(g.shape()[1..].iter());
        let which = self.which.reshape(&[outer, windows])?;
        let chosen = g.reshape(&[outer, all])?.gather(1, &which)?;
        Ok(vec![Some(chosen.reshape(self.which.shape())?)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_window_is_that_of_a_search() {
        for n in 1..40 {
            for m in 1..90 {
                let length = |i: usize| ((i + 1) * m).div_ceil(n) - i * m / n;
                assert_eq!(Some(widest(m, n)), (0..n).map(length).max(), "{m} shared by {n}");
            }
        }
        assert_eq!(widest(5, 0), 0);
    }
}
