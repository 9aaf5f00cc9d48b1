//! Launches of grid samples.

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::Arg;

use super::{accumulate_dtype, launch_with, own_view};
use crate::error::Result;
use crate::tensor::Tensor;

/// Elements that a program has at a time, of all points and channels.
const BLOCK: usize = 256;

/// `y: [N, C, P]` of `x: [N, C, ..]` at the points of a grid `[N, P, axes]`, all dense and not empty. The constants are
/// the mode, the padding, the alignment and the elements beside a point along an axis.
pub(crate) fn grid_sample(
    [x, grid]: [&Tensor; 2],
    y: &Tensor,
    extents: &[usize],
    [mode, padding, align, taps]: [i64; 4],
) -> Result<()> {
    let [n, c, points] = [0, 1, 2].map(|axis| y.shape()[axis]);
    let is_volume = extents.len() == 3;
    let channels = c.next_power_of_two().min(8);
    let cols = BLOCK / channels;
    let deep = if is_volume { taps } else { 1 };
    let consts =
        [channels as i64, cols as i64, i64::from(is_volume), mode, padding, align, deep, taps];
    let whole = |extent: usize| Arg::Scalar(Scalar::int(DType::I64, extent as i64));
    let depth = if is_volume { extents[0] } else { 1 };
    let [height, width] = [extents[extents.len() - 2], extents[extents.len() - 1]];
    let views = [own_view(x, false), own_view(grid, false), own_view(y, true)];
    let args = [&views[..], &[depth, height, width].map(whole)].concat();
    let dtypes = [y.dtype(), accumulate_dtype(y.dtype())];
    let programs = Grid::xy(points.div_ceil(cols), n);
    let kernel = &kernels::grid_sample::grid_sample::KERNEL;
    launch_with(kernel, y, programs, &dtypes, &consts, Some(4), &args)
}
