//! Whole sequences of different lengths, packed one after the other without padding: what training runs over.
//!
//! Padding computes tokens that nobody reads; packing puts the next sequence there instead. Attention looks at the
//! tokens of a query's own sequence only and positions begin anew in each, so that a sequence has the loss and the
//! gradients that it has alone.
//!
//! ```text
//! sequences [a b c] and [d e]    tokens      a b c d e 0 0 0     [N] = [8], padded at the end
//!                                positions   0 1 2 0 1 0 0 0     [N]
//!                                starts      0, 3, 5             [S + 1]
//! ```

use genesis_kernel::runtime::Device;

use crate::distributed::ProcessGroup;
use crate::error::{Error, Result};
use crate::ops::Varlen;
use crate::tensor::Tensor;

/// Where the tokens of packed sequences belong; every tensor is on the model's device.
#[derive(Clone, Debug)]
pub struct Packed {
    /// The position of each token in its sequence: `[N]`, i64; 0 behind the last sequence.
    pub positions: Tensor,
    /// 0, then where each sequence ends: `[S + 1]`, i64.
    pub starts: Tensor,
    /// The length of the longest sequence.
    pub longest: usize,
    /// Where tokens are this rank's parts of sequences: which they are.
    pub context: Option<ContextParts>,
}

/// Parts of sequences, as [`context_part`](crate::distributed::context_part) cuts each of them.
#[derive(Clone, Debug)]
pub struct ContextParts {
    /// The ranks that have the other parts.
    pub group: ProcessGroup,
    /// Tokens of each part, an even number; parts stand one after the other.
    pub lengths: Vec<usize>,
}

impl Packed {
    /// Sequences of these lengths, in rows of `total` tokens; what is left of them belongs to no sequence.
    ///
    /// # Errors
    /// If `total` is less than all lengths together, or memory runs out.
    /// # Examples
    /// ```
    /// use genesis::Device;
    /// use genesis::models::Packed;
    ///
    /// let packed = Packed::new(&[3, 2], 8, Device::Cpu)?;
    /// assert_eq!(packed.positions.to_vec::<i64>()?, [0, 1, 2, 0, 1, 0, 0, 0]);
    /// assert_eq!(packed.starts.to_vec::<i64>()?, [0, 3, 5]);
    /// # Ok::<(), genesis::Error>(())
    /// ```
    pub fn new(lengths: &[usize], total: usize, device: Device) -> Result<Packed> {
        let mut starts = vec![0i64];
        let mut positions: Vec<i64> = Vec::new();
        for &length in lengths {
            positions.extend(0..length as i64);
            starts.push(positions.len() as i64);
        }
        let used = positions.len();
        if used > total {
            let message = format!("sequences of {used} tokens do not fit into {total}");
            return Err(Error::op("packed", message));
        }
        positions.resize(total, 0);
        let list = |values: &[i64]| Tensor::from_slice_on(values, &[values.len()], device);
        let longest = lengths.iter().copied().max().unwrap_or(0);
        Ok(Packed { positions: list(&positions)?, starts: list(&starts)?, longest, context: None })
    }

    /// The lengths as attention takes them.
    pub(super) fn lengths(&self) -> Varlen<'_> {
        Varlen {
            cu_seqlens_q: &self.starts,
            cu_seqlens_k: &self.starts,
            max_seqlen_q: self.longest,
            max_seqlen_k: self.longest,
        }
    }
}
