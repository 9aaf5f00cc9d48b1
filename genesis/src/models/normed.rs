//! Hidden states behind a norm, on their way to products.
//!
//! A product may take over the end of the norm in front of it (see [`kernels::norm_rows`]), and the product before that
//! its beginning: then the norm is no launch at all. Which way is taken follows from weights and dtypes, and not from
//! how many rows there are, so that a row's bits are its own.

use std::cell::OnceCell;

use super::norm::Norm;
use crate::error::{Error, Result};
use crate::launch::deferred_norm::DeferredNorm;
use crate::ops::fused_product::Rows;
use crate::tensor::Tensor;

/// What products of a layer take, `[.., tokens, C]`: a tensor, or what a norm makes of one, which is left to them.
#[derive(Debug)]
pub struct Normed<'n> {
    whole: OnceCell<Tensor>,
    deferred: Option<Deferred<'n>>,
}

#[derive(Debug)]
struct Deferred<'n> {
    norm: &'n Norm,
    /// The hidden states before the norm.
    x: Tensor,
    rows: DeferredNorm,
}

impl From<Tensor> for Normed<'_> {
    fn from(whole: Tensor) -> Self {
        Normed { whole: whole.into(), deferred: None }
    }
}

impl<'n> Normed<'n> {
    /// A norm that products divide. `weighted` are the rows times the norm's weights, where the launch that made `x` gave
    /// them.
    pub(super) fn deferred(
        norm: &'n Norm,
        x: &Tensor,
        weighted: Option<Tensor>,
    ) -> Result<Normed<'n>> {
        let rows = match weighted {
            Some(weighted) => DeferredNorm::behind(x, weighted, norm.eps)?,
            None => DeferredNorm::new(x, norm.gain(), norm.eps)?,
        };
        let deferred = Some(Deferred { norm, x: x.clone(), rows });
        Ok(Normed { whole: OnceCell::new(), deferred })
    }

    /// The tensor, for what is no such product.
    ///
    /// # Errors
    /// If the channels are not those of the norm.
    pub fn tensor(&self) -> Result<&Tensor> {
        match (self.whole.get(), &self.deferred) {
            (None, Some(Deferred { norm, x, .. })) => {
                let y = norm.forward(x)?;
                Ok(self.whole.get_or_init(|| y))
            }
            (Some(y), _) => Ok(y),
            (None, None) => Err(Error::op("norm", "there are no hidden states")),
        }
    }

    /// What is left to products that can divide.
    pub(super) fn deferred_rows(&self) -> Option<Rows<'_>> {
        self.deferred.as_ref().map(|deferred| Rows::Normed(&deferred.rows))
    }
}
