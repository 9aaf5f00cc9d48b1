//! Forwards whose gradients count nothing: of ranks that only keep others company in their collectives.
//!
//! A loss times 0 would not do: where the forward has infinities, 0 times one of them is no number, and a sum over
//! ranks is none either.

use std::cell::Cell;

thread_local! {
    static UNCOUNTED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a forward, in which what fully sharded modules compute has gradients of 0, whatever a backward gives.
pub(crate) fn uncounted<T>(f: impl FnOnce() -> T) -> T {
    /// Also where `f` panics.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            UNCOUNTED.set(self.0);
        }
    }
    let _restore = Restore(UNCOUNTED.replace(true));
    f()
}

/// Whether this thread runs such a forward.
pub(super) fn is_uncounted() -> bool {
    UNCOUNTED.get()
}
