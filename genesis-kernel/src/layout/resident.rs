//! Operands of products that a loop does not change, resident in registers.
//!
//! An operand in another layout than its fragment goes through shared memory: a store, a barrier, and loads in each
//! step along K. Where it is defined outside of the loop that multiplies it, one conversion before the loop does for
//! all iterations, as far as registers reach:
//!
//! ```text
//! %q = load ..                               %q = load ..
//!                                            %f = convert_layout %q       the fragment of operand A
//! for .. {                             ->    for .. {
//!   %s = dot %q, %k, 0    A staged             %s = dot %f, %k, 0    A in registers
//! }                                          }
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use super::linear::LinearLayout;
use super::lir::{DotOperand, LayoutIr, element_bits};
use crate::ir::{Def, Op, OpKind, Region, Value};
use crate::tuning::registers::MAX_RESIDENT_WORDS;

/// Converts operands before the loops that do not change them.
pub(super) fn hoist_operands(lir: &mut LayoutIr) {
    let mut hoist = Hoist { regions: regions(lir), taken: BTreeMap::new(), done: Vec::new() };
    let dots: Vec<Op> =
        lir.func.walk().into_iter().filter(|op| lir.dots.contains_key(op)).collect();
    for dot in dots {
        for side in [0, 1] {
            hoist.operand(lir, dot, side);
        }
    }
}

/// The region that each op is in, and the op that owns each region.
struct Regions {
    of: BTreeMap<Op, Region>,
    owner: BTreeMap<Region, Op>,
}

fn regions(lir: &LayoutIr) -> Regions {
    let func = &lir.func;
    let mut found = Regions { of: BTreeMap::new(), owner: BTreeMap::new() };
    let mut add = |region: Region| {
        found.of.extend(func.region(region).ops.iter().map(|&op| (op, region)));
    };
    add(func.body);
    for op in func.walk() {
        func.op(op).regions.iter().for_each(|&region| add(region));
    }
    let owned = func.walk().into_iter().flat_map(|op| {
        func.op(op).regions.iter().map(move |&region| (region, op)).collect::<Vec<_>>()
    });
    found.owner = owned.collect();
    found
}

struct Hoist {
    regions: Regions,
    /// Registers that operands hold through each loop.
    taken: BTreeMap<Op, u32>,
    /// What was converted: the loop, the value, its fragment, and the converted value.
    done: Vec<(Op, Value, Arc<LinearLayout>, Value)>,
}

impl Hoist {
    fn operand(&mut self, lir: &mut LayoutIr, dot: Op, side: usize) {
        let plan = &lir.dots[&dot];
        if !plan.unit.is_mma_sync() {
            return;
        }
        let Some(operand) = [&plan.a, &plan.b][side].registers() else { return };
        let value = lir.func.op(dot).operands[side];
        if operand.staging.is_none() || operand.ring.is_some() {
            return;
        }
        let Some(outer) = self.outermost_loop(lir, dot, value) else { return };
        let fragment = operand.fragment.clone();
        let Some(new) = self.converted(lir, outer, value, &fragment) else { return };
        lir.func.op_mut(dot).operands[side] = new;
        let Some(plan) = lir.dots.get_mut(&dot) else { return };
        let operand = if side == 0 { &mut plan.a } else { &mut plan.b };
        if let DotOperand::Registers(operand) = operand {
            operand.staging = None;
        }
    }

    /// The outermost loop around an op that a value is defined outside of.
    fn outermost_loop(&self, lir: &LayoutIr, dot: Op, value: Value) -> Option<Op> {
        let defined = match lir.func.value(value).def {
            Def::Argument(region, _) => region,
            Def::Result(op, _) => self.regions.of[&op],
        };
        let (mut region, mut outer) = (self.regions.of[&dot], None);
        while region != defined {
            let owner = *self.regions.owner.get(&region)?;
            if lir.func.op(owner).kind.is_loop() {
                outer = Some(owner);
            }
            region = self.regions.of[&owner];
        }
        outer
    }

    /// A value in a layout, converted before a loop; none where the loop has no registers left for it.
    fn converted(
        &mut self,
        lir: &mut LayoutIr,
        outer: Op,
        value: Value,
        fragment: &Arc<LinearLayout>,
    ) -> Option<Value> {
        let is_known = |(op, from, layout, _): &&(Op, Value, Arc<LinearLayout>, Value)| {
            (*op, *from) == (outer, value) && layout == fragment
        };
        if let Some(&(.., new)) = self.done.iter().find(is_known) {
            return Some(new);
        }
        let ty = lir.func.ty(value);
        let words = (fragment.num_regs() * element_bits(ty)).div_ceil(32);
        let taken = self.taken.entry(outer).or_default();
        if *taken + words > MAX_RESIDENT_WORDS {
            return None;
        }
        *taken += words;
        let loc = lir.func.op(outer).loc;
        let convert = lir.func.add_op(OpKind::ConvertLayout, &[value], &[ty], &[], loc);
        let region = self.regions.of[&outer];
        self.regions.of.insert(convert, region);
        let ops = &mut lir.func.region_mut(region).ops;
        let at = ops.iter().position(|&op| op == outer)?;
        ops.insert(at, convert);
        let new = lir.func.op(convert).results[0];
        lir.layouts.resize(lir.func.n_values(), None);
        lir.layouts[new.index()] = Some(fragment.clone());
        self.done.push((outer, value, fragment.clone(), new));
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::{LayoutOptions, assign, verify};
    use super::*;
    use crate::ir::parse;
    use crate::layout::assign::tests::moves_of;

    /// Products of one tile with each of several, in a loop.
    const LOOP: &str = "
kernel k(%a: *bf16 readonly, %b: *bf16 readonly, %y: *f32 exclusive, %n: i64) {
  %0 = iota : i64[1024]
  %1 = reshape %0 : i64[16x64]
  %2 = broadcast %a : *bf16[16x64]
  %3 = ptr_add %2, %1 : *bf16[16x64]
  %4 = load %3 : bf16[16x64]
  %5 = iota : i64[4096]
  %6 = reshape %5 : i64[64x64]
  %7 = broadcast %b : *bf16[64x64]
  %8 = ptr_add %7, %6 : *bf16[64x64]
  %9 = const 0 : i64
  %10 = const 1 : i64
  %11 = const 0.0 : f32
  %12 = broadcast %11 : f32[16x64]
  %13 = for %14 = %9 to %n step %10 carry (%15 = %12) {
    %16 = load %8 : bf16[64x64]
    %17 = dot ieee LEFT, %16, %15 : f32[16x64]
    yield %17
  } : f32[16x64]
  %18 = broadcast %y : *f32[16x64]
  %19 = ptr_add %18, %1 : *f32[16x64]
  store %19, %13
  return
}
";

    fn layout_ir(text: &str) -> LayoutIr {
        let options = LayoutOptions { num_warps: Some(4), ..Default::default() };
        assign(&parse(text).unwrap(), &options).unwrap()
    }

    fn staged(lir: &LayoutIr) -> bool {
        lir.dots.values().all(|dot| dot.a.registers().is_some_and(|a| a.staging.is_some()))
    }

    #[test]
    fn an_operand_from_outside_of_the_loop_is_converted_once() {
        let lir = layout_ir(&LOOP.replace("LEFT", "%4"));
        assert!(!staged(&lir));
        let body = &lir.func.region(lir.func.body).ops;
        let at = |is: fn(&OpKind) -> bool| body.iter().position(|&op| is(&lir.func.op(op).kind));
        let convert = at(|kind| *kind == OpKind::ConvertLayout);
        assert!(convert.is_some() && convert < at(|kind| matches!(kind, OpKind::For(_))));
        assert_eq!(verify(&lir), Ok(()));
    }

    #[test]
    fn a_resident_operand_is_converted_before_its_loop() {
        expect![[r#"
              %6 = load %5 : bf16[16x64]
              %15 = convert_layout %6 : bf16[16x64]
              %16 = for %17 = %11 to %n step %12 carry (%18 = %14) {
                %19 = load %10 : bf16[64x64]
                %20 = dot ieee %15, %19, %18 : f32[16x64]
                yield %20
              store %22, %16
        "#]]
        .assert_eq(&moves_of(&LOOP.replace("LEFT", "%4"), 4));
    }

    #[test]
    fn an_operand_of_the_iteration_or_of_too_many_registers_stays_staged() {
        let own = LOOP.replace("LEFT", "%20").replace(
            "    %17 =",
            "    %20 = load %3 : bf16[16x64]\n    %21 = add %20, %20 : bf16[16x64]\n    %17 =",
        );
        assert!(staged(&layout_ir(&own.replace("dot ieee %20", "dot ieee %21"))));
        // 256 rows in four warps are 64 words a thread.
        let large =
            LOOP.replace("LEFT", "%4").replace("16x64", "256x64").replace("[1024]", "[16384]");
        assert!(staged(&layout_ir(&large)));
    }
}
