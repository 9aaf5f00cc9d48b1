//! Machine IR: what the threads of a block do, in order, between layout IR and LLVM.
//!
//! Layout IR says what is computed and which thread holds which element. Machine IR adds what the hardware makes one say:
//! which bytes of shared memory an op's exchange goes through, the asynchronous copies of a multistage buffer with their
//! commit groups, and every barrier and wait. An instruction names the op of the layout IR whose values it reads and
//! gives, so that values, types and layouts are those of the layout IR.
//!
//! ```text
//! %7 = reduce add 0 %6           layout IR, over the warps of a block
//!
//! store.shared 7.0 0..64         each warp's partial result to the scratch of op 7
//! barrier
//! load.shared 7.0 0..64          all of them
//! exec 7                         the result
//! ```
//!
//! Passes make it of layout IR, each in a file of its own:
//!
//! | pass | what it adds |
//! |---|---|
//! | `expand` | the instructions of each op, without barriers but for those of multistage buffers |
//! | `prologue_prefetch` | `griddepcontrol.wait` after copies and loads that may come before it |
//! | `programmatic_dependent_launch` | the same where it comes first, and `griddepcontrol.launch_dependents` |
//! | `setup` | the initialization of mbarriers |
//! | `register_budget` | `setmaxnreg` |
//! | `resident_operands` | the release of stages that stay for a loop of MMAs |
//! | `async_mma` | `wgmma.wait_group`, and the release of the stages that were read |
//! | `late_loads` | nothing; moves loads of lines to where they are needed |
//! | `tma_pipeline` | waits for full and empty stages, and the pipeline state's advance |
//! | `ping_pong` | the turns of warpgroups that multiply while others compute |
//! | `rematerialize` | indices computed anew next to MMAs |
//! | `cluster` | the wait for the other blocks of a cluster to run |
//! | `membar` | barriers |
//! | `combine` | the steps of reductions and scans within a warp |
//! | `atomics` | which instruction an atomic is, and the fences around one that orders its program |
//! | `tma_store` | the panels that a store by the copy engine goes through |
//!
//! Code generation writes one instruction after the other and decides nothing about their order. [`verify`] finds two
//! accesses to shared memory that no barrier or wait keeps apart; it knows nothing of the passes' rules, and runs on
//! every kernel in debug builds. The text form ([`print()`], [`parse`]) is what tests and `GENESIS_DUMP=machine` show.

mod alias;
mod allocate;
mod async_mma;
mod atomics;
mod cluster;
mod code;
mod combine;
pub(crate) mod dsmem;
pub(crate) mod exchange;
mod expand;
mod late_loads;
mod membar;
mod parse;
mod ping_pong;
mod print;
mod producer_prologue;
mod program;
mod programmatic_dependent_launch;
mod prologue_prefetch;
mod register_budget;
mod rematerialize;
mod resident_operands;
pub(crate) mod scratch;
mod setup;
mod tma_pipeline;
pub(crate) mod tma_store;
mod verify;
mod verify_pipeline;
mod words;

#[cfg(test)]
pub(crate) mod golden;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use self::alias::PointsTo;
pub(crate) use self::allocate::{
    BARRIER_BYTES, PANEL_BYTES, PANEL_ROWS, PANELS, PipelineLayout, SWIZZLE_ALIGNMENT, SharedMemory,
};
pub use self::code::{
    Across, AtomicBy, Block, Bytes, Code, Flight, For, Inst, Mma, Panel, Part, Stage,
};
pub(crate) use self::code::{Constant, GridWait, RunBy, producer_ir};
pub use self::parse::parse;
pub use self::print::print;
pub(crate) use self::program::{Program, WarpSpecialized};
pub(crate) use self::prologue_prefetch::grid_wait;
pub use self::verify::{Race, verify};
pub(crate) use self::verify_pipeline::verify_program;

use crate::layout::LayoutIr;
use crate::target::GpuTarget;

/// What a pass sees beside the code.
pub(crate) struct Context<'a> {
    pub(crate) lir: &'a LayoutIr,
    pub(crate) memory: &'a SharedMemory,
    pub(crate) gpu: &'a GpuTarget,
    pub(crate) by: RunBy,
}

/// A pass over the code of one role; its file has its name.
pub(crate) struct Pass {
    pub(crate) name: &'static str,
    run: fn(&mut Code, &Context<'_>),
}

const fn pass(name: &'static str, run: fn(&mut Code, &Context<'_>)) -> Pass {
    Pass { name, run }
}

/// Those of code that all threads of a block run, in order.
pub(crate) const UNIFORM: &[Pass] = &[
    pass("prologue_prefetch", |code, cx| prologue_prefetch::run(code, cx.lir, cx.memory, cx.gpu)),
    pass("programmatic_dependent_launch", |code, cx| {
        programmatic_dependent_launch::run(code, cx.lir, cx.gpu);
    }),
    pass("setup", |code, cx| setup::run(code, cx.lir, cx.memory)),
    pass("cluster", |code, cx| cluster::run(code, cx.lir)),
    pass("membar", |code, cx| membar::run(code, cx.lir, cx.memory)),
    pass("combine", |code, cx| combine::run(&mut code.body, cx.lir)),
    pass("atomics", |code, cx| atomics::run(&mut code.body, cx.lir, cx.gpu)),
];

/// Those of consumers.
pub(crate) const CONSUMERS: &[Pass] = &[
    pass("resident_operands", |code, cx| resident_operands::run(code, cx.lir)),
    pass("async_mma", |code, cx| async_mma::run(code, cx.lir)),
    pass("late_loads", |code, cx| late_loads::run(code, cx.lir)),
    pass("tma_pipeline", |code, cx| tma_pipeline::run(code, cx.lir, cx.by)),
    pass("ping_pong", |code, cx| ping_pong::run(code, cx.lir, cx.memory)),
    pass("rematerialize", |code, cx| rematerialize::run(code, cx.lir)),
    pass("cluster", |code, cx| cluster::run(code, cx.lir)),
    pass("membar", |code, cx| membar::run(code, cx.lir, cx.memory)),
    pass("combine", |code, cx| combine::run(&mut code.body, cx.lir)),
    pass("atomics", |code, cx| atomics::run(&mut code.body, cx.lir, cx.gpu)),
    pass("tma_store", |code, cx| tma_store::run(&mut code.body, cx.lir)),
];

/// That of a producer.
pub(crate) const PRODUCER: &[Pass] =
    &[pass("tma_pipeline", |code, cx| tma_pipeline::run(code, cx.lir, cx.by))];

/// The passes of a role.
pub(crate) fn pipeline(by: RunBy) -> &'static [Pass] {
    match by {
        RunBy::Block => UNIFORM,
        RunBy::Consumers => CONSUMERS,
        RunBy::Producer(_) => PRODUCER,
    }
}

/// Machine IR of one role's function.
pub(crate) fn lower(lir: &LayoutIr, memory: &SharedMemory, gpu: &GpuTarget, by: RunBy) -> Code {
    let context = Context { lir, memory, gpu, by };
    let mut code = begin(&context);
    for pass in pipeline(by) {
        (pass.run)(&mut code, &context);
        debug_assert!(ends_last(&code.body), "{} leaves code behind the end of a block", pass.name);
    }
    code
}

/// Whether nothing stands behind what ends a block.
fn ends_last(block: &Block) -> bool {
    let ends = |inst: &Inst| matches!(inst, Inst::Yield(_) | Inst::Return(_));
    let last = block.len().saturating_sub(1);
    !block[..last].iter().any(ends)
        && block.iter().flat_map(Inst::blocks).all(|inside| ends_last(inside))
}

/// The code before all passes.
fn begin(context: &Context<'_>) -> Code {
    let mut code = expand::run(context.lir, context.memory);
    code.grid_wait = grid_wait(context.lir, context.gpu);
    code
}

/// What the threads of each role of a kernel do, as text; or why it does not compile.
pub(crate) fn text(lir: &LayoutIr, gpu: &GpuTarget) -> String {
    match SharedMemory::of(lir, gpu) {
        Ok(memory) => Program::of(lir, &memory, gpu).text(lir),
        Err(error) => error.to_string(),
    }
}
