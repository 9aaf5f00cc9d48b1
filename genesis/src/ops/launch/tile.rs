//! How much of a tensor one program of an elementwise kernel takes.
//!
//! On a GPU a streaming kernel is fast where each thread has a few loads of 16 bytes in flight before
//! it uses the first, and there are enough programs for every multiprocessor:
//!
//! | tensors | a program | a thread of 128 |
//! |---|---|---|
//! | dense, f32 | 1024 elements | two vectors of 16 bytes |
//! | dense, bf16 | 2048 elements | two vectors |
//! | strided, f32 | 8 rows of 256 | four vectors, two of a row that is repeated |
//!
//! On the CPU a block only has to be long.

use genesis_kernel::runtime::Device;

/// Warps of a program on a GPU.
const WARPS: usize = 4;
/// Bytes of one access of a thread.
const VECTOR: usize = 16;
/// Fewer programs than this leave multiprocessors without work.
const ENOUGH_PROGRAMS: usize = 512;

/// What one program of a dense kernel takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Flat {
    /// Elements.
    pub(super) block: usize,
    /// Warps on a GPU.
    pub(super) warps: Option<u32>,
}

/// The block for `numel` elements, of which the largest operand's have `bytes` bytes each.
pub(super) fn flat(device: Device, bytes: usize, numel: usize) -> Flat {
    if device == Device::Cpu {
        return Flat { block: 4096, warps: None };
    }
    let one_vector = 32 * WARPS * VECTOR / bytes.next_power_of_two();
    let vectors = if numel >= 2 * one_vector * ENOUGH_PROGRAMS { 2 } else { 1 };
    Flat { block: vectors * one_vector, warps: Some(WARPS as u32) }
}

/// Rows and columns of one program of a strided kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tile {
    /// Elements along the last axis but one.
    pub(super) rows: usize,
    /// Elements along the last axis.
    pub(super) cols: usize,
    /// Warps on a GPU.
    pub(super) warps: Option<u32>,
}

/// The tile for tensors whose last axes have these extents. Few shapes of tiles, so that few kernels
/// are compiled.
pub(super) fn tile(device: Device, bytes: usize, rows: usize, cols: usize) -> Tile {
    let (numel, widest, warps) = match device {
        Device::Cpu => (1024, 1024, None),
        Device::Cuda(_) => {
            let numel = 4 * 32 * WARPS * VECTOR / bytes.next_power_of_two();
            (numel, if rows == 1 { numel } else { numel / 8 }, Some(WARPS as u32))
        }
    };
    let steps = [8, 32, 128].into_iter().filter(|&step| step < widest);
    let across = steps.chain([widest]).find(|&step| step >= cols).unwrap_or(widest);
    Tile { rows: if rows == 1 { 1 } else { numel / across }, cols: across, warps }
}

/// The tile where an operand runs along the last axis but one: whole sectors of memory along both.
pub(super) const TURNED: Tile = Tile { rows: 64, cols: 64, warps: Some(8) };

/// Brings the axis along which an operand runs next to the last one, if it does not run along that;
/// whether there is such an operand. The last of the tensors is the result.
pub(super) fn face(shape: &mut Vec<usize>, strides: &mut [Vec<i64>]) -> bool {
    let Some(last) = shape.len().checked_sub(1).filter(|&last| shape[last] >= 16) else {
        return false;
    };
    let Some((result, operands)) = strides.split_last() else { return false };
    let runs = |of: &Vec<i64>| (0..last).find(|&axis| of[axis] == 1 && shape[axis] >= 16);
    let across = operands.iter().filter(|of| of[last] > 1).find_map(runs);
    let (1, Some(axis)) = (result[last], across) else { return false };
    let extent = shape.remove(axis);
    shape.insert(last - 1, extent);
    for of in strides {
        let stride = of.remove(axis);
        of.insert(last - 1, stride);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_header() {
        let gpu = Device::Cuda(0);
        let large = 8192 * 8192;
        assert_eq!(flat(gpu, 4, large).block, 1024);
        assert_eq!(flat(gpu, 2, large).block, 2048);
        assert_eq!(flat(gpu, 2, 1 << 16).block, 1024);
        let strided = tile(gpu, 4, 8192, 8192);
        assert_eq!((strided.rows, strided.cols), (8, 256));
        let thin = tile(gpu, 4, 8192, 3);
        assert_eq!((thin.rows, thin.cols), (256, 8));
        let mut shape = vec![32, 20, 64];
        let mut strides = vec![vec![1, 32, 640], vec![1280, 64, 1]];
        assert!(face(&mut shape, &mut strides));
        assert_eq!((shape, strides), (vec![20, 32, 64], vec![vec![32, 1, 640], vec![64, 1280, 1]]));
        assert!(!face(&mut vec![32, 64], &mut [vec![1, 0], vec![64, 1]]));
        assert_eq!(tile(gpu, 4, 1, 5000), Tile { rows: 1, cols: 2048, warps: Some(4) });
    }
}
