//! Whether ops record themselves, and whether tensors may ever be recorded: properties of the thread.
//!
//! | mode | ops record | tensors made in it |
//! |---|---|---|
//! | [`enable_grad`], the start of every thread | yes | like any other |
//! | [`no_grad`] | no | like any other |
//! | [`inference_mode`] | no, not even inside [`enable_grad`] | can never be saved for a backward |

use std::cell::Cell;
use std::marker::PhantomData;

#[derive(Clone, Copy)]
struct Mode {
    enabled: bool,
    inference: bool,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode { enabled: true, inference: false }) };
}

/// Whether ops on this thread record themselves for backward.
pub fn is_grad_enabled() -> bool {
    let mode = MODE.get();
    mode.enabled && !mode.inference
}

/// Whether this thread is in [`inference_mode`].
pub fn is_inference_mode_enabled() -> bool {
    MODE.get().inference
}

/// Lets the ops of this thread record themselves or not, until it is set again or a surrounding
/// closure or guard ends.
pub fn set_grad_enabled(enabled: bool) {
    MODE.set(Mode { enabled, ..MODE.get() });
}

/// Runs `f` without recording.
///
/// # Examples
/// ```
/// use genesis::{Tensor, no_grad};
///
/// let x = Tensor::from_slice(&[1.0f32], &[1])?.requires_grad_(true)?;
/// assert!(!no_grad(|| x.exp())?.requires_grad());
/// # Ok::<(), genesis::Error>(())
/// ```
pub fn no_grad<T>(f: impl FnOnce() -> T) -> T {
    with_grad(false, f)
}

/// Runs `f` with recording, inside a [`no_grad`] too.
pub fn enable_grad<T>(f: impl FnOnce() -> T) -> T {
    with_grad(true, f)
}

/// Runs `f` without recording, and makes tensors that can never be: they are refused by an op that
/// would save them for its backward, and by writes in place once the mode has ended.
///
/// # Examples
/// ```
/// use genesis::{Tensor, autograd::inference_mode};
///
/// let w = Tensor::from_slice(&[1.0f32], &[1])?.requires_grad_(true)?;
/// let x = inference_mode(|| w.exp())?;
/// assert!(x.is_inference() && !x.requires_grad());
/// assert!(w.mul(&x).is_err());
/// # Ok::<(), genesis::Error>(())
/// ```
pub fn inference_mode<T>(f: impl FnOnce() -> T) -> T {
    let _guard = ModeGuard::inference();
    f()
}

pub(crate) fn with_grad<T>(enabled: bool, f: impl FnOnce() -> T) -> T {
    let _guard = ModeGuard::enter(Mode { enabled, ..MODE.get() });
    f()
}

/// A mode that lasts until this is dropped, where a closure is in the way.
///
/// # Examples
/// ```
/// use genesis::autograd::{ModeGuard, is_grad_enabled};
///
/// {
///     let _guard = ModeGuard::no_grad();
///     assert!(!is_grad_enabled());
/// }
/// assert!(is_grad_enabled());
/// ```
#[derive(Debug)]
#[must_use = "the mode ends when the guard is dropped"]
pub struct ModeGuard {
    enabled: bool,
    inference: bool,
    /// The mode is a property of this thread.
    stays: PhantomData<*const ()>,
}

impl ModeGuard {
    /// As [`no_grad`].
    pub fn no_grad() -> ModeGuard {
        ModeGuard::enter(Mode { enabled: false, ..MODE.get() })
    }

    /// As [`enable_grad`].
    pub fn enable_grad() -> ModeGuard {
        ModeGuard::enter(Mode { enabled: true, ..MODE.get() })
    }

    /// As [`inference_mode`].
    pub fn inference() -> ModeGuard {
        ModeGuard::enter(Mode { enabled: false, inference: true })
    }

    fn enter(mode: Mode) -> ModeGuard {
        let Mode { enabled, inference } = MODE.replace(mode);
        ModeGuard { enabled, inference, stays: PhantomData }
    }
}

impl Drop for ModeGuard {
    fn drop(&mut self) {
        MODE.set(Mode { enabled: self.enabled, inference: self.inference });
    }
}
