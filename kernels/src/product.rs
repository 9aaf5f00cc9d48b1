//! Running products of rows.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&cumprod_rows::KERNEL];

/// `y[i, j] = prod(x[i, ..=j])`, of `x: [m, n]`.
#[kernel]
pub fn cumprod_rows<T: Number, A: Number, const ROWS: usize, const COLS: usize>(
    x: View<T, 2>,
    y: ViewMut<T, 2>,
) {
    let i = program_id(0) * ROWS;
    let mut before = ones::<A, ROWS>();
    for j in range(0, x.dim(1), COLS) {
        let v = x.load::<ROWS, COLS>([i, j]).to::<A>();
        y.store([i, j], (cumprod(v, 1) * before.col()).to::<T>());
        let inside = (j + arange::<COLS>()).row() < x.dim(1);
        before = before * prod(where_(inside, v, A::ONE), 1);
    }
}
