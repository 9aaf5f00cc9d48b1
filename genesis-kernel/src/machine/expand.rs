//! From ops to instructions: what each op's threads exchange, and the copies of multistage buffers.
//!
//! An op that stays within a thread or a warp is one `exec`. One whose threads exchange values through shared memory is
//! a store and a load for each exchange, and what is left:
//!
//! ```text
//! %9 = convert_layout %8        store.shared 9.0   load.shared 9.0   exec 9
//! %6 = gather 0 %1, %2          the same
//! %7 = histogram %1             store.shared 7.0   load.shared 7.0   store.shared 7.1   load.shared 7.1   exec 7
//! %7 = reduce add 0 %6          the same for each exchange between warps
//! %5 = dot %3, %4, %2           store.shared 5.0   exec 5, reads its scratch
//! %4 = atomic_rmw add ..        exec 4   store.shared 4.0   load.shared 4.0: old values, for threads with copies
//! ```
//!
//! A loop over a multistage buffer of `s` stages copies `s - 1` iterations in its prologue, and one more in each
//! iteration:
//!
//! ```text
//! for 12 {
//!   prologue { addresses 12+0, copy 14+0, copy 15+0, commit, addresses 12+1, .. }
//!   wait.copies s - 2
//!   barrier                     the stage is full for all threads, and the one that is filled next was read by all
//!   addresses 12+(s-1)
//!   copy 14+(s-1), copy 15+(s-1)
//!   commit
//!   ..
//! ```

use std::collections::BTreeMap;

use super::resident_operands::ResidentOperands;
use super::scratch::own_staging;
use super::selection::Selection;
use super::tma_pipeline::pipelines_of;
use super::{
    Block, Bytes, Code, For, GridWait, Inst, Mma, MmaWait, Part, SharedMemory, Stage, dsmem,
    exchange,
};
use crate::ir::{Op, OpKind, Region};
use crate::layout::{LayoutIr, MultistageBuffer, StagedLoad};

/// The instructions of a function, without barriers but for those of multistage buffers.
pub(super) fn run(lir: &LayoutIr, memory: &SharedMemory) -> Code {
    let expander = Expander::new(lir, memory);
    let walk = lir.func.walk().into_iter();
    let combines = walk.filter(|&op| lir.func.op(op).kind.is_collective());
    let regions = combines.flat_map(|op| lir.func.op(op).regions.clone());
    let combines: BTreeMap<Region, Block> =
        regions.map(|region| (region, expander.region(region))).collect();
    let body = expander.region(lir.func.body);
    let (entry, selection) = (Block::new(), Selection::default());
    Code { entry, body, combines, grid_wait: GridWait::First, selection }
}

/// Makes instructions of ops.
pub(super) struct Expander<'a> {
    lir: &'a LayoutIr,
    memory: &'a SharedMemory,
    uses: Vec<u32>,
    resident: ResidentOperands,
}

impl<'a> Expander<'a> {
    pub(super) fn new(lir: &'a LayoutIr, memory: &'a SharedMemory) -> Expander<'a> {
        let resident = ResidentOperands::of(&lir.func);
        Expander { lir, memory, uses: lir.func.count_uses(), resident }
    }

    fn region(&self, region: Region) -> Block {
        let mut block = Block::new();
        for &op in &self.lir.func.region(region).ops {
            self.op(op, &mut block);
        }
        block
    }

    fn op(&self, op: Op, block: &mut Block) {
        let data = self.lir.func.op(op);
        match data.kind {
            OpKind::Yield => block.push(Inst::Yield(op)),
            OpKind::Return => block.push(Inst::Return(op)),
            OpKind::For(_) => block.push(Inst::For(Box::new(self.for_loop(op)))),
            OpKind::While => {
                let [condition, body] = [0, 1].map(|i| self.region(data.regions[i]));
                block.push(Inst::While { op, condition, body });
            }
            OpKind::If => {
                let [then, otherwise] = [0, 1].map(|i| self.region(data.regions[i]));
                block.push(Inst::If { op, then, otherwise });
            }
            // Its value is in a multistage buffer.
            _ if self.lir.multistage.values().any(|buffer| buffer.skipped.contains(&op)) => {}
            OpKind::Reduce { .. } | OpKind::Scan { .. } => self.exchanges(op, block),
            OpKind::ConvertLayout | OpKind::Gather { .. } | OpKind::Scatter { .. } => {
                self.one_exchange(op, block);
            }
            OpKind::Histogram => self.histogram(op, block),
            OpKind::Dot { .. } => self.dot(op, block),
            OpKind::AtomicRmw(..) | OpKind::AtomicCas(_) => self.atomic(op, block),
            _ => block.push(Inst::exec(op)),
        }
    }

    fn part(&self, op: Op, number: u32) -> Option<Part> {
        Some(Part { op, number, bytes: self.memory.scratch(op)? })
    }

    /// A reduction or scan: an exchange for each time that its axis crosses warps.
    fn exchanges(&self, op: Op, block: &mut Block) {
        let crossings =
            exchange::steps_of(self.lir, op).into_iter().filter_map(|step| match step {
                exchange::Step::Warps(exchange) => Some(exchange),
                exchange::Step::Reg(_) | exchange::Step::Lane(_) => None,
            });
        for (number, exchange) in (0..).zip(crossings) {
            let Some(part) = self.part(op, number) else { continue };
            let counted = dsmem::received_bytes(self.lir, op).is_some();
            match exchange.blocks().is_empty() {
                true => block.push(Inst::StoreShared(part.clone())),
                false => block.push(Inst::StoreCluster(part.clone())),
            }
            if !exchange.blocks().is_empty() && counted {
                block.push(Inst::AwaitCluster(part.clone()));
            }
            block.push(Inst::LoadShared(part));
        }
        block.push(Inst::exec(op));
    }

    /// A conversion or gather: all of a tile to scratch, and what each thread needs of it back.
    fn one_exchange(&self, op: Op, block: &mut Block) {
        if let Some(part) = self.part(op, 0) {
            block.extend([Inst::StoreShared(part.clone()), Inst::LoadShared(part)]);
        }
        block.push(Inst::exec(op));
    }

    /// A histogram: counters of each warp, which threads add up by bins, and what each element's counter then says.
    fn histogram(&self, op: Op, block: &mut Block) {
        for number in 0..2 {
            let Some(part) = self.part(op, number) else { continue };
            block.extend([Inst::StoreShared(part.clone()), Inst::LoadShared(part)]);
        }
        block.push(Inst::exec(op));
    }

    /// A product: operands in another layout go through its scratch.
    fn dot(&self, op: Op, block: &mut Block) {
        let mut reads = Vec::new();
        let Some(plan) = self.lir.dots.get(&op) else { return block.push(Inst::exec(op)) };
        if let Some(part) = self.part(op, 0) {
            block.push(Inst::StoreShared(part.clone()));
            reads.push(part.bytes.into());
        }
        for operand in [&plan.a, &plan.b] {
            debug_assert!(own_staging(operand).is_none() || !reads.is_empty());
            let load = operand.registers().and_then(|operand| operand.ring);
            reads.extend(load.and_then(|load| self.staged(load)));
        }
        block.push(match MmaWait::of(plan) {
            Some(wait) => self.mma(op, reads, wait),
            None => Inst::Exec { op, reads },
        });
    }

    /// A product by asynchronous MMAs, which take the stages that nothing after them in their region reads.
    fn mma(&self, op: Op, reads: Vec<Bytes>, wait: MmaWait) -> Inst {
        let func = &self.lir.func;
        let regions = func.walk().into_iter().flat_map(|op| func.op(op).regions.clone());
        let mut regions = [func.body].into_iter().chain(regions);
        let region = regions.find(|&region| func.region(region).ops.contains(&op));
        let read = pipelines_of(self.lir, &self.resident, region.unwrap_or(func.body), op);
        let takes = read.into_iter().filter(|&(_, is_last)| is_last).map(|(channel, _)| channel);
        let takes = takes.collect();
        Inst::Mma(Mma { op, reads, takes, wait, awaits_turn: false, passes_turn: false })
    }

    /// The bytes of a load's tile in the stage that the current iteration reads.
    fn staged(&self, load: Op) -> Option<Bytes> {
        let mut buffers = self.lir.multistage.iter();
        let (of, buffer, load) =
            buffers.find_map(|(&of, buffer)| Some((of, buffer, buffer.load(load)?)))?;
        Some(self.stage_bytes(of, buffer, load, 0))
    }

    /// The bytes of a load's tile in the stage that moves on from `first`.
    fn stage_bytes(
        &self,
        of: Op,
        buffer: &MultistageBuffer,
        load: &StagedLoad,
        first: u32,
    ) -> Bytes {
        let start = self.memory.scratch(of).map_or(0, |bytes| bytes.start) + load.offset;
        let stage = Stage { first, count: buffer.stages, bytes: buffer.slot_bytes };
        Bytes { range: start..start + load.bytes, stage: Some(stage) }
    }

    /// An atomic: where threads hold copies and the old value is wanted, one of them hands it to the others. One whose old
    /// value is used orders its program, so a barrier follows it.
    fn atomic(&self, op: Op, block: &mut Block) {
        block.push(Inst::exec(op));
        if self.uses[self.lir.func.op(op).results[0].index()] == 0 {
            return;
        }
        if let Some(part) = self.part(op, 0) {
            block.extend([Inst::StoreShared(part.clone()), Inst::LoadShared(part)]);
        }
        block.push(match self.lir.num_blocks {
            1 => Inst::Barrier,
            _ => Inst::ClusterBarrier,
        });
    }

    fn for_loop(&self, op: Op) -> For {
        let inside = self.region(self.lir.func.op(op).regions[0]);
        let Some(buffer) = self.lir.multistage.get(&op) else {
            let (prologue, left) = (Block::new(), Block::new());
            return For { op, prologue, hoisted: false, body: inside, other: None, left };
        };
        let prologue = self.first_copies(op, buffer, &|_| true);
        let mut body = vec![Inst::WaitCopies(buffer.stages - 2), Inst::Barrier];
        body.extend(self.copies(op, buffer, buffer.stages - 1, &|_| true));
        body.push(Inst::CommitCopies);
        if loads_indices(self.lir, buffer) {
            body.push(Inst::LoadIndices { of: op, ahead: buffer.stages });
        }
        let at = inside.len() - usize::from(matches!(inside.last(), Some(Inst::Yield(_))));
        body.extend_from_slice(&inside[..at]);
        body.push(Inst::FinishCopies { of: op });
        body.extend_from_slice(&inside[at..]);
        For { op, prologue, hoisted: false, body, other: None, left: Block::new() }
    }

    /// The copies before a loop, of the wanted tiles, after the loads of all indices that these and the next iteration's
    /// copies follow from.
    pub(super) fn first_copies(
        &self,
        of: Op,
        buffer: &MultistageBuffer,
        wanted: &dyn Fn(&StagedLoad) -> bool,
    ) -> Block {
        let mut block = Block::new();
        if loads_indices(self.lir, buffer) {
            block.extend((0..buffer.stages).map(|ahead| Inst::LoadIndices { of, ahead }));
        }
        for ahead in 0..buffer.stages - 1 {
            block.extend(self.copies(of, buffer, ahead, wanted));
            block.extend([Inst::CommitCopies, Inst::FinishCopies { of }]);
        }
        block
    }

    /// The copies of an iteration, of the wanted tiles. Before the loop they go to the same stages each time that the loop
    /// is come to; in it they move on.
    pub(super) fn copies(
        &self,
        of: Op,
        buffer: &MultistageBuffer,
        ahead: u32,
        wanted: &dyn Fn(&StagedLoad) -> bool,
    ) -> Block {
        let mut block = vec![Inst::Addresses { of, ahead }];
        for load in buffer.loads.iter().filter(|load| wanted(load)) {
            let moves = ahead + 1 == buffer.stages;
            let bytes = self.stage_bytes(of, buffer, load, if moves { ahead } else { 0 });
            let bytes = if moves { bytes } else { fixed(bytes, ahead * buffer.slot_bytes) };
            block.push(Inst::Copy { load: load.op, ahead, bytes });
        }
        block
    }
}

/// The bytes of a stage that does not move on, this far from stage 0.
fn fixed(bytes: Bytes, offset: u32) -> Bytes {
    Bytes { range: bytes.range.start + offset..bytes.range.end + offset, stage: None }
}

/// Whether addresses of a buffer's copies follow from indices in memory.
fn loads_indices(lir: &LayoutIr, buffer: &MultistageBuffer) -> bool {
    buffer.slice.iter().any(|&op| lir.func.op(op).kind == OpKind::Load)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::machine::golden::{before, row_sum};

    #[test]
    fn what_crosses_warps_is_a_store_and_a_load() {
        let lir = row_sum(256, None);
        expect![[r#"
            exec 0                                  // iota
            exec 1                                  // broadcast
            exec 2                                  // ptr_add
            exec 3                                  // load
            store.shared 4.0 0..16                  // reduce
            load.shared 4.0 0..16                   // reduce
            exec 4                                  // reduce
            exec 5                                  // store
            return 6                                // return
        "#]]
        .assert_eq(&before(&lir));
    }
}
