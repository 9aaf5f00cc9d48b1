//! Software-pipelines loops with two dependent MMAs: the second one moves to the next iteration.
//!
//! In `c += f(a b) d` the second MMA waits for what is computed from the first, and tensor cores idle meanwhile. The
//! pipelined loop issues the second MMA of an iteration together with the first one of the next, so that both overlap
//! the computation, as FlashAttention-3 overlaps softmax and MMAs within a warpgroup:
//!
//! ```text
//! for %j = .. carry (%c = %0)             first product and computation of the first iteration
//!   %s = dot %q, %k(j)                    for %j = .. carry (%c, %w)
//!   %w = f(%s)                      ->      %s = dot %q, %k(j)
//!   %n = dot %w, %v(j), %c                  %n = dot %w, %v(j - 1), %c
//!   yield %n                                %w = f(%s)
//!                                         second product of the last iteration
//! ```
//!
//! What the second MMA reads of its own iteration is carried to the next. This is for operands that
//! come through the copy engine ([`super::tma`]), whose loads move along with their MMA: other loads
//! would be live for an iteration more.

use std::collections::BTreeSet;

use super::clone::{Mapping, clone_ops};
use crate::ir::{
    BinaryOp, Builder, DType, Func, LoopOptions, Op, OpKind, Predicate, Region, Type, Value,
};

/// Pipelines the loops of a function that can be.
pub fn run(func: &mut Func) {
    let (body, uses) = (func.body, func.count_uses());
    region(func, &uses, body);
}

fn region(func: &mut Func, uses: &[u32], at: Region) {
    let plans: Vec<(Op, Option<Plan>)> =
        func.region(at).ops.iter().map(|&op| (op, Plan::of(func, uses, op))).collect();
    func.region_mut(at).ops.clear();
    for (op, plan) in plans {
        for inner in func.op(op).regions.clone() {
            region(func, uses, inner);
        }
        match plan {
            Some(plan) => plan.pipeline(func, at),
            None => func.region_mut(at).ops.push(op),
        }
    }
}

/// A loop that can be pipelined.
struct Plan {
    looped: Op,
    options: LoopOptions,
    /// The ops before the second product can begin: those up to the first product.
    head: Vec<Op>,
    /// The second product with what only it needs, its last op.
    late: Vec<Op>,
    /// The other ops.
    tail: Vec<Op>,
    /// What the late ops read of their iteration.
    crossing: Vec<Value>,
    /// Which of the carried values the second product gives.
    sums: usize,
}

impl Plan {
    fn of(func: &Func, uses: &[u32], looped: Op) -> Option<Plan> {
        let OpKind::For(options) = func.op(looped).kind else { return None };
        let body = func.op(looped).regions[0];
        let ops = &func.region(body).ops;
        let (yielding, ops) = ops.split_last()?;
        let is_dot = |op: &&Op| matches!(func.op(**op).kind, OpKind::Dot { .. });
        let dots: Vec<Op> = ops.iter().filter(is_dot).copied().collect();
        let &[first, last] = &dots[..] else { return None };
        brought(func, first)?;
        let result = func.op(last).results[0];
        let sums = func.op(*yielding).operands.iter().position(|&v| v == result)?;
        let late = late_ops(func, ops, last)?;
        let early: Vec<Op> = ops.iter().copied().filter(|op| !late.contains(op)).collect();
        let until = early.iter().position(|&op| op == first)? + 1;
        let (head, tail) = early.split_at(until);
        let args = &func.region(body).args;
        let waits = head.iter().any(|&op| reads(func, op, args[1 + sums]));
        let plain = |op: &Op| func.op(*op).kind != OpKind::Return;
        if uses[result.index()] != 1 || waits || !func.walk_in(body).iter().all(plain) {
            return None;
        }
        let (head, tail) = (head.to_vec(), tail.to_vec());
        let crossing = crossing(func, body, &late);
        Some(Plan { looped, options, head, late, tail, crossing, sums })
    }

    fn pipeline(&self, func: &mut Func, at: Region) {
        let data = func.op(self.looped).clone();
        let (lower, upper, step) = (data.operands[0], data.operands[1], data.operands[2]);
        let types: Vec<Type> = data.results.iter().map(|&v| func.ty(v)).collect();
        let mut b = Builder::at(func, at, data.loc);
        let zero = b.int(DType::I64, 0);
        let (rises, some) =
            (b.compare(Predicate::Gt, step, zero), b.compare(Predicate::Lt, lower, upper));
        let runs = b.binary(BinaryOp::And, rises, some);
        let (then, otherwise) = (func.add_region(), func.add_region());
        Builder::at(func, otherwise, data.loc).yield_values(&data.operands[3..]);
        self.run(func, then, [lower, upper, step], &data.operands[3..]);
        let kind = OpKind::If;
        let all = Builder::at(func, at, data.loc).push(kind, &[runs], &types, &[then, otherwise]);
        // The results keep their values: nothing that reads them changes.
        func.set_results(all, data.results);
    }

    /// The loop where it has an iteration.
    fn run(&self, func: &mut Func, then: Region, bounds: [Value; 3], inits: &[Value]) {
        let [lower, upper, step] = bounds;
        let old = func.op(self.looped).regions[0];
        let args = func.region(old).args.clone();
        let last = *func.region(old).ops.last().expect("a body ends with a yield");
        let yielded = func.op(last).operands.clone();
        let loc = func.op(self.looped).loc;
        let is_own = |i: &usize| *i != self.sums;
        let others: Vec<usize> = (0..inits.len()).filter(is_own).collect();

        let mut map = Mapping::new();
        map.set(args[0], lower);
        for (&arg, &init) in args[1..].iter().zip(inits) {
            map.set(arg, init);
        }
        clone_ops(func, &self.head, &mut map, then);
        clone_ops(func, &self.tail, &mut map, then);
        let next = Builder::at(func, then, loc).binary(BinaryOp::Add, lower, step);
        let carried: Vec<Value> = others.iter().map(|&i| yielded[i]).collect();
        let carried: Vec<Value> = carried.iter().chain(&self.crossing).copied().collect();
        let begun: Vec<Value> = carried.iter().map(|&v| map.get(v)).collect();

        let body = func.add_region();
        let mut map = Mapping::new();
        let index = func.add_region_arg(body, func.ty(args[0]));
        map.set(args[0], index);
        for &i in &others {
            let arg = func.add_region_arg(body, func.ty(args[1 + i]));
            map.set(args[1 + i], arg);
        }
        let mut before = map.clone();
        for &value in &self.crossing {
            let arg = func.add_region_arg(body, func.ty(value));
            before.set(value, arg);
        }
        clone_ops(func, &self.head, &mut map, body);
        clone_ops(func, &self.late, &mut before, body);
        map.set(args[1 + self.sums], before.get(self.product(func)));
        clone_ops(func, &self.tail, &mut map, body);
        let ends: Vec<Value> = carried.iter().map(|&v| map.get(v)).collect();
        Builder::at(func, body, loc).yield_values(&ends);

        let mut b = Builder::at(func, then, loc);
        let left = b.for_loop([next, upper, step], &begun, body, self.options);
        let mut after = Mapping::new();
        for (&value, &end) in self.crossing.iter().zip(&left[others.len()..]) {
            after.set(value, end);
        }
        clone_ops(func, &self.late, &mut after, then);
        let sums = after.get(self.product(func));
        let mut results = left[..others.len()].to_vec();
        results.insert(self.sums, sums);
        Builder::at(func, then, loc).yield_values(&results);
    }

    /// The sums of the second product, in the loop as it was.
    fn product(&self, func: &Func) -> Value {
        let last = *self.late.last().expect("the product is one of them");
        func.op(last).results[0]
    }
}

/// The load that a product's right operand is, if the copy engine brings it and nothing else through
/// the same ring.
fn brought(func: &Func, dot: Op) -> Option<Op> {
    let load = func.def_op(func.op(dot).operands[1])?;
    let OpKind::TmaLoad(number) = func.op(load).kind else { return None };
    let channel = func.tma.loads.get(usize::from(number))?.channel;
    let shared = func.tma.loads.iter().filter(|load| load.channel == channel).count();
    (shared == 1).then_some(load)
}

/// A product of a loop's body and the load of its right operand, in the order of the body.
fn late_ops(func: &Func, body: &[Op], dot: Op) -> Option<Vec<Op>> {
    let late = [dot, brought(func, dot)?];
    let late: Vec<Op> = body.iter().copied().filter(|op| late.contains(op)).collect();
    (late.len() == 2).then_some(late)
}

/// What late ops read that the rest of a body defines.
fn crossing(func: &Func, body: Region, late: &[Op]) -> Vec<Value> {
    let region = func.region(body);
    let early = region.ops.iter().filter(|op| !late.contains(op));
    let results = early.flat_map(|&op| &func.op(op).results);
    let own: BTreeSet<Value> = region.args.iter().chain(results).copied().collect();
    let mut crossing = Vec::new();
    for &value in late.iter().flat_map(|&op| &func.op(op).operands) {
        if own.contains(&value) && !crossing.contains(&value) {
            crossing.push(value);
        }
    }
    crossing
}

/// Whether an op, or one inside it, reads a value.
fn reads(func: &Func, op: Op, value: Value) -> bool {
    let inside = func.op(op).regions.iter().flat_map(|&region| func.walk_in(region));
    inside.chain([op]).any(|op| func.op(op).operands.contains(&value))
}

#[cfg(test)]
mod tests;
