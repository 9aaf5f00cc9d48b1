//! What a launch costs with nothing of ours around it: the floor of the launch benchmark.

use std::ffi::{CString, c_void};
use std::time::Instant;

use cudarc::driver::sys;
use genesis_kernel::runtime::Stream;

use crate::report::median;

/// A kernel of four parameters that does nothing.
const EMPTY: &str = ".version 8.0
.target sm_80
.address_size 64
.visible .entry empty(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) { ret; }
";

fn check(result: sys::CUresult) -> anyhow::Result<()> {
    anyhow::ensure!(result == sys::CUresult::CUDA_SUCCESS, "the driver says {result:?}");
    Ok(())
}

/// Median host time of `cuLaunchKernel` in ms. The stream's context must be current here, which it is
/// once something was launched on it.
pub(crate) fn launch_ms(stream: &Stream) -> anyhow::Result<f64> {
    let (text, name) = (CString::new(EMPTY)?, CString::new("empty")?);
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    let mut queue = std::ptr::null_mut();
    let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
    // SAFETY: a context is current, the text is PTX that ends in a zero, out pointers are ours.
    unsafe {
        check(sys::cuModuleLoadData(&mut module, text.as_ptr().cast()))?;
        check(sys::cuModuleGetFunction(&mut function, module, name.as_ptr()))?;
        check(sys::cuStreamCreate(&mut queue, flags))?;
    }
    let mut values = [0u64; 4];
    let mut times = Vec::new();
    for _ in 0..50 {
        stream.synchronize()?;
        // SAFETY: the stream is the one just made.
        check(unsafe { sys::cuStreamSynchronize(queue) })?;
        let start = Instant::now();
        for _ in 0..100 {
            let mut args =
                values.each_mut().map(|value| std::ptr::from_mut(value).cast::<c_void>());
            let (args, extra) = (args.as_mut_ptr(), std::ptr::null_mut());
            // SAFETY: the kernel takes four words, which the driver copies before it returns.
            check(unsafe {
                sys::cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 0, queue, args, extra)
            })?;
        }
        times.push(start.elapsed().as_secs_f64() * 1e3 / 100.0);
    }
    Ok(median(times))
}
