//! What wide programs have beside the rest: products by tensor cores, sums of small numbers, memory that
//! lanes hand values through, assertions, promises, and functions whose bits a GPU chooses.

use super::super::func::{ParamAttrs, Value};
use super::super::number::Scalar;
use super::super::ops::{BinaryOp, DotPrecision, LoopOptions, OpKind, Predicate, UnaryOp};
use super::super::types::{DType, Shape, TileType, Type};
use super::Maker;
use super::exprs::TRANSCENDENTAL;
use crate::ir::InterpArg;

impl Maker {
    /// One of these constructs.
    pub(super) fn wide_step(&mut self) {
        match self.rng.below(12) {
            0..3 => self.through_memory(),
            3 | 4 => self.assertion(),
            5 | 6 => self.multiple(),
            7 | 8 => self.scalar_param(),
            9 | 10 => self.dot(),
            _ => self.product(),
        }
    }

    /// Whether a reshape of so many elements is one that GPUs have; now and then it is not.
    pub(super) fn may_reshape(&mut self, numel: usize) -> bool {
        !self.options.wide || numel.is_power_of_two() || self.rng.chance(5)
    }

    /// 0, 1, 2, .. in a shape, row-major.
    pub(super) fn positions(&mut self, shape: Shape) -> Value {
        let wide = self.options.wide;
        let mut build = self.build();
        if !wide || shape.rank() < 2 {
            let line = build.iota(shape.numel());
            return build.reshape(line, shape);
        }
        // As people write it: a line along each axis, times its stride.
        let mut all = None;
        let mut stride = shape.numel();
        for axis in 0..shape.rank() {
            stride /= shape.extent(axis);
            let mut line = build.iota(shape.extent(axis));
            let by = build.int(DType::I64, stride as i64);
            let by = build.broadcast(by, Shape::new(&[shape.extent(axis)]));
            line = build.binary(BinaryOp::Mul, line, by);
            for before in 0..axis {
                line = build.expand_dims(line, before);
            }
            for after in axis + 1..shape.rank() {
                line = build.expand_dims(line, after);
            }
            let line = build.broadcast(line, shape);
            all = Some(match all {
                None => line,
                Some(sum) => build.binary(BinaryOp::Add, sum, line),
            });
        }
        all.expect("there are axes")
    }

    /// Integers in `-(below - 1) .. below`, made of a value: sums of few of them are exact in any order.
    pub(super) fn small(&mut self, x: Value, below: i64) -> Value {
        let (dtype, shape) = self.data_type(x);
        let mut build = self.build();
        let whole = build.cast(x, DType::I32);
        let n = build.full(Scalar::int(DType::I32, below), shape);
        let rest = build.binary(BinaryOp::Rem, whole, n);
        build.cast(rest, dtype)
    }

    /// 1 or -1, made of a value: any product of them is exact.
    pub(super) fn sign(&mut self, x: Value) -> Value {
        let (dtype, shape) = self.data_type(x);
        let mut build = self.build();
        let [zero, one, minus] = [0.0, 1.0, -1.0].map(|v| Scalar::float(dtype, v));
        let [zero, one, minus] = [zero, one, minus].map(|scalar| build.full(scalar, shape));
        let is_less = build.compare(Predicate::Lt, x, zero);
        build.select(is_less, minus, one)
    }

    /// Stores a tile and loads it in another order: lanes see what others of their program stored.
    fn through_memory(&mut self) {
        let Some(x) = self.pick(|ty| !ty.is_ptr() && !ty.shape.is_scalar()) else { return };
        let (dtype, shape) = self.data_type(x);
        let size = shape.numel();
        let (ptrs, within) = self.own_pointers(dtype, shape);
        self.build().store(ptrs, x, None);
        let turned = self.rng.chance(60);
        let by = self.rng.below(size) as i64;
        let base = self.own_base;
        let mut build = self.build();
        let at = if turned {
            let last = build.full(Scalar::int(DType::I64, size as i64 - 1), shape);
            build.binary(BinaryOp::Sub, last, within)
        } else {
            let by = build.full(Scalar::int(DType::I64, by), shape);
            let n = build.full(Scalar::int(DType::I64, size as i64), shape);
            let moved = build.binary(BinaryOp::Add, within, by);
            build.binary(BinaryOp::Rem, moved, n)
        };
        let base = build.broadcast(base, shape);
        let ptrs = build.ptr_add(base, at);
        let value = build.load(ptrs, None, None);
        self.keep_above(value, &[x]);
    }

    /// An assertion that holds.
    fn assertion(&mut self) {
        let Some(x) = self.pick(|ty| !ty.is_ptr() && ty.dtype().is_int()) else { return };
        let mut build = self.build();
        let holds = build.compare(Predicate::Eq, x, x);
        let mask = build.unary(UnaryOp::Not, holds);
        let holds = build.binary(BinaryOp::Or, holds, mask);
        let message = "x is x".to_owned();
        build.push(OpKind::Assert { message }, &[holds], &[], &[]);
    }

    /// A multiple, and that it is one.
    fn multiple(&mut self) {
        let fits = |ty: TileType| !ty.is_ptr() && matches!(ty.dtype(), DType::I64 | DType::I32);
        let Some(x) = self.pick(fits) else { return };
        let (dtype, shape) = self.data_type(x);
        let n = self.rng.pick(&[2, 4, 16, 64]);
        let mut build = self.build();
        let by = build.full(Scalar::int(dtype, n), shape);
        let value = build.binary(BinaryOp::Mul, x, by);
        let value = build.multiple_of(value, n as u64);
        self.keep_above(value, &[x]);
    }

    fn scalar_param(&mut self) {
        let dtype = self.dtype();
        let scalar = self.rng.scalar(dtype);
        let arg = InterpArg::Scalar(scalar);
        let value = self.add_param("s", Type::scalar(dtype), ParamAttrs::default(), arg);
        self.keep(value);
    }

    /// The dtype of a product's operands, and in which format it multiplies.
    pub(super) fn factors(&mut self) -> (DType, DotPrecision) {
        use DotPrecision::{Fast, Ieee, Tf32, Tf32x3};
        self.rng.pick(&[
            (DType::F16, Ieee),
            (DType::BF16, Ieee),
            (DType::BF16, Ieee),
            (DType::F32, Ieee),
            (DType::F32, Tf32),
            (DType::F32, Tf32x3),
            (DType::F8E4M3, Ieee),
            (DType::F8E4M3, Fast),
            (DType::F8E5M2, Ieee),
            (DType::F8E5M2, Fast),
            (DType::F64, Ieee),
            (DType::I8, Ieee),
            (DType::U8, Ieee),
        ])
    }

    /// A matrix product over a loop of tiles of two views, as kernels write it: what tensor cores and
    /// the copy engine are for.
    fn product(&mut self) {
        if self.nesting > 0 {
            return;
        }
        let (dtype, precision) = self.factors();
        let [tile_m, tile_n] = [(); 2].map(|()| self.rng.pick(&[16, 16, 32, 64]));
        let tile_k = self.rng.pick(&[16, 32, 32, 64]);
        let programs = self.programs() as i64;
        let m = (tile_m as i64 * programs - self.rng.pick(&[0, 0, 3])).max(1);
        let n = (tile_n as i64 - self.rng.pick(&[0, 0, 5])).max(1);
        let k = self.rng.pick(&[16, 32, 64, 96, 40]);
        let a = self.factor(dtype, [m, k]);
        let b = self.factor(dtype, [k, n]);
        let to = dtype.accumulator().unwrap_or(dtype);
        let program = self.program;
        let mut build = self.build();
        let rows = build.int(DType::I64, tile_m as i64);
        let row = build.binary(BinaryOp::Mul, program, rows);
        let bounds = [0, k, tile_k as i64].map(|v| build.int(DType::I64, v));
        let init = build.full(Scalar::zero(to), Shape::new(&[tile_m, tile_n]));
        let region = self.func.add_region();
        let index = self.func.add_region_arg(region, Type::scalar(DType::I64));
        let ty = self.func.ty(init);
        let acc = self.func.add_region_arg(region, ty);
        let mut build = super::Builder::at(&mut self.func, region, None);
        let zero = build.int(DType::I64, 0);
        let left = build.view_load(a, &[row, index], Shape::new(&[tile_m, tile_k]));
        let right = build.view_load(b, &[index, zero], Shape::new(&[tile_k, tile_n]));
        let next = build.dot(left, right, acc, precision);
        build.yield_values(&[next]);
        let options = LoopOptions { stages: self.rng.pick(&[0, 0, 2, 3]), unroll: 0 };
        let sums = self.build().for_loop(bounds, &[init], region, options)[0];
        let out = self.rng.pick(&[to, DType::F16, DType::BF16]);
        let value = self.build().cast(sums, out);
        self.keep_above(value, &[]);
        if self.rng.chance(60) {
            self.store_view(value, out, Shape::new(&[tile_m, tile_n]));
        }
    }

    /// A view of small integers, row-major or column-major, aligned as the copy engine wants it or not.
    fn factor(&mut self, dtype: DType, dims: [i64; 2]) -> Value {
        let by_rows = self.rng.chance(60);
        let unit = if by_rows { dims[1] } else { dims[0] };
        let is_aligned = self.rng.chance(70);
        let line = if is_aligned { (unit + 15) / 16 * 16 } else { unit + 1 };
        let strides = if by_rows { [line, 1] } else { [1, line] };
        let len = if by_rows { dims[0] * line } else { dims[1] * line };
        let least = if dtype.is_unsigned_int() { 0 } else { -2 };
        let number = |maker: &mut Maker| {
            let n = maker.rng.range(0, 4) as i64 + least;
            if dtype.is_float() { Scalar::float(dtype, n as f64) } else { Scalar::int(dtype, n) }
        };
        let size = dtype.bytes();
        let data =
            (0..len).flat_map(|_| number(self).bits.to_le_bytes()[..size].to_vec()).collect();
        // The extent along the axis of stride 1 counts too.
        let multiple = if is_aligned && unit % 16 == 0 { 16 } else { 0 };
        let attrs = ParamAttrs {
            readonly: true,
            unit_stride: by_rows,
            unit_axis: (!by_rows).then_some(0),
            multiple_of: if is_aligned { 16 } else { 0 },
            stride_multiple_of: multiple,
            ..ParamAttrs::default()
        };
        let arg = InterpArg::View {
            dtype,
            data,
            offset: 0,
            dims: dims.to_vec(),
            strides: strides.to_vec(),
            writable: false,
        };
        self.add_param("f", Type::View { dtype, rank: 2 }, attrs, arg)
    }

    /// Stores what a transcendental function gives, which a GPU computes to some ULP.
    pub(super) fn store_function(&mut self) {
        let fits = |ty: TileType| !ty.is_ptr() && ty.dtype().is_arithmetic_float();
        let Some(x) = self.pick(fits) else { return };
        let op = self.rng.pick(&TRANSCENDENTAL);
        let (dtype, shape) = self.data_type(x);
        let value = self.build().unary(op, x);
        self.approximate.push(self.args.len());
        self.store_own(value, dtype, shape);
    }
}
