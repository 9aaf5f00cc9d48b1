//! Unrolls the loops that ask for it: `.unroll(n)` makes `n` copies of the body one iteration.
//!
//! A loop whose length is known and at most `n` is gone. Of any other, what is left over is a loop of its own, which
//! goes on from where the first one ends:
//!
//! ```text
//! for %i = %0 to %n step 1 unroll 4 {       %m = sub %n, 3
//!   store (ptr_add %p, %i), %x              %r = for %i = %0 to %m step 4 carry (%k = %0) {
//! }                                           store (ptr_add %p, %i), %x
//!                                             store (ptr_add %p, %i + 1), %x
//!                                      ->     ..
//!                                             yield %i + 4
//!                                           }
//!                                           for %i = %r to %n step 1 { .. }
//! ```
//!
//! Iterations stay in order, so that no bits change. A loop of products stays as it is: its loads and MMAs are a
//! pipeline over iterations.

use super::clone::{Mapping, clone_ops};
use crate::analysis::{Range, Ranges};
use crate::ir::{BinaryOp, Builder, DType, Func, LoopOptions, Op, OpKind, Region, Type, Value};

use super::Pass;

/// Unrolls the loops of a function.
pub const UNROLL: Pass = Pass { name: "unroll", run: unroll };

/// Ops that the copies of a loop's body may be in all.
const MAX_OPS: usize = 10_000;

/// The longest step: of as many copies none can be far.
const MAX_STEP: i64 = 1 << 31;

/// Bounds that stay in an i64 with a few steps added.
const FAR: i64 = 1 << 62;

/// Why a loop that asks for copies of its body stays as it is; none where it does not.
pub(crate) fn refusal(func: &Func, op: Op) -> Option<&'static str> {
    let data = func.op(op);
    let inside = func.walk_in(data.regions[0]);
    let has = |is: fn(&OpKind) -> bool| inside.iter().any(|&op| is(&func.op(op).kind));
    let copies = asked(func, op)?;
    let step = func.as_const(data.operands[2]).map(|step| step.to_i64());
    let last = func.region(data.regions[0]).ops.last();
    if has(|kind| matches!(kind, OpKind::Dot { .. } | OpKind::TmaLoad(_))) {
        Some("a loop with a `dot` is a pipeline, whose stages are its copies")
    } else if !step.is_some_and(|step| (1..MAX_STEP).contains(&step)) {
        Some("its step is not known")
    } else if inside.len() * copies > MAX_OPS {
        Some("the copies of its body would be too long")
    } else if last.is_none_or(|&last| func.op(last).kind != OpKind::Yield) {
        Some("it has one iteration")
    } else {
        None
    }
}

/// The copies that a loop asks for.
fn asked(func: &Func, op: Op) -> Option<usize> {
    match func.op(op).kind {
        OpKind::For(options) if options.unroll > 1 => Some(usize::from(options.unroll)),
        _ => None,
    }
}

fn unroll(func: &mut Func) {
    let asks = func.walk().into_iter().any(|op| asked(func, op).is_some());
    if asks {
        let body = func.body;
        region(func, body);
    }
}

fn region(func: &mut Func, at: Region) {
    let ops = std::mem::take(&mut func.region_mut(at).ops);
    for op in ops {
        for inner in func.op(op).regions.clone() {
            region(func, inner);
        }
        match asked(func, op) {
            Some(copies) if refusal(func, op).is_none() => {
                Unroll::of(func, op, copies).write(func, at);
            }
            _ => func.region_mut(at).ops.push(op),
        }
    }
}

/// A loop to be unrolled.
struct Unroll {
    op: Op,
    copies: usize,
    options: LoopOptions,
    bounds: [Value; 3],
    step: i64,
    /// The iterations, where both bounds are known.
    length: Option<u64>,
    body: Region,
}

impl Unroll {
    fn of(func: &Func, op: Op, copies: usize) -> Unroll {
        let data = func.op(op);
        let bounds = [data.operands[0], data.operands[1], data.operands[2]];
        let known = bounds.map(|v| func.as_const(v).map(|scalar| scalar.to_i64()));
        let step = known[2].unwrap_or(1);
        let length = known[0].zip(known[1]).map(|(lower, upper)| {
            let way = i128::from(upper) - i128::from(lower);
            (way.max(0) as u64).div_ceil(step as u64)
        });
        let stages = match data.kind {
            OpKind::For(options) => options.stages,
            _ => 0,
        };
        let (options, body) = (LoopOptions { stages, unroll: 0 }, data.regions[0]);
        Unroll { op, copies, options, bounds, step, length, body }
    }

    /// Writes what the loop becomes at the end of a region; its results keep their values.
    fn write(&self, func: &mut Func, at: Region) {
        let inits = func.op(self.op).operands[3..].to_vec();
        let [lower, upper, step] = self.bounds;
        if let Some(length) = self.length.filter(|&length| length <= self.copies as u64) {
            let values = self.run(func, at, lower, inits, length as usize);
            for (result, value) in func.op(self.op).results.clone().into_iter().zip(values) {
                func.replace_uses(result, value);
            }
            return;
        }
        let loc = func.op(self.op).loc;
        let (next, values) = match self.length {
            Some(length) => {
                // What is left is known too: no carried value says where it begins.
                let whole = length / self.copies as u64 * self.copies as u64;
                let lower_at = func.as_const(lower).map_or(0, |scalar| scalar.to_i64());
                let mut b = Builder::at(func, at, loc);
                let middle = b.int(DType::I64, lower_at + whole as i64 * self.step);
                (middle, self.whole(func, at, [lower, middle], inits, None))
            }
            None => {
                let end = self.end(func, at);
                let bound = Ranges::of_one(func, upper);
                let mut values = self.whole(func, at, [lower, end], inits, Some(bound));
                (values.pop().unwrap_or(lower), values)
            }
        };
        func.op_mut(self.op).kind = OpKind::For(self.options);
        func.op_mut(self.op).operands = [next, upper, step].into_iter().chain(values).collect();
        func.region_mut(at).ops.push(self.op);
    }

    /// Where the copies of an iteration would no longer all be before the upper bound.
    fn end(&self, func: &mut Func, at: Region) -> Value {
        let (loc, upper) = (func.op(self.op).loc, self.bounds[1]);
        let span = self.step * (self.copies as i64 - 1);
        let low = Ranges::of_one(func, upper).low;
        let mut b = Builder::at(func, at, loc);
        let mut upper = upper;
        if low < -FAR {
            let least = b.int(DType::I64, i64::MIN + span);
            upper = b.binary(BinaryOp::Max, upper, least);
        }
        let span = b.int(DType::I64, span);
        b.binary(BinaryOp::Sub, upper, span)
    }

    /// The loop of whole iterations; where the upper bound is not known, what it carries last is the index behind it.
    fn whole(
        &self,
        func: &mut Func,
        at: Region,
        [lower, end]: [Value; 2],
        mut inits: Vec<Value>,
        bound: Option<Range>,
    ) -> Vec<Value> {
        let loc = func.op(self.op).loc;
        let new = func.add_region();
        let index = func.add_region_arg(new, Type::scalar(DType::I64));
        let types: Vec<Type> = inits.iter().map(|&v| func.ty(v)).collect();
        let args: Vec<Value> = types.iter().map(|&ty| func.add_region_arg(new, ty)).collect();
        let mut yields = self.run(func, new, index, args, self.copies);
        let stride = self.step * self.copies as i64;
        if let Some(bound) = bound {
            func.add_region_arg(new, Type::scalar(DType::I64));
            let mut b = Builder::at(func, new, loc);
            let mut from = index;
            if bound.high > FAR {
                // Past the largest index nothing is left, wherever that begins.
                let most = b.int(DType::I64, i64::MAX - stride);
                from = b.binary(BinaryOp::Min, index, most);
            }
            let stride = b.int(DType::I64, stride);
            yields.push(b.binary(BinaryOp::Add, from, stride));
            inits.push(lower);
        }
        Builder::at(func, new, loc).yield_values(&yields);
        let mut b = Builder::at(func, at, loc);
        let stride = b.int(DType::I64, stride);
        b.for_loop([lower, end, stride], &inits, new, self.options)
    }

    /// Copies of the body one after the other; gives what the last one yields.
    fn run(
        &self,
        func: &mut Func,
        to: Region,
        first: Value,
        mut carried: Vec<Value>,
        copies: usize,
    ) -> Vec<Value> {
        let (loc, args) = (func.op(self.op).loc, func.region(self.body).args.clone());
        let mut ops = func.region(self.body).ops.clone();
        let last = ops.pop();
        let yielded = last.map_or(Vec::new(), |last| func.op(last).operands.clone());
        for copy in 0..copies {
            let mut b = Builder::at(func, to, loc);
            let index = match copy {
                0 => first,
                _ => {
                    let offset = b.int(DType::I64, self.step * copy as i64);
                    b.binary(BinaryOp::Add, first, offset)
                }
            };
            let mut mapping = Mapping::new();
            for (&arg, value) in args.iter().zip([index].into_iter().chain(carried)) {
                mapping.set(arg, value);
            }
            clone_ops(func, &ops, &mut mapping, to);
            carried = yielded.iter().map(|&v| mapping.get(v)).collect();
        }
        carried
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::tests::{check, check_meaning};
    use super::super::{CSE, DCE, FOLD, run};
    use super::{UNROLL, refusal};
    use crate::ir::{DType, InterpArg, OpKind, Scalar, parse};

    /// The sum of so many numbers, and how many there were.
    const SUM: &str = "
kernel sum(%x: *i32 readonly, %y: *i32 exclusive, %n: i64) {
  %0 = const 0 : i64
  %1 = const STEP : i64
  %2 = const 0 : i32
  %3 = for %4 = %0 to UPPER step %1 carry (%5 = %2) unroll 3 {
    %6 = ptr_add %x, %4 : *i32
    %7 = load %6 : i32
    %8 = add %5, %7 : i32
    yield %8
  } : i32
  store %y, %3
  return
}";

    fn sum(step: &str, upper: &str) -> String {
        let text = SUM.replace("STEP", step);
        match upper.parse::<i64>() {
            Ok(n) => text
                .replace("  %1 = const", &format!("  %9 = const {n} : i64\n  %1 = const"))
                .replace("UPPER", "%9"),
            Err(_) => text.replace("UPPER", upper),
        }
    }

    #[test]
    fn what_is_left_over_is_a_loop_of_its_own() {
        check(
            &UNROLL,
            &sum("1", "%n"),
            expect![[r#"
            kernel sum(%x: *i32 readonly, %y: *i32 exclusive, %n: i64) {
              %0 = const 0 : i64
              %1 = const 1 : i64
              %2 = const 0 : i32
              %3 = const -9223372036854775806 : i64
              %4 = max %n, %3 : i64
              %5 = const 2 : i64
              %6 = sub %4, %5 : i64
              %7 = const 3 : i64
              %8, %9 = for %10 = %0 to %6 step %7 carry (%11 = %2, %12 = %0) {
                %13 = ptr_add %x, %10 : *i32
                %14 = load %13 : i32
                %15 = add %11, %14 : i32
                %16 = const 1 : i64
                %17 = add %10, %16 : i64
                %18 = ptr_add %x, %17 : *i32
                %19 = load %18 : i32
                %20 = add %15, %19 : i32
                %21 = const 2 : i64
                %22 = add %10, %21 : i64
                %23 = ptr_add %x, %22 : *i32
                %24 = load %23 : i32
                %25 = add %20, %24 : i32
                %26 = const 9223372036854775804 : i64
                %27 = min %10, %26 : i64
                %28 = const 3 : i64
                %29 = add %27, %28 : i64
                yield %25, %29
              } : i32, i64
              %30 = for %31 = %9 to %n step %1 carry (%32 = %8) {
                %33 = ptr_add %x, %31 : *i32
                %34 = load %33 : i32
                %35 = add %32, %34 : i32
                yield %35
              } : i32
              store %y, %30
              return
            }
        "#]],
        );
    }

    #[test]
    fn a_short_loop_of_known_length_is_gone() {
        check(
            &UNROLL,
            &sum("2", "5"),
            expect![[r#"
            kernel sum(%x: *i32 readonly, %y: *i32 exclusive, %n: i64) {
              %0 = const 0 : i64
              %1 = const 5 : i64
              %2 = const 2 : i64
              %3 = const 0 : i32
              %4 = ptr_add %x, %0 : *i32
              %5 = load %4 : i32
              %6 = add %3, %5 : i32
              %7 = const 2 : i64
              %8 = add %0, %7 : i64
              %9 = ptr_add %x, %8 : *i32
              %10 = load %9 : i32
              %11 = add %6, %10 : i32
              %12 = const 4 : i64
              %13 = add %0, %12 : i64
              %14 = ptr_add %x, %13 : *i32
              %15 = load %14 : i32
              %16 = add %11, %15 : i32
              store %y, %16
              return
            }
        "#]],
        );
    }

    #[test]
    fn a_known_length_needs_no_index_that_is_carried() {
        let mut func = parse(&sum("1", "7")).unwrap();
        run(&mut func, &[UNROLL, FOLD, CSE, DCE]);
        expect![[r#"
            kernel sum(%x: *i32 readonly, %y: *i32 exclusive, %n: i64) {
              %0 = const 0 : i64
              %1 = const 1 : i64
              %2 = const 0 : i32
              %3 = const 6 : i64
              %4 = const 3 : i64
              %5 = for %6 = %0 to %3 step %4 carry (%7 = %2) {
                %8 = ptr_add %x, %6 : *i32
                %9 = load %8 : i32
                %10 = add %7, %9 : i32
                %11 = add %6, %1 : i64
                %12 = ptr_add %x, %11 : *i32
                %13 = load %12 : i32
                %14 = add %10, %13 : i32
                %15 = const 2 : i64
                %16 = add %6, %15 : i64
                %17 = ptr_add %x, %16 : *i32
                %18 = load %17 : i32
                %19 = add %14, %18 : i32
                yield %19
              } : i32
              %20 = ptr_add %x, %3 : *i32
              %21 = load %20 : i32
              %22 = add %5, %21 : i32
              store %y, %22
              return
            }
        "#]]
        .assert_eq(&func.to_string());
    }

    #[test]
    fn every_length_gives_what_it_gave() {
        for n in 0..14_i64 {
            for step in ["1", "2", "5"] {
                let ints = (0..14).flat_map(|v: i32| (v + 1).to_le_bytes()).collect();
                let args = vec![
                    InterpArg::Buffer(DType::I32, ints),
                    InterpArg::BufferMut(DType::I32, vec![0; 4]),
                    InterpArg::Scalar(Scalar::int(DType::I64, n)),
                ];
                check_meaning(&UNROLL, &sum(step, "%n"), [1; 3], args.clone());
                check_meaning(&UNROLL, &sum(step, &n.to_string()), [1; 3], args);
            }
        }
    }

    /// How many indices there are between two bounds, in steps of 5.
    const COUNT: &str = "
kernel count(%y: *i64 exclusive, %from: i64, %n: i64) {
  %0 = const 0 : i64
  %1 = const 5 : i64
  %2 = const 1 : i64
  %3 = for %4 = %from to %n step %1 carry (%5 = %0) unroll 4 {
    %6 = add %5, %2 : i64
    yield %6
  } : i64
  store %y, %3
  return
}";

    #[test]
    fn bounds_at_the_ends_of_i64_do_not_wrap() {
        let ends = [i64::MIN, i64::MIN + 7, 0, i64::MAX - 7, i64::MAX];
        for (from, n) in ends.iter().flat_map(|&a| (0..40).map(move |k| (a, k))) {
            let to = from.saturating_add(n);
            let number = |v: i64| InterpArg::Scalar(Scalar::int(DType::I64, v));
            for bounds in [[from, to], [from.saturating_sub(n), from]] {
                let args = vec![
                    InterpArg::BufferMut(DType::I64, vec![0; 8]),
                    number(bounds[0]),
                    number(bounds[1]),
                ];
                check_meaning(&UNROLL, COUNT, [1; 3], args);
            }
        }
    }

    #[test]
    fn loops_in_loops_are_unrolled_from_the_inside_out() {
        let text = "
kernel nested(%y: *i64 exclusive, %n: i64) {
  %0 = const 0 : i64
  %1 = const 1 : i64
  %2 = const 2 : i64
  for %3 = %0 to %n step %1 unroll 2 {
    for %4 = %0 to %2 step %1 unroll 4 {
      %5 = add %3, %4 : i64
      %6 = ptr_add %y, %5 : *i64
      store %6, %4
      yield
    }
    yield
  }
  return
}";
        let mut func = parse(text).unwrap();
        run(&mut func, &[UNROLL, FOLD, CSE, DCE]);
        let text = func.to_string();
        // Two iterations of two and what is left, each with two stores.
        assert_eq!(
            (text.matches("for ").count(), text.matches("store ").count()),
            (2, 6),
            "{text}"
        );
    }

    #[test]
    fn a_loop_of_unknown_step_stays() {
        let text = SUM.replace("UPPER step %1", "%n step %n").replace("const STEP", "const 1");
        let mut func = parse(&text).unwrap();
        let looped = |func: &crate::ir::Func| {
            let is_loop = |op: &crate::ir::Op| matches!(func.op(*op).kind, OpKind::For(_));
            func.walk().into_iter().find(is_loop).unwrap()
        };
        assert_eq!(refusal(&func, looped(&func)), Some("its step is not known"));
        let before = func.to_string();
        run(&mut func, &[UNROLL]);
        assert_eq!(func.to_string(), before);
    }
}
