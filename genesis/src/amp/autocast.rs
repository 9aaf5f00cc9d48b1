//! Code in which ops choose the precision of their operands, and the policy by which they do.
//!
//! Inside an op, and in the backward, autocast is off: what an op is made of keeps the precision that was
//! chosen for it.

use genesis_kernel::ir::DType;

use super::cache;
use super::table::{Precision, precision};
use crate::dispatch::autocast::{
    Policy, Regions, autocast_dtype, is_autocast_enabled, is_cast, register,
};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// What [`autocast`] does; a [`DType`] becomes one that casts to it on every device.
#[derive(Clone, Copy, Debug)]
pub struct Autocast {
    /// The 16 bits to compute in: bf16, or f16 with a [`GradScaler`](super::GradScaler).
    pub dtype: DType,
    /// Whether this region casts at all; off, it is an island of full precision.
    pub enabled: bool,
    /// Whether it is for tensors on the CPU; others are not touched by this region.
    pub cpu: bool,
    /// Whether it is for tensors on GPUs.
    pub cuda: bool,
    /// Whether weights are cast once, and kept until the outermost region ends.
    pub cache: bool,
}

impl From<DType> for Autocast {
    fn from(dtype: DType) -> Autocast {
        Autocast { dtype, enabled: true, cpu: true, cuda: true, cache: true }
    }
}

/// Runs `f` with ops choosing the precision of their operands by the table [`OPS`](super::OPS).
///
/// Regions nest; the innermost that is for a device counts. Only the forward belongs in a region: the
/// backward runs in what each op ran in, wherever it is called.
///
/// # Errors
/// If the dtype is neither bf16 nor f16, or as `f`.
///
/// # Examples
/// An island of f32:
/// ```
/// use genesis::amp::{Autocast, autocast};
/// use genesis::{DType, Tensor};
///
/// let x = Tensor::ones(&[2, 2], ())?;
/// autocast(DType::F16, || {
///     assert_eq!(x.matmul(&x)?.dtype(), DType::F16);
///     let island = Autocast { enabled: false, ..DType::F16.into() };
///     let y = autocast(island, || x.matmul(&x))?;
///     assert_eq!(y.dtype(), DType::F32);
///     Ok(())
/// })?;
/// # Ok::<(), genesis::Error>(())
/// ```
pub fn autocast<T>(options: impl Into<Autocast>, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let options = options.into();
    if options.enabled && !matches!(options.dtype, DType::F16 | DType::BF16) {
        let message = format!("casts to bf16 or f16, not to {}", options.dtype);
        return Err(Error::op("autocast", message));
    }
    register(&Table);
    let now = Regions::now();
    let dtype = options.enabled.then_some(options.dtype);
    let inside = Regions {
        cpu: if options.cpu { dtype } else { now.cpu },
        cuda: if options.cuda { dtype } else { now.cuda },
        cache: options.cache,
        ..now
    };
    inside.run(f)
}

/// Tensors in one dtype where autocast is on, as they are where it is off: for a
/// [`Function`](crate::autograd::Function) of your own whose kernel wants that dtype. Run what follows
/// in [`without_autocast`](super::without_autocast); both together are PyTorch's `custom_fwd(cast_inputs=dtype)`.
///
/// Integers and f64 are left alone.
///
/// # Errors
/// If memory runs out.
pub fn cast_arguments(dtype: DType, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    let cast = |input: &&Tensor| {
        let is_on = is_autocast_enabled(input.device());
        if is_on && is_cast(input) { input.to_dtype(dtype) } else { Ok((*input).clone()) }
    };
    inputs.iter().map(cast).collect()
}

/// The choice by the table [`OPS`](super::OPS).
struct Table;

impl Policy for Table {
    fn dtype(&self, op: &str, inputs: &[&Tensor]) -> Option<DType> {
        wanted(op, inputs)
    }

    fn cast_inputs(&self, op: &str, inputs: &[&Tensor]) -> Result<Option<Vec<Tensor>>> {
        cast_inputs(op, inputs)
    }

    fn end(&self) {
        cache::clear();
    }
}

/// The dtype that an op's operands come in, where autocast is on and changes the op.
fn wanted(op: &str, inputs: &[&Tensor]) -> Option<DType> {
    let half = autocast_dtype(inputs.first()?.device())?;
    match precision(op)? {
        Precision::Half => Some(half),
        Precision::Single => Some(DType::F32),
        Precision::Widest => {
            let mut dtypes = inputs.iter().filter(|x| x.dtype().is_float()).map(|x| x.dtype());
            let first = dtypes.next()?;
            dtypes.any(|dtype| dtype != first).then_some(DType::F32)
        }
    }
}

fn cast_inputs(op: &str, inputs: &[&Tensor]) -> Result<Option<Vec<Tensor>>> {
    let Some(dtype) = wanted(op, inputs) else { return Ok(None) };
    let differs = |input: &&Tensor| is_cast(input) && input.dtype() != dtype;
    if !inputs.iter().any(differs) {
        return Ok(None);
    }
    let is_kept = Regions::now().cache;
    let cast = |input: &&Tensor| match differs(input) {
        false => Ok((*input).clone()),
        true if is_kept && cache::is_weight(input) => cache::cast(input, dtype),
        true => input.to_dtype(dtype),
    };
    inputs.iter().map(cast).collect::<Result<_>>().map(Some)
}
