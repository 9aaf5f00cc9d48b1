//! Barriers of a warp, a block and a cluster, and mbarriers in shared memory.

use super::arrivals::{BlockBarrier, MemoryBarrier};
use super::cluster::{After, Cluster};
use super::fault::Fault;
use super::program::{Addr, Arg, Fence, OnBarrier};
use super::shadow::{Clock, Epoch, VectorClock, Way};
use super::warp::{LANES, lanes};

/// Bytes of a barrier in memory.
const BARRIER_BYTES: u32 = 8;

impl Cluster<'_> {
    pub(super) fn warp_barrier(&mut self, number: usize, mask: u32) {
        let first = self.warps[number].first;
        let mut clock = VectorClock::default();
        lanes(mask).for_each(|lane| clock.learn_from(&self.clocks[first + lane]));
        for lane in lanes(mask) {
            self.clocks[first + lane].learn(&clock);
            self.clocks[first + lane].tick();
        }
    }

    pub(super) fn block_barrier(
        &mut self,
        number: usize,
        mask: u32,
        barrier: Arg,
        threads: Option<Arg>,
        waits: bool,
    ) -> Result<After, Fault> {
        let warp = &self.warps[number];
        let (first, rank, lane) = (warp.first, warp.rank as usize, mask.trailing_zeros() as usize);
        let id = warp.value(barrier, lane);
        let expected = threads.map(|threads| warp.value(threads, lane) as u32);
        if expected.is_none() && self.blocks[rank].ended > 0 {
            return Err(self.fault("a barrier of all threads after some have ended"));
        }
        let expected = expected.unwrap_or(self.launch.threads);
        let mut state = self.blocks[rank].barriers.remove(&id).unwrap_or_default();
        for lane in lanes(mask) {
            state.clock.learn_from(&self.clocks[first + lane]);
            self.clocks[first + lane].tick();
        }
        state.arrived += LANES as u32;
        if waits {
            state.waiting.push(number);
            self.warps[number].blocked |= mask;
        }
        if state.arrived > expected {
            return Err(self.fault(format!("barrier {id} is for {expected} threads; more come")));
        }
        if state.arrived == expected {
            self.open(&mut state, Clock::learn_all);
        }
        self.blocks[rank].barriers.insert(id, state);
        Ok(if waits { After::Told } else { After::Next })
    }

    /// Lets go of those that wait; a thread that did nothing since it came knows no more than all do.
    fn open(&mut self, barrier: &mut BlockBarrier, learn: fn(&mut Clock, &VectorClock)) {
        let clock = std::mem::take(&mut barrier.clock);
        for number in std::mem::take(&mut barrier.waiting) {
            let mask = self.warps[number].blocked;
            let first = self.warps[number].first;
            lanes(mask).for_each(|lane| learn(&mut self.clocks[first + lane], &clock));
            self.warps[number].blocked = 0;
            self.warps[number].advance(mask);
        }
        barrier.arrived = 0;
        barrier.opened += 1;
        barrier.clock = VectorClock::default();
    }

    pub(super) fn cluster_arrive(&mut self, number: usize, mask: u32, relaxed: bool) {
        let first = self.warps[number].first;
        let mut state = std::mem::take(&mut self.cluster_barrier);
        for lane in lanes(mask) {
            let clock = &mut self.clocks[first + lane];
            match relaxed {
                // The fence that makes barriers known to the cluster does not wait for this one's own.
                true => {
                    let agent = clock.agent;
                    let own = |b: &&MemoryBarrier| b.made.agent == agent && b.is_fenced;
                    let made = self.barriers.values().filter(own).map(|barrier| barrier.made);
                    made.for_each(|made| state.clock.add(made));
                }
                false => {
                    state.clock.learn_from(clock);
                    clock.tick();
                }
            }
        }
        state.arrived += 1;
        self.warps[number].arrived_at = Some(state.opened);
        if state.arrived as usize == self.warps.len() {
            self.cluster_clock = state.clock.clone();
            self.open(&mut state, Clock::learn);
        }
        self.cluster_barrier = state;
    }

    /// Waits for the phase that the warp arrived at.
    pub(super) fn cluster_wait(&mut self, number: usize, mask: u32) -> After {
        let warp = &mut self.warps[number];
        if warp.arrived_at == Some(self.cluster_barrier.opened) {
            warp.blocked |= mask;
            self.cluster_barrier.waiting.push(number);
            return After::Told;
        }
        let first = warp.first;
        let clock = self.cluster_clock.clone();
        lanes(mask).for_each(|lane| self.clocks[first + lane].learn(&clock));
        After::Next
    }

    pub(super) fn fence(&mut self, number: usize, mask: u32, fence: Fence) {
        let first = self.warps[number].first;
        for lane in lanes(mask) {
            let clock = &mut self.clocks[first + lane];
            let agent = clock.agent;
            if fence == Fence::Proxy {
                clock.fence_proxy();
            }
            if fence != Fence::Threads {
                let own = self.barriers.values_mut().filter(|b| b.made.agent == agent);
                own.for_each(|barrier| barrier.is_fenced = true);
                // What comes after is not known with the barriers.
                clock.tick();
            }
        }
    }

    pub(super) fn on_barrier(
        &mut self,
        number: usize,
        mask: u32,
        what: OnBarrier,
        at: Addr,
    ) -> Result<After, Fault> {
        for lane in lanes(mask) {
            let address = self.address(number, lane, at);
            let (rank, _) = self.shared_place(address, BARRIER_BYTES)?;
            self.reach(number, rank)?;
            match what {
                OnBarrier::Init { count } => {
                    let count = self.warps[number].value(count, lane) as u32;
                    self.make_barrier(number, lane, address, i64::from(count))?;
                }
                OnBarrier::Invalidate => {
                    let (rank, byte) = self.shared_place(address, BARRIER_BYTES)?;
                    self.barriers.remove(&address);
                    let bytes = byte..byte + BARRIER_BYTES as usize;
                    self.blocks[rank].shadow.forget(bytes);
                }
                OnBarrier::Arrive { state, count, bytes } => {
                    let warp = &self.warps[number];
                    let count = i64::from(warp.value(count, lane) as u32);
                    let bytes = bytes.map_or(0, |bytes| i64::from(warp.value(bytes, lane) as u32));
                    let thread = self.warps[number].first + lane;
                    self.visit(thread, rank, self.clocks[thread].now());
                    self.arrive(thread, address, count, bytes)?;
                    state.into_iter().for_each(|state| self.warps[number].set(state, lane, 0));
                }
                OnBarrier::ExpectBytes { bytes } => {
                    let bytes = i64::from(self.warps[number].value(bytes, lane) as u32);
                    self.barrier(self.warps[number].first + lane, address)?.bytes += bytes;
                }
                OnBarrier::Test { .. } => {}
            }
        }
        match what {
            OnBarrier::Test { over, parity, waits } => {
                let lane = mask.trailing_zeros() as usize;
                let address = self.address(number, lane, at);
                let parity = self.warps[number].value(parity, lane) as u32 & 1;
                let is_uniform = |lane: usize| self.address(number, lane, at) == address;
                if !lanes(mask).all(is_uniform) {
                    return Err(self.fault("lanes of a warp wait for different barriers"));
                }
                self.test(number, mask, address, parity, waits)?;
                if self.warps[number].blocked & mask != 0 {
                    return Ok(After::Told);
                }
                let is_over = u64::from(self.barriers[&address].phases & 1 != parity);
                lanes(mask).for_each(|lane| self.warps[number].set(over, lane, is_over));
                Ok(After::Next)
            }
            _ => Ok(After::Next),
        }
    }

    fn make_barrier(
        &mut self,
        number: usize,
        lane: usize,
        address: u64,
        count: i64,
    ) -> Result<(), Fault> {
        let thread = self.warps[number].first + lane;
        let (rank, byte) = self.shared_place(address, BARRIER_BYTES)?;
        let access = self.access(thread, Way::Barrier);
        self.write_shared(rank, byte, &[0; BARRIER_BYTES as usize], thread, access)?;
        let barrier = MemoryBarrier {
            count,
            missing: count,
            bytes: 0,
            phases: 0,
            agent: self.agent(),
            arriving: VectorClock::default(),
            over: VectorClock::default(),
            waiting: Vec::new(),
            made: access.epoch,
            is_fenced: false,
        };
        self.barriers.insert(address, barrier);
        Ok(())
    }

    /// A barrier that a thread may use.
    fn barrier(&mut self, thread: usize, address: u64) -> Result<&mut MemoryBarrier, Fault> {
        let made = self.barriers.get(&address).map(|barrier| barrier.made);
        match made {
            None => Err(self.fault(format!("there is no barrier at {address:#x}"))),
            Some(made) if !self.clocks[thread].knows(made) => {
                Err(self.fault("a barrier is used before its making is known"))
            }
            Some(_) => match self.barriers.get_mut(&address) {
                Some(barrier) => Ok(barrier),
                None => unreachable!("it was just found"),
            },
        }
    }

    fn arrive(&mut self, thread: usize, address: u64, count: i64, bytes: i64) -> Result<(), Fault> {
        let clock = self.clocks[thread].clone();
        let barrier = self.barrier(thread, address)?;
        barrier.bytes += bytes;
        barrier.missing -= count;
        barrier.arriving.learn_from(&clock);
        let is_short = barrier.missing < 0;
        self.clocks[thread].tick();
        if is_short {
            return Err(self.fault("more arrivals at a barrier than it is for"));
        }
        self.end_phase(address);
        Ok(())
    }

    /// What the copies are that a barrier counts, for the copy engine that a thread starts.
    pub(super) fn counted_by(&mut self, thread: usize, address: u64) -> Result<Epoch, Fault> {
        let barrier = self.barrier(thread, address)?;
        if !barrier.is_fenced {
            return Err(self.fault("the copy engine gets a barrier that no fence has handed to it"));
        }
        Ok(barrier.epoch())
    }

    /// Bytes have come.
    pub(super) fn count_bytes(&mut self, address: u64, bytes: u32) {
        if let Some(barrier) = self.barriers.get_mut(&address) {
            barrier.bytes -= i64::from(bytes);
        }
        self.end_phase(address);
    }

    fn end_phase(&mut self, address: u64) {
        let Some(barrier) = self.barriers.get_mut(&address) else { return };
        if barrier.missing != 0 || barrier.bytes != 0 {
            return;
        }
        let epoch = barrier.epoch();
        barrier.phases += 1;
        barrier.missing = barrier.count;
        let gathered = std::mem::take(&mut barrier.arriving);
        barrier.over.join(&gathered);
        barrier.over.add(epoch);
        for (number, mask) in std::mem::take(&mut barrier.waiting) {
            self.warps[number].blocked &= !mask;
        }
    }

    /// Threads ask whether the phase of a parity is over, and learn what was told in it.
    fn test(
        &mut self,
        number: usize,
        mask: u32,
        address: u64,
        parity: u32,
        waits: bool,
    ) -> Result<(), Fault> {
        let first = self.warps[number].first;
        for lane in lanes(mask) {
            self.barrier(first + lane, address)?;
        }
        let barrier = self.barrier(first + mask.trailing_zeros() as usize, address)?;
        if barrier.phases & 1 != parity {
            let over = barrier.over.clone();
            lanes(mask).for_each(|lane| self.clocks[first + lane].learn(&over));
        } else if waits {
            barrier.waiting.push((number, mask));
            self.warps[number].blocked |= mask;
        }
        Ok(())
    }
}
