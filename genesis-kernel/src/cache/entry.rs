//! What the cache keeps of a kernel: for a GPU its PTX and how to launch it, for the processor its object file.

use crate::ir::{DType, TensorMap};

/// A compiled kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CompiledEntry {
    /// The symbol.
    pub(crate) name: String,
    /// Threads of one block.
    pub(crate) threads: u32,
    /// Blocks of the cluster that is a program, of that many threads each.
    pub(crate) cluster: u32,
    /// Shared memory that the launch provides, in bytes.
    pub(crate) shared_bytes: u32,
    /// Whether fewer programs do the same work.
    pub(crate) is_persistent: bool,
    /// Tensor maps that the kernel takes after its own parameters.
    pub(crate) maps: Vec<TensorMap>,
    /// Messages of assertions.
    pub(crate) asserts: Vec<String>,
    /// What the driver assembles; it keeps the machine code itself.
    pub(crate) ptx: String,
}

impl CompiledEntry {
    /// As the cache stores it.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + self.ptx.len());
        bytes.extend_from_slice(&self.threads.to_le_bytes());
        bytes.extend_from_slice(&self.cluster.to_le_bytes());
        bytes.extend_from_slice(&self.shared_bytes.to_le_bytes());
        bytes.extend_from_slice(&u32::from(self.is_persistent).to_le_bytes());
        push_text(&mut bytes, &self.name);
        bytes.extend_from_slice(&(self.maps.len() as u32).to_le_bytes());
        self.maps.iter().for_each(|map| push_map(&mut bytes, map));
        push_texts(&mut bytes, &self.asserts);
        bytes.extend_from_slice(self.ptx.as_bytes());
        bytes
    }

    /// From what the cache stored; none if it makes no sense.
    pub(crate) fn from_bytes(mut bytes: &[u8]) -> Option<CompiledEntry> {
        let threads = take_u32(&mut bytes)?;
        let cluster = take_u32(&mut bytes)?;
        let shared_bytes = take_u32(&mut bytes)?;
        let is_persistent = take_u32(&mut bytes)? != 0;
        let name = take_text(&mut bytes)?;
        let n_maps = take_u32(&mut bytes)?;
        let maps = (0..n_maps).map(|_| take_map(&mut bytes)).collect::<Option<_>>()?;
        let asserts = take_texts(&mut bytes)?;
        let ptx = String::from_utf8(bytes.to_vec()).ok()?;
        Some(CompiledEntry {
            name,
            threads,
            cluster,
            shared_bytes,
            is_persistent,
            maps,
            asserts,
            ptx,
        })
    }
}

/// A kernel for the processor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HostEntry {
    /// The object file.
    pub(crate) code: Vec<u8>,
    /// Memory that each thread needs for it.
    pub(crate) scratch_bytes: u64,
    /// What one program takes, as estimated.
    pub(crate) nanos: u64,
    /// Messages of assertions.
    pub(crate) messages: Vec<String>,
}

impl HostEntry {
    /// As the cache stores it.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + self.code.len());
        bytes.extend_from_slice(&self.scratch_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.nanos.to_le_bytes());
        push_texts(&mut bytes, &self.messages);
        bytes.extend_from_slice(&self.code);
        bytes
    }

    /// From what the cache stored; none if it makes no sense.
    pub(crate) fn from_bytes(mut bytes: &[u8]) -> Option<HostEntry> {
        let (scratch_bytes, nanos) = (take_u64(&mut bytes)?, take_u64(&mut bytes)?);
        let messages = take_texts(&mut bytes)?;
        Some(HostEntry { code: bytes.to_vec(), scratch_bytes, nanos, messages })
    }
}

/// What machine code of a GPU uses, by the assembler's report; without the code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UsageEntry {
    /// Registers of one thread.
    pub(crate) registers: u32,
    /// Bytes of local memory of one thread, spills included.
    pub(crate) spill_bytes: u32,
    /// Bytes of static shared memory of one block.
    pub(crate) shared_bytes: u32,
    /// What the assembler warns about.
    pub(crate) warnings: Vec<String>,
}

impl UsageEntry {
    /// As the cache stores it.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let numbers = [self.registers, self.spill_bytes, self.shared_bytes];
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        push_texts(&mut bytes, &self.warnings);
        bytes
    }

    /// From what the cache stored; none if it makes no sense.
    pub(crate) fn from_bytes(mut bytes: &[u8]) -> Option<UsageEntry> {
        let (registers, spill_bytes) = (take_u32(&mut bytes)?, take_u32(&mut bytes)?);
        let shared_bytes = take_u32(&mut bytes)?;
        let warnings = take_texts(&mut bytes)?;
        let entry = UsageEntry { registers, spill_bytes, shared_bytes, warnings };
        bytes.is_empty().then_some(entry)
    }
}

fn push_texts(bytes: &mut Vec<u8>, texts: &[String]) {
    bytes.extend_from_slice(&(texts.len() as u32).to_le_bytes());
    texts.iter().for_each(|text| push_text(bytes, text));
}

fn take_texts(bytes: &mut &[u8]) -> Option<Vec<String>> {
    let n = take_u32(bytes)?;
    (0..n).map(|_| take_text(bytes)).collect()
}

fn push_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

fn push_map(bytes: &mut Vec<u8>, map: &TensorMap) {
    push_text(bytes, map.dtype.name());
    let numbers = [map.param, map.swizzle, u32::from(map.tf32), map.axes.len() as u32];
    let axes = map.axes.iter().map(|&axis| u32::from(axis));
    for number in numbers.into_iter().chain(axes).chain(map.block.iter().copied()) {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
}

fn take_map(bytes: &mut &[u8]) -> Option<TensorMap> {
    let dtype = DType::from_name(&take_text(bytes)?)?;
    let (param, swizzle, tf32) = (take_u32(bytes)?, take_u32(bytes)?, take_u32(bytes)? != 0);
    let rank = take_u32(bytes)?;
    let mut number = || take_u32(bytes);
    let axes = (0..rank).map(|_| u8::try_from(number()?).ok()).collect::<Option<_>>()?;
    let block = (0..rank).map(|_| number()).collect::<Option<_>>()?;
    Some(TensorMap { param, dtype, axes, block, swizzle, tf32 })
}

fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*head))
}

fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*head))
}

fn take_text(bytes: &mut &[u8]) -> Option<String> {
    let len = take_u32(bytes)?;
    let (text, rest) = bytes.split_at_checked(len as usize)?;
    *bytes = rest;
    String::from_utf8(text.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_assembler_said() {
        let warnings = vec!["wgmma is serialized".to_owned()];
        let entry = UsageEntry { registers: 168, spill_bytes: 8, shared_bytes: 64, warnings };
        let bytes = entry.to_bytes();
        assert_eq!(UsageEntry::from_bytes(&bytes), Some(entry));
        assert_eq!(UsageEntry::from_bytes(&bytes[..bytes.len() - 1]), None);
        assert_eq!(UsageEntry::from_bytes(&[&bytes[..], &[0]].concat()), None);
    }

    #[test]
    fn reads_what_it_wrote() {
        let entry = CompiledEntry {
            name: "softmax".into(),
            threads: 128,
            cluster: 2,
            shared_bytes: 1024,
            is_persistent: true,
            maps: vec![TensorMap {
                param: 2,
                dtype: DType::BF16,
                axes: vec![1, 0],
                block: vec![64, 128],
                swizzle: 128,
                tf32: false,
            }],
            asserts: vec!["i < n".into()],
            ptx: "ret;".into(),
        };
        let bytes = entry.to_bytes();
        assert_eq!(CompiledEntry::from_bytes(&bytes), Some(entry));
        assert!((0..36).all(|len| CompiledEntry::from_bytes(&bytes[..len]).is_none()));
    }

    #[test]
    fn reads_machine_code_that_it_wrote() {
        let entry = HostEntry {
            code: vec![0x7f, b'E', b'L', b'F'],
            scratch_bytes: 1 << 33,
            nanos: 250,
            messages: vec!["i < n".into(), String::new()],
        };
        let bytes = entry.to_bytes();
        assert_eq!(HostEntry::from_bytes(&bytes), Some(entry));
        assert!((0..33).all(|len| HostEntry::from_bytes(&bytes[..len]).is_none()));
    }
}
