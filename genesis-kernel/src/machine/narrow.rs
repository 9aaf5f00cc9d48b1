//! 64-bit arithmetic on indices only where their ranges need it.
//!
//! An index of the language has 64 bits, and a GPU's arithmetic 32: a product takes four instructions,
//! a comparison two, a division a hundred. Where the ranges of the operands prove that 32 bits hold
//! them, the op is done in 32 and its result made wide again, which is exact:
//!
//! ```text
//! select 4 narrow u32          %m = mul %row, %stride      both in 0 .. 2^32       mul.wide.u32, of 32 bits to 64
//! select 5 narrow u32          %q = div %pid, %n           both in 0 .. 2^32       div.u32
//! select 6 narrow s32          %c = cmp lt %i, %n          both in -2^31 .. 2^31   setp.lt.s32
//! select 7 counts s32 carries 0    for %i = 0 to %n carry (%next = ..)
//! ```
//!
//! Program ids and `iota` are small by themselves; extents and strides are where a launch promises
//! it, which it does where all of its views have them in 0 .. 2^30 and 0 .. 2^31. So loops count in 32
//! bits where those hold their bounds, and what they carry of indices goes round in 32 bits.

use super::Code;
use super::selection::{Counter, Short};
use crate::analysis::{Range, Ranges};
use crate::ir::{BinaryOp, DType, Func, Op, OpKind, Type, Value};
use crate::layout::LayoutIr;

/// Selects the ops that are done in 32 bits, and how loops count.
pub(super) fn run(code: &mut Code, lir: &LayoutIr) {
    let func = &lir.func;
    let ranges = Ranges::of(func);
    let narrow = &mut code.selection.narrow;
    for op in func.walk() {
        if let Some(short) = narrowed(func, &ranges, op) {
            narrow.ops.insert(op, short);
        }
        if let OpKind::For(_) = func.op(op).kind {
            narrow.loops.insert(op, counter(func, &ranges, op));
            let args = &func.region(func.op(op).regions[0]).args;
            for (number, &arg) in args.iter().skip(1).enumerate() {
                let is_index = func.ty(arg) == Type::scalar(DType::I64);
                if is_index && is_signed(&ranges.of_value(arg)) {
                    narrow.carry(op, number, func);
                }
            }
        }
    }
}

/// How an op of two 64-bit indices is done in 32 bits, if those hold its operands.
fn narrowed(func: &Func, ranges: &Ranges, op: Op) -> Option<Short> {
    let data = func.op(op);
    let &[a, b] = data.operands.as_slice() else { return None };
    let is_wide = |value: Value| {
        let tile = func.ty(value).as_tile();
        tile.is_some_and(|tile| !tile.is_ptr() && tile.dtype() == DType::I64)
    };
    if !is_wide(a) || !is_wide(b) {
        return None;
    }
    let of = [a, b].map(|value| ranges.of_value(value));
    let (signed, unsigned) = (of.iter().all(is_signed), of.iter().all(is_unsigned));
    match data.kind {
        OpKind::Binary(BinaryOp::Mul) | OpKind::Compare(_) if signed => Some(Short::Signed),
        OpKind::Binary(BinaryOp::Mul | BinaryOp::Div | BinaryOp::Rem) | OpKind::Compare(_)
            if unsigned =>
        {
            Some(Short::Unsigned)
        }
        _ => None,
    }
}

/// How a loop counts: in 32 bits where they hold its bounds, from zero up, and its step.
fn counter(func: &Func, ranges: &Ranges, op: Op) -> Counter {
    let operands = &func.op(op).operands;
    let [lower, upper, step] = [0, 1, 2].map(|i| ranges.of_value(operands[i]));
    let is_short = lower.low >= 0 && [lower, upper, step].iter().all(is_signed);
    let most = if is_short { i64::from(i32::MAX) } else { i64::MAX };
    let may_wrap = upper.high.checked_add(step.high).is_none_or(|after| after > most);
    Counter { is_short, may_wrap }
}

fn is_signed(range: &Range) -> bool {
    range.low >= i64::from(i32::MIN) && range.high <= i64::from(i32::MAX)
}

fn is_unsigned(range: &Range) -> bool {
    range.low >= 0 && range.high <= i64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::machine::RunBy;
    use crate::machine::golden::{assigned, changes};

    /// A program's rows, of which it sums one column; `PROMISE` is what a launch says of extents.
    const ROWS: &str = "
kernel rows(%x: *f32 readonly, %n: i64 PROMISE, %stride: i64 PROMISE, %y: *f32 exclusive) {
  %0 = program_id 0 : i64
  %1 = num_programs 0 : i64
  %2 = const 0.0 : f32
  %3, %4 = for %5 = %0 to %n step %1 carry (%6 = %2, %7 = %0) {
    %8 = mul %5, %stride : i64
    %9 = rem %8, %n : i64
    %10 = ptr_add %x, %9 : *f32
    %11 = cmp lt %9, %n : bool
    %12 = load %10, %11, %2 : f32
    %13 = add %6, %12 : f32
    yield %13, %5
  } : f32, i64
  %14 = ptr_add %y, %4 : *f32
  store %14, %3
  return
}
";

    #[test]
    fn promised_extents_need_32_bits() {
        let lir = assigned(&ROWS.replace("PROMISE", "narrow natural"), 4);
        expect![[r#"
              ..
              return 13                               // return
            + select 3 counts s32 may.wrap            // for
            + select 4 narrow s32                     // mul
              select 8 cache readonly                 // load
        "#]]
        .assert_eq(&changes(&lir, RunBy::Block, "narrow"));
    }

    #[test]
    fn others_need_64() {
        let lir = assigned(&ROWS.replace("PROMISE", ""), 4);
        expect![[r#"
              ..
              return 13                               // return
            + select 3 counts s64 may.wrap            // for
              select 8 cache readonly                 // load
        "#]]
        .assert_eq(&changes(&lir, RunBy::Block, "narrow"));
    }

    #[test]
    fn a_carried_next_index_goes_round_in_32_bits() {
        let lir = assigned(
            "
kernel count(%n: i64 narrow natural, %y: *i64 exclusive) {
  %0 = const 0 : i64
  %1 = const 8 : i64
  %2 = for %3 = %0 to %n step %1 carry (%4 = %0) {
    %5 = add %3, %1 : i64
    yield %5
  } : i64
  store %y, %2
  return
}
",
            1,
        );
        expect![[r#"
              ..
              return 6                                // return
            + select 2 counts s32 carries 0           // for
        "#]]
        .assert_eq(&changes(&lir, RunBy::Block, "narrow"));
    }
}
