//! Reductions and scans: tiles, and how many programs share a sum.
//!
//! Where there are fewer results than keep a GPU busy, several programs share one sum:
//!
//! ```text
//! sum of 8192 x 8192 f32, H200      over all: 528 programs     by rows: 8192     by columns: 64 x 8
//! ```

use super::Chip;
use super::shared::vector_elements;

/// How the middle axis of `[outer, n, inner]` is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reduction {
    /// Rows of a tile: of results where `inner` is 1, else of what is reduced.
    pub rows: usize,
    /// Columns of a tile.
    pub cols: usize,
    /// Programs that share one tile of results.
    pub parts: usize,
    /// Warps of a program; the compiler chooses where absent.
    pub warps: Option<u32>,
}

/// The most programs that share a sum: the last one adds up as many at once.
const MAX_PARTS: usize = 1024;
/// The most tiles of results that are shared; each needs a counter.
pub const MAX_SHARED: usize = 4096;
/// Programs of 256 threads for every multiprocessor.
const PROGRAMS: usize = 4;
/// Elements of a program along rows.
const ROW_ELEMENTS: usize = 4096;

/// Columns of a tile, warps of a program that adds up neighbouring columns, and the bytes that it reads at once: eight
/// vectors of 16 bytes a thread. Of 8192 x 8192 bf16 half as many bytes, or twice the warps for as
/// many, reach 0.96 and 0.88 of that.
const COLUMNS: usize = 128;
const WARPS_OF_COLUMNS: u32 = 4;
const BYTES_OF_COLUMNS: usize = 16 << 10;

impl Reduction {
    /// For elements of so many bytes.
    pub fn of(chip: &Chip, [outer, n, inner]: [usize; 3], bytes: usize) -> Reduction {
        let wanted = PROGRAMS * chip.multiprocessors();
        if inner == 1 {
            return Reduction::of_rows(chip, wanted, outer, n);
        }
        // Where there are few columns, a program reads more rows at once, and more programs share them.
        let narrow = match chip.is_cpu() {
            true => 1,
            false => COLUMNS / inner.next_power_of_two().clamp(16, COLUMNS),
        };
        let most = if chip.is_cpu() { 32 } else { narrow * BYTES_OF_COLUMNS / (COLUMNS * bytes) };
        let rows = n.next_power_of_two().min(most);
        // Where few are added, more columns make up for it.
        let wider = if chip.is_cpu() { 1 } else { (most / rows).clamp(1, 8) };
        let cols = inner.next_power_of_two().clamp(16, COLUMNS * wider);
        let tiles = inner.div_ceil(cols) * outer;
        let parts = shares(wanted, tiles, n.div_ceil(rows)).min(64 * narrow);
        let is_full = !chip.is_cpu() && rows * cols * bytes == BYTES_OF_COLUMNS;
        Reduction { rows, cols, parts, warps: is_full.then_some(WARPS_OF_COLUMNS) }
    }

    /// Tiles of results.
    pub fn tiles(self, outer: usize, inner: usize) -> usize {
        outer * if inner == 1 { 1 } else { inner.div_ceil(self.cols) }
    }

    /// Extents of what the parts of all results leave.
    pub fn of_parts(self, outer: usize, inner: usize) -> Vec<usize> {
        if inner == 1 { vec![outer, self.parts] } else { vec![outer, self.parts, inner] }
    }

    fn of_rows(chip: &Chip, wanted: usize, outer: usize, n: usize) -> Reduction {
        let cols = n.next_power_of_two().clamp(16, ROW_ELEMENTS);
        let rows = (ROW_ELEMENTS / cols).min(outer.next_power_of_two()).min(64);
        let parts = shares(wanted, outer.div_ceil(rows), n.div_ceil(cols));
        // A row of two steps is read at once.
        let is_double = parts == 1 && n.next_power_of_two() == 2 * ROW_ELEMENTS && !chip.is_cpu();
        let cols = if is_double { 2 * ROW_ELEMENTS } else { cols };
        let rows = if parts > 1 { 1 } else { rows };
        Reduction { rows, cols, parts, warps: None }
    }
}

/// Programs for each of `tiles` so that there are about `wanted`, none without one of `steps`.
fn shares(wanted: usize, tiles: usize, steps: usize) -> usize {
    if tiles == 0 || tiles > MAX_SHARED || 2 * tiles > wanted || steps < 2 {
        return 1;
    }
    (wanted / tiles).min(steps).min(MAX_PARTS)
}

/// Rows and columns of a program that walks rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowTile {
    /// Rows of one program.
    pub rows: usize,
    /// Columns of a step.
    pub cols: usize,
    /// Warps of one program; the compiler chooses where absent.
    pub warps: Option<u32>,
}

/// Threads of a program that walks rows.
const THREADS: usize = 256;

impl RowTile {
    /// For the indices of extremes of `m` rows of `n` elements. Two vectors a thread and step: what a thread keeps is wide.
    pub fn of_indices(chip: &Chip, m: usize, n: usize, bytes: usize) -> RowTile {
        RowTile::of(chip, m, n, 2 * THREADS * vector_elements(bytes))
    }

    /// For scans of rows. One vector a thread and step: then a thread's elements are neighbours, and the scan needs no
    /// other layout than the loads.
    pub fn of_scans(chip: &Chip, m: usize, n: usize, bytes: usize) -> RowTile {
        RowTile::of(chip, m, n, THREADS * vector_elements(bytes))
    }

    fn of(chip: &Chip, m: usize, n: usize, elements: usize) -> RowTile {
        let most = if chip.is_cpu() { ROW_ELEMENTS } else { elements };
        let cols = n.next_power_of_two().clamp(16, most);
        let rows = (most / cols).min(m.next_power_of_two()).min(16);
        let warps = (rows * cols == most && !chip.is_cpu()).then_some(8);
        RowTile { rows, cols, warps }
    }
}

/// Rows of at least this many elements are cut where there are fewer than [`FEW_ROWS`].
const LONG_ROW: usize = 1 << 16;
/// So many rows keep a GPU busy, one program each.
const FEW_ROWS: usize = 256;

/// Parts of each of `m` rows of `n` elements whose extremes are looked for; 1 where a program has a row.
pub fn parts_of_rows(chip: &Chip, m: usize, n: usize) -> usize {
    match chip.is_cpu() || m >= FEW_ROWS || n < LONG_ROW {
        true => 1,
        false => (FEW_ROWS.div_ceil(m) * 4).min(n / 1024),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    fn h200() -> Chip {
        Chip::of_target(&Target::sm_90a())
    }

    #[test]
    fn few_results_are_shared_among_programs() {
        let parts = |outer, n, inner| Reduction::of(&h200(), [outer, n, inner], 4).parts;
        assert_eq!(parts(8192, 8192, 1), 1);
        assert_eq!(parts(1, 8192 * 8192, 1), 528);
        assert!(parts(1, 2048, 896) > 32);
        assert_eq!(parts(1, 8192, 8192), 8);
        assert_eq!(parts(1, 1 << 20, 64), 128);
        assert_eq!(parts(1, 100, 1), 1);
    }

    #[test]
    fn columns_are_read_in_as_many_bytes_for_any_dtype() {
        let tile = |chip: &Chip, bytes| {
            let Reduction { rows, cols, parts, warps } =
                Reduction::of(chip, [1, 8192, 8192], bytes);
            (rows, cols, parts, warps)
        };
        assert_eq!(tile(&h200(), 4), (32, 128, 8, Some(4)));
        assert_eq!(tile(&h200(), 2), (64, 128, 8, Some(4)));
        assert_eq!(tile(&Chip::Cpu, 2).3, None);
    }
}
