//! Devices and contexts.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_uint};

use cudarc::driver::sys::{CUcontext, CUdevice, CUdevice_attribute, CUresult, CUuuid};

use super::{WRONG, answer, give, give_text, handle, number};
use crate::answer::Answer;
use crate::code::{MAX_THREADS, MULTIPROCESSORS, SHARED, SHARED_OF_ALL, SHARED_OPT_IN};
use crate::driver::{OPTIONS, context_of, current, current_context, device_of, lock, set_current};

/// The version of CUDA that the driver is said to have.
const VERSION: c_int = 13_000;

thread_local! {
    /// Contexts that others were pushed over.
    static PUSHED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

fn check(device: CUdevice) -> Answer<u32> {
    let found = u32::try_from(device).ok().filter(|&n| n < OPTIONS.devices);
    found.ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuInit(_flags: c_uint) -> CUresult {
    CUresult::CUDA_SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> CUresult {
    answer(|| give(version, VERSION))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> CUresult {
    answer(|| give(count, OPTIONS.devices as c_int))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> CUresult {
    answer(|| give(device, check(ordinal)? as CUdevice))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, room: c_int, device: CUdevice) -> CUresult {
    answer(|| {
        check(device)?;
        give_text(name, room, "virtual H200")
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice) -> CUresult {
    answer(|| {
        let mut bytes = *b"virtual GPU    0";
        bytes[15] += check(device)? as u8;
        give(uuid, CUuuid { bytes: bytes.map(|byte| byte as c_char) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetPCIBusId(
    text: *mut c_char,
    room: c_int,
    device: CUdevice,
) -> CUresult {
    answer(|| give_text(text, room, &format!("0000:{:02x}:00.0", check(device)? + 1)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) -> CUresult {
    answer(|| {
        check(device)?;
        give(bytes, OPTIONS.memory)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: CUdevice_attribute,
    device: CUdevice,
) -> CUresult {
    answer(|| {
        let device = check(device)?;
        give(value, attribute_of(attribute, device))
    })
}

/// What an H200 says; 0 for what nobody asked for yet.
fn attribute_of(attribute: CUdevice_attribute, device: u32) -> c_int {
    use CUdevice_attribute as A;
    match attribute {
        A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => 9,
        A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => 0,
        A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => MULTIPROCESSORS as c_int,
        A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK => SHARED as c_int,
        A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => SHARED_OPT_IN as c_int,
        A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => SHARED_OF_ALL as c_int,
        A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK => MAX_THREADS as c_int,
        A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR => 2048,
        A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK
        | A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR => 65_536,
        A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X => c_int::MAX,
        A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y | A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z => 65_535,
        A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X | A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y => 1024,
        A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z => 64,
        A::CU_DEVICE_ATTRIBUTE_WARP_SIZE => 32,
        A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE => 1_980_000,
        A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE => 3_201_000,
        A::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH => 6144,
        A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE => 60 << 20,
        A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => device as c_int + 1,
        A::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
        | A::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY
        | A::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS
        | A::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH
        | A::CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        | A::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH
        | A::CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED => 1,
        A::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT => 3,
        _ => 0,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceCanAccessPeer(
    can: *mut c_int,
    device: CUdevice,
    peer: CUdevice,
) -> CUresult {
    answer(|| give(can, c_int::from(check(device)? != check(peer)?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxEnablePeerAccess(peer: CUcontext, _flags: c_uint) -> CUresult {
    answer(|| {
        let mut driver = lock();
        let device = driver.device()?;
        driver.memory.enable_peer(device, device_of(number(peer))?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxDisablePeerAccess(peer: CUcontext) -> CUresult {
    answer(|| {
        let mut driver = lock();
        let device = driver.device()?;
        driver.memory.disable_peer(device, device_of(number(peer))?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(
    context: *mut CUcontext,
    device: CUdevice,
) -> CUresult {
    answer(|| {
        let device = check(device)?;
        lock().devices[device as usize].retained += 1;
        give(context, handle(context_of(device)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> CUresult {
    answer(|| {
        let device = check(device)?;
        let retained = &mut lock().devices[device as usize].retained;
        *retained = retained.checked_sub(1).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxGetState(
    device: CUdevice,
    flags: *mut c_uint,
    active: *mut c_int,
) -> CUresult {
    answer(|| {
        let device = check(device)?;
        give(flags, 0)?;
        give(active, c_int::from(lock().devices[device as usize].retained > 0))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxSetCurrent(context: CUcontext) -> CUresult {
    answer(|| set_current(number(context)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(context: *mut CUcontext) -> CUresult {
    answer(|| give(context, handle(current_context())))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxPushCurrent_v2(context: CUcontext) -> CUresult {
    answer(|| {
        let before = current_context();
        set_current(number(context))?;
        PUSHED.with_borrow_mut(|pushed| pushed.push(before));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut CUcontext) -> CUresult {
    answer(|| {
        let before =
            PUSHED.with_borrow_mut(Vec::pop).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        if !context.is_null() {
            give(context, handle(current_context()))?;
        }
        set_current(before)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetDevice(device: *mut CUdevice) -> CUresult {
    answer(|| give(device, current()? as CUdevice))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetStreamPriorityRange(
    least: *mut c_int,
    greatest: *mut c_int,
) -> CUresult {
    answer(|| {
        current()?;
        for (to, value) in [(least, 0), (greatest, -5)] {
            if !to.is_null() {
                give(to, value)?;
            }
        }
        if least.is_null() && greatest.is_null() { Err(WRONG) } else { Ok(()) }
    })
}
