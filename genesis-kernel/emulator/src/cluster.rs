//! The state of a cluster: its blocks and warps, their clocks, and what is under way.

use std::collections::BTreeMap;
use std::mem::take;

use super::arrivals::{BlockBarrier, MemoryBarrier};
use super::fault::{Fault, place};
use super::memory::Tensor;
use super::program::{PARAM_BASE, Program, RANK_SHIFT};
use super::shadow::{Access, Clock, Conflict, Epoch, Shadow, VectorClock, Way};
use super::warp::{LANES, Warp};

/// A kernel with its arguments.
pub(super) struct Launch<'p> {
    pub(super) program: &'p Program,
    pub(super) threads: u32,
    pub(super) shared_bytes: u32,
    pub(super) params: Vec<u8>,
    /// Tensor maps, by where they are in the parameters.
    pub(super) tensors: Vec<(u64, Tensor)>,
}

/// Work beside a thread or a warpgroup, in groups that end in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Groups {
    pub(super) agent: u32,
    /// The open group.
    pub(super) number: u32,
    /// The last group that something was put in.
    pub(super) used: u32,
    /// The last group that was waited for.
    pub(super) done: u32,
}

/// A block's memory and barriers.
pub(super) struct Block {
    pub(super) shared: Vec<u8>,
    pub(super) shadow: Shadow,
    pub(super) barriers: BTreeMap<u64, BlockBarrier>,
    pub(super) index: [u32; 3],
    /// Threads that have ended.
    pub(super) ended: u32,
    /// What those knew.
    pub(super) known: VectorClock,
    /// What other blocks of the cluster did to its memory.
    pub(super) visits: Vec<(Epoch, usize)>,
}

impl Block {
    fn new(shared: Vec<u8>, shadow: Shadow, index: [u32; 3]) -> Block {
        Block {
            shared,
            shadow,
            barriers: BTreeMap::new(),
            index,
            ended: 0,
            known: VectorClock::default(),
            visits: Vec::new(),
        }
    }
}

/// The index in the grid of a cluster's block.
fn index(program: &Program, at: [u32; 3], rank: u32) -> [u32; 3] {
    let [x, y, _] = program.cluster;
    let inside = [rank % x, rank / x % y, rank / x / y];
    [0, 1, 2].map(|axis| at[axis] * program.cluster[axis] + inside[axis])
}

/// Blocks that run together.
pub(super) struct Cluster<'p> {
    pub(super) launch: &'p Launch<'p>,
    pub(super) program: &'p Program,
    pub(super) grid: [u32; 3],
    pub(super) at: [u32; 3],
    /// The number of this run among those of all clusters.
    pub(super) run: u32,
    pub(super) blocks: Vec<Block>,
    pub(super) warps: Vec<Warp>,
    /// By thread.
    pub(super) clocks: Vec<Clock>,
    pub(super) next_agent: u32,
    /// Barriers in memory, by address.
    pub(super) barriers: BTreeMap<u64, MemoryBarrier>,
    pub(super) cluster_barrier: BlockBarrier,
    /// What the blocks knew when they last met.
    pub(super) cluster_clock: VectorClock,
    /// Asynchronous copies of a thread.
    pub(super) copies: BTreeMap<usize, Groups>,
    /// Copies out of shared memory of a thread.
    pub(super) bulk: BTreeMap<usize, Groups>,
    /// Products of a warpgroup, by its first warp.
    pub(super) products: BTreeMap<usize, Products>,
    /// The instruction that runs.
    pub(super) current: usize,
}

/// The products of a warpgroup.
pub(super) struct Products {
    pub(super) agent: u32,
    /// What its threads had done when they began a group of products whose left operand they hold, by the
    /// group's number.
    pub(super) begun: BTreeMap<u32, VectorClock>,
}

/// What comes after an instruction.
pub(super) enum After {
    /// The next one.
    Next,
    /// The instruction has said where each lane goes.
    Told,
}

impl<'p> Cluster<'p> {
    pub(super) fn new(
        launch: &'p Launch<'p>,
        grid: [u32; 3],
        at: [u32; 3],
        run: u32,
    ) -> Cluster<'p> {
        let program = launch.program;
        let ranks: u32 = program.cluster.iter().product();
        let block = |rank: u32| {
            let shared = vec![0; launch.shared_bytes as usize];
            let shadow = Shadow::new(launch.shared_bytes as usize, false);
            Block::new(shared, shadow, index(program, at, rank))
        };
        let per_block = launch.threads as usize / LANES;
        let warp = |number: usize| {
            let (rank, inside) = (number / per_block, number % per_block);
            Warp::new(program, number * LANES, rank as u32, (inside * LANES) as u32)
        };
        let blocks = (0..ranks).map(block).collect();
        let warps = (0..ranks as usize * per_block).map(warp).collect();
        Cluster::of(launch, grid, (at, run), (blocks, warps))
    }

    /// Another cluster of the grid, in the allocations of one that is over.
    pub(super) fn renewed(mut self, at: [u32; 3], run: u32) -> Cluster<'p> {
        for (rank, block) in (0..).zip(&mut self.blocks) {
            let (mut shared, mut shadow) = (take(&mut block.shared), take(&mut block.shadow));
            shared.fill(0);
            shadow.enter(run);
            *block = Block::new(shared, shadow, index(self.program, at, rank));
        }
        self.warps.iter_mut().for_each(Warp::renew);
        Cluster::of(self.launch, self.grid, (at, run), (self.blocks, self.warps))
    }

    /// Of blocks and warps that have not begun.
    fn of(
        launch: &'p Launch<'p>,
        grid: [u32; 3],
        (at, run): ([u32; 3], u32),
        (blocks, warps): (Vec<Block>, Vec<Warp>),
    ) -> Cluster<'p> {
        let n_threads = blocks.len() as u32 * launch.threads;
        Cluster {
            launch,
            program: launch.program,
            grid,
            at,
            run,
            blocks,
            warps,
            clocks: (0..n_threads).map(Clock::new).collect(),
            next_agent: n_threads,
            barriers: BTreeMap::new(),
            cluster_barrier: BlockBarrier::default(),
            cluster_clock: VectorClock::default(),
            copies: BTreeMap::new(),
            bulk: BTreeMap::new(),
            products: BTreeMap::new(),
            current: 0,
        }
    }

    pub(super) fn agent(&mut self) -> u32 {
        self.next_agent += 1;
        self.next_agent - 1
    }

    pub(super) fn is_over(&self) -> bool {
        self.warps.iter().all(|warp| warp.alive == 0)
    }

    pub(super) fn fault(&self, message: impl Into<String>) -> Fault {
        Fault::at(self.program, self.current, message.into())
    }

    /// An access of shared memory or a buffer that may not be.
    pub(super) fn conflict(&self, conflict: Conflict, what: &str, wrote: bool) -> Fault {
        let does = if wrote { "writes" } else { "reads" };
        let at = |inst: u32| place(self.program, inst as usize);
        self.fault(match conflict {
            Conflict::Race { earlier, wrote: true } => {
                format!("a race: {does} {what}, written at {} with nothing in between", at(earlier))
            }
            Conflict::Race { earlier, wrote: false } => {
                format!("a race: {does} {what}, read at {} with nothing in between", at(earlier))
            }
            Conflict::Unfenced { earlier } => {
                format!(
                    "{does} {what} by the async proxy, written at {} without a proxy fence since",
                    at(earlier)
                )
            }
            Conflict::Unwritten => format!("{does} {what}, which nobody wrote"),
            Conflict::Barrier { earlier } => {
                format!(
                    "{does} {what}, where a barrier and data meet; the other is at {}",
                    at(earlier)
                )
            }
        })
    }

    /// An access of a thread by the current instruction.
    pub(super) fn access(&self, thread: usize, way: Way) -> Access {
        self.access_of(self.clocks[thread].now(), way)
    }

    pub(super) fn access_of(&self, epoch: Epoch, way: Way) -> Access {
        Access { epoch, way, at: self.current as u32 }
    }

    /// Notes what a thread, or a copy, does to the memory of a block that may be another one's.
    pub(super) fn visit(&mut self, thread: usize, rank: usize, epoch: Epoch) {
        if rank != thread / self.launch.threads as usize {
            let at = self.current;
            self.blocks[rank].visits.push((epoch, at));
        }
    }

    /// A place of shared memory: the block in the cluster, and the byte.
    pub(super) fn shared_place(&self, address: u64, bytes: u32) -> Result<(usize, usize), Fault> {
        let (rank, offset) = split(address);
        let size = u64::from(self.launch.shared_bytes);
        if rank as usize >= self.blocks.len() || offset + u64::from(bytes) > size {
            let message =
                format!("byte {offset} of shared memory of block {rank}, which has {size} bytes");
            return Err(self.fault(message));
        }
        if !address.is_multiple_of(u64::from(bytes.next_power_of_two().min(16))) {
            return Err(
                self.fault(format!("{bytes} bytes at {offset} of shared memory: misaligned"))
            );
        }
        Ok((rank as usize, offset as usize))
    }

    /// Whether a warp may touch the shared memory of a block: another one's must be there.
    pub(super) fn reach(&self, number: usize, rank: usize) -> Result<(), Fault> {
        if rank == self.warps[number].rank as usize {
            return Ok(());
        }
        if self.cluster_barrier.opened == 0 {
            return Err(self.fault("another block's memory is touched before it is known to run"));
        }
        match self.blocks[rank].ended == self.launch.threads {
            true => Err(self.fault("another block's memory is touched after it has ended")),
            false => Ok(()),
        }
    }

    /// The tensor that an address of a map means.
    pub(super) fn tensor(&self, address: u64) -> Result<&'p Tensor, Fault> {
        let offset = address.wrapping_sub(PARAM_BASE);
        let found = self.launch.tensors.iter().find(|(at, _)| *at == offset);
        let tensor = found.map(|(_, tensor)| tensor);
        tensor.ok_or_else(|| self.fault(format!("{address:#x} is no tensor map")))
    }
}

/// An address of shared memory: the block in the cluster, and the byte.
pub(super) fn split(address: u64) -> (u64, u64) {
    (address >> RANK_SHIFT, address & ((1 << RANK_SHIFT) - 1))
}
