//! In which form products have their weights.

use std::borrow::Cow;

use genesis_kernel::ir::DType;

use super::fix::Fix;
use crate::error::{Error, Result};
use crate::io::{Stored, Weights};
use crate::nn::Named;
use crate::ops::{QuantScheme, QuantizedWeight};
use crate::tensor::Creation;

/// What products of a model are computed from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WeightForm {
    /// What the files have: blocks of GGUF stay as they are where products take their type. Of a model that is
    /// computed in f64 they become whole tensors.
    #[default]
    Stored,
    /// Whole tensors, which training needs.
    Whole,
    /// 8 bits, a scale for each row.
    Int8,
    /// 4 bits, a scale for each 128 weights of a row, or for 64, 32 or 16 where rows are no multiple of that;
    /// 8 bits for the head.
    Int4,
}

impl WeightForm {
    /// The form in which a model that is computed in this dtype has its weights: of f64 there are products of
    /// whole tensors only.
    pub(super) fn computed_in(self, dtype: DType) -> Result<WeightForm> {
        match self {
            WeightForm::Stored if dtype == DType::F64 => Ok(WeightForm::Whole),
            WeightForm::Int8 | WeightForm::Int4 if dtype == DType::F64 => {
                Err(Error::op("load", format!("products in f64 have whole weights, not {self:?}")))
            }
            form => Ok(form),
        }
    }

    /// A weight in this form; none where it stays a tensor.
    pub(super) fn of(
        self,
        weights: &Weights,
        (name, fix): (&str, Fix),
        own: &Named,
        at: Creation,
    ) -> Result<Option<QuantizedWeight>> {
        let &[rows, channels] = own.tensor.shape() else { return Ok(None) };
        let is_head = own.names.iter().any(|name| name.starts_with("lm_head"));
        let group = [128, 64, 32, 16].into_iter().find(|&group| channels.is_multiple_of(group));
        let scheme = match (self, group) {
            (WeightForm::Whole, _) | (WeightForm::Int8 | WeightForm::Int4, None) => {
                return Ok(None);
            }
            (WeightForm::Stored, _) => {
                return blocks(weights, (name, fix), [rows, channels], at);
            }
            (WeightForm::Int4, Some(_)) if !is_head => QuantScheme { group, ..QuantScheme::INT4 },
            // A row is a group where it is made of vectors of 32.
            (_, Some(16)) => QuantScheme { group, ..QuantScheme::INT8 },
            _ => QuantScheme::INT8,
        };
        let whole = fix.apply(weights.tensor(name, at)?)?;
        QuantizedWeight::quantize(&whole, scheme).map(Some)
    }
}

/// The blocks of a GGUF file.
fn blocks(
    weights: &Weights,
    (name, fix): (&str, Fix),
    shape: [usize; 2],
    at: Creation,
) -> Result<Option<QuantizedWeight>> {
    let Stored::Ggml(ty) = weights.stored(name)? else { return Ok(None) };
    let Some(ty) = ty.block_type() else { return Ok(None) };
    let bytes = weights.bytes(name)?;
    let Some(bytes) = fixed(bytes, weights.shape(name)?[0], fix) else { return Ok(None) };
    QuantizedWeight::from_ggml(&bytes, ty, shape, at.device).map(Some)
}

/// The bytes of the model's weight from those of a tensor with so many rows; none where values would have to
/// change.
fn fixed(bytes: &[u8], rows: usize, fix: Fix) -> Option<Cow<'_, [u8]>> {
    match fix {
        Fix::Same => Some(bytes.into()),
        Fix::PlusOne | Fix::Transposed => None,
        Fix::Row(row) => {
            let each = bytes.len().checked_div(rows)?;
            bytes.get(row * each..(row + 1) * each).map(Cow::from)
        }
        Fix::PairedRows { heads } => {
            let of_head =
                rows.checked_div(heads).filter(|&n| n > 0 && n * heads == rows && n % 2 == 0)?;
            let (half, width) = (of_head / 2, bytes.len() / rows);
            let stored = |row: usize| {
                let (head, channel) = (row / of_head, row % of_head);
                head * of_head + channel % half * 2 + channel / half
            };
            let row = |row| &bytes[stored(row) * width..][..width];
            Some((0..rows).flat_map(row).copied().collect::<Vec<u8>>().into())
        }
    }
}
