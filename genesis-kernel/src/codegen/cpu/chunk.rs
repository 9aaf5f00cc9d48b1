//! The value of a tile at some coordinates: one chunk of lanes of a virtual value.
//!
//! A coordinate along an axis is one index for all lanes, or a start from which lanes count up. At most
//! one axis has lanes. Where none has, the value is the same for all lanes and is a scalar.
//!
//! ```text
//! c = broadcast b : [4, 1] -> [4, 100]      at (row, col + lanes)
//!     reads b at (row, 0): a scalar, then copied to all lanes
//! ```

use std::collections::{BTreeMap, BTreeSet};

use super::super::elementwise;
use super::super::llvm::{IntPred, Val};
use super::affine::Affine;
use super::lowering::Lower;
use super::plan::{is_root, is_trivial_reshape};
use crate::Error;
use crate::ir::{Def, Op, OpKind, Shape, Value};

/// Where lanes stand along one axis.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Coord {
    /// All at this index.
    At(Val),
    /// Lane `i` at this index plus `i`.
    Lanes(Val),
}

impl Coord {
    /// The index of the first lane.
    pub(super) fn start(self) -> Val {
        match self {
            Coord::At(index) | Coord::Lanes(index) => index,
        }
    }
}

/// Kept values that a nest computes on its way, and their places.
pub(super) type Fused = BTreeMap<Value, Val>;

/// One chunk while its code is written.
#[derive(Default)]
pub(super) struct Chunk {
    /// The number of lanes.
    pub(super) lanes: u32,
    /// The coordinates of the iteration space.
    pub(super) at: Vec<Coord>,
    /// The lanes inside the extent; none where all are.
    pub(super) tail: Option<Val>,
    /// Comparisons that hold in every lane here, with coordinates as [`pattern`] gives them.
    pub(super) proven: BTreeSet<(Value, Vec<Option<Val>>)>,
    /// Kept values that this chunk computes and writes to their places.
    pub(super) fused: Fused,
    memo: BTreeMap<(Value, Vec<Coord>), Val>,
    /// What [`Lower::affine`] has found.
    pub(super) affine: BTreeMap<(Value, Vec<Coord>), Option<Affine>>,
}

/// Coordinates without where lanes start: what a fact about a whole row is told by.
pub(super) fn pattern(at: &[Coord]) -> Vec<Option<Val>> {
    at.iter()
        .map(|&c| match c {
            Coord::At(index) => Some(index),
            Coord::Lanes(_) => None,
        })
        .collect()
}

/// Whether all lanes are at one place.
pub(super) fn is_uniform(at: &[Coord]) -> bool {
    at.iter().all(|c| matches!(c, Coord::At(_)))
}

impl Chunk {
    /// The chunk of a scalar: one lane, no axes.
    pub(super) fn scalar() -> Chunk {
        Chunk { lanes: 1, ..Chunk::default() }
    }

    /// Whether a comparison is known to hold in every lane.
    fn is_proven(&self, value: Value, at: &[Coord]) -> bool {
        let own = self.at.iter().find(|c| matches!(c, Coord::Lanes(_)));
        let is_own_row = at.iter().all(|c| matches!(c, Coord::At(_)) || Some(c) == own);
        is_own_row && self.proven.contains(&(value, pattern(at)))
    }

    /// A chunk at these coordinates with all lanes inside.
    pub(super) fn new(lanes: u32, at: Vec<Coord>) -> Chunk {
        Chunk { lanes, at, ..Chunk::default() }
    }
}

impl Lower<'_> {
    /// A value at the chunk's own coordinates, in all of its lanes.
    pub(super) fn lanes_of(&mut self, chunk: &mut Chunk, value: Value) -> Result<Val, Error> {
        let at = if self.has_axes(value) { chunk.at.clone() } else { Vec::new() };
        let result = self.eval(chunk, value, &at)?;
        Ok(self.spread(chunk, result, &at))
    }

    /// Copies a uniform value to all lanes.
    pub(super) fn spread(&self, chunk: &Chunk, value: Val, at: &[Coord]) -> Val {
        if is_uniform(at) { self.e.splat(value, chunk.lanes) } else { value }
    }

    /// A value at coordinates: a vector where an axis has lanes, else a scalar.
    pub(super) fn eval(
        &mut self,
        chunk: &mut Chunk,
        value: Value,
        at: &[Coord],
    ) -> Result<Val, Error> {
        if at.is_empty() {
            return self.scalar(value);
        }
        let key = (value, at.to_vec());
        if let Some(&known) = chunk.memo.get(&key) {
            return Ok(known);
        }
        let result = match self.places[value.index()] {
            Some(place) => self.load_place(chunk, value, place, at),
            None => self.compute(chunk, value, at)?,
        };
        if let (Some(&place), true) = (chunk.fused.get(&value), *at == *chunk.at) {
            self.store_place(chunk, value, place, result);
        }
        chunk.memo.insert(key, result);
        Ok(result)
    }

    /// A virtual value at coordinates, from its operands.
    pub(super) fn compute(
        &mut self,
        chunk: &mut Chunk,
        value: Value,
        at: &[Coord],
    ) -> Result<Val, Error> {
        let Def::Result(op, number) = self.func.value(value).def else {
            return Err(Error::bug(format!("%{} has no place", value.0)));
        };
        if chunk.is_proven(value, at) {
            let lanes = if is_uniform(at) { 1 } else { chunk.lanes };
            return Ok(self.e.int(self.e.vec(self.e.i1(), lanes), 1));
        }
        let data = self.func.op(op);
        let e = self.e;
        match &data.kind {
            OpKind::Const(scalar) => Ok(e.scalar(*scalar)),
            OpKind::Iota => Ok(self.iota(chunk, at[0])),
            OpKind::Load => self.load(chunk, op, at),
            OpKind::Join => self.join(chunk, op, at),
            OpKind::Split => {
                let half = Coord::At(self.index(i64::from(number)));
                let inner: Vec<Coord> = at.iter().copied().chain([half]).collect();
                self.eval(chunk, data.operands[0], &inner)
            }
            OpKind::Reshape if !is_trivial_reshape(self.func, op) => self.reshape(chunk, op, at),
            kind if kind.is_view() => {
                let inner = self.operand_coords(op, 0, at);
                let x = self.eval(chunk, data.operands[0], &inner)?;
                Ok(if is_uniform(at) { x } else { self.spread(chunk, x, &inner) })
            }
            kind if kind.is_elementwise() => {
                let operands = data.operands.iter().map(|&x| self.eval(chunk, x, at));
                let operands = operands.collect::<Result<Vec<Val>, Error>>()?;
                elementwise::lower(e, self.target(), self.func, op, &operands)
            }
            kind => Err(Error::bug(format!("{kind:?} has no code for a chunk"))),
        }
    }

    fn iota(&self, chunk: &Chunk, at: Coord) -> Val {
        let e = self.e;
        match at {
            Coord::At(index) => index,
            Coord::Lanes(start) => {
                let steps = e.const_steps(e.i64(), 0, 1, chunk.lanes);
                e.add(e.splat(start, chunk.lanes), steps)
            }
        }
    }

    fn join(&mut self, chunk: &mut Chunk, op: Op, at: &[Coord]) -> Result<Val, Error> {
        let e = self.e;
        let operands = &self.func.op(op).operands;
        let (last, inner) = at.split_last().expect("a join's result has an axis");
        let a = self.eval(chunk, operands[0], inner)?;
        let b = self.eval(chunk, operands[1], inner)?;
        let which = self.iota(chunk, *last);
        let first = e.icmp(IntPred::Eq, which, e.zero(e.type_of(which)));
        if matches!(last, Coord::Lanes(_)) {
            let (a, b) = (e.splat(a, chunk.lanes), e.splat(b, chunk.lanes));
            return Ok(e.select(first, a, b));
        }
        Ok(e.select(first, a, b))
    }

    /// A reshape reads its operand by the position in row-major order: from scratch, or, where the
    /// operand has one axis, at that position, or lane by lane.
    fn reshape(&mut self, chunk: &mut Chunk, op: Op, at: &[Coord]) -> Result<Val, Error> {
        let data = self.func.op(op);
        let (operand, shape) = (data.operands[0], self.func.tile(data.results[0]).shape);
        let tile = self.func.tile(operand);
        if let Some(place) = self.places[operand.index()] {
            return Ok(self.load_flat(chunk, tile, place, shape, at));
        }
        if let Some(inner) = self.position_coords(op, at) {
            return self.eval(chunk, operand, &inner);
        }
        let (start, step) = self.flat(shape, at);
        let n_lanes = if is_uniform(at) { 1 } else { chunk.lanes };
        let mut lanes = Vec::new();
        for lane in 0..n_lanes {
            let position = self.e.add(start, self.index(i64::from(lane) * step));
            // A lane past the extent reads some element, which nobody looks at.
            let position = match chunk.tail {
                None => position,
                Some(_) => {
                    let last = self.index(shape.numel() as i64 - 1);
                    self.e.intrinsic("llvm.smin", &[self.e.i64()], &[position, last])
                }
            };
            let inner = self.coords_of(tile.shape, position);
            lanes.push(self.eval(chunk, operand, &inner)?);
        }
        Ok(self.e.build_vec(&lanes))
    }

    /// The coordinate at which a reshape reads an operand of one axis, where lanes follow each other.
    pub(super) fn position_coords(&self, op: Op, at: &[Coord]) -> Option<Vec<Coord>> {
        let data = self.func.op(op);
        let shape = self.func.tile(data.results[0]).shape;
        if self.func.tile(data.operands[0]).shape.rank() != 1 {
            return None;
        }
        match self.flat(shape, at) {
            (position, 0) => Some(vec![Coord::At(position)]),
            (position, 1) => Some(vec![Coord::Lanes(position)]),
            _ => None,
        }
    }

    /// The coordinates of a position in row-major order.
    fn coords_of(&self, shape: Shape, position: Val) -> Vec<Coord> {
        let e = self.e;
        let mut rest = position;
        let mut at = Vec::new();
        for axis in (0..shape.rank()).rev() {
            let extent = self.index(shape.extent(axis) as i64);
            at.push(Coord::At(if axis == 0 { rest } else { e.urem(rest, extent) }));
            rest = e.udiv(rest, extent);
        }
        at.reverse();
        at
    }

    /// The coordinates at which an op that is computed at `at` reads an operand.
    pub(super) fn operand_coords(&self, op: Op, number: usize, at: &[Coord]) -> Vec<Coord> {
        let data = self.func.op(op);
        let operand = data.operands[number];
        if !self.has_axes(operand) {
            return Vec::new();
        }
        let zero = Coord::At(self.index(0));
        let shape = self.func.tile(operand).shape;
        match &data.kind {
            OpKind::Broadcast => (0..shape.rank())
                .map(|axis| if shape.extent(axis) == 1 { zero } else { at[axis] })
                .collect(),
            OpKind::ExpandDims { axis } => {
                let mut inner = at.to_vec();
                inner.remove(*axis as usize);
                inner
            }
            OpKind::Transpose { perm } => {
                let mut inner = at.to_vec();
                for (result_axis, &operand_axis) in perm.iter().enumerate() {
                    inner[operand_axis as usize] = at[result_axis];
                }
                inner
            }
            OpKind::Reshape => self.wide_coords(self.func.tile(data.results[0]).shape, shape, at),
            OpKind::Join => at[..at.len() - 1].to_vec(),
            _ => at.to_vec(),
        }
    }

    /// Coordinates of the axes that are longer than 1, handed on to another shape with the same ones.
    fn wide_coords(&self, from: Shape, to: Shape, at: &[Coord]) -> Vec<Coord> {
        let zero = Coord::At(self.index(0));
        let mut wide = (0..from.rank()).filter(|&i| from.extent(i) != 1).map(|i| at[i]);
        (0..to.rank())
            .map(|i| if to.extent(i) == 1 { zero } else { wide.next().unwrap_or(zero) })
            .collect()
    }

    /// The kept values that wait and that evaluating `values` reads, with whether each is read at
    /// exactly the coordinates of the chunk; and the loads it does, with theirs.
    pub(super) fn survey(&self, values: &[Value], at: &[Coord]) -> Survey {
        let mut survey = Survey::default();
        for &value in values {
            let at: &[Coord] = if self.has_axes(value) { at } else { &[] };
            self.survey_value(value, at, Some(at), &mut survey);
        }
        survey
    }

    /// `own` is what the chunk's coordinates are; none below a reshape, where coordinates stand for
    /// others that are only known when code is written, and below a split, which reads half of a tile.
    fn survey_value(&self, value: Value, at: &[Coord], own: Option<&[Coord]>, survey: &mut Survey) {
        let key = (value, at.to_vec(), own.is_some());
        if at.is_empty() || !survey.seen.insert(key) {
            return;
        }
        let Some(op) = self.func.def_op(value) else { return };
        if self.places[value.index()].is_some() {
            return;
        }
        if self.pending.contains(&op) && self.plan.kept[value.index()] {
            if own != Some(at) || self.plan.turned[value.index()].is_some() {
                survey.apart.insert(op);
                return;
            }
            survey.together.insert(op);
        }
        let data = self.func.op(op);
        if is_root(&data.kind) {
            return;
        }
        if matches!(data.kind, OpKind::Compare(_)) && own.is_some() {
            survey.compares.push((value, at.to_vec()));
        }
        if data.kind == OpKind::Load && own.is_some() {
            survey.loads.push((op, at.to_vec()));
        }
        let half = Coord::At(self.index(0));
        for (number, &operand) in data.operands.iter().enumerate() {
            let is_reshape = data.kind == OpKind::Reshape && !is_trivial_reshape(self.func, op);
            let inner = match data.kind {
                OpKind::Split => at.iter().copied().chain([half]).collect(),
                _ if is_reshape => vec![half; self.func.tile(operand).shape.rank()],
                _ => self.operand_coords(op, number, at),
            };
            let own = own.filter(|_| !is_reshape && data.kind != OpKind::Split);
            self.survey_value(operand, &inner, own, survey);
        }
    }
}

/// What evaluating some values involves.
#[derive(Default)]
pub(super) struct Survey {
    /// Waiting ops that are read element by element.
    pub(super) together: BTreeSet<Op>,
    /// Waiting ops that are read at other coordinates.
    pub(super) apart: BTreeSet<Op>,
    /// Loads and where they are evaluated.
    pub(super) loads: Vec<(Op, Vec<Coord>)>,
    /// Comparisons and where they are evaluated.
    pub(super) compares: Vec<(Value, Vec<Coord>)>,
    seen: BTreeSet<(Value, Vec<Coord>, bool)>,
}
