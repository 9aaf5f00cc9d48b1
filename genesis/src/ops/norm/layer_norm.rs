//! Layer norm and RMS norm along the last axis.
//!
//! How rows are normalized and what is kept for the backward is in [`super::rows`]; norms of a sum, in one launch with it, are
//! in [`super::of_sum`].

use super::rows::{LAYER_NORM, RMS_NORM, RowNorm};
use crate::dispatch::autocast::{Precision, Precisions};
use crate::error::{Error, Result};
use crate::ops::{apply, check_pair, wrong_dtype};
use crate::tensor::Tensor;

/// In what autocast computes these.
pub(super) const AUTOCAST: Precisions =
    &[("layer_norm", Precision::Single), ("rms_norm", Precision::Single)];

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
    #[track_caller]
    pub fn layer_norm(&self, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
        check("layer_norm", self, &[("weight", weight), ("bias", bias)])?;
        apply(RowNorm::new(&LAYER_NORM, eps, None), &[self, weight, bias])
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
    #[track_caller]
    pub fn rms_norm(&self, weight: &Tensor, eps: f64) -> Result<Tensor> {
        check("rms_norm", self, &[("weight", weight)])?;
        apply(RowNorm::new(&RMS_NORM, eps, None), &[self, weight])
    }
}

pub(super) fn check(op: &'static str, x: &Tensor, params: &[(&str, &Tensor)]) -> Result<()> {
    if x.rank() == 0 {
        return Err(Error::op(op, "needs at least 1 dimension(s), got shape []"));
    }
    if !x.dtype().is_arithmetic_float() {
        return Err(wrong_dtype(op, "a float", x.dtype()));
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
    Ok(())
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Family, OpInfo, by_row, cpu, mean, variance};

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "layer_norm",
            Family::Softmax,
            |x| x[0].layer_norm(&x[1], &x[2], 1e-5),
            |x| {
                by_row(&x[0], |row| {
                    let (mean, var) = (mean(row), variance(row, 0.0));
                    let normed = row.iter().map(|v| (v - mean) / (var + 1e-5).sqrt());
                    normed
                        .zip(x[1].data.iter().zip(&x[2].data))
                        .map(|(h, (w, b))| h * w + b)
                        .collect()
                })
            },
            &[
                &[&[3, 7], &[7], &[7]],
                &[&[2, 3, 130], &[130], &[130]],
                &[&[0, 4], &[4], &[4]],
                &[&[2, 17000], &[17000], &[17000]],
            ],
        )
        .peer("F.layer_norm(x[0], x[1].shape, x[1], x[2])")
        .within(-3.0, 3.0)
        .refusing(&[
            (
                || {
                    let one = cpu(&[1], DType::F32)?;
                    cpu(&[], DType::F32)?.layer_norm(&one, &one, 1e-5)
                },
                "layer_norm: needs at least 1 dimension(s), got shape []",
            ),
            (
                || {
                    let (two, three) = (cpu(&[2], DType::F32)?, cpu(&[3], DType::F32)?);
                    cpu(&[2, 3], DType::F32)?.layer_norm(&two, &three, 1e-5)
                },
                "layer_norm: weight is [2], the last axis of [2, 3] needs [3]",
            ),
        ]),
        OpInfo::new(
            "rms_norm",
            Family::Softmax,
            |x| x[0].rms_norm(&x[1], 1e-5),
            |x| {
                by_row(&x[0], |row| {
                    let square = row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
                    row.iter()
                        .zip(&x[1].data)
                        .map(|(v, w)| v / (square + 1e-5).sqrt() * w)
                        .collect()
                })
            },
            &[
                &[&[3, 7], &[7]],
                &[&[2, 3, 130], &[130]],
                &[&[0, 4], &[4]],
                &[&[2, 17000], &[17000]],
            ],
        )
        .peer("F.rms_norm(x[0], x[1].shape, x[1], 1e-5)")
        .within(-3.0, 3.0)
        .refusing(&[(
            || cpu(&[2, 3], DType::F32)?.rms_norm(&cpu(&[2], DType::F32)?, 1e-5),
            "rms_norm: weight is [2], the last axis of [2, 3] needs [3]",
        )]),
    ];
}
