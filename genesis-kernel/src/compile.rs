//! From a kernel to code: the whole pipeline on one screen.
//!
//! ```text
//! front::build -> tile IR -> views -> PIPELINE -+-> EXACT -> codegen::cpu -> machine code
//!                     |                         +-> pad -> NVPTX -> layout::assign -> layout IR
//!                     +-> tma, where it feeds MMAs  -> codegen::nvptx -> PTX -> the driver
//! ```
//!
//! The verifier looks at tile IR after the front end and, in tests and debug builds, after each pass.

mod compiled;
mod cost;
mod draw;
mod dump;
mod kept;
mod load;
mod ready;
mod schedule;
mod specialized;
mod traffic;
mod trip_count;
mod usage;
pub(crate) mod warnings;

pub use self::compiled::{Compiled, Resources};
pub use self::cost::{Cost, cost, launch_cost};
use self::dump::{Stage, dump, note_pass};
pub(crate) use self::load::{Executable, executable, keep_ready, load_anew};
pub use self::specialized::Specialized;
use crate::codegen::cpu::{self, CpuObject, OptLevel};
use crate::codegen::nvptx::{self, GpuKernel};
use crate::diag::{Diagnostic, Error};
use crate::front;
use crate::front::Hints;
use crate::front::ast::FnAst;
use crate::interp::Interpreter;
use crate::ir::{DType, Func, print, verify};
use crate::knobs;
use crate::layout::{self, LayoutIr, LayoutOptions};
use crate::machine;
use crate::passes::{
    self, Pass, aggregate_atomics, defer_reductions, pad, software_pipeline, tma, views,
};
use crate::target::{GpuTarget, Target};

/// Tile IR of a kernel for given dtypes, constants and hints.
pub(crate) fn specialize(
    ast: &'static FnAst,
    dtypes: &[DType],
    consts: &[i64],
    hints: &Hints,
) -> Result<Specialized, Error> {
    let func = front::build(ast, dtypes, consts, hints)?;
    dump(Stage::Tir, &func.name, || tir_text(&func));
    verify_after("the front end", &func)?;
    Ok(Specialized::new(func, dtypes, consts, hints))
}

impl Specialized {
    /// Runs the kernel element by element and reports accesses outside of buffers, races between
    /// programs and more; the same bits as on the CPU.
    pub fn interpreter(&self) -> Interpreter<'_> {
        Interpreter::new(self.exact.get_or_init(|| exact(&self.func)))
    }

    /// The tile IR as text.
    pub fn tir(&self) -> String {
        tir_text(&self.func)
    }

    /// The tile IR after each pass of a compilation for a target, as text.
    ///
    /// # Errors
    /// As [`Specialized::compile`].
    pub fn passes(&self, target: &Target) -> Result<String, Error> {
        passes_text(self, target)
    }

    /// Machine code for a target. No GPU is needed to compile for one.
    ///
    /// # Errors
    /// If the kernel can't be compiled for the target, such as too much shared memory.
    pub fn compile(&self, target: &Target) -> Result<Compiled, Error> {
        compile(self, target)
    }
}

/// Code for a target, with everything there is to look at.
pub(crate) fn compile(kernel: &Specialized, target: &Target) -> Result<Compiled, Error> {
    match target {
        Target::Cpu => {
            let (func, _) = compile_cpu(&kernel.func)?;
            Ok(Compiled::cpu(kernel, func))
        }
        Target::Gpu(gpu) => {
            let (lir, code) = compile_gpu(kernel, gpu)?;
            Ok(Compiled::gpu(kernel, gpu, lir, code))
        }
    }
}

/// The IR after each pass of a compilation, as text; a pass that changes nothing is only named.
pub(crate) fn passes_text(kernel: &Specialized, target: &Target) -> Result<String, Error> {
    let (compiled, passes) = dump::record(|| compile(kernel, target));
    compiled?;
    let mut before = tir_text(&kernel.func);
    let mut text = format!("// front end\n{before}");
    for (pass, after) in passes {
        text += &match after == before {
            true => format!("// {pass}: no change\n"),
            false => format!("\n// after {pass}\n{after}"),
        };
        before = after;
    }
    Ok(text)
}

/// Machine code of this processor, with the function that it was written from.
pub(crate) fn compile_cpu(func: &Func) -> Result<(Func, CpuObject), Error> {
    let func = run_passes(prepare(func)?, passes::EXACT)?;
    let text = |text: Result<String, Error>| text.unwrap_or_else(|error| error.to_string());
    dump(Stage::Llvm, &func.name, || text(cpu::llvm_ir(&func, OptLevel::O3)));
    let object = cpu::compile(&func, OptLevel::O3)?;
    dump(Stage::Asm, &func.name, || text(cpu::assembly(&func, OptLevel::O3)));
    Ok((func, object))
}

pub(crate) fn compile_gpu(
    kernel: &Specialized,
    target: &GpuTarget,
) -> Result<(LayoutIr, GpuKernel), Error> {
    let lir = gpu_layout(kernel, target)?;
    let func = &lir.func;
    dump(Stage::Lir, &func.name, || compiled::lir_text(&lir));
    note_pass("layouts", &func.name, || compiled::lir_text(&lir));
    dump(Stage::Machine, &func.name, || machine::text(&lir, target));
    let code = nvptx::compile(&lir, target)?;
    let llvm = || nvptx::llvm_ir(&lir, target).unwrap_or_else(|error| error.to_string());
    dump(Stage::Llvm, &func.name, llvm);
    dump(Stage::Ptx, &func.name, || code.ptx.clone());
    Ok((lir, code))
}

/// Bytes that a program of a kernel without loops moves.
fn program_bytes(func: &Func) -> Option<u64> {
    let is_loop = |op| func.op(op).kind.is_loop();
    (!func.walk().into_iter().any(is_loop)).then(|| cost(func).bytes)
}

/// Layout IR for a GPU.
pub(crate) fn gpu_layout(kernel: &Specialized, target: &GpuTarget) -> Result<LayoutIr, Error> {
    let Hints { num_warps, cluster, .. } = kernel.hints;
    check_cluster(&kernel.func.name, cluster.unwrap_or(1), target)?;
    let max_shared_bytes = target.features.max_shared_bytes;
    let aggregated = match cluster {
        // Blocks of a cluster can't count together.
        Some(2..) => None,
        _ => aggregated(&kernel.func)?,
    };
    let func = aggregated.as_ref().unwrap_or(&kernel.func);
    let converted = match target.features.tma_feeds_mma() && knobs::get().tma {
        true => with_tma(func, &kernel.hints, max_shared_bytes)?,
        false => None,
    };
    let func = match converted {
        Some(func) => func,
        None => lowered(func)?,
    };
    let num_stages = kernel.hints.num_stages;
    let program_bytes = program_bytes(&kernel.func);
    let options = LayoutOptions { num_warps, cluster, num_stages, max_shared_bytes, program_bytes };
    Ok(layout::assign(&func, &options)?)
}

/// Refuses clusters of more blocks than the GPU has.
fn check_cluster(name: &str, blocks: u32, target: &GpuTarget) -> Result<(), Error> {
    let most = target.features.max_cluster;
    if blocks <= most {
        return Ok(());
    }
    let (message, help) = match target.features.has_clusters() {
        true => (
            format!(
                "`{name}` was asked to run in clusters of {blocks} blocks, {target} has {most}"
            ),
            format!("launch it with `cluster: {most}` or fewer"),
        ),
        false => (
            format!("`{name}` was asked to run in clusters, which {target} does not have"),
            "launch it with `cluster: 1`".to_owned(),
        ),
    };
    Err(Diagnostic::new(message, None).help(help).into())
}

/// A function whose additions to few places are counted before they reach memory; none where there is no such addition.
fn aggregated(func: &Func) -> Result<Option<Func>, Error> {
    if !aggregate_atomics::may_apply(func) {
        return Ok(None);
    }
    // What is the same in every iteration of a loop then stands before it.
    let mut func =
        run_passes(func.clone(), &[passes::FOLD, passes::CSE, passes::LICM, passes::DCE])?;
    let any = aggregate_atomics::run(&mut func);
    after_pass("aggregate_atomics", &func)?;
    Ok(any.then_some(func))
}

/// A function for a GPU that brings its tiles through the copy engine; none where a tile is left that
/// nothing reads in the end. Its slot would never be free again, and the producer would wait for ever.
fn with_tma(func: &Func, hints: &Hints, max_shared_bytes: u32) -> Result<Option<Func>, Error> {
    let Hints { num_warps, num_stages, cluster, .. } = *hints;
    let num_blocks = cluster.unwrap_or(1);
    let options = tma::Options { num_warps, num_blocks, num_stages, max_shared_bytes };
    // A load without uses is dead before the conversion; a copy is an effect, and stays.
    let func = run_passes(func.clone(), &[passes::DCE])?;
    let mut func = tma::run(&func, &options);
    after_pass("tma", &func)?;
    defer_reductions::run(&mut func);
    after_pass("defer_reductions", &func)?;
    software_pipeline::run(&mut func);
    after_pass("software_pipeline", &func)?;
    let func = lowered(&func)?;
    Ok(tma::every_tile_is_read(&func).then_some(func))
}

/// The passes over tile IR for a GPU.
fn lowered(func: &Func) -> Result<Func, Error> {
    let func = pad::run(&prepare(func)?)?;
    after_pass("pad", &func)?;
    run_passes(func, passes::NVPTX)
}

/// The function as the interpreter runs it: with the transcendental functions of the CPU.
pub(crate) fn exact(func: &Func) -> Func {
    let mut func = func.clone();
    passes::run(&mut func, passes::INTERPRETER);
    func
}

/// The passes over tile IR of every back end: views become pointers, then [`passes::PIPELINE`].
fn prepare(func: &Func) -> Result<Func, Error> {
    let func = views::run(func)?;
    after_pass("views", &func)?;
    run_passes(func, passes::PIPELINE)
}

fn run_passes(mut func: Func, passes: &[Pass]) -> Result<Func, Error> {
    for pass in passes {
        (pass.run)(&mut func);
        after_pass(pass.name, &func)?;
    }
    Ok(func)
}

fn after_pass(pass: &str, func: &Func) -> Result<(), Error> {
    note_pass(pass, &func.name, || tir_text(func));
    if cfg!(debug_assertions) { verify_after(pass, func) } else { Ok(()) }
}

/// Looks whether tile IR is what it must be; if not, the IR goes to a file and the error names it.
fn verify_after(pass: &str, func: &Func) -> Result<(), Error> {
    let Err(why) = verify::verify(func) else { return Ok(()) };
    let path =
        std::env::temp_dir().join(format!("genesis-{}-{}.tir", func.name, std::process::id()));
    let at = match std::fs::write(&path, tir_text(func)) {
        Ok(()) => format!("; the IR is in {}", path.display()),
        Err(_) => String::new(),
    };
    Err(Error::bug(format!("{}: {pass} left IR that is not valid: {why}{at}", func.name)))
}

/// Tile IR as text.
pub(crate) fn tir_text(func: &Func) -> String {
    print::print(func)
}
