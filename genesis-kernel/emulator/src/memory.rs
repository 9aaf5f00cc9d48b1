//! Global memory: buffers far apart or what a driver keeps, and tensors that maps describe.

use super::shadow::{Access, Clock, Conflict, Shadow};

/// Buffers lie in the middle of as many bytes each, so that an index that runs off one never lands in
/// another.
const SPACE: u64 = 1 << 40;

/// Global memory that something beside the emulator keeps, such as a driver.
pub trait GlobalMemory {
    /// Reads the bytes at an address.
    ///
    /// # Errors
    /// If they are not all memory; what they are, in words.
    fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), String>;

    /// Writes the bytes at an address.
    ///
    /// # Errors
    /// If they are not all memory; what they are, in words.
    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), String>;
}

/// Memory of a kernel's argument.
#[derive(Debug)]
pub(super) struct Buffer {
    name: String,
    pub(super) bytes: Vec<u8>,
    writable: bool,
    /// What the threads of a block do there; none where nobody writes.
    shadow: Option<Shadow>,
}

/// Buffers that the emulator keeps.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    buffers: Vec<Buffer>,
}

/// Why an access of global memory may not be.
pub(super) enum Trouble {
    /// There is no such memory.
    Nowhere(String),
    /// Nothing orders it after another access of this byte of a buffer.
    Conflict(Conflict, String, usize),
}

/// Who accesses, and what it knows; nothing for what works beside the threads.
pub(super) type By<'c> = Option<(&'c Clock, Access)>;

fn start(number: usize) -> u64 {
    (number as u64 + 1) * SPACE + SPACE / 2
}

impl Buffers {
    pub(super) fn add(&mut self, name: String, bytes: Vec<u8>, writable: bool) -> u64 {
        let shadow = writable.then(|| Shadow::new(bytes.len(), true));
        self.buffers.push(Buffer { name, bytes, writable, shadow });
        start(self.buffers.len() - 1)
    }

    /// The buffer at an address.
    pub(super) fn at(&self, address: u64) -> Option<&Buffer> {
        self.buffers.get(((address / SPACE) as usize).checked_sub(1)?)
    }

    /// The buffer and the byte of it where an access starts, or why there are none.
    fn find(
        &mut self,
        address: u64,
        bytes: usize,
        write: bool,
    ) -> Result<(&mut Buffer, usize), Trouble> {
        let number = (address / SPACE) as usize;
        let buffer = number.checked_sub(1).and_then(|number| self.buffers.get_mut(number));
        let Some(buffer) = buffer else {
            return Err(Trouble::Nowhere(format!("{address:#x} is no address of a buffer")));
        };
        let offset = (address % SPACE) as i64 - (SPACE / 2) as i64;
        let (name, len) = (&buffer.name, buffer.bytes.len());
        if offset < 0 || offset as u64 + bytes as u64 > len as u64 {
            let wrong = format!("bytes {offset}.. + {bytes} of `{name}`, which has {len}");
            return Err(Trouble::Nowhere(wrong));
        }
        if write && !buffer.writable {
            return Err(Trouble::Nowhere(format!("a write to `{name}`, which is only read")));
        }
        Ok((buffer, offset as usize))
    }
}

/// All that a kernel's addresses may mean.
pub(super) enum Global<'m> {
    Buffers(&'m mut Buffers),
    Outside(&'m mut dyn GlobalMemory),
}

impl Global<'_> {
    /// The same memory for a shorter time.
    pub(super) fn reborrow(&mut self) -> Global<'_> {
        match self {
            Global::Buffers(buffers) => Global::Buffers(buffers),
            Global::Outside(memory) => Global::Outside(*memory),
        }
    }

    pub(super) fn read(&mut self, address: u64, to: &mut [u8], by: By<'_>) -> Result<(), Trouble> {
        let buffers = match self {
            Global::Buffers(buffers) => buffers,
            Global::Outside(memory) => return memory.read(address, to).map_err(Trouble::Nowhere),
        };
        let (buffer, byte) = buffers.find(address, to.len(), false)?;
        let range = byte..byte + to.len();
        if let (Some(shadow), Some((clock, access))) = (&mut buffer.shadow, by) {
            let result = shadow.read(range.clone(), clock, access);
            result
                .map_err(|(_, conflict)| Trouble::Conflict(conflict, buffer.name.clone(), byte))?;
        }
        to.copy_from_slice(&buffer.bytes[range]);
        Ok(())
    }

    pub(super) fn write(&mut self, address: u64, from: &[u8], by: By<'_>) -> Result<(), Trouble> {
        let buffers = match self {
            Global::Buffers(buffers) => buffers,
            Global::Outside(memory) => {
                return memory.write(address, from).map_err(Trouble::Nowhere);
            }
        };
        let (buffer, byte) = buffers.find(address, from.len(), true)?;
        let range = byte..byte + from.len();
        if let (Some(shadow), Some((clock, access))) = (&mut buffer.shadow, by) {
            let result = shadow.write(range.clone(), clock, access);
            result
                .map_err(|(_, conflict)| Trouble::Conflict(conflict, buffer.name.clone(), byte))?;
        }
        buffer.bytes[range].copy_from_slice(from);
        Ok(())
    }

    /// Begins another run of threads that knows nothing of earlier ones.
    pub(super) fn enter(&mut self, run: u32) {
        if let Global::Buffers(buffers) = self {
            let shadows = buffers.buffers.iter_mut().filter_map(|b| b.shadow.as_mut());
            shadows.for_each(|shadow| shadow.enter(run));
        }
    }
}

/// A tensor as the copy engine sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tensor {
    /// Bytes of an element.
    pub size: u32,
    /// Where it starts.
    pub address: u64,
    /// Extents along the axes of the map, the contiguous one first.
    pub extents: Vec<i64>,
    /// Bytes from one to the next, of every axis.
    pub strides: Vec<i64>,
    /// The box of one copy.
    pub block: Vec<u32>,
    /// Width of the swizzle in bytes: 32, 64 or 128; 0 for none.
    pub swizzle: u32,
    /// Whether f32 is rounded on its way.
    pub tf32: bool,
}

/// What the bytes of a tensor begin with.
const MAGIC: [u8; 4] = *b"tmap";
/// Bytes of a tensor map.
pub const MAP_BYTES: usize = 128;

/// An element of a box: where it is in shared memory from the start of the box, before the swizzle, and
/// its address; none outside of the tensor.
pub(super) type Place = (u32, Option<u64>);

impl Tensor {
    /// As the bytes of a tensor map, in which a driver hands it to a kernel.
    pub fn to_bytes(&self) -> [u8; MAP_BYTES] {
        let head = [self.extents.len() as u8, self.size as u8, self.swizzle as u8, self.tf32 as u8];
        let mut bytes = [MAGIC, head].concat();
        bytes.extend(self.address.to_le_bytes());
        for (axis, &block) in self.block.iter().enumerate() {
            bytes.extend(self.strides[axis].to_le_bytes());
            bytes.extend((self.extents[axis] as u32).to_le_bytes());
            bytes.extend(block.to_le_bytes());
        }
        let mut map = [0; MAP_BYTES];
        map[..bytes.len()].copy_from_slice(&bytes);
        map
    }

    /// What [`Tensor::to_bytes`] gave; none for other bytes.
    pub fn from_bytes(map: &[u8]) -> Option<Tensor> {
        let (head, axes) = map.split_at_checked(16)?;
        let [rank, size, swizzle, tf32] = *head.strip_prefix(&MAGIC)?.first_chunk()?;
        let mut tensor = Tensor {
            size: size.into(),
            address: word(&head[8..]),
            extents: Vec::new(),
            strides: Vec::new(),
            block: Vec::new(),
            swizzle: swizzle.into(),
            tf32: tf32 == 1,
        };
        for axis in axes.chunks_exact(16).take(rank.into()) {
            tensor.strides.push(word(&axis[..8]) as i64);
            tensor.extents.push(word(&axis[8..12]) as i64);
            tensor.block.push(word(&axis[12..]) as u32);
        }
        Some(tensor)
    }

    /// Bytes of a box.
    pub(super) fn bytes(&self) -> u32 {
        self.block.iter().product::<u32>() * self.size
    }

    /// The elements of the box at some coordinates.
    pub(super) fn places(&self, coordinates: &[i64]) -> Vec<Place> {
        let count = self.block.iter().product::<u32>();
        let size = self.size;
        let place = |number: u32| {
            let mut rest = number;
            let mut address = Some(self.address);
            for (axis, &extent) in self.block.iter().enumerate() {
                let at = coordinates.get(axis).copied().unwrap_or(0) + i64::from(rest % extent);
                rest /= extent;
                let inside = (0..self.extents[axis]).contains(&at);
                address = address
                    .filter(|_| inside)
                    .map(|address| address.wrapping_add_signed(at * self.strides[axis]));
            }
            (number * size, address)
        };
        (0..count).map(place).collect()
    }
}

/// Where the hardware's swizzle puts a byte: bits 4.. are XORed by bits 7.., as many as a row of
/// this many bytes has units of 16.
pub(super) fn swizzled(address: u32, width: u32) -> u32 {
    match width {
        32 | 64 | 128 => address ^ address >> 3 & (width - 16),
        _ => address,
    }
}

/// Little-endian bytes as a number.
pub(super) fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_reach_over_the_edge() {
        let tensor = Tensor {
            size: 2,
            address: 1000,
            extents: vec![6, 3],
            strides: vec![2, 12],
            block: vec![4, 2],
            swizzle: 0,
            tf32: false,
        };
        let places = tensor.places(&[4, 2]);
        assert_eq!(places[1], (2, Some(1000 + 2 * (2 * 6 + 5))));
        assert_eq!((places[2], places[4]), ((4, None), (8, None)));
    }

    #[test]
    fn tensors_go_through_the_bytes_of_a_map() {
        let tensor = Tensor {
            size: 2,
            address: 0x7000_0000_1000,
            extents: vec![i64::from(i32::MAX), 2, 3, 4, 5],
            strides: vec![2, 1 << 39, 32, 48, 64],
            block: vec![256, 1, 2, 3, 4],
            swizzle: 128,
            tf32: true,
        };
        assert_eq!(Tensor::from_bytes(&tensor.to_bytes()), Some(tensor));
        assert_eq!(Tensor::from_bytes(&[0; MAP_BYTES]), None);
    }

    #[test]
    fn rows_of_eight_are_permuted() {
        assert_eq!(swizzled(128 * 3 + 16, 128), 128 * 3 + (16 ^ 48));
        assert_eq!(swizzled(64 * 2, 64), 64 * 2 + 16);
        assert_eq!(swizzled(128, 32), 128 + 16);
    }
}
