//! Tasks of one call that several threads take from.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::Thread;

/// Set in [`Work::inside`] once no other thread may begin.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// How often the caller looks whether all are done before it sleeps.
const LOOKS: usize = 256;

/// What a thread made of a panic.
pub(super) type Panic = Box<dyn Any + Send>;

/// Tasks that are under way.
pub(super) struct Work {
    /// Runs a task of the caller's closure, whose address is given.
    pub(super) run: unsafe fn(*const (), usize),
    pub(super) closure: *const (),
    pub(super) count: usize,
    /// The next task that no one has taken.
    pub(super) next: AtomicUsize,
    /// Threads that are at it beside the caller, and whether more may come.
    pub(super) inside: AtomicUsize,
    pub(super) panic: Mutex<Option<Panic>>,
    pub(super) caller: Thread,
}

// SAFETY: the closure is `Sync`, and is only used by threads that the caller waits for.
unsafe impl Send for Work {}
// SAFETY: as above.
unsafe impl Sync for Work {}

impl Work {
    /// Runs a task that was taken, and takes others until there are none.
    pub(super) fn go_on(&self, mut task: usize) {
        let all = || {
            while task < self.count {
                // SAFETY: the caller waits until every thread inside has left.
                unsafe { (self.run)(self.closure, task) };
                task = self.take();
            }
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(all)) {
            // The tasks that no one has begun are left out.
            self.next.store(self.count, Ordering::Relaxed);
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
    }

    pub(super) fn take(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// What another thread does, whenever it gets to it.
    pub(super) fn help(&self) {
        if self.inside.fetch_add(1, Ordering::Acquire) & CLOSED == 0 {
            self.go_on(self.take());
        }
        if self.inside.fetch_sub(1, Ordering::Release) == CLOSED | 1 {
            self.caller.unpark();
        }
    }

    /// Lets no other thread begin, and waits for those that did.
    pub(super) fn close(&self) {
        let mut inside = self.inside.fetch_or(CLOSED, Ordering::Acquire) & !CLOSED;
        for look in 0.. {
            if inside == 0 {
                return;
            }
            match look {
                ..LOOKS => std::hint::spin_loop(),
                _ => std::thread::park(),
            }
            inside = self.inside.load(Ordering::Acquire) & !CLOSED;
        }
    }
}
