//! Launches of a kernel with all its arguments made: what the others of this folder end in.

use genesis_kernel::autotune::Source;
use genesis_kernel::compose::indirect;
use genesis_kernel::ir::DType;
use genesis_kernel::kernel::{Grid, KernelDef, LaunchOptions};
use genesis_kernel::runtime::{Arg, Stream};

use crate::dispatch::{capture, trace};
use crate::error::Result;
use crate::tensor::Tensor;

/// Launches a kernel on the stream of the device that a tensor is on.
pub(super) fn launch(
    kernel: &'static KernelDef,
    on: &Tensor,
    grid: Grid,
    dtypes: &[DType],
    consts: &[i64],
    args: &[Arg],
) -> Result<()> {
    launch_with(kernel, on, grid, dtypes, consts, None, args)
}

/// [`launch`] with the number of warps chosen.
#[allow(clippy::too_many_arguments, reason = "a launch is all of these")]
pub(super) fn launch_with(
    kernel: &'static KernelDef,
    on: &Tensor,
    grid: Grid,
    dtypes: &[DType],
    consts: &[i64],
    num_warps: Option<u32>,
    args: &[Arg],
) -> Result<()> {
    let options = LaunchOptions { num_warps, ..LaunchOptions::default() };
    launch_as(kernel, on, grid, dtypes, consts, options, args)
}

/// [`launch`] with all choices made.
#[allow(clippy::too_many_arguments, reason = "a launch is all of these")]
pub(crate) fn launch_as(
    kernel: &'static KernelDef,
    on: &Tensor,
    grid: Grid,
    dtypes: &[DType],
    consts: &[i64],
    options: LaunchOptions,
    args: &[Arg],
) -> Result<()> {
    if trace::records(on) {
        return Err(trace::refusal(kernel.name()));
    }
    let kernel = if capture::has_cells() { indirect(kernel, args)? } else { kernel };
    let stream = &on.device().stream();
    // SAFETY: every argument is a view over storage that its tensor keeps alive, with extents and
    // strides inside it; results are fresh, or written by the in-place ops that own them.
    Ok(unsafe { kernel.launch_with(stream, grid, dtypes, consts, options, args) }?)
}

/// Whether somebody measured how a tuned launch with these arguments is fastest: this user, the kernel's table, or this
/// process.
pub(super) fn is_measured(
    kernel: &'static KernelDef,
    stream: &Stream,
    dtypes: &[DType],
    args: &[Arg],
) -> Result<bool> {
    // SAFETY: as in `launch_as`; it may be measured with these arguments.
    let (_, source) = unsafe { kernel.choose(stream, dtypes, &[], args) }?;
    Ok(matches!(source, Source::Database | Source::Table | Source::Measured))
}
