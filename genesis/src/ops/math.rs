//! Elementwise functions beyond arithmetic, each a row of a table.
//!
//! 16-bit floats and f32 are computed in f64 and rounded once; integers become f32 first.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::KernelDef;
use kernels::math as device;

use super::{Op, Saves, apply, launch, unbroadcast};
use crate::autograd::{GradMeta, SavedTensors};
use crate::error::{Error, Result};
use crate::shape::broadcast_shapes;
use crate::tensor::Tensor;
use crate::tensor::promote;

/// An elementwise function of one operand.
pub struct Function {
    /// The name users know it by.
    pub name: &'static str,
    /// Its kernel.
    pub kernel: &'static KernelDef,
    /// Which tensors its gradient reads.
    pub saves: Saves,
    /// `dx` from the saved tensors and `dy`.
    pub grad: fn(&SavedTensors, &Tensor) -> Result<Tensor>,
    /// The f64 reference.
    pub reference: fn(f64) -> f64,
    /// Between which numbers tests look at it.
    pub range: (f64, f64),
    /// The call.
    pub call: fn(&Tensor) -> Result<Tensor>,
}

impl Op for &'static Function {
    fn name(&self) -> &'static str {
        self.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0];
        let y = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        launch::strided(self.kernel, &[x.dtype(), DType::F64], &[x], &y, &[])?;
        Ok(y)
    }

    fn saves(&self) -> Saves {
        self.saves
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some((self.grad)(saved, dy)?)])
    }
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident {
        grad: $saves:expr, $grad:expr;
        reference: $reference:expr, $low:expr, $high:expr;
    })*) => {
        /// Every function of one operand.
        pub static FUNCTIONS: &[&Function] = &[$(&Function {
            name: stringify!($name),
            kernel: &device::$name::KERNEL,
            saves: $saves,
            grad: $grad,
            reference: $reference,
            range: ($low, $high),
            call: Tensor::$name,
        }),*];

        #[allow(non_camel_case_types, reason = "each variant is named like its op")]
        enum Row { $($name),* }

        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// Integers become f32.
                ///
                /// # Errors
                /// If memory runs out.
                pub fn $name(&self) -> Result<Tensor> {
                    apply(FUNCTIONS[Row::$name as usize], &[&self.as_float()?])
                }
            )*
        }
    };
}

const X: Saves = Saves::inputs(1);
const Y: Saves = Saves::OUTPUT;

functions! {
    /// The integer next to 0.
    trunc {
        grad: Saves::NOTHING, |_, dy| dy.zeros_like();
        reference: f64::trunc, -2.5, 2.5;
    }
    /// What [`Tensor::trunc`] takes away; it has the sign of x.
    frac {
        grad: Saves::NOTHING, |_, dy| Ok(dy.clone());
        reference: f64::fract, 0.1, 0.9;
    }
    /// `1 / x`
    reciprocal {
        grad: Y, |s, dy| dy.mul(&s.output().mul(s.output())?.neg()?);
        reference: |x| 1.0 / x, 0.5, 9.0;
    }
    /// 2 to the power of x.
    exp2 {
        grad: Y, |s, dy| dy.mul(&s.output().mul_scalar(std::f64::consts::LN_2)?);
        reference: f64::exp2, -3.0, 3.0;
    }
    /// `exp(x) - 1`, exact near 0.
    expm1 {
        grad: Y, |s, dy| dy.mul(&s.output().add_scalar(1.0)?);
        reference: f64::exp_m1, -2.0, 2.0;
    }
    /// The logarithm to base 2.
    log2 {
        grad: X, |s, dy| dy.div(&s.input(0).mul_scalar(std::f64::consts::LN_2)?);
        reference: f64::log2, 0.1, 9.0;
    }
    /// The logarithm to base 10.
    log10 {
        grad: X, |s, dy| dy.div(&s.input(0).mul_scalar(std::f64::consts::LN_10)?);
        reference: f64::log10, 0.1, 9.0;
    }
    /// `log(1 + x)`, exact near 0.
    log1p {
        grad: X, |s, dy| dy.div(&s.input(0).add_scalar(1.0)?);
        reference: f64::ln_1p, -0.9, 3.0;
    }
    /// The tangent of x in radians.
    tan {
        grad: Y, |s, dy| dy.mul(&s.output().square()?.add_scalar(1.0)?);
        reference: f64::tan, -1.2, 1.2;
    }
    /// The arc sine; NaN outside -1..1.
    asin {
        grad: X, |s, dy| dy.mul(&s.input(0).square()?.neg()?.add_scalar(1.0)?.rsqrt()?);
        reference: f64::asin, -0.9, 0.9;
    }
    /// The arc cosine; NaN outside -1..1.
    acos {
        grad: X, |s, dy| dy.mul(&s.input(0).square()?.neg()?.add_scalar(1.0)?.rsqrt()?)?.neg();
        reference: f64::acos, -0.9, 0.9;
    }
    /// The arc tangent.
    atan {
        grad: X, |s, dy| dy.div(&s.input(0).square()?.add_scalar(1.0)?);
        reference: f64::atan, -3.0, 3.0;
    }
    /// The hyperbolic sine.
    sinh {
        grad: X, |s, dy| dy.mul(&s.input(0).cosh()?);
        reference: f64::sinh, -2.0, 2.0;
    }
    /// The hyperbolic cosine.
    cosh {
        grad: X, |s, dy| dy.mul(&s.input(0).sinh()?);
        reference: f64::cosh, -2.0, 2.0;
    }
    /// `1 - erf(x)`, exact far from 0.
    erfc {
        grad: X, |s, dy| {
            let slope = s.input(0).square()?.neg()?.exp()?;
            dy.mul(&slope.mul_scalar(-std::f64::consts::FRAC_2_SQRT_PI)?)
        };
        reference: erfc_reference, -2.0, 4.0;
    }
}

/// The complement of the error function: one minus a series near 0, a continued fraction far away.
fn erfc_reference(x: f64) -> f64 {
    if x < 1.0 {
        let (mut term, mut sum, mut n) = (x, x, 0.0);
        while term.abs() > 1e-18 {
            n += 1.0;
            term *= 2.0 * x * x / (2.0 * n + 1.0);
            sum += term;
        }
        return 1.0 - sum * (-x * x).exp() * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let fraction = (1..=300).rev().fold(x, |f, k| x + f64::from(k) / 2.0 / f);
    (-x * x).exp() / fraction / std::f64::consts::PI.sqrt()
}

/// The rest that has the sign of the divisor.
fn remainder_reference(x: f64, y: f64) -> f64 {
    let rest = x % y;
    if rest != 0.0 && (rest < 0.0) != (y < 0.0) { rest + y } else { rest }
}

/// How the gradients of two operands follow, before broadcasting is undone.
type Grads = fn(&SavedTensors, &Tensor) -> Result<[Option<Tensor>; 2]>;

/// An elementwise function of two operands that broadcast.
pub struct Function2 {
    /// The name users know it by.
    pub name: &'static str,
    float: Option<&'static KernelDef>,
    int: Option<&'static KernelDef>,
    takes_bool: bool,
    saves: Saves,
    grads: Grads,
    /// The f64 reference.
    pub reference: fn(f64, f64) -> f64,
    /// Whether tests differentiate it.
    pub is_smooth: bool,
    /// The call.
    pub call: fn(&Tensor, &Tensor) -> Result<Tensor>,
}

impl Function2 {
    /// Whether it takes a dtype.
    pub fn takes(&self, dtype: DType) -> bool {
        match dtype {
            DType::Bool => self.takes_bool,
            dtype if dtype.is_float() => self.float.is_some(),
            _ => self.int.is_some(),
        }
    }
}

struct Function2Call {
    row: &'static Function2,
    shapes: [Vec<usize>; 2],
}

impl Op for Function2Call {
    fn name(&self) -> &'static str {
        self.row.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, y) = (inputs[0], inputs[1]);
        super::elementwise::check_pair(self.row.name, x, y)?;
        let dtype = x.dtype();
        if !self.row.takes(dtype) {
            return Err(Error::op(self.row.name, format!("does not take {dtype}")));
        }
        let shape = broadcast_shapes(self.row.name, &[x.shape(), y.shape()])?;
        let z = Tensor::uninitialized(&shape, (dtype, x.device()))?;
        let (x, y) = (x.broadcast_to(&shape)?, y.broadcast_to(&shape)?);
        match (dtype, self.row.float, self.row.int) {
            (DType::Bool, _, Some(kernel)) => {
                // A bool is a byte of 0 or 1, and stays one under logic.
                let (x, y, z) = (x.as_bytes(), y.as_bytes(), z.as_bytes());
                launch::strided(kernel, &[DType::U8], &[&x, &y], &z, &[])?;
            }
            (_, Some(kernel), _) if dtype.is_float() => {
                launch::strided(kernel, &[dtype, DType::F64], &[&x, &y], &z, &[])?;
            }
            (_, _, Some(kernel)) => launch::strided(kernel, &[dtype], &[&x, &y], &z, &[])?,
            _ => return Err(Error::op(self.row.name, format!("does not take {dtype}"))),
        }
        Ok(z)
    }

    fn saves(&self) -> Saves {
        self.row.saves
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let grads = (self.row.grads)(saved, dy)?;
        let back = |(grad, shape): (Option<Tensor>, &Vec<usize>)| {
            grad.map(|g| unbroadcast(&g, shape)).transpose()
        };
        grads.into_iter().zip(&self.shapes).map(back).collect()
    }
}

macro_rules! functions2 {
    ($($(#[$doc:meta])* $name:ident, $scalar:ident {
        kernels: $float:expr, $int:expr, $takes_bool:expr;
        grads: $saves:expr, $grads:expr;
        reference: $reference:expr, $is_smooth:expr;
    })*) => {
        /// Every function of two operands.
        pub static FUNCTIONS2: &[&Function2] = &[$(&Function2 {
            name: stringify!($name),
            float: $float,
            int: $int,
            takes_bool: $takes_bool,
            saves: $saves,
            grads: $grads,
            reference: $reference,
            is_smooth: $is_smooth,
            call: Tensor::$name,
        }),*];

        #[allow(non_camel_case_types, reason = "each variant is named like its op")]
        enum Row2 { $($name),* }

        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// # Shapes
                /// The operands broadcast, aligned at the last axis; dtypes promote.
                /// # Errors
                /// If shapes do not broadcast, devices differ, or the dtype is not one the op takes.
                pub fn $name(&self, other: &Tensor) -> Result<Tensor> {
                    let row = FUNCTIONS2[Row2::$name as usize];
                    let (x, y) = promote::pair(self, other)?;
                    let (x, y) = match row.int {
                        None => (x.as_float()?, y.as_float()?),
                        Some(_) => (x, y),
                    };
                    let shapes = [x.shape().to_vec(), y.shape().to_vec()];
                    apply(Function2Call { row, shapes }, &[&x, &y])
                }

                $(#[$doc])*
                ///
                /// # Errors
                /// If the dtype is not one the op takes.
                pub fn $scalar(&self, c: f64) -> Result<Tensor> {
                    let y = self.number_beside(c)?;
                    let is_half = y.dtype().is_float() && y.dtype().bytes() == 2;
                    if !is_half {
                        return self.$name(&y);
                    }
                    // A number is not rounded to 16 bits before it is computed with.
                    let wide = self.to_dtype(DType::F32)?;
                    wide.$name(&wide.number_beside(c)?)?.to_dtype(self.dtype())
                }
            )*
        }
    };
}

const XY: Saves = Saves::inputs(3);

functions2! {
    /// `x` to the power of `y`; of a negative number only whole powers are numbers.
    pow, pow_scalar {
        kernels: Some(&device::pow::KERNEL), Some(&device::int_pow::KERNEL), false;
        grads: Saves { inputs: 3, output: true }, |s, dy| {
            let (x, y) = (s.input(0), s.input(1));
            let dx = if s.wanted[0] {
                // Where the power is 0 the result does not depend on x.
                let slope = y.mul(&x.pow(&y.sub_scalar(1.0)?)?)?;
                let slope = y.eq_scalar(0.0)?.where_(&y.zeros_like()?, &slope)?;
                Some(dy.mul(&slope)?)
            } else {
                None
            };
            let dpower = if s.wanted[1] {
                // At x = 0 with a power of at least 0 the result is flat in y.
                let flat = x.eq_scalar(0.0)?.logical_and(&y.ge_scalar(0.0)?)?;
                let slope = s.output().mul(&x.log()?)?;
                Some(dy.mul(&flat.where_(&slope.zeros_like()?, &slope)?)?)
            } else {
                None
            };
            Ok([dx, dpower])
        };
        reference: f64::powf, true;
    }
    /// The angle of the point `(other, self)` from the x axis, between -pi and pi.
    atan2, atan2_scalar {
        kernels: Some(&device::atan2::KERNEL), None, false;
        grads: XY, |s, dy| {
            let (y, x) = (s.input(0), s.input(1));
            let share = dy.div(&x.square()?.add(&y.square()?)?)?;
            Ok([Some(share.mul(x)?), Some(share.mul(y)?.neg()?)])
        };
        reference: f64::atan2, true;
    }
    /// The rest of a truncated division; it has the sign of `x`.
    fmod, fmod_scalar {
        kernels: Some(&device::fmod::KERNEL), Some(&device::int_fmod::KERNEL), false;
        grads: XY, |s, dy| {
            let quotient = s.input(0).div(s.input(1))?.trunc()?;
            Ok([Some(dy.clone()), Some(dy.mul(&quotient)?.neg()?)])
        };
        reference: |x, y| x % y, false;
    }
    /// The rest of a division rounded down; it has the sign of `y`.
    remainder, remainder_scalar {
        kernels: Some(&device::remainder::KERNEL), Some(&device::int_remainder::KERNEL), false;
        grads: XY, |s, dy| {
            let quotient = s.input(0).div(s.input(1))?.floor()?;
            Ok([Some(dy.clone()), Some(dy.mul(&quotient)?.neg()?)])
        };
        reference: remainder_reference, false;
    }
    /// The quotient rounded down. The gradient is zero.
    floor_divide, floor_divide_scalar {
        kernels: Some(&device::floor_divide::KERNEL), Some(&device::int_floor_divide::KERNEL), false;
        grads: Saves::NOTHING, |_, dy| Ok([Some(dy.zeros_like()?), Some(dy.zeros_like()?)]);
        reference: |x, y| (x / y).floor(), false;
    }
    /// The quotient without its fraction. The gradient is zero.
    trunc_divide, trunc_divide_scalar {
        kernels: Some(&device::trunc_divide::KERNEL), Some(&device::int_trunc_divide::KERNEL), false;
        grads: Saves::NOTHING, |_, dy| Ok([Some(dy.zeros_like()?), Some(dy.zeros_like()?)]);
        reference: |x, y| (x / y).trunc(), false;
    }
    /// Bit by bit, set where both are.
    bitwise_and, bitwise_and_scalar {
        kernels: None, Some(&device::bit_and::KERNEL), true;
        grads: Saves::NOTHING, |_, _| Ok([None, None]);
        reference: |x, y| (x as i64 & y as i64) as f64, false;
    }
    /// Bit by bit, set where one is or both.
    bitwise_or, bitwise_or_scalar {
        kernels: None, Some(&device::bit_or::KERNEL), true;
        grads: Saves::NOTHING, |_, _| Ok([None, None]);
        reference: |x, y| (x as i64 | y as i64) as f64, false;
    }
    /// Bit by bit, set where they differ.
    bitwise_xor, bitwise_xor_scalar {
        kernels: None, Some(&device::bit_xor::KERNEL), true;
        grads: Saves::NOTHING, |_, _| Ok([None, None]);
        reference: |x, y| (x as i64 ^ y as i64) as f64, false;
    }
}

impl Tensor {
    /// The same bytes of bools as numbers 0 and 1, without a copy.
    pub(super) fn as_bytes(&self) -> Tensor {
        let (storage, layout) = (self.storage().clone(), self.layout().clone());
        Tensor::from_parts(storage, layout, DType::U8, GradMeta::detached())
    }

    /// Where elements are not zero; bool.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn to_bool(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool { Ok(self.detach()) } else { self.ne_scalar(0.0) }
    }

    /// Where both are not zero; bool.
    ///
    /// # Errors
    /// If shapes do not broadcast or devices differ.
    pub fn logical_and(&self, other: &Tensor) -> Result<Tensor> {
        self.to_bool()?.bitwise_and(&other.to_bool()?)
    }

    /// Where one is not zero or both; bool.
    ///
    /// # Errors
    /// If shapes do not broadcast or devices differ.
    pub fn logical_or(&self, other: &Tensor) -> Result<Tensor> {
        self.to_bool()?.bitwise_or(&other.to_bool()?)
    }

    /// Where exactly one is not zero; bool.
    ///
    /// # Errors
    /// If shapes do not broadcast or devices differ.
    pub fn logical_xor(&self, other: &Tensor) -> Result<Tensor> {
        self.to_bool()?.bitwise_xor(&other.to_bool()?)
    }

    /// Where elements are zero; bool.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn logical_not(&self) -> Result<Tensor> {
        let truth = self.to_bool()?;
        truth.bitwise_xor(&Tensor::ones(&[], (DType::Bool, self.device()))?)
    }

    /// Every bit the other way; of a bool its opposite.
    ///
    /// # Errors
    /// If the dtype is a float.
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

    /// `self + weight * (end - self)`, exact at both ends.
    ///
    /// # Errors
    /// If shapes do not broadcast, or dtypes or devices differ.
    pub fn lerp(&self, end: &Tensor, weight: &Tensor) -> Result<Tensor> {
        let way = end.sub(self)?;
        let near = self.add(&weight.mul(&way)?)?;
        let far = end.sub(&way.mul(&weight.neg()?.add_scalar(1.0)?)?)?;
        weight.detach().abs()?.lt_scalar(0.5)?.where_(&near, &far)
    }

    /// `self + value * a * b`
    ///
    /// # Errors
    /// If shapes do not broadcast, or devices differ.
    pub fn addcmul(&self, a: &Tensor, b: &Tensor, value: f64) -> Result<Tensor> {
        let product = a.mul(b)?;
        self.add(&if value == 1.0 { product } else { product.mul_scalar(value)? })
    }

    /// `self + value * a / b`
    ///
    /// # Errors
    /// If shapes do not broadcast, or devices differ.
    pub fn addcdiv(&self, a: &Tensor, b: &Tensor, value: f64) -> Result<Tensor> {
        self.add(&a.mul_scalar(value)?.div(b)?)
    }

    /// `c` where the mask is true, this tensor elsewhere.
    ///
    /// # Errors
    /// If the mask is not bool or does not broadcast.
    pub fn masked_fill(&self, mask: &Tensor, c: f64) -> Result<Tensor> {
        mask.where_(&Tensor::full(&[], c, (self.dtype(), self.device()))?, self)
    }

    /// No element below `low`; NaN stays. At `low` the gradient goes to this tensor.
    ///
    /// # Errors
    /// If shapes do not broadcast, or devices differ.
    pub fn clamp_min(&self, low: &Tensor) -> Result<Tensor> {
        self.clamped(low, self.detach().ge(&low.detach())?)
    }

    /// No element above `high`; NaN stays. At `high` the gradient goes to this tensor.
    ///
    /// # Errors
    /// If shapes do not broadcast, or devices differ.
    pub fn clamp_max(&self, high: &Tensor) -> Result<Tensor> {
        self.clamped(high, self.detach().le(&high.detach())?)
    }

    fn clamped(&self, bound: &Tensor, inside: Tensor) -> Result<Tensor> {
        let (x, bound) = promote::pair(self, bound)?;
        inside.logical_or(&x.isnan()?)?.where_(&x, &bound)
    }

    /// The nearest number with `decimals` digits after the point, ties to even; digits before the
    /// point where negative. The gradient is zero.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn round_decimals(&self, decimals: i32) -> Result<Tensor> {
        if !self.dtype().is_float() || decimals == 0 {
            return if self.dtype().is_float() { self.round() } else { self.copy() };
        }
        let scale = 10f64.powi(decimals.abs());
        let wide = self.to_dtype(DType::F64)?;
        let rounded = match decimals > 0 {
            true => wide.mul_scalar(scale)?.round()?.div_scalar(scale)?,
            false => wide.div_scalar(scale)?.round()?.mul_scalar(scale)?,
        };
        rounded.to_dtype(self.dtype())
    }
}
