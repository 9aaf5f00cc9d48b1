//! Loss scaling, so that gradients in f16 neither underflow nor overflow.
//!
//! The scale is a number on the device, as is whether a gradient overflowed; the optimizer's kernels read
//! the latter and leave the step out. So a training step never waits for the device.
//!
//! ```text
//! scale(loss).backward()      gradients are scale times too large
//! unscale_(optimizer)         only if they are read before the step, as by clipping
//! step(optimizer)             unscales if that is not done, and steps unless one is infinite or NaN
//! update()                    next scale: smaller after an overflow, larger after many steps without
//! ```

use std::collections::BTreeMap;

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::Device;

use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::launch::{self, number, pointer};
use crate::optim::{Optimizer, State, unscale};
use crate::tensor::Tensor;

/// Options of a [`GradScaler`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct GradScalerOptions {
    /// The first scale.
    pub init_scale: f64,
    /// What the scale is multiplied by after `growth_interval` steps without an overflow.
    pub growth_factor: f64,
    /// What it is multiplied by after an overflow.
    pub backoff_factor: f64,
    /// Steps without an overflow until it grows.
    pub growth_interval: u64,
    /// Off, everything is as without a scaler.
    pub enabled: bool,
}

impl Default for GradScalerOptions {
    fn default() -> GradScalerOptions {
        GradScalerOptions {
            init_scale: 65536.0,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
            enabled: true,
        }
    }
}

/// Scales losses for training in f16, and leaves out steps whose gradients overflowed.
///
/// Gradients may be accumulated over several backwards of one scale, and clipped after
/// [`unscale_`](GradScaler::unscale_). Several optimizers may share a scaler: each is unscaled and
/// stepped once between two updates, and [`update`](GradScaler::update) counts an overflow of any.
///
/// # Source
/// Same conventions as `torch.amp.GradScaler`.
/// # Examples
/// ```
/// use genesis::amp::{GradScaler, GradScalerOptions, autocast};
/// use genesis::optim::{Optimizer, Sgd, SgdOptions, clip_grad_norm_};
/// use genesis::{DType, Device, Tensor};
///
/// let w = Tensor::ones(&[4, 1], Device::Cpu)?.requires_grad_(true)?;
/// let x = Tensor::ones(&[2, 4], Device::Cpu)?;
/// let mut sgd = Sgd::new(vec![w.clone()], SgdOptions { lr: 0.1, ..Default::default() });
/// let mut scaler = GradScaler::new(GradScalerOptions::default(), Device::Cpu)?;
/// for _ in 0..5 {
///     sgd.zero_grad();
///     let loss = autocast(DType::F16, || x.matmul(&w)?.to_dtype(DType::F32)?.sum())?;
///     scaler.scale(&loss)?.backward()?;
///     scaler.unscale_(&sgd)?;
///     clip_grad_norm_(sgd.parameters(), 1.0, 2.0)?;
///     scaler.step(&mut sgd)?;
///     scaler.update()?;
/// }
/// // The first step overflowed and was left out; four steps of 0.05 were taken.
/// assert!((w.to_vec::<f32>()?[0] - 0.8).abs() < 1e-3);
/// # Ok::<(), genesis::Error>(())
/// ```
#[derive(Debug)]
pub struct GradScaler {
    options: GradScalerOptions,
    /// f32, of one element.
    scale: Tensor,
    /// i64, of one element: steps without an overflow since the scale changed.
    tracker: Tensor,
    /// What happened to each optimizer since the last update, by where its parameters are listed.
    optimizers: BTreeMap<usize, Progress>,
}

/// What happened to an optimizer since the last update.
#[derive(Debug)]
struct Progress {
    /// i32, of one element: 1 where a gradient is infinite or NaN.
    found: Tensor,
    is_stepped: bool,
}

impl GradScaler {
    /// A scaler whose numbers are on a device: that of the model.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(options: GradScalerOptions, device: Device) -> Result<GradScaler> {
        let scale = Tensor::full(&[1], options.init_scale, (DType::F32, device))?;
        let tracker = Tensor::zeros(&[1], (DType::I64, device))?;
        Ok(GradScaler { options, scale, tracker, optimizers: BTreeMap::new() })
    }

    /// Whether it does anything.
    pub fn is_enabled(&self) -> bool {
        self.options.enabled
    }

    /// A loss, or several, times the scale.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn scale(&self, loss: &Tensor) -> Result<Tensor> {
        if !self.options.enabled {
            return Ok(loss.clone());
        }
        let scale = self.scale.detach().reshape(&[])?.to_device(loss.device())?;
        // A loss in f16 can't hold most scales.
        let wide = launch::accumulate_dtype(loss.dtype());
        loss.to_dtype(wide)?.mul(&scale.to_dtype(wide)?)
    }

    /// Divides the gradients of an optimizer's parameters by the scale, so that they can be clipped or
    /// looked at. [`step`](GradScaler::step) does it otherwise.
    ///
    /// # Errors
    /// If that was done since the last update, or a gradient is in f16, which holds no small numbers.
    pub fn unscale_(&mut self, optimizer: &dyn Optimizer) -> Result<()> {
        const NAME: &str = "unscale_";
        if !self.options.enabled {
            return Ok(());
        }
        match self.optimizers.get(&key(optimizer)) {
            Some(Progress { is_stepped: true, .. }) => {
                return Err(Error::op(NAME, "comes before step, not after"));
            }
            Some(_) => return Err(Error::op(NAME, "was called since the last update already")),
            None => {}
        }
        let is_f16 = |grad: Tensor| grad.dtype() == DType::F16;
        if optimizer.parameters().iter().filter_map(Tensor::grad).any(is_f16) {
            let message = "a gradient is in f16; keep weights in f32 and use autocast";
            return Err(Error::op(NAME, message));
        }
        let found = Tensor::zeros(&[1], (DType::I32, self.scale.device()))?;
        let inverse = no_grad(|| {
            let exact = self.scale.to_dtype(DType::F64)?;
            exact.rdiv_scalar(1.0)?.to_dtype(DType::F32)
        })?;
        unscale(optimizer.parameters(), &inverse, &found)?;
        self.optimizers.insert(key(optimizer), Progress { found, is_stepped: false });
        Ok(())
    }

    /// Steps an optimizer, unless a gradient is infinite or NaN.
    ///
    /// # Errors
    /// If that was done since the last update, or as [`GradScaler::unscale_`] and
    /// [`Optimizer::step`].
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<()> {
        if !self.options.enabled {
            return optimizer.step();
        }
        if !self.optimizers.contains_key(&key(optimizer)) {
            self.unscale_(optimizer)?;
        }
        let Some(progress) = self.optimizers.get_mut(&key(optimizer)) else {
            return Err(Error::op("step", "the optimizer's parameters changed meanwhile"));
        };
        if progress.is_stepped {
            return Err(Error::op("step", "was called since the last update already"));
        }
        progress.is_stepped = true;
        optimizer.step_unless(&progress.found)
    }

    /// Chooses the scale of the next step.
    ///
    /// # Errors
    /// If no optimizer was stepped or unscaled since the last update.
    pub fn update(&mut self) -> Result<()> {
        if !self.options.enabled {
            return Ok(());
        }
        let mut all = std::mem::take(&mut self.optimizers).into_values();
        let Some(first) = all.next() else {
            return Err(Error::op(
                "update",
                "nothing was unscaled or stepped since the last update",
            ));
        };
        no_grad(|| {
            let found = all.try_fold(first.found, |sum, progress| sum.add(&progress.found))?;
            let args = [
                pointer(&self.scale, true),
                pointer(&self.tracker, true),
                pointer(&found, false),
                number(DType::F32, self.options.growth_factor),
                number(DType::F32, self.options.backoff_factor),
                number(DType::I64, self.options.growth_interval as f64),
            ];
            let kernel = &kernels::update::next_scale::KERNEL;
            launch::warped(kernel, &self.scale, Grid::x(1), &[], &[], Some(1), &args)
        })
    }

    /// The scale. Waits for the device.
    ///
    /// # Errors
    /// If the device fails.
    pub fn get_scale(&self) -> Result<f64> {
        if self.options.enabled { self.scale.item() } else { Ok(1.0) }
    }

    /// Whether the last step of an optimizer since the last update was left out. Waits for the device.
    ///
    /// # Errors
    /// If the device fails.
    pub fn found_inf(&self, optimizer: &dyn Optimizer) -> Result<bool> {
        let progress = self.optimizers.get(&key(optimizer));
        Ok(progress.map_or(Ok(0.0), |progress| progress.found.item())? != 0.0)
    }

    /// Everything needed to go on. Waits for the device.
    ///
    /// # Errors
    /// If the device fails.
    pub fn state_dict(&self) -> Result<State> {
        let mut state = State::default();
        let numbers = [
            ("scale", self.scale.item()?),
            ("growth_factor", self.options.growth_factor),
            ("backoff_factor", self.options.backoff_factor),
            ("growth_interval", self.options.growth_interval as f64),
            ("growth_tracker", self.tracker.item()?),
        ];
        state.numbers.extend(numbers.map(|(name, value)| (name.to_owned(), value)));
        Ok(state)
    }

    /// Goes on from a saved state.
    ///
    /// # Errors
    /// If a number is missing.
    pub fn load_state_dict(&mut self, state: &State) -> Result<()> {
        let (scale, tracker) = (state.number("scale")?, state.number("growth_tracker")?);
        self.options.growth_factor = state.number("growth_factor")?;
        self.options.backoff_factor = state.number("backoff_factor")?;
        self.options.growth_interval = state.number("growth_interval")? as u64;
        self.scale.fill_(scale)?;
        self.tracker.fill_(tracker)
    }
}

/// What an optimizer is known by: the list of its parameters stays where it is while it moves.
fn key(optimizer: &dyn Optimizer) -> usize {
    optimizer.parameters().as_ptr() as usize
}
