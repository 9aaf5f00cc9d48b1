//! Which batches a rank runs.

use super::lesson::Lesson;
use super::ranks::Ranks;
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

    /// Its loss, or nothing of it.
    pub(super) fn weighted(&self, loss: Tensor) -> Result<Tensor> {
        if self.counts { Ok(loss) } else { loss.mul_scalar(0.0) }
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
    if let (Some(_), Some(batch)) = (&mesh.shards, batches.first()) {
        let turns = batches.len().div_ceil(every);
        own.resize_with(turns.max(own.len()), || Own { batch, counts: false });
    }
    own
}
