//! What distinguishes one optimizer from another: a [`Rule`], and the [`Batch`] of parameters that it
//! steps.

use std::fmt::Debug;

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::KernelDef;
use genesis_kernel::runtime::Arg;

use crate::dispatch::capture;
use crate::error::{Error, Result};
use crate::launch::many::{Cut, Many, Operand, Tables, absent};
use crate::launch::{accumulate_dtype, number, pointer};
use crate::tensor::Tensor;

/// An optimizer's options, which know how to step parameters.
///
/// [`Optim`](super::Optim) does the rest: groups, gradients, state by name. An optimizer of your own is
/// a struct of options with this trait.
pub trait Rule: Clone + Debug + Send {
    /// The state of a parameter before its first step, by name; in f32 where the parameter is narrower.
    ///
    /// # Errors
    /// If memory runs out.
    fn states(&self, parameter: &Tensor) -> Result<Vec<(&'static str, Tensor)>>;

    /// Steps parameters of one dtype and device, which have made equally many steps.
    ///
    /// # Errors
    /// If an option can't be used, a parameter does not fit, or a launch fails.
    fn step(&self, batch: &mut Batch<'_>) -> Result<()>;

    /// Every option by name, to be read, saved and restored. The learning rate is the number `lr`.
    fn options(&mut self) -> Vec<(&'static str, Setting<'_>)>;

    /// Whether parameters of 16 bits have a copy in f32, which is what is stepped.
    fn has_master(&self) -> bool {
        true
    }
}

/// An option of a [`Rule`].
pub enum Setting<'o> {
    /// A number.
    Number(&'o mut f64),
    /// Yes or no; saved as 1 or 0.
    Flag(&'o mut bool),
}

impl Setting<'_> {
    /// Its value as a number.
    pub fn get(&self) -> f64 {
        match self {
            Setting::Number(number) => **number,
            Setting::Flag(flag) => f64::from(u8::from(**flag)),
        }
    }

    /// Changes it.
    pub fn set(&mut self, value: f64) {
        match self {
            Setting::Number(number) => **number = value,
            Setting::Flag(flag) => **flag = value != 0.0,
        }
    }
}

impl<'o> From<&'o mut f64> for Setting<'o> {
    fn from(number: &'o mut f64) -> Setting<'o> {
        Setting::Number(number)
    }
}

impl<'o> From<&'o mut bool> for Setting<'o> {
    fn from(flag: &'o mut bool) -> Setting<'o> {
        Setting::Flag(flag)
    }
}

/// One parameter in a [`Batch`].
pub struct Member {
    /// Its place among the optimizer's parameters.
    pub(super) number: usize,
    /// The parameter, dense.
    pub(super) weight: Tensor,
    /// The parameter in f32, where it is of 16 bits.
    pub(super) master: Option<Tensor>,
    /// Its gradient, of its dtype and dense.
    pub(super) gradient: Tensor,
    /// Its state, in the order of [`Rule::states`].
    pub(super) states: Vec<Tensor>,
}

impl Member {
    /// The weights as they are stepped: in f32 where they are narrower.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn weight(&self) -> Result<Tensor> {
        match &self.master {
            Some(master) => Ok(master.clone()),
            None => self.weight.detach().to_dtype(accumulate_dtype(self.weight.dtype())),
        }
    }

    /// The gradient, in the dtype of [`Member::weight`].
    ///
    /// # Errors
    /// If memory runs out.
    pub fn gradient(&self) -> Result<Tensor> {
        self.gradient.to_dtype(accumulate_dtype(self.gradient.dtype()))
    }

    /// State number `index`, in the order of [`Rule::states`].
    pub fn state(&self, index: usize) -> &Tensor {
        &self.states[index]
    }
}

/// Whether a step counts, known to the device only.
pub(super) struct Skip {
    /// i32, 1 where the step is to be left out.
    pub(super) found: Tensor,
    /// i64: how many of the steps so far were.
    pub(super) skipped: Tensor,
}

/// Parameters of one dtype and device that a [`Rule`] steps together.
pub struct Batch<'t> {
    pub(super) members: Vec<Member>,
    pub(super) step: u64,
    pub(super) skip: Option<Skip>,
    pub(super) tables: &'t mut Tables,
    /// The number of the optimizer.
    pub(super) owner: u64,
}

impl Batch<'_> {
    /// The parameters.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The number of this step, from 1. Where a gradient scaler decides on the device which steps count,
    /// [`Batch::step_tensor`] knows better.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The number of this step among those that counted, from 1: a scalar in f64.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn step_tensor(&self) -> Result<Tensor> {
        let at = (DType::F64, self.members[0].weight.device());
        let step = Tensor::full(&[], self.step as f64, at)?;
        match &self.skip {
            Some(skip) => step.sub(&skip.skipped.to_dtype(DType::F64)?.reshape(&[])?),
            None => Ok(step),
        }
    }

    /// Writes state number `index` of a member, unless the step is left out.
    ///
    /// # Errors
    /// If the shape differs, or memory runs out.
    pub fn set_state(&self, member: &Member, index: usize, value: &Tensor) -> Result<()> {
        self.write(&member.states[index], value)
    }

    /// Writes the weights of a member, unless the step is left out.
    ///
    /// # Errors
    /// If the shape differs, or memory runs out.
    pub fn set_weight(&self, member: &Member, value: &Tensor) -> Result<()> {
        if let Some(master) = &member.master {
            self.write(master, value)?;
        }
        self.write(&member.weight, value)
    }

    fn write(&self, target: &Tensor, value: &Tensor) -> Result<()> {
        capture::check("an optimizer whose numbers are not read from memory steps")?;
        match &self.skip {
            None => target.copy_(value),
            Some(skip) => {
                let is_skipped = skip.found.reshape(&[])?.ne_scalar(0.0)?;
                let old = target.detach();
                target.copy_(&is_skipped.where_(&old, &value.to_dtype(old.dtype())?)?)
            }
        }
    }

    /// The dtype of the parameters, and that of their state.
    pub(super) fn dtypes(&self) -> [DType; 2] {
        let dtype = self.members[0].weight.dtype();
        [dtype, accumulate_dtype(dtype)]
    }

    /// Refuses where an option wants state that the parameters did not begin with.
    pub(super) fn needs_states(&self, n: usize) -> Result<()> {
        self.needs(|member| member.states.len() == n)
    }

    /// Refuses where an option wants state of another dtype than the parameters began with.
    pub(super) fn needs_state_dtype(&self, dtype: DType) -> Result<()> {
        self.needs(|member| member.states.iter().all(|state| state.dtype() == dtype))
    }

    fn needs(&self, is_there: impl Fn(&Member) -> bool) -> Result<()> {
        if self.members.iter().all(is_there) {
            return Ok(());
        }
        let message = "options that need more or less state can't change after the first step";
        Err(Error::op("step", message))
    }

    /// One launch of a kernel of `kernels::update` for all members.
    pub(super) fn fused(&mut self, fused: &Fused<'_>) -> Result<()> {
        let [weight, wide] = self.dtypes();
        let dtypes: Vec<DType> = [weight, wide].into_iter().chain(fused.state_dtype).collect();
        let column = |of: &dyn Fn(&Member) -> Tensor| self.members.iter().map(of).collect();
        let weights: Vec<Tensor> = column(&|member| member.weight.clone());
        let gradients: Vec<Tensor> = column(&|member| member.gradient.clone());
        let masters: Option<Vec<Tensor>> = self.members.iter().map(|m| m.master.clone()).collect();
        let states: Vec<Option<Vec<Tensor>>> = fused
            .states
            .iter()
            .map(|&slot| slot.map(|slot| column(&|member| member.states[slot].clone())))
            .collect();
        let mut operands = vec![Operand::Write(&weights)];
        if fused.reads_gradient {
            operands.push(Operand::Read(&gradients));
        }
        operands.push(masters.as_deref().map_or(Operand::Absent(wide), Operand::Write));
        let of_states = fused.state_dtype.unwrap_or(wide);
        for tensors in &states {
            operands.push(tensors.as_deref().map_or(Operand::Absent(of_states), Operand::Write));
        }
        let head = self.head(&weights[0]);
        let numbers: Vec<Arg> = fused.numbers.iter().map(|&value| number(wide, value)).collect();
        let exact = fused.exact.iter().map(|&value| number(DType::F64, value));
        let head: Vec<Arg> = head.into_iter().chain(exact).chain(numbers).collect();
        let Some(head) = capture::numbers(self.owner, head)? else { return Ok(()) };
        let rest = |first: usize| Ok([head.clone(), (fused.rest)(first)?].concat());
        let flags = [i64::from(masters.is_some()), i64::from(self.skip.is_some())];
        let consts = [&flags, fused.consts].concat();
        let cut = self.cut();
        let (kernel, dtypes, consts, operands) = (fused.kernel, &dtypes, &consts, &operands[..]);
        let numbered = self.members.iter().filter(|_| fused.is_numbered);
        let numbers: Vec<i64> = numbered.map(|member| member.number as i64).collect();
        let numbers = &numbers[..];
        let many = Many { kernel, dtypes, consts, cut, operands, numbers, rest: &rest };
        many.run(self.tables)
    }

    /// How the members are cut into the shares of programs.
    pub(super) fn cut(&self) -> Cut {
        Cut::new(self.members[0].weight.device(), self.dtypes()[1].bytes())
    }

    /// Elements that a program steps at a time.
    pub(super) fn block(&self) -> usize {
        self.cut().block()
    }

    /// The weights, for their sizes.
    pub(super) fn weights(&self) -> Vec<Tensor> {
        self.members.iter().map(|member| member.weight.clone()).collect()
    }

    /// The arguments that every kernel of `kernels::update` has after the tables.
    fn head(&self, near: &Tensor) -> Vec<Arg> {
        let step = Arg::Scalar(Scalar::int(DType::I64, self.step as i64));
        let [skip, skipped] = match &self.skip {
            Some(skip) => [pointer(&skip.found, false), pointer(&skip.skipped, false)],
            None => [absent(near, DType::I32), absent(near, DType::I64)],
        };
        vec![skip, skipped, step]
    }
}

/// What differs between the launches of rules.
pub(super) struct Fused<'t> {
    pub(super) kernel: &'static KernelDef,
    /// The constants after `MASTER` and `SKIPS`.
    pub(super) consts: &'t [i64],
    pub(super) reads_gradient: bool,
    /// The dtype of the states, where the kernel has one of its own for them; else they are of the wide one.
    pub(super) state_dtype: Option<DType>,
    /// Whether the kernel reads the number of each parameter.
    pub(super) is_numbered: bool,
    /// Which state each of the kernel's operands is, or none.
    pub(super) states: &'t [Option<usize>],
    /// Numbers in f64, then those in the dtype of the state.
    pub(super) exact: &'t [f64],
    pub(super) numbers: &'t [f64],
    /// What comes after the numbers; the first program's number is given.
    pub(super) rest: &'t dyn Fn(usize) -> Result<Vec<Arg>>,
}

/// Nothing comes after the numbers.
pub(super) fn no_more(_: usize) -> Result<Vec<Arg>> {
    Ok(Vec::new())
}

/// Zeros for a parameter's state: in f32 where the parameter is narrower.
pub(super) fn state_like(parameter: &Tensor) -> Result<Tensor> {
    let wide = accumulate_dtype(parameter.dtype());
    Tensor::zeros(parameter.shape(), (wide, parameter.device()))
}

/// What the gradient is multiplied by.
pub(super) fn sign(maximize: bool) -> f64 {
    if maximize { -1.0 } else { 1.0 }
}

/// A choice as an argument.
pub(super) fn flag(on: bool) -> Arg {
    Arg::Scalar(Scalar::int(DType::I64, i64::from(on)))
}
