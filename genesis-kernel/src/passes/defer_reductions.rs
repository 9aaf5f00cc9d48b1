//! Defers cross-lane reduction of loop-carried sums to the loop's exit.
//!
//! The lanes of a warp that share an accumulator row reduce their own columns, then shuffle for the row's sum. In a loop
//! that only scales and adds to such sums, the shuffles can wait for the exit:
//!
//! ```text
//! %t = for .. carry (%c = 0) {                     %u = for .. carry (%c = 0) {
//!   %s = reduce add 1 %w : f32[128]                  %p = reshape %w : f32[128x8x4x2]
//!                                            ->      %q = reduce add 1 (reduce add 3 %p) : f32[128x4]
//!   %n = fma %c, %f, %s                              %n = fma %c, %f of each row, %q
//!   yield %n                                         yield %n
//! }                                                }
//!                                                  %t = reduce add 1 %u : f32[128]
//! ```
//!
//! Partial sums are laid out as MMA accumulators: of eight columns two belong to each of four lanes. So this is
//! for what was computed from an MMA of the same loop. It reassociates floats.

use std::collections::BTreeMap;

use super::clone::{Mapping, clone_ops};
use crate::ir::{
    BinaryOp, Builder, Combine, DType, Func, LoopOptions, Op, OpKind, Region, Scalar, Shape, Type,
    Value,
};

/// Columns of a product's sums after which its layout begins anew.
const SPAN: usize = 8;
/// Lanes that share these columns.
const LANES: usize = 4;

/// Keeps the sums of a function's loops in parts.
pub fn run(func: &mut Func) {
    let (body, uses) = (func.body, func.count_uses());
    region(func, &uses, body);
}

fn region(func: &mut Func, uses: &[u32], at: Region) {
    let ops = std::mem::take(&mut func.region_mut(at).ops);
    for op in ops {
        for inner in func.op(op).regions.clone() {
            region(func, uses, inner);
        }
        match Plan::of(func, uses, op) {
            Some(plan) => plan.rewrite(func, at),
            None => func.region_mut(at).ops.push(op),
        }
    }
}

/// Sums that a loop adds to.
#[derive(Clone, Copy)]
struct Sums {
    /// The reduction of what is added, which goes.
    reduce: Op,
    /// What each row is scaled by before.
    factor: Value,
}

/// A loop with such sums.
struct Plan {
    looped: Op,
    options: LoopOptions,
    /// By the op that makes the next sums.
    sums: BTreeMap<Op, Sums>,
    /// The carried values that they are.
    places: Vec<usize>,
}

impl Plan {
    fn of(func: &Func, uses: &[u32], looped: Op) -> Option<Plan> {
        let OpKind::For(options) = func.op(looped).kind else { return None };
        let body = func.op(looped).regions[0];
        let last = *func.region(body).ops.last()?;
        let mut plan = Plan { looped, options, sums: BTreeMap::new(), places: Vec::new() };
        for (place, &next) in func.op(last).operands.iter().enumerate() {
            if let Some((update, sums)) = sums(func, uses, (looped, body), place, next) {
                plan.sums.insert(update, sums);
                plan.places.push(place);
            }
        }
        (!plan.places.is_empty()).then_some(plan)
    }

    fn rewrite(&self, func: &mut Func, at: Region) {
        let data = func.op(self.looped).clone();
        let old = data.regions[0];
        let args = func.region(old).args.clone();
        let mut operands = data.operands.clone();
        for &place in &self.places {
            let shape = parts_of(func, data.results[place]);
            let zero = Scalar { dtype: DType::F32, bits: 0 };
            operands[3 + place] = Builder::at(func, at, data.loc).full(zero, shape);
        }
        let types: Vec<Type> = operands[3..].iter().map(|&value| func.ty(value)).collect();
        let body = func.add_region();
        let mut map = Mapping::new();
        let index = func.ty(args[0]);
        for (&arg, ty) in args.iter().zip([index].into_iter().chain(types.iter().copied())) {
            let new = func.add_region_arg(body, ty);
            map.set(arg, new);
        }
        self.body(func, old, body, &mut map);
        let kind = OpKind::For(self.options);
        let new = Builder::at(func, at, data.loc).push(kind, &operands, &types, &[body]);
        let made = func.op(new).results.clone();
        let is_own = |place: &usize| self.places.contains(place);
        let kept = (0..made.len())
            .map(|place| if is_own(&place) { made[place] } else { data.results[place] });
        func.set_results(new, kept.collect());
        for &place in &self.places {
            let mut b = Builder::at(func, at, data.loc);
            let whole = b.reduce(BinaryOp::Add, made[place], 1);
            if let Some(op) = func.def_op(whole) {
                func.set_results(op, vec![data.results[place]]);
            }
        }
    }

    /// Copies the loop's body, with parts in place of sums.
    fn body(&self, func: &mut Func, old: Region, new: Region, map: &mut Mapping) {
        for op in func.region(old).ops.clone() {
            if self.sums.values().any(|sums| sums.reduce == op) {
                continue;
            }
            let Some(sums) = self.sums.get(&op) else {
                clone_ops(func, &[op], map, new);
                continue;
            };
            let data = func.op(op).clone();
            let from = func.op(sums.reduce).operands[0];
            let ([rows, columns], parts) = (extents(func, from), parts_of(func, data.results[0]));
            let [from, factor, before] =
                [from, sums.factor, data.operands[0]].map(|value| map.get(value));
            let mut b = Builder::at(func, new, data.loc);
            let each = Shape::new(&[rows, columns / SPAN, LANES, SPAN / LANES]);
            let lanes = b.reshape(from, each);
            let lanes = b.reduce(BinaryOp::Add, lanes, 3);
            let lanes = b.reduce(BinaryOp::Add, lanes, 1);
            let factor = b.expand_dims(factor, 1);
            let factor = b.broadcast(factor, parts);
            let next = b.fma(before, factor, lanes);
            map.set(data.results[0], next);
        }
    }
}

/// The op that makes the next of a loop's carried values, if it scales them and adds a reduction of what
/// was computed from a product.
fn sums(
    func: &Func,
    uses: &[u32],
    (looped, body): (Op, Region),
    place: usize,
    next: Value,
) -> Option<(Op, Sums)> {
    let ops = &func.region(body).ops;
    let own = |value: Value| func.def_op(value).filter(|op| ops.contains(op));
    let update = own(next)?;
    let data = func.op(update);
    let &[before, factor, added] = &data.operands[..] else { return None };
    let arg = *func.region(body).args.get(1 + place)?;
    let reduce = own(added)?;
    let is_sum = OpKind::Reduce { axis: 1, combine: Combine::Op(BinaryOp::Add) };
    let begins = func.op(looped).operands[3 + place];
    let is_fit = data.kind == OpKind::Fma
        && before == arg
        && func.op(reduce).kind == is_sum
        && [arg, next, added].iter().all(|value| uses[value.index()] == 1)
        && func.tile(next).dtype() == DType::F32
        && func.tile(next).shape.rank() == 1
        && func.as_const(begins).is_some_and(|zero| zero.bits == 0);
    // Of what `reduce` reads nothing is known before that: it may be any op, one without operands too.
    let [rows, columns] = match is_fit {
        true => extents(func, func.op(reduce).operands[0]),
        false => return None,
    };
    let product = |&op: &Op| {
        let is_dot = matches!(func.op(op).kind, OpKind::Dot { .. });
        is_dot && func.tile(func.op(op).results[0]).shape.extents() == [rows, columns]
    };
    let fits = columns > SPAN && columns.is_multiple_of(SPAN) && ops.iter().any(product);
    fits.then_some((update, Sums { reduce, factor }))
}

/// The two extents of a tile; zeros for a tile of another rank.
fn extents(func: &Func, value: Value) -> [usize; 2] {
    <[usize; 2]>::try_from(func.tile(value).shape.extents()).unwrap_or_default()
}

/// The shape of the parts of a line of sums.
fn parts_of(func: &Func, sums: Value) -> Shape {
    Shape::new(&[func.tile(sums).shape.extent(0), LANES])
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::ir::{InterpArg, parse, print, verify};
    use crate::passes::Pass;
    use crate::passes::tests::check_meaning;

    const ROWS: &str = "
kernel rows(%a: *f32 readonly, %o: *f32 exclusive, %n: i64) {
  %0 = const 0 : i64
  %1 = const 1 : i64
  %2 = const 0.0 : f32
  %3 = broadcast %2 : f32[4]
  %4 = broadcast %2 : f32[4x16]
  %5 = iota : i64[64]
  %6 = broadcast %a : *f32[64]
  %7 = ptr_add %6, %5 : *f32[64]
  %8 = load %7 : f32[64]
  %9 = reshape %8 : f32[4x16]
  %10 = const 2.0 : f32
  %11 = broadcast %10 : f32[16x16]
  %12 = iota : i64[4]
  %13 = broadcast %o : *f32[4]
  %14 = ptr_add %13, %12 : *f32[4]
  %15 = for %16 = %0 to %n step %1 carry (%17 = %3) {
    %18 = dot ieee %9, %11, %4 : f32[4x16]
    %19 = reduce max 1 %18 : f32[4]
    %20 = reduce add 1 %18 : f32[4]
    %21 = fma %17, %19, %20 : f32[4]
    yield %21
  } : f32[4]
  store %14, %15
  return
}
";

    fn after(text: &str) -> String {
        let mut func = parse(text).unwrap_or_else(|error| panic!("{error}"));
        verify(&func).unwrap_or_else(|error| panic!("{error}"));
        run(&mut func);
        verify(&func).unwrap_or_else(|error| panic!("{error}\n{}", print(&func)));
        print(&func)
    }

    #[test]
    fn a_line_of_sums_is_reduced_behind_its_loop() {
        let text = after(ROWS);
        let (_, looped) = text.split_once("ptr_add %13, %12").unwrap_or_default();
        expect![[r#"
             : *f32[4]
              %15 = const 0.0 : f32
              %16 = broadcast %15 : f32[4x4]
              %17 = for %18 = %0 to %n step %1 carry (%19 = %16) {
                %20 = dot ieee %9, %11, %4 : f32[4x16]
                %21 = reduce max 1 %20 : f32[4]
                %22 = reshape %20 : f32[4x2x4x2]
                %23 = reduce add 3 %22 : f32[4x2x4]
                %24 = reduce add 1 %23 : f32[4x4]
                %25 = expand_dims 1 %21 : f32[4x1]
                %26 = broadcast %25 : f32[4x4]
                %27 = fma %19, %26, %24 : f32[4x4]
                yield %27
              } : f32[4x4]
              %28 = reduce add 1 %17 : f32[4]
              store %14, %28
              return
            }
        "#]]
        .assert_eq(looped);
    }

    #[test]
    fn small_integers_sum_up_alike() {
        let pass = Pass { name: "defer_reductions", run };
        for n in [0, 1, 3] {
            let a = (0..64).flat_map(|i| ((i * 7 % 5 - 2) as f32).to_le_bytes()).collect();
            let args = vec![
                InterpArg::Buffer(DType::F32, a),
                InterpArg::BufferMut(DType::F32, vec![1; 16]),
                InterpArg::Scalar(Scalar::int(DType::I64, n)),
            ];
            check_meaning(&pass, ROWS, [1, 1, 1], args);
        }
    }

    #[test]
    fn sums_that_the_loop_looks_at_are_whole() {
        let is_changed = |text: &str| after(text).contains("4x2x4x2");
        assert!(is_changed(ROWS));
        let used = ROWS.replace("    yield %21", "    store %14, %21\n    yield %21");
        assert!(!is_changed(&used));
        assert!(!is_changed(&ROWS.replace("const 0.0", "const 1.0")));
    }

    /// The third operand of a choice may be a constant, which reads nothing.
    #[test]
    fn other_ops_of_three_operands_stay() {
        let text = "kernel k(%o: *i64 exclusive, %n: i64) {
  %0 = const 0 : i64
  %1 = const 1 : i64
  %2 = for %3 = %0 to %n step %1 carry (%4 = %0) {
    %5 = cmp gt %3, %1 : bool
    %6 = const 99 : i64
    %7 = select %5, %3, %6 : i64
    yield %7
  } : i64
  store %o, %2
  return
}
";
        assert_eq!(after(text), text);
    }
}
