//! Multistage buffers and exchanges: what goes through a block's shared memory.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::{Checked, Role};
use crate::interp::Elements;
use crate::ir::{Op, OpKind};
use crate::layout::MultistageBuffer;
use crate::machine::{Bytes, Inst};

/// A counted loop that runs.
pub(super) struct Loop {
    op: Op,
    first: i64,
    upper: i64,
    step: i64,
    /// The index of the current iteration; none in the prologue.
    current: Option<i64>,
    /// How many iterations came before it.
    pub(super) iteration: u32,
    /// Indices in memory that were loaded ahead, by the loop's index.
    indices: BTreeMap<i64, Vec<Elements>>,
    /// The iteration whose addresses were computed last; none where there is none.
    addressed: Option<i64>,
    /// Tiles that threads store when they have loaded them.
    late: Vec<(Bytes, Op, Elements)>,
}

impl Loop {
    pub(super) fn new(op: Op, [first, upper, step]: [i64; 3]) -> Loop {
        let (indices, late) = (BTreeMap::new(), Vec::new());
        let (current, iteration, addressed) = (None, 0, None);
        Loop { op, first, upper, step, current, iteration, indices, addressed, late }
    }

    /// The index of an iteration ahead, if there is such a one.
    fn ahead(&self, count: u32) -> Option<i64> {
        let from = self.current.unwrap_or(self.first);
        let at = from.checked_add(self.step.checked_mul(i64::from(count))?)?;
        (self.step > 0 && at < self.upper).then_some(at)
    }
}

impl Role<'_> {
    /// Notes that an iteration begins; gives its number.
    pub(super) fn begin_iteration(&mut self, index: i64) -> u32 {
        let Some(inner) = self.loops.last_mut() else { return 0 };
        inner.iteration = inner.current.map_or(0, |_| inner.iteration + 1);
        inner.current = Some(index);
        inner.iteration
    }

    /// Whether an op gives a tile of a multistage buffer another shape.
    pub(super) fn is_renamed_copy(&self, op: Op) -> bool {
        let skips = |buffer: &MultistageBuffer| buffer.skipped.contains(&op);
        self.lir.func.op(op).kind != OpKind::Load && self.lir.multistage.values().any(skips)
    }

    /// Runs an instruction of a multistage buffer; false where it is none.
    pub(super) fn copies(&mut self, inst: &Inst) -> Result<bool, String> {
        match inst {
            Inst::LoadIndices { of, ahead } => self.load_indices(*of, *ahead)?,
            Inst::Addresses { of, ahead } => self.addresses(*of, *ahead)?,
            Inst::Copy { load, bytes, .. } => self.copy(*load, bytes)?,
            Inst::FinishCopies { .. } => {
                let late = self.loops.last_mut().map(|inner| std::mem::take(&mut inner.late));
                for (bytes, load, tile) in late.unwrap_or_default() {
                    self.shared.copy(self.range(&bytes), load, tile, false)?;
                }
            }
            Inst::CommitCopies => self.shared.commit(),
            Inst::WaitCopies(pending) => self.shared.wait(*pending),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn range(&self, bytes: &Bytes) -> std::ops::Range<u32> {
        bytes.at(self.loops.last().map_or(0, |inner| inner.iteration))
    }

    fn inner(&mut self, of: Op) -> Result<&mut Loop, String> {
        let inner = self.loops.last_mut().filter(|inner| inner.op == of);
        inner.ok_or_else(|| format!("loop {} does not run", of.0))
    }

    /// Runs ops that addresses follow from as if in another iteration.
    fn in_iteration(
        &mut self,
        of: Op,
        index: i64,
        run: impl FnOnce(&mut Self) -> Checked,
    ) -> Checked {
        let argument = self.lir.func.region(self.lir.func.op(of).regions[0]).args[0];
        let before = self.tiles.elements(argument);
        self.tiles.set_elements(argument, Rc::new(vec![index as u64]));
        run(self)?;
        if let Some(before) = before {
            self.tiles.set_elements(argument, before);
        }
        Ok(())
    }

    fn load_indices(&mut self, of: Op, count: u32) -> Checked {
        let Some(index) = self.inner(of)?.ahead(count) else { return Ok(()) };
        let slice = self.slice(of);
        let func = &self.lir.func;
        let last = slice.iter().rposition(|&op| func.op(op).kind == OpKind::Load);
        let mut loaded = Vec::new();
        self.in_iteration(of, index, |role| {
            for &op in &slice[..last.map_or(0, |last| last + 1)] {
                role.tiles.run_op(op)?;
                if func.op(op).kind == OpKind::Load {
                    loaded.extend(role.tiles.elements(func.op(op).results[0]));
                }
            }
            Ok(())
        })?;
        self.inner(of)?.indices.insert(index, loaded);
        Ok(())
    }

    fn slice(&self, of: Op) -> Vec<Op> {
        self.lir.multistage.get(&of).map(|buffer| buffer.slice.clone()).unwrap_or_default()
    }

    fn addresses(&mut self, of: Op, count: u32) -> Checked {
        let index = self.inner(of)?.ahead(count);
        self.inner(of)?.addressed = index;
        let Some(index) = index else { return Ok(()) };
        let slice = self.slice(of);
        let func = &self.lir.func;
        let known = self.inner(of)?.indices.remove(&index).unwrap_or_default();
        let mut known = known.into_iter();
        self.in_iteration(of, index, |role| {
            for &op in &slice {
                let data = func.op(op);
                match data.kind {
                    OpKind::Load => {
                        let loaded = known.next().ok_or("a copy's index was not loaded ahead")?;
                        role.tiles.set_elements(data.results[0], loaded);
                    }
                    _ => role.tiles.run_op(op)?,
                }
            }
            Ok(())
        })
    }

    fn copy(&mut self, load: Op, bytes: &Bytes) -> Checked {
        let Some(inner) = self.loops.last() else { return Err("a copy in no loop".to_owned()) };
        if inner.addressed.is_none() {
            return Ok(());
        }
        let lir = self.lir;
        let staged = lir.multistage.get(&inner.op).and_then(|buffer| buffer.load(load));
        let staged = staged.ok_or("the loop has no such copy")?;
        self.tiles.run_op(load)?;
        let result = lir.func.op(load).results[0];
        let tile = self.tiles.elements(result).ok_or("a load gives nothing")?;
        let size = lir.func.tile(result).dtype().bytes();
        let is_async =
            staged.copies(lir).iter().all(|group| matches!(group.len() * size, 4 | 8 | 16));
        match is_async {
            true => self.shared.copy(self.range(bytes), load, tile, true),
            false => {
                let late = (bytes.clone(), load, tile);
                self.loops.last_mut().ok_or("a copy in no loop")?.late.push(late);
                Ok(())
            }
        }
    }

    /// Runs an instruction by which threads exchange values; false where it is none.
    pub(super) fn exchange(&mut self, inst: &Inst) -> Result<bool, String> {
        match inst {
            Inst::StoreShared(part) | Inst::StoreCluster(part) => {
                let data = self.lir.func.op(part.op);
                let stored = match data.kind {
                    OpKind::Dot { .. } => &data.operands[..2],
                    // The old value.
                    _ if data.kind.is_atomic() => &data.results[..],
                    _ => &data.operands[..],
                };
                let in_registers: Vec<_> =
                    stored.iter().copied().filter(|&value| !self.is_staged(value)).collect();
                self.registers(&in_registers)?;
                self.shared.store(part.bytes.clone(), part.op, part.number)?;
            }
            Inst::AwaitCluster(part) => self.shared.arrive(part.op, part.number),
            Inst::LoadShared(part) => {
                self.shared.load(&part.bytes, part.op, part.number)?;
                self.exchanged.insert(part.op);
            }
            Inst::Barrier | Inst::ClusterBarrier => self.shared.barrier(),
            _ => return Ok(false),
        }
        Ok(true)
    }
}
