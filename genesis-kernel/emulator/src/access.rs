//! Loads, stores and atomics of threads.

use super::alu;
use super::cluster::Cluster;
use super::fault::{Fault, FaultKind};
use super::memory::{Global, Trouble, word};
use super::program::{Addr, Arg, Atomic, LOCAL_BASE, PARAM_BASE, Reg, Rmw, SHARED_BASE, Space, Ty};
use super::shadow::{Access, Conflict, Way};
use super::warp::lanes;

/// Where an access goes.
pub(super) enum Where {
    Shared {
        rank: usize,
        byte: usize,
    },
    Global(u64),
    Param(usize),
    /// A byte of the thread's own memory.
    Local(usize),
}

impl Cluster<'_> {
    pub(super) fn address(&self, number: usize, lane: usize, at: Addr) -> u64 {
        self.warps[number].value(at.base, lane).wrapping_add_signed(at.offset)
    }

    pub(super) fn place(
        &self,
        number: usize,
        space: Space,
        address: u64,
        bytes: u32,
    ) -> Result<Where, Fault> {
        let shared = |address: u64| {
            let (rank, byte) = self.shared_place(address, bytes)?;
            self.reach(number, rank)?;
            Ok(Where::Shared { rank, byte })
        };
        let place = match space {
            Space::Shared => shared(address)?,
            Space::Generic | Space::Local if address >= LOCAL_BASE => {
                let byte = (address - LOCAL_BASE) as usize;
                if byte + bytes as usize > self.program.local_bytes {
                    return Err(self.fault("an access beyond a thread's own memory"));
                }
                Where::Local(byte)
            }
            Space::Param => Where::Param((address - PARAM_BASE) as usize),
            Space::Generic if address >= PARAM_BASE => {
                Where::Param((address - PARAM_BASE) as usize)
            }
            Space::Generic if address >= SHARED_BASE => shared(address - SHARED_BASE)?,
            Space::Generic | Space::Global => {
                if !address.is_multiple_of(u64::from(bytes)) {
                    let fault = self.fault(format!("{bytes} bytes at {address:#x}: misaligned"));
                    return Err(Fault { kind: FaultKind::Misaligned, ..fault });
                }
                Where::Global(address)
            }
            Space::Local => return Err(self.fault("no address of a thread's own memory")),
        };
        Ok(place)
    }

    pub(super) fn load(
        &mut self,
        global: &mut Global<'_>,
        number: usize,
        mask: u32,
        (space, ty): (Space, Ty),
        to: &[Option<Reg>],
        at: Addr,
    ) -> Result<(), Fault> {
        let size = ty.bytes();
        for lane in lanes(mask) {
            let address = self.address(number, lane, at);
            let place = self.place(number, space, address, size * to.len() as u32)?;
            for (i, &to) in (0..).zip(to) {
                let bytes = self.read(global, number, lane, &place, i * size, size)?;
                let signed = matches!(ty, Ty::S(_));
                let extended = match signed {
                    true => ((bytes << (64 - 8 * size)) as i64 >> (64 - 8 * size)) as u64,
                    false => bytes,
                };
                to.into_iter().for_each(|to| self.warps[number].set(to, lane, extended));
            }
        }
        Ok(())
    }

    /// Bytes at an offset from a place.
    fn read(
        &mut self,
        global: &mut Global<'_>,
        number: usize,
        lane: usize,
        place: &Where,
        offset: u32,
        size: u32,
    ) -> Result<u64, Fault> {
        let thread = self.warps[number].first + lane;
        let access = self.access(thread, Way::Thread);
        match *place {
            Where::Shared { rank, byte } => {
                self.read_shared(rank, byte + offset as usize, size, thread, access)
            }
            Where::Global(address) => {
                let mut bytes = [0; 16];
                let to = &mut bytes[..size as usize];
                let by = Some((&self.clocks[thread], access));
                let read = global.read(address + u64::from(offset), to, by);
                read.map_err(|trouble| self.of_global(trouble, false))?;
                Ok(word(to))
            }
            Where::Param(at) => {
                let at = at + offset as usize;
                let bytes = self.launch.params.get(at..at + size as usize);
                bytes.map(word).ok_or_else(|| self.fault("a read beyond the parameters"))
            }
            Where::Local(byte) => {
                let start = lane * self.program.local_bytes + byte + offset as usize;
                Ok(word(&self.warps[number].local[start..start + size as usize]))
            }
        }
    }

    /// An access of global memory that may not be.
    pub(super) fn of_global(&self, trouble: Trouble, wrote: bool) -> Fault {
        match trouble {
            Trouble::Nowhere(wrong) => Fault { kind: FaultKind::Address, ..self.fault(wrong) },
            Trouble::Conflict(conflict, name, byte) => {
                self.conflict(conflict, &format!("byte {byte} of `{name}`"), wrote)
            }
        }
    }

    pub(super) fn read_shared(
        &mut self,
        rank: usize,
        byte: usize,
        size: u32,
        thread: usize,
        access: Access,
    ) -> Result<u64, Fault> {
        let range = byte..byte + size as usize;
        let result = self.blocks[rank].shadow.read(range.clone(), &self.clocks[thread], access);
        result.map_err(|(byte, conflict)| self.of_shared(conflict, byte, false))?;
        Ok(word(&self.blocks[rank].shared[range]))
    }

    pub(super) fn of_shared(&self, conflict: Conflict, byte: usize, wrote: bool) -> Fault {
        self.conflict(conflict, &format!("byte {byte} of shared memory"), wrote)
    }

    pub(super) fn write_shared(
        &mut self,
        rank: usize,
        byte: usize,
        bytes: &[u8],
        thread: usize,
        access: Access,
    ) -> Result<(), Fault> {
        let range = byte..byte + bytes.len();
        let result = self.blocks[rank].shadow.write(range.clone(), &self.clocks[thread], access);
        result.map_err(|(byte, conflict)| self.of_shared(conflict, byte, true))?;
        self.blocks[rank].shared[range].copy_from_slice(bytes);
        Ok(())
    }

    pub(super) fn store(
        &mut self,
        global: &mut Global<'_>,
        number: usize,
        mask: u32,
        (space, ty): (Space, Ty),
        from: &[Arg],
        at: Addr,
    ) -> Result<(), Fault> {
        let size = ty.bytes();
        for lane in lanes(mask) {
            let address = self.address(number, lane, at);
            let place = self.place(number, space, address, size * from.len() as u32)?;
            for (i, &from) in (0..).zip(from) {
                let bytes = self.warps[number].value(from, lane).to_le_bytes();
                self.write(global, number, lane, &place, i * size, &bytes[..size as usize])?;
            }
        }
        Ok(())
    }

    fn write(
        &mut self,
        global: &mut Global<'_>,
        number: usize,
        lane: usize,
        place: &Where,
        offset: u32,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        let thread = self.warps[number].first + lane;
        let access = self.access(thread, Way::Thread);
        match *place {
            Where::Shared { rank, byte } => {
                self.visit(thread, rank, access.epoch);
                self.write_shared(rank, byte + offset as usize, bytes, thread, access)
            }
            Where::Global(address) => {
                self.write_global(global, thread, address + u64::from(offset), bytes, access)
            }
            Where::Param(_) => Err(self.fault("a write to a parameter")),
            Where::Local(byte) => {
                let start = lane * self.program.local_bytes + byte + offset as usize;
                self.warps[number].local[start..start + bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
        }
    }

    fn write_global(
        &self,
        global: &mut Global<'_>,
        thread: usize,
        address: u64,
        bytes: &[u8],
        access: Access,
    ) -> Result<(), Fault> {
        let by = Some((&self.clocks[thread], access));
        global.write(address, bytes, by).map_err(|trouble| self.of_global(trouble, true))
    }

    /// An atomic; one that computes with several values does it with the places side by side.
    pub(super) fn atomic(
        &mut self,
        global: &mut Global<'_>,
        (number, lane): (usize, usize),
        atomic: &Atomic,
    ) -> Result<(), Fault> {
        let of_one = if matches!(atomic.what, Rmw::Do(_)) { 1 } else { atomic.args.len() };
        let mut at = atomic.at;
        for args in atomic.args.chunks(of_one) {
            self.atomic_at(global, (number, lane), atomic, at, args)?;
            at.offset += atomic.ty.bytes() as i64;
        }
        Ok(())
    }

    fn atomic_at(
        &mut self,
        global: &mut Global<'_>,
        (number, lane): (usize, usize),
        &Atomic { what, space, ty, to, .. }: &Atomic,
        at: Addr,
        args: &[Arg],
    ) -> Result<(), Fault> {
        let size = ty.bytes();
        let address = self.address(number, lane, at);
        let thread = self.warps[number].first + lane;
        let access = self.access(thread, Way::Atomic);
        let place = self.place(number, space, address, size)?;
        let old = match place {
            Where::Global(address) => {
                let mut bytes = [0; 16];
                let to = &mut bytes[..size as usize];
                let read = global.read(address, to, None);
                read.map_err(|trouble| self.of_global(trouble, true))?;
                word(to)
            }
            Where::Shared { rank, byte } => {
                word(&self.blocks[rank].shared[byte..byte + size as usize])
            }
            Where::Param(_) | Where::Local(_) => {
                return Err(self.fault("an atomic on what no other thread sees"));
            }
        };
        let warp = &self.warps[number];
        let values: Vec<u64> = args.iter().map(|&arg| warp.value(arg, lane)).collect();
        let low = if size == 8 { u64::MAX } else { (1 << (8 * size)) - 1 };
        let new = match (what, &values[..]) {
            (Rmw::Exchange, [value]) => Some(*value),
            (Rmw::CompareSwap, [compared, value]) => {
                Some(if old == compared & low { *value } else { old })
            }
            (Rmw::Do(what), [value]) => alu::compute(what, ty, [old, *value, 0]),
            _ => None,
        };
        let new = new.ok_or_else(|| self.fault("a strange atomic"))?.to_le_bytes();
        let bytes = &new[..size as usize];
        match place {
            Where::Global(address) => self.write_global(global, thread, address, bytes, access)?,
            Where::Shared { rank, byte } => {
                self.write_shared(rank, byte, bytes, thread, access)?;
            }
            Where::Param(_) | Where::Local(_) => {}
        }
        to.into_iter().for_each(|to| self.warps[number].set(to, lane, old));
        Ok(())
    }
}
