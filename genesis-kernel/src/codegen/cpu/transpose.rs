//! Matrices in scratch, transposed a square of registers at a time.
//!
//! A step interleaves row `i` with the row half a square below it. As many of them as an index has bits exchange rows
//! and columns:
//!
//! ```text
//! a b    interleave (a b), (c d)    a c
//! c d                               b d
//! ```

use super::super::llvm::Val;
use super::lowering::Lower;
use super::plan::side;
use crate::Error;
use crate::ir::{DType, TileType, Value};

impl Lower<'_> {
    /// Writes a transposed load to a place: rows as they lie in memory, then squares of them.
    pub(super) fn turn(&mut self, matrix: Value, place: Val) -> Result<(), Error> {
        let tile = self.func.tile(matrix);
        let rows = match self.places[matrix.index()] {
            Some(rows) => rows,
            None => {
                let rows = self.alloc(tile);
                self.copy_to(matrix, rows)?;
                rows
            }
        };
        self.transpose(tile, rows, place)
    }

    /// Writes the transpose of a matrix, whose extents are multiples of a square's [`side`].
    pub(super) fn transpose(&mut self, from: TileType, source: Val, to: Val) -> Result<(), Error> {
        let [rows, columns] = [0, 1].map(|axis| from.shape.extent(axis));
        let side = side(from.dtype());
        let end = |n: usize| self.index(n as i64);
        let (row_range, column_range) = ((self.index(0), end(rows)), (self.index(0), end(columns)));
        self.count_loop(row_range, side as i64, &[], &mut |lower, row, _| {
            lower.count_loop(column_range, side as i64, &[], &mut |lower, column, _| {
                lower.transpose_square(from.dtype(), (source, columns), (to, rows), [row, column]);
                Ok(Vec::new())
            })
        })?;
        Ok(())
    }

    /// One square, at a row and a column of the source; both matrices with the elements of a row.
    fn transpose_square(
        &self,
        dtype: DType,
        (source, source_width): (Val, usize),
        (to, to_width): (Val, usize),
        [row, column]: [Val; 2],
    ) {
        let (e, n) = (self.e, side(dtype));
        let (ty, align) = (e.memory_ty(dtype), dtype.bytes() as u32);
        let line = |base, width: usize, first: Val, i: usize, along: Val| {
            let line = e.add(first, self.index(i as i64));
            e.gep(ty, base, e.add(e.mul(line, self.index(width as i64)), along))
        };
        let vector = e.vec(ty, n as u32);
        let mut lines: Vec<Val> = (0..n)
            .map(|i| e.load_aligned(vector, line(source, source_width, row, i, column), align))
            .collect();
        let half = n as u32 / 2;
        let order = |from: u32| -> Vec<u32> {
            (from..from + half).flat_map(|lane| [lane, lane + n as u32]).collect()
        };
        for _ in 0..n.ilog2() {
            let pairs = (0..n / 2).map(|i| (lines[i], lines[i + n / 2]));
            lines = pairs
                .flat_map(|(a, b)| [0, half].map(|from| e.shuffle(a, b, &order(from))))
                .collect();
        }
        for (i, &value) in lines.iter().enumerate() {
            e.store_aligned(value, line(to, to_width, column, i, row), align);
        }
    }
}
