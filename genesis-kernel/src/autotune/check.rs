//! Random inputs, and whether two results are the same, by kernels on the device: a result of a
//! gigabyte is compared in a millisecond and never leaves the card.

use crate::diag::Error;
use crate::ir::{DType, Scalar};
use crate::kernel::KernelDef;
use crate::prelude::*;
use crate::runtime::{Buffer, CheckedArg, Grid};

const BLOCK: usize = 4096;

/// Standard normal numbers.
#[kernel]
fn noise<T: Element, const BLOCK: usize>(x: ViewMut<T, 1>, seed: u64) {
    let i = program_id(0) * BLOCK;
    x.store([i], randn(seed, i + arange::<BLOCK>()).to::<T>());
}

/// The sum of the squares of each block.
#[kernel]
fn squares<T: Element, const BLOCK: usize>(x: View<T, 1>, y: View<T, 1>, out: ViewMut<f32, 1>) {
    let at = program_id(0) * BLOCK;
    let (u, v) = (x.load::<BLOCK>([at]).to::<f32>(), y.load::<BLOCK>([at]).to::<f32>());
    out.store([program_id(0)], sum(u * v, 0));
}

/// How many elements of each block differ.
#[kernel]
fn differences<T: Element, const BLOCK: usize>(
    x: View<T, 1>,
    y: View<T, 1>,
    out: ViewMut<f32, 1>,
    tolerance: f32,
    floor: f32,
) {
    let at = program_id(0) * BLOCK;
    let (u, v) = (x.load::<BLOCK>([at]).to::<f32>(), y.load::<BLOCK>([at]).to::<f32>());
    let is_close = abs(u - v) <= tolerance * (abs(v) + floor);
    let is_same = (u == v) | (is_nan(u) & is_nan(v));
    let differ = where_(is_close | is_same, zeros::<f32, BLOCK>(), 1.0);
    out.store([program_id(0)], sum(differ, 0));
}

/// Fills a buffer with normal numbers of a float dtype.
pub(super) fn fill_noise(buffer: &Buffer, dtype: DType, seed: u64) -> Result<(), Error> {
    let n = buffer.bytes() / dtype.bytes();
    let seed = CheckedArg::scalar(Scalar::int(DType::U64, seed as i64));
    let args = [whole(buffer, dtype, true)?, seed];
    let grid = Grid::x(n.div_ceil(BLOCK));
    noise::KERNEL.launch_checked(buffer.stream(), grid, &[dtype], &[BLOCK as i64], args)
}

/// How many elements of two buffers of one size differ by more than the tolerance, relative to the
/// element and the root mean square of all; and how many there are.
pub(super) fn count_differences(
    got: &Buffer,
    want: &Buffer,
    dtype: DType,
    tolerance: f64,
) -> Result<(u64, u64), Error> {
    let n = (want.bytes() / dtype.bytes()) as u64;
    if !dtype.is_float() {
        let (got, want) = (got.to_bytes()?, want.to_bytes()?);
        let pairs = got.chunks_exact(dtype.bytes()).zip(want.chunks_exact(dtype.bytes()));
        return Ok((pairs.filter(|(a, b)| a != b).count() as u64, n));
    }
    let total = by_block(&squares::KERNEL, [want, want], dtype, [])?;
    let floor = (total / n.max(1) as f64).sqrt();
    // Infinities in the result would make everything close.
    let floor = if floor.is_finite() { floor } else { 0.0 };
    let numbers = [tolerance, floor].map(|value| Scalar::float(DType::F32, value));
    Ok((by_block(&differences::KERNEL, [got, want], dtype, numbers)? as u64, n))
}

/// The sum of what a kernel finds in each block of two buffers: `squares` without numbers, `differences`
/// with two.
fn by_block<const N: usize>(
    kernel: &KernelDef,
    buffers: [&Buffer; 2],
    dtype: DType,
    numbers: [Scalar; N],
) -> Result<f64, Error> {
    let stream = buffers[0].stream();
    let n = buffers[0].bytes() / dtype.bytes();
    let blocks = n.div_ceil(BLOCK);
    let out = Buffer::zeroed(stream, 4 * blocks)?;
    let (grid, dtypes, consts) = (Grid::x(blocks), [dtype], [BLOCK as i64]);
    let [x, y] = [whole(buffers[0], dtype, false)?, whole(buffers[1], dtype, false)?];
    let out_view = whole(&out, DType::F32, true)?;
    let numbers: Vec<CheckedArg<'_>> = numbers.map(CheckedArg::scalar).to_vec();
    match numbers[..] {
        [a, b] => {
            kernel.launch_checked(stream, grid, &dtypes, &consts, [x, y, out_view, a, b])?;
        }
        _ => kernel.launch_checked(stream, grid, &dtypes, &consts, [x, y, out_view])?,
    }
    let sums = out.to_bytes()?;
    let value = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("chunks of 4 bytes"));
    Ok(sums.chunks_exact(4).map(|bytes| f64::from(value(bytes))).sum())
}

/// All elements of a buffer as a view of one axis.
fn whole(buffer: &Buffer, dtype: DType, mutable: bool) -> Result<CheckedArg<'_>, Error> {
    let n = (buffer.bytes() / dtype.bytes()) as i64;
    CheckedArg::view(buffer, 0, dtype, (&[n], &[1]), mutable)
}

/// How much results of a dtype may differ between configurations, which add in different orders.
pub(super) fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-10,
        DType::F32 => 1e-4,
        DType::F16 => 1.0 / 512.0,
        DType::BF16 => 1.0 / 128.0,
        _ => 1.0 / 8.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Device;

    fn buffer(values: &[f32]) -> Buffer {
        Buffer::from_bytes(&Device::Cpu.stream(), bytemuck::cast_slice(values)).unwrap()
    }

    #[test]
    fn noise_is_standard_normal() {
        let buffer = Buffer::zeroed(&Device::Cpu.stream(), 4 * 10_000).unwrap();
        fill_noise(&buffer, DType::F32, 1).unwrap();
        let total = by_block(&squares::KERNEL, [&buffer, &buffer], DType::F32, []).unwrap();
        assert!((0.95..1.05).contains(&(total / 1e4)), "{total}");
    }

    #[test]
    fn one_wrong_element_is_found() {
        let mut values: Vec<f32> = (0..5000).map(|i| (i % 7) as f32 - 3.0).collect();
        let want = buffer(&values);
        let count =
            |values: &[f32]| count_differences(&buffer(values), &want, DType::F32, 1e-4).unwrap();
        assert_eq!(count(&values), (0, 5000));
        values[4711] += 1e-6;
        assert_eq!(count(&values), (0, 5000));
        values[4999] += 1e-2;
        values[1] = f32::NAN;
        assert_eq!(count(&values), (2, 5000));
    }

    #[test]
    fn integers_differ_exactly() {
        let stream = Device::Cpu.stream();
        let of = |bytes: &[u8]| Buffer::from_bytes(&stream, bytes).unwrap();
        let count = count_differences(&of(&[1, 2, 3, 4]), &of(&[1, 2, 3, 5]), DType::I16, 1.0);
        assert_eq!(count.unwrap(), (1, 2));
    }
}
