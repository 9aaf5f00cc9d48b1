//! Memory: which addresses the lanes of a chunk have, and the access that fits them.
//!
//! Addresses that follow each other become one vector access, equal ones a scalar access, all others a
//! gather or scatter. `base + lane * step` is found by walking the pointer's expression, so that no
//! vector of addresses is ever computed for the first two.
//!
//! | lanes' step | load | store |
//! |---|---|---|
//! | 1 | `<16 x T>` | `<16 x T>` |
//! | 0 | `T`, copied | scatter, so that the last lane wins |
//! | another constant | gather | scatter |
//! | known at run time | as for 1 if it is 1, else gather | as for 1 if it is 1, else scatter |
//!
//! A masked-off lane touches no memory: vectors use LLVM's masked accesses, and a scalar access goes to a
//! dummy in scratch instead.

use super::super::elementwise::{from_memory, to_memory};
use super::super::llvm::{Block, IntPred, Val};
use super::affine::{Affine, NONE, ONE, Step};
use super::chunk::{Chunk, Coord, is_uniform};
use super::lowering::Lower;
use super::plan::is_trivial_reshape;
use crate::Error;
use crate::ir::{BinaryOp, DType, Op, OpKind, Shape, TileType, Value};

impl Lower<'_> {
    /// The value as a start and a step, where it has that form.
    pub(super) fn affine(
        &mut self,
        chunk: &mut Chunk,
        value: Value,
        at: &[Coord],
    ) -> Result<Option<Affine>, Error> {
        if is_uniform(at) {
            let start = self.eval(chunk, value, at)?;
            return Ok(Some(Affine { start, step: NONE }));
        }
        let key = (value, at.to_vec());
        if let Some(&known) = chunk.affine.get(&key) {
            return Ok(known);
        }
        let found = self.find_affine(chunk, value, at)?;
        chunk.affine.insert(key, found);
        Ok(found)
    }

    fn find_affine(
        &mut self,
        chunk: &mut Chunk,
        value: Value,
        at: &[Coord],
    ) -> Result<Option<Affine>, Error> {
        let (None, Some(op)) = (self.places[value.index()], self.func.def_op(value)) else {
            return Ok(None);
        };
        let data = self.func.op(op);
        let e = self.e;
        match &data.kind {
            OpKind::Iota => Ok(Some(Affine { start: at[0].start(), step: ONE })),
            OpKind::Reshape if !is_trivial_reshape(self.func, op) => {
                let is_kept = self.places[data.operands[0].index()].is_some();
                match self.position_coords(op, at).filter(|_| !is_kept) {
                    Some(inner) => self.affine(chunk, data.operands[0], &inner),
                    None => Ok(None),
                }
            }
            kind if kind.is_view() => {
                let inner = self.operand_coords(op, 0, at);
                self.affine(chunk, data.operands[0], &inner)
            }
            OpKind::MultipleOf(_) => self.affine(chunk, data.operands[0], at),
            OpKind::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul)
                if self.dtype(value) == DType::I64 =>
            {
                let OpKind::Binary(kind) = data.kind else { return Ok(None) };
                let (x, y) = (data.operands[0], data.operands[1]);
                self.affine_binary(chunk, kind, [x, y], at)
            }
            OpKind::PtrAdd => {
                let base = self.affine(chunk, data.operands[0], at)?;
                let offset = self.affine(chunk, data.operands[1], at)?;
                let (Some(base), Some(offset)) = (base, offset) else { return Ok(None) };
                let start = e.gep(e.memory_ty(self.dtype(value)), base.start, offset.start);
                let step = self.step_op(BinaryOp::Add, base.step, offset.step);
                Ok(Some(Affine { start, step }))
            }
            _ => Ok(None),
        }
    }

    fn affine_binary(
        &mut self,
        chunk: &mut Chunk,
        kind: BinaryOp,
        operands: [Value; 2],
        at: &[Coord],
    ) -> Result<Option<Affine>, Error> {
        let e = self.e;
        let x = self.affine(chunk, operands[0], at)?;
        let y = self.affine(chunk, operands[1], at)?;
        let (Some(x), Some(y)) = (x, y) else { return Ok(None) };
        Ok(match kind {
            BinaryOp::Add => Some(Affine {
                start: self.plus(x.start, y.start),
                step: self.step_op(BinaryOp::Add, x.step, y.step),
            }),
            BinaryOp::Sub => Some(Affine {
                start: e.sub(x.start, y.start),
                step: self.step_op(BinaryOp::Sub, x.step, y.step),
            }),
            _ => {
                let start = e.mul(x.start, y.start);
                let factor = |v: Val| e.const_int(v).map_or(Step::Dynamic(v), Step::Const);
                let step = match (x.step, y.step) {
                    (NONE, step) => self.step_op(BinaryOp::Mul, step, factor(x.start)),
                    (step, NONE) => self.step_op(BinaryOp::Mul, step, factor(y.start)),
                    _ => return Ok(None),
                };
                Some(Affine { start, step })
            }
        })
    }

    /// A sum of indices; a zero leaves the other register as it is, so that equal indices stay one.
    fn plus(&self, a: Val, b: Val) -> Val {
        match (self.e.const_int(a), self.e.const_int(b)) {
            (Some(0), _) => b,
            (_, Some(0)) => a,
            _ => self.e.add(a, b),
        }
    }

    /// Arithmetic of steps, at run time only where it must be.
    fn step_op(&self, op: BinaryOp, a: Step, b: Step) -> Step {
        let e = self.e;
        let value = |step| match step {
            Step::Const(n) => self.index(n),
            Step::Dynamic(v) => v,
        };
        match (op, a, b) {
            (BinaryOp::Add, Step::Const(a), Step::Const(b)) => Step::Const(a.wrapping_add(b)),
            (BinaryOp::Sub, Step::Const(a), Step::Const(b)) => Step::Const(a.wrapping_sub(b)),
            (_, Step::Const(a), Step::Const(b)) => Step::Const(a.wrapping_mul(b)),
            (BinaryOp::Add, NONE, step) | (BinaryOp::Add | BinaryOp::Sub, step, NONE) => step,
            (BinaryOp::Add, a, b) => Step::Dynamic(e.add(value(a), value(b))),
            (BinaryOp::Sub, a, b) => Step::Dynamic(e.sub(value(a), value(b))),
            (_, NONE, _) | (_, _, NONE) => NONE,
            (_, ONE, step) | (_, step, ONE) => step,
            (_, a, b) => Step::Dynamic(e.mul(value(a), value(b))),
        }
    }

    /// The addresses of all lanes.
    fn spread_address(&self, chunk: &Chunk, dtype: DType, address: Affine) -> Val {
        let e = self.e;
        let steps = match address.step {
            Step::Const(n) => e.const_steps(e.i64(), 0, n, chunk.lanes),
            Step::Dynamic(v) => {
                let count = e.const_steps(e.i64(), 0, 1, chunk.lanes);
                e.mul(count, e.splat(v, chunk.lanes))
            }
        };
        e.gep(e.memory_ty(dtype), address.start, steps)
    }

    /// Whether a mask is true in every lane, known while code is written.
    fn is_all_true(&self, mask: Val) -> bool {
        mask == self.e.int(self.e.type_of(mask), 1)
    }

    /// The lanes that a memory access may touch: its own mask and the lanes inside the extent. None
    /// where all may.
    fn access_mask(&self, chunk: &Chunk, mask: Option<Val>) -> Option<Val> {
        let mask = mask.filter(|&m| !self.is_all_true(m));
        match (mask, chunk.tail) {
            (Some(mask), Some(tail)) => Some(self.e.and(mask, tail)),
            (mask, tail) => mask.or(tail),
        }
    }

    /// A load at coordinates.
    pub(super) fn load(&mut self, chunk: &mut Chunk, op: Op, at: &[Coord]) -> Result<Val, Error> {
        let operands = self.func.op(op).operands.clone();
        let dtype = self.dtype(operands[0]);
        let mask = operands.get(1).map(|&m| self.eval(chunk, m, at)).transpose()?;
        let other = match operands.get(2) {
            Some(&other) => Some(self.eval(chunk, other, at)?),
            None => None,
        };
        let e = self.e;
        if is_uniform(at) {
            let ptr = self.eval(chunk, operands[0], at)?;
            return Ok(self.load_scalar(dtype, ptr, mask, other));
        }
        let affine = self.affine(chunk, operands[0], at)?;
        let mask = self.access_mask(chunk, mask);
        let ty = e.vec(e.memory_ty(dtype), chunk.lanes);
        let zero = e.zero(ty);
        let other = other.map_or(zero, |v| to_memory(e, dtype, v));
        let align = dtype.bytes() as u32;
        let vector = |lower: &Self, start| match mask {
            None => lower.e.load_aligned(ty, start, align),
            Some(mask) => lower.masked_load(start, align, mask, other),
        };
        let loaded = match affine {
            Some(Affine { start, step: ONE }) => vector(self, start),
            Some(Affine { start, step: NONE }) => {
                let any = mask.map(|m| e.intrinsic("llvm.vector.reduce.or", &[e.type_of(m)], &[m]));
                let one = self.load_scalar(dtype, start, any, None);
                let all = to_memory(e, dtype, e.splat(one, chunk.lanes));
                mask.map_or(all, |m| e.select(m, all, other))
            }
            Some(address @ Affine { start, step: Step::Dynamic(step) }) => {
                let ways = self.if_unit(step, &mut |lower| vector(lower, start), &mut |lower| {
                    let ptrs = lower.spread_address(chunk, dtype, address);
                    lower.gather_lanes(ptrs, align, mask, other)
                });
                e.phi(ty, &ways)
            }
            Some(address) => {
                let ptrs = self.spread_address(chunk, dtype, address);
                self.gather_lanes(ptrs, align, mask, other)
            }
            None => {
                let ptrs = self.eval(chunk, operands[0], at)?;
                self.gather_lanes(ptrs, align, mask, other)
            }
        };
        Ok(from_memory(e, dtype, loaded))
    }

    /// Two ways, by whether a step turns out to be 1; gives what each computed and where it ended.
    fn if_unit(
        &self,
        step: Val,
        unit: &mut dyn FnMut(&Self) -> Val,
        other: &mut dyn FnMut(&Self) -> Val,
    ) -> [(Val, Block); 2] {
        let e = self.e;
        let blocks = [e.block("unit_step"), e.block("other_step")];
        let done = e.block("step_end");
        e.cond_br(e.icmp(IntPred::Eq, step, self.index(1)), blocks[0], blocks[1]);
        e.position(blocks[0]);
        let first = (unit(self), e.current_block());
        e.br(done);
        e.position(blocks[1]);
        let second = (other(self), e.current_block());
        e.br(done);
        e.position(done);
        [first, second]
    }

    /// One element; where the mask is false, the dummy is read and its value dropped.
    fn load_scalar(&self, dtype: DType, ptr: Val, mask: Option<Val>, other: Option<Val>) -> Val {
        let e = self.e;
        let (ty, align) = (e.memory_ty(dtype), dtype.bytes() as u32);
        let Some(mask) = mask.filter(|&m| !self.is_all_true(m)) else {
            return from_memory(e, dtype, e.load_aligned(ty, ptr, align));
        };
        let safe = e.select(mask, ptr, self.dummy());
        let loaded = from_memory(e, dtype, e.load_aligned(ty, safe, align));
        let other = other.unwrap_or_else(|| e.zero(e.register_ty(dtype)));
        e.select(mask, loaded, other)
    }

    fn masked_load(&self, ptr: Val, align: u32, mask: Val, other: Val) -> Val {
        let e = self.e;
        let types = [e.type_of(other), e.type_of(ptr)];
        let call = e.intrinsic("llvm.masked.load", &types, &[ptr, mask, other]);
        e.set_arg_align(call, 0, align);
        call
    }

    fn masked_store(&self, value: Val, ptr: Val, align: u32, mask: Val) -> Val {
        let e = self.e;
        let mask = self.opaque_mask(mask);
        let types = [e.type_of(value), e.type_of(ptr)];
        let call = e.intrinsic("llvm.masked.store", &types, &[value, ptr, mask]);
        e.set_arg_align(call, 1, align);
        call
    }

    pub(super) fn gather_lanes(&self, ptrs: Val, align: u32, mask: Option<Val>, other: Val) -> Val {
        let e = self.e;
        let lanes = e.lanes(e.type_of(ptrs));
        let mask = mask.unwrap_or_else(|| e.int(e.vec(e.i1(), lanes), 1));
        let types = [e.type_of(other), e.type_of(ptrs)];
        let call = e.intrinsic("llvm.masked.gather", &types, &[ptrs, mask, other]);
        e.set_arg_align(call, 0, align);
        call
    }

    fn scatter(&self, value: Val, ptrs: Val, align: u32, mask: Option<Val>) -> Val {
        let e = self.e;
        let lanes = e.lanes(e.type_of(ptrs));
        let mask = mask.unwrap_or_else(|| e.int(e.vec(e.i1(), lanes), 1));
        let types = [e.type_of(value), e.type_of(ptrs)];
        let call = e.intrinsic("llvm.masked.scatter", &types, &[value, ptrs, mask]);
        e.set_arg_align(call, 1, align);
        call
    }

    /// The chunk's lanes of a store op.
    pub(super) fn store_chunk(&mut self, chunk: &mut Chunk, op: Op) -> Result<(), Error> {
        let operands = self.func.op(op).operands.clone();
        let dtype = self.dtype(operands[0]);
        let e = self.e;
        let value = self.lanes_of(chunk, operands[1])?;
        let value = to_memory(e, dtype, value);
        let mask = operands.get(2).map(|&m| self.lanes_of(chunk, m)).transpose()?;
        let mask = self.access_mask(chunk, mask);
        let align = dtype.bytes() as u32;
        if chunk.lanes == 1 {
            let ptr = self.lanes_of(chunk, operands[0])?;
            self.store_scalar(value, ptr, align, mask);
            return Ok(());
        }
        let at = chunk.at.clone();
        let vector = |lower: &Self, start| match mask {
            None => lower.e.store_aligned(value, start, align),
            Some(mask) => lower.masked_store(value, start, align, mask),
        };
        match self.affine(chunk, operands[0], &at)? {
            Some(Affine { start, step: ONE }) => {
                vector(self, start);
            }
            Some(address @ Affine { start, step: Step::Dynamic(step) }) => {
                self.if_unit(step, &mut |lower| vector(lower, start), &mut |lower| {
                    let ptrs = lower.spread_address(chunk, dtype, address);
                    lower.scatter(value, ptrs, align, mask)
                });
            }
            Some(address) => {
                let ptrs = self.spread_address(chunk, dtype, address);
                self.scatter(value, ptrs, align, mask);
            }
            None => {
                let ptrs = self.lanes_of(chunk, operands[0])?;
                self.scatter(value, ptrs, align, mask);
            }
        }
        Ok(())
    }

    /// One element; where the mask is false, the dummy is written.
    fn store_scalar(&self, value: Val, ptr: Val, align: u32, mask: Option<Val>) {
        let safe = mask.map_or(ptr, |m| self.e.select(m, ptr, self.dummy()));
        self.e.store_aligned(value, safe, align);
    }

    /// A kept value at coordinates.
    pub(super) fn load_place(
        &mut self,
        chunk: &Chunk,
        value: Value,
        place: Val,
        at: &[Coord],
    ) -> Val {
        let tile = self.func.tile(value);
        self.load_flat(chunk, tile, place, tile.shape, at)
    }

    /// The position of the first lane in row-major order, and how much it grows from lane to lane.
    pub(super) fn flat(&self, shape: Shape, at: &[Coord]) -> (Val, i64) {
        let e = self.e;
        let mut position = self.index(0);
        let (mut stride, mut step) = (1, 0);
        for (axis, coord) in at.iter().enumerate().rev() {
            let offset = match stride {
                1 => coord.start(),
                _ => e.mul(coord.start(), self.index(stride)),
            };
            position = self.plus(position, offset);
            if matches!(coord, Coord::Lanes(_)) {
                step = stride;
            }
            stride *= shape.extent(axis) as i64;
        }
        (position, step)
    }

    /// Elements of a kept tile at coordinates of `shape`, which has as many elements.
    pub(super) fn load_flat(
        &mut self,
        chunk: &Chunk,
        tile: TileType,
        place: Val,
        shape: Shape,
        at: &[Coord],
    ) -> Val {
        let e = self.e;
        let (position, step) = self.flat(shape, at);
        let (ty, align) = (self.kept_ty(tile), self.element_bytes(tile) as u32);
        let first = e.gep(ty, place, position);
        let loaded = if step == 0 || chunk.lanes == 1 {
            e.load_aligned(ty, first, align)
        } else if step == 1 {
            e.load_aligned(e.vec(ty, chunk.lanes), first, align)
        } else {
            let steps = e.const_steps(e.i64(), 0, step, chunk.lanes);
            let ptrs = e.gep(ty, first, steps);
            let zero = e.zero(e.vec(ty, chunk.lanes));
            self.gather_lanes(ptrs, align, chunk.tail, zero)
        };
        if tile.is_ptr() { loaded } else { from_memory(e, tile.dtype(), loaded) }
    }

    /// Writes the chunk's lanes of a kept value.
    pub(super) fn store_place(&mut self, chunk: &Chunk, value: Value, place: Val, lanes: Val) {
        let tile = self.func.tile(value);
        let at = chunk.at.clone();
        self.store_flat(chunk, tile, place, &at, lanes);
    }

    /// Writes lanes at coordinates of a kept tile.
    pub(super) fn store_flat(
        &mut self,
        chunk: &Chunk,
        tile: TileType,
        place: Val,
        at: &[Coord],
        lanes: Val,
    ) {
        let e = self.e;
        let (position, step) = self.flat(tile.shape, at);
        let (ty, align) = (self.kept_ty(tile), self.element_bytes(tile) as u32);
        let first = e.gep(ty, place, position);
        let value = if tile.is_ptr() { lanes } else { to_memory(e, tile.dtype(), lanes) };
        match chunk.tail {
            _ if chunk.lanes == 1 => {
                e.store_aligned(value, first, align);
            }
            None if step == 1 => {
                e.store_aligned(value, first, align);
            }
            Some(tail) if step == 1 => {
                self.masked_store(value, first, align, tail);
            }
            tail => {
                let steps = e.const_steps(e.i64(), 0, step, chunk.lanes);
                let ptrs = e.gep(ty, first, steps);
                self.scatter(value, ptrs, align, tail);
            }
        }
    }
}
