//! Copies of ops: what stands for each value of the original, and the one way in which a copy is written.
//!
//! A loop body that is written twice, such as before a loop and in it, is cloned with two mappings:
//!
//! ```text
//! %2 = add %0, %1        %0 -> %7        %8 = add %7, %1
//! ```
//!
//! Passes that write a whole function anew ([`super::rebuild`]) copy by the same function, from one arena
//! to the other.

use crate::ir::{Func, Op, OpData, Region, Type, Value};

/// What stands for each value where ops are copied to (LLVM's `ValueToValueMap`).
#[derive(Clone, Default)]
pub(crate) struct Mapping(Vec<Option<Value>>);

impl Mapping {
    /// Nothing stands for anything.
    pub(crate) fn new() -> Mapping {
        Mapping::default()
    }

    /// Lets `new` stand for `old`.
    pub(crate) fn set(&mut self, old: Value, new: Value) {
        if self.0.len() <= old.index() {
            self.0.resize(old.index() + 1, None);
        }
        self.0[old.index()] = Some(new);
    }

    /// What stands for a value, if something does.
    pub(crate) fn find(&self, old: Value) -> Option<Value> {
        self.0.get(old.index()).copied().flatten()
    }

    /// What stands for a value; itself where nothing does.
    pub(crate) fn get(&self, old: Value) -> Value {
        self.find(old).unwrap_or(old)
    }
}

/// Writes a copy of an op at the end of a region: `data` is the original's, with the operands and regions
/// of the copy. The copy's results, of these types, stand for the original's.
pub(crate) fn write(
    func: &mut Func,
    mapping: &mut Mapping,
    data: OpData,
    types: &[Type],
    to: Region,
) -> Op {
    let op = func.add_op(data.kind, &data.operands, types, &data.regions, data.loc);
    func.op_mut(op).cache = data.cache;
    func.region_mut(to).ops.push(op);
    for (i, &result) in data.results.iter().enumerate() {
        mapping.set(result, func.op(op).results[i]);
    }
    op
}

/// Copies ops with their regions to the end of a region.
pub(crate) fn clone_ops(func: &mut Func, ops: &[Op], mapping: &mut Mapping, to: Region) {
    for &op in ops {
        let mut data = func.op(op).clone();
        for region in &mut data.regions {
            *region = clone_region(func, *region, mapping);
        }
        for operand in &mut data.operands {
            *operand = mapping.get(*operand);
        }
        let types: Vec<Type> = data.results.iter().map(|&v| func.ty(v)).collect();
        write(func, mapping, data, &types, to);
    }
}

/// Copies a region, arguments and all.
fn clone_region(func: &mut Func, old: Region, mapping: &mut Mapping) -> Region {
    let new = func.add_region();
    for arg in func.region(old).args.clone() {
        let copy = func.add_region_arg(new, func.ty(arg));
        mapping.set(arg, copy);
    }
    let ops = func.region(old).ops.clone();
    clone_ops(func, &ops, mapping, new);
    new
}

#[cfg(test)]
mod tests {
    use super::{Mapping, clone_ops};
    use crate::ir::{Op, parse, verify};
    use expect_test::expect;

    #[test]
    fn a_loop_is_copied_with_what_stands_for_its_operands() {
        let mut func = parse(
            "
kernel double(%x: *f32 readonly, %n: i64, %m: i64, %out: *f32 exclusive) {
  %0 = const 0 : i64
  %1 = const 1 : i64
  %2 = load once %x : f32
  for %3 = %0 to %n step %1 {
    %4 = ptr_add %out, %3 : *f32
    store %4, %2
    yield
  }
  return
}",
        )
        .unwrap();
        let body = func.body;
        let end = func.region_mut(body).ops.pop().unwrap();
        let ops: Vec<Op> = func.region(body).ops[2..].to_vec();
        let mut mapping = Mapping::new();
        mapping.set(func.params[1].value, func.params[2].value);
        clone_ops(&mut func, &ops, &mut mapping, body);
        func.region_mut(body).ops.push(end);
        verify(&func).unwrap();
        expect![[r#"
            kernel double(%x: *f32 readonly, %n: i64, %m: i64, %out: *f32 exclusive) {
              %0 = const 0 : i64
              %1 = const 1 : i64
              %2 = load once %x : f32
              for %3 = %0 to %n step %1 {
                %4 = ptr_add %out, %3 : *f32
                store %4, %2
                yield
              }
              %5 = load once %x : f32
              for %6 = %0 to %m step %1 {
                %7 = ptr_add %out, %6 : *f32
                store %7, %5
                yield
              }
              return
            }
        "#]]
        .assert_eq(&func.to_string());
    }
}
