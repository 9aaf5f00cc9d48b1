//! Pictures and volumes sampled at the points of a grid.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&grid_sample::KERNEL];

/// `MODE`: between elements by distance, the nearest, by a cubic.
const NEAREST: i64 = 1;
const CUBIC: i64 = 2;
/// `PADDING`: zeros, the last element, mirrored at the edge.
const ZEROS: i64 = 0;
const REFLECTION: i64 = 2;

/// Positions of points from -1 to 1 along an axis of `extent` elements.
#[device]
fn position<A: Float, const COLS: usize, const ALIGN: bool>(
    x: Tile1<A, COLS>,
    extent: A,
) -> Tile1<A, COLS> {
    let from_edge = x + A::ONE;
    if ALIGN {
        from_edge * ((extent - A::ONE) / A::from(2.0))
    } else {
        (from_edge * extent - A::ONE) / A::from(2.0)
    }
}

/// Positions brought back into the axis.
#[device]
fn inside<A: Float, const COLS: usize, const PADDING: usize, const ALIGN: bool>(
    at: Tile1<A, COLS>,
    extent: A,
) -> Tile1<A, COLS> {
    let given = at;
    let mut at = at;
    if PADDING == REFLECTION {
        let low = if ALIGN { A::ZERO } else { A::ZERO - A::from(0.5) };
        let span = if ALIGN { extent - A::ONE } else { extent };
        let away = abs(at - low);
        let turns = floor(away / span);
        let rest = away - turns * span;
        let is_odd = turns - A::from(2.0) * floor(turns / A::from(2.0)) > A::from(0.5);
        at = where_(is_odd, span - rest, rest) + low;
    }
    if PADDING != ZEROS {
        // An axis of one element has no other, but NaN stays.
        at = where_(extent == A::ONE, given * A::ZERO, clamp(at, A::ZERO, extent - A::ONE));
    }
    at
}

/// How much element `k` of four counts for points as far behind the second as `t`: Keys' kernel with -0.75.
#[device]
fn cubic<A: Float, const COLS: usize>(t: Tile1<A, COLS>, k: i64) -> Tile1<A, COLS> {
    let a = A::ZERO - A::from(0.75);
    let near_of = if k == 1 { t } else { A::ONE - t };
    let near = ((a + A::from(2.0)) * near_of - (a + A::from(3.0))) * near_of * near_of + A::ONE;
    let far_of = if k == 0 { t + A::ONE } else { A::ONE - t + A::ONE };
    let far =
        ((a * far_of - A::from(5.0) * a) * far_of + A::from(8.0) * a) * far_of - A::from(4.0) * a;
    if k == 1 || k == 2 { near } else { far }
}

/// How much element `k` of two counts for points as far `behind` the first; the nearest counts once.
#[device]
fn linear<A: Float, const COLS: usize, const MODE: usize>(
    behind: Tile1<A, COLS>,
    k: i64,
) -> Tile1<A, COLS> {
    let beside = if k == 0 { A::ONE - behind } else { behind };
    if MODE == NEAREST { full::<A, COLS>(A::ONE) } else { beside }
}

/// Element `k` beside positions along an axis: which it is, how much it counts, and whether it is there.
#[device]
fn tap<A: Float, const COLS: usize, const MODE: usize, const PADDING: usize, const ALIGN: bool>(
    at: Tile1<A, COLS>,
    k: i64,
    extent: i64,
) -> (Tile1<i64, COLS>, Tile1<A, COLS>, Tile1<bool, COLS>) {
    let n = A::from(extent);
    let near = if MODE == CUBIC { at } else { inside::<A, COLS, PADDING, ALIGN>(at, n) };
    let first = if MODE == NEAREST { round(near) } else { floor(near) };
    let behind = near - first;
    let index = if MODE == CUBIC {
        inside::<A, COLS, PADDING, ALIGN>(first + A::from(k - 1), n)
    } else {
        first + A::from(k)
    };
    let weight = if MODE == CUBIC {
        cubic::<A, COLS>(behind, k)
    } else {
        linear::<A, COLS, MODE>(behind, k)
    };
    let is_there = (index >= A::ZERO) & (index < n);
    (where_(is_there, index, A::ZERO).to::<i64>(), weight, is_there)
}

/// `y[n, c, p] = sum over the elements beside grid[n, p] of their weight times x[n, c, element]`.
///
/// `x: [N, C, depth height width]`, `grid: [N, P, 2 or 3]` with the coordinate along the last axis first, both dense.
/// A program has `COLS` points, and all channels of them, `LINES` at a time. `TAPS` elements beside a point along an
/// axis count, `DEEP` of them along the depth.
#[kernel]
pub fn grid_sample<
    T: Float,
    A: Float,
    const LINES: usize,
    const COLS: usize,
    const VOLUME: bool,
    const MODE: usize,
    const PADDING: usize,
    const ALIGN: bool,
    const DEEP: usize,
    const TAPS: usize,
>(
    x: View<T, 3>,
    grid: View<T, 3>,
    y: ViewMut<T, 3>,
    depth: i64,
    height: i64,
    width: i64,
) {
    let (n, points) = (program_id(1), y.dim(2));
    let p = program_id(0) * COLS + arange::<COLS>();
    let is_point = p < points;
    let from = grid.ptr() + (n * points + p) * grid.dim(2);
    let across = position::<A, COLS, ALIGN>(load(from, is_point).to::<A>(), A::from(width));
    let down = position::<A, COLS, ALIGN>(load(from + 1, is_point).to::<A>(), A::from(height));
    let mut into = zeros::<A, COLS>();
    if VOLUME {
        into = position::<A, COLS, ALIGN>(load(from + 2, is_point).to::<A>(), A::from(depth));
    }
    for c in range(0, x.dim(1), LINES) {
        let channel = c + arange::<LINES>();
        let is_channel = (channel < x.dim(1)).col();
        let plane = ((n * x.dim(1) + channel) * x.dim(2)).col();
        let mut acc = zeros::<A, LINES, COLS>();
        for a in static_range(0, DEEP) {
            let mut z = zeros::<i64, COLS>();
            let mut u = full::<A, COLS>(A::ONE);
            let mut is_near = is_point;
            if VOLUME {
                let (at, weight, is_there) = tap::<A, COLS, MODE, PADDING, ALIGN>(into, a, depth);
                z = at;
                u = weight;
                is_near = is_near & is_there;
            }
            for b in static_range(0, TAPS) {
                let (row, v, has_row) = tap::<A, COLS, MODE, PADDING, ALIGN>(down, b, height);
                for k in static_range(0, TAPS) {
                    let (col, w, has_col) = tap::<A, COLS, MODE, PADDING, ALIGN>(across, k, width);
                    let is_there = (is_near & has_row & has_col).row() & is_channel;
                    let at = ((z * height + row) * width + col).row();
                    let seen = load(x.ptr() + (plane + at), is_there).to::<A>();
                    // What is beyond the edge is zero before it is weighed: a point that is NaN gives NaN.
                    acc = fma((u * v * w).row(), seen, acc);
                }
            }
        }
        let to = ((n * x.dim(1) + channel) * points).col() + p.row();
        store(y.ptr() + to, acc.to::<T>(), is_channel & is_point.row());
    }
}
