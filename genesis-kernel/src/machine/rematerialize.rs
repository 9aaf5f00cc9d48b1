//! Rematerializes thread-dependent indices next to MMAs, to cut register pressure.
//!
//! Accumulators take most of a thread's registers. What follows from the thread index alone, such as the positions that a
//! mask compares, LLVM's GVN and LICM would compute once before all loops, where it stays live across the MMAs and takes
//! their registers, or is spilled. So a branch that most iterations skip, and the epilogue behind a loop of MMAs, compute
//! these indices again, from a thread index that is opaque to LLVM:
//!
//! ```text
//! for .. {
//!   mma
//!   if at_an_edge {
//!     rematerialize 4, 5       %4 = iota : i64[64], and what follows from it
//!     ..
//!   }
//! }
//! rematerialize 4, 5, 9        up to the end of the block
//! ..
//! ```

use std::collections::BTreeSet;

use super::{Block, Code, Inst};
use crate::ir::{Elem, Func, Op, OpKind, Region, Value};
use crate::layout::{DotUnit, LayoutIr};

/// Says which indices are computed anew, and where.
pub(super) fn run(code: &mut Code, lir: &LayoutIr) {
    let pass = Rematerialize { lir, func: &lir.func };
    pass.region(lir.func.body, false, &mut code.body);
}

struct Rematerialize<'a> {
    lir: &'a LayoutIr,
    func: &'a Func,
}

impl Rematerialize<'_> {
    /// A region, which is inside of a loop of MMAs or not.
    fn region(&self, region: Region, next_to_mma: bool, block: &mut Block) {
        for inst in block.iter_mut() {
            let regions = inst.op().map(|op| self.func.op(op).regions.clone()).unwrap_or_default();
            match inst {
                Inst::For(inner) => {
                    let inside = next_to_mma || self.multiplies(inner.op);
                    self.region(regions[0], inside, &mut inner.body);
                }
                Inst::While { condition, body, .. } => {
                    self.region(regions[0], next_to_mma, condition);
                    self.region(regions[1], next_to_mma, body);
                }
                Inst::If { then, otherwise, .. } => {
                    for (&branch, way) in regions.iter().zip([then, otherwise]) {
                        self.region(branch, next_to_mma, way);
                        let inside = self.func.walk_in(branch);
                        if next_to_mma && inside.len() > 1 {
                            way.insert(0, Inst::Rematerialize(self.indices_of(&inside)));
                        }
                    }
                }
                _ => {}
            }
        }
        self.epilogue(region, block);
    }

    /// Rematerializes the indices of what follows a region's last loop with MMAs.
    fn epilogue(&self, region: Region, block: &mut Block) {
        let ops = &self.func.region(region).ops;
        let Some(last) = ops.iter().rposition(|&op| self.multiplies(op)) else { return };
        let epilogue = &ops[last + 1..];
        let Some(at) = block.iter().position(|inst| inst.op() == Some(ops[last])) else { return };
        if epilogue.len() < 2 {
            return;
        }
        let releases = |inst: &&Inst| {
            matches!(inst, Inst::WaitMma { .. } | Inst::Release { .. } | Inst::ReleaseResident(_))
                || matches!(inst, Inst::SchedulingBarrier(_))
        };
        let at = at + 1 + block[at + 1..].iter().take_while(releases).count();
        let inside: Vec<Op> = epilogue.iter().flat_map(|&op| self.within(op)).collect();
        block.insert(at, Inst::Rematerialize(self.indices_of(&inside)));
    }

    fn within(&self, op: Op) -> Vec<Op> {
        let regions = &self.func.op(op).regions;
        let inside = regions.iter().flat_map(|&region| self.func.walk_in(region));
        [op].into_iter().chain(inside).collect()
    }

    /// Whether MMAs stand inside of an op.
    fn multiplies(&self, op: Op) -> bool {
        let is_mma = |op: &Op| {
            self.lir.dots.get(op).is_some_and(|plan| matches!(plan.unit, DotUnit::Wgmma(_)))
        };
        self.within(op).iter().skip(1).any(is_mma)
    }

    /// The ops outside of some ops that compute indices which these read, in program order.
    fn indices_of(&self, inside: &[Op]) -> Vec<Op> {
        let mut indices = BTreeSet::new();
        for &value in inside.iter().flat_map(|&op| &self.func.op(op).operands) {
            self.add_indices(value, inside, &mut indices);
        }
        self.func.walk().into_iter().filter(|op| indices.contains(op)).collect()
    }

    /// Adds the slice that computes an index tile or mask from iotas and scalars; false if it needs more.
    fn add_indices(&self, value: Value, inside: &[Op], indices: &mut BTreeSet<Op>) -> bool {
        let Some(tile) = self.func.ty(value).as_tile() else { return false };
        if tile.shape.is_scalar() {
            return true;
        }
        let Some(op) = self.func.def_op(value).filter(|op| !inside.contains(op)) else {
            return false;
        };
        let data = self.func.op(op);
        let is_index = matches!(tile.elem, Elem::Data(dtype) if !dtype.is_float())
            && (data.kind == OpKind::Iota || data.kind.is_elementwise() || data.kind.is_view());
        if !is_index {
            return false;
        }
        let mut wanted = BTreeSet::new();
        if data.operands.iter().all(|&operand| self.add_indices(operand, inside, &mut wanted)) {
            indices.append(&mut wanted);
            indices.insert(op);
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::machine::RunBy;
    use crate::machine::golden::{changes, on_hopper};
    use crate::prelude::*;

    /// A product whose rows below the diagonal are zero.
    #[kernel]
    fn upper<X: Float, const M: usize, const N: usize, const K: usize>(
        a: View<X, 2>,
        b: View<X, 2>,
        y: ViewMut<X, 2>,
    ) {
        let mut acc = zeros::<f32, M, N>();
        for p in range(0, a.dim(1), K) {
            acc = dot(a.load::<M, K>([program_id(0) * M, p]), b.load::<K, N>([p, 0]), acc);
        }
        let below = arange::<M>().col() > arange::<N>().row();
        let kept = where_(below, zeros::<f32, M, N>(), acc);
        y.store([program_id(0) * M, 0], kept.to::<X>());
    }

    #[test]
    fn an_epilogue_computes_its_indices_anew() {
        let lir = on_hopper(&upper::KERNEL, &[128, 128, 64], 8);
        expect![[r#"
              ..
              }
            + rematerialize
              exec 12                                 // iota
              ..
        "#]]
        .assert_eq(&changes(&lir, RunBy::Consumers, "rematerialize"));
    }
}
