//! Launches, what fits on a device, and tensor maps.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{
    CUfunction, CUlaunchConfig, CUresult, CUstream, CUtensorMap, CUtensorMapDataType,
    CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion, CUtensorMapSwizzle,
    cuuint32_t, cuuint64_t,
};
use genesis_emulator::Tensor;

use super::{WRONG, answer, give, number};
use crate::answer::Answer;
use crate::code::{Function, MULTIPROCESSORS, Size};
use crate::driver::{OPTIONS, lock};
use crate::stream::enqueue;
use crate::work::Work;

fn find(function: CUfunction) -> Answer<Function> {
    let found = lock().functions.get(&number(function)).cloned();
    found.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

unsafe fn launch(
    function: CUfunction,
    size: Size,
    stream: CUstream,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Answer<()> {
    if OPTIONS.null {
        return Ok(());
    }
    let function = find(function)?;
    let device = lock().device()?;
    if function.device != device {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    function.check(&size)?;
    let takes = function.code.module.params().next().is_some();
    if !extra.is_null() || takes && params.is_null() {
        return Err(WRONG);
    }
    let launch = function.launch(&size, params.cast_const().cast());
    enqueue(number(stream), Work::Kernel(function.code, Arc::new(launch)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernelEx(
    config: *const CUlaunchConfig,
    function: CUfunction,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    answer(|| {
        let config = config.as_ref().ok_or(WRONG)?;
        let size = Size {
            blocks: [config.gridDimX, config.gridDimY, config.gridDimZ],
            threads: [config.blockDimX, config.blockDimY, config.blockDimZ],
            shared_bytes: config.sharedMemBytes,
        };
        launch(function, size, config.hStream, params, extra)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
    function: CUfunction,
    blocks_x: c_uint,
    blocks_y: c_uint,
    blocks_z: c_uint,
    threads_x: c_uint,
    threads_y: c_uint,
    threads_z: c_uint,
    shared_bytes: c_uint,
    stream: CUstream,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    answer(|| {
        let blocks = [blocks_x, blocks_y, blocks_z];
        let size = Size { blocks, threads: [threads_x, threads_y, threads_z], shared_bytes };
        launch(function, size, stream, params, extra)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    count: *mut c_int,
    function: CUfunction,
    threads: c_int,
    shared_bytes: usize,
) -> CUresult {
    answer(|| {
        let blocks = find(function)?.blocks_at_once(threads as u32, shared_bytes as u32);
        give(count, blocks as c_int)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxActiveClusters(
    count: *mut c_int,
    function: CUfunction,
    config: *const CUlaunchConfig,
) -> CUresult {
    answer(|| {
        let config = config.as_ref().ok_or(WRONG)?;
        let function = find(function)?;
        let each = function.blocks_at_once(config.blockDimX, config.sharedMemBytes);
        let cluster: u32 = function.code.module.cluster().iter().product();
        give(count, (each * MULTIPROCESSORS / cluster.max(1)) as c_int)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuTensorMapEncodeTiled(
    map: *mut CUtensorMap,
    dtype: CUtensorMapDataType,
    rank: cuuint32_t,
    address: *mut c_void,
    extents: *const cuuint64_t,
    strides: *const cuuint64_t,
    block: *const cuuint32_t,
    steps: *const cuuint32_t,
    interleave: CUtensorMapInterleave,
    swizzle: CUtensorMapSwizzle,
    _promotion: CUtensorMapL2promotion,
    _fill: CUtensorMapFloatOOBfill,
) -> CUresult {
    answer(|| {
        let n = rank as usize;
        if !(1..=5).contains(&n) || [extents, strides].iter().any(|list| list.is_null()) {
            return Err(WRONG);
        }
        let (size, tf32) = element(dtype)?;
        let mut all_strides = vec![i64::from(size)];
        let given = std::slice::from_raw_parts(strides, n - 1);
        all_strides.extend(given.iter().map(|&stride| stride as i64));
        let extents = std::slice::from_raw_parts(extents, n);
        let tensor = Tensor {
            size,
            address: number(address),
            extents: extents.iter().map(|&extent| extent as i64).collect(),
            strides: all_strides,
            block: std::slice::from_raw_parts(block, n).to_vec(),
            swizzle: match swizzle {
                CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE => 0,
                CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B => 32,
                CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B => 64,
                CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B => 128,
                _ => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            },
            tf32,
        };
        let steps = std::slice::from_raw_parts(steps, n);
        if interleave != CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE
            || steps.iter().any(|&step| step != 1)
        {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        check(&tensor)?;
        let mut opaque = [0; 16];
        for (word, bytes) in opaque.iter_mut().zip(tensor.to_bytes().chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        give(map, CUtensorMap { opaque })
    })
}

/// What the driver refuses.
fn check(tensor: &Tensor) -> Answer<()> {
    let fits = tensor.address.is_multiple_of(16)
        && tensor.extents.iter().all(|&extent| (1..1 << 32).contains(&extent))
        && tensor.strides[1..].iter().all(|&n| n % 16 == 0 && (0..1 << 40).contains(&n))
        && tensor.block.iter().all(|n| (1..=256).contains(n))
        && (tensor.block[0] * tensor.size).is_multiple_of(16)
        && (tensor.swizzle == 0 || tensor.block[0] * tensor.size <= tensor.swizzle);
    if fits { Ok(()) } else { Err(WRONG) }
}

/// Bytes of an element, and whether it is rounded on its way.
fn element(dtype: CUtensorMapDataType) -> Answer<(u32, bool)> {
    use CUtensorMapDataType as T;
    Ok(match dtype {
        T::CU_TENSOR_MAP_DATA_TYPE_UINT8 => (1, false),
        T::CU_TENSOR_MAP_DATA_TYPE_UINT16
        | T::CU_TENSOR_MAP_DATA_TYPE_FLOAT16
        | T::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 => (2, false),
        T::CU_TENSOR_MAP_DATA_TYPE_UINT32
        | T::CU_TENSOR_MAP_DATA_TYPE_INT32
        | T::CU_TENSOR_MAP_DATA_TYPE_FLOAT32 => (4, false),
        T::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 => (4, true),
        T::CU_TENSOR_MAP_DATA_TYPE_UINT64
        | T::CU_TENSOR_MAP_DATA_TYPE_INT64
        | T::CU_TENSOR_MAP_DATA_TYPE_FLOAT64 => (8, false),
        _ => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
    })
}
