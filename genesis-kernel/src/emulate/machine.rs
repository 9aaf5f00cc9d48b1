//! Grids, clusters and warps: who runs next, and what each instruction does to registers.

use std::collections::BTreeMap;

use super::barrier::{BlockBarrier, MemoryBarrier};
use super::fault::{Fault, FaultKind, place};
use super::memory::{Global, Tensor};
use super::program::{Action, Alu, Arg, Inst, PARAM_BASE, Program, Reg, Shuffle, Special, Ty};
use super::shadow::{Access, Clock, Conflict, Epoch, Shadow, VectorClock, Way};
use super::warp::{LANES, Warp, lanes};
use super::{alu, memory};

/// Instructions of a cluster before another one gets its turn.
const TURN: u64 = 1 << 20;
/// Instructions of a run, each for up to a warp.
const FUEL: u64 = 1 << 28;

/// A kernel with its arguments.
pub(super) struct Launch<'p> {
    pub(super) program: &'p Program,
    pub(super) threads: u32,
    pub(super) shared_bytes: u32,
    pub(super) params: Vec<u8>,
    /// Tensor maps, by where they are in the parameters.
    pub(super) tensors: Vec<(u64, Tensor)>,
}

/// All blocks.
pub(super) struct Grid<'p> {
    launch: &'p Launch<'p>,
    global: Global<'p>,
    extents: [u32; 3],
}

impl<'p> Grid<'p> {
    pub(super) fn new(launch: &'p Launch<'p>, global: Global<'p>, extents: [u32; 3]) -> Grid<'p> {
        Grid { launch, global, extents }
    }

    pub(super) fn run(mut self) -> Result<(), Fault> {
        let cluster = self.launch.program.cluster;
        let uneven = self.extents.iter().zip(cluster).any(|(&n, size)| n % size.max(1) != 0);
        if uneven || cluster.contains(&0) {
            let extents = self.extents;
            let message = format!("a grid of {extents:?} in clusters of {cluster:?}");
            return Err(Fault::of_kernel(message));
        }
        let counts = [0, 1, 2].map(|axis| self.extents[axis] / cluster[axis]);
        let total: u32 = counts.iter().product();
        let mut waiting: std::collections::VecDeque<Cluster<'p>> = Default::default();
        let mut fuel = FUEL;
        let mut next = 0;
        while next < total || !waiting.is_empty() {
            let mut current = match (next < total, waiting.pop_front()) {
                (_, Some(current)) if waiting.len() >= MOST_WAITING || next == total => current,
                (_, old) => {
                    waiting.extend(old);
                    let at = [
                        next % counts[0],
                        next / counts[0] % counts[1],
                        next / counts[0] / counts[1],
                    ];
                    next += 1;
                    Cluster::new(self.launch, self.extents, at, next)
                }
            };
            self.global.enter(current.run);
            let turn = TURN.min(fuel);
            let used = current.turn(&mut self.global, turn)?;
            fuel -= used;
            if !current.is_over() {
                if fuel == 0 {
                    return Err(Fault::of_kernel("the kernel does not end".to_owned()));
                }
                waiting.push_back(current);
            }
        }
        Ok(())
    }
}

/// Clusters that wait for others at most.
const MOST_WAITING: usize = 256;

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
    known: VectorClock,
    /// What other blocks of the cluster did to its memory.
    visits: Vec<(Epoch, usize)>,
}

/// Blocks that run together.
pub(super) struct Cluster<'p> {
    pub(super) launch: &'p Launch<'p>,
    pub(super) program: &'p Program,
    grid: [u32; 3],
    at: [u32; 3],
    /// The number of this run among those of all clusters.
    run: u32,
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
    fn new(launch: &'p Launch<'p>, grid: [u32; 3], at: [u32; 3], run: u32) -> Cluster<'p> {
        let program = launch.program;
        let [x, y, z] = program.cluster;
        let ranks = x * y * z;
        let block = |rank: u32| {
            let inside = [rank % x, rank / x % y, rank / x / y];
            Block {
                shared: vec![0; launch.shared_bytes as usize],
                shadow: Shadow::new(launch.shared_bytes as usize, false),
                barriers: BTreeMap::new(),
                index: [0, 1, 2].map(|axis| at[axis] * program.cluster[axis] + inside[axis]),
                ended: 0,
                known: VectorClock::default(),
                visits: Vec::new(),
            }
        };
        let per_block = launch.threads as usize / LANES;
        let warp = |number: usize| {
            let (rank, inside) = (number / per_block, number % per_block);
            Warp::new(program, number * LANES, rank as u32, (inside * LANES) as u32)
        };
        let n_threads = ranks * launch.threads;
        Cluster {
            launch,
            program,
            grid,
            at,
            run,
            blocks: (0..ranks).map(block).collect(),
            warps: (0..ranks as usize * per_block).map(warp).collect(),
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

    fn is_over(&self) -> bool {
        self.warps.iter().all(|warp| warp.alive == 0)
    }

    /// Runs until the end or for some instructions; gives how many.
    fn turn(&mut self, global: &mut Global<'_>, most: u64) -> Result<u64, Fault> {
        let mut used = 0;
        while used < most {
            let before = used;
            for number in 0..self.warps.len() {
                while used < most {
                    let Some((at, mask)) = self.warps[number].ready() else { break };
                    used += 1;
                    self.step(global, number, at, mask).map_err(|fault| match fault.thread {
                        Some(_) => fault,
                        None => self.of_thread(fault, number, mask),
                    })?;
                }
            }
            if self.is_over() {
                return Ok(used);
            }
            if used == before {
                return Err(self.stuck());
            }
        }
        Ok(used)
    }

    fn of_thread(&self, fault: Fault, number: usize, mask: u32) -> Fault {
        let warp = &self.warps[number];
        let lane = mask.trailing_zeros().min(31);
        let program = self.blocks[warp.rank as usize].index;
        Fault { thread: Some((program, warp.in_block + lane)), ..fault }
    }

    /// Threads wait for each other.
    fn stuck(&self) -> Fault {
        let waiting = self.warps.iter().enumerate().filter(|(_, warp)| warp.alive != 0);
        let places: Vec<String> = waiting
            .map(|(number, warp)| {
                let at = warp.next[warp.alive.trailing_zeros() as usize];
                format!("warp {number} at {}", place(self.program, at))
            })
            .collect();
        let first = self.warps.iter().find(|warp| warp.alive != 0);
        let at = first.map_or(0, |warp| warp.next[warp.alive.trailing_zeros() as usize]);
        let message = format!("threads wait for each other for ever: {}", places.join(", "));
        let fault = Fault::at(self.program, at, message);
        Fault { thread: Some((self.blocks[0].index, 0)), ..fault }
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

    fn step(
        &mut self,
        global: &mut Global<'_>,
        number: usize,
        at: usize,
        active: u32,
    ) -> Result<(), Fault> {
        self.current = at;
        let program = self.program;
        let Some(inst) = program.insts.get(at) else {
            return Err(self.fault("the code ends without a return"));
        };
        let mask = self.guarded(inst, number, active);
        self.warps[number].advance(active & !mask);
        if mask == 0 {
            return Ok(());
        }
        let warp = &mut self.warps[number];
        if inst.action.takes_warps() && mask != warp.alive {
            if active != mask {
                return Err(self.fault("only some lanes of a warp come to what all must do"));
            }
            warp.gathered |= mask;
            return Ok(());
        }
        if let After::Next = self.perform(global, number, mask, &inst.action)? {
            self.warps[number].advance(mask);
        }
        Ok(())
    }

    /// The lanes that an instruction is for.
    fn guarded(&self, inst: &Inst, number: usize, active: u32) -> u32 {
        let Some((predicate, wanted)) = inst.guard else { return active };
        let warp = &self.warps[number];
        let is_on = |lane: &usize| (warp.value(Arg::Reg(predicate), *lane) & 1 == 1) == wanted;
        lanes(active).filter(is_on).fold(0, |mask, lane| mask | 1 << lane)
    }

    fn perform(
        &mut self,
        global: &mut Global<'_>,
        number: usize,
        mask: u32,
        action: &Action,
    ) -> Result<After, Fault> {
        let warp = &mut self.warps[number];
        match action {
            Action::Alu { what, ty, to, args } => {
                self.alu(number, mask, (*what, *ty), *to, args)?
            }
            Action::Pack { to, parts, bits } => warp.pack(mask, *to, parts, *bits),
            Action::Unpack { to, from, bits } => warp.unpack(mask, to, *from, *bits),
            Action::Special { to, what } => {
                for lane in lanes(mask) {
                    let value = self.special(*what, number, lane);
                    self.warps[number].set(*to, lane, value);
                }
            }
            Action::Branch(target) => {
                lanes(mask).for_each(|lane| warp.next[lane] = *target);
                return Ok(After::Told);
            }
            Action::End => return self.end(number, mask),
            Action::Trap => {
                let fault = self.fault("the kernel stopped itself: an assertion failed");
                return Err(Fault { kind: FaultKind::Trap, ..fault });
            }
            Action::Nothing => {}
            Action::Shuffle { how, to, valid, from, by, clamp } => {
                self.shuffle(number, mask, *how, [*from, *by, *clamp], *to, *valid);
            }
            Action::Vote { how, to, from, negated } => {
                warp.vote(mask, *how, *to, (*from, *negated))
            }
            Action::Elect { to } => {
                let chosen = mask.trailing_zeros() as usize;
                lanes(mask).for_each(|lane| warp.set(*to, lane, u64::from(lane == chosen)));
            }
            Action::WarpReduce { what, ty, to, from } => {
                let values = lanes(mask).map(|lane| Some(warp.value(*from, lane)));
                let all = values.reduce(|a, b| alu::compute(*what, *ty, [a?, b?, 0]));
                let Some(Some(all)) = all else { return Err(self.fault("a strange reduction")) };
                lanes(mask).for_each(|lane| self.warps[number].set(*to, lane, all));
            }
            Action::MapRank { to, address, rank } => {
                for lane in lanes(mask) {
                    let offset =
                        warp.value(*address, lane) & ((1 << super::program::RANK_SHIFT) - 1);
                    let rank = warp.value(*rank, lane) & 0xffff;
                    warp.set(*to, lane, offset | rank << super::program::RANK_SHIFT);
                }
            }
            _ => return self.outside(global, number, mask, action),
        }
        Ok(After::Next)
    }

    /// Instructions that touch memory or other warps.
    fn outside(
        &mut self,
        global: &mut Global<'_>,
        number: usize,
        mask: u32,
        action: &Action,
    ) -> Result<After, Fault> {
        match action {
            Action::Load { space, ty, to, at } => {
                self.load(global, number, mask, (*space, *ty), to, *at)?
            }
            Action::Store { space, ty, from, at } => {
                self.store(global, number, mask, (*space, *ty), from, *at)?;
            }
            Action::Send { ty, from, at, barrier } => {
                for lane in lanes(mask) {
                    self.send(number, lane, (*ty, from), *at, *barrier)?;
                }
            }
            Action::Atomic { what, space, ty, to, at, args } => {
                for lane in lanes(mask) {
                    self.atomic(global, number, lane, (*what, *space, *ty), *to, *at, args)?;
                }
            }
            Action::Barrier { number: barrier, threads, waits } => {
                return self.block_barrier(number, mask, *barrier, *threads, *waits);
            }
            Action::WarpBarrier => self.warp_barrier(number, mask),
            Action::ClusterArrive { relaxed } => self.cluster_arrive(number, mask, *relaxed),
            Action::ClusterWait => return Ok(self.cluster_wait(number, mask)),
            Action::Fence(fence) => self.fence(number, mask, *fence),
            Action::OnBarrier { what, at } => {
                return self.on_barrier(number, mask, *what, *at);
            }
            Action::Copy { to, from, bytes, taken } => {
                for lane in lanes(mask) {
                    self.copy(global, number, lane, [*to, *from], *bytes, *taken)?;
                }
            }
            Action::CopyCommit => self.commit_copies(number, mask),
            Action::CopyWait { pending } => self.wait_copies(number, mask, *pending),
            Action::TensorCopy(copy) => {
                for lane in lanes(mask) {
                    self.tensor_copy(global, number, lane, copy)?;
                }
            }
            Action::BulkCommit => self.commit_bulk(number, mask),
            Action::BulkWait { pending } => self.wait_bulk(number, mask, *pending),
            Action::LoadMatrix { to, at, transposed } => {
                self.load_matrix(number, to, *at, *transposed)?;
            }
            Action::StoreMatrix { from, at, transposed } => {
                self.store_matrix(number, from, *at, *transposed)?;
            }
            Action::WarpProduct(product) => self.warp_product(number, product),
            Action::GroupProduct(product) => return self.group_product(number, mask, product),
            Action::ProductCommit => self.warps[number].committed += 1,
            Action::ProductWait { pending } => self.wait_products(number, mask, *pending),
            Action::Print { format, values } => {
                for lane in lanes(mask) {
                    self.print(number, lane, *format, *values)?;
                }
            }
            other => return Err(self.fault(format!("{other:?} is not run"))),
        }
        Ok(After::Next)
    }

    fn alu(
        &mut self,
        number: usize,
        mask: u32,
        (what, ty): (Alu, Ty),
        to: Reg,
        args: &[Arg; 3],
    ) -> Result<(), Fault> {
        let warp = &mut self.warps[number];
        for lane in lanes(mask) {
            let values = args.map(|arg| warp.value(arg, lane));
            match alu::compute(what, ty, values) {
                Some(value) => warp.set(to, lane, value),
                None => return Err(self.fault(format!("{what:?} of {ty:?} is not known"))),
            }
        }
        Ok(())
    }

    fn special(&self, what: Special, number: usize, lane: usize) -> u64 {
        let warp = &self.warps[number];
        let block = self.blocks[warp.rank as usize].index;
        let axis = |of: [u32; 3], axis: u8| of[axis as usize % 3];
        let cluster = self.program.cluster;
        let value = match what {
            Special::Thread(0) => warp.in_block + lane as u32,
            Special::Thread(_) => 0,
            Special::Threads(0) => self.launch.threads,
            Special::Threads(_) => 1,
            Special::Block(i) => axis(block, i),
            Special::Blocks(i) => axis(self.grid, i),
            Special::ClusterBlock(i) => axis(block, i) % axis(cluster, i),
            Special::ClusterBlocks(i) => axis(cluster, i),
            Special::ClusterRank => warp.rank,
            Special::ClusterSize => self.blocks.len() as u32,
            Special::Cluster(i) => axis(self.at, i),
            Special::Clusters(i) => axis(self.grid, i) / axis(cluster, i),
            Special::Lane => lane as u32,
            Special::Zero => 0,
        };
        u64::from(value)
    }

    fn shuffle(
        &mut self,
        number: usize,
        mask: u32,
        how: Shuffle,
        [from, by, clamp]: [Arg; 3],
        to: Reg,
        valid: Option<Reg>,
    ) {
        let warp = &mut self.warps[number];
        let sent: Vec<u64> = (0..LANES).map(|lane| warp.value(from, lane)).collect();
        for lane in lanes(mask) {
            let by = warp.value(by, lane) as u32 & 31;
            let clamp = warp.value(clamp, lane) as u32;
            let own = lane as u32;
            let segment = clamp >> 8 & 31;
            let (first, last) = (own & segment, own & segment | clamp & 31 & !segment);
            let source = match how {
                Shuffle::Xor => Some(own ^ by).filter(|&lane| lane <= last),
                Shuffle::Index => Some(first | by & !segment).filter(|&lane| lane <= last),
                Shuffle::Up => own.checked_sub(by).filter(|&lane| lane >= first.max(clamp & 31)),
                Shuffle::Down => Some(own + by).filter(|&lane| lane <= last),
            };
            let value = sent[source.unwrap_or(own) as usize] & 0xffff_ffff;
            warp.set(to, lane, value);
            valid.into_iter().for_each(|valid| warp.set(valid, lane, u64::from(source.is_some())));
        }
    }

    fn end(&mut self, number: usize, mask: u32) -> Result<After, Fault> {
        let first = self.warps[number].first;
        let reads = lanes(mask).filter_map(|lane| self.bulk.get(&(first + lane)));
        if reads.into_iter().any(|groups| groups.used > groups.done) {
            return Err(self.fault("a thread ends while its copies still read shared memory"));
        }
        let warp = &mut self.warps[number];
        warp.alive &= !mask;
        let rank = warp.rank as usize;
        self.blocks[rank].ended += mask.count_ones();
        if self.blocks.len() > 1 {
            self.leave(rank, lanes(mask).map(|lane| first + lane).collect())?;
        }
        Ok(After::Told)
    }

    /// A block whose last thread ends takes its memory with it: what others do there must be over, and
    /// one of its threads know that.
    fn leave(&mut self, rank: usize, threads: Vec<usize>) -> Result<(), Fault> {
        for thread in threads {
            self.blocks[rank].known.learn_from(&self.clocks[thread]);
        }
        let block = &self.blocks[rank];
        if block.ended < self.launch.threads {
            return Ok(());
        }
        let unknown = block.visits.iter().find(|(epoch, _)| !block.known.knows(*epoch));
        match unknown {
            None => Ok(()),
            Some(&(_, at)) => {
                let at = place(self.program, at);
                Err(self.fault(format!("a block ends while another may be at its memory, at {at}")))
            }
        }
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
        let (rank, offset) = super::access::split(address);
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
    pub(super) fn tensor(&self, address: u64) -> Result<&'p memory::Tensor, Fault> {
        let offset = address.wrapping_sub(PARAM_BASE);
        let found = self.launch.tensors.iter().find(|(at, _)| *at == offset);
        let tensor = found.map(|(_, tensor)| tensor);
        tensor.ok_or_else(|| self.fault(format!("{address:#x} is no tensor map")))
    }
}

impl Action {
    /// Whether all lanes of a warp do it together.
    fn takes_warps(&self) -> bool {
        matches!(
            self,
            Action::Shuffle { .. }
                | Action::Vote { .. }
                | Action::Elect { .. }
                | Action::WarpReduce { .. }
                | Action::WarpBarrier
                | Action::Barrier { .. }
                | Action::ClusterArrive { .. }
                | Action::ClusterWait
                | Action::LoadMatrix { .. }
                | Action::StoreMatrix { .. }
                | Action::WarpProduct(_)
                | Action::GroupProduct(_)
                | Action::ProductCommit
                | Action::ProductWait { .. }
        )
    }
}
