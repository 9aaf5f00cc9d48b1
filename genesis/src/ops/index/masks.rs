//! Elements that a mask names: read into a vector, or written from one. What a chunk of the mask finds begins where the
//! chunks before it end, so that both are one pass over mask and tensor once those are counted.

use std::sync::OnceLock;

use super::compact::{self, Chunks};
use crate::autograd::SavedTensors;
use crate::error::{Error, Result};
use crate::ops::{Op, Saves, apply};
use crate::tensor::Tensor;

/// Refuses a mask on another device.
fn check(op: &'static str, x: &Tensor, mask: &Tensor) -> Result<()> {
    if x.device() == mask.device() {
        return Ok(());
    }
    Err(Error::op(op, format!("devices differ, {} and {}", x.device(), mask.device())))
}

/// The elements of `x` where a mask of its shape is true. Waits for the device.
#[track_caller]
pub(super) fn select(x: &Tensor, mask: &Tensor) -> Result<Tensor> {
    check("masked_select", x, mask)?;
    apply(Select { chunks: OnceLock::new() }, &[x, mask])
}

/// `x` with elements of a vector where a mask of its shape is true; refuses a vector that has too few. Waits for the
/// device.
#[track_caller]
pub(super) fn replace(
    op: &'static str,
    x: &Tensor,
    mask: &Tensor,
    source: &Tensor,
) -> Result<Tensor> {
    check(op, x, mask)?;
    let mask = mask.detach().contiguous()?;
    let chunks = Chunks::of(&mask)?;
    let total = chunks.total()?;
    if source.numel() < total {
        let message = format!("{} elements for {total} places", source.numel());
        return Err(Error::op(op, message));
    }
    if total == 0 {
        return x.copy();
    }
    apply(Replace { chunks }, &[x, &source.narrow(0, 0, total)?, &mask])
}

struct Select {
    /// Where what is found in each chunk begins, once that is known.
    chunks: OnceLock<Chunks>,
}

impl Op for Select {
    fn name(&self) -> &'static str {
        "masked_select"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, mask) = (inputs[0].contiguous()?, inputs[1].contiguous()?);
        let (y, chunks) = compact::values_where(&mask, &x)?;
        self.chunks.get_or_init(|| chunks);
        Ok(y)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(2)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let mask = saved.input(1);
        let chunks = match self.chunks.get() {
            Some(chunks) => chunks.clone(),
            None => Chunks::of(&mask.contiguous()?)?,
        };
        Ok(vec![Some(apply(Spread { chunks }, &[dy, mask])?), None])
    }
}

/// Zeros with the elements of a vector where a mask is true.
struct Spread {
    chunks: Chunks,
}

impl Op for Spread {
    fn name(&self) -> &'static str {
        "masked_scatter"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (values, mask) = (inputs[0].contiguous()?, inputs[1].contiguous()?);
        compact::spread_where(&mask, None, &values, &self.chunks)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(2)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(select(dy, saved.input(1))?), None])
    }
}

/// Of a tensor, a vector of as many elements as the mask finds, and the mask.
struct Replace {
    chunks: Chunks,
}

impl Op for Replace {
    fn name(&self) -> &'static str {
        "masked_scatter"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, values) = (inputs[0].contiguous()?, inputs[1].contiguous()?);
        compact::spread_where(inputs[2], Some(&x), &values, &self.chunks)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(4)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let mask = saved.input(2);
        Ok(vec![Some(dy.masked_fill(mask, 0.0)?), Some(select(dy, mask)?), None])
    }
}
