//! The instructions of machine IR.

use std::collections::BTreeMap;
use std::ops::Range;

use super::selection::Selection;
use crate::ir::{Func, MemoryScope, Op, ParamAttrs, Region};
use crate::layout::{DotPlan, DotUnit, LayoutIr};

/// Instructions that run one after the other.
pub type Block = Vec<Inst>;

/// What all threads of a role do together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Inst {
    /// Runs an op, or what its other instructions leave of it: registers, global memory, and these bytes of shared memory
    /// that a dot's operands are in.
    Exec {
        /// The op.
        op: Op,
        /// What it reads of shared memory.
        reads: Vec<Bytes>,
    },
    /// Writes each thread's share of an exchange to the op's scratch.
    StoreShared(Part),
    /// Writes it to the scratch of all blocks of the cluster that need it (DSMEM).
    StoreCluster(Part),
    /// Waits on the mbarrier that counts the DSMEM stores of all blocks to this scratch.
    AwaitCluster(Part),
    /// Reads what the threads wrote.
    LoadShared(Part),
    /// A step of a reduction or scan within a warp.
    Combine {
        /// The op.
        op: Op,
        /// Whose elements meet.
        across: Across,
    },
    /// An atomic access of global memory.
    Atomic {
        /// The op.
        op: Op,
        /// What does it.
        by: AtomicBy,
    },
    /// `fence.acq_rel`: orders this thread's accesses for all threads of the scope.
    Fence(MemoryScope),
    /// Waits until at most this many of the warpgroup's panels are still to be read by the copy engine.
    WaitPanels(u32),
    /// A barrier of a warpgroup.
    WarpgroupBarrier,
    /// Writes a panel of a TMA store to shared memory, swizzled.
    StorePanel(Panel),
    /// `fence.proxy.async`: the copy engine sees what this thread wrote to shared memory.
    AsyncFence,
    /// Sends a panel to global memory by the copy engine.
    SendPanel(Panel),
    /// A barrier of the threads of this role in the block.
    Barrier,
    /// A barrier of all threads of the cluster.
    ClusterBarrier,
    /// Waits until all blocks of the cluster run, which they said when they began.
    ClusterWait,
    /// Runs in one thread of the block.
    Once(Block),
    /// `mbarrier.init` of some that lie side by side.
    InitBarriers {
        /// Where the first lies.
        at: u32,
        /// How many there are.
        count: u32,
        /// Arrivals that complete a phase of one.
        arrivals: u32,
    },
    /// Arms the mbarrier that counts DSMEM stores with the bytes that will come.
    ExpectBytes {
        /// Where it lies.
        at: u32,
        /// The bytes.
        bytes: u32,
    },
    /// `fence.mbarrier_init`: the copy engine and the cluster see mbarriers as initialized.
    FenceBarriers,
    /// `prefetch.tensormap` of all tensor maps.
    PrefetchMaps,
    /// `barrier.cluster.arrive`: says to the other blocks of the cluster that this one runs.
    ClusterArrive,
    /// `setmaxnreg.dec`: gives registers back, up to so many a thread.
    GiveRegisters(u32),
    /// `setmaxnreg.inc`: takes registers, up to so many a thread.
    TakeRegisters(u32),
    /// Passes the first turn of a ping-pong main loop to the first warpgroup.
    PassFirstTurn,
    /// Before a block of a cluster ends: waits until no other touches its shared memory.
    LeaveCluster,
    /// `griddepcontrol.wait`: the writes of the primary grid are visible from here on.
    GridWait,
    /// `griddepcontrol.launch_dependents`.
    LaunchDependents,
    /// Loads the indices that an iteration's copies are addressed by, this many iterations ahead.
    LoadIndices {
        /// The loop.
        of: Op,
        /// Iterations from the current one, or before the loop from the first one.
        ahead: u32,
    },
    /// Computes the addresses and masks of an iteration's copies.
    Addresses {
        /// The loop.
        of: Op,
        /// As in [`Inst::LoadIndices`].
        ahead: u32,
    },
    /// Begins to copy a load's tile of an iteration ahead to its stage (`cp.async`).
    Copy {
        /// The load whose tile it is.
        load: Op,
        /// As in [`Inst::LoadIndices`].
        ahead: u32,
        /// Where the tile goes.
        bytes: Bytes,
    },
    /// Closes the commit group of this thread's copies.
    CommitCopies,
    /// Waits until at most this many of this thread's groups are in flight.
    WaitCopies(u32),
    /// Stores to shared memory what copies that `cp.async` can't do have loaded to registers.
    FinishCopies {
        /// The loop.
        of: Op,
    },
    /// Issues a group of asynchronous MMAs (`wgmma`).
    Mma(Mma),
    /// `wgmma.wait_group`: waits until at most so many groups are in flight, among which these dots are not.
    WaitMma {
        /// The dots whose accumulators may be touched from here on.
        complete: Vec<Op>,
        /// Groups that may still be in flight.
        pending: u32,
    },
    /// After a loop's last iteration: waits for the MMAs of a dot that its iterations leave in flight.
    FinishMma(Op),
    /// Ends the basic block, so that the assembler moves no wait before what this op's result is computed from.
    SchedulingBarrier(Op),
    /// Waits until the copies into a TMA pipeline's next stage have arrived (its full mbarrier).
    WaitFull(u8),
    /// Waits until every consumer has read the next stage (its empty mbarrier).
    WaitEmpty(u8),
    /// Arms the next stage's full mbarrier with the bytes that will come.
    Arm(u8),
    /// Advances the pipeline state to the next stage.
    Advance(u8),
    /// Releases the next stage to the producer and advances: its readers are done.
    ReleaseNext(u8),
    /// The same for a stage that stayed for a loop of MMAs.
    ReleaseResident(u8),
    /// Releases the stage that MMAs of the iteration before read, if there is one.
    ReleaseHeld(u8),
    /// Notes that MMAs in flight read the next stage, and advances.
    HoldNext(u8),
    /// Releases the stage that a dot's MMAs took: they are complete.
    Release {
        /// The pipeline.
        channel: u8,
        /// The dot.
        of: Op,
    },
    /// Runs where the pipeline's next stage was not prefetched.
    UnlessPrefetched {
        /// The pipeline.
        channel: u8,
        /// What runs there.
        body: Block,
    },
    /// Counts one more stage that was prefetched, or one less that is next.
    CountPrefetched {
        /// The pipeline.
        channel: u8,
        /// One more.
        more: bool,
    },
    /// Ping-pong over tiles: waits for the other consumer's main loop to end.
    AwaitTile,
    /// Ping-pong over tiles: says that this consumer's main loop has ended.
    PassTile,
    /// From here to the end of the block, these ops' indices are computed anew, of a thread number that LLVM can't see
    /// through.
    Rematerialize(Vec<Op>),
    /// Computes a result anew beside the one that there is, from packed 16-bit floats; see `rematerialize_rows`.
    Recompute {
        /// The op.
        op: Op,
        /// What it is computed from.
        from: Anew,
    },
    /// In the body of a loop: no iteration is copied next to another.
    NoUnroll,
    /// A counted loop.
    For(Box<For>),
    /// A loop with a condition.
    While {
        /// The op.
        op: Op,
        /// What yields whether there is another iteration.
        condition: Block,
        /// An iteration.
        body: Block,
    },
    /// One of two ways.
    If {
        /// The op.
        op: Op,
        /// Where its condition holds.
        then: Block,
        /// Where it does not.
        otherwise: Block,
    },
    /// Ends a block with the values of this op.
    Yield(Op),
    /// Ends the kernel.
    Return(Op),
}

/// A counted loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct For {
    /// The op of the layout IR.
    pub op: Op,
    /// The first copies of a multistage buffer.
    pub prologue: Block,
    /// Whether the prologue runs where the loop has no iteration too: its copies are masked, but what else is in it, such
    /// as the wait for the primary grid, must run.
    pub hoisted: bool,
    /// An iteration.
    pub body: Block,
    /// What a consumer does in a tile of the other one, where two alternate over the iterations.
    pub other: Option<Block>,
    /// What comes after the last iteration, where there was one.
    pub left: Block,
}

/// The asynchronous MMAs of a dot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mma {
    /// The dot.
    pub op: Op,
    /// What they read of the dot's scratch.
    pub reads: Vec<Bytes>,
    /// The pipelines whose next stage they are the last to read.
    pub takes: Vec<u8>,
    /// When they are waited for.
    pub wait: MmaWait,
    /// Waits for its turn to issue: of a pair of MMAs in a ping-pong main loop the first.
    pub awaits_turn: bool,
    /// Passes the turn to the next warpgroup: the last of the pair.
    pub passes_turn: bool,
}

/// When the MMAs of a dot are waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MmaWait {
    /// Where the accumulators are used.
    Iteration,
    /// Once the next iteration's are issued.
    NextIteration,
    /// At once: they begin at zero, and an `exec` promotes their sums to the accumulators in f32.
    Promoted,
}

impl MmaWait {
    /// That of a dot's MMAs; none where these are not asynchronous.
    pub(crate) fn of(plan: &DotPlan) -> Option<MmaWait> {
        let is_async = matches!(plan.unit, DotUnit::Wgmma(_));
        Some(match () {
            () if !is_async => return None,
            // A in registers would be overwritten.
            () if plan.async_across_iterations && plan.a.registers().is_none() => {
                MmaWait::NextIteration
            }
            () if plan.promoted => MmaWait::Promoted,
            () => MmaWait::Iteration,
        })
    }
}

/// Elements of a thread, or of lanes, that differ in one bit of the layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Across {
    /// Registers of a thread.
    Registers(usize),
    /// Lanes of a warp, by a shuffle.
    Lanes(usize),
}

/// What a result is computed anew from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Anew {
    /// A cast, from the packed words of the load that its operand is: XORed with a zero that follows from the block's
    /// index along this axis.
    Packed(u8),
    /// Its operands, of which these were recomputed too.
    Operands(Vec<usize>),
}

/// What does an atomic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicBy {
    /// `red`, which gives no old value, of neighbouring elements at once.
    Reduction {
        /// 1, 2, 4 or 8.
        vector: u8,
    },
    /// `atom`.
    Instruction,
    /// A loop of compare-and-swap around the code of the elementwise op, where the hardware has none.
    SwapLoop,
}

/// A panel of a TMA store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Panel {
    /// The store.
    pub op: Op,
    /// Which of the warpgroup's panels of the tile, from 0 on.
    pub number: u32,
    /// The buffer of the warpgroup that it goes through.
    pub buffer: u32,
}

/// One exchange of an op between threads, through these bytes of shared memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// The op.
    pub op: Op,
    /// Which of its exchanges, from 0 on.
    pub number: u32,
    /// The op's scratch.
    pub bytes: Range<u32>,
}

/// Bytes of shared memory; in a multistage buffer, those of one stage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bytes {
    /// The bytes in stage 0.
    pub range: Range<u32>,
    /// The buffer they are in.
    pub stage: Option<Stage>,
}

/// A stage that moves on with the innermost loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stage {
    /// The stage in the loop's first iteration.
    pub first: u32,
    /// Stages of the buffer.
    pub count: u32,
    /// Bytes of a stage.
    pub bytes: u32,
}

impl From<Range<u32>> for Bytes {
    fn from(range: Range<u32>) -> Bytes {
        Bytes { range, stage: None }
    }
}

impl Bytes {
    /// The bytes in an iteration of the innermost loop.
    pub fn at(&self, iteration: u32) -> Range<u32> {
        let offset = self.stage.map_or(0, |s| (s.first + iteration) % s.count * s.bytes);
        self.range.start + offset..self.range.end + offset
    }

    /// The bytes of all stages that they may be.
    pub fn span(&self) -> Range<u32> {
        let more = self.stage.map_or(0, |s| (s.count - 1) * s.bytes);
        self.range.start..self.range.end + more
    }
}

impl Inst {
    /// An op that reads no shared memory.
    pub fn exec(op: Op) -> Inst {
        Inst::Exec { op, reads: Vec::new() }
    }

    /// The blocks of its op's regions, in their order.
    pub(super) fn blocks(&self) -> Vec<&Block> {
        match self {
            Inst::For(inner) => vec![&inner.body],
            Inst::While { condition, body, .. } => vec![condition, body],
            Inst::If { then, otherwise, .. } => vec![then, otherwise],
            _ => Vec::new(),
        }
    }

    /// The same, to change.
    pub(super) fn blocks_mut(&mut self) -> Vec<&mut Block> {
        match self {
            Inst::For(inner) => vec![&mut inner.body],
            Inst::While { condition, body, .. } => vec![condition, body],
            Inst::If { then, otherwise, .. } => vec![then, otherwise],
            _ => Vec::new(),
        }
    }

    /// The blocks of its op's regions, with these.
    pub(super) fn regions_mut(&mut self, func: &Func) -> Vec<(Region, &mut Block)> {
        let regions = self.op().map(|op| func.op(op).regions.clone()).unwrap_or_default();
        regions.into_iter().zip(self.blocks_mut()).collect()
    }

    /// The op that it is an instruction of, if it is of one.
    pub fn op(&self) -> Option<Op> {
        match self {
            Inst::Exec { op, .. }
            | Inst::Yield(op)
            | Inst::Return(op)
            | Inst::FinishMma(op)
            | Inst::Recompute { op, .. }
            | Inst::While { op, .. }
            | Inst::If { op, .. } => Some(*op),
            Inst::Mma(mma) => Some(mma.op),
            Inst::Combine { op, .. } | Inst::Atomic { op, .. } => Some(*op),
            Inst::StorePanel(panel) | Inst::SendPanel(panel) => Some(panel.op),
            Inst::StoreShared(part)
            | Inst::StoreCluster(part)
            | Inst::AwaitCluster(part)
            | Inst::LoadShared(part) => Some(part.op),
            Inst::LoadIndices { of, .. }
            | Inst::Addresses { of, .. }
            | Inst::FinishCopies { of } => Some(*of),
            Inst::Copy { load, .. } => Some(*load),
            Inst::For(inner) => Some(inner.op),
            Inst::Barrier
            | Inst::ClusterBarrier
            | Inst::ClusterWait
            | Inst::Fence(_)
            | Inst::WaitPanels(_)
            | Inst::WarpgroupBarrier
            | Inst::AsyncFence
            | Inst::Once(_)
            | Inst::InitBarriers { .. }
            | Inst::ExpectBytes { .. }
            | Inst::FenceBarriers
            | Inst::PrefetchMaps
            | Inst::ClusterArrive
            | Inst::GiveRegisters(_)
            | Inst::TakeRegisters(_)
            | Inst::PassFirstTurn
            | Inst::LeaveCluster
            | Inst::GridWait
            | Inst::LaunchDependents
            | Inst::CommitCopies
            | Inst::WaitCopies(_)
            | Inst::WaitMma { .. }
            | Inst::SchedulingBarrier(_)
            | Inst::WaitFull(_)
            | Inst::WaitEmpty(_)
            | Inst::Arm(_)
            | Inst::Advance(_)
            | Inst::ReleaseNext(_)
            | Inst::ReleaseResident(_)
            | Inst::ReleaseHeld(_)
            | Inst::HoldNext(_)
            | Inst::Release { .. }
            | Inst::UnlessPrefetched { .. }
            | Inst::CountPrefetched { .. }
            | Inst::AwaitTile
            | Inst::PassTile
            | Inst::NoUnroll
            | Inst::Rematerialize(_) => None,
        }
    }
}

/// The code of one role of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Code {
    /// What they do before anything is computed.
    pub entry: Block,
    /// What its threads do.
    pub body: Block,
    /// What combines two elements, by the region of the reduction or scan.
    pub(crate) combines: BTreeMap<Region, Block>,
    /// Where it waits for the primary grid.
    pub(crate) grid_wait: GridWait,
    /// How its ops are computed.
    pub(crate) selection: Selection,
}

/// A warp-specialized kernel's producer as layout IR: its tiles stay in shared memory, so that nothing has a layout.
pub(crate) fn producer_ir(producer: &Func, whole: &LayoutIr) -> LayoutIr {
    LayoutIr {
        layouts: vec![None; producer.n_values()],
        func: producer.clone(),
        num_warps: whole.num_warps,
        num_blocks: whole.num_blocks,
        accesses: BTreeMap::new(),
        dots: BTreeMap::new(),
        multistage: BTreeMap::new(),
        producer: None,
        program_bytes: None,
    }
}

/// Where `griddepcontrol.wait` stands in a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GridWait {
    /// Nowhere: the target has no programmatic dependent launch.
    Never,
    /// Before all else.
    First,
    /// After its first copies to shared memory.
    AfterCopies,
    /// After loads to registers.
    AfterLoads,
}

impl GridWait {
    /// Whether memory behind a parameter for reading may be written while the kernel runs, as far as the order of
    /// its loads goes.
    pub(crate) fn orders(self, attrs: &ParamAttrs) -> bool {
        match self {
            GridWait::Never | GridWait::First => false,
            GridWait::AfterCopies => !attrs.constant,
            GridWait::AfterLoads => true,
        }
    }

    /// Whether the primary grid may write memory behind a parameter while this kernel runs already.
    pub(crate) fn overlaps_writes(self, attrs: &ParamAttrs) -> bool {
        self != GridWait::Never && !attrs.constant
    }
}

/// Which threads run a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunBy {
    /// All threads of a block.
    Block,
    /// The consumers of a warp-specialized kernel.
    Consumers,
    /// One thread, which issues copies.
    Producer(Constant),
}

/// Which tiles a producer copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Constant {
    /// All, in program order.
    All,
    /// The constant ones of the first stages: the prologue prefetch.
    Prefetch,
    /// All but those, after the prefetch.
    Prefetched,
}
