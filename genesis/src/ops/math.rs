//! Elementwise functions beyond arithmetic, each a row of a table.
//!
//! What a function is computed in is part of its row: f32 where that keeps its result within 4 ULP, else
//! f64. Integers become f32 first, but where the row says otherwise.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::KernelDef;
use kernels::math as device;

use super::promote;
use super::{Op, Saves, apply, unbroadcast, wrong_dtype};
use crate::autograd::SavedTensors;
use crate::error::{Error, Result};
use crate::launch;
use crate::shape::broadcast_shapes;
use crate::tensor::Tensor;

/// What a function is computed in, beside f64 for f64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compute {
    /// f32.
    Single,
    /// f32 for 16-bit floats, f64 for f32.
    HalvesInSingle,
    /// f64.
    Double,
    /// What the kernel says, which has no parameter for it.
    Fixed,
}

impl Compute {
    /// The dtypes of a launch on tensors of this one.
    fn dtypes(self, dtype: DType) -> Vec<DType> {
        let is_half = dtype.bytes() == 2;
        let wide = match self {
            Compute::Fixed => return vec![dtype],
            _ if dtype == DType::F64 => DType::F64,
            Compute::Single => DType::F32,
            Compute::HalvesInSingle if is_half => DType::F32,
            _ => DType::F64,
        };
        vec![dtype, wide]
    }
}

/// What a function does to integers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ints {
    /// They become f32.
    Floats,
    /// They come back as they are.
    Same,
    /// They are refused.
    Refused,
}

/// The function of a row on a tensor of any dtype.
#[track_caller]
pub(super) fn call(row: &'static Function, x: &Tensor) -> Result<Tensor> {
    match row.ints {
        Ints::Same if x.dtype().is_int() => x.copy(),
        Ints::Floats => apply(row, &[&x.as_float()?]),
        _ => apply(row, &[x]),
    }
}

/// An elementwise function of one operand.
pub struct Function {
    /// The name users know it by.
    pub name: &'static str,
    /// Its kernel.
    pub kernel: &'static KernelDef,
    /// What it is computed in.
    pub compute: Compute,
    /// What it does to integers.
    pub ints: Ints,
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
        if !x.dtype().is_arithmetic_float() {
            return Err(wrong_dtype(self.name, "a float", x.dtype()));
        }
        let y = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        launch::strided(self.kernel, &self.compute.dtypes(x.dtype()), &[x], &y, &[])?;
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
    (ints) => { super::math::Ints::Floats };
    (ints $ints:ident) => { super::math::Ints::$ints };
    (static $table:ident in $device:ident; $($(#[$doc:meta])* $name:ident {
        compute: $compute:expr;
        $(ints: $ints:ident;)?
        grad: $saves:expr, $grad:expr;
        reference: $reference:expr, $low:expr, $high:expr;
    })*) => {
        /// Every function of one operand in this file.
        pub static $table: &[&Function] = &[$(&Function {
            name: stringify!($name),
            kernel: &$device::$name::KERNEL,
            compute: $compute,
            ints: functions!(ints $($ints)?),
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
                /// # Errors
                /// If the dtype is not one the op takes, or memory runs out.
                #[track_caller]
                pub fn $name(&self) -> Result<Tensor> {
                    super::math::call($table[Row::$name as usize], self)
                }
            )*
        }
    };
}

pub(super) use functions;

const X: Saves = Saves::inputs(1);
const Y: Saves = Saves::OUTPUT;

functions! {
    static FUNCTIONS in device;

    /// The integer next to 0.
    trunc {
        compute: Compute::Single;
        ints: Same;
        grad: Saves::NOTHING, |_, dy| dy.zeros_like();
        reference: f64::trunc, -2.5, 2.5;
    }
    /// What [`Tensor::trunc`] takes away; it has the sign of x.
    frac {
        compute: Compute::Single;
        ints: Refused;
        grad: Saves::NOTHING, |_, dy| Ok(dy.clone());
        reference: f64::fract, 0.1, 0.9;
    }
    /// `1 / x`
    reciprocal {
        compute: Compute::Single;
        grad: Y, |s, dy| dy.mul(&s.output().mul(s.output())?.neg()?);
        reference: |x| 1.0 / x, 0.5, 9.0;
    }
    /// 2 to the power of x.
    exp2 {
        compute: Compute::Single;
        grad: Y, |s, dy| dy.mul(&s.output().mul_scalar(std::f64::consts::LN_2)?);
        reference: f64::exp2, -3.0, 3.0;
    }
    /// `exp(x) - 1`, exact near 0.
    expm1 {
        compute: Compute::Single;
        grad: Y, |s, dy| dy.mul(&s.output().add_scalar(1.0)?);
        reference: f64::exp_m1, -2.0, 2.0;
    }
    /// The logarithm to base 2.
    log2 {
        compute: Compute::Single;
        grad: X, |s, dy| dy.div(&s.input(0).mul_scalar(std::f64::consts::LN_2)?);
        reference: f64::log2, 0.1, 9.0;
    }
    /// The logarithm to base 10.
    log10 {
        compute: Compute::Single;
        grad: X, |s, dy| dy.div(&s.input(0).mul_scalar(std::f64::consts::LN_10)?);
        reference: f64::log10, 0.1, 9.0;
    }
    /// `log(1 + x)`, exact near 0.
    log1p {
        compute: Compute::Single;
        grad: X, |s, dy| dy.div(&s.input(0).add_scalar(1.0)?);
        reference: f64::ln_1p, -0.9, 3.0;
    }
    /// The tangent of x in radians.
    tan {
        compute: Compute::HalvesInSingle;
        grad: Y, |s, dy| dy.mul(&s.output().square()?.add_scalar(1.0)?);
        reference: f64::tan, -1.2, 1.2;
    }
    /// The arc sine; NaN outside -1..1.
    asin {
        compute: Compute::HalvesInSingle;
        grad: X, |s, dy| dy.mul(&s.input(0).square()?.neg()?.add_scalar(1.0)?.rsqrt()?);
        reference: f64::asin, -0.9, 0.9;
    }
    /// The arc cosine; NaN outside -1..1.
    acos {
        compute: Compute::HalvesInSingle;
        grad: X, |s, dy| dy.mul(&s.input(0).square()?.neg()?.add_scalar(1.0)?.rsqrt()?)?.neg();
        reference: f64::acos, -0.9, 0.9;
    }
    /// The arc tangent.
    atan {
        compute: Compute::Single;
        grad: X, |s, dy| dy.div(&s.input(0).square()?.add_scalar(1.0)?);
        reference: f64::atan, -3.0, 3.0;
    }
    /// The hyperbolic sine.
    sinh {
        compute: Compute::Single;
        grad: X, |s, dy| dy.mul(&s.input(0).cosh()?);
        reference: f64::sinh, -2.0, 2.0;
    }
    /// The hyperbolic cosine.
    cosh {
        compute: Compute::Single;
        grad: X, |s, dy| dy.mul(&s.input(0).sinh()?);
        reference: f64::cosh, -2.0, 2.0;
    }
    /// The inverse of the hyperbolic sine.
    asinh {
        compute: Compute::HalvesInSingle;
        grad: X, |s, dy| dy.mul(&s.input(0).square()?.add_scalar(1.0)?.rsqrt()?);
        reference: f64::asinh, -3.0, 3.0;
    }
    /// The inverse of the hyperbolic cosine; NaN below 1.
    acosh {
        compute: Compute::HalvesInSingle;
        grad: X, |s, dy| dy.mul(&s.input(0).square()?.sub_scalar(1.0)?.rsqrt()?);
        reference: f64::acosh, 1.5, 9.0;
    }
    /// The inverse of the hyperbolic tangent; NaN beyond -1..1.
    atanh {
        compute: Compute::HalvesInSingle;
        grad: X, |s, dy| dy.div(&s.input(0).square()?.rsub_scalar(1.0)?);
        reference: f64::atanh, -0.9, 0.9;
    }
    /// `1 - erf(x)`, exact far from 0.
    erfc {
        compute: Compute::HalvesInSingle;
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

fn gcd_reference(x: i64, y: i64) -> i64 {
    if y == 0 { x } else { gcd_reference(y, x % y) }
}

/// How the gradients of two operands follow, before broadcasting is undone.
type Grads = fn(&SavedTensors, &Tensor) -> Result<[Option<Tensor>; 2]>;

/// An elementwise function of two operands that broadcast.
pub struct Function2 {
    /// The name users know it by.
    pub name: &'static str,
    float: Option<&'static KernelDef>,
    compute: Compute,
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
                let dtypes = self.row.compute.dtypes(dtype);
                launch::strided(kernel, &dtypes, &[&x, &y], &z, &[])?;
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
        kernels: $float:expr, $compute:expr, $int:expr, $takes_bool:expr;
        grads: $saves:expr, $grads:expr;
        reference: $reference:expr, $is_smooth:expr;
    })*) => {
        /// Every function of two operands.
        pub static FUNCTIONS2: &[&Function2] = &[$(&Function2 {
            name: stringify!($name),
            float: $float,
            compute: $compute,
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
                #[track_caller]
                pub fn $name(&self, other: &Tensor) -> Result<Tensor> {
                    let row = FUNCTIONS2[Row2::$name as usize];
                    let (x, y) = match row.int {
                        None => promote::float_pair(self, other)?,
                        Some(_) => promote::pair(self, other)?,
                    };
                    let shapes = [x.shape().to_vec(), y.shape().to_vec()];
                    apply(Function2Call { row, shapes }, &[&x, &y])
                }

                $(#[$doc])*
                ///
                /// # Errors
                /// If the dtype is not one the op takes.
                #[track_caller]
                pub fn $scalar(&self, c: f64) -> Result<Tensor> {
                    if let Some(special) = self.special_power(stringify!($name), c) {
                        return special;
                    }
                    let y = match FUNCTIONS2[Row2::$name as usize].int {
                        None => self.as_float()?.number_beside(c)?,
                        Some(_) => self.number_beside(c)?,
                    };
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
        kernels: Some(&device::pow::KERNEL), Compute::HalvesInSingle, Some(&device::int_pow::KERNEL), false;
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
        kernels: Some(&device::atan2::KERNEL), Compute::Single, None, false;
        grads: XY, |s, dy| {
            let (y, x) = (s.input(0), s.input(1));
            let squares = x.square()?.add(&y.square()?)?;
            // The angle of (0, 0) has no slope: 0, as in PyTorch, instead of 0 / 0.
            let share = dy.div(&squares.masked_fill(&squares.detach().eq_scalar(0.0)?, 1.0)?)?;
            Ok([Some(share.mul(x)?), Some(share.mul(y)?.neg()?)])
        };
        reference: f64::atan2, true;
    }
    /// The rest of a truncated division; it has the sign of `x`.
    fmod, fmod_scalar {
        kernels: Some(&device::fmod::KERNEL), Compute::Double, Some(&device::int_fmod::KERNEL), false;
        grads: XY, |s, dy| {
            let quotient = s.input(0).div(s.input(1))?.trunc()?;
            Ok([Some(dy.clone()), Some(dy.mul(&quotient)?.neg()?)])
        };
        reference: |x, y| x % y, false;
    }
    /// The rest of a division rounded down; it has the sign of `y`.
    remainder, remainder_scalar {
        kernels: Some(&device::remainder::KERNEL), Compute::Double, Some(&device::int_remainder::KERNEL), false;
        grads: XY, |s, dy| {
            let quotient = s.input(0).div(s.input(1))?.floor()?;
            Ok([Some(dy.clone()), Some(dy.mul(&quotient)?.neg()?)])
        };
        reference: remainder_reference, false;
    }
    /// The quotient rounded down. The gradient is zero.
    floor_divide, floor_divide_scalar {
        kernels: Some(&device::floor_divide::KERNEL), Compute::Double, Some(&device::int_floor_divide::KERNEL), false;
        grads: Saves::NOTHING, |_, dy| Ok([Some(dy.zeros_like()?), Some(dy.zeros_like()?)]);
        reference: |x, y| (x / y).floor(), false;
    }
    /// The quotient, as [`Tensor::div`] rounds it, without its fraction. The gradient is zero.
    trunc_divide, trunc_divide_scalar {
        kernels: Some(&device::trunc_divide::KERNEL), Compute::Single, Some(&device::int_trunc_divide::KERNEL), false;
        grads: Saves::NOTHING, |_, dy| Ok([Some(dy.zeros_like()?), Some(dy.zeros_like()?)]);
        reference: |x, y| (x / y).trunc(), false;
    }
    /// Bit by bit, set where both are.
    bitwise_and, bitwise_and_scalar {
        kernels: None, Compute::Fixed, Some(&device::bit_and::KERNEL), true;
        grads: Saves::NOTHING, |_, _| Ok([None, None]);
        reference: |x, y| (x as i64 & y as i64) as f64, false;
    }
    /// Bit by bit, set where one is or both.
    bitwise_or, bitwise_or_scalar {
        kernels: None, Compute::Fixed, Some(&device::bit_or::KERNEL), true;
        grads: Saves::NOTHING, |_, _| Ok([None, None]);
        reference: |x, y| (x as i64 | y as i64) as f64, false;
    }
    /// Bit by bit, set where they differ.
    bitwise_xor, bitwise_xor_scalar {
        kernels: None, Compute::Fixed, Some(&device::bit_xor::KERNEL), true;
        grads: Saves::NOTHING, |_, _| Ok([None, None]);
        reference: |x, y| (x as i64 ^ y as i64) as f64, false;
    }
    /// The greatest common divisor; that of two zeros is 0.
    gcd, gcd_scalar {
        kernels: None, Compute::Fixed, Some(&device::int_gcd::KERNEL), false;
        grads: Saves::NOTHING, |_, _| Ok([None, None]);
        reference: |x, y| gcd_reference(x as i64, y as i64) as f64, false;
    }
    /// The least common multiple.
    lcm, lcm_scalar {
        kernels: None, Compute::Fixed, Some(&device::int_lcm::KERNEL), false;
        grads: Saves::NOTHING, |_, _| Ok([None, None]);
        reference: |x, y| x * y / gcd_reference(x as i64, y as i64) as f64, false;
    }
    /// The length of the vector of the two, which overflows only where it has to.
    hypot, hypot_scalar {
        kernels: Some(&device::hypot::KERNEL), Compute::Double, None, false;
        grads: Saves { inputs: 3, output: true }, |s, dy| {
            // The quotient is at most 1, whatever the length of a small vector is in 16 bits.
            let share = |x: &Tensor| dy.mul(&x.div(s.output())?);
            Ok([Some(share(s.input(0))?), Some(share(s.input(1))?)])
        };
        reference: f64::hypot, true;
    }
    /// `log(exp(x) + exp(y))`, which does not overflow.
    logaddexp, logaddexp_scalar {
        kernels: Some(&device::logaddexp::KERNEL), Compute::HalvesInSingle, None, false;
        grads: Saves { inputs: 3, output: true }, |s, dy| {
            let share = |x: &Tensor| dy.mul(&x.sub(s.output())?.exp()?);
            Ok([Some(share(s.input(0))?), Some(share(s.input(1))?)])
        };
        reference: |x, y| x.max(y) + (-(x - y).abs()).exp().ln_1p(), true;
    }
    /// `x log(y)`; zero where x is, whatever y but NaN.
    xlogy, xlogy_scalar {
        kernels: Some(&device::xlogy::KERNEL), Compute::Single, None, false;
        grads: XY, |s, dy| {
            let (x, y) = (s.input(0), s.input(1));
            let is_flat = x.eq_scalar(0.0)?.logical_and(&y.le_scalar(0.0)?)?;
            let dx = dy.mul(&y.masked_fill(&is_flat, 1.0)?.log()?)?;
            Ok([Some(dx), Some(dy.mul(x)?.div(y)?)])
        };
        reference: |x, y| x * y.ln(), true;
    }
    /// The magnitude of the one with the sign of the other, that of a zero too.
    copysign, copysign_scalar {
        kernels: Some(&device::copysign::KERNEL), Compute::Double, None, false;
        grads: Saves { inputs: 1, output: true }, |s, dy| {
            let (x, z) = (s.input(0).detach(), s.output().detach());
            let is_zero = x.eq_scalar(0.0)?;
            let sign = z.sign()?.mul(&x.sign()?)?.masked_fill(&is_zero, 0.0)?;
            Ok([Some(dy.mul(&sign)?), Some(dy.zeros_like()?)])
        };
        reference: f64::copysign, true;
    }
}
