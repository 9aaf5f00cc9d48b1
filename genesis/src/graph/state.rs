//! What a step changes on the host, beside the device: the counters of optimizers.

use crate::error::Result;
use crate::tensor::Tensor;

/// What a captured step changes: see [`graph()`](super::graph()).
///
/// Optimizers are such states, `()` where there is none, pairs and triples of them, and lists of tensors
/// that the step writes to, such as a model's buffers, which then take part in a comparison.
pub trait State {
    /// Counts a step that a graph replays, and says the numbers of it.
    ///
    /// # Errors
    /// If an optimizer can't be replayed.
    fn advance(&mut self) -> Result<()>;

    /// Takes the count of the last step back.
    fn rewind(&mut self);

    /// The tensors that a step writes to.
    fn tensors(&self) -> Vec<Tensor>;
}

impl State for () {
    fn advance(&mut self) -> Result<()> {
        Ok(())
    }

    fn rewind(&mut self) {}

    fn tensors(&self) -> Vec<Tensor> {
        Vec::new()
    }
}

impl State for Vec<Tensor> {
    fn advance(&mut self) -> Result<()> {
        Ok(())
    }

    fn rewind(&mut self) {}

    fn tensors(&self) -> Vec<Tensor> {
        self.clone()
    }
}

macro_rules! tuples {
    ($(($($name:ident $index:tt),*))*) => {$(
        impl<$($name: State),*> State for ($($name,)*) {
            fn advance(&mut self) -> Result<()> {
                $(self.$index.advance()?;)*
                Ok(())
            }

            fn rewind(&mut self) {
                $(self.$index.rewind();)*
            }

            fn tensors(&self) -> Vec<Tensor> {
                let mut all = Vec::new();
                $(all.extend(self.$index.tensors());)*
                all
            }
        }
    )*};
}
tuples! { (A 0, B 1) (A 0, B 1, C 2) }
