//! Streams and functions of the host in them.

use std::ffi::{c_int, c_uint, c_void};

use cudarc::driver::sys::{CUcontext, CUevent, CUhostFn, CUresult, CUstream, CUstream_flags};

use super::{WRONG, answer, give, handle, number};
use crate::driver::{context_of, lock};
use crate::run::{advance, finish};
use crate::stream::{enqueue, synchronize};
use crate::work::{Stream, Work};

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) -> CUresult {
    answer(|| {
        let mut driver = lock();
        let device = driver.device()?;
        let new = driver.handle();
        let blocks = flags & CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint == 0;
        driver.streams.insert(new, Stream::new(device, blocks));
        give(stream, handle(new))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreateWithPriority(
    stream: *mut CUstream,
    flags: c_uint,
    _priority: c_int,
) -> CUresult {
    cuStreamCreate(stream, flags)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamDestroy_v2(stream: CUstream) -> CUresult {
    answer(|| {
        let (stream, upto) = {
            let mut driver = lock();
            let stream = driver.stream(number(stream))?;
            driver.refuse_capturing(stream)?;
            (stream, driver.streams[&stream].queued)
        };
        // What it has still runs.
        finish(stream, upto);
        lock().streams.remove(&stream);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamSynchronize(stream: CUstream) -> CUresult {
    answer(|| synchronize(number(stream)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamQuery(stream: CUstream) -> CUresult {
    answer(|| {
        let (stream, is_done, device) = {
            let mut driver = lock();
            let stream = driver.stream(number(stream))?;
            driver.refuse_capturing(stream)?;
            let of = &driver.streams[&stream];
            (stream, of.done == of.queued, of.device)
        };
        if is_done {
            return Ok(());
        }
        advance(stream);
        lock().alive(device)?;
        Err(CUresult::CUDA_ERROR_NOT_READY)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamWaitEvent(
    stream: CUstream,
    event: CUevent,
    _flags: c_uint,
) -> CUresult {
    answer(|| lock().wait_event(number(stream), number(event)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchHostFunc(
    stream: CUstream,
    function: CUhostFn,
    data: *mut c_void,
) -> CUresult {
    answer(|| {
        let function = function.ok_or(WRONG)?;
        enqueue(number(stream), Work::Call { function, data: number(data) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetCtx(stream: CUstream, context: *mut CUcontext) -> CUresult {
    answer(|| {
        let mut driver = lock();
        let stream = driver.stream(number(stream))?;
        give(context, handle(context_of(driver.streams[&stream].device)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetFlags(stream: CUstream, flags: *mut c_uint) -> CUresult {
    answer(|| {
        let mut driver = lock();
        let stream = driver.stream(number(stream))?;
        give(flags, c_uint::from(!driver.streams[&stream].blocks))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetPriority(stream: CUstream, priority: *mut c_int) -> CUresult {
    answer(|| {
        lock().stream(number(stream))?;
        give(priority, 0)
    })
}
