//! How ranks are laid out: axes, and where the ranks of a group are.
//!
//! Tensor parallel ranks are next to each other, pipeline stages furthest apart, as in Megatron:
//!
//! ```text
//! rank = tp + TP (cp + CP (fsdp + FSDP (dp + DP pp)))
//!
//! 16 GPUs, 8 a node, tp 4, fsdp 2, pp 2:   node 0: tp 0..4 of fsdp 0 | of fsdp 1       stage 0
//!                                          node 1: tp 0..4 of fsdp 0 | of fsdp 1       stage 1
//! ```

use std::fmt;

use super::network::Span;
use crate::error::{Error, Result};

/// An axis of a mesh.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Axis {
    /// Data parallel: [`DistributedDataParallel`](crate::distributed::DistributedDataParallel).
    Dp,
    /// Fully sharded data parallel: [`FullyShard`](crate::distributed::FullyShard).
    Fsdp,
    /// Tensor parallel with sequence parallel norms.
    Tp,
    /// Context parallel: ring attention.
    Cp,
    /// Pipeline parallel: 1F1B.
    Pp,
}

impl Axis {
    /// All of them.
    pub const ALL: [Axis; 5] = [Axis::Dp, Axis::Fsdp, Axis::Tp, Axis::Cp, Axis::Pp];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Axis::Dp => "dp",
            Axis::Fsdp => "fsdp",
            Axis::Tp => "tp",
            Axis::Cp => "cp",
            Axis::Pp => "pp",
        }
    }
}

/// The number of ranks along each axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mesh {
    /// Replicas.
    pub dp: usize,
    /// Parts of parameters, gradients and state.
    pub fsdp: usize,
    /// Parts of layers.
    pub tp: usize,
    /// Parts of sequences.
    pub cp: usize,
    /// Stages.
    pub pp: usize,
}

impl Default for Mesh {
    fn default() -> Mesh {
        Mesh { dp: 1, fsdp: 1, tp: 1, cp: 1, pp: 1 }
    }
}

impl Mesh {
    /// The ranks along an axis.
    pub fn along(&self, axis: Axis) -> usize {
        match axis {
            Axis::Dp => self.dp,
            Axis::Fsdp => self.fsdp,
            Axis::Tp => self.tp,
            Axis::Cp => self.cp,
            Axis::Pp => self.pp,
        }
    }

    /// All ranks.
    ///
    /// # Errors
    /// If an axis has none, or there are too many to be counted.
    pub fn size(&self) -> Result<usize> {
        let refused = |what: &str| Error::op("plan", format!("the mesh {self:?} {what}"));
        let all = Axis::ALL.iter().try_fold(1usize, |n, &axis| n.checked_mul(self.along(axis)));
        match all {
            Some(0) => Err(refused("has an axis of no ranks")),
            Some(n) => Ok(n),
            None => Err(refused("has more ranks than can be counted")),
        }
    }

    /// Where the ranks of a group along an axis are.
    pub(super) fn span(&self, axis: Axis, gpus_per_node: usize) -> Span {
        let inner = match axis {
            Axis::Tp => 1,
            Axis::Cp => self.tp,
            Axis::Fsdp => self.tp * self.cp,
            Axis::Dp => self.tp * self.cp * self.fsdp,
            Axis::Pp => self.tp * self.cp * self.fsdp * self.dp,
        };
        let size = self.along(axis);
        Mesh::spread(inner, size, gpus_per_node)
    }

    /// Where the ranks are that have the same parts of the same parameters: those along `dp` and `cp`.
    pub(super) fn replicas(&self, gpus_per_node: usize) -> Span {
        let [dp, cp] = [Axis::Dp, Axis::Cp].map(|axis| self.span(axis, gpus_per_node));
        Span { near: dp.near * cp.near, nodes: dp.nodes * cp.nodes }
    }

    /// Where `size` ranks are of which each is `inner` behind the one before.
    fn spread(inner: usize, size: usize, gpus_per_node: usize) -> Span {
        // As many of each node as divide the group evenly, so that it never looks better than it is.
        let room = (gpus_per_node / inner.max(1)).clamp(1, size);
        let near = (1..=room).rev().find(|near| size.is_multiple_of(*near)).unwrap_or(1);
        Span { near, nodes: size / near }
    }
}

/// The axes of more than one rank: `fsdp 8, tp 2`.
impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes = Axis::ALL.iter().filter(|axis| self.along(**axis) > 1);
        let words: Vec<String> =
            axes.map(|axis| format!("{} {}", axis.name(), self.along(*axis))).collect();
        f.pad(&if words.is_empty() { "one GPU".to_owned() } else { words.join(", ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_axes_are_within_nodes() {
        let mesh = Mesh { dp: 2, fsdp: 4, tp: 4, cp: 2, pp: 2 };
        let span = |axis| mesh.span(axis, 8);
        assert_eq!(mesh.size().unwrap(), 128);
        assert_eq!(span(Axis::Tp), Span { near: 4, nodes: 1 });
        assert_eq!(span(Axis::Cp), Span { near: 2, nodes: 1 });
        assert_eq!(span(Axis::Fsdp), Span { near: 1, nodes: 4 });
        assert_eq!(span(Axis::Pp), Span { near: 1, nodes: 2 });
        let wide = Mesh { fsdp: 16, ..Mesh::default() };
        assert_eq!(wide.span(Axis::Fsdp, 8), Span { near: 8, nodes: 2 });
        let odd = Mesh { fsdp: 9, ..Mesh::default() };
        assert_eq!(odd.span(Axis::Fsdp, 8), Span { near: 3, nodes: 3 });
    }

    #[test]
    fn meshes_that_are_none_are_refused() {
        assert!(Mesh { tp: 0, ..Mesh::default() }.size().is_err());
        assert!(Mesh { tp: usize::MAX, dp: 2, ..Mesh::default() }.size().is_err());
        assert_eq!(Mesh::default().to_string(), "one GPU");
        let mesh = Mesh { fsdp: 8, tp: 2, ..Mesh::default() };
        assert_eq!(mesh.to_string(), "fsdp 8, tp 2");
    }
}
