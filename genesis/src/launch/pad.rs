//! Launches of padding: a tensor in a larger one, with a value around it or with its own elements.

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::Arg;
use genesis_kernel::tuning::elementwise::{Flat, Tile};
use kernels::pad as device;

use super::config::chip;
use super::{accumulate_dtype, launch_with, own_view, view};
use crate::dispatch::trace;
use crate::error::Result;
use crate::tensor::Tensor;

fn integer(value: usize) -> Arg {
    Arg::Scalar(Scalar::int(DType::I64, value as i64))
}

/// Axes of a tensor in a larger one: extents of both, and the element of the larger one at which it begins.
struct Axis {
    inner: usize,
    outer: usize,
    before: usize,
    stride: i64,
}

/// Writes `value` to all of a dense `y` but the box of `x`'s shape that begins at `before`, and `x` there; false where that
/// takes more than one launch.
pub(crate) fn boxed(x: &Tensor, y: &Tensor, before: &[usize], value: Scalar) -> Result<bool> {
    if !y.device().is_cuda() || trace::records(y) || y.numel() == 0 {
        return Ok(false);
    }
    let mut axes: Vec<Axis> = Vec::new();
    let extents = x.shape().iter().zip(y.shape());
    for (((&inner, &outer), &before), &stride) in extents.zip(before).zip(x.strides()) {
        match axes.last_mut() {
            // A whole axis, over which the one before it steps, is a part of that.
            Some(last) if inner == outer && last.stride == stride * inner as i64 => {
                *last = Axis {
                    inner: last.inner * inner,
                    outer: last.outer * outer,
                    before: last.before * outer,
                    stride,
                };
            }
            _ => axes.push(Axis { inner, outer, before, stride }),
        }
    }
    let Some(missing) = 4_usize.checked_sub(axes.len()) else { return Ok(false) };
    let unit = || Axis { inner: 1, outer: 1, before: 0, stride: 0 };
    let axes: Vec<Axis> = std::iter::repeat_with(unit).take(missing).chain(axes).collect();
    let of = |field: fn(&Axis) -> usize| -> Vec<usize> { axes.iter().map(field).collect() };
    let (inner, outer) = (of(|axis| axis.inner), of(|axis| axis.outer));
    let strides: Vec<i64> = axes.iter().map(|axis| axis.stride).collect();
    let dense = crate::shape::contiguous_strides(&outer);
    let mut args = vec![view(x, &inner, &strides, false), view(y, &outer, &dense, true)];
    args.extend(axes.iter().map(|axis| integer(axis.before)));
    args.push(Arg::Scalar(value));
    let Tile { rows, cols, warps } =
        Tile::of(&chip(y.device()), y.dtype().bytes(), outer[2], outer[3]);
    let grid = outer[0] * outer[1] * outer[2].div_ceil(rows) * outer[3].div_ceil(cols);
    let consts = [rows as i64, cols as i64];
    launch_with(&device::pad::KERNEL, y, Grid::x(grid), &[y.dtype()], &consts, warps, &args)?;
    Ok(true)
}

/// How the elements of an axis stand around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Around {
    /// Places before the first element; below 0 elements that are gone.
    pub(crate) before: i64,
    /// What comes around: from where to before where. None where the elements are mirrored.
    pub(crate) ends: Option<[i64; 2]>,
}

impl Around {
    fn args(self) -> [Arg; 3] {
        let [start, end] = self.ends.unwrap_or_default();
        [self.before, start, end].map(|value| Arg::Scalar(Scalar::int(DType::I64, value)))
    }

    fn consts(self, block: usize) -> [i64; 2] {
        [i64::from(self.ends.is_some()), block as i64]
    }
}

/// Elements of a launch, whose numbers have 32 bits.
pub(crate) const MOST: usize = 1 << 31;

/// `y: [outer, m, inner]` of `x: [outer, n, inner]`, both dense.
pub(crate) fn around(x: &Tensor, y: &Tensor, how: Around) -> Result<()> {
    let Flat { block, warps } = Flat::of_few(&chip(y.device()), y.dtype().bytes());
    let args = [&[own_view(x, false), own_view(y, true)], &how.args()[..]].concat();
    let (grid, consts) = (Grid::x(y.numel().div_ceil(block)), how.consts(block));
    launch_with(&device::pad_around::KERNEL, y, grid, &[y.dtype()], &consts, warps, &args)
}

/// `dx: [outer, n, inner]` of `dy: [outer, m, inner]`, both dense: the gradient of [`around`].
pub(crate) fn around_bwd(dy: &Tensor, dx: &Tensor, how: Around) -> Result<()> {
    let Flat { block, warps } = Flat::of_few(&chip(dx.device()), dx.dtype().bytes());
    let args = [&[own_view(dy, false), own_view(dx, true)], &how.args()[..]].concat();
    let (grid, consts) = (Grid::x(dx.numel().div_ceil(block)), how.consts(block));
    let dtypes = [dx.dtype(), accumulate_dtype(dx.dtype())];
    launch_with(&device::pad_around_bwd::KERNEL, dx, grid, &dtypes, &consts, warps, &args)
}
