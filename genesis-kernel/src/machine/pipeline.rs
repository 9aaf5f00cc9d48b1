//! The passes of each role, in order.

use super::expand;
use super::{
    Block, Code, Inst, RunBy, SharedMemory, async_mma, atomics, cache_policy, carried_words, casts,
    cluster, combine, grid_wait, late_loads, masks, membar, narrow, occupancy, packed_arithmetic,
    partial_results, ping_pong, programmatic_dependent_launch, prologue_prefetch, rematerialize,
    rematerialize_rows, resident_operands, setup, strength_reduction, tma_pipeline, tma_store,
    unroll,
};
use crate::layout::LayoutIr;
use crate::target::GpuTarget;

/// What a pass sees beside the code.
pub(super) struct Context<'a> {
    pub(super) lir: &'a LayoutIr,
    pub(super) memory: &'a SharedMemory,
    pub(super) gpu: &'a GpuTarget,
    pub(super) by: RunBy,
}

/// A pass over the code of one role; its file has its name.
pub(super) struct Pass {
    pub(super) name: &'static str,
    pub(super) run: fn(&mut Code, &Context<'_>),
}

const fn pass(name: &'static str, run: fn(&mut Code, &Context<'_>)) -> Pass {
    Pass { name, run }
}

/// Those of code that all threads of a block run, in order.
pub(super) const UNIFORM: &[Pass] = &[
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
pub(super) const CONSUMERS: &[Pass] = &[
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

/// Those of both that select how each op is computed, after all that moves code.
pub(super) const SELECTION: &[Pass] = &[
    pass("unroll", |code, cx| unroll::run(code, cx.lir)),
    pass("casts", |code, cx| casts::run(code, cx.lir, cx.gpu, cx.by)),
    pass("cache_policy", |code, cx| cache_policy::run(code, cx.lir)),
    pass("carried_words", |code, cx| carried_words::run(code, cx.lir)),
    pass("masks", |code, cx| masks::run(code, cx.lir)),
    pass("narrow", |code, cx| narrow::run(code, cx.lir)),
    pass("strength_reduction", |code, cx| strength_reduction::run(code, cx.lir)),
    pass("rematerialize_rows", |code, cx| rematerialize_rows::run(code, cx.lir)),
    pass("occupancy", |code, cx| occupancy::run(code, cx.lir, cx.gpu)),
    pass("partial_results", |code, cx| partial_results::run(code, cx.lir)),
    pass("packed_arithmetic", |code, cx| packed_arithmetic::run(code, cx.lir, cx.by)),
];

/// That of a producer.
pub(super) const PRODUCER: &[Pass] = &[
    pass("tma_pipeline", |code, cx| tma_pipeline::run(code, cx.lir, cx.by)),
    pass("cache_policy", |code, cx| cache_policy::run(code, cx.lir)),
    pass("narrow", |code, cx| narrow::run(code, cx.lir)),
];

/// The passes of a role.
pub(super) fn pipeline(by: RunBy) -> impl Iterator<Item = &'static Pass> {
    let (scheduling, selection) = match by {
        RunBy::Block => (UNIFORM, SELECTION),
        RunBy::Consumers => (CONSUMERS, SELECTION),
        RunBy::Producer(_) => (PRODUCER, &[][..]),
    };
    scheduling.iter().chain(selection)
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
    !block[..last].iter().any(ends) && block.iter().flat_map(Inst::blocks).all(ends_last)
}

/// The code before all passes.
pub(super) fn begin(context: &Context<'_>) -> Code {
    let mut code = expand::run(context.lir, context.memory);
    code.grid_wait = grid_wait(context.lir, context.gpu);
    code
}
