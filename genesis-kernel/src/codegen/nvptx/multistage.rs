//! Loops over a multistage buffer: `cp.async` fills shared-memory stages ahead of the MMAs that read them.
//!
//! ```text
//! prologue             copy iterations 0 .. stages - 1, one commit group each
//! iteration i          wait_group until the group of i is complete, a barrier
//!                      copy iteration i + stages - 1 to the stage that i - 1 read
//!                      the body, whose dots read stage i % stages
//! ```
//!
//! A copy of 4, 8 or 16 bytes is `cp.async`, which passes by the registers; a mask that is false makes
//! zeros of it. Where addresses allow only less, the bytes are loaded before the body and stored to
//! the slot after it, when they have arrived.
//!
//! Where addresses follow from indices in memory, such as the pages of a cache, these are loaded one iteration
//! ahead of the copies that need them, and carried in registers: otherwise each iteration would wait for a load
//! before its copies begin.
//!
//! ```text
//! before the loop      load indices of iterations 0 .. stages, then copy 0 .. stages - 1
//! iteration i          copy iteration i + stages - 1, whose indices are in registers
//!                      load the indices of iteration i + stages
//! ```

use std::collections::BTreeSet;

use super::super::llvm::{Block, IntPred, Val};
use super::control::Carried;
use super::lower::{Lowering, Registers};
use super::memory::Cached;
use super::schedule::{Bytes, Slot, Step};
use crate::Error;
use crate::ir::{DType, Op, OpKind};
use crate::layout::{MultistageBuffer, StagedLoad};

/// What of a copy is left to do once its loads have arrived.
pub(super) struct Late {
    load: Op,
    registers: Vec<Val>,
    address: Val,
    on: Option<Val>,
}

/// The iteration that is copied.
#[derive(Clone, Copy)]
struct Ahead {
    /// Its index.
    index: Val,
    /// Whether the loop has it.
    exists: Val,
    /// Where its slot begins, in bytes from the start of the ring; `i32`.
    at: Val,
    /// The slot; in the loop that of the first iteration.
    slot: u32,
}

/// What the loads of a ring's slice gave for one iteration, in the slice's order.
type Indices = Vec<Registers>;

/// The registers that a loop carries, as phis of its header.
struct Header {
    block: Block,
    index: Val,
    read: Val,
    write: Val,
    /// The indices of the next iteration that is copied.
    indices: Carried,
}

impl Lowering<'_> {
    /// A counted loop over a multistage buffer.
    pub(super) fn multistage_loop(&mut self, op: Op, ring: &MultistageBuffer) -> Result<(), Error> {
        let e = self.e;
        let data = self.func.op(op);
        let [lower, upper, step] = [0, 1, 2].map(|i| data.operands[i]);
        let [lower, upper, step] = [self.scalar(lower)?, self.scalar(upper)?, self.scalar(step)?];
        self.before_copies(op, ring)?;
        let prefetched = self.prefetch_prologue(op, ring, [lower, upper, step])?;
        let inits: Vec<Registers> =
            data.operands[3..].iter().map(|&v| self.get(v)).collect::<Result<_, _>>()?;
        let entered = self.enter_loop(op);
        let advances = e.icmp(IntPred::Sgt, step, e.int(e.i64(), 0));
        let (first, header) = (e.block("ring"), e.block("ring.for"));
        let (body, done) = (e.block("ring.body"), e.block("ring.end"));
        let before = e.current_block();
        e.cond_br(advances, first, done);

        e.position(first);
        let indices = match prefetched {
            Some(indices) => indices,
            None => self.fill(op, ring, [lower, upper, step])?,
        };
        let filled = e.current_block();
        e.br(header);

        e.position(header);
        let last_slot = e.int(e.i32(), i64::from(ring.bytes() - ring.slot_bytes));
        let phis = Header {
            block: header,
            index: e.phi(e.i64(), &[(lower, filled)]),
            read: e.phi(e.i32(), &[(e.int(e.i32(), 0), filled)]),
            write: e.phi(e.i32(), &[(last_slot, filled)]),
            indices: self.carried(&indices, filled),
        };
        let carried = self.carried(&inits, filled);
        let again = e.icmp(IntPred::Slt, phis.index, upper);
        e.cond_br(again, body, done);

        e.position(body);
        self.recorder.enter();
        self.wait_for_copies(ring.stages - 2);
        self.barrier();
        let late = self.copy_ahead(op, ring, &phis, [upper, step])?;
        let ahead = self.ahead_by(ring.stages, &phis, [upper, step]);
        let next_indices = self.load_indices(op, ring, ahead)?;
        let region = data.regions[0];
        let args = self.func.region(region).args.clone();
        self.set(args[0], vec![phis.index]);
        self.bind(&args[1..], &carried.registers());
        for load in &ring.loads {
            self.slots.insert(load.op, phis.read);
        }
        if let Some(next) = self.region(region)? {
            self.store_late(late)?;
            let last = e.current_block();
            e.add_incoming(phis.index, e.add(phis.index, step), last);
            for slot in [phis.read, phis.write] {
                e.add_incoming(slot, self.slot_after(ring, slot), last);
            }
            phis.indices.close(e, &next_indices, last);
            let back = e.br(phis.block);
            self.close_loop(op, &carried, &next, last, back);
        }
        self.leave_loop();
        self.recorder.push(Step::NoCopies);
        self.membar.join(entered);

        e.position(done);
        let skipped: Vec<Vec<Val>> = inits.iter().map(|r| r.to_vec()).collect();
        self.merge(&data.results, &[(before, skipped), (header, carried.phis)]);
        Ok(())
    }

    /// Where the current iteration's tile of a load is in shared memory: bytes, and the slot to add.
    pub(super) fn slot_of(&mut self, load: Op) -> Result<(u32, Option<Val>), Error> {
        let bug = || Error::bug("a load of a ring has no slot");
        let found = self.lir.multistage.iter().find_map(|(&op, ring)| Some((op, ring.load(load)?)));
        let (op, copied) = found.ok_or_else(bug)?;
        let slot = *self.slots.get(&load).ok_or_else(bug)?;
        let bytes = self.scratch(op)?;
        let start = bytes.start + copied.offset;
        let ring = &self.lir.multistage[&op];
        let read = ring_bytes(ring, copied, bytes.start, 0);
        self.recorder.push(Step::Read(load, read));
        self.membar.read_shared(bytes);
        Ok((start, Some(slot)))
    }

    /// Waits for what the copies may overwrite or read too prefetched.
    fn before_copies(&mut self, op: Op, ring: &MultistageBuffer) -> Result<(), Error> {
        let bytes = self.scratch(op)?;
        let is_written = ring.loads.iter().any(|load| {
            let target = self.target(self.func.op(load.op).operands[0]);
            self.membar.blocks_load(target)
        });
        if self.all_barriers || is_written || self.membar.blocks_shared_write(&bytes) {
            self.barrier();
        }
        Ok(())
    }

    /// Copies the first iterations. Gives the indices of the one behind them.
    pub(super) fn fill(
        &mut self,
        op: Op,
        ring: &MultistageBuffer,
        bounds: [Val; 3],
    ) -> Result<Indices, Error> {
        let slots = self.first_slots(ring, bounds);
        let mut indices: Vec<Indices> = slots
            .iter()
            .map(|&ahead| self.load_indices(op, ring, ahead))
            .collect::<Result<_, _>>()?;
        let next = indices.pop().unwrap_or_default();
        for (&ahead, indices) in slots.iter().zip(&indices) {
            let late = self.copy(op, ring, ahead, indices)?;
            self.store_late(late)?;
        }
        Ok(next)
    }

    /// Copies some tiles of the first iterations, all of them by `cp.async`, into the group that is open.
    pub(super) fn fill_tiles(
        &mut self,
        op: Op,
        ring: &MultistageBuffer,
        (bounds, tiles): ([Val; 3], &BTreeSet<Op>),
    ) -> Result<(), Error> {
        for &ahead in self.first_slots(ring, bounds).iter().take(ring.stages as usize - 1) {
            let indices = self.load_indices(op, ring, ahead)?;
            self.copy_tiles(op, ring, (ahead, &indices), &|load| tiles.contains(&load))?;
        }
        Ok(())
    }

    /// The iterations that are copied before the loop, and the one behind them.
    fn first_slots(&self, ring: &MultistageBuffer, [lower, upper, step]: [Val; 3]) -> Vec<Ahead> {
        let e = self.e;
        let (mut index, mut exists) = (lower, e.bool(true));
        let slots = (0..ring.stages).map(|slot| {
            // An index that passes the largest number begins again below the loop's lower bound.
            let in_order = e.icmp(IntPred::Sge, index, lower);
            exists = e.and(exists, e.and(in_order, e.icmp(IntPred::Slt, index, upper)));
            let at = e.int(e.i32(), i64::from(slot * ring.slot_bytes));
            let ahead = Ahead { index, exists, at, slot };
            index = e.add(index, step);
            ahead
        });
        slots.collect()
    }

    /// Copies the iteration that is the ring's length, less one, after this one.
    fn copy_ahead(
        &mut self,
        op: Op,
        ring: &MultistageBuffer,
        phis: &Header,
        bounds: [Val; 2],
    ) -> Result<Vec<Late>, Error> {
        let ahead = self.ahead_by(ring.stages - 1, phis, bounds);
        self.copy(op, ring, ahead, &phis.indices.registers())
    }

    /// The iteration that is so many after this one.
    fn ahead_by(&self, count: u32, phis: &Header, [upper, step]: [Val; 2]) -> Ahead {
        let e = self.e;
        let distance = e.mul(step, e.int(e.i64(), i64::from(count)));
        let index = e.add(phis.index, distance);
        let in_order = e.icmp(IntPred::Sgt, index, phis.index);
        let exists = e.and(in_order, e.icmp(IntPred::Slt, index, upper));
        Ahead { index, exists, at: phis.write, slot: count }
    }

    /// Loads what the addresses of an iteration's copies follow from.
    fn load_indices(
        &mut self,
        op: Op,
        ring: &MultistageBuffer,
        ahead: Ahead,
    ) -> Result<Indices, Error> {
        let is_load = |&inner: &Op| self.func.op(inner).kind == OpKind::Load;
        let Some(last) = ring.slice.iter().rposition(is_load) else { return Ok(Vec::new()) };
        let region = self.func.op(op).regions[0];
        self.set(self.func.region(region).args[0], vec![ahead.index]);
        let mut indices = Vec::new();
        for &inner in &ring.slice[..=last] {
            let data = self.func.op(inner);
            match data.kind {
                OpKind::Load => {
                    self.load_where(inner, Some(ahead.exists))?;
                    indices.push(self.get(data.results[0])?);
                }
                _ => self.op(inner)?,
            }
        }
        Ok(indices)
    }

    /// Starts the copies of one iteration and closes their group.
    fn copy(
        &mut self,
        op: Op,
        ring: &MultistageBuffer,
        ahead: Ahead,
        indices: &[Registers],
    ) -> Result<Vec<Late>, Error> {
        let asked: BTreeSet<Op> = match ahead.slot + 1 < ring.stages {
            true => ring.loads.iter().map(|l| l.op).filter(|&l| self.is_prefetched(l)).collect(),
            false => BTreeSet::new(),
        };
        let late = self.copy_tiles(op, ring, (ahead, indices), &|load| !asked.contains(&load))?;
        self.recorder.push(Step::Commit);
        self.e.inline_asm(self.e.void(), "cp.async.commit_group;", "~{memory}", &[], true);
        Ok(late)
    }

    /// Whether all of a tile is copied by `cp.async`.
    pub(super) fn is_direct(&self, load: &StagedLoad) -> bool {
        let size = self.dtype(self.func.op(load.op).results[0]).bytes();
        let groups = together(&self.access(load.op).groups, &offsets_of(load));
        groups.iter().all(|group| matches!(size * group.len(), 4 | 8 | 16))
    }

    /// Copies those tiles of an iteration that are wanted.
    fn copy_tiles(
        &mut self,
        op: Op,
        ring: &MultistageBuffer,
        (ahead, indices): (Ahead, &[Registers]),
        wanted: &dyn Fn(Op) -> bool,
    ) -> Result<Vec<Late>, Error> {
        let region = self.func.op(op).regions[0];
        let index = self.func.region(region).args[0];
        self.set(index, vec![ahead.index]);
        let mut indices = indices.iter();
        for &inner in &ring.slice {
            let data = self.func.op(inner);
            match (&data.kind, indices.as_slice()) {
                (OpKind::Load, [known, ..]) => {
                    self.set(data.results[0], known.clone());
                    indices.next();
                }
                (OpKind::Load, []) => return Err(Error::bug("a copy of a ring has no index")),
                _ => self.op(inner)?,
            }
        }
        let start = self.scratch(op)?.start;
        let mut late = Vec::new();
        for load in ring.loads.iter().filter(|load| wanted(load.op)) {
            // Copies before the loop go to the same slots each time the loop is come to.
            let bytes = match ahead.slot + 1 == ring.stages {
                true => ring_bytes(ring, load, start, ahead.slot),
                false => ring_bytes(ring, load, start, 0).moved(ahead.slot * ring.slot_bytes),
            };
            self.recorder.push(Step::Copy(load.op, bytes));
            self.copy_tile(load, start + load.offset, ahead, &mut late)?;
        }
        Ok(late)
    }

    fn copy_tile(
        &mut self,
        load: &StagedLoad,
        start: u32,
        ahead: Ahead,
        late: &mut Vec<Late>,
    ) -> Result<(), Error> {
        let data = self.func.op(load.op);
        let operands = self.operands(load.op)?;
        let (ptr, mask) = (&operands[0], operands.get(1));
        let access = self.access(load.op);
        let (lanes, warps) = (access.lane_copies, access.warp_copies);
        let on = match self.threads.all_zero(self.e, lanes, warps) {
            Some(first) => self.e.and(ahead.exists, first),
            None => ahead.exists,
        };
        let value = data.results[0];
        let size = self.dtype(value).bytes() as u32;
        let offsets = offsets_of(load);
        let thread = self.shared_thread(&load.store, size);
        for group in together(&access.groups, &offsets) {
            let leader = group[0] as usize;
            let offset = offsets[leader];
            let address =
                self.shared_group(&load.store, thread, offset, size, start, Some(ahead.at));
            let mask = mask.map(|mask| mask[leader]);
            let bytes = size * group.len() as u32;
            if matches!(bytes, 4 | 8 | 16) {
                self.copy_async(address, ptr[leader], bytes, on, mask);
                continue;
            }
            let is_wanted = mask.map_or(ahead.exists, |mask| self.e.and(mask, ahead.exists));
            let dtype: DType = self.dtype(value);
            let readonly = self.is_readonly(data.operands[0]);
            let n = group.len();
            let cached = Cached::usual(readonly);
            let how = (Some(is_wanted), None);
            let registers = self.load_asm(dtype, n, ptr[leader], cached, how);
            late.push(Late { load: load.op, registers, address, on: Some(on) });
        }
        Ok(())
    }

    /// `cp.async` where `on` is true; zeros where the mask is false.
    fn copy_async(&self, to: Val, from: Val, bytes: u32, on: Val, mask: Option<Val>) {
        let e = self.e;
        let int = |n: u32| e.int(e.i32(), i64::from(n));
        // Copies of 16 bytes pass by the first-level cache.
        let cache = if bytes == 16 { "cg" } else { "ca" };
        let head = format!("@$0 cp.async.{cache}.shared.global.L2::128B [$1], [$2], {bytes}");
        match mask {
            Some(mask) => {
                let size = e.select(mask, int(bytes), int(0));
                let args = [on, to, from, size];
                let text = format!("{head}, $3;");
                e.inline_asm(e.void(), &text, "b,l,l,r,~{memory}", &args, true);
            }
            None => {
                let text = format!("{head};");
                e.inline_asm(e.void(), &text, "b,l,l,~{memory}", &[on, to, from], true);
            }
        }
    }

    fn store_late(&mut self, late: Vec<Late>) -> Result<(), Error> {
        for Late { load, registers, address, on } in late {
            let value = self.func.op(load).results[0];
            self.write_shared(value, &registers, address, on);
        }
        Ok(())
    }

    /// Waits until at most this many groups of copies of this thread are on their way.
    fn wait_for_copies(&mut self, groups: u32) {
        self.recorder.push(Step::Wait(groups as usize));
        let text = format!("cp.async.wait_group {groups};");
        self.e.inline_asm(self.e.void(), &text, "~{memory}", &[], true);
    }

    fn slot_after(&self, ring: &MultistageBuffer, slot: Val) -> Val {
        let e = self.e;
        let next = e.add(slot, e.int(e.i32(), i64::from(ring.slot_bytes)));
        let wraps = e.icmp(IntPred::Eq, next, e.int(e.i32(), i64::from(ring.bytes())));
        e.select(wraps, e.int(e.i32(), 0), next)
    }
}

/// The bytes of a load's tile in a slot of its ring, which starts here.
fn ring_bytes(ring: &MultistageBuffer, load: &StagedLoad, start: u32, first: u32) -> Bytes {
    let start = start + load.offset;
    let slot = Slot { first, stages: ring.stages, bytes: ring.slot_bytes };
    Bytes { range: start..start + load.bytes, slot: Some(slot) }
}

/// The offset of each register in thread 0, in elements.
fn offsets_of(load: &StagedLoad) -> Vec<u32> {
    let n: usize = load.store.groups.iter().map(|group| group.regs.len()).sum();
    let mut offsets = vec![0; n];
    for group in &load.store.groups {
        for (offset, &reg) in (group.offset..).zip(&group.regs) {
            offsets[reg as usize] = offset;
        }
    }
    offsets
}

/// Groups of registers that are next to each other in global memory, cut to what is next to each other
/// in shared memory too.
fn together(groups: &[Vec<u32>], offsets: &[u32]) -> Vec<Vec<u32>> {
    let is_run = |group: &[u32]| {
        let first = offsets[group[0] as usize];
        let follows = (first..).zip(group).all(|(offset, &reg)| offsets[reg as usize] == offset);
        follows && first.is_multiple_of(group.len() as u32)
    };
    let cut = |group: &Vec<u32>| match is_run(group) {
        true => vec![group.clone()],
        false => group.iter().map(|&reg| vec![reg]).collect(),
    };
    groups.iter().flat_map(cut).collect()
}
