//! Prologue prefetch: copies and loads of constant memory before `griddepcontrol.wait`.
//!
//! Between two dependent kernels memory is idle: the last blocks of one end, and the first copies of the next are still to
//! come. A kernel that reads memory which nobody writes (`constant` parameters, the weights of a model) need not wait for
//! the primary grid there. Where a function begins with a loop over a multistage buffer (see [`crate::layout::multistage`]), the copies
//! of such tiles come first, and the wait after them:
//!
//! ```text
//! addresses                               of params and program ids
//! cp.async  weights of the first stages
//! griddepcontrol.wait                     all writes of earlier kernels are visible from here on
//! griddepcontrol.launch_dependents        the dependent grid may prefetch its own
//! cp.async  activations of the first stages, a group for each stage
//! loads that stood before the loop        deferred until now, with what is computed from them
//! the loop
//! ```
//!
//! Loads of other memory stay after the wait: none is marked as invariant, and no parameter besides the constant ones as
//! one that nobody writes.
//!
//! Any other function waits before its first op that touches memory which is not constant, where constant memory is read
//! before it: a kernel should load first what it can prefetch.
//!
//! ```text
//! ld.global  lengths, pages, older keys
//! griddepcontrol.wait
//! griddepcontrol.launch_dependents
//! ld.global  queries
//! ```
//!
//! These loads are ordered too: an invariant one could sink below the wait, to where its value is used.

use std::collections::BTreeSet;

use super::exchange::SMALL_BYTES;
use super::expand::Expander;
use super::producer_prologue::producer_prologue;
use super::scratch::scratch_bytes;
use super::{Block, Code, GridWait, Inst, SharedMemory};
use crate::analysis::base;
use crate::ir::{Func, Op, OpKind, Value};
use crate::layout::{LayoutIr, MultistageBuffer, StagedLoad};
use crate::target::GpuTarget;

/// Where a kernel waits for the primary grid.
pub(crate) fn grid_wait(lir: &LayoutIr, gpu: &GpuTarget) -> GridWait {
    if !gpu.features.pdl {
        return GridWait::Never;
    }
    match Prefetch::of(lir, gpu) {
        Some(Prefetch::Loads { .. }) => GridWait::AfterLoads,
        Some(Prefetch::Copies { .. }) => GridWait::AfterCopies,
        None if producer_prologue(lir, gpu).is_some() => GridWait::AfterCopies,
        None => GridWait::First,
    }
}

/// What a kernel prefetches before it waits.
#[derive(Clone, Debug)]
enum Prefetch {
    /// What is loaded before the first op that touches other memory.
    Loads { until: Op },
    /// The first copies of this loop. Ops before it that must stay after the wait are deferred, in order.
    Copies { of: Op, deferred: Vec<Op> },
}

impl Prefetch {
    /// What a function prefetches; none where it waits first.
    fn of(lir: &LayoutIr, gpu: &GpuTarget) -> Option<Prefetch> {
        if !gpu.features.pdl || lir.producer.is_some() || lir.num_blocks > 1 {
            return None;
        }
        Prefetch::of_copies(lir).or_else(|| Prefetch::of_loads(&lir.func))
    }

    /// Loads of constant memory.
    fn of_loads(func: &Func) -> Option<Prefetch> {
        let mut prefetches = false;
        for &op in &func.region(func.body).ops {
            if func.op(op).kind == OpKind::Load && reads_constant(func, op) {
                prefetches = true;
            } else if touches_memory(func, op) {
                return prefetches.then_some(Prefetch::Loads { until: op });
            }
        }
        None
    }

    /// The first copies of a loop that the function begins with.
    fn of_copies(lir: &LayoutIr) -> Option<Prefetch> {
        let func = &lir.func;
        let uses = func.count_uses();
        let mut deferred = Vec::new();
        let mut unknown: BTreeSet<Value> = BTreeSet::new();
        for &op in &func.region(func.body).ops {
            let data = func.op(op);
            if let Some(buffer) = lir.multistage.get(&op) {
                let knows = |values: &[Value]| values.iter().all(|v| !unknown.contains(v));
                let is_known = knows(&data.operands[..3])
                    && buffer.slice.iter().all(|&inner| knows(&func.op(inner).operands));
                let prefetches = is_known && has_constant_tiles(func, buffer);
                return prefetches.then_some(Prefetch::Copies { of: op, deferred });
            }
            let waits = match &data.kind {
                OpKind::Load => !reads_constant(func, op),
                kind if kind.is_per_thread() => false,
                _ if can_wait(lir, &uses, op) => true,
                _ => return None,
            };
            if waits || data.operands.iter().any(|v| unknown.contains(v)) {
                unknown.extend(&data.results);
                deferred.push(op);
            }
        }
        None
    }
}

/// Puts the wait for the primary grid in its place, and before it what may come before.
pub(super) fn run(code: &mut Code, lir: &LayoutIr, memory: &SharedMemory, gpu: &GpuTarget) {
    match Prefetch::of(lir, gpu) {
        Some(Prefetch::Loads { until }) => {
            let at = code.body.iter().position(|inst| inst.op() == Some(until)).unwrap_or(0);
            code.body.splice(at..at, [Inst::GridWait, Inst::LaunchDependents]);
        }
        Some(Prefetch::Copies { of, deferred }) => {
            let is_deferred = |inst: &Inst| inst.op().is_some_and(|op| deferred.contains(&op));
            let (later, now) = std::mem::take(&mut code.body).into_iter().partition(is_deferred);
            code.body = now;
            let prologue = prologue(lir, memory, of, later);
            for inst in &mut code.body {
                let Inst::For(inner) = inst else { continue };
                if inner.op == of {
                    (inner.prologue, inner.hoisted) = (prologue, true);
                    break;
                }
            }
        }
        None => {}
    }
}

/// The prologue of a loop over a multistage buffer: copies of constant tiles, the wait, all others, what was deferred.
fn prologue(lir: &LayoutIr, memory: &SharedMemory, of: Op, deferred: Block) -> Block {
    let Some(buffer) = lir.multistage.get(&of) else { return deferred };
    let expander = Expander::new(lir, memory);
    let is_early = |load: &StagedLoad| reads_constant(&lir.func, load.op) && load.is_async(lir);
    let mut block = Block::new();
    for ahead in 0..buffer.stages - 1 {
        block.extend(expander.copies(of, buffer, ahead, &is_early));
    }
    block.extend([Inst::GridWait, Inst::LaunchDependents]);
    block.extend(expander.first_copies(of, buffer, &|load| !is_early(load)));
    block.extend(deferred);
    block
}

/// Whether an op, or one inside of it, reads or writes global memory.
fn touches_memory(func: &Func, op: Op) -> bool {
    let inside = func.op(op).regions.iter().flat_map(|&region| func.walk_in(region));
    inside.chain([op]).any(|inner| {
        let kind = &func.op(inner).kind;
        kind.has_effect() || matches!(kind, OpKind::Load | OpKind::ViewLoad)
    })
}

/// Whether a load reads memory that no kernel in flight writes.
fn reads_constant(func: &Func, load: Op) -> bool {
    let base = base(func, func.op(load).operands[0]);
    func.params.iter().any(|param| Some(param.value) == base && param.attrs.constant)
}

/// Whether what is neither a load nor per thread, such as a sum of what was loaded, may be deferred: it has no effect,
/// and its scratch in shared memory is its own, and not that of the ring's slots (see [`super::membar`]).
fn can_wait(lir: &LayoutIr, uses: &[u32], op: Op) -> bool {
    let func = &lir.func;
    let inside = func.op(op).regions.iter().flat_map(|&region| func.walk_in(region));
    inside.chain([op]).all(|inner| {
        let is_small = scratch_bytes(lir, uses, inner) <= SMALL_BYTES;
        is_small && !lir.multistage.contains_key(&inner) && !func.op(inner).kind.has_effect()
    })
}

/// Whether some tile of a ring is constant, and the addresses of all tiles are computed without memory.
fn has_constant_tiles(func: &Func, ring: &MultistageBuffer) -> bool {
    let reads = |&op: &Op| func.op(op).kind == OpKind::Load && ring.load(op).is_none();
    ring.loads.iter().any(|load| reads_constant(func, load.op)) && !ring.slice.iter().any(reads)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::codegen::nvptx::compile;
    use crate::ir::parse;
    use crate::layout::{LayoutOptions, assign};
    use crate::machine::RunBy;
    use crate::machine::golden::changes;
    use crate::machine::tests::MATMUL as TEXT;
    use crate::passes::{self, views};

    fn ptx(constant: &str, gpu: &GpuTarget) -> String {
        ptx_of(&TEXT.replace("CONSTANT", constant), gpu)
    }

    fn ptx_of(text: &str, gpu: &GpuTarget) -> String {
        let func = parse(text).unwrap();
        let mut func = views::run(&func).unwrap();
        passes::run(&mut func, passes::PIPELINE);
        passes::run(&mut func, passes::NVPTX);
        let options = LayoutOptions { num_warps: Some(4), ..Default::default() };
        compile(&assign(&func, &options).unwrap(), gpu).unwrap().ptx
    }

    /// What of these a kernel does, in order; what repeats is there once.
    fn order(ptx: &str) -> Vec<&'static str> {
        let known = [
            "cp.async.cg",
            "griddepcontrol.wait",
            "launch_dependents",
            "ld.global",
            "commit_group",
        ];
        let mut found = Vec::new();
        for line in ptx.lines() {
            let word = known.iter().copied().find(|word| line.contains(word));
            found.extend(word.filter(|&word| found.last() != Some(&word)));
        }
        found
    }

    #[test]
    fn the_wait_moves_behind_the_copies_of_constant_tiles() {
        let func = parse(&TEXT.replace("CONSTANT", "constant")).unwrap();
        let mut func = views::run(&func).unwrap();
        passes::run(&mut func, passes::PIPELINE);
        passes::run(&mut func, passes::NVPTX);
        let options = LayoutOptions { num_warps: Some(4), ..Default::default() };
        let lir = assign(&func, &options).unwrap();
        expect![[r#"
              ..
              exec 2                                  // mul
            - exec 3                                  // load
            - exec 4                                  // broadcast
              exec 5                                  // const
              ..
              exec 44                                 // add
            - for 45 {
            + for 45 hoisted {
                prologue {
              ..
                  copy 58+0 0..4096                   // load
            +     addresses 45+1                      // for
            +     copy 58+1 8192..12288               // load
            +     addresses 45+2                      // for
            +     copy 58+2 16384..20480              // load
            +     wait.grid
            +     launch.dependents
            +     addresses 45+0                      // for
                  copy 67+0 4096..8192                // load
              ..
                  addresses 45+1                      // for
            -     copy 58+1 8192..12288               // load
                  copy 67+1 12288..16384              // load
              ..
                  addresses 45+2                      // for
            -     copy 58+2 16384..20480              // load
                  copy 67+2 20480..24576              // load
              ..
                  finish 45                           // for
            +     exec 3                              // load
            +     exec 4                              // broadcast
                }
              ..
        "#]]
        .assert_eq(&changes(&lir, RunBy::Block, "prologue_prefetch"));
    }

    #[test]
    fn constant_tiles_are_asked_for_before_the_wait_and_all_else_behind() {
        let prologue_prefetch = order(&ptx("constant", &GpuTarget::SM_90A));
        let first = [
            "cp.async.cg",
            "griddepcontrol.wait",
            "launch_dependents",
            "cp.async.cg",
            "commit_group",
        ];
        assert_eq!(prologue_prefetch[..5], first);
        assert!(prologue_prefetch[5..].contains(&"ld.global"));
        assert!(!ptx("constant", &GpuTarget::SM_90A).contains("ld.global.nc"));
        let usual = order(&ptx("", &GpuTarget::SM_90A));
        assert_eq!(usual[..3], ["griddepcontrol.wait", "ld.global", "cp.async.cg"]);
        assert!(!order(&ptx("constant", &GpuTarget::SM_80)).contains(&"griddepcontrol.wait"));
    }

    #[test]
    fn sums_before_the_loop_are_put_off_where_their_scratch_is_their_own() {
        let sum = "  %17 = iota : i64[256]\n  %18 = broadcast %d : *f32[256]\n  \
                   %19 = ptr_add %18, %17 : *f32[256]\n  %20 = load %19 : f32[256]\n  \
                   %3 = reduce add 0 %20 : f32\n";
        let text = TEXT.replace("  %3 = load %d : f32\n", sum);
        let prologue_prefetch =
            order(&ptx_of(&text.replace("CONSTANT", "constant"), &GpuTarget::SM_90A));
        let first = ["cp.async.cg", "griddepcontrol.wait", "launch_dependents", "cp.async.cg"];
        assert_eq!(prologue_prefetch[..4], first);
        let at = |word| prologue_prefetch.iter().position(|&w| w == word);
        assert!(
            at("commit_group") < at("ld.global") && at("ld.global").is_some(),
            "{prologue_prefetch:?}"
        );
    }

    #[test]
    fn a_wait_is_not_put_behind_what_changes_memory() {
        let text = TEXT.replace("  %5 = const 0.0", "  store %q, %3\n  %5 = const 0.0");
        let text = text.replace("%d: *f32 readonly", "%d: *f32 readonly, %q: *f32 exclusive");
        let func = parse(&text.replace("CONSTANT", "constant")).unwrap();
        let mut func = views::run(&func).unwrap();
        passes::run(&mut func, passes::PIPELINE);
        let lir =
            assign(&func, &LayoutOptions { num_warps: Some(4), ..Default::default() }).unwrap();
        assert!(!lir.multistage.is_empty() && Prefetch::of(&lir, &GpuTarget::SM_90A).is_none());
    }

    /// Loads of one number each, of which the first need not wait.
    const LOADS: &str = "
kernel k(%a: *f32 readonly constant, %b: *f32 readonly, %c: *f32 readonly constant, %y: *f32 exclusive) {
  %0 = load %a : f32
  %1 = load %b : f32
  %2 = load %c : f32
  %3 = add %0, %1 : f32
  %4 = add %3, %2 : f32
  store %y, %4
  return
}
";

    #[test]
    fn constant_memory_is_read_before_the_wait_up_to_what_is_not() {
        let waits = |text: &str, gpu: &GpuTarget| {
            let ptx = ptx_of(text, gpu);
            let at = ptx.find("griddepcontrol.wait").unwrap_or(ptx.len());
            [&ptx[..at], &ptx[at..]].map(|part| part.matches("ld.global").count())
        };
        assert_eq!(waits(LOADS, &GpuTarget::SM_90A), [1, 2]);
        assert!(!ptx_of(LOADS, &GpuTarget::SM_90A).contains("ld.global.nc"));
        // As they are, nothing may come before the wait; older GPUs have none.
        assert_eq!(waits(&LOADS.replace(" constant", ""), &GpuTarget::SM_90A), [0, 3]);
        assert_eq!(waits(LOADS, &GpuTarget::SM_80), [3, 0]);
    }
}
