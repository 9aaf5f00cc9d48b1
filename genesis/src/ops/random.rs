//! Random tensors and dropout.

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::KernelDef;
use genesis_kernel::runtime::Arg;
use kernels::random as device;

use super::{Op, apply, launch, wrong_dtype};
use crate::autograd::SavedTensors;
use crate::error::{Error, Result};
use crate::random::{RngState, default_generator};
use crate::tensor::{Creation, Tensor};

fn draw(
    name: &str,
    kernel: &KernelDef,
    shape: &[usize],
    at: Creation,
    numbers: &[Arg],
) -> Result<Tensor> {
    if !at.dtype.is_number() {
        return Err(wrong_dtype(name, "a number", at.dtype));
    }
    let y = Tensor::uninitialized(shape, at)?;
    let args = [&state_args(default_generator().take(y.numel())), numbers].concat();
    launch::dense(kernel, &[at.dtype], &[], &[(&y, true)], &args)?;
    Ok(y)
}

/// Seed and offset as a kernel takes them.
fn state_args(state: RngState) -> [Arg; 2] {
    let seed = Scalar { dtype: DType::U64, bits: state.seed };
    [Arg::Scalar(seed), Arg::Scalar(Scalar { dtype: DType::I64, bits: state.offset })]
}

fn check_float(name: &str, at: Creation) -> Result<()> {
    if at.dtype.is_arithmetic_float() {
        return Ok(());
    }
    Err(wrong_dtype(name, "a float", at.dtype))
}

impl Tensor {
    /// Uniform in `[0, 1)`.
    ///
    /// # Errors
    /// If the dtype is not a float.
    pub fn rand(shape: &[usize], at: impl Into<Creation>) -> Result<Tensor> {
        Tensor::uniform(shape, 0.0, 1.0, at)
    }

    /// Uniform in `[low, high)`.
    ///
    /// # Errors
    /// If the dtype is not a float.
    pub fn uniform(
        shape: &[usize],
        low: f64,
        high: f64,
        at: impl Into<Creation>,
    ) -> Result<Tensor> {
        let at = at.into();
        check_float("rand", at)?;
        let numbers = [launch::number(DType::F32, low), launch::number(DType::F32, high)];
        draw("rand", &device::uniform::KERNEL, shape, at, &numbers)
    }

    /// Normal with mean 0 and standard deviation 1.
    ///
    /// # Errors
    /// If the dtype is not a float.
    pub fn randn(shape: &[usize], at: impl Into<Creation>) -> Result<Tensor> {
        Tensor::normal(shape, 0.0, 1.0, at)
    }

    /// Normal with this mean and standard deviation.
    ///
    /// # Errors
    /// If the dtype is not a float.
    pub fn normal(shape: &[usize], mean: f64, std: f64, at: impl Into<Creation>) -> Result<Tensor> {
        let at = at.into();
        check_float("randn", at)?;
        let numbers = [launch::number(DType::F32, mean), launch::number(DType::F32, std)];
        draw("randn", &device::normal::KERNEL, shape, at, &numbers)
    }

    /// Uniform among the integers `low..high`.
    ///
    /// # Errors
    /// If the range is empty or longer than 2^32, or the dtype is bool.
    pub fn randint(
        low: i64,
        high: i64,
        shape: &[usize],
        at: impl Into<Creation>,
    ) -> Result<Tensor> {
        let at = at.into();
        if high <= low || high.checked_sub(low).is_none_or(|n| n > 1 << 32) {
            let message = format!("the range {low}..{high} must hold between 1 and 2^32 integers");
            return Err(Error::op("randint", message));
        }
        let arg = |value| Arg::Scalar(Scalar::int(DType::I64, value));
        draw("randint", &device::integers::KERNEL, shape, at, &[arg(low), arg(high)])
    }

    /// Zeroes each element with probability `p` and scales the others by `1 / (1 - p)`.
    ///
    /// The mask is a function of the generator's state and the element, so nothing is kept for the
    /// backward but two numbers.
    ///
    /// # Errors
    /// If `p` is not in `[0, 1]`, or the dtype is not a float.
    pub fn dropout(&self, p: f64) -> Result<Tensor> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::op("dropout", format!("p must be in [0, 1], got {p}")));
        }
        if !self.dtype().is_arithmetic_float() {
            return Err(wrong_dtype("dropout", "a float", self.dtype()));
        }
        if p == 0.0 {
            return Ok(self.clone());
        }
        if p == 1.0 {
            return self.mul_scalar(0.0);
        }
        let state = default_generator().take(self.numel());
        apply(Dropout { p, state }, &[self])
    }
}

struct Dropout {
    p: f64,
    state: RngState,
}

impl Op for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0].contiguous()?;
        let y = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        let [seed, offset] = state_args(self.state);
        let numbers = [seed, offset, launch::number(DType::F32, self.p)];
        let dtypes = [x.dtype(), launch::accumulate_dtype(x.dtype())];
        launch::dense(
            &device::dropout::KERNEL,
            &dtypes,
            &[],
            &[(&x, false), (&y, true)],
            &numbers,
        )?;
        Ok(y)
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(apply(Dropout { p: self.p, state: self.state }, &[dy])?)])
    }
}
