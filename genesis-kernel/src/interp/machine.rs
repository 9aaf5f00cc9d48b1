//! One program at a time: values, control flow and memory ops.

use std::rc::Rc;

#[cfg(test)]
pub(in crate::interp) mod stepwise;

use super::combine::{self, Dot};
use super::elementwise as ew;
use super::error::{InterpError, InterpErrorKind};
use super::memory::Memory;
use super::tiles;
use crate::ir::print::mnemonic;
use crate::ir::{
    AtomicOp, AtomicOrdering, BinaryOp, Combine, DType, DotPrecision, Func, Op, OpData, OpKind,
    Region, Scalar, Shape, TileType, Value,
};
use crate::printed;

type Result<T> = std::result::Result<T, InterpErrorKind>;

/// The bits of a tile's elements, row-major; shared, because carried values are often only passed on.
type Bits = Rc<Vec<u64>>;

/// What a parameter holds in every program.
#[derive(Clone, Debug)]
pub(super) enum Slot {
    Tile(Bits),
    View(Rc<View>),
}

/// A view's argument.
#[derive(Debug)]
pub(super) struct View {
    ptr: u64,
    dims: Vec<i64>,
    strides: Vec<i64>,
}

impl Slot {
    pub(super) fn scalar(bits: u64) -> Slot {
        Slot::Tile(Rc::new(vec![bits]))
    }

    pub(super) fn view(ptr: u64, dims: &[i64], strides: &[i64]) -> Slot {
        Slot::View(Rc::new(View { ptr, dims: dims.to_vec(), strides: strides.to_vec() }))
    }
}

/// How a region ended.
enum Flow {
    Yield(Vec<Bits>),
    Return,
}

pub(crate) struct Machine<'r> {
    func: &'r Func,
    memory: &'r mut Memory,
    prints: &'r mut Vec<String>,
    /// Ops that each program may run, and what is left of them.
    fuel: u64,
    left: u64,
    grid: [u32; 3],
    /// The program's number, axis 0 fastest.
    program: u32,
    values: Vec<Option<Slot>>,
    /// The op that is being run, for messages.
    current: Option<Op>,
    /// How often each value is used.
    uses: Vec<u32>,
}

impl<'r> Machine<'r> {
    pub(super) fn new(
        func: &'r Func,
        memory: &'r mut Memory,
        prints: &'r mut Vec<String>,
        fuel: u64,
        grid: [u32; 3],
    ) -> Machine<'r> {
        let values = vec![None; func.n_values()];
        let uses = func.count_uses();
        let (left, current) = (fuel, None);
        Machine { func, memory, prints, fuel, left, grid, program: 0, values, current, uses }
    }

    pub(super) fn run_program(
        &mut self,
        program: u32,
        args: &[Slot],
    ) -> std::result::Result<(), InterpError> {
        self.program = program;
        self.left = self.fuel;
        self.memory.start_program();
        for (param, slot) in self.func.params.iter().zip(args) {
            self.values[param.value.index()] = Some(slot.clone());
        }
        self.region(self.func.body).map(|_| ()).map_err(|kind| self.error(kind))
    }

    fn error(&self, kind: InterpErrorKind) -> InterpError {
        let op = self.current.map(|op| self.func.op(op));
        InterpError {
            program: Some(self.program_ids()),
            loc: op.and_then(|op| op.loc),
            op: op.map(|op| mnemonic(&op.kind)).unwrap_or_default(),
            kind,
        }
    }

    fn program_ids(&self) -> [u32; 3] {
        let [x, y, _] = self.grid;
        [self.program % x, self.program / x % y, self.program / x / y]
    }

    fn region(&mut self, region: Region) -> Result<Flow> {
        let func = self.func;
        for &op in &func.region(region).ops {
            let data = func.op(op);
            self.current = Some(op);
            let left = self.left.checked_sub(1);
            self.left = left.ok_or(InterpErrorKind::Fuel { ops: self.fuel })?;
            match &data.kind {
                OpKind::Yield => return Ok(Flow::Yield(self.tiles(&data.operands))),
                OpKind::Return => return Ok(Flow::Return),
                OpKind::For(_) | OpKind::While | OpKind::If => {
                    let Flow::Yield(results) = self.control(data)? else {
                        return Ok(Flow::Return);
                    };
                    self.set_all(&data.results, results);
                }
                OpKind::MakeView => self.make_view(data),
                kind => {
                    let results = self.plain(kind, data)?;
                    self.set_all(&data.results, results.into_iter().map(Rc::new));
                }
            }
        }
        Ok(Flow::Return)
    }

    fn set(&mut self, value: Value, bits: Bits) {
        self.values[value.index()] = Some(Slot::Tile(bits));
    }

    fn set_all(&mut self, values: &[Value], bits: impl IntoIterator<Item = Bits>) {
        for (&value, bits) in values.iter().zip(bits) {
            self.set(value, bits);
        }
    }

    fn tile(&self, value: Value) -> Bits {
        match &self.values[value.index()] {
            Some(Slot::Tile(bits)) => bits.clone(),
            _ => unreachable!("the verifier holds operands to be defined tiles here"),
        }
    }

    fn tiles(&self, values: &[Value]) -> Vec<Bits> {
        values.iter().map(|&v| self.tile(v)).collect()
    }

    fn scalar(&self, value: Value) -> u64 {
        self.tile(value)[0]
    }

    fn view(&self, value: Value) -> Rc<View> {
        match &self.values[value.index()] {
            Some(Slot::View(view)) => view.clone(),
            _ => unreachable!("the verifier holds this operand to be a view"),
        }
    }

    fn control(&mut self, data: &OpData) -> Result<Flow> {
        match data.kind {
            OpKind::For(_) => self.for_loop(data),
            OpKind::While => self.while_loop(data),
            _ => {
                let taken = if self.scalar(data.operands[0]) != 0 { 0 } else { 1 };
                self.region(data.regions[taken])
            }
        }
    }

    fn for_loop(&mut self, data: &OpData) -> Result<Flow> {
        let bounds = [0, 1, 2].map(|i| self.scalar(data.operands[i]) as i64);
        let [mut index, upper, step] = bounds;
        let mut carried = self.tiles(&data.operands[3..]);
        let func = self.func;
        let args = &func.region(data.regions[0]).args;
        while step > 0 && index < upper {
            self.set(args[0], Rc::new(vec![index as u64]));
            self.set_all(&args[1..], carried);
            match self.region(data.regions[0])? {
                Flow::Yield(next) => carried = next,
                Flow::Return => return Ok(Flow::Return),
            }
            // An index past the end of i64 is past every upper bound.
            let Some(next) = index.checked_add(step) else { break };
            index = next;
        }
        Ok(Flow::Yield(carried))
    }

    fn while_loop(&mut self, data: &OpData) -> Result<Flow> {
        let mut carried = self.tiles(&data.operands);
        let func = self.func;
        loop {
            for &region in &data.regions {
                self.set_all(&func.region(region).args, carried.iter().cloned());
            }
            match self.region(data.regions[0])? {
                Flow::Yield(cond) if cond[0][0] == 0 => return Ok(Flow::Yield(carried)),
                Flow::Yield(_) => {}
                Flow::Return => return Ok(Flow::Return),
            }
            match self.region(data.regions[1])? {
                Flow::Yield(next) => carried = next,
                Flow::Return => return Ok(Flow::Return),
            }
        }
    }

    /// The tile types of an op's first operand and first result, where it has them.
    fn types(&self, data: &OpData) -> (TileType, TileType) {
        let of = |value: Option<&Value>| {
            let tile = value.and_then(|&v| self.func.ty(v).as_tile());
            tile.unwrap_or(TileType::data(DType::Bool, Shape::SCALAR))
        };
        (of(data.operands.first()), of(data.results.first()))
    }

    /// An op without control flow: the elements of its results.
    fn plain(&mut self, kind: &OpKind, data: &OpData) -> Result<Vec<Vec<u64>>> {
        let (from, to) = self.types(data);
        let one = |bits: Vec<u64>| Ok(vec![bits]);
        match kind {
            OpKind::Const(scalar) => one(vec![scalar.bits]),
            OpKind::Iota => one((0..to.shape.numel() as u64).collect()),
            OpKind::ProgramId(axis) => one(vec![u64::from(self.program_ids()[*axis as usize])]),
            OpKind::NumPrograms(axis) => one(vec![u64::from(self.grid[*axis as usize])]),
            OpKind::Unary(_)
            | OpKind::Binary(_)
            | OpKind::Compare(_)
            | OpKind::Select
            | OpKind::Fma
            | OpKind::Asm { .. }
            | OpKind::Cast
            | OpKind::Bitcast
            | OpKind::PtrAdd => one(elementwise(kind, from, to, &self.tiles(&data.operands))),
            OpKind::Broadcast
            | OpKind::ExpandDims { .. }
            | OpKind::Reshape
            | OpKind::Transpose { .. }
            | OpKind::Join
            | OpKind::Split
            | OpKind::ConvertLayout => {
                Ok(rearrange(kind, from.shape, to.shape, &self.tiles(&data.operands)))
            }
            OpKind::MultipleOf(n) => one(self.multiple_of(*n, from, data)?),
            OpKind::Load => one(self.load(data, to)?),
            OpKind::Store => self.store(data).map(|()| vec![]),
            OpKind::AtomicRmw(op, ordering) => one(self.atomic_rmw((*op, *ordering), data, to)?),
            OpKind::AtomicCas(ordering) => one(self.atomic_cas(*ordering, data, to)?),
            OpKind::ViewPtr => one(vec![self.view(data.operands[0]).ptr]),
            OpKind::ViewDim(axis) => {
                one(vec![self.view(data.operands[0]).dims[*axis as usize] as u64])
            }
            OpKind::ViewStride(axis) => {
                one(vec![self.view(data.operands[0]).strides[*axis as usize] as u64])
            }
            OpKind::ViewLoad => one(self.view_load(data, to)?),
            OpKind::ViewStore => self.view_store(data).map(|()| vec![]),
            OpKind::Reduce { axis, combine } => self.reduce(data, *axis as usize, *combine),
            OpKind::Scan { axis, reverse, combine } => {
                self.scan(data, *axis as usize, *reverse, *combine)
            }
            OpKind::Gather { axis } => one(self.gather(data, *axis as usize)),
            OpKind::Scatter { axis } => one(self.scatter(data, *axis as usize)?),
            OpKind::Histogram => Ok(self.histogram(data)),
            OpKind::Dot { precision } => one(self.dot(*precision, (from, to), data)),
            OpKind::Assert { message } => self.assert(message, data).map(|()| vec![]),
            OpKind::Print { format } => self.print(format, data),
            OpKind::For(_)
            | OpKind::While
            | OpKind::If
            | OpKind::Yield
            | OpKind::Return
            | OpKind::MakeView
            | OpKind::TmaLoad(_)
            | OpKind::TmaStore(_) => {
                unreachable!("`region` handles {kind:?}, or only a later pass makes it")
            }
        }
    }

    fn dot(
        &self,
        precision: DotPrecision,
        (from, to): (TileType, TileType),
        data: &OpData,
    ) -> Vec<u64> {
        let (a, b, acc) = self.three(data);
        let extents = [from.shape.extent(0), from.shape.extent(1), to.shape.extent(1)];
        let (from, to) = (from.dtype(), to.dtype());
        combine::dot(&Dot { a: &a, b: &b, acc: &acc, from, to, extents, precision })
    }

    fn three(&self, data: &OpData) -> (Bits, Bits, Bits) {
        let [a, b, c] = [0, 1, 2].map(|i| self.tile(data.operands[i]));
        (a, b, c)
    }

    fn gather(&self, data: &OpData, axis: usize) -> Vec<u64> {
        let [x, index] = [0, 1].map(|i| self.func.tile(data.operands[i]));
        let signed = |&bits: &u64| Scalar { dtype: index.dtype(), bits }.to_i64();
        let at: Vec<i64> = self.tile(data.operands[1]).iter().map(signed).collect();
        tiles::gather_along(&self.tile(data.operands[0]), x.shape, (&at, index.shape), axis)
    }

    fn scatter(&self, data: &OpData, axis: usize) -> Result<Vec<u64>> {
        let [x, index] = [0, 1].map(|i| self.func.tile(data.operands[i]));
        let signed = |&bits: &u64| Scalar { dtype: index.dtype(), bits }.to_i64();
        let at: Vec<i64> = self.tile(data.operands[1]).iter().map(signed).collect();
        let scattered = tiles::scatter_along(&self.tile(data.operands[0]), x.shape, &at, axis);
        scattered.ok_or(InterpErrorKind::NoPermutation)
    }

    fn histogram(&self, data: &OpData) -> Vec<Vec<u64>> {
        let mut counts = vec![0; self.func.tile(data.results[1]).shape.numel()];
        let mut rank = |&bits: &u64| {
            let count = counts.get_mut(bits as u32 as usize)?;
            *count += 1;
            Some(*count - 1)
        };
        let ranks =
            self.tile(data.operands[0]).iter().map(|bits| rank(bits).unwrap_or(0)).collect();
        vec![ranks, counts]
    }

    fn multiple_of(&self, n: u64, ty: TileType, data: &OpData) -> Result<Vec<u64>> {
        let x = self.tile(data.operands[0]);
        let is_signed = !ty.is_ptr() && ty.dtype().is_signed_int();
        for &bits in x.iter() {
            let magnitude = if is_signed { (bits as i64).unsigned_abs() } else { bits };
            if magnitude % n != 0 {
                return Err(InterpErrorKind::NotMultiple { value: bits as i64, n });
            }
        }
        Ok(x.to_vec())
    }

    /// Operand `i` of the op as a mask: all true where it is absent.
    fn mask(&self, data: &OpData, i: usize, n: usize) -> Bits {
        match data.operands.get(i) {
            Some(&mask) => self.tile(mask),
            None => Rc::new(vec![1; n]),
        }
    }

    fn load(&mut self, data: &OpData, to: TileType) -> Result<Vec<u64>> {
        let ptr = self.tile(data.operands[0]);
        let mask = self.mask(data, 1, ptr.len());
        let mut out = match data.operands.get(2) {
            Some(&other) => self.tile(other).to_vec(),
            None => vec![0; ptr.len()],
        };
        for ((slot, &address), &on) in out.iter_mut().zip(ptr.iter()).zip(mask.iter()) {
            if on != 0 {
                *slot = self.memory.load(address, to.dtype(), self.program)?;
            }
        }
        Ok(out)
    }

    fn store(&mut self, data: &OpData) -> Result<()> {
        let (ptr, value) = (self.tile(data.operands[0]), self.tile(data.operands[1]));
        let mask = self.mask(data, 2, ptr.len());
        let dtype = self.func.tile(data.operands[1]).dtype();
        self.memory.start_store();
        for ((&address, &bits), &on) in ptr.iter().zip(value.iter()).zip(mask.iter()) {
            if on != 0 {
                self.memory.store(address, dtype, bits, self.program)?;
            }
        }
        Ok(())
    }

    fn atomic_rmw(
        &mut self,
        (op, ordering): (AtomicOp, AtomicOrdering),
        data: &OpData,
        to: TileType,
    ) -> Result<Vec<u64>> {
        let (ptr, value) = (self.tile(data.operands[0]), self.tile(data.operands[1]));
        let mask = self.mask(data, 2, ptr.len());
        let is_used = self.uses[data.results[0].index()] > 0;
        let mut out = vec![0; ptr.len()];
        let lanes = ptr.iter().zip(value.iter()).zip(mask.iter());
        for (slot, ((&address, &bits), &on)) in out.iter_mut().zip(lanes) {
            if on != 0 {
                self.memory.order(address, self.program, ordering, is_used);
                let change = |old| atomic_value(op, to.dtype(), old, bits);
                *slot = self.memory.change(address, to.dtype(), self.program, change)?;
            }
        }
        Ok(out)
    }

    fn atomic_cas(
        &mut self,
        ordering: AtomicOrdering,
        data: &OpData,
        to: TileType,
    ) -> Result<Vec<u64>> {
        let (ptr, expected, new) = self.three(data);
        let mask = self.mask(data, 3, ptr.len());
        let is_used = self.uses[data.results[0].index()] > 0;
        let lanes = ptr.iter().zip(expected.iter()).zip(new.iter()).zip(mask.iter());
        lanes
            .map(|(((&address, &expected), &new), &on)| {
                if on == 0 {
                    return Ok(0);
                }
                // Bits are compared, as hardware does: -0 is not +0, and a NaN is itself.
                let change = |old| if old == expected { new } else { old };
                self.memory.order(address, self.program, ordering, is_used);
                self.memory.change(address, to.dtype(), self.program, change)
            })
            .collect()
    }

    /// Addresses of a tile of a view; none past its edges.
    fn view_addresses(
        &self,
        view: Value,
        coords: &[Value],
        shape: Shape,
        dtype: DType,
    ) -> Vec<Option<u64>> {
        let view = self.view(view);
        let starts: Vec<i64> = coords.iter().map(|&c| self.scalar(c) as i64).collect();
        let mut addresses = Vec::with_capacity(shape.numel());
        tiles::for_each_index(shape, |index| {
            let mut offset = 0_i64;
            let mut is_inside = true;
            for (axis, &i) in index.iter().enumerate() {
                let at = starts[axis].wrapping_add(i as i64);
                is_inside &= (0..view.dims[axis]).contains(&at);
                offset = offset.wrapping_add(at.wrapping_mul(view.strides[axis]));
            }
            let bytes = offset.wrapping_mul(dtype.bytes() as i64);
            addresses.push(is_inside.then(|| view.ptr.wrapping_add_signed(bytes)));
        });
        addresses
    }

    fn view_load(&mut self, data: &OpData, to: TileType) -> Result<Vec<u64>> {
        let (view, coords) = (data.operands[0], &data.operands[1..]);
        let addresses = self.view_addresses(view, coords, to.shape, to.dtype());
        let load = |address: Option<u64>| match address {
            Some(address) => self.memory.load(address, to.dtype(), self.program),
            None => Ok(0),
        };
        addresses.into_iter().map(load).collect()
    }

    fn make_view(&mut self, data: &OpData) {
        let numbers: Vec<i64> = data.operands[1..].iter().map(|&n| self.scalar(n) as i64).collect();
        let (dims, strides) = numbers.split_at(numbers.len() / 2);
        let slot = Slot::view(self.scalar(data.operands[0]), dims, strides);
        self.values[data.results[0].index()] = Some(slot);
    }

    fn view_store(&mut self, data: &OpData) -> Result<()> {
        let (view, value) = (data.operands[0], data.operands[1]);
        let ty = self.func.tile(value);
        let (coords, mask) = data.operands[2..].split_at(ty.shape.rank());
        let mask = mask.first().map(|&mask| self.tile(mask));
        let addresses = self.view_addresses(view, coords, ty.shape, ty.dtype());
        let value = self.tile(value);
        self.memory.start_store();
        for (lane, (address, &bits)) in addresses.into_iter().zip(value.iter()).enumerate() {
            let is_on = mask.as_ref().is_none_or(|mask| mask[lane] != 0);
            if let Some(address) = address.filter(|_| is_on) {
                self.memory.store(address, ty.dtype(), bits, self.program)?;
            }
        }
        Ok(())
    }

    fn reduce(&mut self, data: &OpData, axis: usize, by: Combine) -> Result<Vec<Vec<u64>>> {
        let ty = self.func.tile(data.operands[0]);
        let xs = self.tiles(&data.operands);
        let slices: Vec<&[u64]> = xs.iter().map(|x| x.as_slice()).collect();
        match by {
            Combine::Op(op) => Ok(vec![combine::reduce(op, ty.dtype(), slices[0], ty.shape, axis)]),
            Combine::Region => combine::reduce_with(&slices, ty.shape, axis, |left, right| {
                self.combine(data.regions[0], left, right)
            }),
        }
    }

    fn scan(
        &mut self,
        data: &OpData,
        axis: usize,
        reverse: bool,
        by: Combine,
    ) -> Result<Vec<Vec<u64>>> {
        let ty = self.func.tile(data.operands[0]);
        let xs = self.tiles(&data.operands);
        let slices: Vec<&[u64]> = xs.iter().map(|x| x.as_slice()).collect();
        combine::scan_with(&slices, ty.shape, axis, reverse, |left, right| match by {
            Combine::Op(op) => Ok(vec![ew::binary_one(op, ty.dtype(), left[0], right[0])]),
            Combine::Region => self.combine(data.regions[0], left, right),
        })
    }

    fn combine(&mut self, region: Region, left: &[u64], right: &[u64]) -> Result<Vec<u64>> {
        let func = self.func;
        let scalars = left.iter().chain(right).map(|&bits| Rc::new(vec![bits]));
        self.set_all(&func.region(region).args, scalars);
        match self.region(region)? {
            Flow::Yield(results) => Ok(results.iter().map(|r| r[0]).collect()),
            Flow::Return => unreachable!("the verifier refuses a return in a combine region"),
        }
    }

    fn assert(&self, message: &str, data: &OpData) -> Result<()> {
        if self.tile(data.operands[0]).iter().all(|&bits| bits != 0) {
            return Ok(());
        }
        Err(InterpErrorKind::Assert(message.to_owned()))
    }

    fn print(&mut self, format: &str, data: &OpData) -> Result<Vec<Vec<u64>>> {
        let shown = |&operand: &Value| show(self.func.tile(operand), &self.tile(operand));
        let shown: Vec<String> = data.operands.iter().map(shown).collect();
        self.prints.push(printed::text(format, &shown));
        Ok(vec![])
    }
}

fn elementwise(kind: &OpKind, from: TileType, to: TileType, xs: &[Bits]) -> Vec<u64> {
    let dtype = from.dtype();
    match (kind, xs) {
        (OpKind::Unary(op), [x]) => ew::unary(*op, dtype, x),
        (OpKind::Binary(op), [a, b]) => ew::binary(*op, dtype, a, b),
        (OpKind::Compare(predicate), [a, b]) => ew::compare(*predicate, dtype, a, b),
        (OpKind::Select, [cond, a, b]) => ew::select(cond, a, b),
        (OpKind::Fma, [a, b, c]) => ew::fma(dtype, a, b, c),
        (OpKind::Cast, [x]) => ew::cast(dtype, to.dtype(), x),
        (OpKind::Bitcast, [x]) => ew::bitcast(dtype, to.dtype(), x),
        (OpKind::Asm { .. }, [.., value]) => value.to_vec(),
        (OpKind::PtrAdd, [ptr, offset]) => ew::ptr_add(dtype, ptr, offset),
        _ => unreachable!("the verifier holds the count of operands of `{}`", mnemonic(kind)),
    }
}

fn rearrange(kind: &OpKind, from: Shape, to: Shape, xs: &[Bits]) -> Vec<Vec<u64>> {
    match (kind, xs) {
        (OpKind::Broadcast, [x]) => vec![tiles::broadcast(x, from, to)],
        (OpKind::Transpose { perm }, [x]) => vec![tiles::transpose(x, from, to, perm)],
        (OpKind::Join, [a, b]) => vec![tiles::join(a, b)],
        (OpKind::Split, [x]) => tiles::split(x).into(),
        // The elements stay in row-major order.
        (_, xs) => vec![xs[0].to_vec()],
    }
}

fn atomic_value(op: AtomicOp, dtype: DType, old: u64, new: u64) -> u64 {
    let binary = |op| ew::binary_one(op, dtype, old, new);
    match op {
        AtomicOp::Add => binary(BinaryOp::Add),
        AtomicOp::Max => binary(BinaryOp::Max),
        AtomicOp::Min => binary(BinaryOp::Min),
        AtomicOp::And => binary(BinaryOp::And),
        AtomicOp::Or => binary(BinaryOp::Or),
        AtomicOp::Xor => binary(BinaryOp::Xor),
        AtomicOp::Exchange => new,
    }
}

/// A scalar as it is, a tile in brackets, as the CPU prints it.
fn show(ty: TileType, bits: &[u64]) -> String {
    let element = |&bits: &u64| {
        let scalar = Scalar { dtype: ty.dtype(), bits };
        match ty.dtype() {
            _ if ty.is_ptr() => format!("{bits:#x}"),
            DType::Bool => (bits != 0).to_string(),
            DType::U64 => bits.to_string(),
            dtype if dtype.is_float() => scalar.to_f64().to_string(),
            _ => scalar.to_i64().to_string(),
        }
    };
    if ty.shape.is_scalar() {
        return element(&bits[0]);
    }
    let all: Vec<String> = bits.iter().map(element).collect();
    format!("[{}]", all.join(", "))
}
