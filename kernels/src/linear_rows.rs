//! Batch-invariant linear layers (a weight's rows are outputs) for processors: every row's bits are its own.
//!
//! K is cut into groups of `LANES`. Lane `j` of an output adds its product of every group, one group after
//! the other; then the lanes are added in a tree. That order knows nothing of how many rows there are, or of
//! the tile that one stands in. It also is the fast one: lanes follow each other in memory in both operands,
//! a lane's sum stays in a register, and nothing is turned or packed, so that one row costs a read of the
//! weight.
//!
//! ```text
//! x = [a b c d e f], w = [p q r s t u], LANES = 2:     lanes  (ap + cr) + et,  (bq + ds) + fu
//!                                                      y      their sum
//! ```
//!
//! GPUs have tensor cores, which take [`crate::linear_tiles`].

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&linear_rows::KERNEL];

/// Where a tile of `ROWS` by `OUTS` begins: its row and its output. Tiles of the same outputs follow each
/// other, so that their weights are still in the cache.
#[device]
pub fn tile_of<const ROWS: usize, const OUTS: usize>(rows: i64) -> (i64, i64) {
    let across = cdiv(rows, ROWS);
    let out = program_id(0) / across;
    ((program_id(0) - out * across) * ROWS, out * OUTS)
}

/// The products of some groups, each lane's added up.
#[device]
pub fn lanes<
    X: Float,
    const ROWS: usize,
    const OUTS: usize,
    const GROUPS: usize,
    const LANES: usize,
>(
    x: Tile3<X, ROWS, GROUPS, LANES>,
    weights: Tile3<f32, OUTS, GROUPS, LANES>,
) -> Tile3<f32, ROWS, OUTS, LANES> {
    sum(x.to::<f32>().expand_dims(1) * weights.expand_dims(0), 2)
}

/// `y = x W^T + bias` with `x: [n, groups, LANES]`, `weight: [m, groups, LANES]`, `bias: [m]`, or empty where
/// there is none, `y: [n, m]`.
#[kernel]
pub fn linear_rows<
    X: Float,
    W: Float,
    B: Float,
    const ROWS: usize,
    const OUTS: usize,
    const GROUPS: usize,
    const LANES: usize,
>(
    x: View<X, 3>,
    weight: View<W, 3>,
    bias: View<B, 1>,
    y: ViewMut<X, 2>,
) {
    let (row, out) = tile_of::<ROWS, OUTS>(y.dim(0));
    let mut sums = zeros::<f32, ROWS, OUTS, LANES>();
    for g in range(0, x.dim(1), GROUPS) {
        let w = weight.load::<OUTS, GROUPS, LANES>([out, g, 0]).to::<f32>();
        let v = x.load::<ROWS, GROUPS, LANES>([row, g, 0]);
        sums = sums + lanes::<X, ROWS, OUTS, GROUPS, LANES>(v, w);
    }
    let mut all = sum(sums, 2);
    // Processors are slow where a mask keeps a vector off an address that is none.
    if bias.dim(0) > 0 {
        all = all + bias.load::<OUTS>([out]).to::<f32>().row();
    }
    y.store([row, out], all.to::<X>());
}
