//! The words of instructions with at most one simple operand, for the printer and the parser.

use super::{AtomicBy, Inst, Panel, Part};
use crate::ir::{MemoryScope, Op};

/// Instructions without an operand.
pub(super) const PLAIN: &[(&str, Inst)] = &[
    ("barrier", Inst::Barrier),
    ("barrier.cluster", Inst::ClusterBarrier),
    ("barrier.warpgroup", Inst::WarpgroupBarrier),
    ("wait.cluster", Inst::ClusterWait),
    ("arrive.cluster", Inst::ClusterArrive),
    ("leave.cluster", Inst::LeaveCluster),
    ("fence.block", Inst::Fence(MemoryScope::Block)),
    ("fence.cluster", Inst::Fence(MemoryScope::Cluster)),
    ("fence.gpu", Inst::Fence(MemoryScope::Gpu)),
    ("fence.system", Inst::Fence(MemoryScope::System)),
    ("fence.async", Inst::AsyncFence),
    ("fence.mbarriers", Inst::FenceBarriers),
    ("prefetch.maps", Inst::PrefetchMaps),
    ("wait.grid", Inst::GridWait),
    ("launch.dependents", Inst::LaunchDependents),
    ("commit", Inst::CommitCopies),
    ("pass.first.turn", Inst::PassFirstTurn),
    ("await.tile", Inst::AwaitTile),
    ("pass.tile", Inst::PassTile),
    ("pragma.nounroll", Inst::NoUnroll),
];

/// The axes of the grid.
pub(super) const AXES: [&str; 3] = ["x", "y", "z"];

/// A word, and what makes its instruction.
pub(super) type Maker<T> = (&'static str, fn(T) -> Inst);

/// Instructions with a number.
pub(super) const NUMBERED: &[Maker<u32>] = &[
    ("wait.copies", Inst::WaitCopies),
    ("wait.panels", Inst::WaitPanels),
    ("give.registers", Inst::GiveRegisters),
    ("take.registers", Inst::TakeRegisters),
];

/// Instructions on a TMA pipeline, by its channel.
pub(super) const CHANNELS: &[Maker<u8>] = &[
    ("wait.full", Inst::WaitFull),
    ("wait.empty", Inst::WaitEmpty),
    ("arm", Inst::Arm),
    ("advance", Inst::Advance),
    ("release.next", Inst::ReleaseNext),
    ("release.resident", Inst::ReleaseResident),
    ("release.held", Inst::ReleaseHeld),
    ("hold.next", Inst::HoldNext),
];

/// Instructions of an op.
pub(super) const OPS: &[Maker<Op>] = &[
    ("atomic.red", |op| Inst::Atomic { op, by: AtomicBy::Reduction { vector: 1 } }),
    ("atomic.red.v2", |op| Inst::Atomic { op, by: AtomicBy::Reduction { vector: 2 } }),
    ("atomic.red.v4", |op| Inst::Atomic { op, by: AtomicBy::Reduction { vector: 4 } }),
    ("atomic.red.v8", |op| Inst::Atomic { op, by: AtomicBy::Reduction { vector: 8 } }),
    ("atomic.atom", |op| Inst::Atomic { op, by: AtomicBy::Instruction }),
    ("atomic.swap.loop", |op| Inst::Atomic { op, by: AtomicBy::SwapLoop }),
    ("finish", |of| Inst::FinishCopies { of }),
    ("finish.mma", Inst::FinishMma),
    ("scheduling.barrier", Inst::SchedulingBarrier),
    ("yield", Inst::Yield),
    ("return", Inst::Return),
];

/// Instructions of an exchange.
pub(super) const PARTS: &[Maker<Part>] = &[
    ("store.shared", Inst::StoreShared),
    ("store.cluster", Inst::StoreCluster),
    ("await.cluster", Inst::AwaitCluster),
    ("load.shared", Inst::LoadShared),
];

/// Instructions of a panel.
pub(super) const PANELS: &[Maker<Panel>] =
    &[("store.panel", Inst::StorePanel), ("send.panel", Inst::SendPanel)];

/// The word that makes this instruction of this operand.
pub(super) fn word<T: Clone>(table: &[Maker<T>], operand: &T, inst: &Inst) -> &'static str {
    let found = table.iter().find(|(_, make)| make(operand.clone()) == *inst);
    found.map_or("?", |(word, _)| word)
}

/// What a word makes of its operand.
pub(super) fn maker<T>(table: &[Maker<T>], word: &str) -> Option<fn(T) -> Inst> {
    table.iter().find(|(other, _)| *other == word).map(|(_, make)| *make)
}
