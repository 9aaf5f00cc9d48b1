//! Stream compaction: the flat indices of nonzero elements, of which `nonzero`, masks and `unique` are made.
//!
//! How many there are is known when the counts of all chunks are, so that the host waits for them once.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use genesis_kernel::tuning::sorting::{
    COMPACTED, compacted_chunk, compacting_warps, exclusive_scan,
};
use kernels::{compact as device, scan};

use crate::error::Result;
use crate::launch;
use crate::launch::config::chip;
use crate::tensor::Tensor;

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
    let chunk = compacted_chunk(n);
    let chunks = n.div_ceil(chunk);
    let warps = compacting_warps(&chip(on));
    let counts = Tensor::uninitialized(&[chunks], at)?;
    let (dtypes, consts) = ([x.dtype()], [COMPACTED as i64]);
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
    let (cols, warps) = exclusive_scan(&chip(x.device()), n);
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
        let (kernel, grid) = (&device::coordinates::KERNEL, Grid::x(n.div_ceil(COMPACTED)));
        let warps = compacting_warps(&chip(y.device()));
        launch::warped(kernel, &y, grid, &[], &[COMPACTED as i64], warps, &args)?;
        stride *= extent;
    }
    Ok(y)
}
