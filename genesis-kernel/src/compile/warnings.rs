//! What is said of a kernel that compiles and may still not be what its author meant: options without an effect,
//! and registers that spill.
//!
//! A loop of layout IR is the user's where it has the user's line: passes copy loops and keep it. A loop runs ahead
//! where one of those has a multistage buffer, or a load by the copy engine, in the code or in the producer's.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::analysis::is_persistent;
use crate::diag::Warning;
use crate::front::Hints;
use crate::ir::{Func, Loc, LoopOptions, Op, OpKind};
use crate::knobs;
use crate::layout::LayoutIr;
use crate::passes::unroll;

/// Bytes of local memory that a thread has for other things than spilled registers, at most.
const FEW_BYTES: u32 = 16;

/// Options of a kernel that have no effect on the code that was made of it.
pub(super) fn of_options(func: &Func, hints: &Hints, lir: &LayoutIr) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut seen = BTreeSet::new();
    for op in func.walk() {
        let (OpKind::For(options), loc) = (&func.op(op).kind, func.op(op).loc) else { continue };
        if seen.insert(place(loc)) {
            of_loop(func, op, *options, lir, &mut warnings);
        }
    }
    of_launch(func, hints, lir, &mut warnings);
    warnings
}

fn place(loc: Option<Loc>) -> Option<(&'static str, u32, u32)> {
    loc.map(|loc| (loc.file, loc.line, loc.column))
}

fn of_loop(func: &Func, op: Op, options: LoopOptions, lir: &LayoutIr, warnings: &mut Vec<Warning>) {
    let loc = func.op(op).loc;
    let LoopOptions { stages, unroll: copies } = options;
    if stages > 1 && !runs_ahead(lir, loc) {
        let message = format!("`.stages({stages})` has no effect: {}", why_not_ahead(func, op));
        let help = "leave it out; other loads are overlapped by more warps or programs";
        warnings.push(Warning::new(message, loc).help(help));
    }
    if let Some(why) = unroll::refusal(func, op) {
        let message = format!("`.unroll({copies})` has no effect: {why}");
        let help = "leave it out; `static_range` unrolls a loop whose length is a constant";
        warnings.push(Warning::new(message, loc).help(help));
    }
}

/// Why the loads of a loop do not run ahead.
fn why_not_ahead(func: &Func, op: Op) -> &'static str {
    let inside: Vec<Op> =
        func.op(op).regions.iter().flat_map(|&region| func.walk_in(region)).collect();
    let has = |is: fn(&OpKind) -> bool| inside.iter().any(|&op| is(&func.op(op).kind));
    if !has(|kind| matches!(kind, OpKind::Dot { .. })) {
        "only loads that `dot` multiplies run ahead, and this loop has no `dot`"
    } else if !has(|kind| matches!(kind, OpKind::Load | OpKind::ViewLoad)) {
        "this loop loads nothing"
    } else {
        "what its `dot` multiplies is not copied asynchronously: operands are computed in the loop, \
         their alignment is not known, or their addresses follow from what the loop carries or writes"
    }
}

/// Whether a loop of the user's has loads in flight.
fn runs_ahead(lir: &LayoutIr, loc: Option<Loc>) -> bool {
    let at = place(loc);
    let is_ahead = |func: &Func, op: Op, is_main: bool| {
        let data = func.op(op);
        let is_copy = |&op: &Op| matches!(func.op(op).kind, OpKind::TmaLoad(_));
        matches!(data.kind, OpKind::For(_))
            && place(data.loc) == at
            && (is_main && lir.multistage.contains_key(&op)
                || data.regions.iter().any(|&region| func.walk_in(region).iter().any(is_copy)))
    };
    let in_producer = |func: &Func| func.walk().into_iter().any(|op| is_ahead(func, op, false));
    lir.func.walk().into_iter().any(|op| is_ahead(&lir.func, op, true))
        || lir.producer.as_ref().is_some_and(in_producer)
}

fn of_launch(func: &Func, hints: &Hints, lir: &LayoutIr, warnings: &mut Vec<Warning>) {
    let mut warn = |message: String, help: &str| {
        warnings.push(Warning::new(message, None).help(help));
    };
    let name = &func.name;
    let has_ahead = !lir.multistage.is_empty() || !lir.func.tma.channels.is_empty();
    if let Some(stages) = hints.num_stages.filter(|&n| n > 1 && !has_ahead) {
        warn(
            format!(
                "{name}: `num_stages: {stages}` has no effect: no loop of it has loads that run ahead"
            ),
            "leave it out; only loads that `dot` multiplies run ahead",
        );
    }
    if hints.persistent == Some(true) && !is_persistent(func) {
        warn(
            format!(
                "{name}: `persistent` has no effect: the kernel does not walk over its share of work"
            ),
            "write `for tile in persistent(total)`, and ask for `program_id(0)` nowhere else",
        );
    }
    for bit in (0..u32::BITS).filter(|bit| hints.constant >> bit & 1 == 1) {
        match func.params.get(bit as usize) {
            Some(param) if param.attrs.constant => {}
            Some(param) => warn(
                format!("{name}: `constant` has no effect on `{}`", param.name),
                "it is about memory that the kernel only reads: a `Ptr` or a `View`",
            ),
            None => warn(
                format!("{name}: `constant` names parameter {bit}, and there is none"),
                "bit 0 is the first parameter",
            ),
        }
    }
}

/// Local memory of a thread, where that is more than a few bytes.
pub(crate) fn of_spills(name: &str, bytes: u32) -> Option<Warning> {
    (bytes > FEW_BYTES).then(|| {
        let message =
            format!("{name}: registers spill: a thread keeps {bytes} bytes in local memory");
        let help = "give a thread less to hold: more `num_warps`, a smaller block, a `cluster`, or fewer tiles that \
                    live across a loop";
        Warning::new(message, None).help(help)
    })
}

/// Says something once, on standard error: where `GENESIS_WARNINGS=1` asks for it, and without it where the source
/// is at hand for whoever reads it.
pub(crate) fn tell(warning: &Warning, source_at_hand: bool) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if !knobs::get().warnings.unwrap_or(source_at_hand) {
        return;
    }
    let text = warning.to_string();
    if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(text.clone()) {
        knobs::warn_text(&text);
    }
}

#[cfg(test)]
mod tests {
    use crate::front::{Hints, LaunchOptions};
    use crate::kernel::KernelDef;
    use crate::prelude::*;
    use crate::target::Target;

    fn warnings(kernel: &'static KernelDef, consts: &[i64], hints: &Hints) -> Vec<String> {
        let special = kernel.specialize(&[], consts, hints).expect("the kernel is right");
        let compiled = special.compile(&Target::sm_90a()).expect("it compiles");
        compiled.warnings().iter().map(ToString::to_string).collect()
    }

    #[kernel]
    fn sums(x: Ptr<f32>, y: PtrMut<f32>, n: i64) {
        let mut all = 0.0_f32;
        for i in range(0, n).stages(3) {
            all += load(x + i);
        }
        store(y, all);
    }

    #[test]
    fn stages_of_a_loop_without_products_say_why() {
        let found = warnings(&sums::KERNEL, &[], &Hints::default());
        assert_eq!(found.len(), 1, "{found:?}");
        let text = "warning: `.stages(3)` has no effect: only loads that `dot` multiplies run ahead, and this loop \
                    has no `dot`\n  --> genesis-kernel/src/compile/warnings.rs:";
        assert!(found[0].starts_with(text), "{}", found[0]);
        assert!(found[0].contains("for i in range(0, n).stages(3) {"), "{}", found[0]);
    }

    #[kernel]
    fn product<const M: usize, const K: usize>(
        a: View<bf16, 2>,
        b: View<bf16, 2>,
        c: ViewMut<f32, 2>,
    ) {
        let mut acc = zeros::<f32, M, M>();
        for p in range(0, a.dim(1), K).stages(4).unroll(2) {
            acc = dot(a.load::<M, K>([0, p]), b.load::<K, M>([p, 0]), acc);
        }
        c.store([0, 0], acc);
    }

    #[test]
    fn stages_that_work_are_no_warning_and_unroll_is() {
        let hints = Hints::contiguous(product::KERNEL.ast);
        let found = warnings(&product::KERNEL, &[64, 64], &hints);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("warning: `.unroll(2)` has no effect"), "{}", found[0]);
    }

    #[kernel]
    fn computed<const M: usize>(a: View<bf16, 2>, c: ViewMut<f32, 2>) {
        let mut acc = zeros::<f32, M, M>();
        for p in range(0, a.dim(1), M).stages(2) {
            let x = exp(a.load::<M, M>([0, p]));
            acc = dot(x, x.trans(), acc);
        }
        c.store([0, 0], acc);
    }

    #[test]
    fn stages_of_computed_operands_say_why() {
        let found = warnings(&computed::KERNEL, &[64], &Hints::default());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("operands are computed in the loop"), "{}", found[0]);
    }

    #[test]
    fn options_of_a_launch_say_why() {
        let options = LaunchOptions {
            num_stages: Some(3),
            persistent: Some(true),
            constant: 0b1010,
            ..LaunchOptions::default()
        };
        let hints = Hints::default().with_options(options);
        let found = warnings(&sums::KERNEL, &[], &hints);
        let starts = [
            "warning: `.stages(3)` has no effect",
            "warning: sums: `num_stages: 3` has no effect",
            "warning: sums: `persistent` has no effect",
            "warning: sums: `constant` has no effect on `y`",
            "warning: sums: `constant` names parameter 3, and there is none",
        ];
        assert_eq!(found.len(), starts.len(), "{found:?}");
        for (found, start) in found.iter().zip(starts) {
            assert!(found.starts_with(start), "{found}");
        }
    }

    #[test]
    fn spills_say_how_many_bytes() {
        assert_eq!(super::of_spills("f", 0), None);
        let said = super::of_spills("f", 412).expect("412 bytes are many").to_string();
        assert!(
            said.starts_with("warning: f: registers spill: a thread keeps 412 bytes"),
            "{said}"
        );
    }
}
