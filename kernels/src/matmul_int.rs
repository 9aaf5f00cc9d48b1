//! Products of matrices of integers, which no tensor core takes: multiply-adds that wrap.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::matmul::scheduled_tile;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&matmul_int::KERNEL];

/// `c = a b` with `a: [batch, m, k]`, `b: [batch, k, n]`, `c: [batch, m, n]`, accumulated in `A`, of which
/// the low bits are kept.
#[kernel]
pub fn matmul_int<T: Int, A: Int, const BM: usize, const BN: usize>(
    a: View<T, 3>,
    b: View<T, 3>,
    c: ViewMut<T, 3>,
) {
    let (batch, row, column) = scheduled_tile::<BM, BN>(program_id(0), c.dim(1), c.dim(2));
    let mut acc = zeros::<A, BM, BN>();
    for p in range(0, a.dim(2), 1) {
        let u = a.load::<1, BM, 1>([batch, row, p]).squeeze(0).to::<A>();
        let v = b.load::<1, 1, BN>([batch, p, column]).squeeze(0).to::<A>();
        acc = acc + u * v;
    }
    c.store([batch, row, column], acc.to::<T>().expand_dims(0));
}
