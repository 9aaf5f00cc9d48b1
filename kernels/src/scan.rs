//! Running sums along the last axis.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&cumsum_rows::KERNEL, &cumsum_rows_reverse::KERNEL];

/// `y[i, j] = sum(x[i, ..=j])`, of `x: [m, n]`.
#[kernel]
pub fn cumsum_rows<T: Number, A: Number, const ROWS: usize, const COLS: usize>(
    x: View<T, 2>,
    y: ViewMut<T, 2>,
) {
    let i = program_id(0) * ROWS;
    let mut before = zeros::<A, ROWS>();
    for j in range(0, x.dim(1), COLS) {
        let v = x.load::<ROWS, COLS>([i, j]).to::<A>();
        y.store([i, j], (cumsum(v, 1) + before.col()).to::<T>());
        before = before + sum(v, 1);
    }
}

/// `y[i, j] = sum(x[i, j..])`, of `x: [m, n]`.
#[kernel]
pub fn cumsum_rows_reverse<T: Number, A: Number, const ROWS: usize, const COLS: usize>(
    x: View<T, 2>,
    y: ViewMut<T, 2>,
) {
    let i = program_id(0) * ROWS;
    let chunks = cdiv(x.dim(1), COLS);
    let mut after = zeros::<A, ROWS>();
    for k in range(0, chunks, 1) {
        let j = (chunks - 1 - k) * COLS;
        let v = x.load::<ROWS, COLS>([i, j]).to::<A>();
        y.store([i, j], (cumsum(v, 1, true) + after.col()).to::<T>());
        after = after + sum(v, 1);
    }
}
