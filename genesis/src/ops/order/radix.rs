//! Rows sorted by radix: which keys, how many passes, how rows are cut into parts.

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::{Arg, Device};
use kernels::radix as device;

use crate::error::Result;
use crate::launch;
use crate::ops::index::exclusive;
use crate::tensor::Tensor;

/// Lines and columns of the tile of a program on a GPU, and its warps: a thread has a line.
const TILE: [usize; 2] = [256, 8];
const WARPS: u32 = 8;
/// Keys of a part, at most: counters of 16 bits hold them.
const PART: usize = 32_768;
/// Parts of a row from which on each becomes longer: their counts are added up by one program.
const PARTS: usize = 1024;

/// How values become keys: `(order - zero) ^ flip`, of which the low `bits` differ.
struct Keys {
    dtype: DType,
    zero: i64,
    flip: i64,
    bits: usize,
}

fn number(value: usize) -> Arg {
    launch::number(DType::I64, value as f64)
}

impl Keys {
    #[track_caller]
    fn of(x: &Tensor, descending: bool) -> Result<Keys> {
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

    fn scalar(&self, value: i64) -> Arg {
        Arg::Scalar(Scalar::int(self.dtype, value))
    }
}

/// Keys with the positions where they stood.
struct Pairs {
    keys: Tensor,
    at: Tensor,
}

impl Pairs {
    #[track_caller]
    fn like(x: &Tensor, key: DType, position: DType) -> Result<Pairs> {
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
    let position = if x.shape()[1] < 1 << 31 { DType::I32 } else { DType::I64 };
    let mut pairs = Pairs::like(x, keys.dtype, position)?;
    begin(x, keys, &pairs)?;
    let digit = if x.device() == Device::Cpu { 8 } else { 4 };
    let passes = keys.bits.div_ceil(digit);
    for pass in 0..passes {
        let last = pass + 1 == passes;
        let next = Pairs::like(x, keys.dtype, if last { DType::I64 } else { position })?;
        let shift = keys.scalar((pass * digit) as i64);
        match x.device() {
            Device::Cpu => in_order(&pairs, &next, shift)?,
            Device::Cuda(_) => by_parts(&pairs, &next, shift)?,
        }
        pairs = next;
    }
    Ok(pairs.at)
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

/// On the CPU: the positions of the `k` smallest elements of each row of `x: [rows, n]`, in the order in which they
/// stand, and where the largest of them stands, of equals the last.
#[track_caller]
pub(super) fn smallest(x: &Tensor, k: usize, descending: bool) -> Result<(Tensor, Tensor)> {
    let [rows, n] = [x.shape()[0], x.shape()[1]];
    let keys = Keys::of(x, descending)?;
    let pairs = Pairs::like(x, keys.dtype, DType::I32)?;
    begin(x, &keys, &pairs)?;
    let fresh = |extents: [usize; 2]| Tensor::uninitialized(&extents, (DType::I64, Device::Cpu));
    let (counts, order, edge) = (fresh([rows, 256])?, fresh([rows, k])?, fresh([rows, 1])?);
    let passes = keys.bits.div_ceil(8);
    let args = [
        launch::pointer(&pairs.keys, false),
        launch::pointer(&counts, true),
        launch::pointer(&order, true),
        launch::pointer(&edge, true),
        number(n),
        number(k),
        number(passes),
        Arg::Scalar(Scalar::int(DType::I64, (u64::MAX >> (64 - 8 * passes)) as i64)),
    ];
    let kernel = &device::radix_select_in_order::KERNEL;
    launch::warped(kernel, &order, Grid::x(rows), &[keys.dtype], &[], None, &args)?;
    Ok((order, edge))
}

/// The keys of `x`, and the positions in its rows.
#[track_caller]
fn begin(x: &Tensor, keys: &Keys, pairs: &Pairs) -> Result<()> {
    let [rows, n] = [x.shape()[0], x.shape()[1]];
    let cols = n.next_power_of_two().clamp(16, 1024);
    let lines = (1024 / cols).min(rows.next_power_of_two());
    let kernel = match x.dtype().is_float() {
        true => &device::radix_keys_of_floats::KERNEL,
        false => &device::radix_keys_of_ints::KERNEL,
    };
    let args = [
        launch::view_of(x, false),
        launch::view_of(&pairs.keys, true),
        launch::view_of(&pairs.at, true),
        keys.scalar(keys.zero),
        keys.scalar(keys.flip),
    ];
    let dtypes = [x.dtype(), keys.dtype, pairs.at.dtype()];
    let grid = Grid::x(rows.div_ceil(lines) * n.div_ceil(cols));
    launch::warped(kernel, x, grid, &dtypes, &[lines as i64, cols as i64], None, &args)
}

/// One pass on the CPU, a program a row.
#[track_caller]
fn in_order(from: &Pairs, to: &Pairs, shift: Arg) -> Result<()> {
    let [rows, n] = [from.keys.shape()[0], from.keys.shape()[1]];
    let counts = Tensor::uninitialized(&[rows, 256], (DType::I64, Device::Cpu))?;
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

/// One pass on a GPU: count, add up, scatter.
#[track_caller]
fn by_parts(from: &Pairs, to: &Pairs, shift: Arg) -> Result<()> {
    let [rows, n] = [from.keys.shape()[0], from.keys.shape()[1]];
    let [lines, cols] = TILE;
    let part = n.div_ceil(PARTS).next_multiple_of(lines * cols).min(PART);
    let parts = n.div_ceil(part);
    let on = (DType::I64, from.keys.device());
    let counts = Tensor::uninitialized(&[rows, 16, parts], on)?;
    let grid = Grid::x(rows * parts);
    let consts = TILE.map(|extent| extent as i64);
    let args = [
        launch::pointer(&from.keys, false),
        launch::pointer(&counts, true),
        number(n),
        number(part),
        shift,
    ];
    let dtypes = [from.keys.dtype(), from.at.dtype(), to.at.dtype()];
    let kernel = &device::radix_count::KERNEL;
    launch::warped(kernel, &counts, grid, &dtypes[..1], &consts, Some(WARPS), &args)?;
    exclusive(&counts, &Tensor::uninitialized(&[rows], on)?, rows)?;
    let args = [
        launch::pointer(&from.keys, false),
        launch::pointer(&from.at, false),
        launch::pointer(&to.keys, true),
        launch::pointer(&to.at, true),
        launch::pointer(&counts, false),
        number(n),
        number(part),
        shift,
    ];
    let kernel = &device::radix_scatter::KERNEL;
    launch::warped(kernel, &to.keys, grid, &dtypes, &consts, Some(WARPS), &args)
}
