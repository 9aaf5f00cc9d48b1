//! Gamma functions, the inverse of the error function, and the cardinal sine.
//!
//! All are computed in f64 and rounded once; integers become f32 first.

use genesis_kernel::ir::DType;
use kernels::special as device;

use super::math::{Compute, Function, functions};
use super::{Op, Saves, apply};
use crate::autograd::SavedTensors;
use crate::error::{Error, Result};
use crate::launch;
use crate::tensor::Tensor;

const X: Saves = Saves::inputs(1);
const Y: Saves = Saves::OUTPUT;

functions! {
    static SPECIAL in device;

    /// The logarithm of the magnitude of the gamma function; infinite at 0 and the negative integers.
    lgamma {
        compute: Compute::Fixed;
        grad: X, |s, dy| dy.mul(&s.input(0).digamma()?);
        reference: lgamma_reference, 5.0, 20.0;
    }
    /// The derivative of [`Tensor::lgamma`]; NaN at the negative integers.
    digamma {
        compute: Compute::Fixed;
        grad: X, |s, dy| dy.mul(&s.input(0).polygamma(1)?);
        reference: digamma_reference, 2.0, 20.0;
    }
    /// What [`Tensor::erf`] gives x for; NaN outside -1..1.
    erfinv {
        compute: Compute::Fixed;
        grad: Y, |s, dy| {
            let slope = s.output().square()?.exp()?;
            dy.mul(&slope.mul_scalar(0.5 * std::f64::consts::PI.sqrt())?)
        };
        reference: erfinv_reference, -0.9, 0.9;
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
        reference: |x| (std::f64::consts::PI * x).sin() / (std::f64::consts::PI * x), 0.1, 0.9;
    }
}

impl Tensor {
    /// The derivative of order `n` of [`Tensor::digamma`]. Below 0 it is known up to order 1, and NaN
    /// beyond.
    ///
    /// # Errors
    /// If `n` is above 20, or memory runs out.
    #[track_caller]
    pub fn polygamma(&self, n: u32) -> Result<Tensor> {
        if n == 0 {
            return self.digamma();
        }
        if n > 20 {
            return Err(Error::op("polygamma", format!("needs an order of at most 20, got {n}")));
        }
        apply(Polygamma { n }, &[&self.as_float()?])
    }
}

struct Polygamma {
    n: u32,
}

impl Op for Polygamma {
    fn name(&self) -> &'static str {
        "polygamma"
    }

    /// `(-1)^(n + 1) n! zeta(n + 1, x)`
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0];
        let y = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        let factorial: f64 = (1..=self.n).map(f64::from).product::<f64>();
        let factor = if self.n % 2 == 1 { factorial } else { -factorial };
        let numbers = [f64::from(self.n + 1), factor].map(|v| launch::number(DType::F64, v));
        launch::strided(&device::zeta::KERNEL, &[x.dtype()], &[x], &y, &numbers)?;
        Ok(y)
    }

    fn saves(&self) -> Saves {
        X
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(dy.mul(&saved.input(0).polygamma(self.n + 1)?)?)])
    }
}

/// By the recurrence down to `1..2`, where Lanczos' sum is the gamma function itself.
fn lgamma_reference(x: f64) -> f64 {
    const SUM: [f64; 8] = [
        676.5203681218851,
        -1259.1392167224028,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507343278686905,
        -0.13857109526572012,
        9.984_369_578_019_572e-6,
        1.5056327351493116e-7,
    ];
    let (mut low, mut product) = (x, 1.0);
    while low >= 2.0 {
        low -= 1.0;
        product *= low;
    }
    let z = low - 1.0;
    let terms = SUM.iter().enumerate().map(|(i, c)| c / (z + i as f64 + 1.0));
    let sum = 0.999_999_999_999_809_9 + terms.sum::<f64>();
    let t = z + 7.5;
    let gamma = (2.0 * std::f64::consts::PI).sqrt() * t.powf(z + 0.5) * (-t).exp() * sum;
    (gamma * product).ln()
}

fn digamma_reference(x: f64) -> f64 {
    let steps: f64 = (0..40).map(|k| 1.0 / (x + f64::from(k))).sum();
    let s = x + 40.0;
    let tail = 1.0 / (12.0 * s.powi(2)) - 1.0 / (120.0 * s.powi(4)) + 1.0 / (252.0 * s.powi(6));
    s.ln() - 0.5 / s - tail - steps
}

/// By halving: the error function grows.
fn erfinv_reference(x: f64) -> f64 {
    let (mut low, mut high) = (-6.0, 6.0);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if super::elementwise::erf_reference(middle) < x { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}
