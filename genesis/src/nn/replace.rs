//! Tensors of a module by all their names, and others put in their place.
//!
//! [`load_state_dict`](super::Module::load_state_dict) copies values into tensors that have memory. A model
//! that is built without memory is given its tensors here instead; modules that share a parameter go on
//! sharing the new one.

use super::module::{Seen, SeenMut};
use super::{Module, Visitor, VisitorMut, Weight};
use crate::ops::QuantizedWeight;
use crate::tensor::Tensor;

/// A parameter or saved buffer, with every name that it has.
pub(crate) struct Named {
    pub(crate) names: Vec<String>,
    pub(crate) tensor: Tensor,
    /// Whether it is the weight of a product, and whether it is something else, such as a table of embeddings.
    pub(crate) in_products: bool,
    pub(crate) elsewhere: bool,
}

/// Every parameter and saved buffer in the order of the walk; one that occurs twice once.
pub(crate) fn named(module: &dyn Module) -> Vec<Named> {
    let mut all: Vec<Named> = Vec::new();
    let mut is_weight = false;
    Visitor::walk(module, &mut |name, seen| {
        let tensor = match seen {
            Seen::Weight(Weight::Whole(_)) => {
                is_weight = true;
                return;
            }
            Seen::Parameter(parameter) => parameter.tensor(),
            Seen::Buffer(buffer) if buffer.is_persistent() => buffer.tensor(),
            _ => return,
        };
        let in_products = std::mem::take(&mut is_weight);
        match all.iter_mut().find(|named| named.tensor.is_same(tensor)) {
            Some(named) => {
                named.names.push(name.to_owned());
                named.in_products |= in_products;
                named.elsewhere |= !in_products;
            }
            None => all.push(Named {
                names: vec![name.to_owned()],
                tensor: tensor.clone(),
                in_products,
                elsewhere: !in_products,
            }),
        }
    });
    all
}

/// What comes in the place of a tensor: codes where a product has it, and a tensor where anything has.
pub(crate) struct Replacement {
    pub(crate) old: Tensor,
    pub(crate) whole: Option<Tensor>,
    pub(crate) quantized: Option<QuantizedWeight>,
}

/// Puts new tensors in the place of old ones, wherever those occur.
pub(crate) fn replace(module: &mut dyn Module, all: &[Replacement]) {
    let mut last = 0;
    let mut find = |old: &Tensor| {
        // The walk comes by in the order of the list, but for tied ones; a weight is met twice.
        let is_it = |at: &usize| all.get(*at).is_some_and(|new| new.old.is_same(old));
        let at = [last, last + 1].into_iter().find(is_it);
        last = at.or_else(|| (0..all.len()).find(is_it))?;
        Some(&all[last])
    };
    module.visit_mut(&mut VisitorMut::new(&mut |_, seen| match seen {
        SeenMut::Weight(weight) => {
            let Weight::Whole(whole) = &*weight else { return };
            if let Some(new) = find(whole).and_then(|new| new.quantized.clone()) {
                *weight = Weight::Quantized(new);
            }
        }
        SeenMut::Parameter(parameter) => {
            if let Some(new) = find(parameter).and_then(|new| new.whole.clone()) {
                parameter.replace(new);
            }
        }
        SeenMut::Buffer(buffer) => {
            if let Some(new) = find(buffer).and_then(|new| new.whole.clone()) {
                buffer.replace(new);
            }
        }
    }));
}

#[cfg(test)]
mod tests {
    use genesis_kernel::runtime::Device;

    use super::*;
    use crate::nn::{Linear, Parameter};

    #[derive(Module)]
    struct Tied {
        first: Linear,
        second: Linear,
        other: Parameter,
    }

    #[test]
    fn what_is_tied_stays_tied() -> crate::Result<()> {
        let first = Linear::without_bias(2, 2, Device::Cpu)?;
        let second = Linear { weight: first.weight.clone(), bias: None };
        let other = Parameter::new(Tensor::zeros(&[3], Device::Cpu)?)?;
        let mut tied = Tied { first, second, other };
        let all = named(&tied);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].names, ["first.weight", "second.weight"]);
        let ones = |named: &Named| {
            let (old, whole) = (named.tensor.clone(), Some(named.tensor.detach().ones_like()?));
            Ok(Replacement { old, whole, quantized: None })
        };
        let ones = all.iter().map(ones).collect::<crate::Result<Vec<_>>>()?;
        replace(&mut tied, &ones);
        assert!(tied.first.weight.is_same(&tied.second.weight));
        assert_eq!(tied.first.weight.sum()?.item()?, 4.0);
        assert_eq!(tied.other.sum()?.item()?, 3.0);
        Ok(())
    }
}
