//! Elements by an index along one axis, without a list of their places.

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::{Grid, KernelDef};
use genesis_kernel::runtime::Arg;
use genesis_kernel::tuning::elementwise::Tile;
use kernels::index as device;

use super::config::chip;
use super::{accumulate_dtype, launch_with, pointer, view};
use crate::error::Result;
use crate::shape::collapse_strides;
use crate::tensor::Tensor;

fn integer(value: i64) -> Arg {
    Arg::Scalar(Scalar::int(DType::I64, value))
}

/// A tensor and its axis that an index of its rank names elements of.
struct Along<'t> {
    t: &'t Tensor,
    axis: usize,
    index: &'t Tensor,
}

impl Along<'_> {
    /// Launches a kernel on tiles of the index. Its arguments are what `first` makes of the index and of what is beside
    /// it, in its shape and perhaps written; the steps along the axes; the extent and the step of the one that the index
    /// counts along; `last`. False where there are too many axes for a launch.
    fn launch(
        &self,
        (kernel, dtypes): (&'static KernelDef, &[DType]),
        beside: Option<(&Tensor, bool)>,
        first: impl Fn(Arg, Option<Arg>) -> Vec<Arg>,
        last: &[Arg],
    ) -> Result<bool> {
        let Along { t, axis, index } = *self;
        let mut steps = t.strides().to_vec();
        let step = std::mem::take(&mut steps[axis]);
        let own = beside.map_or(index, |(t, _)| t);
        let all = [index.strides(), own.strides(), &steps[..]];
        let (shape, strides) = collapse_strides(index.shape(), &all);
        let Some(pad) = 4_usize.checked_sub(shape.len()) else { return Ok(false) };
        let dims: Vec<usize> = std::iter::repeat_n(1, pad).chain(shape).collect();
        let full = |s: &[i64]| -> Vec<i64> {
            std::iter::repeat_n(0, pad).chain(s.iter().copied()).collect()
        };
        let mut args = first(
            view(index, &dims, &full(&strides[0]), false),
            beside.map(|(t, mutable)| view(t, &dims, &full(&strides[1]), mutable)),
        );
        args.extend(full(&strides[2]).into_iter().map(integer));
        args.extend([integer(t.shape()[axis] as i64), integer(step)]);
        args.extend_from_slice(last);
        let Tile { rows, cols, warps } = Tile::of(&chip(t.device()), 8, dims[2], dims[3]);
        let grid = Grid::x(dims[0] * dims[1] * dims[2].div_ceil(rows) * dims[3].div_ceil(cols));
        launch_with(kernel, t, grid, dtypes, &[rows as i64, cols as i64], warps, &args)?;
        Ok(true)
    }
}

/// `y[i, j] = x[index[i, j], j]` along axis 0, and so on; false where there are too many axes for a launch. What is wrong
/// of the index goes to `flag`.
pub(crate) fn taken_along(
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    y: &Tensor,
    flag: &[Arg; 2],
) -> Result<bool> {
    let first = |index: Arg, y: Option<Arg>| {
        [Some(pointer(x, false)), Some(index), y].into_iter().flatten().collect()
    };
    let kernel = (&device::take_along::KERNEL, &[x.dtype()][..]);
    Along { t: x, axis, index }.launch(kernel, Some((y, true)), first, flag)
}

/// Writes `value` where [`taken_along`] would read.
pub(crate) fn filled_along(
    y: &Tensor,
    axis: usize,
    index: &Tensor,
    value: Scalar,
    flag: &[Arg; 2],
) -> Result<bool> {
    let first = |index: Arg, _| vec![index, pointer(y, true)];
    let last = [Arg::Scalar(value), flag[0], flag[1]];
    let kernel = (&device::fill_along::KERNEL, &[y.dtype()][..]);
    Along { t: y, axis, index }.launch(kernel, None, first, &last)
}

/// Leaves the position in the index of the last that names each element of `winner`, where [`taken_along`] would read.
pub(crate) fn last_along(
    winner: &Tensor,
    axis: usize,
    index: &Tensor,
    flag: &[Arg; 2],
) -> Result<bool> {
    let first = |index: Arg, _| vec![index, pointer(winner, true)];
    let kernel = (&device::last_along::KERNEL, &[winner.dtype()][..]);
    Along { t: winner, axis, index }.launch(kernel, None, first, flag)
}

/// A kernel that changes keys where [`taken_along`] would read, by values in the shape of the index or without any.
pub(crate) fn changed_along(
    kernel: (&'static KernelDef, &[DType]),
    keys: &Tensor,
    axis: usize,
    (index, values): (&Tensor, Option<&Tensor>),
    last: &[Arg],
) -> Result<bool> {
    let first = |index: Arg, values: Option<Arg>| {
        [Some(index), values, Some(pointer(keys, true))].into_iter().flatten().collect()
    };
    let values = values.map(|values| (values, false));
    Along { t: keys, axis, index }.launch(kernel, values, first, last)
}

/// `y[a, i, b] = x[a, index[i], b]`. An index below 0 counts from the end where it `wraps`; one that is not there gives
/// zeros, and goes to `flag`.
pub(crate) fn take_slices(
    x: &Tensor,
    index: &Tensor,
    y: &Tensor,
    wraps: bool,
    flag: [Arg; 2],
) -> Result<()> {
    let (grid, consts, warps) = slices(y);
    let wrap = integer(if wraps { x.shape()[1] as i64 } else { 0 });
    let views =
        [super::own_view(x, false), super::own_view(index, false), super::own_view(y, true)];
    let args = [&views[..], &[wrap], &flag].concat();
    launch_with(&device::take_slices::KERNEL, y, grid, &[x.dtype()], &consts, warps, &args)
}

/// `y[a, d, b] = source[a, last[d], b]`, or `x[a, d, b]` where `last[d]` is below 0.
pub(crate) fn put_slices(x: &Tensor, last: &Tensor, source: &Tensor, y: &Tensor) -> Result<()> {
    let (grid, consts, warps) = slices(y);
    let read = [x, last, source].map(|t| super::own_view(t, false));
    let args = [&read[..], &[super::own_view(y, true)]].concat();
    launch_with(&device::put_slices::KERNEL, y, grid, &[x.dtype()], &consts, warps, &args)
}

/// How a kernel goes over slices of `y: [A, N, B]`.
fn slices(y: &Tensor) -> (Grid, [i64; 2], Option<u32>) {
    let [outer, n, inner] = [0, 1, 2].map(|axis| y.shape()[axis]);
    let Tile { rows, cols, warps } = Tile::of(&chip(y.device()), y.dtype().bytes(), n, inner);
    let grid = Grid::x(outer * n.div_ceil(rows) * inner.div_ceil(cols));
    (grid, [rows as i64, cols as i64], warps)
}

/// On the CPU: `sums[a, index[t], b] += values[a, t, b]`, in the order of `t`; with names, `values[a, names[t], b]`.
pub(crate) fn add_slices_in_order(
    (index, names): (&Tensor, Option<&Tensor>),
    values: &Tensor,
    sums: &Tensor,
) -> Result<()> {
    const WIDEST: usize = 512;
    let [outer, _, inner] = [0, 1, 2].map(|axis| sums.shape()[axis]);
    let cols = inner.next_power_of_two().min(WIDEST);
    let mut args = vec![super::own_view(index, false)];
    args.extend(names.map(|names| super::own_view(names, false)));
    args.extend([super::own_view(values, false), super::own_view(sums, true)]);
    let grid = Grid::x(outer * inner.div_ceil(cols));
    let kernel = match names {
        Some(_) => &device::add_named_slices_in_order::KERNEL,
        None => &device::add_slices_in_order::KERNEL,
    };
    let dtypes = [values.dtype(), sums.dtype()];
    launch_with(kernel, sums, grid, &dtypes, &[cols as i64], None, &args)
}

/// On the CPU: the larger of `y[a, index[t], b]` and `values[a, t, b]`, or the smaller; of what `y` holds where there is a
/// value nothing is left with `forgets`.
pub(crate) fn extreme_slices_in_order(
    index: &Tensor,
    values: &Tensor,
    y: &Tensor,
    (is_max, forgets): (bool, bool),
) -> Result<()> {
    const WIDEST: usize = 512;
    let [outer, _, inner] = [0, 1, 2].map(|axis| y.shape()[axis]);
    let cols = inner.next_power_of_two().min(WIDEST);
    let args = [
        super::own_view(index, false),
        super::own_view(values, false),
        super::own_view(y, true),
        Arg::Scalar(worst(y.dtype(), is_max)),
    ];
    let grid = Grid::x(outer * inner.div_ceil(cols));
    let consts = [i64::from(is_max), i64::from(forgets), cols as i64];
    let kernel = &device::extreme_slices_in_order::KERNEL;
    launch_with(kernel, y, grid, &[y.dtype()], &consts, None, &args)
}

/// What every number is larger than, or smaller.
fn worst(dtype: DType, is_max: bool) -> Scalar {
    let infinity = if is_max { f64::NEG_INFINITY } else { f64::INFINITY };
    let lowest = match dtype {
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => 0,
        _ => i64::MIN >> (64 - dtype.bits()),
    };
    match dtype.is_float() {
        true => Scalar::float(dtype, infinity),
        false => Scalar::int(dtype, if is_max { lowest } else { !lowest }),
    }
}

/// Where what is added along an axis goes.
pub(crate) struct Places {
    /// How far from each other elements of `[planes, rows, columns]` go.
    pub(crate) steps: [i64; 3],
    /// How many places an index may name, and how far they are from each other.
    pub(crate) extent: usize,
    /// See `extent`.
    pub(crate) step: i64,
    /// Rows and columns of one program; no two programs write to one place.
    pub(crate) share: [usize; 2],
    /// Whether an index below 0 counts from the end.
    pub(crate) wraps: bool,
}

/// On the CPU: adds `values: [P, R, C]` to sums at places, in row-major order. An index that is not there goes to
/// `flag`, or nowhere.
pub(crate) fn add_in_order(
    index: &Tensor,
    values: &Tensor,
    sums: &Tensor,
    places: &Places,
    flag: [Arg; 2],
) -> Result<()> {
    let Places { steps, extent, step, share: [rows, cols], wraps } = *places;
    let mut args =
        vec![super::own_view(index, false), super::own_view(values, false), pointer(sums, true)];
    args.extend(steps.map(integer));
    let wrap = if wraps { extent as i64 } else { 0 };
    args.extend([extent as i64, wrap, step, rows as i64, cols as i64].map(integer));
    args.extend(flag);
    let [planes, all_rows, all_cols] = [0, 1, 2].map(|axis| index.shape()[axis]);
    let grid = Grid::x(planes * all_rows.div_ceil(rows) * all_cols.div_ceil(cols));
    let (kernel, dtypes) = (&device::add_in_order::KERNEL, [values.dtype(), sums.dtype()]);
    debug_assert_eq!(sums.dtype(), accumulate_dtype(sums.dtype()));
    launch_with(kernel, sums, grid, &dtypes, &[], None, &args)
}
