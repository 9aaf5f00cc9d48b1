//! Buffers at made-up addresses, with a record of who touched what.

use std::collections::{BTreeMap, BTreeSet};

use super::error::InterpErrorKind;
use crate::ir::{AtomicOrdering, DType, MemoryScope};

/// Each buffer has this many bits of addresses of its own.
const SLOT_BITS: u32 = 40;

/// A buffer starts in the middle of its addresses, so that small negative indices stay in them too.
const START: u64 = 1 << (SLOT_BITS - 1);

/// Several programs.
const MANY: u32 = u32::MAX;

type Result<T> = std::result::Result<T, InterpErrorKind>;

/// All buffers of an interpreter.
#[derive(Debug, Default)]
pub(super) struct Memory {
    buffers: Vec<Buffer>,
    order: Order,
    /// Stores of tiles in this run so far: the number of the one that writes.
    stores: u64,
}

/// Which programs come before the one that runs: an atomic that acquires sees all that the programs did
/// whose atomics changed the element earlier and released. What those did afterwards is not told apart.
#[derive(Debug, Default)]
struct Order {
    /// By address, numbers of programs plus 1.
    released: BTreeMap<u64, BTreeSet<u32>>,
    before: BTreeSet<u32>,
}

impl Order {
    fn acquire(&mut self, address: u64) {
        self.before.extend(self.released.entry(address).or_default().iter());
    }

    fn release(&mut self, address: u64, program: u32) {
        let released = self.released.entry(address).or_default();
        released.extend(self.before.iter());
        released.insert(program + 1);
    }

    /// Whether all that touched an element, by its record, came before this program, by its number
    /// plus 1.
    fn is_before(&self, who: u32, program: u32) -> bool {
        let others = self.before.len() - usize::from(self.before.contains(&program));
        if who == MANY { others + 1 >= program as usize } else { self.before.contains(&who) }
    }
}

#[derive(Debug)]
struct Buffer {
    name: String,
    dtype: DType,
    bytes: Vec<u8>,
    writable: bool,
    /// Whether each element was written; absent where all count as written.
    initialised: Option<Vec<bool>>,
    /// Who touched each element in this run; empty until the first access.
    touched: Vec<Touched>,
}

/// Programs that touched an element: 0 for none, a program's number plus 1, or [`MANY`].
#[derive(Clone, Copy, Debug, Default)]
struct Touched {
    wrote: u32,
    changed: u32,
    read: u32,
    /// The last store that wrote it, by its number.
    store: u64,
}

/// How an element is touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    Read,
    Write,
    Atomic,
}

impl Memory {
    pub(super) fn add(
        &mut self,
        name: String,
        dtype: DType,
        bytes: Vec<u8>,
        writable: bool,
    ) -> u64 {
        let touched = Vec::new();
        self.buffers.push(Buffer { name, dtype, bytes, writable, initialised: None, touched });
        ((self.buffers.len() as u64) << SLOT_BITS) + START
    }

    pub(super) fn mark_uninitialised(&mut self, ptr: u64) {
        if let Some((buffer, _)) = self.find(ptr) {
            let buffer = &mut self.buffers[buffer];
            buffer.initialised = Some(vec![false; buffer.extent()]);
        }
    }

    /// Makes reads of a buffer whose elements nothing has written since [`Memory::mark_uninitialised`] right again.
    #[cfg(test)]
    pub(super) fn mark_initialised(&mut self, ptr: u64) {
        if let Some((buffer, _)) = self.find(ptr) {
            self.buffers[buffer].initialised = None;
        }
    }

    pub(super) fn bytes(&self, ptr: u64) -> &[u8] {
        match self.find(ptr) {
            Some((buffer, 0)) => &self.buffers[buffer].bytes,
            _ => &[],
        }
    }

    /// Forgets who touched what: launches on one stream follow each other.
    pub(super) fn start_run(&mut self) {
        for buffer in &mut self.buffers {
            buffer.touched.clear();
        }
        self.order = Order::default();
        self.stores = 0;
    }

    /// A store of a tile begins: of its lanes each element may be given one value only.
    pub(super) fn start_store(&mut self) {
        self.stores += 1;
    }

    /// Forgets which programs came before the last one.
    pub(super) fn start_program(&mut self) {
        self.order.before.clear();
    }

    /// Notes what an atomic orders; `is_used` of its old value. One that is for the program itself meets no other.
    pub(super) fn order(
        &mut self,
        address: u64,
        program: u32,
        ordering: AtomicOrdering,
        is_used: bool,
    ) {
        if matches!(ordering.scope, MemoryScope::Block | MemoryScope::Cluster) {
            return;
        }
        if ordering.acquires(is_used) {
            self.order.acquire(address);
        }
        if ordering.releases(is_used) {
            self.order.release(address, program);
        }
    }

    /// The buffer in whose addresses this one is, and the distance from its start in bytes.
    fn find(&self, address: u64) -> Option<(usize, i64)> {
        let slot = (address >> SLOT_BITS).checked_sub(1)? as usize;
        let offset = (address & ((1 << SLOT_BITS) - 1)) as i64 - START as i64;
        (slot < self.buffers.len()).then_some((slot, offset))
    }

    /// The bytes of an element, after all checks.
    fn access(
        &mut self,
        address: u64,
        dtype: DType,
        program: u32,
        access: Access,
    ) -> Result<&mut [u8]> {
        let Some((buffer, offset)) = self.find(address) else {
            let index = address as i64;
            return Err(InterpErrorKind::OutOfBounds { buffer: None, index, extent: 0 });
        };
        let buffer = &mut self.buffers[buffer];
        let range = buffer.range(offset, dtype)?;
        let size = buffer.dtype.bytes();
        for element in range.start / size..=(range.end - 1) / size {
            buffer.check(element, program, access, &self.order)?;
        }
        Ok(&mut buffer.bytes[range])
    }

    pub(super) fn load(&mut self, address: u64, dtype: DType, program: u32) -> Result<u64> {
        self.access(address, dtype, program, Access::Read).map(|bytes| decode(bytes, dtype))
    }

    pub(super) fn store(
        &mut self,
        address: u64,
        dtype: DType,
        bits: u64,
        program: u32,
    ) -> Result<()> {
        let store = self.stores;
        let bytes = self.access(address, dtype, program, Access::Write)?;
        let before = decode(bytes, dtype);
        encode(bytes, bits);
        let is_same = before == decode(bytes, dtype);
        // `access` found it.
        let Some((buffer, offset)) = self.find(address) else { return Ok(()) };
        let buffer = &mut self.buffers[buffer];
        let index = offset as usize / buffer.dtype.bytes();
        let last = std::mem::replace(&mut buffer.touched[index].store, store);
        let is_whole = buffer.dtype.bytes() == dtype.bytes();
        if last == store && !is_same && is_whole {
            let buffer = buffer.name.clone();
            return Err(InterpErrorKind::Lanes { buffer, index });
        }
        Ok(())
    }

    /// Replaces an element by what `change` makes of it; gives the old one.
    pub(super) fn change(
        &mut self,
        address: u64,
        dtype: DType,
        program: u32,
        change: impl FnOnce(u64) -> u64,
    ) -> Result<u64> {
        let bytes = self.access(address, dtype, program, Access::Atomic)?;
        let old = decode(bytes, dtype);
        encode(bytes, change(old));
        Ok(old)
    }
}

impl Buffer {
    fn extent(&self) -> usize {
        self.bytes.len() / self.dtype.bytes()
    }

    fn range(&self, offset: i64, dtype: DType) -> Result<std::ops::Range<usize>> {
        let size = dtype.bytes();
        let start = usize::try_from(offset).ok();
        let range = start.map(|s| s..s + size).filter(|r| r.end <= self.bytes.len());
        let Some(range) = range else {
            let (buffer, extent) = (Some(self.name.clone()), self.bytes.len() / size);
            let index = offset.div_euclid(size as i64);
            return Err(InterpErrorKind::OutOfBounds { buffer, index, extent });
        };
        if range.start % size != 0 {
            let buffer = self.name.clone();
            return Err(InterpErrorKind::Misaligned { buffer, offset: range.start, dtype });
        }
        Ok(range)
    }

    fn check(&mut self, index: usize, program: u32, access: Access, order: &Order) -> Result<()> {
        let buffer = || self.name.clone();
        if access != Access::Read && !self.writable {
            return Err(InterpErrorKind::ReadOnly { buffer: buffer(), index });
        }
        if let Some(initialised) = &mut self.initialised {
            // An atomic reads first.
            let is_written = initialised.get(index).is_none_or(|&i| i);
            if access != Access::Write && !is_written {
                return Err(InterpErrorKind::Uninitialised { buffer: buffer(), index });
            }
            if let Some(flag) = initialised.get_mut(index) {
                *flag = true;
            }
        }
        if self.touched.is_empty() {
            let n = self.bytes.len().div_ceil(self.dtype.bytes());
            self.touched = vec![Touched::default(); n];
        }
        match self.touched[index].record(program + 1, access, order) {
            Some(other) => Err(InterpErrorKind::Race { buffer: self.name.clone(), index, other }),
            None => Ok(()),
        }
    }
}

impl Touched {
    /// Notes an access, and says what another program did that makes it a race.
    fn record(&mut self, program: u32, access: Access, order: &Order) -> Option<&'static str> {
        let by_other = |who: u32| who != 0 && who != program && !order.is_before(who, program);
        let (wrote, changed, read) =
            (by_other(self.wrote), by_other(self.changed), by_other(self.read));
        let other = match access {
            _ if wrote => Some("written"),
            Access::Read | Access::Write if changed => Some("atomically changed"),
            Access::Write | Access::Atomic if read => Some("read"),
            _ => None,
        };
        let who = match access {
            Access::Read => &mut self.read,
            Access::Write => &mut self.wrote,
            Access::Atomic => &mut self.changed,
        };
        *who = if *who == 0 || *who == program { program } else { MANY };
        other
    }
}

/// Little-endian bytes as a scalar's bits.
fn decode(bytes: &[u8], dtype: DType) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(word);
    match dtype {
        DType::Bool => u64::from(bits != 0),
        DType::I8 => bits as i8 as u64,
        DType::I16 => bits as i16 as u64,
        DType::I32 => bits as i32 as u64,
        _ => bits,
    }
}

fn encode(bytes: &mut [u8], bits: u64) {
    let n = bytes.len();
    bytes.copy_from_slice(&bits.to_le_bytes()[..n]);
}
