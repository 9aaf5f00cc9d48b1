//! Who is told of memory, and where in the program it was asked for. Both are off by default and then
//! cost one load of a flag.

use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use std::sync::{Arc, Once};

use crate::knobs;
use crate::runtime::Device;

/// What happened to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryEventKind {
    /// A block was handed out.
    Alloc,
    /// A block came back.
    Free,
    /// The system gave a segment.
    Reserve,
    /// The system got a segment back.
    Release,
    /// There was no memory, also after what was free went back to the system.
    OutOfMemory,
}

/// Something that happened to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryEvent {
    /// What happened.
    pub kind: MemoryEventKind,
    /// The device.
    pub device: Device,
    /// The stream's number; 0 is the default one.
    pub stream: u64,
    /// The first byte; 0 where there is none.
    pub address: u64,
    /// How many bytes it is about.
    pub bytes: usize,
    /// Bytes of live blocks of the device after it.
    pub allocated: usize,
    /// Bytes held from the system after it.
    pub reserved: usize,
}

const HOOK: u8 = 1;
const HISTORY: u8 = 2;

/// The environment was not looked at yet.
const UNREAD: u8 = 4;

static FLAGS: AtomicU8 = AtomicU8::new(UNREAD);
static HOOKED: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Has a function called at each memory event of any thread, or no function any more.
///
/// It must not allocate memory of a device, and returns soon: the threads of a program wait for it.
pub fn set_memory_hook(hook: Option<fn(&MemoryEvent)>) {
    match hook {
        Some(hook) => {
            HOOKED.store(hook as *mut (), Ordering::Release);
            FLAGS.fetch_or(HOOK, Ordering::Release);
        }
        None => {
            FLAGS.fetch_and(!HOOK, Ordering::Release);
        }
    }
}

/// Tells the hook, if there is one.
#[inline]
pub(super) fn tell(event: impl FnOnce() -> MemoryEvent) {
    if FLAGS.load(Ordering::Relaxed) & HOOK != 0 {
        call(&event());
    }
}

#[cold]
fn call(event: &MemoryEvent) {
    let hook = HOOKED.load(Ordering::Acquire);
    if !hook.is_null() {
        // SAFETY: only functions of this type are stored, and null.
        let hook = unsafe { std::mem::transmute::<*mut (), fn(&MemoryEvent)>(hook) };
        hook(event);
    }
}

thread_local! {
    static SITE: RefCell<Option<Site>> = const { RefCell::new(None) };
}

/// A place in a program.
#[derive(Clone, Debug)]
pub struct Site {
    location: &'static Location<'static>,
    /// Taken where the location is inside of a library, to find who called that.
    stack: Option<Arc<Backtrace>>,
}

impl Site {
    /// This place; `is_library` where the one to be named is further up the stack.
    pub fn new(location: &'static Location<'static>, is_library: bool) -> Site {
        let stack = is_library.then(|| Arc::new(Backtrace::force_capture()));
        Site { location, stack }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stack.as_ref().and_then(|stack| caller_in(&stack.to_string())) {
            Some(place) => f.write_str(&place),
            None => write!(f, "{}:{}", self.location.file(), self.location.line()),
        }
    }
}

/// The first frame of a printed stack that is neither ours nor the language's: its file and line, or
/// its name where the program has no line tables.
fn caller_in(stack: &str) -> Option<String> {
    const NAMES: [&str; 7] =
        ["genesis::", "genesis_kernel::", "kernels::", "std::", "core::", "alloc::", "__rust"];
    const FILES: [&str; 3] = ["/rustc/", "/genesis/src/", "/genesis-kernel/src/"];
    let mut lines = stack.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        let Some((number, symbol)) = line.split_once(": ") else { continue };
        if number.parse::<usize>().is_err() {
            continue;
        }
        let at = lines.next_if(|line| line.starts_with("at ")).map(|at| &at["at ".len()..]);
        let name = symbol.trim_start_matches(['<', '&', '*', '(', ' ']);
        let is_ours = NAMES.iter().any(|ours| name.starts_with(ours))
            || at.is_some_and(|at| FILES.iter().any(|ours| at.contains(ours)));
        if !is_ours {
            // Without the column.
            let line = at.map(|at| at.rsplit_once(':').map_or(at, |(line, _)| line));
            return Some(line.unwrap_or(symbol).to_owned());
        }
    }
    None
}

/// Switches the recording of source lines on or off: of what is allocated from then on, the snapshot and
/// the out-of-memory error say where. `GENESIS_MEMORY_HISTORY=1` switches it on from the start.
pub fn record_history(on: bool) {
    start();
    if on {
        FLAGS.fetch_or(HISTORY, Ordering::Relaxed);
    } else {
        FLAGS.fetch_and(!HISTORY, Ordering::Relaxed);
    }
}

/// Whether source lines are recorded.
#[inline]
pub fn is_history_on() -> bool {
    FLAGS.load(Ordering::Relaxed) & (HISTORY | UNREAD) != 0 && is_on()
}

#[cold]
fn is_on() -> bool {
    start();
    FLAGS.load(Ordering::Relaxed) & HISTORY != 0
}

/// Looks at the environment once.
fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if knobs::get().memory_history {
            FLAGS.fetch_or(HISTORY, Ordering::Relaxed);
        }
        FLAGS.fetch_and(!UNREAD, Ordering::Relaxed);
    });
}

/// Runs `f`; what it allocates counts as asked for at `site`, unless a call around it says where.
///
/// Where nothing is recorded, `site` is not asked.
#[inline]
pub fn with_site<T>(site: impl FnOnce() -> Site, f: impl FnOnce() -> T) -> T {
    if is_history_on() { with_recorded_site(site, f) } else { f() }
}

#[cold]
fn with_recorded_site<T>(site: impl FnOnce() -> Site, f: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            SITE.set(None);
        }
    }
    if SITE.with_borrow(Option::is_some) {
        return f();
    }
    SITE.set(Some(site()));
    let _leave = Leave;
    f()
}

/// Where what is allocated now is asked for: what [`with_site`] said, else `caller`; none where that is
/// not recorded.
#[inline]
pub(super) fn site(caller: &'static Location<'static>) -> Option<Site> {
    if is_history_on() { Some(recorded(caller)) } else { None }
}

#[cold]
fn recorded(caller: &'static Location<'static>) -> Site {
    SITE.with_borrow(Option::clone).unwrap_or_else(|| Site::new(caller, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_is_the_first_frame_of_someone_else() {
        let stack = "   0: std::backtrace::Backtrace::create\n             at /rustc/x/backtrace.rs:331:13\n   \
                     1: genesis::ops::apply\n             at ./genesis/src/ops/mod.rs:97:5\n   \
                     2: call_once<train::model::{closure#0}>\n             at /rustc/x/function.rs:250:5\n   \
                     3: train::model::Block::forward\n             at ./src/model.rs:12:9\n";
        assert_eq!(caller_in(stack).as_deref(), Some("./src/model.rs:12"));
        assert_eq!(
            caller_in("   0: genesis::ops::apply\n   1: train::main\n").as_deref(),
            Some("train::main")
        );
        assert_eq!(caller_in("   0: genesis::ops::apply\n"), None);
    }
}
