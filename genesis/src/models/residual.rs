//! The residual stream of a decoder: what layers read, and what the last of them still adds to it.
//!
//! A layer's output is added to the stream, and the next thing that happens to the sum is a norm. Both are one
//! launch, so that a sum is not formed before it is known what reads it:
//!
//! ```text
//! layer            stream x, added y
//! norm             x' = x + y, norm(x')       StreamNorm
//! next layer       stream x', added y'
//! ```
//!
//! A product adds to the stream itself where it can, and multiplies with the weights of the norm behind, see
//! [`super::normed`]:
//!
//! ```text
//! product          stream x' = x + W y, x' g
//! next product     W' (x' g) / rms(x')
//! ```

use super::norm::Norm;
use super::normed::Normed;
use super::paged::Ends;
use super::projection::Projection;
use super::stream_norm::StreamNorm;
use crate::error::Result;
use crate::launch::deferred_norm::DeferredNorm;
use crate::nn::{Module, is_observed, watch_as};
use crate::tensor::Tensor;

/// Hidden states `[.., tokens, C]`, the last term of which may not be added yet.
#[derive(Clone, Debug)]
pub struct Residual {
    sum: Tensor,
    added: Option<Tensor>,
    /// The sum times these weights of a norm.
    weighted: Option<(Tensor, Tensor)>,
}

impl Residual {
    /// Hidden states that are whole.
    pub fn new(x: Tensor) -> Residual {
        Residual { sum: x, added: None, weighted: None }
    }

    /// The hidden states, but for the term that is not added yet.
    pub(super) fn sum(&self) -> &Tensor {
        &self.sum
    }

    /// With another term, which the next norm adds.
    ///
    /// # Errors
    /// If shapes differ.
    pub fn plus(self, y: Tensor) -> Result<Residual> {
        Ok(Residual { sum: self.whole()?, added: Some(y), weighted: None })
    }

    /// With a product as another term, which the product's own launch adds where it can. `next` is the norm behind,
    /// where the products behind that defer it.
    ///
    /// # Errors
    /// If shapes differ.
    pub(super) fn plus_product(
        self,
        product: &Projection,
        x: &Tensor,
        next: Option<&Norm>,
    ) -> Result<Residual> {
        let sum = self.whole()?;
        match product.added(x, &sum, next)? {
            Some((sum, weighted)) => {
                let weights = next.map(|norm| norm.weight.tensor().clone());
                Ok(Residual { sum, added: None, weighted: weighted.zip(weights) })
            }
            None => Residual::new(sum).plus(product.forward(x)?),
        }
    }

    /// The stream with all terms added, and its norm in front of products, which defer it or not.
    ///
    /// # Errors
    /// If the channels are not those of the norm.
    pub fn before(self, norm: &Norm, is_deferred: bool) -> Result<(Residual, Normed<'_>)> {
        let is_for = DeferredNorm::is_for(&self.sum) && norm.weight.dtype() == self.sum.dtype();
        if !(is_deferred && is_for) {
            let (x, y) = self.for_products(norm)?;
            return Ok((x, y.into()));
        }
        let is_own = |weights: &Tensor| weights.is_same(&norm.weight);
        let weighted = self.weighted.clone().filter(|(_, weights)| is_own(weights));
        let x = Residual::new(self.whole()?);
        let normed = Normed::deferred(norm, &x.sum, weighted.map(|(weighted, _)| weighted))?;
        Ok((x, normed))
    }

    /// The stream with all terms added, and its norm, which only products read.
    ///
    /// # Errors
    /// If the channels are not those of the norm.
    pub(super) fn for_products(self, norm: &impl StreamNorm) -> Result<(Residual, Tensor)> {
        let (sum, y) = norm.of_stream(&self.sum, self.added.as_ref(), true)?;
        Ok((Residual::new(sum), y))
    }

    /// The norm of the stream with all terms added.
    ///
    /// # Errors
    /// If the channels are not those of the norm.
    pub(super) fn normed(self, norm: &impl StreamNorm) -> Result<Tensor> {
        Ok(norm.of_stream(&self.sum, self.added.as_ref(), false)?.1)
    }

    /// The hidden states of last tokens alone.
    pub(super) fn at_ends(self, ends: &Ends) -> Result<Residual> {
        let Residual { sum, added, weighted } = self;
        let sum = ends.of(&sum)?;
        let added = added.map(|added| ends.of(&added)).transpose()?;
        let weighted = match weighted {
            Some((x, weights)) => Some((ends.of(&x)?, weights)),
            None => None,
        };
        Ok(Residual { sum, added, weighted })
    }

    /// The hidden states.
    ///
    /// # Errors
    /// If shapes differ.
    pub fn whole(self) -> Result<Tensor> {
        match self.added {
            Some(added) => self.sum.add(&added),
            None => Ok(self.sum),
        }
    }
}

/// Runs `run` as the forward of a layer. Where somebody observes, the hidden states behind it are whole.
pub(super) fn watch_block<M: Module>(
    block: &M,
    run: impl FnOnce() -> Result<Residual>,
) -> Result<Residual> {
    watch_as(block, Residual::sum, || match is_observed() {
        true => run()?.whole().map(Residual::new),
        false => run(),
    })
}
