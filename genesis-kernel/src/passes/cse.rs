//! Common-subexpression elimination.
//!
//! Two pure ops of one kind with the same operands and result types are one. An op inside a loop or a
//! branch may use one from before it, never the other way round, so each region sees the table of the
//! region around it and forgets its own at its end. The region of a combine keeps to itself: back ends
//! run it by its own ops.

use std::collections::BTreeMap;

use super::Pass;
use crate::ir::{Func, Op, OpKind, Region, Type, Value};

/// Shares equal computations.
pub const CSE: Pass = Pass { name: "cse", run };

type Key = (OpKind, Vec<Value>, Vec<Type>);

struct Cse<'f> {
    func: &'f mut Func,
    known: BTreeMap<Key, Vec<Value>>,
    substitutes: Vec<Option<Value>>,
}

fn run(func: &mut Func) {
    let (body, n_values) = (func.body, func.n_values());
    Cse { func, known: BTreeMap::new(), substitutes: vec![None; n_values] }.region(body);
}

impl Cse<'_> {
    fn region(&mut self, region: Region) {
        let mut added = Vec::new();
        let ops = std::mem::take(&mut self.func.region_mut(region).ops);
        for op in ops {
            self.substitute_operands(op);
            if self.is_known(op, &mut added) {
                continue;
            }
            self.func.region_mut(region).ops.push(op);
            self.inner_regions(op);
        }
        for key in added {
            self.known.remove(&key);
        }
    }

    fn inner_regions(&mut self, op: Op) {
        let data = self.func.op(op);
        let is_combine = data.kind.is_collective();
        for inner in data.regions.clone() {
            if is_combine {
                let outer = std::mem::take(&mut self.known);
                self.region(inner);
                self.known = outer;
            } else {
                self.region(inner);
            }
        }
    }

    /// Whether an earlier op stands for this one; if not, it is remembered.
    fn is_known(&mut self, op: Op, added: &mut Vec<Key>) -> bool {
        let data = self.func.op(op);
        if !data.kind.is_pure() || !data.regions.is_empty() {
            return false;
        }
        let types = data.results.iter().map(|&r| self.func.ty(r)).collect();
        let key = (data.kind.clone(), data.operands.clone(), types);
        if let Some(earlier) = self.known.get(&key) {
            for (result, &value) in data.results.iter().zip(earlier) {
                self.substitutes[result.index()] = Some(value);
            }
            return true;
        }
        self.known.insert(key.clone(), data.results.clone());
        added.push(key);
        false
    }

    fn substitute_operands(&mut self, op: Op) {
        for operand in &mut self.func.op_mut(op).operands {
            if let Some(value) = self.substitutes[operand.index()] {
                *operand = value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::CSE;
    use expect_test::expect;

    #[test]
    fn shares_within_and_from_outside_only() {
        check(
            &CSE,
            "kernel k(%p: *i64, %n: i64, %c: bool) {
                %0 = add %n, %n : i64
                %1 = add %n, %n : i64
                if %c {
                  %2 = mul %0, %1 : i64
                  %3 = mul %1, %0 : i64
                  store %p, %2
                  store %p, %3
                  yield
                } else {
                  %4 = mul %0, %0 : i64
                  store %p, %4
                  yield
                }
                return
            }",
            expect![[r#"
                kernel k(%p: *i64, %n: i64, %c: bool) {
                  %0 = add %n, %n : i64
                  if %c {
                    %1 = mul %0, %0 : i64
                    store %p, %1
                    store %p, %1
                    yield
                  } else {
                    %2 = mul %0, %0 : i64
                    store %p, %2
                    yield
                  }
                  return
                }
            "#]],
        );
    }

    #[test]
    fn loads_and_types_are_told_apart() {
        check(
            &CSE,
            "kernel k(%p: *f32, %n: i64) {
                %0 = load %p : f32
                store %p, %0
                %1 = load %p : f32
                store %p, %1
                %2 = broadcast %n : i64[4]
                %3 = broadcast %n : i64[8]
                print \"{} {}\" %2, %3
                return
            }",
            expect![[r#"
                kernel k(%p: *f32, %n: i64) {
                  %0 = load %p : f32
                  store %p, %0
                  %1 = load %p : f32
                  store %p, %1
                  %2 = broadcast %n : i64[4]
                  %3 = broadcast %n : i64[8]
                  print "{} {}" %2, %3
                  return
                }
            "#]],
        );
    }
}
