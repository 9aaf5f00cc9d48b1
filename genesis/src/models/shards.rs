//! Models whose parameters lie in parts on ranks: a layer's are whole while it computes.

use std::sync::Arc;

use super::attention::Context;
use super::decoder::Block;
use super::residual::Residual;
use super::rotation::Rotation;
use super::{CausalLm, KvShape, Pass, Stage, TensorParallel};
use crate::distributed::{FullyShard, Sharding};
use crate::error::{Error, Result};
use crate::ops::Reduction;
use crate::tensor::Tensor;

const NAME: &str = "fully_shard";

impl<B: Block> Block for FullyShard<B> {
    fn forward(&self, x: Residual, context: &Context<'_>) -> Result<Residual> {
        self.call(|block| block.forward(x, context))
    }
}

impl<M: CausalLm> CausalLm for FullyShard<M> {
    fn vocab_size(&self) -> usize {
        self.inspect(CausalLm::vocab_size)
    }

    fn max_positions(&self) -> usize {
        self.inspect(CausalLm::max_positions)
    }

    fn kv_shape(&self) -> KvShape {
        self.inspect(CausalLm::kv_shape)
    }

    fn hidden(&self, tokens: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        self.call(|model| model.hidden(tokens, pass))
    }

    fn has_layers(&self) -> bool {
        self.inspect(CausalLm::has_layers)
    }

    fn run_layer(
        &self,
        layer: usize,
        x: &Tensor,
        pass: &Pass<'_>,
        rotations: &[Rotation],
    ) -> Result<Tensor> {
        // Layers gather their own parameters; of the others they use none.
        self.inspect(|model| model.run_layer(layer, x, pass, rotations))
    }

    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        self.call(|model| model.logits(hidden))
    }

    fn cross_entropy(
        &self,
        hidden: &Tensor,
        targets: &Tensor,
        reduction: Reduction,
    ) -> Result<Option<Tensor>> {
        self.call(|model| model.cross_entropy(hidden, targets, reduction))
    }

    fn losses(
        &self,
        (tokens, pass): (&Tensor, &Pass<'_>),
        (places, targets): (&Tensor, &Tensor),
        reduction: Reduction,
    ) -> Result<Option<Tensor>> {
        self.call(|model| {
            let hidden = model.hidden(tokens, pass)?.index_select(0, places)?; // [M, C]
            model.cross_entropy(&hidden, targets, reduction)
        })
    }

    fn tensor_parallel(&mut self, _: &TensorParallel) -> Result<Vec<String>> {
        Err(Error::op(NAME, "layers are cut among tensor parallel ranks before parameters are"))
    }

    fn take_stage(&mut self, _: Stage) -> Result<Vec<String>> {
        Err(Error::op(NAME, "stages are made before parameters are cut"))
    }

    fn fully_shard(self: Arc<Self>, _: &Sharding) -> Result<Arc<dyn CausalLm>> {
        Err(Error::op(NAME, "the parameters are in parts already"))
    }
}
