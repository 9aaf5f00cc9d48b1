//! Transcendental functions as polynomials, one file for each family.
//!
//! Each function is written once for f32 and f64: an argument reduction that is exact or carries its
//! error along, a polynomial on the small range that is left, and selects for the special values. The
//! coefficients are weighted minimax fits (Lawson's iteration at 80 digits), rounded one at a time with
//! the rest fitted again; the error noted beside each is relative, of the function, before rounding.

mod builder;
mod erf;
mod exp;
pub(crate) mod gelu;
mod log;
#[cfg(test)]
mod tests;
mod trig;

use crate::ir::{UnaryOp, Value};

pub(crate) use builder::Math;
pub use builder::MathTarget;

/// The function of the argument, in the argument's type.
pub(crate) fn expand(m: &mut Math<'_, '_>, function: UnaryOp) -> Value {
    let x = m.x;
    match function {
        UnaryOp::Exp => exp::exp(m, x),
        UnaryOp::Exp2 => exp::exp2(m, x),
        UnaryOp::Sigmoid => exp::sigmoid(m, x),
        UnaryOp::Tanh => exp::tanh(m, x),
        UnaryOp::Log => log::log(m, x),
        UnaryOp::Log2 => log::log2(m, x),
        UnaryOp::Log1p => log::log1p(m, x),
        UnaryOp::Tan => trig::tan(m, x),
        UnaryOp::Log2Approx | UnaryOp::Log2Flush if !m.may_approximate() => log::log2(m, x),
        UnaryOp::SqrtApprox if !m.may_approximate() => m.b.unary(UnaryOp::Sqrt, x),
        UnaryOp::Sin => trig::sin(m, x),
        UnaryOp::Cos => trig::cos(m, x),
        UnaryOp::Erf => erf::erf(m, x),
        UnaryOp::Rsqrt => {
            let (one, root) = (m.c(1.0), m.b.unary(UnaryOp::Sqrt, x));
            m.div(one, root)
        }
        UnaryOp::Exp2Flush | UnaryOp::Exp2Approx if !m.may_approximate() => exp::exp2(m, x),
        UnaryOp::RecipApprox if !m.may_approximate() => {
            let one = m.c(1.0);
            m.div(one, x)
        }
        UnaryOp::Neg
        | UnaryOp::Not
        | UnaryOp::Abs
        | UnaryOp::Sqrt
        | UnaryOp::Floor
        | UnaryOp::Ceil
        | UnaryOp::Round
        | UnaryOp::Trunc
        | UnaryOp::PopCount
        | UnaryOp::LeadingZeros
        | UnaryOp::Exp2Approx
        | UnaryOp::Exp2Flush
        | UnaryOp::RecipApprox
        | UnaryOp::Log2Approx
        | UnaryOp::Log2Flush
        | UnaryOp::SqrtApprox
        | UnaryOp::SinFar
        | UnaryOp::CosFar
        | UnaryOp::TanFar => m.b.unary(function, x),
    }
}
