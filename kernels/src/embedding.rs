//! Rows of a table by index, and the gradient of the table.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&embedding::KERNEL, &embedding_bwd::KERNEL];

/// `y[t, ..] = table[index[t], ..]`
#[kernel]
pub fn embedding<T: Element, const COLS: usize>(
    table: View<T, 2>,
    index: View<i64, 1>,
    y: ViewMut<T, 2>,
) {
    let t = program_id(0);
    let j = program_id(1) * COLS;
    let row = sum(index.load::<1>([t]), 0);
    y.store([t, j], table.load::<1, COLS>([row, j]));
}

/// `dtable[v, ..] = sum of dy[t, ..] over the t with index[t] == v`, in the order of t.
///
/// One program a row of the table: it looks through the indices, `TOKENS` at a time, and reads
/// gradients only where one is its own. So the order of additions is fixed.
#[kernel]
pub fn embedding_bwd<T: Float, A: Float, const TOKENS: usize, const COLS: usize>(
    index: View<i64, 1>,
    dy: View<T, 2>,
    dtable: ViewMut<T, 2>,
) {
    let v = program_id(0);
    let j = program_id(1) * COLS;
    let n = dy.dim(0);
    let mut acc = zeros::<A, COLS>();
    for t in range(0, n, TOKENS) {
        let at = t + arange::<TOKENS>();
        let mine = (index.load::<TOKENS>([t]) == v) & (at < n);
        if max(mine.to::<i64>(), 0) > 0 {
            let rows = dy.load::<TOKENS, COLS>([t, j]).to::<A>();
            acc = acc + sum(where_(mine.col(), rows, A::ZERO), 0);
        }
    }
    dtable.store([v, j], acc.to::<T>().expand_dims(0));
}
