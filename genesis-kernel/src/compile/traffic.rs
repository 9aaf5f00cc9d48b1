//! Shared-memory traffic: layout conversions and operand staging, with the bank conflicts that the layouts predict.

use crate::ir::OpKind;
use crate::ir::print::names;
use crate::layout::lir::{DotPlan, LayoutIr, element_bits};
use crate::layout::{Conversion, SharedPlan};

/// One move.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Move {
    /// The value that moves, or the operand of the dot.
    pub(crate) what: String,
    /// The way.
    pub(crate) way: Way,
}

/// How a tile gets from one layout to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// So many registers of each thread, in the same thread.
    Registers(usize),
    /// So many shuffles of each thread.
    Shuffles(usize),
    /// Through so many bytes of shared memory; passes of one store and one load over what they would
    /// need without bank conflicts.
    Shared { bytes: u32, store_ways: u32, load_ways: u32 },
    /// So many bytes from global to shared memory, past the registers; passes of one copy likewise.
    Copied { bytes: u32, ways: u32 },
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let conflicts = |ways: u32| match ways {
            0 | 1 => "without conflicts".to_owned(),
            ways => format!("with {ways}-way conflicts"),
        };
        match self {
            Way::Registers(n) => write!(f, "{n} registers, renamed"),
            Way::Shuffles(n) => write!(f, "{n} shuffles"),
            Way::Copied { bytes, ways } => {
                write!(f, "{bytes} bytes to shared memory, {}", conflicts(*ways))
            }
            Way::Shared { bytes, store_ways, load_ways } => write!(
                f,
                "{bytes} bytes of shared memory, stored {}, loaded {}",
                conflicts(*store_ways),
                conflicts(*load_ways)
            ),
        }
    }
}

/// Every move of a function, in its order.
pub(super) fn moves(lir: &LayoutIr) -> Vec<Move> {
    let names = names(&lir.func);
    let name = |value| names.get(&value).map_or("?", String::as_str);
    let mut moves = Vec::new();
    for op in lir.func.walk() {
        let data = lir.func.op(op);
        if data.kind == OpKind::ConvertLayout
            && let Some(conversion) = lir.conversion(op)
        {
            let result = data.results[0];
            let bits = element_bits(lir.func.ty(result));
            let what = format!("%{} to %{}", name(data.operands[0]), name(result));
            moves.push(Move { what, way: way_of(&conversion, bits) });
        }
        for load in lir.multistage.get(&op).map_or(&[][..], |ring| &ring.loads) {
            let result = lir.func.op(load.op).results.first().map_or("?", |&v| name(v));
            let (bytes, ways) = (load.bytes, load.store.ways);
            moves.push(Move {
                what: format!("copy of %{result}"),
                way: Way::Copied { bytes, ways },
            });
        }
        if let Some(plan) = lir.dots.get(&op) {
            for (operand, staging) in stagings(plan) {
                let result = data.results.first().map_or("?", |&v| name(v));
                let what = format!("operand {operand} of %{result}");
                moves.push(Move { what, way: through(staging) });
            }
        }
    }
    moves
}

/// The worst number of passes of one access of shared memory over what it would need; 1 without
/// conflicts.
pub(super) fn worst_ways(lir: &LayoutIr) -> u32 {
    let ways = moves(lir).into_iter().map(|one| match one.way {
        Way::Shared { store_ways, load_ways, .. } => store_ways.max(load_ways),
        Way::Copied { ways, .. } => ways,
        Way::Registers(_) | Way::Shuffles(_) => 1,
    });
    ways.max().unwrap_or(1).max(1)
}

fn way_of(conversion: &Conversion, bits: u32) -> Way {
    match conversion {
        Conversion::Registers(map) => Way::Registers(map.len()),
        Conversion::Shuffle(plan) => Way::Shuffles(plan.shuffles(bits)),
        Conversion::Shared(plan) => through(plan),
    }
}

fn through(plan: &SharedPlan) -> Way {
    Way::Shared { bytes: plan.bytes(), store_ways: plan.store.ways, load_ways: plan.load.ways }
}

/// The operands of a dot that go through shared memory on their way to registers.
fn stagings(plan: &DotPlan) -> impl Iterator<Item = (&'static str, &SharedPlan)> {
    let operands = [("a", plan.a.registers()), ("b", plan.b.registers())];
    operands.into_iter().filter_map(|(name, operand)| Some((name, operand?.staging.as_ref()?)))
}
