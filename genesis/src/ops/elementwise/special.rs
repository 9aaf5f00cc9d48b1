//! Gamma functions, the inverse of the error function, and the cardinal sine.
//!
//! All are computed in f64 and rounded once; integers become f32 first.

use genesis_kernel::ir::DType;
use kernels::special as device;

use super::math::{Compute, Function, functions};
use crate::dispatch::autocast::{Precision, Precisions};
use crate::error::Result;
use crate::ops::Saves;
use crate::ops::in_place::in_place;
use crate::tensor::Tensor;

const X: Saves = Saves::inputs(1);
const Y: Saves = Saves::OUTPUT;

functions! {
    static SPECIAL in device;

    /// The logarithm of the magnitude of the gamma function; infinite at 0 and the negative integers.
    lgamma {
        compute: Compute::Fixed;
        grad: X, |s, dy| dy.mul(&s.input(0).digamma()?);
        in_place: lgamma_;
        family: Transcendental;
        reference: reference::lgamma, 5.0, 20.0;
    }
    /// The derivative of [`Tensor::lgamma`]; NaN at the negative integers.
    digamma {
        compute: Compute::Fixed;
        grad: X, |s, dy| dy.mul(&s.input(0).polygamma(1)?);
        in_place: digamma_;
        family: Transcendental;
        reference: reference::digamma, 2.0, 20.0;
    }
    /// What [`Tensor::erf`] gives x for; NaN outside -1..1.
    erfinv {
        compute: Compute::Fixed;
        autocast: Single;
        grad: Y, |s, dy| {
            let slope = s.output().square()?.exp()?;
            dy.mul(&slope.mul_scalar(0.5 * std::f64::consts::PI.sqrt())?)
        };
        in_place: erfinv_;
        family: Transcendental;
        reference: reference::erfinv, -0.9, 0.9;
    }
    /// `sin(pi x) / (pi x)`, 1 at 0.
    sinc {
        compute: Compute::Fixed;
        grad: X, |s, dy| {
            // The two waves cancel where x is small.
            let x = s.input(0).to_dtype(DType::F64)?;
            let wave = x.mul_scalar(std::f64::consts::PI)?.cos()?.sub(&x.sinc()?)?;
            let is_zero = x.eq_scalar(0.0)?;
            let safe = x.masked_fill(&is_zero, 1.0)?;
            let slope = wave.div(&safe)?.masked_fill(&is_zero, 0.0)?;
            dy.mul(&slope.to_dtype(dy.dtype())?)
        };
        in_place: sinc_;
        family: Transcendental;
        reference: |x| (std::f64::consts::PI * x).sin() / (std::f64::consts::PI * x), 0.1, 0.9;
    }
}
