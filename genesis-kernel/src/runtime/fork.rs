//! Children of `fork`, which are refused.
//!
//! A child has one thread, and a copy of every lock as it stood: one that another thread held stays taken
//! for ever. (1 of 30 children hung whose parent computed on other threads meanwhile.) The threads that help
//! with work, and a GPU's context, stay with the parent. So a child that allocates or launches gets an error
//! that says so, and what it lets go of is left alone. A child that runs another program is not concerned.
//!
//! ```text
//! parent   first allocation: watch()      fork()
//! child                                    `- IS_CHILD = true ... alloc: an error; free: nothing
//! ```

#[cfg(unix)]
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::diag::Error;

/// Whether this process was forked from one that had memory of ours.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Whether this process was forked from one that had memory of ours.
#[inline]
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// Refuses work in such a process.
#[inline]
pub(crate) fn check() -> Result<(), Error> {
    if is_child() { Err(refusal()) } else { Ok(()) }
}

#[cold]
fn refusal() -> Error {
    Error::device(
        "this process was forked from one that used Genesis, whose threads and locks it lacks; start \
         another program instead, as std::process::Command does"
            .to_owned(),
    )
}

/// Lets children of later forks know that they are; to be called before memory is handed out.
pub(crate) fn watch() {
    #[cfg(unix)]
    {
        static ONCE: Once = Once::new();
        unsafe extern "C" {
            fn pthread_atfork(
                prepare: Option<unsafe extern "C" fn()>,
                parent: Option<unsafe extern "C" fn()>,
                child: Option<unsafe extern "C" fn()>,
            ) -> std::ffi::c_int;
        }
        unsafe extern "C" fn in_child() {
            IS_CHILD.store(true, Ordering::Relaxed);
        }
        // SAFETY: POSIX's function of this signature; the handler only stores to an atomic, and stays where
        // it is as long as the process lives. Where it is refused, children are as careless as before.
        ONCE.call_once(|| _ = unsafe { pthread_atfork(None, None, Some(in_child)) });
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::ffi::c_int;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    use super::super::{Buffer, Device};
    use super::*;

    unsafe extern "C" {
        fn fork() -> c_int;
        fn _exit(code: c_int) -> !;
        fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
        fn kill(pid: c_int, signal: c_int) -> c_int;
    }

    /// What a child makes of memory that the parent had: 0 if it is refused and hangs nowhere.
    fn in_child(held: Buffer) -> c_int {
        let refused = |error: Error| error.to_string().contains("was forked from one that used");
        let fresh = Buffer::uninit(&Device::Cpu.stream(), 64);
        drop(held);
        c_int::from(!fresh.is_err_and(refused))
    }

    #[test]
    fn a_child_is_refused_whatever_other_threads_hold() {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        drop(Buffer::uninit(&Device::Cpu.stream(), 1 << 12));
                    }
                });
            }
            for _ in 0..200 {
                let held = Buffer::uninit(&Device::Cpu.stream(), 64).unwrap();
                // SAFETY: the child calls what the test is of, allocates only by a allocator that is made for
                // it, and ends without a destructor.
                let pid = unsafe { fork() };
                if pid == 0 {
                    let code = in_child(held);
                    // SAFETY: it ends here.
                    unsafe { _exit(code) };
                }
                assert!(pid > 0);
                let (mut status, start) = (-1, Instant::now());
                // SAFETY: the child is ours, 1 is WNOHANG and 9 SIGKILL.
                while unsafe { waitpid(pid, &raw mut status, 1) } == 0 {
                    if start.elapsed() > Duration::from_secs(10) {
                        // SAFETY: as above.
                        unsafe { kill(pid, 9) };
                    }
                    std::thread::sleep(Duration::from_micros(100));
                }
                assert_eq!(status, 0, "the child hung or was not refused");
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(check().is_ok());
    }
}
