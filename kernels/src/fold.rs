//! Products, extremes, truths and sums of what elements are made into, along the middle axis of a tensor seen as `[outer, n, inner]`.
//!
//! As sums in [`crate::reduce`]: of dense rows by `*_rows`, of neighbouring columns by `*_cols`. Where there are few
//! results, `num_programs` of the first or the last axis of the grid share one (`*_shared`), and the last of them to
//! finish joins what each left in `partial`, always in the same order; `done` holds a zero for each, before and after.
//!
//! An element outside counts as one that changes nothing: 1 in a product, the first element in an extreme. Memory outside
//! reads as zero, so that a sum asks for no more than it reads.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

macro_rules! fold {
    ($($(#[$doc:meta])* $rows:ident, $cols:ident, $rows_shared:ident, $cols_shared:ident =
        <$($type:ident: $bound:ident),*> $acc:ident, $out:ident, |$v:ident| $map:expr, |$first:ident| $outside:expr,
        |$inside:ident| $kept:expr, |$a:ident, $b:ident| $join:expr, $reduce:ident;)*) => {
        /// Every kernel of this file.
        pub static KERNELS: &[&KernelDef] = &[
            $(&$rows::KERNEL, &$cols::KERNEL, &$rows_shared::KERNEL, &$cols_shared::KERNEL),*
        ];
        $(
            $(#[$doc])*
            ///
            /// Of `x: [m, n]`.
            #[kernel]
            pub fn $rows<$($type: $bound,)* const ROWS: usize, const COLS: usize>(
                x: View<T, 2>,
                y: ViewMut<$out, 1>,
            ) {
                let i = program_id(0) * ROWS;
                let $v = x.load::<ROWS, 1>([i, 0]).squeeze(1).col();
                let $first = $map;
                let mut $a = broadcast_to::<ROWS, COLS>($outside);
                for j in range(0, x.dim(1), COLS) {
                    let $inside = (j + arange::<COLS>()).row() < x.dim(1);
                    let $v = x.load::<ROWS, COLS>([i, j]);
                    let $b = $map;
                    let $b = $kept;
                    $a = $join;
                }
                y.store([i], $reduce($a, 1).to::<$out>());
            }

            $(#[$doc])*
            ///
            /// Of `x: [outer, n, inner]`.
            #[kernel]
            pub fn $cols<$($type: $bound,)* const ROWS: usize, const COLS: usize>(
                x: View<T, 3>,
                y: ViewMut<$out, 2>,
            ) {
                let (o, j) = (program_id(1), program_id(0) * COLS);
                let $v = x.load::<1, 1, COLS>([o, 0, j]).squeeze(0).squeeze(0).row();
                let $first = $map;
                let mut $a = broadcast_to::<ROWS, COLS>($outside);
                for i in range(0, x.dim(1), ROWS) {
                    let $inside = (i + arange::<ROWS>()).col() < x.dim(1);
                    let $v = x.load::<1, ROWS, COLS>([o, i, j]).squeeze(0);
                    let $b = $map;
                    let $b = $kept;
                    $a = $join;
                }
                y.store([o, j], $reduce($a, 0).to::<$out>().row());
            }

            $(#[$doc])*
            ///
            /// Of `x: [m, n]`, a row by several programs.
            #[kernel]
            pub fn $rows_shared<$($type: $bound,)* const COLS: usize, const PARTS: usize>(
                x: View<T, 2>,
                partial: ViewMut<$acc, 2>,
                done: PtrMut<i32>,
                y: ViewMut<$out, 1>,
            ) {
                let (part, i) = (program_id(0), program_id(1));
                let parts = num_programs(0);
                let $v = x.load::<1, 1>([i, 0]).squeeze(1).col();
                let $first = $map;
                let mut $a = broadcast_to::<1, COLS>($outside);
                for j in range(part * COLS, x.dim(1), parts * COLS) {
                    let $inside = (j + arange::<COLS>()).row() < x.dim(1);
                    let $v = x.load::<1, COLS>([i, j]);
                    let $b = $map;
                    let $b = $kept;
                    $a = $join;
                }
                partial.store([i, part], $reduce($a, 1).col());
                if atomic_add(done + i, 1).to::<i64>() == parts - 1 {
                    let $inside = arange::<PARTS>().row() < parts;
                    let $b = partial.load::<1, PARTS>([i, 0]);
                    y.store([i], $reduce($kept, 1).to::<$out>());
                    atomic_xchg(done + i, 0);
                }
            }

            $(#[$doc])*
            ///
            /// Of `x: [outer, n, inner]`, columns by several programs.
            #[kernel]
            pub fn $cols_shared<$($type: $bound,)* const ROWS: usize, const COLS: usize, const PARTS: usize>(
                x: View<T, 3>,
                partial: ViewMut<$acc, 3>,
                done: PtrMut<i32>,
                y: ViewMut<$out, 2>,
            ) {
                let (o, part, j) = (program_id(1), program_id(2), program_id(0) * COLS);
                let parts = num_programs(2);
                let $v = x.load::<1, 1, COLS>([o, 0, j]).squeeze(0).squeeze(0).row();
                let $first = $map;
                let mut $a = broadcast_to::<ROWS, COLS>($outside);
                for i in range(part * ROWS, x.dim(1), parts * ROWS) {
                    let $inside = (i + arange::<ROWS>()).col() < x.dim(1);
                    let $v = x.load::<1, ROWS, COLS>([o, i, j]).squeeze(0);
                    let $b = $map;
                    let $b = $kept;
                    $a = $join;
                }
                partial.store([o, part, j], $reduce($a, 0).row().expand_dims(0));
                let own = o * num_programs(0) + program_id(0);
                if atomic_add(done + own, 1).to::<i64>() == parts - 1 {
                    let $inside = arange::<PARTS>().col() < parts;
                    let $b = partial.load::<1, PARTS, COLS>([o, 0, j]).squeeze(0);
                    y.store([o, j], $reduce($kept, 0).to::<$out>().row());
                    atomic_xchg(done + own, 0);
                }
            }
        )*
    };
}

fold! {
    /// The product.
    prod_rows, prod_cols, prod_rows_shared, prod_cols_shared =
        <T: Number, A: Number> A, T, |v| v.to::<A>(), |_first| A::ONE,
        |inside| where_(inside, b, A::ONE), |a, b| a * b, prod;
    /// The product of what is not zero, as wide as it is computed.
    prod_nonzero_rows, prod_nonzero_cols, prod_nonzero_rows_shared, prod_nonzero_cols_shared =
        <T: Number, A: Number> A, A, |v| where_(v == T::ZERO, A::ONE, v.to::<A>()), |_first| A::ONE,
        |inside| where_(inside, b, A::ONE), |a, b| a * b, prod;
    /// Whether some element is not zero. Kept as bytes, of which a thread has registers for many, and not as predicates.
    any_rows, any_cols, any_rows_shared, any_cols_shared =
        <T: Element> u8, bool, |v| v.to::<bool>().to::<u8>(), |_first| 0_u8, |_inside| b, |a, b| a | b, max;
    /// Whether every element is not zero.
    all_rows, all_cols, all_rows_shared, all_cols_shared =
        <T: Element> u8, bool, |v| v.to::<bool>().to::<u8>(), |_first| 1_u8,
        |inside| where_(inside, b, 1_u8), |a, b| a & b, min;
    /// The sum of squares, as wide as it is computed.
    squares_rows, squares_cols, squares_rows_shared, squares_cols_shared =
        <T: Float, A: Float> A, A, |v| v.to::<A>() * v.to::<A>(), |_first| A::ZERO, |_inside| b, |a, b| a + b, sum;
    /// The sum of what is not NaN.
    numbers_rows, numbers_cols, numbers_rows_shared, numbers_cols_shared =
        <T: Float, A: Float> A, T, |v| where_(v == v, v.to::<A>(), A::ZERO), |_first| A::ZERO, |_inside| b,
        |a, b| a + b, sum;
    /// The largest element; NaN wins.
    max_rows, max_cols, max_rows_shared, max_cols_shared =
        <T: Number> T, T, |v| v, |first| first, |inside| where_(inside, b, first), |a, b| maximum(a, b), max;
    /// The smallest element; NaN wins.
    min_rows, min_cols, min_rows_shared, min_cols_shared =
        <T: Number> T, T, |v| v, |first| first, |inside| where_(inside, b, first), |a, b| minimum(a, b), min;
}
