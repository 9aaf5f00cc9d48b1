//! Quantization: rounding a weight to codes, with a scale a group.
//!
//! ```text
//! without zero points    scale = max |w| / 127 (or 7)             code = round(w / scale) + 128 (or 8)
//! with zero points       scale = (max w - min w) / 255 (or 15)    code = round((w - min w) / scale)
//! ```
//!
//! Without, 0 stays 0 and a group has one number beside its codes. With, the codes go from the least weight of
//! the group to its greatest: half the step where a group's weights lie to one side.

use super::QuantizedWeight;
use super::parts::Planes;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// How [`QuantizedWeight::quantize`] rounds a weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuantScheme {
    /// Bits of a code: 4 or 8.
    pub bits: u32,
    /// Weights along a row that share a scale; none where all of a row do.
    pub group: Option<usize>,
    /// Whether a group has a minimum beside its scale.
    pub zero_points: bool,
}

impl QuantScheme {
    /// 8 bits and a scale for each row.
    pub const INT8: QuantScheme = QuantScheme { bits: 8, group: None, zero_points: false };
    /// 4 bits and a scale for each 128 weights.
    pub const INT4: QuantScheme = QuantScheme { bits: 4, group: Some(128), zero_points: false };
}

const NAME: &str = "quantize";
/// The longest group that a kernel takes as one.
const LONGEST: usize = 256;

impl QuantizedWeight {
    /// Rounds a weight to codes, on the device where it is.
    ///
    /// # Shapes
    /// `[M, K]`, of which K is a multiple of the group, or of 32 where a row is one.
    /// # Errors
    /// If the weight is not of that shape or not of floats, a number is not finite, or the bits or the group are
    /// others than 4 or 8, and a multiple of 16 up to 256.
    #[track_caller]
    pub fn quantize(weight: &Tensor, scheme: QuantScheme) -> Result<QuantizedWeight> {
        let &[m, k] = weight.shape() else {
            let message = format!("the weight must be [M, K], got {:?}", weight.shape());
            return Err(Error::op(NAME, message));
        };
        if !matches!(scheme.bits, 4 | 8) {
            return Err(Error::op(NAME, format!("codes have 4 or 8 bits, not {}", scheme.bits)));
        }
        let lanes = scheme.group.unwrap_or(32);
        if lanes == 0 || lanes > LONGEST || !lanes.is_multiple_of(16) {
            let message = format!("a group has a multiple of 16 up to {LONGEST}, not {lanes}");
            return Err(Error::op(NAME, message));
        }
        if !k.is_multiple_of(lanes) {
            return Err(Error::op(NAME, format!("rows of {k} are not made of groups of {lanes}")));
        }
        let values = weight.detach().to_dtype(crate::DType::F32)?.contiguous()?;
        let values = values.to_device(crate::Device::Cpu)?.to_vec::<f32>()?;
        if let Some(wrong) = values.iter().find(|w| !w.is_finite()) {
            return Err(Error::op(NAME, format!("a weight is {wrong}")));
        }
        let levels = if scheme.bits == 4 { 15.0 } else { 255.0 };
        let middle = if scheme.bits == 4 { 8 } else { 128 };
        let zero = if scheme.zero_points { 0 } else { middle };
        let mut planes = Planes::new([m, k], lanes, (scheme.bits, zero), scheme.zero_points);
        planes.is_by_row = scheme.group.is_none();
        let length = scheme.group.unwrap_or(k.max(1));
        let each = length / lanes;
        planes.fill(|row, out| {
            let row = &values[row * k..][..k];
            for (i, group) in row.chunks_exact(length).enumerate() {
                let codes = &mut out.codes[i * length..][..length];
                let (scale, min) = round(group, codes, levels, scheme.zero_points);
                out.scales[i * each..][..each].fill(scale);
                if scheme.zero_points {
                    out.mins[i * each..][..each].fill(min);
                }
            }
        });
        planes.upload(weight.device(), false)
    }
}

/// Rounds a group; its scale and its minimum.
fn round(group: &[f32], codes: &mut [u8], levels: f32, zero_points: bool) -> (f32, f32) {
    let (low, middle) = match zero_points {
        true => (group.iter().copied().fold(f32::INFINITY, f32::min), 0.0),
        false => (0.0, (levels + 1.0) / 2.0),
    };
    let size = match zero_points {
        // Halves, so that the difference is finite.
        true => group.iter().fold(0.0f32, |most, w| most.max(w / 2.0 - low / 2.0)) / (levels / 2.0),
        false => group.iter().fold(0.0f32, |most, w| most.max(w.abs())) / (middle - 1.0),
    };
    for (code, w) in codes.iter_mut().zip(group) {
        let steps = if size > 0.0 { w / size - low / size } else { 0.0 };
        *code = (steps + middle).round().clamp(0.0, levels) as u8;
    }
    (size, low)
}
