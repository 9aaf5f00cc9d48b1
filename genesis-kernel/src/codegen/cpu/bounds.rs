//! Masks as loop bounds: how much of a row needs none.
//!
//! The masks of loads and stores are conjunctions of comparisons. One of the form `start + lane < bound`
//! holds for a prefix of the row whose length is a subtraction; one without lanes holds for all of the
//! row or for none; one of the form `start + lane >= bound` for all, if it holds for the first. The main
//! loop runs to the least of these, rounded down to whole chunks, and knows them to be true.
//!
//! ```text
//! load p, (i + iota < n) and (row < m)
//!     end = min(clamp(n - i, 0, extent), row < m ? extent : 0) & -16
//! ```
//!
//! The same numbers say where a store need not look any more: past the least of its own mask's, every lane is
//! off. A small tensor in a large tile costs what it holds, not what the tile could.
//!
//! A comparison that is none of a mask's, as in `where_(col < n, x, 0.0)`, bounds nothing; but where it is
//! the same as one that does, it is known to be true as well.

use std::collections::BTreeSet;

use super::super::llvm::{IntPred, Val};
use super::affine::{NONE, ONE};
use super::chunk::{Chunk, Coord, pattern};
use super::lowering::Lower;
use super::nest::Space;
use super::plan::is_trivial_reshape;
use crate::Error;
use crate::ir::{BinaryOp, DType, Op, OpKind, Predicate, Value};

/// The part of a row that needs no masks, and what holds in it.
pub(super) struct Split {
    /// Elements before this one need no masks; none where no part is known to need none.
    pub(super) end: Option<Val>,
    /// Whether the part after it exists; it always has masks.
    pub(super) has_rest: bool,
    /// The comparisons that hold before `end`.
    pub(super) proven: BTreeSet<(Value, Vec<Option<Val>>)>,
}

/// A value and the coordinates at which it is evaluated.
pub(super) type Place = (Value, Vec<Coord>);

/// A comparison whose truth along a row is known by arithmetic.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `low + lane < high`, or `<=`.
    Below { low: Val, high: Val, is_strict: bool },
    /// It holds from some lane on: in all if it does in the first, unless the index wraps.
    From { predicate: IntPred, a: Val, b: Val, moving: Val },
    /// The same in every lane.
    Uniform { predicate: IntPred, a: Val, b: Val },
}

impl Lower<'_> {
    /// How much of a row needs no masks, for chunks of `unit` elements. The first comparisons are those
    /// of masks, the second all others.
    pub(super) fn split(
        &mut self,
        space: Space,
        row: &[Coord],
        (masks, others): (&[Place], &[Place]),
        unit: i64,
    ) -> Result<Split, Error> {
        let e = self.e;
        let extent = space.extent();
        let whole = extent - extent % unit;
        let mut split = Split {
            end: (whole > 0).then(|| self.index(whole)),
            has_rest: whole < extent,
            proven: BTreeSet::new(),
        };
        if masks.is_empty() || whole == 0 || space.lanes == 1 {
            return Ok(split);
        }
        let mut chunk = Chunk::new(space.lanes, row.to_vec());
        let mut end = self.index(whole);
        let mut forms = Vec::new();
        for (mask, at) in masks {
            let Some(form) = self.form(&mut chunk, *mask, at)? else { continue };
            split.proven.insert((*mask, pattern(at)));
            if !forms.contains(&form) {
                forms.push(form);
                let count = self.count(form, extent);
                end = e.intrinsic("llvm.smin", &[e.i64()], &[end, count]);
            }
        }
        if forms.is_empty() {
            return Ok(split);
        }
        for (compare, at) in others {
            let form = self.form(&mut chunk, *compare, at)?;
            if form.is_some_and(|form| forms.contains(&form)) {
                split.proven.insert((*compare, pattern(at)));
            }
        }
        split.end = Some(e.and(end, self.index(-unit)));
        split.has_rest = true;
        Ok(split)
    }

    /// Where a mask is false from on along a row; the end of the row, if no such place is known.
    pub(super) fn stored_end(
        &mut self,
        space: Space,
        row: &[Coord],
        mask: Value,
    ) -> Result<Val, Error> {
        let e = self.e;
        let extent = space.extent();
        let mut end = self.index(extent);
        if space.lanes == 1 {
            return Ok(end);
        }
        let mut chunk = Chunk::new(space.lanes, row.to_vec());
        for (compare, at) in self.comparisons(&[], Some((mask, row))) {
            let most = match self.form(&mut chunk, compare, &at)? {
                Some(form @ Form::Uniform { .. }) => self.count(form, extent),
                Some(form @ Form::Below { low, .. }) => {
                    let count = self.count(form, extent);
                    e.select(self.no_wrap(low, extent), count, self.index(extent))
                }
                Some(Form::From { .. }) | None => continue,
            };
            end = e.intrinsic("llvm.smin", &[e.i64()], &[end, most]);
        }
        Ok(end)
    }

    /// The comparisons below the masks of loads, and below `stored`, with their coordinates.
    pub(super) fn comparisons(
        &self,
        loads: &[(Op, Vec<Coord>)],
        stored: Option<(Value, &[Coord])>,
    ) -> Vec<(Value, Vec<Coord>)> {
        let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
        for (op, at) in loads {
            if let Some(&mask) = self.func.op(*op).operands.get(1) {
                self.find_comparisons(mask, at, &mut found, &mut seen);
            }
        }
        if let Some((mask, at)) = stored {
            self.find_comparisons(mask, at, &mut found, &mut seen);
        }
        found
    }

    fn find_comparisons(
        &self,
        mask: Value,
        at: &[Coord],
        found: &mut Vec<Place>,
        seen: &mut BTreeSet<Place>,
    ) {
        let is_kept = self.places[mask.index()].is_some();
        if at.is_empty() || is_kept || !seen.insert((mask, at.to_vec())) {
            return;
        }
        let Some(op) = self.func.def_op(mask) else { return };
        let data = self.func.op(op);
        match data.kind {
            OpKind::Compare(_) => {
                found.push((mask, at.to_vec()));
            }
            OpKind::Binary(BinaryOp::And) => {
                for &operand in &data.operands {
                    self.find_comparisons(operand, at, found, seen);
                }
            }
            OpKind::Reshape if !is_trivial_reshape(self.func, op) => {}
            _ if data.kind.is_view() => {
                let inner = self.operand_coords(op, 0, at);
                self.find_comparisons(data.operands[0], &inner, found, seen);
            }
            _ => {}
        }
    }

    /// What is known about a comparison of indices along a row.
    fn form(
        &mut self,
        chunk: &mut Chunk,
        compare: Value,
        at: &[Coord],
    ) -> Result<Option<Form>, Error> {
        let Some(op) = self.func.def_op(compare) else { return Ok(None) };
        let data = self.func.op(op);
        let OpKind::Compare(predicate) = data.kind else { return Ok(None) };
        let (x, y) = (data.operands[0], data.operands[1]);
        if self.func.tile(x).is_ptr() || self.dtype(x) != DType::I64 {
            return Ok(None);
        }
        let (Some(a), Some(b)) = (self.affine(chunk, x, at)?, self.affine(chunk, y, at)?) else {
            return Ok(None);
        };
        let (a_step, b_step, a, b) = (a.step, b.step, a.start, b.start);
        let icmp = signed(predicate);
        Ok(match (predicate, a_step, b_step) {
            (_, NONE, NONE) => Some(Form::Uniform { predicate: icmp, a, b }),
            (Predicate::Lt, ONE, NONE) => Some(Form::Below { low: a, high: b, is_strict: true }),
            (Predicate::Gt, NONE, ONE) => Some(Form::Below { low: b, high: a, is_strict: true }),
            (Predicate::Le, ONE, NONE) => Some(Form::Below { low: a, high: b, is_strict: false }),
            (Predicate::Ge, NONE, ONE) => Some(Form::Below { low: b, high: a, is_strict: false }),
            (Predicate::Ge | Predicate::Gt, ONE, NONE) => {
                Some(Form::From { predicate: icmp, a, b, moving: a })
            }
            (Predicate::Le | Predicate::Lt, NONE, ONE) => {
                Some(Form::From { predicate: icmp, a, b, moving: b })
            }
            _ => None,
        })
    }

    /// The number of elements from a row's start for which a comparison holds.
    fn count(&self, form: Form, extent: i64) -> Val {
        let e = self.e;
        let all_if = |holds| e.select(holds, self.index(extent), self.index(0));
        match form {
            Form::Uniform { predicate, a, b } => all_if(e.icmp(predicate, a, b)),
            Form::From { predicate, a, b, moving } => {
                all_if(e.and(e.icmp(predicate, a, b), self.no_wrap(moving, extent)))
            }
            Form::Below { low, high, is_strict } => {
                let two = |name, x, y| e.intrinsic(name, &[e.i64()], &[x, y]);
                let mut count = two("llvm.ssub.sat", high, low);
                if !is_strict {
                    count = two("llvm.sadd.sat", count, self.index(1));
                }
                let count = two("llvm.smax", count, self.index(0));
                let count = two("llvm.smin", count, self.index(extent));
                e.select(self.no_wrap(low, extent), count, self.index(0))
            }
        }
    }

    /// Whether counting up from `start` through an axis does not pass the largest i64.
    fn no_wrap(&self, start: Val, extent: i64) -> Val {
        self.e.icmp(IntPred::Sle, start, self.index(i64::MAX - extent))
    }
}

fn signed(predicate: Predicate) -> IntPred {
    match predicate {
        Predicate::Eq => IntPred::Eq,
        Predicate::Ne => IntPred::Ne,
        Predicate::Lt => IntPred::Slt,
        Predicate::Le => IntPred::Sle,
        Predicate::Gt => IntPred::Sgt,
        Predicate::Ge => IntPred::Sge,
    }
}
