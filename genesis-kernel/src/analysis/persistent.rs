//! Whether a kernel does the same work whatever the number of its programs.
//!
//! It does where `program_id(0)` and `num_programs(0)` are the first index and the step of loops over
//! pieces of work, as `for tile in persistent(total)` writes them, and nothing else. A launch may then
//! cut the grid to what the device runs at once.

use crate::ir::{Func, Op, OpKind, Value};

/// Whether the grid may be cut along axis 0.
pub fn is_persistent(func: &Func) -> bool {
    let walk = func.walk();
    let asks = |value: Value, kind: &OpKind| asks(func, value, kind);
    let is_share = |op: Op| is_share_of_grid(func, op);
    let uses_grid = |op: Op| {
        let is_grid =
            |&v: &Value| asks(v, &OpKind::ProgramId(0)) || asks(v, &OpKind::NumPrograms(0));
        let operands = &func.op(op).operands;
        let others = if is_share(op) { &operands[3..] } else { &operands[..] };
        others.iter().any(is_grid) || (is_share(op) && is_grid(&operands[1]))
    };
    walk.iter().any(|&op| is_share(op)) && !walk.iter().any(|&op| uses_grid(op))
}

/// Whether an op is a loop from the program's number in steps of the number of programs: each iteration is a point of the
/// grid.
pub fn is_share_of_grid(func: &Func, op: Op) -> bool {
    let data = func.op(op);
    matches!(data.kind, OpKind::For(_))
        && asks(func, data.operands[0], &OpKind::ProgramId(0))
        && asks(func, data.operands[2], &OpKind::NumPrograms(0))
}

fn asks(func: &Func, value: Value, kind: &OpKind) -> bool {
    func.def_op(value).is_some_and(|op| func.op(op).kind == *kind)
}

#[cfg(test)]
mod tests {
    use super::is_persistent;
    use crate::ir::parse;

    const SHARE: &str = "kernel k(%p: *i64, %n: i64) {
  %0 = program_id 0 : i64
  %1 = num_programs 0 : i64
  for %2 = %0 to %n step %1 {
    %3 = ptr_add %p, %2 : *i64
    store %3, %2
    yield
  }
  return
}";

    fn holds(text: &str) -> bool {
        is_persistent(&parse(text).unwrap())
    }

    #[test]
    fn programs_that_share_work_may_be_fewer() {
        assert!(holds(SHARE));
        assert!(!holds(&SHARE.replace("step %1", "step %n")));
        assert!(!holds(&SHARE.replace("store %3, %2", "store %3, %0")));
        assert!(!holds(&SHARE.replace("to %n", "to %1")));
        assert!(!holds("kernel k() {\n  return\n}"));
    }
}
