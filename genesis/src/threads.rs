//! How many threads work on the CPU.

use genesis_kernel::runtime;

use crate::error::{Error, Result};

/// Threads that work on the CPU: what `GENESIS_NUM_THREADS` says, else all that the process may use, until
/// [`set_num_threads`] says otherwise. PyTorch calls it `torch.get_num_threads`.
pub fn num_threads() -> usize {
    runtime::num_threads()
}

/// Lets so many threads work on the CPU from now on: programs of a launch, and matrix products. Results do
/// not depend on it.
///
/// Work on threads of a rayon pool of the program's own stays on that pool.
///
/// # Errors
/// If the number is 0 or more than 4096, or the system gives no more threads; nothing changes then.
///
/// # Examples
/// ```
/// genesis::set_num_threads(2)?;
/// assert_eq!(genesis::num_threads(), 2);
/// assert!(genesis::set_num_threads(0).is_err());
/// # Ok::<(), genesis::Error>(())
/// ```
pub fn set_num_threads(count: usize) -> Result<()> {
    runtime::set_num_threads(count).map_err(Error::from)
}
