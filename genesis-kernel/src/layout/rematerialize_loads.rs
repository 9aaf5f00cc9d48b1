//! Rematerializes loads in another layout, where that is cheaper than converting what they gave.
//!
//! A conversion through shared memory costs a store, two barriers and a load of each register. Read-only memory can be
//! loaded again instead: the addresses are computed in the other layout, and the lines are cached. So a vector that is
//! used along rows and along columns of a tile crosses no barrier:
//!
//! ```text
//! %x = load %p                       %x = load %p      slice along the rows
//! %y = convert_layout %x      ->     %y = load %p      slice along the columns
//! ```
//!
//! A few cheap operations on the loaded value are rematerialized too.

use super::convert::{Conversion, plan};
use super::infer::{Infer, Shared};
use super::lir::element_bits;
use crate::analysis::is_constant;
use crate::ir::{Func, Op, OpKind, Value};

/// What a conversion through shared memory costs beside its stores and loads, in operations of a
/// thread: two barriers.
const MEETING_COST: u32 = 64;
/// What a load of one register costs, in the same.
const LOAD_COST: u32 = 4;
/// The most operations of a chain.
const MOST_OPS: usize = 8;

/// The values that are computed in each layout in which they are wanted, by their number.
pub(super) fn rematerialized_loads(infer: &Infer<'_>, wanted: &[Vec<Shared>]) -> Vec<bool> {
    let func = infer.func;
    let mut all = vec![false; func.n_values()];
    for op in func.walk() {
        let &[result] = func.op(op).results.as_slice() else { continue };
        let Some(own) = infer.layout(result) else { continue };
        let others: Vec<&Shared> =
            wanted[result.index()].iter().filter(|layout| *layout != own).collect();
        let mut chain = Vec::new();
        if others.is_empty() || !is_rematerializable(infer, result, &mut chain) {
            continue;
        }
        let loads: Vec<Op> = chain.iter().filter_map(|&value| load(func, value)).collect();
        let bits = element_bits(func.ty(result));
        let pays = |layout: &&&Shared| {
            let moves = matches!(plan(own, layout, bits), Conversion::Shared(_));
            let operations = (chain.len() - loads.len()) as u32 + LOAD_COST * loads.len() as u32;
            moves
                && loads.iter().all(|&load| infer.suits_memory(load, layout))
                && operations * layout.num_regs() <= saved(own, layout)
        };
        if others.iter().filter(pays).count() == others.len() {
            chain.iter().for_each(|value| all[value.index()] = true);
        }
    }
    all
}

/// What a conversion costs.
fn saved(own: &Shared, other: &Shared) -> u32 {
    own.num_regs() + other.num_regs() + MEETING_COST
}

/// The load that gives a value.
fn load(func: &Func, value: Value) -> Option<Op> {
    func.def_op(value).filter(|&op| func.op(op).kind == OpKind::Load)
}

/// Whether a value comes from memory that stays as it is, by a few cheap operations on tiles of its
/// shape; adds these to the chain.
fn is_rematerializable(infer: &Infer<'_>, value: Value, chain: &mut Vec<Value>) -> bool {
    let func = infer.func;
    let is_scalar = func.ty(value).as_tile().is_some_and(|tile| tile.shape.is_scalar());
    if is_scalar || infer.free[value.index()] || chain.contains(&value) {
        return true;
    }
    let Some(op) = func.def_op(value) else { return false };
    let data = func.op(op);
    chain.push(value);
    let is_cheap = match &data.kind {
        OpKind::Load => is_constant(func, data.operands[0]),
        kind => kind.is_elementwise() && !kind.is_expensive(),
    };
    is_cheap
        && data.results.len() == 1
        && chain.len() <= MOST_OPS
        && data.operands.iter().all(|&operand| is_rematerializable(infer, operand, chain))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::layout::assign::tests::{PAIRS, moves_of};

    #[test]
    fn a_vector_along_rows_and_columns_is_loaded_in_both_layouts() {
        expect![[r#"
              %6 = load %4 : f32[64]
              %7 = load %5 : f32[64]
              store %27, %17
        "#]]
        .assert_eq(&moves_of(PAIRS, 4));
    }
}
