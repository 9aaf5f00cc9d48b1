//! The optimizer of a run, whole on each rank or shared out.

use super::options::{OptimizerKind, Options};
use super::ranks::Ranks;
use crate::distributed::ZeroOptimizer;
use crate::error::Result;
use crate::io::outermost;
use crate::models::CausalLm;
use crate::nn::{Parameter, handles};
use crate::optim::{AdamW, AdamW8bit, AdamW8bitOptions, AdamWOptions, Optim, Optimizer, Rule};
use crate::tensor::Tensor;

type Named = Vec<(String, Tensor)>;

/// What steps the parameters of a run.
pub(super) enum Stepper {
    Whole(Box<dyn Optimizer>),
    /// Each rank keeps the state of some parameters.
    Shared(ZeroOptimizer<Box<dyn Optimizer>>),
}

impl Stepper {
    /// That of what is trained: decay for matrices, none for vectors.
    pub(super) fn new(
        model: &dyn CausalLm,
        options: &Options,
        ranks: Option<&Ranks>,
    ) -> Result<Stepper> {
        let all = handles(model.as_module()).into_iter().filter(|(_, p)| p.requires_grad());
        // Of one in parts the whole counts.
        let rank = |p: &Parameter| p.shard().map_or(p.rank(), |shard| outermost(shard).whole.len());
        let (matrices, vectors): (Vec<_>, Vec<_>) = all.partition(|(_, p)| rank(p) > 1);
        let named = |all: Vec<(String, Parameter)>| -> Named {
            all.into_iter().map(|(name, parameter)| (name, parameter.tensor().clone())).collect()
        };
        let (matrices, vectors) = (named(matrices), named(vectors));
        let group = ranks.filter(|_| options.zero1).and_then(|ranks| ranks.mesh.reduce.as_ref());
        let Some(group) = group else {
            return Ok(Stepper::Whole(of_kind(matrices, vectors, options)?));
        };
        let mut made = Ok(());
        let all = matrices.into_iter().chain(vectors).collect();
        let shared = ZeroOptimizer::new(all, group, |own: Named| {
            let (matrices, vectors) = own.into_iter().partition(|(_, tensor)| tensor.rank() > 1);
            of_kind(matrices, vectors, options).unwrap_or_else(|error| {
                made = Err(error);
                Box::new(AdamW::new(Named::new(), AdamWOptions::default()))
            })
        });
        made.map(|()| Stepper::Shared(shared))
    }

    pub(super) fn get(&mut self) -> &mut dyn Optimizer {
        match self {
            Stepper::Whole(optimizer) => &mut **optimizer,
            Stepper::Shared(optimizer) => optimizer,
        }
    }
}

fn of_kind(matrices: Named, vectors: Named, options: &Options) -> Result<Box<dyn Optimizer>> {
    let (lr, betas) = (options.learning_rate, (options.beta1, options.beta2));
    let weight_decay = options.weight_decay;
    Ok(match options.optimizer {
        OptimizerKind::AdamW => {
            let of = AdamWOptions { lr, betas, weight_decay, ..AdamWOptions::default() };
            Box::new(grouped(matrices, of, vectors, AdamWOptions { weight_decay: 0.0, ..of })?)
        }
        OptimizerKind::AdamW8bit => {
            let of = AdamW8bitOptions { lr, betas, weight_decay, ..AdamW8bitOptions::default() };
            let without = AdamW8bitOptions { weight_decay: 0.0, ..of };
            let optimizer: AdamW8bit = grouped(matrices, of, vectors, without)?;
            Box::new(optimizer)
        }
    })
}

fn grouped<R: Rule>(matrices: Named, of: R, vectors: Named, without: R) -> Result<Optim<R>> {
    let mut optimizer = Optim::new(matrices, of);
    optimizer.add_group(vectors, without)?;
    Ok(optimizer)
}
