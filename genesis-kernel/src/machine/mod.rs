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
//! | `prologue_prefetch` | `griddepcontrol.wait`, and what may come before it |
//! | `resident_operands` | the release of stages that stay for a loop of MMAs |
//! | `async_mma` | `wgmma.wait_group`, and the release of the stages that were read |
//! | `late_loads` | nothing; moves loads of lines to where they are needed |
//! | `tma_pipeline` | waits for full and empty stages, and the pipeline state's advance |
//! | `ping_pong` | the turns of warpgroups that multiply while others compute |
//! | `rematerialize` | indices computed anew next to MMAs |
//! | `cluster` | the wait for the other blocks of a cluster to run |
//! | `membar` | barriers |
//!
//! Code generation writes one instruction after the other and decides nothing about their order. [`verify`] finds two
//! accesses to shared memory that no barrier or wait keeps apart; it knows nothing of the passes' rules, and runs on
//! every kernel in debug builds. The text form ([`print()`], [`parse`]) is what tests and `GENESIS_DUMP=machine` show.

mod alias;
mod allocate;
mod async_mma;
pub(crate) mod cluster;
mod code;
pub(crate) mod dsmem;
pub(crate) mod exchange;
mod expand;
mod late_loads;
mod membar;
mod parse;
pub(crate) mod ping_pong;
mod print;
pub(crate) mod producer_prologue;
pub(crate) mod prologue_prefetch;
mod rematerialize;
mod resident_operands;
pub(crate) mod scratch;
mod tma_pipeline;
mod verify;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use self::alias::PointsTo;
pub(crate) use self::allocate::{
    BARRIER_BYTES, PANEL_BYTES, PANEL_ROWS, PANELS, PipelineLayout, SWIZZLE_ALIGNMENT, SharedMemory,
};
pub use self::code::{Block, Bytes, Code, Flight, For, Inst, Mma, Part, Stage};
pub(crate) use self::code::{Constant, GridWait, RunBy, producer_ir};
pub use self::parse::parse;
pub use self::print::print;
pub(crate) use self::prologue_prefetch::grid_wait;
pub use self::verify::{Race, verify};

use crate::layout::LayoutIr;
use crate::target::GpuTarget;

/// Machine IR of one role's function.
pub(crate) fn lower(lir: &LayoutIr, memory: &SharedMemory, gpu: &GpuTarget, by: RunBy) -> Code {
    let mut code = expand::run(lir, memory);
    code.grid_wait = grid_wait(lir, gpu);
    match by {
        RunBy::Block => prologue_prefetch::run(&mut code, lir, memory, gpu),
        RunBy::Consumers => {
            resident_operands::run(&mut code, lir);
            async_mma::run(&mut code, lir);
            late_loads::run(&mut code, lir);
            tma_pipeline::consumer(&mut code, lir);
            ping_pong::run(&mut code, lir, memory);
            rematerialize::run(&mut code, lir);
        }
        RunBy::Producer(constant) => tma_pipeline::producer(&mut code, lir, constant),
    }
    cluster::run(&mut code, lir);
    if !matches!(by, RunBy::Producer(_)) {
        membar::run(&mut code, lir);
    }
    if crate::knobs::get().all_barriers {
        membar::add_all(&mut code.body, memory);
    }
    code
}

/// What the threads of each role of a kernel do, as text; or why it does not compile.
pub(crate) fn text(lir: &LayoutIr, gpu: &GpuTarget) -> String {
    let memory = match SharedMemory::of(lir, gpu) {
        Ok(memory) => memory,
        Err(error) => return error.to_string(),
    };
    let Some(producer) = &lir.producer else {
        return print(&lower(lir, &memory, gpu, RunBy::Block).body, &lir.func);
    };
    let role = |name: &str, lir: &LayoutIr, by: RunBy| {
        format!("// {name}\n{}", print(&lower(lir, &memory, gpu, by).body, &lir.func))
    };
    let mut roles = Vec::new();
    let mut constant = Constant::All;
    if let Some(prologue) = producer_prologue::producer_prologue(lir, gpu) {
        let by = RunBy::Producer(Constant::Prefetch);
        roles.push(role(
            "the producer, before it waits for the grid",
            &producer_ir(&prologue, lir),
            by,
        ));
        constant = Constant::Prefetched;
    }
    roles.push(role("the producer", &producer_ir(producer, lir), RunBy::Producer(constant)));
    roles.push(role("consumers", lir, RunBy::Consumers));
    roles.join("\n")
}
