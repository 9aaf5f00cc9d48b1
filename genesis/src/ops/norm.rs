//! Layer norm and RMS norm along the last axis.

use super::elementwise::check_pair;
use super::{Op, Saves, apply, launch};
use crate::autograd::SavedTensors;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl Tensor {
    /// Normalizes the last axis to zero mean and unit variance, then scales and shifts.
    ///
    /// `y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias`
    ///
    /// # Shapes
    /// `x: [.., C]`, `weight: [C]`, `bias: [C]` -> `[.., C]`
    /// # Numerics
    /// Statistics in f32 for 16-bit dtypes; `var` is the biased estimate.
    /// # Errors
    /// If `x` is rank 0, `weight` or `bias` is not `[C]`, or dtypes differ.
    /// # Source
    /// arXiv:1607.06450; same convention as `torch.nn.functional.layer_norm`.
    pub fn layer_norm(&self, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
        check("layer_norm", self, &[("weight", weight), ("bias", bias)])?;
        apply(LayerNorm { eps }, &[self, weight, bias])
    }

    /// Divides the last axis by its root mean square, then scales.
    ///
    /// `y = x / sqrt(mean(x^2) + eps) * weight`
    ///
    /// # Shapes
    /// `x: [.., C]`, `weight: [C]` -> `[.., C]`
    /// # Numerics
    /// Statistics in f32 for 16-bit dtypes.
    /// # Errors
    /// If `x` is rank 0, `weight` is not `[C]`, or dtypes differ.
    /// # Source
    /// arXiv:1910.07467.
    pub fn rms_norm(&self, weight: &Tensor, eps: f64) -> Result<Tensor> {
        check("rms_norm", self, &[("weight", weight)])?;
        apply(RmsNorm { eps }, &[self, weight])
    }
}

fn check(op: &'static str, x: &Tensor, params: &[(&str, &Tensor)]) -> Result<()> {
    if x.rank() == 0 {
        return Err(Error::op(op, "needs at least 1 dimension(s), got shape []"));
    }
    if !x.dtype().is_float() {
        return Err(Error::op(op, format!("needs a float dtype, got {}", x.dtype())));
    }
    let c = x.shape()[x.rank() - 1];
    for (name, param) in params {
        if param.shape() != [c] {
            let message = format!(
                "{name} is {:?}, the last axis of {:?} needs [{c}]",
                param.shape(),
                x.shape()
            );
            return Err(Error::op(op, message));
        }
        check_pair(op, x, param)?;
    }
    if c > launch::MAX_ROW {
        let message = format!("rows of {c} elements are over the limit of {}", launch::MAX_ROW);
        return Err(Error::op(op, message));
    }
    Ok(())
}

/// Runs a row kernel over the last axis of `inputs[0]`.
fn forward(
    kernel: &'static genesis_kernel::kernel::KernelDef,
    inputs: &[&Tensor],
    eps: f64,
) -> Result<Tensor> {
    let x = inputs[0];
    let y = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
    if x.numel() == 0 {
        return Ok(y);
    }
    let n = x.shape()[x.rank() - 1];
    let (rows, out) = (x.reshape(&[x.numel() / n, n])?, y.reshape(&[x.numel() / n, n])?);
    let operands: Vec<&Tensor> = [&rows].into_iter().chain(inputs[1..].iter().copied()).collect();
    let dtypes = [x.dtype(), launch::accumulate_dtype(x.dtype())];
    launch::rows(kernel, &dtypes, &operands, &[&out], n, &[eps])?;
    Ok(y)
}

/// The sum of `t` over all axes but the last, as `[C]`.
fn sum_rows(t: &Tensor) -> Result<Tensor> {
    let axes: Vec<i64> = (0..t.rank() as i64 - 1).collect();
    t.sum_dims(&axes, false)
}

struct LayerNorm {
    eps: f64,
}

impl Op for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        forward(&kernels::norm::layer_norm::KERNEL, inputs, self.eps)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(3)
    }

    /// With h = (x - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - h mean(g h)).
    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let dtype = dy.dtype();
        let wide = launch::accumulate_dtype(dtype);
        let (x, weight) = (saved.input(0).to_dtype(wide)?, saved.input(1).to_dtype(wide)?);
        let dy = dy.to_dtype(wide)?;
        let d = x.sub(&x.mean_dims(&[-1], true)?)?;
        let rstd = d.square()?.mean_dims(&[-1], true)?.add_scalar(self.eps)?.rsqrt()?;
        let h = d.mul(&rstd)?;
        let g = dy.mul(&weight)?;
        let correction = h.mul(&g.mul(&h)?.mean_dims(&[-1], true)?)?;
        let dx = g.sub(&g.mean_dims(&[-1], true)?)?.sub(&correction)?.mul(&rstd)?;
        let dw = sum_rows(&dy.mul(&h)?)?;
        let db = sum_rows(&dy)?;
        Ok(vec![Some(dx.to_dtype(dtype)?), Some(dw.to_dtype(dtype)?), Some(db.to_dtype(dtype)?)])
    }
}

struct RmsNorm {
    eps: f64,
}

impl Op for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        forward(&kernels::norm::rms_norm::KERNEL, inputs, self.eps)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(3)
    }

    /// With h = x rstd and g = dy weight: dx = rstd (g - h mean(g h)).
    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let dtype = dy.dtype();
        let wide = launch::accumulate_dtype(dtype);
        let (x, weight) = (saved.input(0).to_dtype(wide)?, saved.input(1).to_dtype(wide)?);
        let dy = dy.to_dtype(wide)?;
        let rstd = x.square()?.mean_dims(&[-1], true)?.add_scalar(self.eps)?.rsqrt()?;
        let h = x.mul(&rstd)?;
        let g = dy.mul(&weight)?;
        let dx = g.sub(&h.mul(&g.mul(&h)?.mean_dims(&[-1], true)?)?)?.mul(&rstd)?;
        let dw = sum_rows(&dy.mul(&h)?)?;
        Ok(vec![Some(dx.to_dtype(dtype)?), Some(dw.to_dtype(dtype)?)])
    }
}
