//! Products whose rows keep their bits: what is chosen by K and the outputs alone, and what may follow the
//! number of rows.
//!
//! | | by K, the outputs and the device | by the number of rows |
//! |---|---|---|
//! | processor | groups along K | rows and outputs of a program |
//! | GPU | parts of K, the step along K, the tile's outputs, warps and stages | the tile's rows |
//!
//! On a processor an element is computed in an order of its own, whatever tile it stands in. On a GPU the
//! tensor cores' instruction takes more rows or fewer, and an element's sum is made of the same steps. The
//! rows begin at an address that every form of loads suits, so that all calls are one form.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::{Grid, LaunchOptions};
use genesis_kernel::runtime::Device;
use kernels::linear_rows as device;

use super::{cast, config, launch_as, transposed, view, views};
use crate::error::Result;
use crate::tensor::Tensor;

/// Elements of K that a program of a processor takes at once. With the most rows and their outputs that is the
/// largest tile that a kernel has.
const AT_ONCE: usize = 4096;
/// Lanes of a group: two vectors of AVX-512.
const LANES: usize = 32;
/// Outputs of a tile on a GPU, and elements of K of a step.
const BM: usize = 64;
const BK: usize = 64;
/// Elements of K of the shortest part.
const LEAST_K: usize = 128;

/// Rows of a program of a processor: those that there are, up to what shares a weight in the cache.
pub(crate) fn rows_at_once(n: usize) -> usize {
    [1, 2, 4, 16].into_iter().find(|&rows| n <= rows).unwrap_or(64)
}

/// Rows of a tile on a GPU.
pub(crate) fn tile_rows(n: usize) -> usize {
    [16, 64].into_iter().find(|&rows| n <= rows).unwrap_or(128)
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
        Device::Cuda(_) => by_tiles(x, weight, bias, y),
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

/// Into how many parts K is cut, so that there is a tile for most multiprocessors.
fn parts(on: Device, k: usize, m: usize) -> usize {
    let wanted = config::multiprocessors(on) / m.div_ceil(BM).max(1);
    let fits =
        |&parts: &usize| parts <= wanted && k.is_multiple_of(parts * BK) && k / parts >= LEAST_K;
    [16, 8, 7, 4, 3, 2].into_iter().find(fits).unwrap_or(1)
}

/// A dense tensor at an address that is a multiple of 16 bytes: itself, or a copy.
pub(crate) fn aligned(x: &Tensor) -> Result<Tensor> {
    if x.address().is_multiple_of(16) {
        return Ok(x.clone());
    }
    let copy = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
    cast(x, &copy)?;
    Ok(copy)
}

fn by_tiles(x: &Tensor, weight: &Tensor, bias: &Tensor, y: &Tensor) -> Result<()> {
    let ([n, k], m) = ([0, 1].map(|axis| x.shape()[axis]), weight.shape()[0]);
    let dtype = if x.dtype() == weight.dtype() { x.dtype() } else { DType::F32 };
    let (x, weight) = (aligned(&x.to_dtype(dtype)?)?, aligned(&weight.to_dtype(dtype)?)?);
    let parts = parts(y.device(), k, m);
    let each = k / parts;
    let sums = Tensor::uninitialized(&[parts, n, m], (DType::F32, y.device()))?;
    let (row, part) = (k as i64, each as i64);
    let args = [
        view(&weight, &[parts, m, each], &[part, row, 1], false),
        view(&x, &[parts, each, n], &[part, 1, row], false),
        transposed(&sums, true),
    ];
    let (kernel, dtypes) = match dtype {
        DType::F32 => (&kernels::matmul::matmul::KERNEL, [dtype, DType::F32]),
        _ => (&kernels::matmul::matmul_wide::KERNEL, [dtype, DType::F32]),
    };
    let rows = tile_rows(n);
    // 16-bit operands go to tensor cores; multiply-adds of f32 take smaller steps.
    let (step, stages) = if dtype.bytes() == 2 { (BK, 4) } else { (16, 3) };
    let grid = Grid::x(parts * m.div_ceil(BM) * n.div_ceil(rows));
    let options =
        LaunchOptions { num_warps: Some(4), num_stages: Some(stages), ..LaunchOptions::default() };
    let consts = [BM, rows, step].map(|c| c as i64);
    launch_as(kernel, y, grid, &dtypes, &consts, options, &args)?;
    join(&sums, bias, y)
}

/// Adds parts up in their order, and the bias.
fn join(sums: &Tensor, bias: &Tensor, y: &Tensor) -> Result<()> {
    let [n, m] = [0, 1].map(|axis| y.shape()[axis]);
    let (rows, columns) = if n == 1 { (1, 256) } else { (4, 256) };
    let grid = Grid::x(n.div_ceil(rows) * m.div_ceil(columns));
    let dtypes = [y.dtype(), bias.dtype()];
    let tensors = [(sums, false), (bias, false), (y, true)];
    let consts = [rows as i64, columns as i64];
    views(&device::join_parts::KERNEL, grid, &dtypes, &consts, &tensors, &[])
}
