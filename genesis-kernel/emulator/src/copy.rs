//! Asynchronous copies: `cp.async`, DSMEM stores to other blocks, and boxes of tensors by the
//! copy engine.

use super::cluster::{Cluster, Groups};
use super::fault::{Fault, FaultKind};
use super::memory::{Global, swizzled};
use super::program::{Addr, Arg, RANK_SHIFT, SHARED_BASE, TensorCopy, Ty};
use super::shadow::{Epoch, Way};
use super::warp::{LANES, lanes};
use crate::numbers::round_tf32;

impl Groups {
    fn new(agent: u32) -> Groups {
        Groups { agent, number: 1, used: 0, done: 0 }
    }

    /// Puts something into the open group.
    fn put(&mut self) -> Epoch {
        self.used = self.number;
        Epoch { agent: self.agent, number: self.number }
    }

    /// Waits until at most `pending` groups run.
    fn wait(&mut self, pending: u32) -> Epoch {
        self.done = self.done.max((self.number - 1).saturating_sub(pending));
        Epoch { agent: self.agent, number: self.done }
    }
}

impl Cluster<'_> {
    pub(super) fn copy(
        &mut self,
        global: &mut Global<'_>,
        number: usize,
        lane: usize,
        [to, from]: [Addr; 2],
        bytes: u32,
        taken: Option<Arg>,
    ) -> Result<(), Fault> {
        let thread = self.warps[number].first + lane;
        let (to, from) = (self.address(number, lane, to), self.address(number, lane, from));
        let taken = taken.map_or(bytes, |arg| self.warps[number].value(arg, lane) as u32);
        let mut data = vec![0; bytes as usize];
        if taken > 0 {
            let taken = taken.min(bytes) as usize;
            let read = global.read(from, &mut data[..taken], None);
            read.map_err(|trouble| self.of_global(trouble, false))?;
        }
        let groups = self.groups_of(thread);
        let epoch = groups.put();
        let access = self.access_of(epoch, Way::Copy);
        let to = if to >= SHARED_BASE { to - SHARED_BASE } else { to };
        let (rank, byte) = self.shared_place(to, bytes)?;
        self.write_shared(rank, byte, &data, thread, access)
    }

    /// Writes to a block's memory, whose barrier counts the bytes.
    pub(super) fn send(
        &mut self,
        number: usize,
        lane: usize,
        (ty, from): (Ty, &[Arg]),
        at: Addr,
        barrier: Addr,
    ) -> Result<(), Fault> {
        let thread = self.warps[number].first + lane;
        let (at, barrier) = (self.address(number, lane, at), self.address(number, lane, barrier));
        let size = ty.bytes() as usize;
        let value = |&arg: &Arg| self.warps[number].value(arg, lane).to_le_bytes()[..size].to_vec();
        let data: Vec<u8> = from.iter().flat_map(value).collect();
        let (rank, byte) = self.shared_place(at, data.len() as u32)?;
        self.reach(number, rank)?;
        if at >> RANK_SHIFT != barrier >> RANK_SHIFT {
            return Err(self.fault("the barrier that counts a message is in another block"));
        }
        let epoch = self.counted_by(thread, barrier)?;
        let access = self.access_of(epoch, Way::Copy);
        self.visit(thread, rank, epoch);
        self.write_shared(rank, byte, &data, thread, access)?;
        self.count_bytes(barrier, data.len() as u32);
        Ok(())
    }

    fn groups_of(&mut self, thread: usize) -> &mut Groups {
        let agent = self.next_agent;
        self.copies.entry(thread).or_insert_with(|| {
            self.next_agent += 1;
            Groups::new(agent)
        })
    }

    pub(super) fn commit_copies(&mut self, number: usize, mask: u32) {
        let first = self.warps[number].first;
        lanes(mask).for_each(|lane| self.groups_of(first + lane).number += 1);
    }

    pub(super) fn wait_copies(&mut self, number: usize, mask: u32, pending: Option<u32>) {
        let first = self.warps[number].first;
        for lane in lanes(mask) {
            let groups = self.groups_of(first + lane);
            // Waiting for all takes in what is not committed.
            groups.number += u32::from(pending.is_none());
            let done = groups.wait(pending.unwrap_or(0));
            self.clocks[first + lane].add(done);
        }
    }

    fn bulk_of(&mut self, thread: usize) -> &mut Groups {
        let agent = self.next_agent;
        self.bulk.entry(thread).or_insert_with(|| {
            self.next_agent += 1;
            Groups::new(agent)
        })
    }

    pub(super) fn commit_bulk(&mut self, number: usize, mask: u32) {
        let first = self.warps[number].first;
        lanes(mask).for_each(|lane| self.bulk_of(first + lane).number += 1);
    }

    pub(super) fn wait_bulk(&mut self, number: usize, mask: u32, pending: u32) {
        let first = self.warps[number].first;
        for lane in lanes(mask) {
            let done = self.bulk_of(first + lane).wait(pending);
            self.clocks[first + lane].add(done);
        }
    }

    pub(super) fn tensor_copy(
        &mut self,
        global: &mut Global<'_>,
        number: usize,
        lane: usize,
        copy: &TensorCopy,
    ) -> Result<(), Fault> {
        let warp = &self.warps[number];
        let thread = warp.first + lane;
        let number_at = |&arg: &Arg| i64::from(warp.value(arg, lane) as u32 as i32);
        let coordinates: Vec<i64> = copy.coordinates.iter().map(number_at).collect();
        let multicast = copy.multicast.map(|arg| warp.value(arg, lane) as u32);
        let own = 1 << warp.rank;
        self.check_innermost(&coordinates, self.address(number, lane, copy.map))?;
        let shared = self.address(number, lane, copy.shared);
        let map = self.address(number, lane, copy.map);
        match copy.barrier {
            Some(barrier) => {
                let barrier = self.address(number, lane, barrier);
                let targets = multicast.unwrap_or(own);
                self.tensor_load(global, thread, [shared, barrier], map, &coordinates, targets)
            }
            None => self.tensor_store(global, thread, shared, map, &coordinates, copy.adds),
        }
    }

    /// The engine takes boxes that start at a multiple of 16 bytes along the contiguous axis, and faults
    /// at others.
    fn check_innermost(&self, coordinates: &[i64], map: u64) -> Result<(), Fault> {
        let size = i64::from(self.tensor(map)?.size);
        let first = coordinates.first().copied().unwrap_or(0);
        if (first * size) % 16 == 0 {
            return Ok(());
        }
        let message = format!(
            "the copy engine starts at element {first} of {size} bytes, which is no multiple of 16 bytes"
        );
        Err(Fault { kind: FaultKind::Instruction, ..self.fault(message) })
    }

    /// Reads a box into the blocks of a mask, at the same place in each.
    fn tensor_load(
        &mut self,
        global: &mut Global<'_>,
        thread: usize,
        [shared, barrier]: [u64; 2],
        map: u64,
        coordinates: &[i64],
        targets: u32,
    ) -> Result<(), Fault> {
        let tensor = self.tensor(map)?;
        let size = tensor.size;
        let inside = (1 << RANK_SHIFT) - 1;
        let own = (shared >> RANK_SHIFT) as u32;
        if !shared.is_multiple_of(128) {
            return Err(self.fault("the copy engine writes to a place that is misaligned"));
        }
        let places = tensor.places(coordinates);
        let mut data = Vec::with_capacity(tensor.bytes() as usize);
        for (_, address) in &places {
            match *address {
                None => data.extend(vec![0; size as usize]),
                Some(address) => {
                    let mut bytes = [0; 16];
                    let bytes = &mut bytes[..size as usize];
                    let read = global.read(address, bytes, None);
                    read.map_err(|trouble| self.of_global(trouble, false))?;
                    match <[u8; 4]>::try_from(&*bytes) {
                        Ok(bytes) if tensor.tf32 => {
                            data.extend(round_tf32(u32::from_le_bytes(bytes)).to_le_bytes());
                        }
                        _ => data.extend_from_slice(bytes),
                    }
                }
            }
        }
        // One block's own copy, or a multicast's.
        let ranks = match targets.count_ones() {
            1 if targets == 1 << (self.clock_rank(thread)) => vec![own],
            _ => lanes(targets).map(|rank| rank as u32).collect(),
        };
        for rank in ranks {
            self.reach(thread / LANES, rank as usize)?;
            let base = u64::from(rank) << RANK_SHIFT;
            let counter = barrier & inside | base;
            let epoch = self.counted_by(thread, counter)?;
            let access = self.access_of(epoch, Way::Async);
            self.visit(thread, rank as usize, epoch);
            for ((offset, _), bytes) in places.iter().zip(data.chunks(size as usize)) {
                let at = swizzled((shared & inside) as u32 + offset, tensor.swizzle);
                let (rank, byte) = self.shared_place(u64::from(at) | base, size)?;
                self.write_shared(rank, byte, bytes, thread, access)?;
            }
            self.count_bytes(counter, tensor.bytes());
        }
        Ok(())
    }

    fn clock_rank(&self, thread: usize) -> usize {
        thread / self.launch.threads as usize
    }

    /// Writes a box from shared memory.
    fn tensor_store(
        &mut self,
        global: &mut Global<'_>,
        thread: usize,
        shared: u64,
        map: u64,
        coordinates: &[i64],
        adds: bool,
    ) -> Result<(), Fault> {
        if adds {
            return Err(self.fault("a store that adds is not emulated"));
        }
        let tensor = self.tensor(map)?;
        let size = tensor.size;
        let epoch = self.bulk_of(thread).put();
        let access = self.access_of(epoch, Way::Async);
        for (offset, address) in tensor.places(coordinates) {
            let at = swizzled(shared as u32 + offset, tensor.swizzle);
            let (rank, byte) = self.shared_place(u64::from(at), size)?;
            let value = self.read_shared(rank, byte, size, thread, access)?;
            if let Some(address) = address {
                let bytes = value.to_le_bytes();
                let written = global.write(address, &bytes[..size as usize], None);
                written.map_err(|trouble| self.of_global(trouble, true))?;
            }
        }
        Ok(())
    }
}
