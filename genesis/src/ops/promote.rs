//! Type promotion: which dtype an op of several operands computes in and gives.
//!
//! As in PyTorch. Of two tensors the wider dtype of the higher category counts (bool < integers <
//! floats), and a tensor without axes counts only where its category is higher:
//!
//! | | bool | u8 | i8..i64 | f16 | bf16 | f32 | f64 |
//! |---|---|---|---|---|---|---|---|
//! | bool | bool | u8 | same | f16 | bf16 | f32 | f64 |
//! | u8 | u8 | u8 | i8 gives i16, else same | f16 | bf16 | f32 | f64 |
//! | i8..i64 | same | i8 gives i16, else same | the wider | f16 | bf16 | f32 | f64 |
//! | f16 | f16 | f16 | f16 | f16 | f32 | f32 | f64 |
//! | bf16 | bf16 | bf16 | bf16 | f32 | bf16 | f32 | f64 |
//!
//! Of an unsigned and a signed integer the result is signed and one step wider than the unsigned one,
//! at most i64. A Rust number beside a tensor never makes it wider than its category's default: a
//! fraction makes an integer tensor f32.

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::runtime::Device;

use crate::error::Result;
use crate::tensor::Tensor;

/// bool, integer or float.
pub(super) fn category(dtype: DType) -> u8 {
    match dtype {
        DType::Bool => 0,
        dtype if dtype.is_int() => 1,
        _ => 2,
    }
}

/// The dtype that holds values of both.
pub fn promote_types(a: DType, b: DType) -> DType {
    if a == b {
        return a;
    }
    if category(a) != category(b) {
        return if category(a) > category(b) { a } else { b };
    }
    if a.is_float() {
        return match (a.bytes(), b.bytes()) {
            (x, y) if x == y => DType::F32,
            (x, y) if x > y => a,
            _ => b,
        };
    }
    if a.is_signed_int() == b.is_signed_int() {
        return if a.bytes() > b.bytes() { a } else { b };
    }
    let (signed, unsigned) = if a.is_signed_int() { (a, b) } else { (b, a) };
    if signed.bytes() > unsigned.bytes() {
        return signed;
    }
    match unsigned.bytes() {
        1 => DType::I16,
        2 => DType::I32,
        _ => DType::I64,
    }
}

/// The dtype of an op of these tensors.
pub fn result_type(tensors: &[&Tensor]) -> DType {
    let of = |with_axes: bool| {
        let some = tensors.iter().filter(|t| (t.rank() > 0) == with_axes).map(|t| t.dtype());
        some.reduce(promote_types)
    };
    match (of(true), of(false)) {
        (Some(wide), Some(scalar)) if category(scalar) > category(wide) => scalar,
        (Some(wide), _) => wide,
        (None, scalar) => scalar.unwrap_or(DType::F32),
    }
}

/// Both in the dtype of an op of the two. A tensor without axes on the CPU follows the other to its
/// device.
#[track_caller]
pub(crate) fn pair(x: &Tensor, y: &Tensor) -> Result<(Tensor, Tensor)> {
    let dtype = result_type(&[x, y]);
    let (mut x, mut y) = (x.to_dtype(dtype)?, y.to_dtype(dtype)?);
    if x.device() != y.device() {
        let is_number = |t: &Tensor| t.rank() == 0 && t.device() == Device::Cpu;
        if is_number(&y) {
            y = y.to_device(x.device())?;
        } else if is_number(&x) {
            x = x.to_device(y.device())?;
        }
    }
    Ok((x, y))
}

/// As [`pair`], for functions with fractional results: integers become f32 as they are, and do not wrap
/// to each other's dtype first.
#[track_caller]
pub(crate) fn float_pair(x: &Tensor, y: &Tensor) -> Result<(Tensor, Tensor)> {
    match result_type(&[x, y]).is_float() {
        true => pair(x, y),
        false => pair(&x.to_dtype(DType::F32)?, &y.to_dtype(DType::F32)?),
    }
}

impl Tensor {
    /// The tensor itself if it is a float, else as f32: what functions with fractional results take.
    #[track_caller]
    pub(crate) fn as_float(&self) -> Result<Tensor> {
        if self.dtype().is_float() { Ok(self.clone()) } else { self.to_dtype(DType::F32) }
    }

    /// The dtype of this tensor beside a number: its own, or f32 where the number has a fraction and
    /// this tensor none; a bool tensor beside a whole number is i64.
    fn dtype_beside(&self, c: f64) -> DType {
        match self.dtype() {
            dtype if dtype.is_float() => dtype,
            _ if c.fract() != 0.0 || !c.is_finite() => DType::F32,
            DType::Bool => DType::I64,
            dtype => dtype,
        }
    }

    /// This tensor in the dtype that it has beside a number.
    #[track_caller]
    pub(crate) fn beside_number(&self, c: f64) -> Result<Tensor> {
        self.to_dtype(self.dtype_beside(c))
    }

    /// A number beside this tensor, as a tensor without axes.
    #[track_caller]
    pub(crate) fn number_beside(&self, c: f64) -> Result<Tensor> {
        Tensor::full(&[], c, (self.dtype_beside(c), self.device()))
    }

    /// The dtype in which this tensor is compared with a number: one that an integer dtype does not hold is not
    /// wrapped.
    pub(crate) fn dtype_to_compare(&self, c: f64) -> DType {
        match self.dtype_beside(c) {
            dtype if dtype.is_float() || Scalar::int(dtype, c as i64).to_f64() == c => dtype,
            _ => DType::I64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_header() {
        use DType::*;
        let rows = [
            (Bool, U8, U8),
            (U8, I8, I16),
            (I8, I64, I64),
            (I64, F16, F16),
            (F16, BF16, F32),
            (BF16, F32, F32),
            (F32, F64, F64),
            (U16, I16, I32),
            (U64, I64, I64),
        ];
        for (a, b, both) in rows {
            assert_eq!((promote_types(a, b), promote_types(b, a)), (both, both), "{a} and {b}");
        }
    }
}
