//! Which functions a program calls, and how often: said on standard error when it ends.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Mutex, Once, PoisonError};

static CALLS: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());

unsafe extern "C" {
    /// Of the C library.
    fn atexit(function: extern "C" fn()) -> c_int;
}

/// Counts a call; `body` is the type of a closure in the function that is called.
pub(crate) fn count(body: &'static str) {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the function may be called at any time, and this library stays loaded.
        let _ = unsafe { atexit(say) };
    });
    *CALLS.lock().unwrap_or_else(PoisonError::into_inner).entry(function(body)).or_default() += 1;
}

/// `cuInit` of `virtual_cuda::api::device::cuInit::{{closure}}`.
fn function(body: &'static str) -> &'static str {
    let path = body.trim_end_matches("::{{closure}}");
    path.rsplit("::").next().unwrap_or(path)
}

extern "C" fn say() {
    for (name, calls) in CALLS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        eprintln!("virtual GPU: {calls} calls of {name}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closure_has_the_name_of_its_function() {
        fn name<F>(_: F) -> &'static str {
            function(std::any::type_name::<F>())
        }
        assert_eq!(name(|| ()), "a_closure_has_the_name_of_its_function");
    }
}
