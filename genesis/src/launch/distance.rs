//! Launches of distances between points.

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::{Grid, KernelDef};
use genesis_kernel::runtime::Arg;
use genesis_kernel::tuning::elementwise::Tile;
use kernels::distance as device;

use super::config::chip;
use super::{accumulate_dtype, launch_with, own_view};
use crate::error::Result;
use crate::tensor::Tensor;

/// The number by which the kernels know an order of distances.
fn order(p: f64) -> i64 {
    match p {
        0.0 => 4,
        1.0 => 1,
        2.0 => 2,
        f64::INFINITY => 3,
        _ => 0,
    }
}

/// `z[b, i, j]` becomes the distance of order `p` of `x[b, :, i]` and `y[b, :, j]`.
pub(crate) fn distances(x: &Tensor, y: &Tensor, z: &Tensor, p: f64) -> Result<()> {
    tiled(&device::distances::KERNEL, &[x, y], z, p)
}

/// The gradient of [`distances`] of points `x: [B, P, D]` and `y: [B, R, D]` to `dx`, by weights and distances
/// `[B, R, P]`.
pub(crate) fn distances_bwd(of: [&Tensor; 4], dx: &Tensor, p: f64) -> Result<()> {
    tiled(&device::distances_bwd::KERNEL, &of, dx, p)
}

fn tiled(kernel: &'static KernelDef, of: &[&Tensor], to: &Tensor, p: f64) -> Result<()> {
    let [rows, cols] = Tile::of_distances(&chip(to.device()));
    let [planes, m, n] = [0, 1, 2].map(|axis| to.shape()[axis]);
    let grid = Grid::x(planes * m.div_ceil(rows) * n.div_ceil(cols));
    let mut args: Vec<Arg> = of.iter().map(|t| own_view(t, false)).collect();
    args.extend([own_view(to, true), Arg::Scalar(Scalar::float(DType::F64, p))]);
    let dtypes = [to.dtype(), accumulate_dtype(to.dtype())];
    let consts = [rows as i64, cols as i64, order(p)];
    launch_with(kernel, to, grid, &dtypes, &consts, None, &args)
}
