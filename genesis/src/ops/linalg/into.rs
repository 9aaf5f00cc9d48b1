//! Products written to tensors that are there: for ops that are made of several, in parts.

use genesis_kernel::runtime::Device;

use super::affine::row_bias;
use super::matmul::is_tf32;
use super::tensor_copies;
use crate::error::Result;
use crate::launch;
use crate::tensor::Tensor;

/// `c = a b`, plus `bias` in every row, of matrices; K and `c` are not empty.
///
/// # Errors
/// If a launch fails.
pub(in crate::ops) fn affine_into(
    [a, b]: [&Tensor; 2],
    bias: Option<&Tensor>,
    c: &Tensor,
) -> Result<()> {
    let Some(bias) = bias else { return add_product(a, b, c, true) };
    if c.device().is_cuda() && !is_tf32(a.dtype()) {
        let operands = [&a.as_batch(), &b.as_batch(), bias];
        return tensor_copies::matmul_bias(operands, &c.as_batch(), row_bias());
    }
    launch::cast(&bias.broadcast_to(c.shape())?, c)?;
    add_product(a, b, c, false)
}

/// `c = a b` of matrices whose K is far longer than their rows and columns, and like `c` not empty.
///
/// # Errors
/// If a launch fails.
pub(in crate::ops) fn long_product_into(a: &Tensor, b: &Tensor, c: &Tensor) -> Result<()> {
    let (wide_a, wide_b, wide_c) = (a.as_batch(), b.as_batch(), c.as_batch());
    if c.device() == Device::Cpu {
        return launch::matmul_cpu(&wide_a, &wide_b, &wide_c);
    }
    let tf32 = is_tf32(a.dtype());
    let (parts, each) = launch::long_parts(&wide_a, &wide_c);
    if parts == 1 {
        return tensor_copies::matmul(&wide_a, &wide_b, &wide_c, tf32);
    }
    let (m, k, n) = (a.shape()[0], a.shape()[1], b.shape()[1]);
    let (main, rest) = (parts * each, k - parts * each);
    let wide = launch::accumulate_dtype(c.dtype());
    let sums = parts + usize::from(rest > 0);
    let sums = Tensor::uninitialized(&[sums, m, n], (wide, c.device()))?;
    let of_a = a.narrow(1, 0, main)?.reshape(&[m, parts, each])?.transpose(0, 1)?; // [parts, m, each]
    let of_b = b.narrow(0, 0, main)?.reshape(&[parts, each, n])?;
    tensor_copies::matmul(&of_a, &of_b, &sums.narrow(0, 0, parts)?, tf32)?;
    if rest > 0 {
        let (a, b) = (a.narrow(1, main, rest)?, b.narrow(0, main, rest)?);
        tensor_copies::matmul(&a.as_batch(), &b.as_batch(), &sums.narrow(0, parts, 1)?, tf32)?;
    }
    launch::cast(&sums.sum_dims(&[0], true)?, &wide_c)
}

/// `c = a b` of matrices that are not empty, or `c += a b` where that is not the `first` product; `c` is dense, and as wide
/// as the operands or as their sums.
///
/// # Errors
/// If a launch fails.
pub(in crate::ops) fn add_product(a: &Tensor, b: &Tensor, c: &Tensor, first: bool) -> Result<()> {
    let (a, b, c) = (&a.as_batch(), &b.as_batch(), &c.as_batch());
    let tf32 = is_tf32(a.dtype());
    match (c.device(), first) {
        (Device::Cpu, true) => launch::matmul_cpu(a, b, c),
        (Device::Cpu, false) => launch::matmul_add_cpu(a, b, c),
        (Device::Cuda(_), true) => tensor_copies::matmul(a, b, c, tf32),
        (Device::Cuda(_), false) => tensor_copies::matmul_add(a, b, c, tf32),
    }
}
