//! Where the operand of a dot lies in shared memory: chunks of 16 bytes along its contiguous axis,
//! XORed so that neither side meets a bank twice.
//!
//! Whoever fills the tile writes chunks, eight neighbours to a line of 128 bytes. The unit reads
//! chunks, or parts of them, of several rows at once. So those rows' numbers are XORed to the place of
//! the chunk in its line:
//!
//! ```text
//!          chunk 0  1  2  3  4  5  6  7
//! row 0          0  1  2  3  4  5  6  7      a row is one line; the numbers are places in it
//! row 1          1  0  3  2  5  4  7  6
//! row 2          2  3  0  1  6  7  4  5      a column of chunks meets each place once
//! ```
//!
//! Rows shorter than a line share one, and rows that a line holds already need no XOR.
//!
//! `ldmatrix` reads eight rows of 16 bytes at once and gives each lane 4 bytes of each: what the
//! instructions of tensor cores want, of rows as they are, or, for 16-bit elements, of columns.

use super::blocked::order_of;
use super::f2;
use super::linear::{HwIndex, LinearLayout, axis_shift};
use super::scratch::{Offsets, SharedAccess, SharedGroup, SharedPlan, SharedUnit, conflict_ways};

/// Bits of a chunk.
const CHUNK_BITS: u32 = 128;
/// Chunks of a line, as bits.
const LINE_BITS: usize = 3;

/// The way of a tile, filled in layout `from`, to a dot that reads it in layout `to`; vectors are not
/// read along the register bits in `avoid`. None where a row is shorter than a chunk.
pub(super) fn operand_plan(
    from: &LinearLayout,
    to: &LinearLayout,
    bits: u32,
    avoid: u32,
) -> Option<SharedPlan> {
    let axis = *order_of(from).first()?;
    let chunk = (CHUNK_BITS / bits).ilog2() as usize;
    let order = element_order(from, axis, chunk)?;
    let offsets = |rows: &[u32]| swizzled(&order, chunk, rows);
    // What each lane holds of a row is known before the swizzle: it keeps chunks whole.
    let plain = offsets(&[]);
    let (offsets, load) = match Matrices::of(to, &plain, bits) {
        Some(matrices) => {
            let offsets = offsets(&matrices.rows);
            let load = matrices.access(to, &offsets, bits, avoid);
            (offsets, load)
        }
        None => {
            // Lanes that are served at once: half a warp where each reads 8 bytes.
            let served = if bits == 64 { &to.lane[..4] } else { &to.lane[..] };
            let offsets = offsets(served);
            let load = SharedAccess::new(to, &offsets, bits, avoid);
            (offsets, load)
        }
    };
    let store = SharedAccess::new(from, &offsets, bits, 0);
    Some(SharedPlan { elements: from.shape.numel() as u32, bits, store, load })
}

/// The bits of the flat index in the order of the offset: a chunk, the rest of its line, the rows, and
/// what is left of the contiguous axis.
fn element_order(layout: &LinearLayout, axis: usize, chunk: usize) -> Option<Vec<u32>> {
    let shape = layout.shape;
    let length = shape.extent(axis).ilog2() as usize;
    let first = axis_shift(shape, axis);
    let along: Vec<u32> = (0..length as u32).map(|i| first + i).collect();
    let others = (0..shape.numel().ilog2()).filter(|bit| !along.contains(bit));
    let line = (chunk + LINE_BITS).min(length);
    (length >= chunk)
        .then(|| along[..line].iter().copied().chain(others).chain(along[line..].iter().copied()))
        .map(Iterator::collect)
}

/// The offset of each bit of the flat index, the bits of `rows` that lie outside of a line XORed to
/// places in it that `rows` does not reach.
fn swizzled(order: &[u32], chunk: usize, rows: &[u32]) -> Offsets {
    let mut offsets = vec![0; order.len()];
    for (position, &bit) in order.iter().enumerate() {
        offsets[bit as usize] = 1 << position;
    }
    let line = order.len().min(chunk + LINE_BITS);
    let mut places = (chunk..line).filter(|&position| !rows.contains(&(1 << order[position])));
    for &bit in order[line..].iter().filter(|&&bit| rows.contains(&(1 << bit))) {
        if let Some(place) = places.next() {
            offsets[bit as usize] |= 1 << place;
        }
    }
    Offsets(offsets)
}

/// A fragment that `ldmatrix` reads.
struct Matrices {
    transposed: bool,
    /// The three bases that number the rows of a matrix.
    rows: [u32; 3],
    /// Register bits within 4 bytes of one matrix.
    packed: usize,
}

impl Matrices {
    /// A lane has 4 bytes of a row that four lanes share, or 2 bytes of each of two neighbouring rows.
    fn of(to: &LinearLayout, plain: &Offsets, bits: u32) -> Option<Matrices> {
        let packed = (32 / bits).checked_ilog2()? as usize;
        if to.reg.len() < packed {
            return None;
        }
        let inner = |bases: &[u32]| {
            bases.iter().enumerate().all(|(i, &basis)| basis != 0 && plain.of(basis) == 1 << i)
        };
        let lanes = &to.lane;
        if inner(&[&to.reg[..packed], &lanes[..2]].concat()) {
            let rows = [lanes[2], lanes[3], lanes[4]];
            return Some(Matrices { transposed: false, rows, packed });
        }
        let transposed = bits == 16 && inner(&lanes[2..]);
        transposed.then(|| Matrices {
            transposed: true,
            rows: [to.reg[0], lanes[0], lanes[1]],
            packed,
        })
    }

    fn access(&self, to: &LinearLayout, offsets: &Offsets, bits: u32, avoid: u32) -> SharedAccess {
        let free = (self.packed..to.reg.len()).filter(|&i| avoid >> i & 1 == 0);
        let matrices: Vec<usize> = free.take(2).collect();
        let mut lane = [0; 5];
        for (i, &basis) in self.rows.iter().enumerate() {
            lane[i] = offsets.of(basis);
        }
        for (i, &register) in matrices.iter().enumerate() {
            lane[3 + i] = offsets.of(to.reg[register]);
        }
        let vector: Vec<u32> = (0..self.packed).chain(matrices).map(|i| 1 << i).collect();
        let reg: Vec<u32> = to.reg.iter().map(|&basis| offsets.of(basis)).collect();
        let groups = to.groups(&vector).into_iter();
        SharedAccess {
            unit: SharedUnit::Matrix { transposed: self.transposed },
            lane,
            warp: to.warp.iter().map(|&basis| offsets.of(basis)).collect(),
            block: vec![0; to.block.len()],
            groups: groups
                .map(|regs| SharedGroup { offset: f2::combine(&reg, regs[0]), regs })
                .collect(),
            copies: HwIndex { lane: to.free_lanes(), warp: to.free_warps(), ..HwIndex::default() },
            ways: conflict_ways(&lane, bits / 8, CHUNK_BITS / 8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Shape;
    use crate::layout::blocked::{Blocked, blocked_in};
    use crate::layout::linear::LANES;
    use crate::layout::mma;
    use crate::layout::scratch::matrix_element;

    /// A tile whose fastest axis is `axis`, as loads of 16 bytes hold it.
    fn filled(shape: Shape, axis: usize, bits: u32, warps: u32) -> LinearLayout {
        let order = [axis, 1 - axis];
        blocked_in(shape, &Blocked::cover(shape, &order, CHUNK_BITS / bits, warps), warps)
    }

    /// Every element that a thread gets is the one its register stands for.
    fn check(from: &LinearLayout, to: &LinearLayout, bits: u32, avoid: u32) -> SharedPlan {
        let plan = operand_plan(from, to, bits, avoid).unwrap();
        let mut memory = vec![u32::MAX; plan.elements as usize];
        let base = |access: &SharedAccess, lane, warp| {
            f2::combine(&access.lane, lane) ^ f2::combine(&access.warp, warp)
        };
        for (lane, warp) in threads(from) {
            for group in &plan.store.groups {
                for (j, &reg) in group.regs.iter().enumerate() {
                    let at = (group.offset ^ base(&plan.store, lane, warp)) as usize + j;
                    memory[at] = from.apply(HwIndex { reg, lane, warp, block: 0 });
                }
            }
        }
        for (lane, warp) in threads(to) {
            for group in &plan.load.groups {
                for (j, &reg) in group.regs.iter().enumerate() {
                    let (of, j) = match plan.load.unit {
                        SharedUnit::Vector => (lane, j as u32),
                        SharedUnit::Matrix { .. } => {
                            matrix_element(&plan.load, bits, lane, j as u32)
                        }
                    };
                    let at = (group.offset ^ base(&plan.load, of, warp)) + j;
                    let want = to.apply(HwIndex { reg, lane, warp, block: 0 });
                    assert_eq!(memory[at as usize], want, "{to:?} {lane} {reg}");
                }
            }
        }
        assert_eq!((plan.store.ways, plan.load.ways), (1, 1), "{from:?} {to:?}");
        plan
    }

    fn threads(layout: &LinearLayout) -> impl Iterator<Item = (u32, u32)> {
        let warps = layout.num_warps();
        (0..warps).flat_map(|warp| (0..LANES).map(move |lane| (lane, warp)))
    }

    /// The register bits along K above one step.
    fn steps(fragment: &LinearLayout, k: usize, step: u32) -> u32 {
        let above = (fragment.shape.extent(k) as u32 - 1) & !(step - 1);
        crate::layout::scratch::registers_along(fragment, above << fragment.shift(k))
    }

    #[test]
    fn sixteen_bits_are_read_as_matrices() {
        for k in [16, 32, 64, 128] {
            for rows in [64, 128] {
                for axis in [0, 1] {
                    let (m_k, k_n) = (Shape::new(&[rows, k]), Shape::new(&[k, rows]));
                    let a = mma::operand_a(m_k, [2, 2], 2, 4);
                    let b = mma::operand_b(k_n, [2, 2], 2, 4);
                    for (to, inner) in [(a, 1), (b, 0)] {
                        let from = filled(to.shape, axis, 16, 4);
                        let plan = check(&from, &to, 16, steps(&to, inner, 16));
                        let transposed = axis != inner;
                        assert_eq!(plan.load.unit, SharedUnit::Matrix { transposed });
                        assert_eq!(plan.load.groups[0].regs.len(), 8, "four matrices");
                    }
                }
            }
        }
    }

    #[test]
    fn tf32_is_read_as_matrices_along_k_and_word_by_word_across() {
        for k in [16, 32, 64] {
            for axis in [0, 1] {
                let a = mma::operand_a(Shape::new(&[128, k]), [2, 4], 1, 8);
                let b = mma::operand_b(Shape::new(&[k, 128]), [2, 4], 1, 8);
                for (to, inner) in [(a, 1), (b, 0)] {
                    let from = filled(to.shape, axis, 32, 8);
                    let plan = check(&from, &to, 32, steps(&to, inner, 8));
                    let is_matrix = plan.load.unit == SharedUnit::Matrix { transposed: false };
                    assert_eq!(is_matrix, axis == inner);
                }
            }
        }
    }
}
