//! How many warps a block has where the caller leaves it open.
//!
//! ```text
//! 1024 elements at most          4 warps of 8 elements a thread
//! 65536 elements                 32 warps of 64
//! a product of 128 x 128         8 warps: 64 accumulators a thread
//! ```

use super::infer::is_shared;
use super::mma::wgmma_warps;
use crate::ir::{Func, OpKind};
use crate::tuning::warps;

/// The number of warps where the caller leaves it open: by the largest tile, or the largest product if there is one.
pub(super) fn choose_warps(func: &Func) -> u32 {
    let mut largest = 1;
    let mut dots = 1;
    let mut shared: Option<u32> = None;
    for op in func.walk() {
        let data = func.op(op);
        for &result in &data.results {
            if let Some(tile) = func.ty(result).as_tile() {
                largest = largest.max(tile.shape.numel() as u32);
            }
        }
        if let OpKind::Dot { .. } = data.kind {
            let numel = func.tile(data.results[0]).shape.numel() as u32;
            if is_shared(func, data.operands[1]) {
                let warps = wgmma_warps(func.tile(data.results[0]).shape.extent(0) as u32);
                shared = Some(shared.map_or(warps, |other| other.min(warps)));
            }
            dots = dots.max(warps::of_product(numel));
        }
    }
    if let Some(warps) = shared {
        return warps;
    }
    match dots {
        1 => warps::of_elements(largest),
        _ => dots,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::ir::parse;

    /// A tile of so many elements.
    fn tile(elements: usize) -> String {
        let text = format!("kernel k() {{\n  %0 = iota : i64[{elements}]\n  return\n}}");
        format!("{elements} elements: {} warps\n", choose_warps(&parse(&text).unwrap()))
    }

    #[test]
    fn warps_grow_with_the_largest_tile() {
        expect![[r#"
            64 elements: 1 warps
            1024 elements: 4 warps
            4096 elements: 8 warps
            16384 elements: 16 warps
            65536 elements: 32 warps
        "#]]
        .assert_eq(&[64, 1024, 4096, 16384, 65536].map(tile).concat());
    }
}
