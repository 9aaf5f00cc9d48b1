//! Derivatives of the digamma function.

use genesis_kernel::ir::DType;
use kernels::{math, special as device};

use crate::autograd::SavedTensors;
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{Op, Saves, apply, result_of};
use crate::tensor::Tensor;

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
        let y = result_of(&[x], x.shape(), (x.dtype(), x.device()))?;
        if self.n == 1 {
            let kernels = (&math::trigamma::KERNEL, Some(&math::trigamma_flat::KERNEL));
            let dtypes = [x.dtype(), launch::accumulate_dtype(x.dtype())];
            launch::function(kernels, launch::Steps::Many, &dtypes, &[x], &y)?;
            return Ok(y);
        }
        let factorial: f64 = (1..=self.n).map(f64::from).product::<f64>();
        let factor = if self.n % 2 == 1 { factorial } else { -factorial };
        let numbers = [f64::from(self.n + 1), factor].map(|v| launch::number(DType::F64, v));
        launch::strided(&device::zeta::KERNEL, &[x.dtype()], &[x], &y, &numbers)?;
        Ok(y)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(1)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(dy.mul(&saved.input(0).polygamma(self.n + 1)?)?)])
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Family, OpInfo, map};

    pub(in crate::ops) static INFOS: &[OpInfo] = &[OpInfo::new(
        "polygamma/2",
        Family::Softmax,
        |x| x[0].polygamma(2),
        |x| map(&x[0], |v| -2.0 * (0..200_000).map(|k| (v + f64::from(k)).powi(-3)).sum::<f64>()),
        &[&[&[3, 5]]],
    )
    .peer("torch.polygamma(2, x[0])")
    .within(2.0, 9.0)
    .of(&[DType::F32])];
}
