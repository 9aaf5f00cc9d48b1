//! What a session recorded, as plain data. Times are nanoseconds since the session began.

use std::borrow::Cow;
use std::sync::Arc;

use crate::ir::DType;
use crate::runtime::Device;
pub use crate::runtime::TransferKind;

/// What kind of thing a range is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RangeKind {
    /// An op of the framework.
    Op,
    /// The gradient of an op.
    Backward,
    /// A part of a program, by a name of its own.
    User,
}

/// A piece of host time.
#[derive(Clone, PartialEq, Debug)]
pub struct Range {
    /// Its number in the session; from 1.
    pub id: u64,
    /// The range of the same thread that it lies in; 0 for none.
    pub parent: u64,
    /// What it is.
    pub kind: RangeKind,
    /// Its name.
    pub name: Cow<'static, str>,
    /// The number of its thread in [`Trace::threads`].
    pub thread: u32,
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Dtypes and shapes of what went in, where they were asked for.
    pub inputs: Option<String>,
    /// The layer at work, where it was asked for.
    pub module: Option<Arc<str>>,
}

/// What a launch has to move and compute.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Kernel {
    /// Bytes between memory and the kernel, each of an operand once.
    pub bytes: u64,
    /// Floating-point operations.
    pub flops: u64,
    /// Those among them that are of matrix products.
    pub product_flops: u64,
    /// What products multiply.
    pub dtype: Option<DType>,
    /// Whether there are loops of a length that is known to the kernel only; each counts once.
    pub has_unknown_loops: bool,
}

/// A kernel that was launched.
#[derive(Clone, PartialEq, Debug)]
pub struct Launch {
    /// The kernel's name.
    pub kernel: &'static str,
    /// The range that it was launched in; 0 for none.
    pub range: u64,
    /// Where it ran.
    pub device: Device,
    /// The number of its stream on its device; 0 is the default one.
    pub stream: u64,
    /// Programs along each axis.
    pub grid: [u32; 3],
    /// The number of the thread that launched it in [`Trace::threads`].
    pub thread: u32,
    /// When the host began to launch it. On the CPU the host also runs it.
    pub start_ns: u64,
    /// When the host went on.
    pub end_ns: u64,
    /// When the GPU began and ended it, where that is known.
    pub gpu_ns: Option<[u64; 2]>,
    /// Whether `gpu_ns` follows from launches that were timed: those of the same code, grid and sizes.
    pub is_estimated: bool,
    /// What it had to do.
    pub work: Kernel,
}

impl Launch {
    /// How long the kernel ran, in nanoseconds, where that is known.
    pub fn device_ns(&self) -> Option<u64> {
        match self.device {
            Device::Cpu => Some(self.end_ns - self.start_ns),
            Device::Cuda(_) => self.gpu_ns.map(|[start, end]| end - start),
        }
    }
}

/// A copy between a GPU and the host, or a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// Which way.
    pub kind: TransferKind,
    /// The GPU.
    pub device: Device,
    /// Bytes copied.
    pub bytes: u64,
    /// The range that it is in; 0 for none.
    pub range: u64,
    /// The number of its thread in [`Trace::threads`].
    pub thread: u32,
    /// When it began.
    pub start_ns: u64,
    /// When the host went on.
    pub end_ns: u64,
}

/// A change of the memory in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// When.
    pub ns: u64,
    /// Where.
    pub device: Device,
    /// The range that it is in; 0 for none.
    pub range: u64,
    /// Bytes handed out, or given back where below 0; 0 where the system gave or took memory.
    pub change: i64,
    /// Bytes in use after it.
    pub allocated: u64,
    /// Bytes held from the system after it.
    pub reserved: u64,
}

/// Everything that a session recorded.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Trace {
    /// When recording began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Ranges, by when they ended.
    pub ranges: Vec<Range>,
    /// Launches, by when the host went on.
    pub launches: Vec<Launch>,
    /// Copies and waits.
    pub transfers: Vec<Transfer>,
    /// Changes of memory in use, where they were asked for.
    pub memory: Vec<Memory>,
    /// Names of threads.
    pub threads: Vec<String>,
    /// Events that were not kept because there were too many.
    pub dropped: u64,
}

impl Trace {
    /// The number of events.
    pub fn len(&self) -> usize {
        self.ranges.len() + self.launches.len() + self.transfers.len() + self.memory.len()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
