//! What kinds of calls an op is timed with, and how their inputs lie in memory.

use genesis::DType;
use genesis::ops::info::{Limits, OpInfo};

use super::scope::Scope;

/// A kind of call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// 4096 elements: the launch is all that counts.
    Small,
    /// Bound by memory or arithmetic.
    Large,
    /// About as large, extents one less than a power of two.
    Odd,
    /// As large, rows of one element more, from the second on: none begins at a multiple of 16 bytes.
    Unaligned,
    /// As large, the last two axes the other way around in memory.
    Strided,
    /// As large, the last input a broadcast view: the same for each index of its first axis.
    Expanded,
    /// As large, operands of shapes that broadcast.
    Broadcast,
}

use Kind::{Broadcast, Expanded, Large, Odd, Small, Strided, Unaligned};

/// Elements of a large input on a GPU, quick and not, and on a CPU.
const ELEMENTS: [f64; 3] = [(1 << 24) as f64, (1 << 26) as f64, (1 << 20) as f64];
/// Floating-point operations of a call on a GPU and on a CPU.
const FLOPS: [f64; 2] = [1e12, 1e9];

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Small => "small",
            Large => "large",
            Odd => "odd",
            Unaligned => "unaligned",
            Strided => "strided",
            Expanded => "expanded",
            Broadcast => "broadcast",
        }
    }

    /// What a row is timed with: of f32 or its first dtype every kind, of bf16 some, backward fewer.
    pub(crate) fn wanted(info: &OpInfo, is_quick: bool) -> Vec<(Kind, DType, bool)> {
        let first = if info.dtypes.contains(&DType::F32) {
            Some(DType::F32)
        } else {
            info.dtypes.first().copied()
        };
        let half = info.dtypes.contains(&DType::BF16).then_some(DType::BF16);
        let (kinds, halves, backs, half_backs): (&[Kind], &[Kind], &[Kind], &[Kind]) =
            match is_quick {
                true => (&[Small, Large, Odd, Strided], &[Large], &[Small, Large], &[]),
                false => (
                    &[Small, Large, Odd, Unaligned, Strided, Expanded, Broadcast],
                    &[Small, Large, Odd, Unaligned, Strided],
                    &[Small, Large, Odd, Strided, Broadcast],
                    &[Large],
                ),
            };
        let has_gradient = |dtype: DType| info.is_differentiable && dtype.is_float();
        let each = [(first, kinds, backs), (half, halves, half_backs)];
        let mut wanted = Vec::new();
        for (dtype, kinds, backs) in each {
            let Some(dtype) = dtype else { continue };
            wanted.extend(kinds.iter().map(|&kind| (kind, dtype, false)));
            if has_gradient(dtype) {
                wanted.extend(backs.iter().map(|&kind| (kind, dtype, true)));
            }
        }
        wanted
    }

    /// How large calls of this kind may be.
    pub(crate) fn limits(self, scope: Scope) -> Limits {
        let is_gpu = scope.device.is_cuda();
        let flops = FLOPS[usize::from(!is_gpu)];
        let large = ELEMENTS[if is_gpu { usize::from(!scope.is_quick) } else { 2 }];
        Limits { elements: if self == Small { 4096.0 } else { large }, flops }
    }

    /// Whether inputs of these shapes can lie so.
    pub(crate) fn applies(self, shapes: &[Vec<usize>]) -> bool {
        let rank = shapes.iter().map(Vec::len).max().unwrap_or(0);
        match self {
            Strided | Expanded => rank >= 2,
            Unaligned => rank >= 1,
            _ => true,
        }
    }
}

/// Where the elements of a tensor lie in its storage.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Layout {
    pub(crate) strides: Vec<i64>,
    pub(crate) offset: usize,
    /// Elements of the storage.
    pub(crate) len: usize,
}

impl Layout {
    /// How an input of a call of this kind lies; `is_last` says that it is the last that may be a
    /// broadcast view.
    pub(crate) fn of(kind: Kind, shape: &[usize], is_last: bool) -> Layout {
        let rank = shape.len();
        let mut stored = shape.to_vec();
        let mut offset = 0;
        match kind {
            Unaligned if rank > 0 => {
                stored[rank - 1] += 1;
                offset = 1;
            }
            Strided if rank > 1 => stored.swap(rank - 2, rank - 1),
            Expanded if rank > 1 && is_last => stored[0] = 1,
            _ => {}
        }
        let mut strides = vec![1i64; rank];
        for axis in (1..rank).rev() {
            strides[axis - 1] = strides[axis] * stored[axis] as i64;
        }
        match kind {
            Strided if rank > 1 => strides.swap(rank - 2, rank - 1),
            Expanded if rank > 1 && is_last => strides[0] = 0,
            _ => {}
        }
        Layout { strides, offset, len: stored.iter().product() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_lie_as_their_kind_says() {
        let of = |kind| Layout::of(kind, &[2, 3, 4], true);
        assert_eq!(of(Large), Layout { strides: vec![12, 4, 1], offset: 0, len: 24 });
        assert_eq!(of(Unaligned), Layout { strides: vec![15, 5, 1], offset: 1, len: 30 });
        assert_eq!(of(Strided), Layout { strides: vec![12, 1, 3], offset: 0, len: 24 });
        assert_eq!(of(Expanded), Layout { strides: vec![0, 4, 1], offset: 0, len: 12 });
    }
}
