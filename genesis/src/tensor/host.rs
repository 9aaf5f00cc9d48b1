//! Memory of the host beside that of tensors: lists that a call makes on its way to a result.
//!
//! `Vec` ends the process where there is no memory, and a number that a caller gives may ask for more than
//! there is. Where such a number says how long a list gets, the list begins here.

use genesis_kernel::runtime::Device;

use crate::error::{Error, Result};

/// From here on a list is asked for before it is made; less is always there.
const LARGE: usize = 1 << 20;

/// The most tensors that one call gives: a view takes memory too, whether or not it has elements.
const MOST_VIEWS: usize = 1 << 22;

/// An empty list with room for `n` elements.
///
/// # Errors
/// If memory can't hold them.
pub(crate) fn reserve<T>(op: &str, n: usize) -> Result<Vec<T>> {
    reserved(n).map_err(|problem| Error::op(op, problem))
}

/// As [`reserve`], for callers that put the error's words into their own.
///
/// # Errors
/// If memory can't hold them.
pub(crate) fn reserved<T>(n: usize) -> Result<Vec<T>, String> {
    let refused = || format!("{n} elements are more than memory holds");
    let bytes = n.checked_mul(size_of::<T>()).ok_or_else(refused)?;
    // Linux may promise more than the machine has, and kills the process that then fills it.
    let space = if bytes < LARGE { None } else { Device::Cpu.memory_space().ok().flatten() };
    if space.is_some_and(|(_, all)| bytes > all) {
        return Err(refused());
    }
    let mut list = Vec::new();
    list.try_reserve_exact(n).map_err(|_| refused())?;
    Ok(list)
}

/// This many bytes, all zero.
///
/// # Errors
/// If memory can't hold them.
pub(crate) fn zeroed(op: &str, bytes: usize) -> Result<Vec<u8>> {
    if bytes >= LARGE {
        // Given back at once: memory that comes as zeros is not touched, where filling it takes time.
        reserve::<u8>(op, bytes)?;
    }
    Ok(vec![0; bytes])
}

/// Refuses a result of more tensors than a call gives.
pub(crate) fn check_views(op: &str, n: usize) -> Result<()> {
    if n <= MOST_VIEWS {
        return Ok(());
    }
    Err(Error::op(op, format!("{n} views are more than the {MOST_VIEWS} that a call gives")))
}
