//! Launches of convolutions of groups of few channels.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::{Grid, LaunchOptions};
use kernels::conv_few as device;

use super::super::convolution::Convolution;
use super::super::{accumulate_dtype, launch_as, own_view};
use super::job::{Job, Walk, bias, integers, looks, moves, share, taps};
use crate::error::Result;
use crate::tensor::Tensor;

/// Channels of a group that are summed, from which on products of matrices pay.
const FEW: usize = 4;

/// Summed channels up to which a program goes through all of them for few that are made.
const SUMMED: usize = 64;

/// Whether a group's sums are of few channels, or would leave most columns of a product of multiply-adds empty, which has
/// 16 at least. Tensor cores have columns to spare.
pub(super) fn suits(job: &Job, dtype: DType) -> bool {
    let Job { groups, summed, made, .. } = *job;
    are_few(groups, summed) || groups > 1 && made < FEW && summed <= SUMMED && dtype.bytes() >= 4
}

/// Whether sums over the channels of a group are of few.
pub(super) fn are_few(groups: usize, summed: usize) -> bool {
    groups > 1 && summed < FEW
}

/// Elements of one program.
const BLOCK: usize = 1024;
/// Taps of a line that are unrolled, at most.
const MOST_TAPS: usize = 16;

/// Rows and columns of a block.
fn block(walks: &[Walk; 3]) -> [usize; 2] {
    let [_, down, across] = walks.map(|walk| walk.count.next_power_of_two());
    let wide = |columns: &usize| walks[2].count.div_ceil(*columns) * columns;
    // The widest that leaves the fewest columns unused, of a warp or more.
    let columns = [128, 64, 32].into_iter().min_by_key(wide).unwrap_or(32);
    let columns = if down == 1 { across.clamp(32, BLOCK) } else { columns.min(across.max(16)) };
    [(BLOCK / columns).min(down.max(1)), columns]
}

/// Channels of a program, `most` or fewer: most of them are there.
fn channels(made: usize, most: usize) -> usize {
    let fits = |&n: &usize| n <= most && 4 * made >= 3 * made.next_multiple_of(n);
    [32, 16, 8, 4, 2].into_iter().find(fits).unwrap_or(1)
}

fn options() -> LaunchOptions {
    LaunchOptions { num_warps: Some(4), ..LaunchOptions::default() }
}

/// The result, or the gradient of the input.
pub(super) fn run(job: &Job, inputs: &[&Tensor], y: &Tensor) -> Result<()> {
    let (weight, x) = (job.weight(inputs[1])?, inputs[0].contiguous()?);
    for walks in &job.launches {
        let mut args = vec![own_view(&weight, false), own_view(&x, false), bias(inputs)];
        args.push(job.own(y, walks)?);
        let numbers = taps(walks).chain(moves(walks)).chain(looks(walks));
        args.extend(integers(numbers.chain(job.numbers(walks))));
        let [depth, down, across] = walks.map(|walk| walk.count);
        let [rows, columns] = block(walks);
        let channels = channels(job.made, BLOCK / (rows * columns));
        let planes = job.batch * job.groups * job.made.div_ceil(channels) * depth;
        let grid = Grid::x(planes * down.div_ceil(rows) * across.div_ceil(columns));
        let of_line = walks[2].taps.max(1);
        let line = (1..=MOST_TAPS).rev().find(|n| of_line.is_multiple_of(*n)).unwrap_or(1);
        let consts = [channels, rows, columns, line].map(|n| n as i64);
        let dtypes = [y.dtype(), accumulate_dtype(y.dtype())];
        launch_as(&device::conv_few::KERNEL, y, grid, &dtypes, &consts, options(), &args)?;
    }
    Ok(())
}

/// The gradient of weights in parts `[parts, groups * O, C, kernel]`.
pub(super) fn weights(shape: &Convolution, dy: &Tensor, x: &Tensor) -> Result<Tensor> {
    let Convolution { batch, groups, inputs, outputs, ref axes } = *shape;
    let (dy, x) = (dy.contiguous()?, x.contiguous()?);
    let walks = axes.each_ref().map(Walk::of_result);
    let [deep, down, across] = walks.map(|walk| walk.taps);
    let several = across.next_power_of_two().min(8);
    let programs = groups * outputs * inputs * deep * down * across.div_ceil(several);
    let places = shape.places();
    let positions: usize = crate::shape::product(walks.iter().map(|walk| walk.count));
    let block = positions.next_power_of_two().clamp(64, 2048 / several);
    let terms = [batch, positions.div_ceil(block)];
    let share = share(&x, 16, groups * outputs * inputs * places, programs, terms);
    let parts = batch.div_ceil(share);
    let wide = accumulate_dtype(x.dtype());
    let lead = [parts, groups * outputs, inputs];
    let sums = Tensor::uninitialized(
        &[lead[0], lead[1], lead[2], deep * down, across],
        (wide, x.device()),
    )?;
    let mut args = vec![own_view(&dy, false), own_view(&x, false), own_view(&sums, true)];
    let numbers = [outputs as i64, share as i64, down as i64];
    args.extend(integers(numbers.into_iter().chain(moves(&walks)).chain(looks(&walks))));
    let consts = [several as i64, block as i64];
    let (grid, dtypes) = (Grid::x(parts * programs), [x.dtype(), wide]);
    let kernel = &device::conv_few_weight::KERNEL;
    launch_as(kernel, &sums, grid, &dtypes, &consts, options(), &args)?;
    sums.reshape(&[lead[0], lead[1], lead[2], places])
}
