//! Which batches a rank runs.

use super::lesson::Lesson;
use super::ranks::Ranks;
use crate::autograd::{Context, Function};
use crate::distributed::uncounted;
use crate::error::Result;
use crate::tensor::Tensor;

/// A batch that a rank runs.
pub(super) struct Own<'b, L> {
    pub(super) batch: &'b L,
    counts: bool,
}

impl<'b, L> Own<'b, L> {
    /// One that counts.
    fn of(batch: &'b L) -> Own<'b, L> {
        Own { batch, counts: true }
    }

    /// Whether it does.
    pub(super) fn counts(&self) -> bool {
        self.counts
    }

    /// Runs its forward, whose gradients are 0 where it does not count.
    pub(super) fn run<T>(&self, f: impl FnOnce() -> T) -> T {
        if self.counts { f() } else { uncounted(f) }
    }

    /// Its loss, or nothing of it: 0, also where the loss is no number.
    pub(super) fn weighted(&self, loss: Tensor) -> Result<Tensor> {
        if self.counts { Ok(loss) } else { NothingOf.apply(&[&loss]) }
    }
}

/// Zeros in the place of values, and of their gradients.
struct NothingOf;

impl Function for NothingOf {
    fn forward(&self, _: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        inputs.iter().map(|input| input.zeros_like()).collect()
    }

    fn backward(&self, _: &Context, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        grads.iter().map(|grad| grad.zeros_like().map(Some)).collect()
    }
}

/// The batches of a step that this rank runs. Where parameters are in parts all ranks run as often: one that has no batch of
/// its own runs another one's, which counts nothing.
pub(super) fn own<'b, L: Lesson>(batches: &'b [L], ranks: Option<&Ranks>) -> Vec<Own<'b, L>> {
    let counted = |batch: &&L| batch.count() > 0;
    let Some(Ranks { mesh, .. }) = ranks else {
        return batches.iter().filter(counted).map(Own::of).collect();
    };
    let (first, every) = mesh.batches();
    let own = batches.iter().skip(first).step_by(every).filter(counted);
    let mut own: Vec<Own<'b, L>> = own.map(Own::of).collect();
    if let (Some(_), Some(batch)) = (&mesh.shards, batches.iter().find(counted)) {
        let turns = batches.len().div_ceil(every);
        own.resize_with(turns.max(own.len()), || Own { batch, counts: false });
    }
    own
}

#[cfg(test)]
mod tests {
    use genesis_kernel::runtime::Device;

    use super::*;
    use crate::distributed::{FullyShard, World, init_world};
    use crate::nn::{Layer, Linear, Module};

    #[test]
    fn what_does_not_count_has_no_loss_and_no_gradient_even_where_it_is_no_number() -> Result<()> {
        let group = init_world(World::alone(), Device::Cpu)?;
        let model = FullyShard::new(Linear::new(2, 1, Device::Cpu)?, &group, Default::default())?;
        let x = Tensor::from_slice(&[f32::INFINITY, f32::NAN], &[1, 2])?;
        for counts in [true, false] {
            let own = Own { batch: &(), counts };
            let loss = own.weighted(own.run(|| model.forward(&x))?.log()?.sum()?)?;
            assert_eq!(loss.item()?.is_finite(), !counts);
            loss.backward()?;
            for parameter in model.parameters() {
                let grad = parameter.grad().expect("a gradient, or zeros in its place");
                let is_zero = grad.to_vec::<f32>()?.iter().all(|&slope| slope == 0.0);
                assert_eq!(is_zero, !counts, "{grad:?}");
                parameter.zero_grad();
            }
        }
        Ok(())
    }
}
