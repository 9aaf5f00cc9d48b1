//! Tensors whose memory is given up after a forward: a backward that reads them has them made again.
//!
//! Parameters of a sharded model are gathered for the forward of a layer. The tape would keep them; with
//! [`giving_up`] each node that saves one, or a view of one, is left a number instead, and the first that reads
//! it has all of them gathered again.

use std::sync::{Arc, Mutex};

use super::saved::{GivenUp, Kept, Place, Recompute, Saving, is_in_checkpoint, lock, saving};
use crate::error::{Error, Result};
use crate::tensor::{Storage, Tensor};

/// Makes tensors again: as many, in the same order, with the same layouts.
pub(crate) type Remake = dyn Fn() -> Result<Vec<Tensor>> + Send + Sync;

/// Tensors that are given up, and how they are made again.
pub(crate) struct Rebuilt {
    remake: Box<Remake>,
    /// The memory of the first time, for as long as the forward runs.
    first: Mutex<Vec<Arc<Storage>>>,
    /// Of each saved tensor: which memory it lies in, and where.
    saved: Mutex<Vec<(usize, Place)>>,
    /// The tensors, from the first read in a backward until [`Rebuilt::forget`].
    again: Mutex<Option<Vec<Tensor>>>,
}

impl Rebuilt {
    pub(crate) fn new(remake: Box<Remake>) -> Arc<Rebuilt> {
        let (first, saved, again) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Rebuilt { remake, first, saved, again })
    }

    /// Lets go of what was made again: nothing of this backward reads it any more.
    pub(crate) fn forget(&self) {
        let old = lock(&self.again).take();
        drop(old);
    }
}

/// Runs `f`, after which the memory of `tensors` may be given up though nodes saved them.
///
/// Under a checkpoint it only runs `f`: that keeps nothing anyway.
pub(crate) fn giving_up<T>(
    tensors: &[Tensor],
    how: &Arc<Rebuilt>,
    f: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if is_in_checkpoint() {
        return f();
    }
    *lock(&how.first) = tensors.iter().map(|tensor| tensor.storage().clone()).collect();
    let (result, _) = saving(Saving::GiveUp(how.clone()), f);
    let first = std::mem::take(&mut *lock(&how.first));
    drop(first);
    result
}

impl GivenUp for Rebuilt {
    fn claim(self: Arc<Self>, kept: &Kept) -> Result<Option<(Arc<dyn Recompute>, usize)>> {
        let memory = lock(&self.first).iter().position(|storage| kept.is_in(storage));
        let Some(memory) = memory else { return Ok(None) };
        let mut saved = lock(&self.saved);
        saved.push((memory, kept.place()));
        let index = saved.len() - 1;
        drop(saved);
        Ok(Some((self, index)))
    }
}

impl Recompute for Rebuilt {
    fn value(self: Arc<Self>, index: usize, _: bool) -> Result<Kept> {
        let mut again = lock(&self.again);
        let tensors = match again.take() {
            Some(tensors) => tensors,
            None => (self.remake)()?,
        };
        let saved = lock(&self.saved);
        let found =
            saved.get(index).and_then(|(memory, place)| Some((tensors.get(*memory)?, place)));
        let kept = found.map(|(tensor, place)| place.within(tensor));
        *again = Some(tensors);
        kept.ok_or_else(|| Error::op("backward", "nothing was given up under this number, a bug"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use genesis_kernel::runtime::Device;

    use super::*;

    #[test]
    fn what_is_given_up_is_made_again_once_and_views_of_it_too() -> Result<()> {
        let w = Tensor::from_slice(&[1f32, 2., 3., 4.], &[2, 2])?;
        let leaf = w.copy()?.requires_grad_(true)?;
        let x = Tensor::from_slice(&[1f32, -1.], &[1, 2])?.requires_grad_(true)?;
        let made = Arc::new(AtomicUsize::new(0));
        let (count, source) = (made.clone(), w.clone());
        let how = Rebuilt::new(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(vec![source.copy()?])
        }));
        // A tensor with history whose memory nobody else has.
        let gathered = leaf.mul_scalar(1.0)?;
        let memory = Arc::downgrade(gathered.storage());
        let y = giving_up(std::slice::from_ref(&gathered), &how, || {
            x.matmul(&gathered.t()?)?.mul(&x.matmul(&gathered)?)
        })?;
        drop(gathered);
        assert!(memory.upgrade().is_none(), "a node kept the memory");
        y.sum()?.backward()?;
        assert_eq!(made.load(Ordering::Relaxed), 1);
        // The same without giving anything up.
        let (leaf2, x2) = (w.copy()?.requires_grad_(true)?, x.detach().requires_grad_(true)?);
        let g = leaf2.mul_scalar(1.0)?;
        x2.matmul(&g.t()?)?.mul(&x2.matmul(&g)?)?.sum()?.backward()?;
        let grads = |t: &Tensor| t.grad().expect("a gradient").to_vec::<f32>();
        assert_eq!(grads(&leaf)?, grads(&leaf2)?);
        assert_eq!(grads(&x)?, grads(&x2)?);
        assert_eq!(x.device(), Device::Cpu);
        Ok(())
    }
}
