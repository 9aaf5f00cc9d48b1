//! Nests of loops over a tile's elements, a chunk of lanes at a time.
//!
//! The lanes run along the last axis that is longer than 1. A row of `n` elements is cut in two:
//!
//! ```text
//! split = the largest multiple of 16 for which every mask `i < bound` holds      (n, if there is none)
//! for i in 0..split step 16 { chunk without masks }
//! for i in split..n step 16 { chunk with masks; the lanes past n are off }
//! ```
//!
//! The second loop of a store ends where the store's own mask does.

use super::super::llvm::{IntPred, Val};
use super::chunk::{Chunk, Coord, Fused};
use super::lowering::Lower;
use crate::Error;
use crate::ir::{Op, Shape, Value};

/// The most lanes a chunk has: a register of 512 bits of f32.
pub(super) const MAX_LANES: u32 = 16;

/// What a loop's body gets and gives: carried values.
pub(super) type Body<'b, 'a> =
    &'b mut dyn FnMut(&mut Lower<'a>, Val, &[Val]) -> Result<Vec<Val>, Error>;

/// What a chunk's body does.
pub(super) type ChunkBody<'b, 'a> =
    &'b mut dyn FnMut(&mut Lower<'a>, &mut Chunk) -> Result<(), Error>;

/// Row-major elements and the axis along which lanes run.
#[derive(Clone, Copy)]
pub(super) struct Space {
    /// The extents.
    pub(super) shape: Shape,
    /// The axis of the lanes; none where there is one element.
    pub(super) lane_axis: Option<usize>,
    /// Lanes of a chunk.
    pub(super) lanes: u32,
}

impl Space {
    /// All elements of a shape.
    pub(super) fn new(shape: Shape) -> Space {
        match (0..shape.rank()).rev().find(|&axis| shape.extent(axis) > 1) {
            Some(axis) => Space::along(shape, axis),
            None => Space { shape, lane_axis: None, lanes: 1 },
        }
    }

    /// All elements of a shape, with the lanes along this axis.
    pub(super) fn along(shape: Shape, axis: usize) -> Space {
        let lanes = (shape.extent(axis).next_power_of_two() as u32).min(MAX_LANES);
        let lane_axis = (shape.extent(axis) > 1).then_some(axis);
        Space { shape, lane_axis, lanes }
    }

    /// The same elements one by one.
    pub(super) fn scalar(shape: Shape) -> Space {
        Space { lanes: 1, ..Space::new(shape) }
    }

    /// The extent of the axis of the lanes.
    pub(super) fn extent(&self) -> i64 {
        self.lane_axis.map_or(1, |axis| self.shape.extent(axis) as i64)
    }
}

/// What a loop over rows does at each of them.
type RowBody<'b, 'a> = dyn FnMut(&mut Lower<'a>, Vec<Coord>) -> Result<(), Error> + 'b;

impl<'a> Lower<'a> {
    /// A loop `for i in start..end step step` with carried values; gives the last ones. Where both
    /// bounds are constants, no loop is written for no or one iteration.
    pub(super) fn count_loop(
        &mut self,
        range: (Val, Val),
        step: i64,
        carried: &[Val],
        body: Body<'_, 'a>,
    ) -> Result<Vec<Val>, Error> {
        let e = self.e;
        let (start, end) = range;
        if let (Some(first), Some(last)) = (e.const_int(start), e.const_int(end)) {
            if first >= last {
                return Ok(carried.to_vec());
            }
            if first + step >= last {
                return body(self, start, carried);
            }
        }
        let (head, inside, done) = (e.block("loop"), e.block("body"), e.block("exit"));
        let before = e.current_block();
        e.br(head);
        e.position(head);
        let i = e.phi(e.i64(), &[(start, before)]);
        let phis: Vec<Val> = carried.iter().map(|&v| e.phi(e.type_of(v), &[(v, before)])).collect();
        e.cond_br(e.icmp(IntPred::Slt, i, end), inside, done);
        e.position(inside);
        let next = body(self, i, &phis)?;
        let latch = e.current_block();
        e.add_incoming(i, e.add(i, self.index(step)), latch);
        for (&phi, &value) in phis.iter().zip(&next) {
            e.add_incoming(phi, value, latch);
        }
        e.br(head);
        e.position(done);
        Ok(phis)
    }

    /// Loops over the axes before and after the lanes' axis; the body gets coordinates of which the
    /// lanes' axis stands at `Lanes(0)`.
    pub(super) fn rows(&mut self, space: Space, body: &mut RowBody<'_, 'a>) -> Result<(), Error> {
        self.row_axis(space, 0, Vec::new(), body)
    }

    fn row_axis(
        &mut self,
        space: Space,
        axis: usize,
        at: Vec<Coord>,
        body: &mut RowBody<'_, 'a>,
    ) -> Result<(), Error> {
        let with = |coord| at.iter().copied().chain([coord]).collect::<Vec<Coord>>();
        if axis == space.shape.rank() {
            return body(self, at);
        }
        let zero = self.index(0);
        if Some(axis) == space.lane_axis {
            return self.row_axis(space, axis + 1, with(Coord::Lanes(zero)), body);
        }
        if space.shape.extent(axis) == 1 {
            return self.row_axis(space, axis + 1, with(Coord::At(zero)), body);
        }
        let end = self.index(space.shape.extent(axis) as i64);
        self.count_loop((zero, end), 1, &[], &mut |lower, i, _| {
            lower.row_axis(space, axis + 1, with(Coord::At(i)), body)?;
            Ok(Vec::new())
        })?;
        Ok(())
    }

    /// The coordinates of a chunk of a row.
    pub(super) fn in_row(&self, space: Space, row: &[Coord], start: Val) -> Vec<Coord> {
        let mut at = row.to_vec();
        if let Some(axis) = space.lane_axis {
            at[axis] = if space.lanes == 1 { Coord::At(start) } else { Coord::Lanes(start) };
        }
        at
    }

    /// The lanes of a chunk that are inside the extent; none where all are, as the extent is a multiple
    /// of `unit`.
    pub(super) fn tail(&self, space: Space, start: Val, unit: i64) -> Option<Val> {
        let e = self.e;
        if space.extent() % unit == 0 {
            return None;
        }
        let lanes = e.add(e.splat(start, space.lanes), e.const_steps(e.i64(), 0, 1, space.lanes));
        let extent = e.int(e.vec(e.i64(), space.lanes), space.extent());
        Some(e.icmp(IntPred::Slt, lanes, extent))
    }

    /// Every chunk of a space, in row-major order. `reads` are evaluated at the chunk's coordinates;
    /// waiting values among what they read are computed before or with them. `stored` is the mask of a
    /// store, if it is one.
    pub(super) fn nest(
        &mut self,
        space: Space,
        reads: &[Value],
        stored: Option<Value>,
        body: ChunkBody<'_, 'a>,
    ) -> Result<(), Error> {
        let fused = self.prepare(space, reads)?;
        self.rows(space, &mut |lower, row| {
            let own = lower.in_row(space, &row, lower.index(0));
            let survey = lower.survey(reads, &own);
            let masks = lower.comparisons(&survey.loads, stored.map(|m| (m, own.as_slice())));
            let split =
                lower.split(space, &own, (&masks, &survey.compares), i64::from(space.lanes))?;
            let step = i64::from(space.lanes);
            if let Some(end) = split.end {
                let zero = lower.index(0);
                lower.count_loop((zero, end), step, &[], &mut |lower, i, _| {
                    let mut chunk = Chunk::new(space.lanes, lower.in_row(space, &row, i));
                    chunk.proven = split.proven.clone();
                    chunk.fused = fused.clone();
                    body(lower, &mut chunk)?;
                    lower.compute_fused(&mut chunk)?;
                    Ok(Vec::new())
                })?;
            }
            if split.has_rest {
                let start = split.end.unwrap_or(lower.index(0));
                let end = match stored {
                    // Values that are kept on the way are read past the mask too.
                    Some(mask) if fused.is_empty() => lower.stored_end(space, &own, mask)?,
                    _ => lower.index(space.extent()),
                };
                lower.count_loop((start, end), step, &[], &mut |lower, i, _| {
                    let mut chunk = Chunk::new(space.lanes, lower.in_row(space, &row, i));
                    chunk.tail = lower.tail(space, i, step);
                    chunk.fused = fused.clone();
                    body(lower, &mut chunk)?;
                    lower.compute_fused(&mut chunk)?;
                    Ok(Vec::new())
                })?;
            }
            Ok(())
        })?;
        self.finish(&fused);
        Ok(())
    }

    /// Computes waiting values that a nest reads at other coordinates than its own; gives places to
    /// those that the nest will compute with its own.
    pub(super) fn prepare(&mut self, space: Space, reads: &[Value]) -> Result<Fused, Error> {
        let zero = self.index(0);
        // Any distinct values will do for the indices of loops that do not exist yet.
        let own: Vec<Coord> = (0..space.shape.rank())
            .map(|axis| match axis {
                _ if space.lane_axis == Some(axis) => Coord::Lanes(zero),
                _ if space.shape.extent(axis) == 1 => Coord::At(zero),
                _ => Coord::At(self.index(-1 - axis as i64)),
            })
            .collect();
        loop {
            let survey = self.survey(reads, &own);
            if let Some(&op) = survey.apart.iter().next() {
                self.flush(op)?;
                continue;
            }
            let mut fused = Fused::new();
            for op in survey.together {
                self.pending.retain(|&waiting| waiting != op);
                for &result in &self.func.op(op).results {
                    if self.plan.kept[result.index()] {
                        fused.insert(result, self.new_place(result));
                    }
                }
            }
            return Ok(fused);
        }
    }

    /// Computes every waiting value that evaluating a tile reads.
    pub(super) fn flush_reads(&mut self, value: Value) -> Result<(), Error> {
        let rank = self.func.tile(value).shape.rank();
        let own: Vec<Coord> =
            (0..rank).map(|axis| Coord::At(self.index(-1 - axis as i64))).collect();
        loop {
            let survey = self.survey(&[value], &own);
            let Some(&op) = survey.apart.iter().chain(&survey.together).next() else {
                return Ok(());
            };
            self.flush(op)?;
        }
    }

    /// Computes the fused values that nothing in a chunk has asked for, as where an address was found
    /// without them.
    pub(super) fn compute_fused(&mut self, chunk: &mut Chunk) -> Result<(), Error> {
        let values: Vec<Value> = chunk.fused.keys().copied().collect();
        for value in values {
            self.lanes_of(chunk, value)?;
        }
        Ok(())
    }

    /// Makes what a nest computed on its way readable.
    pub(super) fn finish(&mut self, fused: &Fused) {
        for (&value, &place) in fused {
            self.places[value.index()] = Some(place);
        }
    }

    /// Computes a kept value of a virtual op in a nest of its own.
    pub(super) fn keep(&mut self, value: Value) -> Result<(), Error> {
        let place = self.new_place(value);
        match self.plan.turned[value.index()] {
            Some(matrix) => self.turn(matrix, place)?,
            None => self.copy_to(value, place)?,
        }
        self.places[value.index()] = Some(place);
        Ok(())
    }

    /// Writes a tile's elements to a place.
    pub(super) fn copy_to(&mut self, value: Value, place: Val) -> Result<(), Error> {
        let tile = self.func.tile(value);
        let space = Space::new(tile.shape);
        self.nest(space, &[value], None, &mut |lower, chunk| {
            let lanes = lower.lanes_of(chunk, value)?;
            lower.store_place(chunk, value, place, lanes);
            Ok(())
        })
    }

    /// A store op.
    pub(super) fn store(&mut self, op: Op) -> Result<(), Error> {
        let operands = self.func.op(op).operands.clone();
        self.flush_before(op)?;
        let space = Space::new(self.func.tile(operands[0]).shape);
        let stored = operands.get(2).copied();
        self.nest(space, &operands, stored, &mut |lower, chunk| lower.store_chunk(chunk, op))
    }
}
