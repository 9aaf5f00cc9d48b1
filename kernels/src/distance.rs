//! Distances of order `p` between points, and their gradient.
//!
//! `ORDER` is 1, 2 or the formula: 3 is the largest difference, 4 how many differ, 0 any other `p`. Nothing of
//! the size `P x R x D` is made: a program has a tile of the result and walks through what it sums over.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&distances::KERNEL, &distances_bwd::KERNEL];

/// A column of one plane: `x[b, k, i..]`.
#[device]
pub fn line<T: Float, A: Float, const N: usize>(
    x: View<T, 3>,
    b: i64,
    k: i64,
    i: i64,
) -> Tile<A, (Dim<N>,)> {
    x.load::<1, 1, N>([b, k, i]).to::<A>().squeeze(0).squeeze(0)
}

/// `z[b, i, j]` is the distance of the points `x[b, :, i]` and `y[b, :, j]`.
///
/// Each 32 differences are summed by themselves, so that what rounding loses does not grow with their number.
#[kernel]
pub fn distances<T: Float, A: Float, const BM: usize, const BN: usize, const ORDER: usize>(
    x: View<T, 3>,
    y: View<T, 3>,
    z: ViewMut<T, 3>,
    p: f64,
) {
    let (down, across) = (cdiv(z.dim(1), BM), cdiv(z.dim(2), BN));
    let tile = program_id(0);
    let (b, i, j) = (tile / (down * across), tile / across % down * BM, tile % across * BN);
    let p = p.to::<A>();
    let mut total = zeros::<A, BM, BN>();
    for first in range(0, x.dim(1), 32) {
        let mut part = zeros::<A, BM, BN>();
        for k in range(first, minimum(first + 32, x.dim(1)), 1) {
            let u = line::<T, A, BM>(x, b, k, i);
            let v = line::<T, A, BN>(y, b, k, j);
            let size = abs(u.col() - v.row());
            part = if ORDER == 1 {
                part + size
            } else if ORDER == 2 {
                size * size + part
            } else if ORDER == 3 {
                maximum(part, size)
            } else if ORDER == 4 {
                part + where_(size == A::ZERO, A::ZERO, A::ONE)
            } else {
                part + exp2(log2(size) * p)
            };
        }
        total = if ORDER == 3 { maximum(total, part) } else { total + part };
    }
    let length = if ORDER == 2 {
        sqrt(total)
    } else if ORDER == 0 {
        exp2(log2(total) / p)
    } else {
        total
    };
    z.store([b, i, j], length.expand_dims(0).to::<T>());
}

/// `dx[b, i, d]` is the sum over `j` of `w[b, j, i]` times how the distance `z[b, j, i]` grows with
/// `x[b, i, d] - y[b, j, d]`, but for a power of the distance itself, which is in `w`.
#[kernel]
pub fn distances_bwd<T: Float, A: Float, const BM: usize, const BN: usize, const ORDER: usize>(
    x: View<T, 3>,
    y: View<T, 3>,
    w: View<A, 3>,
    z: View<T, 3>,
    dx: ViewMut<T, 3>,
    p: f64,
) {
    let (down, across) = (cdiv(dx.dim(1), BM), cdiv(dx.dim(2), BN));
    let tile = program_id(0);
    let (b, i, d) = (tile / (down * across), tile / across % down * BM, tile % across * BN);
    let u = x.load::<1, BM, BN>([b, i, d]).to::<A>().squeeze(0);
    let power = p.to::<A>() - A::ONE;
    let mut total = zeros::<A, BM, BN>();
    for j in range(0, y.dim(1), 1) {
        let off = u - line::<T, A, BN>(y, b, j, d).row();
        let sign = where_(off < A::ZERO, -A::ONE, where_(off == A::ZERO, A::ZERO, A::ONE));
        let slope = if ORDER == 1 {
            sign
        } else if ORDER == 2 {
            off
        } else if ORDER == 3 {
            where_(abs(off) == line::<T, A, BM>(z, b, j, i).col(), sign, A::ZERO)
        } else {
            where_(off == A::ZERO, A::ZERO, sign * exp2(log2(abs(off)) * power))
        };
        total = line::<A, A, BM>(w, b, j, i).col() * slope + total;
    }
    dx.store([b, i, d], total.expand_dims(0).to::<T>());
}
