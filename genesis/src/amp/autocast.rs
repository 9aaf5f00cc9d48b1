//! Regions of code in which ops choose the precision of their operands.
//!
//! A region is a property of the thread, as is [`no_grad`](crate::no_grad). Inside an op, and in the
//! backward, autocast is off: what an op is made of keeps the precision that was chosen for it.

use std::cell::Cell;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::cache;
use super::table::{Precision, precision};
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

/// What a thread casts to.
#[derive(Clone, Copy)]
pub(crate) struct Regions {
    cpu: Option<DType>,
    cuda: Option<DType>,
    cache: bool,
    depth: u32,
}

impl Regions {
    /// Those of this thread.
    pub(crate) fn now() -> Regions {
        REGIONS.get()
    }

    /// Runs `f` with what these cast to, wherever it is called.
    pub(crate) fn run<T>(self, f: impl FnOnce() -> T) -> T {
        within(Regions { depth: REGIONS.get().depth + 1, ..self }, f)
    }
}

thread_local! {
    static REGIONS: Cell<Regions> =
        const { Cell::new(Regions { cpu: None, cuda: None, cache: true, depth: 0 }) };
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
    let now = REGIONS.get();
    let dtype = options.enabled.then_some(options.dtype);
    let inside = Regions {
        cpu: if options.cpu { dtype } else { now.cpu },
        cuda: if options.cuda { dtype } else { now.cuda },
        cache: options.cache,
        depth: now.depth + 1,
    };
    within(inside, f)
}

/// Runs `f` with ops taking their operands as they come.
pub fn without_autocast<T>(f: impl FnOnce() -> T) -> T {
    let now = REGIONS.get();
    if now.cpu.is_none() && now.cuda.is_none() {
        return f();
    }
    Regions { cpu: None, cuda: None, ..now }.run(f)
}

fn within<T>(inside: Regions, f: impl FnOnce() -> T) -> T {
    struct Restore(Regions);
    impl Drop for Restore {
        fn drop(&mut self) {
            REGIONS.set(self.0);
            if self.0.depth == 0 {
                cache::clear();
            }
        }
    }
    let _restore = Restore(REGIONS.replace(inside));
    f()
}

/// Whether ops on a device choose the precision of their operands now.
pub fn is_autocast_enabled(device: Device) -> bool {
    autocast_dtype(device).is_some()
}

/// The 16 bits that ops on a device compute in now, where autocast is on.
pub fn autocast_dtype(device: Device) -> Option<DType> {
    let regions = REGIONS.get();
    match device {
        Device::Cpu => regions.cpu,
        Device::Cuda(_) => regions.cuda,
    }
}

/// Tensors in one dtype where autocast is on, as they are where it is off: for a
/// [`Function`](crate::autograd::Function) of your own whose kernel wants that dtype. Run what follows
/// in [`without_autocast`]; both together are PyTorch's `custom_fwd(cast_inputs=dtype)`.
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

/// What autocast is for: floats that are not wider than f32.
fn is_cast(tensor: &Tensor) -> bool {
    matches!(tensor.dtype(), DType::F16 | DType::BF16 | DType::F32)
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

/// Whether autocast will bring both operands of an op to one dtype.
pub(crate) fn unifies(op: &str, x: &Tensor, y: &Tensor) -> bool {
    is_cast(x) && is_cast(y) && wanted(op, &[x, y]).is_some()
}

/// The dtype of an op's result for this operand, where an op that is made of others gives the operand's.
pub(crate) fn dtype_of(op: &str, x: &Tensor) -> DType {
    wanted(op, &[x]).filter(|_| is_cast(x)).unwrap_or(x.dtype())
}

/// The inputs that an op takes instead of its own; none where these are right.
#[inline]
pub(crate) fn cast_inputs(op: &str, inputs: &[&Tensor]) -> Result<Option<Vec<Tensor>>> {
    let now = REGIONS.get();
    if now.cpu.is_none() && now.cuda.is_none() { Ok(None) } else { cast_where_on(op, inputs) }
}

fn cast_where_on(op: &str, inputs: &[&Tensor]) -> Result<Option<Vec<Tensor>>> {
    let Some(dtype) = wanted(op, inputs) else { return Ok(None) };
    let differs = |input: &&Tensor| is_cast(input) && input.dtype() != dtype;
    if !inputs.iter().any(differs) {
        return Ok(None);
    }
    let is_kept = REGIONS.get().cache;
    let cast = |input: &&Tensor| match differs(input) {
        false => Ok((*input).clone()),
        true if is_kept && cache::is_weight(input) => cache::cast(input, dtype),
        true => input.to_dtype(dtype),
    };
    inputs.iter().map(cast).collect::<Result<_>>().map(Some)
}
