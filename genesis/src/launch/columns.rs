//! Launches of what makes columns of windows, and of what adds them up.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::{Grid, LaunchOptions};
use kernels::columns as device;

use super::axis::Axis;
use super::{accumulate_dtype, columns_cpu, launch_as, number, own_view};
use crate::dispatch::trace;
use crate::error::Result;
use crate::tensor::Tensor;

/// Elements of one program.
const BLOCK: usize = 1024;
/// Elements of one launch, whose numbers have 32 bits.
const MOST: usize = 1 << 30;

/// Columns of images, or images of columns: `images: [M, D, H, W]` and `columns: [M, taps, D', H', W']`, both dense
/// and not empty.
pub(crate) fn run(axes: &[Axis; 3], images: &Tensor, columns: &Tensor, adds: bool) -> Result<()> {
    let (from, to) = if adds { (columns, images) } else { (images, columns) };
    trace::check_real(if adds { "col2im" } else { "im2col" }, &[to])?;
    if !to.device().is_cuda() {
        let done = match adds {
            true => columns_cpu::col2im(axes, columns, images),
            false => columns_cpu::im2col(axes, images, columns),
        };
        if done {
            return Ok(());
        }
    }
    let numbers = [axes[1].kernel, axes[2].kernel].into_iter().chain(axes.map(|axis| axis.stride));
    let numbers = numbers.chain(axes.map(|axis| axis.before));
    let numbers = numbers.chain(axes.map(|axis| axis.dilation));
    let numbers: Vec<_> = numbers.map(|n| number(DType::I64, n as f64)).collect();
    let outer = to.shape()[0];
    let step = (MOST / (images.numel().max(columns.numel()) / outer).max(1)).max(1);
    let dtypes = [to.dtype(), accumulate_dtype(to.dtype())];
    let (kernel, dtypes) = match adds {
        true => (&device::col2im::KERNEL, &dtypes[..]),
        false => (&device::im2col::KERNEL, &dtypes[..1]),
    };
    for first in (0..outer).step_by(step) {
        let own = |t: &Tensor| t.narrow(0, first, step.min(outer - first));
        let (from, to) = (own(from)?, own(to)?);
        let mut args = vec![own_view(&from, false), own_view(&to, true)];
        args.extend_from_slice(&numbers);
        let options = LaunchOptions { num_warps: Some(4), ..LaunchOptions::default() };
        let grid = Grid::x(to.numel().div_ceil(BLOCK));
        launch_as(kernel, &to, grid, dtypes, &[BLOCK as i64], options, &args)?;
    }
    Ok(())
}
