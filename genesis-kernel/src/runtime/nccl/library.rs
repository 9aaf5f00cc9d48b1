//! Finding libnccl, its functions, and its errors in words.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use cudarc::nccl::sys::{ncclComm_t, ncclConfig_t, ncclDataType_t, ncclRedOp_t, ncclUniqueId};

use crate::diag::Error;

/// What NCCL answers: `ncclResult_t`, which newer versions extend.
pub(super) type Status = c_int;
pub(super) const SUCCESS: Status = 0;
pub(super) const IN_PROGRESS: Status = 7;

/// The oldest version that has all that is called here (`ncclCommSplit`): 2.18.
const OLDEST: c_int = 21800;
/// From this version on f8 is a dtype of NCCL's.
pub(super) const HAS_FLOAT8: c_int = 22400;

type Stream = *mut c_void;

macro_rules! library {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions of libnccl.
        pub(super) struct Library {
            /// Its version, such as 22803 for 2.28.3.
            pub(super) version: c_int,
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
            /// What the functions are in; never unloaded.
            _loaded: libloading::Library,
        }

        impl Library {
            fn resolve(loaded: libloading::Library) -> Result<Library, Error> {
                $(
                    // SAFETY: the type is that of the function in NCCL's header.
                    let $field = *unsafe { loaded.get::<unsafe extern "C" fn($($argument),*) -> $result>($symbol) }
                        .map_err(|why| Error::device(format!("NCCL: {why}")))?;
                )*
                Ok(Library { version: 0, $($field,)* _loaded: loaded })
            }
        }
    };
}

library! {
    get_version = b"ncclGetVersion": fn(*mut c_int) -> Status;
    get_unique_id = b"ncclGetUniqueId": fn(*mut ncclUniqueId) -> Status;
    init_rank = b"ncclCommInitRankConfig": fn(*mut ncclComm_t, c_int, ncclUniqueId, c_int, *mut ncclConfig_t) -> Status;
    split = b"ncclCommSplit": fn(ncclComm_t, c_int, c_int, *mut ncclComm_t, *mut ncclConfig_t) -> Status;
    finalize = b"ncclCommFinalize": fn(ncclComm_t) -> Status;
    destroy = b"ncclCommDestroy": fn(ncclComm_t) -> Status;
    abort = b"ncclCommAbort": fn(ncclComm_t) -> Status;
    async_error = b"ncclCommGetAsyncError": fn(ncclComm_t, *mut c_int) -> Status;
    error_string = b"ncclGetErrorString": fn(Status) -> *const c_char;
    last_error = b"ncclGetLastError": fn(ncclComm_t) -> *const c_char;
    group_start = b"ncclGroupStart": fn() -> Status;
    group_end = b"ncclGroupEnd": fn() -> Status;
    all_reduce = b"ncclAllReduce": fn(*const c_void, *mut c_void, usize, ncclDataType_t, ncclRedOp_t, ncclComm_t, Stream) -> Status;
    reduce = b"ncclReduce": fn(*const c_void, *mut c_void, usize, ncclDataType_t, ncclRedOp_t, c_int, ncclComm_t, Stream) -> Status;
    broadcast = b"ncclBroadcast": fn(*const c_void, *mut c_void, usize, ncclDataType_t, c_int, ncclComm_t, Stream) -> Status;
    all_gather = b"ncclAllGather": fn(*const c_void, *mut c_void, usize, ncclDataType_t, ncclComm_t, Stream) -> Status;
    reduce_scatter = b"ncclReduceScatter": fn(*const c_void, *mut c_void, usize, ncclDataType_t, ncclRedOp_t, ncclComm_t, Stream) -> Status;
    send = b"ncclSend": fn(*const c_void, usize, ncclDataType_t, c_int, ncclComm_t, Stream) -> Status;
    receive = b"ncclRecv": fn(*mut c_void, usize, ncclDataType_t, c_int, ncclComm_t, Stream) -> Status;
}

/// The library, looked for once.
pub(super) fn get() -> Result<&'static Library, Error> {
    static LIBRARY: OnceLock<Result<Library, Error>> = OnceLock::new();
    LIBRARY.get_or_init(find).as_ref().map_err(Error::clone)
}

/// NCCL's version, such as (2, 28, 3).
///
/// # Errors
/// If it is missing or too old.
pub fn nccl_version() -> Result<(u32, u32, u32), Error> {
    let version = get()?.version.unsigned_abs();
    Ok((version / 10000, version / 100 % 100, version % 100))
}

fn find() -> Result<Library, Error> {
    let given = crate::knobs::get().nccl.as_ref();
    let names = match given {
        Some(path) => vec![path.clone()],
        None => ["libnccl.so.2", "libnccl.so"].map(Into::into).to_vec(),
    };
    // SAFETY: loading the library runs its initialisers, as any use of it does.
    let loaded = names.iter().find_map(|name| unsafe { libloading::Library::new(name) }.ok());
    let Some(loaded) = loaded else {
        let where_ = given.map_or_else(
            || "libnccl.so.2 was not found".to_owned(),
            |path| format!("GENESIS_NCCL: {} can't be loaded", path.display()),
        );
        return Err(Error::device(format!(
            "{where_}: several GPUs need NCCL 2.18 or newer (package libnccl2, or PyPI's nvidia-nccl); \
             GENESIS_NCCL may name its file"
        )));
    };
    let mut library = Library::resolve(loaded)?;
    // SAFETY: the out pointer is ours.
    let status = unsafe { (library.get_version)(&mut library.version) };
    check(&library, "ncclGetVersion", status)?;
    match library.version {
        version if version < OLDEST => Err(Error::device(format!(
            "NCCL {}.{}.{} is too old, 2.18 or newer is needed",
            version / 10000,
            version / 100 % 100,
            version % 100
        ))),
        _ => Ok(library),
    }
}

/// The error of a call that does not belong to a communicator.
pub(super) fn check(library: &Library, call: &str, status: Status) -> Result<(), Error> {
    match status {
        SUCCESS | IN_PROGRESS => Ok(()),
        _ => Err(Error::device(format!("NCCL: {call}: {}", describe(library, status, None)))),
    }
}

/// An error in NCCL's words, with what it says of its cause.
pub(super) fn describe(library: &Library, status: Status, of: Option<ncclComm_t>) -> String {
    // SAFETY: the text is static.
    let text = unsafe { words((library.error_string)(status)) };
    // SAFETY: NCCL takes null for what belongs to no communicator; its text lives until the next error.
    let cause = unsafe { words((library.last_error)(of.unwrap_or(std::ptr::null_mut()))) };
    if cause.is_empty() { text } else { format!("{text}: {cause}") }
}

/// # Safety
/// The pointer is null or of a text that ends with nul.
unsafe fn words(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller answers for it.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned()
}
