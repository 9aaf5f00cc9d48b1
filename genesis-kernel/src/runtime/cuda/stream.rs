//! Streams of a GPU.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use cudarc::driver::sys::{self, CUresult};

use super::device::{CudaDevice, MAX_DEVICES, open};
use super::handle::Handle;
use super::writes::{LastLaunch, Writes};
use crate::diag::Error;
use crate::runtime::pool::{Arena, Fence, User};

/// A queue of a GPU. It lives as long as the process, as what was allocated in its order may.
#[derive(Debug)]
pub(crate) struct CudaStream {
    device: &'static CudaDevice,
    handle: Handle<sys::CUstream>,
    id: u64,
    arena: OnceLock<&'static Arena>,
    last: Mutex<LastLaunch>,
}

/// The streams of a device.
#[derive(Debug)]
struct Streams {
    default: OnceLock<Result<&'static CudaStream, Error>>,
    /// Those beside it, with their priorities.
    sides: Mutex<Vec<(i32, &'static CudaStream)>>,
    /// Side streams that were asked for.
    asked: AtomicUsize,
}

/// The streams of each GPU.
static STREAMS: [Streams; MAX_DEVICES] = [const { Streams::new() }; MAX_DEVICES];

impl Streams {
    const fn new() -> Streams {
        let sides = Mutex::new(Vec::new());
        Streams { default: OnceLock::new(), sides, asked: AtomicUsize::new(0) }
    }
}

/// The default streams of the GPUs that were opened, which every op asks for; null of the others.
static DEFAULTS: [AtomicPtr<CudaStream>; MAX_DEVICES] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_DEVICES];

/// The default stream of the GPU with this number.
#[inline]
pub(crate) fn default_stream(number: u32) -> Result<&'static CudaStream, Error> {
    let known = DEFAULTS.get(number as usize).map(|known| known.load(Ordering::Acquire));
    // SAFETY: it is null or the address of a stream, which lives as long as the process.
    match known.and_then(|known| unsafe { known.as_ref() }) {
        Some(stream) => Ok(stream),
        None => open_default(number),
    }
}

#[cold]
fn open_default(number: u32) -> Result<&'static CudaStream, Error> {
    let stream = open(number)?.default_stream()?;
    if let Some(known) = DEFAULTS.get(number as usize) {
        known.store(std::ptr::from_ref(stream).cast_mut(), Ordering::Release);
    }
    Ok(stream)
}

/// Streams of a device beside its default one.
const SIDES: usize = 32;

impl CudaDevice {
    fn streams(&self) -> &'static Streams {
        &STREAMS[self.number() as usize]
    }

    /// The stream where everything runs that nobody gave another one.
    #[inline]
    pub(crate) fn default_stream(&'static self) -> Result<&'static CudaStream, Error> {
        self.streams()
            .default
            .get_or_init(|| self.create(0, 0))
            .as_ref()
            .copied()
            .map_err(Error::clone)
    }

    /// A stream beside it: a new one, or from some number on one that was given out before.
    pub(crate) fn side_stream(&'static self, priority: i32) -> Result<&'static CudaStream, Error> {
        let mut sides = self.streams().sides.lock().unwrap_or_else(PoisonError::into_inner);
        let alike: Vec<_> = sides.iter().filter(|(p, _)| *p == priority).map(|s| s.1).collect();
        if alike.len() >= SIDES {
            return Ok(alike[self.streams().asked.fetch_add(1, Relaxed) % alike.len()]);
        }
        let stream = self.create(sides.len() as u64 + 1, priority)?;
        sides.push((priority, stream));
        Ok(stream)
    }

    /// Waits for everything on all streams. One by one, for a device of which any queue is being recorded
    /// can't be waited for as a whole.
    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        self.enter()?;
        let sides = self.streams().sides.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let default = self.streams().default.get().and_then(|stream| stream.as_ref().ok());
        default
            .into_iter()
            .chain(sides.iter().map(|side| &side.1))
            .try_for_each(|s| s.synchronize())
    }

    fn create(&'static self, id: u64, priority: i32) -> Result<&'static CudaStream, Error> {
        self.enter()?;
        let mut handle = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: a context is current, the out pointer is ours. Priority 0 is what a stream has without one.
        let result = unsafe { sys::cuStreamCreateWithPriority(&mut handle, flags, priority) };
        self.check("cuStreamCreate", result)?;
        let (handle, arena, last) = (Handle(handle), OnceLock::new(), Mutex::default());
        Ok(Box::leak(Box::new(CudaStream { device: self, handle, id, arena, last })))
    }
}

impl CudaStream {
    /// The device.
    #[inline]
    pub(crate) fn device(&self) -> &'static CudaDevice {
        self.device
    }

    /// The number; 0 is the default stream.
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The driver's handle, of the stream itself.
    #[inline]
    pub(super) fn own_queue(&self) -> sys::CUstream {
        self.handle.0
    }

    /// The memory in its order.
    #[inline]
    pub(crate) fn arena(&self) -> &'static Arena {
        self.arena.get_or_init(|| self.device.ledger().arena(self.id))
    }

    /// The launch that this thread's next one follows.
    #[inline]
    pub(super) fn last_launch(&self) -> MutexGuard<'_, LastLaunch> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that what this thread's next launch follows is no launch of ours: it may write anything.
    pub(crate) fn forget_last_launch(&self) {
        *self.last_launch() = LastLaunch::default();
    }

    /// Whether the launch right ahead of this thread's next one may write to some byte of a range.
    pub(crate) fn may_be_written_ahead(&self, address: u64, bytes: u64) -> bool {
        self.last_launch().may_write(self.raw(), address, bytes)
    }

    /// Has the next launch of this thread follow one that may write this.
    pub(crate) fn note_writes(&self, writes: &Writes) {
        self.last_launch().set(self.raw(), writes);
    }

    /// Waits for everything on it.
    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        self.device.enter()?;
        // SAFETY: the stream lives as long as the process.
        let result = unsafe { sys::cuStreamSynchronize(self.raw()) };
        self.device.check("cuStreamSynchronize", result)
    }

    /// Whether everything on it ran.
    pub(crate) fn query(&self) -> Result<bool, Error> {
        self.device.enter()?;
        // SAFETY: the stream lives as long as the process.
        match unsafe { sys::cuStreamQuery(self.raw()) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => self.device.check("cuStreamQuery", result).map(|()| true),
        }
    }
}

impl User for CudaStream {
    fn id(&self) -> u64 {
        self.id | u64::from(self.device.number()) << 32
    }

    fn fence(&self) -> Result<Option<Box<dyn Fence>>, Error> {
        if self.device.is_capturing() {
            return Ok(None);
        }
        Ok(Some(Box::new(self.record_event(false)?)))
    }
}
