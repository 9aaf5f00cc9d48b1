//! Whether ops record themselves, a property of the thread.

use std::cell::Cell;

thread_local! {
    static ENABLED: Cell<bool> = const { Cell::new(true) };
}

/// Whether ops on this thread record themselves for backward.
pub fn is_grad_enabled() -> bool {
    ENABLED.get()
}

/// Runs `f` without recording.
pub fn no_grad<T>(f: impl FnOnce() -> T) -> T {
    with_grad(false, f)
}

/// Runs `f` with recording, inside a [`no_grad`] too.
pub fn enable_grad<T>(f: impl FnOnce() -> T) -> T {
    with_grad(true, f)
}

pub(super) fn with_grad<T>(enabled: bool, f: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            ENABLED.set(self.0);
        }
    }
    let _restore = Restore(ENABLED.replace(enabled));
    f()
}
