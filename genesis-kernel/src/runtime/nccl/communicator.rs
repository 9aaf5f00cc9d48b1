//! A rank's end of a communicator.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cudarc::nccl::sys::{ncclComm_t, ncclConfig_t, ncclUniqueId};

use super::library::{self, IN_PROGRESS, Library, SUCCESS, Status};
use crate::diag::Error;
use crate::runtime::{Device, Queue};

/// What the ranks of a communicator agree on beforehand: one of them makes it, the others are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UniqueId([u8; UniqueId::BYTES]);

impl UniqueId {
    /// Its length.
    pub const BYTES: usize = 128;

    /// A new one.
    ///
    /// # Errors
    /// If NCCL is missing, or finds no network interface.
    pub fn new() -> Result<UniqueId, Error> {
        let library = library::get()?;
        let mut id = MaybeUninit::<ncclUniqueId>::uninit();
        // SAFETY: the out pointer is ours, and is written where the call succeeds.
        let status = unsafe { (library.get_unique_id)(id.as_mut_ptr()) };
        library::check(library, "ncclGetUniqueId", status)?;
        // SAFETY: the call succeeded.
        let id = unsafe { id.assume_init() };
        Ok(UniqueId(id.internal.map(|byte| byte as u8)))
    }

    /// Its bytes, for the other ranks.
    pub fn as_bytes(&self) -> &[u8; UniqueId::BYTES] {
        &self.0
    }

    /// What [`UniqueId::as_bytes`] gave elsewhere.
    pub fn from_bytes(bytes: [u8; UniqueId::BYTES]) -> UniqueId {
        UniqueId(bytes)
    }
}

/// NCCL's handle; none once it was aborted or ended.
pub(super) struct Handle(pub(super) Option<ncclComm_t>);

// SAFETY: NCCL's communicators belong to no thread; calls are made one at a time, under a lock.
unsafe impl Send for Handle {}

/// A rank's end of a communicator: its calls are collective, so that each rank makes the same ones in the
/// same order.
///
/// Dropping it waits for what it was given, but not for long: a communicator whose peers are gone is
/// aborted.
pub struct Communicator {
    pub(super) library: &'static Library,
    pub(super) device: Device,
    rank: usize,
    size: usize,
    timeout: Duration,
    handle: Mutex<Handle>,
}

impl std::fmt::Debug for Communicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Communicator({} of {} on {})", self.rank, self.size, self.device)
    }
}

/// How long the end of a communicator may take before it is aborted.
const LAST: Duration = Duration::from_secs(5);
/// Calls of other ranks are looked for this often.
const POLL: Duration = Duration::from_micros(50);

impl Communicator {
    /// Joins a communicator of `size` ranks as number `rank`; waits until all have come.
    ///
    /// `timeout` bounds the host's waits of this and of all later calls. It does not bound the collectives
    /// themselves, which run on streams.
    ///
    /// # Errors
    /// If NCCL is missing, the device is no GPU, or other ranks do not come in time.
    pub fn new(
        id: &UniqueId,
        rank: usize,
        size: usize,
        device: Device,
        timeout: Duration,
    ) -> Result<Communicator, Error> {
        let library = library::get()?;
        if rank >= size {
            return Err(Error::launch(format!(
                "rank {rank} is not below the number of ranks, {size}"
            )));
        }
        enter(device)?;
        let (mut raw, mut config) = (std::ptr::null_mut(), config());
        let id = ncclUniqueId { internal: id.0.map(|byte| byte as _) };
        // SAFETY: the out pointer and the configuration are ours, and the device's context is current.
        let status =
            unsafe { (library.init_rank)(&mut raw, size as c_int, id, rank as c_int, &mut config) };
        let of = Communicator::over(library, raw, (rank, size), device, timeout);
        of.settle_all("ncclCommInitRank", status)?;
        Ok(of)
    }

    fn over(
        library: &'static Library,
        raw: ncclComm_t,
        (rank, size): (usize, usize),
        device: Device,
        timeout: Duration,
    ) -> Communicator {
        let handle = Mutex::new(Handle((!raw.is_null()).then_some(raw)));
        Communicator { library, device, rank, size, timeout, handle }
    }

    /// The communicator of the ranks that name the same color, among them in the order of `key`; none for
    /// a rank that names no color. All ranks call it.
    ///
    /// `place` is this rank's number among its color, and how many they are.
    ///
    /// # Errors
    /// As [`Communicator::new`].
    pub fn split(
        &self,
        color: Option<u32>,
        key: usize,
        place: (usize, usize),
    ) -> Result<Option<Communicator>, Error> {
        /// `NCCL_SPLIT_NOCOLOR`
        const NO_COLOR: c_int = -1;
        enter(self.device)?;
        let (mut raw, mut config) = (std::ptr::null_mut(), config());
        let color_code = color.map_or(NO_COLOR, |color| color as c_int);
        // NCCL refuses a split before what was called earlier has come to its end on its own threads.
        self.settle_all("ncclCommSplit", SUCCESS)?;
        let mut handle = self.lock();
        let own = self.own(&handle)?;
        // SAFETY: the handle is alive, the out pointer and the configuration are ours.
        let status =
            unsafe { (self.library.split)(own, color_code, key as c_int, &mut raw, &mut config) };
        self.settle("ncclCommSplit", &mut handle, status)?;
        drop(handle);
        self.settle_all("ncclCommSplit", SUCCESS)?;
        if color.is_none() {
            return Ok(None);
        }
        let of = Communicator::over(self.library, raw, place, self.device, self.timeout);
        of.settle_all("ncclCommSplit", SUCCESS)?;
        Ok(Some(of))
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// This rank's GPU.
    pub fn device(&self) -> Device {
        self.device
    }

    /// What went wrong since: a peer that is gone, a link that broke.
    ///
    /// # Errors
    /// That.
    pub fn check(&self) -> Result<(), Error> {
        let handle = self.lock();
        let raw = self.own(&handle)?;
        match self.state(raw)? {
            SUCCESS | IN_PROGRESS => Ok(()),
            status => Err(self.error("an earlier call", status, raw)),
        }
    }

    /// Ends what runs on it, whatever the other ranks do. Later calls are errors.
    pub fn abort(&self) {
        if let Some(raw) = self.lock().0.take() {
            // SAFETY: the handle was alive, and nobody has it any more.
            unsafe { (self.library.abort)(raw) };
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Handle> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handle, where it is alive.
    pub(super) fn own(&self, handle: &Handle) -> Result<ncclComm_t, Error> {
        handle.0.ok_or_else(|| Error::device("NCCL: the communicator was aborted"))
    }

    /// Waits until nothing is under way, also where the call itself was answered at once.
    fn settle_all(&self, call: &str, status: Status) -> Result<(), Error> {
        let mut handle = self.lock();
        let is_alive = handle.0.is_some() && matches!(status, SUCCESS | IN_PROGRESS);
        self.settle(call, &mut handle, if is_alive { IN_PROGRESS } else { status })
    }

    /// Waits until NCCL has taken a call; it gives the call up after the timeout.
    pub(super) fn settle(
        &self,
        call: &str,
        handle: &mut Handle,
        status: Status,
    ) -> Result<(), Error> {
        let raw = match (handle.0, status) {
            (_, SUCCESS) => return Ok(()),
            (Some(raw), _) => raw,
            (None, _) => return library::check(self.library, call, status),
        };
        let mut status = status;
        let start = Instant::now();
        while status == IN_PROGRESS {
            if start.elapsed() > self.timeout {
                handle.0 = None;
                // SAFETY: the handle was alive, and nobody has it any more.
                unsafe { (self.library.abort)(raw) };
                return Err(Error::device(format!(
                    "NCCL: {call}: rank {} of {} waited {:.0} s for other ranks",
                    self.rank,
                    self.size,
                    self.timeout.as_secs_f64()
                )));
            }
            std::thread::sleep(POLL);
            status = self.state(raw)?;
        }
        match status {
            SUCCESS => Ok(()),
            _ => Err(self.error(call, status, raw)),
        }
    }

    fn state(&self, raw: ncclComm_t) -> Result<Status, Error> {
        let mut state = SUCCESS;
        // SAFETY: the handle is alive, the out pointer ours.
        let status = unsafe { (self.library.async_error)(raw, &mut state) };
        library::check(self.library, "ncclCommGetAsyncError", status)?;
        Ok(state)
    }

    fn error(&self, call: &str, status: Status, raw: ncclComm_t) -> Error {
        let why = library::describe(self.library, status, Some(raw));
        Error::device(format!("NCCL: {call}: rank {} of {}: {why}", self.rank, self.size))
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        let Some(raw) = self.lock().0.take() else { return };
        // SAFETY: the handle was alive, and nobody has it any more.
        let mut status = unsafe { (self.library.finalize)(raw) };
        let start = Instant::now();
        while status == IN_PROGRESS && start.elapsed() < LAST {
            std::thread::sleep(POLL);
            status = self.state(raw).unwrap_or(SUCCESS);
        }
        let end = if status == SUCCESS { self.library.destroy } else { self.library.abort };
        // SAFETY: as above.
        unsafe { end(raw) };
    }
}

/// Makes the device's context current, as NCCL wants it.
fn enter(device: Device) -> Result<(), Error> {
    match device.stream().queue() {
        Queue::Cuda(stream) => stream.device().enter(),
        Queue::Cpu => Err(Error::device(
            "NCCL joins GPUs: the device is the CPU; on a machine without GPUs run one process",
        )),
        Queue::Missing(_, error) => Err(Error::clone(error)),
    }
}

/// `NCCL_CONFIG_INITIALIZER`, non-blocking.
fn config() -> ncclConfig_t {
    /// `NCCL_CONFIG_UNDEF_INT`
    const UNDEFINED: c_int = c_int::MIN;
    const MAGIC: u32 = 0xcafe_beef;
    /// Of the header that the struct is of.
    const VERSION: u32 = 22400;
    ncclConfig_t {
        size: size_of::<ncclConfig_t>(),
        magic: MAGIC,
        version: VERSION,
        blocking: 0,
        cgaClusterSize: UNDEFINED,
        minCTAs: UNDEFINED,
        maxCTAs: UNDEFINED,
        netName: std::ptr::null(),
        splitShare: UNDEFINED,
    }
}
