//! Changing a function in place: one walk from the first op to the last, with a rule for each op.
//!
//! The rule sees an op whose operands are already the new ones. It may leave it, put other ops before
//! it, say which values stand for its results, or dissolve a region it owns into the region around it.
//! Later ops then see the substitutes, so a pass needs neither use lists nor a second walk.

use crate::ir::{Builder, Func, Loc, Op, OpKind, Region, Scalar, TileType, Value};

/// What becomes of an op.
pub(crate) enum Action {
    /// It stays, and its regions are walked next.
    Keep,
    /// It goes; these stand for its results.
    Replace(Vec<Value>),
    /// It goes and the ops of this region stand in its place: these values stand for the region's
    /// arguments, and what the region yields stands for the op's results.
    Dissolve(Region, Vec<Value>),
}

impl Action {
    /// One value stands for the only result.
    pub(crate) fn value(value: Value) -> Action {
        Action::Replace(vec![value])
    }
}

/// The state of a walk.
pub(crate) struct Rewriter<'f> {
    /// The function. A rule may read it all and change the op it was given.
    pub(crate) func: &'f mut Func,
    region: Region,
    loc: Option<Loc>,
    substitutes: Vec<Option<Value>>,
}

type Rule<'r> = dyn FnMut(&mut Rewriter<'_>, Op) -> Action + 'r;

/// Applies a rule to every op of a function.
pub(crate) fn rewrite(func: &mut Func, rule: &mut Rule<'_>) {
    let region = func.body;
    let substitutes = vec![None; func.n_values()];
    Rewriter { func, region, loc: None, substitutes }.walk(region, rule);
}

impl Rewriter<'_> {
    /// A builder before the op that the rule was given, at its place in the source.
    pub(crate) fn builder(&mut self) -> Builder<'_> {
        Builder::at(self.func, self.region, self.loc)
    }

    /// A tile filled with one constant, before the op that the rule was given.
    pub(crate) fn full(&mut self, scalar: Scalar, like: TileType) -> Value {
        self.builder().full(scalar, like.shape)
    }

    fn walk(&mut self, region: Region, rule: &mut Rule<'_>) {
        let outer = std::mem::replace(&mut self.region, region);
        let ops = std::mem::take(&mut self.func.region_mut(region).ops);
        self.ops(ops, rule);
        self.region = outer;
    }

    /// Whether the walk may go on after these ops; not when they end the program.
    fn ops(&mut self, ops: Vec<Op>, rule: &mut Rule<'_>) -> bool {
        ops.into_iter().all(|op| self.op(op, rule))
    }

    fn op(&mut self, op: Op, rule: &mut Rule<'_>) -> bool {
        self.substitute_operands(op);
        self.loc = self.func.op(op).loc;
        match rule(self, op) {
            Action::Keep => {
                let region = self.region;
                self.func.region_mut(region).ops.push(op);
                for inner in self.func.op(op).regions.clone() {
                    self.walk(inner, rule);
                }
                true
            }
            Action::Replace(values) => {
                let results = self.func.op(op).results.clone();
                self.substitute(&results, &values);
                true
            }
            Action::Dissolve(region, args) => self.dissolve(op, region, &args, rule),
        }
    }

    fn dissolve(&mut self, op: Op, region: Region, args: &[Value], rule: &mut Rule<'_>) -> bool {
        let formal = self.func.region(region).args.clone();
        self.substitute(&formal, args);
        let mut ops = std::mem::take(&mut self.func.region_mut(region).ops);
        let last = ops.pop().expect("a region ends with a terminator");
        if !self.ops(ops, rule) {
            return false;
        }
        if self.func.op(last).kind != OpKind::Yield {
            self.op(last, rule);
            return false;
        }
        self.substitute_operands(last);
        let (results, values) =
            (self.func.op(op).results.clone(), self.func.op(last).operands.clone());
        self.substitute(&results, &values);
        true
    }

    fn substitute(&mut self, from: &[Value], to: &[Value]) {
        debug_assert_eq!(from.len(), to.len(), "each result needs a substitute");
        for (from, &to) in from.iter().zip(to) {
            if let Some(slot) = self.substitutes.get_mut(from.index()) {
                *slot = Some(to);
            }
        }
    }

    fn substitute_operands(&mut self, op: Op) {
        for operand in &mut self.func.op_mut(op).operands {
            if let Some(&Some(value)) = self.substitutes.get(operand.index()) {
                *operand = value;
            }
        }
    }
}
