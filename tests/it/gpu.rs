//! The GPU of this machine; where there is none, a line that says what was not tested.

use genesis::Device;

use crate::skipped::{Needed, skip};

/// The first GPU. Without one, [`skip`] says once for each `what` that it is not tested.
pub(crate) fn gpu(what: &'static str) -> Option<Device> {
    let Some(problem) = Device::cuda_problem() else { return Some(Device::Cuda(0)) };
    skip(Needed::Gpu, what, &problem.to_string());
    None
}

/// The CPU, and the GPU where one is.
pub(crate) fn devices(what: &'static str) -> Vec<Device> {
    [Device::Cpu].into_iter().chain(gpu(what)).collect()
}
