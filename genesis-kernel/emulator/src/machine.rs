//! Grids, clusters and warps: who runs next, and what each instruction does to registers.

use super::alu;
use super::cluster::{After, Cluster, Launch};
use super::fault::{Fault, FaultKind, place};
use super::memory::Global;
use super::program::{Action, Alu, Arg, Inst, Reg, Shuffle, Special, Ty};
use super::warp::{LANES, lanes};

/// Instructions of a cluster before another one gets its turn.
const TURN: u64 = 1 << 20;
/// Instructions of a run, each for up to a warp.
const FUEL: u64 = 1 << 28;

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
            return Err(Fault::refused(message));
        }
        let counts = [0, 1, 2].map(|axis| self.extents[axis] / cluster[axis]);
        let total: u32 = counts.iter().product();
        let mut waiting: std::collections::VecDeque<Cluster<'p>> = Default::default();
        let mut fuel = FUEL;
        let mut next = 0;
        // Of a cluster that is over, for its allocations: there are as many bytes of them as of its registers and memory.
        let mut spare: Option<Cluster<'p>> = None;
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
                    match spare.take() {
                        Some(over) => over.renewed(at, next),
                        None => Cluster::new(self.launch, self.extents, at, next),
                    }
                }
            };
            self.global.enter(current.run);
            let turn = TURN.min(fuel);
            let used = current.turn(&mut self.global, turn)?;
            fuel -= used;
            if !current.is_over() {
                if fuel == 0 {
                    return Err(Fault::refused("the kernel does not end".to_owned()));
                }
                waiting.push_back(current);
            } else {
                spare = Some(current);
            }
        }
        Ok(())
    }
}

/// Clusters that wait for others at most.
const MOST_WAITING: usize = 256;

impl<'p> Cluster<'p> {
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
                format!("warp {number} at {}", place(self.program, at as usize))
            })
            .collect();
        let first = self.warps.iter().find(|warp| warp.alive != 0);
        let at = first.map_or(0, |warp| warp.next[warp.alive.trailing_zeros() as usize] as usize);
        let message = format!("threads wait for each other for ever: {}", places.join(", "));
        let fault = Fault::at(self.program, at, message);
        Fault { thread: Some((self.blocks[0].index, 0)), ..fault }
    }

    fn step(
        &mut self,
        global: &mut Global<'_>,
        number: usize,
        at: u32,
        active: u32,
    ) -> Result<(), Fault> {
        self.current = at as usize;
        let program = self.program;
        let Some(inst) = program.insts.get(self.current) else {
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
        let values = warp.values(Arg::Reg(predicate));
        let bit = |lane: usize| (values[lane] as u32 & 1) << lane;
        let on = (0..LANES).fold(0, |mask, lane| mask | bit(lane));
        active & if wanted { on } else { !on }
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
                lanes(mask).for_each(|lane| warp.next[lane] = *target as u32);
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
            Action::Atomic(atomic) => {
                for lane in lanes(mask) {
                    self.atomic(global, (number, lane), atomic)?;
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
        let [a, b, c] = args.map(|arg| warp.values(arg));
        match alu::compute_all(what, ty, mask, [&a, &b, &c]) {
            Some(values) => warp.set_all(mask, to, &values),
            None => return Err(self.fault(format!("{what:?} of {ty:?} is not known"))),
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
        let sent = warp.values(from);
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
