//! The state of TMA pipelines and of a ping-pong schedule in one role, in stack variables that mem2reg promotes.

use std::collections::BTreeMap;

use super::super::llvm::{Emitter, Val};
use super::thread;
use crate::ir::Op;
use crate::machine::PipelineLayout;

/// Stands for no stage in [`Pipeline::held`].
pub(super) const NONE: i64 = -1;

/// What threads do in a kernel that has a producer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Everything but the loads by the copy engine.
    Consumer,
    /// Those loads, in one thread.
    Producer,
}

/// A pipeline as a role sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pipeline {
    pub(super) layout: PipelineLayout,
    /// Variable: the slot that is next.
    pub(super) slot: Val,
    /// Variable: the parity to wait for.
    pub(super) parity: Val,
    /// Variable: the stage that the MMAs in flight read, or [`NONE`].
    pub(super) held: Val,
    /// Variable: stages that the producer has prefetched, from the next one on.
    pub(super) prefetched: Val,
}

impl Pipeline {
    /// Allocates a pipeline's variables; the builder stands in the function's first block.
    pub(super) fn reserve(e: &Emitter, layout: PipelineLayout) -> Pipeline {
        let [slot, parity, held, prefetched] = [(); 4].map(|()| e.alloca(e.i32(), 4));
        e.store_aligned(e.int(e.i32(), 0), prefetched, 4);
        Pipeline { layout, slot, parity, held, prefetched }
    }

    /// Sets the variables of a role that begins.
    pub(super) fn begin(&self, e: &Emitter, role: Role) {
        let set = |variable, value| e.store_aligned(e.int(e.i32(), value), variable, 4);
        set(self.slot, 0);
        set(self.parity, i64::from(role == Role::Producer));
        set(self.held, NONE);
    }
}

/// What a role knows of the copy engine.
pub(super) struct Copies {
    pub(super) role: Role,
    /// By channel.
    pub(super) pipelines: Vec<Pipeline>,
    /// Addresses of tensor maps, by number.
    pub(super) maps: Vec<Val>,
    /// Where panels of stores start in shared memory.
    pub(super) staging: u32,
    /// The number of this thread's warpgroup among those of its tile, which its warp agrees on.
    pub(super) group: Val,
    /// The number of this thread's warpgroup in the block.
    pub(super) unit: Val,
    /// Where two consumers alternate over tiles: this one's state.
    pub(super) ping_pong_tiles: Option<PingPongTiles>,
    /// Whether this thread speaks for its warpgroup.
    pub(super) leads: Val,
    /// The stages that dots' MMAs in flight read, by channel.
    pub(super) taken: BTreeMap<(Op, u8), Val>,
}

/// Waits until the phase of this parity is over.
pub(super) fn wait_parity(e: &Emitter, barrier: Val, parity: Val) {
    thread::delay(e);
    let (again, done) = (e.block("wait"), e.block("ready"));
    e.br(again);
    e.position(again);
    let test = "llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta";
    let is_over = e.intrinsic(test, &[], &[barrier, parity]);
    e.cond_br(is_over, done, again);
    e.position(done);
}

/// What a consumer of a ping-pong schedule knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct PingPongTiles {
    /// Where the order barriers start in shared memory, in bytes.
    pub(super) barriers: u32,
    /// The number of this consumer.
    pub(super) set: Val,
    /// Variable: the consumer whose tile comes next.
    pub(super) next: Val,
    /// Variable: the parity of this consumer's order barrier.
    pub(super) parity: Val,
}

impl PingPongTiles {
    /// Room for the variables; the builder stands in the function's first block.
    pub(super) fn reserve(e: &Emitter, barriers: u32) -> PingPongTiles {
        let [next, parity] = [(); 2].map(|()| e.alloca(e.i32(), 4));
        PingPongTiles { barriers, set: e.int(e.i32(), 0), next, parity }
    }

    /// Sets the variables of a consumer that begins: the first one need not wait for its first tile.
    pub(super) fn begin(self, e: &Emitter, set: Val) -> PingPongTiles {
        let int = |n| e.int(e.i32(), n);
        e.store_aligned(int(0), self.next, 4);
        e.store_aligned(e.xor(set, int(1)), self.parity, 4);
        PingPongTiles { set, ..self }
    }
}
