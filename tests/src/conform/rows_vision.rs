//! `torch.nn.functional`: grids, bags, margins, and the norm of neighbours.

use anyhow::{Result, bail};
use genesis::DType;
use genesis::ops::{BagMode, Bags, GridMode, GridPadding, GridSample, MultiMargin};

use super::rows_nn::{reduction, row};
use super::table::{Row, one};

/// The rows of this file.
pub(super) const ROWS: &[Row] = &[
    ("nn.functional.grid_sample", |c| {
        let mode = match c.text(2, "mode", "bilinear")? {
            "bilinear" => GridMode::Linear,
            "nearest" => GridMode::Nearest,
            "bicubic" => GridMode::Cubic,
            other => bail!("grid_sample: unknown mode {other}"),
        };
        let padding = match c.text(3, "padding_mode", "zeros")? {
            "zeros" => GridPadding::Zeros,
            "border" => GridPadding::Border,
            "reflection" => GridPadding::Reflection,
            other => bail!("grid_sample: unknown padding {other}"),
        };
        let align_corners = c.flag(4, "align_corners", false)?;
        let options = GridSample { mode, padding, align_corners };
        one(c.x()?.grid_sample(c.tensor(1, "grid")?, &options))
    }),
    ("nn.functional.affine_grid", |c| {
        one(c.x()?.affine_grid(&c.shape(1, "size")?, c.flag(2, "align_corners", false)?))
    }),
    ("nn.functional.embedding_bag", |c| {
        if c.has(3, "max_norm") || c.flag(5, "scale_grad_by_freq", false)? {
            bail!("unsupported: embedding_bag with keywords");
        }
        let mode = match c.text(6, "mode", "mean")? {
            "sum" => BagMode::Sum,
            "mean" => BagMode::Mean,
            "max" => BagMode::Max,
            other => bail!("embedding_bag: unknown mode {other}"),
        };
        let padding = |n: i64| -> Result<usize> { Ok(row(n, c.tensor(1, "weight")?)? as usize) };
        let given = c.has(10, "padding_idx").then(|| c.int(10, "padding_idx", None)).transpose()?;
        let bags = Bags {
            mode,
            offsets: c.tensor_or_none(2, "offsets")?.cloned(),
            include_last_offset: c.flag(9, "include_last_offset", false)?,
            per_sample_weights: c.tensor_or_none(8, "per_sample_weights")?.cloned(),
            padding_idx: given.map(padding).transpose()?,
        };
        one(c.tensor(1, "weight")?.embedding_bag(&c.x()?.to_dtype(DType::I64)?, &bags))
    }),
    ("nn.functional.local_response_norm", |c| {
        let (alpha, beta) = (c.float(2, "alpha", Some(1e-4))?, c.float(3, "beta", Some(0.75))?);
        let (size, k) = (c.count(1, "size", None)?, c.float(4, "k", Some(1.0))?);
        one(c.x()?.local_response_norm(size, alpha, beta, k))
    }),
    ("nn.functional.multi_margin_loss", |c| {
        let options = MultiMargin {
            p: c.count(2, "p", Some(1))? as u32,
            margin: c.float(3, "margin", Some(1.0))?,
            weight: c.tensor_or_none(4, "weight")?.cloned(),
            reduction: reduction(c, 7)?,
        };
        one(c.x()?.multi_margin_loss(c.tensor(1, "target")?, &options))
    }),
    ("nn.functional.multilabel_margin_loss", |c| {
        one(c.x()?.multilabel_margin_loss(c.tensor(1, "target")?, reduction(c, 4)?))
    }),
    ("nn.functional.multilabel_soft_margin_loss", |c| {
        let weight = c.tensor_or_none(2, "weight")?;
        one(c.x()?.multilabel_soft_margin_loss(c.tensor(1, "target")?, weight, reduction(c, 5)?))
    }),
];
