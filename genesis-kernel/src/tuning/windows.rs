//! Pools and resampling: the results of a program, or the elements of one's window.
//!
//! A result is a loop over its window, each step of which waits for memory. Where results are few, programs therefore have
//! fewer of them, so that all multiprocessors have some; and where they are fewer than threads, a program has one, and
//! its threads share out the window.
//!
//! ```text
//! 64 x 64 x 56 x 56 results, 3 x 3 windows, H200      8 x 64 a program
//! 8 x 64 x 7 x 7                                      4 x 8
//! 512 results, 8 x 8 windows                          one result, 8 x 8 elements
//! ```

use super::Chip;
use super::multiprocessor::WARP_THREADS;

/// Tile of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowTile {
    /// Lines of results, or of the window of one.
    pub rows: usize,
    /// Columns of that.
    pub cols: usize,
    /// Warps of a program.
    pub warps: u32,
}

/// Results of one program, and elements of a wide window that one looks at together, at most.
const BLOCK: usize = 512;
/// Columns of a tile, at most.
const COLUMNS: usize = 128;
/// Programs for each multiprocessor.
const PROGRAMS: usize = 4;
/// Elements of a window from which on a program has one result, of any number and of few.
const WIDE: usize = 64;
const WIDE_OF_FEW: usize = 16;
/// The most warps of a program.
const WARPS: usize = 4;
/// Elements of a wide window that a thread has.
const OF_THREAD: usize = 4;

impl WindowTile {
    /// For `lines` of `width` results.
    pub fn of_results(chip: &Chip, lines: usize, width: usize) -> WindowTile {
        WindowTile::of_columns(chip, lines, width, COLUMNS)
    }

    /// For `lines` of `width` results that see one element each along a line: a thread then has neighbours, and looks up their
    /// line once.
    pub fn of_elements(chip: &Chip, lines: usize, width: usize) -> WindowTile {
        WindowTile::of_columns(chip, lines, width, BLOCK)
    }

    fn of_columns(chip: &Chip, lines: usize, width: usize, most: usize) -> WindowTile {
        let mut block = BLOCK;
        let wanted = PROGRAMS * chip.multiprocessors();
        while !chip.is_cpu() && block > WARP_THREADS as usize && lines * width < wanted * block {
            block /= 2;
        }
        let cols = width.next_power_of_two().clamp(1, most.min(block));
        let warps = (block / WARP_THREADS as usize).clamp(1, WARPS) as u32;
        WindowTile { rows: block / cols, cols, warps }
    }

    /// For one result, whose window has `down` lines of `across` elements; none where a program had better have many.
    pub fn of_window(chip: &Chip, results: usize, taps: [usize; 3]) -> Option<WindowTile> {
        let [depth, down, across] = taps;
        let elements = depth * down * across;
        let is_few = !chip.is_cpu() && results <= WARP_THREADS as usize * chip.multiprocessors();
        if elements < WIDE && !(is_few && elements >= WIDE_OF_FEW) {
            return None;
        }
        let cols = across.next_power_of_two().clamp(1, COLUMNS);
        let rows = (BLOCK / cols).min(down.next_power_of_two());
        let warps = rows * cols / (WARP_THREADS as usize * OF_THREAD);
        Some(WindowTile { rows, cols, warps: warps.clamp(1, WARPS) as u32 })
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
    fn few_results_are_shared_out_among_all_multiprocessors() {
        let tile = |lines, width| {
            let WindowTile { rows, cols, warps } = WindowTile::of_results(&h200(), lines, width);
            (rows, cols, warps)
        };
        assert_eq!(tile(64 * 64 * 56, 56), (8, 64, 4));
        assert_eq!(tile(8 * 64 * 7, 7), (4, 8, 1));
        assert_eq!(tile(1, 1 << 20), (4, 128, 4));
        let wide = WindowTile { rows: 1, cols: 512, warps: 4 };
        assert_eq!(WindowTile::of_elements(&h200(), 1024, 1022), wide);
        assert_eq!(tile(3, 5), (4, 8, 1));
        assert_eq!(WindowTile::of_results(&Chip::Cpu, 3, 5).rows, 64);
    }

    #[test]
    fn a_window_is_shared_out_where_it_is_wide_or_results_are_few() {
        let tile = |results, taps| WindowTile::of_window(&h200(), results, taps);
        assert_eq!(tile(1 << 20, [1, 3, 3]), None);
        assert_eq!(tile(512, [1, 3, 3]), None);
        assert_eq!(tile(1 << 20, [1, 6, 6]), None);
        assert_eq!(tile(512, [1, 6, 6]), Some(WindowTile { rows: 8, cols: 8, warps: 1 }));
        let wide = WindowTile { rows: 8, cols: 64, warps: 4 };
        assert_eq!(tile(1 << 20, [2, 8, 60]), Some(wide));
    }
}
