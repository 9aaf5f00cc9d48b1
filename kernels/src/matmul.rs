//! Matrix products, batched, of any strides: a transposed operand is a view.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&matmul::KERNEL];

/// `c = a b` with `a: [batch, m, k]`, `b: [batch, k, n]`, `c: [batch, m, n]`, accumulated in `A`.
///
/// Grid axis 0 counts tiles of `BM` by `BN` in groups of 8 tile rows, so that programs that run at
/// the same time share operands in the cache; axis 1 counts batches.
#[kernel]
pub fn matmul<T: Float, A: Float, const BM: usize, const BN: usize, const BK: usize>(
    a: View<T, 3>,
    b: View<T, 3>,
    c: ViewMut<T, 3>,
) {
    let batch = program_id(1);
    let (m, n, k) = (c.dim(1), c.dim(2), a.dim(2));
    let (i, j) = grouped(program_id(0), cdiv(m, BM), cdiv(n, BN), 8);
    let mut acc = zeros::<A, BM, BN>();
    for p in range(0, k, BK) {
        let u = a.load::<1, BM, BK>([batch, i * BM, p]).squeeze(0);
        let v = b.load::<1, BK, BN>([batch, p, j * BN]).squeeze(0);
        acc = dot(u, v, acc);
    }
    c.store([batch, i * BM, j * BN], acc.to::<T>().expand_dims(0));
}
