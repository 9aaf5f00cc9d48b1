//! Weights of 4 and 8 bits, and products with them.
//!
//! A [`QuantizedWeight`] has a code for each weight, and for each group of 16 to 256 weights along a row a scale and
//! maybe a minimum: `w = (code - zero) * scale + min`, in f32. Every type of GGUF's blocks becomes that without
//! loss, once, when it is loaded; [`QuantizedWeight::quantize`] makes one of any weight.
//!
//! | | bytes a weight, scales included |
//! |---|---|
//! | Q4_0, Q4_1 | 0.56, 0.63 |
//! | Q4_K | 0.75 |
//! | Q5_0, Q5_1, Q8_0 | 1.06, 1.13, 1.06 |
//! | Q5_K, Q6_K | 1.25 |
//! | `INT8`, `INT4` | 1.13, 0.53 |
//!
//! ```
//! use genesis::ops::{QuantScheme, QuantizedWeight};
//! use genesis::{Device, Tensor};
//!
//! let row: Vec<f32> = (0..32).map(|i| i as f32 - 16.0).collect();
//! let weight = Tensor::from_slice_on(&row, &[1, 32], Device::Cpu)?;
//! let eight = QuantizedWeight::quantize(&weight, QuantScheme::INT8)?;
//! let error = eight.dequantize(genesis::DType::F32)?.sub(&weight)?.abs()?.max()?.to_vec::<f32>()?;
//! assert!(error[0] <= 16.0 / 127.0 / 2.0 + 1e-6);
//! # Ok::<(), genesis::Error>(())
//! ```

mod from_ggml;
mod ggml;
mod parts;
mod quantize;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

pub use self::ggml::BlockType;
pub use self::quantize::QuantScheme;
use super::linear_rows::{check_rows, or_none};
use super::{Op, Saves, apply, wrong_dtype};
use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::error::{Error, Result};
use crate::launch;
use crate::parameter::Buffer;
use crate::tensor::Tensor;

const NAME: &str = "quantized_linear";

/// A weight `[M, K]` of codes, scales and minimums.
///
/// Its tensors move with a model from device to device and keep their dtypes; they are in no state dict.
#[derive(Clone, Debug)]
pub struct QuantizedWeight {
    /// u8 `[M, groups, group]`, or `[M, groups / 2, group]` where a byte has two codes
    pub(crate) codes: Buffer,
    /// `[M, parts, groups / parts]`, with two parts where a byte has two codes
    pub(crate) scales: Buffer,
    /// As the scales.
    pub(crate) mins: Option<Buffer>,
    /// The code of 0, before the minimum is added.
    zero: u8,
    /// Whether all groups of a row have one scale.
    is_by_row: bool,
    shape: [usize; 2],
}

impl QuantizedWeight {
    /// `[M, K]`
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// The device that it is on.
    pub fn device(&self) -> Device {
        self.codes.device()
    }

    /// Bytes that a product reads.
    pub fn bytes(&self) -> usize {
        let bytes = |t: &Tensor| t.numel() * t.dtype().bytes();
        let mins = self.mins.as_ref().map_or(0, |mins| bytes(mins));
        bytes(&self.codes) + bytes(&self.scales) + mins
    }

    /// The weights, `[M, K]`.
    ///
    /// # Numerics
    /// Computed in f32, then rounded to the dtype.
    /// # Errors
    /// If the dtype is not f32, f16 or bf16.
    #[track_caller]
    pub fn dequantize(&self, dtype: DType) -> Result<Tensor> {
        if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err(wrong_dtype("dequantize", "f32, f16 or bf16", dtype));
        }
        let y = Tensor::uninitialized(&self.shape, (dtype, self.device()))?;
        if y.numel() > 0 {
            launch::quantized::dequantize(&self.planes(), &y)?;
        }
        Ok(y)
    }

    /// The rows that an index names, as [`Tensor::embedding`].
    ///
    /// # Shapes
    /// `index: [..]` gives `[.., K]`.
    /// # Errors
    /// As [`Tensor::embedding`], and if the dtype is not f32, f16 or bf16.
    #[track_caller]
    pub fn embedding(&self, index: &Tensor, dtype: DType) -> Result<Tensor> {
        let flat = index.ravel()?;
        let m = self.shape[0];
        let rows = |t: &Tensor| -> Result<Buffer> {
            let each = crate::shape::product(t.shape()[1..].iter());
            let rows = t.reshape(&[m, each])?.embedding(&flat)?; // [N, each]
            let shape = [&[flat.numel()], &t.shape()[1..]].concat();
            Ok(Buffer::transient(rows.reshape(&shape)?))
        };
        let named = QuantizedWeight {
            codes: rows(&self.codes)?,
            scales: rows(&self.scales)?,
            mins: self.mins.as_ref().map(|mins| rows(mins)).transpose()?,
            zero: self.zero,
            is_by_row: self.is_by_row,
            shape: [flat.numel(), self.shape[1]],
        };
        named.dequantize(dtype)?.reshape(&[index.shape(), &[self.shape[1]]].concat())
    }

    /// Weights of the same inputs as one, where their rows follow each other in memory.
    pub(crate) fn adjacent(parts: &[&QuantizedWeight]) -> Option<QuantizedWeight> {
        let first = *parts.first()?;
        let buffer = |of: fn(&QuantizedWeight) -> Option<&Tensor>| {
            let parts: Option<Vec<&Tensor>> = parts.iter().map(|part| of(part)).collect();
            Tensor::adjacent(&parts?).map(Buffer::transient)
        };
        first.is_alike(parts).then_some(())?;
        Some(QuantizedWeight {
            codes: buffer(|part| Some(&part.codes))?,
            scales: buffer(|part| Some(&part.scales))?,
            mins: match first.mins {
                Some(_) => Some(buffer(|part| part.mins.as_deref())?),
                None => None,
            },
            zero: first.zero,
            is_by_row: first.is_by_row,
            shape: [parts.iter().map(|part| part.shape[0]).sum(), first.shape[1]],
        })
    }

    /// Copies of weights whose rows follow each other in memory; none where their forms differ.
    pub(crate) fn pack(parts: &[&QuantizedWeight]) -> Result<Option<Vec<QuantizedWeight>>> {
        if !parts.first().is_some_and(|first| first.is_alike(parts)) {
            return Ok(None);
        }
        let packed = |of: fn(&QuantizedWeight) -> Option<&Tensor>| {
            let parts: Vec<&Tensor> = parts.iter().filter_map(|part| of(part)).collect();
            Tensor::pack(&parts)
        };
        let mut codes = packed(|part| Some(&part.codes))?.into_iter();
        let mut scales = packed(|part| Some(&part.scales))?.into_iter();
        let mut mins = packed(|part| part.mins.as_deref())?.into_iter();
        let own = |part: &&QuantizedWeight| {
            Some(QuantizedWeight {
                codes: Buffer::transient(codes.next()?),
                scales: Buffer::transient(scales.next()?),
                mins: mins.next().map(Buffer::transient),
                zero: part.zero,
                is_by_row: part.is_by_row,
                shape: part.shape,
            })
        };
        Ok(parts.iter().map(own).collect())
    }

    /// Whether all have this one's form and inputs.
    fn is_alike(&self, others: &[&QuantizedWeight]) -> bool {
        let is_alike = |pair: (Option<&Buffer>, Option<&Buffer>)| match pair {
            (Some(a), Some(b)) => {
                let form = |t: &Tensor| (t.dtype(), t.device());
                a.shape()[1..] == b.shape()[1..] && form(a) == form(b)
            }
            (None, None) => true,
            _ => false,
        };
        others.iter().all(|other| {
            let form = |w: &QuantizedWeight| (w.zero, w.is_by_row, w.shape[1]);
            let same = form(other) == form(self);
            same && self.buffers().into_iter().zip(other.buffers()).all(is_alike)
        })
    }

    /// Codes, scales, minimums.
    fn buffers(&self) -> [Option<&Buffer>; 3] {
        [Some(&self.codes), Some(&self.scales), self.mins.as_ref()]
    }

    /// Whether norms in front of products of bf16 may be divided behind them.
    pub(crate) fn defers_norms(&self) -> bool {
        launch::quantized_tiles::steps(DType::BF16, &self.planes()).is_some()
    }

    /// What kernels take.
    pub(super) fn planes(&self) -> launch::planes::Planes<'_> {
        launch::planes::Planes {
            codes: &self.codes,
            scales: &self.scales,
            mins: self.mins.as_deref(),
            zero: self.zero,
            is_by_row: self.is_by_row,
        }
    }
}

impl Tensor {
    /// `x W^T + b` of a quantized weight, with the same bits for a row in any batch. There are gradients of this
    /// tensor and of the bias, none of the weight.
    ///
    /// # Shapes
    /// `[.., K]`, a weight `[M, K]` and `bias: [M]` give `[.., M]`.
    /// # Numerics
    /// Weights are computed in f32; sums are f32; the result has this tensor's dtype. On GPUs tensor cores take
    /// weights of this tensor's dtype: of 16 bits those are codes, exactly, whose sums are scaled in f32, but in
    /// groups of 16 and 32, or with minimums, weights that are rounded.
    /// # Errors
    /// If shapes do not fit, devices differ, or a dtype is not f32, f16 or bf16.
    /// # Cost
    /// Of few rows: one read of the codes, scales and minimums.
    #[track_caller]
    pub fn quantized_linear(
        &self,
        weight: &QuantizedWeight,
        bias: Option<&Tensor>,
    ) -> Result<Tensor> {
        let [m, k] = weight.shape;
        if self.shape().last() != Some(&k) {
            let message =
                format!("inner extents differ, {:?} and {:?}", self.shape(), weight.shape);
            return Err(Error::op(NAME, message));
        }
        check_rows(NAME, self, &weight.scales, bias.map(|bias| (bias, m)))?;
        if let Some(bias) = bias.filter(|bias| is_grad_enabled() && bias.requires_grad()) {
            return self.quantized_linear(weight, None)?.add(&bias.to_dtype(self.dtype())?);
        }
        let lead = &self.shape()[..self.rank() - 1];
        let rows = crate::shape::product(lead.iter());
        let x = self.reshape(&[rows, k])?.contiguous()?;
        let bias = or_none(bias, self)?.detach();
        let inputs = [&x, &weight.codes, &weight.scales, &bias];
        let QuantizedWeight { zero, is_by_row, .. } = *weight;
        let has_mins = weight.mins.is_some();
        let op = QuantizedLinear { zero, is_by_row, has_mins, shape: weight.shape };
        let y = match weight.mins.as_deref() {
            None => apply(op, &inputs)?,
            Some(mins) => apply(op, &[&inputs[..], &[mins]].concat())?,
        };
        y.reshape(&[lead, &[m]].concat())
    }
}

struct QuantizedLinear {
    zero: u8,
    is_by_row: bool,
    has_mins: bool,
    /// `[M, K]`
    shape: [usize; 2],
}

impl Op for QuantizedLinear {
    fn name(&self) -> &'static str {
        NAME
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, bias) = (inputs[0], inputs[3]);
        let planes = launch::planes::Planes {
            codes: inputs[1],
            scales: inputs[2],
            mins: inputs.get(4).copied(),
            zero: self.zero,
            is_by_row: self.is_by_row,
        };
        let y = Tensor::uninitialized(&[x.shape()[0], self.shape[0]], (x.dtype(), x.device()))?;
        if y.numel() > 0 {
            launch::quantized::linear(x, &planes, bias, &y)?;
        }
        Ok(y)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(if self.has_mins { 0b1_0110 } else { 0b0110 })
    }

    /// `dx = dy W`, with a weight that is whole for as long as the product takes.
    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let planes = launch::planes::Planes {
            codes: saved.input(1),
            scales: saved.input(2),
            mins: self.has_mins.then(|| saved.input(4)),
            zero: self.zero,
            is_by_row: self.is_by_row,
        };
        let weight = Tensor::uninitialized(&self.shape, (dy.dtype(), dy.device()))?;
        if weight.numel() > 0 {
            launch::quantized::dequantize(&planes, &weight)?;
        }
        let mut grads = vec![None; if self.has_mins { 5 } else { 4 }];
        grads[0] = Some(dy.matmul(&weight)?);
        Ok(grads)
    }
}
