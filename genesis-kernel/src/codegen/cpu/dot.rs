//! `dot`: blocks of the result in registers, one fused multiply-add for each element and step of K.
//!
//! The operands are laid out as they are read, `[M, K]` and `[K, N]`, in the accumulator's dtype. Eight
//! rows by two vectors of the result stay in registers while K runs, which gives 16 independent chains
//! and reads each vector of `b` once for eight rows. K is never split, so that every element is
//! `fma(a_k, b_k, acc)` for `k` in order: the bits of the interpreter.
//!
//! ```text
//! for column block of 32, for row block of 8:
//!     acc[8][2] = result block
//!     for k in 0..K:  b[2] = row k of b;  for r in 0..8:  acc[r] = fma(a[r][k], b, acc[r])
//!     result block = acc[8][2]
//! ```

use super::super::elementwise;
use super::super::llvm::{IntPred, Val};
use super::affine::{NONE, ONE, Step};
use super::chunk::{Chunk, Coord};
use super::lowering::Lower;
use super::nest::{MAX_LANES, Space};
use super::plan::side;
use crate::Error;
use crate::ir::{DType, DotPrecision, Op, OpKind, Shape, TileType, Value};

/// Rows of a block of the result.
const BLOCK_ROWS: usize = 8;

/// Vectors in a row of a block.
const BLOCK_VECTORS: usize = 2;

/// One dot: where everything is and how large.
struct Product {
    a: Val,
    b: Val,
    result: Val,
    dtype: DType,
    /// What the operands are packed in: i16 where pairs of them are multiplied.
    packed: DType,
    n: usize,
    k: usize,
}

/// An operand that is written to scratch.
struct Packing {
    value: Value,
    /// What it becomes: row-major, of the accumulator's dtype.
    packed: TileType,
    /// Whether f32 is rounded to tf32 on the way.
    is_rounded: bool,
    place: Val,
}

/// Columns of a block: vectors of so many lanes each.
type Columns = Vec<u32>;

impl<'a> Lower<'a> {
    /// A dot op.
    pub(super) fn dot(&mut self, op: Op) -> Result<(), Error> {
        let data = self.func.op(op);
        let OpKind::Dot { precision } = data.kind else {
            return Err(Error::bug("not a dot"));
        };
        let (a, b, acc) = (data.operands[0], data.operands[1], data.operands[2]);
        let value = data.results[0];
        if !self.plan.kept[value.index()] {
            return Ok(());
        }
        let (left, right) = (self.func.tile(a).shape, self.func.tile(b).shape);
        if left.rank() != 2 || right.rank() != 2 {
            return Err(Error::bug("a dot of other than two axes reached code generation"));
        }
        let dtype = self.dtype(value);
        let (m, k, n) = (left.extent(0), left.extent(1), right.extent(1));
        let packed = self.packed_dtype([self.dtype(a), self.dtype(b)], dtype, k);
        let a = self.dot_operand(a, packed, precision)?;
        let b = self.dot_operand(b, packed, precision)?;
        let result = self.new_place(value);
        self.copy_to(acc, result)?;
        self.product(&Product { a, b, result, dtype, packed, n, k }, m)?;
        self.places[value.index()] = Some(result);
        Ok(())
    }

    /// The address of an operand's elements in the accumulator's dtype.
    fn dot_operand(
        &mut self,
        value: Value,
        dtype: DType,
        precision: DotPrecision,
    ) -> Result<Val, Error> {
        let tile = self.func.tile(value);
        let is_rounded = precision == DotPrecision::Tf32 && tile.dtype() == DType::F32;
        if tile.dtype() == dtype && !is_rounded && self.plan.kept[value.index()] {
            self.flush_reads(value)?;
            if let Some(place) = self.places[value.index()] {
                return Ok(place);
            }
        }
        let packed = TileType::data(dtype, tile.shape);
        let place = self.alloc(packed);
        self.flush_reads(value)?;
        let packing = Packing { value, packed, is_rounded, place };
        let columns = Space::along(tile.shape, 0);
        match self.loaded_step(Space::new(tile.shape), value)? {
            Some(Step::Dynamic(step)) => {
                // Which one is faster is only known at run time.
                let e = self.e;
                let (by_rows, by_columns) = (e.block("pack_rows"), e.block("pack_columns"));
                let done = e.block("packed");
                e.cond_br(e.icmp(IntPred::Eq, step, self.index(1)), by_rows, by_columns);
                e.position(by_rows);
                self.pack(&packing)?;
                e.br(done);
                e.position(by_columns);
                self.pack_turned(&packing)?;
                e.br(done);
                e.position(done);
            }
            Some(NONE | ONE) => self.pack(&packing)?,
            _ if matches!(self.loaded_step(columns, value)?, Some(ONE | Step::Dynamic(_))) => {
                self.pack_turned(&packing)?;
            }
            _ => self.pack(&packing)?,
        }
        Ok(place)
    }

    /// How much the addresses of the first load below a value grow from lane to lane; nothing where no load is
    /// below it, none where it is not by the same amount.
    fn loaded_step(&mut self, space: Space, value: Value) -> Result<Option<Step>, Error> {
        let Some(axis) = space.lane_axis else { return Ok(Some(NONE)) };
        let zero = self.index(0);
        let mut row = vec![Coord::At(zero); space.shape.rank()];
        row[axis] = Coord::Lanes(zero);
        let survey = self.survey(&[value], &row);
        let Some((load, at)) = survey.loads.first() else { return Ok(Some(NONE)) };
        let pointer = self.func.op(*load).operands[0];
        let mut chunk = Chunk::new(space.lanes, row);
        Ok(self.affine(&mut chunk, pointer, at)?.map(|address| address.step))
    }

    /// Writes an operand's elements to scratch, row by row.
    fn pack(&mut self, packing: &Packing) -> Result<(), Error> {
        let &Packing { value, packed, place, .. } = packing;
        self.nest(Space::new(packed.shape), &[value], None, &mut |lower, chunk| {
            let lanes = lower.packed_lanes(chunk, packing)?;
            let at = chunk.at.clone();
            lower.store_flat(chunk, packed, place, &at, lanes);
            Ok(())
        })
    }

    /// The same of an operand whose columns follow each other in memory: they become rows of another tile, which is
    /// transposed in registers.
    fn pack_turned(&mut self, packing: &Packing) -> Result<(), Error> {
        let &Packing { value, packed, place, .. } = packing;
        let [rows, columns] = [0, 1].map(|axis| packed.shape.extent(axis));
        let turned = TileType::data(packed.dtype(), Shape::new(&[columns, rows]));
        let side = side(packed.dtype());
        let is_whole = rows % side == 0 && columns % side == 0;
        let to = if is_whole { self.alloc(turned) } else { place };
        self.nest(Space::along(packed.shape, 0), &[value], None, &mut |lower, chunk| {
            let lanes = lower.packed_lanes(chunk, packing)?;
            let at = chunk.at.clone();
            if is_whole {
                lower.store_flat(chunk, turned, to, &[at[1], at[0]], lanes);
            } else {
                lower.store_flat(chunk, packed, to, &at, lanes);
            }
            Ok(())
        })?;
        if is_whole { self.transpose(turned, to, place) } else { Ok(()) }
    }

    /// The lanes of an operand as they are packed.
    fn packed_lanes(&mut self, chunk: &mut Chunk, packing: &Packing) -> Result<Val, Error> {
        let &Packing { value, packed, is_rounded, .. } = packing;
        let lanes = self.lanes_of(chunk, value)?;
        let lanes = if is_rounded { self.round_tf32(lanes) } else { lanes };
        Ok(elementwise::cast(self.e, self.target(), lanes, self.dtype(value), packed.dtype()))
    }

    /// f32 rounded to the 10 bits of tf32's fraction, to nearest even; infinities and NaN stay.
    fn round_tf32(&self, x: Val) -> Val {
        let e = self.e;
        let ty = e.vec(e.i32(), e.lanes(e.type_of(x)));
        let bits = e.bitcast(x, ty);
        let odd = e.and(e.lshr(bits, e.int(ty, 13)), e.int(ty, 1));
        let rounded = e.add(bits, e.add(odd, e.int(ty, 0xfff)));
        let rounded = e.bitcast(e.and(rounded, e.int(ty, !0x1fff)), e.type_of(x));
        let is_nan = e.fcmp(super::super::llvm::FloatPred::Uno, x, x);
        e.select(is_nan, x, rounded)
    }

    fn product(&mut self, product: &Product, m: usize) -> Result<(), Error> {
        let width = MAX_LANES as usize;
        let block = width * BLOCK_VECTORS;
        let whole = product.n - product.n % block;
        let zero = self.index(0);
        let end = self.index(whole as i64);
        self.count_loop((zero, end), block as i64, &[], &mut |lower, column, _| {
            lower.row_blocks(product, m, column, &vec![MAX_LANES; BLOCK_VECTORS])?;
            Ok(Vec::new())
        })?;
        let mut column = whole;
        while column < product.n {
            let lanes = ((product.n - column) as u32).min(MAX_LANES);
            let lanes = 1 << lanes.ilog2();
            let start = self.index(column as i64);
            self.row_blocks(product, m, start, &vec![lanes])?;
            column += lanes as usize;
        }
        Ok(())
    }

    fn row_blocks(
        &mut self,
        product: &Product,
        m: usize,
        column: Val,
        columns: &Columns,
    ) -> Result<(), Error> {
        let whole = m - m % BLOCK_ROWS;
        let range = (self.index(0), self.index(whole as i64));
        self.count_loop(range, BLOCK_ROWS as i64, &[], &mut |lower, row, _| {
            lower.block(product, (row, BLOCK_ROWS), column, columns)?;
            Ok(Vec::new())
        })?;
        if m > whole {
            let row = self.index(whole as i64);
            self.block(product, (row, m - whole), column, columns)?;
        }
        Ok(())
    }

    /// The address of `[row, column]` of a row-major matrix.
    fn element(&self, dtype: DType, base: Val, row: Val, width: usize, column: Val) -> Val {
        let e = self.e;
        let position = e.add(e.mul(row, self.index(width as i64)), column);
        e.gep(e.memory_ty(dtype), base, position)
    }

    /// One block of the result.
    fn block(
        &mut self,
        product: &Product,
        rows: (Val, usize),
        column: Val,
        columns: &Columns,
    ) -> Result<(), Error> {
        let e = self.e;
        let dtype = product.dtype;
        let (ty, align) = (e.memory_ty(dtype), dtype.bytes() as u32);
        let (first_row, n_rows) = rows;
        let row = |r: usize| e.add(first_row, self.index(r as i64));
        let mut starts = Vec::new();
        let mut offset = 0;
        for &lanes in columns {
            starts.push((e.add(column, self.index(offset)), lanes));
            offset += i64::from(lanes);
        }
        let mut slots = Vec::new();
        for r in 0..n_rows {
            for &(start, lanes) in &starts {
                let address = self.element(dtype, product.result, row(r), product.n, start);
                slots.push((address, e.vec(ty, lanes)));
            }
        }
        let accs: Vec<Val> =
            slots.iter().map(|&(address, ty)| e.load_aligned(ty, address, align)).collect();
        let a_rows: Vec<Val> = (0..n_rows)
            .map(|r| self.element(product.packed, product.a, row(r), product.k, self.index(0)))
            .collect();
        let in_pairs = product.packed != dtype;
        let range = (self.index(0), self.index(product.k as i64));
        let step = if in_pairs { 2 } else { 1 };
        let accs = self.count_loop(range, step, &accs, &mut |lower, k, accs| match in_pairs {
            true => Ok(lower.step_of_pairs(product, &a_rows, k, &starts, accs)),
            false => lower.step_of_k(product, &a_rows, k, &starts, accs),
        })?;
        for (&(address, _), value) in slots.iter().zip(accs) {
            e.store_aligned(value, address, align);
        }
        Ok(())
    }
    /// The accumulators of a block after one step along K: `starts` are the columns of its vectors, and their lanes.
    fn step_of_k(
        &mut self,
        product: &Product,
        a_rows: &[Val],
        k: Val,
        starts: &[(Val, u32)],
        accs: &[Val],
    ) -> Result<Vec<Val>, Error> {
        let (e, dtype) = (self.e, product.dtype);
        let (ty, align) = (e.memory_ty(dtype), dtype.bytes() as u32);
        let b = self.row_of_b(product, k, starts);
        let mut next = Vec::new();
        for (r, &a_row) in a_rows.iter().enumerate() {
            let x = e.load_aligned(ty, e.gep(ty, a_row, k), align);
            for (c, (&b, &(_, lanes))) in b.iter().zip(starts).enumerate() {
                let operands = [e.splat(x, lanes), b, accs[r * starts.len() + c]];
                next.push(elementwise::fma(e, self.target(), dtype, &operands)?);
            }
        }
        Ok(next)
    }

    /// The same after two steps, of operands that are packed for it.
    fn step_of_pairs(
        &mut self,
        product: &Product,
        a_rows: &[Val],
        k: Val,
        starts: &[(Val, u32)],
        accs: &[Val],
    ) -> Vec<Val> {
        let e = self.e;
        let (ty, align) = (e.memory_ty(product.packed), product.packed.bytes() as u32);
        let low = self.row_of_b(product, k, starts);
        let high = self.row_of_b(product, e.add(k, self.index(1)), starts);
        let mut next = Vec::new();
        for (r, &a_row) in a_rows.iter().enumerate() {
            let x = e.load_aligned(e.i32(), e.gep(ty, a_row, k), align);
            for (c, (&low, &high)) in low.iter().zip(&high).enumerate() {
                next.push(self.add_pairs(accs[r * starts.len() + c], x, [low, high]));
            }
        }
        next
    }

    /// The vectors of a block's columns of row `k` of the right operand.
    fn row_of_b(&self, product: &Product, k: Val, starts: &[(Val, u32)]) -> Vec<Val> {
        let e = self.e;
        let (ty, align) = (e.memory_ty(product.packed), product.packed.bytes() as u32);
        let load = |&(start, lanes): &(Val, u32)| {
            let address = self.element(product.packed, product.b, k, product.n, start);
            e.load_aligned(e.vec(ty, lanes), address, align)
        };
        starts.iter().map(load).collect()
    }
}
