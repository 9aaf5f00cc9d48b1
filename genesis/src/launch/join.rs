//! Several copies in one launch: what joins tensors, rolls them, and puts them between values.
//!
//! A launch of a small tensor costs as much as its work, so that parts of a result go together. Each is seen as a matrix
//! whose rows lie dense, in what is read as in what is written; a part that is none, such as a turned one, is copied by a
//! launch of its own.
//!
//! ```text
//! cat([2, 3], [2, 4]) along axis 1     rows of 3 and rows of 4, every 7 elements
//! stack of two [5] along axis 1        5 rows of 1 each, every 2 elements
//! cat([2, 3], [4, 3]) along axis 0     one row of 6, one row of 12
//! ```

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::{Arg, PtrArg};
use kernels::join as device;

use super::{base, cast, fill, launch_with};
use crate::dispatch::trace;
use crate::error::Result;
use crate::shape::collapse_for_last;
use crate::tensor::Tensor;

/// Bytes of an access, and threads of a program.
const VECTOR: usize = 16;
const THREADS: usize = 128;
/// Accesses of a thread, of vectors and of single elements.
const VECTORS: usize = 4;
const SINGLES: usize = 8;
/// Bytes of a row of a tile that are enough for memory, whatever lies beside them.
const ROW_BYTES: usize = 256;
/// Elements of a row of a tile: few shapes of tiles, so that few kernels are compiled.
const COLUMNS: [usize; 7] = [1, 2, 4, 8, 32, 128, 512];

/// A part of a result: where it lies, and what is copied there; a value where that is nothing.
pub(crate) type Part = (Option<Tensor>, Tensor);

/// Copies each part, of one dtype, to where it lies; parts of which nothing is read get `value`. No two parts share an
/// element.
pub(crate) fn copies(parts: &[Part], value: Scalar) -> Result<()> {
    let parts: Vec<&Part> = parts.iter().filter(|(_, to)| to.numel() > 0).collect();
    let is_joined = |(_, to): &&Part| to.device().is_cuda() && !trace::records(to);
    if parts.len() < 2 || !parts.iter().all(is_joined) {
        return parts.iter().try_for_each(|part| alone(part, value));
    }
    let mut matrices = Vec::with_capacity(parts.len());
    for part in parts {
        match Matrix::of(part) {
            Some(matrix) => matrices.push(matrix),
            None => alone(part, value)?,
        }
    }
    matrices.chunks(device::MOST_PARTS).try_for_each(|matrices| together(matrices, value))
}

/// One part by a launch of its own.
fn alone((from, to): &Part, value: Scalar) -> Result<()> {
    from.as_ref().map_or_else(|| fill(to, value), |from| cast(from, to))
}

/// A part as a matrix.
struct Matrix<'t> {
    from: Option<&'t Tensor>,
    to: &'t Tensor,
    rows: usize,
    cols: usize,
    /// Elements between rows, of what is read and of what is written.
    steps: [usize; 2],
}

/// What extents and strides have to be less than, so that two of them fit into an integer.
const LIMIT: usize = 1 << 27;

impl<'t> Matrix<'t> {
    /// The part as a matrix; none where it lies along more axes, or is too large.
    fn of((from, to): &'t Part) -> Option<Matrix<'t>> {
        let source = from.as_ref().unwrap_or(to);
        let (mut shape, strides) = collapse_for_last(&[source.layout(), to.layout()]);
        let mut strides: Vec<Vec<i64>> = strides.into_iter().collect();
        let is_dense = |strides: &[Vec<i64>]| strides.iter().all(|s| s.last() == Some(&1));
        if !is_dense(&strides) {
            // An element is a row.
            shape.push(1);
            strides.iter_mut().for_each(|strides| strides.push(1));
        }
        let (rows, cols, steps) = match shape[..] {
            [cols] => (1, cols, [cols as i64; 2]),
            [rows, cols] => (rows, cols, [strides[0][0], strides[1][0]]),
            _ => return None,
        };
        let steps = steps.map(|step| usize::try_from(step).ok().filter(|&step| step < LIMIT));
        let [Some(read), Some(written)] = steps else { return None };
        let fits = rows < LIMIT && cols < LIMIT && source.dtype() == to.dtype();
        fits.then_some(Matrix { from: from.as_ref(), to, rows, cols, steps: [read, written] })
    }

    /// Whether all rows begin and end at multiples of a vector of so many elements.
    fn is_of_vectors(&self, unit: usize) -> bool {
        let is_aligned = |t: &Tensor| t.address().is_multiple_of(VECTOR as u64);
        let steps = if self.rows > 1 { self.steps } else { [0; 2] };
        self.cols.is_multiple_of(unit)
            && steps.iter().all(|step| step.is_multiple_of(unit))
            && is_aligned(self.to)
            && self.from.is_none_or(is_aligned)
    }

    fn tiles(&self, [rows, cols]: [usize; 2]) -> usize {
        self.rows.div_ceil(rows) * self.cols.div_ceil(cols)
    }
}

/// Rows and columns of a tile: of those whose rows hold the widest part, or are long enough for memory, the one whose tiles
/// reach least beyond the parts. Parts of 896 and 128 columns fill tiles of 128, and a fifth of those of 4096.
fn tile(matrices: &[Matrix<'_>], unit: usize, bytes: usize) -> [usize; 2] {
    let numel = THREADS * if unit > 1 { VECTORS * unit } else { SINGLES };
    let widest = matrices.iter().map(|matrix| matrix.cols).max().unwrap_or(1);
    let first = COLUMNS.into_iter().find(|&cols| cols >= widest).unwrap_or(numel);
    let long = COLUMNS.into_iter().filter(|&cols| cols < first && cols * bytes >= ROW_BYTES);
    let shapes = long.chain([first]).filter(|&cols| cols <= numel).map(|cols| [numel / cols, cols]);
    let covered = |shape: &[usize; 2]| matrices.iter().map(|m| m.tiles(*shape)).sum::<usize>();
    // Of equals the longest rows.
    shapes.rev().min_by_key(covered).unwrap_or([1, numel])
}

/// Two numbers, where elements are counted from, and bits that say more, as the kernel takes them.
fn packed([upper, middle]: [usize; 2], first: usize, bits: usize) -> Arg {
    let value = upper << 36 | middle << 8 | first << 4 | bits;
    Arg::Scalar(Scalar::int(DType::I64, value as i64))
}

/// The integer as which elements are copied.
fn as_bits(dtype: DType) -> DType {
    match dtype.bytes() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    }
}

/// Parts in one launch.
fn together(matrices: &[Matrix<'_>], value: Scalar) -> Result<()> {
    let Some(first) = matrices.first() else { return Ok(()) };
    let on = first.to;
    let (bits, bytes) = (as_bits(on.dtype()), on.dtype().bytes());
    let vector = VECTOR / bytes;
    let unit = if matrices.iter().all(|m| m.is_of_vectors(vector)) { vector } else { 1 };
    let shape = tile(matrices, unit, bytes);
    let tiles: Vec<usize> = matrices.iter().map(|matrix| matrix.tiles(shape)).collect();
    // Columns of one row are written at about one time; whole parts one after the other, as they lie.
    let turns = first.rows > 1 && tiles.iter().all(|&n| n == tiles[0]);
    let grid = Grid::x(tiles.iter().sum::<usize>());
    let ([rows, cols], parts) = (shape, matrices.len().max(2));
    let consts = [
        parts as i64,
        i64::from(turns && matrices.len() > 1),
        unit as i64,
        rows as i64,
        cols as i64,
    ];
    let none =
        |mutable| (PtrArg { address: 0, bytes: 0, dtype: bits, mutable, device: on.device() }, 0);
    // Pointers at multiples of a vector, wherever the elements begin, so that all launches are of one kernel.
    let pointer = |t: &Tensor, mutable: bool| {
        let PtrArg { address, bytes: left, .. } = base(t, mutable);
        let skipped = address % VECTOR as u64;
        let ptr = PtrArg {
            address: address - skipped,
            bytes: left + skipped,
            dtype: bits,
            mutable,
            device: on.device(),
        };
        (ptr, skipped as usize / bytes)
    };
    let (mut from, mut to) = (Vec::new(), Vec::new());
    let (mut sizes, mut steps) = (Vec::new(), Vec::new());
    for index in 0..device::MOST_PARTS {
        let matrix = matrices.get(index);
        let source = matrix.and_then(|matrix| matrix.from);
        let (read, first_read) = source.map_or_else(|| none(false), |t| pointer(t, false));
        let (written, first_written) = matrix.map_or_else(|| none(true), |m| pointer(m.to, true));
        let size = matrix.map_or([0; 2], |matrix| [matrix.rows, matrix.cols]);
        let step = matrix.map_or([0; 2], |matrix| matrix.steps);
        let is_value = usize::from(source.is_none());
        from.push(Arg::Ptr(read));
        to.push(Arg::Ptr(written));
        sizes.push(packed(size, first_written, 1 | is_value << 1));
        steps.push(packed(step, first_read, 1));
    }
    let value = Arg::Scalar(Scalar::int(bits, value.bits as i64));
    let args = [from, to, sizes, steps, vec![value]].concat();
    let warps = Some((THREADS / 32) as u32);
    launch_with(&device::copy_parts::KERNEL, on, grid, &[bits], &consts, warps, &args)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    #[test]
    fn tiles_reach_little_beyond_the_parts() -> Result<()> {
        let tile_of = |extents: &[[usize; 2]], unit| {
            let whole = extents.iter().map(|[_, cols]| cols).sum();
            let to = Tensor::zeros(&[extents[0][0], whole], (DType::BF16, Device::Cpu))?;
            let mut first = 0;
            let mut parts: Vec<Part> = Vec::new();
            for &[rows, cols] in extents {
                let from = Tensor::zeros(&[rows, cols], (DType::BF16, Device::Cpu))?;
                parts.push((Some(from), to.narrow(1, first, cols)?));
                first += cols;
            }
            let matrices: Vec<Matrix<'_>> = parts.iter().filter_map(Matrix::of).collect();
            assert_eq!(matrices.len(), extents.len());
            Ok::<_, crate::Error>(tile(&matrices, unit, 2))
        };
        assert_eq!(tile_of(&[[8192, 896], [8192, 128], [8192, 128]], 8)?, [32, 128]);
        assert_eq!(tile_of(&[[64, 4864], [64, 4864]], 8)?, [32, 128]);
        assert_eq!(tile_of(&[[64, 4096], [64, 4096]], 8)?, [1, 4096]);
        assert_eq!(tile_of(&[[64, 3], [64, 4]], 1)?, [256, 4]);
        Ok(())
    }
}
