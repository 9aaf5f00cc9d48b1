//! Type rules of every op: what it takes and what it gives.

use std::ops::Range;

use super::super::asm;
use super::super::func::{Func, OpData};
use super::super::number::Scalar;
use super::super::ops::{AtomicOp, BinaryOp, Combine, DotPrecision, OpKind, UnaryOp};
use super::super::tma::TensorMap;
use super::super::types::{DType, Elem, MAX_RANK, Shape, TileType, Type};
use super::check::{Check, ensure};

/// Checks one op's operands and results, without its regions.
pub(super) fn check(func: &Func, op: &OpData) -> Check {
    let rule = Rule { func, op };
    match &op.kind {
        OpKind::Const(scalar) => rule.constant(*scalar),
        OpKind::Iota => rule.iota(),
        OpKind::ProgramId(axis) | OpKind::NumPrograms(axis) => rule.grid(*axis),
        OpKind::Unary(op) => rule.unary(*op),
        OpKind::Binary(op) => rule.binary(*op),
        OpKind::Compare(_) => rule.compare(),
        OpKind::Select => rule.select(),
        OpKind::Fma => rule.fma(),
        OpKind::Asm { text, constraints, pack, from } => {
            rule.asm(text, constraints, (*pack, *from))
        }
        OpKind::Cast => rule.cast(),
        OpKind::Bitcast => rule.bitcast(),
        OpKind::Broadcast => rule.broadcast(),
        OpKind::ExpandDims { axis } => rule.expand_dims(*axis),
        OpKind::Reshape => rule.reshape(),
        OpKind::Transpose { perm } => rule.transpose(perm),
        OpKind::Join => rule.join(),
        OpKind::Split => rule.split(),
        OpKind::PtrAdd => rule.ptr_add(),
        OpKind::Load => rule.load(),
        OpKind::Store => rule.store(),
        OpKind::AtomicRmw(op, _) => rule.atomic_rmw(*op),
        OpKind::AtomicCas(_) => rule.atomic_cas(),
        OpKind::ViewPtr => rule.view_ptr(),
        OpKind::ViewDim(axis) | OpKind::ViewStride(axis) => rule.view_number(*axis),
        OpKind::ViewLoad => rule.view_load(),
        OpKind::ViewStore => rule.view_store(),
        OpKind::MakeView => rule.make_view(),
        OpKind::Reduce { axis, combine } => rule.reduce(*axis, *combine),
        OpKind::Scan { axis, combine, .. } => rule.scan(*axis, *combine),
        OpKind::Gather { axis } => rule.gather(*axis),
        OpKind::Scatter { axis } => rule.scatter(*axis),
        OpKind::Histogram => rule.histogram(),
        OpKind::Dot { precision } => rule.dot(*precision),
        OpKind::Assert { .. } => rule.assert(),
        OpKind::Print { .. } => rule.print(),
        OpKind::MultipleOf(n) => rule.multiple_of(*n),
        OpKind::ConvertLayout => rule.convert_layout(),
        OpKind::TmaLoad(n) => rule.tma_load(*n),
        OpKind::TmaStore(n) => rule.tma_store(*n),
        OpKind::Return => rule.counts(0..=0, 0),
        // Their regions say what they take and give.
        OpKind::For(_) | OpKind::While | OpKind::If => Ok(()),
        OpKind::Yield => rule.no_results(),
    }
}

struct Rule<'f> {
    func: &'f Func,
    op: &'f OpData,
}

/// What a dtype must be, and how a message says so.
type Class = (fn(DType) -> bool, &'static str);

const NUMBER: Class = (DType::is_number, "a number");
const FLOAT: Class = (DType::is_arithmetic_float, "a float");
const FACTOR: Class = (|d| d.accumulator().is_some(), "a float or an integer of 8 bits");
const INT: Class = (DType::is_int, "an integer");
const BITS: Class = (|d| !d.is_float(), "an integer or bool");
const ATOMIC: Class = (|d| d.bits() >= 32, "a number of 32 or 64 bits");

impl Rule<'_> {
    fn counts(&self, operands: std::ops::RangeInclusive<usize>, results: usize) -> Check {
        let (found, range) = (self.op.operands.len(), operands);
        ensure!(range.contains(&found), "has {found} operands");
        let found = self.op.results.len();
        ensure!(found == results, "has {found} results");
        Ok(())
    }

    fn no_results(&self) -> Check {
        ensure!(self.op.results.is_empty(), "has results");
        Ok(())
    }

    fn operand(&self, i: usize) -> Type {
        self.func.ty(self.op.operands[i])
    }

    fn tile(&self, i: usize) -> Result<TileType, String> {
        let ty = self.operand(i);
        ty.as_tile().ok_or_else(|| format!("operand {i} is {ty}, not a tile"))
    }

    /// An operand that is a tile of numbers of this class.
    fn data(&self, i: usize, class: Class) -> Result<TileType, String> {
        let ty = self.tile(i)?;
        let fits = !ty.is_ptr() && class.0(ty.dtype());
        ensure!(fits, "operand {i} is {ty}, not {}", class.1);
        Ok(ty)
    }

    fn pointer(&self, i: usize) -> Result<TileType, String> {
        let ty = self.tile(i)?;
        ensure!(ty.is_ptr(), "operand {i} is {ty}, not a pointer");
        Ok(ty)
    }

    fn operand_is(&self, i: usize, expected: impl Into<Type>) -> Check {
        let (found, expected) = (self.operand(i), expected.into());
        ensure!(found == expected, "operand {i} is {found} instead of {expected}");
        Ok(())
    }

    fn result_is(&self, expected: impl Into<Type>) -> Check {
        let (found, expected) = (self.func.ty(self.op.results[0]), expected.into());
        ensure!(found == expected, "the result is {found} instead of {expected}");
        Ok(())
    }

    /// The result's tile; its shape is the op's to choose.
    fn result(&self) -> Result<TileType, String> {
        let ty = self.func.ty(self.op.results[0]);
        ty.as_tile().ok_or_else(|| format!("the result is {ty}, not a tile"))
    }

    fn constant(&self, scalar: Scalar) -> Check {
        self.counts(0..=0, 1)?;
        self.result_is(Type::scalar(scalar.dtype))?;
        ensure!(is_canonical(scalar), "{:#x} is not a value of {}", scalar.bits, scalar.dtype);
        Ok(())
    }

    fn iota(&self) -> Check {
        self.counts(0..=0, 1)?;
        let ty = self.result()?;
        let fits = ty.elem == Elem::Data(DType::I64) && ty.shape.rank() == 1;
        ensure!(fits, "the result is {ty}, not i64 of rank 1");
        Ok(())
    }

    fn grid(&self, axis: u8) -> Check {
        self.counts(0..=0, 1)?;
        ensure!(axis < 3, "a grid has no axis {axis}");
        self.result_is(Type::scalar(DType::I64))
    }

    fn unary(&self, op: UnaryOp) -> Check {
        self.counts(1..=1, 1)?;
        let class = match op {
            UnaryOp::Not => BITS,
            UnaryOp::Neg | UnaryOp::Abs => NUMBER,
            UnaryOp::PopCount | UnaryOp::LeadingZeros => INT,
            _ => FLOAT,
        };
        let ty = self.data(0, class)?;
        self.result_is(ty)
    }

    fn binary(&self, op: BinaryOp) -> Check {
        self.counts(2..=2, 1)?;
        let ty = self.data(0, binary_class(op))?;
        self.operand_is(1, ty)?;
        self.result_is(ty)
    }

    fn any_data(&self, i: usize) -> Result<TileType, String> {
        self.data(i, (|_| true, "numbers"))
    }

    fn compare(&self) -> Check {
        self.counts(2..=2, 1)?;
        let ty = self.any_data(0)?;
        self.operand_is(1, ty)?;
        self.result_is(ty.with_dtype(DType::Bool))
    }

    fn select(&self) -> Check {
        self.counts(3..=3, 1)?;
        let ty = self.tile(1)?;
        self.operand_is(0, ty.with_dtype(DType::Bool))?;
        self.operand_is(2, ty)?;
        self.result_is(ty)
    }

    fn fma(&self) -> Check {
        self.counts(3..=3, 1)?;
        let ty = self.data(0, FLOAT)?;
        self.operand_is(1, ty)?;
        self.operand_is(2, ty)?;
        self.result_is(ty)
    }

    fn asm(&self, text: &str, constraints: &str, (pack, from): (u8, u8)) -> Check {
        let letters = asm::letters(constraints)?;
        asm::check_text(text, letters.count())?;
        ensure!(asm::PACKS.contains(&pack), "it is of {pack} elements");
        let result = self.result()?;
        let own = letters.results.get(usize::from(from)..).unwrap_or_default();
        let is_own = asm::taken(own, result.dtype(), pack).is_some();
        ensure!(is_own, "from {from} on `{constraints}` has no {result}");
        let given = self.op.operands.len();
        let tiles = (0..given).map(|i| self.any_data(i)).collect::<Result<Vec<_>, _>>()?;
        let dtypes: Vec<DType> = tiles.iter().map(|ty| ty.dtype()).collect();
        let inputs = asm::inputs(&letters, pack, &dtypes);
        let mut rest = &letters.inputs[..];
        for &dtype in &dtypes[..inputs] {
            rest = &rest[asm::taken(rest, dtype, pack).unwrap_or_default()..];
        }
        ensure!(rest.is_empty(), "`{constraints}` has registers that no operand is");
        self.counts(inputs..=inputs + 1, 1)?;
        for (i, ty) in tiles[..inputs].iter().enumerate() {
            ensure!(ty.shape == result.shape, "operand {i} is {ty} for a result of {result}");
        }
        if given > inputs { self.operand_is(inputs, result) } else { Ok(()) }
    }

    fn cast(&self) -> Check {
        self.counts(1..=1, 1)?;
        let ty = self.any_data(0)?;
        self.result_is(ty.with_dtype(self.result()?.dtype()))
    }

    fn bitcast(&self) -> Check {
        self.counts(1..=1, 1)?;
        let ty = self.any_data(0)?;
        let to = self.result()?.dtype();
        self.result_is(ty.with_dtype(to))?;
        let from = ty.dtype();
        ensure!(from.bits() == to.bits(), "{from} and {to} differ in width");
        Ok(())
    }

    fn broadcast(&self) -> Check {
        self.counts(1..=1, 1)?;
        let (from, to) = (self.tile(0)?, self.result()?);
        self.result_is(from.with_shape(to.shape))?;
        let fits = from.shape.broadcast(to.shape) == Some(to.shape);
        ensure!(fits, "{} does not broadcast to {}", from.shape, to.shape);
        Ok(())
    }

    fn expand_dims(&self, axis: u8) -> Check {
        self.counts(1..=1, 1)?;
        let ty = self.tile(0)?;
        let (axis, rank) = (axis as usize, ty.shape.rank());
        ensure!(axis <= rank && rank < MAX_RANK, "rank {rank} gets no axis {axis}");
        self.result_is(ty.with_shape(ty.shape.with(axis, 1)))
    }

    fn reshape(&self) -> Check {
        self.counts(1..=1, 1)?;
        let (from, to) = (self.tile(0)?, self.result()?);
        self.result_is(from.with_shape(to.shape))?;
        let fits = from.shape.numel() == to.shape.numel();
        ensure!(fits, "{} and {} differ in elements", from.shape, to.shape);
        Ok(())
    }

    fn transpose(&self, perm: &[u8]) -> Check {
        self.counts(1..=1, 1)?;
        let ty = self.tile(0)?;
        let mut sorted = perm.to_vec();
        sorted.sort_unstable();
        let fits = sorted.iter().map(|&p| p as usize).eq(0..ty.shape.rank());
        ensure!(fits, "{perm:?} does not permute {} axes", ty.shape.rank());
        let extents: Vec<usize> = perm.iter().map(|&p| ty.shape.extent(p as usize)).collect();
        self.result_is(ty.with_shape(Shape::new(&extents)))
    }

    fn join(&self) -> Check {
        self.counts(2..=2, 1)?;
        let ty = self.tile(0)?;
        self.operand_is(1, ty)?;
        let rank = ty.shape.rank();
        ensure!(rank < MAX_RANK, "rank {rank} gets no new axis");
        self.result_is(ty.with_shape(ty.shape.with(rank, 2)))
    }

    fn split(&self) -> Check {
        self.counts(1..=1, 2)?;
        let ty = self.tile(0)?;
        let halves = ty.shape.extents().last() == Some(&2);
        ensure!(halves, "the last extent of {} is not 2", ty.shape);
        let half = Type::Tile(ty.with_shape(ty.shape.without(ty.shape.rank() - 1)));
        let second = self.func.ty(self.op.results[1]);
        ensure!(second == half, "the second result is {second} instead of {half}");
        self.result_is(half)
    }

    fn ptr_add(&self) -> Check {
        self.counts(2..=2, 1)?;
        let ty = self.pointer(0)?;
        self.operand_is(1, ty.with_dtype(DType::I64))?;
        self.result_is(ty)
    }

    /// An operand, where there is one, that is a mask of this shape.
    fn mask(&self, i: usize, shape: Shape) -> Check {
        if i < self.op.operands.len() {
            self.operand_is(i, TileType::data(DType::Bool, shape))?;
        }
        Ok(())
    }

    fn load(&self) -> Check {
        self.counts(1..=3, 1)?;
        let ptr = self.pointer(0)?;
        let value = ptr.with_dtype(ptr.dtype());
        self.mask(1, ptr.shape)?;
        if self.op.operands.len() == 3 {
            self.operand_is(2, value)?;
        }
        self.result_is(value)
    }

    fn store(&self) -> Check {
        self.counts(2..=3, 0)?;
        let ptr = self.pointer(0)?;
        self.operand_is(1, ptr.with_dtype(ptr.dtype()))?;
        self.mask(2, ptr.shape)
    }

    fn atomic_rmw(&self, op: AtomicOp) -> Check {
        self.counts(2..=3, 1)?;
        let ptr = self.pointer(0)?;
        let value = ptr.with_dtype(ptr.dtype());
        self.operand_is(1, value)?;
        match op {
            AtomicOp::Add => {
                let class: Class = (|d| d.bits() >= 32 || d.is_arithmetic_float(), ATOMIC.1);
                self.data(1, class)?;
            }
            AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => {
                self.data(1, (|d| d.bits() >= 32 && d.is_int(), "an integer of 32 or 64 bits"))?;
            }
            AtomicOp::Max | AtomicOp::Min | AtomicOp::Exchange => {
                self.data(1, ATOMIC)?;
            }
        }
        self.mask(2, ptr.shape)?;
        self.result_is(value)
    }

    fn atomic_cas(&self) -> Check {
        self.counts(3..=4, 1)?;
        let ptr = self.pointer(0)?;
        let value = ptr.with_dtype(ptr.dtype());
        self.operand_is(1, value)?;
        self.operand_is(2, value)?;
        self.data(1, ATOMIC)?;
        self.mask(3, ptr.shape)?;
        self.result_is(value)
    }

    fn view(&self) -> Result<(DType, usize), String> {
        match self.operand(0) {
            Type::View { dtype, rank } => Ok((dtype, rank as usize)),
            ty => Err(format!("operand 0 is {ty}, not a view")),
        }
    }

    fn view_ptr(&self) -> Check {
        self.counts(1..=1, 1)?;
        let (dtype, _) = self.view()?;
        self.result_is(TileType::ptr(dtype, Shape::SCALAR))
    }

    fn view_number(&self, axis: u8) -> Check {
        self.counts(1..=1, 1)?;
        let (_, rank) = self.view()?;
        ensure!((axis as usize) < rank, "a view of rank {rank} has no axis {axis}");
        self.result_is(Type::scalar(DType::I64))
    }

    /// Coordinates, which are these operands: one index for each axis.
    fn coordinates(&self, operands: Range<usize>, rank: usize) -> Check {
        let n = operands.len();
        ensure!(n == rank, "{n} coordinates for a view of rank {rank}");
        operands.into_iter().try_for_each(|i| self.operand_is(i, Type::scalar(DType::I64)))
    }

    fn view_load(&self) -> Check {
        self.counts(1..=usize::MAX, 1)?;
        let (dtype, rank) = self.view()?;
        self.coordinates(1..self.op.operands.len(), rank)?;
        let shape = self.result()?.shape;
        self.result_is(TileType::data(dtype, shape))?;
        ensure!(shape.rank() == rank, "a tile of rank {} of a view of rank {rank}", shape.rank());
        Ok(())
    }

    fn view_store(&self) -> Check {
        self.counts(2..=usize::MAX, 0)?;
        let (dtype, rank) = self.view()?;
        let is_masked = self.op.operands.len() > 2 + rank;
        self.coordinates(2..self.op.operands.len() - usize::from(is_masked), rank)?;
        let shape = self.tile(1)?.shape;
        self.mask(2 + rank, shape)?;
        self.operand_is(1, TileType::data(dtype, shape))?;
        ensure!(shape.rank() == rank, "a tile of rank {} to a view of rank {rank}", shape.rank());
        Ok(())
    }

    fn make_view(&self) -> Check {
        self.counts(3..=1 + 2 * MAX_RANK, 1)?;
        let ptr = self.pointer(0)?;
        ensure!(ptr.shape.is_scalar(), "operand 0 is {ptr}, not one pointer");
        let numbers = self.op.operands.len() - 1;
        ensure!(numbers.is_multiple_of(2), "{numbers} extents and strides");
        (1..=numbers).try_for_each(|i| self.operand_is(i, Type::scalar(DType::I64)))?;
        self.result_is(Type::View { dtype: ptr.dtype(), rank: (numbers / 2) as u8 })
    }

    fn tma_load(&self, n: u8) -> Check {
        let Some(load) = self.func.tma.loads.get(n as usize) else {
            return Err(format!("there is no load {n} of the copy engine"));
        };
        let map = self.tensor_map(load.map)?;
        self.counts(map.axes.len()..=map.axes.len(), 1)?;
        self.coordinates(0..self.op.operands.len(), map.axes.len())?;
        let shape = self.result()?.shape;
        self.result_is(TileType::data(map.dtype, shape))?;
        let numel = shape.numel() * map.dtype.bytes();
        let bytes = load.bytes as usize * load.multicast.parts() as usize;
        ensure!(bytes == numel, "{bytes} bytes for a tile of {numel}");
        let is_split = load.multicast.parts() * load.multicast.shares() > 1;
        ensure!(!(load.registers && is_split), "threads read what blocks share");
        let channel = self.func.tma.channels.get(usize::from(load.channel));
        let fits = channel.is_some_and(|c| load.offset + load.bytes <= c.slot_bytes);
        ensure!(fits, "load {n} does not fit its channel");
        ensure!(usize::from(load.contiguous) < shape.rank(), "no axis {}", load.contiguous);
        Ok(())
    }

    fn tma_store(&self, n: u8) -> Check {
        let Some(store) = self.func.tma.stores.get(n as usize) else {
            return Err(format!("there is no store {n} of the copy engine"));
        };
        let map = self.tensor_map(store.map)?;
        self.counts(1 + map.axes.len()..=1 + map.axes.len(), 0)?;
        self.coordinates(1..self.op.operands.len(), map.axes.len())?;
        let shape = self.tile(0)?.shape;
        self.operand_is(0, TileType::data(map.dtype, shape))
    }

    fn tensor_map(&self, n: u8) -> Result<&TensorMap, String> {
        let map = self.func.tma.maps.get(n as usize);
        map.ok_or_else(|| format!("there is no tensor map {n}"))
    }

    /// Operands of one shape that has the axis, as many as results.
    fn combined(&self, axis: u8, combine: Combine) -> Result<Vec<TileType>, String> {
        let n = self.op.operands.len();
        self.counts(1..=usize::MAX, n)?;
        if let Combine::Op(op) = combine {
            ensure!(n == 1, "an op combines 1 operand, here are {n}");
            ensure!(is_reduction(op), "`{}` does not reduce", op.name());
            self.data(0, binary_class(op))?;
        }
        let types: Vec<TileType> = (0..n).map(|i| self.any_data(i)).collect::<Result<_, _>>()?;
        let shape = types[0].shape;
        ensure!((axis as usize) < shape.rank(), "shape {shape} has no axis {axis}");
        ensure!(types.iter().all(|t| t.shape == shape), "operands differ in shape");
        Ok(types)
    }

    fn results_are(&self, expected: impl Iterator<Item = TileType>) -> Check {
        for (i, (&result, expected)) in self.op.results.iter().zip(expected).enumerate() {
            let found = self.func.ty(result);
            let same = found == Type::Tile(expected);
            ensure!(same, "result {i} is {found} instead of {expected}");
        }
        Ok(())
    }

    fn reduce(&self, axis: u8, combine: Combine) -> Check {
        let types = self.combined(axis, combine)?;
        self.results_are(types.iter().map(|t| t.with_shape(t.shape.without(axis as usize))))
    }

    fn scan(&self, axis: u8, combine: Combine) -> Check {
        let types = self.combined(axis, combine)?;
        self.results_are(types.into_iter())
    }

    fn gather(&self, axis: u8) -> Check {
        self.counts(2..=2, 1)?;
        let (x, index) = (self.any_data(0)?, self.data(1, INT)?);
        let (axis, rank) = (axis as usize, x.shape.rank());
        ensure!(axis < rank, "shape {} has no axis {axis}", x.shape);
        let (from, at) = (x.shape.extents(), index.shape.extents());
        let fits = at.len() == rank && (0..rank).all(|i| i == axis || from[i] == at[i]);
        ensure!(fits, "an index of shape {} along axis {axis} of {}", index.shape, x.shape);
        self.result_is(x.with_shape(index.shape))
    }

    fn scatter(&self, axis: u8) -> Check {
        self.counts(2..=2, 1)?;
        let (x, index) = (self.any_data(0)?, self.data(1, INT)?);
        let axis = axis as usize;
        ensure!(axis < x.shape.rank(), "shape {} has no axis {axis}", x.shape);
        ensure!(x.shape == index.shape, "an index of shape {} for {}", index.shape, x.shape);
        let extent = x.shape.extent(axis);
        ensure!(extent.is_power_of_two(), "scatters along {extent} elements");
        self.result_is(x)
    }

    fn histogram(&self) -> Check {
        self.counts(1..=1, 2)?;
        let x = self.data(0, INT)?;
        let is_line = |tile: &TileType| tile.dtype() == DType::I32 && tile.shape.rank() == 1;
        ensure!(is_line(&x), "counts {x} instead of a line of i32");
        ensure!(x.shape.numel().is_power_of_two(), "counts {} elements", x.shape.numel());
        let counts = self.func.ty(self.op.results[1]);
        let is_counts = counts.as_tile().is_some_and(|tile| !tile.is_ptr() && is_line(&tile));
        ensure!(is_counts, "the second result is {counts} instead of a line of i32");
        self.result_is(x)
    }

    fn dot(&self, precision: DotPrecision) -> Check {
        self.counts(3..=3, 1)?;
        let (a, b, acc) = (self.data(0, FACTOR)?, self.data(1, FACTOR)?, self.data(2, NUMBER)?);
        let (from, to) = (a.dtype(), acc.dtype());
        ensure!(b.dtype() == from, "multiplies {from} by {}", b.dtype());
        let wide = from.accumulator().unwrap_or(from);
        ensure!(to == wide, "products of {from} accumulate in {wide}, not {to}");
        match precision {
            DotPrecision::Ieee => {}
            DotPrecision::Tf32 | DotPrecision::Tf32x3 => {
                ensure!(from == DType::F32, "tf32 rounds f32, these are {from}");
            }
            DotPrecision::Fast => ensure!(from.is_f8(), "sums of {from} have all digits"),
        }
        let ranks = [a, b, acc].map(|t| t.shape.rank());
        ensure!(ranks == [2; 3], "ranks are {ranks:?}, not 2");
        let (m, k, n) = (a.shape.extent(0), a.shape.extent(1), b.shape.extent(1));
        let fits = b.shape.extent(0) == k && acc.shape == Shape::new(&[m, n]);
        ensure!(fits, "{} by {} does not give {}", a.shape, b.shape, acc.shape);
        self.result_is(acc)
    }

    fn assert(&self) -> Check {
        self.counts(1..=1, 0)?;
        self.data(0, (|d| d == DType::Bool, "a bool"))?;
        Ok(())
    }

    fn print(&self) -> Check {
        self.no_results()?;
        (0..self.op.operands.len()).try_for_each(|i| self.tile(i).map(|_| ()))
    }

    fn multiple_of(&self, n: u64) -> Check {
        self.counts(1..=1, 1)?;
        ensure!(n > 0, "everything is no multiple of 0");
        let ty = self.tile(0)?;
        ensure!(ty.is_ptr() || ty.dtype().is_int(), "operand 0 is {ty}, not an integer or pointer");
        self.result_is(ty)
    }

    fn convert_layout(&self) -> Check {
        self.counts(1..=1, 1)?;
        let ty = self.tile(0)?;
        self.result_is(ty)
    }
}

fn binary_class(op: BinaryOp) -> Class {
    match op {
        BinaryOp::Add
        | BinaryOp::Sub
        | BinaryOp::Mul
        | BinaryOp::Div
        | BinaryOp::Rem
        | BinaryOp::Min
        | BinaryOp::Max
        | BinaryOp::MinNum
        | BinaryOp::MaxNum => NUMBER,
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => BITS,
        BinaryOp::Shl | BinaryOp::Shr | BinaryOp::MulHi => INT,
        BinaryOp::Short => FLOAT,
    }
}

fn is_reduction(op: BinaryOp) -> bool {
    match op {
        BinaryOp::Add
        | BinaryOp::Mul
        | BinaryOp::Min
        | BinaryOp::Max
        | BinaryOp::MinNum
        | BinaryOp::MaxNum
        | BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor => true,
        BinaryOp::Sub
        | BinaryOp::Div
        | BinaryOp::Rem
        | BinaryOp::Shl
        | BinaryOp::Shr
        | BinaryOp::MulHi
        | BinaryOp::Short => false,
    }
}

fn is_canonical(scalar: Scalar) -> bool {
    match scalar.dtype {
        DType::F8E4M3 | DType::F8E5M2 => scalar.bits <= u64::from(u8::MAX),
        DType::F16 | DType::BF16 => scalar.bits <= u64::from(u16::MAX),
        DType::F32 => scalar.bits <= u64::from(u32::MAX),
        DType::F64 => true,
        dtype => Scalar::int(dtype, scalar.to_i64()) == scalar,
    }
}
