//! The driver's state.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use cudarc::driver::sys::CUresult;
use genesis_emulator::{Fault, FaultKind, RawLaunch};

use crate::answer::Answer;
use crate::clock::Timeline;
use crate::code::{Code, Function, Link};
use crate::cost::{self, Route};
use crate::memory::{Home, Memory, Seen};
use crate::options::Options;
use crate::work::{Capture, Event, Graph, Stream, Turn, Work};

/// A GPU.
#[derive(Debug, Default)]
pub(crate) struct Device {
    /// The error that broke it.
    pub(crate) lost: Option<CUresult>,
    /// How often its primary context is held.
    pub(crate) retained: u32,
}

/// All that the driver knows.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) devices: Vec<Device>,
    pub(crate) memory: Memory,
    pub(crate) streams: BTreeMap<u64, Stream>,
    pub(crate) events: BTreeMap<u64, Event>,
    pub(crate) captures: BTreeMap<u64, Capture>,
    pub(crate) graphs: BTreeMap<u64, Arc<Graph>>,
    /// Graphs to be launched, and their devices.
    pub(crate) execs: BTreeMap<u64, Arc<Graph>>,
    pub(crate) modules: BTreeMap<u64, Arc<Code>>,
    pub(crate) functions: BTreeMap<u64, Function>,
    pub(crate) links: BTreeMap<u64, Link>,
    /// When work ended by the virtual clock, also that of streams that are gone.
    pub(crate) timeline: Timeline,
    next_handle: u64,
    launches: u64,
}

/// What the machine is like.
pub(crate) static OPTIONS: LazyLock<Options> = LazyLock::new(Options::from_env);

static DRIVER: LazyLock<Mutex<Driver>> = LazyLock::new(|| {
    let (n, memory) = (OPTIONS.devices, OPTIONS.memory);
    Mutex::new(Driver {
        devices: (0..n).map(|_| Device::default()).collect(),
        memory: Memory::new(n, memory),
        streams: BTreeMap::new(),
        events: BTreeMap::new(),
        captures: BTreeMap::new(),
        graphs: BTreeMap::new(),
        execs: BTreeMap::new(),
        modules: BTreeMap::new(),
        functions: BTreeMap::new(),
        links: BTreeMap::new(),
        timeline: Timeline::default(),
        next_handle: FIRST_HANDLE,
        launches: 0,
    })
});

/// When the driver was first used.
static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Handles are numbers from here, contexts below.
const FIRST_HANDLE: u64 = 0x10_0000;
const FIRST_CONTEXT: u64 = 0x1000;

thread_local! {
    /// The current device of this thread, plus one.
    static CURRENT: Cell<u32> = const { Cell::new(0) };
}

/// The state, for one call.
pub(crate) fn lock() -> MutexGuard<'static, Driver> {
    DRIVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handle of a device's context.
pub(crate) fn context_of(device: u32) -> u64 {
    FIRST_CONTEXT + 16 * u64::from(device)
}

/// The device of a context.
pub(crate) fn device_of(context: u64) -> Answer<u32> {
    let number = context.checked_sub(FIRST_CONTEXT).map(|offset| (offset / 16) as u32);
    let number = number.filter(|&n| n < OPTIONS.devices && context == context_of(n));
    number.ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)
}

/// Makes a context current; none with 0.
pub(crate) fn set_current(context: u64) -> Answer<()> {
    CURRENT.set(if context == 0 { 0 } else { device_of(context)? + 1 });
    Ok(())
}

/// The context that is current; 0 for none.
pub(crate) fn current_context() -> u64 {
    CURRENT.get().checked_sub(1).map_or(0, context_of)
}

/// The device whose context is current.
pub(crate) fn current() -> Answer<u32> {
    CURRENT.get().checked_sub(1).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)
}

impl Driver {
    /// A new handle.
    pub(crate) fn handle(&mut self) -> u64 {
        self.next_handle += 16;
        self.next_handle
    }

    /// The current device, if it works.
    pub(crate) fn device(&self) -> Answer<u32> {
        let device = current()?;
        self.alive(device)?;
        Ok(device)
    }

    /// The error of a device that is broken.
    pub(crate) fn alive(&self, device: u32) -> Answer<()> {
        self.devices[device as usize].lost.map_or(Ok(()), Err)
    }

    /// The stream behind a handle, which must be of the current context; 0 is the one that each device
    /// has without asking.
    pub(crate) fn stream(&mut self, handle: u64) -> Answer<u64> {
        let device = self.device()?;
        let handle = if handle <= 2 { u64::from(device) + 1 } else { handle };
        if handle <= u64::from(OPTIONS.devices) {
            self.streams.entry(handle).or_insert_with(|| Stream::new(device, true));
        }
        match self.streams.get(&handle) {
            Some(stream) if stream.device == device => Ok(handle),
            _ => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
        }
    }

    pub(crate) fn has_ended(&self, stream: u64, upto: u64) -> bool {
        self.streams.get(&stream).is_none_or(|stream| stream.done >= upto)
    }

    /// Breaks a device: nothing that is queued there runs any more.
    fn lose(&mut self, device: u32, why: CUresult) {
        self.devices[device as usize].lost.get_or_insert(why);
        for stream in self.streams.values_mut().filter(|stream| stream.device == device) {
            stream.queue.clear();
            stream.done = stream.queued;
        }
    }

    /// Runs a kernel; how many bytes it moved.
    fn kernel(&mut self, device: u32, code: &Code, launch: &RawLaunch) -> u64 {
        self.launches += 1;
        if let Some((_, why)) = OPTIONS.fault.filter(|&(number, _)| number == self.launches) {
            eprintln!(
                "virtual GPU: launch {} of `{}` fails, as was wished",
                self.launches,
                code.name()
            );
            self.lose(device, why);
            return 0;
        }
        let mut seen = Seen::new(&mut self.memory, device);
        let ran = code.module.run(launch, &mut seen);
        let moved = seen.moved;
        if let Err(fault) = ran {
            eprintln!("virtual GPU: `{}`: {fault}", code.name());
            self.lose(device, code_of(&fault));
        }
        moved
    }

    /// Does work that needs no other stream; how long it takes by the virtual clock.
    pub(crate) fn perform(&mut self, turn: Turn, work: &Work) -> u64 {
        let Turn { device, start, latency } = turn;
        let done = match work {
            Work::Kernel(code, launch) => Ok(cost::memory(self.kernel(device, code, launch))),
            Work::Fill { to, pattern, count } => {
                let bytes = pattern.repeat(*count);
                self.memory.write(*to, &bytes).map(|()| cost::memory(bytes.len() as u64))
            }
            Work::CopyIn { to, bytes } => {
                let cost = cost::copy(Route::Host, bytes.len() as u64);
                self.memory.write(*to, bytes).map(|()| cost)
            }
            Work::Copy { to, from, bytes } => {
                let cost = cost::copy(self.route(*to, *from), *bytes as u64);
                let mut data = vec![0; *bytes];
                let read = self.memory.read(*from, &mut data);
                read.and_then(|()| self.memory.write(*to, &data)).map(|()| cost)
            }
            Work::Record { event, version } => {
                let event = self.events.get_mut(event).filter(|event| event.version == *version);
                let real = || BEGIN.elapsed().as_nanos() as u64;
                let time = if OPTIONS.clock { start } else { real() };
                event.into_iter().for_each(|event| event.time = Some(time));
                return 0;
            }
            Work::Wait { .. } | Work::Call { .. } | Work::Graph(_) => return 0,
        };
        match done {
            Ok(cost) => latency + cost,
            Err(wrong) => {
                eprintln!("virtual GPU: a copy or fill: {wrong}");
                self.lose(device, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
                latency
            }
        }
    }

    /// What a copy between two addresses goes over.
    fn route(&self, to: u64, from: u64) -> Route {
        let home = |address| self.memory.describe(address).map(|(home, ..)| home);
        match (home(to), home(from)) {
            (Some(Home::Device(a)), Some(Home::Device(b))) if a == b => Route::Memory,
            (Some(Home::Device(_)), Some(Home::Device(_))) => Route::Peer,
            _ => Route::Host,
        }
    }
}

/// What a GPU would have said.
fn code_of(fault: &Fault) -> CUresult {
    match fault.kind {
        FaultKind::Address => CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
        FaultKind::Misaligned => CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
        FaultKind::Instruction => CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
        FaultKind::Trap | FaultKind::Order | FaultKind::Refused => {
            CUresult::CUDA_ERROR_LAUNCH_FAILED
        }
    }
}
