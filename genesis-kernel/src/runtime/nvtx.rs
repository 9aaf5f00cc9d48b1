//! Names of ranges for NVIDIA's own profilers, through `libnvToolsExt`, where that is installed.

use std::ffi::{CString, c_char, c_int};
use std::sync::OnceLock;

use libloading::Library;

/// The library's functions.
struct Nvtx {
    push: unsafe extern "C" fn(*const c_char) -> c_int,
    pop: unsafe extern "C" fn() -> c_int,
    /// The functions are in it.
    _library: Library,
}

fn nvtx() -> Option<&'static Nvtx> {
    static NVTX: OnceLock<Option<Nvtx>> = OnceLock::new();
    NVTX.get_or_init(load).as_ref()
}

fn load() -> Option<Nvtx> {
    let names = ["libnvToolsExt.so.1", "libnvToolsExt.so"];
    // SAFETY: loading the library runs its initialisers, which is what its users expect.
    let library = names.iter().find_map(|name| unsafe { Library::new(*name) }.ok())?;
    // SAFETY: these are the functions' types since the library's first version.
    unsafe {
        let push = *library.get(b"nvtxRangePushA\0").ok()?;
        let pop = *library.get(b"nvtxRangePop\0").ok()?;
        Some(Nvtx { push, pop, _library: library })
    }
}

/// Whether the library is there.
pub fn has_nvtx() -> bool {
    nvtx().is_some()
}

/// Begins a range of this thread.
pub(crate) fn push(name: &str) {
    if let (Some(nvtx), Ok(name)) = (nvtx(), CString::new(name.replace('\0', " "))) {
        // SAFETY: the text ends in a nul; the library copies it.
        unsafe { (nvtx.push)(name.as_ptr()) };
    }
}

/// Ends the innermost range of this thread.
pub(crate) fn pop() {
    if let Some(nvtx) = nvtx() {
        // SAFETY: the function takes nothing.
        unsafe { (nvtx.pop)() };
    }
}
