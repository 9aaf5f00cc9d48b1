//! A loaded model as a module, for what takes a module over and leaves the model to others too.

use std::sync::Arc;

use super::CausalLm;
use crate::nn::{Module, Visitor, VisitorMut};

/// A language model that others hold too, as a module.
///
/// [`Loaded::model`](super::Loaded::model) is an `Arc`: a step holds it, and so does whatever reduces its gradients. All
/// of its parameters and buffers are shown under the names that they have in the model; nothing can be put in their
/// place, so that a conversion is refused.
///
/// ```no_run
/// # fn main() -> genesis::Result<()> {
/// use genesis::distributed::{self, DistributedDataParallel};
/// use genesis::models::{LoadOptions, SharedModel, load};
///
/// let group = distributed::init()?;
/// let options = LoadOptions { trainable: true, device: group.device(), ..LoadOptions::default() };
/// let loaded = load("Qwen2.5-0.5B-Instruct", &options)?;
/// let _reducer =
///     DistributedDataParallel::new(SharedModel(loaded.model.clone()), &group, Default::default())?;
/// // Every backward from a loss of `loaded.model` leaves the means over all ranks from now on.
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedModel(pub Arc<dyn CausalLm>);

impl Module for SharedModel {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        self.0.visit(visitor);
    }

    fn visit_mut(&mut self, _: &mut VisitorMut<'_>) {}

    fn as_module(&self) -> &dyn Module {
        self.0.as_module()
    }

    fn kind(&self) -> String {
        self.0.kind()
    }
}

#[cfg(test)]
mod tests {
    use genesis_kernel::ir::DType;
    use genesis_kernel::runtime::Device;
    use serde_json::json;

    use super::*;
    use crate::models::{LoadOptions, initialize};

    #[test]
    fn it_has_the_names_of_the_model_and_is_not_converted() -> crate::Result<()> {
        let config = json!({
            "model_type": "gpt2", "vocab_size": 32, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 2,
        });
        let options = LoadOptions { device: Device::Cpu, ..LoadOptions::default() };
        let loaded = initialize(config.as_object().unwrap(), &options)?;
        let mut shared = SharedModel(loaded.model.clone());
        let names = |module: &dyn Module| -> Vec<String> {
            module.named_parameters().into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(&shared), names(loaded.model.as_module()));
        let said = shared.to_dtype(DType::F64).unwrap_err().to_string();
        assert!(said.contains("others hold"), "{said}");
        Ok(())
    }
}
