//! Unroll-and-jam: a reduction whose operand is made of tiles that broadcasts repeat is computed for several
//! rows and chunks of its result side by side.
//!
//! Each of them keeps its accumulator in a register and its order of elements, so that the bits are those of
//! one after the other. What they share is loaded, and computed, once for all; and their sums are
//! independent chains, which hide the latency of an addition.
//!
//! ```text
//! y[r, o, j] = sum over g of x[r, 1, g, j] * w[1, o, g, j]        4 rows, 2 outputs, 2 chunks of j
//!     for g:  x[4][2], w[2][2] = 12 vectors;  16 accumulators += x * w
//! ```
//!
//! The masks of loads bound the loop as they bound a row in [`bounds`](super::bounds): the axis that is
//! reduced stands for the row, and a mask that holds in the first and the last lane holds in those between.

use std::collections::BTreeSet;

use super::super::elementwise;
use super::super::llvm::Val;
use super::chunk::{Chunk, Coord, pattern};
use super::lowering::Lower;
use super::nest::Space;
use super::reduce::identity;
use crate::Error;
use crate::ir::{BinaryOp, Combine, Op, OpKind, Predicate, Value};

/// Accumulators side by side: half of the registers of AVX-512.
const IN_FLIGHT: i64 = 16;
/// Rows along one axis.
const MOST_ROWS: i64 = 8;
/// Rows along the first of several axes: a square of rows and outputs shares the most.
const MOST_FIRST: i64 = 4;

/// A reduction by an op, as it is jammed.
pub(super) struct Jam {
    op: Op,
    binary: BinaryOp,
    /// The axis that is reduced.
    axis: usize,
    /// The other axes.
    rest: Space,
    lane_axis: usize,
    /// How much of each of them is computed side by side, in elements; chunks along that of the lanes.
    factors: Vec<i64>,
}

/// Where a block of the result stands: the rows, and where each chunk of lanes starts.
struct Block {
    rows: Vec<Vec<Val>>,
    chunks: Vec<Val>,
}

/// How far the loop needs no masks, and the comparisons that hold there.
struct Bound {
    end: Val,
    has_rest: bool,
    proven: BTreeSet<Value>,
}

impl<'a> Lower<'a> {
    /// How a reduction in order is jammed; none where it gains nothing.
    pub(super) fn jam(&self, op: Op, axis: usize, rest: Space) -> Option<Jam> {
        let data = self.func.op(op);
        let OpKind::Reduce { combine: Combine::Op(binary), .. } = data.kind else { return None };
        identity(binary, self.dtype(data.operands[0]))?;
        let lane_axis = rest.lane_axis?;
        let (lanes, extent) = (i64::from(rest.lanes), rest.extent());
        let is_whole = extent % lanes == 0 && rest.shape.rank() > 1;
        if !is_whole || !self.repeats_tiles(data.operands[0]) {
            return None;
        }
        let chunks = if (extent / lanes) % 2 == 0 { 2 } else { 1 };
        let (mut room, mut most) = (IN_FLIGHT / chunks, MOST_FIRST);
        let factor = |axis: usize| {
            if axis == lane_axis {
                return chunks;
            }
            let extent = rest.shape.extent(axis) as i64;
            let fits = |f: &i64| *f <= room.min(most) && extent % f == 0;
            let factor = [MOST_ROWS, 4, 2].into_iter().find(fits).unwrap_or(1);
            if factor > 1 {
                (room, most) = (room / factor, MOST_ROWS);
            } else if extent == 1 {
                most = MOST_ROWS;
            }
            factor
        };
        let factors = (0..rest.shape.rank()).map(factor).collect();
        Some(Jam { op, binary, axis, rest, lane_axis, factors })
    }

    /// Whether a virtual value reads a tile that a broadcast repeats.
    fn repeats_tiles(&self, value: Value) -> bool {
        if !self.has_axes(value) || self.places[value.index()].is_some() {
            return false;
        }
        let Some(op) = self.func.def_op(value) else { return false };
        let data = self.func.op(op);
        let is_seen_through = data.kind.is_elementwise()
            || matches!(data.kind, OpKind::Broadcast | OpKind::ExpandDims { .. });
        let repeats = |&operand: &Value| {
            data.kind == OpKind::Broadcast
                && self.has_axes(operand)
                && self.func.tile(operand).shape.numel() < self.func.tile(value).shape.numel()
        };
        data.operands.iter().any(repeats)
            || is_seen_through && data.operands.iter().any(|&operand| self.repeats_tiles(operand))
    }

    /// The reduction, block after block of its result.
    pub(super) fn reduce_jammed(&mut self, jam: &Jam, place: Option<Val>) -> Result<(), Error> {
        self.jam_axis(jam, Vec::new(), place)
    }

    fn jam_axis(&mut self, jam: &Jam, at: Vec<Val>, place: Option<Val>) -> Result<(), Error> {
        let axis = at.len();
        if axis == jam.factors.len() {
            return self.jam_block(jam, &at, place);
        }
        let unit = if axis == jam.lane_axis { i64::from(jam.rest.lanes) } else { 1 };
        let range = (self.index(0), self.index(jam.rest.shape.extent(axis) as i64));
        self.count_loop(range, jam.factors[axis] * unit, &[], &mut |lower, i, _| {
            let at = at.iter().copied().chain([i]).collect();
            lower.jam_axis(jam, at, place)?;
            Ok(Vec::new())
        })?;
        Ok(())
    }

    /// Where the parts of the block that begins at `at` stand.
    fn block_at(&self, jam: &Jam, at: &[Val]) -> Block {
        let steps = |axis: usize, unit: i64| -> Vec<Val> {
            let starts = (0..jam.factors[axis]).map(|f| self.e.add(at[axis], self.index(f * unit)));
            starts.collect()
        };
        let mut rows = vec![Vec::new()];
        for (axis, &start) in at.iter().enumerate() {
            // The lanes' coordinate is put in for each chunk.
            let starts = if axis == jam.lane_axis { vec![start] } else { steps(axis, 1) };
            let extended = rows.iter().flat_map(|row: &Vec<Val>| {
                starts.iter().map(|&start| row.iter().copied().chain([start]).collect())
            });
            rows = extended.collect();
        }
        Block { rows, chunks: steps(jam.lane_axis, i64::from(jam.rest.lanes)) }
    }

    /// A row's coordinates in the operand, with the lanes and the index along the reduced axis as given.
    fn jam_coords(&self, jam: &Jam, row: &[Val], lanes: Coord, reduced: Coord) -> Vec<Coord> {
        let mut at: Vec<Coord> = row.iter().map(|&i| Coord::At(i)).collect();
        at[jam.lane_axis] = lanes;
        at.insert(jam.axis, reduced);
        at
    }

    /// How far along the reduced axis all loads of a block need no masks.
    fn jam_bound(&mut self, jam: &Jam, block: &Block) -> Result<Bound, Error> {
        let operand = self.func.op(jam.op).operands[0];
        let shape = self.func.tile(operand).shape;
        let space = Space { shape, lane_axis: Some(jam.axis), lanes: jam.rest.lanes.max(2) };
        let extent = self.index(space.extent());
        let mut bound = Bound { end: extent, has_rest: false, proven: BTreeSet::new() };
        let mut unknown = BTreeSet::new();
        let first = block.chunks[0];
        let past = jam.factors[jam.lane_axis] * i64::from(jam.rest.lanes) - 1;
        let last = self.e.add(first, self.index(past));
        for row in &block.rows {
            for lane in [first, last] {
                let reduced = Coord::Lanes(self.index(0));
                let at = self.jam_coords(jam, row, Coord::At(lane), reduced);
                let survey = self.survey(&[operand], &at);
                let masks = self.comparisons(&survey.loads, None);
                let split = self.split(space, &at, (&masks, &[]), 1)?;
                let end = split.end.unwrap_or(extent);
                bound.end = self.e.intrinsic("llvm.smin", &[self.e.i64()], &[bound.end, end]);
                bound.has_rest |= split.has_rest;
                for (mask, at) in masks {
                    let is_known = split.proven.contains(&(mask, pattern(&at)));
                    let known = if is_known && self.is_order(mask) {
                        &mut bound.proven
                    } else {
                        &mut unknown
                    };
                    known.insert(mask);
                }
            }
        }
        bound.proven.retain(|mask| !unknown.contains(mask));
        Ok(bound)
    }

    /// Whether a comparison that holds at two places holds between them.
    fn is_order(&self, compare: Value) -> bool {
        let kind = self.func.def_op(compare).map(|op| &self.func.op(op).kind);
        matches!(kind, Some(OpKind::Compare(predicate)) if *predicate != Predicate::Ne)
    }

    fn jam_block(&mut self, jam: &Jam, at: &[Val], place: Option<Val>) -> Result<(), Error> {
        let data = self.func.op(jam.op);
        let (operand, result) = (data.operands[0], data.results[0]);
        let dtype = self.dtype(operand);
        let start = identity(jam.binary, dtype)
            .ok_or_else(|| Error::bug(format!("{:?} does not reduce {dtype}", jam.binary)))?;
        let block = self.block_at(jam, at);
        let bound = self.jam_bound(jam, &block)?;
        let start = self.e.splat(self.e.scalar(start), jam.rest.lanes);
        let accs = vec![start; block.rows.len() * block.chunks.len()];
        let none = BTreeSet::new();
        let main = (self.index(0), bound.end);
        let mut accs = self.jam_loop(jam, &block, main, (&bound.proven, &accs))?;
        if bound.has_rest {
            let rest =
                (bound.end, self.index(self.func.tile(operand).shape.extent(jam.axis) as i64));
            accs = self.jam_loop(jam, &block, rest, (&none, &accs))?;
        }
        let parts = block.rows.iter().flat_map(|row| block.chunks.iter().map(move |c| (row, *c)));
        for ((row, lanes), value) in parts.zip(accs) {
            let mut at: Vec<Coord> = row.iter().map(|&i| Coord::At(i)).collect();
            at[jam.lane_axis] = Coord::Lanes(lanes);
            let chunk = Chunk::new(jam.rest.lanes, at.clone());
            self.finish_reduce(result, place, &chunk, &at, value);
        }
        Ok(())
    }

    /// A part of the reduced axis for all accumulators of a block.
    fn jam_loop(
        &mut self,
        jam: &Jam,
        block: &Block,
        range: (Val, Val),
        (proven, accs): (&BTreeSet<Value>, &[Val]),
    ) -> Result<Vec<Val>, Error> {
        let operand = self.func.op(jam.op).operands[0];
        let dtype = self.dtype(operand);
        let each = block.chunks.len();
        self.count_loop(range, 1, accs, &mut |lower, i, accs| {
            let mut next = accs.to_vec();
            for (c, &lanes) in block.chunks.iter().enumerate() {
                let coords = |lower: &Lower<'a>, row: &[Val]| {
                    lower.jam_coords(jam, row, Coord::Lanes(lanes), Coord::At(i))
                };
                // One chunk for all rows, so that each finds what another has computed.
                let mut chunk = Chunk::new(jam.rest.lanes, coords(lower, &block.rows[0]));
                for (r, row) in block.rows.iter().enumerate() {
                    let at = coords(lower, row);
                    let survey = lower.survey(&[operand], &at);
                    let held = lower.comparisons(&survey.loads, None).into_iter();
                    let held = held.filter(|(mask, _)| proven.contains(mask));
                    chunk.proven.extend(held.map(|(mask, at)| (mask, pattern(&at))));
                    let x = lower.eval(&mut chunk, operand, &at)?;
                    let x = lower.spread(&chunk, x, &at);
                    let both = [next[r * each + c], x];
                    let target = lower.target();
                    next[r * each + c] =
                        elementwise::binary(lower.e, target, jam.binary, dtype, &both)?;
                }
            }
            Ok(next)
        })
    }
}
