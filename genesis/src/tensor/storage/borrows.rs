//! Who has the elements of a storage as slices: a borrow that is counted when the program runs, as a `RefCell`'s.

use std::sync::atomic::{AtomicIsize, Ordering};

/// Who has the elements of a storage: so many readers, or -1 for a writer.
#[derive(Default)]
pub(super) struct Borrows(AtomicIsize);

impl Borrows {
    /// Counts a reader.
    pub(super) fn read(&self) {
        // A count of readers that wraps would be one of writers; 2^63 readers are none.
        let before = self.0.fetch_add(1, Ordering::Acquire);
        if before < 0 {
            self.0.fetch_sub(1, Ordering::Release);
            panic!("elements are read that are being written, which is a bug in Genesis");
        }
    }

    /// Lets a writer in where no one else is.
    pub(super) fn write(&self) {
        let free = self.0.compare_exchange(0, -1, Ordering::Acquire, Ordering::Relaxed);
        assert!(free.is_ok(), "elements are written that others have: a bug in Genesis");
    }

    /// A reader has gone.
    pub(super) fn end_read(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// The writer has gone.
    pub(super) fn end_write(&self) {
        self.0.store(0, Ordering::Release);
    }
}
