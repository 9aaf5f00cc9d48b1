//! Kernel setup before a role computes anything: mbarrier initialization, `griddepcontrol.wait`, `setmaxnreg`.

use super::super::llvm::{Emitter, IntPred, Val};
use super::programmatic_dependent_launch;
use super::thread;
use crate::Error;
use crate::machine::{BARRIER_BYTES, Inst};
use crate::tuning::multiprocessor::WARPGROUP_THREADS;

/// The number of the first warpgroup's order barrier in a main loop, a named barrier; those before are used by others.
pub(super) const FIRST_ORDER_BARRIER: i64 = 6;
/// Warpgroups of a ping-pong schedule.
pub(super) const GROUPS: i64 = 2;

/// What setup is written with.
pub(super) struct Setup<'a> {
    pub(super) e: &'a Emitter,
    /// The thread in its block.
    pub(super) tid: Val,
    /// Dynamic shared memory.
    pub(super) shared: Val,
    /// Addresses of tensor maps.
    pub(super) maps: &'a [Val],
    /// The thread's warpgroup in the block, where warps have roles.
    pub(super) group: Option<Val>,
}

impl Setup<'_> {
    /// Writes instructions at the builder's position.
    pub(super) fn write(&self, block: &[Inst]) -> Result<(), Error> {
        block.iter().try_for_each(|inst| self.inst(inst))
    }

    fn inst(&self, inst: &Inst) -> Result<(), Error> {
        let e = self.e;
        match inst {
            Inst::Once(body) => self.once(body)?,
            Inst::InitBarriers { at, count, arrivals } => {
                for i in 0..*count {
                    let args = [self.at(at + i * BARRIER_BYTES), self.int(*arrivals)];
                    e.intrinsic("llvm.nvvm.mbarrier.init.shared", &[], &args);
                }
            }
            Inst::ExpectBytes { at, bytes } => {
                let expect = "llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space.cta";
                e.intrinsic(expect, &[], &[self.at(*at), self.int(*bytes)]);
            }
            Inst::FenceBarriers => {
                e.intrinsic("llvm.nvvm.fence.mbarrier_init.release.cluster", &[], &[]);
            }
            Inst::PrefetchMaps => {
                for &map in self.maps {
                    e.inline_asm(e.void(), "prefetch.tensormap [$0];", "l", &[map], true);
                }
            }
            Inst::Barrier => thread::barrier(e),
            Inst::ClusterBarrier => {
                thread::arrive_in_cluster(e);
                thread::await_cluster(e);
            }
            Inst::ClusterArrive => thread::arrive_in_cluster_first(e),
            Inst::LeaveCluster => thread::leave_cluster(e),
            Inst::GridWait => programmatic_dependent_launch::wait_for_grid(e),
            Inst::LaunchDependents => programmatic_dependent_launch::launch_dependents(e),
            Inst::GiveRegisters(count) => {
                e.intrinsic("llvm.nvvm.setmaxnreg.dec.sync.aligned.u32", &[], &[self.int(*count)]);
            }
            Inst::TakeRegisters(count) => {
                e.intrinsic("llvm.nvvm.setmaxnreg.inc.sync.aligned.u32", &[], &[self.int(*count)]);
            }
            Inst::PassFirstTurn => self.pass_first_turn()?,
            _ => return Err(Error::bug(format!("{inst:?} stands before what computes"))),
        }
        Ok(())
    }

    fn int(&self, n: u32) -> Val {
        self.e.int(self.e.i32(), i64::from(n))
    }

    /// An address in shared memory.
    fn at(&self, offset: u32) -> Val {
        self.e.gep(self.e.i8(), self.shared, self.int(offset))
    }

    /// Code for thread 0.
    fn once(&self, body: &[Inst]) -> Result<(), Error> {
        let e = self.e;
        let (inside, done) = (e.block("init"), e.block("ready"));
        e.cond_br(e.icmp(IntPred::Eq, self.tid, self.int(0)), inside, done);
        e.position(inside);
        self.write(body)?;
        e.br(done);
        e.position(done);
        Ok(())
    }

    /// The first arrival of a main loop whose warpgroups take turns, by the last warpgroup for the first.
    fn pass_first_turn(&self) -> Result<(), Error> {
        let e = self.e;
        let group = self.group.ok_or_else(|| Error::bug("turns of threads without roles"))?;
        let (give, begun) = (e.block("first.order"), e.block("begun"));
        e.cond_br(e.icmp(IntPred::Eq, group, e.int(e.i32(), GROUPS - 1)), give, begun);
        e.position(give);
        thread::arrive_at_named(e, e.int(e.i32(), FIRST_ORDER_BARRIER), 2 * WARPGROUP_THREADS);
        e.br(begun);
        e.position(begun);
        Ok(())
    }
}
