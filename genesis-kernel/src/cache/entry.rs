//! What the cache keeps of a kernel for a GPU: its machine code and how to launch it.

/// A compiled kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CompiledEntry {
    /// The symbol.
    pub(crate) name: String,
    /// Warps of one program.
    pub(crate) num_warps: u32,
    /// Shared memory that the launch provides, in bytes.
    pub(crate) shared_bytes: u32,
    /// Machine code.
    pub(crate) cubin: Vec<u8>,
}

impl CompiledEntry {
    /// As the cache stores it.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + self.name.len() + self.cubin.len());
        bytes.extend_from_slice(&self.num_warps.to_le_bytes());
        bytes.extend_from_slice(&self.shared_bytes.to_le_bytes());
        bytes.extend_from_slice(&(self.name.len() as u32).to_le_bytes());
        bytes.extend_from_slice(self.name.as_bytes());
        bytes.extend_from_slice(&self.cubin);
        bytes
    }

    /// From what the cache stored; none if it makes no sense.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<CompiledEntry> {
        let (num_warps, rest) = take_u32(bytes)?;
        let (shared_bytes, rest) = take_u32(rest)?;
        let (name_len, rest) = take_u32(rest)?;
        let (name, cubin) = rest.split_at_checked(name_len as usize)?;
        let name = String::from_utf8(name.to_vec()).ok()?;
        Some(CompiledEntry { name, num_warps, shared_bytes, cubin: cubin.to_vec() })
    }
}

fn take_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*head), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_wrote() {
        let entry = CompiledEntry {
            name: "softmax".into(),
            num_warps: 4,
            shared_bytes: 1024,
            cubin: vec![1, 2, 3],
        };
        let bytes = entry.to_bytes();
        assert_eq!(CompiledEntry::from_bytes(&bytes), Some(entry));
        assert!((0..19).all(|len| CompiledEntry::from_bytes(&bytes[..len]).is_none()));
    }
}
