//! Finding the driver, and its errors in words.

use std::ffi::CStr;
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUresult};

use super::info::GpuInfo;
use crate::diag::Error;
use crate::target::GpuTarget;

/// The oldest driver that reads any PTX we write (8.0), as CUDA counts: 12.0.
const OLDEST_DRIVER: u32 = GpuTarget::SM_80.driver_version;

/// The driver of this machine, with at least one device.
#[derive(Debug)]
pub(super) struct Driver {
    /// CUDA's version, such as 13000 for 13.0.
    pub(super) version: u32,
    /// The number of devices.
    pub(super) device_count: u32,
}

/// The driver, looked for once.
pub(super) fn get() -> Result<&'static Driver, Error> {
    static DRIVER: OnceLock<Result<Driver, Error>> = OnceLock::new();
    DRIVER.get_or_init(find).as_ref().map_err(Error::clone)
}

/// Keeps the driver's library for good. The look for it below would load and unload it: what the first copy
/// left to be called at the end of the process would be gone where the next one lies elsewhere.
fn pin() {
    for name in ["libcuda.so", "libcuda.so.1"] {
        // SAFETY: loading the driver's library runs its initialisers, as any use of a GPU does.
        if let Ok(library) = unsafe { libloading::Library::new(name) } {
            std::mem::forget(library);
            return;
        }
    }
}

fn find() -> Result<Driver, Error> {
    pin();
    // SAFETY: loading the driver's library runs its initialisers, as any use of a GPU does.
    if !unsafe { sys::is_culib_present() } {
        return Err(Error::device(
            "no NVIDIA driver was found (libcuda.so); everything runs on the CPU",
        ));
    }
    let mut version = 0;
    // SAFETY: the library is there; this call is allowed before cuInit.
    check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version) })?;
    let version = version.unsigned_abs();
    if version < OLDEST_DRIVER {
        return Err(Error::device(too_old(version)));
    }
    // SAFETY: the library is there.
    check("cuInit", unsafe { sys::cuInit(0) })?;
    let mut count = 0;
    // SAFETY: the driver is initialised.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
    match count.unsigned_abs() {
        0 => Err(Error::device("the NVIDIA driver is there, but it sees no GPU")),
        device_count => Ok(Driver { version, device_count }),
    }
}

fn too_old(version: u32) -> String {
    format!(
        "the NVIDIA driver is too old: it has CUDA {}.{}, at least {}.{} (driver 525) is needed",
        version / 1000,
        version % 1000 / 10,
        OLDEST_DRIVER / 1000,
        OLDEST_DRIVER % 1000 / 10
    )
}

/// The driver's handle of a device.
pub(super) fn device_handle(number: u32) -> Result<sys::CUdevice, Error> {
    let mut handle = 0;
    // SAFETY: the driver is initialised; it refuses a number out of range.
    check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut handle, number as i32) })?;
    Ok(handle)
}

/// What a device is; refuses one that is too old for the code we make.
pub(super) fn device_info(driver: &Driver, handle: sys::CUdevice) -> Result<GpuInfo, Error> {
    let name = device_name(handle)?;
    let capability = (
        attribute(handle, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        attribute(handle, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    );
    let Some(mut target) = GpuTarget::for_device(capability, driver.version) else {
        return Err(Error::device(format!(
            "{name} has compute capability {}.{}, at least 8.0 is needed",
            capability.0, capability.1
        )));
    };
    target.features.max_shared_bytes =
        attribute(handle, Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
    let mut memory_bytes = 0;
    // SAFETY: the handle is of a device of this driver.
    let result = unsafe { sys::cuDeviceTotalMem_v2(&mut memory_bytes, handle) };
    check("cuDeviceTotalMem", result)?;
    Ok(GpuInfo {
        name,
        capability,
        target,
        memory_bytes,
        multiprocessors: attribute(handle, Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        driver_version: driver.version,
    })
}

fn device_name(handle: sys::CUdevice) -> Result<String, Error> {
    let mut bytes = [0u8; 256];
    // One less than the buffer, so that a nul stands at its end whatever the driver does.
    let len = bytes.len() as i32 - 1;
    // SAFETY: the buffer has `len` bytes and more.
    let result = unsafe { sys::cuDeviceGetName(bytes.as_mut_ptr().cast(), len, handle) };
    check("cuDeviceGetName", result)?;
    let name = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    Ok(name.to_string_lossy().into_owned())
}

fn attribute(handle: sys::CUdevice, attribute: Attribute) -> Result<u32, Error> {
    let mut value = 0;
    // SAFETY: the handle is of a device of this driver.
    let result = unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, handle) };
    check("cuDeviceGetAttribute", result)?;
    Ok(value.unsigned_abs())
}

/// The error of a driver call before there is a device to blame.
pub(super) fn check(call: &str, result: CUresult) -> Result<(), Error> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        _ => Err(Error::device(format!("CUDA: {call}: {}", describe(result)))),
    }
}

/// An error in the driver's words: `CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access ..`
pub(super) fn describe(result: CUresult) -> String {
    let mut text = std::ptr::null();
    // SAFETY: the out pointer is ours; the text is static.
    let found = unsafe { sys::cuGetErrorString(result, &mut text) };
    if found != CUresult::CUDA_SUCCESS || text.is_null() {
        return describe_code(result as u32);
    }
    // SAFETY: the driver gave a static text that ends in a nul.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    format!("{text} (CUDA error {})", result as u32)
}

/// The errors after which a context is broken for good, with what they mean.
const STICKY: [(CUresult, &str); 14] = [
    (CUresult::CUDA_ERROR_DEINITIALIZED, "the driver is shutting down"),
    (CUresult::CUDA_ERROR_ECC_UNCORRECTABLE, "the GPU's memory failed"),
    (CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE, "NVLink failed"),
    (CUresult::CUDA_ERROR_CONTAINED, "the GPU's memory failed and the error was contained"),
    (CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "a kernel accessed memory that is not there"),
    (CUresult::CUDA_ERROR_LAUNCH_TIMEOUT, "a kernel ran too long"),
    (CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED, "the GPU's context is gone"),
    (CUresult::CUDA_ERROR_ASSERT, "an assertion in a kernel failed"),
    (CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR, "the stack of a kernel is broken"),
    (CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION, "a kernel ran an instruction that does not exist"),
    (CUresult::CUDA_ERROR_MISALIGNED_ADDRESS, "a kernel accessed a misaligned address"),
    (CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE, "a kernel accessed the wrong kind of memory"),
    (CUresult::CUDA_ERROR_INVALID_PC, "a kernel jumped to nowhere"),
    (CUresult::CUDA_ERROR_LAUNCH_FAILED, "a kernel failed while it ran, perhaps in an assertion"),
];

/// Whether a context is broken for good after this error.
pub(super) fn is_sticky(result: CUresult) -> bool {
    STICKY.iter().any(|&(sticky, _)| sticky == result)
}

/// An error by number, in words where we have them.
pub(super) fn describe_code(code: u32) -> String {
    match STICKY.iter().find(|&&(sticky, _)| sticky as u32 == code) {
        Some((_, text)) => format!("{text} (CUDA error {code})"),
        None => format!("CUDA error {code}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_out_of_memory_breaks_nothing() {
        assert!(!is_sticky(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        assert!(!is_sticky(CUresult::CUDA_ERROR_INVALID_VALUE));
        assert!(is_sticky(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
    }

    #[test]
    fn says_which_driver_is_needed() {
        assert_eq!(
            too_old(11_080),
            "the NVIDIA driver is too old: it has CUDA 11.8, at least 12.0 (driver 525) is needed"
        );
        assert_eq!(describe_code(716), "a kernel accessed a misaligned address (CUDA error 716)");
    }
}
