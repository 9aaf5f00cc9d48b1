//! Which tile a matrix product is computed in, where nothing was measured: what [`genesis_kernel::tuning::products`] is
//! asked, of the arguments of a launch.

use genesis_kernel::autotune::{Problem, Unit};
use genesis_kernel::ir::{DType, DotPrecision};
use genesis_kernel::kernel::LaunchOptions;
use genesis_kernel::knobs;
use genesis_kernel::runtime::Arg;
use genesis_kernel::tuning::products::{CPU_TILE, F8Sums, Product, Tile};
use genesis_kernel::tuning::split_k::SplitK;

/// The product of a problem, whose sizes are batch, M, N and K.
fn product<'a>(problem: &Problem<'a>, precision: DotPrecision, is_fed_by_tma: bool) -> Product<'a> {
    Product {
        machine: problem.machine,
        dtype: dtype(problem),
        precision,
        sizes: [0, 1, 2, 3].map(|i| problem.sizes.get(i).copied().unwrap_or(1)),
        is_fed_by_tma,
        is_off_lines: is_off_lines(problem),
    }
}

/// Bytes of a cache line.
const LINE: i64 = 128;

/// Of each operand, whether its rows begin off cache lines.
fn is_off_lines(problem: &Problem<'_>) -> [bool; 2] {
    [0, 1].map(|operand| match problem.args.get(operand) {
        Some(Arg::View(view)) => {
            let bytes = view.ptr.dtype.bytes() as i64;
            view.strides()
                .iter()
                .rev()
                .take(2)
                .any(|&stride| stride != 1 && stride * bytes % LINE != 0)
        }
        _ => false,
    })
}

/// The operands' dtype.
fn dtype(problem: &Problem<'_>) -> DType {
    problem.dtypes.first().copied().unwrap_or(DType::F32)
}

/// Whether TMA can bring the operands to MMAs that read shared memory: every address and stride is a multiple of 16 bytes,
/// and what has not 16 bits follows each other along K.
fn tma_can_feed(problem: &Problem<'_>, precision: DotPrecision) -> bool {
    let forms = problem.forms();
    let operands = forms.get(..2).unwrap_or("x");
    let suits = match Unit::of(dtype(problem), precision) {
        Unit::Half if dtype(problem).bytes() == 2 => !operands.contains('x'),
        Unit::Half | Unit::Tf32 => operands == "rc",
        Unit::Single | Unit::Double => false,
    };
    suits && problem.machine.gpu().is_some_and(|gpu| gpu.features.tma_feeds_mma())
}

/// Whether the compiler lets it.
fn is_fed_by_tma(problem: &Problem<'_>, precision: DotPrecision) -> bool {
    knobs::get().tma && tma_can_feed(problem, precision)
}

/// Extents of a tile, and options of its launch; on a processor any of them with a tile of its own.
fn launched(tile: Option<Tile>, on_cpu: [usize; 3]) -> ([usize; 3], LaunchOptions) {
    let Some(Tile { m, n, k, warps, stages }) = tile else {
        return (on_cpu, LaunchOptions::default());
    };
    let (num_warps, num_stages) = (Some(warps), Some(stages));
    ([m, n, k], LaunchOptions { num_warps, num_stages, ..LaunchOptions::default() })
}

/// The tile that a product is expected to be fastest in.
pub(crate) fn tile(problem: &Problem<'_>, precision: DotPrecision) -> ([usize; 3], LaunchOptions) {
    let product = product(problem, precision, is_fed_by_tma(problem, precision));
    launched(product.tile(), product.cpu_tile())
}

/// How a product of 16-bit floats is cut by [`mod@crate::split_k`], where that is faster than whole tiles.
pub fn split_k(problem: &Problem<'_>) -> Option<(Tile, SplitK)> {
    let precision = DotPrecision::Ieee;
    product(problem, precision, is_fed_by_tma(problem, precision)).split_k()
}

/// The same of 8-bit floats.
pub(crate) fn tile_f8(problem: &Problem<'_>, sums: F8Sums) -> ([usize; 3], LaunchOptions) {
    let is_fed_by_tma = is_fed_by_tma(problem, DotPrecision::Ieee);
    launched(product(problem, DotPrecision::Ieee, is_fed_by_tma).tile_f8(sums), CPU_TILE)
}

/// A tile with what options leave open.
fn with_options([m, n, k]: [usize; 3], options: LaunchOptions) -> Tile {
    let (warps, stages) = (options.num_warps.unwrap_or(4), options.num_stages.unwrap_or(2));
    Tile { m, n, k, warps, stages }
}

/// Whether a product can be computed in such a tile, and may be fast.
pub(crate) fn is_legal(
    tile: [usize; 3],
    options: LaunchOptions,
    problem: &Problem<'_>,
    precision: DotPrecision,
) -> bool {
    // One of each tile is enough for a processor: the one that says what it leaves open.
    if problem.machine.gpu().is_none()
        && (options.num_warps.is_none() || options.num_stages.is_none())
    {
        return false;
    }
    let product = product(problem, precision, is_fed_by_tma(problem, precision));
    product.suits(&with_options(tile, options), options.cluster.unwrap_or(1) as usize)
}

/// The same of 8-bit floats.
pub(crate) fn is_legal_f8(
    tile: [usize; 3],
    options: LaunchOptions,
    problem: &Problem<'_>,
    sums: F8Sums,
) -> bool {
    let is_fed_by_tma = is_fed_by_tma(problem, DotPrecision::Ieee);
    product(problem, DotPrecision::Ieee, is_fed_by_tma).suits_f8(&with_options(tile, options), sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::matmul;
    use genesis_kernel::autotune::Machine;
    use genesis_kernel::runtime::{Device, PtrArg, ViewArg};
    use genesis_kernel::target::Target;

    fn view(dims: [i64; 3], dtype: DType) -> Arg {
        let device = Device::Cuda(0);
        let ptr = PtrArg { device, address: 256, bytes: 1 << 40, dtype, mutable: true };
        let strides = [dims[1] * dims[2], dims[2], 1];
        Arg::View(ViewArg::new(ptr, &dims, &strides).expect("three axes are under the limit"))
    }

    /// The tile for a product on a target: `BMxBNxBK warps stages`.
    fn picked(target: &Target, dtype: DType, [m, n, k]: [i64; 3]) -> String {
        let machine = Machine::of_target(target);
        let args = [view([1, m, k], dtype), view([1, k, n], dtype), view([1, m, n], dtype)];
        let sizes = [1, m, n, k];
        let dtypes = [dtype, DType::F32];
        let problem = Problem {
            machine: &machine,
            dtypes: &dtypes,
            sizes: &sizes,
            present: &[],
            args: &args,
        };
        let precision = DotPrecision::Ieee;
        let product = product(&problem, precision, tma_can_feed(&problem, precision));
        let ([m, n, k], options) = launched(product.tile(), product.cpu_tile());
        let warps = options.num_warps.map_or("-".to_owned(), |n| n.to_string());
        let stages = options.num_stages.map_or("-".to_owned(), |n| n.to_string());
        format!("{m}x{n}x{k} {warps} {stages}")
    }

    #[test]
    fn an_h200_gets_what_is_fastest_on_it_under_load() {
        let of = |m, n, k| picked(&Target::sm_90a(), DType::BF16, [m, n, k]);
        assert_eq!(of(512, 512, 512), "64x32x64 4 7");
        assert_eq!(of(1024, 1024, 1024), "64x128x64 4 7");
        // Of a short K epilogues take a third of the time, which another warpgroup's main loop hides.
        assert_eq!(of(8192, 4864, 896), "128x128x64 4 6");
        assert_eq!(of(4096, 4096, 1024), "128x128x64 4 6");
        for n in [2048, 4096, 8192, 16384] {
            assert_eq!(of(n, n, n), "128x256x64 8 4");
        }
    }

    #[test]
    fn rows_off_cache_lines_want_tiles_that_load_less() {
        let of = |m, n, k| picked(&Target::sm_90a(), DType::BF16, [m, n, k]);
        assert_eq!(of(3000, 5120, 1024), "128x128x64 4 6");
        assert_eq!(of(3000, 5000, 1000), "128x256x64 8 4");
    }

    #[test]
    fn a_row_of_outputs_is_computed_as_a_column() {
        // The framework swaps the operands, so that the long axis is the one of the rows.
        let of = |n, k| picked(&Target::sm_90a(), DType::BF16, [n, 1, k]);
        assert_eq!(of(14336, 4096), "64x16x64 4 7");
        assert_eq!(of(151936, 896), "64x16x64 4 7");
    }

    #[test]
    fn what_tma_cannot_bring_is_copied_by_the_threads() {
        let h200 = Target::sm_90a();
        assert_eq!(picked(&h200, DType::BF16, [1024, 1023, 1024]), "64x128x32 4 4");
        assert_eq!(picked(&h200, DType::F32, [4096; 3]), "128x128x32 8 3");
        assert_eq!(picked(&h200, DType::F32, [256; 3]), "32x32x16 4 2");
        assert_eq!(picked(&Target::sm_80(), DType::F16, [4096; 3]), "128x128x32 4 4");
        assert_eq!(picked(&Target::Cpu, DType::F32, [64; 3]), "32x32x16 - -");
        assert_eq!(picked(&Target::Cpu, DType::I8, [64; 3]), "64x64x64 - -");
        assert_eq!(picked(&Target::Cpu, DType::I8, [64, 64, 63]), "32x32x16 - -");
    }

    #[test]
    fn integers_and_f64_get_tiles_of_tensor_cores() {
        // The right operand has its rows along K nowhere here, which Hopper's would want of bytes.
        assert_eq!(picked(&Target::sm_90a(), DType::I8, [4096; 3]), "64x128x64 4 4");
        assert_eq!(picked(&Target::sm_80(), DType::U8, [256; 3]), "64x64x64 4 4");
        assert_eq!(picked(&Target::sm_90a(), DType::F64, [4096; 3]), "128x64x16 8 4");
        assert_eq!(picked(&Target::sm_80(), DType::F64, [256; 3]), "32x32x16 4 4");
    }

    #[test]
    fn every_target_has_configurations() {
        for (target, dtype, at_least) in [
            (Target::sm_90a(), DType::BF16, 10),
            (Target::sm_90a(), DType::F32, 10),
            (Target::sm_80(), DType::F16, 10),
            (Target::Cpu, DType::F32, 2),
        ] {
            let machine = Machine::of_target(&target);
            let args = [[1, 4096, 4096]; 3].map(|dims| view(dims, dtype));
            let (sizes, dtypes) = ([1, 4096, 4096, 4096], [dtype, DType::F32]);
            let problem = Problem {
                machine: &machine,
                dtypes: &dtypes,
                sizes: &sizes,
                present: &[],
                args: &args,
            };
            let tuning = matmul::KERNEL.tuning().expect("it has #[autotune]");
            let configs = tuning.configs(matmul::KERNEL.ast);
            let n = configs.iter().filter(|config| tuning.allows(config, &problem)).count();
            assert!(n >= at_least, "{target} {dtype}: {n} of {}", configs.len());
        }
    }
}
