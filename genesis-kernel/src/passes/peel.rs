//! Peels the masked last iteration off loops over a row: all others run without masks.
//!
//! A loop in steps of a block masks what is past the end, which only the last iteration reaches. The
//! iterations before it run in a loop of their own, in which these masks are true; what is left, one
//! iteration or none most of the time, is the loop as it was:
//!
//! ```text
//! for %k = 0 to %n step 512 carry (%s = 0)         for %k = 0 to %n - 511 step 512 carry (.., %next = 0)
//!   %v = load %p, (%k + iota 512 < %n)        ->     %v = load %p
//!                                                  for %k = %next to %n step 512 carry (..)
//!                                                    %v = load %p, (%k + iota 512 < %n)
//! ```
//!
//! Masks that do not move with the loop, such as those of its rows, are a condition of the first loop:
//! where it does not hold that loop has no iteration. Loops around matrix products are left to what
//! pipelines them. As with [`VERSION`](super::VERSION), this is for GPUs.

use super::clone::Mapping;
use super::fold::FOLD;
use super::{Pass, version};
use crate::analysis::Ranges;
use crate::analysis::masks::{self, Condition, Part};
use crate::ir::{BinaryOp, Builder, DType, Func, Op, OpKind, Predicate, Region, Type, Value};

/// Peels the loops of one function.
pub const PEEL: Pass = Pass { name: "peel", run };

/// Longer bodies stay as they are: a step of an optimizer that draws random bits has some 150 ops, and moves 16 bytes at a
/// time without masks only.
const MAX_OPS: usize = 256;

fn run(func: &mut Func) {
    let has_loop = func.walk().into_iter().any(|op| matches!(func.op(op).kind, OpKind::For(_)));
    if !has_loop || !version::has_runs(func) {
        return;
    }
    let ranges = Ranges::of(func);
    let body = func.body;
    if region(func, &ranges, body) {
        (FOLD.run)(func);
    }
}

/// Peels the loops of a region; whether there was one to peel.
fn region(func: &mut Func, ranges: &Ranges, at: Region) -> bool {
    let mut any = false;
    for op in std::mem::take(&mut func.region_mut(at).ops) {
        for inner in func.op(op).regions.clone() {
            any |= region(func, ranges, inner);
        }
        match Plan::of(func, ranges, op) {
            Some(plan) => plan.peel(func, at, op),
            None => {
                func.region_mut(at).ops.push(op);
                continue;
            }
        }
        any = true;
    }
    any
}

/// What can be said about the masks of a loop.
struct Plan {
    /// The loop's index.
    index: Value,
    /// Parts that are true up to some iteration.
    moving: Vec<Part>,
    /// Parts that are the same in every iteration.
    fixed: Vec<Part>,
    /// Masks that consist of these only.
    whole: Vec<Value>,
}

impl Plan {
    fn of(func: &Func, ranges: &Ranges, op: Op) -> Option<Plan> {
        let data = func.op(op);
        let OpKind::For(options) = data.kind else { return None };
        let ops = &func.region(data.regions[0]).ops;
        let is_plain = ops.iter().all(|&op| is_peeled(func, op));
        if !is_plain || ops.len() > MAX_OPS || options.stages > 1 {
            return None;
        }
        let inside = Inside::of(func, data.regions[0]);
        let index = func.region(data.regions[0]).args[0];
        let mut plan = Plan { index, moving: Vec::new(), fixed: Vec::new(), whole: Vec::new() };
        for &op in ops {
            let data = func.op(op);
            let position = if data.kind == OpKind::Load { 1 } else { 2 };
            let is_access = matches!(data.kind, OpKind::Load | OpKind::Store);
            let Some(&mask) = data.operands.get(position).filter(|_| is_access) else { continue };
            let (parts, mut all) = masks::parts(func, ranges, mask);
            for part in parts {
                all &= plan.add(func, ranges, &inside, part);
            }
            if all {
                plan.whole.push(mask);
            }
        }
        (!plan.moving.is_empty()).then_some(plan)
    }

    /// Takes a part where something can be said about it.
    fn add(&mut self, func: &Func, ranges: &Ranges, inside: &Inside, part: Part) -> bool {
        let index = self.index;
        let known = self.moving.iter().chain(&self.fixed);
        if known.into_iter().any(|other| other.value == part.value) {
            return true;
        }
        let natural = |v: Value| ranges.of_value(v).low >= 0;
        let small = |v: Value| natural(v) && ranges.of_value(v).high < 1 << 60;
        match &part.condition {
            Condition::Itself if inside.has(part.value) => return false,
            Condition::Itself => self.fixed.push(part),
            Condition::Extreme { starts, extreme, predicate, bound, fits } => {
                let others: Vec<Value> = starts.iter().copied().filter(|&v| v != index).collect();
                let is_outside = others.iter().chain([bound]).all(|&v| !inside.has(v));
                let is_moving = others.len() + 1 == starts.len()
                    && *predicate == Predicate::Lt
                    && (0..1 << 31).contains(extreme)
                    && natural(index)
                    && others.iter().all(|&v| small(v))
                    && func.tile(*bound).dtype() == DType::I64;
                match (is_outside, others.len() == starts.len()) {
                    (true, true) if *fits => self.fixed.push(part),
                    (true, false) if is_moving => self.moving.push(part),
                    _ => return false,
                }
            }
        }
        true
    }

    /// Writes the first loop before the old one, which goes on from where it ends.
    fn peel(&self, func: &mut Func, at: Region, op: Op) {
        let data = func.op(op).clone();
        let (lower, upper, step) = (data.operands[0], data.operands[1], data.operands[2]);
        let mut builder = Builder::at(func, at, data.loc);
        let end = self.end(&mut builder, lower, upper);
        let body = self.body(func, data.regions[0], step);
        let mut operands = vec![lower, end, step];
        operands.extend(&data.operands[3..]);
        operands.push(lower);
        let mut types: Vec<Type> = data.results.iter().map(|&v| func.ty(v)).collect();
        types.push(Type::scalar(DType::I64));
        let mut builder = Builder::at(func, at, data.loc);
        let first = builder.push(data.kind, &operands, &types, &[body]);
        let mut results = func.op(first).results.clone();
        let next = results.pop().expect("the last one is the index");
        let rest: Vec<Value> = [next, upper, step].into_iter().chain(results).collect();
        func.op_mut(op).operands = rest;
        if let OpKind::For(options) = &mut func.op_mut(op).kind {
            // Of the few iterations that are left nobody wants copies.
            options.unroll = 0;
        }
        func.region_mut(at).ops.push(op);
    }

    /// Where the first loop ends.
    fn end(&self, b: &mut Builder<'_>, lower: Value, upper: Value) -> Value {
        let mut end = upper;
        for (i, part) in self.moving.iter().enumerate() {
            if self.moving[..i].iter().any(|earlier| earlier.is_as(part)) {
                continue;
            }
            let Condition::Extreme { starts, extreme, bound, .. } = &part.condition else {
                continue;
            };
            // No iteration passes a bound below zero, and from zero down nothing wraps.
            let zero = b.int(DType::I64, 0);
            let bound = b.binary(BinaryOp::Max, *bound, zero);
            let last = b.int(DType::I64, *extreme);
            let mut limit = b.binary(BinaryOp::Sub, bound, last);
            for &start in starts.iter().filter(|&&start| start != self.index) {
                limit = b.binary(BinaryOp::Sub, limit, start);
            }
            end = b.binary(BinaryOp::Min, end, limit);
        }
        for part in &self.fixed {
            let holds = part.write(b);
            end = b.select(holds, end, lower);
        }
        end
    }

    /// The body of the first loop: one more carried value, the index after it.
    fn body(&self, func: &mut Func, old: Region, step: Value) -> Region {
        let new = func.add_region();
        let args = func.region(old).args.clone();
        let mut map = Mapping::new();
        for arg in args {
            let copy = func.add_region_arg(new, func.ty(arg));
            map.set(arg, copy);
        }
        func.add_region_arg(new, Type::scalar(DType::I64));
        let parts = self.moving.iter().chain(&self.fixed).map(|part| part.value);
        let masks: Vec<Value> = parts.chain(self.whole.iter().copied()).collect();
        let mut ops = func.region(old).ops.clone();
        let last = ops.pop().expect("a body ends with a yield");
        let map = version::copy_without(func, &ops, &masks, map, new);
        let mut yielded: Vec<Value> = func.op(last).operands.iter().map(|&v| map.get(v)).collect();
        let mut builder = Builder::at(func, new, None);
        yielded.push(builder.binary(BinaryOp::Add, map.get(self.index), step));
        builder.yield_values(&yielded);
        new
    }
}

/// The values that a loop's body defines.
struct Inside(Vec<bool>);

impl Inside {
    fn of(func: &Func, body: Region) -> Inside {
        let mut inside = Inside(vec![false; func.n_values()]);
        let region = func.region(body);
        let results = region.ops.iter().flat_map(|&op| &func.op(op).results);
        for value in region.args.iter().chain(results) {
            inside.0[value.index()] = true;
        }
        inside
    }

    fn has(&self, value: Value) -> bool {
        self.0[value.index()]
    }
}

/// What the body of a peeled loop may have.
fn is_peeled(func: &Func, op: Op) -> bool {
    let data = func.op(op);
    let is_access = matches!(data.kind, OpKind::Load | OpKind::Store | OpKind::Yield);
    let is_dot = matches!(data.kind, OpKind::Dot { .. });
    data.regions.is_empty() && (is_access || (data.kind.is_pure() && !is_dot))
}

#[cfg(test)]
mod tests {
    use super::super::{CSE, DCE, run};
    use super::PEEL;
    use crate::ir::{DType, InterpArg, Scalar, parse};
    use crate::passes::tests::check_meaning;
    use expect_test::expect;

    const SUM: &str = "
kernel sum(%x: *i32 readonly, %y: *i32 exclusive, %n: i64, %m: i64) {
  %0 = program_id 0 : i64
  %1 = const 8 : i64
  %2 = iota : i64[8]
  %3 = const 0 : i64
  %4 = const 0 : i32
  %5 = broadcast %4 : i32[8]
  %6 = broadcast %n : i64[8]
  %7 = broadcast %x : *i32[8]
  %8 = cmp lt %0, %m : bool
  %9 = broadcast %8 : bool[8]
  %10 = for %11 = %3 to %n step %1 carry (%12 = %5) {
    %13 = broadcast %11 : i64[8]
    %14 = add %13, %2 : i64[8]
    %15 = cmp lt %14, %6 : bool[8]
    %16 = and %15, %9 : bool[8]
    %17 = ptr_add %7, %14 : *i32[8]
    %18 = load %17, %16 : i32[8]
    %19 = add %12, %18 : i32[8]
    yield %19
  } : i32[8]
  %20 = reduce add 0 %10 : i32
  %21 = ptr_add %y, %0 : *i32
  store %21, %20
  return
}";

    #[test]
    fn whole_steps_have_no_masks() {
        let mut func = parse(SUM).unwrap();
        run(&mut func, &[PEEL, CSE, DCE]);
        expect![[r#"
            kernel sum(%x: *i32 readonly, %y: *i32 exclusive, %n: i64, %m: i64) {
              %0 = program_id 0 : i64
              %1 = const 8 : i64
              %2 = iota : i64[8]
              %3 = const 0 : i64
              %4 = const 0 : i32
              %5 = broadcast %4 : i32[8]
              %6 = broadcast %n : i64[8]
              %7 = broadcast %x : *i32[8]
              %8 = cmp lt %0, %m : bool
              %9 = broadcast %8 : bool[8]
              %10 = max %n, %3 : i64
              %11 = const 7 : i64
              %12 = sub %10, %11 : i64
              %13 = min %n, %12 : i64
              %14 = select %8, %13, %3 : i64
              %15, %16 = for %17 = %3 to %14 step %1 carry (%18 = %5, %19 = %3) {
                %20 = broadcast %17 : i64[8]
                %21 = add %20, %2 : i64[8]
                %22 = ptr_add %7, %21 : *i32[8]
                %23 = load %22 : i32[8]
                %24 = add %18, %23 : i32[8]
                %25 = add %17, %1 : i64
                yield %24, %25
              } : i32[8], i64
              %26 = for %27 = %16 to %n step %1 carry (%28 = %15) {
                %29 = broadcast %27 : i64[8]
                %30 = add %29, %2 : i64[8]
                %31 = cmp lt %30, %6 : bool[8]
                %32 = and %31, %9 : bool[8]
                %33 = ptr_add %7, %30 : *i32[8]
                %34 = load %33, %32 : i32[8]
                %35 = add %28, %34 : i32[8]
                yield %35
              } : i32[8]
              %36 = reduce add 0 %26 : i32
              %37 = ptr_add %y, %0 : *i32
              store %37, %36
              return
            }
        "#]]
        .assert_eq(&func.to_string());
    }

    #[test]
    fn every_length_gives_what_it_gave() {
        for (n, m) in (0..35usize).flat_map(|n| [(n, 3), (n, 0)]) {
            let ints = (0..n as i32).flat_map(|v| (v + 1).to_le_bytes()).collect();
            let number = |v: usize| InterpArg::Scalar(Scalar::int(DType::I64, v as i64));
            let args = vec![
                InterpArg::Buffer(DType::I32, ints),
                InterpArg::BufferMut(DType::I32, vec![0; 16]),
                number(n),
                number(m),
            ];
            check_meaning(&PEEL, SUM, [4, 1, 1], args);
        }
    }

    #[test]
    fn products_are_left_alone() {
        let text = SUM.replace(
            "    yield %19",
            "    %41 = cast %19 : f32[8]
    %42 = expand_dims 0 %41 : f32[1x8]
    %43 = expand_dims 1 %41 : f32[8x1]
    %44 = const 0.0 : f32
    %45 = broadcast %44 : f32[8x8]
    %46 = dot ieee %43, %42, %45 : f32[8x8]
    yield %19",
        );
        let mut func = parse(&text).unwrap();
        run(&mut func, &[PEEL]);
        assert_eq!(func.to_string().matches("for ").count(), 1, "{func}");
    }
}
