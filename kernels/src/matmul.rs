//! Matrix products, batched, of any strides: a transposed operand is a view.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&matmul::KERNEL];

/// `c = a b` with `a: [batch, m, k]`, `b: [batch, k, n]`, `c: [batch, m, n]`, accumulated in `A`.
///
/// Programs share the tiles of `BM` by `BN` of all batches, in groups of 8 tile rows, so that those
/// that run at the same time share operands in the cache. As many programs as tiles are right, and
/// fewer too: where the GPU runs one program a multiprocessor, the loads of its next tile overlap
/// the store of its last.
#[kernel]
pub fn matmul<T: Float, A: Float, const BM: usize, const BN: usize, const BK: usize>(
    a: View<T, 3>,
    b: View<T, 3>,
    c: ViewMut<T, 3>,
) {
    let (m, n, k) = (c.dim(1), c.dim(2), a.dim(2));
    let (rows, columns) = (cdiv(m, BM), cdiv(n, BN));
    for tile in persistent(c.dim(0) * rows * columns) {
        let batch = tile / (rows * columns);
        let (i, j) = grouped(tile % (rows * columns), rows, columns, 8);
        let mut acc = zeros::<A, BM, BN>();
        for p in range(0, k, BK) {
            let u = a.load::<1, BM, BK>([batch, i * BM, p]).squeeze(0);
            let v = b.load::<1, BK, BN>([batch, p, j * BN]).squeeze(0);
            acc = dot(u, v, acc);
        }
        c.store([batch, i * BM, j * BN], acc.to::<T>().expand_dims(0));
    }
}
