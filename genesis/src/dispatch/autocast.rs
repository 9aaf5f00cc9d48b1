//! Regions of autocast, and the policy by which ops choose the precision of their operands in one.
//!
//! A region is a property of the thread, as is [`no_grad`](crate::no_grad). The policy, with its table of ops and
//! its cache of weights, is `amp`'s: it registers it when the first region is entered. Until then, and outside of
//! regions, an op pays a look at the thread's region.

use std::cell::Cell;
use std::sync::OnceLock;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use crate::error::Result;
use crate::tensor::Tensor;

/// In what an op's operands come under autocast.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precision {
    /// In the 16 bits of the region.
    Half,
    /// In f32.
    Single,
    /// Where they differ, in f32.
    Widest,
}

/// In what autocast computes some ops, by name.
pub(crate) type Precisions = &'static [(&'static str, Precision)];

/// What chooses the precision of operands.
pub(crate) trait Policy: Sync {
    /// The dtype that an op's operands come in, where autocast is on and changes the op.
    fn dtype(&self, op: &str, inputs: &[&Tensor]) -> Option<DType>;

    /// The inputs that an op takes instead of its own, where autocast is on; none where these are right.
    fn cast_inputs(&self, op: &str, inputs: &[&Tensor]) -> Result<Option<Vec<Tensor>>>;

    /// The outermost region of the thread has ended.
    fn end(&self);
}

static POLICY: OnceLock<&'static dyn Policy> = OnceLock::new();

/// Lets ops choose by this policy from now on; there is one.
pub(crate) fn register(policy: &'static dyn Policy) {
    POLICY.get_or_init(|| policy);
}

/// What a thread casts to.
#[derive(Clone, Copy)]
pub(crate) struct Regions {
    pub(crate) cpu: Option<DType>,
    pub(crate) cuda: Option<DType>,
    /// Whether weights are cast once, and kept until the outermost region ends.
    pub(crate) cache: bool,
    pub(crate) depth: u32,
}

impl Regions {
    /// Those of this thread.
    pub(crate) fn now() -> Regions {
        REGIONS.get()
    }

    /// Whether ops come in the same precision in both.
    pub(crate) fn casts_as(self, other: Regions) -> bool {
        (self.cpu, self.cuda) == (other.cpu, other.cuda)
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
            if self.0.depth == 0
                && let Some(policy) = POLICY.get()
            {
                policy.end();
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

/// What autocast is for: floats that are not wider than f32.
pub(crate) fn is_cast(tensor: &Tensor) -> bool {
    matches!(tensor.dtype(), DType::F16 | DType::BF16 | DType::F32)
}

fn wanted(op: &str, inputs: &[&Tensor]) -> Option<DType> {
    POLICY.get()?.dtype(op, inputs)
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
    if now.cpu.is_none() && now.cuda.is_none() {
        return Ok(None);
    }
    POLICY.get().map_or(Ok(None), |policy| policy.cast_inputs(op, inputs))
}
