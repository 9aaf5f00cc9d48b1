//! Machine IR: what the threads of a block do, in order, between layout IR and LLVM.
//!
//! Layout IR says what is computed and which thread holds which element. Machine IR adds what the hardware makes one say:
//! which bytes of shared memory an op's exchange goes through, the asynchronous copies of a multistage buffer with their
//! commit groups, and every barrier and wait. An instruction names the op of the layout IR whose values it reads and
//! gives, so that values, types and layouts are those of the layout IR.
//!
//! ```text
//! %7 = reduce add 0 %6           layout IR, over the warps of a block
//!
//! store.shared 7.0 0..64         each warp's partial result to the scratch of op 7
//! barrier
//! load.shared 7.0 0..64          all of them
//! exec 7                         the result
//! ```
//!
//! [`lower`] makes it of layout IR in passes, each in a file of its own:
//!
//! | pass | what it adds |
//! |---|---|
//! | `expand` | the instructions of each op, without barriers but for those of multistage buffers |
//! | `prologue_prefetch` | `griddepcontrol.wait`, and what may come before it |
//! | `cluster` | the wait for the other blocks of a cluster to run |
//! | `membar` | barriers |
//!
//! Code generation writes one instruction after the other and decides nothing about their order. [`verify`] finds two
//! accesses to shared memory that no barrier or wait keeps apart; it knows nothing of the passes' rules, and runs on
//! every kernel in debug builds. The text form ([`print`], [`parse`]) is what tests and `GENESIS_DUMP=machine` show.

mod alias;
mod allocate;
pub(crate) mod cluster;
pub(crate) mod dsmem;
pub(crate) mod exchange;
mod expand;
mod membar;
mod parse;
mod print;
pub(crate) mod producer_prologue;
pub(crate) mod prologue_prefetch;
pub(crate) mod scratch;
mod verify;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

pub(crate) use self::alias::PointsTo;
pub(crate) use self::allocate::{
    BARRIER_BYTES, PANEL_BYTES, PANEL_ROWS, PANELS, PipelineLayout, SWIZZLE_ALIGNMENT, SharedMemory,
};
pub use self::parse::parse;
pub use self::print::print;
pub use self::verify::{Race, verify};

pub(crate) use self::prologue_prefetch::GridWait;
use crate::ir::{Op, Region};
use crate::layout::LayoutIr;
use crate::target::GpuTarget;

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
    /// A barrier of the threads of this role in the block.
    Barrier,
    /// A barrier of all threads of the cluster.
    ClusterBarrier,
    /// Waits until all blocks of the cluster run, which they said when they began.
    ClusterWait,
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

    /// The op that it is an instruction of, if it is of one.
    pub fn op(&self) -> Option<Op> {
        match self {
            Inst::Exec { op, .. }
            | Inst::Yield(op)
            | Inst::Return(op)
            | Inst::While { op, .. }
            | Inst::If { op, .. } => Some(*op),
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
            | Inst::GridWait
            | Inst::LaunchDependents
            | Inst::CommitCopies
            | Inst::WaitCopies(_) => None,
        }
    }
}

/// The code of one role of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Code {
    /// What its threads do.
    pub body: Block,
    /// What combines two elements, by the region of the reduction or scan.
    pub(crate) combines: BTreeMap<Region, Block>,
    /// Where it waits for the primary grid.
    pub(crate) grid_wait: GridWait,
}

/// Which threads run a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunBy {
    /// All threads of a block.
    Block,
    /// The consumers of a warp-specialized kernel.
    Consumers,
    /// One thread, which issues copies.
    Producer,
}

/// Machine IR of one role's function.
pub(crate) fn lower(lir: &LayoutIr, memory: &SharedMemory, gpu: &GpuTarget, by: RunBy) -> Code {
    let mut code = expand::run(lir, memory);
    code.grid_wait = GridWait::of(lir, gpu);
    if by == RunBy::Block {
        prologue_prefetch::run(&mut code, lir, memory, gpu);
    }
    cluster::run(&mut code, lir);
    if by != RunBy::Producer {
        membar::run(&mut code, lir);
    }
    if crate::knobs::get().all_barriers {
        membar::add_all(&mut code.body, memory);
    }
    code
}
