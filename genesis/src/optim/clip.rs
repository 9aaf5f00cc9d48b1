//! Gradient clipping, without waiting for the device.

use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Scales all gradients together so that their joint 2-norm is at most `max_norm`; gives the norm
/// they had.
///
/// # Errors
/// If no parameter has a gradient.
pub fn clip_grad_norm(parameters: &[Tensor], max_norm: f64) -> Result<Tensor> {
    no_grad(|| {
        let with_grad: Vec<(&Tensor, Tensor)> =
            parameters.iter().filter_map(|p| Some((p, p.grad()?))).collect();
        let mut total: Option<Tensor> = None;
        for (_, grad) in &with_grad {
            let wide = crate::ops::launch::accumulate_dtype(grad.dtype());
            let square = grad.to_dtype(wide)?.square()?.sum()?;
            total = Some(match total {
                Some(sum) => sum.add(&square)?,
                None => square,
            });
        }
        let message = "no parameter has a gradient; call backward first";
        let norm = total.ok_or_else(|| Error::op("clip_grad_norm", message))?.sqrt()?;
        let scale = norm.add_scalar(1e-6)?.rdiv_scalar(max_norm)?.minimum_scalar(1.0)?;
        for (parameter, grad) in &with_grad {
            parameter.set_grad(Some(grad.mul(&scale.to_dtype(grad.dtype())?)?));
        }
        Ok(norm)
    })
}

/// Brings every element of every gradient between `-limit` and `limit`.
///
/// # Errors
/// If a launch fails.
pub fn clip_grad_value(parameters: &[Tensor], limit: f64) -> Result<()> {
    no_grad(|| {
        for parameter in parameters {
            if let Some(grad) = parameter.grad() {
                parameter.set_grad(Some(grad.clamp(-limit, limit)?));
            }
        }
        Ok(())
    })
}
