//! Inline assembly: on a GPU the text, elsewhere the value that stands for it.
//!
//! ```text
//! %t = tanh %x                                         GPU    %1 = asm "tanh.approx.f32 $0, $1;" "=f,f" %x
//! %1 = asm "tanh.approx.f32 $0, $1;" "=f,f" %x, %t     CPU    %1 = tanh %x
//! ```

use super::Pass;
use super::rewrite::{Action, rewrite};
use crate::ir::{DType, Func, OpKind, asm};

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
        let data = func.op(op);
        if let OpKind::Asm { constraints, pack, .. } = &data.kind
            && let Ok(letters) = asm::letters(constraints)
        {
            let dtypes: Vec<DType> = data.operands.iter().map(|&v| func.tile(v).dtype()).collect();
            let inputs = asm::inputs(&letters, *pack, &dtypes);
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
    fn of_several_results_each_has_the_text() {
        const PARTS: &str = r#"
kernel parts(%p: *u16 exclusive) {
  %0 = load %p : u16
  %1 = const 255 : u16
  %2 = and %0, %1 : u16
  %3 = const 8 : u16
  %4 = shr %0, %3 : u16
  %5 = asm "and.b32 $0, $2, 0xff00ff; shr.b32 $1, $2, 8;" "=r,=r,r" pack 2 %0, %2 : u16
  %6 = asm "and.b32 $0, $2, 0xff00ff; shr.b32 $1, $2, 8;" "=r,=r,r" pack 2 from 1 %0, %4 : u16
  %7 = add %5, %6 : u16
  store %p, %7
  return
}"#;
        let mut func = parse(PARTS).unwrap();
        assert_eq!(parse(&func.to_string()).unwrap().to_string(), func.to_string());
        run(&mut func, &[ASM_TEXT, DCE]);
        expect![[r#"
            kernel parts(%p: *u16 exclusive) {
              %0 = load %p : u16
              %1 = asm "and.b32 $0, $2, 0xff00ff; shr.b32 $1, $2, 8;" "=r,=r,r" pack 2 %0 : u16
              %2 = asm "and.b32 $0, $2, 0xff00ff; shr.b32 $1, $2, 8;" "=r,=r,r" pack 2 from 1 %0 : u16
              %3 = add %1, %2 : u16
              store %p, %3
              return
            }
        "#]].assert_eq(&func.to_string());
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
