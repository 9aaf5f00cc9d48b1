//! What an optimizer, a schedule or a gradient scaler needs to go on where it stopped.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Named tensors and named numbers: the state of whatever is trained beside the model.
///
/// The keys of an optimizer are a parameter's name, a slash and the name of the state, as in
/// `layers.0.weight/exp_avg` and `layers.0.weight/step`; those of the options of its group number
/// n are `group.n/lr` and the like. The tensors are the optimizer's own, not copies: save them before
/// the next step.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Tensors by name.
    pub tensors: BTreeMap<String, Tensor>,
    /// Numbers by name; those that count are whole.
    pub numbers: BTreeMap<String, f64>,
}

impl State {
    /// The number of this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn number(&self, name: &str) -> Result<f64> {
        let missing = || Error::op("load_state_dict", format!("missing {name}"));
        self.numbers.get(name).copied().ok_or_else(missing)
    }
}
