//! Weights from GGUF's blocks.

use genesis_kernel::runtime::Device;

use super::parts::Planes;
use super::{BlockType, QuantizedWeight};
use crate::error::{Error, Result};

impl QuantizedWeight {
    /// A weight of this shape from a GGUF file's blocks, row after row.
    ///
    /// # Errors
    /// If rows are not made of whole blocks, or the bytes are not those of the shape.
    #[track_caller]
    pub fn from_ggml(
        blocks: &[u8],
        ty: BlockType,
        shape: [usize; 2],
        device: Device,
    ) -> Result<QuantizedWeight> {
        let (form, [m, k]) = (ty.form(), shape);
        if !k.is_multiple_of(form.block) {
            let message = format!("rows of {k} are not made of blocks of {}", form.block);
            return Err(Error::op("from_ggml", message));
        }
        let bytes_of_row = (k / form.block).saturating_mul(form.bytes);
        if m.checked_mul(bytes_of_row) != Some(blocks.len()) {
            let message = format!("{} bytes are not {shape:?} of {ty:?}", blocks.len());
            return Err(Error::op("from_ggml", message));
        }
        let mut planes = Planes::new(shape, form.group, (form.bits, form.zero), form.has_mins);
        let groups = form.block / form.group;
        planes.fill(|row, out| {
            let blocks = blocks[row * bytes_of_row..][..bytes_of_row].chunks_exact(form.bytes);
            let codes = out.codes.chunks_exact_mut(form.block);
            let mut mins = out.mins.chunks_exact_mut(groups);
            for ((block, codes), scales) in
                blocks.zip(codes).zip(out.scales.chunks_exact_mut(groups))
            {
                ty.unpack(block, codes, scales, mins.next().unwrap_or_default());
            }
        });
        planes.upload(device, form.is_half)
    }
}
