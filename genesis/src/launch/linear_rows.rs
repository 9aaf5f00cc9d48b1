//! Products whose rows keep their bits: what is chosen by K and the outputs alone, and what may follow the
//! number of rows.
//!
//! | | by K, the outputs and the device | by the number of rows |
//! |---|---|---|
//! | processor | groups along K | rows and outputs of a program |
//! | GPU | parts of K, the step along K, the tile's outputs | the tile's rows, whether parts are programs |
//!
//! On a processor an element is computed in an order of its own, whatever tile it stands in. What GPUs do is in
//! [`linear_tiles`](mod@super::linear_tiles).

use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::Device;
use kernels::linear_rows as device;

use super::epilogue::{Epilogue, Fusion};
use super::linear_tiles::linear_tiles;
pub(crate) use super::linear_tiles::{aligned, tile_rows};
use super::views;
use crate::error::Result;
use crate::tensor::Tensor;

/// Elements of K that a program of a processor takes at once. With the most rows and their outputs that is the
/// largest tile that a kernel has.
const AT_ONCE: usize = 4096;
/// Lanes of a group: two vectors of AVX-512.
const LANES: usize = 32;

/// Rows of a program of a processor: those that there are, up to what shares a weight in the cache.
pub(crate) fn rows_at_once(n: usize) -> usize {
    [1, 2, 4, 16].into_iter().find(|&rows| n <= rows).unwrap_or(64)
}

/// Groups of `lanes` that are taken at once: all, or even shares of them.
pub(crate) fn groups_at_once(groups: usize, lanes: usize) -> usize {
    let steps = (groups * lanes).div_ceil(AT_ONCE).max(1);
    groups.div_ceil(steps).max(1)
}

/// Outputs of a program of a processor with so many rows.
pub(crate) fn outs_at_once(rows: usize) -> usize {
    if rows > 16 { 4 } else { 8 }
}

/// `y = x W^T + bias` with `x: [n, k]`, `weight: [m, k]`, both dense, `bias: [m]` or empty, `y: [n, m]`.
pub(crate) fn linear_rows(x: &Tensor, weight: &Tensor, bias: &Tensor, y: &Tensor) -> Result<()> {
    match y.device() {
        Device::Cpu => by_lanes(x, weight, bias, y),
        Device::Cuda(_) => linear_tiles(x, weight, bias, y, Fusion::of(Epilogue::Nothing)),
    }
}

fn by_lanes(x: &Tensor, weight: &Tensor, bias: &Tensor, y: &Tensor) -> Result<()> {
    let [n, k] = [0, 1].map(|axis| x.shape()[axis]);
    let m = weight.shape()[0];
    let lanes = [LANES, 16, 8, 4, 2].into_iter().find(|&l| k.is_multiple_of(l)).unwrap_or(1);
    let groups = k / lanes;
    let rows = rows_at_once(n);
    let outs = outs_at_once(rows);
    let grid = Grid::x(n.div_ceil(rows) * m.div_ceil(outs));
    let consts = [rows, outs, groups_at_once(groups, lanes), lanes].map(|c| c as i64);
    let x = x.reshape(&[n, groups, lanes])?;
    let weight = weight.reshape(&[m, groups, lanes])?;
    let tensors = [(&x, false), (&weight, false), (bias, false), (y, true)];
    let dtypes = [x.dtype(), weight.dtype(), bias.dtype()];
    views(&device::linear_rows::KERNEL, grid, &dtypes, &consts, &tensors, &[])
}
