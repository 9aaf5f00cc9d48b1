//! The gated activations between the products of a transformer's layer.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use super::elementwise::{gelu_of, gelu_slope_of, silu_of};

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&gated::KERNEL, &gated_bwd::KERNEL];

/// An open gate: SiLU where `ACT` is 0, GELU where it is 1, its approximation by tanh where it is 2.
#[device]
pub fn opened<A: Float, const ROWS: usize, const COLS: usize, const ACT: usize>(
    gate: Tile2<A, ROWS, COLS>,
) -> Tile2<A, ROWS, COLS> {
    let mut open = gate;
    if ACT == 0 {
        open = silu_of(gate);
    }
    if ACT == 1 {
        open = gelu_of(gate);
    }
    if ACT == 2 {
        let inner = (gate + gate * gate * gate * A::from(0.044715)) * A::from(0.7978845608028654);
        open = gate * ((tanh(inner) + A::ONE) * A::from(0.5));
    }
    open
}

/// The derivative of [`opened`].
#[device]
pub fn opening<A: Float, const ROWS: usize, const COLS: usize, const ACT: usize>(
    gate: Tile2<A, ROWS, COLS>,
) -> Tile2<A, ROWS, COLS> {
    let mut slope = gate;
    if ACT == 0 {
        let open = sigmoid(gate);
        slope = open * (gate * (A::ONE - open) + A::ONE);
    }
    if ACT == 1 {
        slope = gelu_slope_of(gate);
    }
    if ACT == 2 {
        let square = gate * gate * A::from(0.044715);
        let tanh = tanh(gate * (square + A::ONE) * A::from(0.7978845608028654));
        let inner = (square * A::from(3.0) + A::ONE) * A::from(0.7978845608028654);
        slope = ((tanh + A::ONE) + gate * (A::ONE - tanh * tanh) * inner) * A::from(0.5);
    }
    slope
}

/// `y[i, j] = f(x[i, j]) x[i, n + j]` of `x: [m, 2 n]`: the halves are the gate and what it lets through. `f` is
/// [`opened`].
#[kernel]
pub fn gated<T: Float, A: Float, const ROWS: usize, const COLS: usize, const ACT: usize>(
    x: View<T, 2>,
    y: ViewMut<T, 2>,
) {
    let (i, j) = (program_id(0) * ROWS, program_id(1) * COLS);
    let gate = x.load::<ROWS, COLS>([i, j]).to::<A>();
    let (row, col) = (i + arange::<ROWS>(), j + arange::<COLS>());
    let mask = (row < x.dim(0)).col() & (col < y.dim(1)).row();
    let at = (row * x.stride(0)).col() + ((col + y.dim(1)) * x.stride(1)).row();
    let up = load(x.ptr() + at, mask).to::<A>();
    // Rounded as if the activation was an op of its own.
    let open = opened::<A, ROWS, COLS, ACT>(gate);
    y.store([i, j], (open.to::<T>().to::<A>() * up).to::<T>());
}

/// The gradient of [`gated`], both halves: `dx[i, j] = dy[i, j] x[i, n + j] f'(x[i, j])` and
/// `dx[i, n + j] = dy[i, j] f(x[i, j])`.
#[kernel]
pub fn gated_bwd<T: Float, A: Float, const ROWS: usize, const COLS: usize, const ACT: usize>(
    x: View<T, 2>,
    dy: View<T, 2>,
    dx: ViewMut<T, 2>,
) {
    let (i, j) = (program_id(0) * ROWS, program_id(1) * COLS);
    let gate = x.load::<ROWS, COLS>([i, j]).to::<A>();
    let slope = dy.load::<ROWS, COLS>([i, j]).to::<A>();
    let (row, col) = (i + arange::<ROWS>(), j + arange::<COLS>());
    let mask = (row < x.dim(0)).col() & (col < dy.dim(1)).row();
    let behind = (col + dy.dim(1)).row();
    let up = load(x.ptr() + ((row * x.stride(0)).col() + behind * x.stride(1)), mask).to::<A>();
    // The value that the product was given.
    let open = opened::<A, ROWS, COLS, ACT>(gate).to::<T>().to::<A>();
    let to = (row * dx.stride(0)).col();
    let down = (slope * up * opening::<A, ROWS, COLS, ACT>(gate)).to::<T>();
    store(dx.ptr() + (to + col.row() * dx.stride(1)), down, mask);
    store(dx.ptr() + (to + behind * dx.stride(1)), (slope * open).to::<T>(), mask);
}
