//! `torch.nn.functional`: transposed convolutions, pools, patches and resizing.

use anyhow::{Result, bail};
use genesis::ops::{Conv, Interpolation, Resize, Window};

use super::call::{Call, Value};
use super::rows_nn::per_axis;
use super::table::{Outs, Row, one};

/// The rows of this file.
pub(super) const ROWS: &[Row] = &[
    ("nn.functional.conv_transpose1d", |c| transposed(c, 1)),
    ("nn.functional.conv_transpose2d", |c| transposed(c, 2)),
    ("nn.functional.conv_transpose3d", |c| transposed(c, 3)),
    ("nn.functional.adaptive_avg_pool1d", |c| one(c.x()?.adaptive_avg_pool(&size(c, 1)?))),
    ("nn.functional.adaptive_avg_pool2d", |c| one(c.x()?.adaptive_avg_pool(&size(c, 2)?))),
    ("nn.functional.adaptive_avg_pool3d", |c| one(c.x()?.adaptive_avg_pool(&size(c, 3)?))),
    ("nn.functional.adaptive_max_pool1d", |c| Ok(vec![c.x()?.adaptive_max_pool(&size(c, 1)?)?.0])),
    ("nn.functional.adaptive_max_pool2d", |c| Ok(vec![c.x()?.adaptive_max_pool(&size(c, 2)?)?.0])),
    ("nn.functional.lp_pool2d", |c| {
        let kernel = per_axis(c, 2, "kernel_size", 2, &[])?;
        let stride = per_axis(c, 3, "stride", 2, &kernel)?;
        let window = Window { stride, ..Window::new(&kernel) };
        one(c.x()?.lp_pool(c.float(1, "norm_type", None)?, &window))
    }),
    ("nn.functional.interpolate", interpolate),
    ("nn.functional.unfold", |c| one(c.x()?.im2col(&window(c, 1)?))),
    ("nn.functional.fold", |c| {
        let size = per_axis(c, 1, "output_size", 2, &[])?;
        one(c.x()?.col2im(&window(c, 2)?, &size))
    }),
    ("nn.functional.pixel_shuffle", |c| {
        one(c.x()?.pixel_shuffle(c.count(1, "upscale_factor", None)?))
    }),
    ("nn.functional.pixel_unshuffle", |c| {
        one(c.x()?.pixel_unshuffle(c.count(1, "downscale_factor", None)?))
    }),
    ("nn.functional.channel_shuffle", |c| one(c.x()?.channel_shuffle(c.count(1, "groups", None)?))),
];

fn transposed(c: &Call, axes: usize) -> Outs {
    let mut conv = Conv::new(axes);
    conv.stride = per_axis(c, 3, "stride", axes, &vec![1; axes])?;
    let padding = per_axis(c, 4, "padding", axes, &vec![0; axes])?;
    conv.padding = padding.into_iter().map(|pad| [pad, pad]).collect();
    let output_padding = per_axis(c, 5, "output_padding", axes, &vec![0; axes])?;
    conv.groups = c.count(6, "groups", Some(1))?;
    conv.dilation = per_axis(c, 7, "dilation", axes, &vec![1; axes])?;
    let (weight, bias) = (c.tensor(1, "weight")?, c.tensor_or_none(2, "bias")?);
    one(c.x()?.conv_transpose(weight, bias, &conv, &output_padding))
}

fn size(c: &Call, axes: usize) -> Result<Vec<usize>> {
    per_axis(c, 1, "output_size", axes, &[])
}

/// The windows of `unfold` and `fold`.
fn window(c: &Call, at: usize) -> Result<Window> {
    let kernel = per_axis(c, at, "kernel_size", 2, &[])?;
    Ok(Window {
        dilation: per_axis(c, at + 1, "dilation", 2, &[1, 1])?,
        padding: per_axis(c, at + 2, "padding", 2, &[0, 0])?,
        stride: per_axis(c, at + 3, "stride", 2, &[1, 1])?,
        ..Window::new(&kernel)
    })
}

fn interpolate(c: &Call) -> Outs {
    let (x, axes) = (c.x()?, c.x()?.rank().saturating_sub(2));
    let resize = if c.has(1, "size") {
        Resize::To(per_axis(c, 1, "size", axes, &[])?)
    } else {
        Resize::By(match c.get(2, "scale_factor") {
            Value::List(items) => items.iter().filter_map(Value::number).collect(),
            _ => vec![c.float(2, "scale_factor", None)?; axes],
        })
    };
    let mode = match c.text(3, "mode", "nearest")? {
        "nearest" => Interpolation::Nearest,
        "nearest-exact" => Interpolation::NearestExact,
        "linear" | "bilinear" | "trilinear" => Interpolation::Linear,
        "bicubic" => Interpolation::Cubic,
        "area" => Interpolation::Area,
        other => bail!("interpolate: unknown mode {other}"),
    };
    one(x.interpolate(&resize, mode, c.flag(4, "align_corners", false)?))
}
