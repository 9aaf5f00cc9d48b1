//! Elementwise kernels: how much of a tensor one program takes.
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

use super::Chip;
use super::multiprocessor::{VECTOR_BYTES, WARP_THREADS};

/// Warps of a program on a GPU, and of one of few dense operands.
const WARPS: usize = 4;
const WARPS_OF_FEW: usize = 8;
/// Operands from which on a dense kernel has many.
const MANY_OPERANDS: usize = 4;
/// Elements of a tensor from which on longer blocks fill it faster, and such a block.
const LONG: usize = 1 << 22;
const LONG_FILL: usize = 8192;

/// What one program of a dense kernel takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flat {
    /// Elements.
    pub block: usize,
    /// Warps on a GPU.
    pub warps: Option<u32>,
}

impl Flat {
    /// The block of a kernel of one or two operands, of which the widest has elements of `bytes` bytes.
    pub fn of_few(chip: &Chip, bytes: usize) -> Flat {
        Flat::of(chip, WARPS_OF_FEW, WARPS_OF_FEW * WARP_THREADS as usize * vector(bytes))
    }

    /// As [`Flat::of_few`], for many operands: fewer threads, so that all their registers fit.
    pub fn of_many(chip: &Chip, bytes: usize) -> Flat {
        Flat::of(chip, WARPS, 2 * WARPS * WARP_THREADS as usize * vector(bytes))
    }

    /// The block for so many tensors, the result among them.
    pub fn of_tensors(chip: &Chip, tensors: usize, bytes: usize) -> Flat {
        match tensors {
            ..MANY_OPERANDS => Flat::of_few(chip, bytes),
            _ => Flat::of_many(chip, bytes),
        }
    }

    /// The block that fills so many elements with one value.
    pub fn of_fill(chip: &Chip, numel: usize, bytes: usize) -> usize {
        if numel >= LONG { LONG_FILL } else { Flat::of_few(chip, bytes).block }
    }

    fn of(chip: &Chip, warps: usize, block: usize) -> Flat {
        match chip {
            Chip::Cpu => Flat { block: 4096, warps: None },
            Chip::Gpu { .. } => Flat { block, warps: Some(warps as u32) },
        }
    }
}

/// Elements of this many bytes that one access has.
fn vector(bytes: usize) -> usize {
    VECTOR_BYTES / bytes.next_power_of_two()
}

/// Rows and columns of one program of a strided kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tile {
    /// Elements along the last axis but one.
    pub rows: usize,
    /// Elements along the last axis.
    pub cols: usize,
    /// Warps on a GPU.
    pub warps: Option<u32>,
}

/// Extents along the last axis of the tiles of narrow tensors. Few shapes of tiles, so that few kernels are compiled.
const NARROW: [usize; 3] = [8, 32, 128];

impl Tile {
    /// The tile for tensors whose last axes have these extents.
    pub fn of(chip: &Chip, bytes: usize, rows: usize, cols: usize) -> Tile {
        let (numel, widest, warps) = match chip {
            Chip::Cpu => (1024, 1024, None),
            Chip::Gpu { .. } => {
                let numel = 4 * WARP_THREADS as usize * WARPS * vector(bytes);
                (numel, if rows == 1 { numel } else { numel / 8 }, Some(WARPS as u32))
            }
        };
        let steps = NARROW.into_iter().filter(|&step| step < widest);
        let across = steps.chain([widest]).find(|&step| step >= cols).unwrap_or(widest);
        Tile { rows: if rows == 1 { 1 } else { numel / across }, cols: across, warps }
    }

    /// This tile, or a quarter of its rows where a GPU would have so few programs that most multiprocessors were without.
    pub fn spread(self, chip: &Chip, programs: usize) -> Tile {
        const SHARE: usize = 4;
        let is_few = !chip.is_cpu() && SHARE * programs <= chip.multiprocessors();
        let rows =
            if is_few && self.rows.is_multiple_of(SHARE) { self.rows / SHARE } else { self.rows };
        Tile { rows, ..self }
    }

    /// The tile of a function that is computed in f64 by many steps: two elements a thread, for what the steps keep
    /// fills the registers for more.
    pub fn of_many_steps(chip: &Chip, rows: usize, cols: usize) -> Tile {
        const NUMEL: usize = 2 * WARP_THREADS as usize * WARPS;
        if chip.is_cpu() {
            return Tile::of(chip, 8, rows, cols);
        }
        let across = NARROW.into_iter().find(|&step| step >= cols).unwrap_or(NUMEL);
        let rows = if rows == 1 { 1 } else { NUMEL / across };
        Tile { rows, cols: across, warps: Some(WARPS as u32) }
    }

    /// The tile where an operand runs along the last axis but one: whole sectors of memory along both. On the CPU its
    /// rows are as few as there are pages that the first-level TLB maps and lines that a set of the cache holds.
    pub fn transposed(chip: &Chip) -> Tile {
        match chip {
            Chip::Cpu => Tile { rows: 32, cols: 32, warps: None },
            Chip::Gpu { .. } => Tile { rows: 64, cols: 64, warps: Some(8) },
        }
    }

    /// Rows and columns of a table of `count` distances between points, which a program makes: of few an element a thread, so
    /// that every multiprocessor has some.
    pub fn of_distances(chip: &Chip, count: usize) -> [usize; 2] {
        const WHOLE: [usize; 2] = [32, 64];
        match *chip {
            Chip::Cpu => [8, 64],
            Chip::Gpu { multiprocessors, .. } => {
                let is_few = count < multiprocessors * WHOLE[0] * WHOLE[1];
                if is_few { [4, 32] } else { WHOLE }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    #[test]
    fn the_table_of_the_header() {
        let gpu = &Chip::of_target(&Target::sm_90a());
        assert_eq!(Flat::of_few(gpu, 4), Flat { block: 1024, warps: Some(8) });
        assert_eq!(Flat::of_few(gpu, 2), Flat { block: 2048, warps: Some(8) });
        assert_eq!(Flat::of_many(gpu, 4), Flat { block: 1024, warps: Some(4) });
        assert_eq!(Flat::of_few(&Chip::Cpu, 4), Flat { block: 4096, warps: None });
        let strided = Tile::of(gpu, 4, 8192, 8192);
        assert_eq!((strided.rows, strided.cols), (8, 256));
        assert_eq!(strided.spread(gpu, 1024), strided);
        assert_eq!(strided.spread(gpu, 8).rows, 2);
        let thin = Tile::of(gpu, 4, 8192, 3);
        assert_eq!((thin.rows, thin.cols), (256, 8));
        assert_eq!(Tile::of(gpu, 4, 1, 5000), Tile { rows: 1, cols: 2048, warps: Some(4) });
    }
}
