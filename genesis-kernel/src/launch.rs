//! The way from a call to a running kernel: find the code, check the arguments, run it.
//!
//! A training step launches thousands of kernels of a few microseconds, so that the way through here
//! has to be short: one comparison with the launch before it (else one hash over dtypes, constants and
//! what the arguments have in common, and a binary search), one pass of checks over the arguments, one
//! call of the driver.

mod ahead;
mod checked;
mod dense;
mod methods;
pub(crate) mod owned;
mod shared;

pub use self::ahead::{compile_ahead, launch_at_once};
use crate::compile::{self, Executable, warnings};
use crate::diag::{Error, has_source};
use crate::front::ast::Span;
use crate::inspect::watch;
use crate::ir::Loc;
use crate::kernel::{Entry, KernelDef, Launch, ParamKind, Request, args, shape_constraints};
use crate::knobs;
use crate::runtime::cuda::{MAX_SLOTS, Writes};
use crate::runtime::words::Words;
use crate::runtime::{Arg, Queue, fork};
use crate::trace;

/// Runs a kernel.
///
/// # Safety
/// As [`KernelDef::launch`].
pub(crate) unsafe fn launch(def: &KernelDef, launch: &Launch<'_>) -> Result<(), Error> {
    fork::check()?;
    if let Queue::Missing(_, error) = launch.stream.queue() {
        return Err(Error::clone(error));
    }
    if ahead::note(def, launch) {
        return Ok(());
    }
    let request = Request::new(launch);
    let entry = match def.cache.find(&request) {
        Some(entry) => entry,
        None => {
            let entry = compile_entry(def, launch, &request)?;
            tell_spills(def, entry);
            entry
        }
    };
    let name = def.ast.name;
    args::check(name, &entry.params, launch)?;
    shape_constraints::check(def.ast, &entry.shape_constraints, launch.args)?;
    let Some(grid) = args::check_grid(name, launch.grid)? else { return Ok(()) };
    watch::note(def, launch, grid, || request.hints());
    let code = std::ptr::from_ref(entry) as usize;
    let traced = trace::launching(def, code, launch, grid, || request.hints());
    // SAFETY: the arguments are as many and of the kinds that the kernel takes, as was just checked;
    // the caller answers for what pointers point to.
    let result = unsafe { run(def, entry, launch, grid) };
    if let Some(traced) = traced {
        traced.end(result.is_ok());
    }
    result
}

/// What the code of a launch takes of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Footprint {
    /// Registers of one thread; 0 on the CPU.
    pub(crate) registers: u32,
    /// Shared memory of one program, in bytes.
    pub(crate) shared_bytes: u32,
    /// Local memory of one thread, in bytes: spilled registers.
    pub(crate) spill_bytes: u32,
}

/// Compiles what a launch would run, and runs nothing.
pub(crate) fn prepare(def: &KernelDef, launch: &Launch<'_>) -> Result<Footprint, Error> {
    let request = Request::new(launch);
    let entry = match def.cache.find(&request) {
        Some(entry) => entry,
        None => compile_entry(def, launch, &request)?,
    };
    Ok(match &entry.code {
        Executable::Cuda(kernel) => Footprint {
            registers: kernel.registers,
            shared_bytes: kernel.shared_bytes,
            spill_bytes: kernel.local_bytes,
        },
        Executable::Cpu(_) | Executable::Checked(_) => Footprint::default(),
    })
}

/// Says of a kernel that nothing tunes whether its registers spill.
#[cold]
fn tell_spills(def: &KernelDef, entry: &Entry) {
    let Executable::Cuda(kernel) = &entry.code else { return };
    if let Some(warning) = warnings::of_spills(def.ast.name, kernel.local_bytes) {
        let Span { line, column, end_column } = def.ast.span;
        let is_here = has_source(Loc { file: def.ast.file, line, column, end_column });
        warnings::tell(&warning, is_here && def.tuning().is_none());
    }
}

#[cold]
fn compile_entry(
    def: &KernelDef,
    launch: &Launch<'_>,
    request: &Request<'_>,
) -> Result<&'static Entry, Error> {
    let params = args::param_kinds(def.ast, launch.dtypes)?;
    // A call that is wrong should hear that, not what the compiler thinks of its dtypes.
    args::check(def.ast.name, &params, launch)?;
    let shape_constraints = shape_constraints::shape_constraints(def.ast);
    shape_constraints::check(def.ast, &shape_constraints, launch.args)?;
    let slots: usize = params.iter().map(ParamKind::slots).sum();
    if slots > MAX_SLOTS {
        return Err(Error::launch(format!(
            "{}: the parameters take {slots} words, the most is {MAX_SLOTS} (a view takes 1 and 2 \
             for each axis)",
            def.ast.name
        )));
    }
    let hints = request.hints();
    let kernel = def.specialize(launch.dtypes, launch.consts, &hints)?;
    let code = compile::executable(&kernel, launch.stream)?;
    Ok(def.cache.insert(request, (params, shape_constraints), code))
}

/// # Safety
/// The arguments must be of the kinds that the entry's kernel takes, and pointers among them valid.
unsafe fn run(
    def: &KernelDef,
    entry: &Entry,
    launch: &Launch<'_>,
    grid: [u32; 3],
) -> Result<(), Error> {
    // In place: a list of words that is returned is copied, all of its room.
    let mut words = Words::<MAX_SLOTS>::new();
    flatten(launch.args, &mut words);
    let slots = words.as_mut_slice();
    match (&entry.code, launch.stream.queue()) {
        (Executable::Cuda(kernel), Queue::Cuda(stream)) => {
            let maps = match kernel.takes_maps() {
                true => kernel.encode_maps(launch.args),
                false => None,
            };
            if kernel.takes_maps() && maps.is_none() {
                // SAFETY: as of this function.
                return unsafe { run_unmapped(def, launch, grid) };
            }
            let maps = maps.as_deref().unwrap_or_default();
            // SAFETY: the slots are the kernel's parameters in order; the caller answers for pointers.
            unsafe { stream.launch(kernel, def.ast, grid, slots, maps, &Writes::of(launch.args))? };
            if knobs::get().sync { stream.synchronize() } else { Ok(()) }
        }
        // SAFETY: as above.
        (Executable::Cpu(kernel), Queue::Cpu) => unsafe { kernel.run_slots(slots, grid) },
        // SAFETY: the launch checked the arguments; the caller answers for what they point to.
        (Executable::Checked(kernel), queue) => unsafe {
            checked::run(kernel, queue, launch.args, grid)
        },
        _ => Err(Error::bug("a launch found code of another device")),
    }
}

/// Runs code that leaves the copy engine alone: for views of which the driver makes no tensor map,
/// such as one of no extent along an axis.
///
/// # Safety
/// As [`run`].
#[cold]
unsafe fn run_unmapped(def: &KernelDef, launch: &Launch<'_>, grid: [u32; 3]) -> Result<(), Error> {
    let request = Request::new(launch).unaligned();
    let entry = match def.cache.find(&request) {
        Some(entry) => entry,
        None => compile_entry(def, launch, &request)?,
    };
    if let Executable::Cuda(kernel) = &entry.code
        && kernel.takes_maps()
    {
        return Err(Error::bug("code for views of any address drives the copy engine"));
    }
    // SAFETY: the caller's promise is the same.
    unsafe { run(def, entry, launch, grid) }
}

/// Adds the arguments as the code takes them, one word for each flattened parameter.
fn flatten(args: &[Arg], words: &mut Words<MAX_SLOTS>) {
    for arg in args {
        match arg {
            Arg::Ptr(ptr) => words.push(ptr.address),
            Arg::Scalar(scalar) => words.push(scalar.bits),
            Arg::View(view) | Arg::Views(view) => {
                words.push(view.ptr.address);
                view.dims().iter().for_each(|&dim| words.push(dim as u64));
                view.strides().iter().for_each(|&stride| words.push(stride as u64));
            }
        }
    }
}
