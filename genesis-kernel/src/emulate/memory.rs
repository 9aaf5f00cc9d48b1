//! Global memory: buffers far apart, and tensors that maps describe.

use super::shadow::Shadow;
use crate::ir::{DType, TensorMap};
use crate::kernel::ArgValue;

/// Buffers lie in the middle of as many bytes each, so that an index that runs off one never lands in
/// another.
const SPACE: u64 = 1 << 40;

/// Memory of a kernel's argument.
#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
    writable: bool,
    /// What the threads of a block do there; none where nobody writes.
    pub(super) shadow: Option<Shadow>,
}

/// All buffers.
#[derive(Debug, Default)]
pub(super) struct Global {
    pub(super) buffers: Vec<Buffer>,
}

fn start(number: usize) -> u64 {
    (number as u64 + 1) * SPACE + SPACE / 2
}

impl Global {
    pub(super) fn add(&mut self, name: String, bytes: Vec<u8>, writable: bool) -> u64 {
        let shadow = writable.then(|| Shadow::new(bytes.len(), true));
        self.buffers.push(Buffer { name, bytes, writable, shadow });
        start(self.buffers.len() - 1)
    }

    /// The buffer at an address.
    pub(super) fn at(&self, address: u64) -> Option<&Buffer> {
        self.buffers.get(((address / SPACE) as usize).checked_sub(1)?)
    }

    /// The buffer and the bytes of it that an access means, or why there are none.
    pub(super) fn find(
        &mut self,
        address: u64,
        bytes: u32,
        write: bool,
    ) -> Result<(&mut Buffer, usize), String> {
        let number = (address / SPACE) as usize;
        let buffer = number.checked_sub(1).and_then(|number| self.buffers.get_mut(number));
        let buffer = buffer.ok_or_else(|| format!("{address:#x} is no address of a buffer"))?;
        let offset = (address % SPACE) as i64 - (SPACE / 2) as i64;
        let (name, len) = (&buffer.name, buffer.bytes.len());
        if offset < 0 || offset as u64 + u64::from(bytes) > len as u64 {
            return Err(format!("bytes {offset}.. + {bytes} of `{name}`, which has {len}"));
        }
        if write && !buffer.writable {
            return Err(format!("a write to `{name}`, which is only read"));
        }
        Ok((buffer, offset as usize))
    }

    pub(super) fn enter(&mut self, run: u32) {
        self.buffers.iter_mut().filter_map(|b| b.shadow.as_mut()).for_each(|s| s.enter(run));
    }
}

/// A tensor as the copy engine sees it.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub(super) dtype: DType,
    pub(super) address: u64,
    /// Extents along the axes of the map, the contiguous one first.
    extents: Vec<i64>,
    /// Bytes from one to the next.
    strides: Vec<i64>,
    /// The box of one copy.
    pub(super) block: Vec<u32>,
    pub(super) swizzle: u32,
    /// Whether f32 is rounded on its way.
    pub(super) tf32: bool,
}

/// An element of a box: where it is in shared memory from the start of the box, before the swizzle, and
/// its address; none outside of the tensor.
pub(super) type Place = (u32, Option<u64>);

impl Tensor {
    /// What a map says of the kernel's argument.
    pub(super) fn new(map: &TensorMap, args: &[ArgValue]) -> Result<Tensor, String> {
        let Some(ArgValue::View { ptr, dims, strides }) = args.get(map.param as usize) else {
            return Err(format!("parameter {} of a tensor map is no view", map.param));
        };
        let size = map.dtype.bytes() as i64;
        let pick = |from: &[i64], scale: i64| -> Vec<i64> {
            map.axes.iter().map(|&axis| from.get(axis as usize).map_or(1, |n| n * scale)).collect()
        };
        Ok(Tensor {
            dtype: map.dtype,
            address: *ptr,
            extents: pick(dims, 1),
            strides: pick(strides, size),
            block: map.block.clone(),
            swizzle: map.swizzle,
            tf32: map.tf32,
        })
    }

    /// Bytes of a box.
    pub(super) fn bytes(&self) -> u32 {
        self.block.iter().product::<u32>() * self.dtype.bytes() as u32
    }

    /// The elements of the box at some coordinates.
    pub(super) fn places(&self, coordinates: &[i64]) -> Vec<Place> {
        let count = self.block.iter().product::<u32>();
        let size = self.dtype.bytes() as u32;
        let place = |number: u32| {
            let mut rest = number;
            let mut address = Some(self.address);
            for (axis, &extent) in self.block.iter().enumerate() {
                let at = coordinates.get(axis).copied().unwrap_or(0) + i64::from(rest % extent);
                rest /= extent;
                let inside = (0..self.extents[axis]).contains(&at);
                address = address
                    .filter(|_| inside)
                    .map(|address| address.wrapping_add_signed(at * self.strides[axis]));
            }
            (number * size, address)
        };
        (0..count).map(place).collect()
    }
}

/// Where the hardware's swizzle puts a byte: bits 4.. are XORed by bits 7.., as many as a row of
/// this many bytes has units of 16.
pub(super) fn swizzled(address: u32, width: u32) -> u32 {
    match width {
        32 | 64 | 128 => address ^ address >> 3 & (width - 16),
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_reach_over_the_edge() {
        let map = TensorMap {
            param: 0,
            dtype: DType::BF16,
            axes: vec![1, 0],
            block: vec![4, 2],
            swizzle: 0,
            tf32: false,
        };
        let view = ArgValue::View { ptr: 1000, dims: vec![3, 6], strides: vec![6, 1] };
        let tensor = Tensor::new(&map, &[view]).unwrap();
        let places = tensor.places(&[4, 2]);
        assert_eq!(places[1], (2, Some(1000 + 2 * (2 * 6 + 5))));
        assert_eq!((places[2], places[4]), ((4, None), (8, None)));
    }

    #[test]
    fn rows_of_eight_are_permuted() {
        assert_eq!(swizzled(128 * 3 + 16, 128), 128 * 3 + (16 ^ 48));
        assert_eq!(swizzled(64 * 2, 64), 64 * 2 + 16);
        assert_eq!(swizzled(128, 32), 128 + 16);
    }
}
