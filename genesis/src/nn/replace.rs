//! Tensors of a module by all their names, and others put in their place.
//!
//! [`load_state_dict`](super::Module::load_state_dict) copies values into tensors that have memory. A model
//! that is built without memory is given its tensors here instead; modules that share a parameter go on
//! sharing the new one.

use super::visit::{Seen, SeenMut};
use super::{Module, Visitor, VisitorMut};
use crate::tensor::Tensor;

/// A parameter or saved buffer, with every name that it has.
pub(crate) struct Named {
    pub(crate) names: Vec<String>,
    pub(crate) tensor: Tensor,
}

/// Every parameter and saved buffer in the order of the walk; one that occurs twice once.
pub(crate) fn named(module: &dyn Module) -> Vec<Named> {
    let mut all: Vec<Named> = Vec::new();
    Visitor::walk(module, &mut |name, seen| {
        let tensor = match seen {
            Seen::Parameter(parameter) => parameter.tensor(),
            Seen::Buffer(buffer) if buffer.is_persistent() => buffer.tensor(),
            _ => return,
        };
        match all.iter_mut().find(|named| named.tensor.is_same(tensor)) {
            Some(named) => named.names.push(name.to_owned()),
            None => all.push(Named { names: vec![name.to_owned()], tensor: tensor.clone() }),
        }
    });
    all
}

/// Puts the second of each pair in the place of the first, wherever that occurs.
pub(crate) fn replace(module: &mut dyn Module, pairs: &[(Tensor, Tensor)]) {
    let mut next = 0;
    let mut find = |old: &Tensor| {
        // The walk comes by in the order of the pairs, but for tied ones.
        let is_it = |at: &usize| pairs[*at].0.is_same(old);
        let at = Some(next).filter(|&at| at < pairs.len()).filter(is_it);
        let at = at.or_else(|| (0..pairs.len()).find(is_it))?;
        next = at + 1;
        Some(pairs[at].1.clone())
    };
    module.visit_mut(&mut VisitorMut::new(&mut |_, seen| match seen {
        SeenMut::Parameter(parameter) => {
            if let Some(new) = find(parameter) {
                parameter.replace(new);
            }
        }
        SeenMut::Buffer(buffer) => {
            if let Some(new) = find(buffer) {
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
        let ones = |named: &Named| Ok((named.tensor.clone(), named.tensor.detach().ones_like()?));
        let pairs = all.iter().map(ones).collect::<crate::Result<Vec<_>>>()?;
        replace(&mut tied, &pairs);
        assert!(tied.first.weight.is_same(&tied.second.weight));
        assert_eq!(tied.first.weight.sum()?.item()?, 4.0);
        assert_eq!(tied.other.sum()?.item()?, 3.0);
        Ok(())
    }
}
