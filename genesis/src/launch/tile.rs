//! How much of a tensor one program of an elementwise kernel takes.
//!
//! On a GPU a streaming kernel is fast where each thread has a few loads of 16 bytes in flight before
//! it uses the first, and there are enough programs for every multiprocessor:
//!
//! | tensors | a program | a thread |
//! |---|---|---|
//! | dense, f32 | 1024 elements | one of 256, one vector of 16 bytes of each operand |
//! | dense, bf16 | 2048 elements | one of 256, one vector |
//! | dense, many operands, f32 | 1024 elements | one of 128, two vectors |
//! | strided, f32 | 8 rows of 256 | one of 128, four vectors, two of a row that is repeated |
//! | functions by many steps in f64 | 256 elements | one of 128, two elements |
//!
//! With 2048 threads on a multiprocessor a vector of each is 32 KB in flight already; more of them a
//! thread only makes the last programs end later (bf16 1024 x 1024: 2 % with two, 11 % with four).
//!
//! On the CPU a block only has to be long.

use genesis_kernel::runtime::Device;

/// Warps of a program on a GPU.
const WARPS: usize = 4;
/// Bytes of one access of a thread.
const VECTOR: usize = 16;
/// Warps of a program of a dense kernel of few operands on a GPU.
const WARPS_OF_FEW: usize = 8;

/// What one program of a dense kernel takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Flat {
    /// Elements.
    pub(super) block: usize,
    /// Warps on a GPU.
    pub(super) warps: Option<u32>,
}

/// The block of a kernel of one or two operands, of which the widest has elements of `bytes` bytes.
pub(super) fn flat(device: Device, bytes: usize) -> Flat {
    flat_of(device, WARPS_OF_FEW, WARPS_OF_FEW * 32 * vector(bytes))
}

/// As [`flat`], for many operands: fewer threads, so that all their registers fit.
pub(super) fn flat_of_many(device: Device, bytes: usize) -> Flat {
    flat_of(device, WARPS, 2 * WARPS * 32 * vector(bytes))
}

fn flat_of(device: Device, warps: usize, block: usize) -> Flat {
    match device {
        Device::Cpu => Flat { block: 4096, warps: None },
        Device::Cuda(_) => Flat { block, warps: Some(warps as u32) },
    }
}

/// Elements of this many bytes that one access has.
fn vector(bytes: usize) -> usize {
    VECTOR / bytes.next_power_of_two()
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
            let numel = 4 * 32 * WARPS * vector(bytes);
            (numel, if rows == 1 { numel } else { numel / 8 }, Some(WARPS as u32))
        }
    };
    let steps = [8, 32, 128].into_iter().filter(|&step| step < widest);
    let across = steps.chain([widest]).find(|&step| step >= cols).unwrap_or(widest);
    Tile { rows: if rows == 1 { 1 } else { numel / across }, cols: across, warps }
}

/// The tile of a function that is computed in f64 by many steps: two elements a thread, for what the steps keep
/// fills the registers for more.
pub(super) fn of_many_steps(device: Device, rows: usize, cols: usize) -> Tile {
    const NUMEL: usize = 2 * 32 * WARPS;
    if device == Device::Cpu {
        return tile(device, 8, rows, cols);
    }
    let across = [8, 32, 128].into_iter().find(|&step| step >= cols).unwrap_or(NUMEL);
    Tile {
        rows: if rows == 1 { 1 } else { NUMEL / across },
        cols: across,
        warps: Some(WARPS as u32),
    }
}

/// The tile where an operand runs along the last axis but one: whole sectors of memory along both. On the CPU its
/// rows are as few as there are pages that the first-level TLB maps and lines that a set of the cache holds.
pub(super) fn turned(device: Device) -> Tile {
    match device {
        Device::Cpu => Tile { rows: 32, cols: 32, warps: None },
        Device::Cuda(_) => Tile { rows: 64, cols: 64, warps: Some(8) },
    }
}

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
        assert_eq!(flat(gpu, 4), Flat { block: 1024, warps: Some(8) });
        assert_eq!(flat(gpu, 2), Flat { block: 2048, warps: Some(8) });
        assert_eq!(flat_of_many(gpu, 4), Flat { block: 1024, warps: Some(4) });
        assert_eq!(flat(Device::Cpu, 4), Flat { block: 4096, warps: None });
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
