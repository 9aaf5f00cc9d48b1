//! Lines that the copy engine brings beside MMA operands, such as the scales of a block's rows, are read from their stage as
//! late as can be, where the loop carries so many registers that its MMAs leave none.
//!
//! A line is read before the first op that needs it, at the latest before the MMA that hands its stage back. An op that
//! only gives it another shape moves along.
//!
//! ```text
//! exec 4     %s = tma_load 2 ..                     mma 8    %c = dot ..
//! exec 5     %t = expand_dims 1 %s        ->        exec 4
//! mma 8      %c = dot ..                            exec 5
//! exec 9     %d = mul %c, %t                        exec 9
//! ```

use std::collections::BTreeMap;

use super::{Block, Code, Inst};
use crate::ir::{Op, OpKind, Region, TmaLoad, Value};
use crate::layout::LayoutIr;

/// Registers that a loop carries beyond which lines are read late.
const MANY_HELD: u32 = 96;

/// Moves the loads of lines in a function.
pub(super) fn run(code: &mut Code, lir: &LayoutIr) {
    let mut pass = LateLoads { lir, unread: BTreeMap::new() };
    pass.region(lir.func.body, &mut code.body);
}

struct LateLoads<'a> {
    lir: &'a LayoutIr,
    /// What was not read yet, with the ops that read or rename it.
    unread: BTreeMap<Value, Op>,
}

impl LateLoads<'_> {
    fn region(&mut self, region: Region, block: &mut Block) {
        let mut done = Block::new();
        for mut inst in std::mem::take(block) {
            if self.is_put_off(&inst, region) {
                continue;
            }
            self.read_before(&inst, &mut done);
            for (inner, block) in inst.regions_mut(&self.lir.func) {
                self.region(inner, block);
            }
            if let Inst::Mma(mma) = &inst {
                self.read_rest(&mma.takes, &mut done);
            }
            done.push(inst);
        }
        *block = done;
    }

    /// Whether an instruction reads a line that can wait, or gives another shape to one that was not read yet.
    fn is_put_off(&mut self, inst: &Inst, region: Region) -> bool {
        let Inst::Exec { op, .. } = *inst else { return false };
        let data = self.lir.func.op(op);
        let waits = match data.kind {
            OpKind::TmaLoad(number) => {
                let load = self.lir.func.tma.loads.get(usize::from(number));
                load.is_some_and(|load| load.registers && self.is_late(load, region))
            }
            OpKind::Reshape | OpKind::ExpandDims { .. } | OpKind::Broadcast => {
                self.unread.contains_key(&data.operands[0])
            }
            _ => false,
        };
        if waits {
            self.unread.insert(data.results[0], op);
        }
        waits
    }

    fn is_late(&self, load: &TmaLoad, region: Region) -> bool {
        let func = &self.lir.func;
        let is_line = func.tma.maps.get(usize::from(load.map)).is_some_and(|m| m.swizzle == 0);
        let args = &func.region(region).args;
        is_line && args.iter().map(|&arg| self.lir.num_regs(arg)).sum::<u32>() > MANY_HELD
    }

    /// Reads what an instruction needs of lines that were not read yet.
    fn read_before(&mut self, inst: &Inst, done: &mut Block) {
        let Some(op) = inst.op().filter(|_| !self.unread.is_empty()) else { return };
        let func = &self.lir.func;
        let regions = &func.op(op).regions;
        let inside = regions.iter().flat_map(|&region| func.walk_in(region)).chain([op]);
        let needed: Vec<Value> = inside.flat_map(|op| func.op(op).operands.clone()).collect();
        needed.into_iter().for_each(|value| self.read(value, done));
    }

    /// Reads the lines of stages that are about to go back.
    fn read_rest(&mut self, channels: &[u8], done: &mut Block) {
        let of_these = |op: Op| match self.lir.func.op(op).kind {
            OpKind::TmaLoad(number) => {
                channels.contains(&self.lir.func.tma.loads[usize::from(number)].channel)
            }
            _ => false,
        };
        let rest: Vec<Value> =
            self.unread.iter().filter(|&(_, &op)| of_these(op)).map(|(&value, _)| value).collect();
        rest.into_iter().for_each(|value| self.read(value, done));
    }

    fn read(&mut self, value: Value, done: &mut Block) {
        let Some(op) = self.unread.remove(&value) else { return };
        if !matches!(self.lir.func.op(op).kind, OpKind::TmaLoad(_)) {
            self.read(self.lir.func.op(op).operands[0], done);
        }
        done.push(Inst::exec(op));
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::machine::RunBy;
    use crate::machine::golden::{changes, on_hopper};
    use crate::prelude::*;

    /// Two products of the same tiles, between which columns are scaled.
    #[kernel]
    fn scaled<X: Float, const M: usize, const N: usize, const D: usize>(
        q: View<X, 2>,
        k: View<X, 2>,
        l: View<f32, 1>,
        y: ViewMut<X, 2>,
    ) {
        let rows = q.load::<M, D>([program_id(0) * M, 0]);
        let mut acc = zeros::<f32, M, D>();
        for j in range(0, k.dim(0), N) {
            let tile = k.load::<N, D>([j, 0]);
            let scale = l.load::<N>([j]);
            let s = dot(rows, tile.trans(), zeros::<f32, M, N>());
            acc = dot((s * scale.row()).to::<X>(), tile, acc);
        }
        y.store([program_id(0) * M, 0], acc.to::<X>());
    }

    #[test]
    fn a_line_is_read_behind_the_products_that_leave_no_registers() {
        let lir = on_hopper(&scaled::KERNEL, &[128, 64, 256], 8);
        expect![[r#"
              ..
                exec 11                               // tma_load
            -   exec 12                               // tma_load
                mma 13                                // dot
            +   wait.mma 13 pending 0
            +   exec 12                               // tma_load
                exec 14                               // expand_dims
                exec 15                               // broadcast
            -   wait.mma 13 pending 0
                exec 16                               // mul
              ..
        "#]]
        .assert_eq(&changes(&lir, RunBy::Consumers, "late_loads"));
    }
}
