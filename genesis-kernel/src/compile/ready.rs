//! Modules that were compiled and loaded ahead of the launch that takes them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::cache::Key;
use crate::runtime::cuda::CudaKernel;

/// By the number of the device and the key.
type Kernels = BTreeMap<(u32, Key), CudaKernel>;

static READY: Mutex<Kernels> = Mutex::new(BTreeMap::new());

/// Keeps code until it is asked for.
pub(super) fn put(device: u32, key: Key, code: CudaKernel) {
    READY.lock().unwrap_or_else(PoisonError::into_inner).insert((device, key), code);
}

/// The code of a key, if it is there; it is the caller's then.
pub(super) fn take(device: u32, key: Key) -> Option<CudaKernel> {
    READY.lock().unwrap_or_else(PoisonError::into_inner).remove(&(device, key))
}

/// Whether there is code of a key.
pub(super) fn has(device: u32, key: Key) -> bool {
    READY.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&(device, key))
}
