//! Rows sorted by radix: which keys, how many passes, how rows are cut into parts.

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::{Grid, KernelDef};
use genesis_kernel::runtime::{Arg, Device};
use kernels::radix as device;

use crate::error::Result;
use crate::launch;
use crate::ops::index::exclusive;
use crate::tensor::Tensor;

/// Keys of a tile of a row's part on a GPU, and the warps that have it. Measured on an H200, positions of 16 M f32: 1.48 ms;
/// tiles of 4096 by 8 or 16 warps 1.54, of 1024 1.78, of 8192 by 32 warps 1.65.
const TILE: usize = 2048;
const WARPS: u32 = 8;
/// Keys that are counted at a time.
const COUNTED: usize = 4 * TILE;
/// Keys of a thread that sorts a row with others.
const WIDTH: usize = 8;
/// Keys of a row, at most, that one program sorts: 1024 threads have them.
pub(super) const ROW: usize = 8192;
/// Parts of a row from which on each becomes longer: those of a digit are added up by one program.
const PARTS: usize = 1024;
/// Bits of a digit, and how many digits there are.
pub(super) const DIGIT: usize = 8;
pub(super) const DIGITS: usize = 1 << DIGIT;

/// How values become keys: `(order - zero) ^ flip`, of which the low `bits` differ.
pub(super) struct Keys {
    pub(super) dtype: DType,
    pub(super) zero: i64,
    pub(super) flip: i64,
    pub(super) bits: usize,
}

pub(super) fn number(value: usize) -> Arg {
    launch::number(DType::I64, value as f64)
}

impl Keys {
    #[track_caller]
    pub(super) fn of(x: &Tensor, descending: bool) -> Result<Keys> {
        let bits = 8 * x.dtype().bytes();
        let dtype = match bits {
            8 => DType::I8,
            16 => DType::I16,
            32 => DType::I32,
            _ => DType::I64,
        };
        let turned = if descending { -1 } else { 0 };
        let is_signed = matches!(x.dtype(), DType::I8 | DType::I16 | DType::I32 | DType::I64);
        if is_signed && bits > 8 && x.device() == Device::Cpu {
            // Nothing is waited for on the CPU, and most integers are small.
            let of = |t: Tensor| -> Result<i64> {
                Ok(t.to_dtype(DType::I64)?.to_vec::<i64>()?.first().copied().unwrap_or(0))
            };
            let (low, high) = (of(x.min()?)?, of(x.max()?)?);
            let apart = (i128::from(high) - i128::from(low)) as u64;
            let differ = 64 - apart.leading_zeros() as usize;
            // `!(order - (high + 1))` is `high - order`, also where the sum is the smallest number again.
            let zero = if descending { high.checked_add(1).unwrap_or(i64::MIN) } else { low };
            return Ok(Keys { dtype, zero, flip: turned, bits: differ.max(1) });
        }
        let sign = if is_signed || x.dtype().is_float() { i64::MIN >> (64 - bits) } else { 0 };
        Ok(Keys { dtype, zero: 0, flip: sign ^ turned, bits })
    }

    /// The bits of all digits of a key.
    pub(super) fn mask(&self) -> u64 {
        u64::MAX >> (64 - DIGIT * self.bits.div_ceil(DIGIT))
    }

    pub(super) fn scalar(&self, value: i64) -> Arg {
        Arg::Scalar(Scalar::int(self.dtype, value))
    }
}

/// Keys with the positions where they stood.
pub(super) struct Pairs {
    pub(super) keys: Tensor,
    pub(super) at: Tensor,
}

impl Pairs {
    #[track_caller]
    pub(super) fn like(x: &Tensor, key: DType, position: DType) -> Result<Pairs> {
        let fresh = |dtype| Tensor::uninitialized(x.shape(), (dtype, x.device()));
        Ok(Pairs { keys: fresh(key)?, at: fresh(position)? })
    }
}

/// The positions of the elements of each row of `x: [rows, n]` in order; equals keep theirs.
#[track_caller]
pub(super) fn sorted(x: &Tensor, descending: bool) -> Result<Tensor> {
    sorted_by(x, &Keys::of(x, descending)?)
}

#[track_caller]
fn sorted_by(x: &Tensor, keys: &Keys) -> Result<Tensor> {
    let is_small = keys.dtype != DType::I64 && x.shape()[1] < 1 << 31;
    match x.device() {
        Device::Cpu => sorted_in_order(x, keys),
        Device::Cuda(_) if is_small && x.shape()[1] <= ROW => sorted_in_one_launch(x, keys),
        Device::Cuda(_) if is_small => sorted_words(x, keys),
        Device::Cuda(_) => sorted_pairs(x, keys),
    }
}

/// On the CPU.
#[track_caller]
fn sorted_in_order(x: &Tensor, keys: &Keys) -> Result<Tensor> {
    let position = if x.shape()[1] < 1 << 31 { DType::I32 } else { DType::I64 };
    let mut pairs = Pairs::like(x, keys.dtype, position)?;
    begin(x, keys, &pairs)?;
    let passes = keys.bits.div_ceil(DIGIT);
    for pass in 0..passes {
        let is_last = pass + 1 == passes;
        let next = Pairs::like(x, keys.dtype, if is_last { DType::I64 } else { position })?;
        in_order(&pairs, &next, keys.scalar((pass * DIGIT) as i64))?;
        pairs = next;
    }
    Ok(pairs.at)
}

/// On a GPU, of rows that a program holds.
#[track_caller]
fn sorted_in_one_launch(x: &Tensor, keys: &Keys) -> Result<Tensor> {
    let [rows, n] = [x.shape()[0], x.shape()[1]];
    let block = n.next_power_of_two().max(32 * WIDTH);
    let on = (DType::I64, x.device());
    let order = Tensor::uninitialized(&[rows, n], on)?;
    let x = x.contiguous()?;
    let kernel = match x.dtype().is_float() {
        true => &device::radix_sort_rows_of_floats::KERNEL,
        false => &device::radix_sort_rows_of_ints::KERNEL,
    };
    let args = [
        launch::pointer(&x, false),
        launch::pointer(&order, true),
        number(n),
        keys.scalar(keys.zero),
        keys.scalar(keys.flip),
        number(keys.bits.div_ceil(DIGIT)),
    ];
    let (dtypes, warps) = ([x.dtype(), keys.dtype], Some((block / WIDTH / 32) as u32));
    launch::warped(kernel, &order, Grid::x(rows), &dtypes, &[block as i64], warps, &args)?;
    Ok(order)
}

/// On a GPU, of keys of at most 32 bits, each a word with its position.
#[track_caller]
fn sorted_words(x: &Tensor, keys: &Keys) -> Result<Tensor> {
    let words = Tensor::uninitialized(x.shape(), (DType::I64, x.device()))?;
    let kernel = match x.dtype().is_float() {
        true => &device::radix_words_of_floats::KERNEL,
        false => &device::radix_words_of_ints::KERNEL,
    };
    let outs = [launch::view_of(&words, true)];
    by_tiles(kernel, x, keys, &[x.dtype(), keys.dtype], &outs)?;
    words_by_bits(words, keys.bits, 0xffff_ffff)
}

/// Words `[rows, n]` on a GPU, sorted by the lowest `bits` of their upper halves. What `keep` has no bit of is dropped.
#[track_caller]
fn words_by_bits(words: Tensor, bits: usize, keep: i64) -> Result<Tensor> {
    let mut words = words;
    let passes = bits.div_ceil(DIGIT);
    for pass in 0..passes {
        let keep = if pass + 1 == passes { keep } else { -1 };
        let next = Tensor::uninitialized(words.shape(), (DType::I64, words.device()))?;
        let shift = launch::number(DType::I64, (32 + pass * DIGIT) as f64);
        let counts = counts(&words, shift)?;
        let args = [
            launch::pointer(&words, false),
            launch::pointer(&next, true),
            launch::pointer(&counts.starts, false),
            launch::pointer(&counts.offsets, false),
            number(words.shape()[1]),
            number(counts.part),
            shift,
            Arg::Scalar(Scalar::int(DType::I64, keep)),
        ];
        let kernel = &device::radix_scatter_words::KERNEL;
        launch::warped(kernel, &next, counts.grid, &[], &[TILE as i64], Some(WARPS), &args)?;
        words = next;
    }
    Ok(words)
}

/// A vector of words on a GPU, sorted by the lowest `bits` of their upper halves; equals keep their order.
#[track_caller]
pub(in crate::ops) fn words_in_order(words: &Tensor, bits: usize) -> Result<Tensor> {
    let row = words.reshape(&[1, words.numel()])?;
    words_by_bits(row, bits, -1)?.reshape(&[words.numel()])
}

/// On a GPU, of keys of 64 bits, or rows of 2^31 elements and more: keys and positions apart.
#[track_caller]
fn sorted_pairs(x: &Tensor, keys: &Keys) -> Result<Tensor> {
    let position = if x.shape()[1] < 1 << 31 { DType::I32 } else { DType::I64 };
    let mut pairs = Pairs::like(x, keys.dtype, position)?;
    begin(x, keys, &pairs)?;
    let passes = keys.bits.div_ceil(DIGIT);
    for pass in 0..passes {
        let is_last = pass + 1 == passes;
        let next = Pairs::like(x, keys.dtype, if is_last { DType::I64 } else { position })?;
        let shift = keys.scalar((pass * DIGIT) as i64);
        let counts = counts(&pairs.keys, shift)?;
        let args = [
            launch::pointer(&pairs.keys, false),
            launch::pointer(&pairs.at, false),
            launch::pointer(&next.keys, true),
            launch::pointer(&next.at, true),
            launch::pointer(&counts.starts, false),
            launch::pointer(&counts.offsets, false),
            number(x.shape()[1]),
            number(counts.part),
            shift,
        ];
        let dtypes = [keys.dtype, position, next.at.dtype()];
        let (kernel, consts) = (&device::radix_scatter::KERNEL, [TILE as i64]);
        launch::warped(kernel, &next.keys, counts.grid, &dtypes, &consts, Some(WARPS), &args)?;
        pairs = next;
    }
    Ok(pairs.at)
}

/// A vector of less than 2^31 values on a GPU in order. Values move by themselves, without positions.
#[track_caller]
pub(super) fn sorted_values(x: &Tensor) -> Result<Tensor> {
    let (mut x, keys) = (x.contiguous()?, Keys::of(x, false)?);
    let dtypes = [x.dtype(), keys.dtype];
    let (count, scatter) = match x.dtype().is_float() {
        true => (&device::radix_count_floats::KERNEL, &device::radix_scatter_floats::KERNEL),
        false => (&device::radix_count_ints::KERNEL, &device::radix_scatter_ints::KERNEL),
    };
    for pass in 0..keys.bits.div_ceil(DIGIT) {
        let numbers = [keys.zero, keys.flip, (pass * DIGIT) as i64].map(|of| keys.scalar(of));
        let row = x.reshape(&[1, x.numel()])?;
        let counts = counts_by(&row, |offsets, sizes, grid| {
            let args = [&[launch::pointer(&x, false), offsets], &sizes[..], &numbers].concat();
            launch::warped(count, &x, grid, &dtypes, &[COUNTED as i64], Some(WARPS), &args)
        })?;
        let next = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        let read = [&counts.starts, &counts.offsets].map(|t| launch::pointer(t, false));
        let moved = [launch::pointer(&x, false), launch::pointer(&next, true)];
        let sizes = [number(x.numel()), number(counts.part)];
        let args = [&moved[..], &read, &sizes, &numbers].concat();
        launch::warped(scatter, &next, counts.grid, &dtypes, &[TILE as i64], Some(WARPS), &args)?;
        x = next;
    }
    Ok(x)
}

/// The positions of the elements of a row of integers from 0 to `most`, in order; equals keep theirs. On a GPU, which
/// passes over the bits that differ alone.
#[track_caller]
pub(in crate::ops) fn order_of_places(places: &Tensor, most: usize) -> Result<Tensor> {
    let differ = (usize::BITS - most.leading_zeros()).max(1) as usize;
    let dtype = if differ < 32 { DType::I32 } else { DType::I64 };
    let keys = Keys { dtype, zero: 0, flip: 0, bits: differ };
    let rows = places.to_dtype(dtype)?.reshape(&[1, places.numel()])?;
    sorted_by(&rows, &keys)?.reshape(&[places.numel()])
}

/// The keys of `x`, and the positions in its rows.
#[track_caller]
pub(super) fn begin(x: &Tensor, keys: &Keys, pairs: &Pairs) -> Result<()> {
    let kernel = match x.dtype().is_float() {
        true => &device::radix_keys_of_floats::KERNEL,
        false => &device::radix_keys_of_ints::KERNEL,
    };
    let outs = [launch::view_of(&pairs.keys, true), launch::view_of(&pairs.at, true)];
    by_tiles(kernel, x, keys, &[x.dtype(), keys.dtype, pairs.at.dtype()], &outs)
}

/// A kernel that makes keys of the elements of `x`, by tiles.
#[track_caller]
fn by_tiles(
    kernel: &'static KernelDef,
    x: &Tensor,
    keys: &Keys,
    dtypes: &[DType],
    outs: &[Arg],
) -> Result<()> {
    let [rows, n] = [x.shape()[0], x.shape()[1]];
    let cols = n.next_power_of_two().clamp(16, 1024);
    let lines = (1024 / cols).min(rows.next_power_of_two());
    let numbers = [keys.scalar(keys.zero), keys.scalar(keys.flip)];
    let args = [&[launch::view_of(x, false)], outs, &numbers].concat();
    let grid = Grid::x(rows.div_ceil(lines) * n.div_ceil(cols));
    launch::warped(kernel, x, grid, dtypes, &[lines as i64, cols as i64], None, &args)
}

/// One pass on the CPU, a program a row.
#[track_caller]
fn in_order(from: &Pairs, to: &Pairs, shift: Arg) -> Result<()> {
    let [rows, n] = [from.keys.shape()[0], from.keys.shape()[1]];
    let counts = Tensor::uninitialized(&[rows, DIGITS], (DType::I64, Device::Cpu))?;
    let args = [
        launch::pointer(&from.keys, false),
        launch::pointer(&from.at, false),
        launch::pointer(&to.keys, true),
        launch::pointer(&to.at, true),
        launch::pointer(&counts, true),
        number(n),
        shift,
    ];
    let dtypes = [from.keys.dtype(), from.at.dtype(), to.at.dtype()];
    let kernel = &device::radix_pass_in_order::KERNEL;
    launch::warped(kernel, &to.keys, Grid::x(rows), &dtypes, &[], None, &args)
}

/// Where keys go in their rows.
struct Offsets {
    /// The first of each digit: `[rows, DIGITS]`.
    starts: Tensor,
    /// The first of each part, behind that: `[rows, DIGITS, parts]`.
    offsets: Tensor,
    /// Keys of a part.
    part: usize,
    /// A program for each part.
    grid: Grid,
}

/// Counts the digits from `shift` of parts of rows on a GPU, and adds them up.
#[track_caller]
fn counts(keys: &Tensor, shift: Arg) -> Result<Offsets> {
    counts_by(keys, |offsets, [n, part], grid| {
        let args = [launch::pointer(keys, false), offsets, n, part, shift];
        let (kernel, consts) = (&device::radix_count::KERNEL, [COUNTED as i64]);
        launch::warped(kernel, keys, grid, &[keys.dtype()], &consts, Some(WARPS), &args)
    })
}

/// Counts digits by a launch, given where counts go, how long rows and parts are, and the grid; adds them up.
#[track_caller]
fn counts_by(
    rows_of: &Tensor,
    count: impl FnOnce(Arg, [Arg; 2], Grid) -> Result<()>,
) -> Result<Offsets> {
    let [rows, n] = [rows_of.shape()[0], rows_of.shape()[1]];
    let part = n.div_ceil(PARTS).next_multiple_of(TILE);
    let parts = n.div_ceil(part);
    let on = (DType::I64, rows_of.device());
    let offsets = Tensor::uninitialized(&[rows, DIGITS, parts], on)?;
    let grid = Grid::x(rows * parts);
    count(launch::pointer(&offsets, true), [number(n), number(part)], grid)?;
    let starts = Tensor::uninitialized(&[rows, DIGITS], on)?;
    exclusive(&offsets, &starts, rows * DIGITS)?;
    exclusive(&starts, &Tensor::uninitialized(&[rows], on)?, rows)?;
    Ok(Offsets { starts, offsets, part, grid })
}
