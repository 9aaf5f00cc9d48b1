//! Setup of synchronization: what one thread initializes before any other may use it.
//!
//! A warp-specialized kernel initializes the full and empty mbarriers of each pipeline and the order barriers of a ping-pong
//! schedule, then all threads of the block meet, in a cluster those of all blocks: each arrives at the others' mbarriers,
//! and sends copies to them.
//!
//! ```text
//! once {
//!   prefetch.maps
//!   init.mbarriers 229376 count 4 arrivals 1       full, by the copy engine
//!   init.mbarriers 229408 count 4 arrivals 2       empty, by each consumer warpgroup
//!   fence.mbarriers
//! }
//! barrier
//! ```
//!
//! A kernel that reduces over a cluster by DSMEM stores arms the mbarrier of each such op once (see [`super::dsmem`]), and
//! its blocks say that they run, which [`super::cluster`] waits for.

use super::{Block, Code, Inst, SharedMemory, cluster, dsmem};
use crate::ir::Op;
use crate::layout::LayoutIr;
use crate::layout::ping_pong::ping_pong_loop;
use crate::tuning::multiprocessor::{WARPGROUP_THREADS, WARPGROUP_WARPS};

/// What all threads of a warp-specialized kernel do before they part.
pub(super) fn pipelines(lir: &LayoutIr, memory: &SharedMemory) -> Block {
    let mut once = vec![Inst::PrefetchMaps];
    let readers = lir.num_warps / WARPGROUP_WARPS * lir.num_blocks;
    for pipeline in &memory.pipelines {
        let count = pipeline.stages;
        once.push(Inst::InitBarriers { at: pipeline.full, count, arrivals: 1 });
        once.push(Inst::InitBarriers { at: pipeline.empty, count, arrivals: readers });
    }
    if ping_pong_loop(lir).is_some() {
        let at = memory.order_barriers;
        once.push(Inst::InitBarriers { at, count: 2, arrivals: WARPGROUP_THREADS });
    }
    once.push(Inst::FenceBarriers);
    let meet = match lir.num_blocks {
        1 => Inst::Barrier,
        _ => Inst::ClusterBarrier,
    };
    vec![Inst::Once(once), meet]
}

/// Arms the mbarriers of DSMEM stores, and says to the cluster that this block runs.
pub(super) fn run(code: &mut Code, lir: &LayoutIr, memory: &SharedMemory) {
    let of_op = |op: Op| {
        let at = dsmem::barrier(lir, memory.scratch(op), op)?;
        let bytes = dsmem::received_bytes(lir, op)?;
        Some([Inst::InitBarriers { at, count: 1, arrivals: 1 }, Inst::ExpectBytes { at, bytes }])
    };
    let mut once: Block = lir.func.walk().into_iter().filter_map(of_op).flatten().collect();
    if !once.is_empty() {
        once.push(Inst::FenceBarriers);
        code.entry.push(Inst::Once(once));
    }
    if cluster::arrives(lir) {
        code.entry.push(Inst::ClusterArrive);
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::machine::RunBy;
    use crate::machine::golden::{changes, in_cluster};

    #[test]
    fn what_counts_dsmem_stores_is_armed_once() {
        let lir = in_cluster();
        expect![[r#"
              wait.grid
            + once {
            +   init.mbarriers 32 count 1 arrivals 1
            +   expect.bytes 32 32
            +   fence.mbarriers
            + }
            + arrive.cluster
              // then
              ..
        "#]]
        .assert_eq(&changes(&lir, RunBy::Block, "setup"));
    }
}
