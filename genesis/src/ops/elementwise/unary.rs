//! Elementwise ops of one operand: each is one row of a table, with its kernel, gradient and reference.
//!
//! ```text
//! tanh {
//!     kernel: tanh, tanh_flat;
//!     domain: Float;
//!     autocast: Single;          in what autocast computes it, where that changes it
//!     grad: Y, |s, dy| ..;       what it reads: X the operand, Y the result
//!     in_place: tanh_;           where it has such a form
//!     family: Transcendental;    how exact tests want it
//!     reference: f64::tanh, -2.0, 1.5;
//!     timed: peer("F.gelu(*x)"); what PyTorch calls it, where that is not `torch.tanh(*x)`
//! }
//! ```

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::KernelDef;
use kernels::elementwise as device;

use crate::autograd::SavedTensors;
use crate::dispatch::autocast::{Precision, Precisions};
use crate::error::Result;
use crate::launch;
use crate::ops::in_place::in_place;
use crate::ops::{Differentiated, Op, Saves, apply, gradients, result_in, wrong_dtype};
use crate::tensor::Tensor;

/// Which dtypes an op takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Domain {
    /// Integers and floats.
    Number,
    /// Floats; integers and bools become f32, for the result has a fraction.
    Float,
    /// Floats; integers are whole already and come back as they are.
    Rounding,
    /// Floats and nothing else.
    FloatOnly,
}

/// How the gradient of the operand follows from the saved tensors and `dy`.
type UnaryGrad = fn(&SavedTensors, &Tensor) -> Result<Tensor>;

/// An elementwise op of one operand.
#[derive(Debug)]
struct Unary {
    /// The name users know it by.
    name: &'static str,
    /// The kernel for any strides, and the one for dense tensors.
    kernels: (&'static KernelDef, &'static KernelDef),
    /// Which dtypes it takes.
    domain: Domain,
    /// Which tensors its gradient reads.
    saves: Saves,
    /// `dx` from the saved tensors and `dy`.
    grad: UnaryGrad,
}

/// A unary op in the making.
struct UnaryCall {
    row: &'static Unary,
    /// Where the result may be written, of an op in place.
    into: Option<Tensor>,
}

impl Op for UnaryCall {
    fn name(&self) -> &'static str {
        self.row.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, row) = (inputs[0], self.row);
        check_domain(row.name, row.domain, x.dtype())?;
        let y = result_in(self.into.as_ref(), &[x], x.shape(), (x.dtype(), x.device()))?;
        launch::unary(row.kernels, x, &y)?;
        Ok(y)
    }

    fn saves(&self) -> Saves {
        self.row.saves
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (numbers, grad) = (&[][..], self.row.grad);
        let op = Differentiated { name: self.row.name, numbers, by: grad as usize };
        gradients(&op, saved, dy, move |saved, dy| Ok(vec![Some(grad(saved, dy)?)]))
    }
}

pub(super) fn check_domain(op: &str, domain: Domain, dtype: DType) -> Result<()> {
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

/// The op of a row on a tensor of any dtype. The result may be written over `into`.
#[track_caller]
fn unary(row: &'static Unary, x: &Tensor, into: Option<&Tensor>) -> Result<Tensor> {
    let call = UnaryCall { row, into: into.cloned() };
    match row.domain {
        Domain::Float => apply(call, &[&x.as_float()?]),
        Domain::Rounding if x.dtype().is_int() => x.copy(),
        _ => apply(call, &[x]),
    }
}

macro_rules! unary_ops {
    (refused Number $name:ident) => {
        &[
            (
                || cpu(&[2], DType::Bool)?.$name(),
                concat!(stringify!($name), ": needs a number dtype, got bool"),
            ),
            (|| cpu(&[2], DType::F8E4M3)?.$name(), unary_ops!(stored "a number" $name)),
        ]
    };
    (refused FloatOnly $name:ident) => {
        &[
            (
                || cpu(&[2], DType::I32)?.$name(),
                concat!(stringify!($name), ": needs a float dtype, got i32"),
            ),
            (|| cpu(&[2], DType::F8E4M3)?.$name(), unary_ops!(stored "a float" $name)),
        ]
    };
    (refused $domain:ident $name:ident) => {
        &[(|| cpu(&[2], DType::F8E4M3)?.$name(), unary_ops!(stored "a float" $name))]
    };
    (stored $wants:literal $name:ident) => {
        concat!(
            stringify!($name), ": needs ", $wants,
            " dtype, got f8e4m3, which is for storage: convert it with `to_dtype`"
        )
    };
    ($($(#[$doc:meta])* $name:ident {
        kernel: $kernel:ident, $flat:ident;
        domain: $domain:ident;
        $(autocast: $precision:ident;)?
        grad: $saves:expr, $grad:expr;
        $(in_place: $in_place:ident;)?
        family: $family:ident;
        reference: $reference:expr, $low:expr, $high:expr;
        $(timed: $peer:ident($call:literal);)?
    })*) => {
        static ROWS: &[&Unary] = &[$(&Unary {
            name: stringify!($name),
            kernels: (&device::$kernel::KERNEL, &device::$flat::KERNEL),
            domain: Domain::$domain,
            saves: $saves,
            grad: $grad,
        }),*];

        pub(super) const AUTOCAST: Precisions =
            &[$($((stringify!($name), Precision::$precision),)?)*];

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
                    unary(ROWS[Row::$name as usize], self, None)
                }
            )*
        }

        $($(in_place!($in_place = $name(): |x, into| {
            unary(ROWS[Row::$name as usize], x, into)
        });)?)*

        #[cfg(feature = "op-info")]
        pub(super) mod info {
            use super::*;
            use crate::ops::elementwise::reference;
            use crate::ops::info::{ELEMENTWISE, FLOATS, Family, Method, NUMBERS, OpInfo, cpu, map};

            const fn dtypes(domain: Domain) -> &'static [DType] {
                if matches!(domain, Domain::Number) { NUMBERS } else { FLOATS }
            }

            const fn is_flat(domain: Domain) -> bool {
                matches!(domain, Domain::Rounding)
            }

            pub(in crate::ops) static INFOS: &[OpInfo] = &[$(
                OpInfo::new(
                    stringify!($name),
                    Family::$family,
                    |x| x[0].$name(),
                    |x| map(&x[0], $reference),
                    ELEMENTWISE,
                )
                .within($low, $high)
                .of(dtypes(Domain::$domain))
                .flat_if(is_flat(Domain::$domain))
                $(.$peer($call))?
                .refusing(unary_ops!(refused $domain $name)),
            )*];

            pub(in crate::ops) static METHODS: &[Method] = &[$(
                Method { name: stringify!($name), call: |x, _, _| x.$name() },
                $(Method {
                    name: stringify!($in_place),
                    call: |x, _, _| x.$in_place().map(|()| x.clone()),
                },)?
            )*];
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
        grad: Saves::NOTHING, |_, dy| dy.neg();
        in_place: neg_;
        family: Exact;
        reference: |x| -x, -2.0, 1.5;
    }
    /// `|x|`; the gradient at 0 is 0.
    abs {
        kernel: abs, abs_flat;
        domain: Number;
        grad: X, |s, dy| dy.mul(&s.input(0).sign()?);
        in_place: abs_;
        family: Exact;
        reference: f64::abs, -2.0, 1.5;
    }
    /// The larger of x and 0; the gradient at 0 is 0, and passes where x is NaN.
    relu {
        kernel: relu, relu_flat;
        domain: Number;
        grad: Y, |s, dy| dy.masked_fill(&s.output().le_scalar(0.0)?, 0.0);
        in_place: relu_;
        family: Exact;
        reference: |x| if x.is_nan() { x } else { x.max(0.0) }, -2.0, 1.5;
    }
    /// The square root; NaN below 0.
    sqrt {
        kernel: sqrt, sqrt_flat;
        domain: Float;
        grad: Y, |s, dy| dy.div(&s.output().mul_scalar(2.0)?);
        in_place: sqrt_;
        family: Arithmetic;
        reference: f64::sqrt, 0.25, 9.5;
    }
    /// One over the square root.
    rsqrt {
        kernel: rsqrt, rsqrt_flat;
        domain: Float;
        autocast: Single;
        grad: Y, |s, dy| {
            let y = s.output();
            dy.mul(&y.mul(y)?.mul(y)?)?.mul_scalar(-0.5)
        };
        in_place: rsqrt_;
        family: Transcendental;
        reference: |x| 1.0 / x.sqrt(), 0.25, 9.5;
    }
    /// e to the power of x.
    exp {
        kernel: exp, exp_flat;
        domain: Float;
        autocast: Single;
        grad: Y, |s, dy| dy.mul(s.output());
        in_place: exp_;
        family: Transcendental;
        reference: f64::exp, -3.0, 2.0;
    }
    /// The natural logarithm; NaN below 0.
    log {
        kernel: log, log_flat;
        domain: Float;
        autocast: Single;
        grad: X, |s, dy| dy.div(s.input(0));
        in_place: log_;
        family: Transcendental;
        reference: f64::ln, 0.1, 7.0;
    }
    /// The sine of x in radians.
    sin {
        kernel: sin, sin_flat;
        domain: Float;
        grad: X, |s, dy| dy.mul(&s.input(0).cos()?);
        in_place: sin_;
        family: Transcendental;
        reference: f64::sin, -2.0, 3.0;
    }
    /// The cosine of x in radians.
    cos {
        kernel: cos, cos_flat;
        domain: Float;
        grad: X, |s, dy| dy.mul(&s.input(0).sin()?)?.neg();
        in_place: cos_;
        family: Transcendental;
        reference: f64::cos, -2.0, 3.0;
    }
    /// The hyperbolic tangent.
    tanh {
        kernel: tanh, tanh_flat;
        domain: Float;
        grad: Y, |s, dy| dy * (1.0 - (s.output() * s.output())?);
        in_place: tanh_;
        family: Transcendental;
        reference: f64::tanh, -2.0, 1.5;
    }
    /// The error function.
    erf {
        kernel: erf, erf_flat;
        domain: Float;
        grad: X, |s, dy| {
            let x = s.input(0);
            dy.mul(&x.mul(x)?.neg()?.exp()?.mul_scalar(std::f64::consts::FRAC_2_SQRT_PI)?)
        };
        in_place: erf_;
        family: Transcendental;
        reference: reference::erf, -2.0, 1.5;
    }
    /// `1 / (1 + exp(-x))`
    sigmoid {
        kernel: sigmoid, sigmoid_flat;
        domain: Float;
        grad: Y, |s, dy| {
            let y = s.output();
            dy.mul(&y.mul(&(1.0 - y)?)?)
        };
        in_place: sigmoid_;
        family: Transcendental;
        reference: |x| 1.0 / (1.0 + (-x).exp()), -2.0, 1.5;
    }
    /// Exact GELU, `x * Phi(x)`.
    gelu {
        kernel: gelu, gelu_flat;
        domain: FloatOnly;
        grad: X, |s, dy| dy.mul(&s.input(0).gelu_slope()?);
        family: Chain;
        reference: |x| 0.5 * x * (1.0 + reference::erf(x * std::f64::consts::FRAC_1_SQRT_2)), -2.0, 1.5;
        timed: peer("F.gelu(x[0])");
    }
    /// The derivative of exact GELU, `Phi(x) + x * phi(x)`.
    gelu_slope {
        kernel: gelu_slope, gelu_slope_flat;
        domain: FloatOnly;
        grad: X, |s, dy| {
            // The second derivative: phi(x) * (2 - x^2).
            let x = s.input(0);
            let square = x.mul(x)?;
            let phi = square.mul_scalar(-0.5)?.exp()?.mul_scalar(0.398_942_280_401_432_7)?;
            dy.mul(&phi.mul(&(2.0 - square)?)?)
        };
        family: Chain;
        reference: |x| {
            let cdf = 0.5 * (1.0 + reference::erf(x * std::f64::consts::FRAC_1_SQRT_2));
            cdf + x * (-0.5 * x * x).exp() * 0.398_942_280_401_432_7
        }, -2.0, 1.5;
        timed: without_peer("a part of gelu's gradient that PyTorch has no call for");
    }
    /// `x * sigmoid(x)`, also called swish.
    silu {
        kernel: silu, silu_flat;
        domain: FloatOnly;
        grad: X, |s, dy| {
            let x = s.input(0);
            let p = x.sigmoid()?;
            dy.mul(&p.mul(&(x.mul(&(1.0 - &p)?)? + 1.0)?)?)
        };
        family: Chain;
        reference: |x| x / (1.0 + (-x).exp()), -2.0, 1.5;
        timed: peer("F.silu(x[0])");
    }
    /// The largest integer that is not larger.
    floor {
        kernel: floor, floor_flat;
        domain: Rounding;
        grad: Saves::NOTHING, |_, dy| dy.zeros_like();
        in_place: floor_;
        family: Exact;
        reference: f64::floor, -1.5, 2.7;
    }
    /// The smallest integer that is not smaller.
    ceil {
        kernel: ceil, ceil_flat;
        domain: Rounding;
        grad: Saves::NOTHING, |_, dy| dy.zeros_like();
        in_place: ceil_;
        family: Exact;
        reference: f64::ceil, -1.5, 2.7;
    }
    /// The nearest integer, ties to even.
    round {
        kernel: round, round_flat;
        domain: Rounding;
        grad: Saves::NOTHING, |_, dy| dy.zeros_like();
        in_place: round_;
        family: Exact;
        reference: f64::round_ties_even, -1.4, 2.7;
    }
}
