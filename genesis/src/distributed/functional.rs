//! Collectives with gradients.
//!
//! What the gradient of a collective is depends on what is done with its result. If each rank's loss is a
//! part of one sum, as in data and context parallel training, the gradient of a gather is a reduce-scatter.
//! If all ranks compute the same loss from equal tensors, as between the layers of tensor parallel models,
//! it is the rank's own part: Megatron's conjugate pairs.
//!
//! | function | forward | backward | the result is used |
//! |---|---|---|---|
//! | [`all_reduce`] | sum over ranks | sum over ranks | differently on each rank |
//! | [`all_gather`] | parts joined | reduce-scatter | differently on each rank |
//! | [`reduce_scatter`] | sum, own part | all-gather | differently on each rank |
//! | [`all_to_all`] | parts exchanged | parts exchanged back | |
//! | [`copy_to`] | the same tensor | sum over ranks | differently on each rank |
//! | [`reduce_from`] | sum over ranks | the same gradient | equally on all ranks |
//! | [`scatter_to`] | own part | parts joined | |
//! | [`gather_from`] | parts joined | own part | equally on all ranks |
//!
//! All of them run on the current stream, are called by all ranks in one order, and have second derivatives.

use genesis_kernel::runtime::nccl::ReduceOp;

use super::group::ProcessGroup;
use crate::autograd::{Context, Function};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// What is done to a tensor.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Same,
    Sum,
    Join(i64),
    SumPart(i64),
    Part(i64),
    Exchange,
}

/// A collective and its conjugate.
struct Collective {
    group: ProcessGroup,
    forward: Kind,
    backward: Kind,
}

impl Function for Collective {
    fn name(&self) -> &str {
        match self.forward {
            Kind::Same => "copy_to",
            Kind::Sum => "all_reduce",
            Kind::Join(_) => "all_gather",
            Kind::SumPart(_) => "reduce_scatter",
            Kind::Part(_) => "scatter_to",
            Kind::Exchange => "all_to_all",
        }
    }

    fn forward(&self, _: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        run(&self.group, self.forward, inputs[0]).map(|y| vec![y])
    }

    fn backward(&self, _: &Context, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        // By the function itself, whose gradient is the forward's kind.
        let (forward, backward) = (self.backward, self.forward);
        let conjugate = Collective { group: self.group.clone(), forward, backward };
        conjugate.apply(&[&grads[0]]).map(|dx| vec![Some(dx)])
    }
}

fn apply(x: &Tensor, group: &ProcessGroup, forward: Kind, backward: Kind) -> Result<Tensor> {
    if group.size() == 1 {
        return Ok(x.clone());
    }
    Collective { group: group.clone(), forward, backward }.apply(&[x])
}

fn run(group: &ProcessGroup, kind: Kind, x: &Tensor) -> Result<Tensor> {
    match kind {
        Kind::Same => Ok(x.detach()),
        Kind::Sum => {
            let sum = x.detach().copy()?.contiguous()?;
            group.all_reduce(&sum, ReduceOp::Sum)?;
            Ok(sum)
        }
        Kind::Join(axis) => {
            // Ranks lie side by side along the first axis.
            let parts = group.all_gather(&x.detach().movedim(&[axis], &[0])?.contiguous()?)?;
            parts.movedim(&[0], &[axis])?.contiguous()
        }
        Kind::SumPart(axis) => {
            let first = x.detach().movedim(&[axis], &[0])?.contiguous()?;
            group.reduce_scatter(&first, ReduceOp::Sum)?.movedim(&[0], &[axis])?.contiguous()
        }
        Kind::Part(axis) => own_part(&x.detach(), axis, group),
        Kind::Exchange => group.all_to_all(&x.detach()),
    }
}

/// This rank's part of a tensor that all ranks have, along an axis.
///
/// # Errors
/// If there is no such axis, or it is not in equal parts.
pub(super) fn own_part(x: &Tensor, axis: i64, group: &ProcessGroup) -> Result<Tensor> {
    let (extent, size) = (x.dim(axis)?, group.size());
    if extent % size != 0 {
        let message = format!("axis {axis} of {:?} is not in {size} equal parts", x.shape());
        return Err(Error::op("scatter_to", message));
    }
    let part = extent / size;
    x.narrow(axis, group.rank() * part, part)?.copy()?.contiguous()
}

/// The sum over all ranks, of which each makes its own use: the gradient is summed too.
///
/// # Errors
/// As [`ProcessGroup::all_reduce`].
///
/// # Examples
/// ```
/// use genesis::distributed::{functional, init};
/// use genesis::Tensor;
///
/// let group = init()?;
/// let x = Tensor::ones(&[3], group.device())?.requires_grad_(true)?;
/// let total = functional::all_reduce(&x, &group)?; // as many ones as there are ranks
/// total.sum()?.backward()?;
/// assert_eq!(x.grad().expect("a leaf").to_vec::<f32>()?, [group.size() as f32; 3]);
/// # Ok::<(), genesis::Error>(())
/// ```
pub fn all_reduce(x: &Tensor, group: &ProcessGroup) -> Result<Tensor> {
    apply(x, group, Kind::Sum, Kind::Sum)
}

/// The tensors of all ranks joined along an axis, of which each rank makes its own use.
///
/// # Errors
/// If there is no such axis, or as [`ProcessGroup::all_gather`].
pub fn all_gather(x: &Tensor, axis: i64, group: &ProcessGroup) -> Result<Tensor> {
    apply(x, group, Kind::Join(axis), Kind::SumPart(axis))
}

/// The sum over all ranks, of which each takes its part along an axis.
///
/// # Errors
/// If the axis is not in equal parts, or as [`ProcessGroup::reduce_scatter`].
pub fn reduce_scatter(x: &Tensor, axis: i64, group: &ProcessGroup) -> Result<Tensor> {
    apply(x, group, Kind::SumPart(axis), Kind::Join(axis))
}

/// Part `i` along the first axis goes to rank `i`; what comes is in the order of ranks.
///
/// # Errors
/// As [`ProcessGroup::all_to_all`].
pub fn all_to_all(x: &Tensor, group: &ProcessGroup) -> Result<Tensor> {
    apply(x, group, Kind::Exchange, Kind::Exchange)
}

/// A tensor that all ranks have, of which each makes its own use: gradients are summed.
///
/// # Errors
/// Of the backward: as [`ProcessGroup::all_reduce`].
pub fn copy_to(x: &Tensor, group: &ProcessGroup) -> Result<Tensor> {
    apply(x, group, Kind::Same, Kind::Sum)
}

/// The sum over all ranks, which all of them use alike.
///
/// # Errors
/// As [`ProcessGroup::all_reduce`].
pub fn reduce_from(x: &Tensor, group: &ProcessGroup) -> Result<Tensor> {
    apply(x, group, Kind::Sum, Kind::Same)
}

/// This rank's part of a tensor that all ranks have.
///
/// # Errors
/// If there is no such axis, or it is not in equal parts.
pub fn scatter_to(x: &Tensor, axis: i64, group: &ProcessGroup) -> Result<Tensor> {
    apply(x, group, Kind::Part(axis), Kind::Join(axis))
}

/// The parts of all ranks joined along an axis, which all of them use alike.
///
/// # Errors
/// If there is no such axis, or as [`ProcessGroup::all_gather`].
pub fn gather_from(x: &Tensor, axis: i64, group: &ProcessGroup) -> Result<Tensor> {
    apply(x, group, Kind::Join(axis), Kind::Part(axis))
}
