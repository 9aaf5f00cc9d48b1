//! The backward of layer norm and RMS norm, from the statistics that the forward kept.
//!
//! With `h = (x - mean) rstd` and `g = dy weight`, `dx = rstd (g - mean(g) - h mean(g h))`, where the
//! means are over a row; RMS norm has neither `mean` nor `mean(g)`. The gradients of weight and bias
//! are sums over rows: each program adds up its own rows and leaves one partial sum a column in
//! `partial: [2, programs, n]` (weight, then bias), which a sum over programs finishes. So the order
//! of additions is fixed.
//!
//! Where `AHEAD` is 1, a program loads its next rows while it sums those it has: the stores of a row keep the loads behind
//! them in place, since their memory might be one.
//!
//! Where `ONTO` is 1, `dx` is added to `onto`, a gradient of `x` that came another way, such as that of the residual
//! stream: the bits of a gradient and a sum with it.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &layer_norm_bwd::KERNEL,
    &rms_norm_bwd::KERNEL,
    &layer_norm_bwd_long::KERNEL,
    &rms_norm_bwd_long::KERNEL,
    &layer_norm_params::KERNEL,
    &rms_norm_params::KERNEL,
];

/// The sum of two gradients, each of which is rounded to `T`.
#[device]
fn sum_of<T: Float, A: Float, S: Shape>(a: Tile<T, S>, b: Tile<T, S>) -> Tile<T, S> {
    (a.to::<A>() + b.to::<A>()).to::<T>()
}

/// `dx` and the partial sums for weight and bias, of rows of `n <= COLS` elements.
#[kernel]
pub fn layer_norm_bwd<
    T: Float,
    W: Float,
    Y: Float,
    A: Float,
    const ROWS: usize,
    const COLS: usize,
    const ONTO: usize,
    const AHEAD: usize,
>(
    x: View<T, 2>,
    weight: View<W, 1>,
    mean: View<A, 1>,
    rstd: View<A, 1>,
    dy: View<Y, 2>,
    onto: View<T, 2>,
    dx: ViewMut<T, 2>,
    partial: ViewMut<A, 3>,
) {
    let per_element = A::ONE / A::from(x.dim(1));
    let w = weight.load::<COLS>([0]).row();
    let mut dw = zeros::<A, ROWS, COLS>();
    let mut db = zeros::<A, ROWS, COLS>();
    let (mut x_ahead, mut dy_ahead) = (zeros::<T, ROWS, COLS>(), zeros::<Y, ROWS, COLS>());
    if AHEAD == 1 {
        x_ahead = x.load::<ROWS, COLS>([program_id(0) * ROWS, 0]);
        dy_ahead = dy.load::<ROWS, COLS>([program_id(0) * ROWS, 0]);
    }
    for tile in persistent(cdiv(x.dim(0), ROWS)) {
        let i = tile * ROWS;
        if AHEAD == 0 {
            x_ahead = x.load::<ROWS, COLS>([i, 0]);
            dy_ahead = dy.load::<ROWS, COLS>([i, 0]);
        }
        let scale = rstd.load::<ROWS>([i]).col();
        let h = (x_ahead.to::<A>() - mean.load::<ROWS>([i]).col()) * scale;
        let d = dy_ahead.to::<A>();
        dw = dw + d * h;
        db = db + d;
        let g = d * w.to::<A>();
        let gh = g * h;
        if AHEAD == 1 {
            let next = i + num_programs(0) * ROWS;
            x_ahead = x.load::<ROWS, COLS>([next, 0]);
            dy_ahead = dy.load::<ROWS, COLS>([next, 0]);
        }
        let (a, c) = (sum(g, 1) * per_element, sum(gh, 1) * per_element);
        let mut dv = ((g - a.col() - h * c.col()) * scale).to::<T>();
        if ONTO == 1 {
            dv = sum_of::<T, A, _>(onto.load::<ROWS, COLS>([i, 0]), dv);
        }
        dx.store([i, 0], dv);
    }
    let program = program_id(0);
    partial.store([0, program, 0], sum(dw, 0).row().expand_dims(0));
    partial.store([1, program, 0], sum(db, 0).row().expand_dims(0));
}

/// `dx` and the partial sums for weight, of rows of `n <= COLS` elements.
#[kernel]
pub fn rms_norm_bwd<
    T: Float,
    W: Float,
    Y: Float,
    A: Float,
    const ROWS: usize,
    const COLS: usize,
    const ONTO: usize,
    const AHEAD: usize,
>(
    x: View<T, 2>,
    weight: View<W, 1>,
    rstd: View<A, 1>,
    dy: View<Y, 2>,
    onto: View<T, 2>,
    dx: ViewMut<T, 2>,
    partial: ViewMut<A, 3>,
) {
    let per_element = A::ONE / A::from(x.dim(1));
    let w = weight.load::<COLS>([0]).row();
    let mut dw = zeros::<A, ROWS, COLS>();
    let (mut x_ahead, mut dy_ahead) = (zeros::<T, ROWS, COLS>(), zeros::<Y, ROWS, COLS>());
    if AHEAD == 1 {
        x_ahead = x.load::<ROWS, COLS>([program_id(0) * ROWS, 0]);
        dy_ahead = dy.load::<ROWS, COLS>([program_id(0) * ROWS, 0]);
    }
    for tile in persistent(cdiv(x.dim(0), ROWS)) {
        let i = tile * ROWS;
        if AHEAD == 0 {
            x_ahead = x.load::<ROWS, COLS>([i, 0]);
            dy_ahead = dy.load::<ROWS, COLS>([i, 0]);
        }
        let scale = rstd.load::<ROWS>([i]).col();
        let h = x_ahead.to::<A>() * scale;
        let d = dy_ahead.to::<A>();
        if AHEAD == 1 {
            let next = i + num_programs(0) * ROWS;
            x_ahead = x.load::<ROWS, COLS>([next, 0]);
            dy_ahead = dy.load::<ROWS, COLS>([next, 0]);
        }
        dw = dw + d * h;
        let g = d * w.to::<A>();
        let c = sum(g * h, 1) * per_element;
        let mut dv = ((g - h * c.col()) * scale).to::<T>();
        if ONTO == 1 {
            dv = sum_of::<T, A, _>(onto.load::<ROWS, COLS>([i, 0]), dv);
        }
        dx.store([i, 0], dv);
    }
    partial.store([0, program_id(0), 0], sum(dw, 0).row().expand_dims(0));
}

/// `dx` of rows of any length, one a program.
#[kernel]
pub fn layer_norm_bwd_long<
    T: Float,
    W: Float,
    Y: Float,
    A: Float,
    const COLS: usize,
    const ONTO: usize,
>(
    x: View<T, 2>,
    weight: View<W, 1>,
    mean: View<A, 1>,
    rstd: View<A, 1>,
    dy: View<Y, 2>,
    onto: View<T, 2>,
    dx: ViewMut<T, 2>,
) {
    let i = program_id(0);
    let n = x.dim(1);
    let (center, scale) = (mean.load::<1>([i]).col(), rstd.load::<1>([i]).col());
    let mut a = zeros::<A, 1, COLS>();
    let mut c = zeros::<A, 1, COLS>();
    for j in range(0, n, COLS) {
        let w = weight.load::<COLS>([j]).to::<A>().row();
        let g = dy.load::<1, COLS>([i, j]).to::<A>() * w;
        a = a + g;
        c = c + g * (x.load::<1, COLS>([i, j]).to::<A>() - center) * scale;
    }
    let (a, c) = ((sum(a, 1) / A::from(n)).col(), (sum(c, 1) / A::from(n)).col());
    for j in range(0, n, COLS) {
        let w = weight.load::<COLS>([j]).to::<A>().row();
        let g = dy.load::<1, COLS>([i, j]).to::<A>() * w;
        let h = (x.load::<1, COLS>([i, j]).to::<A>() - center) * scale;
        let mut dv = ((g - a - h * c) * scale).to::<T>();
        if ONTO == 1 {
            dv = sum_of::<T, A, _>(onto.load::<1, COLS>([i, j]), dv);
        }
        dx.store([i, j], dv);
    }
}

/// `dx` of rows of any length, one a program.
#[kernel]
pub fn rms_norm_bwd_long<
    T: Float,
    W: Float,
    Y: Float,
    A: Float,
    const COLS: usize,
    const ONTO: usize,
>(
    x: View<T, 2>,
    weight: View<W, 1>,
    rstd: View<A, 1>,
    dy: View<Y, 2>,
    onto: View<T, 2>,
    dx: ViewMut<T, 2>,
) {
    let i = program_id(0);
    let n = x.dim(1);
    let scale = rstd.load::<1>([i]).col();
    let mut c = zeros::<A, 1, COLS>();
    for j in range(0, n, COLS) {
        let w = weight.load::<COLS>([j]).to::<A>().row();
        let g = dy.load::<1, COLS>([i, j]).to::<A>() * w;
        c = c + g * x.load::<1, COLS>([i, j]).to::<A>() * scale;
    }
    let c = (sum(c, 1) / A::from(n)).col();
    for j in range(0, n, COLS) {
        let w = weight.load::<COLS>([j]).to::<A>().row();
        let g = dy.load::<1, COLS>([i, j]).to::<A>() * w;
        let h = x.load::<1, COLS>([i, j]).to::<A>() * scale;
        let mut dv = ((g - h * c) * scale).to::<T>();
        if ONTO == 1 {
            dv = sum_of::<T, A, _>(onto.load::<1, COLS>([i, j]), dv);
        }
        dx.store([i, j], dv);
    }
}

/// The partial sums for weight and bias alone: `COLS` columns of every `num_programs(1)`-th block of
/// `ROWS` rows.
#[kernel]
pub fn layer_norm_params<T: Float, Y: Float, A: Float, const ROWS: usize, const COLS: usize>(
    x: View<T, 2>,
    mean: View<A, 1>,
    rstd: View<A, 1>,
    dy: View<Y, 2>,
    partial: ViewMut<A, 3>,
) {
    let (j, part) = (program_id(0) * COLS, program_id(1));
    let mut dw = zeros::<A, ROWS, COLS>();
    let mut db = zeros::<A, ROWS, COLS>();
    for i in range(part * ROWS, x.dim(0), num_programs(1) * ROWS) {
        let v = x.load::<ROWS, COLS>([i, j]).to::<A>() - mean.load::<ROWS>([i]).col();
        let d = dy.load::<ROWS, COLS>([i, j]).to::<A>();
        dw = dw + d * (v * rstd.load::<ROWS>([i]).col());
        db = db + d;
    }
    partial.store([0, part, j], sum(dw, 0).row().expand_dims(0));
    partial.store([1, part, j], sum(db, 0).row().expand_dims(0));
}

/// The partial sums for weight alone, as [`mod@layer_norm_params`].
#[kernel]
pub fn rms_norm_params<T: Float, Y: Float, A: Float, const ROWS: usize, const COLS: usize>(
    x: View<T, 2>,
    rstd: View<A, 1>,
    dy: View<Y, 2>,
    partial: ViewMut<A, 3>,
) {
    let (j, part) = (program_id(0) * COLS, program_id(1));
    let mut dw = zeros::<A, ROWS, COLS>();
    for i in range(part * ROWS, x.dim(0), num_programs(1) * ROWS) {
        let v = x.load::<ROWS, COLS>([i, j]).to::<A>();
        let d = dy.load::<ROWS, COLS>([i, j]).to::<A>();
        dw = dw + d * (v * rstd.load::<ROWS>([i]).col());
    }
    partial.store([0, part, j], sum(dw, 0).row().expand_dims(0));
}
