//! `torch.nn.functional`.

use anyhow::{Result, bail};
use genesis::ops::{Attention, BatchStats, Classes, Conv, PadMode, Reduction, Window};
use genesis::{DType, Tensor};

use super::call::{Call, Value};
use super::table::{Outs, Row, one};

/// The rows of this file.
pub(super) const ROWS: &[Row] = &[
    ("nn.functional.relu", |c| match c.x()?.dtype().is_float() {
        true => one(c.x()?.relu()),
        false => one(c.x()?.maximum_scalar(0.0)),
    }),
    ("nn.functional.silu", |c| one(c.x()?.silu())),
    ("nn.functional.mish", |c| one(c.x()?.mish())),
    ("nn.functional.hardswish", |c| one(c.x()?.hardswish())),
    ("nn.functional.gelu", |c| match c.text(1, "approximate", "none")? {
        "tanh" => one(c.x()?.gelu_tanh()),
        "none" => one(c.x()?.gelu()),
        other => bail!("gelu: unknown approximation {other}"),
    }),
    ("nn.functional.elu", |c| one(c.x()?.elu(c.float(1, "alpha", Some(1.0))?))),
    ("nn.functional.leaky_relu", |c| {
        one(c.x()?.leaky_relu(c.float(1, "negative_slope", Some(0.01))?))
    }),
    ("nn.functional.softplus", |c| {
        let (beta, far) = (c.float(1, "beta", Some(1.0))?, c.float(2, "threshold", Some(20.0))?);
        one(c.x()?.softplus(beta, far))
    }),
    ("softmax", |c| along(c, Tensor::softmax)),
    ("log_softmax", |c| along(c, Tensor::log_softmax)),
    ("nn.functional.linear", |c| {
        let weight = turned(c.tensor(1, "weight")?)?;
        match c.tensor_or_none(2, "bias")? {
            Some(bias) if weight.rank() == 2 => one(c.x()?.matmul_bias(&weight, bias)),
            Some(bias) => one(c.x()?.matmul(&weight)?.add(bias)),
            None => one(c.x()?.matmul(&weight)),
        }
    }),
    ("nn.functional.embedding", |c| {
        // The operand is the index in PyTorch; the suite puts the table first where it is a float.
        if c.has(3, "max_norm") || c.flag(5, "scale_grad_by_freq", false)? {
            bail!("unsupported: embedding that renormalizes or scales gradients");
        }
        if c.flag(6, "sparse", false)? {
            bail!("unsupported: sparse gradients");
        }
        let (first, second) = (c.x()?, c.tensor(1, "weight")?);
        let (index, table) =
            if first.dtype().is_float() { (second, first) } else { (first, second) };
        let rows = table.embedding(&index.to_dtype(DType::I64)?)?;
        if !c.has(2, "padding_idx") {
            return Ok(vec![rows]);
        }
        // As nn::Embedding: a row that gets no gradient.
        let padding = row(c.int(2, "padding_idx", None)?, table)?;
        let is_padding = index.eq_scalar(padding as f64)?.unsqueeze(-1)?;
        one(is_padding.where_(&rows.detach(), &rows))
    }),
    ("nn.functional.pad", pad),
    ("nn.functional.conv1d", |c| conv(c, 1)),
    ("nn.functional.conv2d", |c| conv(c, 2)),
    ("nn.functional.conv3d", |c| conv(c, 3)),
    ("nn.functional.max_pool1d", |c| max_pool(c, 1)),
    ("nn.functional.max_pool2d", |c| max_pool(c, 2)),
    ("nn.functional.max_pool3d", |c| max_pool(c, 3)),
    ("nn.functional.avg_pool1d", |c| avg_pool(c, 1)),
    ("nn.functional.avg_pool2d", |c| avg_pool(c, 2)),
    ("nn.functional.avg_pool3d", |c| avg_pool(c, 3)),
    ("nn.functional.layer_norm", |c| {
        let extents = c.shape(1, "normalized_shape")?;
        let (weight, bias) = (c.tensor_or_none(2, "weight")?, c.tensor_or_none(3, "bias")?);
        one(c.x()?.layer_norm_over(&extents, weight, bias, c.float(4, "eps", Some(1e-5))?))
    }),
    ("nn.functional.rms_norm", |c| {
        let eps = c.has(3, "eps").then(|| c.float(3, "eps", None)).transpose()?;
        let extents = c.shape(1, "normalized_shape")?;
        one(c.x()?.rms_norm_over(&extents, c.tensor_or_none(2, "weight")?, eps))
    }),
    ("nn.functional.group_norm", |c| {
        let (weight, bias) = (c.tensor_or_none(2, "weight")?, c.tensor_or_none(3, "bias")?);
        let groups = c.count(1, "num_groups", None)?;
        one(c.x()?.group_norm(groups, weight, bias, c.float(4, "eps", Some(1e-5))?))
    }),
    ("nn.functional.batch_norm", |c| {
        let mean = c.tensor_or_none(1, "running_mean")?;
        let running = mean.zip(c.tensor_or_none(2, "running_var")?);
        let stats = BatchStats {
            running,
            training: c.flag(5, "training", false)?,
            momentum: c.float(6, "momentum", Some(0.1))?,
            eps: c.float(7, "eps", Some(1e-5))?,
        };
        one(c.x()?.batch_norm(c.tensor_or_none(3, "weight")?, c.tensor_or_none(4, "bias")?, &stats))
    }),
    ("nn.functional.nll_loss", |c| one(c.x()?.nll_loss(c.tensor(1, "target")?, &classes(c)?))),
    ("nn.functional.cross_entropy", |c| {
        one(c.x()?.cross_entropy_loss(c.tensor(1, "target")?, &classes(c)?))
    }),
    ("nn.functional.huber_loss", |c| {
        let delta = c.float(3, "delta", Some(1.0))?;
        one(c.x()?.huber_loss(c.tensor(1, "target")?, delta, reduction(c, 2)?))
    }),
    ("nn.functional.smooth_l1_loss", |c| {
        let beta = c.float(5, "beta", Some(1.0))?;
        one(c.x()?.smooth_l1_loss(c.tensor(1, "target")?, beta, reduction(c, 4)?))
    }),
    ("nn.functional.sigmoid", |c| one(c.x()?.sigmoid())),
    ("nn.functional.tanh", |c| one(c.x()?.tanh())),
    ("nn.functional.mse_loss", |c| one(c.x()?.mse_loss(c.tensor(1, "target")?, reduction(c, 4)?))),
    ("nn.functional.l1_loss", |c| one(c.x()?.l1_loss(c.tensor(1, "target")?, reduction(c, 4)?))),
    ("nn.functional.scaled_dot_product_attention", |c| {
        let options = Attention {
            mask: c.tensor_or_none(3, "attn_mask")?.cloned(),
            dropout: c.float(4, "dropout_p", Some(0.0))?,
            is_causal: c.flag(5, "is_causal", false)?,
            scale: c.has(9, "scale").then(|| c.float(9, "scale", None)).transpose()?,
            groups: c.flag(9, "enable_gqa", false)?,
            ..Attention::default()
        };
        let (k, v) = (c.tensor(1, "key")?, c.tensor(2, "value")?);
        one(c.x()?.scaled_dot_product_attention(k, v, &options))
    }),
];

/// A function along an axis, of the dtype that the call names.
pub(super) fn along(c: &Call, op: fn(&Tensor, i64) -> genesis::Result<Tensor>) -> Outs {
    let x = match c.dtype(9, "dtype")? {
        Some(dtype) => c.x()?.to_dtype(dtype)?,
        None => c.x()?.clone(),
    };
    let dim = c.int(1, "dim", None)?;
    // A scalar has one axis for this purpose.
    if x.rank() == 0 && (-1..=0).contains(&dim) {
        return one(op(&x.reshape(&[1])?, 0)?.reshape(&[]));
    }
    one(op(&x, dim))
}

/// The row of a table that a number means, which may count from the end.
pub(super) fn row(number: i64, table: &Tensor) -> Result<i64> {
    let rows = table.dim(0)? as i64;
    if !(-rows..rows).contains(&number) {
        bail!("`padding_idx` is {number}, of {rows} rows");
    }
    Ok(if number < 0 { number + rows } else { number })
}

fn turned(weight: &Tensor) -> Result<Tensor> {
    Ok(if weight.rank() < 2 { weight.clone() } else { weight.t()? })
}

fn pad(c: &Call) -> Outs {
    let value = c.float(3, "value", Some(0.0))?;
    let mode = match c.text(2, "mode", "constant")? {
        "constant" => PadMode::Constant(value),
        "reflect" => PadMode::Reflect,
        "replicate" => PadMode::Replicate,
        "circular" => PadMode::Circular,
        other => bail!("pad: unknown mode {other}"),
    };
    one(c.x()?.pad(&c.ints(1, "pad")?, mode))
}

/// A number an axis; one stands for all.
pub(super) fn per_axis(
    c: &Call,
    at: usize,
    name: &str,
    axes: usize,
    default: &[usize],
) -> Result<Vec<usize>> {
    let numbers = c.ints_or_none(at, name)?.filter(|numbers| !numbers.is_empty());
    let Some(numbers) = numbers else { return Ok(default.to_vec()) };
    let counts: Vec<usize> =
        numbers.iter().map(|&n| usize::try_from(n)).collect::<Result<_, _>>()?;
    Ok(if counts.len() == 1 { vec![counts[0]; axes] } else { counts })
}

fn conv(c: &Call, axes: usize) -> Outs {
    let weight = c.tensor(1, "weight")?;
    let mut conv = Conv::new(axes);
    conv.stride = per_axis(c, 3, "stride", axes, &vec![1; axes])?;
    conv.dilation = per_axis(c, 5, "dilation", axes, &vec![1; axes])?;
    conv.groups = c.count(6, "groups", Some(1))?;
    conv.padding = match c.get(4, "padding") {
        Value::Text(name) if name == "same" => {
            if weight.rank() != axes + 2 || conv.dilation.len() != axes {
                bail!("conv: the weight has {:?}", weight.shape());
            }
            let total = |axis: usize| {
                conv.dilation[axis].saturating_mul(weight.shape()[axis + 2].max(1) - 1)
            };
            (0..axes).map(|axis| [total(axis) / 2, total(axis) - total(axis) / 2]).collect()
        }
        Value::Text(name) if name == "valid" => vec![[0; 2]; axes],
        Value::Text(name) => bail!("conv: unknown padding {name}"),
        _ => per_axis(c, 4, "padding", axes, &vec![0; axes])?.into_iter().map(|p| [p, p]).collect(),
    };
    one(c.x()?.conv(weight, c.tensor_or_none(2, "bias")?, &conv))
}

fn max_pool(c: &Call, axes: usize) -> Outs {
    let kernel = per_axis(c, 1, "kernel_size", axes, &[])?;
    let window = Window {
        stride: per_axis(c, 2, "stride", axes, &kernel)?,
        padding: per_axis(c, 3, "padding", axes, &vec![0; axes])?,
        dilation: per_axis(c, 4, "dilation", axes, &vec![1; axes])?,
        ceil: c.flag(5, "ceil_mode", false)?,
        kernel,
    };
    let (values, index) = c.x()?.max_pool(&window)?;
    Ok(if c.flag(6, "return_indices", false)? { vec![values, index] } else { vec![values] })
}

fn avg_pool(c: &Call, axes: usize) -> Outs {
    let kernel = per_axis(c, 1, "kernel_size", axes, &[])?;
    let window = Window {
        stride: per_axis(c, 2, "stride", axes, &kernel)?,
        padding: per_axis(c, 3, "padding", axes, &vec![0; axes])?,
        dilation: vec![1; axes],
        ceil: c.flag(4, "ceil_mode", false)?,
        kernel,
    };
    let divisor = c.has(6, "divisor_override").then(|| c.int(6, "divisor_override", None));
    one(c.x()?.avg_pool(&window, c.flag(5, "count_include_pad", true)?, divisor.transpose()?))
}

pub(super) fn reduction(c: &Call, at: usize) -> Result<Reduction> {
    Ok(match c.text(at, "reduction", "mean")? {
        "none" => Reduction::None,
        "sum" => Reduction::Sum,
        "mean" => Reduction::Mean,
        other => bail!("unknown reduction {other}"),
    })
}

fn classes(c: &Call) -> Result<Classes> {
    Ok(Classes {
        weight: c.tensor_or_none(2, "weight")?.cloned(),
        ignore_index: c.int(4, "ignore_index", Some(-100))?,
        label_smoothing: c.float(7, "label_smoothing", Some(0.0))?,
        reduction: reduction(c, 6)?,
    })
}
