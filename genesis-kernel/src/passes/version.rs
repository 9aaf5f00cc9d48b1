//! Function versioning: a small kernel in two versions, with and without masks, of which each program runs one.
//!
//! All programs but those at the edge of a tensor see masks that are true in every element. One scalar
//! condition says so ahead of all accesses:
//!
//! ```text
//! %m = cmp lt (%i + iota 1024), %n           if %i + 1023 < %n {
//! %v = load %p, %m                     ->      %v = load %p
//! store %q, (neg %v), %m                       store %q, (neg %v)
//!                                            } else { as before }
//! ```
//!
//! Without masks loads and stores are plain vector accesses with constant offsets, also where the
//! extent is no multiple of a vector. Only kernels of straight code are versioned: for rows and matrix
//! products, where the extent is a multiple of 16 most of the time, one predicate for each vector is
//! cheaper than all of their code twice. The CPU back end splits the loop over a row instead, so this
//! pass runs for GPUs only. Where no access reads neighbours there is nothing to win.

use super::Pass;
use super::clone::{Mapping, clone_ops};
use super::fold::FOLD;
use crate::analysis::masks::{self, Part};
use crate::analysis::{AxisAnalysis, Ranges};
use crate::ir::{BinaryOp, Builder, DType, Func, Op, OpKind, Region, Scalar, Value};

/// Versions one function.
pub const VERSION: Pass = Pass { name: "version", run };

/// Longer kernels stay as they are: before functions are expanded this is a few hundred instructions.
const MAX_OPS: usize = 160;

fn run(func: &mut Func) {
    let ops = func.region(func.body).ops.clone();
    let is_straight = ops.iter().all(|&op| is_versioned(&func.op(op).kind));
    if !is_straight || ops.len() > MAX_OPS {
        return;
    }
    let (outside, inside) = halves(func, ops);
    let parts = mask_parts(func, &inside);
    if parts.is_empty() || !has_runs(func) {
        return;
    }
    split(func, [outside, inside], &parts);
    // Masks that are true go, and what was chosen by them.
    (FOLD.run)(func);
}

/// Whether an access reads or writes neighbours. Where strides are not known to be 1 each element is an
/// access of its own, with a mask of its own or without: twice the code would win nothing.
pub(super) fn has_runs(func: &Func) -> bool {
    let axes = AxisAnalysis::of(func);
    func.walk().into_iter().any(|op| {
        let data = func.op(op);
        data.kind.mask_operand().is_some() && {
            let info = axes.of_value(func, data.operands[0]);
            info.runs.iter().any(|run| run.step == 1 && run.length > 1)
        }
    })
}

fn is_versioned(kind: &OpKind) -> bool {
    let crosses_threads = kind.is_exchange() || matches!(kind, OpKind::Dot { .. });
    let is_access = kind.mask_operand().is_some();
    is_access || *kind == OpKind::Return || (kind.is_pure() && !crosses_threads)
}

/// The parts of every mask of an access or a choice that scalars before these ops decide, each once.
fn mask_parts(func: &Func, ops: &[Op]) -> Vec<Part> {
    let ranges = Ranges::of(func);
    let mut is_inside = vec![false; func.n_values()];
    for result in ops.iter().flat_map(|&op| &func.op(op).results) {
        is_inside[result.index()] = true;
    }
    let mut all: Vec<Part> = Vec::new();
    for &op in ops {
        let data = func.op(op);
        let mask = match data.kind {
            OpKind::Select => data.operands.first(),
            _ => data.kind.mask_operand().and_then(|number| data.operands.get(number)),
        };
        let Some(&mask) = mask.filter(|&&m| !func.tile(m).shape.is_scalar()) else { continue };
        for part in masks::parts(func, &ranges, mask).0 {
            let is_early = part.inputs().iter().all(|v| !is_inside[v.index()]);
            let is_new = all.iter().all(|other| other.value != part.value);
            if part.is_safe() && is_early && is_new {
                all.push(part);
            }
        }
    }
    all
}

/// The ops that stay before the branch, scalars that need nothing of the others, and the others.
fn halves(func: &Func, ops: Vec<Op>) -> (Vec<Op>, Vec<Op>) {
    let mut is_inside = vec![false; func.n_values()];
    let is_scalar = |v: Value| func.ty(v).as_tile().is_some_and(|tile| tile.shape.is_scalar());
    ops.into_iter().partition(|&op| {
        let data = func.op(op);
        let stays = data.kind.is_pure()
            && data.results.iter().all(|&v| is_scalar(v))
            && data.operands.iter().all(|v| !is_inside[v.index()]);
        if !stays {
            data.results.iter().for_each(|v| is_inside[v.index()] = true);
        }
        stays
    })
}

/// Makes two versions of what is inside.
fn split(func: &mut Func, [outside, mut inside]: [Vec<Op>; 2], parts: &[Part]) {
    let returns = inside.last().is_some_and(|&op| func.op(op).kind == OpKind::Return);
    if returns {
        inside.pop();
    }
    let body = func.body;
    func.region_mut(body).ops = outside;
    let condition = condition(&mut Builder::new(func), parts);
    let (whole, edge) = (func.add_region(), func.add_region());
    let masks: Vec<Value> = parts.iter().map(|part| part.value).collect();
    copy_without(func, &inside, &masks, Mapping::new(), whole);
    func.region_mut(edge).ops = inside;
    for region in [whole, edge] {
        Builder::at(func, region, None).yield_values(&[]);
    }
    let mut builder = Builder::new(func);
    builder.if_else(condition, whole, edge, &[]);
    if returns {
        builder.ret();
    }
}

/// That every part is true.
fn condition(builder: &mut Builder<'_>, parts: &[Part]) -> Value {
    let mut all: Option<Value> = None;
    for (i, part) in parts.iter().enumerate() {
        if parts[..i].iter().any(|earlier| earlier.is_as(part)) {
            continue;
        }
        let one = part.write(builder);
        all = Some(all.map_or(one, |all| builder.binary(BinaryOp::And, all, one)));
    }
    all.expect("there is a part")
}

/// Copies ops to a region where these masks are true; gives what stands for each value there.
pub(super) fn copy_without(
    func: &mut Func,
    ops: &[Op],
    masks: &[Value],
    mut map: Mapping,
    region: Region,
) -> Mapping {
    for &mask in masks {
        let shape = func.tile(mask).shape;
        let truth = Builder::at(func, region, None).full(Scalar::int(DType::Bool, 1), shape);
        map.set(mask, truth);
    }
    for &op in ops {
        if func.op(op).results.iter().all(|&v| map.find(v).is_none()) {
            clone_ops(func, &[op], &mut map, region);
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::super::{CSE, DCE, run};
    use super::VERSION;
    use crate::ir::{DType, InterpArg, Scalar, parse};
    use crate::passes::tests::check_meaning;
    use expect_test::expect;

    const NEGATE: &str = "
kernel negate(%x: *f32 readonly, %y: *f32 exclusive, %n: i64) {
  %0 = program_id 0 : i64
  %1 = const 8 : i64
  %2 = mul %0, %1 : i64
  %3 = iota : i64[8]
  %4 = broadcast %2 : i64[8]
  %5 = add %4, %3 : i64[8]
  %6 = broadcast %n : i64[8]
  %7 = cmp lt %5, %6 : bool[8]
  %8 = broadcast %x : *f32[8]
  %9 = ptr_add %8, %5 : *f32[8]
  %10 = load %9, %7 : f32[8]
  %11 = neg %10 : f32[8]
  %12 = broadcast %y : *f32[8]
  %13 = ptr_add %12, %5 : *f32[8]
  store %13, %11, %7
  return
}";

    #[test]
    fn whole_tiles_have_no_masks() {
        let mut func = parse(NEGATE).unwrap();
        run(&mut func, &[VERSION, CSE, DCE]);
        expect![[r#"
            kernel negate(%x: *f32 readonly, %y: *f32 exclusive, %n: i64) {
              %0 = program_id 0 : i64
              %1 = const 8 : i64
              %2 = mul %0, %1 : i64
              %3 = const 7 : i64
              %4 = add %2, %3 : i64
              %5 = cmp lt %4, %n : bool
              if %5 {
                %6 = iota : i64[8]
                %7 = broadcast %2 : i64[8]
                %8 = add %7, %6 : i64[8]
                %9 = broadcast %x : *f32[8]
                %10 = ptr_add %9, %8 : *f32[8]
                %11 = load %10 : f32[8]
                %12 = neg %11 : f32[8]
                %13 = broadcast %y : *f32[8]
                %14 = ptr_add %13, %8 : *f32[8]
                store %14, %12
                yield
              } else {
                %15 = iota : i64[8]
                %16 = broadcast %2 : i64[8]
                %17 = add %16, %15 : i64[8]
                %18 = broadcast %n : i64[8]
                %19 = cmp lt %17, %18 : bool[8]
                %20 = broadcast %x : *f32[8]
                %21 = ptr_add %20, %17 : *f32[8]
                %22 = load %21, %19 : f32[8]
                %23 = neg %22 : f32[8]
                %24 = broadcast %y : *f32[8]
                %25 = ptr_add %24, %17 : *f32[8]
                store %25, %23, %19
                yield
              }
              return
            }
        "#]]
        .assert_eq(&func.to_string());
    }

    #[test]
    fn every_length_gives_what_it_gave() {
        let floats = |n: usize| (0..n).flat_map(|v| (v as f32 + 1.0).to_le_bytes()).collect();
        for n in 0..33usize {
            let args = vec![
                InterpArg::Buffer(DType::F32, floats(n)),
                InterpArg::BufferMut(DType::F32, vec![0; 4 * n]),
                InterpArg::Scalar(Scalar::int(DType::I64, n as i64)),
            ];
            check_meaning(&VERSION, NEGATE, [5, 1, 1], args);
        }
    }

    #[test]
    fn what_reads_no_neighbours_stays_in_one_version() {
        let text = NEGATE
            .replace("%n: i64", "%n: i64, %s: i64")
            .replace(
                "%8 = broadcast",
                "%40 = broadcast %s : i64[8]\n%41 = mul %5, %40 : i64[8]\n%8 = broadcast",
            )
            .replace("ptr_add %8, %5", "ptr_add %8, %41")
            .replace("ptr_add %12, %5", "ptr_add %12, %41");
        let mut func = parse(&text).unwrap();
        run(&mut func, &[VERSION]);
        assert!(!func.to_string().contains("if "), "{func}");
    }

    #[test]
    fn a_reduction_stays_in_one_version() {
        let text =
            NEGATE.replace("store %13, %11, %7", "%14 = reduce add 0 %11 : f32\n store %y, %14");
        let mut func = parse(&text).unwrap();
        run(&mut func, &[VERSION]);
        assert!(!func.to_string().contains("if "), "{func}");
    }
}
