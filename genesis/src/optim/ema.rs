//! Exponential moving averages of weights (EMA).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;
use kernels::many as device;

use super::{Parameters, State};
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::launch::many::{Cut, Many, Operand, Tables};
use crate::launch::{accumulate_dtype, number};
use crate::tensor::Tensor;

/// An exponential moving average of weights, which often does better than the last weights.
///
/// It begins with the weights as they are; each [`update`](Ema::update) is
/// `average = decay * average + (1 - decay) * weight`, in f32 where the weights are narrower.
///
/// # Cost
/// An update is one launch a dtype for all parameters.
/// # Source
/// Same conventions as `torch.optim.swa_utils.AveragedModel` with `get_ema_multi_avg_fn(decay)`.
/// # Examples
/// ```
/// use genesis::Tensor;
/// use genesis::optim::Ema;
///
/// let w = Tensor::from_slice(&[1.0f32], &[1])?;
/// let mut ema = Ema::new(vec![w.clone()], 0.9)?;
/// w.fill_(2.0)?;
/// ema.update()?;
/// assert!((ema.averages()["0"].item()? - 1.1).abs() < 1e-6);
/// ema.with_averages(|| assert!((w.item().unwrap_or(0.0) - 1.1).abs() < 1e-6))?;
/// assert_eq!(w.item()?, 2.0);
/// # Ok::<(), genesis::Error>(())
/// ```
#[derive(Debug)]
pub struct Ema {
    names: Vec<String>,
    parameters: Vec<Tensor>,
    averages: Vec<Tensor>,
    decay: f64,
    tables: Mutex<Tables>,
}

impl Ema {
    /// Averages that begin with the parameters' values.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(parameters: impl Into<Parameters>, decay: f64) -> Result<Ema> {
        let (names, parameters) = parameters.into().named();
        let copy = |parameter: &Tensor| -> Result<Tensor> {
            parameter.detach().copy()?.to_dtype(accumulate_dtype(parameter.dtype()))
        };
        let averages = no_grad(|| parameters.iter().map(copy).collect::<Result<_>>())?;
        Ok(Ema { names, parameters, averages, decay, tables: Mutex::new(Tables::new()) })
    }

    /// Moves the averages towards the parameters' values; call it after each step.
    ///
    /// # Errors
    /// If a launch fails.
    pub fn update(&mut self) -> Result<()> {
        let mut groups: Vec<((DType, Device), Vec<usize>)> = Vec::new();
        for (index, parameter) in self.parameters.iter().enumerate() {
            let key = (parameter.dtype(), parameter.device());
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, group)) => group.push(index),
                None => groups.push((key, vec![index])),
            }
        }
        no_grad(|| {
            groups.iter().try_for_each(|((dtype, on), group)| self.move_(*dtype, *on, group))
        })
    }

    fn move_(&self, dtype: DType, on: Device, group: &[usize]) -> Result<()> {
        let wide = accumulate_dtype(dtype);
        let averages: Vec<Tensor> = group.iter().map(|&i| self.averages[i].clone()).collect();
        let weights = group.iter().map(|&i| self.parameters[i].detach().contiguous());
        let weights: Vec<Tensor> = weights.collect::<Result<_>>()?;
        let rest = |_: usize| Ok(vec![number(wide, 1.0 - self.decay)]);
        let operands = [Operand::Write(&averages), Operand::Read(&weights)];
        let many = Many {
            kernel: &device::average_many::KERNEL,
            dtypes: &[dtype, wide],
            consts: &[],
            cut: Cut::new(on, wide.bytes()),
            operands: &operands,
            numbers: &[],
            rest: &rest,
        };
        many.run(&mut self.tables.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The averages by the names of the parameters; what a checkpoint for use has.
    pub fn averages(&self) -> BTreeMap<String, Tensor> {
        self.names.iter().cloned().zip(self.averages.iter().cloned()).collect()
    }

    /// Runs `f` while the parameters have the averages as their values, and puts their own back, also
    /// if `f` panics.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn with_averages<T>(&self, f: impl FnOnce() -> T) -> Result<T> {
        struct Restore<'e>(&'e Ema, Vec<Tensor>);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                let put = |(parameter, own): (&Tensor, &Tensor)| parameter.copy_(own);
                // The same copies went the other way before; a device that is lost since has nothing
                // to be restored on.
                let _ = no_grad(|| self.0.parameters.iter().zip(&self.1).try_for_each(put));
            }
        }
        no_grad(|| {
            let own = self.parameters.iter().map(|parameter| parameter.detach().copy());
            let restore = Restore(self, own.collect::<Result<_>>()?);
            let put = |(parameter, average): (&Tensor, &Tensor)| parameter.copy_(average);
            self.parameters.iter().zip(&self.averages).try_for_each(put)?;
            Ok(restore)
        })
        .map(|_restore| f())
    }

    /// Everything needed to go on: the averages by name, and the decay.
    pub fn state_dict(&self) -> State {
        let numbers = BTreeMap::from([("decay".to_owned(), self.decay)]);
        State { tensors: self.averages(), numbers }
    }

    /// Goes on from a saved state.
    ///
    /// # Errors
    /// If an average is missing or has another shape.
    pub fn load_state_dict(&mut self, state: &State) -> Result<()> {
        self.decay = state.number("decay")?;
        for (name, average) in self.names.iter().zip(&self.averages) {
            let missing = || Error::op("load_state_dict", format!("missing {name}"));
            let saved = state.tensors.get(name).ok_or_else(missing)?;
            if saved.shape() != average.shape() {
                let (is, needs) = (saved.shape(), average.shape());
                let message = format!("{name} has shape {is:?}, the parameter needs {needs:?}");
                return Err(Error::op("load_state_dict", message));
            }
            average.copy_(saved)?;
        }
        Ok(())
    }
}
