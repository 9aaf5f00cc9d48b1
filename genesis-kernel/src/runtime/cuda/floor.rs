//! What the driver alone takes for a launch: the floor under ours.

use std::ffi::c_void;
use std::time::Instant;

use cudarc::driver::sys;

use super::{CudaDevice, EntryPoint};
use crate::diag::Error;

/// A kernel of four parameters that does nothing.
const EMPTY: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry empty(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) { ret; }
";

const ROUNDS: usize = 50;
const LAUNCHES: usize = 100;

impl CudaDevice {
    /// Milliseconds of the host for one call of the driver that launches an empty kernel of four
    /// parameters: the median of rounds of launches, as benches of our own launch do it.
    pub(crate) fn driver_launch_ms(&self) -> Result<f64, Error> {
        let entry =
            EntryPoint { name: "empty", threads: 128, dynamic_shared_bytes: 0, asserts: &[] };
        let kernel = self.load(&self.assemble(EMPTY)?, &entry)?;
        let mut words = [0u64; 4];
        let mut params = words.each_mut().map(|word| std::ptr::from_mut(word).cast::<c_void>());
        let mut times = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            self.synchronize()?;
            let start = Instant::now();
            for _ in 0..LAUNCHES {
                // SAFETY: the kernel takes four words, which the pointers are to.
                let result = unsafe {
                    sys::cuLaunchKernel(
                        kernel.raw(),
                        1,
                        1,
                        1,
                        128,
                        1,
                        1,
                        0,
                        self.raw_stream(),
                        params.as_mut_ptr(),
                        std::ptr::null_mut(),
                    )
                };
                self.check("cuLaunchKernel", result)?;
            }
            times.push(start.elapsed().as_secs_f64() * 1e3 / LAUNCHES as f64);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[ROUNDS / 2])
    }
}
