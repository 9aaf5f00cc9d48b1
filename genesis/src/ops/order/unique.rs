//! Distinct elements, what each element is equal to, and how often each occurs.
//!
//! Elements are sorted: by themselves, or with their positions where those are asked for. Where one differs from the one
//! before it a run begins, and runs are compacted. How many there are is known only when the device is done.
//!
//! Rows are compared with each other on a GPU, and sorted as they are on the CPU.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::{Arg, Device};
use genesis_kernel::tuning::sorting::{INDEXED, MERGED, OF_PROGRAM, PIECE};
use kernels::unique as device;

use super::radix::{Keys, Pairs, begin};
use super::sort::values_in_order;
use crate::error::Result;
use crate::launch::{self, select_cpu};
use crate::ops::index::Chunks;
use crate::shape;
use crate::tensor::Tensor;

/// What [`Tensor::unique`] finds.
#[derive(Clone, Debug)]
pub struct Unique {
    /// The distinct elements.
    pub values: Tensor,
    /// For each element of the tensor its place among them, where that was asked for; i64.
    pub inverse: Option<Tensor>,
    /// How often each occurs, where that was asked for; i64.
    pub counts: Option<Tensor>,
}

impl Tensor {
    /// The distinct elements in order; with `inverse` the place of each element among them, with `counts` how often each
    /// occurs. Each NaN is distinct from all others. Waits for the device.
    ///
    /// # Errors
    /// If memory runs out.
    /// # Cost
    /// A sort of the elements; with `inverse` one of elements and positions, of twice the bytes or more.
    /// # Source
    /// Same conventions as `torch.unique` with `return_inverse` and `return_counts`.
    #[track_caller]
    pub fn unique(&self, inverse: bool, counts: bool) -> Result<Unique> {
        let (x, dtype) = countable(self)?;
        let x = x.ravel()?;
        let (sorted, order) = match inverse {
            true => {
                let (sorted, order) = x.sort(0, false)?;
                (sorted, Some(order))
            }
            false => (values_in_order(&x)?, None),
        };
        let places = order.as_ref().map(Places::Order);
        runs(&sorted, places, counts)?.finished(dtype, self.shape())
    }

    /// Without the elements that are equal to the one before them; `inverse` and `counts` as for [`Tensor::unique`]. Waits
    /// for the device.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn unique_consecutive(&self, inverse: bool, counts: bool) -> Result<Unique> {
        let (x, dtype) = countable(self)?;
        let places = inverse.then_some(Places::Own);
        runs(&x.ravel()?, places, counts)?.finished(dtype, self.shape())
    }

    /// The distinct slices along `dim`, in the order of their elements; `inverse` and `counts` as for [`Tensor::unique`].
    /// Waits for the device.
    ///
    /// # Errors
    /// If there is no such dimension.
    #[track_caller]
    pub fn unique_dim(&self, dim: i64, inverse: bool, counts: bool) -> Result<Unique> {
        let axis = shape::axis("unique", dim, self.shape())? as i64;
        let x = countable(self)?.0.movedim(&[axis], &[0])?;
        let n = x.shape()[0];
        let rows = x.reshape(&[n, x.numel().checked_div(n).unwrap_or(0)])?;
        let order = rows_in_order(&rows)?;
        // The runs of numbers that grow where a row differs from the one before it.
        let number = steps_of(&rows.index_select(0, &order)?)?;
        let places = inverse.then_some(Places::Order(&order));
        let found = runs(&number, places, true)?;
        let firsts = found.firsts.unwrap_or(number);
        let values = self.detach().index_select(axis, &order.index_select(0, &firsts)?)?;
        let counts = if counts { Some(lengths(&firsts, n)?) } else { None };
        Ok(Unique { values, inverse: found.inverse, counts })
    }
}

/// Numbers instead of elements with which nothing is computed, and what they were.
#[track_caller]
fn countable(x: &Tensor) -> Result<(Tensor, DType)> {
    let (x, dtype) = (x.detach(), x.dtype());
    let numbers = match dtype {
        DType::Bool => x.as_bytes(),
        dtype if dtype.is_f8() => x.to_dtype(DType::F32)?,
        _ => x,
    };
    Ok((numbers, dtype))
}

/// For each row the number of rows up to it that differ from the one before them.
#[track_caller]
fn steps_of(rows: &Tensor) -> Result<Tensor> {
    let n = rows.shape()[0];
    let first = Tensor::zeros(&[n.min(1)], (DType::I64, rows.device()))?;
    if n < 2 {
        return Ok(first);
    }
    let differ = rows.narrow(0, 1, n - 1)?.ne(&rows.narrow(0, 0, n - 1)?)?.any_dims(&[1], false)?;
    Tensor::cat(&[&first, &differ.to_dtype(DType::I64)?], 0)?.cumsum(0)
}

/// Rows of a program that compares them with all of a piece.
const OWN: usize = 4;

/// The positions of rows in the order of their elements.
#[track_caller]
fn rows_in_order(rows: &Tensor) -> Result<Tensor> {
    let [n, columns] = [rows.shape()[0], rows.shape()[1]];
    let on = (DType::I64, rows.device());
    if n < 2 || columns == 0 {
        return Tensor::arange(0.0, n as f64, 1.0, on);
    }
    if rows.device() != Device::Cpu {
        return merged(rows);
    }
    let order = Tensor::uninitialized(&[n], on)?;
    let keys = Keys::of(rows, false)?;
    let pairs = Pairs::like(rows, keys.dtype, DType::I32)?;
    begin(rows, &keys, &pairs)?;
    select_cpu::rows_in_order(&pairs.keys, keys.mask(), &order);
    Ok(order)
}

/// [`rows_in_order`] on a GPU: pieces of rows are compared each with each, then merged.
#[track_caller]
fn merged(rows: &Tensor) -> Result<Tensor> {
    let n = rows.shape()[0];
    let fresh = || Tensor::uninitialized(&[n], (DType::I64, rows.device()));
    let mut order = fresh()?;
    let args = [launch::view_of(rows, false), launch::pointer(&order, true)];
    let piece = n.next_power_of_two().clamp(16, PIECE);
    let (grid, consts) = (Grid::x(n.div_ceil(OWN)), [OWN as i64, piece as i64]);
    let kernel = &device::rank_rows::KERNEL;
    launch::warped(kernel, &order, grid, &[rows.dtype()], &consts, None, &args)?;
    let mut len = PIECE;
    while len < n {
        let next = fresh()?;
        let fan = n.div_ceil(len).next_power_of_two().min(MERGED);
        let args = [
            launch::view_of(rows, false),
            launch::pointer(&order, false),
            launch::pointer(&next, true),
            number(len),
            number((usize::BITS - len.leading_zeros()) as usize),
        ];
        let (grid, consts) = (Grid::x(n.div_ceil(OF_PROGRAM)), [OF_PROGRAM as i64, fan as i64]);
        let kernel = &device::merge_rows::KERNEL;
        launch::warped(kernel, &next, grid, &[rows.dtype()], &consts, None, &args)?;
        (order, len) = (next, len * fan);
    }
    Ok(order)
}

/// Where the run of each element goes.
enum Places<'t> {
    /// To its own place.
    Own,
    /// To where it stood.
    Order(&'t Tensor),
}

/// The runs of a vector.
struct Runs {
    /// The first element of each.
    values: Tensor,
    /// The run of each element.
    inverse: Option<Tensor>,
    /// Where each begins.
    firsts: Option<Tensor>,
    /// Elements of all.
    n: usize,
}

impl Runs {
    /// Runs of elements of a dtype, in a shape.
    #[track_caller]
    fn finished(self, dtype: DType, shape: &[usize]) -> Result<Unique> {
        let values = match dtype {
            DType::Bool => self.values.as_bools(),
            dtype => self.values.to_dtype(dtype)?,
        };
        Ok(Unique {
            values,
            inverse: self.inverse.map(|inverse| inverse.reshape(shape)).transpose()?,
            counts: self.firsts.map(|firsts| lengths(&firsts, self.n)).transpose()?,
        })
    }
}

fn number(value: usize) -> Arg {
    launch::number(DType::I64, value as f64)
}

/// How long runs are that begin at `firsts` among `n` elements.
#[track_caller]
fn lengths(firsts: &Tensor, n: usize) -> Result<Tensor> {
    let y = Tensor::uninitialized(firsts.shape(), (DType::I64, firsts.device()))?;
    if y.numel() > 0 {
        let args = [launch::pointer(firsts, false), launch::view_of(&y, true), number(n)];
        let grid = Grid::x(y.numel().div_ceil(INDEXED));
        let kernel = &device::run_lengths::KERNEL;
        launch::warped(kernel, &y, grid, &[], &[INDEXED as i64], None, &args)?;
    }
    Ok(y)
}

/// The runs of a vector; waits for the device.
#[track_caller]
fn runs(x: &Tensor, places: Option<Places<'_>>, firsts: bool) -> Result<Runs> {
    let (x, n) = (x.contiguous()?, x.numel());
    let on = (DType::I64, x.device());
    let count = |chunks: &Chunks, counts: Arg, chunk: Arg| {
        let args = [launch::pointer(&x, false), counts, number(n), chunk];
        chunks.launch(&device::count_runs::KERNEL, &x, &[x.dtype()], &[], &args)
    };
    let inverse = places.as_ref().map(|_| Tensor::uninitialized(&[n], on)).transpose()?;
    let mut begins = if firsts { Some(Tensor::uninitialized(&[0], on)?) } else { None };
    let write = |chunks: &Chunks, y: &Tensor, [offsets, values, ends, chunk]: [Arg; 4]| {
        begins = if firsts { Some(Tensor::uninitialized(&[y.numel()], on)?) } else { None };
        let (how, order) = match &places {
            None => (0, offsets),
            Some(Places::Own) => (1, offsets),
            Some(Places::Order(order)) => (2, launch::pointer(order, false)),
        };
        let to = |t: &Option<Tensor>| t.as_ref().map_or(ends, |t| launch::pointer(t, true));
        let read = [launch::pointer(&x, false), offsets, values, ends];
        let rest = [to(&begins), order, to(&inverse), number(n), chunk];
        let args = [&read[..], &rest].concat();
        let consts = [i64::from(firsts), how];
        chunks.launch(&device::runs::KERNEL, &x, &[x.dtype()], &consts, &args)
    };
    let values = Chunks::found([n, 1], (x.dtype(), &x), &count, write)?.0;
    let total = values.shape()[0];
    let firsts = begins.map(|begins| begins.narrow(0, 0, total)).transpose()?;
    Ok(Runs { values: values.reshape(&[total])?, inverse, firsts, n })
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Dense, Family, MOVED, OpInfo, map, sorted, vector};
    use crate::tensor::Tensor;

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "unique",
            Family::Exact,
            |x| Ok(x[0].unique(false, false)?.values),
            |x| {
                let mut values = sorted(&map(&x[0], f64::floor).data);
                values.dedup();
                vector(values)
            },
            &[&[&[5, 4]]],
        )
        .peer("torch.unique(x[0])")
        .whole()
        .of(MOVED)
        .flat(),
        OpInfo::new(
            "unique/inverse",
            Family::Exact,
            |x| {
                let found = x[0].unique(true, false)?;
                found.values.take(&found.inverse.expect("it was asked for"))
            },
            |x| map(&x[0], f64::floor),
            &[&[&[5, 4]]],
        )
        .peer("torch.take(*torch.unique(x[0], return_inverse=True))")
        .whole()
        .of(&[DType::F32, DType::BF16, DType::I64])
        .flat(),
        OpInfo::new(
            "unique/counts",
            Family::Exact,
            |x| x[0].unique(false, true)?.counts.expect("it was asked for").sum(),
            |_| Dense { shape: Vec::new(), data: vec![20.0] },
            &[&[&[5, 4]]],
        )
        .peer("torch.unique(x[0], return_counts=True)[1].sum()")
        .whole()
        .of(&[DType::F32, DType::BF16, DType::I64])
        .flat(),
        OpInfo::new(
            "unique_dim",
            Family::Exact,
            |x| {
                let twice = Tensor::cat(&[&x[0], &x[0]], 0)?;
                let found = twice.unique_dim(0, true, false)?;
                found
                    .values
                    .index_select(0, &found.inverse.expect("it was asked for").narrow(0, 0, 3)?)
            },
            |x| x[0].clone(),
            &[&[&[3, 2]]],
        )
        .peer(
            "(u := torch.unique(torch.cat((x[0], x[0])), return_inverse=True, \
             dim=0))[0].index_select(0, u[1][:3])",
        )
        .of(&[DType::F32, DType::BF16, DType::I64])
        .flat(),
        OpInfo::new(
            "unique_consecutive",
            Family::Exact,
            |x| Ok(x[0].unique_consecutive(false, false)?.values),
            |x| {
                let mut values: Vec<f64> = x[0].data.iter().map(|v| v.floor()).collect();
                values.dedup();
                vector(values)
            },
            &[&[&[20]]],
        )
        .peer("torch.unique_consecutive(x[0])")
        .whole()
        .within(0.0, 2.0)
        .of(&[DType::F32, DType::BF16, DType::I64])
        .flat(),
    ];
}
