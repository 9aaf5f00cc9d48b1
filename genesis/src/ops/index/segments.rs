//! Sums and products at indices of a GPU, the same bit for bit each time: values are sorted by their place, and each run
//! of equal places is folded into the tensor, which is read and written where there is such a run and nowhere else.
//!
//! ```text
//! at most FEW values   one launch, which compares each with each and folds those that are equal
//! more                 place_words, a pass for each 8 bits of a place, add_segments, join_sums
//! ```

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::{Grid, KernelDef};
use genesis_kernel::runtime::{Arg, Device};
use kernels::segments as device;

use crate::error::Result;
use crate::launch;
use crate::ops::order::words_in_order;
use crate::shape::product;
use crate::tensor::Tensor;

/// Values, at most, that are compared each with each.
const FEW: usize = 4096;
/// Values of a program that compares, and what it compares them with at a time: four for each thread, which has all of the
/// program's own, so that it finds the place of each once.
const OWN: usize = 8;
const COMPARED: usize = 512;
/// Words of a program that folds a part, and blocks that a program joins at a time.
const BLOCK: usize = 1024;
const JOINED: usize = 128;

/// What becomes of a value and what is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fold {
    Sum,
    Product,
}

impl Fold {
    fn pick(self, sum: &'static KernelDef, product: &'static KernelDef) -> &'static KernelDef {
        match self {
            Fold::Sum => sum,
            Fold::Product => product,
        }
    }
}

/// Where values go: an index along one axis of a dense tensor, of which it has all other elements.
#[derive(Clone, Copy)]
pub(super) struct Line {
    /// How many elements the axis has.
    extent: usize,
    /// How many there are behind each.
    inner: usize,
    /// How many values have the same coordinates before the axis.
    span: usize,
    /// Whether an index below 0 counts from the end.
    wraps: bool,
}

impl Line {
    /// Of an index of `index` along an axis of a tensor of `shape`; none where it leaves elements of other axes out.
    pub(super) fn along(shape: &[usize], axis: usize, index: &[usize]) -> Option<Line> {
        let is_whole = index.len() == shape.len()
            && (0..index.len()).all(|a| a == axis || index[a] == shape[a]);
        let inner = product(shape.get(axis + 1..)?);
        let span = product(index.get(axis..)?).max(1);
        is_whole.then_some(Line { extent: shape[axis], inner: inner.max(1), span, wraps: true })
    }

    /// Of places in `n` elements, as they are.
    pub(super) fn of_places(n: usize, count: usize) -> Line {
        Line { extent: n, inner: 1, span: count.max(1), wraps: false }
    }
}

/// Whether `count` values at places of `y` are folded here: on a GPU, of which a word holds a place and a position.
pub(super) fn folds(y: (DType, Device), elements: usize, count: usize) -> bool {
    let most = 1 << 31;
    y.0.is_number() && y.1 != Device::Cpu && elements < most && count < most
}

fn number(value: usize) -> Arg {
    launch::number(DType::I64, value as f64)
}

/// No flag: an index that is not there is left out, and told to nobody.
pub(super) fn untold(flag: [Arg; 2]) -> [Arg; 2] {
    [flag[0], Arg::Scalar(Scalar::int(DType::I64, 0))]
}

/// Folds values into a dense `y` at what an index names, both in row-major order. What is wrong of the index goes to
/// `flag`.
#[track_caller]
pub(super) fn fold_into(
    y: &Tensor,
    [index, values]: [&Tensor; 2],
    line: Line,
    fold: Fold,
    flag: [Arg; 2],
) -> Result<()> {
    let (n, count) = (y.numel(), values.numel());
    if n == 0 || count == 0 {
        return Ok(());
    }
    let (index, values) = (index.contiguous()?, values.contiguous()?);
    let wrap = if line.wraps { line.extent } else { 0 };
    let places = [count, line.extent, wrap, line.inner, line.span, n - 1].map(number);
    let bits = (usize::BITS - (n - 1).leading_zeros()).max(1) as usize;
    let dtypes = [y.dtype(), launch::accumulate_dtype(y.dtype())];
    if count <= FEW {
        let tensors = [(&index, false), (&values, false), (y, true)];
        let pointers = tensors.map(|(t, mutable)| launch::pointer(t, mutable));
        let args = [&pointers[..], &places[..5], &flag].concat();
        let kernel = fold.pick(&device::add_few::KERNEL, &device::multiply_few::KERNEL);
        let is_alone = i64::from(line.inner == 1 && line.span >= count);
        let (grid, consts) =
            (Grid::x(count.div_ceil(OWN)), [is_alone, OWN as i64, COMPARED as i64]);
        return launch::warped(kernel, y, grid, &dtypes, &consts, Some(4), &args);
    }
    let words = Tensor::uninitialized(&[count], (DType::I64, y.device()))?;
    let pointers = [launch::pointer(&index, false), launch::pointer(&words, true)];
    let args = [&pointers[..], &places, &flag].concat();
    let (grid, consts) = (Grid::x(count.div_ceil(BLOCK)), [BLOCK as i64]);
    launch::warped(&device::place_words::KERNEL, &words, grid, &[], &consts, None, &args)?;
    fold_words(y, [&words_in_order(&words, bits)?, &values], fold)
}

/// Folds values into `y` by their words, in order.
#[track_caller]
fn fold_words(y: &Tensor, [words, values]: [&Tensor; 2], fold: Fold) -> Result<()> {
    let count = words.numel();
    let blocks = count.div_ceil(BLOCK);
    let dtypes = [y.dtype(), launch::accumulate_dtype(y.dtype())];
    let part = || Tensor::uninitialized(&[blocks], (dtypes[1], y.device()));
    let (heads, tails) = (part()?, part()?);
    let tensors = [(words, false), (values, false), (y, true), (&heads, true), (&tails, true)];
    let pointers = tensors.map(|(t, mutable)| launch::pointer(t, mutable));
    let args = [&pointers[..], &[number(count)]].concat();
    let kernel = fold.pick(&device::add_segments::KERNEL, &device::multiply_segments::KERNEL);
    let grid = Grid::x(blocks);
    launch::warped(kernel, y, grid, &dtypes, &[BLOCK as i64], None, &args)?;
    if blocks == 1 {
        return Ok(());
    }
    let tensors = [(words, false), (y, true), (&heads, false), (&tails, false)];
    let pointers = tensors.map(|(t, mutable)| launch::pointer(t, mutable));
    let args = [&pointers[..], &[number(count), number(BLOCK)]].concat();
    let kernel = fold.pick(&device::join_sums::KERNEL, &device::join_products::KERNEL);
    launch::warped(kernel, y, Grid::x(blocks - 1), &dtypes, &[JOINED as i64], None, &args)
}
