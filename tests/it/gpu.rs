//! The GPU of this machine; where there is none, a line that says what was not tested.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use genesis::Device;

/// The first GPU. Without one, `skipped: no GPU` is printed once for each `what`, also where the test
/// harness keeps to itself what passing tests print.
pub(crate) fn gpu(what: &'static str) -> Option<Device> {
    static SAID: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    let problem = match Device::cuda_problem() {
        None => return Some(Device::Cuda(0)),
        Some(problem) => problem,
    };
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(what) {
        // Not `eprintln!`, which the harness takes. A closed stream loses a line and nothing else.
        let _ = writeln!(std::io::stderr(), "skipped: no GPU: {what} ({problem})");
    }
    None
}

/// The CPU, and the GPU where one is.
pub(crate) fn devices(what: &'static str) -> Vec<Device> {
    [Device::Cpu].into_iter().chain(gpu(what)).collect()
}
