//! Graphs: launches recorded once and replayed as one, without the host's part of each.
//!
//! A kernel of a few microseconds runs shorter than its launch takes. A graph is how its own time is
//! measured, and how many short kernels run back to back.

use std::sync::atomic::Ordering;

use cudarc::driver::sys;

use super::{CudaStream, Handle};
use crate::diag::Error;
use crate::runtime::{Buffer, Queue, Stream};
use crate::trace;

/// Work recorded from a GPU's stream, to be replayed.
///
/// It holds the addresses that the work was given: the arrays must live as long as it is replayed.
#[derive(Debug)]
pub struct Graph {
    stream: &'static CudaStream,
    exec: Handle<sys::CUgraphExec>,
}

impl Graph {
    /// Records what `work` gives to the stream, without running it.
    ///
    /// Kernels that `work` launches must be compiled already, and it must not wait for the device.
    ///
    /// # Errors
    /// If the stream is not a GPU's, `work` fails, or it does what can't be recorded.
    pub fn capture<E: From<Error>>(
        stream: &Stream,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<Graph, E> {
        let stream = match stream.queue() {
            Queue::Cuda(stream) => *stream,
            Queue::Cpu => return Err(Error::launch("capture: the CPU has no graphs").into()),
            Queue::Missing(_, error) => return Err(Error::clone(error).into()),
        };
        stream.begin_capture()?;
        let outcome = work();
        let exec = stream.end_capture();
        // What the work says is the cause of what the capture says.
        outcome?;
        Ok(Graph { stream, exec: exec? })
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
    /// # Errors
    /// If the device fails.
    pub fn launch(&self) -> Result<(), Error> {
        let _range = trace::range("graph replay");
        self.stream.device().enter()?;
        self.stream.device().recent.note("graph replay", [1, 1, 1]);
        // SAFETY: the graph is instantiated; whoever made it keeps what it points to alive.
        let result = unsafe { sys::cuGraphLaunch(self.exec.0, self.stream.raw()) };
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

impl CudaStream {
    fn begin_capture(&self) -> Result<(), Error> {
        self.device().enter()?;
        // Relaxed, for the pool may have to ask the driver for memory.
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is of this device's context.
        let result = unsafe { sys::cuStreamBeginCapture_v2(self.raw(), mode) };
        self.device().check("cuStreamBeginCapture", result)?;
        self.device().captures.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn upload_beside(&self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        self.device().enter()?;
        let mut stream = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: a context is current, the out pointer is ours.
        let made = unsafe { sys::cuStreamCreate(&mut stream, flags) };
        self.device().check("cuStreamCreate", made)?;
        // SAFETY: the caller's buffer owns the range, which nothing else uses yet; the bytes live until
        // the copy has ended, which is waited for.
        let copied = unsafe {
            sys::cuMemcpyHtoDAsync_v2(address, bytes.as_ptr().cast(), bytes.len(), stream)
        };
        // SAFETY: the stream was made above.
        let waited = unsafe { sys::cuStreamSynchronize(stream) };
        // SAFETY: as above, and nothing is left on it. A failure leaks it and nothing else.
        let _ = unsafe { sys::cuStreamDestroy_v2(stream) };
        self.device().check("cuMemcpyHtoDAsync", copied)?;
        self.device().check("cuStreamSynchronize", waited)
    }

    fn end_capture(&self) -> Result<Handle<sys::CUgraphExec>, Error> {
        let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
        self.device().captures.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the stream is being captured, the out pointer is ours.
        let result = unsafe { sys::cuStreamEndCapture(self.raw(), &mut graph) };
        self.device().check("cuStreamEndCapture", result)?;
        // SAFETY: the graph was just made, the out pointer is ours.
        let result = unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0) };
        // SAFETY: the graph is ours; what is instantiated no longer needs it.
        let _ = unsafe { sys::cuGraphDestroy(graph) };
        self.device().check("cuGraphInstantiate", result)?;
        Ok(Handle(exec))
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
