//! The cross product of vectors of three elements.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::copy::matrix_tile_origin;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&cross::KERNEL];

/// Element `axis` of the vectors of a tile.
#[device]
fn component<T: Number, A: Number, const LINES: usize, const COLS: usize>(
    x: View<T, 3>,
    i: i64,
    axis: i64,
    j: i64,
) -> Tile2<A, LINES, COLS> {
    x.load::<LINES, 1, COLS>([i, axis, j]).squeeze(1).to::<A>()
}

/// `y = a x b` along the middle axis of `[outer, 3, inner]`, rounded once.
#[kernel]
pub fn cross<T: Number, A: Number, const LINES: usize, const COLS: usize>(
    a: View<T, 3>,
    b: View<T, 3>,
    y: ViewMut<T, 3>,
) {
    let (i, j) = matrix_tile_origin::<LINES, COLS>(y.dim(2));
    let a0 = component::<T, A, LINES, COLS>(a, i, 0, j);
    let a1 = component::<T, A, LINES, COLS>(a, i, 1, j);
    let a2 = component::<T, A, LINES, COLS>(a, i, 2, j);
    let b0 = component::<T, A, LINES, COLS>(b, i, 0, j);
    let b1 = component::<T, A, LINES, COLS>(b, i, 1, j);
    let b2 = component::<T, A, LINES, COLS>(b, i, 2, j);
    y.store([i, 0, j], (a1 * b2 - a2 * b1).to::<T>().expand_dims(1));
    y.store([i, 1, j], (a2 * b0 - a0 * b2).to::<T>().expand_dims(1));
    y.store([i, 2, j], (a0 * b1 - a1 * b0).to::<T>().expand_dims(1));
}
