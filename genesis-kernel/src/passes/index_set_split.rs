//! Index-set splitting: the iterations of a loop that cross no edge get a loop of their own.
//!
//! A loop over blocks masks those that cross an edge: the end of a row, the diagonal of a causal mask. An `if` spares the
//! others the work, but ends the basic block in which MMAs are in flight. So the iterations between edges run without
//! the `if`:
//!
//! ```text
//! for %j = %a to %b step 128 carry (..) {       for %j = %a to %d step 128 carry (.., %n = %a) {
//!   %s = dot ..                                   as before, and yield .., %j + 128
//!   %m = if (%j < %d) | (%j + 128 > %l) {       }
//!     mask                                      for %j = %n to %e step 128 carry (.., %o = %n) {
//!   } else { %s }                          ->     %s = dot ..
//!   yield ..                                      yield .., %j + 128
//! }                                             }
//!                                               for %j = %o to %b step 128 carry (..) { as before }
//! ```
//!
//! This is for loops whose operands come through the copy engine, which runs on from one loop to the next.

use super::clone::{Mapping, clone_ops};
use super::{DCE, FOLD, Pass};
use crate::analysis::Ranges;
use crate::ir::{BinaryOp, Builder, DType, Func, Op, OpKind, Predicate, Region, Type, Value};

/// Splits the loops of one function.
pub const INDEX_SET_SPLIT: Pass = Pass { name: "index_set_split", run };

fn run(func: &mut Func) {
    if func.tma.loads.is_empty() {
        return;
    }
    let (body, ranges) = (func.body, Ranges::of(func));
    if region(func, body, &ranges) {
        (FOLD.run)(func);
        (DCE.run)(func);
    }
}

/// Splits the loops of a region; whether there was one to split.
fn region(func: &mut Func, at: Region, ranges: &Ranges) -> bool {
    let mut any = false;
    for op in std::mem::take(&mut func.region_mut(at).ops) {
        for inner in func.op(op).regions.clone() {
            any |= region(func, inner, ranges);
        }
        if let Some(plan) = Plan::of(func, op, ranges) {
            plan.split(func, at, op);
            any = true;
        }
        func.region_mut(at).ops.push(op);
    }
    any
}

/// What no index of the loop without questions reaches.
const FAR: i64 = 1 << 62;

/// One of the questions of a loop: whether `index + ahead` compares with a bound as it says.
#[derive(Clone, Copy, Debug)]
struct Edge {
    ahead: i64,
    predicate: Predicate,
    bound: Value,
}

impl Edge {
    /// The first index for which the answer is another than for those before, where none is below zero.
    fn limit(&self, b: &mut Builder<'_>) -> Value {
        let is_past = i64::from(matches!(self.predicate, Predicate::Gt | Predicate::Le));
        // A lower bound says nothing more, and would wrap.
        let least = b.int(DType::I64, -is_past);
        let bound = b.binary(BinaryOp::Max, self.bound, least);
        let less = b.int(DType::I64, self.ahead - is_past);
        b.binary(BinaryOp::Sub, bound, less)
    }
}

/// A loop whose iterations ask for edges.
struct Plan {
    /// Its `if`.
    asks: Op,
    edges: Vec<Edge>,
    /// Conditions that are the same in every iteration.
    fixed: Vec<Value>,
    /// No index is below zero or far up.
    is_near: bool,
}

impl Plan {
    fn of(func: &Func, op: Op, ranges: &Ranges) -> Option<Plan> {
        let data = func.op(op);
        let OpKind::For(_) = data.kind else { return None };
        let rises = func.as_const(data.operands[2]).is_some_and(|step| step.to_f64() > 0.0);
        let body = func.region(data.regions[0]);
        let multiplies = |&op: &Op| matches!(func.op(op).kind, OpKind::Dot { .. });
        if !rises || !body.ops.iter().any(multiplies) {
            return None;
        }
        let mut owners = body.ops.iter().filter(|&&op| !func.op(op).regions.is_empty());
        let (&asks, None) = (owners.next()?, owners.next()) else { return None };
        let otherwise = func.op(asks).regions.get(1)?;
        let is_bare = func.region(*otherwise).ops.len() == 1;
        if func.op(asks).kind != OpKind::If || !is_bare {
            return None;
        }
        let [first, last] = [0, 1].map(|i| ranges.of_value(data.operands[i]));
        let is_near = first.low >= 0 && last.high <= FAR;
        let mut plan = Plan { asks, edges: Vec::new(), fixed: Vec::new(), is_near };
        let found = plan.add(func, data.regions[0], func.op(asks).operands[0]);
        found.then_some(plan)
    }

    /// Takes the parts of a condition; false if one is none of those.
    fn add(&mut self, func: &Func, body: Region, condition: Value) -> bool {
        let region = func.region(body);
        let is_inside = |v: Value| {
            region.args.contains(&v) || func.def_op(v).is_some_and(|op| region.ops.contains(&op))
        };
        if !is_inside(condition) {
            self.fixed.push(condition);
            return true;
        }
        let Some(op) = func.def_op(condition) else { return false };
        let operands = &func.op(op).operands;
        match func.op(op).kind {
            OpKind::Binary(BinaryOp::Or) => operands.iter().all(|&v| self.add(func, body, v)),
            // Where the one does not hold, nothing is asked of the other.
            OpKind::Binary(BinaryOp::And) => {
                let fixed = operands.iter().find(|&&v| !is_inside(v));
                self.fixed.extend(fixed);
                fixed.is_some()
            }
            OpKind::Compare(predicate) if !is_inside(operands[1]) => {
                let ahead = ahead_of(func, region.args[0], operands[0]);
                let is_order = !matches!(predicate, Predicate::Eq | Predicate::Ne);
                let edge = |ahead| Edge { ahead, predicate, bound: operands[1] };
                self.edges.extend(ahead.filter(|_| is_order).map(edge));
                is_order && ahead.is_some()
            }
            _ => false,
        }
    }

    /// Writes the loops before the old one, which goes on from where they end.
    fn split(&self, func: &mut Func, at: Region, op: Op) {
        let data = func.op(op).clone();
        let (body, step) = (data.regions[0], data.operands[2]);
        if let Some(begin) = self.begin(&mut Builder::at(func, at, data.loc), data.operands[1]) {
            let edge = self.body(func, body, step, true);
            before(func, (at, op), begin, edge);
        }
        let lower = func.op(op).operands[0];
        let end = self.end(&mut Builder::at(func, at, data.loc), lower, data.operands[1]);
        let whole = self.body(func, body, step, false);
        before(func, (at, op), end, whole);
    }

    /// Where the loop without questions begins, if something is asked for before it.
    fn begin(&self, b: &mut Builder<'_>, upper: Value) -> Option<Value> {
        let is_low = |edge: &&Edge| matches!(edge.predicate, Predicate::Lt | Predicate::Le);
        let limits: Vec<Value> =
            self.edges.iter().filter(is_low).map(|edge| edge.limit(b)).collect();
        let last = limits.into_iter().reduce(|a, limit| b.binary(BinaryOp::Max, a, limit))?;
        Some(b.binary(BinaryOp::Min, last, upper))
    }

    /// Where the loop without questions ends. It has no index below zero or far up, so that nothing wraps.
    fn end(&self, b: &mut Builder<'_>, lower: Value, upper: Value) -> Value {
        let mut end = upper;
        if !self.is_near {
            let far = b.int(DType::I64, FAR);
            end = b.binary(BinaryOp::Min, upper, far);
        }
        let is_high = |edge: &&Edge| matches!(edge.predicate, Predicate::Gt | Predicate::Ge);
        for edge in self.edges.iter().filter(is_high) {
            let limit = edge.limit(b);
            end = b.binary(BinaryOp::Min, end, limit);
        }
        if !self.is_near {
            let zero = b.int(DType::I64, 0);
            let is_natural = b.compare(Predicate::Ge, lower, zero);
            end = b.select(is_natural, end, lower);
        }
        for &asked in &self.fixed {
            end = b.select(asked, lower, end);
        }
        end
    }

    /// The body of the loop once more, with the index after it; without the `if` unless it `asks`.
    fn body(&self, func: &mut Func, old: Region, step: Value, asks: bool) -> Region {
        let new = func.add_region();
        let args = func.region(old).args.clone();
        let mut map = Mapping::new();
        for &arg in &args {
            let copied = func.add_region_arg(new, func.ty(arg));
            map.set(arg, copied);
        }
        func.add_region_arg(new, Type::scalar(DType::I64));
        let mut ops = func.region(old).ops.clone();
        let last = ops.pop().expect("a body ends with a yield");
        for op in ops {
            if asks || op != self.asks {
                clone_ops(func, &[op], &mut map, new);
                continue;
            }
            let data = func.op(op).clone();
            let kept = func.region(data.regions[1]).ops[0];
            for (i, &result) in data.results.iter().enumerate() {
                let value = map.get(func.op(kept).operands[i]);
                map.set(result, value);
            }
        }
        let mut yielded: Vec<Value> = func.op(last).operands.iter().map(|&v| map.get(v)).collect();
        let mut builder = Builder::at(func, new, None);
        yielded.push(builder.binary(BinaryOp::Add, map.get(args[0]), step));
        builder.yield_values(&yielded);
        new
    }
}

/// Writes a loop with this body that ends here before an old one, which goes on from there.
fn before(func: &mut Func, (at, op): (Region, Op), end: Value, body: Region) {
    let data = func.op(op).clone();
    let (lower, upper, step) = (data.operands[0], data.operands[1], data.operands[2]);
    let carried = data.operands[3..].iter().copied().chain([lower]);
    let operands: Vec<Value> = [lower, end, step].into_iter().chain(carried).collect();
    let mut types: Vec<Type> = data.results.iter().map(|&v| func.ty(v)).collect();
    types.push(Type::scalar(DType::I64));
    let first = Builder::at(func, at, data.loc).push(data.kind, &operands, &types, &[body]);
    let mut results = func.op(first).results.clone();
    let next = results.pop().expect("the last one is the index");
    func.op_mut(op).operands = [next, upper, step].into_iter().chain(results).collect();
}

/// How far a value is ahead of an index, by a constant that is not negative.
fn ahead_of(func: &Func, index: Value, value: Value) -> Option<i64> {
    if value == index {
        return Some(0);
    }
    let op = func.def_op(value)?;
    let [a, b] = func.op(op).operands[..] else { return None };
    let ahead = func.as_const(b).filter(|_| a == index)?.to_f64();
    let is_sum = func.op(op).kind == OpKind::Binary(BinaryOp::Add);
    (is_sum && (0.0..1e9).contains(&ahead)).then_some(ahead as i64)
}

#[cfg(test)]
mod tests {
    use super::INDEX_SET_SPLIT;
    use crate::ir::{DType, InterpArg, Scalar, parse};
    use crate::passes::tests::check_meaning;

    /// Sums of products of rows with blocks of 8 keys; keys from `%n` on, before `%x` and after `%y` are
    /// masked by a factor.
    const EDGES: &str = "
kernel edges(%a: *f32 exclusive, %n: i64, %x: i64, %y: i64, %first: i64, %off: bool) {
  %0 = const 8 : i64
  %1 = const 0.0 : f32
  %2 = broadcast %1 : f32[8x8]
  %3 = const 1.0 : f32
  %4 = broadcast %3 : f32[8x8]
  %5 = for %6 = %first to %n step %0 carry (%7 = %2) {
    %8 = dot ieee %4, %4, %2 : f32[8x8]
    %9 = add %6, %0 : i64
    %10 = cmp gt %9, %n : bool
    %11 = cmp lt %6, %x : bool
    %12 = or %10, %11 : bool
    %13 = const 7 : i64
    %14 = add %6, %13 : i64
    %15 = cmp ge %14, %y : bool
    %22 = or %12, %15 : bool
    %16 = or %22, %off : bool
    %17 = if %16 {
      %18 = add %8, %4 : f32[8x8]
      yield %18
    } else {
      yield %8
    } : f32[8x8]
    %19 = add %7, %17 : f32[8x8]
    yield %19
  } : f32[8x8]
  %20 = reduce add 0 %5 : f32[8]
  %21 = reduce add 0 %20 : f32
  store %a, %21
  return
}";

    /// The text, as it is where the copy engine brings something.
    fn by_copies() -> String {
        let table = "  tma channel stages 2 bytes 1024
  tma load map 0 channel 0 offset 0 bytes 1024 contiguous 1
  %0 = const 8 : i64";
        EDGES.replacen("  %0 = const 8 : i64", table, 1)
    }

    #[test]
    fn whole_blocks_ask_nothing() {
        let mut func = parse(&by_copies()).unwrap();
        crate::passes::run(&mut func, &[INDEX_SET_SPLIT]);
        let text = func.to_string();
        assert_eq!(
            (text.matches("= for ").count(), text.matches("= if ").count()),
            (3, 2),
            "{text}"
        );
        let mut plain = parse(EDGES).unwrap();
        crate::passes::run(&mut plain, &[INDEX_SET_SPLIT]);
        assert_eq!(plain.to_string(), parse(EDGES).unwrap().to_string());
    }

    #[test]
    fn every_edge_gives_what_it_gave() {
        let number = |v: i64| InterpArg::Scalar(Scalar::int(DType::I64, v));
        let bounds = [i64::MIN, -9, 0, 8, 20, i64::MAX];
        for (n, first) in [(0, 0), (40, 0), (43, 8), (43, -16)] {
            for (x, y) in bounds.into_iter().flat_map(|x| bounds.map(|y| (x, y))) {
                let sum = InterpArg::BufferMut(DType::F32, vec![0; 4]);
                let args = [sum, number(n), number(x), number(y), number(first)];
                for off in [0, 1] {
                    let off = InterpArg::Scalar(Scalar::int(DType::Bool, off));
                    let args = args.iter().cloned().chain([off]).collect();
                    check_meaning(&INDEX_SET_SPLIT, &by_copies(), [1, 1, 1], args);
                }
            }
        }
    }
}
