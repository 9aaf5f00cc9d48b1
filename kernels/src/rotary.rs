//! Rotary positions: pairs of channels turned by angles whose cosines and sines are tables.
//!
//! Channel `c` of a head is turned together with channel `c + r / 2`, where the first `r` channels are turned at all:
//!
//! ```text
//! y[c]         = x[c] cos[t, c] - x[c + r / 2] sin[t, c]
//! y[c + r / 2] = x[c + r / 2] cos[t, c] + x[c] sin[t, c]
//! ```
//!
//! The halves of a head come as views of their own, so that a tile of one ends where it ends. Turning back, which is the
//! gradient, takes the angle with the other sign.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&rotary::KERNEL];

/// The halves `a` and `b: [rows, tokens, heads, r / 2]` of the turned channels, turned by the angles of
/// `cos` and `sin: [tokens, r / 2]`, or back where `BACK` is 1.
#[kernel]
pub fn rotary<
    T: Float,
    C: Float,
    A: Float,
    const TOKENS: usize,
    const HEADS: usize,
    const COLS: usize,
    const BACK: usize,
>(
    a: View<T, 4>,
    b: View<T, 4>,
    cos: View<C, 2>,
    sin: View<C, 2>,
    first: ViewMut<T, 4>,
    second: ViewMut<T, 4>,
) {
    let of_heads = cdiv(a.dim(2), HEADS);
    let of_tokens = cdiv(a.dim(1), TOKENS);
    let program = program_id(0);
    let head = program % of_heads * HEADS;
    let token = program / of_heads % of_tokens * TOKENS;
    let row = program / of_heads / of_tokens;
    let j = program_id(1) * COLS;
    let x = a.load::<1, TOKENS, HEADS, COLS>([row, token, head, j]).squeeze(0).to::<A>();
    let y = b.load::<1, TOKENS, HEADS, COLS>([row, token, head, j]).squeeze(0).to::<A>();
    let c = cos.load::<TOKENS, COLS>([token, j]).to::<A>().expand_dims(1);
    let mut s = sin.load::<TOKENS, COLS>([token, j]).to::<A>().expand_dims(1);
    if BACK == 1 {
        s = -s;
    }
    first.store([row, token, head, j], (x * c - y * s).to::<T>().expand_dims(0));
    second.store([row, token, head, j], (y * c + x * s).to::<T>().expand_dims(0));
}
