//! Views become pointers, extents and strides: what the back ends compile.
//!
//! A view parameter becomes scalar parameters in the order of the kernel ABI: the address, the
//! extents, the strides. A load of a view's tile becomes a masked load through pointers. The address
//! is split in a uniform part, computed once a program, and `sum of stride * iota`, so that analysis
//! reads strides and alignment off the ops:
//!
//! ```text
//! %v = view_load %x, %i, %j : f32[16x64]
//! ->
//! %p = ptr_add %x, %i * %x_stride0 + %j               scalar; stride 1 along the last axis
//! %q = ptr_add (broadcast %p), expand(iota 16) * %x_stride0 + expand(iota 64)
//! %m = expand(%i + iota 16 < %x_dim0) and expand(%j + iota 64 < %x_dim1)
//! %v = load %q, %m
//! ```
//!
//! A coordinate that may be negative, or wrap around to something negative before the tile ends, is also
//! compared with zero: every access is in bounds. A `make_view` goes: its operands are those values. Along an axis
//! whose stride is known to be 0 one element is read and repeated.

use super::rebuild::{Rebuild, Rewrite};
use crate::analysis::range::{self, Range};
use crate::diag::Diagnostic;
use crate::ir::{
    BinaryOp, Builder, DType, Func, Op, OpKind, ParamAttrs, Predicate, Region, Scalar, Shape, Type,
    Value,
};

/// The function without views.
///
/// # Errors
/// None; the signature is that of every pass that rebuilds.
pub fn run(func: &Func) -> Result<Func, Diagnostic> {
    let mut rebuild = Rebuild::new(func);
    let views = params(func, &mut rebuild);
    let ranges = range::Ranges::of(func);
    rebuild.body(&mut Views { views, ranges })?;
    Ok(rebuild.new)
}

/// The values that a view became.
#[derive(Clone, Debug)]
struct View {
    ptr: Value,
    dims: Vec<Value>,
    strides: Vec<Value>,
    /// The axis along which the stride is known to be 1.
    unit: Option<usize>,
    /// By axis: the stride is 0.
    zeros: Vec<bool>,
}

struct Views {
    /// By the old value's index.
    views: Vec<Option<View>>,
    ranges: range::Ranges,
}

fn params(func: &Func, rebuild: &mut Rebuild<'_>) -> Vec<Option<View>> {
    let mut views = vec![None; func.n_values()];
    for param in &func.params {
        let Type::View { dtype, rank } = func.ty(param.value) else {
            let (name, attrs) = (param.name.clone(), param.attrs.clone());
            let value = rebuild.new.add_param(name, func.ty(param.value), attrs);
            rebuild.set(param.value, value);
            continue;
        };
        let attrs = &param.attrs;
        let ptr_attrs = ParamAttrs {
            unit_stride: false,
            unit_axis: None,
            zero_stride: false,
            zero_row_stride: false,
            stride_multiple_of: 0,
            narrow: false,
            ..attrs.clone()
        };
        let ptr_ty = crate::ir::TileType::ptr(dtype, Shape::SCALAR).into();
        let ptr = rebuild.new.add_param(param.name.clone(), ptr_ty, ptr_attrs);
        let narrow = attrs.narrow;
        let mut index = |name: String, multiple_of: u64, natural: bool| {
            let attrs = ParamAttrs { multiple_of, narrow, natural, ..ParamAttrs::default() };
            rebuild.new.add_param(name, Type::scalar(DType::I64), attrs)
        };
        let multiple_if = |holds: bool| if holds { attrs.stride_multiple_of } else { 0 };
        let last = rank.saturating_sub(1);
        let unit = if attrs.unit_stride { Some(last) } else { attrs.unit_axis };
        let inner = unit.unwrap_or(last);
        let dims = (0..rank)
            .map(|axis| {
                let multiple = multiple_if(axis == inner);
                index(format!("{}_dim{axis}", param.name), multiple, true)
            })
            .collect();
        let strides = (0..rank)
            .map(|axis| {
                let multiple = multiple_if(axis != inner);
                index(format!("{}_stride{axis}", param.name), multiple, narrow)
            })
            .collect();
        let unit = unit.map(usize::from);
        let is_zero = |axis: u8| {
            (axis == last && attrs.zero_stride) || (axis + 1 == last && attrs.zero_row_stride)
        };
        let zeros = (0..rank).map(is_zero).collect();
        views[param.value.index()] = Some(View { ptr, dims, strides, unit, zeros });
    }
    views
}

/// A view that the kernel makes: what its stride is known to be, folding finds.
fn made(rebuild: &Rebuild<'_>, operands: &[Value]) -> View {
    let new: Vec<Value> = operands.iter().map(|&value| rebuild.get(value)).collect();
    let rank = new.len() / 2;
    let (dims, strides) = (new[1..=rank].to_vec(), new[1 + rank..].to_vec());
    View { ptr: new[0], dims, strides, unit: None, zeros: vec![false; rank] }
}

impl Rewrite for Views {
    fn op(&mut self, rebuild: &mut Rebuild<'_>, op: Op, region: Region) -> Result<(), Diagnostic> {
        let old = rebuild.old;
        let data = old.op(op);
        if data.kind == OpKind::MakeView {
            self.views[data.results[0].index()] = Some(made(rebuild, &data.operands));
            return Ok(());
        }
        let view = data.operands.first().and_then(|v| self.views[v.index()].clone());
        let Some(view) = view else {
            return rebuild.copy(self, op, region).map(|_| ());
        };
        match &data.kind {
            OpKind::ViewPtr => rebuild.set(data.results[0], view.ptr),
            OpKind::ViewDim(axis) => rebuild.set(data.results[0], view.dims[*axis as usize]),
            OpKind::ViewStride(axis) => {
                let stride = view.stride(&mut rebuild.at(op, region), *axis as usize);
                rebuild.set(data.results[0], stride);
            }
            OpKind::ViewLoad => {
                let coords = self.coords(rebuild, &data.operands[1..]);
                let shape = old.tile(data.results[0]).shape;
                let mut b = rebuild.at(op, region);
                let loaded = view.load(&mut b, &coords, shape);
                rebuild.set(data.results[0], loaded);
            }
            OpKind::ViewStore => {
                let (coords, own) = data.operands[2..].split_at(view.dims.len());
                let coords = self.coords(rebuild, coords);
                let own = own.first().map(|&mask| rebuild.get(mask));
                let value = rebuild.get(data.operands[1]);
                let shape = old.tile(data.operands[1]).shape;
                let mut b = rebuild.at(op, region);
                let (ptr, mask) = view.access(&mut b, &coords, shape);
                let mask = match own {
                    Some(own) => b.binary(BinaryOp::And, mask, own),
                    None => mask,
                };
                b.store(ptr, value, Some(mask));
            }
            _ => {
                let message = "a view can't be used here";
                return Err(Diagnostic::new(message, data.loc)
                    .help("load its elements, or pass it to a device function"));
            }
        }
        Ok(())
    }
}

/// A coordinate of a view's tile: where it begins along an axis.
#[derive(Clone, Copy)]
struct Coord {
    value: Value,
    /// What it is known to be.
    range: Range,
}

impl Coord {
    /// Whether none of so many elements from here on has a negative index: not this one, and none after it,
    /// which would be so where the sum wraps around.
    fn is_natural(&self, extent: usize) -> bool {
        self.range.low >= 0 && self.range.high <= i64::MAX - extent as i64
    }
}

impl Views {
    fn coords(&self, rebuild: &Rebuild<'_>, old: &[Value]) -> Vec<Coord> {
        let coord = |&v: &Value| Coord { value: rebuild.get(v), range: self.ranges.of_value(v) };
        old.iter().map(coord).collect()
    }
}

impl View {
    fn stride(&self, b: &mut Builder<'_>, axis: usize) -> Value {
        match (self.is_unit(axis), self.zeros[axis]) {
            (true, _) => b.int(DType::I64, 1),
            (_, true) => b.int(DType::I64, 0),
            _ => self.strides[axis],
        }
    }

    /// A tile; where the stride is 0 one element is read and repeated.
    fn load(&self, b: &mut Builder<'_>, coords: &[Coord], shape: Shape) -> Value {
        let is_repeated = |axis: usize| self.zeros[axis] && shape.extent(axis) > 1;
        let repeated: Vec<usize> = (0..shape.rank()).filter(|&axis| is_repeated(axis)).collect();
        if repeated.is_empty() {
            let (ptr, mask) = self.access(b, coords, shape);
            return b.load(ptr, Some(mask), None);
        }
        let extent = |axis: usize| if is_repeated(axis) { 1 } else { shape.extent(axis) };
        let extents: Vec<usize> = (0..shape.rank()).map(extent).collect();
        let mut coords = coords.to_vec();
        let wanted = coords.clone();
        for &axis in &repeated {
            // Any coordinate has the element that coordinate 0 has.
            coords[axis] = Coord { value: b.int(DType::I64, 0), range: Range::exactly(0) };
        }
        let (ptr, mask) = self.access(b, &coords, Shape::new(&extents));
        let loaded = b.load(ptr, Some(mask), None);
        let loaded = b.broadcast(loaded, shape);
        let masks: Vec<Value> =
            repeated.iter().map(|&axis| self.mask(b, wanted[axis], axis, shape)).collect();
        let mask = sum(b, &masks, BinaryOp::And).expect("an axis is repeated");
        let zero = b.full(Scalar::zero(b.func.tile(loaded).dtype()), shape);
        b.select(mask, loaded, zero)
    }

    /// Which elements of a tile are in bounds along an axis.
    fn mask(&self, b: &mut Builder<'_>, coord: Coord, axis: usize, shape: Shape) -> Value {
        let iota = b.iota(shape.extent(axis));
        let line = b.func.tile(iota).shape;
        let begin = b.broadcast(coord.value, line);
        let at = b.binary(BinaryOp::Add, begin, iota);
        let natural = coord.is_natural(shape.extent(axis));
        let line_masks = in_bounds(b, natural, at, self.dims[axis]);
        let mask = sum(b, &line_masks, BinaryOp::And).unwrap_or(at);
        along(b, mask, axis, shape)
    }

    fn is_unit(&self, axis: usize) -> bool {
        self.unit == Some(axis)
    }

    /// Pointers to the elements of a tile and which of them are in bounds.
    fn access(&self, b: &mut Builder<'_>, coords: &[Coord], shape: Shape) -> (Value, Value) {
        let starts: Vec<Value> = coords
            .iter()
            .enumerate()
            .map(|(axis, coord)| self.times_stride(b, coord.value, axis))
            .collect();
        let start = sum(b, &starts, BinaryOp::Add).unwrap_or_else(|| b.int(DType::I64, 0));
        let base = b.ptr_add(self.ptr, start);
        let base = b.broadcast(base, shape);
        let mut offsets = Vec::new();
        let mut masks = Vec::new();
        let mut conditions = Vec::new();
        for (axis, &coord) in coords.iter().enumerate() {
            if shape.extent(axis) == 1 {
                let natural = coord.range.low >= 0;
                conditions.extend(in_bounds(b, natural, coord.value, self.dims[axis]));
                continue;
            }
            let iota = b.iota(shape.extent(axis));
            let offset = self.times_stride(b, iota, axis);
            offsets.push(along(b, offset, axis, shape));
            masks.push(self.mask(b, coord, axis, shape));
        }
        if let Some(condition) = sum(b, &conditions, BinaryOp::And) {
            masks.push(b.broadcast(condition, shape));
        }
        let ptr = match sum(b, &offsets, BinaryOp::Add) {
            Some(offset) => b.ptr_add(base, offset),
            None => base,
        };
        let mask = sum(b, &masks, BinaryOp::And);
        (ptr, mask.unwrap_or_else(|| b.full(Scalar::int(DType::Bool, 1), shape)))
    }

    fn times_stride(&self, b: &mut Builder<'_>, index: Value, axis: usize) -> Value {
        if self.is_unit(axis) {
            return index;
        }
        let shape = b.func.tile(index).shape;
        let stride = self.stride(b, axis);
        let stride = b.broadcast(stride, shape);
        b.binary(BinaryOp::Mul, index, stride)
    }
}

/// The comparisons that hold an index between 0 and an extent.
fn in_bounds(b: &mut Builder<'_>, natural: bool, at: Value, dim: Value) -> Vec<Value> {
    let shape = b.func.tile(at).shape;
    let dim = b.broadcast(dim, shape);
    let mut masks = vec![b.compare(Predicate::Lt, at, dim)];
    if !natural {
        let zero = b.full(Scalar::zero(DType::I64), shape);
        masks.push(b.compare(Predicate::Ge, at, zero));
    }
    masks
}

/// A tile of rank 1 as axis `axis` of a shape.
pub(super) fn along(b: &mut Builder<'_>, line: Value, axis: usize, shape: Shape) -> Value {
    let mut value = line;
    for before in 0..axis {
        value = b.expand_dims(value, before);
    }
    for after in axis + 1..shape.rank() {
        value = b.expand_dims(value, after);
    }
    b.broadcast(value, shape)
}

fn sum(b: &mut Builder<'_>, values: &[Value], op: BinaryOp) -> Option<Value> {
    let (&first, rest) = values.split_first()?;
    Some(rest.iter().fold(first, |sum, &value| b.binary(op, sum, value)))
}

#[cfg(test)]
mod tests {
    use crate::interp::Interpreter;
    use crate::ir::{ArgValue, DType, Func, Scalar, parse, verify};

    /// What `out`, 36 elements, holds after a run on a 2-D view of `x`.
    fn run(func: &Func, lowered: bool, strides: [i64; 2], coords: [i64; 2]) -> Vec<u8> {
        run_with(func, lowered, [strides; 2], coords)
    }

    fn run_with(func: &Func, lowered: bool, strides: [[i64; 2]; 2], coords: [i64; 2]) -> Vec<u8> {
        let data: Vec<u8> = (0..36).flat_map(|v: i32| v.to_le_bytes()).collect();
        let mut interpreter = Interpreter::new(func);
        let x = interpreter.add_buffer("x", DType::I32, data, false);
        let out = interpreter.add_buffer("out", DType::I32, vec![0xff; 144], true);
        let mut args = Vec::new();
        for (ptr, strides) in [x, out].into_iter().zip(strides) {
            let (dims, strides) = (vec![5, 6], strides.to_vec());
            if lowered {
                let index = |v: &i64| ArgValue::Scalar(Scalar::int(DType::I64, *v));
                args.push(ArgValue::Ptr(ptr));
                args.extend(dims.iter().chain(&strides).map(index));
            } else {
                args.push(ArgValue::View { ptr, dims, strides });
            }
        }
        args.extend(coords.map(|c| ArgValue::Scalar(Scalar::int(DType::I64, c))));
        interpreter.run([1, 1, 1], &args).unwrap_or_else(|error| panic!("{error}\n{func}"));
        interpreter.buffer(out).to_vec()
    }

    const COPY: &str =
        "kernel copy(%x: view<i32,2> ATTRS, %y: view<i32,2> ATTRS, %i: i64, %j: i64) {
  %0 = view_load %x, %i, %j : i32[SHAPE]
  %1 = view_dim 0 %x : i64
  %2 = view_stride 1 %x : i64
  %3 = add %1, %2 : i64
  %4 = cast %3 : i32
  %5 = broadcast %4 : i32[SHAPE]
  %6 = add %0, %5 : i32[SHAPE]
  view_store %y, %6, %i, %j
  return
}";

    #[test]
    fn tiles_are_the_same_through_pointers() {
        let cases = [
            ("", [6, 1]),
            ("unit_stride", [6, 1]),
            ("", [1, 5]),
            ("unit_axis 0", [1, 5]),
            ("", [7, 1]),
        ];
        for (attrs, strides) in cases {
            for shape in ["4x4", "1x8", "8x1", "3x5", "1x1"] {
                let text = COPY.replace("ATTRS", attrs).replace("SHAPE", shape);
                let func = parse(&text).unwrap();
                let lowered = super::run(&func).unwrap();
                verify(&lowered).unwrap_or_else(|error| panic!("{error}\n{lowered}"));
                assert!(!lowered.to_string().contains("view"), "{lowered}");
                for coords in [[0, 0], [2, 3], [-1, -2], [4, 5], [9, 0]] {
                    let expected = run(&func, false, strides, coords);
                    assert_eq!(run(&lowered, true, strides, coords), expected, "{coords:?}");
                }
            }
        }
    }

    #[test]
    fn what_repeats_is_read_once() {
        let cases = [
            ("unit_stride zero_row_stride", [0, 1], "f32[1x4]"),
            ("unit_axis 0 zero_stride", [1, 0], "f32[4x1]"),
        ];
        for (attrs, strides, loaded) in cases {
            let text = COPY.replacen("ATTRS", attrs, 1).replace("ATTRS", "");
            let func = parse(&text.replace("SHAPE", "4x4")).unwrap();
            let lowered = super::run(&func).unwrap();
            verify(&lowered).unwrap_or_else(|error| panic!("{error}\n{lowered}"));
            let loaded = loaded.replace("f32", ": i32");
            let loads: Vec<String> = lowered
                .to_string()
                .lines()
                .filter(|line| line.contains("= load"))
                .map(str::to_owned)
                .collect();
            assert!(loads.len() == 1 && loads[0].ends_with(&loaded), "{loads:?}");
            for coords in [[0, 0], [2, 3], [-1, -2], [4, 5], [9, 0]] {
                let of = |func, lowered| run_with(func, lowered, [strides, [6, 1]], coords);
                assert_eq!(of(&lowered, true), of(&func, false), "{coords:?}");
            }
        }
    }

    #[test]
    fn a_natural_coordinate_is_not_compared_with_zero() {
        let text = "kernel k(%x: view<f32,1> unit_stride, %y: view<f32,1>) {
  %0 = program_id 0 : i64
  %1 = view_load %x, %0 : f32[8]
  view_store %y, %1, %0
  return
}";
        let lowered = super::run(&parse(text).unwrap()).unwrap().to_string();
        assert!(!lowered.contains("cmp ge"), "{lowered}");
        assert!(lowered.contains("cmp lt"), "{lowered}");
        // Only the second view multiplies by a stride: once for the program, once for the tile.
        assert_eq!(lowered.matches("mul").count(), 2, "{lowered}");
    }
}
