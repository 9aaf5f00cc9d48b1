//! Logic, what kind of number an element is, and blends: choices and means of tensors element by element.

use genesis_kernel::ir::DType;

use super::promote;
use crate::error::{Error, Result};
use crate::launch;
use crate::tensor::Tensor;

type Compare = fn(&Tensor, &Tensor) -> Result<Tensor>;

impl Tensor {
    /// The same bytes of bools as numbers 0 and 1, without a copy.
    pub(super) fn as_bytes(&self) -> Tensor {
        let (storage, layout) = (self.storage().clone(), self.layout().clone());
        Tensor::plain(storage, layout, DType::U8)
    }

    /// The same bytes of 0 and 1 as bools, without a copy.
    pub(super) fn as_bools(&self) -> Tensor {
        let (storage, layout) = (self.storage().clone(), self.layout().clone());
        Tensor::plain(storage, layout, DType::Bool)
    }

    /// Where elements are not zero; bool.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn to_bool(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool { Ok(self.detach()) } else { self.ne_scalar(0.0) }
    }

    /// Where both are not zero; bool.
    ///
    /// # Errors
    /// If shapes do not broadcast or devices differ.
    #[track_caller]
    pub fn logical_and(&self, other: &Tensor) -> Result<Tensor> {
        self.to_bool()?.bitwise_and(&other.to_bool()?)
    }

    /// Where one is not zero or both; bool.
    ///
    /// # Errors
    /// If shapes do not broadcast or devices differ.
    #[track_caller]
    pub fn logical_or(&self, other: &Tensor) -> Result<Tensor> {
        self.to_bool()?.bitwise_or(&other.to_bool()?)
    }

    /// Where exactly one is not zero; bool.
    ///
    /// # Errors
    /// If shapes do not broadcast or devices differ.
    #[track_caller]
    pub fn logical_xor(&self, other: &Tensor) -> Result<Tensor> {
        self.to_bool()?.bitwise_xor(&other.to_bool()?)
    }

    /// Where elements are zero; bool.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn logical_not(&self) -> Result<Tensor> {
        let truth = self.to_bool()?;
        truth.bitwise_xor(&Tensor::ones(&[], (DType::Bool, self.device()))?)
    }

    /// Every bit the other way; of a bool its opposite.
    ///
    /// # Errors
    /// If the dtype is a float.
    #[track_caller]
    pub fn bitwise_not(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool {
            return self.logical_not();
        }
        self.bitwise_xor(&Tensor::zeros(&[], (self.dtype(), self.device()))?.sub_scalar(1.0)?)
    }

    /// Where elements are not numbers; bool.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn isnan(&self) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return Tensor::zeros(self.shape(), (DType::Bool, self.device()));
        }
        self.ne(self)
    }

    /// Where elements are infinite; bool.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn isinf(&self) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return Tensor::zeros(self.shape(), (DType::Bool, self.device()));
        }
        self.detach().abs()?.eq_scalar(f64::INFINITY)
    }

    /// Where elements are numbers and not infinite; bool.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn isfinite(&self) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return Tensor::ones(self.shape(), (DType::Bool, self.device()));
        }
        self.detach().abs()?.lt_scalar(f64::INFINITY)
    }

    /// NaN and infinities replaced by numbers; where none is given by 0 and the dtype's extremes.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn nan_to_num(&self, nan: f64, high: Option<f64>, low: Option<f64>) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return self.copy();
        }
        let largest = match self.dtype() {
            DType::F16 => 65504.0,
            DType::BF16 => f64::from(half::bf16::MAX),
            DType::F32 => f64::from(f32::MAX),
            _ => f64::MAX,
        };
        let number = |c: f64| Tensor::full(&[], c, (self.dtype(), self.device()));
        let x = self.isnan()?.where_(&number(nan)?, self)?;
        let x = self.eq_scalar(f64::INFINITY)?.where_(&number(high.unwrap_or(largest))?, &x)?;
        self.eq_scalar(f64::NEG_INFINITY)?.where_(&number(low.unwrap_or(-largest))?, &x)
    }

    /// `self + weight * (end - self)`, exact at both ends; 16-bit floats are rounded once.
    ///
    /// # Errors
    /// If shapes do not broadcast, or devices differ.
    #[track_caller]
    pub fn lerp(&self, end: &Tensor, weight: &Tensor) -> Result<Tensor> {
        Tensor::rounded_once([self, end, weight], |[start, end, weight]| {
            let way = end.sub(&start)?;
            let near = start.add(&weight.mul(&way)?)?;
            let far = end.sub(&way.mul(&weight.rsub_scalar(1.0)?)?)?;
            weight.detach().abs()?.lt_scalar(0.5)?.where_(&near, &far)
        })
    }

    /// [`Tensor::lerp`] by one number, which is not rounded to 16 bits; a fraction makes integers f32.
    ///
    /// # Errors
    /// As [`Tensor::lerp`].
    #[track_caller]
    pub fn lerp_scalar(&self, end: &Tensor, weight: f64) -> Result<Tensor> {
        Tensor::rounded_once([self, end], |[start, end]| {
            start.beside_number(weight)?.lerp(&end, &start.number_beside(weight)?)
        })
    }

    /// `self + value * a * b`, of the dtype that the three promote to; 16-bit floats are rounded once.
    ///
    /// # Errors
    /// If shapes do not broadcast, or devices differ.
    #[track_caller]
    pub fn addcmul(&self, a: &Tensor, b: &Tensor, value: f64) -> Result<Tensor> {
        Tensor::rounded_once([self, a, b], |[x, a, b]| {
            let product = a.mul(&b)?;
            x.add(&if value == 1.0 { product } else { product.mul_scalar(value)? })
        })
    }

    /// `self + value * a / b`, of the dtype that the three promote to; 16-bit floats are rounded once.
    ///
    /// # Errors
    /// If shapes do not broadcast, or devices differ.
    #[track_caller]
    pub fn addcdiv(&self, a: &Tensor, b: &Tensor, value: f64) -> Result<Tensor> {
        Tensor::rounded_once([self, a, b], |[x, a, b]| x.add(&a.mul_scalar(value)?.div(&b)?))
    }

    /// What `compute` makes of tensors brought to the dtype they promote to, 16-bit floats as f32 until
    /// the end.
    ///
    /// Every elementwise op that is made of others goes through this, so that it rounds like one kernel.
    #[track_caller]
    pub(super) fn rounded_once<const N: usize>(
        tensors: [&Tensor; N],
        compute: impl FnOnce([Tensor; N]) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let dtype = promote::result_type(&tensors);
        let wide = launch::accumulate_dtype(dtype);
        let mut of = tensors.map(Tensor::clone);
        for t in &mut of {
            *t = t.to_dtype(wide)?;
        }
        let y = compute(of)?;
        if wide == dtype { Ok(y) } else { y.to_dtype(dtype) }
    }

    /// What [`Tensor::pow_scalar`] does otherwise than by logarithms, as PyTorch does: a square, a cube,
    /// and square roots, which know no number for minus infinity. Integers have no negative powers.
    #[track_caller]
    pub(super) fn special_power(&self, op: &str, c: f64) -> Option<Result<Tensor>> {
        if op != "pow" {
            return None;
        }
        if self.dtype().is_float() {
            return match c {
                2.0 => Some(self.square()),
                3.0 => Some(Tensor::rounded_once([self], |[x]| x.square()?.mul(&x))),
                // As in PyTorch: minus infinity to the power of one half is infinite for f16 alone.
                0.5 if self.dtype() != DType::F16 => Some(self.sqrt()),
                -0.5 if self.dtype() != DType::F16 => Some(self.rsqrt()),
                _ => None,
            };
        }
        let message = format!(
            "integers to negative integer powers are not allowed, {} to the power of {c}; convert with to_dtype",
            self.dtype()
        );
        (c < 0.0 && c.fract() == 0.0).then(|| Err(Error::op(op, message)))
    }

    /// `c` where the mask is true, this tensor elsewhere; integers take no fraction of it.
    ///
    /// # Errors
    /// If the mask is not bool or does not broadcast.
    #[track_caller]
    pub fn masked_fill(&self, mask: &Tensor, c: f64) -> Result<Tensor> {
        mask.where_(&Tensor::full(&[], c, (self.dtype(), self.device()))?, self)
    }

    /// No element below `low`; NaN stays. At `low` the gradient goes to this tensor.
    ///
    /// # Errors
    /// If shapes do not broadcast, or devices differ.
    #[track_caller]
    pub fn clamp_min(&self, low: &Tensor) -> Result<Tensor> {
        self.clamped(low, Tensor::ge, Tensor::lt)
    }

    /// No element above `high`; NaN stays. At `high` the gradient goes to this tensor.
    ///
    /// # Errors
    /// If shapes do not broadcast, or devices differ.
    #[track_caller]
    pub fn clamp_max(&self, high: &Tensor) -> Result<Tensor> {
        self.clamped(high, Tensor::le, Tensor::gt)
    }

    /// NaN of either stays, and has no gradient.
    #[track_caller]
    fn clamped(&self, bound: &Tensor, inside: Compare, outside: Compare) -> Result<Tensor> {
        let (x, bound) = promote::pair(self, bound)?;
        if !x.dtype().is_float() {
            return inside(&x, &bound)?.where_(&x, &bound);
        }
        let nan = x.isnan()?.where_(&x.detach(), &bound.detach())?;
        inside(&x, &bound)?.where_(&x, &outside(&x, &bound)?.where_(&bound, &nan)?)
    }

    /// The nearest number with `decimals` digits after the point, ties to even; digits before the
    /// point where negative. The gradient is zero.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn round_decimals(&self, decimals: i32) -> Result<Tensor> {
        if !self.dtype().is_float() || decimals == 0 {
            return if self.dtype().is_float() { self.round() } else { self.copy() };
        }
        let scale = 10f64.powi(decimals.saturating_abs());
        let wide = self.to_dtype(DType::F64)?;
        let rounded = match decimals > 0 {
            true => wide.mul_scalar(scale)?.round()?.div_scalar(scale)?,
            false => wide.div_scalar(scale)?.round()?.mul_scalar(scale)?,
        };
        rounded.to_dtype(self.dtype())
    }
}
