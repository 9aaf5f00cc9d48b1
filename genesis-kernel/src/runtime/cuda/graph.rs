//! Graphs: launches recorded once and replayed as one, without the host's part of each.
//!
//! A kernel of a few microseconds runs shorter than its launch takes. A graph is how its own time is
//! measured, and how many short kernels run back to back.

use std::sync::atomic::Ordering;

use cudarc::driver::sys;

use super::{CudaStream, Handle};
use crate::diag::Error;
use crate::runtime::{Queue, Stream};

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

    /// Gives the recorded work to the stream that it was recorded from.
    ///
    /// # Errors
    /// If the device fails.
    pub fn launch(&self) -> Result<(), Error> {
        self.stream.device().enter()?;
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
