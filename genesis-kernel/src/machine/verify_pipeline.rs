//! The protocol of TMA pipelines, asynchronous MMAs and stores by the copy engine, checked.
//!
//! Goes through each role's code and keeps the state of every pipeline. It knows nothing of how passes place instructions;
//! debug builds check every kernel that they compile.
//!
//! ```text
//! producer   wait.empty c -> arm c -> copies, which bring all bytes -> advance c
//! consumer   wait.full c -> mma, reads of the stage -> its MMAs are complete -> a release of c
//! both       the same stages in the same loops
//! MMAs       nobody reads accumulators in flight
//! stores     wait.panels, barrier -> store.panel -> fence.async, barrier -> send.panel
//! setup      each mbarrier is initialized with the arrivals of a phase, fenced, and all threads meet
//! ```

use std::collections::{BTreeMap, BTreeSet};

use super::{
    BARRIER_BYTES, Block, Code, Constant, For, Inst, Mma, MmaWait, Panel, Program, SharedMemory,
    WarpSpecialized,
};
use crate::ir::{Func, Op, OpKind, TmaLoad};
use crate::layout::ping_pong::ping_pong_loop;
use crate::layout::{DotOperand, LayoutIr};
use crate::tuning::multiprocessor::WARPGROUP_THREADS;

type Checked = Result<(), String>;

/// Checks a kernel.
///
/// # Errors
/// What is wrong, in the words of machine IR.
pub(crate) fn verify_program(program: &Program, lir: &LayoutIr, memory: &SharedMemory) -> Checked {
    match program {
        Program::Uniform(code) => uniform_setup(code),
        Program::WarpSpecialized(roles) => {
            setup(&roles.setup, lir, memory)?;
            for part in &roles.producer {
                producer(&part.lir.func, part.constant, &part.code.body)?;
            }
            consumers(lir, &roles.consumers.body)?;
            same_stages(roles)
        }
    }
}

/// Fails unless something holds.
fn need(holds: bool, why: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(why()) }
}

/// The load of an op, if it is one by the copy engine.
fn load_of(func: &Func, op: Op) -> Option<&TmaLoad> {
    match func.op(op).kind {
        OpKind::TmaLoad(number) => func.tma.loads.get(usize::from(number)),
        _ => None,
    }
}

/// Mbarriers are initialized, fenced, and then all threads meet.
fn setup(block: &Block, lir: &LayoutIr, memory: &SharedMemory) -> Checked {
    let at = block.iter().position(|inst| matches!(inst, Inst::Once(_)));
    let Some((at, Inst::Once(once))) = at.map(|at| (at, &block[at])) else {
        return Err("nobody initializes mbarriers".to_owned());
    };
    let meets = |inst: &Inst| match lir.num_blocks {
        1 => matches!(inst, Inst::Barrier | Inst::ClusterBarrier),
        _ => *inst == Inst::ClusterBarrier,
    };
    need(block[at + 1..].iter().any(meets), || "threads use mbarriers that may not be".to_owned())?;
    let ready = initialized(once)?;
    let readers = lir.num_warps / 4 * lir.num_blocks;
    let mut wanted: Vec<(&str, u32, u32)> = Vec::new();
    for pipeline in &memory.pipelines {
        let stages = (0..pipeline.stages).map(|stage| stage * BARRIER_BYTES);
        wanted.extend(stages.clone().map(|at| ("full", pipeline.full + at, 1)));
        wanted.extend(stages.map(|at| ("empty", pipeline.empty + at, readers)));
    }
    if ping_pong_loop(lir).is_some() {
        let sets = [0, BARRIER_BYTES].map(|at| memory.order_barriers + at);
        wanted.extend(sets.map(|at| ("order", at, WARPGROUP_THREADS)));
    }
    for (name, at, arrivals) in wanted {
        let found = ready.get(&at);
        need(found == Some(&arrivals), || {
            format!("the {name} mbarrier at {at} has {found:?} arrivals for {arrivals}")
        })?;
    }
    Ok(())
}

/// The arrivals of each mbarrier that is initialized, all of them before a fence.
fn initialized(once: &Block) -> Result<BTreeMap<u32, u32>, String> {
    let mut ready = BTreeMap::new();
    let mut fenced = false;
    for inst in once {
        match inst {
            Inst::InitBarriers { at, count, arrivals } => {
                ready.extend((0..*count).map(|i| (at + i * BARRIER_BYTES, *arrivals)));
                fenced = false;
            }
            Inst::ExpectBytes { at, .. } => {
                need(ready.contains_key(at), || format!("mbarrier {at} expects before it is"))?;
            }
            Inst::FenceBarriers => fenced = true,
            _ => {}
        }
    }
    need(fenced, || "mbarriers are not fenced".to_owned())?;
    Ok(ready)
}

/// Setup of a kernel without roles: the mbarriers of DSMEM stores, before the cluster hears that this block runs.
fn uniform_setup(code: &Code) -> Checked {
    let mut counted = false;
    for (at, inst) in code.entry.iter().enumerate() {
        if let Inst::Once(once) = inst {
            initialized(once)?;
            counted = once.iter().any(|inst| matches!(inst, Inst::ExpectBytes { .. }));
            let later = &code.entry[at + 1..];
            need(later.contains(&Inst::ClusterArrive), || {
                "other blocks may store before mbarriers are".to_owned()
            })?;
        }
    }
    let awaits = has(&code.body, &|inst| matches!(inst, Inst::AwaitCluster(_)));
    need(counted || !awaits, || "nothing counts the stores that are awaited".to_owned())?;
    let waits = has(&code.body, &|inst| *inst == Inst::ClusterWait);
    need(!waits || code.entry.contains(&Inst::ClusterArrive), || {
        "blocks wait for others that never say that they run".to_owned()
    })
}

fn has(block: &Block, is: &dyn Fn(&Inst) -> bool) -> bool {
    block.iter().any(|inst| is(inst) || inst.blocks().into_iter().any(|block| has(block, is)))
}

/// What a producer has done for the next stage of a pipeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fill {
    Idle,
    Empty,
    /// Bytes that were asked for.
    Armed(u32),
}

struct Producer<'a> {
    func: &'a Func,
    constant: Constant,
    fills: Vec<Fill>,
}

/// Checks a part of the producer.
fn producer(func: &Func, constant: Constant, body: &Block) -> Checked {
    let fills = vec![Fill::Idle; func.tma.channels.len()];
    Producer { func, constant, fills }.block(body)
}

impl Producer<'_> {
    fn block(&mut self, block: &Block) -> Checked {
        block.iter().try_for_each(|inst| self.inst(inst))
    }

    fn inst(&mut self, inst: &Inst) -> Checked {
        match inst {
            Inst::WaitEmpty(channel) => {
                let fill = &mut self.fills[usize::from(*channel)];
                need(*fill == Fill::Idle, || format!("wait.empty {channel} of a stage in use"))?;
                *fill = Fill::Empty;
            }
            Inst::Arm(channel) => {
                // The first stages are empty as they begin.
                let first = self.constant == Constant::Prefetch;
                let before = if first { Fill::Idle } else { Fill::Empty };
                let fill = &mut self.fills[usize::from(*channel)];
                need(*fill == before, || {
                    format!("arm {channel} of a stage that may not be empty")
                })?;
                *fill = Fill::Armed(0);
            }
            Inst::Exec { op, .. } => {
                let Some(load) = load_of(self.func, *op) else { return Ok(()) };
                let fill = &mut self.fills[usize::from(load.channel)];
                let Fill::Armed(bytes) = fill else {
                    return Err(format!("a copy to channel {} before arm", load.channel));
                };
                *bytes += load.bytes;
            }
            Inst::Advance(channel) => self.advance(*channel)?,
            Inst::UnlessPrefetched { body, .. } => self.block(body)?,
            Inst::Return(_) => {
                let all = self.fills.iter().all(|fill| *fill == Fill::Idle);
                need(all, || "the producer ends with a stage half filled".to_owned())?;
            }
            _ => {
                for inside in inst.blocks() {
                    let before = self.fills.clone();
                    self.block(inside)?;
                    need(before == self.fills, || "a stage is half filled at a loop's end".into())?;
                }
            }
        }
        Ok(())
    }

    fn advance(&mut self, channel: u8) -> Checked {
        let tma = &self.func.tma;
        let is_constant = |load: &TmaLoad| load.constant || self.constant != Constant::Prefetch;
        let loads =
            (0..).zip(&tma.loads).filter(|&(n, load)| !tma.is_again(n) && is_constant(load));
        let due: u32 = loads.filter(|(_, l)| l.channel == channel).map(|(_, l)| l.bytes).sum();
        let fill = &mut self.fills[usize::from(channel)];
        need(*fill == Fill::Armed(due), || {
            format!("advance {channel} past a stage that is {fill:?}, of {due} bytes")
        })?;
        *fill = Fill::Idle;
        Ok(())
    }
}

/// What a consumer knows at one point.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct State {
    /// Pipelines whose next stage is full.
    full: BTreeSet<u8>,
    /// Stages that a dot's MMAs took, by the dot.
    taken: BTreeSet<(Op, u8)>,
    /// Dots whose MMAs are in flight, the oldest first.
    in_flight: Vec<Op>,
    /// Stages that MMAs read across iterations, and whether these are complete.
    held: BTreeMap<u8, bool>,
    /// Whether this warpgroup has its turn to issue.
    has_turn: bool,
    panels: PanelState,
}

/// The panels of a warpgroup.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct PanelState {
    /// Buffers that the copy engine may still read.
    sent: Vec<u32>,
    /// Whether all threads know what the last wait said.
    known: bool,
    /// The panel that is written, whether it is fenced, and whether all threads were.
    stored: Option<(Panel, bool, bool)>,
}

struct Consumers<'a> {
    lir: &'a LayoutIr,
    state: State,
}

/// Checks the code of consumers.
fn consumers(lir: &LayoutIr, body: &Block) -> Checked {
    Consumers { lir, state: State::default() }.block(body)
}

impl Consumers<'_> {
    fn block(&mut self, block: &Block) -> Checked {
        block.iter().try_for_each(|inst| self.inst(inst))
    }

    fn inst(&mut self, inst: &Inst) -> Checked {
        match inst {
            Inst::WaitFull(channel) => {
                let is_new = self.state.full.insert(*channel);
                need(is_new, || format!("wait.full {channel} of a stage that is full"))
            }
            Inst::Exec { op, .. } => self.exec(*op),
            Inst::Mma(mma) => self.mma(mma),
            Inst::WaitMma { complete, pending } => self.wait_mma(complete, *pending as usize),
            Inst::Release { channel, of } => {
                let took = self.state.taken.remove(&(*of, *channel));
                need(took, || format!("release {channel} of a stage that was not taken"))?;
                let reads = self.state.in_flight.contains(of);
                need(!reads, || format!("release {channel} while MMAs read it"))
            }
            Inst::ReleaseNext(channel) | Inst::ReleaseResident(channel) => {
                self.give_back(*channel)?;
                need(self.state.in_flight.is_empty(), || {
                    format!("a release of {channel} while MMAs may read it")
                })
            }
            Inst::HoldNext(channel) => {
                self.give_back(*channel)?;
                let before = self.state.held.insert(*channel, false);
                need(before.is_none(), || format!("hold.next {channel} loses a stage"))
            }
            Inst::ReleaseHeld(channel) => match self.state.held.remove(channel) {
                Some(false) => Err(format!("release.held {channel} while MMAs read it")),
                _ => Ok(()),
            },
            Inst::FinishMma(op) => {
                self.state.in_flight.retain(|other| other != op);
                self.state.held.values_mut().for_each(|complete| *complete = true);
                Ok(())
            }
            Inst::For(inner) => self.for_loop(inner),
            Inst::Return(_) => self.end(),
            Inst::Yield(op) | Inst::Recompute { op, .. } => self.reads(*op),
            _ if inst.blocks().is_empty() => self.state.panels.inst(inst),
            _ => self.ways(inst),
        }
    }

    /// Nobody touches accumulators in flight.
    fn reads(&self, op: Op) -> Checked {
        let func = &self.lir.func;
        let is_next =
            |dot: &Op| self.lir.dots.get(dot).and_then(MmaWait::of) == Some(MmaWait::NextIteration);
        let carried = |dot: &Op| is_next(dot) && func.op(op).kind == OpKind::Yield;
        let uses = |dot: &&Op| {
            let sums = &func.op(**dot).results[0];
            func.op(op).operands.contains(sums) && !carried(dot)
        };
        match self.state.in_flight.iter().find(uses) {
            Some(_) => Err(format!("{:?} reads accumulators in flight", func.op(op).kind)),
            None => Ok(()),
        }
    }

    fn exec(&self, op: Op) -> Checked {
        self.reads(op)?;
        match load_of(&self.lir.func, op).filter(|load| load.registers) {
            Some(load) => need(self.state.full.contains(&load.channel), || {
                format!("a stage of {} is read before it is full", load.channel)
            }),
            None => Ok(()),
        }
    }

    fn mma(&mut self, mma: &Mma) -> Checked {
        self.reads(mma.op)?;
        let func = &self.lir.func;
        if let Some(plan) = self.lir.dots.get(&mma.op) {
            for operand in [&plan.a, &plan.b] {
                let DotOperand::Shared(operand) = operand else { continue };
                let load = func.tma.loads.get(usize::from(operand.load));
                let channel = load.map_or(u8::MAX, |load| load.channel);
                need(self.state.full.contains(&channel), || {
                    format!("MMAs read a stage of {channel} before it is full")
                })?;
            }
        }
        let state = &mut self.state;
        if mma.awaits_turn {
            need(!state.has_turn, || "a turn is awaited twice".to_owned())?;
            state.has_turn = true;
        }
        if mma.passes_turn {
            need(state.has_turn, || "a turn is passed that was not awaited".to_owned())?;
            state.has_turn = false;
        }
        match mma.wait {
            MmaWait::Iteration => {
                for &channel in &mma.takes {
                    state.full.remove(&channel);
                    state.taken.insert((mma.op, channel));
                }
                state.in_flight.push(mma.op);
            }
            // All groups but this one are complete.
            MmaWait::NextIteration => {
                state.in_flight = vec![mma.op];
                state.held.values_mut().for_each(|complete| *complete = true);
            }
            MmaWait::Promoted => state.in_flight.clear(),
        }
        Ok(())
    }

    fn wait_mma(&mut self, complete: &[Op], pending: usize) -> Checked {
        let in_flight = &mut self.state.in_flight;
        let done = in_flight.len().saturating_sub(pending);
        let waited: Vec<Op> = in_flight.drain(..done).collect();
        need(complete.iter().all(|op| waited.contains(op)), || {
            "wait.mma of MMAs that it does not wait for".to_owned()
        })
    }

    /// The next stage is no longer this role's.
    fn give_back(&mut self, channel: u8) -> Checked {
        let was_full = self.state.full.remove(&channel);
        need(was_full, || format!("a stage of {channel} goes back that was not waited for"))
    }

    /// A loop: each iteration begins as the first, but for what MMAs hold across iterations.
    fn for_loop(&mut self, inner: &For) -> Checked {
        self.block(&inner.prologue)?;
        let entered = self.state.clone();
        if let Some(other) = &inner.other {
            tile_order(inner, other)?;
        }
        for _ in 0..2 {
            self.block(&inner.body)?;
            let same = |state: &State| {
                let State { full, taken, has_turn, .. } = state;
                (full.clone(), taken.clone(), *has_turn)
            };
            need(same(&self.state) == same(&entered), || {
                "a loop's iteration ends with other stages than it began with".to_owned()
            })?;
        }
        self.block(&inner.left)?;
        need(self.state.held.is_empty() && self.state.in_flight == entered.in_flight, || {
            "a loop leaves MMAs in flight".to_owned()
        })
    }

    /// Ways of which one is taken, or code that may run or not.
    fn ways(&mut self, inst: &Inst) -> Checked {
        let entered = self.state.clone();
        let mut ends = Vec::new();
        for block in inst.blocks() {
            self.state = entered.clone();
            self.block(block)?;
            if !matches!(block.last(), Some(Inst::Return(_))) {
                ends.push(self.state.clone());
            }
        }
        let stages = |state: &State| (state.full.clone(), state.taken.clone(), state.held.clone());
        let same = ends.iter().all(|end| stages(end) == stages(&ends[0]));
        need(same, || "the ways of a branch end with different stages".to_owned())?;
        self.state = ends.into_iter().next().unwrap_or(entered);
        Ok(())
    }

    fn end(&self) -> Checked {
        let State { taken, in_flight, held, panels, .. } = &self.state;
        let is_done = taken.is_empty() && in_flight.is_empty() && held.is_empty();
        need(is_done, || "the kernel ends with MMAs in flight, or stages that stay".to_owned())?;
        need(panels.sent.is_empty(), || "the kernel ends with panels on their way out".to_owned())
    }
}

impl PanelState {
    fn inst(&mut self, inst: &Inst) -> Checked {
        match inst {
            Inst::WaitPanels(left) => {
                let read = self.sent.len().saturating_sub(*left as usize);
                self.sent.drain(..read);
                self.known = false;
            }
            Inst::WarpgroupBarrier => {
                self.known = true;
                if let Some((_, fenced, met)) = &mut self.stored {
                    *met = *fenced;
                }
            }
            Inst::StorePanel(panel) => {
                need(self.known && !self.sent.contains(&panel.buffer), || {
                    format!("buffer {} is written while the copy engine may read it", panel.buffer)
                })?;
                self.stored = Some((*panel, false, false));
            }
            Inst::AsyncFence => {
                if let Some((_, fenced, _)) = &mut self.stored {
                    *fenced = true;
                }
            }
            Inst::SendPanel(panel) => {
                need(self.stored == Some((*panel, true, true)), || {
                    format!("panel {} is sent before all threads wrote and fenced it", panel.number)
                })?;
                self.stored = None;
                self.sent.push(panel.buffer);
            }
            _ => {}
        }
        Ok(())
    }
}

/// A consumer of a ping-pong schedule waits for its tile before its first stage, says that its main loop has ended after the
/// last, and goes through as many stages in the other one's tile.
fn tile_order(inner: &For, other: &Block) -> Checked {
    let waits = |inst: &Inst| {
        let inside = inst.blocks().into_iter();
        let is_wait = |inst: &Inst| matches!(inst, Inst::WaitFull(_));
        is_wait(inst) || inside.into_iter().any(|block| has(block, &is_wait))
    };
    let first = inner.body.iter().position(waits);
    let last = inner.body.iter().rposition(waits);
    let at = |wanted: Inst| inner.body.iter().position(|inst| *inst == wanted);
    let begins = at(Inst::AwaitTile).is_some_and(|at| Some(at) < first);
    need(begins, || "a stage is waited for before await.tile".to_owned())?;
    let ends = at(Inst::PassTile).is_some_and(|at| Some(at) > last);
    need(ends, || "pass.tile does not follow the main loop".to_owned())?;
    need(stages(other, &ADVANCES) == stages(&inner.body, &WAITS), || {
        "the other consumer's tile has other stages".to_owned()
    })
}

/// How often a block goes to the next stage of each pipeline, and the same of the blocks inside.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Stages {
    count: BTreeMap<u8, u32>,
    inside: Vec<Stages>,
}

const ADVANCES: fn(&Inst) -> Option<u8> = |inst| match inst {
    Inst::Advance(channel) => Some(*channel),
    _ => None,
};
const WAITS: fn(&Inst) -> Option<u8> = |inst| match inst {
    Inst::WaitFull(channel) => Some(*channel),
    _ => None,
};

fn stages(block: &Block, next: &dyn Fn(&Inst) -> Option<u8>) -> Stages {
    let mut all = Stages::default();
    for inst in block {
        if let Some(channel) = next(inst) {
            *all.count.entry(channel).or_default() += 1;
        }
        let inside = inst.blocks().into_iter().map(|block| stages(block, next));
        all.inside.extend(inside.filter(|stages| *stages != Stages::default()));
    }
    all
}

/// The producer fills the stages that consumers wait for, in the same loops.
fn same_stages(roles: &WarpSpecialized) -> Checked {
    let Some(feeds) = roles.producer.last() else { return Err("there is no producer".to_owned()) };
    let filled = stages(&feeds.code.body, &ADVANCES);
    need(filled == stages(&roles.consumers.body, &WAITS), || {
        "consumers wait for other stages than the producer fills".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::warp_specialization::tests::{MATMUL, compiled};
    use crate::machine::golden::{attend, gate, on_hopper, tiles};
    use crate::target::GpuTarget;

    const GPU: GpuTarget = GpuTarget::SM_90A;

    fn program(lir: &LayoutIr) -> (Box<WarpSpecialized>, SharedMemory) {
        let memory = SharedMemory::of(lir, &GPU).unwrap();
        match Program::of(lir, &memory, &GPU) {
            Program::WarpSpecialized(roles) => (roles, memory),
            Program::Uniform(_) => panic!("warps have no roles"),
        }
    }

    fn kernels() -> Vec<LayoutIr> {
        let constant = MATMUL.replacen("readonly", "readonly constant", 1);
        vec![
            compiled(MATMUL, Some(8), crate::passes::NVPTX),
            compiled(&constant, Some(8), crate::passes::NVPTX),
            on_hopper(&attend::KERNEL, &[128, 64, 64], 8),
            on_hopper(&tiles::KERNEL, &[64, 256, 64], 4),
            on_hopper(&tiles::KERNEL, &[128, 128, 64], 8),
            on_hopper(&gate::KERNEL, &[128, 128, 64], 8),
        ]
    }

    /// Every block that lacks one instruction of these, at any depth.
    fn without_one(block: &Block, wanted: &dyn Fn(&Inst) -> bool) -> Vec<(Inst, Block)> {
        let mut all = Vec::new();
        for (at, inst) in block.iter().enumerate() {
            if wanted(inst) {
                let mut rest = block.clone();
                all.push((rest.remove(at), rest));
            }
            for i in 0..inst.blocks().len() {
                for (gone, inside) in without_one(inst.blocks()[i], wanted) {
                    let mut whole = block.clone();
                    *whole[at].blocks_mut()[i] = inside;
                    all.push((gone, whole));
                }
            }
            if let Inst::For(inner) = inst {
                for (gone, left) in without_one(&inner.left, wanted) {
                    let mut whole = block.clone();
                    whole[at] = Inst::For(Box::new(For { left, ..(**inner).clone() }));
                    all.push((gone, whole));
                }
            }
        }
        all
    }

    /// What keeps the protocol.
    fn is_protocol(inst: &Inst) -> bool {
        matches!(
            inst,
            Inst::WaitFull(_)
                | Inst::WaitEmpty(_)
                | Inst::Arm(_)
                | Inst::Advance(_)
                | Inst::ReleaseNext(_)
                | Inst::ReleaseResident(_)
                | Inst::HoldNext(_)
                | Inst::Release { .. }
                | Inst::WaitMma { .. }
                | Inst::FinishMma(_)
                | Inst::WaitPanels(_)
                | Inst::WarpgroupBarrier
                | Inst::AsyncFence
                | Inst::AwaitTile
                | Inst::PassTile
                | Inst::InitBarriers { .. }
                | Inst::FenceBarriers
                | Inst::Barrier
        )
    }

    #[test]
    fn kernels_keep_the_protocol() {
        for lir in kernels() {
            let (roles, memory) = program(&lir);
            assert_eq!(verify_program(&Program::WarpSpecialized(roles), &lir, &memory), Ok(()));
        }
    }

    #[test]
    fn every_instruction_of_the_protocol_is_needed() {
        for lir in kernels() {
            let (roles, memory) = program(&lir);
            let mut tried = 0;
            // A wait for the last MMAs of one product is one for all; each tells ptxas of its own accumulators.
            let is_finish = |inst: &Inst| matches!(inst, Inst::FinishMma(_));
            let finish_once = without_one(&roles.consumers.body, &is_finish).len() < 2;
            for (gone, body) in without_one(&roles.consumers.body, &is_protocol) {
                if is_finish(&gone) && !finish_once {
                    continue;
                }
                let broken = consumers(&lir, &body).is_err()
                    || stages(&roles.producer[roles.producer.len() - 1].code.body, &ADVANCES)
                        != stages(&body, &WAITS);
                // With one panel in flight at most, a wait for all need not stand before each.
                assert!(broken || gone == Inst::WaitPanels(0), "consumers without {gone:?}");
                tried += usize::from(broken);
            }
            for part in &roles.producer {
                for (gone, body) in without_one(&part.code.body, &is_protocol) {
                    let found = producer(&part.lir.func, part.constant, &body);
                    assert!(found.is_err(), "the producer without {gone:?}");
                    tried += 1;
                }
            }
            let mut block = roles.setup.clone();
            if let Some(Inst::Once(once)) = block.iter().find(|i| matches!(i, Inst::Once(_))) {
                for (gone, once) in without_one(once, &is_protocol) {
                    let at = block.iter().position(|i| matches!(i, Inst::Once(_))).unwrap();
                    let mut broken = block.clone();
                    broken[at] = Inst::Once(once);
                    assert!(setup(&broken, &lir, &memory).is_err(), "without {gone:?}");
                    tried += 1;
                }
            }
            block.retain(|inst| *inst != Inst::Barrier);
            assert!(setup(&block, &lir, &memory).is_err());
            assert!(tried > 8, "{tried}");
        }
    }

    /// Swaps the first of these with the instruction after it, wherever both stand.
    fn swapped(block: &Block, first: &dyn Fn(&Inst) -> bool) -> Option<Block> {
        let mut block = block.clone();
        if let Some(at) = block.iter().position(first).filter(|at| at + 1 < block.len()) {
            block.swap(at, at + 1);
            return Some(block);
        }
        for inst in &mut block {
            for inside in inst.blocks_mut() {
                if let Some(swapped) = swapped(inside, first) {
                    *inside = swapped;
                    return Some(block);
                }
            }
        }
        None
    }

    #[test]
    fn a_wrong_order_is_found() {
        let lir = on_hopper(&attend::KERNEL, &[128, 64, 64], 8);
        let (roles, _) = program(&lir);
        let body = &roles.consumers.body;
        let early = |first: &dyn Fn(&Inst) -> bool| consumers(&lir, &swapped(body, first).unwrap());
        // A stage is read before it is full; it goes back while MMAs read it; a panel is sent before it is fenced.
        assert!(early(&|inst| matches!(inst, Inst::WaitFull(1))).is_err());
        assert!(early(&|inst| matches!(inst, Inst::WaitMma { .. })).is_err());
        assert!(early(&|inst| matches!(inst, Inst::AsyncFence)).is_err());
        let feeds = &roles.producer[0];
        let late = swapped(&feeds.code.body, &|inst| matches!(inst, Inst::Arm(_))).unwrap();
        assert!(producer(&feeds.lir.func, feeds.constant, &late).is_err());
    }
}
