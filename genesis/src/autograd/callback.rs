//! Callbacks at the end of a backward pass.

use std::cell::{Cell, RefCell};

use crate::error::Result;

type Callback = Box<dyn FnOnce() -> Result<()>>;

thread_local! {
    /// Backwards under way on this thread: one may run in the op of another, as checkpoints do.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static CALLBACKS: RefCell<Vec<Callback>> = const { RefCell::new(Vec::new()) };
}

/// Calls `f` when the backward that this thread runs has ended, the outermost where one runs in another;
/// a backward that fails calls nothing. To be called from hooks; outside of a backward it waits for the
/// next.
///
/// # Examples
/// ```
/// # use genesis::Tensor;
/// # use genesis::autograd::after_backward;
/// # use std::sync::Arc;
/// # use std::sync::atomic::{AtomicBool, Ordering};
/// let x = Tensor::from_slice(&[1.0f32], &[1])?.requires_grad_(true)?;
/// let ended = Arc::new(AtomicBool::new(false));
/// let seen = ended.clone();
/// x.register_hook(move |_| {
///     let seen = seen.clone();
///     after_backward(move || Ok(seen.store(true, Ordering::Relaxed)));
///     Ok(None)
/// })?;
/// x.exp()?.sum()?.backward()?;
/// assert!(ended.load(Ordering::Relaxed));
/// # Ok::<(), genesis::Error>(())
/// ```
pub fn after_backward(f: impl FnOnce() -> Result<()> + 'static) {
    CALLBACKS.with_borrow_mut(|callbacks| callbacks.push(Box::new(f)));
}

/// Runs a backward, and then what waits for its end.
pub(super) fn around<T>(backward: impl FnOnce() -> Result<T>) -> Result<T> {
    struct Depth;
    impl Drop for Depth {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() - 1);
            if DEPTH.get() == 0 {
                CALLBACKS.take();
            }
        }
    }
    DEPTH.set(DEPTH.get() + 1);
    let depth = Depth;
    let result = backward()?;
    if DEPTH.get() == 1 {
        for callback in CALLBACKS.take() {
            callback()?;
        }
    }
    drop(depth);
    Ok(result)
}
