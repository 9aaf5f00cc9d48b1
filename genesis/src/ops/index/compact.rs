//! The places of elements that are not zero: what `nonzero`, masks and `unique` are made of.
//!
//! How many there are is known when the counts of all chunks are, so that the host waits for them once.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::Device;
use kernels::{compact as device, scan};

use crate::error::Result;
use crate::launch;
use crate::tensor::Tensor;

/// Elements of one step of a program.
const BLOCK: usize = 2048;
/// Chunks, at most: one program adds up what they have.
const CHUNKS: usize = 4096;
/// Warps of a program.
const WARPS: Option<u32> = Some(8);

fn number(value: usize) -> genesis_kernel::runtime::Arg {
    launch::number(DType::I64, value as f64)
}

/// The places in row-major order of the elements that are not zero; waits for the device.
#[track_caller]
pub(super) fn places_of_nonzero(x: &Tensor) -> Result<Tensor> {
    let (n, on) = (x.numel(), x.device());
    let at = (DType::I64, on);
    if n == 0 {
        return Tensor::zeros(&[0], at);
    }
    let x = if x.dtype().is_number() { x.detach() } else { x.detach().to_bool()? };
    let x = x.contiguous()?.reshape(&[n])?;
    let chunk = n.div_ceil(CHUNKS).next_multiple_of(BLOCK);
    let chunks = n.div_ceil(chunk);
    let warps = if on == Device::Cpu { None } else { WARPS };
    let counts = Tensor::uninitialized(&[chunks], at)?;
    let (dtypes, consts) = ([x.dtype()], [BLOCK as i64]);
    let args = [launch::view_of(&x, false), launch::pointer(&counts, true), number(chunk)];
    let (kernel, grid) = (&device::count_found::KERNEL, Grid::x(chunks));
    launch::warped(kernel, &counts, grid, &dtypes, &consts, warps, &args)?;
    let total = Tensor::uninitialized(&[1], at)?;
    exclusive(&counts, &total, 1)?;
    let found = total.to_vec::<i64>()?.first().map_or(0, |&total| total as usize);
    let places = Tensor::uninitialized(&[found], at)?;
    if found > 0 {
        let args = [
            launch::view_of(&x, false),
            launch::pointer(&counts, false),
            launch::pointer(&places, true),
            number(chunk),
        ];
        let kernel = &device::found_places::KERNEL;
        launch::warped(kernel, &places, grid, &dtypes, &consts, warps, &args)?;
    }
    Ok(places)
}

/// Each number of each of `rows` rows becomes the sum of those before it.
#[track_caller]
pub(in crate::ops) fn exclusive(x: &Tensor, totals: &Tensor, rows: usize) -> Result<()> {
    let n = x.numel() / rows;
    let cols = n.next_power_of_two().clamp(16, 2048);
    let warps = (x.device() != Device::Cpu).then_some((cols / 128).clamp(1, 8) as u32);
    let args = [launch::pointer(x, true), launch::pointer(totals, true), number(n)];
    let kernel = &scan::exclusive_rows::KERNEL;
    launch::warped(kernel, x, Grid::x(rows), &[], &[cols as i64], warps, &args)
}

/// The coordinates of places in a shape: `[count, rank]`.
#[track_caller]
pub(super) fn coordinates(places: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let (n, rank) = (places.numel(), shape.len());
    let y = Tensor::uninitialized(&[n, rank], (DType::I64, places.device()))?;
    if n == 0 {
        return Ok(y);
    }
    let mut stride = 1;
    for (axis, &extent) in shape.iter().enumerate().rev() {
        let args = [
            launch::view_of(places, false),
            launch::pointer(&y, true),
            number(axis),
            number(rank),
            number(stride),
            number(extent),
        ];
        let (kernel, grid) = (&device::coordinates::KERNEL, Grid::x(n.div_ceil(BLOCK)));
        let warps = if y.device() == Device::Cpu { None } else { WARPS };
        launch::warped(kernel, &y, grid, &[], &[BLOCK as i64], warps, &args)?;
        stride *= extent;
    }
    Ok(y)
}
