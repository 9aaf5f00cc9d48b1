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
    /// Messages of assertions.
    pub(crate) asserts: Vec<String>,
    /// Machine code.
    pub(crate) cubin: Vec<u8>,
}

impl CompiledEntry {
    /// As the cache stores it.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + self.cubin.len());
        bytes.extend_from_slice(&self.num_warps.to_le_bytes());
        bytes.extend_from_slice(&self.shared_bytes.to_le_bytes());
        push_text(&mut bytes, &self.name);
        bytes.extend_from_slice(&(self.asserts.len() as u32).to_le_bytes());
        self.asserts.iter().for_each(|message| push_text(&mut bytes, message));
        bytes.extend_from_slice(&self.cubin);
        bytes
    }

    /// From what the cache stored; none if it makes no sense.
    pub(crate) fn from_bytes(mut bytes: &[u8]) -> Option<CompiledEntry> {
        let num_warps = take_u32(&mut bytes)?;
        let shared_bytes = take_u32(&mut bytes)?;
        let name = take_text(&mut bytes)?;
        let n_asserts = take_u32(&mut bytes)?;
        let asserts = (0..n_asserts).map(|_| take_text(&mut bytes)).collect::<Option<_>>()?;
        Some(CompiledEntry { name, num_warps, shared_bytes, asserts, cubin: bytes.to_vec() })
    }
}

fn push_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*head))
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
    fn reads_what_it_wrote() {
        let entry = CompiledEntry {
            name: "softmax".into(),
            num_warps: 4,
            shared_bytes: 1024,
            asserts: vec!["i < n".into()],
            cubin: vec![1, 2, 3],
        };
        let bytes = entry.to_bytes();
        assert_eq!(CompiledEntry::from_bytes(&bytes), Some(entry));
        assert!((0..32).all(|len| CompiledEntry::from_bytes(&bytes[..len]).is_none()));
    }
}
