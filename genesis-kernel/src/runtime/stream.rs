//! Streams: queues of a device, each in order by itself.
//!
//! A device has a default stream, where everything runs that nobody gave another one. [`with_stream`]
//! makes another stream the *current* one of a thread: what the thread allocates, launches and copies
//! meanwhile goes there. Two streams run beside each other unless one waits for the other:
//! [`Stream::wait_event`], [`Stream::wait_stream`]. That is the program's to say, as in CUDA and
//! PyTorch; how long memory lives is not: a tensor that another stream than its own was given is kept
//! from reuse until that stream has passed.
//!
//! The CPU has one stream, which runs what it is given at once.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::cuda::{self, CudaStream};
use super::device::Device;
use super::observe::{self, TransferKind};
use super::pool::{self, Arena, MemoryStats};
use crate::diag::Error;

/// A queue of a device: what is given to it runs in order.
///
/// The CPU runs it at once, a GPU after the call returned. A clone is the same queue.
#[derive(Clone, Debug)]
pub struct Stream {
    queue: Queue,
}

/// What is behind a stream.
#[derive(Clone, Debug)]
pub(crate) enum Queue {
    Cpu,
    Cuda(&'static CudaStream),
    /// A GPU that could not be opened, and why: every use of the stream says it.
    Missing(u32, Arc<Error>),
}

/// Streams that are current on some thread.
static CHOSEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static CURRENT: RefCell<Vec<Stream>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` with a stream as the current one of its device on this thread: what `f` allocates, launches
/// and copies there goes to it.
///
/// What was queued on other streams before is not waited for: say so with [`Stream::wait_stream`].
pub fn with_stream<T>(stream: &Stream, f: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            CURRENT.with_borrow_mut(Vec::pop);
            CHOSEN.fetch_sub(1, Relaxed);
        }
    }
    CHOSEN.fetch_add(1, Relaxed);
    CURRENT.with_borrow_mut(|streams| streams.push(stream.clone()));
    let _leave = Leave;
    f()
}

/// Whether any thread has a stream of its choice.
#[inline]
pub(crate) fn is_any_chosen() -> bool {
    CHOSEN.load(Relaxed) != 0
}

impl Device {
    /// The device's current stream: the one of the [`with_stream`] around the call, else the default one.
    ///
    /// A GPU that is missing gives a stream too: whatever is asked of it is an error that says why.
    #[inline]
    pub fn stream(self) -> Stream {
        if self == Device::Cpu {
            return Stream { queue: Queue::Cpu };
        }
        if is_any_chosen() {
            return self.chosen_stream();
        }
        self.default_stream()
    }

    #[cold]
    fn chosen_stream(self) -> Stream {
        let of_device = |stream: &&Stream| stream.device() == self;
        let current = CURRENT.with_borrow(|streams| streams.iter().rev().find(of_device).cloned());
        current.unwrap_or_else(|| self.default_stream())
    }

    /// The device's default stream.
    #[inline]
    pub fn default_stream(self) -> Stream {
        let queue = match self {
            Device::Cpu => Queue::Cpu,
            Device::Cuda(number) => match cuda::default_stream(number) {
                Ok(stream) => Queue::Cuda(stream),
                Err(error) => Queue::Missing(number, Arc::new(error)),
            },
        };
        Stream { queue }
    }

    /// Waits until all streams of the device ran what they were given.
    ///
    /// # Errors
    /// If something that ran failed; the device is then lost.
    pub fn synchronize(self) -> Result<(), Error> {
        match self {
            Device::Cpu => Ok(()),
            Device::Cuda(number) => cuda::open(number)?.synchronize(),
        }
    }
}

impl Stream {
    /// Another stream of a device.
    ///
    /// A device has 32 of them; after that many calls they are given out again from the first on, as
    /// PyTorch does. The CPU has one stream.
    ///
    /// # Errors
    /// If the GPU can't be used.
    pub fn new(device: Device) -> Result<Stream, Error> {
        Stream::with_priority(device, 0)
    }

    /// [`Stream::new`], ahead of other streams: the lower the number, the earlier its work runs where
    /// there is a choice. A GPU takes what lies outside of its range for the nearest it has.
    ///
    /// # Errors
    /// If the GPU can't be used.
    pub fn with_priority(device: Device, priority: i32) -> Result<Stream, Error> {
        let queue = match device {
            Device::Cpu => Queue::Cpu,
            Device::Cuda(number) => Queue::Cuda(cuda::open(number)?.side_stream(priority)?),
        };
        Ok(Stream { queue })
    }

    /// The device it belongs to.
    #[inline]
    pub fn device(&self) -> Device {
        match &self.queue {
            Queue::Cpu => Device::Cpu,
            Queue::Cuda(stream) => Device::Cuda(stream.device().number()),
            Queue::Missing(number, _) => Device::Cuda(*number),
        }
    }

    /// Its number on its device; 0 is the default stream.
    pub fn id(&self) -> u64 {
        match &self.queue {
            Queue::Cuda(stream) => stream.id(),
            Queue::Cpu | Queue::Missing(..) => 0,
        }
    }

    /// Waits until everything given to it ran.
    ///
    /// # Errors
    /// If something that ran failed; the device is then lost.
    pub fn synchronize(&self) -> Result<(), Error> {
        match &self.queue {
            Queue::Cpu => Ok(()),
            Queue::Cuda(stream) => {
                let _observed = observe::transfer(TransferKind::Wait, self.device(), 0);
                stream.synchronize()
            }
            Queue::Missing(_, error) => Err(Error::clone(error)),
        }
    }

    /// Whether everything given to it ran; does not wait.
    ///
    /// # Errors
    /// If something that ran failed; the device is then lost.
    pub fn query(&self) -> Result<bool, Error> {
        match &self.queue {
            Queue::Cpu => Ok(true),
            Queue::Cuda(stream) => stream.query(),
            Queue::Missing(_, error) => Err(Error::clone(error)),
        }
    }

    /// Whether the kernel right ahead of the next one that this thread launches may write to some byte of a range, for
    /// [`LaunchOptions::constant`](crate::front::LaunchOptions::constant): also where that is not known.
    #[doc(hidden)]
    pub fn may_be_written_ahead(&self, address: u64, bytes: u64) -> bool {
        match &self.queue {
            Queue::Cuda(stream) => stream.may_be_written_ahead(address, bytes),
            Queue::Cpu | Queue::Missing(..) => true,
        }
    }

    /// Sizes and counts of the device's memory.
    ///
    /// # Errors
    /// If the GPU can't be used.
    pub fn memory_stats(&self) -> Result<MemoryStats, Error> {
        Ok(self.arena()?.ledger().stats())
    }

    /// Gives memory that is kept for reuse back to the system.
    ///
    /// # Errors
    /// If the device fails.
    pub fn release_memory(&self) -> Result<(), Error> {
        self.arena()?.ledger().release_free()
    }

    /// Whether an earlier error broke the device for the rest of the process.
    pub fn is_lost(&self) -> bool {
        matches!(&self.queue, Queue::Cuda(stream) if stream.device().is_lost())
    }

    #[inline]
    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(crate) fn of(stream: &'static CudaStream) -> Stream {
        Stream { queue: Queue::Cuda(stream) }
    }

    /// The memory in its order.
    #[inline]
    pub(super) fn arena(&self) -> Result<&'static Arena, Error> {
        match &self.queue {
            Queue::Cpu => Ok(pool::host_arena()),
            Queue::Cuda(stream) => Ok(stream.arena()),
            Queue::Missing(_, error) => Err(Error::clone(error)),
        }
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Stream) -> bool {
        self.device() == other.device() && self.id() == other.id()
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id() {
            0 => write!(f, "{}", self.device()),
            id => write!(f, "stream {id} of {}", self.device()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Event;

    #[test]
    fn a_missing_gpu_says_why() {
        let device = Device::Cuda(4_000_000);
        let stream = device.stream();
        assert!(!stream.synchronize().unwrap_err().to_string().is_empty());
        assert!(Stream::new(device).is_err() && stream.memory_stats().is_err());
    }

    #[test]
    fn the_cpu_has_one_stream() {
        let stream = Stream::new(Device::Cpu).unwrap();
        assert_eq!(stream, Device::Cpu.default_stream());
        let event = Event::record(&stream).unwrap();
        stream.wait_event(&event).unwrap();
        stream.wait_stream(&Device::Cpu.stream()).unwrap();
        assert!(stream.query().unwrap() && event.query().unwrap());
        assert_eq!(with_stream(&stream, || Device::Cpu.stream().id()), 0);
        assert_eq!(stream.to_string(), "cpu");
    }
}
