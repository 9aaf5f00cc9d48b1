//! Reductions, in the fixed order that the interpreter uses too.
//!
//! Along the last axis, of extent `n`, by a binary op: `L = min(64, the largest power of two <= n)` lanes,
//! lane `j` combining elements `j`, `j + L`, `j + 2 L`, ...; then lane `i` with lane `i + L/2`, `L/2` times,
//! and so on down to one. Here 64 lanes are four accumulators of 16, which is also what hides the
//! latency of an addition. Accumulators start from the op's identity, which leaves the first element's
//! bits as they are.
//!
//! ```text
//! n = 5, L = 4:   [a0 + a4, a1, a2, a3]  ->  [(a0 + a4) + a2, a1 + a3]  ->  one
//! ```
//!
//! Along another axis, or by a region: from index 0 on, one after the other, in all lanes of a row; several
//! rows side by side where they share operands ([`jam`](super::jam)).

use super::super::elementwise;
use super::super::llvm::Val;
use super::bounds::Split;
use super::chunk::{Chunk, Coord, Fused};
use super::lowering::Lower;
use super::nest::{MAX_LANES, Space};
use crate::Error;
use crate::ir::{BinaryOp, Combine, DType, Op, OpKind, Region, Scalar, Value};

/// The most lanes a reduction along the last axis has.
const MAX_REDUCE_LANES: usize = 64;

/// The value that changes nothing when combined from the left, bit for bit.
pub(super) fn identity(op: BinaryOp, dtype: DType) -> Option<Scalar> {
    let float = |value| Some(Scalar::float(dtype, value));
    let is_float = dtype.is_float();
    let bits = dtype.bits();
    let smallest = if dtype.is_signed_int() { i64::MIN >> (64 - bits) } else { 0 };
    let largest = if dtype.is_signed_int() { !smallest } else { -1 };
    match op {
        // Negative zero: adding positive zero would lose the sign of a negative one.
        BinaryOp::Add if is_float => float(-0.0),
        BinaryOp::Mul if is_float => float(1.0),
        BinaryOp::Min if is_float => float(f64::INFINITY),
        BinaryOp::Max if is_float => float(f64::NEG_INFINITY),
        BinaryOp::MinNum | BinaryOp::MaxNum if is_float => float(f64::NAN),
        BinaryOp::Add | BinaryOp::Or | BinaryOp::Xor => Some(Scalar::zero(dtype)),
        BinaryOp::Mul => Some(Scalar::int(dtype, 1)),
        BinaryOp::And => Some(Scalar::int(dtype, -1)),
        BinaryOp::Min | BinaryOp::MinNum => Some(Scalar::int(dtype, largest)),
        BinaryOp::Max | BinaryOp::MaxNum => Some(Scalar::int(dtype, smallest)),
        _ => None,
    }
}

impl<'a> Lower<'a> {
    /// A reduction op.
    pub(super) fn reduce(&mut self, op: Op) -> Result<(), Error> {
        let data = self.func.op(op);
        let OpKind::Reduce { axis, combine } = data.kind else {
            return Err(Error::bug("not a reduction"));
        };
        let axis = axis as usize;
        let shape = self.func.tile(data.operands[0]).shape;
        let places: Vec<Option<Val>> = data
            .results
            .clone()
            .into_iter()
            .map(|r| self.plan.kept[r.index()].then(|| self.new_place(r)))
            .collect();
        match combine {
            Combine::Op(binary) if axis + 1 == shape.rank() => {
                self.reduce_last(op, binary, &places)?;
            }
            _ => self.reduce_in_order(op, axis, &places)?,
        }
        for (&result, place) in data.results.iter().zip(places) {
            self.places[result.index()] = place;
        }
        Ok(())
    }

    /// Hands a result on: a scalar to its register, lanes to the place, if there is one.
    pub(super) fn finish_reduce(
        &mut self,
        result: Value,
        place: Option<Val>,
        chunk: &Chunk,
        at: &[Coord],
        lanes: Val,
    ) {
        if !self.has_axes(result) {
            self.scalars[result.index()] = Some(lanes);
        } else if let Some(place) = place {
            let tile = self.func.tile(result);
            self.store_flat(chunk, tile, place, at, lanes);
        }
    }

    fn reduce_last(
        &mut self,
        op: Op,
        binary: BinaryOp,
        places: &[Option<Val>],
    ) -> Result<(), Error> {
        let data = self.func.op(op);
        let (operand, result) = (data.operands[0], data.results[0]);
        let shape = self.func.tile(operand).shape;
        let last = shape.rank() - 1;
        let n = shape.extent(last);
        let total = MAX_REDUCE_LANES.min(1 << n.ilog2());
        let lanes = (total as u32).min(MAX_LANES);
        let space = Space { shape, lane_axis: Some(last), lanes };
        let fused = self.prepare(space, &[operand])?;
        self.rows(space, &mut |lower, row| {
            let value = lower.reduce_row(space, operand, binary, &row, total, &fused)?;
            let chunk = Chunk::scalar();
            lower.finish_reduce(result, places[0], &chunk, &row[..last], value);
            Ok(())
        })?;
        self.finish(&fused);
        Ok(())
    }

    fn reduce_row(
        &mut self,
        space: Space,
        operand: Value,
        binary: BinaryOp,
        row: &[Coord],
        total: usize,
        fused: &Fused,
    ) -> Result<Val, Error> {
        let e = self.e;
        let dtype = self.dtype(operand);
        let start = identity(binary, dtype)
            .ok_or_else(|| Error::bug(format!("{binary:?} does not reduce {dtype}")))?;
        let start = e.splat(e.scalar(start), space.lanes);
        let mut accs = vec![start; total / space.lanes as usize];
        let own = self.in_row(space, row, self.index(0));
        let survey = self.survey(&[operand], &own);
        let masks = self.comparisons(&survey.loads, None);
        let unit = total as i64;
        let split = self.split(space, &own, (&masks, &survey.compares), unit)?;
        let stripes = |lower: &mut Lower<'a>, range, accs: &[Val], main: Option<&Split>| {
            lower.count_loop(range, unit, accs, &mut |lower, i, accs| {
                let mut next = Vec::new();
                for (a, &acc) in (0i64..).zip(accs) {
                    let first = lower.e.add(i, lower.index(a * i64::from(space.lanes)));
                    let mut chunk = Chunk::new(space.lanes, lower.in_row(space, row, first));
                    chunk.fused = fused.clone();
                    match main {
                        Some(split) => chunk.proven = split.proven.clone(),
                        None => chunk.tail = lower.tail(space, first, unit),
                    }
                    let x = lower.lanes_of(&mut chunk, operand)?;
                    lower.compute_fused(&mut chunk)?;
                    let both = elementwise::binary(e, lower.target(), binary, dtype, &[acc, x])?;
                    next.push(chunk.tail.map_or(both, |tail| e.select(tail, both, acc)));
                }
                Ok(next)
            })
        };
        let zero = self.index(0);
        if let Some(end) = split.end {
            accs = stripes(self, (zero, end), &accs, Some(&split))?;
        }
        if split.has_rest {
            let range = (split.end.unwrap_or(zero), self.index(space.extent()));
            accs = stripes(self, range, &accs, None)?;
        }
        self.halve(binary, dtype, accs)
    }

    /// Combines accumulators, then the lanes of the last one, halves with halves.
    fn halve(&mut self, op: BinaryOp, dtype: DType, mut accs: Vec<Val>) -> Result<Val, Error> {
        let e = self.e;
        let target = self.target();
        while accs.len() > 1 {
            let upper = accs.split_off(accs.len() / 2);
            for (low, high) in accs.iter_mut().zip(upper) {
                *low = elementwise::binary(e, target, op, dtype, &[*low, high])?;
            }
        }
        let mut all = accs[0];
        let mut lanes = e.lanes(e.type_of(all));
        while lanes > 1 {
            lanes /= 2;
            let part = |first: u32| {
                if lanes == 1 {
                    return e.extract(all, first);
                }
                let order: Vec<u32> = (first..first + lanes).collect();
                e.shuffle(all, all, &order)
            };
            all = elementwise::binary(e, target, op, dtype, &[part(0), part(lanes)])?;
        }
        Ok(all)
    }

    /// One element after the other from index 0, in all lanes of another axis.
    fn reduce_in_order(
        &mut self,
        op: Op,
        axis: usize,
        places: &[Option<Val>],
    ) -> Result<(), Error> {
        let data = self.func.op(op);
        let operands = data.operands.clone();
        let shape = self.func.tile(operands[0]).shape;
        for &operand in &operands {
            self.flush_reads(operand)?;
        }
        let rest = self.space_without(op, axis);
        if let Some(jam) = self.jam(op, axis, rest) {
            return self.reduce_jammed(&jam, places[0]);
        }
        let n = shape.extent(axis) as i64;
        self.chunks(rest, &mut |lower, chunk| {
            let read = |lower: &mut Lower<'a>, i: Val| {
                let mut at = chunk.at.clone();
                at.insert(axis, Coord::At(i));
                let mut inner = Chunk::new(chunk.lanes, at);
                inner.tail = chunk.tail;
                let read = operands.iter().map(|&x| lower.lanes_of(&mut inner, x));
                read.collect::<Result<Vec<Val>, Error>>()
            };
            let first = read(lower, lower.index(0))?;
            let range = (lower.index(1), lower.index(n));
            let last = lower.count_loop(range, 1, &first, &mut |lower, i, accs| {
                let x = read(lower, i)?;
                lower.combine(op, accs, &x)
            })?;
            for ((&result, &place), value) in data.results.iter().zip(places).zip(last) {
                let at = chunk.at.clone();
                lower.finish_reduce(result, place, chunk, &at, value);
            }
            Ok(())
        })
    }

    /// The chunks of a reduction's or scan's other axes: vectors unless its region needs branches.
    pub(super) fn space_without(&self, op: Op, axis: usize) -> Space {
        let data = self.func.op(op);
        let shape = self.func.tile(data.operands[0]).shape.without(axis);
        if data.regions.iter().all(|&region| self.is_straight(region)) {
            Space::new(shape)
        } else {
            Space::scalar(shape)
        }
    }

    /// Every chunk of a space, without masks as bounds.
    pub(super) fn chunks(
        &mut self,
        space: Space,
        body: super::nest::ChunkBody<'_, 'a>,
    ) -> Result<(), Error> {
        let step = i64::from(space.lanes);
        let whole = space.extent() - space.extent() % step;
        self.rows(space, &mut |lower, row| {
            let ends = [0, whole, space.extent()].map(|i| lower.index(i));
            for (range, has_tail) in [((ends[0], ends[1]), false), ((ends[1], ends[2]), true)] {
                lower.count_loop(range, step, &[], &mut |lower, i, _| {
                    let mut chunk = Chunk::new(space.lanes, lower.in_row(space, &row, i));
                    chunk.tail = if has_tail { lower.tail(space, i, step) } else { None };
                    body(lower, &mut chunk)?;
                    Ok(Vec::new())
                })?;
            }
            Ok(())
        })
    }

    /// Combines accumulators with the next elements, lane by lane.
    pub(super) fn combine(
        &mut self,
        op: Op,
        left: &[Val],
        right: &[Val],
    ) -> Result<Vec<Val>, Error> {
        let data = self.func.op(op);
        let combine = match data.kind {
            OpKind::Reduce { combine, .. } | OpKind::Scan { combine, .. } => combine,
            _ => return Err(Error::bug("not an op that combines")),
        };
        match combine {
            Combine::Op(binary) => {
                let dtype = self.dtype(data.operands[0]);
                let both = [left[0], right[0]];
                Ok(vec![elementwise::binary(self.e, self.target(), binary, dtype, &both)?])
            }
            Combine::Region => {
                let args: Vec<Val> = left.iter().chain(right).copied().collect();
                self.inline(data.regions[0], &args)
            }
        }
    }

    /// Whether a region is a straight line of elementwise ops, which vectors can run.
    fn is_straight(&self, region: Region) -> bool {
        self.func.region(region).ops.iter().all(|&op| {
            let kind = &self.func.op(op).kind;
            kind.is_elementwise() || matches!(kind, OpKind::Const(_) | OpKind::Yield)
        })
    }

    /// A region of scalar ops with these arguments, which may be vectors if it is straight.
    fn inline(&mut self, region: Region, args: &[Val]) -> Result<Vec<Val>, Error> {
        let e = self.e;
        let data = self.func.region(region);
        for (&arg, &value) in data.args.iter().zip(args) {
            self.scalars[arg.index()] = Some(value);
        }
        let lanes = args.first().map_or(1, |&v| e.lanes(e.type_of(v)));
        if lanes == 1 {
            let end = self.region(region)?.ok_or_else(|| Error::bug("a region without a yield"))?;
            let values = self.func.op(end).operands.clone();
            return values.into_iter().map(|v| self.scalar(v)).collect();
        }
        for &op in &data.ops {
            let op_data = self.func.op(op);
            let operands = op_data.operands.iter().map(|&v| {
                let value = self.scalar(v)?;
                let is_scalar = e.lanes(e.type_of(value)) == 1;
                Ok(if is_scalar { e.splat(value, lanes) } else { value })
            });
            let operands = operands.collect::<Result<Vec<Val>, Error>>()?;
            let result = match op_data.kind {
                OpKind::Yield => return Ok(operands),
                OpKind::Const(scalar) => e.splat(e.scalar(scalar), lanes),
                _ => elementwise::lower(e, self.target(), self.func, op, &operands)?,
            };
            self.scalars[op_data.results[0].index()] = Some(result);
        }
        Err(Error::bug("a region without a yield"))
    }
}
