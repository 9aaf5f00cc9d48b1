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
//! Exit handlers run in the reverse of the order that they were registered in. Some of LLVM's statics are
//! made when a pass first needs them and would go before a gate that was registered earlier, so the gate is
//! registered again by each thread that leaves, and what a target makes late is made before its first kernel
//! (`machine::warm_up`).

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Once;
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
            register();
            INSIDE.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Enters LLVM; to be called before anything of it is.
///
/// # Errors
/// If the process ends.
pub(crate) fn enter() -> Result<Inside, Error> {
    static FIRST: Once = Once::new();
    let inside = Inside::again();
    // The count is raised before the flag is read, and the handler does it the other way around.
    if DEPTH.get() == 1 && ENDS.load(Ordering::SeqCst) {
        // Not registered again: it is too late for that.
        DEPTH.set(0);
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        std::mem::forget(inside);
        std::thread::sleep(if ends_here() { Duration::ZERO } else { LONGEST_EXIT });
        return Err(Error::device("the process ends: nothing is compiled any more"));
    }
    FIRST.call_once(|| {
        PROCESS.store(std::process::id(), Ordering::SeqCst);
        register();
    });
    Ok(inside)
}

thread_local! {
    /// Whether this thread runs the exit handlers.
    static EXITS: Cell<bool> = const { Cell::new(false) };
}

fn ends_here() -> bool {
    EXITS.get()
}

unsafe extern "C" {
    fn atexit(handler: extern "C" fn()) -> std::ffi::c_int;
}

/// Lets the process wait at its end, before it destroys what was made so far.
pub(super) fn register() {
    // SAFETY: the handler does not unwind and touches nothing that has a destructor. Where there is no
    // memory for it, the process ends as it would without.
    let _ = unsafe { atexit(close) };
}

/// Closes the gate and waits until nobody is inside.
extern "C" fn close() {
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
