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

/// `z[b, i, j]`, the product of `x[b, :, i]` and `y[b, :, j]`, whose squares are `[B, P]` and `[B, R]`, becomes their distance
/// of order 2.
pub(crate) fn distances_of_products(of: [&Tensor; 4], z: &Tensor) -> Result<()> {
    let (grid, [rows, cols]) = tiles(z);
    let mut args: Vec<Arg> = of.iter().map(|t| own_view(t, false)).collect();
    args.push(own_view(z, true));
    let kernel = &device::distances_of_products::KERNEL;
    launch_with(kernel, z, grid, &[z.dtype()], &[rows as i64, cols as i64], None, &args)
}

/// Adds to `dx` what pairs of near points give, of points, weights, weights of far pairs, and the number of near ones of each
/// point.
pub(crate) fn distances_near_bwd(of: [&Tensor; 5], dx: &Tensor) -> Result<()> {
    let (grid, [rows, cols]) = tiles(dx);
    let mut args: Vec<Arg> = of.iter().map(|t| own_view(t, false)).collect();
    args.push(own_view(dx, true));
    let kernel = &device::distances_near_bwd::KERNEL;
    launch_with(kernel, dx, grid, &[dx.dtype()], &[rows as i64, cols as i64], None, &args)
}

/// The gradient of [`distances`] of points `x: [B, P, D]` and `y: [B, R, D]` to `dx`, by weights and distances
/// `[B, R, P]`.
pub(crate) fn distances_bwd(of: [&Tensor; 4], dx: &Tensor, p: f64) -> Result<()> {
    tiled(&device::distances_bwd::KERNEL, &of, dx, p)
}

fn tiled(kernel: &'static KernelDef, of: &[&Tensor], to: &Tensor, p: f64) -> Result<()> {
    let (grid, [rows, cols]) = tiles(to);
    let mut args: Vec<Arg> = of.iter().map(|t| own_view(t, false)).collect();
    args.extend([own_view(to, true), Arg::Scalar(Scalar::float(DType::F64, p))]);
    let dtypes = [to.dtype(), accumulate_dtype(to.dtype())];
    let consts = [rows as i64, cols as i64, order(p)];
    launch_with(kernel, to, grid, &dtypes, &consts, None, &args)
}

/// Programs for a result of planes, and the rows and columns of each.
fn tiles(to: &Tensor) -> (Grid, [usize; 2]) {
    let [rows, cols] = Tile::of_distances(&chip(to.device()), to.numel());
    let [planes, m, n] = [0, 1, 2].map(|axis| to.shape()[axis]);
    (Grid::x(planes * m.div_ceil(rows) * n.div_ceil(cols)), [rows, cols])
}
