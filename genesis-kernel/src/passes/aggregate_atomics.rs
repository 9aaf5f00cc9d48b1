//! Aggregates atomic additions to few places: a histogram in shared memory, then one addition for each place.
//!
//! A kernel that counts adds one number at a place that each element says, of which there are few (those that a byte can
//! say, a remainder, a masked field). Atomics at one place of global memory wait for each other, and there are as many as
//! elements. They are counted by the program's threads instead, over all iterations of a loop:
//!
//! ```text
//! for .. {                                       %t = for .. carry (%s = 0) : i32[256] {
//!   %i = cast %x : i64[1024]      0 ..= 255        _, %c = histogram (cast %x : i32[1024]) : i32[256]
//!   %p = ptr_add %places, %i                ->     yield (add %s, %c)
//!   atomic_rmw add %p, 1                         }
//!   yield                                        atomic_rmw add (ptr_add %places, iota 256), %t, (cmp ne %t, 0)
//! }
//! ```
//!
//! Nobody can tell: the old values are not used, so that the additions order nothing (`MemoryOrder::ByUse`); integers
//! wrap, whatever they are added in; and in the loop nothing else touches the argument's memory, which is behind no
//! other argument, nor does anything order accesses, print or end the program. Where a loop does, or there is none, each
//! tile is counted by itself. Sums of floats would round otherwise and are left alone.

use crate::analysis::Ranges;
use crate::ir::{
    AtomicOp, AtomicOrdering, BinaryOp, Builder, DType, Func, MemoryOrder, Op, OpKind, Predicate,
    Region, Scalar, Shape, Value,
};

/// Places at most: each warp has counters for all of them in shared memory.
const MAX_PLACES: i64 = 1024;

/// Elements for each place at least. Of fewer the counters would cost about as much as the atomics that they spare.
const ELEMENTS_FOR_EACH: i64 = 4;

/// Whether a function adds by atomics at all.
pub(crate) fn may_apply(func: &Func) -> bool {
    let is_addition = |op: Op| matches!(func.op(op).kind, OpKind::AtomicRmw(AtomicOp::Add, _));
    func.walk().into_iter().any(is_addition)
}

/// Aggregates the additions of one function; whether there were any.
pub(crate) fn run(func: &mut Func) -> bool {
    let (body, uses, ranges) = (func.body, func.count_uses(), Ranges::of(func));
    let known = Known { uses, ranges };
    known.region(func, body)
}

/// What is known of a function before anything changes.
struct Known {
    uses: Vec<u32>,
    ranges: Ranges,
}

/// An addition of one number at places from a pointer on.
struct Addition {
    op: Op,
    /// The scalars that the pointer is made of: one, then how far it is moved.
    base: (Value, Vec<Value>),
    /// Where in it each element adds.
    index: Value,
    places: usize,
    /// The number.
    by: By,
    mask: Option<Value>,
    dtype: DType,
    ordering: AtomicOrdering,
}

#[derive(Clone, Copy)]
enum By {
    Const(Scalar),
    Scalar(Value),
}

impl Known {
    /// Aggregates what is in a region, loops first.
    fn region(&self, func: &mut Func, at: Region) -> bool {
        let mut any = false;
        for op in std::mem::take(&mut func.region_mut(at).ops) {
            if let Some(additions) = self.of_loop(func, op) {
                aggregate_loop(func, at, op, &additions);
                any = true;
                continue;
            }
            for inner in func.op(op).regions.clone() {
                any |= self.region(func, inner);
            }
            match self.addition(func, op) {
                Some(addition) => {
                    let counts = addition.count(func, at);
                    addition.add(func, at, counts);
                    any = true;
                }
                None => func.region_mut(at).ops.push(op),
            }
        }
        any
    }

    /// The additions of a loop, if it has some and all can wait for its end.
    fn of_loop(&self, func: &Func, op: Op) -> Option<Vec<Addition>> {
        let data = func.op(op);
        let OpKind::For(_) = data.kind else { return None };
        let body = data.regions[0];
        let inside = func.walk_in(body);
        let is_own = |value: &Value| {
            func.region(body).args.contains(value)
                || func.def_op(*value).is_some_and(|op| inside.contains(&op))
        };
        let additions: Vec<Addition> = func
            .region(body)
            .ops
            .iter()
            .filter_map(|&op| self.addition(func, op))
            .filter(|addition| !addition.scalars().any(|value| is_own(&value)))
            .collect();
        let roots: Vec<Value> =
            additions.iter().map(|a| root(func, a.base.0)).collect::<Option<_>>()?;
        let may_wait = |&op: &Op| {
            additions.iter().any(|addition| addition.op == op)
                || is_apart(func, &self.uses, op, &roots)
        };
        (!additions.is_empty() && inside.iter().all(may_wait)).then_some(additions)
    }

    /// What an op adds, if its places are known to be few.
    fn addition(&self, func: &Func, op: Op) -> Option<Addition> {
        let data = func.op(op);
        let OpKind::AtomicRmw(AtomicOp::Add, ordering) = data.kind else { return None };
        let relaxed = matches!(ordering.order, MemoryOrder::ByUse | MemoryOrder::Relaxed);
        let dtype = func.tile(data.operands[1]).dtype();
        if !relaxed || self.uses[data.results[0].index()] > 0 || !matches!(dtype.bits(), 32 | 64) {
            return None;
        }
        let (base, index) = split(func, data.operands[0])?;
        let range = self.ranges.of_value(index);
        let elements = func.tile(index).shape.numel();
        let is_few = range.low >= 0
            && range.high < MAX_PLACES
            && elements as i64 >= ELEMENTS_FOR_EACH * (range.high + 1);
        if !dtype.is_int() || !is_few || !elements.is_power_of_two() {
            return None;
        }
        let by = uniform(func, data.operands[1])?;
        let by = func.as_const(by).map_or(By::Scalar(by), By::Const);
        let (places, mask) = (range.high as usize + 1, data.operands.get(2).copied());
        Some(Addition { op, base, index, places, by, mask, dtype, ordering })
    }
}

impl Addition {
    /// The scalars that must be there where the counts are added.
    fn scalars(&self) -> impl Iterator<Item = Value> {
        let by = match self.by {
            By::Const(_) => None,
            By::Scalar(value) => Some(value),
        };
        [self.base.0].into_iter().chain(self.base.1.clone()).chain(by)
    }

    fn shape(&self) -> Shape {
        Shape::new(&[self.places])
    }

    /// How many elements add at each place, in the dtype that is added in.
    fn count(&self, func: &mut Func, at: Region) -> Value {
        let loc = func.op(self.op).loc;
        let mut b = Builder::at(func, at, loc);
        let mut bin = b.cast(self.index, DType::I32);
        if let Some(mask) = self.mask {
            let shape = b.func.tile(bin).shape;
            let none = b.full(Scalar::int(DType::I32, -1), shape);
            bin = b.select(mask, bin, none);
        }
        let elements = b.func.tile(bin).shape.numel();
        let line = b.reshape(bin, Shape::new(&[elements]));
        let (_, counts) = b.histogram(line, self.places);
        b.cast(counts, self.dtype)
    }

    /// One addition for each place at which something was counted.
    fn add(&self, func: &mut Func, at: Region, counts: Value) {
        let (loc, shape) = (func.op(self.op).loc, self.shape());
        let mut b = Builder::at(func, at, loc);
        let sums = match self.by {
            By::Const(one) if one.to_i64() == 1 => counts,
            by => {
                let by = match by {
                    By::Const(by) => b.full(by, shape),
                    By::Scalar(by) => b.broadcast(by, shape),
                };
                b.binary(BinaryOp::Mul, counts, by)
            }
        };
        let base = self.base.1.iter().fold(self.base.0, |base, &by| b.ptr_add(base, by));
        let (base, place) = (b.broadcast(base, shape), b.iota(self.places));
        let places = b.ptr_add(base, place);
        let none = b.full(Scalar::int(self.dtype, 0), shape);
        let some = b.compare(Predicate::Ne, counts, none);
        b.ordering = self.ordering;
        b.atomic_rmw(AtomicOp::Add, places, sums, Some(some));
    }
}

/// Carries the counts through a loop and adds them behind it.
fn aggregate_loop(func: &mut Func, at: Region, op: Op, additions: &[Addition]) {
    let data = func.op(op).clone();
    let body = data.regions[0];
    let mut operands = data.operands.clone();
    let mut sums = Vec::new();
    for addition in additions {
        let zero = Scalar::int(addition.dtype, 0);
        let none = Builder::at(func, at, data.loc).full(zero, addition.shape());
        operands.push(none);
        let ty = func.ty(none);
        sums.push(func.add_region_arg(body, ty));
    }
    for inner in std::mem::take(&mut func.region_mut(body).ops) {
        if let Some(i) = additions.iter().position(|addition| addition.op == inner) {
            let counts = additions[i].count(func, body);
            sums[i] = Builder::at(func, body, data.loc).binary(BinaryOp::Add, sums[i], counts);
            continue;
        }
        if func.op(inner).kind == OpKind::Yield {
            func.op_mut(inner).operands.extend(&sums);
        }
        func.region_mut(body).ops.push(inner);
    }
    let types: Vec<_> = operands[3..].iter().map(|&value| func.ty(value)).collect();
    let new = Builder::at(func, at, data.loc).push(data.kind, &operands, &types, &[body]);
    let made = func.op(new).results.clone();
    let counts = &made[data.results.len()..];
    func.set_results(new, data.results.iter().chain(counts).copied().collect());
    for (addition, &counts) in additions.iter().zip(counts) {
        addition.add(func, at, counts);
    }
}

/// Whether an op of a loop does nothing by which the memory behind these parameters, or an order, could be seen.
fn is_apart(func: &Func, uses: &[u32], op: Op, roots: &[Value]) -> bool {
    let data = func.op(op);
    let is_elsewhere = || root(func, data.operands[0]).is_some_and(|param| !roots.contains(&param));
    match &data.kind {
        OpKind::Load | OpKind::Store | OpKind::ViewLoad | OpKind::ViewStore => is_elsewhere(),
        OpKind::AtomicRmw(_, ordering) => {
            let is_unused = data.results.iter().all(|result| uses[result.index()] == 0);
            let relaxed = match ordering.order {
                MemoryOrder::ByUse => is_unused,
                order => order == MemoryOrder::Relaxed,
            };
            relaxed && is_elsewhere()
        }
        OpKind::For(_) | OpKind::If | OpKind::Yield => true,
        // It may wait for another program, which waits for the additions.
        OpKind::While | OpKind::Return => false,
        kind => kind.is_pure(),
    }
}

/// The parameter that a pointer or a view comes from.
fn root(func: &Func, mut value: Value) -> Option<Value> {
    loop {
        let Some(op) = func.def_op(value) else {
            let is_param = func.params.iter().any(|param| param.value == value);
            return is_param.then_some(value);
        };
        let data = func.op(op);
        match &data.kind {
            OpKind::PtrAdd | OpKind::MultipleOf(_) | OpKind::ViewPtr | OpKind::MakeView => {}
            kind if kind.is_view() => {}
            _ => return None,
        }
        value = data.operands[0];
    }
}

/// The scalar that all elements of a tile are.
fn uniform(func: &Func, value: Value) -> Option<Value> {
    let data = func.op(func.def_op(value)?);
    match data.kind {
        OpKind::Broadcast | OpKind::ExpandDims { .. } | OpKind::Reshape => {
            let from = data.operands[0];
            if func.tile(from).shape.is_scalar() { Some(from) } else { uniform(func, from) }
        }
        _ => None,
    }
}

/// The scalars of which a tile of pointers is made, and an index that differs from element to element.
fn split(func: &Func, pointers: Value) -> Option<((Value, Vec<Value>), Value)> {
    let data = func.op(func.def_op(pointers)?);
    let OpKind::PtrAdd = data.kind else { return None };
    let (mut from, mut offset) = (data.operands[0], data.operands[1]);
    let mut moves = Vec::new();
    while let Some(op) = func.def_op(from)
        && func.op(op).kind == OpKind::PtrAdd
        && !func.tile(from).shape.is_scalar()
    {
        let operands = &func.op(op).operands;
        match (uniform(func, operands[1]), uniform(func, offset)) {
            (Some(by), _) => moves.push(by),
            (None, Some(by)) => {
                moves.push(by);
                offset = operands[1];
            }
            (None, None) => return None,
        }
        from = operands[0];
    }
    while let Some(op) = func.def_op(offset)
        && func.op(op).kind == OpKind::Binary(BinaryOp::Add)
    {
        let operands = &func.op(op).operands;
        let Some(at) = operands.iter().position(|&side| uniform(func, side).is_some()) else {
            break;
        };
        moves.extend(uniform(func, operands[at]));
        offset = operands[1 - at];
    }
    Some(((uniform(func, from)?, moves), offset))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::super::{DCE, FOLD, Pass};
    use super::*;
    use crate::ir::{InterpArg, print};

    const PASS: Pass = Pass { name: "aggregate_atomics", run: |func| _ = run(func) };

    fn check(before: &str, after: Expect) {
        super::super::tests::check(
            &Pass {
                name: "aggregate_atomics",
                run: |func| {
                    run(func);
                    (FOLD.run)(func);
                    (DCE.run)(func);
                },
            },
            before,
            after,
        );
    }

    /// A kernel that counts bytes; `%s` stands before the loop.
    fn counting(more: &str) -> String {
        format!(
            "kernel k(%x: *u8 readonly, %counts: *i32 exclusive, %y: *i32 exclusive, %n: i64) {{
  %0 = const 0 : i64
  %1 = const 16 : i64
  %2 = const 3 : i32
  for %3 = %0 to %n step %1 {{
    %4 = iota : i64[16]
    %5 = broadcast %3 : i64[16]
    %6 = add %5, %4 : i64[16]
    %7 = broadcast %x : *u8[16]
    %8 = ptr_add %7, %6 : *u8[16]
    %9 = load %8 : u8[16]
    %20 = const 3 : u8
    %10 = broadcast %20 : u8[16]
    %11 = and %9, %10 : u8[16]
    %12 = cast %11 : i64[16]
    %13 = broadcast %counts : *i32[16]
    %14 = ptr_add %13, %12 : *i32[16]
    %15 = broadcast %2 : i32[16]
{more}
    yield
  }}
  return
}}"
        )
    }

    fn args() -> Vec<InterpArg> {
        let bytes = (0..64_u32).map(|i| (i * i / 3) as u8).collect();
        vec![
            InterpArg::Buffer(DType::U8, bytes),
            InterpArg::BufferMut(DType::I32, vec![1; 32]),
            InterpArg::BufferMut(DType::I32, vec![0; 64]),
            InterpArg::Scalar(Scalar::int(DType::I64, 64)),
        ]
    }

    fn is_left_alone(text: &str) {
        let before = crate::ir::parse(text).unwrap();
        let mut after = before.clone();
        assert!(!run(&mut after), "{}", print(&after));
        assert_eq!(print(&before), print(&after));
    }

    #[test]
    fn a_loop_counts_and_adds_once() {
        let text = counting("    %16 = atomic_rmw add %14, %15 : i32[16]");
        super::super::tests::check_meaning(&PASS, &text, [1, 1, 1], args());
        let after = expect![[r#"
            kernel k(%x: *u8 readonly, %counts: *i32 exclusive, %y: *i32 exclusive, %n: i64) {
              %0 = const 0 : i64
              %1 = const 16 : i64
              %2 = const 0 : i32
              %3 = broadcast %2 : i32[4]
              %4 = for %5 = %0 to %n step %1 carry (%6 = %3) {
                %7 = iota : i64[16]
                %8 = broadcast %5 : i64[16]
                %9 = add %8, %7 : i64[16]
                %10 = broadcast %x : *u8[16]
                %11 = ptr_add %10, %9 : *u8[16]
                %12 = load %11 : u8[16]
                %13 = const 3 : u8
                %14 = broadcast %13 : u8[16]
                %15 = and %12, %14 : u8[16]
                %16 = cast %15 : i32[16]
                %17, %18 = histogram %16 : i32[16], i32[4]
                %19 = add %6, %18 : i32[4]
                yield %19
              } : i32[4]
              %20 = const 3 : i32
              %21 = broadcast %20 : i32[4]
              %22 = mul %4, %21 : i32[4]
              %23 = broadcast %counts : *i32[4]
              %24 = iota : i64[4]
              %25 = ptr_add %23, %24 : *i32[4]
              %26 = const 0 : i32
              %27 = broadcast %26 : i32[4]
              %28 = cmp ne %4, %27 : bool[4]
              %29 = atomic_rmw add %25, %22, %28 : i32[4]
              return
            }
        "#]];
        check(&text, after);
    }

    #[test]
    fn a_mask_leaves_elements_out_and_another_argument_may_be_written() {
        let text = counting(
            "    %21 = const 5 : i64
    %16 = broadcast %21 : i64[16]
    %17 = cmp lt %12, %16 : bool[16]
    %18 = atomic_rmw add %14, %15, %17 : i32[16]
    %19 = broadcast %y : *i32[16]
    %22 = ptr_add %19, %4 : *i32[16]
    store %22, %15",
        );
        super::super::tests::check_meaning(&PASS, &text, [1, 1, 1], args());
        let mut func = crate::ir::parse(&text).unwrap();
        assert!(run(&mut func));
        let body = func.body;
        let last: Vec<String> = func
            .region(body)
            .ops
            .iter()
            .rev()
            .take(2)
            .map(|&op| format!("{:?}", func.op(op).kind))
            .collect();
        assert!(last[1].starts_with("AtomicRmw"), "{last:?}");
    }

    #[test]
    fn a_loop_that_looks_counts_each_tile_by_itself() {
        let text = counting(
            "    %16 = atomic_rmw add %14, %15 : i32[16]
    %17 = load %counts : i32
    store %y, %17",
        );
        super::super::tests::check_meaning(&PASS, &text, [1, 1, 1], args());
        let mut func = crate::ir::parse(&text).unwrap();
        assert!(run(&mut func));
        let body = func.body;
        let is_atomic = |&op: &Op| matches!(func.op(op).kind, OpKind::AtomicRmw(..));
        assert!(!func.region(body).ops.iter().any(is_atomic), "{}", print(&func));
    }

    #[test]
    fn what_is_used_ordered_or_anywhere_is_left_alone() {
        is_left_alone(&counting("    %16 = atomic_rmw add release %14, %15 : i32[16]"));
        is_left_alone(&counting(
            "    %16 = atomic_rmw add %14, %15 : i32[16]
    %17 = broadcast %y : *i32[16]
    store %17, %16",
        ));
        is_left_alone(&counting("    %16 = atomic_rmw max %14, %15 : i32[16]"));
        let few = counting("    %16 = atomic_rmw add %14, %15 : i32[16]");
        // More than a quarter as many places as elements, and places without an end.
        is_left_alone(&few.replace("const 3 : u8", "const 4 : u8"));
        is_left_alone(&few.replace("%12 = cast %11 : i64[16]", "%12 = mul %6, %6 : i64[16]"));
    }
}
