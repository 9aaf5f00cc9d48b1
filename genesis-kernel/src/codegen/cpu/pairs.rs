//! `dot` of integers of 8 bits: products of two neighbours along K are added up by one instruction.
//!
//! x86's `pmaddwd` multiplies integers of 16 bits and adds each two neighbours as i32; LLVM makes `vpdpwssd` of it and the
//! sum with the accumulator where the processor has VNNI. So operands are packed as i16, which holds i8 and u8, two
//! rows of `b` are interleaved as they are read, and two neighbours of `a` are copied to all lanes:
//!
//! ```text
//! pair = b[k][0], b[k+1][0], b[k][1], b[k+1][1], ..
//! acc[r] += pmaddwd([a[r][k], a[r][k+1]] in all lanes, pair)
//! ```

use std::sync::OnceLock;

use super::super::llvm::{Val, host_cpu};
use super::lowering::Lower;
use crate::ir::DType;

/// Lanes of i32 that the widest `pmaddwd` of this processor makes.
fn widest() -> Option<u32> {
    static WIDEST: OnceLock<Option<u32>> = OnceLock::new();
    *WIDEST.get_or_init(|| {
        let features = &host_cpu().1;
        let has = |name: &str| features.split(',').any(|feature| feature == name);
        match cfg!(target_arch = "x86_64") {
            true if has("+avx512bw") => Some(16),
            true if has("+avx2") => Some(8),
            true => Some(4),
            false => None,
        }
    })
}

impl Lower<'_> {
    /// The dtype that operands of a dot are packed in: that of the accumulator, or i16 where pairs are multiplied.
    pub(super) fn packed_dtype(&self, [a, b]: [DType; 2], acc: DType, k: usize) -> DType {
        let is_narrow = [a, b].iter().all(|dtype| matches!(dtype, DType::I8 | DType::U8));
        match is_narrow && acc == DType::I32 && k.is_multiple_of(2) && widest().is_some() {
            true => DType::I16,
            false => acc,
        }
    }

    /// `acc + x0 low + x1 high` of vectors of i16 as i32, where `x` holds `x0` and `x1`, an i32 of two i16.
    pub(super) fn add_pairs(&self, acc: Val, x: Val, [low, high]: [Val; 2]) -> Val {
        let e = self.e;
        let lanes = e.lanes(e.type_of(low));
        if lanes < 4 {
            let bits = e.int(e.i32(), 16);
            let (first, second) = (e.ashr(e.shl(x, bits), bits), e.ashr(x, bits));
            let product =
                |x: Val, y: Val| e.mul(e.splat(x, lanes), e.sext(y, e.vec(e.i32(), lanes)));
            return e.add(e.add(acc, product(first, low)), product(second, high));
        }
        let order: Vec<u32> = (0..lanes).flat_map(|lane| [lane, lanes + lane]).collect();
        let pair = e.shuffle(low, high, &order);
        let copies = e.bitcast(e.splat(x, lanes), e.type_of(pair));
        e.add(acc, self.multiply_pairs(copies, pair, lanes))
    }

    /// The sums of products of two neighbours each: `lanes` of i32, four or more, of twice as many i16.
    fn multiply_pairs(&self, x: Val, y: Val, lanes: u32) -> Val {
        let e = self.e;
        let widest = widest().unwrap_or(4);
        if lanes > widest {
            let half =
                |v: Val, first: u32| e.shuffle(v, v, &(first..first + lanes).collect::<Vec<_>>());
            let made = [0, lanes]
                .map(|first| self.multiply_pairs(half(x, first), half(y, first), lanes / 2));
            return e.shuffle(made[0], made[1], &(0..lanes).collect::<Vec<_>>());
        }
        let name = match lanes {
            16 => "llvm.x86.avx512.pmaddw.d.512",
            8 => "llvm.x86.avx2.pmadd.wd",
            _ => "llvm.x86.sse2.pmadd.wd",
        };
        e.intrinsic(name, &[], &[x, y])
    }
}
