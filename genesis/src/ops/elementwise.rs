//! Elementwise ops: each is one row of a table, with its kernel, gradient and reference.
//!
//! ```text
//! tanh {
//!     kernel: tanh, tanh_flat;
//!     grad: |x, y, dy| dy * (1.0 - y * y), saves y;
//!     reference: f64::tanh;
//!     at: [-2.0, 0.1, 1.5];
//! }
//! ```

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::KernelDef;
use kernels::elementwise as device;

use super::promote;
use super::{Op, Saves, apply, unbroadcast, wrong_dtype};
use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::dispatch::trace;
use crate::error::{Error, Result};
use crate::fuse::{Fused, fuse};
use crate::launch;
use crate::shape::{Axes, broadcast_shapes, is_same};
use crate::tensor::Tensor;

/// Which dtypes an op takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Domain {
    /// Integers and floats.
    Number,
    /// Floats; integers and bools become f32, for the result has a fraction.
    Float,
    /// Floats; integers are whole already and come back as they are.
    Rounding,
    /// Floats and nothing else.
    FloatOnly,
}

/// How the gradient of one operand follows from the operand, the result and `dy`.
type UnaryGrad = fn(&SavedTensors, &Tensor) -> Result<Tensor>;

/// An elementwise op of one operand.
#[derive(Debug)]
pub struct Unary {
    /// The name users know it by.
    pub name: &'static str,
    /// The kernel for any strides, and the one for dense tensors.
    pub kernels: (&'static KernelDef, &'static KernelDef),
    /// Which dtypes it takes.
    pub domain: Domain,
    /// Which tensors its gradient reads.
    pub saves: Saves,
    /// `dx` from the saved tensors and `dy`; none where it is zero everywhere.
    pub grad: Option<UnaryGrad>,
    /// The f64 reference.
    pub reference: fn(f64) -> f64,
    /// Where tests look at it.
    pub at: &'static [f64],
}

impl Op for &'static Unary {
    fn name(&self) -> &'static str {
        self.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0];
        check_domain(self.name, self.domain, x.dtype())?;
        let y = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        launch::unary(self.kernels, x, &y)?;
        Ok(y)
    }

    fn saves(&self) -> Saves {
        self.saves
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let Some(grad) = self.grad else { return Ok(vec![None]) };
        if !SEVERAL.contains(&self.name) || is_grad_enabled() || trace::is_on() {
            return Ok(vec![Some(grad(saved, dy)?)]);
        }
        let read = if self.saves.output { saved.output() } else { saved.input(0) };
        Ok(vec![Some(fused_gradient(self.name, grad).call(&[read, dy])?)])
    }
}

/// Rows whose gradient is several ops, which run as one kernel.
const SEVERAL: [&str; 5] = ["relu", "tanh", "sigmoid", "gelu", "silu"];

/// The gradient of a row as one kernel: of what it reads, and `dy`.
fn fused_gradient(name: &'static str, grad: UnaryGrad) -> Fused {
    static KNOWN: Mutex<BTreeMap<&str, Fused>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let make = || {
        fuse(move |args| {
            let [read, dy] = args else { return Err(Error::op(name, "a gradient reads two")) };
            grad(&SavedTensors::only(read), dy)
        })
    };
    known.entry(name).or_insert_with(make).clone()
}

fn check_domain(op: &str, domain: Domain, dtype: DType) -> Result<()> {
    let fits = match domain {
        Domain::Number => dtype.is_number(),
        _ => dtype.is_arithmetic_float(),
    };
    if fits {
        return Ok(());
    }
    let wants = if domain == Domain::Number { "a number" } else { "a float" };
    Err(wrong_dtype(op, wants, dtype))
}

/// The op of a row on a tensor of any dtype.
#[track_caller]
fn unary(row: &'static Unary, x: &Tensor) -> Result<Tensor> {
    match row.domain {
        Domain::Float => apply(row, &[&x.as_float()?]),
        Domain::Rounding if x.dtype().is_int() => x.copy(),
        _ => apply(row, &[x]),
    }
}

macro_rules! unary_ops {
    ($($(#[$doc:meta])* $name:ident {
        kernel: $kernel:ident, $flat:ident;
        domain: $domain:ident;
        grad: $saves:expr, $grad:expr;
        reference: $reference:expr;
        at: [$($at:expr),*];
    })*) => {
        /// Every elementwise op of one operand.
        pub static UNARY: &[&Unary] = &[$(&Unary {
            name: stringify!($name),
            kernels: (&device::$kernel::KERNEL, &device::$flat::KERNEL),
            domain: Domain::$domain,
            saves: $saves,
            grad: $grad,
            reference: $reference,
            at: &[$($at),*],
        }),*];

        #[allow(non_camel_case_types, reason = "each variant is named like its op")]
        enum UnaryRow { $($name),* }

        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// If the dtype is not one the op takes, or memory runs out.
                #[track_caller]
                pub fn $name(&self) -> Result<Tensor> {
                    unary(UNARY[UnaryRow::$name as usize], self)
                }
            )*
        }
    };
}

const X: Saves = Saves::inputs(1);
const Y: Saves = Saves::OUTPUT;

unary_ops! {
    /// `-x`
    neg {
        kernel: neg, neg_flat;
        domain: Number;
        grad: Saves::NOTHING, Some(|_, dy| dy.neg());
        reference: |x| -x;
        at: [-2.0, 0.0, 1.5];
    }
    /// `|x|`; the gradient at 0 is 0.
    abs {
        kernel: abs, abs_flat;
        domain: Number;
        grad: X, Some(|s, dy| dy.mul(&s.input(0).sign()?));
        reference: f64::abs;
        at: [-2.0, 0.5, 1.5];
    }
    /// The larger of x and 0; the gradient at 0 is 0, and passes where x is NaN.
    relu {
        kernel: relu, relu_flat;
        domain: Number;
        grad: Y, Some(|s, dy| dy.masked_fill(&s.output().le_scalar(0.0)?, 0.0));
        reference: |x| if x.is_nan() { x } else { x.max(0.0) };
        at: [-2.0, 0.5, 1.5];
    }
    /// The square root; NaN below 0.
    sqrt {
        kernel: sqrt, sqrt_flat;
        domain: Float;
        grad: Y, Some(|s, dy| dy.div(&s.output().mul_scalar(2.0)?));
        reference: f64::sqrt;
        at: [0.25, 1.0, 9.5];
    }
    /// One over the square root.
    rsqrt {
        kernel: rsqrt, rsqrt_flat;
        domain: Float;
        grad: Y, Some(|s, dy| {
            let y = s.output();
            dy.mul(&y.mul(y)?.mul(y)?)?.mul_scalar(-0.5)
        });
        reference: |x| 1.0 / x.sqrt();
        at: [0.25, 1.0, 9.5];
    }
    /// e to the power of x.
    exp {
        kernel: exp, exp_flat;
        domain: Float;
        grad: Y, Some(|s, dy| dy.mul(s.output()));
        reference: f64::exp;
        at: [-3.0, 0.1, 2.0];
    }
    /// The natural logarithm; NaN below 0.
    log {
        kernel: log, log_flat;
        domain: Float;
        grad: X, Some(|s, dy| dy.div(s.input(0)));
        reference: f64::ln;
        at: [0.1, 1.0, 7.0];
    }
    /// The sine of x in radians.
    sin {
        kernel: sin, sin_flat;
        domain: Float;
        grad: X, Some(|s, dy| dy.mul(&s.input(0).cos()?));
        reference: f64::sin;
        at: [-2.0, 0.1, 3.0];
    }
    /// The cosine of x in radians.
    cos {
        kernel: cos, cos_flat;
        domain: Float;
        grad: X, Some(|s, dy| dy.mul(&s.input(0).sin()?)?.neg());
        reference: f64::cos;
        at: [-2.0, 0.1, 3.0];
    }
    /// The hyperbolic tangent.
    tanh {
        kernel: tanh, tanh_flat;
        domain: Float;
        grad: Y, Some(|s, dy| dy * (1.0 - (s.output() * s.output())?));
        reference: f64::tanh;
        at: [-2.0, 0.1, 1.5];
    }
    /// The error function.
    erf {
        kernel: erf, erf_flat;
        domain: Float;
        grad: X, Some(|s, dy| {
            let x = s.input(0);
            dy.mul(&x.mul(x)?.neg()?.exp()?.mul_scalar(std::f64::consts::FRAC_2_SQRT_PI)?)
        });
        reference: erf_reference;
        at: [-2.0, 0.1, 1.5];
    }
    /// `1 / (1 + exp(-x))`
    sigmoid {
        kernel: sigmoid, sigmoid_flat;
        domain: Float;
        grad: Y, Some(|s, dy| {
            let y = s.output();
            dy.mul(&y.mul(&(1.0 - y)?)?)
        });
        reference: |x| 1.0 / (1.0 + (-x).exp());
        at: [-2.0, 0.1, 1.5];
    }
    /// Exact GELU, `x * Phi(x)`.
    gelu {
        kernel: gelu, gelu_flat;
        domain: FloatOnly;
        grad: X, Some(|s, dy| dy.mul(&s.input(0).gelu_slope()?));
        reference: |x| 0.5 * x * (1.0 + erf_reference(x * std::f64::consts::FRAC_1_SQRT_2));
        at: [-2.0, 0.1, 1.5];
    }
    /// The derivative of exact GELU, `Phi(x) + x * phi(x)`.
    gelu_slope {
        kernel: gelu_slope, gelu_slope_flat;
        domain: FloatOnly;
        grad: X, Some(|s, dy| {
            // The second derivative: phi(x) * (2 - x^2).
            let x = s.input(0);
            let square = x.mul(x)?;
            let phi = square.mul_scalar(-0.5)?.exp()?.mul_scalar(0.398_942_280_401_432_7)?;
            dy.mul(&phi.mul(&(2.0 - square)?)?)
        });
        reference: |x| {
            let cdf = 0.5 * (1.0 + erf_reference(x * std::f64::consts::FRAC_1_SQRT_2));
            cdf + x * (-0.5 * x * x).exp() * 0.398_942_280_401_432_7
        };
        at: [-2.0, 0.1, 1.5];
    }
    /// `x * sigmoid(x)`, also called swish.
    silu {
        kernel: silu, silu_flat;
        domain: FloatOnly;
        grad: X, Some(|s, dy| {
            let x = s.input(0);
            let p = x.sigmoid()?;
            dy.mul(&p.mul(&(x.mul(&(1.0 - &p)?)? + 1.0)?)?)
        });
        reference: |x| x / (1.0 + (-x).exp());
        at: [-2.0, 0.1, 1.5];
    }
    /// The largest integer that is not larger.
    floor {
        kernel: floor, floor_flat;
        domain: Rounding;
        grad: Saves::NOTHING, Some(|_, dy| dy.zeros_like());
        reference: f64::floor;
        at: [-1.5, 0.2, 2.7];
    }
    /// The smallest integer that is not smaller.
    ceil {
        kernel: ceil, ceil_flat;
        domain: Rounding;
        grad: Saves::NOTHING, Some(|_, dy| dy.zeros_like());
        reference: f64::ceil;
        at: [-1.5, 0.2, 2.7];
    }
    /// The nearest integer, ties to even.
    round {
        kernel: round, round_flat;
        domain: Rounding;
        grad: Saves::NOTHING, Some(|_, dy| dy.zeros_like());
        reference: f64::round_ties_even;
        at: [-1.4, 0.2, 2.7];
    }
}

/// The error function in f64: a series near 0, a continued fraction far away.
pub(super) fn erf_reference(x: f64) -> f64 {
    let z = x.abs();
    if x.is_nan() {
        return x;
    }
    if z > 6.0 {
        return x.signum();
    }
    if z < 2.5 {
        // Every term is positive: nothing cancels.
        let (mut term, mut sum, mut n) = (z, z, 0.0);
        while term > sum * 1e-18 {
            n += 1.0;
            term *= 2.0 * z * z / (2.0 * n + 1.0);
            sum += term;
        }
        // The rounding of z * z would come back z * z times in the exponential.
        let square = z * z;
        let rest = z.mul_add(z, -square);
        return x.signum()
            * sum
            * (-square).exp()
            * (1.0 - rest)
            * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let fraction = (1..=300).rev().fold(z, |f, k| z + f64::from(k) / 2.0 / f);
    x.signum() * (1.0 - (-z * z).exp() / (fraction * std::f64::consts::PI.sqrt()))
}

/// How the gradients of two operands follow from the saved tensors and `dy`, before broadcasting is
/// undone.
type BinaryGrad = fn(&SavedTensors, &Tensor) -> Result<[Option<Tensor>; 2]>;

/// An elementwise op of two operands that broadcast.
#[derive(Debug)]
pub struct Binary {
    /// The name users know it by.
    pub name: &'static str,
    /// The kernel for any strides, and the one for dense tensors.
    pub kernels: (&'static KernelDef, &'static KernelDef),
    /// The kernels for a matrix with one row, and with one column.
    pub lines: (&'static KernelDef, &'static KernelDef),
    /// Which tensors its gradients read.
    pub saves: Saves,
    /// The gradients.
    pub grad: BinaryGrad,
    /// What it does where both operands are bools or integers.
    ints: Ints,
    /// The f64 reference.
    pub reference: fn(f64, f64) -> f64,
}

/// What an op of two operands does where neither is a float.
#[derive(Clone, Copy, Debug)]
enum Ints {
    /// Integers as such; bools by this op.
    Logic(fn(&Tensor, &Tensor) -> Result<Tensor>),
    /// Integers as such; bools are refused.
    NoBools,
    /// Both become f32.
    Floats,
}

/// The op of a row on tensors of any dtypes: they promote.
#[track_caller]
fn binary(row: &'static Binary, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    if x.dtype() == y.dtype() && x.dtype().is_float() && x.device() == y.device() {
        return of_one_dtype(row, x, y);
    }
    let dtype = promote::result_type(&[x, y]);
    let is_wider = |t: &Tensor| t.rank() == 0 && t.dtype().is_float() && t.dtype().bytes() > 2;
    if dtype.is_arithmetic_float() && dtype.bytes() == 2 && (is_wider(x) || is_wider(y)) {
        // A number is not rounded to 16 bits before it is computed with.
        let wide = binary(row, &x.to_dtype(DType::F32)?, &y.to_dtype(DType::F32)?)?;
        return wide.to_dtype(dtype);
    }
    let (x, y) = match row.ints {
        Ints::Floats => promote::float_pair(x, y)?,
        _ => promote::pair(x, y)?,
    };
    if let (Ints::Logic(logic), DType::Bool) = (row.ints, x.dtype()) {
        return logic(&x, &y);
    }
    of_one_dtype(row, &x, &y)
}

/// The op of a row on tensors that need no promotion.
#[track_caller]
#[inline]
fn of_one_dtype(row: &'static Binary, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let shapes = [x.shape().into(), y.shape().into()];
    apply(BinaryCall { row, shapes }, &[x, y])
}

/// A binary op in the making: it remembers its operands' shapes for the gradient.
struct BinaryCall {
    row: &'static Binary,
    shapes: [Axes<usize>; 2],
}

impl Op for BinaryCall {
    fn name(&self) -> &'static str {
        self.row.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, y) = (inputs[0], inputs[1]);
        check_pair(self.row.name, x, y)?;
        check_domain(self.row.name, Domain::Number, x.dtype())?;
        if is_same(x.shape(), y.shape()) && x.is_contiguous() && y.is_contiguous() {
            let z = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
            launch::binary_dense(self.row.kernels, x, y, &z)?;
            return Ok(z);
        }
        let shape = broadcast_shapes(self.row.name, &[x.shape(), y.shape()])?;
        let z = Tensor::uninitialized(&shape, (x.dtype(), x.device()))?;
        let (x, y) = (x.broadcast_to(&shape)?, y.broadcast_to(&shape)?);
        launch::binary(self.row.kernels, self.row.lines, &x, &y, &z)?;
        Ok(z)
    }

    fn saves(&self) -> Saves {
        self.row.saves
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let grads = (self.row.grad)(saved, dy)?;
        let back = |(grad, shape): (Option<Tensor>, &Axes<usize>)| {
            grad.map(|g| unbroadcast(&g, shape)).transpose()
        };
        grads.into_iter().zip(&self.shapes).map(back).collect()
    }
}

/// Both operands of one dtype on one device.
pub(super) fn check_pair(op: &str, x: &Tensor, y: &Tensor) -> Result<()> {
    if x.dtype() != y.dtype() && !crate::dispatch::autocast::unifies(op, x, y) {
        let message =
            format!("dtypes differ, {} and {}; convert one with to_dtype", x.dtype(), y.dtype());
        return Err(Error::op(op, message));
    }
    if x.device() != y.device() {
        let message =
            format!("devices differ, {} and {}; move one with to_device", x.device(), y.device());
        return Err(Error::op(op, message));
    }
    Ok(())
}

macro_rules! binary_ops {
    ($($(#[$doc:meta])* $name:ident {
        kernel: $kernel:ident, $flat:ident, $row:ident, $column:ident;
        ints: $ints:expr;
        grad: $saves:expr, $grad:expr;
        reference: $reference:expr;
    })*) => {
        /// Every elementwise op of two operands.
        pub static BINARY: &[&Binary] = &[$(&Binary {
            name: stringify!($name),
            kernels: (&device::$kernel::KERNEL, &device::$flat::KERNEL),
            lines: (&device::$row::KERNEL, &device::$column::KERNEL),
            saves: $saves,
            grad: $grad,
            ints: $ints,
            reference: $reference,
        }),*];

        #[allow(non_camel_case_types, reason = "each variant is named like its op")]
        enum BinaryRow { $($name),* }

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
                    binary(BINARY[BinaryRow::$name as usize], self, other)
                }
            )*
        }
    };
}

const XY: Saves = Saves::inputs(3);

binary_ops! {
    /// `x + y`; of bools whether one is true.
    add {
        kernel: add, add_flat, add_row, add_column;
        ints: Ints::Logic(Tensor::logical_or);
        grad: Saves::NOTHING, |_, dy| Ok([Some(dy.clone()), Some(dy.clone())]);
        reference: |x, y| x + y;
    }
    /// `x - y`; not of two bools.
    sub {
        kernel: sub, sub_flat, sub_row, sub_column;
        ints: Ints::NoBools;
        grad: Saves::NOTHING, |s, dy| {
            Ok([Some(dy.clone()), if s.wanted[1] { Some(dy.neg()?) } else { None }])
        };
        reference: |x, y| x - y;
    }
    /// `x * y`; of bools whether both are true.
    mul {
        kernel: mul, mul_flat, mul_row, mul_column;
        ints: Ints::Logic(Tensor::logical_and);
        grad: XY, |s, dy| Ok([
            if s.wanted[0] { Some(dy.mul(s.input(1))?) } else { None },
            if s.wanted[1] { Some(dy.mul(s.input(0))?) } else { None },
        ]);
        reference: |x, y| x * y;
    }
    /// `x / y`; integers become f32. For whole quotients see [`Tensor::div_rounded`].
    div {
        kernel: div, div_flat, div_row, div_column;
        ints: Ints::Floats;
        grad: XY, |s, dy| {
            let (x, y) = (s.input(0), s.input(1));
            // The quotient by y first: where x is 0, dy / y may still be infinite.
            let slope = || x.div(y)?.div(y);
            Ok([
                if s.wanted[0] { Some(dy.div(y)?) } else { None },
                if s.wanted[1] { Some(dy.neg()?.mul(&slope()?)?) } else { None },
            ])
        };
        reference: |x, y| x / y;
    }
    /// The larger of x and y; NaN wins. Where they are equal each gets half of the gradient, where one is
    /// NaN both all of it.
    maximum {
        kernel: maximum, maximum_flat, maximum_row, maximum_column;
        ints: Ints::Logic(Tensor::logical_or);
        grad: XY, |s, dy| shared(dy, s.input(0), s.input(1), Tensor::lt);
        reference: |x, y| if x.is_nan() || y.is_nan() { f64::NAN } else { x.max(y) };
    }
    /// The smaller of x and y; NaN wins. Where they are equal each gets half of the gradient, where one is
    /// NaN both all of it.
    minimum {
        kernel: minimum, minimum_flat, minimum_row, minimum_column;
        ints: Ints::Logic(Tensor::logical_and);
        grad: XY, |s, dy| shared(dy, s.input(0), s.input(1), Tensor::gt);
        reference: |x, y| if x.is_nan() || y.is_nan() { f64::NAN } else { x.min(y) };
    }
}

/// `dy` to the operand that does not lose; half to each where they are equal, all of it to both where one
/// is NaN.
#[track_caller]
fn shared(
    dy: &Tensor,
    x: &Tensor,
    y: &Tensor,
    loses: fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<[Option<Tensor>; 2]> {
    let share = x.eq(y)?.where_(&dy.mul_scalar(0.5)?, dy)?;
    let part = |lost: Tensor| share.masked_fill(&lost, 0.0).map(Some);
    Ok([part(loses(x, y)?)?, part(loses(y, x)?)?])
}

/// An elementwise op of a tensor and a number.
struct Scalar {
    name: &'static str,
    kernels: (&'static KernelDef, &'static KernelDef),
    value: f64,
    saves: Saves,
    grad: ScalarGrad,
}

/// How the gradient of the tensor follows from the number, the saved tensors and `dy`.
type ScalarGrad = fn(f64, &SavedTensors, &Tensor) -> Result<Tensor>;

impl Op for Scalar {
    fn name(&self) -> &'static str {
        self.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0];
        check_domain(self.name, Domain::Number, x.dtype())?;
        let y = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        launch::scalar_op(self.kernels, x, &y, self.value)?;
        Ok(y)
    }

    fn saves(&self) -> Saves {
        self.saves
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some((self.grad)(self.value, saved, dy)?)])
    }
}

macro_rules! scalar_ops {
    ($($(#[$doc:meta])* $name:ident, $kernel:ident, $flat:ident, $is_quotient:expr, $saves:expr, $grad:expr;)*) => {
        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// A fraction beside an integer tensor makes it f32, any number beside a bool tensor
                /// makes that i64 or f32.
                ///
                /// # Errors
                /// If the dtype is for storage only, or memory runs out.
                #[track_caller]
                pub fn $name(&self, c: f64) -> Result<Tensor> {
                    let kernels = (&device::$kernel::KERNEL, &device::$flat::KERNEL);
                    let (saves, grad): (Saves, ScalarGrad) = ($saves, $grad);
                    let x = if $is_quotient { self.as_float()? } else { self.beside_number(c)? };
                    apply(Scalar { name: stringify!($name), kernels, value: c, saves, grad }, &[&x])
                }
            )*
        }
    };
}

scalar_ops! {
    /// `x + c`
    add_scalar, add_scalar, add_scalar_flat, false, Saves::NOTHING, |_, _, dy| Ok(dy.clone());
    /// `x * c`
    mul_scalar, mul_scalar, mul_scalar_flat, false, Saves::NOTHING, |c, _, dy| dy.mul_scalar(c);
    /// `x / c`; integers become f32.
    div_scalar, div_scalar, div_scalar_flat, true, Saves::NOTHING, |c, _, dy| dy.div_scalar(c);
    /// `c / x`; integers become f32.
    rdiv_scalar, rdiv_scalar, rdiv_scalar_flat, true, XY_FIRST, |c, s, dy| {
        let x = s.input(0);
        // Not through the square, which overflows where the slope is a number.
        dy.mul(&x.rdiv_scalar(-c)?.div(x)?)
    };
    /// The larger of x and c; NaN wins. The gradient at c goes to x.
    maximum_scalar, maximum_scalar, maximum_scalar_flat, false, XY_FIRST, |c, s, dy| {
        dy.mul(&s.input(0).ge_scalar(c)?.to_dtype(dy.dtype())?)
    };
    /// The smaller of x and c; NaN wins. The gradient at c goes to x.
    minimum_scalar, minimum_scalar, minimum_scalar_flat, false, XY_FIRST, |c, s, dy| {
        dy.mul(&s.input(0).le_scalar(c)?.to_dtype(dy.dtype())?)
    };
}

const XY_FIRST: Saves = Saves::inputs(1);

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
        self.maximum_scalar(low)?.minimum_scalar(high)
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
        let above = self.gt_scalar(0.0)?.to_dtype(self.dtype())?;
        above.sub(&self.lt_scalar(0.0)?.to_dtype(self.dtype())?)
    }
}
