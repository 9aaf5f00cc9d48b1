//! What a kernel asks for before it waits for the kernel ahead of it.
//!
//! Between two kernels that depend on each other memory is idle: the last blocks of one end, and the first copies of
//! the next are still to come. A kernel that reads memory which nobody writes (`constant` parameters, the weights of a
//! model) need not wait for that. Where a function begins with a loop whose tiles are copied ahead (see
//! [`super::ring`]), the copies of such tiles come first, and the wait behind them:
//!
//! ```text
//! addresses                               of params and program ids
//! cp.async  weights of the first slots
//! griddepcontrol.wait                     all that earlier kernels wrote is there from here on
//! griddepcontrol.launch_dependents        the kernel behind may ask for its own
//! cp.async  activations of the first slots, a group for each slot
//! loads that stood before the loop        put off until now, with what is computed from them
//! the loop
//! ```
//!
//! Loads of other memory stay behind the wait: none is marked as invariant, and no parameter beside the constant ones
//! as one that nobody writes.
//!
//! Any other function waits before the first op that touches memory which is not constant, where constant memory is
//! read ahead of it: what a kernel should ask for first, it loads first.
//!
//! ```text
//! ld.global  lengths, pages, older keys
//! griddepcontrol.wait
//! griddepcontrol.launch_dependents
//! ld.global  queries
//! ```
//!
//! These loads have an order too: an invariant one could move behind the wait, to where its value is used.

use std::collections::BTreeSet;

use super::super::llvm::Val;
use super::ahead::ahead;
use super::lower::{Lowering, Registers, scratch_bytes};
use super::overlap;
use super::shared::SMALL_BYTES;
use crate::Error;
use crate::analysis::base;
use crate::ir::{Func, Op, OpKind, ParamAttrs, Value};
use crate::layout::{LayoutIr, Ring, RingLoad};
use crate::target::GpuTarget;

/// When a kernel waits for the one ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// Before all else.
    First,
    /// Behind its first copies to shared memory.
    BehindCopies,
    /// Behind loads to registers.
    BehindLoads,
}

impl Wait {
    pub(super) fn of(lir: &LayoutIr, gpu: &GpuTarget) -> Wait {
        match Early::of(lir, gpu) {
            Some(early) if !lir.rings.contains_key(&early.at) => Wait::BehindLoads,
            Some(_) => Wait::BehindCopies,
            None if ahead(lir, gpu).is_some() => Wait::BehindCopies,
            None => Wait::First,
        }
    }

    /// Whether memory behind a parameter for reading may be written while the kernel runs, as far as the order of
    /// its loads goes.
    pub(super) fn orders(self, attrs: &ParamAttrs) -> bool {
        match self {
            Wait::First => false,
            Wait::BehindCopies => !attrs.constant,
            Wait::BehindLoads => true,
        }
    }
}

/// How a kernel waits behind its first copies or loads.
#[derive(Clone, Debug)]
pub(super) struct Early {
    /// What the wait stands before: the loop whose constant tiles are copied first, or the first op that touches
    /// other memory.
    at: Op,
    /// Ops before the loop that must stay behind the wait, in order.
    deferred: Vec<Op>,
    /// Whether the wait is still to come.
    is_ahead: bool,
    /// Loads of the first slots that are on their way.
    copied: BTreeSet<Op>,
}

impl Early {
    /// How a function waits; none where it asks for nothing first.
    pub(super) fn of(lir: &LayoutIr, gpu: &GpuTarget) -> Option<Early> {
        if !gpu.features.pdl || lir.producer.is_some() || lir.num_blocks > 1 {
            return None;
        }
        Early::of_ring(lir).or_else(|| Early::of_loads(&lir.func))
    }

    /// Behind loads of constant memory.
    fn of_loads(func: &Func) -> Option<Early> {
        let mut asks = false;
        for &op in &func.region(func.body).ops {
            if func.op(op).kind == OpKind::Load && reads_constant(func, op) {
                asks = true;
            } else if touches_memory(func, op) {
                let (deferred, copied) = (Vec::new(), BTreeSet::new());
                return asks.then_some(Early { at: op, deferred, is_ahead: true, copied });
            }
        }
        None
    }

    /// Behind the first copies of a loop that the function begins with.
    fn of_ring(lir: &LayoutIr) -> Option<Early> {
        let func = &lir.func;
        let uses = func.count_uses();
        let mut deferred = Vec::new();
        let mut unknown: BTreeSet<Value> = BTreeSet::new();
        for &op in &func.region(func.body).ops {
            let data = func.op(op);
            if let Some(ring) = lir.rings.get(&op) {
                let is_known = data.operands[..3].iter().all(|v| !unknown.contains(v))
                    && ring
                        .slice
                        .iter()
                        .all(|&inner| func.op(inner).operands.iter().all(|v| !unknown.contains(v)));
                let early = Early { at: op, deferred, is_ahead: true, copied: BTreeSet::new() };
                return (is_known && has_constant_tiles(func, ring)).then_some(early);
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

/// Whether an op, or one inside of it, reads or writes global memory.
fn touches_memory(func: &Func, op: Op) -> bool {
    let inside = func.op(op).regions.iter().flat_map(|&region| func.walk_in(region));
    inside.chain([op]).any(|inner| {
        let kind = &func.op(inner).kind;
        kind.has_effect() || matches!(kind, OpKind::Load | OpKind::ViewLoad)
    })
}

/// Whether a load reads memory that no kernel writes which may still run.
fn reads_constant(func: &Func, load: Op) -> bool {
    let base = base(func, func.op(load).operands[0]);
    func.params.iter().any(|param| Some(param.value) == base && param.attrs.constant)
}

/// Whether what is neither a load nor per thread, such as a sum of what was loaded, may be put off: it has no effect,
/// and its scratch in shared memory is its own, and not that of the ring's slots (see [`super::shared`]).
fn can_wait(lir: &LayoutIr, uses: &[u32], op: Op) -> bool {
    let func = &lir.func;
    let inside = func.op(op).regions.iter().flat_map(|&region| func.walk_in(region));
    inside.chain([op]).all(|inner| {
        let is_small = scratch_bytes(lir, uses, inner) <= SMALL_BYTES;
        is_small && !lir.rings.contains_key(&inner) && !func.op(inner).kind.has_effect()
    })
}

/// Whether some tile of a ring is constant, and the addresses of all tiles are computed without memory.
fn has_constant_tiles(func: &Func, ring: &Ring) -> bool {
    let reads = |&op: &Op| func.op(op).kind == OpKind::Load && ring.load(op).is_none();
    ring.loads.iter().any(|load| reads_constant(func, load.op)) && !ring.slice.iter().any(reads)
}

impl Lowering<'_> {
    /// Whether an op is lowered behind the wait, and not where it stands.
    pub(super) fn is_deferred(&self, op: Op) -> bool {
        self.early.as_ref().is_some_and(|early| early.is_ahead && early.deferred.contains(&op))
    }

    /// Whether a tile's first slots are on their way before the ring is filled.
    pub(super) fn is_asked_for(&self, load: Op) -> bool {
        self.early.as_ref().is_some_and(|early| early.copied.contains(&load))
    }

    /// Whether loads of a parameter's memory need no order: nobody writes it, or has while the kernel waits.
    pub(super) fn is_invariant(&self, param: u32) -> bool {
        let attrs = &self.func.params[param as usize].attrs;
        attrs.readonly && !self.wait.orders(attrs)
    }

    /// Waits for the kernel ahead, if this op is the first that must not come before.
    pub(super) fn wait_before(&mut self, op: Op) {
        let is_ring = self.lir.rings.contains_key(&op);
        let Some(early) = self.early.as_mut() else { return };
        if early.is_ahead && early.at == op && !is_ring {
            early.is_ahead = false;
            overlap::wait_and_let_go(self.e);
        }
    }

    /// Asks for the constant tiles of a ring, waits for the kernel ahead, asks for the other tiles, and does what was
    /// put off. Where the ring's first slots are on their way, gives the indices of the iteration behind them.
    pub(super) fn ask_early(
        &mut self,
        op: Op,
        ring: &Ring,
        bounds: [Val; 3],
    ) -> Result<Option<Vec<Registers>>, Error> {
        let Some(early) = self.early.as_mut().filter(|early| early.is_ahead && early.at == op)
        else {
            return Ok(None);
        };
        early.is_ahead = false;
        let deferred = std::mem::take(&mut early.deferred);
        let of_weights =
            |load: &&RingLoad| reads_constant(self.func, load.op) && self.is_direct(load);
        let copied: BTreeSet<Op> =
            ring.loads.iter().filter(of_weights).map(|load| load.op).collect();
        self.fill_tiles(op, ring, (bounds, &copied))?;
        if let Some(early) = &mut self.early {
            early.copied = copied;
        }
        overlap::wait_and_let_go(self.e);
        let indices = self.fill(op, ring, bounds)?;
        for op in deferred {
            self.next_op(op)?;
        }
        Ok(Some(indices))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::nvptx::compile;
    use crate::ir::parse;
    use crate::layout::{LayoutOptions, assign};
    use crate::passes::{self, views};

    /// A product with something that is loaded before its loop and added behind it.
    const TEXT: &str = "
kernel k(%a: view<bf16,2> readonly CONSTANT unit_stride multiple_of 16 stride_multiple_of 16, %b: view<bf16,2> readonly unit_stride multiple_of 16 stride_multiple_of 16, %d: *f32 readonly, %c: view<f32,2> exclusive unit_stride multiple_of 16 stride_multiple_of 16) {
  %0 = program_id 0 : i64
  %1 = const 64 : i64
  %2 = mul %0, %1 : i64
  %3 = load %d : f32
  %4 = broadcast %3 : f32[64x64]
  %5 = const 0.0 : f32
  %6 = broadcast %5 : f32[64x64]
  %7 = const 0 : i64
  %8 = view_dim 1 %a : i64
  %9 = const 32 : i64
  %10 = for %11 = %7 to %8 step %9 carry (%12 = %6) {
    %13 = view_load %a, %2, %11 : bf16[64x32]
    %14 = view_load %b, %11, %7 : bf16[32x64]
    %15 = dot ieee %13, %14, %12 : f32[64x64]
    yield %15
  } : f32[64x64]
  %16 = add %10, %4 : f32[64x64]
  view_store %c, %16, %2, %7
  return
}
";

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
    fn constant_tiles_are_asked_for_before_the_wait_and_all_else_behind() {
        let early = order(&ptx("constant", &GpuTarget::SM_90A));
        let first = [
            "cp.async.cg",
            "griddepcontrol.wait",
            "launch_dependents",
            "cp.async.cg",
            "commit_group",
        ];
        assert_eq!(early[..5], first);
        assert!(early[5..].contains(&"ld.global"));
        assert!(!ptx("constant", &GpuTarget::SM_90A).contains("ld.global.nc"));
        let usual = order(&ptx("", &GpuTarget::SM_90A));
        assert_eq!(usual[..2], ["griddepcontrol.wait", "cp.async.cg"]);
        assert!(!order(&ptx("constant", &GpuTarget::SM_80)).contains(&"griddepcontrol.wait"));
    }

    #[test]
    fn sums_before_the_loop_are_put_off_where_their_scratch_is_their_own() {
        let sum = "  %17 = iota : i64[256]\n  %18 = broadcast %d : *f32[256]\n  \
                   %19 = ptr_add %18, %17 : *f32[256]\n  %20 = load %19 : f32[256]\n  \
                   %3 = reduce add 0 %20 : f32\n";
        let text = TEXT.replace("  %3 = load %d : f32\n", sum);
        let early = order(&ptx_of(&text.replace("CONSTANT", "constant"), &GpuTarget::SM_90A));
        let first = ["cp.async.cg", "griddepcontrol.wait", "launch_dependents", "cp.async.cg"];
        assert_eq!(early[..4], first);
        let at = |word| early.iter().position(|&w| w == word);
        assert!(at("commit_group") < at("ld.global") && at("ld.global").is_some(), "{early:?}");
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
        assert!(!lir.rings.is_empty() && Early::of(&lir, &GpuTarget::SM_90A).is_none());
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
