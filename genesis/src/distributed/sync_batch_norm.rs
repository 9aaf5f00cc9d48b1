//! Batch norm over the batches of all ranks.

use std::sync::Arc;

use super::functional::all_reduce;
use super::group::ProcessGroup;
use crate::nn::{BatchNorm1d, BatchNorm2d, BatchNorm3d, Module};

/// Lets every batch norm of a module use the mean and variance over the batches of all ranks in training; gives how
/// many there are.
///
/// The running statistics are then equal on all ranks. All ranks must run the layers in the same order, each with
/// a batch that is not empty somewhere.
///
/// # Examples
/// ```
/// use genesis::distributed::{convert_sync_batch_norm, init};
/// use genesis::nn::{BatchNorm2d, Conv2d, Sequential};
///
/// let group = init()?;
/// let at = group.device();
/// let net = Sequential::new().with(Conv2d::new([3, 8], 3, at)?).with(BatchNorm2d::new(8, at)?);
/// assert_eq!(convert_sync_batch_norm(&net, &group), 1);
/// # Ok::<(), genesis::Error>(())
/// ```
/// # Source
/// `torch.nn.SyncBatchNorm.convert_sync_batchnorm`, but in place: the layers stay what they are.
pub fn convert_sync_batch_norm(module: &dyn Module, group: &ProcessGroup) -> usize {
    let mut converted = 0;
    for (_, layer) in module.named_modules() {
        let across = [
            layer.downcast_ref::<BatchNorm1d>().map(|layer| &layer.across),
            layer.downcast_ref::<BatchNorm2d>().map(|layer| &layer.across),
            layer.downcast_ref::<BatchNorm3d>().map(|layer| &layer.across),
        ];
        for across in across.into_iter().flatten() {
            let group = group.clone();
            across.set(Arc::new(move |x| all_reduce(x, &group)));
            converted += 1;
        }
    }
    converted
}
