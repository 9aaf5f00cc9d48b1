//! The address space of the GPUs and of pinned host memory.
//!
//! An address is never given out twice, and there is nothing between two allocations: what is used after
//! it was freed, or beyond its end, is found. Memory that nobody has written holds `0xff`, which is NaN
//! in every float dtype.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::collections::BTreeMap;

use cudarc::driver::sys::CUresult;
use genesis_emulator::GlobalMemory;

/// Device addresses start here, where no host memory is.
const FIRST: u64 = 1 << 41;
/// What addresses of allocations are multiples of, and the least distance between two.
const GRAIN: u64 = 2 << 20;
/// Fresh memory of more bytes is zero: it would have to be written to be anything else.
const MOST_POISONED: usize = 64 << 20;
/// What fresh memory holds.
const POISON: u8 = 0xff;
const ALIGNMENT: usize = 4096;

/// Bytes that live as long as this.
#[derive(Debug)]
struct Storage {
    data: *mut u8,
    bytes: usize,
}

// SAFETY: the bytes are this one's own; all use of them is under the driver's lock, but for pinned memory,
// which the host shares as it does with a real driver.
unsafe impl Send for Storage {}

impl Storage {
    fn new(bytes: usize) -> Option<Storage> {
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT).ok()?;
        // SAFETY: the layout has at least one byte.
        let data = unsafe {
            if bytes > MOST_POISONED {
                alloc_zeroed(layout)
            } else {
                let data = alloc(layout);
                if !data.is_null() {
                    data.write_bytes(POISON, bytes);
                }
                data
            }
        };
        (!data.is_null()).then_some(Storage { data, bytes })
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        let layout = Layout::from_size_align(self.bytes.max(1), ALIGNMENT);
        if let Ok(layout) = layout {
            // SAFETY: it was allocated with this layout. Whoever still reads pinned memory that was freed
            // reads what the driver would have given away, too.
            unsafe { dealloc(self.data, layout) };
        }
    }
}

/// Where bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Home {
    Device(u32),
    /// Pinned.
    Host,
}

/// Addresses that mean bytes.
#[derive(Debug)]
struct Mapping {
    bytes: usize,
    data: *mut u8,
    home: Home,
    /// The devices, as bits, whose kernels may access it beside its own.
    devices: u64,
    /// What is freed with it: its own storage, or none where that was mapped by the user.
    storage: Option<Storage>,
    /// The storage that the user mapped.
    handle: u64,
}

// SAFETY: as for `Storage`.
unsafe impl Send for Mapping {}

/// Storage that the user maps by himself.
#[derive(Debug)]
struct Physical {
    storage: Storage,
    device: u32,
    is_released: bool,
    mapped: u32,
}

/// All memory.
#[derive(Debug)]
pub(crate) struct Memory {
    mappings: BTreeMap<u64, Mapping>,
    reserved: BTreeMap<u64, usize>,
    physical: BTreeMap<u64, Physical>,
    next: u64,
    /// Bytes in use on each device, and how many it has.
    used: Vec<usize>,
    total: usize,
    /// Pairs of devices of which the first one's kernels may access the second one's memory.
    peers: Vec<(u32, u32)>,
}

type Answer<T> = Result<T, CUresult>;

const WRONG: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

impl Memory {
    pub(crate) fn new(devices: u32, total: usize) -> Memory {
        Memory {
            mappings: BTreeMap::new(),
            reserved: BTreeMap::new(),
            physical: BTreeMap::new(),
            next: FIRST,
            used: vec![0; devices as usize],
            total,
            peers: Vec::new(),
        }
    }

    /// Free and all bytes of a device.
    pub(crate) fn info(&self, device: u32) -> (usize, usize) {
        (self.total - self.used[device as usize].min(self.total), self.total)
    }

    fn take(&mut self, device: u32, bytes: usize) -> Answer<()> {
        let used = &mut self.used[device as usize];
        let sum = used.checked_add(bytes).filter(|&sum| sum <= self.total);
        *used = sum.ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        Ok(())
    }

    /// Addresses with nothing behind them.
    fn addresses(&mut self, bytes: usize, alignment: u64) -> u64 {
        let start = self.next.next_multiple_of(alignment.max(GRAIN));
        self.next = start + (bytes as u64).next_multiple_of(GRAIN) + GRAIN.max(bytes as u64);
        start
    }

    pub(crate) fn alloc(&mut self, device: u32, bytes: usize) -> Answer<u64> {
        if bytes == 0 {
            return Err(WRONG);
        }
        self.take(device, bytes)?;
        let storage = Storage::new(bytes).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let address = self.addresses(bytes, GRAIN);
        let (data, home) = (storage.data, Home::Device(device));
        let storage = Some(storage);
        let mapping = Mapping { bytes, data, home, devices: 0, storage, handle: 0 };
        self.mappings.insert(address, mapping);
        Ok(address)
    }

    pub(crate) fn free(&mut self, address: u64) -> Answer<()> {
        let mapping = self.mappings.get(&address).ok_or(WRONG)?;
        let Home::Device(device) = mapping.home else { return Err(WRONG) };
        if mapping.storage.is_none() {
            return Err(WRONG);
        }
        self.used[device as usize] -= mapping.bytes;
        self.mappings.remove(&address);
        Ok(())
    }

    /// Host memory that devices may access at the host's address.
    pub(crate) fn alloc_host(&mut self, bytes: usize) -> Answer<u64> {
        let storage = Storage::new(bytes).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let address = storage.data as u64;
        self.pin(address, bytes, Some(storage))?;
        Ok(address)
    }

    /// Makes host memory known; without `storage` it stays its owner's.
    fn pin(&mut self, address: u64, bytes: usize, storage: Option<Storage>) -> Answer<()> {
        if self.span(address, bytes).is_ok() {
            return Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        let data = address as *mut u8;
        let mapping = Mapping { bytes, data, home: Home::Host, devices: !0, storage, handle: 0 };
        self.mappings.insert(address, mapping);
        Ok(())
    }

    pub(crate) fn register_host(&mut self, address: u64, bytes: usize) -> Answer<()> {
        self.pin(address, bytes, None)
    }

    pub(crate) fn unregister_host(&mut self, address: u64, is_ours: bool) -> Answer<()> {
        let mapping = self.mappings.get(&address).ok_or(WRONG)?;
        if mapping.home != Home::Host || mapping.storage.is_some() != is_ours {
            return Err(WRONG);
        }
        self.mappings.remove(&address);
        Ok(())
    }

    fn mapping(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (&start, mapping) = self.mappings.range(..=address).next_back()?;
        (address - start < mapping.bytes as u64).then_some((start, mapping))
    }

    /// What lies at an address: where it is, the first address and the bytes of its allocation.
    pub(crate) fn describe(&self, address: u64) -> Option<(Home, u64, usize)> {
        self.mapping(address).map(|(start, mapping)| (mapping.home, start, mapping.bytes))
    }

    /// Whether a range is pinned host memory.
    pub(crate) fn is_pinned(&self, address: u64, bytes: usize) -> bool {
        let found = self.mapping(address).filter(|(_, mapping)| mapping.home == Home::Host);
        found.is_some_and(|(start, mapping)| address + bytes as u64 <= start + mapping.bytes as u64)
    }

    /// The mapping and what of it is meant; the address of the first byte without memory if there is one.
    fn span(&self, address: u64, bytes: usize) -> Result<(&Mapping, *mut u8), u64> {
        let (start, mapping) = self.mapping(address).ok_or(address)?;
        let inside = (address - start) as usize;
        if bytes > mapping.bytes - inside {
            return Err(start + mapping.bytes as u64);
        }
        // SAFETY: `inside` is within the mapping's bytes.
        Ok((mapping, unsafe { mapping.data.add(inside) }))
    }

    /// Calls `each` with every piece of a range that lies in one mapping.
    fn pieces(
        &self,
        address: u64,
        bytes: usize,
        mut each: impl FnMut(&Mapping, *mut u8, usize, usize) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut done = 0;
        while done < bytes {
            let at = address + done as u64;
            let (start, mapping) = self.mapping(at).ok_or_else(|| self.nowhere(at))?;
            let inside = (at - start) as usize;
            let n = (mapping.bytes - inside).min(bytes - done);
            // SAFETY: `inside` is within the mapping's bytes.
            each(mapping, unsafe { mapping.data.add(inside) }, done, n)?;
            done += n;
        }
        Ok(())
    }

    fn nowhere(&self, address: u64) -> String {
        let before = self.mappings.range(..=address).next_back();
        match before {
            Some((start, mapping)) if address - start < (mapping.bytes as u64).max(GRAIN) * 2 => {
                let past = address - start - mapping.bytes as u64;
                let bytes = mapping.bytes;
                format!("{address:#x} is {past} bytes beyond the end of an allocation of {bytes}")
            }
            _ => format!("{address:#x} is no memory, or not any more"),
        }
    }

    /// Reads a range, whoever may.
    pub(crate) fn read(&self, address: u64, to: &mut [u8]) -> Result<(), String> {
        self.pieces(address, to.len(), |_, data, at, n| {
            // SAFETY: `n` bytes are the mapping's, and nobody else's but for pinned memory, which a host
            // that writes it meanwhile gives up what it holds.
            unsafe { data.copy_to(to[at..at + n].as_mut_ptr(), n) };
            Ok(())
        })
    }

    /// Writes a range, whoever may.
    pub(crate) fn write(&mut self, address: u64, from: &[u8]) -> Result<(), String> {
        self.pieces(address, from.len(), |_, data, at, n| {
            // SAFETY: as in `read`.
            unsafe { data.copy_from(from[at..at + n].as_ptr(), n) };
            Ok(())
        })
    }

    pub(crate) fn enable_peer(&mut self, device: u32, peer: u32) -> Answer<()> {
        if device == peer {
            return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
        }
        if self.peers.contains(&(device, peer)) {
            return Err(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        }
        self.peers.push((device, peer));
        Ok(())
    }

    pub(crate) fn disable_peer(&mut self, device: u32, peer: u32) -> Answer<()> {
        let place = self.peers.iter().position(|&pair| pair == (device, peer));
        self.peers.remove(place.ok_or(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)?);
        Ok(())
    }

    fn may(&self, device: u32, mapping: &Mapping) -> bool {
        let own = match mapping.home {
            Home::Host => return true,
            Home::Device(own) => own,
        };
        let is_plain = mapping.storage.is_some();
        mapping.devices >> device & 1 == 1
            || is_plain && (own == device || self.peers.contains(&(device, own)))
    }
}

/// Memory that the user maps by himself.
impl Memory {
    pub(crate) fn reserve(&mut self, bytes: usize, alignment: u64) -> Answer<u64> {
        if bytes == 0 || !(bytes as u64).is_multiple_of(GRAIN) {
            return Err(WRONG);
        }
        let address = self.addresses(bytes, alignment);
        self.reserved.insert(address, bytes);
        Ok(address)
    }

    pub(crate) fn unreserve(&mut self, address: u64, bytes: usize) -> Answer<()> {
        let is_used = self.mappings.range(address..address + bytes as u64).next().is_some();
        if is_used || self.reserved.get(&address) != Some(&bytes) {
            return Err(WRONG);
        }
        self.reserved.remove(&address);
        Ok(())
    }

    pub(crate) fn create(&mut self, device: u32, bytes: usize, handle: u64) -> Answer<()> {
        if bytes == 0 || !(bytes as u64).is_multiple_of(GRAIN) {
            return Err(WRONG);
        }
        self.take(device, bytes)?;
        let storage = Storage::new(bytes).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let physical = Physical { storage, device, is_released: false, mapped: 0 };
        self.physical.insert(handle, physical);
        Ok(())
    }

    pub(crate) fn release(&mut self, handle: u64) -> Answer<()> {
        let physical = self.physical.get_mut(&handle).filter(|physical| !physical.is_released);
        physical.ok_or(WRONG)?.is_released = true;
        self.drop_unused(handle);
        Ok(())
    }

    fn drop_unused(&mut self, handle: u64) {
        let unused = self.physical.get(&handle).filter(|p| p.is_released && p.mapped == 0);
        if let Some(physical) = unused {
            self.used[physical.device as usize] -= physical.storage.bytes;
            self.physical.remove(&handle);
        }
    }

    pub(crate) fn map(
        &mut self,
        address: u64,
        bytes: usize,
        offset: usize,
        handle: u64,
    ) -> Answer<()> {
        let end = address + bytes as u64;
        let (&start, &len) = self.reserved.range(..=address).next_back().ok_or(WRONG)?;
        let is_used =
            self.mappings.range(address..end).next().is_some() || self.mapping(address).is_some();
        let physical = self.physical.get_mut(&handle).ok_or(WRONG)?;
        if is_used || end > start + len as u64 || offset + bytes > physical.storage.bytes {
            return Err(WRONG);
        }
        physical.mapped += 1;
        let home = Home::Device(physical.device);
        // SAFETY: `offset` is within the storage.
        let data = unsafe { physical.storage.data.add(offset) };
        let mapping = Mapping { bytes, data, home, devices: 0, storage: None, handle };
        self.mappings.insert(address, mapping);
        Ok(())
    }

    pub(crate) fn unmap(&mut self, address: u64, bytes: usize) -> Answer<()> {
        let range = address..address + bytes as u64;
        let starts: Vec<u64> = self.mappings.range(range.clone()).map(|(&at, _)| at).collect();
        let whole: usize = starts.iter().map(|at| self.mappings[at].bytes).sum();
        if whole != bytes || starts.iter().any(|at| self.mappings[at].storage.is_some()) {
            return Err(WRONG);
        }
        for start in starts {
            let Some(mapping) = self.mappings.remove(&start) else { continue };
            if let Some(physical) = self.physical.get_mut(&mapping.handle) {
                physical.mapped -= 1;
            }
            self.drop_unused(mapping.handle);
        }
        Ok(())
    }

    pub(crate) fn set_access(
        &mut self,
        address: u64,
        bytes: usize,
        device: u32,
        may: bool,
    ) -> Answer<()> {
        let mut covered = 0;
        for (_, mapping) in self.mappings.range_mut(address..address + bytes as u64) {
            covered += mapping.bytes;
            mapping.devices &= !(1 << device);
            mapping.devices |= u64::from(may) << device;
        }
        if covered == bytes { Ok(()) } else { Err(WRONG) }
    }
}

/// Memory as a device's kernels see it.
pub(crate) struct Seen<'m> {
    memory: &'m mut Memory,
    device: u32,
    /// Bytes that were read and written.
    pub(crate) moved: u64,
}

impl Seen<'_> {
    pub(crate) fn new(memory: &mut Memory, device: u32) -> Seen<'_> {
        Seen { memory, device, moved: 0 }
    }

    fn access(
        &self,
        address: u64,
        bytes: usize,
        mut each: impl FnMut(*mut u8, usize, usize),
    ) -> Result<(), String> {
        self.memory.pieces(address, bytes, |mapping, data, at, n| {
            if !self.memory.may(self.device, mapping) {
                let (device, home) = (self.device, mapping.home);
                return Err(format!("{address:#x} of {home:?} is not open to device {device}"));
            }
            each(data, at, n);
            Ok(())
        })
    }
}

impl GlobalMemory for Seen<'_> {
    fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), String> {
        let (start, len) = (to.as_mut_ptr(), to.len());
        self.moved += len as u64;
        self.access(address, len, |data, at, n| {
            // SAFETY: as in `Memory::read`; the pieces lie within `to`.
            unsafe { data.copy_to(start.add(at), n) }
        })
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), String> {
        self.moved += from.len() as u64;
        self.access(address, from.len(), |data, at, n| {
            // SAFETY: as in `Memory::read`.
            unsafe { data.copy_from(from[at..at + n].as_ptr(), n) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_memory_is_gone() {
        let mut memory = Memory::new(1, 1 << 20);
        let a = memory.alloc(0, 1000).unwrap();
        let mut byte = [0];
        memory.read(a + 999, &mut byte).unwrap();
        assert_eq!(byte, [POISON]);
        let beyond = memory.read(a + 1001, &mut byte).unwrap_err();
        assert!(beyond.ends_with("is 1 bytes beyond the end of an allocation of 1000"), "{beyond}");
        assert_eq!(memory.info(0), ((1 << 20) - 1000, 1 << 20));
        memory.free(a).unwrap();
        assert!(memory.read(a, &mut byte).is_err());
        assert_ne!(memory.alloc(0, 1000), Ok(a));
        assert_eq!(memory.alloc(0, 1 << 20), Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    }

    #[test]
    fn memory_is_mapped_in_pieces() {
        let mut memory = Memory::new(1, 16 << 20);
        let grain = GRAIN as usize;
        let at = memory.reserve(2 * grain, 0).unwrap();
        memory.create(0, grain, 1).unwrap();
        memory.create(0, grain, 2).unwrap();
        memory.map(at, grain, 0, 1).unwrap();
        assert!(memory.write(at + GRAIN - 1, &[1, 2]).is_err());
        memory.map(at + GRAIN, grain, 0, 2).unwrap();
        memory.write(at + GRAIN - 1, &[1, 2]).unwrap();
        let mut bytes = [0; 2];
        assert!(Seen::new(&mut memory, 0).read(at + GRAIN - 1, &mut bytes).is_err());
        memory.set_access(at, 2 * grain, 0, true).unwrap();
        Seen::new(&mut memory, 0).read(at + GRAIN - 1, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2]);
        assert_eq!(memory.unreserve(at, 2 * grain), Err(WRONG));
        memory.unmap(at, 2 * grain).unwrap();
        memory.unreserve(at, 2 * grain).unwrap();
        memory.release(1).unwrap();
        memory.release(2).unwrap();
        assert_eq!(memory.info(0).0, 16 << 20);
    }

    #[test]
    fn another_devices_memory_must_be_opened() {
        let mut memory = Memory::new(2, 1 << 20);
        let a = memory.alloc(1, 16).unwrap();
        assert!(Seen::new(&mut memory, 0).write(a, &[1]).is_err());
        memory.enable_peer(0, 1).unwrap();
        Seen::new(&mut memory, 0).write(a, &[1]).unwrap();
    }
}
