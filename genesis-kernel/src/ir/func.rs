//! A function of tile IR: arenas of ops, values and regions, and the builder that fills them.
//!
//! Regions are structured: an op such as `for` owns its regions, and a region is a list of ops of
//! which the last is a terminator. There are no use lists: a kernel has a few hundred ops, so a pass
//! that wants uses counts them.

use super::number::Scalar;
use super::ops::{
    AtomicOp, BinaryOp, Cache, Combine, DotPrecision, LoopOptions, OpKind, Predicate, UnaryOp,
};
use super::ordering::AtomicOrdering;
use super::tma::Tma;
use super::types::{DType, Elem, Shape, TileType, Type};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub u32);

        impl $name {
            /// The position in its arena.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// A value, printed `%3`.
    Value
    /// An op.
    Op
    /// A region.
    Region
}

/// A place in the user's source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Loc {
    /// The file, as `file!()` gives it.
    pub file: &'static str,
    /// The line, from 1.
    pub line: u32,
    /// The column of the first character, from 1.
    pub column: u32,
    /// The column after the last character on the same line, from 1.
    pub end_column: u32,
}

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Def {
    /// Result number `.1` of an op.
    Result(Op, u32),
    /// Argument number `.1` of a region.
    Argument(Region, u32),
}

/// A value's type and origin.
#[derive(Clone, Debug)]
pub struct ValueData {
    /// Its type.
    pub ty: Type,
    /// Where it comes from.
    pub def: Def,
}

/// An op in the arena.
#[derive(Clone, Debug)]
pub struct OpData {
    /// What it does.
    pub kind: OpKind,
    /// What it takes.
    pub operands: Vec<Value>,
    /// What it gives.
    pub results: Vec<Value>,
    /// The regions it owns.
    pub regions: Vec<Region>,
    /// The user's source, where known.
    pub loc: Option<Loc>,
    /// What a load or store says to caches.
    pub cache: Cache,
}

/// A region in the arena.
#[derive(Clone, Debug, Default)]
pub struct RegionData {
    /// Values defined on entry.
    pub args: Vec<Value>,
    /// The ops in order; the last is a terminator once the region is complete.
    pub ops: Vec<Op>,
}

/// What is promised about a parameter.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ParamAttrs {
    /// Memory behind it is never written during the launch.
    pub readonly: bool,
    /// It is the only access to its memory during the launch.
    pub exclusive: bool,
    /// An integer: a multiple of this. A pointer or a view's base: aligned to this many bytes. 0 and
    /// 1 say nothing.
    pub multiple_of: u64,
    /// A view whose stride along the last axis is 1.
    pub unit_stride: bool,
    /// A view whose stride along this axis, another than the last, is 1.
    pub unit_axis: Option<u8>,
    /// A view whose stride along the last axis is 0: each row repeats one element.
    pub zero_stride: bool,
    /// A view whose stride along the axis before the last is 0: all rows are one.
    pub zero_row_stride: bool,
    /// A view whose strides along the axes but that of stride 1 (the last one where none is known),
    /// and whose extent along that one, are multiples of this many elements. 0 and 1 say nothing.
    pub stride_multiple_of: u64,
    /// An integer that 32 bits hold with its sign, and less than 2^30 where it is `natural`. A view whose
    /// extents are less than that, and whose strides are in `0 .. 2^31`.
    pub narrow: bool,
    /// An integer that is not negative.
    pub natural: bool,
    /// Memory behind it is read-only, and no kernel writes it that this one may overlap: it may be read before all
    /// that is ahead on the stream has ended.
    pub constant: bool,
}

/// A parameter of a kernel.
#[derive(Clone, Debug)]
pub struct Param {
    /// The user's name for it.
    pub name: String,
    /// Its value: an argument of the body region.
    pub value: Value,
    /// What is promised about it.
    pub attrs: ParamAttrs,
}

/// A function of tile IR.
#[derive(Clone, Debug)]
pub struct Func {
    /// The kernel's name.
    pub name: String,
    /// Parameters in order.
    pub params: Vec<Param>,
    /// The region that runs once a program.
    pub body: Region,
    /// Whether a multiply and an add may contract to an fma.
    pub contract: bool,
    /// What the copy engine moves.
    pub tma: Tma,
    values: Vec<ValueData>,
    ops: Vec<OpData>,
    regions: Vec<RegionData>,
}

impl Func {
    /// An empty function.
    pub fn new(name: impl Into<String>) -> Func {
        Func {
            name: name.into(),
            params: Vec::new(),
            body: Region(0),
            contract: false,
            tma: Tma::default(),
            values: Vec::new(),
            ops: Vec::new(),
            regions: vec![RegionData::default()],
        }
    }

    /// Adds a parameter.
    pub fn add_param(&mut self, name: impl Into<String>, ty: Type, attrs: ParamAttrs) -> Value {
        let value = self.add_region_arg(self.body, ty);
        self.params.push(Param { name: name.into(), value, attrs });
        value
    }

    /// Adds an empty region.
    pub fn add_region(&mut self) -> Region {
        self.regions.push(RegionData::default());
        Region(self.regions.len() as u32 - 1)
    }

    /// Adds an argument to a region.
    pub fn add_region_arg(&mut self, region: Region, ty: Type) -> Value {
        let number = self.regions[region.index()].args.len() as u32;
        let value = self.add_value(ty, Def::Argument(region, number));
        self.regions[region.index()].args.push(value);
        value
    }

    /// Adds an op that is in no region yet; its results get these types.
    pub fn add_op(
        &mut self,
        kind: OpKind,
        operands: &[Value],
        result_types: &[Type],
        regions: &[Region],
        loc: Option<Loc>,
    ) -> Op {
        let op = Op(self.ops.len() as u32);
        let results = result_types
            .iter()
            .enumerate()
            .map(|(i, &ty)| self.add_value(ty, Def::Result(op, i as u32)))
            .collect();
        let (operands, regions) = (operands.to_vec(), regions.to_vec());
        self.ops.push(OpData { kind, operands, results, regions, loc, cache: Cache::Usual });
        op
    }

    fn add_value(&mut self, ty: Type, def: Def) -> Value {
        self.values.push(ValueData { ty, def });
        Value(self.values.len() as u32 - 1)
    }

    /// Leaves an op only these of its results, in this order.
    pub fn set_results(&mut self, op: Op, results: Vec<Value>) {
        for (i, &value) in results.iter().enumerate() {
            self.values[value.index()].def = Def::Result(op, i as u32);
        }
        self.ops[op.index()].results = results;
    }

    /// Leaves a region only these of its arguments, in this order.
    pub fn set_region_args(&mut self, region: Region, args: Vec<Value>) {
        for (i, &value) in args.iter().enumerate() {
            self.values[value.index()].def = Def::Argument(region, i as u32);
        }
        self.regions[region.index()].args = args;
    }

    /// An op's data.
    pub fn op(&self, op: Op) -> &OpData {
        &self.ops[op.index()]
    }

    /// An op's data, to change it.
    pub fn op_mut(&mut self, op: Op) -> &mut OpData {
        &mut self.ops[op.index()]
    }

    /// A region's data.
    pub fn region(&self, region: Region) -> &RegionData {
        &self.regions[region.index()]
    }

    /// A region's data, to change it.
    pub fn region_mut(&mut self, region: Region) -> &mut RegionData {
        &mut self.regions[region.index()]
    }

    /// A value's data.
    pub fn value(&self, value: Value) -> &ValueData {
        &self.values[value.index()]
    }

    /// A value's type.
    pub fn ty(&self, value: Value) -> Type {
        self.values[value.index()].ty
    }

    /// The tile type of a value.
    ///
    /// # Panics
    /// If it is a view; only for values that the verifier holds to be tiles.
    pub fn tile(&self, value: Value) -> TileType {
        self.ty(value).as_tile().expect("the verifier holds this value to be a tile")
    }

    /// The op that defines a value; none for a region's argument.
    pub fn def_op(&self, value: Value) -> Option<Op> {
        match self.value(value).def {
            Def::Result(op, _) => Some(op),
            Def::Argument(..) => None,
        }
    }

    /// The scalar constant that a value is, if it is one (also through `broadcast`).
    pub fn as_const(&self, value: Value) -> Option<Scalar> {
        let op = self.op(self.def_op(value)?);
        match &op.kind {
            OpKind::Const(scalar) => Some(*scalar),
            OpKind::Broadcast => self.as_const(op.operands[0]),
            _ => None,
        }
    }

    /// The number of values ever made; ids are below it.
    pub fn n_values(&self) -> usize {
        self.values.len()
    }

    /// The number of ops ever made; ids are below it.
    pub fn n_ops(&self) -> usize {
        self.ops.len()
    }

    /// Every op reachable from the body, in execution order, owners before what they own.
    pub fn walk(&self) -> Vec<Op> {
        self.walk_in(self.body)
    }

    /// Every op of a region, each before those of its own regions.
    pub fn walk_in(&self, region: Region) -> Vec<Op> {
        let mut order = Vec::new();
        self.walk_region(region, &mut order);
        order
    }

    fn walk_region(&self, region: Region, order: &mut Vec<Op>) {
        for &op in &self.region(region).ops {
            order.push(op);
            for &inner in &self.op(op).regions {
                self.walk_region(inner, order);
            }
        }
    }

    /// Replaces every use of `from` by `to`.
    pub fn replace_uses(&mut self, from: Value, to: Value) {
        for op in &mut self.ops {
            for operand in &mut op.operands {
                if *operand == from {
                    *operand = to;
                }
            }
        }
    }

    /// How often each value is used, indexed by value.
    pub fn count_uses(&self) -> Vec<u32> {
        let mut uses = vec![0; self.values.len()];
        for op in self.walk() {
            for operand in &self.op(op).operands {
                uses[operand.index()] += 1;
            }
        }
        uses
    }
}

/// Appends ops to a region and knows the result type of each.
///
/// It trusts its caller with types: front ends check and broadcast first and the verifier looks
/// again after each pass.
pub struct Builder<'f> {
    /// The function being built.
    pub func: &'f mut Func,
    /// Where ops go.
    pub region: Region,
    /// The source given to new ops.
    pub loc: Option<Loc>,
    /// What new loads and stores say to caches.
    pub cache: Cache,
    /// What new atomics order.
    pub ordering: AtomicOrdering,
}

impl<'f> Builder<'f> {
    /// A builder at the end of the body.
    pub fn new(func: &'f mut Func) -> Builder<'f> {
        let region = func.body;
        Builder::at(func, region, None)
    }

    /// A builder at the end of a region.
    pub fn at(func: &'f mut Func, region: Region, loc: Option<Loc>) -> Builder<'f> {
        let (cache, ordering) = (Cache::default(), AtomicOrdering::default());
        Builder { func, region, loc, cache, ordering }
    }

    /// Appends any op.
    pub fn push(
        &mut self,
        kind: OpKind,
        operands: &[Value],
        result_types: &[Type],
        regions: &[Region],
    ) -> Op {
        let is_access = kind.takes_cache();
        let op = self.func.add_op(kind, operands, result_types, regions, self.loc);
        if is_access {
            self.func.op_mut(op).cache = self.cache;
        }
        let region = self.region;
        self.func.region_mut(region).ops.push(op);
        op
    }

    fn push1(&mut self, kind: OpKind, operands: &[Value], ty: impl Into<Type>) -> Value {
        let op = self.push(kind, operands, &[ty.into()], &[]);
        self.func.op(op).results[0]
    }

    fn tile(&self, value: Value) -> TileType {
        self.func.tile(value)
    }

    /// A scalar constant.
    pub fn constant(&mut self, scalar: Scalar) -> Value {
        self.push1(OpKind::Const(scalar), &[], Type::scalar(scalar.dtype))
    }

    /// An integer constant, wrapped to the dtype.
    pub fn int(&mut self, dtype: DType, value: i64) -> Value {
        self.constant(Scalar::int(dtype, value))
    }

    /// A tile filled with one constant.
    pub fn full(&mut self, scalar: Scalar, shape: Shape) -> Value {
        let value = self.constant(scalar);
        self.broadcast(value, shape)
    }

    /// `0..extent` as i64.
    pub fn iota(&mut self, extent: usize) -> Value {
        self.push1(OpKind::Iota, &[], Type::tile(DType::I64, Shape::new(&[extent])))
    }

    /// The program's index along a grid axis.
    pub fn program_id(&mut self, axis: u8) -> Value {
        self.push1(OpKind::ProgramId(axis), &[], Type::scalar(DType::I64))
    }

    /// The number of programs along a grid axis.
    pub fn num_programs(&mut self, axis: u8) -> Value {
        self.push1(OpKind::NumPrograms(axis), &[], Type::scalar(DType::I64))
    }

    /// An elementwise op of one operand.
    pub fn unary(&mut self, op: UnaryOp, x: Value) -> Value {
        let ty = self.tile(x);
        self.push1(OpKind::Unary(op), &[x], ty)
    }

    /// An elementwise op of two operands of one type.
    pub fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        let ty = self.tile(a);
        self.push1(OpKind::Binary(op), &[a, b], ty)
    }

    /// A comparison of two operands of one type.
    pub fn compare(&mut self, predicate: Predicate, a: Value, b: Value) -> Value {
        let ty = self.tile(a).with_dtype(DType::Bool);
        self.push1(OpKind::Compare(predicate), &[a, b], ty)
    }

    /// `cond ? a : b`, element by element, all of one shape.
    pub fn select(&mut self, cond: Value, a: Value, b: Value) -> Value {
        let ty = self.tile(a);
        self.push1(OpKind::Select, &[cond, a, b], ty)
    }

    /// `a * b + c` rounded once.
    pub fn fma(&mut self, a: Value, b: Value, c: Value) -> Value {
        let ty = self.tile(a);
        self.push1(OpKind::Fma, &[a, b, c], ty)
    }

    /// To another dtype; the value itself where it has it already.
    pub fn cast(&mut self, x: Value, dtype: DType) -> Value {
        let ty = self.tile(x);
        if ty.elem == Elem::Data(dtype) {
            x
        } else {
            self.push1(OpKind::Cast, &[x], ty.with_dtype(dtype))
        }
    }

    /// The same bits as another dtype of the same width.
    pub fn bitcast(&mut self, x: Value, dtype: DType) -> Value {
        let ty = self.tile(x);
        if ty.elem == Elem::Data(dtype) {
            x
        } else {
            self.push1(OpKind::Bitcast, &[x], ty.with_dtype(dtype))
        }
    }

    /// To another shape by repetition; the value itself where it has it already.
    pub fn broadcast(&mut self, x: Value, shape: Shape) -> Value {
        let ty = self.tile(x);
        if ty.shape == shape {
            x
        } else {
            self.push1(OpKind::Broadcast, &[x], ty.with_shape(shape))
        }
    }

    /// Inserts an axis of extent 1 before `axis`.
    pub fn expand_dims(&mut self, x: Value, axis: usize) -> Value {
        let ty = self.tile(x);
        let shape = ty.shape.with(axis, 1);
        self.push1(OpKind::ExpandDims { axis: axis as u8 }, &[x], ty.with_shape(shape))
    }

    /// To another shape with as many elements.
    pub fn reshape(&mut self, x: Value, shape: Shape) -> Value {
        let ty = self.tile(x);
        if ty.shape == shape { x } else { self.push1(OpKind::Reshape, &[x], ty.with_shape(shape)) }
    }

    /// Permutes the axes: result axis `i` is operand axis `perm[i]`.
    pub fn transpose(&mut self, x: Value, perm: &[u8]) -> Value {
        let ty = self.tile(x);
        let extents: Vec<usize> = perm.iter().map(|&p| ty.shape.extent(p as usize)).collect();
        let shape = Shape::new(&extents);
        self.push1(OpKind::Transpose { perm: perm.to_vec() }, &[x], ty.with_shape(shape))
    }

    /// Two tiles to one with a new last axis of extent 2.
    pub fn join(&mut self, a: Value, b: Value) -> Value {
        let ty = self.tile(a);
        let shape = ty.shape.with(ty.shape.rank(), 2);
        self.push1(OpKind::Join, &[a, b], ty.with_shape(shape))
    }

    /// The two halves of a last axis of extent 2.
    pub fn split(&mut self, x: Value) -> (Value, Value) {
        let ty = self.tile(x);
        let half = Type::Tile(ty.with_shape(ty.shape.without(ty.shape.rank() - 1)));
        let op = self.push(OpKind::Split, &[x], &[half, half], &[]);
        let results = &self.func.op(op).results;
        (results[0], results[1])
    }

    /// Pointers moved by as many elements; both of one shape.
    pub fn ptr_add(&mut self, ptr: Value, offset: Value) -> Value {
        let ty = self.tile(ptr);
        self.push1(OpKind::PtrAdd, &[ptr, offset], ty)
    }

    /// Reads through pointers.
    pub fn load(&mut self, ptr: Value, mask: Option<Value>, other: Option<Value>) -> Value {
        let ty = self.tile(ptr);
        let operands: Vec<Value> = [Some(ptr), mask, other].into_iter().flatten().collect();
        self.push1(OpKind::Load, &operands, ty.with_dtype(ty.dtype()))
    }

    /// Writes through pointers.
    pub fn store(&mut self, ptr: Value, value: Value, mask: Option<Value>) {
        let operands: Vec<Value> = [Some(ptr), Some(value), mask].into_iter().flatten().collect();
        self.push(OpKind::Store, &operands, &[], &[]);
    }

    /// Reads, changes and writes in one step; gives the old value. Ordered by [`Builder::ordering`].
    pub fn atomic_rmw(
        &mut self,
        op: AtomicOp,
        ptr: Value,
        value: Value,
        mask: Option<Value>,
    ) -> Value {
        let ty = self.tile(value);
        let operands: Vec<Value> = [Some(ptr), Some(value), mask].into_iter().flatten().collect();
        self.push1(OpKind::AtomicRmw(op, self.ordering), &operands, ty)
    }

    /// Writes `new` where memory holds `expected`; gives the old value. Ordered by [`Builder::ordering`].
    pub fn atomic_cas(
        &mut self,
        ptr: Value,
        expected: Value,
        new: Value,
        mask: Option<Value>,
    ) -> Value {
        let ty = self.tile(new);
        let operands: Vec<Value> = [ptr, expected, new].into_iter().chain(mask).collect();
        self.push1(OpKind::AtomicCas(self.ordering), &operands, ty)
    }

    /// A view's base address.
    pub fn view_ptr(&mut self, view: Value) -> Value {
        let dtype = self.view_dtype(view);
        self.push1(OpKind::ViewPtr, &[view], TileType::ptr(dtype, Shape::SCALAR))
    }

    /// A view's extent along an axis.
    pub fn view_dim(&mut self, view: Value, axis: u8) -> Value {
        self.push1(OpKind::ViewDim(axis), &[view], Type::scalar(DType::I64))
    }

    /// A view's stride along an axis, in elements.
    pub fn view_stride(&mut self, view: Value, axis: u8) -> Value {
        self.push1(OpKind::ViewStride(axis), &[view], Type::scalar(DType::I64))
    }

    /// A tile of a view.
    pub fn view_load(&mut self, view: Value, coords: &[Value], shape: Shape) -> Value {
        let dtype = self.view_dtype(view);
        let operands: Vec<Value> = [view].iter().chain(coords).copied().collect();
        self.push1(OpKind::ViewLoad, &operands, Type::tile(dtype, shape))
    }

    /// Writes a tile of a view, of its elements those where the mask is true.
    pub fn view_store(&mut self, view: Value, value: Value, coords: &[Value], mask: Option<Value>) {
        let operands: Vec<Value> =
            [view, value].into_iter().chain(coords.iter().copied()).chain(mask).collect();
        self.push(OpKind::ViewStore, &operands, &[], &[]);
    }

    /// A view of memory from a pointer on, of these extents, none of them negative, and strides in elements.
    pub fn make_view(&mut self, ptr: Value, extents: &[Value], strides: &[Value]) -> Value {
        let (dtype, rank) = (self.func.tile(ptr).dtype(), extents.len() as u8);
        let operands = [&[ptr], extents, strides].concat();
        self.push1(OpKind::MakeView, &operands, Type::View { dtype, rank })
    }

    fn view_dtype(&self, view: Value) -> DType {
        match self.func.ty(view) {
            Type::View { dtype, .. } => dtype,
            Type::Tile(tile) => tile.dtype(),
        }
    }

    /// Reduces one tile along an axis by a binary op.
    pub fn reduce(&mut self, op: BinaryOp, x: Value, axis: usize) -> Value {
        let ty = self.tile(x);
        let kind = OpKind::Reduce { axis: axis as u8, combine: Combine::Op(op) };
        self.push1(kind, &[x], ty.with_shape(ty.shape.without(axis)))
    }

    /// Reduces several tiles of one shape together, by a region.
    pub fn reduce_region(&mut self, xs: &[Value], axis: usize, region: Region) -> Vec<Value> {
        let kind = OpKind::Reduce { axis: axis as u8, combine: Combine::Region };
        let types: Vec<Type> = xs
            .iter()
            .map(|&x| self.tile(x))
            .map(|ty| Type::Tile(ty.with_shape(ty.shape.without(axis))))
            .collect();
        let op = self.push(kind, xs, &types, &[region]);
        self.func.op(op).results.clone()
    }

    /// Scans one tile along an axis by a binary op.
    pub fn scan(&mut self, op: BinaryOp, x: Value, axis: usize, reverse: bool) -> Value {
        let ty = self.tile(x);
        let kind = OpKind::Scan { axis: axis as u8, reverse, combine: Combine::Op(op) };
        self.push1(kind, &[x], ty)
    }

    /// Scans several tiles of one shape together, by a region.
    pub fn scan_region(
        &mut self,
        xs: &[Value],
        axis: usize,
        reverse: bool,
        region: Region,
    ) -> Vec<Value> {
        let kind = OpKind::Scan { axis: axis as u8, reverse, combine: Combine::Region };
        let types: Vec<Type> = xs.iter().map(|&x| self.func.ty(x)).collect();
        let op = self.push(kind, xs, &types, &[region]);
        self.func.op(op).results.clone()
    }

    /// For each element of an integer tile, the element of `x` that is there along an axis; zero where there is none.
    pub fn gather(&mut self, x: Value, index: Value, axis: usize) -> Value {
        let (ty, shape) = (self.tile(x), self.tile(index).shape);
        self.push1(OpKind::Gather { axis: axis as u8 }, &[x, index], ty.with_shape(shape))
    }

    /// The tile whose element at an index along an axis is that of `x` where the index stands; indices are all places, each
    /// once.
    pub fn scatter(&mut self, x: Value, index: Value, axis: usize) -> Value {
        let ty = self.tile(x);
        self.push1(OpKind::Scatter { axis: axis as u8 }, &[x, index], ty)
    }

    /// Of each element of `x: i32[N]` how many equal ones come before it, and how many elements are 0, 1, .., `bins - 1`.
    pub fn histogram(&mut self, x: Value, bins: usize) -> (Value, Value) {
        let ty = self.tile(x);
        let counts = ty.with_shape(Shape::new(&[bins]));
        let op = self.push(OpKind::Histogram, &[x], &[ty.into(), counts.into()], &[]);
        let results = &self.func.op(op).results;
        (results[0], results[1])
    }

    /// `acc + a b`.
    pub fn dot(&mut self, a: Value, b: Value, acc: Value, precision: DotPrecision) -> Value {
        let ty = self.tile(acc);
        self.push1(OpKind::Dot { precision }, &[a, b, acc], ty)
    }

    /// A counted loop over a body region that is complete.
    pub fn for_loop(
        &mut self,
        bounds: [Value; 3],
        inits: &[Value],
        body: Region,
        options: LoopOptions,
    ) -> Vec<Value> {
        let operands: Vec<Value> = bounds.iter().chain(inits).copied().collect();
        let types: Vec<Type> = inits.iter().map(|&v| self.func.ty(v)).collect();
        let op = self.push(OpKind::For(options), &operands, &types, &[body]);
        self.func.op(op).results.clone()
    }

    /// A loop while its first region yields true.
    pub fn while_loop(&mut self, inits: &[Value], cond: Region, body: Region) -> Vec<Value> {
        let types: Vec<Type> = inits.iter().map(|&v| self.func.ty(v)).collect();
        let op = self.push(OpKind::While, inits, &types, &[cond, body]);
        self.func.op(op).results.clone()
    }

    /// A branch on a scalar bool over two complete regions.
    pub fn if_else(
        &mut self,
        cond: Value,
        then: Region,
        otherwise: Region,
        types: &[Type],
    ) -> Vec<Value> {
        let op = self.push(OpKind::If, &[cond], types, &[then, otherwise]);
        self.func.op(op).results.clone()
    }

    /// Ends the region with values.
    pub fn yield_values(&mut self, values: &[Value]) {
        self.push(OpKind::Yield, values, &[], &[]);
    }

    /// Ends the program.
    pub fn ret(&mut self) {
        self.push(OpKind::Return, &[], &[], &[]);
    }

    /// Records that a value is a multiple of `n`.
    pub fn multiple_of(&mut self, x: Value, n: u64) -> Value {
        let ty = self.func.ty(x);
        self.push1(OpKind::MultipleOf(n), &[x], ty)
    }
}
