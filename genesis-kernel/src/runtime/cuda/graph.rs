//! Graphs: launches recorded once and replayed as one, without the host's part of each.
//!
//! A kernel of a few microseconds runs shorter than its launch takes. A graph is how its own time is
//! measured, and how many short kernels run back to back.
//!
//! Threads share a stream, but a recording is one thread's: what it gives to the stream meanwhile goes to
//! a queue of the recording's own, while the stream goes on with what other threads give to it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use cudarc::driver::sys;

use super::handle::Handle;
use super::{CudaDevice, CudaStream, Writes};
use crate::diag::Error;
use crate::runtime::observe::{self, Activity};
use crate::runtime::pool::{self, Arena, User};
use crate::runtime::{Buffer, Queue, Stream};

/// Work recorded from a GPU's stream, to be replayed.
///
/// It names the addresses that the work was given. The memory behind those of safe launches, copies and collectives is
/// the graph's too: it goes to nobody else while the graph lives, though its array may be dropped.
#[derive(Debug)]
pub struct Graph {
    stream: &'static CudaStream,
    exec: Handle<sys::CUgraphExec>,
    _held: Vec<Held>,
}

/// A block that stays where it is while a graph names its address.
#[derive(Debug)]
struct Held {
    arena: &'static Arena,
    block: u32,
    /// The stream that the graph is replayed on, where the block is not that stream's own.
    user: Option<&'static CudaStream>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.arena.let_go(self.block, self.user.map(|stream| -> &'static dyn User { stream }));
    }
}

impl Graph {
    /// Records what `work` gives to the stream on this thread, without running it. What other threads give
    /// to the stream meanwhile runs as ever.
    ///
    /// Kernels that `work` launches must be compiled already, and it must neither wait for the device nor copy from the
    /// host ([`Graph::write_beside`] does that beside it).
    ///
    /// # Errors
    /// If the stream is not a GPU's, the thread is recording already, `work` fails, or it does what can't be
    /// recorded.
    pub fn capture<E: From<Error>>(
        stream: &Stream,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<Graph, E> {
        let stream = match stream.queue() {
            Queue::Cuda(stream) => *stream,
            Queue::Cpu => return Err(Error::launch("capture: the CPU has no graphs").into()),
            Queue::Missing(_, error) => return Err(Error::clone(error).into()),
        };
        let recording = Recording::begin(stream)?;
        let outcome = work();
        let (exec, _held) = recording.end();
        // What the work says is the cause of what the capture says.
        outcome?;
        Ok(Graph { stream, exec: exec?, _held })
    }

    /// Fills memory with bytes of the host beside a recording, which can't hold a copy from memory that
    /// the program may use for something else: at once, on a stream of its own. For memory that was made
    /// since the recording began.
    ///
    /// # Errors
    /// If they are not as many, or the device fails.
    pub fn write_beside(buffer: &Buffer, bytes: &[u8]) -> Result<(), Error> {
        let Queue::Cuda(own) = buffer.stream().queue() else { return buffer.write(0, bytes) };
        if bytes.len() != buffer.bytes() {
            let message = format!("{} bytes for a buffer of {}", bytes.len(), buffer.bytes());
            return Err(Error::launch(message));
        }
        own.upload_beside(buffer.address(), bytes)
    }

    /// Gives the recorded work to the stream that it was recorded from.
    ///
    /// # Safety
    /// All memory that launches in it use that were not safe must be there still, until the work is done, and what they
    /// asked for must hold again.
    /// # Errors
    /// If the device fails.
    pub unsafe fn launch(&self) -> Result<(), Error> {
        let _observed = observe::begin(Activity::Replay);
        self.stream.device().enter()?;
        self.stream.device().recent.note("graph replay", [1, 1, 1]);
        let queue = self.stream.raw();
        self.stream.last_launch().set(queue, &Writes::UNKNOWN);
        // SAFETY: the graph is instantiated; the caller says that what it points to is there.
        let result = unsafe { sys::cuGraphLaunch(self.exec.0, queue) };
        self.stream.device().check("cuGraphLaunch", result)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.stream.device().enter().is_ok() {
            // SAFETY: the graph is ours and used no more; a replay in flight ends by itself.
            let _ = unsafe { sys::cuGraphExecDestroy(self.exec.0) };
        }
    }
}

thread_local! {
    /// What this thread records.
    static RECORDED: Cell<Option<Recorded>> = const { Cell::new(None) };
    /// What the graph that becomes of it holds, by the address of the arena and the number of the block.
    static HELD: RefCell<BTreeMap<(usize, u32), Held>> = const { RefCell::new(BTreeMap::new()) };
}

/// A stream, and the queue that has its place in a recording.
#[derive(Clone, Copy)]
struct Recorded {
    stream: &'static CudaStream,
    queue: Handle<sys::CUstream>,
}

/// A recording of this thread, which ends when this is dropped.
struct Recording {
    own: Recorded,
    is_open: bool,
}

impl Recording {
    fn begin(stream: &'static CudaStream) -> Result<Recording, Error> {
        if RECORDED.get().is_some() {
            return Err(Error::launch("capture: this thread is in a capture already"));
        }
        let device = stream.device();
        let queue = device.create_queue()?;
        device.captures.fetch_add(1, Ordering::Relaxed);
        let mut recording = Recording { own: Recorded { stream, queue }, is_open: false };
        // Relaxed, for the pool may have to ask the driver for memory.
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the queue is of this device's context.
        let result = unsafe { sys::cuStreamBeginCapture_v2(queue.0, mode) };
        device.check("cuStreamBeginCapture", result)?;
        recording.is_open = true;
        RECORDED.set(Some(recording.own));
        Ok(recording)
    }

    /// The graph, and what it holds.
    fn end(mut self) -> (Result<Handle<sys::CUgraphExec>, Error>, Vec<Held>) {
        let exec = self.instantiate();
        (exec, HELD.take().into_values().collect())
    }

    fn instantiate(&mut self) -> Result<Handle<sys::CUgraphExec>, Error> {
        let device = self.own.stream.device();
        let graph = self.close()?;
        let mut exec = std::ptr::null_mut();
        // SAFETY: the graph was just made, the out pointer is ours.
        let result = unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0) };
        // SAFETY: the graph is ours; what is instantiated no longer needs it.
        let _ = unsafe { sys::cuGraphDestroy(graph) };
        device.check("cuGraphInstantiate", result)?;
        Ok(Handle(exec))
    }

    /// Ends the capture and gives what it recorded.
    fn close(&mut self) -> Result<sys::CUgraph, Error> {
        self.is_open = false;
        let mut graph = std::ptr::null_mut();
        // SAFETY: the queue is being captured, the out pointer is ours.
        let result = unsafe { sys::cuStreamEndCapture(self.own.queue.0, &mut graph) };
        self.own.stream.device().check("cuStreamEndCapture", result).map(|()| graph)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // The work panicked.
        if self.is_open
            && let Ok(graph) = self.close()
        {
            // SAFETY: the graph is ours, and nothing was made of it.
            let _ = unsafe { sys::cuGraphDestroy(graph) };
        }
        RECORDED.set(None);
        drop(HELD.take());
        let device = self.own.stream.device();
        device.captures.fetch_sub(1, Ordering::Relaxed);
        device.destroy_queue(self.own.queue);
    }
}

impl CudaDevice {
    /// A queue that no one else knows.
    fn create_queue(&self) -> Result<Handle<sys::CUstream>, Error> {
        self.enter()?;
        let mut queue = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: a context is current, the out pointer is ours.
        let made = unsafe { sys::cuStreamCreate(&mut queue, flags) };
        self.check("cuStreamCreate", made).map(|()| Handle(queue))
    }

    /// Ends what [`CudaDevice::create_queue`] made. A failure leaks it and nothing else.
    fn destroy_queue(&self, queue: Handle<sys::CUstream>) {
        // SAFETY: the queue is the caller's, who uses it no more.
        let _ = unsafe { sys::cuStreamDestroy_v2(queue.0) };
    }
}

impl CudaStream {
    /// The driver's queue for what this thread gives to the stream: the stream's own, but while the thread
    /// records it.
    #[inline]
    pub(crate) fn raw(&self) -> sys::CUstream {
        if self.device().is_capturing() { self.recorded() } else { self.own_queue() }
    }

    #[cold]
    fn recorded(&self) -> sys::CUstream {
        self.recording().map_or_else(|| self.own_queue(), |recorded| recorded.queue.0)
    }

    /// What this thread records of the stream.
    fn recording(&self) -> Option<Recorded> {
        RECORDED.get().filter(|recorded| std::ptr::eq(recorded.stream, self))
    }

    /// Keeps a block for the graph that this thread records of the stream, if it does; but not one of the pool that the
    /// thread allocates from, within which a graph's memory is reused.
    #[cold]
    pub(crate) fn hold(&'static self, arena: &'static Arena, block: u32, is_elsewhere: bool) {
        if self.recording().is_none() || pool::is_current(arena) {
            return;
        }
        let user = is_elsewhere.then_some(self);
        HELD.with_borrow_mut(|held| {
            held.entry((std::ptr::from_ref(arena).addr(), block)).or_insert_with(|| {
                arena.hold(block);
                Held { arena, block, user }
            });
        });
    }

    /// Refuses a copy from memory that the host may use for something else before a replay.
    pub(crate) fn check_not_recorded(&self) -> Result<(), Error> {
        match self.recording() {
            Some(_) => Err(Error::launch(
                "capture: a copy from the host is not recorded, for a replay would copy what is there then; \
                 copy before, or with `Graph::write_beside`",
            )),
            None => Ok(()),
        }
    }

    fn upload_beside(&self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        let device = self.device();
        let queue = device.create_queue()?;
        // SAFETY: the caller's buffer owns the range, which nothing else uses yet; the bytes live until
        // the copy has ended, which is waited for.
        let copied = unsafe {
            sys::cuMemcpyHtoDAsync_v2(address, bytes.as_ptr().cast(), bytes.len(), queue.0)
        };
        // SAFETY: the queue was made above.
        let waited = unsafe { sys::cuStreamSynchronize(queue.0) };
        device.destroy_queue(queue);
        device.check("cuMemcpyHtoDAsync", copied)?;
        device.check("cuStreamSynchronize", waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Device;

    #[test]
    fn the_cpu_has_no_graphs() {
        let graph = Graph::capture(&Device::Cpu.stream(), || Ok::<(), Error>(()));
        assert_eq!(graph.unwrap_err().to_string(), "capture: the CPU has no graphs");
    }
}
