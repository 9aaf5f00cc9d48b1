//! Composite elementwise ops: divisions by a rounding mode, signs, comparisons within a tolerance.

#[cfg(feature = "op-info")]
pub(super) mod info;

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::KernelDef;
use kernels::math as device;

use crate::error::{Error, Result};
use crate::launch;
use crate::ops::in_place::in_place;
use crate::ops::{check_pair, composite, promote, result_of};
use crate::shape::broadcast_shapes;
use crate::tensor::Tensor;

/// What happens to the fraction of a quotient.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoundingMode {
    /// It is cut off.
    Trunc,
    /// The quotient is rounded down.
    Floor,
}

/// How far apart numbers may be that count as close: `|x - y| <= absolute + relative * |y|`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tolerance {
    /// The part that grows with the second number.
    pub relative: f64,
    /// The part that does not.
    pub absolute: f64,
    /// Whether NaN is close to NaN.
    pub equal_nan: bool,
}

impl Default for Tolerance {
    fn default() -> Tolerance {
        Tolerance { relative: 1e-5, absolute: 1e-8, equal_nan: false }
    }
}

in_place!(sub_scalar_ = sub_scalar(number));
in_place!(square_ = square());
in_place!(sign_ = sign());
in_place!(deg2rad_ = deg2rad());
in_place!(rad2deg_ = rad2deg());

impl Tensor {
    /// `x - c`
    ///
    /// # Errors
    /// As [`Tensor::add_scalar`].
    #[track_caller]
    pub fn sub_scalar(&self, c: f64) -> Result<Tensor> {
        self.add_scalar(-c)
    }

    /// Every element brought between `low` and `high`; NaN stays.
    ///
    /// # Errors
    /// As [`Tensor::add_scalar`].
    #[track_caller]
    pub fn clamp(&self, low: f64, high: f64) -> Result<Tensor> {
        composite("clamp", &[low, high], [self], |[x], n| {
            x.maximum_scalar(n[0])?.minimum_scalar(n[1])
        })
    }

    /// [`Tensor::clamp`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn clamp_(&self, low: f64, high: f64) -> Result<()> {
        self.replace("clamp_", &[], |x| x.clamp(low, high))
    }

    /// `x * x`; bools become i64.
    ///
    /// # Errors
    /// If the dtype is for storage only.
    #[track_caller]
    pub fn square(&self) -> Result<Tensor> {
        let x = self.beside_number(2.0)?;
        x.mul(&x)
    }

    /// -1, 0 or 1; NaN gives 0. The gradient is zero.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn sign(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool {
            return self.copy();
        }
        composite("sign", &[], [&self.detach()], |[x], _| {
            let above = x.gt_scalar(0.0)?.to_dtype(x.dtype())?;
            above.sub(&x.lt_scalar(0.0)?.to_dtype(x.dtype())?)
        })
    }

    /// The quotient without its fraction, or rounded down; of integers an integer. The gradient is zero.
    ///
    /// # Errors
    /// If shapes do not broadcast, devices differ, or the dtype is bool.
    #[track_caller]
    pub fn div_rounded(&self, other: &Tensor, mode: RoundingMode) -> Result<Tensor> {
        match mode {
            RoundingMode::Trunc => self.trunc_divide(other),
            RoundingMode::Floor => self.floor_divide(other),
        }
    }

    /// `c - x`
    ///
    /// # Errors
    /// As [`Tensor::add_scalar`].
    #[track_caller]
    pub fn rsub_scalar(&self, c: f64) -> Result<Tensor> {
        composite("rsub_scalar", &[c], [self], |[x], n| x.neg()?.add_scalar(n[0]))
    }

    /// `c` to the power of each element.
    ///
    /// # Errors
    /// If the dtype is bool.
    #[track_caller]
    pub fn rpow_scalar(&self, c: f64) -> Result<Tensor> {
        composite("rpow_scalar", &[c], [self], |x, n| {
            Tensor::rounded_once(x, |[x]| x.number_beside(n[0])?.pow(&x))
        })
    }

    /// Both operands as f64, one to the power of the other.
    ///
    /// # Errors
    /// If shapes do not broadcast or devices differ.
    #[track_caller]
    pub fn float_power(&self, other: &Tensor) -> Result<Tensor> {
        composite("float_power", &[], [self, other], |[x, y], _| {
            x.to_dtype(DType::F64)?.pow(&y.to_dtype(DType::F64)?)
        })
    }

    /// The larger of both; where one is NaN the other.
    ///
    /// # Errors
    /// If shapes do not broadcast or devices differ.
    #[track_caller]
    pub fn fmax(&self, other: &Tensor) -> Result<Tensor> {
        composite("fmax", &[], [self, other], |[x, y], _| extreme_number(x, y, Tensor::ge))
    }

    /// The smaller of both; where one is NaN the other.
    ///
    /// # Errors
    /// If shapes do not broadcast or devices differ.
    #[track_caller]
    pub fn fmin(&self, other: &Tensor) -> Result<Tensor> {
        composite("fmin", &[], [self, other], |[x, y], _| extreme_number(x, y, Tensor::le))
    }

    /// The bits moved up by as many places as `other` says; of more than there are none stays.
    ///
    /// # Errors
    /// If shapes do not broadcast, devices differ, or the dtype is not an integer.
    #[track_caller]
    pub fn bitwise_left_shift(&self, other: &Tensor) -> Result<Tensor> {
        self.shifted("bitwise_left_shift", other, &device::shift_left::KERNEL)
    }

    /// The bits moved down by as many places as `other` says; the sign comes in from above.
    ///
    /// # Errors
    /// If shapes do not broadcast, devices differ, or the dtype is not an integer of at most 63 bits and a
    /// sign.
    #[track_caller]
    pub fn bitwise_right_shift(&self, other: &Tensor) -> Result<Tensor> {
        self.shifted("bitwise_right_shift", other, &device::shift_right::KERNEL)
    }

    /// In 64 bits with a sign, of which those of the dtype are kept.
    #[track_caller]
    fn shifted(&self, op: &str, other: &Tensor, kernel: &'static KernelDef) -> Result<Tensor> {
        let (x, y) = promote::pair(&self.detach(), &other.detach())?;
        check_pair(op, &x, &y)?;
        let dtype = x.dtype();
        if !dtype.is_int() || dtype == DType::U64 {
            return Err(Error::op(op, format!("does not take {dtype}")));
        }
        let shape = broadcast_shapes(op, &[x.shape(), y.shape()])?;
        let wide = |t: &Tensor| t.to_dtype(DType::I64)?.broadcast_to(&shape);
        let (x, y) = (wide(&x)?, wide(&y)?);
        let z = result_of(&[&x, &y], &shape, (DType::I64, x.device()))?;
        launch::strided(kernel, &[], &[&x, &y], &z, &[])?;
        z.to_dtype(dtype)
    }

    /// 0 below 0, 1 above it, and `values` where the tensor is 0. There is no gradient.
    ///
    /// # Errors
    /// If shapes do not broadcast or devices differ.
    #[track_caller]
    pub fn heaviside(&self, values: &Tensor) -> Result<Tensor> {
        composite("heaviside", &[], [&self.detach(), &values.detach()], |[x, values], _| {
            let (x, values) = promote::pair(x, values)?;
            let step = x.gt_scalar(0.0)?.to_dtype(x.dtype())?;
            x.eq_scalar(0.0)?.where_(&values, &step)
        })
    }

    /// Where the sign bit is set, that of -0 and of NaN too; bool.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn signbit(&self) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return self.lt_scalar(0.0);
        }
        composite("signbit", &[], [self], |[x], _| {
            let one = Tensor::ones(&[], (x.dtype(), x.device()))?;
            one.copysign(&x.detach())?.lt_scalar(0.0)
        })
    }

    /// [`Tensor::sign`], by the name that PyTorch has for complex numbers.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn sgn(&self) -> Result<Tensor> {
        self.sign()
    }

    /// Degrees as radians. Integers become f32.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn deg2rad(&self) -> Result<Tensor> {
        self.as_float()?.mul_scalar(std::f64::consts::PI / 180.0)
    }

    /// Radians as degrees. Integers become f32.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn rad2deg(&self) -> Result<Tensor> {
        self.as_float()?.mul_scalar(180.0 / std::f64::consts::PI)
    }

    /// `log(x / (1 - x))`; with `eps` the elements are first brought between `eps` and `1 - eps`.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn logit(&self, eps: Option<f64>) -> Result<Tensor> {
        let eps: Vec<f64> = eps.into_iter().collect();
        composite("logit", &eps, [&self.as_float()?], |x, eps| {
            Tensor::rounded_once(x, |[x]| {
                let x = match eps {
                    [eps] => x.clamp(*eps, 1.0 - eps)?,
                    _ => x,
                };
                x.div(&x.rsub_scalar(1.0)?)?.log()
            })
        })
    }

    /// Where elements are infinite and above 0; bool.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn isposinf(&self) -> Result<Tensor> {
        composite("isposinf", &[], [self], |[x], _| x.isinf()?.logical_and(&x.gt_scalar(0.0)?))
    }

    /// Where elements are infinite and below 0; bool.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn isneginf(&self) -> Result<Tensor> {
        composite("isneginf", &[], [self], |[x], _| x.isinf()?.logical_and(&x.lt_scalar(0.0)?))
    }

    /// Where the elements of both are close; bool. Equal infinities are.
    ///
    /// # Errors
    /// If shapes do not broadcast, dtypes or devices differ, or a tolerance is negative.
    #[track_caller]
    pub fn isclose(&self, other: &Tensor, within: &Tolerance) -> Result<Tensor> {
        const NAME: &str = "isclose";
        check_pair(NAME, self, other)?;
        if within.relative < 0.0 || within.absolute < 0.0 {
            return Err(Error::op(NAME, format!("tolerances must not be negative, {within:?}")));
        }
        let numbers = [within.relative, within.absolute, f64::from(within.equal_nan)];
        composite(NAME, &numbers, [&self.detach(), &other.detach()], |[x, y], n| {
            let (relative, absolute, equal_nan) = (n[0], n[1], n[2] > 0.0);
            close(x, y, &Tolerance { relative, absolute, equal_nan })
        })
    }

    /// Whether all elements of both are close. Waits for the device.
    ///
    /// # Errors
    /// As [`Tensor::isclose`].
    pub fn allclose(&self, other: &Tensor, within: &Tolerance) -> Result<bool> {
        Ok(self.isclose(other, within)?.all()?.item()? != 0.0)
    }

    /// Whether both have one shape and equal elements. Waits for the device.
    ///
    /// # Errors
    /// If dtypes or devices differ.
    pub fn equal(&self, other: &Tensor) -> Result<bool> {
        check_pair("equal", self, other)?;
        if self.shape() != other.shape() {
            return Ok(false);
        }
        Ok(self.detach().eq(&other.detach())?.all()?.item()? != 0.0)
    }

    /// Where elements are among those of `test`; bool.
    ///
    /// # Errors
    /// If devices differ.
    #[track_caller]
    pub fn isin(&self, test: &Tensor) -> Result<Tensor> {
        let (x, test) = promote::pair(&self.detach(), &test.detach())?;
        let (x, test) = (x.as_countable(), test.as_countable());
        if test.numel() == 0 {
            return Tensor::zeros(x.shape(), (DType::Bool, x.device()));
        }
        let (sorted, _) = test.reshape(&[test.numel()])?.sort(0, false)?;
        let last = sorted.numel() as f64 - 1.0;
        let place = sorted.searchsorted(&x, false)?.minimum_scalar(last)?;
        sorted.take(&place)?.eq(&x)
    }
}

/// x where it beats y, which NaN never does; of equal ones too, with the gradient.
fn extreme_number(
    x: &Tensor,
    y: &Tensor,
    beats: fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let (x, y) = promote::pair(x, y)?;
    beats(&x, &y)?.logical_or(&y.isnan()?)?.where_(&x, &y)
}

/// The description of `isclose`.
fn close(x: &Tensor, y: &Tensor, within: &Tolerance) -> Result<Tensor> {
    let mut close = x.eq(y)?;
    if within.equal_nan {
        close = close.logical_or(&x.isnan()?.logical_and(&y.isnan()?)?)?;
    }
    if within.relative == 0.0 && within.absolute == 0.0 {
        return Ok(close);
    }
    let wide = |t: &Tensor| match t.dtype().is_float() {
        true => Ok(t.clone()),
        false => t.to_dtype(DType::F64),
    };
    let (x, y) = (wide(x)?, wide(y)?);
    let allowed = y.mul_scalar(within.relative)?.abs()?.add_scalar(within.absolute)?;
    let distance = x.sub(&y)?.abs()?;
    let near = distance.isfinite()?.logical_and(&distance.le(&allowed)?)?;
    close.logical_or(&near)
}
