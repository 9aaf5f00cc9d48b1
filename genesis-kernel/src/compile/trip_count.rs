//! Trip-count evaluation: the integers of a kernel in one launch, where its arguments decide them, and so how often
//! loops run.
//!
//! ```text
//! for 0, dim(a, 2), 64   with a: [1, 512, 4096]   ->   64 iterations
//! ```
//!
//! Indices of programs count as 0, so that a loop that is longer in later programs counts as it is in
//! the first.

use std::collections::BTreeMap;

use crate::ir::{DType, Func, OpKind, Scalar, Value, scalar};
use crate::runtime::{Arg, Grid};

/// The integers of one launch.
pub(super) struct Integers<'a> {
    func: &'a Func,
    grid: Grid,
    args: BTreeMap<Value, Arg>,
    known: BTreeMap<Value, Option<Scalar>>,
}

impl<'a> Integers<'a> {
    pub(super) fn new(func: &'a Func, grid: Grid, args: &[Arg]) -> Integers<'a> {
        let params = func.params.iter().map(|param| param.value);
        let args = params.zip(args.iter().copied()).collect();
        Integers { func, grid, args, known: BTreeMap::new() }
    }

    /// The integer that a scalar is, if the arguments decide it.
    pub(super) fn get(&mut self, value: Value) -> Option<i64> {
        self.scalar(value).map(|scalar| scalar.to_i64())
    }

    fn scalar(&mut self, value: Value) -> Option<Scalar> {
        if let Some(known) = self.known.get(&value) {
            return *known;
        }
        // A value never depends on itself, but a long chain of them is found once only.
        let found = self.compute(value);
        self.known.insert(value, found);
        found
    }

    fn compute(&mut self, value: Value) -> Option<Scalar> {
        if let Some(Arg::Scalar(scalar)) = self.args.get(&value) {
            return Some(*scalar);
        }
        let func = self.func;
        let op = func.op(func.def_op(value)?);
        let int = |value| Some(Scalar::int(DType::I64, value));
        match &op.kind {
            OpKind::Const(scalar) => Some(*scalar),
            OpKind::ProgramId(_) => int(0),
            OpKind::NumPrograms(axis) => {
                int(*[self.grid.x, self.grid.y, self.grid.z].get(*axis as usize)?)
            }
            OpKind::ViewDim(axis) => int(*self.view(op.operands[0])?.0.get(*axis as usize)?),
            OpKind::ViewStride(axis) => int(*self.view(op.operands[0])?.1.get(*axis as usize)?),
            OpKind::Unary(unary) => Some(scalar::unary(*unary, self.scalar(op.operands[0])?)),
            OpKind::Binary(binary) => {
                let (a, b) = (self.scalar(op.operands[0])?, self.scalar(op.operands[1])?);
                Some(scalar::binary(*binary, a, b))
            }
            OpKind::Compare(predicate) => {
                let (a, b) = (self.scalar(op.operands[0])?, self.scalar(op.operands[1])?);
                Some(Scalar::int(DType::Bool, i64::from(scalar::compare(*predicate, a, b))))
            }
            OpKind::Select => {
                let chosen = self.scalar(op.operands[0])?.to_i64() != 0;
                self.scalar(op.operands[if chosen { 1 } else { 2 }])
            }
            OpKind::Cast => {
                let to = func.ty(value).as_tile()?.dtype();
                Some(scalar::cast(self.scalar(op.operands[0])?, to))
            }
            _ => None,
        }
    }

    fn view(&self, value: Value) -> Option<(Vec<i64>, Vec<i64>)> {
        match self.args.get(&value)? {
            Arg::View(view) => Some((view.dims().to_vec(), view.strides().to_vec())),
            Arg::Ptr(_) | Arg::Scalar(_) | Arg::Views(_) => None,
        }
    }
}
