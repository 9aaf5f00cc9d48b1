//! Norms of a sum, in one launch with it: what stands between the layers of a transformer.
//!
//! ```text
//! s = x + residual        the residual stream
//! y = norm(s)             what the next products read
//! ```
//!
//! One launch writes both; on the tape they are a sum and a norm, whose backward adds to the gradient that came along the
//! residual stream ([`Op::adds_to`](crate::ops::Op::adds_to)). Under autocast the stream is of 32 bits, what a product added to
//! it of 16, and so is a norm that only products read ([`RowNormOf::for_products`]).

use genesis_kernel::ir::DType;
use genesis_kernel::tuning::rows::MAX_ROW;

use super::layer_norm::check;
use super::rows::{Kernels, LAYER_NORM, RMS_NORM, RowNorm};
use crate::autograd::{SavedTensors, anomaly, apply_joined, is_grad_enabled, record};
use crate::dispatch::autocast::{autocast_dtype, without_autocast};
use crate::dispatch::trace;
use crate::error::{Error, Result};
use crate::launch::accumulate_dtype;
use crate::ops::{Op, apply};
use crate::tensor::Tensor;

impl Tensor {
    /// A sum and its layer norm: `s = x + residual` and `(s - mean(s)) / sqrt(var(s) + eps) * weight + bias`, in this order.
    ///
    /// # Shapes
    /// `x` and `residual: [.., C]`, `weight` and `bias: [C]` give two of `[.., C]`.
    /// # Numerics
    /// Statistics in f32 for 16-bit dtypes, of the sum as it is stored: the bits of [`add`](Tensor::add) and
    /// [`layer_norm`](Tensor::layer_norm), and of their gradients.
    /// # Errors
    /// If shapes or devices do not fit, or dtypes are not floats.
    /// # Cost
    /// One launch, and one more for the gradient of `s`, along all ways by which it comes.
    #[track_caller]
    pub fn add_layer_norm(
        &self,
        residual: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        eps: f64,
    ) -> Result<(Tensor, Tensor)> {
        check_sum("add_layer_norm", self, residual, &[("weight", weight), ("bias", bias)])?;
        RowNormOf { kernels: &LAYER_NORM, params: &[weight, bias], eps, out: None }
            .of_sum(self, residual)
    }

    /// A sum and its RMS norm: `s = x + residual` and `s / sqrt(mean(s^2) + eps) * weight`, in this order.
    ///
    /// # Shapes
    /// `x` and `residual: [.., C]`, `weight: [C]` give two of `[.., C]`.
    /// # Numerics
    /// Statistics in f32 for 16-bit dtypes, of the sum as it is stored: the bits of [`add`](Tensor::add) and
    /// [`rms_norm`](Tensor::rms_norm), and of their gradients.
    /// # Errors
    /// If shapes or devices do not fit, or dtypes are not floats.
    /// # Cost
    /// One launch, and one more for the gradient of `s`, along all ways by which it comes.
    #[track_caller]
    pub fn add_rms_norm(
        &self,
        residual: &Tensor,
        weight: &Tensor,
        eps: f64,
    ) -> Result<(Tensor, Tensor)> {
        check_sum("add_rms_norm", self, residual, &[("weight", weight)])?;
        RowNormOf { kernels: &RMS_NORM, params: &[weight], eps, out: None }.of_sum(self, residual)
    }
}

/// What the two norms of a sum refuse.
fn check_sum(
    op: &'static str,
    x: &Tensor,
    residual: &Tensor,
    params: &[(&str, &Tensor)],
) -> Result<()> {
    check(op, x, params)?;
    if residual.shape() != x.shape() {
        let message = format!("shapes {:?} and {:?} do not fit", x.shape(), residual.shape());
        return Err(Error::op(op, message));
    }
    Ok(())
}

/// A norm of rows with its parameters, whose result may be of another dtype than its input.
///
/// The parameters may be of f32 beside an input of 16 bits.
#[derive(Clone, Copy)]
pub(crate) struct RowNormOf<'a> {
    kernels: &'static Kernels,
    params: &'a [&'a Tensor],
    eps: f64,
    /// The dtype of the result; that of the input where none is named.
    out: Option<DType>,
}

impl<'a> RowNormOf<'a> {
    /// A layer norm, of a weight and a bias.
    pub(crate) fn layer_norm(params: &'a [&'a Tensor; 2], eps: f64) -> RowNormOf<'a> {
        RowNormOf { kernels: &LAYER_NORM, params, eps, out: None }
    }

    /// An RMS norm.
    pub(crate) fn rms_norm(weight: &'a [&'a Tensor; 1], eps: f64) -> RowNormOf<'a> {
        RowNormOf { kernels: &RMS_NORM, params: weight, eps, out: None }
    }

    /// With a result that only products read: in the 16 bits that autocast gives them, where it is on. They have the bits that
    /// they have from a result in f32.
    pub(crate) fn for_products(self) -> RowNormOf<'a> {
        RowNormOf { out: autocast_dtype(self.params[0].device()), ..self }
    }

    /// The norm of a tensor.
    ///
    /// # Errors
    /// If shapes, dtypes or devices do not fit.
    #[track_caller]
    pub(crate) fn of(self, x: &Tensor) -> Result<Tensor> {
        self.check(x)?;
        let RowNormOf { kernels, params, eps, out } = self;
        let inputs = [&[x], params].concat();
        match out {
            // What rows are computed in is f32 anyway.
            Some(out) if self.is_for(x) => {
                without_autocast(|| apply(RowNorm::new(kernels, eps, Some(out)), &inputs))
            }
            Some(out) => apply(RowNorm::new(kernels, eps, None), &inputs)?.to_dtype(out),
            None if params[0].dtype() != x.dtype() && self.is_for(x) => {
                apply(RowNorm::new(kernels, eps, Some(x.dtype())), &inputs)
            }
            None => apply(RowNorm::new(kernels, eps, None), &inputs),
        }
    }

    /// A residual stream with a term added where there is one, and its norm.
    ///
    /// # Errors
    /// If shapes, dtypes or devices do not fit.
    #[track_caller]
    pub(crate) fn of_stream(self, x: &Tensor, added: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        match added {
            Some(added) => self.of_sum(x, added),
            None => Ok((x.clone(), self.of(x)?)),
        }
    }

    /// Refuses what is no input of the norm; parameters that the kernels take beside it may be of another dtype.
    fn check(&self, x: &Tensor) -> Result<()> {
        let named: Vec<(&str, &Tensor)> =
            ["weight", "bias"].into_iter().zip(self.params.iter().copied()).collect();
        if !self.is_for(x) {
            return check(self.kernels.name, x, &named);
        }
        match named.iter().find(|(_, param)| param.shape() != &x.shape()[x.rank().max(1) - 1..]) {
            Some(_) => check(self.kernels.name, x, &named),
            None => Ok(()),
        }
    }

    /// Whether the kernels take the parameters beside such an input.
    fn is_for(&self, x: &Tensor) -> bool {
        let dtype = self.params[0].dtype();
        let is_one = self.params.iter().all(|param| param.dtype() == dtype);
        let is_near = self.params.iter().all(|param| param.device() == x.device());
        x.dtype().is_arithmetic_float()
            && is_one
            && is_near
            && (dtype == x.dtype() || dtype == accumulate_dtype(x.dtype()))
    }

    /// Whether a sum and its norm are one launch, which computes what `add` and the norm would.
    fn is_one_launch(&self, x: &Tensor, residual: &Tensor) -> bool {
        let is_wider = x.dtype() == DType::F32 && accumulate_dtype(residual.dtype()) == DType::F32;
        let in_one_dtype = residual.dtype() == x.dtype() || is_wider;
        // Autocast computes a norm in f32, and gives it in f32 where nobody says otherwise.
        let is_of_region = autocast_dtype(x.device()).is_none()
            || self.out.is_some()
            || x.dtype() == DType::F32 && self.params[0].dtype() == DType::F32;
        let is_noted = trace::is_on() || anomaly::is_on();
        let fits = residual.shape() == x.shape()
            && residual.device() == x.device()
            && self.check(x).is_ok();
        let length = x.shape().last().copied().unwrap_or(0);
        fits && in_one_dtype
            && is_of_region
            && !is_noted
            && self.is_for(x)
            && x.numel() > 0
            && length <= MAX_ROW
    }

    /// `x + residual`, and its norm.
    ///
    /// # Errors
    /// If shapes, dtypes or devices do not fit.
    #[track_caller]
    pub(crate) fn of_sum(self, x: &Tensor, residual: &Tensor) -> Result<(Tensor, Tensor)> {
        if !self.is_one_launch(x, residual) {
            // The norm refuses what does not fit it.
            let sum = x.add(residual)?;
            let y = self.of(&sum)?;
            return Ok((sum, y));
        }
        let RowNormOf { kernels, params, eps, out } = self;
        let inputs = [&[x, residual], params].concat();
        let normed = apply_joined(kernels.name_of_sum, &inputs, || {
            kernels.forward((x, Some(residual)), params, eps, out.unwrap_or(x.dtype()))
        })?;
        let op = RowNorm::new(kernels, eps, out).that_ran(&normed);
        let [sum, y] = normed.results();
        if !is_grad_enabled() {
            return Ok((sum, y));
        }
        let wants = |tensors: &[&Tensor]| tensors.iter().any(|t| t.requires_grad());
        let sum = match wants(&[x, residual]) {
            true => record(Added { residual: residual.dtype() }, &[x, residual], sum)?,
            false => sum,
        };
        let of_norm = [&[&sum], params].concat();
        let y = if wants(&of_norm) { record(op, &of_norm, y)? } else { y };
        Ok((sum, y))
    }
}

/// The sum of two tensors of one shape, of the dtype of the first.
struct Added {
    residual: DType,
}

impl Op for Added {
    fn name(&self) -> &'static str {
        "add"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        inputs[0].add(inputs[1])
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(dy.clone()), Some(dy.to_dtype(self.residual)?)])
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Dense, Family, OpInfo, WIDE, by_row, cpu, mean, variance, zip};

    /// Rows of `x + residual`, normalized by a function.
    fn of_sum(x: &[Dense], normed: impl Fn(&[f64]) -> Vec<f64>) -> Dense {
        by_row(&zip(&x[0], &x[1], |a, b| a + b), normed)
    }

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "add_layer_norm",
            Family::Softmax,
            |x| Ok(x[0].add_layer_norm(&x[1], &x[2], &x[3], 1e-5)?.1),
            |x| {
                of_sum(x, |row| {
                    let (mean, var) = (mean(row), variance(row, 0.0));
                    let normed = row.iter().map(|v| (v - mean) / (var + 1e-5).sqrt());
                    normed
                        .zip(x[2].data.iter().zip(&x[3].data))
                        .map(|(h, (w, b))| h * w + b)
                        .collect()
                })
            },
            &[&[&[3, 40], &[3, 40], &[40], &[40]], &[&[2, 3, 7], &[2, 3, 7], &[7], &[7]]],
        )
        .peer("F.layer_norm(x[0] + x[1], x[2].shape, x[2], x[3])")
        .of(WIDE)
        .refusing(&[(
            || {
                let (x, c) = (cpu(&[2, 3], DType::F32)?, cpu(&[3], DType::F32)?);
                Ok(x.add_layer_norm(&c, &c, &c, 1e-5)?.1)
            },
            "add_layer_norm: shapes [2, 3] and [3] do not fit",
        )]),
        OpInfo::new(
            "add_rms_norm",
            Family::Softmax,
            |x| Ok(x[0].add_rms_norm(&x[1], &x[2], 1e-5)?.1),
            |x| {
                of_sum(x, |row| {
                    let square = row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
                    row.iter()
                        .zip(&x[2].data)
                        .map(|(v, w)| v / (square + 1e-5).sqrt() * w)
                        .collect()
                })
            },
            &[&[&[3, 40], &[3, 40], &[40]], &[&[2, 3, 7], &[2, 3, 7], &[7]]],
        )
        .peer("F.rms_norm(x[0] + x[1], x[2].shape, x[2], 1e-5)")
        .of(WIDE)
        .refusing(&[(
            || {
                let (x, c) = (cpu(&[2, 3], DType::F32)?, cpu(&[3], DType::F32)?);
                Ok(x.add_rms_norm(&c, &c, 1e-5)?.1)
            },
            "add_rms_norm: shapes [2, 3] and [3] do not fit",
        )]),
    ];
}
