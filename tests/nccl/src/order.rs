//! The order in which a process's calls run.
//!
//! A collective blocks the thread that runs it until the other processes come. Two of them in one process
//! must so run in the same order everywhere: in the order of their calls, whatever their streams. And they
//! run also if nobody of this process waits for them, since others do: a thread sees to that.

use std::ffi::c_void;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

use cudarc::driver::sys::{self, CUcontext, CUevent, CUresult, CUstream};

use crate::clock::Free;
use crate::exchange::Job;

/// An address that goes to another thread.
struct Address(usize);

/// The event behind the last call.
static LAST: Mutex<Option<Address>> = Mutex::new(None);

type Answer<T> = Result<T, CUresult>;

fn check(result: CUresult) -> Answer<()> {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(result) }
}

/// A value of a call on the device.
#[derive(Clone, Copy)]
pub(crate) struct Move {
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

/// Gives a job to a stream, with the copies before and behind it.
///
/// # Safety
/// The addresses are of device memory that lives until the stream has passed.
pub(crate) unsafe fn submit(job: Job, moves: &[(Move, Move)], stream: CUstream) -> Answer<()> {
    let is_captured = is_capturing(stream)?;
    // What stands for the machine's links takes their time, and no other.
    let _free = Free::begin();
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Address(event)) = &*last
        && !is_captured
    {
        // SAFETY: the event lives as long as the process.
        check(unsafe { sys::cuStreamWaitEvent(stream, *event as CUevent, 0) })?;
    }
    for (task, (from, _)) in job.tasks.iter().zip(moves).filter(|(_, (from, _))| from.bytes > 0) {
        // SAFETY: the caller answers for the device's memory, the job keeps the host's.
        check(unsafe {
            sys::cuMemcpyDtoHAsync_v2(task.from.address(), from.address, from.bytes, stream)
        })?;
    }
    // Freed behind the last copy; a graph repeats it as long as the process lives.
    let job: *mut Job = Box::into_raw(Box::new(job));
    // SAFETY: the job lives until the stream has passed.
    check(unsafe { sys::cuLaunchHostFunc(stream, Some(run), job.cast()) })?;
    // SAFETY: as above.
    let tasks = unsafe { &(*job).tasks };
    for (task, (_, to)) in tasks.iter().zip(moves).filter(|(_, (_, to))| to.bytes > 0) {
        // SAFETY: as above.
        check(unsafe {
            sys::cuMemcpyHtoDAsync_v2(to.address, task.to.address(), to.bytes, stream)
        })?;
    }
    if is_captured {
        return Ok(());
    }
    // SAFETY: the job was made by a box, and nobody uses it any more when this is called.
    check(unsafe { sys::cuLaunchHostFunc(stream, Some(free), job.cast()) })?;
    let event = match &*last {
        Some(Address(event)) => *event,
        None => {
            let mut event = std::ptr::null_mut();
            // SAFETY: the out pointer is ours.
            check(unsafe { sys::cuEventCreate(&mut event, 0) })?;
            event as usize
        }
    };
    *last = Some(Address(event));
    // SAFETY: the event lives as long as the process.
    check(unsafe { sys::cuEventRecord(event as CUevent, stream) })?;
    drop(last);
    push()
}

/// Waits until every call so far has run.
pub(crate) fn finish() -> Answer<()> {
    let event = LAST.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|last| last.0);
    // SAFETY: the event lives as long as the process.
    event.map_or(Ok(()), |event| check(unsafe { sys::cuEventSynchronize(event as CUevent) }))
}

fn is_capturing(stream: CUstream) -> Answer<bool> {
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the out pointer is ours.
    check(unsafe { sys::cuStreamIsCapturing(stream, &mut status) })?;
    Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
}

unsafe extern "C" fn run(job: *mut c_void) {
    // SAFETY: it is the job that was given with this function.
    unsafe { (*job.cast::<Job>()).run() };
}

unsafe extern "C" fn free(job: *mut c_void) {
    // SAFETY: it is the job that was given with this function, which comes last.
    drop(unsafe { Box::from_raw(job.cast::<Job>()) });
}

/// Lets a thread wait for the last call, so that it runs.
fn push() -> Answer<()> {
    static THREAD: OnceLock<Mutex<Sender<Address>>> = OnceLock::new();
    let mut context = std::ptr::null_mut();
    // SAFETY: the out pointer is ours.
    check(unsafe { sys::cuCtxGetCurrent(&mut context) })?;
    let sender = THREAD.get_or_init(|| {
        let (sender, receiver) = channel::<Address>();
        std::thread::spawn(move || {
            for context in receiver {
                // SAFETY: contexts of the program live as long as the process.
                unsafe { sys::cuCtxSetCurrent(context.0 as CUcontext) };
                // What went wrong is told to who waits for the stream himself.
                let _ = finish();
            }
        });
        Mutex::new(sender)
    });
    let sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
    // The thread lives as long as the process.
    let _ = sender.send(Address(context as usize));
    Ok(())
}
