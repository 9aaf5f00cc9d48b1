//! Errors in words.

use std::ffi::c_char;

use cudarc::driver::sys::CUresult;

use super::{WRONG, answer, give};

macro_rules! errors {
    ($($code:ident $text:literal)*) => {
        /// The name of an error and what it means, each ending in a nul.
        fn words(code: CUresult) -> Option<(&'static str, &'static str)> {
            match code {
                $(CUresult::$code => Some((concat!(stringify!($code), "\0"), concat!($text, "\0"))),)*
                _ => None,
            }
        }
    };
}

errors! {
    CUDA_SUCCESS "no error"
    CUDA_ERROR_INVALID_VALUE "invalid argument"
    CUDA_ERROR_OUT_OF_MEMORY "out of memory"
    CUDA_ERROR_INVALID_DEVICE "invalid device ordinal"
    CUDA_ERROR_INVALID_CONTEXT "invalid device context"
    CUDA_ERROR_ECC_UNCORRECTABLE "uncorrectable ECC error encountered"
    CUDA_ERROR_INVALID_PTX "a PTX JIT compilation failed"
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED "peer access is already enabled"
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED "peer access has not been enabled"
    CUDA_ERROR_INVALID_HANDLE "invalid resource handle"
    CUDA_ERROR_ILLEGAL_STATE "the operation cannot be performed in the present state"
    CUDA_ERROR_NOT_FOUND "named symbol not found"
    CUDA_ERROR_NOT_READY "device not ready"
    CUDA_ERROR_ILLEGAL_ADDRESS "an illegal memory access was encountered"
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED "part or all of the requested memory range is already mapped"
    CUDA_ERROR_ILLEGAL_INSTRUCTION "an illegal instruction was encountered"
    CUDA_ERROR_MISALIGNED_ADDRESS "misaligned address"
    CUDA_ERROR_LAUNCH_FAILED "unspecified launch failure"
    CUDA_ERROR_NOT_SUPPORTED "operation not supported"
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED "operation not permitted when stream is capturing"
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED "operation failed due to a previous error during capture"
    CUDA_ERROR_STREAM_CAPTURE_MERGE "operation would result in a merge of separate capture sequences"
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED "capture was not ended in the same stream as it began"
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED "capturing stream has unjoined work"
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION "dependency created on uncaptured work in another stream"
    CUDA_ERROR_CAPTURED_EVENT "operation not permitted on an event last recorded in a capturing stream"
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE "the graph update was not performed because it included changes which violated constraints specific to instantiated graph update"
    CUDA_ERROR_INVALID_CLUSTER_SIZE "cluster size too large or not supported"
    CUDA_ERROR_UNKNOWN "unknown error"
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(code: CUresult, text: *mut *const c_char) -> CUresult {
    answer(|| give(text, words(code).ok_or(WRONG)?.1.as_ptr().cast()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(code: CUresult, text: *mut *const c_char) -> CUresult {
    answer(|| give(text, words(code).ok_or(WRONG)?.0.as_ptr().cast()))
}
