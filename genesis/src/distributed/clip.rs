//! Gradient clipping where parameters lie in parts on several ranks.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::nccl::ReduceOp;

use super::group::ProcessGroup;
use crate::autograd::no_grad;
use crate::error::Result;
use crate::nn::{Module, handles};
use crate::tensor::Tensor;

/// Scales the gradients of a module whose parameters lie in parts on the ranks of a group so that the norm of all
/// of them together is at most `max_norm`; gives the norm before.
///
/// Of a parameter that is whole on each rank the gradient is the same on all of them, and counts once.
///
/// # Numerics
/// As [`clip_grad_norm_`](crate::optim::clip_grad_norm_), of order 2.
/// # Errors
/// If memory runs out, or a collective can't be made.
pub fn clip_grad_norm_(module: &dyn Module, max_norm: f64, group: &ProcessGroup) -> Result<Tensor> {
    no_grad(|| {
        let zero = Tensor::zeros(&[1], (DType::F32, group.device()))?;
        let (mut whole, mut parts) = (zero.clone(), zero.copy()?);
        for (_, parameter) in handles(module) {
            let Some(grad) = parameter.grad() else { continue };
            let square = grad.detach().to_dtype(DType::F32)?.square()?.sum()?.reshape(&[1])?;
            let sum = if parameter.shard().is_some() { &mut parts } else { &mut whole };
            *sum = sum.add(&square)?;
        }
        group.all_reduce(&parts, ReduceOp::Sum)?;
        let norm = whole.add(&parts)?.sqrt()?.reshape(&[])?;
        let factor = norm.add_scalar(1e-6)?.rdiv_scalar(max_norm)?.minimum_scalar(1.0)?;
        for (_, parameter) in handles(module) {
            if let Some(grad) = parameter.grad() {
                let scaled = grad.detach().mul(&factor.to_dtype(grad.dtype())?)?;
                parameter.set_grad(Some(scaled));
            }
        }
        Ok(norm)
    })
}
