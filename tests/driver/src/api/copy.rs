//! Copies and fills.

use std::ffi::{c_uchar, c_uint, c_ushort, c_void};

use cudarc::driver::sys::{CUcontext, CUdeviceptr, CUresult, CUstream};

use super::{answer, number};
use crate::answer::Answer;
use crate::clock;
use crate::cost::{self, Route};
use crate::driver::lock;
use crate::stream::{enqueue, synchronize};
use crate::work::Work;

/// From the host: pageable memory is copied aside at once, pinned memory is read when its turn comes.
unsafe fn copy_in(to: u64, from: *const c_void, bytes: usize, stream: u64) -> Answer<()> {
    let is_pinned = lock().memory.is_pinned(number(from), bytes);
    let work = match is_pinned {
        true => Work::Copy { to, from: number(from), bytes },
        false => {
            let data =
                if bytes == 0 { &[] } else { std::slice::from_raw_parts(from.cast::<u8>(), bytes) };
            Work::CopyIn { to, bytes: data.into() }
        }
    };
    enqueue(stream, work)
}

/// To the host: into pageable memory at once, into pinned memory when its turn comes.
unsafe fn copy_out(to: *mut c_void, from: u64, bytes: usize, stream: u64) -> Answer<()> {
    if lock().memory.is_pinned(number(to), bytes) {
        return enqueue(stream, Work::Copy { to: number(to), from, bytes });
    }
    synchronize(stream)?;
    if bytes == 0 {
        return Ok(());
    }
    clock::wait_until(clock::host() + cost::LAUNCH + cost::copy(Route::Host, bytes as u64));
    let to = std::slice::from_raw_parts_mut(to.cast::<u8>(), bytes);
    lock().memory.read(from, to).map_err(|wrong| {
        eprintln!("virtual GPU: a copy to the host: {wrong}");
        CUresult::CUDA_ERROR_INVALID_VALUE
    })
}

fn fill(to: u64, pattern: &[u8], count: usize, stream: u64) -> Answer<()> {
    enqueue(stream, Work::Fill { to, pattern: pattern.to_vec(), count })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: CUdeviceptr,
    from: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    answer(|| copy_in(to, from, bytes, number(stream)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    answer(|| copy_out(to, from, bytes, number(stream)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoDAsync_v2(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    answer(|| enqueue(number(stream), Work::Copy { to, from, bytes }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyPeerAsync(
    to: CUdeviceptr,
    _to_context: CUcontext,
    from: CUdeviceptr,
    _from_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    cuMemcpyDtoDAsync_v2(to, from, bytes, stream)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoD_v2(
    to: CUdeviceptr,
    from: *const c_void,
    bytes: usize,
) -> CUresult {
    answer(|| {
        copy_in(to, from, bytes, 0)?;
        synchronize(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize) -> CUresult {
    answer(|| {
        copy_out(to, from, bytes, 0)?;
        synchronize(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> CUresult {
    cuMemcpyDtoDAsync_v2(to, from, bytes, std::ptr::null_mut())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemsetD8Async(
    to: CUdeviceptr,
    value: c_uchar,
    count: usize,
    stream: CUstream,
) -> CUresult {
    answer(|| fill(to, &[value], count, number(stream)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemsetD16Async(
    to: CUdeviceptr,
    value: c_ushort,
    count: usize,
    stream: CUstream,
) -> CUresult {
    answer(|| fill(to, &value.to_le_bytes(), count, number(stream)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemsetD32Async(
    to: CUdeviceptr,
    value: c_uint,
    count: usize,
    stream: CUstream,
) -> CUresult {
    answer(|| fill(to, &value.to_le_bytes(), count, number(stream)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemsetD8_v2(to: CUdeviceptr, value: c_uchar, count: usize) -> CUresult {
    answer(|| fill(to, &[value], count, 0))
}
