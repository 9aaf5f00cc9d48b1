//! The functions that programs call, by their names in the library.
//!
//! All of them are unsafe in the same way: addresses they are given are null or point to what NCCL's
//! documentation says.

#![allow(non_snake_case, reason = "NCCL's names")]
#![allow(clippy::missing_safety_doc, reason = "see the top of this module")]
#![allow(unsafe_op_in_unsafe_fn, reason = "every function here is unsafe as a whole")]

use std::cell::RefCell;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use cudarc::driver::sys::CUstream;
use cudarc::nccl::sys::{ncclConfig_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclUniqueId};

use crate::communicator::Communicator;
use crate::exchange::{Job, Task};
use crate::kind::Kind;
use crate::order::{self, Move};
use crate::reduce::{bytes_of, reduces};
use crate::staging::Staging;

const OK: ncclResult_t = ncclResult_t::ncclSuccess;
const WRONG: ncclResult_t = ncclResult_t::ncclInvalidArgument;
const CUDA: ncclResult_t = ncclResult_t::ncclUnhandledCudaError;
const SYSTEM: ncclResult_t = ncclResult_t::ncclSystemError;

/// What this library says its version is: 2.28.3.
const VERSION: c_int = 22803;

/// A rank's handle.
type Handle = *const Communicator;

/// A call that was made.
struct Call {
    communicator: Arc<Communicator>,
    kind: Kind,
    from: Move,
    to: Move,
    stream: CUstream,
}

thread_local! {
    /// Calls of a group, and how deep groups are nested.
    static GROUP: RefCell<(usize, Vec<Call>)> = const { RefCell::new((0, Vec::new())) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> ncclResult_t {
    version.write(VERSION);
    OK
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetUniqueId(id: *mut ncclUniqueId) -> ncclResult_t {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let name = format!("nccl-{}-{nanos}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let bytes = path.as_os_str().as_bytes();
    let mut internal = [0; 128];
    if bytes.len() >= internal.len() {
        return SYSTEM;
    }
    for (to, byte) in internal.iter_mut().zip(bytes) {
        *to = *byte as c_char;
    }
    id.write(ncclUniqueId { internal });
    OK
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitRankConfig(
    handle: *mut Handle,
    size: c_int,
    id: ncclUniqueId,
    rank: c_int,
    _config: *mut ncclConfig_t,
) -> ncclResult_t {
    let bytes = id.internal.map(|byte| byte as u8);
    let Ok(path) = CStr::from_bytes_until_nul(&bytes) else { return WRONG };
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    match Communicator::open(path, rank as usize, size as usize) {
        Ok(of) => {
            handle.write(Arc::into_raw(Arc::new(of)));
            OK
        }
        Err(_) => SYSTEM,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommSplit(
    handle: Handle,
    color: c_int,
    key: c_int,
    split: *mut Handle,
    _config: *mut ncclConfig_t,
) -> ncclResult_t {
    match (*handle).split((color >= 0).then_some(color), key) {
        Ok(of) => {
            split.write(of.map_or(std::ptr::null(), |of| Arc::into_raw(Arc::new(of))));
            OK
        }
        Err(_) => SYSTEM,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommGetAsyncError(
    handle: Handle,
    error: *mut ncclResult_t,
) -> ncclResult_t {
    let is_complete = (*handle).channel.is_complete();
    error.write(if is_complete { OK } else { ncclResult_t::ncclInProgress });
    OK
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommFinalize(_handle: Handle) -> ncclResult_t {
    order::finish().map_or(CUDA, |()| OK)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommDestroy(handle: Handle) -> ncclResult_t {
    drop(Arc::from_raw(handle));
    OK
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommAbort(handle: Handle) -> ncclResult_t {
    let of = Arc::from_raw(handle);
    of.channel.abort();
    OK
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetErrorString(result: ncclResult_t) -> *const c_char {
    let text = match result {
        ncclResult_t::ncclSuccess => c"no error",
        ncclResult_t::ncclUnhandledCudaError => c"unhandled cuda error",
        ncclResult_t::ncclSystemError => c"unhandled system error",
        ncclResult_t::ncclInvalidArgument => c"invalid argument",
        ncclResult_t::ncclInProgress => c"NCCL operation in progress",
        _ => c"internal error",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetLastError(_handle: Handle) -> *const c_char {
    c"".as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGroupStart() -> ncclResult_t {
    GROUP.with_borrow_mut(|group| group.0 += 1);
    OK
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGroupEnd() -> ncclResult_t {
    let calls = GROUP.with_borrow_mut(|group| {
        group.0 = group.0.saturating_sub(1);
        if group.0 == 0 { std::mem::take(&mut group.1) } else { Vec::new() }
    });
    submit(calls)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclAllReduce(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    dtype: ncclDataType_t,
    op: ncclRedOp_t,
    handle: Handle,
    stream: CUstream,
) -> ncclResult_t {
    let bytes = count * bytes_of(dtype);
    if !reduces(dtype) {
        return WRONG;
    }
    call(handle, Kind::AllReduce(dtype, op), (from, bytes), (to, bytes), stream)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclReduce(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    dtype: ncclDataType_t,
    op: ncclRedOp_t,
    root: c_int,
    handle: Handle,
    stream: CUstream,
) -> ncclResult_t {
    let (bytes, root) = (count * bytes_of(dtype), root as usize);
    if !reduces(dtype) {
        return WRONG;
    }
    let got = if (*handle).channel.rank == root { bytes } else { 0 };
    call(handle, Kind::Reduce(dtype, op, root), (from, bytes), (to, got), stream)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclBroadcast(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    dtype: ncclDataType_t,
    root: c_int,
    handle: Handle,
    stream: CUstream,
) -> ncclResult_t {
    let bytes = count * bytes_of(dtype);
    call(handle, Kind::Broadcast(root as usize), (from, bytes), (to, bytes), stream)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclAllGather(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    dtype: ncclDataType_t,
    handle: Handle,
    stream: CUstream,
) -> ncclResult_t {
    let bytes = count * bytes_of(dtype);
    let all = bytes * (*handle).channel.size;
    call(handle, Kind::AllGather, (from, bytes), (to, all), stream)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclReduceScatter(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    dtype: ncclDataType_t,
    op: ncclRedOp_t,
    handle: Handle,
    stream: CUstream,
) -> ncclResult_t {
    let bytes = count * bytes_of(dtype);
    if !reduces(dtype) {
        return WRONG;
    }
    let all = bytes * (*handle).channel.size;
    call(handle, Kind::ReduceScatter(dtype, op), (from, all), (to, bytes), stream)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclSend(
    from: *const c_void,
    count: usize,
    dtype: ncclDataType_t,
    peer: c_int,
    handle: Handle,
    stream: CUstream,
) -> ncclResult_t {
    let bytes = count * bytes_of(dtype);
    call(handle, Kind::Send(peer as usize), (from, bytes), (std::ptr::null_mut(), 0), stream)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclRecv(
    to: *mut c_void,
    count: usize,
    dtype: ncclDataType_t,
    peer: c_int,
    handle: Handle,
    stream: CUstream,
) -> ncclResult_t {
    let bytes = count * bytes_of(dtype);
    call(handle, Kind::Receive(peer as usize), (std::ptr::null(), 0), (to, bytes), stream)
}

unsafe fn call(
    handle: Handle,
    kind: Kind,
    from: (*const c_void, usize),
    to: (*mut c_void, usize),
    stream: CUstream,
) -> ncclResult_t {
    Arc::increment_strong_count(handle);
    let communicator = Arc::from_raw(handle);
    let from = Move { address: from.0 as u64, bytes: from.1 };
    let to = Move { address: to.0 as u64, bytes: to.1 };
    let call = Call { communicator, kind, from, to, stream };
    let calls = GROUP.with_borrow_mut(|group| match group.0 {
        0 => vec![call],
        _ => {
            group.1.push(call);
            Vec::new()
        }
    });
    submit(calls)
}

/// Gives calls to their stream; those of a group are of one communicator and one stream.
unsafe fn submit(calls: Vec<Call>) -> ncclResult_t {
    let Some(first) = calls.first() else { return OK };
    let (communicator, stream) = (first.communicator.clone(), first.stream);
    let is_kin =
        |call: &Call| Arc::ptr_eq(&call.communicator, &communicator) && call.stream == stream;
    if !calls.iter().all(is_kin) {
        return ncclResult_t::ncclInvalidUsage;
    }
    let task = |call: &Call| {
        let (from, to) = (Staging::take(call.from.bytes)?, Staging::take(call.to.bytes)?);
        Ok(Task { kind: call.kind, from, to })
    };
    let tasks: Result<Vec<Task>, cudarc::driver::sys::CUresult> = calls.iter().map(task).collect();
    let Ok(tasks) = tasks else { return CUDA };
    let moves: Vec<(Move, Move)> = calls.iter().map(|call| (call.from, call.to)).collect();
    order::submit(Job { communicator, tasks }, &moves, stream).map_or(CUDA, |()| OK)
}
