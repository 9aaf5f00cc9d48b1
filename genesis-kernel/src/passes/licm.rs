//! Loop-invariant code motion.
//!
//! Every pure op is total, so one that would not have run may run: a division by zero is just 0.
//! Nothing leaves a branch or a combine region, and loads stay, since the loop may store.

use super::Pass;
use crate::ir::{Def, Func, Op, Region};

/// Moves invariant ops out of loops.
pub const LICM: Pass = Pass { name: "licm", run };

fn run(func: &mut Func) {
    let mut state = Licm { depth: vec![0; func.n_values()] };
    let body = func.body;
    let left = state.region(func, body, 0, false);
    debug_assert!(left.is_empty(), "nothing leaves the body");
}

struct Licm {
    /// How many regions are around each value's definition, after moving.
    depth: Vec<u32>,
}

impl Licm {
    /// Walks a region whose ops are at `depth`; gives back the ops that may stand before its owner.
    fn region(&mut self, func: &mut Func, region: Region, depth: u32, is_loop: bool) -> Vec<Op> {
        for &arg in &func.region(region).args {
            self.depth[arg.index()] = depth;
        }
        let mut hoisted = Vec::new();
        let mut kept = Vec::new();
        for op in std::mem::take(&mut func.region_mut(region).ops) {
            for moved in self.inner_regions(func, op, depth) {
                self.place(func, moved, depth, is_loop, &mut hoisted, &mut kept);
            }
            self.place(func, op, depth, is_loop, &mut hoisted, &mut kept);
        }
        func.region_mut(region).ops = kept;
        hoisted
    }

    fn inner_regions(&mut self, func: &mut Func, op: Op, depth: u32) -> Vec<Op> {
        let data = func.op(op);
        let is_loop = data.kind.is_loop();
        let mut moved = Vec::new();
        for inner in data.regions.clone() {
            moved.extend(self.region(func, inner, depth + 1, is_loop));
        }
        moved
    }

    fn place(
        &mut self,
        func: &Func,
        op: Op,
        depth: u32,
        is_loop: bool,
        hoisted: &mut Vec<Op>,
        kept: &mut Vec<Op>,
    ) {
        let data = func.op(op);
        let is_invariant = is_loop
            && data.kind.is_pure()
            && data.regions.is_empty()
            && data.operands.iter().all(|&v| self.depth[v.index()] < depth);
        let depth = if is_invariant { depth - 1 } else { depth };
        for &result in &data.results {
            debug_assert!(matches!(func.value(result).def, Def::Result(..)));
            self.depth[result.index()] = depth;
        }
        if is_invariant { hoisted.push(op) } else { kept.push(op) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::LICM;
    use expect_test::expect;

    #[test]
    fn leaves_two_loops_at_once() {
        check(
            &LICM,
            "kernel k(%p: *i64, %n: i64) {
                for %0 = %n to %n step %n {
                  for %1 = %n to %n step %n {
                    %2 = mul %n, %n : i64
                    %3 = add %2, %0 : i64
                    %4 = add %3, %1 : i64
                    %5 = load %p : i64
                    store %p, %4
                    yield
                  }
                  yield
                }
                return
            }",
            expect![[r#"
                kernel k(%p: *i64, %n: i64) {
                  %0 = mul %n, %n : i64
                  for %1 = %n to %n step %n {
                    %2 = add %0, %1 : i64
                    for %3 = %n to %n step %n {
                      %4 = add %2, %3 : i64
                      %5 = load %p : i64
                      store %p, %4
                      yield
                    }
                    yield
                  }
                  return
                }
            "#]],
        );
    }

    #[test]
    fn stays_in_branches() {
        check(
            &LICM,
            "kernel k(%p: *i64, %n: i64, %c: bool) {
                %0 = while carry (%1 = %n) {
                  %2 = cmp lt %1, %n : bool
                  yield %2
                } do (%3) {
                  %4 = if %c {
                    %5 = mul %n, %n : i64
                    yield %5
                  } else { yield %3 } : i64
                  yield %4
                } : i64
                store %p, %0
                return
            }",
            expect![[r#"
                kernel k(%p: *i64, %n: i64, %c: bool) {
                  %0 = while carry (%1 = %n) {
                    %2 = cmp lt %1, %n : bool
                    yield %2
                  } do (%3) {
                    %4 = if %c {
                      %5 = mul %n, %n : i64
                      yield %5
                    } else {
                      yield %3
                    } : i64
                    yield %4
                  } : i64
                  store %p, %0
                  return
                }
            "#]],
        );
    }
}
