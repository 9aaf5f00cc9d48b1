//! Handles of the driver.

/// A driver handle: an opaque address that any thread may pass back to the driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handle<T>(pub(super) T);

// SAFETY: the driver's handles may be used by any thread; the driver locks what it must.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}
