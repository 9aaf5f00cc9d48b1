//! Distances of order `p` between points, and their gradient.
//!
//! `ORDER` is 1, 2 or the formula: 3 is the largest difference, 4 how many differ, 0 any other `p`. Nothing of
//! the size `P x R x D` is made: a program has a tile of the result and walks through what it sums over.
//!
//! Squared distances of order 2 are also `|x|² + |y|² - 2 x y`, a product of matrices, but for points that lie near each
//! other and far from 0, of which that leaves rounding errors alone. So products are made first, and a program walks
//! only through a tile in which some square is less than [`NEAR`] of `|x|² + |y|²`: errors of the product grow by no more
//! than its inverse.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &distances::KERNEL,
    &distances_of_products::KERNEL,
    &distances_bwd::KERNEL,
    &distances_near_bwd::KERNEL,
];

/// Squares of less than this share of `|x|² + |y|²` are not made of products.
pub const NEAR: f64 = 0.25;

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

/// The sums of a tile of distances, `x[b, :, i..]` to `y[b, :, j..]`, by walking through the coordinates.
///
/// Each 32 differences are summed by themselves, so that what rounding loses does not grow with their number.
#[device]
fn walked<T: Float, A: Float, const BM: usize, const BN: usize, const ORDER: usize>(
    x: View<T, 3>,
    y: View<T, 3>,
    b: i64,
    i: i64,
    j: i64,
    p: A,
) -> Tile2<A, BM, BN> {
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
    total
}

/// `z[b, i, j]` is the distance of the points `x[b, :, i]` and `y[b, :, j]`.
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
    let total = walked::<T, A, BM, BN, ORDER>(x, y, b, i, j, p);
    let length = if ORDER == 2 {
        sqrt(total)
    } else if ORDER == 0 {
        exp2(log2(total) / p)
    } else {
        total
    };
    z.store([b, i, j], length.expand_dims(0).to::<T>());
}

/// `z[b, i, j]`, the product of the points `x[b, :, i]` and `y[b, :, j]` whose squares are `xx[b, i]` and `yy[b, j]`,
/// becomes their distance of order 2.
#[kernel]
pub fn distances_of_products<T: Float, const BM: usize, const BN: usize>(
    x: View<T, 3>,
    y: View<T, 3>,
    xx: View<T, 2>,
    yy: View<T, 2>,
    z: ViewMut<T, 3>,
) {
    let (down, across) = (cdiv(z.dim(1), BM), cdiv(z.dim(2), BN));
    let tile = program_id(0);
    let (b, i, j) = (tile / (down * across), tile / across % down * BM, tile % across * BN);
    let rows = xx.load::<1, BM>([b, i]).squeeze(0);
    let columns = yy.load::<1, BN>([b, j]).squeeze(0);
    let both = rows.col() + columns.row();
    let square = both - z.load::<1, BM, BN>([b, i, j]).squeeze(0) * T::from(2.0);
    // What is NaN, or made of infinities, is near: walking tells which it is.
    let is_far = square >= both * T::from(NEAR);
    let mut length = sqrt(square);
    if !all(all(is_far, 1), 0) {
        let total = walked::<T, T, BM, BN, 2>(x, y, b, i, j, T::from(2.0));
        length = where_(is_far, length, sqrt(total));
    }
    z.store([b, i, j], length.expand_dims(0));
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

/// Adds to `dx[b, i, d]` the sum over `j` of `w[b, j, i] - far[b, j, i]` times `x[b, i, d] - y[b, j, d]`: what pairs give that
/// are near, whose `far` is 0 and that of others `w`. `count[b, i]` is how many there are of a point.
#[kernel]
pub fn distances_near_bwd<T: Float, const BM: usize, const BN: usize>(
    x: View<T, 3>,
    y: View<T, 3>,
    w: View<T, 3>,
    far: View<T, 3>,
    count: View<T, 2>,
    dx: ViewMut<T, 3>,
) {
    let (down, across) = (cdiv(dx.dim(1), BM), cdiv(dx.dim(2), BN));
    let tile = program_id(0);
    let (b, i, d) = (tile / (down * across), tile / across % down * BM, tile % across * BN);
    if any(count.load::<1, BM>([b, i]).squeeze(0) > T::ZERO, 0) {
        let u = x.load::<1, BM, BN>([b, i, d]).squeeze(0);
        let mut total = dx.load::<1, BM, BN>([b, i, d]).squeeze(0);
        for j in range(0, y.dim(1), 1) {
            let off = u - line::<T, T, BN>(y, b, j, d).row();
            let near = line::<T, T, BM>(w, b, j, i) - line::<T, T, BM>(far, b, j, i);
            total = near.col() * off + total;
        }
        dx.store([b, i, d], total.expand_dims(0));
    }
}
