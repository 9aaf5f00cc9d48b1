//! Inline assembly: on a GPU the text, elsewhere the value that stands for it.
//!
//! ```text
//! %t = tanh %x                                         GPU    %1 = asm "tanh.approx.f32 $0, $1;" "=f,f" %x
//! %1 = asm "tanh.approx.f32 $0, $1;" "=f,f" %x, %t     CPU    %1 = tanh %x
//! ```

use super::Pass;
use super::rewrite::{Action, rewrite};
use crate::ir::{Func, OpKind};

/// Leaves the values.
pub const ASM_VALUES: Pass = Pass { name: "asm_values", run: values };

/// Leaves the text, so that what only the values need is dead.
pub const ASM_TEXT: Pass = Pass { name: "asm_text", run: text };

fn values(func: &mut Func) {
    rewrite(func, &mut |cx, op| {
        let data = cx.func.op(op);
        match (&data.kind, data.operands.last()) {
            (OpKind::Asm { .. }, Some(&value)) => Action::value(value),
            _ => Action::Keep,
        }
    });
}

fn text(func: &mut Func) {
    for op in func.walk() {
        if let OpKind::Asm { constraints, .. } = &func.op(op).kind {
            let inputs = constraints.matches(',').count();
            func.op_mut(op).operands.truncate(inputs);
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::{DCE, run};
    use super::{ASM_TEXT, ASM_VALUES};
    use crate::ir::parse;

    const TANH: &str = r#"
kernel tanh(%p: *f32 exclusive) {
  %0 = load %p : f32
  %1 = tanh %0 : f32
  %2 = asm "tanh.approx.f32 $0, $1;" "=f,f" %0, %1 : f32
  store %p, %2
  return
}"#;

    #[test]
    fn a_gpu_runs_the_text() {
        let mut func = parse(TANH).unwrap();
        run(&mut func, &[ASM_TEXT, DCE]);
        expect![[r#"
            kernel tanh(%p: *f32 exclusive) {
              %0 = load %p : f32
              %1 = asm "tanh.approx.f32 $0, $1;" "=f,f" %0 : f32
              store %p, %1
              return
            }
        "#]]
        .assert_eq(&func.to_string());
    }

    #[test]
    fn all_else_runs_what_stands_for_it() {
        let mut func = parse(TANH).unwrap();
        run(&mut func, &[ASM_VALUES, DCE]);
        expect![[r#"
            kernel tanh(%p: *f32 exclusive) {
              %0 = load %p : f32
              %1 = tanh %0 : f32
              store %p, %1
              return
            }
        "#]]
        .assert_eq(&func.to_string());
    }
}
