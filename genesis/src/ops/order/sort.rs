//! Order: `sort`, `argsort`, `topk`, and extremes with their positions.
//!
//! What is sorted are positions; values come by gathering, which is how gradients find their way. Equals
//! keep their order. Short rows of values of at most 32 bits are sorted as keys, value and position in one
//! number, in one launch; others by [`radix`](super::radix), on the CPU and on GPUs.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::Device;
use kernels::sort as device;

use super::{radix, smallest};
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::index::take_distinct_along;
use crate::shape;
use crate::tensor::Tensor;

impl Tensor {
    /// The elements along `dim` in order, and where each stood; equals keep their order, NaN counts as
    /// larger than all numbers.
    ///
    /// # Errors
    /// If there is no such dimension.
    #[track_caller]
    pub fn sort(&self, dim: i64, descending: bool) -> Result<(Tensor, Tensor)> {
        let index = self.argsort(dim, descending)?;
        Ok((self.along(dim, &index)?, index))
    }

    /// Where the elements along `dim` stand in order; equals keep their order.
    ///
    /// # Errors
    /// If there is no such dimension.
    #[track_caller]
    pub fn argsort(&self, dim: i64, descending: bool) -> Result<Tensor> {
        let axis = shape::axis_or_scalar("sort", dim, self.shape())? as i64;
        if self.rank() == 0 {
            return Tensor::zeros(&[], (DType::I64, self.device()));
        }
        let x = self.detach();
        let x = if x.dtype() == DType::Bool { x.as_bytes() } else { x };
        let last = x.transpose(axis, -1)?;
        let n = last.dim(-1)?;
        let rows = last.numel().checked_div(n).unwrap_or(0);
        if rows * n == 0 {
            return Tensor::zeros(self.shape(), (DType::I64, self.device()));
        }
        let order = sorted(&last.reshape(&[rows, n])?, descending)?;
        order.reshape(last.shape())?.transpose(axis, -1)?.contiguous()
    }

    /// The `k` largest elements along `dim`, or the smallest, in order, and where they stood.
    ///
    /// # Errors
    /// If there is no such dimension or it has fewer than `k` elements.
    #[track_caller]
    pub fn topk(&self, k: usize, dim: i64, largest: bool) -> Result<(Tensor, Tensor)> {
        let axis = shape::axis_or_scalar("topk", dim, self.shape())?;
        let extent = self.shape().get(axis).copied().unwrap_or(1);
        if k > extent {
            let message = format!("has no {k} of {extent} elements, shape {:?}", self.shape());
            return Err(Error::op("topk", message));
        }
        if let Some(index) = self.few_first(k, axis, largest)? {
            return Ok((self.along(dim, &index)?, index));
        }
        let index = self.argsort(dim, largest)?;
        if self.rank() == 0 {
            return if k == 1 {
                Ok((self.clone(), index))
            } else {
                Ok((self.reshape(&[1])?.narrow(0, 0, 0)?, index.reshape(&[1])?.narrow(0, 0, 0)?))
            };
        }
        let index = index.narrow(dim, 0, k)?.contiguous()?;
        Ok((self.along(dim, &index)?, index))
    }

    /// The first `k` of [`Tensor::argsort`] without a sort of all; none where that is no better.
    #[track_caller]
    fn few_first(&self, k: usize, axis: usize, descending: bool) -> Result<Option<Tensor>> {
        if self.rank() == 0 || self.numel() == 0 {
            return Ok(None);
        }
        let last = self.detach().as_countable().transpose(axis as i64, -1)?;
        let n = last.dim(-1)?;
        let count = last.numel() / n;
        if k == 0 || is_short(self.device(), [count, n]) || 2 * k > n {
            return Ok(None);
        }
        let rows = last.reshape(&[count, n])?;
        let chosen = smallest::smallest(&rows, k, descending)?;
        let order = sorted(&rows.gather(1, &chosen)?, descending)?;
        let mut shape = last.shape().to_vec();
        shape[last.rank() - 1] = k;
        let index = chosen.gather(1, &order)?.reshape(&shape)?;
        index.transpose(axis as i64, -1)?.contiguous().map(Some)
    }

    /// Element `rank` of [`Tensor::argsort`] along an axis, which keeps an extent of 1.
    #[track_caller]
    pub(in crate::ops) fn index_of_rank(&self, rank: usize, axis: i64) -> Result<Tensor> {
        let found = self.selected(axis, |rows| smallest::of_rank(rows, rank))?;
        found.map_or_else(|| self.argsort(axis, false)?.narrow(axis, rank, 1), Ok)
    }

    /// Elements `ranks` of [`Tensor::argsort`] along an axis, whose extent is 1.
    #[track_caller]
    pub(in crate::ops) fn index_of_ranks(&self, ranks: &Tensor, axis: i64) -> Result<Tensor> {
        let of = |rows: &Tensor| {
            let ranks = ranks.transpose(axis, -1)?.reshape(&[rows.shape()[0]])?;
            smallest::of_ranks(rows, &ranks)
        };
        self.selected(axis, of)?.map_or_else(|| self.argsort(axis, false)?.gather(axis, ranks), Ok)
    }

    /// One position of each row along an axis, by `of`, which takes rows `[rows, n]`; none where a sort is no worse.
    #[track_caller]
    fn selected(
        &self,
        axis: i64,
        of: impl Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Option<Tensor>> {
        let last = self.detach().as_countable().transpose(axis, -1)?;
        if last.numel() == 0 {
            return Ok(None);
        }
        let n = last.dim(-1)?;
        let count = last.numel() / n;
        if is_short(self.device(), [count, n]) {
            return Ok(None);
        }
        let rows = last.reshape(&[count, n])?;
        let mut shape = last.shape().to_vec();
        shape[last.rank() - 1] = 1;
        of(&rows)?.reshape(&shape)?.transpose(axis, -1)?.contiguous().map(Some)
    }

    /// The largest element along `dim` and where it stands; the first of equals, NaN before numbers.
    /// The gradient goes to that element.
    ///
    /// # Errors
    /// If there is no such dimension or it is empty.
    #[track_caller]
    pub fn max_with_index(&self, dim: i64, keep: bool) -> Result<(Tensor, Tensor)> {
        self.extreme_with_index(dim, keep, Tensor::argmax)
    }

    /// The smallest element along `dim` and where it stands; the first of equals, NaN before numbers.
    /// The gradient goes to that element.
    ///
    /// # Errors
    /// If there is no such dimension or it is empty.
    #[track_caller]
    pub fn min_with_index(&self, dim: i64, keep: bool) -> Result<(Tensor, Tensor)> {
        self.extreme_with_index(dim, keep, Tensor::argmin)
    }

    #[track_caller]
    fn extreme_with_index(
        &self,
        dim: i64,
        keep: bool,
        arg: fn(&Tensor, i64) -> Result<Tensor>,
    ) -> Result<(Tensor, Tensor)> {
        if self.rank() == 0 {
            shape::axis_or_scalar("max", dim, self.shape())?;
            return Ok((self.clone(), Tensor::zeros(&[], (DType::I64, self.device()))?));
        }
        let axis = shape::axis("max", dim, self.shape())? as i64;
        let bytes = if self.dtype() == DType::Bool { self.as_bytes() } else { self.detach() };
        let index = arg(&bytes, axis)?.unsqueeze(axis)?;
        let value = self.along(axis, &index)?;
        if keep { Ok((value, index)) } else { Ok((value.squeeze(axis)?, index.squeeze(axis)?)) }
    }

    /// [`Tensor::gather`] by an index that is known to be right, and to name no element twice.
    #[track_caller]
    fn along(&self, dim: i64, index: &Tensor) -> Result<Tensor> {
        if self.rank() == 0 {
            return Ok(self.clone());
        }
        take_distinct_along("gather", self, shape::axis("gather", dim, self.shape())?, index)
    }
}

/// The elements of a vector in order.
#[track_caller]
pub(super) fn values_in_order(x: &Tensor) -> Result<Tensor> {
    let n = x.numel();
    if x.device() != Device::Cpu && (radix::ROW + 1..1 << 31).contains(&n) {
        return radix::sorted_values(x);
    }
    Ok(x.sort(0, false)?.0)
}

/// Elements of a row that are sorted with each other, each against each, on a GPU.
const PIECE: usize = 1024;
/// Elements of one program.
const OWN: usize = 16;
/// Comparisons, at most, that take a GPU less time than the passes of a radix sort, which wait for each other.
const COMPARED: usize = 1 << 27;

/// Rows of at most so many elements are sorted in one launch on the CPU, each element against each.
const SHORT: usize = 64;

/// Whether `rows` of `n` elements are compared with each other rather than passed over.
fn is_short(device: Device, [rows, n]: [usize; 2]) -> bool {
    match device {
        Device::Cpu => n <= SHORT,
        Device::Cuda(_) => n <= PIECE && rows.saturating_mul(n * n) <= COMPARED,
    }
}

/// The positions of the elements of each row of `x: [rows, n]` in order.
#[track_caller]
fn sorted(x: &Tensor, descending: bool) -> Result<Tensor> {
    let [rows, n] = [x.shape()[0], x.shape()[1]];
    match is_short(x.device(), [rows, n]) && x.dtype().bytes() <= 4 {
        true => by_keys(x, descending),
        false => radix::sorted(x, descending),
    }
}

/// Short rows by keys of 64 bits, for values of at most 32.
#[track_caller]
fn by_keys(x: &Tensor, descending: bool) -> Result<Tensor> {
    let (rows, n) = (x.shape()[0], x.shape()[1]);
    let number = |value: usize| launch::number(DType::I64, value as f64);
    let grid = Grid::x(rows * n.div_ceil(OWN));
    let piece = n.next_power_of_two().clamp(OWN, PIECE);
    let keys = Tensor::uninitialized(&[rows, n], (DType::I64, x.device()))?;
    // The order of 32 bits without a sign is that of a number that has one.
    let zero = if x.dtype() == DType::U32 { 1 << 31 } else { 0 };
    let args = [
        launch::view_of(x, false),
        launch::pointer(&keys, true),
        number(zero),
        number(usize::from(descending)),
    ];
    let kernel = match x.dtype().is_float() {
        true => &device::sort_floats::KERNEL,
        false => &device::sort_ints::KERNEL,
    };
    let consts = [OWN as i64, piece as i64];
    launch::warped(kernel, &keys, grid, &[x.dtype()], &consts, None, &args)?;
    Ok(keys)
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Dense, Family, OpInfo, columns, cpu, folded, smallest};

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "sort",
            Family::Exact,
            |x| Ok(x[0].sort(0, false)?.0),
            |x| {
                columns(&x[0], |column| {
                    let mut sorted = column.to_vec();
                    sorted.sort_by(f64::total_cmp);
                    sorted
                })
            },
            &[&[&[37, 2]]],
        )
        .peer("torch.sort(x[0], 0)[0]"),
        OpInfo::new(
            "topk",
            Family::Exact,
            |x| Ok(x[0].topk(3, 0, true)?.0),
            |x| {
                let sorted = columns(&x[0], |column| {
                    let mut sorted = column.to_vec();
                    sorted.sort_by(|a, b| b.total_cmp(a));
                    sorted
                });
                Dense::from_fn(&[3, 2], |at| sorted.at(at))
            },
            &[&[&[9, 2]]],
        )
        .peer("torch.topk(x[0], 3, 0)[0]")
        .refusing(&[(
            || Ok(cpu(&[2], DType::F32)?.topk(3, 0, true)?.0),
            "topk: has no 3 of 2 elements, shape [2]",
        )]),
        OpInfo::new(
            "max_with_index",
            Family::Exact,
            |x| Ok(x[0].max_with_index(0, false)?.0),
            |x| folded(&x[0], |c| c.iter().copied().fold(f64::MIN, f64::max)),
            &[&[&[9, 3]]],
        )
        .peer("torch.max(x[0], 0)[0]"),
        OpInfo::new(
            "argsort",
            Family::Exact,
            |x| x[0].argsort(0, true),
            |x| {
                columns(&x[0], |column| {
                    let mut order: Vec<usize> = (0..column.len()).collect();
                    order.sort_by(|&a, &b| column[b].total_cmp(&column[a]));
                    order.into_iter().map(|i| i as f64).collect()
                })
            },
            &[&[&[9, 2]]],
        )
        .peer("torch.argsort(x[0], 0, True)")
        .flat(),
        OpInfo::new(
            "min_with_index",
            Family::Exact,
            |x| Ok(x[0].min_with_index(0, false)?.0),
            |x| folded(&x[0], smallest),
            &[&[&[9, 3]]],
        )
        .peer("torch.min(x[0], 0)[0]"),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of few values, so that there are equals, with NaN and both zeros among floats.
    fn rows(n: usize, dtype: DType) -> Result<Tensor> {
        let values: Vec<f64> = (0..2 * n)
            .map(|i| match i * 7919 % 13 {
                3 if dtype.is_float() => f64::NAN,
                5 if dtype.is_float() => -0.0,
                v if dtype.is_unsigned_int() => v as f64 * 1e3,
                v => (v as f64 - 6.0) * 1e3,
            })
            .collect();
        Tensor::from_f64(&values, &[2, n], (dtype, Device::Cpu))
    }

    /// The order of each row, as a stable sort of the host has it; NaN is larger than all numbers.
    fn on_host(x: &Tensor, descending: bool) -> Result<Vec<i64>> {
        let n = x.shape()[1];
        let values = x.to_dtype(DType::F64)?.to_vec::<f64>()?;
        let compare = |a: f64, b: f64| a.partial_cmp(&b).unwrap_or(a.is_nan().cmp(&b.is_nan()));
        let order = |row: &[f64]| {
            let mut order: Vec<i64> = (0..n as i64).collect();
            order.sort_by(|&i, &j| {
                let [a, b] = [row[i as usize], row[j as usize]];
                if descending { compare(b, a) } else { compare(a, b) }
            });
            order
        };
        Ok(values.chunks(n).flat_map(order).collect())
    }

    #[test]
    fn keys_and_digits_give_what_the_host_gives() -> Result<()> {
        for n in [1, 7, 100, PIECE, 1500] {
            for dtype in [DType::F32, DType::BF16, DType::I32, DType::U32] {
                for descending in [false, true] {
                    let x = rows(n, dtype)?;
                    let want = on_host(&x, descending)?;
                    if n <= PIECE {
                        let keys = by_keys(&x, descending)?.to_vec::<i64>()?;
                        assert_eq!(keys, want, "{n} of {dtype} by keys");
                    }
                    let digits = radix::sorted(&x, descending)?.to_vec::<i64>()?;
                    assert_eq!(digits, want, "{n} of {dtype} by digits");
                }
            }
        }
        for descending in [false, true] {
            let x = rows(100, DType::F64)?;
            let want = on_host(&x, descending)?;
            assert_eq!(radix::sorted(&x, descending)?.to_vec::<i64>()?, want);
        }
        Ok(())
    }

    #[test]
    fn a_row_of_many_parts_is_sorted_as_one() -> Result<()> {
        let values: Vec<f32> = (0..40_000).map(|i| (i * 7919 % 40_009) as f32).collect();
        let x = Tensor::from_slice_on(&values, &[1, 40_000], Device::Cpu)?;
        let want = on_host(&x, false)?;
        assert_eq!(radix::sorted(&x, false)?.to_vec::<i64>()?, want);
        Ok(())
    }
}
