//! Matrix products, batched, of any strides: a transposed operand is a view. What is added to a product
//! or applied to it is computed on the sums before they leave registers.
//!
//! The constants, warps and stages of a launch come from what `#[autotune]` declares: a table of
//! measurements (`tuned/h200.jsonl`), else [`crate::tiles`].

use genesis_kernel::autotune::Problem;
use genesis_kernel::ir::DotPrecision;
use genesis_kernel::kernel::{KernelDef, LaunchOptions};
use genesis_kernel::prelude::*;

use crate::elementwise::{gelu_of, silu_of};
use crate::tiles;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &matmul::KERNEL,
    &matmul_wide::KERNEL,
    &matmul_add::KERNEL,
    &matmul_add_wide::KERNEL,
    &matmul_bias::KERNEL,
    &matmul_bias_gelu::KERNEL,
    &matmul_bias_down::KERNEL,
    &matmul_bias_gelu_down::KERNEL,
    &matmul_bias_relu::KERNEL,
    &matmul_bias_relu_down::KERNEL,
    &matmul_bias_silu::KERNEL,
    &matmul_bias_silu_down::KERNEL,
    &matmul_tf32::KERNEL,
    &matmul_add_tf32::KERNEL,
];

/// The tile scheduler: where a tile of `BM` by `BN` begins in products of `m` by `n`: its batch, row and column.
///
/// Tiles are counted batch by batch, in groups of 16 tile rows, so that those that are computed at the
/// same time share operands in the cache: with tiles of 128 by 256 the 132 multiprocessors of an H200
/// are nearly at a square of `c`. A grid has less than 2^31 programs, so that 32 bits hold every number:
/// 64-bit divisions would be a twentieth of a product of 1024.
#[device]
pub fn scheduled_tile<const BM: usize, const BN: usize>(
    tile: i64,
    m: i64,
    n: i64,
) -> (i64, i64, i64) {
    let (rows, columns) = (cdiv(m, BM).to::<u32>(), cdiv(n, BN).to::<u32>());
    let (each, band) = (rows * columns, columns * 16);
    let number = tile.to::<u32>();
    let batch = number / each;
    let within = number - batch * each;
    let first = within / band * 16;
    let height = minimum(rows - first, 16);
    let at = within - first * columns;
    let column = at / height;
    let row = first + at - column * height;
    (batch.to::<i64>(), row.to::<i64>() * BM, column.to::<i64>() * BN)
}

/// What the sums of a tile begin with: what is there where `adds` is 1, else zeros.
///
/// Loads ahead of the main loop have the registers of all accumulators to land in, and the copy engine may write a tile
/// that was read by then. A product of 151936 by 896 by 512 took 389 us on an H200 with loads in the epilogue, cuBLAS 307.
#[device]
pub fn start_of<O: Float, A: Float, const BM: usize, const BN: usize>(
    c: ViewMut<O, 3>,
    at: (i64, i64, i64),
    adds: i64,
) -> Tile2<A, BM, BN> {
    let mut start = zeros::<A, BM, BN>();
    if adds == 1 {
        start = c.load::<1, BM, BN>([at.0, at.1, at.2]).squeeze(0).to::<A>();
    }
    start
}

/// The tile of `a b` that begins at this row and column, of K from and to, added to `start`.
#[device]
pub fn product<T: Float, A: Float, const BM: usize, const BN: usize, const BK: usize>(
    a: View<T, 3>,
    b: View<T, 3>,
    start: Tile2<A, BM, BN>,
    at: (i64, i64, i64),
    k: (i64, i64),
) -> Tile2<A, BM, BN> {
    let ((batch, row, column), (first, end)) = (at, k);
    let mut acc = start;
    for p in range(first, end, BK) {
        let u = a.load::<1, BM, BK>([batch, row, p]).squeeze(0);
        let v = b.load::<1, BK, BN>([batch, p, column]).squeeze(0);
        acc = dot(u, v, acc);
    }
    acc
}

macro_rules! products {
    (($batch:ident, $m:ident, $n:ident, $k:ident) $($(#[$doc:meta])* $name:ident, $fits:path, $pick:path:
        |$a:ident, $b:ident, $c:ident $(, $bias:ident: $along:ident)?; $row:ident, $column:ident, $acc:ident $(, adds $adds:literal)?|
        -> $out:ident { $($body:tt)* })*) => {$(
        $(#[$doc])*
        #[autotune(
            key = { $batch: $c.dim(0), $m: $c.dim(1), $n: $c.dim(2), $k: $a.dim(2) },
            space = [
                // Tensor cores of Hopper: 128 bytes of K in a step, four or eight warps that multiply.
                { BM: 64, BN: [16, 32, 64, 128, 256], BK: [64, 128], num_warps: 4, num_stages: [4, 5, 6, 7] },
                { BM: 128, BN: [64, 128, 256], BK: 64, num_warps: 8, num_stages: [3, 4, 5, 6] },
                // The same by four warps and four more that take turns at tiles.
                { BM: 128, BN: 128, BK: 64, num_warps: 4, num_stages: [5, 6] },
                // Two blocks that bring the right operand for each other.
                { BM: 256, BN: 128, BK: 64, num_warps: [4, 8], num_stages: [5, 6], cluster: 2 },
                { BM: 256, BN: 256, BK: 64, num_warps: 8, num_stages: [3, 4], cluster: 2 },
                { BM: 128, BN: [64, 128, 256], BK: 64, num_warps: 4, num_stages: [4, 6, 7], cluster: 2 },
                // Tensor cores of Ampere.
                { BM: [64, 128], BN: [64, 128], BK: [32, 64], num_warps: [4, 8], num_stages: [2, 3, 4] },
                // Multiply-adds of f32 and f64.
                { BM: [32, 64, 128], BN: [32, 64, 128, 256], BK: [8, 16, 32], num_warps: [4, 8], num_stages: [2, 3] },
            ],
            grid = |t| Grid::x($batch * $m.div_ceil(t.BM) * $n.div_ceil(t.BN)),
            example = { $a: [$batch, $m, $k], $b: [$batch, $k, $n], $($bias: [$along],)? $c: [$batch, $m, $n] },
            prune = $fits,
            heuristic = $pick,
            table = include_str!("../tuned/h200.jsonl"),
        )]
        #[kernel]
        pub fn $name<T: Float, A: Float, const BM: usize, const BN: usize, const BK: usize>(
            $a: View<T, 3>,
            $b: View<T, 3>,
            $($bias: View<T, 1>,)?
            $c: ViewMut<$out, 3>,
        ) {
            let (m, n) = ($c.dim(1), $c.dim(2));
            for tile in persistent($c.dim(0) * cdiv(m, BM) * cdiv(n, BN)) {
                let (batch, $row, $column) = scheduled_tile::<BM, BN>(tile, m, n);
                let at = (batch, $row, $column);
                let start = start_of::<$out, A, BM, BN>($c, at, 0 $(+ $adds)?);
                let $acc = product::<T, A, BM, BN, BK>($a, $b, start, at, (0, $a.dim(2)));
                let y = { $($body)* };
                $c.store([batch, $row, $column], y.to::<$out>().expand_dims(0));
            }
        }
    )*};
}

products! {
    (batch, m, n, k)

    /// `c = a b` with `a: [batch, m, k]`, `b: [batch, k, n]`, `c: [batch, m, n]`, accumulated in `A`.
    ///
    /// As many programs as tiles are right, and fewer too: where the GPU runs one program a
    /// multiprocessor, the loads of its next tile overlap the store of its last.
    matmul, fits, pick: |a, b, c; row, column, acc| -> T { acc }

    /// [`matmul`] with the sums as they are: parts of a product whose K is cut, which something adds up.
    matmul_wide, fits_wide, pick_wide: |a, b, c; row, column, acc| -> A { acc }

    /// [`matmul`] plus what is in `c`, with which the sums begin, rounded once.
    matmul_add, fits_add, pick_add: |a, b, c; row, column, acc, adds 1| -> T { acc }

    /// [`matmul_add`] where `c` is as wide as the sums.
    matmul_add_wide, fits_add_wide, pick_add_wide: |a, b, c; row, column, acc, adds 1| -> A { acc }

    /// [`matmul`] plus `bias: [n]` in every row.
    matmul_bias, fits_bias, pick_bias: |a, b, c, bias: n; row, column, acc| -> T {
        acc + bias.load::<BN>([column]).to::<A>().row()
    }

    /// Exact GELU of [`matmul_bias`].
    matmul_bias_gelu, fits_bias_gelu, pick_bias_gelu: |a, b, c, bias: n; row, column, acc| -> T {
        gelu_of(acc + bias.load::<BN>([column]).to::<A>().row())
    }

    /// [`matmul`] plus `bias: [m]` in every column.
    matmul_bias_down, fits_bias_down, pick_bias_down: |a, b, c, bias: m; row, column, acc| -> T {
        acc + bias.load::<BM>([row]).to::<A>().col()
    }

    /// Exact GELU of [`matmul_bias_down`].
    matmul_bias_gelu_down, fits_bias_gelu_down, pick_bias_gelu_down: |a, b, c, bias: m; row, column, acc| -> T {
        gelu_of(acc + bias.load::<BM>([row]).to::<A>().col())
    }

    /// The larger of [`matmul_bias`] and 0.
    matmul_bias_relu, fits_bias_relu, pick_bias_relu: |a, b, c, bias: n; row, column, acc| -> T {
        maximum(acc + bias.load::<BN>([column]).to::<A>().row(), A::ZERO)
    }

    /// The larger of [`matmul_bias_down`] and 0.
    matmul_bias_relu_down, fits_bias_relu_down, pick_bias_relu_down: |a, b, c, bias: m; row, column, acc| -> T {
        maximum(acc + bias.load::<BM>([row]).to::<A>().col(), A::ZERO)
    }

    /// SiLU of [`matmul_bias`].
    matmul_bias_silu, fits_bias_silu, pick_bias_silu: |a, b, c, bias: n; row, column, acc| -> T {
        silu_of(acc + bias.load::<BN>([column]).to::<A>().row())
    }

    /// SiLU of [`matmul_bias_down`].
    matmul_bias_silu_down, fits_bias_silu_down, pick_bias_silu_down: |a, b, c, bias: m; row, column, acc| -> T {
        silu_of(acc + bias.load::<BM>([row]).to::<A>().col())
    }
}

macro_rules! tf32_products {
    (($batch:ident, $m:ident, $n:ident, $k:ident) $($(#[$doc:meta])* $name:ident, $fits:path, $pick:path:
        |$a:ident, $b:ident, $c:ident; $at:ident, $acc:ident| { $($body:tt)* })*) => {$(
        $(#[$doc])*
        #[autotune(
            key = { $batch: $c.dim(0), $m: $c.dim(1), $n: $c.dim(2), $k: $a.dim(2) },
            space = [
                { BM: 64, BN: [16, 32, 64, 128, 256], BK: [32, 64], num_warps: 4, num_stages: [4, 5, 6, 7] },
                { BM: 128, BN: [64, 128, 256], BK: 32, num_warps: 8, num_stages: [3, 4, 5, 6] },
                { BM: [64, 128], BN: [64, 128], BK: [16, 32], num_warps: [4, 8], num_stages: [2, 3, 4] },
            ],
            grid = |t| Grid::x($batch * $m.div_ceil(t.BM) * $n.div_ceil(t.BN)),
            example = { $a: [$batch, $m, $k], $b: [$batch, $k, $n], $c: [$batch, $m, $n] },
            prune = $fits,
            heuristic = $pick,
            table = include_str!("../tuned/h200.jsonl"),
            // Tensor cores may round where the CPU cuts.
            tolerance = 4e-3,
        )]
        #[kernel]
        pub fn $name<const BM: usize, const BN: usize, const BK: usize>(
            $a: View<f32, 3>,
            $b: View<f32, 3>,
            $c: ViewMut<f32, 3>,
        ) {
            let (m, n, k) = ($c.dim(1), $c.dim(2), $a.dim(2));
            for tile in persistent($c.dim(0) * cdiv(m, BM) * cdiv(n, BN)) {
                let (batch, row, column) = scheduled_tile::<BM, BN>(tile, m, n);
                let mut $acc = zeros::<f32, BM, BN>();
                for p in range(0, k, BK) {
                    let u = $a.load::<1, BM, BK>([batch, row, p]).squeeze(0);
                    let v = $b.load::<1, BK, BN>([batch, p, column]).squeeze(0);
                    $acc = dot_tf32(u, v, $acc);
                }
                let $at = (batch, row, column);
                $c.store([batch, row, column], ($($body)*).expand_dims(0));
            }
        }
    )*};
}

tf32_products! {
    (batch, m, n, k)

    /// [`matmul`] of f32 by tensor cores, which round the operands to tf32: 10 bits of mantissa.
    matmul_tf32, fits_tf32, pick_tf32: |a, b, c; _at, acc| { acc }

    /// [`matmul_tf32`] plus what is in `c`.
    matmul_add_tf32, fits_add_tf32, pick_add_tf32: |a, b, c; at, acc| {
        acc + c.load::<1, BM, BN>([at.0, at.1, at.2]).squeeze(0)
    }
}

macro_rules! choices {
    ($($kernel:ident, $fits:ident, $pick:ident: $precision:expr;)*) => {$(
        /// The choice for the kernel of this name.
        pub(crate) fn $pick(problem: &Problem<'_>) -> ($kernel::Consts, LaunchOptions) {
            let ([m, n, k], options) = tiles::tile(problem, $precision);
            ($kernel::Consts { BM: m, BN: n, BK: k }, options)
        }

        /// Whether the kernel of this name can run so, and may be fast.
        pub(crate) fn $fits(
            consts: $kernel::Consts,
            options: LaunchOptions,
            problem: &Problem<'_>,
        ) -> bool {
            let $kernel::Consts { BM: m, BN: n, BK: k } = consts;
            tiles::is_legal([m, n, k], options, problem, $precision)
        }
    )*};
}

choices! {
    matmul, fits, pick: DotPrecision::Ieee;
    matmul_wide, fits_wide, pick_wide: DotPrecision::Ieee;
    matmul_add, fits_add, pick_add: DotPrecision::Ieee;
    matmul_add_wide, fits_add_wide, pick_add_wide: DotPrecision::Ieee;
    matmul_bias, fits_bias, pick_bias: DotPrecision::Ieee;
    matmul_bias_gelu, fits_bias_gelu, pick_bias_gelu: DotPrecision::Ieee;
    matmul_bias_down, fits_bias_down, pick_bias_down: DotPrecision::Ieee;
    matmul_bias_gelu_down, fits_bias_gelu_down, pick_bias_gelu_down: DotPrecision::Ieee;
    matmul_bias_relu, fits_bias_relu, pick_bias_relu: DotPrecision::Ieee;
    matmul_bias_relu_down, fits_bias_relu_down, pick_bias_relu_down: DotPrecision::Ieee;
    matmul_bias_silu, fits_bias_silu, pick_bias_silu: DotPrecision::Ieee;
    matmul_bias_silu_down, fits_bias_silu_down, pick_bias_silu_down: DotPrecision::Ieee;
    matmul_tf32, fits_tf32, pick_tf32: DotPrecision::Tf32;
    matmul_add_tf32, fits_add_tf32, pick_add_tf32: DotPrecision::Tf32;
}
