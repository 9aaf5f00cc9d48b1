//! `where`: select element by element.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::copy::tile_origin;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&where_cond::KERNEL];

/// `z = cond ? x : y`
#[kernel]
pub fn where_cond<T: Element, const ROWS: usize, const COLS: usize>(
    cond: View<bool, 4>,
    x: View<T, 4>,
    y: View<T, 4>,
    z: ViewMut<T, 4>,
) {
    let (a, b, i, j) = tile_origin::<ROWS, COLS>(z.dim(1), z.dim(2), z.dim(3));
    let c = cond.load::<1, 1, ROWS, COLS>([a, b, i, j]);
    let u = x.load::<1, 1, ROWS, COLS>([a, b, i, j]);
    let v = y.load::<1, 1, ROWS, COLS>([a, b, i, j]);
    z.store([a, b, i, j], where_(c, u, v));
}
