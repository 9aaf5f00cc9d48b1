//! Memory: allocations, pinned memory, address ranges.

use std::ffi::{c_uint, c_ulonglong, c_void};

use cudarc::driver::sys::{
    CUdeviceptr, CUmemAccess_flags_enum, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUpointer_attribute, CUresult,
};

use super::{WRONG, answer, give, handle, number};
use crate::answer::Answer;
use crate::driver::{Driver, OPTIONS, context_of, lock};
use crate::memory::Home;
use crate::run::finish_device;

/// Bytes that physical memory is a multiple of.
const GRANULARITY: usize = 2 << 20;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult {
    answer(|| {
        let driver = lock();
        let (free_bytes, total_bytes) = driver.memory.info(driver.device()?);
        give(free, free_bytes)?;
        give(total, total_bytes)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) -> CUresult {
    answer(|| {
        let mut driver = lock();
        let device = driver.device()?;
        driver.refuse_unsafe()?;
        let found = driver.memory.alloc(device, bytes)?;
        give(address, found)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFree_v2(address: CUdeviceptr) -> CUresult {
    answer(|| {
        if address == 0 {
            return Ok(());
        }
        wait_for_all(|driver| driver.device().map(Some))?;
        lock().memory.free(address)
    })
}

/// What frees memory waits for the kernels that may use it.
fn wait_for_all(device: impl FnOnce(&Driver) -> Answer<Option<u32>>) -> Answer<()> {
    let device = {
        let mut driver = lock();
        let device = device(&driver)?;
        driver.refuse_unsafe()?;
        device
    };
    finish_device(device);
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostAlloc(
    address: *mut *mut c_void,
    bytes: usize,
    _flags: c_uint,
) -> CUresult {
    answer(|| {
        let mut driver = lock();
        driver.device()?;
        driver.refuse_unsafe()?;
        let found = driver.memory.alloc_host(bytes)?;
        give(address, handle(found))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocHost_v2(address: *mut *mut c_void, bytes: usize) -> CUresult {
    cuMemHostAlloc(address, bytes, 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFreeHost(address: *mut c_void) -> CUresult {
    answer(|| {
        wait_for_all(|_| Ok(None))?;
        lock().memory.unregister_host(number(address), true)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostRegister_v2(
    address: *mut c_void,
    bytes: usize,
    _flags: c_uint,
) -> CUresult {
    answer(|| lock().memory.register_host(number(address), bytes))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostUnregister(address: *mut c_void) -> CUresult {
    answer(|| {
        wait_for_all(|_| Ok(None))?;
        lock().memory.unregister_host(number(address), false)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostGetDevicePointer_v2(
    device: *mut CUdeviceptr,
    address: *mut c_void,
    _flags: c_uint,
) -> CUresult {
    answer(|| match lock().memory.is_pinned(number(address), 1) {
        true => give(device, number(address)),
        false => Err(WRONG),
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuPointerGetAttribute(
    data: *mut c_void,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
) -> CUresult {
    use CUpointer_attribute as A;
    answer(|| {
        let (home, start, bytes) = lock().memory.describe(address).ok_or(WRONG)?;
        let device = match home {
            Home::Device(device) => device,
            Home::Host => 0,
        };
        match attribute {
            A::CU_POINTER_ATTRIBUTE_CONTEXT => give(data.cast(), context_of(device)),
            // Host memory is 1, a device's 2.
            A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => {
                give(data.cast(), if home == Home::Host { 1u32 } else { 2 })
            }
            A::CU_POINTER_ATTRIBUTE_DEVICE_POINTER => give(data.cast(), address),
            A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => give(data.cast(), device),
            A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => give(data.cast(), start),
            A::CU_POINTER_ATTRIBUTE_RANGE_SIZE => give(data.cast(), bytes),
            _ => Err(WRONG),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetAllocationGranularity(
    granularity: *mut usize,
    _properties: *const CUmemAllocationProp,
    _option: CUmemAllocationGranularity_flags,
) -> CUresult {
    answer(|| give(granularity, GRANULARITY))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAddressReserve(
    address: *mut CUdeviceptr,
    bytes: usize,
    alignment: usize,
    _wish: CUdeviceptr,
    _flags: c_ulonglong,
) -> CUresult {
    answer(|| {
        let found = lock().memory.reserve(bytes, alignment as u64)?;
        give(address, found)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAddressFree(address: CUdeviceptr, bytes: usize) -> CUresult {
    answer(|| lock().memory.unreserve(address, bytes))
}

fn known_device(id: i32) -> Answer<u32> {
    let device = u32::try_from(id).ok().filter(|&id| id < OPTIONS.devices);
    device.ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemCreate(
    memory: *mut CUmemGenericAllocationHandle,
    bytes: usize,
    properties: *const CUmemAllocationProp,
    _flags: c_ulonglong,
) -> CUresult {
    answer(|| {
        let device = known_device(properties.as_ref().ok_or(WRONG)?.location.id)?;
        let mut driver = lock();
        driver.alive(device)?;
        let new = driver.handle();
        driver.memory.create(device, bytes, new)?;
        give(memory, new)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemRelease(memory: CUmemGenericAllocationHandle) -> CUresult {
    answer(|| lock().memory.release(memory))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemMap(
    address: CUdeviceptr,
    bytes: usize,
    offset: usize,
    memory: CUmemGenericAllocationHandle,
    _flags: c_ulonglong,
) -> CUresult {
    answer(|| lock().memory.map(address, bytes, offset, memory))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemUnmap(address: CUdeviceptr, bytes: usize) -> CUresult {
    answer(|| lock().memory.unmap(address, bytes))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemSetAccess(
    address: CUdeviceptr,
    bytes: usize,
    wishes: *const CUmemAccessDesc,
    count: usize,
) -> CUresult {
    answer(|| {
        if wishes.is_null() {
            return Err(WRONG);
        }
        let mut driver = lock();
        for wish in std::slice::from_raw_parts(wishes, count) {
            let device = known_device(wish.location.id)?;
            let may = wish.flags == CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
            driver.memory.set_access(address, bytes, device, may)?;
        }
        Ok(())
    })
}
