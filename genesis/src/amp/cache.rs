//! The weight cache of autocast: 16-bit copies, cast once a region.
//!
//! What is kept are values, not a piece of a graph: each use records a cast of its own, so that a weight
//! that was first used without gradients, or whose graph a backward has freed, is as good as any. A weight
//! is known by its memory and how often that was written, so that a transposed view is found again, and
//! a step of the optimizer inside of a region is seen.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use genesis_kernel::ir::DType;

use crate::autograd::SavedTensors;
use crate::error::Result;
use crate::no_grad;
use crate::ops::{Op, apply};
use crate::tensor::{Storage, Tensor};

/// The address of the storage, and which part of it is seen how.
type Key = (usize, usize, Vec<usize>, Vec<i64>, &'static str);

/// A weight's values in 16 bits. The storage is kept so that its address stays its own.
struct Entry {
    _storage: Arc<Storage>,
    version: u64,
    values: Tensor,
}

thread_local! {
    static KEPT: RefCell<BTreeMap<Key, Entry>> = const { RefCell::new(BTreeMap::new()) };
}

/// Forgets all weights of this thread.
pub(super) fn clear() {
    // Taken out first, so that nothing is dropped while the list is borrowed.
    drop(KEPT.take());
}

/// Whether a tensor lies in the memory of a leaf that requires a gradient.
pub(super) fn is_weight(tensor: &Tensor) -> bool {
    tensor.storage().is_parameter() && tensor.requires_grad() && tensor.dtype() == DType::F32
}

/// A weight in another dtype.
pub(super) fn cast(weight: &Tensor, dtype: DType) -> Result<Tensor> {
    let (shape, strides) = (weight.shape().to_vec(), weight.strides().to_vec());
    let offset = weight.layout().offset();
    let storage = weight.storage();
    let key = (Arc::as_ptr(storage) as usize, offset, shape, strides, dtype.name());
    let version = storage.version();
    let known = KEPT.with_borrow(|kept| {
        kept.get(&key).filter(|entry| entry.version == version).map(|entry| entry.values.clone())
    });
    let values = match known {
        Some(values) => values,
        None => {
            let values = no_grad(|| in_its_order(&weight.detach(), dtype))?;
            let entry = Entry { _storage: storage.clone(), version, values: values.clone() };
            let old = KEPT.with_borrow_mut(|kept| kept.insert(key, entry));
            drop(old);
            values
        }
    };
    apply(Known { from: weight.dtype(), values }, &[weight])
}

/// The values in another dtype with axes in memory in the order that they have, so that a transposed
/// weight is cast at full speed and stays what matrix products like best.
fn in_its_order(x: &Tensor, dtype: DType) -> Result<Tensor> {
    let mut order: Vec<usize> = (0..x.rank()).collect();
    order.sort_by_key(|&axis| std::cmp::Reverse(x.strides()[axis]));
    let axes = |order: &[usize]| order.iter().map(|&axis| axis as i64).collect::<Vec<_>>();
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(place, &axis)| back[axis] = place);
    x.permute(&axes(&order))?.to_dtype(dtype)?.permute(&axes(&back))
}

/// A cast whose result is there already.
struct Known {
    from: DType,
    values: Tensor,
}

impl Op for Known {
    fn name(&self) -> &'static str {
        "to_dtype"
    }

    fn forward(&self, _: &[&Tensor]) -> Result<Tensor> {
        Ok(self.values.detach())
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(dy.to_dtype(self.from)?)])
    }

    fn converts_from(&self) -> Option<DType> {
        Some(self.from)
    }
}
