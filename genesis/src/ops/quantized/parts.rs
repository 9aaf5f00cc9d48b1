//! Codes, scales and minimums on the host, and their packing to the layout that kernels read.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::{Device, share_items};
use half::f16;

use super::QuantizedWeight;
use crate::error::Result;
use crate::parameter::Buffer;
use crate::tensor::Tensor;

/// A quantized weight on the host. Codes of 4 bits lie two in a byte: group `g` of the first half of a row,
/// and group `g` of the second.
pub(super) struct Planes {
    shape: [usize; 2],
    lanes: usize,
    bits: u32,
    zero: u8,
    /// Whether all groups of a row get one scale.
    pub(super) is_by_row: bool,
    codes: Vec<u8>,
    scales: Vec<f32>,
    mins: Vec<f32>,
}

/// One row, a byte a code.
pub(super) struct Row<'a> {
    pub(super) codes: &'a mut [u8],
    pub(super) scales: &'a mut [f32],
    pub(super) mins: &'a mut [f32],
}

/// Rows that a thread takes at least.
const FEW: usize = 16;

impl Planes {
    /// Room for a weight of this shape, in groups of `lanes`. Codes of up to 4 bits share bytes where a row has an
    /// even number of groups.
    pub(super) fn new(
        shape: [usize; 2],
        lanes: usize,
        (bits, zero): (u32, u8),
        has_mins: bool,
    ) -> Planes {
        let groups = shape[1] / lanes;
        let bits = if bits <= 4 && groups.is_multiple_of(2) { 4 } else { 8 };
        let count = shape[0] * groups;
        let mins = if has_mins { vec![0.0; count] } else { Vec::new() };
        let codes = vec![0; count * lanes * bits as usize / 8];
        let scales = vec![0.0; count];
        Planes { shape, lanes, bits, zero, is_by_row: false, codes, scales, mins }
    }

    /// Fills every row by a function of its number.
    pub(super) fn fill(&mut self, row: impl Fn(usize, Row<'_>) + Sync) {
        let k = self.shape[1];
        let groups = k / self.lanes;
        if groups == 0 || self.shape[0] == 0 {
            return;
        }
        let bytes = k * self.bits as usize / 8;
        let mut mins = self.mins.chunks_exact_mut(groups);
        let codes = self.codes.chunks_exact_mut(bytes);
        let scales = self.scales.chunks_exact_mut(groups);
        let items: Vec<_> = codes.zip(scales).enumerate().map(|i| (i, mins.next())).collect();
        let is_packed = self.bits == 4;
        share_items(items, FEW, |((number, (bytes, scales)), mins)| {
            let mins = mins.unwrap_or_default();
            if !is_packed {
                return row(number, Row { codes: bytes, scales, mins });
            }
            let mut codes = vec![0; k];
            row(number, Row { codes: &mut codes, scales, mins });
            let (first, second) = codes.split_at(k / 2);
            for ((byte, low), high) in bytes.iter_mut().zip(first).zip(second) {
                *byte = low | high << 4;
            }
        });
    }

    /// The weight on a device; scales are stored as f16 where that is what they are.
    pub(super) fn upload(self, device: Device, is_half: bool) -> Result<QuantizedWeight> {
        let [m, k] = self.shape;
        let groups = k / self.lanes;
        let parts = if self.bits == 4 { 2 } else { 1 };
        let numbers = |values: &[f32]| {
            let shape = [m, parts, groups / parts];
            if is_half {
                let halves: Vec<f16> = values.iter().map(|&v| f16::from_f32(v)).collect();
                return Tensor::from_slice_on(&halves, &shape, device);
            }
            Tensor::from_slice_on(values, &shape, device)
        };
        let codes =
            Tensor::from_bytes(&self.codes, &[m, groups / parts, self.lanes], (DType::U8, device))?;
        let mins = if self.mins.is_empty() { None } else { Some(numbers(&self.mins)?) };
        Ok(QuantizedWeight {
            codes: Buffer::transient(codes),
            scales: Buffer::transient(numbers(&self.scales)?),
            mins: mins.map(Buffer::transient),
            zero: self.zero,
            is_by_row: self.is_by_row,
            shape: self.shape,
        })
    }
}
