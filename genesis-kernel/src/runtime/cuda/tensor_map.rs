//! Tensor maps: what the copy engine must know of a view, as the driver encodes it.
//!
//! A map is 128 bytes that a kernel takes by value. It depends on the view's address, extents and
//! strides, so it is made at the launch and kept for the next one with the same views.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{
    self, CUresult, CUtensorMap, CUtensorMapDataType as DataType,
    CUtensorMapFloatOOBfill as OobFill, CUtensorMapInterleave as Interleave,
    CUtensorMapL2promotion as Promotion, CUtensorMapSwizzle as Swizzle,
};

use crate::ir::{DType, MAX_RANK, TensorMap};
use crate::runtime::{Arg, ViewArg};

/// Coordinates are signed and 32 bits wide.
const MAX_EXTENT: i64 = i32::MAX as i64;
/// Strides, but the contiguous axis's, are less than this many bytes.
const MAX_STRIDE: i64 = 1 << 40;
/// Bytes that strides are multiples of.
const GRANULE: i64 = 16;
/// Sets of maps that one kernel keeps; a program that uses more views than that makes them anew.
const MAX_KEPT: usize = 512;

/// The most tensor maps of a kernel.
pub(super) const MAX_MAPS: usize = 16;

/// Tensor maps in the order in which a kernel takes them.
pub(crate) type Encoded = Arc<[CUtensorMap]>;

/// The maps of a kernel, made for the views of earlier launches.
#[derive(Debug)]
pub(super) struct TensorMaps {
    maps: Vec<TensorMap>,
    /// By address, extents and strides of each map's view.
    encoded: Mutex<BTreeMap<Box<[u64]>, Encoded>>,
}

impl TensorMaps {
    /// None encoded yet.
    pub(super) fn new(maps: &[TensorMap]) -> TensorMaps {
        TensorMaps { maps: maps.to_vec(), encoded: Mutex::default() }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.maps.is_empty()
    }

    /// The maps for a launch's arguments; none where the copy engine can't address a view.
    pub(super) fn encode(&self, args: &[Arg]) -> Option<Encoded> {
        let mut key = [0; MAX_MAPS * (1 + 2 * MAX_RANK)];
        let mut len = 0;
        for map in &self.maps {
            for word in words(view(args, map)?) {
                *key.get_mut(len)? = word;
                len += 1;
            }
        }
        let key = &key[..len];
        let mut encoded = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = encoded.get(key) {
            return Some(Arc::clone(found));
        }
        let maps = self.maps.iter().map(|map| encode(map, view(args, map)?));
        let maps: Encoded = maps.collect::<Option<Vec<_>>>()?.into();
        if encoded.len() >= MAX_KEPT {
            encoded.clear();
        }
        encoded.insert(key.into(), Arc::clone(&maps));
        Some(maps)
    }
}

fn view<'a>(args: &'a [Arg], map: &TensorMap) -> Option<&'a ViewArg> {
    match args.get(map.param as usize) {
        Some(Arg::View(view)) => Some(view),
        _ => None,
    }
}

fn words(view: &ViewArg) -> impl Iterator<Item = u64> {
    let numbers = view.dims().iter().chain(view.strides()).map(|&number| number as u64);
    [view.ptr.address].into_iter().chain(numbers)
}

/// What a map says of a view, in the order of the map's axes.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Geometry {
    extents: Vec<u64>,
    /// Bytes from one to the next along each axis but the first.
    strides: Vec<u64>,
}

impl Geometry {
    fn of(map: &TensorMap, view: &ViewArg) -> Option<Geometry> {
        let size = map.dtype.bytes() as i64;
        let mut extents = Vec::new();
        let mut strides = Vec::new();
        // Where an axis of extent 1 is, nobody steps along it, and its stride may be anything that
        // the driver takes.
        let mut reach = GRANULE;
        for (number, &axis) in map.axes.iter().enumerate() {
            let extent = *view.dims().get(usize::from(axis))?;
            let stride = view.strides()[usize::from(axis)].checked_mul(size)?;
            if !(1..=MAX_EXTENT).contains(&extent) {
                return None;
            }
            let stride = match (number, extent) {
                (0, 1) => size,
                (_, 1) => reach,
                _ => stride,
            };
            match number {
                0 if stride != size => return None,
                0 => {}
                _ if stride % GRANULE != 0 || !(0..MAX_STRIDE).contains(&stride) => return None,
                _ => strides.push(stride as u64),
            }
            extents.push(extent as u64);
            let end = stride.checked_mul(extent)?.checked_add(GRANULE - 1)? / GRANULE * GRANULE;
            reach = reach.max(end).min(MAX_STRIDE - GRANULE);
        }
        Some(Geometry { extents, strides })
    }
}

fn encode(map: &TensorMap, view: &ViewArg) -> Option<CUtensorMap> {
    let geometry = Geometry::of(map, view)?;
    let dtype = match map.dtype {
        DType::BF16 => DataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        DType::F16 => DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        DType::F32 if map.tf32 => DataType::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
        DType::F32 => DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        DType::F8E4M3 | DType::F8E5M2 | DType::I8 | DType::U8 => {
            DataType::CU_TENSOR_MAP_DATA_TYPE_UINT8
        }
        DType::I16 | DType::U16 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT16,
        DType::I32 => DataType::CU_TENSOR_MAP_DATA_TYPE_INT32,
        DType::U32 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        _ => return None,
    };
    let swizzle = match map.swizzle {
        128 => Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        64 => Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        32 => Swizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        _ => Swizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
    };
    let steps = [1u32; MAX_RANK];
    let mut encoded = CUtensorMap { opaque: [0; 16] };
    // SAFETY: the arrays have as many entries as the map has axes, at most `MAX_RANK`; the driver only
    // reads them, and the address is not followed.
    let result = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut encoded,
            dtype,
            map.axes.len() as u32,
            std::ptr::without_provenance_mut(view.ptr.address as usize),
            geometry.extents.as_ptr(),
            geometry.strides.as_ptr(),
            map.block.as_ptr(),
            steps.as_ptr(),
            Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            OobFill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    (result == CUresult::CUDA_SUCCESS).then_some(encoded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Device, PtrArg};

    fn geometry(axes: &[u8], dims: &[i64], strides: &[i64]) -> Option<Geometry> {
        let ptr = PtrArg {
            device: Device::Cuda(0),
            address: 4096,
            bytes: 1 << 40,
            dtype: DType::BF16,
            mutable: false,
        };
        let (axes, block) = (axes.to_vec(), vec![64, 64, 1]);
        let map =
            TensorMap { param: 0, dtype: DType::BF16, axes, block, swizzle: 128, tf32: false };
        Geometry::of(&map, &ViewArg::new(ptr, dims, strides)?)
    }

    fn known(extents: &[u64], strides: &[u64]) -> Option<Geometry> {
        Some(Geometry { extents: extents.to_vec(), strides: strides.to_vec() })
    }

    #[test]
    fn axes_go_from_the_contiguous_one_outward() {
        let rows = geometry(&[2, 1, 0], &[4, 96, 64], &[6144, 64, 1]);
        assert_eq!(rows, known(&[64, 96, 4], &[128, 12_288]));
        let columns = geometry(&[1, 2, 0], &[4, 96, 64], &[6144, 1, 96]);
        assert_eq!(columns, known(&[96, 64, 4], &[192, 12_288]));
    }

    #[test]
    fn an_axis_of_one_has_any_stride() {
        let one = geometry(&[2, 1, 0], &[1, 96, 64], &[3, 64, 1]);
        assert_eq!(one, known(&[64, 96, 1], &[128, 12_288]));
        assert_eq!(geometry(&[1, 0], &[5, 1], &[8, 3]), known(&[1, 5], &[16]));
    }

    #[test]
    fn what_the_copy_engine_can_not_address() {
        assert_eq!(geometry(&[1, 0], &[5, 0], &[8, 1]), None);
        assert_eq!(geometry(&[1, 0], &[5, 8], &[12, 1]), None);
        assert_eq!(geometry(&[1, 0], &[5, 8], &[-8, 1]), None);
        assert_eq!(geometry(&[1, 0], &[5, 8], &[8, 2]), None);
        assert_eq!(geometry(&[1, 0], &[2, 1 << 31], &[1 << 31, 1]), None);
        assert_eq!(geometry(&[1, 0], &[2, 8], &[1 << 39, 1]), None);
        assert_eq!(geometry(&[2, 0], &[2, 8], &[8, 1]), None);
    }
}
