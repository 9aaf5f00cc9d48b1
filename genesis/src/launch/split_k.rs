//! Products whose tiles do not come out even, cut along K: two launches of [`kernels::split_k`].

use genesis_kernel::autotune::{Problem, machine};
use genesis_kernel::ir::DType;
use genesis_kernel::kernel::{Grid, KernelDef, LaunchOptions};
use genesis_kernel::runtime::Arg;
use genesis_kernel::tuning::products::Tile;
use genesis_kernel::tuning::split_k::{LEAST_FLOPS, SUM_ROWS, SplitK};
use kernels::split_k as device;

use super::arguments::{scalar, view};
use super::start::{is_measured, launch_as};
use crate::error::Result;
use crate::tensor::Tensor;

/// What a product is, of which [`super::matmul`] is asked.
pub(super) struct Uncut<'a> {
    /// The kernel that computes it in whole tiles.
    pub kernel: &'static KernelDef,
    /// Its operands and result, in its order.
    pub args: &'a [Arg; 3],
    pub dtypes: &'a [DType],
    /// Batch, M, N and K, as the kernel sees them.
    pub sizes: [usize; 4],
    /// Whether it adds to what is there.
    pub adds: bool,
}

/// The tile and the cut with which a product is expected to be faster than in whole tiles; none where somebody measured
/// whole ones.
pub(super) fn cut(on: &Tensor, of: &Uncut<'_>) -> Result<Option<(Tile, SplitK)>> {
    let flops = of.sizes.iter().fold(2usize, |all, &size| all.saturating_mul(size));
    if flops < LEAST_FLOPS || of.dtypes[0].bytes() != 2 {
        return Ok(None);
    }
    let stream = &on.device().stream();
    if is_measured(of.kernel, stream, of.dtypes, of.args)? {
        return Ok(None);
    }
    let sizes = of.sizes.map(|size| size as i64);
    let problem = Problem {
        machine: machine(stream)?,
        dtypes: of.dtypes,
        sizes: &sizes,
        present: &[],
        args: of.args,
    };
    Ok(kernels::tiles::split_k(&problem))
}

/// The product, so cut.
pub(super) fn run(c: &Tensor, of: &Uncut<'_>, (tile, cut): (Tile, SplitK)) -> Result<()> {
    let wide = of.dtypes[1];
    let (product, sum) = match (c.dtype() == of.dtypes[0], of.adds) {
        (true, false) => (&device::split_k::KERNEL, &device::split_k_sum::KERNEL),
        (true, true) => (&device::split_k_add::KERNEL, &device::split_k_sum::KERNEL),
        (false, false) => (&device::split_k_wide::KERNEL, &device::split_k_sum_wide::KERNEL),
        (false, true) => (&device::split_k_add_wide::KERNEL, &device::split_k_sum_wide::KERNEL),
    };
    let Tile { m, n, k, warps, stages } = tile;
    let sums = Tensor::uninitialized(&[cut.units(), m, n], (wide, c.device()))?;
    let sums = |mutable| view(&sums, sums.shape(), sums.strides(), mutable);
    let [split, parts, each] =
        [cut.split, cut.parts, cut.each].map(|n| scalar(DType::I64, n as f64));
    let [a, b, result] = of.args;
    let [batch, rows, columns, _] = of.sizes;
    let whole = batch * rows.div_ceil(m) * columns.div_ceil(n) - cut.split;
    let options = LaunchOptions {
        num_warps: Some(warps),
        num_stages: Some(stages),
        ..LaunchOptions::default()
    };
    let consts = [m as i64, n as i64, k as i64];
    let args = [*a, *b, *result, sums(true), split, parts, each];
    let grid = Grid::x(cut.units() + whole);
    launch_as(product, c, grid, of.dtypes, &consts, options, &args)?;
    let consts = [m as i64, n as i64, SUM_ROWS as i64];
    let args = [sums(false), *result, split, parts];
    let grid = Grid::x(cut.split * m / SUM_ROWS);
    launch_as(sum, c, grid, of.dtypes, &consts, LaunchOptions::default(), &args)
}
