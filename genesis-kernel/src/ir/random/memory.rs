//! Loads, gathers, views, atomics, and the stores at the end.

use super::super::func::{ParamAttrs, Value};
use super::super::ops::{AtomicOp, BinaryOp, Cache, Predicate};
use super::super::ordering::{AtomicOrdering, MemoryOrder, MemoryScope};
use super::super::types::{DType, Shape, TileType, Type};
use super::{Input, Maker};
use crate::ir::InterpArg;

/// Atomics that commute.
const COMMUTING: [AtomicOp; 6] =
    [AtomicOp::Add, AtomicOp::Max, AtomicOp::Min, AtomicOp::And, AtomicOp::Or, AtomicOp::Xor];

impl Maker {
    fn input(&mut self) -> Input {
        let which = self.rng.below(self.inputs.len());
        self.inputs[which]
    }

    /// The program's elements behind a pointer, addressed in one of the ways people write it.
    fn block_pointers(&mut self, ptr: Value) -> Value {
        let (block, start, within, index) = (self.block, self.start, self.within, self.index);
        let is_scalar_first = self.rng.chance(50);
        let mut build = self.build();
        if is_scalar_first {
            let first = build.ptr_add(ptr, start);
            let first = build.broadcast(first, block);
            build.ptr_add(first, within)
        } else {
            let base = build.broadcast(ptr, block);
            build.ptr_add(base, index)
        }
    }

    /// A masked load of the program's elements of an input.
    pub(super) fn load_block(&mut self) {
        let Input { ptr, dtype, .. } = self.input();
        let ptrs = self.block_pointers(ptr);
        let other = self.rng.chance(40).then(|| self.operand(dtype, self.block));
        let mask = self.mask;
        let cache = self.cache();
        let mut build = self.build();
        build.cache = cache;
        let value = build.load(ptrs, Some(mask), other);
        self.keep(value);
    }

    /// A hint that changes nothing.
    fn cache(&mut self) -> Cache {
        match self.options.wide {
            true => self.rng.pick(&[Cache::Usual, Cache::Usual, Cache::Once, Cache::Kept]),
            false => Cache::Usual,
        }
    }

    /// A load at indices that are computed.
    pub(super) fn gather(&mut self) {
        let Some(x) = self.pick(|ty| !ty.is_ptr() && ty.dtype().is_int()) else { return };
        let value = self.gather_at(x);
        self.keep_above(value, &[x]);
    }

    /// Elements of an input at these integers modulo its length.
    pub(super) fn gather_at(&mut self, x: Value) -> Value {
        let (_, shape) = self.data_type(x);
        let Input { ptr, len, .. } = self.input();
        let mut build = self.build();
        let wide = build.cast(x, DType::U64);
        let n = build.int(DType::U64, len as i64);
        let n = build.broadcast(n, shape);
        let within = build.binary(BinaryOp::Rem, wide, n);
        let index = build.cast(within, DType::I64);
        let base = build.broadcast(ptr, shape);
        let ptrs = build.ptr_add(base, index);
        build.load(ptrs, None, None)
    }

    /// A load of the elements so many further on.
    pub(super) fn load_shifted(&mut self, distance: Value) -> Value {
        let Input { ptr, len, .. } = self.input();
        let (block, index) = (self.block, self.index);
        let mut build = self.build();
        let distance = build.broadcast(distance, block);
        let moved = build.binary(BinaryOp::Add, index, distance);
        let n = build.int(DType::I64, len as i64);
        let n = build.broadcast(n, block);
        let mask = build.compare(Predicate::Lt, moved, n);
        let base = build.broadcast(ptr, block);
        let ptrs = build.ptr_add(base, moved);
        build.load(ptrs, Some(mask), None)
    }

    /// A view over data of its own: any strides, and coordinates that reach over its edges.
    pub(super) fn view_load(&mut self) {
        let rank = self.rng.range(1, 3);
        let extents: Vec<usize> = (0..rank).map(|_| self.rng.pick(&[1, 2, 3, 5, 8])).collect();
        let dims: Vec<i64> = (0..rank).map(|_| self.rng.range(1, 12) as i64).collect();
        let dtype = self.dtype();
        let (view, _) = self.add_view("v", dtype, &dims, false);
        let coords: Vec<Value> = (0..rank).map(|_| self.coordinate()).collect();
        let value = self.build().view_load(view, &coords, Shape::new(&extents));
        self.keep(value);
    }

    fn coordinate(&mut self) -> Value {
        if self.options.wide && self.rng.chance(25) {
            return self.computed_coordinate();
        }
        let constant = self.rng.range(0, 8) as i64 - 2;
        let program = self.program;
        let by_program = self.rng.chance(40);
        let mut build = self.build();
        let start = build.int(DType::I64, constant);
        if by_program { build.binary(BinaryOp::Add, start, program) } else { start }
    }

    /// A coordinate that is computed: near the edges, or now and then anywhere.
    fn computed_coordinate(&mut self) -> Value {
        let any = self.operand(DType::I64, Shape::SCALAR);
        if self.rng.chance(15) {
            return any;
        }
        let mut build = self.build();
        let n = build.int(DType::I64, 9);
        let near = build.binary(BinaryOp::Rem, any, n);
        let two = build.int(DType::I64, 2);
        build.binary(BinaryOp::Add, near, two)
    }

    /// A view as a parameter: row-major, transposed, or with gaps.
    fn add_view(&mut self, name: &str, dtype: DType, dims: &[i64], writable: bool) -> (Value, i64) {
        let mut order: Vec<usize> = (0..dims.len()).rev().collect();
        let unit_stride = self.rng.chance(60);
        if !unit_stride {
            order.reverse();
        }
        let mut stride = if unit_stride { 1 } else { self.rng.range(1, 2) as i64 };
        let mut strides = vec![0; dims.len()];
        for &axis in &order {
            strides[axis] = stride;
            stride *= dims[axis];
            stride += self.rng.below(3) as i64;
        }
        let data = self.rng.data(dtype, stride as usize);
        let offset = if self.options.wide { self.turn(dims, &mut strides, writable) } else { 0 };
        let (rank, dims) = (dims.len() as u8, dims.to_vec());
        let mut attrs = ParamAttrs {
            readonly: !writable,
            exclusive: writable,
            unit_stride: strides.last() == Some(&1),
            unit_axis: (!unit_stride && strides[0] == 1 && dims.len() > 1).then_some(0),
            ..self.aligned()
        };
        if self.options.wide {
            let is_natural = strides.iter().all(|&s| s >= 0);
            attrs.narrow = is_natural && self.rng.chance(50);
            attrs.zero_stride = strides.last() == Some(&0) && self.rng.chance(50);
            let rows = strides.len().checked_sub(2).map(|axis| strides[axis]);
            attrs.zero_row_stride = rows == Some(0) && self.rng.chance(50);
            if !(offset * dtype.bytes()).is_multiple_of(16) {
                attrs.multiple_of = 0;
            }
        }
        let arg = InterpArg::View { dtype, data, offset, dims, strides, writable };
        (self.add_param(name, Type::View { dtype, rank }, attrs, arg), stride)
    }

    /// Lets some axes of a view step backwards, or not at all; gives the element that it then starts at.
    fn turn(&mut self, dims: &[i64], strides: &mut [i64], writable: bool) -> usize {
        let mut offset = 0;
        for (stride, &dim) in strides.iter_mut().zip(dims) {
            match self.rng.below(10) {
                0 | 1 => {
                    offset += (dim - 1) * *stride;
                    *stride = -*stride;
                }
                2 if !writable => *stride = 0,
                _ => {}
            }
        }
        offset as usize
    }

    fn add_output(&mut self, dtype: DType, len: usize) -> Value {
        let data = self.rng.data(dtype, len);
        let attrs = ParamAttrs { exclusive: true, ..self.aligned() };
        let ty = TileType::ptr(dtype, Shape::SCALAR).into();
        self.add_param("out", ty, attrs, InterpArg::BufferMut(dtype, data))
    }

    pub(super) fn atomics(&mut self) {
        let dtype = self.rng.pick(&[DType::I32, DType::I64, DType::U32, DType::U64]);
        if self.nesting == 0 && self.rng.chance(50) {
            self.own_atomics(dtype);
        } else {
            self.shared_atomics(dtype);
        }
    }

    /// Programs and lanes meet at a few counters; only the sums are looked at.
    fn shared_atomics(&mut self, dtype: DType) {
        let n_counters = self.rng.range(1, 5);
        let counters = self.add_output(dtype, n_counters);
        let (block, mask) = (self.block, self.mask);
        let which = self.operand(DType::U32, block);
        let value = self.operand(dtype, block);
        let op = self.rng.pick(&COMMUTING);
        let mut build = self.build();
        let n = build.int(DType::U32, n_counters as i64);
        let n = build.broadcast(n, block);
        let counter = build.binary(BinaryOp::Rem, which, n);
        let counter = build.cast(counter, DType::I64);
        let base = build.broadcast(counters, block);
        let ptrs = build.ptr_add(base, counter);
        build.atomic_rmw(op, ptrs, value, Some(mask));
    }

    /// An order and a scope, which change nothing where no program waits for another.
    fn ordering(&mut self) -> AtomicOrdering {
        if !self.options.wide {
            return AtomicOrdering::default();
        }
        let order = match self.rng.chance(50) {
            true => MemoryOrder::ByUse,
            false => self.rng.pick(&MemoryOrder::WRITTEN),
        };
        let scope = match self.rng.chance(50) {
            true => MemoryScope::Gpu,
            false => self.rng.pick(&MemoryScope::WRITTEN),
        };
        AtomicOrdering { order, scope }
    }

    /// Each lane has an element of its own, so that the old value is defined.
    fn own_atomics(&mut self, dtype: DType) {
        let (block, programs) = (self.block, self.programs());
        let out = self.add_output(dtype, programs * block.numel());
        let ptrs = self.block_pointers(out);
        let value = self.operand(dtype, block);
        let (cas, is_masked) = (self.rng.chance(30), self.rng.chance(50));
        let mask = is_masked.then_some(self.mask);
        let ordering = self.ordering();
        let old = if cas {
            let expected = self.operand(dtype, block);
            let mut build = self.build();
            build.ordering = ordering;
            build.atomic_cas(ptrs, expected, value, mask)
        } else {
            let op = self.rng.pick(AtomicOp::ALL);
            let mut build = self.build();
            build.ordering = ordering;
            build.atomic_rmw(op, ptrs, value, mask)
        };
        self.keep_above(old, &[value]);
    }

    /// Writes one to four values, the newest among them.
    pub(super) fn store_results(&mut self) {
        let n = self.rng.range(1, 4).min(self.pool.len());
        for i in 0..n {
            let at = if i == 0 { self.pool.len() - 1 } else { self.rng.below(self.pool.len()) };
            let value = self.pool[at].value;
            self.store(value);
        }
    }

    fn store(&mut self, value: Value) {
        let (dtype, shape) = self.data_type(value);
        if shape == self.block && self.rng.chance(70) {
            self.store_block(value, dtype);
        } else if !shape.is_scalar() && shape.rank() <= 3 && self.rng.chance(30) {
            self.store_view(value, dtype, shape);
        } else {
            self.store_own(value, dtype, shape);
        }
    }

    /// To the program's elements, as they were loaded; sometimes read again and written elsewhere.
    fn store_block(&mut self, value: Value, dtype: DType) {
        let out = self.add_output(dtype, self.n);
        let ptrs = self.block_pointers(out);
        let mask = self.mask;
        let cache = self.cache();
        let mut build = self.build();
        build.cache = cache;
        build.store(ptrs, value, Some(mask));
        if self.rng.chance(10) {
            let ptrs = self.block_pointers(out);
            let again = self.build().load(ptrs, Some(mask), None);
            let block = self.block;
            self.store_own(again, dtype, block);
        }
    }

    /// To as many elements as each program has.
    pub(super) fn store_own(&mut self, value: Value, dtype: DType, shape: Shape) {
        let (ptrs, _) = self.own_pointers(dtype, shape);
        self.build().store(ptrs, value, None);
    }

    /// Pointers to the program's elements of a new output, and 0, 1, 2, .. in their shape.
    pub(super) fn own_pointers(&mut self, dtype: DType, shape: Shape) -> (Value, Value) {
        let size = shape.numel();
        let out = self.add_output(dtype, self.programs() * size);
        let program = self.program;
        let mut build = self.build();
        let n = build.int(DType::I64, size as i64);
        let start = build.binary(BinaryOp::Mul, program, n);
        let base = build.ptr_add(out, start);
        self.own_base = base;
        if shape.is_scalar() {
            let zero = self.build().int(DType::I64, 0);
            return (base, zero);
        }
        let within = self.positions(shape);
        let mut build = self.build();
        let ptrs = build.broadcast(base, shape);
        (build.ptr_add(ptrs, within), within)
    }

    /// To a view whose last tile is cut off, programs along axis 0.
    pub(super) fn store_view(&mut self, value: Value, dtype: DType, shape: Shape) {
        let mut dims: Vec<i64> = shape.extents().iter().map(|&e| e as i64).collect();
        let rows = dims[0];
        dims[0] = (rows * self.programs() as i64 - self.rng.below(2) as i64).max(1);
        let (view, _) = self.add_view("w", dtype, &dims, true);
        let mask = (shape == self.block && self.rng.chance(30)).then_some(self.mask);
        let program = self.program;
        let mut build = self.build();
        let n = build.int(DType::I64, rows);
        let row = build.binary(BinaryOp::Mul, program, n);
        let zero = build.int(DType::I64, 0);
        let mut coords = vec![zero; shape.rank()];
        coords[0] = row;
        build.view_store(view, value, &coords, mask);
    }
}
