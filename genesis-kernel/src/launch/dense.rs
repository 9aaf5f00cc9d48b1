//! Launches on dense operands of one length: what elementwise ops of tensors of one shape are.
//!
//! The host's part of such a launch is most of what a small op takes, and its code is cold: between two
//! launches the driver fills the caches with its own. So the way here is short. One comparison finds the code
//! of the launch before, one check of each operand is all that its arguments need, and three words of each
//! go to the driver. Whatever is not plain takes the way of all launches.
//!
//! ```text
//! z = x + y, n elements:   x, n, 1, y, n, 1, z, n, 1
//! ```

use super::{ahead, launch as launch_any};
use crate::compile::Executable;
use crate::diag::Error;
use crate::inspect::watch;
use crate::kernel::{DenseLaunch, KernelDef, Launch, MAX_DENSE_OPERANDS};
use crate::knobs;
use crate::runtime::cuda::{CudaKernel, CudaStream, Writes};
use crate::runtime::words::Words;
use crate::runtime::{Arg, Grid, Queue, Stream, ViewArg, fork};
use crate::trace;

/// The most programs that take it: what every grid may have.
const MOST_PROGRAMS: usize = i32::MAX as usize;

/// Runs a kernel on dense operands.
///
/// # Safety
/// As [`KernelDef::launch`].
#[inline]
pub(crate) unsafe fn launch(
    def: &KernelDef,
    stream: &Stream,
    dense: &DenseLaunch<'_>,
) -> Result<(), Error> {
    let Some((kernel, queue)) = ready(def, stream, dense) else {
        // SAFETY: the caller's promise is the same.
        return unsafe { launch_all(def, stream, dense) };
    };
    let mut words = Words::<{ 3 * MAX_DENSE_OPERANDS }>::new();
    for operand in dense.operands {
        [operand.address, dense.len as u64, 1].into_iter().for_each(|word| words.push(word));
    }
    let words = words.as_mut_slice();
    let writes = Writes::of_operands(dense.operands);
    let grid = [dense.programs as u32, 1, 1];
    // SAFETY: the words are the kernel's parameters in order; the caller answers for the addresses.
    unsafe { queue.launch(kernel, def.ast, grid, words, &[], &writes) }
}

/// The code that was launched last, if it is for this launch, nothing is wrong with that and nobody looks.
#[inline]
fn ready(
    def: &KernelDef,
    stream: &Stream,
    dense: &DenseLaunch<'_>,
) -> Option<(&'static CudaKernel, &'static CudaStream)> {
    let Queue::Cuda(queue) = stream.queue() else { return None };
    let entry = def.cache.newest()?;
    let Executable::Cuda(kernel) = &entry.code else { return None };
    let is_watched = trace::is_on() || watch::is_on() || ahead::is_on();
    let is_watched = is_watched || knobs::get().sync || fork::is_child();
    let fits = (1..=MOST_PROGRAMS).contains(&dense.programs) && !kernel.takes_maps();
    let is_plain = !is_watched && fits && entry.is_for_dense(stream.device(), dense);
    is_plain.then_some((kernel, queue))
}

/// # Safety
/// As [`launch`].
#[inline(never)]
unsafe fn launch_all(
    def: &KernelDef,
    stream: &Stream,
    dense: &DenseLaunch<'_>,
) -> Result<(), Error> {
    let DenseLaunch { programs, dtypes, consts, options, len, operands } = *dense;
    let args: Vec<Arg> =
        operands.iter().map(|&operand| Arg::View(ViewArg::flat(operand, len))).collect();
    let grid = Grid::x(programs);
    let request = Launch { stream, grid, dtypes, consts, options, args: &args };
    // SAFETY: the caller's promise is the same.
    unsafe { launch_any(def, &request) }
}
