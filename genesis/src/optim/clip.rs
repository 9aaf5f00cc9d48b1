//! Gradient clipping and unscaling, without waiting for the device: a launch or two for all gradients.

use std::panic::Location;
use std::sync::{Mutex, PoisonError};

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::KernelDef;
use genesis_kernel::runtime::{Arg, Device};
use genesis_kernel::trace;
use kernels::many as device;

use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::launch::many::{Cut, Many, Operand, Tables};
use crate::launch::{accumulate_dtype, pointer};
use crate::tensor::Tensor;

/// Where gradients lie changes little from step to step.
static TABLES: Mutex<Tables> = Mutex::new(Tables::new());

/// Scales all gradients together so that their joint norm of order `norm_type` is at most `max_norm`;
/// gives the norm they had, on the device.
///
/// `f64::INFINITY` is the largest absolute value. Parameters without a gradient do not count; without
/// any the norm is 0.
///
/// # Numerics
/// The norm is in f32 for 16-bit gradients. As in PyTorch the factor is
/// `min(1, max_norm / (norm + 1e-6))`; one NaN makes all of them NaN.
/// # Errors
/// If memory runs out.
/// # Cost
/// Reads all gradients twice and writes them once.
/// # Source
/// Same conventions as `torch.nn.utils.clip_grad_norm_`.
#[track_caller]
pub fn clip_grad_norm_(parameters: &[Tensor], max_norm: f64, norm_type: f64) -> Result<Tensor> {
    let _range = trace::range_at("clip_grad_norm_", Location::caller());
    no_grad(|| {
        let norm = total_norm(&gradients(parameters), norm_type)?;
        clip_grads_with_norm_(parameters, max_norm, &norm)?;
        Ok(norm)
    })
}

/// Scales all gradients so that their norm, which is known to be `total_norm`, is at most `max_norm`.
///
/// # Errors
/// If the norm is not one number, or memory runs out.
/// # Source
/// Same conventions as `torch.nn.utils.clip_grads_with_norm_`.
pub fn clip_grads_with_norm_(
    parameters: &[Tensor],
    max_norm: f64,
    total_norm: &Tensor,
) -> Result<()> {
    if total_norm.numel() != 1 {
        let message = format!("the norm is one number, not of shape {:?}", total_norm.shape());
        return Err(Error::op("clip_grads_with_norm_", message));
    }
    no_grad(|| {
        let factor = total_norm.add_scalar(1e-6)?.rdiv_scalar(max_norm)?.minimum_scalar(1.0)?;
        rewrite(parameters, &device::scale_many::KERNEL, &factor, None)
    })
}

/// Brings every element of every gradient between `-limit` and `limit`.
///
/// # Errors
/// If a launch fails.
/// # Source
/// Same conventions as `torch.nn.utils.clip_grad_value_`.
pub fn clip_grad_value_(parameters: &[Tensor], limit: f64) -> Result<()> {
    no_grad(|| {
        for parameter in parameters {
            if let Some(grad) = parameter.grad() {
                parameter.set_grad(Some(grad.clamp(-limit, limit)?));
            }
        }
        Ok(())
    })
}

/// The norm of order `norm_type` of all elements of all tensors, as a scalar on the device of the first.
///
/// # Errors
/// If a tensor is no float, or memory runs out.
/// # Source
/// Same conventions as `torch.nn.utils.get_total_norm`.
pub fn total_norm(tensors: &[Tensor], norm_type: f64) -> Result<Tensor> {
    no_grad(|| {
        let Some(first) = tensors.first() else { return Tensor::zeros(&[], DType::F32) };
        let wide =
            if tensors.iter().any(|t| t.dtype() == DType::F64) { DType::F64 } else { DType::F32 };
        let mut parts = Vec::new();
        for group in groups(tensors, Tensor::clone) {
            // Both are vectors.
            let part = match norm_type {
                2.0 => squares(&group)?,
                _ => powers(&group, norm_type)?,
            };
            parts.push(part.to_dtype(wide)?.to_device(first.device())?);
        }
        let parts = Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0)?;
        match norm_type {
            2.0 => parts.sum()?.sqrt(),
            f64::INFINITY => parts.max(),
            _ => root(&parts.sum()?, norm_type),
        }
    })
}

/// `y^(1 / order)` for `y >= 0`.
fn root(y: &Tensor, order: f64) -> Result<Tensor> {
    y.log()?.div_scalar(order)?.exp()
}

/// Sums of squares, one of each program.
fn squares(tensors: &[Tensor]) -> Result<Tensor> {
    let (dtype, on) = (tensors[0].dtype(), tensors[0].device());
    if !dtype.is_arithmetic_float() {
        return Err(Error::op("total_norm", format!("needs floats, got {dtype}")));
    }
    let wide = accumulate_dtype(dtype);
    let dense: Vec<Tensor> =
        tensors.iter().map(|t| t.detach().contiguous()).collect::<Result<_>>()?;
    let cut = Cut::new(on, wide.bytes());
    let programs = cut.programs(&dense);
    let sums = Tensor::zeros(&[programs.max(1)], (wide, on))?;
    let rest = |first: usize| -> Result<Vec<Arg>> {
        Ok(vec![pointer(&sums.narrow(0, first, sums.numel() - first)?, true)])
    };
    let (kernel, dtypes) = (&device::squares::KERNEL, [dtype, wide]);
    let operands = [Operand::Read(&dense)];
    let many = Many {
        kernel,
        dtypes: &dtypes,
        consts: &[],
        cut,
        operands: &operands,
        numbers: &[],
        rest: &rest,
    };
    many.run(&mut TABLES.lock().unwrap_or_else(PoisonError::into_inner))?;
    Ok(sums)
}

/// Sums of powers of absolute values, or the largest of them, one of each tensor.
fn powers(tensors: &[Tensor], order: f64) -> Result<Tensor> {
    let one = |tensor: &Tensor| -> Result<Tensor> {
        let x = tensor.detach();
        let size = x.to_dtype(accumulate_dtype(x.dtype()))?.abs()?;
        match order {
            _ if size.numel() == 0 => Tensor::zeros(&[], (size.dtype(), size.device())),
            f64::INFINITY => size.max(),
            1.0 => size.sum(),
            _ => size.log()?.mul_scalar(order)?.exp()?.sum(),
        }
    };
    let parts: Vec<Tensor> = tensors.iter().map(one).collect::<Result<_>>()?;
    Tensor::stack(&parts.iter().collect::<Vec<_>>(), 0)
}

/// Multiplies all gradients by `1 / scale`, and sets `found` to 1 where one is infinite or NaN.
pub(crate) fn unscale(parameters: &[Tensor], inverse: &Tensor, found: &Tensor) -> Result<()> {
    no_grad(|| rewrite(parameters, &device::unscale_many::KERNEL, inverse, Some(found)))
}

/// Writes all gradients anew by a kernel that takes a factor and perhaps a place to report to.
fn rewrite(
    parameters: &[Tensor],
    kernel: &'static KernelDef,
    factor: &Tensor,
    found: Option<&Tensor>,
) -> Result<()> {
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    let with_grad: Vec<Tensor> =
        parameters.iter().filter(|p| p.grad().is_some()).cloned().collect();
    for with_grad in groups(&with_grad, |p| p.grad().unwrap_or_else(|| p.clone())) {
        let Some(first) = with_grad.first().and_then(Tensor::grad) else { continue };
        let (dtype, on) = (first.dtype(), first.device());
        drop(first);
        let wide = accumulate_dtype(dtype);
        let factor = factor.to_dtype(wide)?.to_device(on)?;
        let (old, new): (Vec<Tensor>, Vec<Tensor>) =
            with_grad.iter().map(own_gradient).collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let here = found.map(|found| found.to_device(on)).transpose()?;
        let rest = |_: usize| -> Result<Vec<Arg>> {
            let found = here.iter().map(|found| pointer(found, true));
            Ok([pointer(&factor, false)].into_iter().chain(found).collect())
        };
        let operands = [Operand::Read(&old), Operand::Write(&new)];
        let (cut, dtypes) = (Cut::new(on, wide.bytes()), [dtype, wide]);
        let many = Many {
            kernel,
            dtypes: &dtypes,
            consts: &[],
            cut,
            operands: &operands,
            numbers: &[],
            rest: &rest,
        };
        many.run(&mut tables)?;
        for (parameter, new) in with_grad.iter().zip(new) {
            parameter.set_grad(Some(new));
        }
        if let (Some(found), Some(here)) = (found, &here)
            && !here.is_same(found)
        {
            let both = found.add(&here.to_device(found.device())?)?.minimum_scalar(1.0)?;
            found.copy_(&both)?;
        }
    }
    Ok(())
}

/// A parameter's gradient, dense, and where its new value goes: the same memory where nobody else can
/// see it, for the backward may give several parameters the same gradient.
fn own_gradient(parameter: &Tensor) -> Result<(Tensor, Tensor)> {
    let gradient = parameter.grad();
    parameter.set_grad(None);
    let Some(gradient) = gradient else {
        return Err(Error::op("gradient", "is gone while it is scaled"));
    };
    if gradient.is_contiguous() && gradient.is_sole_owner() {
        return Ok((gradient.clone(), gradient));
    }
    let old = gradient.detach().contiguous()?;
    let new = Tensor::uninitialized(old.shape(), (old.dtype(), old.device()))?;
    parameter.set_grad(Some(gradient));
    Ok((old, new))
}

fn gradients(parameters: &[Tensor]) -> Vec<Tensor> {
    parameters.iter().filter_map(Tensor::grad).collect()
}

/// Tensors by the dtype and device of what `of` gives, in the order in which these come first.
fn groups(tensors: &[Tensor], of: impl Fn(&Tensor) -> Tensor) -> Vec<Vec<Tensor>> {
    let mut groups: Vec<((DType, Device), Vec<Tensor>)> = Vec::new();
    for tensor in tensors {
        let on = of(tensor);
        let own = (on.dtype(), on.device());
        match groups.iter_mut().find(|(known, _)| *known == own) {
            Some((_, group)) => group.push(tensor.clone()),
            None => groups.push((own, vec![tensor.clone()])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}
