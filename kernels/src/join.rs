//! Several matrices copied in one launch: what joins tensors, rolls them, and puts them between other values.
//!
//! A part has rows whose elements follow each other in memory, in what is read and in what is written. A program takes a
//! tile of one part; programs are counted part by part, or, where all parts have as many tiles, in turns, so that
//! columns of one row are written at about one time:
//!
//! ```text
//! parts of 3 and 2 tiles   a0 a1 a2 b0 b1
//! of 2 and 2, in turns     a0 b0 a1 b1
//! ```
//!
//! Extents and strides are packed into integers of which nothing is promised to the compiler, lest each combination of
//! extents be a kernel of its own; that all of them are multiples of `UNIT` is a constant.
//!
//! | integer | bits 36..63 | bits 8..36 | bits 4..8 | bits 0..4 |
//! |---|---|---|---|---|
//! | size | rows | elements of a row | first element written | 1, and 2 where nothing is read |
//! | steps | between rows read | between rows written | first element read | 1 |

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&copy_parts::KERNEL];

/// The most parts of a launch.
pub const MOST_PARTS: usize = 8;

/// The upper field of a packed integer.
#[device]
fn upper(packed: i64) -> i64 {
    packed >> 36
}

/// The field in the middle of a packed integer.
#[device]
fn middle(packed: i64) -> i64 {
    (packed >> 8) & 0xfff_ffff
}

/// Where elements are counted from: a whole vector where rows are made of those.
#[device]
fn first<const UNIT: usize>(packed: i64) -> i64 {
    if UNIT == 1 { (packed >> 4) & 15 } else { 0 }
}

/// The number of the tile that a program has of part `index`, of which there are `PARTS`; `left` is what is left of its own
/// number after the parts before.
#[device]
fn turn<const PARTS: usize, const TURNS: bool>(index: i64, left: i64) -> i64 {
    if TURNS {
        let round = program_id(0) / PARTS;
        if program_id(0) - round * PARTS == index { round } else { -1 }
    } else {
        left
    }
}

/// Copies tile `tile` of a part, or fills it with `value` where nothing is read, if the part has such a tile; what is left
/// of the number after its tiles.
#[device]
fn part<T: Element, const UNIT: usize, const ROWS: usize, const COLS: usize>(
    from: Ptr<T>,
    to: PtrMut<T>,
    size: i64,
    steps: i64,
    tile: i64,
    value: T,
) -> i64 {
    let (rows, cols) = (upper(size), multiple_of(middle(size), UNIT));
    let (across, down) = (cdiv(cols, COLS), cdiv(rows, ROWS));
    let tiles = across * down;
    if (tile >= 0) & (tile < tiles) {
        // Less than 2^31 tiles: 64-bit division is slow.
        let line = (tile.to::<u32>() / across.to::<u32>()).to::<i64>();
        let row = (line * ROWS + arange::<ROWS>()).col();
        let col = ((tile - line * across) * COLS + arange::<COLS>()).row();
        let inside = (row < rows) & (col < cols);
        let is_read = (size & 2) == 0;
        let read = row * multiple_of(upper(steps), UNIT) + col + first::<UNIT>(steps);
        let written = row * multiple_of(middle(steps), UNIT) + col + first::<UNIT>(size);
        store(to + written, load(from + read, inside & is_read, value), inside);
    }
    tile - tiles
}

/// `b[i, j] = a[i, j]` for each of `PARTS` pairs of matrices, or `value` where `a` is not read; no two of those written share
/// an element. `sizes` and `steps` are packed as the table of this file says.
#[kernel]
pub fn copy_parts<
    T: Element,
    const PARTS: usize,
    const TURNS: bool,
    const UNIT: usize,
    const ROWS: usize,
    const COLS: usize,
>(
    from_0: Ptr<T>,
    from_1: Ptr<T>,
    from_2: Ptr<T>,
    from_3: Ptr<T>,
    from_4: Ptr<T>,
    from_5: Ptr<T>,
    from_6: Ptr<T>,
    from_7: Ptr<T>,
    to_0: PtrMut<T>,
    to_1: PtrMut<T>,
    to_2: PtrMut<T>,
    to_3: PtrMut<T>,
    to_4: PtrMut<T>,
    to_5: PtrMut<T>,
    to_6: PtrMut<T>,
    to_7: PtrMut<T>,
    size_0: i64,
    size_1: i64,
    size_2: i64,
    size_3: i64,
    size_4: i64,
    size_5: i64,
    size_6: i64,
    size_7: i64,
    steps_0: i64,
    steps_1: i64,
    steps_2: i64,
    steps_3: i64,
    steps_4: i64,
    steps_5: i64,
    steps_6: i64,
    steps_7: i64,
    value: T,
) {
    let tile = turn::<PARTS, TURNS>(0, program_id(0));
    let left = part::<T, UNIT, ROWS, COLS>(from_0, to_0, size_0, steps_0, tile, value);
    let tile = turn::<PARTS, TURNS>(1, left);
    let left = part::<T, UNIT, ROWS, COLS>(from_1, to_1, size_1, steps_1, tile, value);
    if PARTS > 2 {
        let tile = turn::<PARTS, TURNS>(2, left);
        let left = part::<T, UNIT, ROWS, COLS>(from_2, to_2, size_2, steps_2, tile, value);
        if PARTS > 3 {
            let tile = turn::<PARTS, TURNS>(3, left);
            let left = part::<T, UNIT, ROWS, COLS>(from_3, to_3, size_3, steps_3, tile, value);
            if PARTS > 4 {
                let tile = turn::<PARTS, TURNS>(4, left);
                let left = part::<T, UNIT, ROWS, COLS>(from_4, to_4, size_4, steps_4, tile, value);
                let tile = turn::<PARTS, TURNS>(5, left);
                let left = part::<T, UNIT, ROWS, COLS>(from_5, to_5, size_5, steps_5, tile, value);
                let tile = turn::<PARTS, TURNS>(6, left);
                let left = part::<T, UNIT, ROWS, COLS>(from_6, to_6, size_6, steps_6, tile, value);
                let tile = turn::<PARTS, TURNS>(7, left);
                part::<T, UNIT, ROWS, COLS>(from_7, to_7, size_7, steps_7, tile, value);
            }
        }
    }
}
