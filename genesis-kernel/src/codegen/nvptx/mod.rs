//! From layout IR to PTX.
//!
//! A tile is one LLVM scalar per register of its layout in each thread, so most ops are lowered
//! register by register; what crosses threads (reductions, scans, conversions, dots, atomics whose
//! result is wanted) goes through shuffles and shared memory. Control flow of tile IR is uniform over
//! a block, hence a barrier may stand anywhere but in the region of a reduction.
//!
//! ```text
//! %5: f32[128] = add %3, %4      reg [1] lane [2, 4, 8, 16, 32] warp [64]
//!   -> two `fadd float` in each of 64 threads
//! ```
//!
//! The ABI of a kernel, which the runtime's launch follows:
//! * parameters in order, flattened: a pointer is a 64-bit address, a scalar its own type (bool a
//!   byte), a view is its address, then extents, then strides, all 64 bits wide;
//! * then each of [`GpuKernel::maps`], 128 bytes by value, aligned to 64;
//! * then, only where [`GpuKernel::asserts`] is not empty, the address of 64 bytes of zeros that the host
//!   can read after a fault (or 0): a failed assertion writes its number plus 1 there as an `i32`, behind it
//!   what it compared and where, and traps;
//! * [`GpuKernel::threads`] threads and `shared_bytes` of dynamic shared memory a block;
//! * grid axes x, y, z are the programs along axes 0, 1, 2; where a program is a cluster, axis x has
//!   [`GpuKernel::num_blocks`] blocks for each, which the code itself declares to be clusters.

mod atomic;
#[cfg(test)]
mod cluster_tests;
mod collective;
mod control;
mod convert;
mod copying;
mod debug;
mod dequantize;
mod dot;
mod dsmem_store;
mod float8;
mod gather;
mod histogram;
mod integers;
mod lower;
mod lowering;
mod memory;
mod multistage;
mod narrow;
mod ping_pong;
mod pipeline_state;
mod programmatic_dependent_launch;
pub mod ptxas;
mod reduce;
mod registers;
mod rematerialize;
mod rematerialize_rows;
mod scan;
mod scatter;
mod scheduling_barrier;
mod setup;
mod strength_reduction;
#[cfg(test)]
mod tests;
mod thread;
mod tma;
mod tma_pipeline;
mod values;
mod warp_specialization;
mod wgmma;
#[cfg(test)]
mod wgmma_tests;

pub(crate) use self::programmatic_dependent_launch::waits_for_grid;
use std::collections::BTreeMap;

use self::registers::{GLOBAL, SHARED};
use self::warp_specialization::{Args, Written};
use super::llvm::{Emitter, Function, Machine, Ty};
use crate::Error;
use crate::ir::{Elem, Func, Op, OpKind, TensorMap, Type};
use crate::layout::LayoutIr;
use crate::layout::ping_pong::computing_warps;
use crate::machine::{self, GridWait, Promise, SWIZZLE_ALIGNMENT, SharedMemory};
use crate::target::GpuTarget;
use crate::tuning::multiprocessor::{WARP_THREADS, WARPGROUP_WARPS};

/// LLVM's number of the calling convention of a kernel.
const PTX_KERNEL: u32 = 71;
/// What dynamic shared memory is aligned to where no swizzles are counted from its start.
const SHARED_ALIGNMENT: u32 = 128;
/// Bytes of a tensor map, and their alignment, as the driver makes it.
const TENSOR_MAP_BYTES: u64 = 128;
const TENSOR_MAP_ALIGNMENT: u64 = 64;

/// A kernel as PTX, and what a launch must know about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GpuKernel {
    /// The name of the entry point.
    pub name: String,
    /// The PTX.
    pub ptx: String,
    /// Dynamic shared memory that a launch must ask for, in bytes.
    pub shared_bytes: u32,
    /// Warps of a block that compute.
    pub num_warps: u32,
    /// Threads of a block that a launch must ask for: those warps, and the producer's where there is
    /// one.
    pub threads: u32,
    /// Blocks of the cluster that is a program.
    pub num_blocks: u32,
    /// Tensor maps that the kernel takes after its own parameters, 128 bytes each, by value.
    pub maps: Vec<TensorMap>,
    /// Messages of assertions, by number. Where there are any, the kernel takes one more parameter.
    pub asserts: Vec<String>,
}

/// What LLVM does to a kernel: what `default<O3>` does that matters for code that is straight already.
/// Softmax of 4096 columns takes 0.6 ms here and 10 ms there, and the assembler makes the same of both.
const PASSES: &str = "function(early-cse,instcombine<no-verify-fixpoint>,simplifycfg,gvn,\
                      loop-mssa(licm),simplifycfg,dce)";

/// What it does to a kernel with packed arithmetic, whose pairs it finds.
const SLP_PASSES: &str = "function(sroa,early-cse,instcombine<no-verify-fixpoint>,simplifycfg,\
                               gvn,loop-mssa(licm),slp-vectorizer,\
                               instcombine<no-verify-fixpoint>,simplifycfg,dce)";

/// What it does to a warp-specialized kernel: pipeline state is in stack variables, for mem2reg.
const WARP_SPECIALIZED_PASSES: &str = "function(mem2reg,early-cse,instcombine<no-verify-fixpoint>,simplifycfg,\
                               gvn,loop-mssa(licm),instcombine<no-verify-fixpoint>,simplifycfg,dce)";

/// Compiles layout IR for a GPU.
///
/// # Errors
/// If the kernel needs more than the GPU has, such as shared memory, or something is wrong with the
/// compiler itself.
pub fn compile(lir: &LayoutIr, target: &GpuTarget) -> Result<GpuKernel, Error> {
    kernel(lir, target, Module::new(lir, target, false)?)
}

/// As [`compile`], with the lines of the kernel's source as `.loc` directives in the PTX.
///
/// # Errors
/// As [`compile`].
pub fn compile_with_lines(lir: &LayoutIr, target: &GpuTarget) -> Result<GpuKernel, Error> {
    kernel(lir, target, Module::new(lir, target, true)?)
}

fn kernel(lir: &LayoutIr, target: &GpuTarget, module: Module) -> Result<GpuKernel, Error> {
    let ptx = module.e.assembly(&module.machine)?;
    let wait = machine::grid_wait(lir, target);
    if wait == GridWait::First {
        programmatic_dependent_launch::check(&ptx)?;
    }
    if wait != GridWait::Never {
        let reads_constant = lir.func.params.iter().any(|param| param.attrs.constant);
        programmatic_dependent_launch::check_loads(&ptx, reads_constant)?;
    }
    Ok(GpuKernel {
        name: module.name,
        ptx,
        shared_bytes: module.shared_bytes,
        num_warps: lir.num_warps,
        threads: threads(lir),
        num_blocks: lir.num_blocks,
        maps: lir.func.tma.maps.clone(),
        asserts: module.messages,
    })
}

/// The LLVM IR that [`compile`] hands to the code generator, as text. It is made anew: printing it
/// takes as long as a pass, and hardly anybody asks.
///
/// # Errors
/// As [`compile`].
pub fn llvm_ir(lir: &LayoutIr, target: &GpuTarget) -> Result<String, Error> {
    Ok(Module::new(lir, target, false)?.e.ir())
}

/// A kernel as optimized LLVM IR.
struct Module {
    e: Emitter,
    machine: Machine,
    name: String,
    shared_bytes: u32,
    messages: Vec<String>,
}

impl Module {
    fn new(lir: &LayoutIr, target: &GpuTarget, lines: bool) -> Result<Module, Error> {
        let func = &lir.func;
        let name = entry_name(&func.name);
        let machine = Machine::nvptx(target.name(), &format!("+ptx{}", target.ptx_version))?;
        let e = Emitter::new(&name);
        e.set_target(&machine);
        let (asserts, messages) = asserts(func);
        let memory = SharedMemory::of(lir, target)?;
        let shared_bytes = memory.bytes;
        let function = Entry { name: &name, lines };
        let written = emit(&e, lir, target, function, memory, asserts)?;
        e.finish_lines();
        e.verify()?;
        let passes = match (lir.producer.is_some(), written.packed_arithmetic) {
            (true, _) => WARP_SPECIALIZED_PASSES,
            (false, true) => SLP_PASSES,
            (false, false) => PASSES,
        };
        e.run_passes(passes, &machine)?;
        integers::legalize(&e);
        Ok(Module { e, machine, name, shared_bytes, messages })
    }
}

/// Threads of a block: the warps that compute, and a warpgroup that feeds them.
fn threads(lir: &LayoutIr) -> u32 {
    let producer = if lir.producer.is_some() { WARPGROUP_WARPS } else { 0 };
    WARP_THREADS * (computing_warps(lir) + producer)
}

/// A name that PTX takes.
fn entry_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    let name: String = name.chars().map(plain).collect();
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) { name } else { format!("k{name}") }
}

/// The number of each assertion, and what it says.
fn asserts(func: &Func) -> (BTreeMap<Op, usize>, Vec<String>) {
    let mut numbers = BTreeMap::new();
    let mut messages = Vec::new();
    for op in func.walk() {
        let data = func.op(op);
        if let OpKind::Assert { message } = &data.kind {
            numbers.insert(op, messages.len());
            let at = data.loc.map(|loc| format!("{}:{}:{}: ", loc.file, loc.line, loc.column));
            messages.push(at.unwrap_or_default() + message);
        }
    }
    (numbers, messages)
}

/// The type of each parameter of the entry point.
fn types(e: &Emitter, func: &Func) -> Result<Vec<Ty>, Error> {
    let params = func.params.iter().map(|param| match func.ty(param.value) {
        Type::View { .. } => Err(Error::bug("views are lowered before layouts")),
        Type::Tile(tile) => Ok(match tile.elem {
            Elem::Ptr(_) => e.ptr(GLOBAL),
            Elem::Data(dtype) => e.memory_ty(dtype),
        }),
    });
    params.collect()
}

fn set_attrs(e: &Emitter, function: Function, promises: &[Promise]) {
    for (i, &Promise { readonly, noalias, align }) in (0..).zip(promises) {
        let flags = [(readonly, "readonly"), (noalias, "noalias")];
        for (_, flag) in flags.into_iter().filter(|(is_set, _)| *is_set) {
            e.add_param_attr(function, i, flag, 0);
        }
        if let Some(align) = align {
            e.add_param_attr(function, i, "align", align);
        }
    }
}

/// What the entry point is called, and whether its instructions say where they come from.
struct Entry<'n> {
    name: &'n str,
    lines: bool,
}

/// Writes the function.
fn emit(
    e: &Emitter,
    lir: &LayoutIr,
    target: &GpuTarget,
    Entry { name, lines }: Entry<'_>,
    memory: SharedMemory,
    asserts: BTreeMap<Op, usize>,
) -> Result<Written, Error> {
    let mut types = types(e, &lir.func)?;
    let first_map = types.len();
    let n_maps = lir.func.tma.maps.len();
    types.extend((0..n_maps).map(|_| e.ptr(0)));
    if !asserts.is_empty() {
        types.push(e.i64());
    }
    let bytes = e.array(e.i8(), 0);
    let alignment = if n_maps == 0 { SHARED_ALIGNMENT } else { SWIZZLE_ALIGNMENT };
    let shared = e.external_global("shared", bytes, SHARED, alignment);
    let function = e.function(name, e.void(), &types);
    if lines {
        e.start_lines(function, name);
    }
    for map in first_map..first_map + n_maps {
        e.set_grid_constant(function, map as u32, TENSOR_MAP_BYTES, TENSOR_MAP_ALIGNMENT);
    }
    e.set_call_convention(function, PTX_KERNEL);
    e.add_attr(function, "nvvm.maxntid", &threads(lir).to_string());
    if lir.num_blocks > 1 {
        e.add_attr(function, "nvvm.cluster_dim", &format!("{},1,1", lir.num_blocks));
    }

    let arg = |i: usize| e.param(function, i as u32);
    let args = Args {
        values: (0..first_map).map(arg).collect(),
        maps: (first_map..first_map + n_maps).map(arg).collect(),
        status: (!asserts.is_empty()).then(|| arg(types.len() - 1)),
        shared,
    };
    let written = warp_specialization::write(e, lir, target, memory, asserts, args)?;
    set_attrs(e, function, &machine::promises(lir, target));
    e.add_attr(function, "nvvm.minctasm", &written.min_blocks.to_string());
    Ok(written)
}
