//! Prologue prefetch of a warp-specialized kernel: TMA copies of constant tiles before `griddepcontrol.wait`.
//!
//! As [`super::prologue_prefetch`], for tiles that the copy engine brings: where some of them are constant, a truncated
//! producer fills the first stages with these, then the thread waits for the primary grid, and the producer itself brings
//! what is left of those stages. A prefetched stage is neither waited for nor armed again.
//!
//! ```text
//! producer's thread                                              consumers
//!   for %k in the first stages { arm full; copy weights }          griddepcontrol.wait
//!   griddepcontrol.wait                                            launch_dependents
//!   launch_dependents                                              ..
//!   for %t { for %k { copy weights, but of the first stages; copy activations } }
//! ```

use crate::ir::{BinaryOp, Builder, DType, Func, Op, OpKind, Region};
use crate::layout::LayoutIr;
use crate::target::GpuTarget;

/// The truncated producer of a kernel; none where no tile is constant, or its producer is not a nest of counted
/// loops around copies.
pub(crate) fn producer_prologue(lir: &LayoutIr, gpu: &GpuTarget) -> Option<Func> {
    let producer = lir.producer.as_ref().filter(|_| gpu.features.pdl && lir.num_blocks == 1)?;
    let flows = |kind: &OpKind| matches!(kind, OpKind::Load | OpKind::While | OpKind::If);
    let ops = producer.walk();
    if ops.iter().any(|&op| flows(&producer.op(op).kind)) {
        return None;
    }
    let loads = |region| ops_of(producer, region, |kind| matches!(kind, OpKind::TmaLoad(_)));
    let (mut region, mut nest) = (producer.body, Vec::new());
    // One loop in another, and the copies in the innermost.
    while loads(region).is_empty() {
        let [only] = ops_of(producer, region, |kind| matches!(kind, OpKind::For(_)))[..] else {
            return None;
        };
        nest.push((region, only));
        region = producer.op(only).regions[0];
    }
    let is_flat = ops_of(producer, region, |kind| matches!(kind, OpKind::For(_))).is_empty();
    let inside = loads(region);
    if nest.is_empty() || !is_flat || !inside.iter().any(|&op| is_constant(producer, op)) {
        return None;
    }
    let stages = producer.tma.channels.iter().map(|channel| channel.stages).min()?;
    let mut func = producer.clone();
    for (depth, &(region, op)) in nest.iter().enumerate() {
        let is_last = depth + 1 == nest.len();
        bound(&mut func, region, op, if is_last { stages } else { 1 });
    }
    Some(func)
}

fn ops_of(func: &Func, region: Region, is: impl Fn(&OpKind) -> bool) -> Vec<Op> {
    func.region(region).ops.iter().copied().filter(|&op| is(&func.op(op).kind)).collect()
}

/// Whether a copy is of memory that no kernel in flight writes.
fn is_constant(func: &Func, op: Op) -> bool {
    let OpKind::TmaLoad(number) = func.op(op).kind else { return false };
    func.tma.loads.get(usize::from(number)).is_some_and(|load| load.constant)
}

/// Bounds a loop of a region to so many iterations.
fn bound(func: &mut Func, region: Region, op: Op, iterations: u32) {
    let loc = func.op(op).loc;
    let ops = std::mem::take(&mut func.region_mut(region).ops);
    let at = ops.iter().position(|&other| other == op).unwrap_or(0);
    func.region_mut(region).ops = ops[..at].to_vec();
    let [lower, upper, step] = [0, 1, 2].map(|index| func.op(op).operands[index]);
    let mut before = Builder::at(func, region, loc);
    let count = before.int(DType::I64, i64::from(iterations));
    let length = before.binary(BinaryOp::Mul, step, count);
    let end = before.binary(BinaryOp::Add, lower, length);
    let end = before.binary(BinaryOp::Min, upper, end);
    func.op_mut(op).operands[1] = end;
    func.region_mut(region).ops.extend(&ops[at..]);
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::codegen::nvptx::compile;
    use crate::layout::warp_specialization::tests::{MATMUL, compiled};

    fn lir(constant: &str) -> LayoutIr {
        let text = MATMUL.replacen("readonly", &format!("readonly {constant}"), 1);
        compiled(&text, Some(8), crate::passes::NVPTX)
    }

    #[test]
    fn loops_go_through_the_first_slots() {
        let lir = lir("constant");
        let func = producer_prologue(&lir, &GpuTarget::SM_90A).unwrap();
        let text = crate::ir::print(&func);
        // One tile, and as many steps along K as there are slots.
        let stages = func.tma.channels[0].stages;
        assert!(text.contains(&format!(" = const {stages} : i64")), "{text}");
        assert_eq!(text.matches(" = min ").count(), 2, "{text}");
        assert!(producer_prologue(&lir, &GpuTarget::SM_80).is_none());
        let loops = text.lines().filter(|line| !line.trim_start().starts_with("tma "));
        let loops: String = loops.map(|line| format!("{line}\n")).collect();
        expect![[r#"
            kernel matmul(%a: *bf16 readonly multiple_of 16 constant, %a_dim0: i64 natural, %a_dim1: i64 multiple_of 8 natural, %a_stride0: i64 multiple_of 8, %a_stride1: i64, %b: *bf16 readonly multiple_of 16, %b_dim0: i64 natural, %b_dim1: i64 multiple_of 8 natural, %b_stride0: i64 multiple_of 8, %b_stride1: i64, %c: *bf16 exclusive multiple_of 16, %c_dim0: i64 natural, %c_dim1: i64 multiple_of 8 natural, %c_stride0: i64 multiple_of 8, %c_stride1: i64) {
              %0 = program_id 0 : i64
              %1 = num_programs 0 : i64
              %2 = const 0 : i64
              %3 = const 64 : i64
              %4 = const 1 : i64
              %5 = mul %1, %4 : i64
              %6 = add %0, %5 : i64
              %7 = min %c_dim0, %6 : i64
              for %8 = %0 to %7 step %1 {
                %9 = mul %8, %3 : i64
                %10 = const 4 : i64
                %11 = mul %3, %10 : i64
                %12 = add %2, %11 : i64
                %13 = min %a_dim1, %12 : i64
                for %14 = %2 to %13 step %3 {
                  %15 = tma_load 0 %9, %14 : bf16[128x64]
                  %16 = tma_load 1 %14, %9 : bf16[64x256]
                  yield
                }
                yield
              }
              return
            }
        "#]]
        .assert_eq(&loops);
    }

    #[test]
    fn the_producer_waits_behind_the_constant_tiles() {
        let copies =
            |text: &str| text.matches("cp.async.bulk.tensor.2d.shared::cluster.global").count();
        let ptx = compile(&lir("constant"), &GpuTarget::SM_90A).unwrap().ptx;
        let usual = compile(&lir(""), &GpuTarget::SM_90A).unwrap().ptx;
        // Tiles of one operand are copied in two places.
        assert!(copies(&ptx) > copies(&usual), "{ptx}");
        let of_producer = |ptx: &str| {
            let start = ptx.find("setmaxnreg.dec").unwrap();
            let first = start + ptx[start..].find("cp.async.bulk.tensor").unwrap();
            ptx[start..first].contains("griddepcontrol.wait")
        };
        assert!(!of_producer(&ptx) && ptx.matches("griddepcontrol.wait").count() > 1);
        assert!(usual.matches("griddepcontrol.wait").count() == 1);
    }
}
