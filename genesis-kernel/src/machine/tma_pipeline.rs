//! The TMA pipeline between a producer and its consumers: waits for stages, and the pipeline state's advance.
//!
//! As in CUTLASS's `PipelineTmaAsync`, each stage has two mbarriers. *Full* completes when the copies have brought all their
//! bytes, *empty* when every consumer warpgroup has arrived, after the MMAs that read the stage.
//!
//! ```text
//! producer  wait.empty 0, arm 0           before the channel's first load of a region
//!           exec 7, exec 8                the copies
//!           advance 0                     after its last
//! consumer  wait.full 0                   once in a region, before what reads the stage first
//!           mma 9 takes 0                 takes the stage; released where `async_mma` waits for it
//! ```
//!
//! An MMA that may be in flight in the next iteration holds its stage until that one's was issued; one whose sums are
//! promoted is complete at once.
//!
//! Where a prologue prefetches constant tiles (see [`super::producer_prologue`]), the first stages are armed and filled with
//! these before the wait for the primary grid; after it, the producer brings what is left of them.

use std::collections::{BTreeMap, BTreeSet};

use super::resident_operands::ResidentOperands;
use super::{Block, Code, Constant, Inst, MmaWait, RunBy};
use crate::ir::{Func, Op, OpKind, Region, TmaLoad};
use crate::layout::{DotOperand, LayoutIr};

/// Adds the waits and releases of a role.
pub(super) fn run(code: &mut Code, lir: &LayoutIr, by: RunBy) {
    match by {
        RunBy::Block => {}
        RunBy::Consumers => consumer(code, lir),
        RunBy::Producer(constant) => producer(code, lir, constant),
    }
}

/// Adds the waits and releases of consumers.
fn consumer(code: &mut Code, lir: &LayoutIr) {
    let resident = ResidentOperands::of(&lir.func);
    let mut pass = Consumer { lir, resident, arrived: BTreeSet::new() };
    pass.region(lir.func.body, &mut code.body);
}

/// Adds the waits of a producer, and leaves out the copies that are not its own.
fn producer(code: &mut Code, lir: &LayoutIr, constant: Constant) {
    let [firsts, lasts] = ends(&lir.func);
    Producer { func: &lir.func, constant, firsts, lasts }.block(&mut code.body);
}

/// Leaves of a producer's code what a consumer does in the tiles of the other one: the pipeline state goes through the loads.
pub(super) fn skip_loads(lir: &LayoutIr, block: &mut Block) {
    let [_, lasts] = ends(&lir.func);
    advance_only(&lir.func, &lasts, block);
}

fn advance_only(func: &Func, lasts: &BTreeSet<Op>, block: &mut Block) {
    block.retain(|inst| match inst {
        Inst::Exec { op, .. } => load_of(func, *op).is_none() || lasts.contains(op),
        _ => true,
    });
    for inst in block {
        let load = inst.op().and_then(|op| load_of(func, op));
        if let Some(load) = load {
            *inst = Inst::Advance(load.channel);
        }
        inst.blocks_mut().into_iter().for_each(|block| advance_only(func, lasts, block));
    }
}

/// The pipelines of whose stages a dot reads each once, with whether it is the last of its region that does; see
/// [`super::resident_operands`] for others.
pub(super) fn pipelines_of(
    lir: &LayoutIr,
    resident: &ResidentOperands,
    region: Region,
    dot: Op,
) -> Vec<(u8, bool)> {
    let func = &lir.func;
    let Some(plan) = lir.dots.get(&dot) else { return Vec::new() };
    let mut channels = Vec::new();
    for (i, operand) in [&plan.a, &plan.b].into_iter().enumerate() {
        let DotOperand::Shared(operand) = operand else { continue };
        let load = func.def_op(func.op(dot).operands[i]);
        let stays = load.is_some_and(|load| resident.has(load));
        let Some(entry) = func.tma.loads.get(usize::from(operand.load)) else { continue };
        if !stays && !channels.contains(&entry.channel) {
            channels.push(entry.channel);
        }
    }
    let ops = &func.region(region).ops;
    let behind = ops.iter().skip_while(|&&other| other != dot).skip(1);
    let is_last = |channel: u8| !behind.clone().any(|&other| multiplies_of(func, other, channel));
    channels.into_iter().map(|channel| (channel, is_last(channel))).collect()
}

/// Whether an op is a product of a tile that comes through a channel.
fn multiplies_of(func: &Func, op: Op, channel: u8) -> bool {
    let data = func.op(op);
    let comes = |value| {
        let load = func.def_op(value).and_then(|op| load_of(func, op));
        load.is_some_and(|load| load.channel == channel)
    };
    matches!(data.kind, OpKind::Dot { .. }) && data.operands.iter().any(|&value| comes(value))
}

fn load_of(func: &Func, op: Op) -> Option<&TmaLoad> {
    match func.op(op).kind {
        OpKind::TmaLoad(number) => func.tma.loads.get(usize::from(number)),
        _ => None,
    }
}

/// The first and the last load of each channel in each region.
fn ends(func: &Func) -> [BTreeSet<Op>; 2] {
    let [mut firsts, mut lasts] = [BTreeSet::new(), BTreeSet::new()];
    let owned = func.walk().into_iter().flat_map(|op| func.op(op).regions.clone());
    for region in [func.body].into_iter().chain(owned) {
        let mut by_channel: BTreeMap<u8, [Op; 2]> = BTreeMap::new();
        for &op in &func.region(region).ops {
            let Some(load) = load_of(func, op) else { continue };
            by_channel.entry(load.channel).or_insert([op; 2])[1] = op;
        }
        for [first, last] in by_channel.into_values() {
            firsts.insert(first);
            lasts.insert(last);
        }
    }
    [firsts, lasts]
}

struct Consumer<'a> {
    lir: &'a LayoutIr,
    resident: ResidentOperands,
    /// Pipelines whose next stage is full, by the region that waited.
    arrived: BTreeSet<(Region, u8)>,
}

impl Consumer<'_> {
    fn region(&mut self, region: Region, block: &mut Block) {
        let mut done = Block::new();
        for mut inst in std::mem::take(block) {
            self.wait_before(&inst, region, &mut done);
            for (inner, block) in inst.regions_mut(&self.lir.func) {
                self.region(inner, block);
            }
            if let Inst::For(inner) = &mut inst {
                inner.left = self.after_loop(inner.op);
            }
            let after = self.after(&inst, region);
            done.push(inst);
            done.extend(after);
        }
        *block = done;
    }

    /// Waits for the stages that an instruction reads, where its region has not yet.
    fn wait_before(&mut self, inst: &Inst, region: Region, done: &mut Block) {
        match inst {
            Inst::Mma(mma) => {
                let pipelines = pipelines_of(self.lir, &self.resident, region, mma.op);
                for (channel, _) in pipelines {
                    self.wait_once(region, channel, done);
                }
            }
            Inst::Exec { op, .. } => {
                let Some(load) = load_of(&self.lir.func, *op) else { return };
                if load.registers {
                    self.wait_once(region, load.channel, done);
                } else if self.resident.has(*op) {
                    done.push(Inst::WaitFull(load.channel));
                }
            }
            _ => {}
        }
    }

    fn wait_once(&mut self, region: Region, channel: u8, done: &mut Block) {
        if self.arrived.insert((region, channel)) {
            done.push(Inst::WaitFull(channel));
        }
    }

    /// What becomes of the stages that MMAs took.
    fn after(&mut self, inst: &Inst, region: Region) -> Block {
        let Inst::Mma(mma) = inst else { return Block::new() };
        for &channel in &mma.takes {
            self.arrived.remove(&(region, channel));
        }
        let channels = mma.takes.iter().copied();
        match mma.wait {
            MmaWait::Iteration => Block::new(),
            MmaWait::NextIteration => channels
                .flat_map(|channel| [Inst::ReleaseHeld(channel), Inst::HoldNext(channel)])
                .collect(),
            MmaWait::Promoted => {
                channels.map(Inst::ReleaseNext).chain([Inst::exec(mma.op)]).collect()
            }
        }
    }

    /// Waits for what the last iteration of a loop leaves in flight.
    fn after_loop(&self, of: Op) -> Block {
        let body = self.lir.func.op(of).regions[0];
        let mut left = Block::new();
        for &op in &self.lir.func.region(body).ops {
            let plan = self.lir.dots.get(&op);
            if !plan.is_some_and(|plan| MmaWait::of(plan) == Some(MmaWait::NextIteration)) {
                continue;
            }
            left.push(Inst::FinishMma(op));
            let pipelines = pipelines_of(self.lir, &self.resident, body, op);
            let held = pipelines.into_iter().filter(|&(_, is_last)| is_last);
            left.extend(held.map(|(channel, _)| Inst::ReleaseHeld(channel)));
        }
        left
    }
}

struct Producer<'a> {
    func: &'a Func,
    constant: Constant,
    /// Loads that are their channel's first and last ones in a region.
    firsts: BTreeSet<Op>,
    lasts: BTreeSet<Op>,
}

impl Producer<'_> {
    fn block(&self, block: &mut Block) {
        let mut done = Block::new();
        for mut inst in std::mem::take(block) {
            inst.blocks_mut().into_iter().for_each(|block| self.block(block));
            match inst {
                Inst::Exec { op, .. } => match self.func.op(op).kind {
                    OpKind::TmaLoad(number) => self.load(op, number, &mut done),
                    _ => done.push(inst),
                },
                _ => done.push(inst),
            }
        }
        *block = done;
    }

    fn load(&self, op: Op, number: u8, done: &mut Block) {
        let Some(load) = self.func.tma.loads.get(usize::from(number)) else { return };
        let channel = load.channel;
        let unless = |body| Inst::UnlessPrefetched { channel, body };
        if self.firsts.contains(&op) {
            let begin = vec![Inst::WaitEmpty(channel), Inst::Arm(channel)];
            match self.constant {
                Constant::All => done.extend(begin),
                Constant::Prefetch => done.push(Inst::Arm(channel)),
                Constant::Prefetched => done.push(unless(begin)),
            }
        }
        // A tile that is loaded again is in its stage already.
        if !self.func.tma.is_again(number) {
            match (self.constant, load.constant) {
                (Constant::Prefetch, false) => {}
                (Constant::Prefetched, true) => done.push(unless(vec![Inst::exec(op)])),
                _ => done.push(Inst::exec(op)),
            }
        }
        if self.lasts.contains(&op) {
            done.push(Inst::Advance(channel));
            if self.constant != Constant::All {
                let more = self.constant == Constant::Prefetch;
                done.push(Inst::CountPrefetched { channel, more });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::machine::golden::{changes, on_hopper, tiles};
    use crate::machine::{Constant, RunBy, producer_ir};

    #[test]
    fn stages_are_waited_for_before_they_are_read() {
        let lir = on_hopper(&tiles::KERNEL, &[128, 128, 64], 8);
        expect![[r#"
              ..
                  exec 11                             // tma_load
            +     wait.full 0
                  mma 12 takes 0 into.next            // dot
            +     release.held 0
            +     hold.next 0
                  yield 13                            // yield
            +   } left {
            +     finish.mma 12                       // dot
            +     release.held 0
                }
              ..
        "#]]
        .assert_eq(&changes(&lir, RunBy::Consumers, "tma_pipeline"));
    }

    #[test]
    fn the_producer_arms_each_stage_once() {
        let lir = on_hopper(&tiles::KERNEL, &[128, 128, 64], 8);
        let producer = producer_ir(lir.producer.as_ref().unwrap(), &lir);
        expect![[r#"
              ..
                for 7 {
            +     wait.empty 0
            +     arm 0
                  exec 8                              // tma_load
                  exec 9                              // tma_load
            +     advance 0
                  yield 10                            // yield
              ..
        "#]]
        .assert_eq(&changes(&producer, RunBy::Producer(Constant::All), "tma_pipeline"));
    }
}
