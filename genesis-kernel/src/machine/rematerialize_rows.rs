//! Rematerializes long rows of 16-bit floats after barriers, from their packed registers.
//!
//! The code between two barriers of a program is a *stage* here. A tile of many registers that an earlier stage
//! computed from loaded 16-bit floats, masks and a few scalars a thread would stay live across the barrier, one
//! 32-bit register an element. Rematerialized from the packed pairs it keeps half of one, which raises occupancy: more
//! blocks fit on a multiprocessor, whose loads go on while one block waits.
//!
//! ```text
//! stage 0   w = load bf16;  max(f32(w))          keeps w
//! stage 1   sum(exp(f32(w) - max))               keeps w
//! stage 2   store(exp(f32(w) - max) * scale)     instead of keeping f32(w), then exp(..)
//! ```
//!
//! In machine IR, of stage 1:
//!
//! ```text
//! barrier
//! load.shared 5.0 0..16         max
//! exec 6                        broadcast
//! recompute 4 packed y          %4 = cast %3, of the packed words of load 3
//! exec 7                        %7 = sub %4, %6
//! select 7 anew 0               its operand 0 is what was recomputed
//! ```
//!
//! GVN and ptxas would see a common subexpression and keep the first result. So the packed words of each later stage
//! are XORed with a zero that is opaque to both: whether the block's index along an axis reaches the number of blocks.
//! Stages take the axes in turn.

use std::collections::BTreeMap;

use super::selection::{Cast, Guard, Register, Selection};
use super::{Anew, Block, Code, Inst};
use crate::ir::{DType, Op, OpKind, Value};
use crate::layout::{Conversion, LayoutIr};

/// Registers of a tile from which on rematerialization pays; smaller ones cause no register pressure.
const MANY_REGISTERS: u32 = 32;
/// Ops that may be rematerialized for an element.
const MOST_OPS: usize = 12;
/// Distinct registers a thread may keep live in place of a whole tile.
const FEW_VALUES: usize = 4;

/// Adds the instructions that recompute rows, and selects the operands that are read from them.
pub(super) fn run(code: &mut Code, lir: &LayoutIr) {
    let selection = std::mem::take(&mut code.selection);
    let mut pass = RematerializeRows {
        lir,
        selection: &selection,
        born: vec![None; lir.func.n_values()],
        here: Place { region: 0, stage: 0 },
        regions: 0,
        recomputed: BTreeMap::new(),
        anew: BTreeMap::new(),
        packed: BTreeMap::new(),
    };
    pass.block(0, &mut code.body);
    let mut words: BTreeMap<usize, u32> = BTreeMap::new();
    for (region, count) in pass.packed.into_values() {
        *words.entry(region).or_insert(0) += count;
    }
    let (anew, packed_words) = (pass.anew, words.into_values().max().unwrap_or(0));
    code.selection = Selection { anew, packed_words, ..selection };
}

/// Where an instruction stands.
#[derive(Clone, Copy)]
struct Place {
    /// The number of the region.
    region: usize,
    /// Barriers so far.
    stage: u32,
}

struct RematerializeRows<'a> {
    lir: &'a LayoutIr,
    selection: &'a Selection,
    /// Where each value got its registers.
    born: Vec<Option<Place>>,
    here: Place,
    /// Regions so far.
    regions: usize,
    /// The stage in which each value was recomputed last.
    recomputed: BTreeMap<Value, u32>,
    /// The operands of each op that are read from what was recomputed.
    anew: BTreeMap<Op, Vec<usize>>,
    /// Loads of packed floats to rematerialize from: the region and their words.
    packed: BTreeMap<Value, (usize, u32)>,
}

impl RematerializeRows<'_> {
    /// Code of a region, in the order in which it is emitted.
    fn block(&mut self, region: usize, block: &mut Block) {
        let outer = std::mem::replace(&mut self.here.region, region);
        let mut done = Block::new();
        for mut inst in std::mem::take(block) {
            self.inside(&mut inst);
            match &inst {
                Inst::Barrier | Inst::ClusterBarrier | Inst::AwaitCluster(_) => {
                    self.here.stage += 1;
                }
                Inst::Exec { op, .. } => self.exec(*op, &mut done),
                _ => {}
            }
            done.push(inst);
        }
        *block = done;
        self.here.region = outer;
    }

    /// The blocks of an instruction.
    fn inside(&mut self, inst: &mut Inst) {
        let region = self.here.region;
        match inst {
            Inst::For(inner) => {
                self.block(region, &mut inner.prologue);
                if let Some(other) = &mut inner.other {
                    self.inner(other);
                }
                self.inner(&mut inner.body);
                self.block(region, &mut inner.left);
            }
            Inst::Once(body) | Inst::UnlessPrefetched { body, .. } => self.block(region, body),
            _ => inst.blocks_mut().into_iter().for_each(|block| self.inner(block)),
        }
    }

    /// A block that is a region of its own.
    fn inner(&mut self, block: &mut Block) {
        self.regions += 1;
        self.block(self.regions, block);
    }

    fn exec(&mut self, op: Op, block: &mut Block) {
        let data = self.lir.func.op(op);
        if self.reads_anew(op) {
            for (number, &value) in data.operands.iter().enumerate() {
                if self.is_worthwhile(value) {
                    self.recompute(value, block);
                    self.anew.entry(op).or_default().push(number);
                }
            }
        }
        for result in &data.results {
            self.born[result.index()] = Some(self.here);
        }
    }

    /// Whether an op reads registers that were recomputed: casts of pairs read packed ones, or others as they are.
    fn reads_anew(&self, op: Op) -> bool {
        let as_it_is =
            matches!(self.selection.casts.get(&op), Some(Cast::Codes { .. } | Cast::Float8));
        self.lir.func.op(op).kind.is_elementwise() && !as_it_is
    }

    fn is_worthwhile(&self, value: Value) -> bool {
        let mut ops = 0;
        self.is_of_earlier_stage(value)
            && self.is_wide(value)
            && self.can_recompute(value, &mut ops)
            && ops <= MOST_OPS
    }

    /// Whether a tile was computed before the last barrier, in the same region.
    fn is_of_earlier_stage(&self, value: Value) -> bool {
        let born = self.born[value.index()];
        born.is_some_and(|born| born.region == self.here.region && born.stage < self.here.stage)
    }

    fn is_wide(&self, value: Value) -> bool {
        let tile = self.lir.func.tile(value);
        let is_float = !tile.is_ptr() && tile.dtype() == DType::F32;
        is_float && self.lir.num_regs(value) >= MANY_REGISTERS
    }

    /// The loaded 16-bit floats that a value is a cast of.
    fn packed_source(&self, value: Value) -> Option<Value> {
        let data = self.lir.func.op(self.lir.func.def_op(value)?);
        let &[source] = data.operands.as_slice() else { return None };
        let is_half = matches!(self.lir.func.tile(source).dtype(), DType::F16 | DType::BF16);
        let load = self.lir.func.def_op(source)?;
        let in_words = self.lir.accesses.get(&load).is_some_and(|access| {
            access.groups.iter().all(|group| group.len() > 1 && group[1] == group[0] + 1)
        });
        let is_load = self.lir.func.op(load).kind == OpKind::Load;
        (data.kind == OpKind::Cast && is_half && is_load && in_words).then_some(source)
    }

    /// Whether a value can be recomputed from what takes few registers; counts the ops.
    fn can_recompute(&self, value: Value, ops: &mut usize) -> bool {
        let Some(op) = self.lir.func.def_op(value) else { return false };
        let data = self.lir.func.op(op);
        *ops += 1;
        if *ops > MOST_OPS || !self.is_of_earlier_stage(value) {
            return false;
        }
        if self.packed_source(value).is_some() {
            return true;
        }
        let is_simple = matches!(
            data.kind,
            OpKind::Unary(_) | OpKind::Binary(_) | OpKind::Select | OpKind::Fma
        );
        let wide = self.wide_operands(op);
        let mut recomputed = wide.iter().map(|&number| data.operands[number]);
        is_simple && !wide.is_empty() && recomputed.all(|value| self.can_recompute(value, ops))
    }

    /// The operands of an op that take many registers.
    fn wide_operands(&self, op: Op) -> Vec<usize> {
        let operands = self.lir.func.op(op).operands.iter().enumerate();
        operands.filter(|&(_, &value)| !self.is_kept(value)).map(|(number, _)| number).collect()
    }

    /// Whether a value takes few registers of a thread: masks, and values with few distinct registers.
    fn is_kept(&self, value: Value) -> bool {
        if self.lir.func.tile(value).dtype() == DType::Bool {
            return true;
        }
        let mut distinct: Vec<(Value, u32)> = Vec::new();
        for register in self.origins(value) {
            if !distinct.contains(&register) {
                distinct.push(register);
            }
            if distinct.len() > FEW_VALUES {
                return false;
            }
        }
        true
    }

    /// The register that each register of a value is, of a value that has its own.
    fn origins(&self, value: Value) -> Vec<(Value, u32)> {
        let own: Vec<(Value, u32)> =
            (0..self.lir.num_regs(value)).map(|reg| (value, reg)).collect();
        let Some(op) = self.lir.func.def_op(value) else { return own };
        let data = self.lir.func.op(op);
        let renamed = |map: Vec<u32>| {
            let from = self.origins(data.operands[0]);
            map.iter().map(|&reg| from[reg as usize]).collect()
        };
        match &data.kind {
            kind if kind.is_view() => self.lir.view_registers(op).map_or(own, renamed),
            OpKind::ConvertLayout => match self.lir.conversion(op) {
                Some(Conversion::Registers(map)) => renamed(map),
                _ => own,
            },
            OpKind::Select => {
                let picked = |(_, reg): (Value, u32)| match self
                    .selection
                    .masks
                    .register(op, reg as usize)
                {
                    Some(Register::Operand(i)) => (data.operands[i], reg),
                    _ => (value, reg),
                };
                own.into_iter().map(picked).collect()
            }
            _ => own,
        }
    }

    /// Adds the instructions that recompute a value, those of its operands first.
    fn recompute(&mut self, value: Value, block: &mut Block) {
        let Some(op) = self.lir.func.def_op(value) else { return };
        if self.recomputed.get(&value) == Some(&self.here.stage) {
            return;
        }
        let from = match self.packed_source(value) {
            Some(source) => {
                self.packed.insert(source, (self.here.region, self.words(source)));
                Anew::Packed((self.here.stage % 3) as u8)
            }
            None => {
                let wide = self.wide_operands(op);
                for &number in &wide {
                    self.recompute(self.lir.func.op(op).operands[number], block);
                }
                Anew::Operands(wide)
            }
        };
        block.push(Inst::Recompute { op, from });
        self.recomputed.insert(value, self.here.stage);
    }

    /// The words of what is loaded in any thread: not of what is padding in all of them.
    fn words(&self, source: Value) -> u32 {
        let Some(load) = self.lir.func.def_op(source) else { return 0 };
        let groups = self.lir.access(load).groups;
        let groups = groups.iter().enumerate();
        let loaded =
            groups.filter(|&(number, _)| self.selection.masks.guard(load, number) != Guard::Never);
        loaded.map(|(_, group)| group.len() as u32).sum::<u32>().div_ceil(2)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::machine::RunBy;
    use crate::machine::golden::{assigned, changes};

    /// A row of `N` 16-bit floats less its sum, by one warp, over so many columns.
    fn centered(columns: u32) -> String {
        let text = "
kernel centered(%x: *bf16 readonly multiple_of 16, %y: *f32 exclusive multiple_of 16) {
  %0 = iota : i64[N]
  %1 = broadcast %x : *bf16[N]
  %2 = ptr_add %1, %0 : *bf16[N]
  %3 = load %2 : bf16[N]
  %4 = cast %3 : f32[N]
  %5 = neg %4 : f32[N]
  %6 = reduce add 0 %5 : f32
  %7 = broadcast %6 : f32[N]
  %8 = add %5, %7 : f32[N]
  %9 = broadcast %y : *f32[N]
  %10 = ptr_add %9, %0 : *f32[N]
  store %10, %8
  return
}
";
        text.replace('N', &columns.to_string())
    }

    #[test]
    fn a_row_is_recomputed_after_the_barrier_of_its_sum() {
        let lir = assigned(&centered(8192), 4);
        expect![[r#"
              ..
              exec 7                                  // broadcast
            + recompute 4 packed y                    // cast
            + recompute 5 anew 0                      // neg
              exec 8                                  // add
              ..
              select 3 cache readonly                 // load
            + select 8 anew 0                         // add
              select 9 increments renamed -, -, -, -, -, - // broadcast
              select 10 increments sum                // ptr_add
            + packed.words 32
        "#]]
        .assert_eq(&changes(&lir, RunBy::Block, "rematerialize_rows"));
    }

    #[test]
    fn a_short_row_stays() {
        let lir = assigned(&centered(1024), 4);
        expect![[r#"
            unchanged
        "#]]
        .assert_eq(&changes(&lir, RunBy::Block, "rematerialize_rows"));
    }

    #[test]
    fn without_a_barrier_nothing_is_recomputed() {
        let lir = assigned(&centered(2048), 1);
        expect![[r#"
            unchanged
        "#]]
        .assert_eq(&changes(&lir, RunBy::Block, "rematerialize_rows"));
    }
}
