//! The gate between threads that are inside LLVM and a process that ends.
//!
//! `exit` runs the destructors of LLVM's statics while other threads go on: one that compiles then reads
//! freed options and mutexes. (5 of 100 processes that ended while their threads compiled crashed.) So the
//! process waits at its end until no thread is inside, and lets none in any more:
//!
//! ```text
//! thread A   enter, passes, code generator .................. leave
//! thread B            exit -> gate closes, waits ...................., LLVM's destructors, gone
//! thread C                        enter: waits for the end of the process
//! ```
//!
//! Exit handlers run in the reverse of the order that they were registered in. Statics that LLVM makes when a
//! pass first needs them would so go before the gate closes. They are never destroyed: what registers a
//! destructor from inside is not listened to, see [`__cxa_atexit`]. (With the gate alone 7 of 360 processes
//! crashed or hung, all in the first kernels that they compiled.) The handler is registered before `main`, and
//! so runs before the destructors of every library that was loaded with the program; and again after whatever
//! else is registered, such as by the initializers of an LLVM that is linked statically. (Registered by the
//! first thread that entered, it came too late for 7 of 600 processes, which ended in their first 600
//! microseconds.)

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::Error;

/// How long the end of a process waits for threads inside; a kernel compiles in less than a second.
const LONGEST_COMPILATION: Duration = Duration::from_secs(20);

/// How long a thread that comes too late waits for the end, before it goes on with an error. Only an exit
/// handler that waits for the thread lets it come so far.
const LONGEST_EXIT: Duration = Duration::from_secs(5);

/// Between two looks.
const PAUSE: Duration = Duration::from_micros(200);

// Atomics, not a lock: the handler also runs in a child of `fork`, where a lock may stay taken for ever.
/// Threads inside.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// Whether the process ends.
static ENDS: AtomicBool = AtomicBool::new(false);
/// The process that `INSIDE` counts for: a child of `fork` has none of the parent's threads.
static PROCESS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// How often this thread has entered.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// A thread's stay inside LLVM.
pub(crate) struct Inside {
    /// The count is the thread's own.
    _not_send: PhantomData<*const ()>,
}

impl Inside {
    /// Another stay of a thread that is inside, for a value that may outlive the first.
    pub(crate) fn again() -> Inside {
        if DEPTH.get() == 0 {
            INSIDE.fetch_add(1, Ordering::SeqCst);
        }
        DEPTH.set(DEPTH.get() + 1);
        Inside { _not_send: PhantomData }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 {
            INSIDE.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Enters LLVM; to be called before anything of it is.
///
/// # Errors
/// If the process ends.
pub(crate) fn enter() -> Result<Inside, Error> {
    #[cfg(not(target_os = "linux"))]
    {
        static FIRST: std::sync::Once = std::sync::Once::new();
        FIRST.call_once(|| register());
    }
    let inside = Inside::again();
    // The count is raised before the flag is read, and the handler does it the other way around.
    if DEPTH.get() == 1 && ENDS.load(Ordering::SeqCst) {
        drop(inside);
        std::thread::sleep(if EXITS.get() { Duration::ZERO } else { LONGEST_EXIT });
        return Err(Error::device("the process ends: nothing is compiled any more"));
    }
    Ok(inside)
}

thread_local! {
    /// Whether this thread runs the exit handlers.
    static EXITS: Cell<bool> = const { Cell::new(false) };
}

/// Called before `main`, or when this library is loaded.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = register;

/// Lets the process wait at its end, before it destroys what was made so far.
extern "C" fn register() {
    PROCESS.store(std::process::id(), Ordering::SeqCst);
    // SAFETY: the handler does not unwind and touches nothing that has a destructor. Where there is no
    // memory for it, the process ends as it would without.
    let _ = unsafe { on_exit(close, std::ptr::null_mut(), std::ptr::null_mut()) };
}

type Handler = unsafe extern "C" fn(*mut c_void);

/// What C++ registers the destructors of statics with, in place of the C library's, which it calls.
///
/// In an executable this is the function that all of its libraries find. In a library that is loaded by
/// another program it is not, and what LLVM makes late is destroyed early, as without it.
///
/// # Safety
/// As in C: the handler may be called with the argument at the end of the process.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[unsafe(no_mangle)]
unsafe extern "C" fn __cxa_atexit(
    handler: Handler,
    argument: *mut c_void,
    library: *mut c_void,
) -> c_int {
    // The code that registers is LLVM's, called by a thread that has entered.
    if DEPTH.get() > 0 {
        return 0;
    }
    // SAFETY: the caller's promise.
    let problem = unsafe { on_exit(handler, argument, library) };
    register();
    problem
}

/// The C library's `__cxa_atexit`.
///
/// # Safety
/// As in C.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
unsafe fn on_exit(handler: Handler, argument: *mut c_void, library: *mut c_void) -> c_int {
    type Register = unsafe extern "C" fn(Handler, *mut c_void, *mut c_void) -> c_int;
    unsafe extern "C" {
        fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    }
    /// `RTLD_NEXT`: the definition after the one of this program.
    const NEXT: isize = -1;
    // SAFETY: the name ends in a zero; the C library has the function, with this signature.
    unsafe {
        let found =
            dlsym(std::ptr::without_provenance_mut(NEXT as usize), c"__cxa_atexit".as_ptr());
        if found.is_null() {
            return -1;
        }
        std::mem::transmute::<*mut c_void, Register>(found)(handler, argument, library)
    }
}

/// The C library's `__cxa_atexit`, where nothing stands before it.
///
/// # Safety
/// As in C.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
unsafe fn on_exit(handler: Handler, argument: *mut c_void, library: *mut c_void) -> c_int {
    unsafe extern "C" {
        fn __cxa_atexit(handler: Handler, argument: *mut c_void, library: *mut c_void) -> c_int;
    }
    // SAFETY: the caller's promise.
    unsafe { __cxa_atexit(handler, argument, library) }
}

/// Closes the gate and waits until nobody is inside.
unsafe extern "C" fn close(_: *mut c_void) {
    EXITS.set(true);
    let waited = ENDS.swap(true, Ordering::SeqCst);
    if waited || PROCESS.load(Ordering::SeqCst) != std::process::id() {
        return;
    }
    // LLVM itself may end the process, and a signal's handler anywhere.
    let own = usize::from(DEPTH.get() > 0);
    let started = Instant::now();
    while INSIDE.load(Ordering::SeqCst) > own && started.elapsed() < LONGEST_COMPILATION {
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_enter_again() {
        let outer = enter().unwrap();
        let inner = Inside::again();
        assert_eq!(DEPTH.get(), 2);
        drop(outer);
        assert_eq!(DEPTH.get(), 1);
        assert!(INSIDE.load(Ordering::SeqCst) >= 1);
        drop(inner);
        assert_eq!(DEPTH.get(), 0);
    }
}
