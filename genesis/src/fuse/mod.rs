//! Fusion: a closure over tensors as one kernel, compiled the first time and kept.
//!
//! The closure runs once for each set of shapes, dtypes and strides, on tensors that stand for others;
//! the launches it would make are composed into as few kernels as they can be: one, for a chain of
//! elementwise ops with broadcasting, casts, comparisons and choices, and perhaps a sum, mean or extreme
//! over the last axes at the end. The gradient is fused likewise: the closure is differentiated by its
//! tape, on tensors that stand for others, and what that computes is composed.
//!
//! | file | what |
//! |---|---|
//! | `plan` | what is stored, and which launches store it |
//! | `inline` | one kernel: values, and how each lies along the axes |
//! | `several` | functions of several results, which are on no tape |
//!
//! The launches of a closure are noted by `dispatch::trace`. The kernels themselves are made by [`genesis_kernel::compose`].

mod inline;
mod plan;
mod several;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use crate::autograd::{
    BackwardOptions, GradOptions, SavedTensors, enable_grad, grad, is_grad_enabled, no_grad,
};
use crate::dispatch::autocast::Regions;
use crate::dispatch::trace;
use crate::error::{Error, Result};
use crate::ops::{Op, Saves, apply};
use crate::tensor::Tensor;
use inline::Numbers;
use plan::Program;
pub(crate) use several::{Results, Several};

pub use genesis_kernel::inspect::Emit;
use genesis_kernel::inspect::{InspectRequest, inspect};
pub use genesis_kernel::target::Target;

/// The most arguments: what a gradient reads is named by the bits of a word.
const MAX_ARGUMENTS: usize = 31;
/// Plans that are kept for one function, so that ever new shapes do not fill the memory.
const MAX_PLANS: usize = 256;

/// Makes a function whose elementwise ops run as one kernel.
///
/// `f` takes the arguments of [`Fused::call`] and gives one tensor. It runs once for each set of
/// shapes, strides and dtypes, not at every call: numbers it holds are part of the kernel from then on,
/// and what changes from call to call has to be an argument. A tensor that it holds is read at each
/// call, and may not require a gradient.
///
/// Between the ops, 16-bit floats are kept in f32 and rounded where `f` converts them and at the end;
/// f32 and f64 have the bits that the ops have one by one, but for sums, which are added in another
/// order.
///
/// # Examples
/// ```
/// use genesis::{Tensor, fuse};
///
/// let gate = fuse(|args| {
///     let [x, scale, shift] = args else { unreachable!("three arguments are given below") };
///     x.mul(scale)?.add(shift)?.tanh()?.mul(x)
/// });
/// let x = Tensor::from_slice(&[0.5f32, -1.0, 2.0, 0.0], &[2, 2])?.requires_grad_(true)?;
/// let scale = Tensor::from_slice(&[1.0f32, 2.0], &[2])?;
/// let shift = Tensor::from_slice(&[0.25f32], &[1])?;
/// let y = gate.call(&[&x, &scale, &shift])?;
/// let same = x.mul(&scale)?.add(&shift)?.tanh()?.mul(&x)?;
/// assert_eq!(y.to_vec::<f32>()?, same.to_vec::<f32>()?);
/// y.sum()?.backward()?;
/// assert_eq!(x.grad().expect("x requires a gradient").shape(), [2, 2]);
/// # Ok::<(), genesis::Error>(())
/// ```
pub fn fuse<F>(f: F) -> Fused
where
    F: Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
{
    Fused::new("fused", Numbers::Fixed, Box::new(f))
}

/// Makes an op of this name of a function that gives the ops it is made of, as [`fuse()`] does; its kernels take
/// the numbers at each launch, so that another number is no other kernel.
pub(crate) fn composite<F>(name: &'static str, f: F) -> Fused
where
    F: Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
{
    Fused::new(name, Numbers::Given, Box::new(f))
}

/// A function made by [`fuse()`]. A clone is the same function.
#[derive(Clone)]
pub struct Fused(Arc<Inner>);

type Closure = dyn Fn(&[Tensor]) -> Result<Tensor> + Send + Sync;

struct Inner {
    /// The op that it is on the tape.
    name: &'static str,
    numbers: Numbers,
    f: Box<Closure>,
    plans: Mutex<Vec<Arc<Plan>>>,
}

/// How an argument lies in memory, and what it is.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Signature {
    shape: Vec<usize>,
    strides: Vec<i64>,
    dtype: DType,
}

/// What was planned for arguments of given signatures.
struct Plan {
    device: Device,
    numbers: Numbers,
    /// What autocast does to the closure's ops.
    regions: Regions,
    signatures: Vec<Signature>,
    forward: Program,
    /// By which gradients are wanted, and how `dy` lies in memory.
    backwards: Mutex<Vec<Backward>>,
}

struct Backward {
    wanted: Vec<bool>,
    dy: Signature,
    /// Which gradients there are, and what computes them; none where they are not fused.
    program: Option<(Vec<bool>, Arc<Program>)>,
}

impl Signature {
    fn of(t: &Tensor) -> Signature {
        let (shape, strides) = (t.shape().to_vec(), t.strides().to_vec());
        Signature { shape, strides, dtype: t.dtype() }
    }

    fn is_of(&self, t: &Tensor) -> bool {
        self.shape == t.shape() && self.strides == t.strides() && self.dtype == t.dtype()
    }
}

impl Fused {
    fn new(name: &'static str, numbers: Numbers, f: Box<Closure>) -> Fused {
        Fused(Arc::new(Inner { name, numbers, f, plans: Mutex::new(Vec::new()) }))
    }

    /// Runs the function.
    ///
    /// # Errors
    /// If the closure refuses, or uses an op that can't be fused: the error names it.
    #[track_caller]
    pub fn call(&self, args: &[&Tensor]) -> Result<Tensor> {
        if trace::is_on() {
            // In the closure of another function it is a part of that one.
            let own: Vec<Tensor> = args.iter().map(|&t| t.clone()).collect();
            return (self.0.f)(&own);
        }
        let turned: Vec<Tensor>;
        let mut args = args;
        let refs: Vec<&Tensor>;
        if args.iter().any(|t| t.strides().iter().any(|&stride| stride < 0)) {
            turned = args.iter().map(|t| forwards(t)).collect::<Result<_>>()?;
            refs = turned.iter().collect();
            args = &refs;
        }
        let plan = self.plan(args)?;
        apply(Call { inner: self.0.clone(), plan, n: args.len() }, args)
    }

    /// What the kernels of a call on these arguments compile to, forward only: one text for each.
    ///
    /// # Errors
    /// As [`Fused::call`], or if a kernel can't be shown so.
    ///
    /// # Examples
    /// ```
    /// use genesis::fuse::{Emit, fuse};
    /// use genesis::Tensor;
    ///
    /// let f = fuse(|args| args[0].exp()?.mul_scalar(2.0)?.sqrt());
    /// let x = Tensor::ones(&[64], ())?;
    /// let ptx = f.inspect(&[&x], Emit::Ptx)?;
    /// assert_eq!(ptx.len(), 1);
    /// assert!(ptx[0].contains(".entry fused_exp_mul_sqrt"));
    /// # Ok::<(), genesis::Error>(())
    /// ```
    pub fn inspect(&self, args: &[&Tensor], emit: Emit) -> Result<Vec<String>> {
        let plan = self.plan(args)?;
        let target = match plan.device {
            _ if emit == Emit::Asm => Target::host(),
            Device::Cuda(_) => plan.device.target().map_or_else(Target::sm_90a, Target::Gpu),
            Device::Cpu => Target::sm_90a(),
        };
        self.inspect_for(args, emit, &target)
    }

    /// What [`Fused::inspect`] gives, for a machine that need not be here.
    ///
    /// # Errors
    /// As [`Fused::inspect`].
    ///
    /// # Examples
    /// ```
    /// use genesis::fuse::{Emit, Target, fuse};
    /// use genesis::Tensor;
    ///
    /// let f = fuse(|args| args[0].exp()?.mul(&args[1]));
    /// let x = Tensor::ones(&[64], ())?;
    /// let ptx = f.inspect_for(&[&x, &x], Emit::Ptx, &Target::sm_80())?;
    /// assert!(ptx[0].contains(".target sm_80"));
    /// # Ok::<(), genesis::Error>(())
    /// ```
    pub fn inspect_for(
        &self,
        args: &[&Tensor],
        emit: Emit,
        target: &Target,
    ) -> Result<Vec<String>> {
        let plan = self.plan(args)?;
        let device = match (target, plan.device) {
            (Target::Gpu(_), Device::Cpu) => Device::Cuda(0),
            (Target::Gpu(_), gpu) => gpu,
            _ => Device::Cpu,
        };
        let show = |kernel: &plan::Kernel| {
            let mut request = InspectRequest::new(kernel.def, target.clone(), emit);
            for (name, value) in kernel.def.ast.consts.iter().zip(kernel.walk.size(device).consts) {
                request = request.set(name, value);
            }
            Ok(inspect(kernel.def, &request)?.text)
        };
        plan.forward.kernels().map(show).collect()
    }

    fn plan(&self, args: &[&Tensor]) -> Result<Arc<Plan>> {
        let mut plans = self.0.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let regions = Regions::now();
        let fits = |plan: &&Arc<Plan>| {
            plan.signatures.len() == args.len()
                && plan.regions.casts_as(regions)
                && plan.signatures.iter().zip(args).all(|(own, t)| own.is_of(t))
                && args.iter().all(|t| t.device() == plan.device)
        };
        if let Some(plan) = plans.iter().find(fits) {
            return Ok(plan.clone());
        }
        let plan = Arc::new(Plan::new(&self.0.f, args, self.0.numbers)?);
        if plans.len() >= MAX_PLANS {
            plans.remove(0);
        }
        plans.push(plan.clone());
        Ok(plan)
    }
}

impl fmt::Debug for Fused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fused").finish_non_exhaustive()
    }
}

/// A tensor all of whose steps go forwards in memory.
#[track_caller]
fn forwards(t: &Tensor) -> Result<Tensor> {
    if t.strides().iter().any(|&stride| stride < 0) { t.copy() } else { Ok(t.clone()) }
}

impl Plan {
    fn new(f: &Closure, args: &[&Tensor], numbers: Numbers) -> Result<Plan> {
        let Some(first) = args.first() else {
            return Err(Error::op("fuse", "a fused function takes at least one argument"));
        };
        if args.len() > MAX_ARGUMENTS {
            let message = format!("{} arguments, at most {MAX_ARGUMENTS} are taken", args.len());
            return Err(Error::op("fuse", message));
        }
        let device = first.device();
        if let Some(other) = args.iter().find(|t| t.device() != device) {
            let message = format!("the arguments are on {device} and {}", other.device());
            return Err(Error::op("fuse", message));
        }
        let (trace, result) = no_grad(|| {
            trace::run(|| {
                let leaves = args.iter().map(|t| trace::leaf(t)).collect::<Result<Vec<_>>>()?;
                trace::result(&f(&leaves)?)
            })
        })?;
        let forward = Program::new(trace, args.len(), &[result], (device, numbers))?;
        let signatures = args.iter().map(|t| Signature::of(t)).collect();
        let backwards = Mutex::new(Vec::new());
        let regions = Regions::now();
        Ok(Plan { device, numbers, regions, signatures, forward, backwards })
    }

    /// The program of the gradients, over the arguments and `dy`.
    fn backward(&self, f: &Closure, args: &[&Tensor], wanted: &[bool]) -> Result<Kept> {
        let (dy, args) = args.split_last().expect("dy is always there");
        let mut kept = self.backwards.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |own: &&Backward| own.wanted == *wanted && own.dy.is_of(dy);
        if let Some(known) = kept.iter().find(fits) {
            return Ok(known.program.clone());
        }
        let made = self.regions.run(|| trace::run(|| differentiate(f, args, dy, wanted)));
        let made = made.and_then(|(trace, (are, results))| {
            let on = (self.device, self.numbers);
            let program = Program::new(trace, args.len() + 1, &results, on)?;
            Ok((are, Arc::new(program)))
        });
        let program = match made {
            Ok(program) => Some(program),
            // What the function computes is fused, its gradient is not: that of a slice writes to a part.
            Err(error) if error.op_name() == Some("fuse") => None,
            Err(error) => return Err(error),
        };
        if kept.len() >= MAX_PLANS {
            kept.remove(0);
        }
        let (wanted, dy) = (wanted.to_vec(), Signature::of(dy));
        kept.push(Backward { wanted, dy, program: program.clone() });
        Ok(program)
    }
}

type Kept = Option<(Vec<bool>, Arc<Program>)>;

/// The gradients of a closure while a trace is on: which there are, and what they are.
fn differentiate(
    f: &Closure,
    args: &[&Tensor],
    dy: &Tensor,
    wanted: &[bool],
) -> Result<(Vec<bool>, Vec<trace::Use>)> {
    let leaf = |(t, &wanted): (&&Tensor, &bool)| trace::leaf(t)?.requires_grad_(wanted);
    let leaves = args.iter().zip(wanted).map(leaf).collect::<Result<Vec<_>>>()?;
    let dy = trace::leaf(dy)?;
    let y = enable_grad(|| f(&leaves))?;
    let mut are = vec![false; args.len()];
    let mut results = Vec::new();
    if !y.requires_grad() {
        return Ok((are, results));
    }
    let asked: Vec<&Tensor> = leaves.iter().filter(|leaf| leaf.requires_grad()).collect();
    let options =
        GradOptions { grad_outputs: &[Some(&dy)], allow_unused: true, ..GradOptions::default() };
    let mut found = grad(&[&y], &asked, options)?.into_iter();
    for (is, leaf) in are.iter_mut().zip(&leaves) {
        if leaf.requires_grad()
            && let Some(grad) = found.next().flatten()
        {
            *is = true;
            results.push(trace::result(&grad.to_dtype(leaf.dtype())?)?);
        }
    }
    Ok((are, results))
}

/// One call, on the tape.
struct Call {
    inner: Arc<Inner>,
    plan: Arc<Plan>,
    n: usize,
}

impl Op for Call {
    fn name(&self) -> &'static str {
        self.inner.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Ok(self.plan.forward.run(inputs)?.remove(0))
    }

    fn saves(&self) -> Saves {
        Saves::inputs(u32::MAX >> (32 - self.n))
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let args: Vec<&Tensor> = (0..self.n).map(|i| saved.input(i)).collect();
        if is_grad_enabled() {
            return self.one_by_one(&args, &saved.wanted, dy, true);
        }
        let dy = forwards(dy)?;
        let all: Vec<&Tensor> = args.iter().copied().chain([&dy]).collect();
        let Some((are, program)) = self.plan.backward(&self.inner.f, &all, &saved.wanted)? else {
            return self.one_by_one(&args, &saved.wanted, &dy, false);
        };
        let mut grads = program.run(&all)?.into_iter();
        Ok(are.iter().map(|&is| if is { grads.next() } else { None }).collect())
    }
}

impl Call {
    /// Gradients of the ops one by one, which may be differentiated again.
    fn one_by_one(
        &self,
        args: &[&Tensor],
        wanted: &[bool],
        dy: &Tensor,
        create_graph: bool,
    ) -> Result<Vec<Option<Tensor>>> {
        let leaf = |(&t, &wanted): (&&Tensor, &bool)| match create_graph {
            true => Ok(t.clone()),
            false => t.detach().requires_grad_(wanted),
        };
        let own = args.iter().zip(wanted).map(leaf).collect::<Result<Vec<_>>>()?;
        let y = enable_grad(|| (self.inner.f)(&own))?;
        if !y.requires_grad() {
            return Ok(vec![None; self.n]);
        }
        let asked = || own.iter().zip(wanted).filter(|&(_, &wanted)| wanted);
        let asked: Vec<&Tensor> = asked().map(|(t, _)| t).collect();
        let create = BackwardOptions { create_graph, ..BackwardOptions::default() };
        let options = GradOptions {
            grad_outputs: &[Some(dy)],
            allow_unused: true,
            ..GradOptions::from(create)
        };
        let mut found = grad(&[&y], &asked, options)?.into_iter();
        Ok(wanted.iter().map(|&is| if is { found.next().flatten() } else { None }).collect())
    }
}
