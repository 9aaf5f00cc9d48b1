//! The derivative of the logarithm of the gamma function: computed in f64 and rounded once; integers become f32 first.

use kernels::special as device;

use super::math::{Compute, Function, functions};
use crate::dispatch::autocast::Precisions;
use crate::error::Result;
use crate::ops::Saves;
use crate::ops::in_place::in_place;
use crate::tensor::Tensor;

const X: Saves = Saves::inputs(1);

functions! {
    static SPECIAL in device;

    /// The derivative of [`Tensor::lgamma`]; NaN at the negative integers.
    digamma {
        compute: Compute::Fixed;
        grad: X, |s, dy| dy.mul(&s.input(0).polygamma(1)?);
        in_place: digamma_;
        family: Transcendental;
        reference: reference::digamma, 2.0, 20.0;
    }
}
