//! Dead-code elimination.
//!
//! Needed are stores, atomics, assertions, prints and `return`s, the control flow around them, and
//! what these use. A loop or branch that is needed for one of its results keeps only the results that
//! somebody uses, and the values it carries for them.

use super::Pass;
use crate::ir::{Func, OpKind, keep};

/// Removes what is unused.
pub const DCE: Pass = Pass { name: "dce", run };

fn run(func: &mut Func) {
    // A loop without a bound may never end, and that can be seen.
    keep(func, |kind| kind.has_effect() || matches!(kind, OpKind::Return | OpKind::While));
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::DCE;
    use expect_test::expect;

    #[test]
    fn keeps_effects_and_what_they_use() {
        check(
            &DCE,
            "kernel k(%p: *f32, %c: bool) {
                %0 = const 1.0 : f32
                %1 = exp %0 : f32
                %2 = load %p : f32
                if %c {
                  %3 = add %0, %0 : f32
                  yield
                } else { yield }
                if %c { return } else { yield }
                store %p, %0
                return
            }",
            expect![[r#"
                kernel k(%p: *f32, %c: bool) {
                  %0 = const 1.0 : f32
                  if %c {
                    return
                  } else {
                    yield
                  }
                  store %p, %0
                  return
                }
            "#]],
        );
    }

    #[test]
    fn loops_carry_only_what_is_used() {
        check(
            &DCE,
            "kernel k(%p: *f32, %n: i64, %x: f32) {
                %0, %1, %2 = for %3 = %n to %n step %n carry (%4 = %x, %5 = %x, %6 = %x) {
                  %7 = add %4, %5 : f32
                  %8 = add %6, %6 : f32
                  yield %7, %5, %8
                } : f32, f32, f32
                store %p, %0
                return
            }",
            expect![[r#"
                kernel k(%p: *f32, %n: i64, %x: f32) {
                  %0, %1 = for %2 = %n to %n step %n carry (%3 = %x, %4 = %x) {
                    %5 = add %3, %4 : f32
                    yield %5, %4
                  } : f32, f32
                  store %p, %0
                  return
                }
            "#]],
        );
    }

    #[test]
    fn branches_yield_only_what_is_used() {
        check(
            &DCE,
            "kernel k(%p: *f32, %c: bool, %x: f32) {
                %0, %1 = if %c {
                  %2 = sin %x : f32
                  yield %x, %2
                } else { yield %x, %x } : f32, f32
                store %p, %0
                return
            }",
            expect![[r#"
                kernel k(%p: *f32, %c: bool, %x: f32) {
                  %0 = if %c {
                    yield %x
                  } else {
                    yield %x
                  } : f32
                  store %p, %0
                  return
                }
            "#]],
        );
    }
}
