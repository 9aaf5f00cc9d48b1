//! Batch-invariant products: the bits of a row depend on K, the outputs and the device; see
//! [`genesis_kernel::tuning::linear`].
//!
//! On a processor an element is computed in an order of its own, whatever tile it stands in. What GPUs do is in
//! [`linear_tiles`](mod@super::linear_tiles).

use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::Device;
use genesis_kernel::tuning::linear::{cpu_groups, cpu_lanes, cpu_outputs, cpu_rows};
use kernels::linear_rows as device;

use super::epilogue::{Epilogue, Fusion};
pub(crate) use super::linear_tiles::aligned;
use super::linear_tiles::linear_tiles;
use super::views;
use crate::error::Result;
use crate::tensor::Tensor;

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
    let lanes = cpu_lanes(k);
    let groups = k / lanes;
    let rows = cpu_rows(n);
    let outs = cpu_outputs(rows);
    let grid = Grid::x(n.div_ceil(rows) * m.div_ceil(outs));
    let consts = [rows, outs, cpu_groups(groups, lanes), lanes].map(|c| c as i64);
    let x = x.reshape(&[n, groups, lanes])?;
    let weight = weight.reshape(&[m, groups, lanes])?;
    let tensors = [(&x, false), (&weight, false), (bias, false), (y, true)];
    let dtypes = [x.dtype(), weight.dtype(), bias.dtype()];
    views(&device::linear_rows::KERNEL, grid, &dtypes, &consts, &tensors, &[])
}
