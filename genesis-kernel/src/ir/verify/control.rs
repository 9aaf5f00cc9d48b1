//! Rules of the ops that own regions: how arguments, yields and results agree.

use super::super::func::{Func, OpData, Region, Value};
use super::super::ops::{Combine, OpKind};
use super::super::types::{DType, Type};
use super::check::{Check, ensure};

/// Checks an op's regions against its operands and results; other ops own none.
pub(super) fn check(func: &Func, op: &OpData) -> Check {
    let n = match &op.kind {
        OpKind::For(_) => 1,
        OpKind::While | OpKind::If => 2,
        OpKind::Reduce { combine, .. } | OpKind::Scan { combine, .. } => {
            usize::from(*combine == Combine::Region)
        }
        _ => 0,
    };
    ensure!(op.regions.len() == n, "has {} regions instead of {n}", op.regions.len());
    match &op.kind {
        OpKind::For(_) => for_loop(func, op),
        OpKind::While => while_loop(func, op),
        OpKind::If => branch(func, op),
        OpKind::Reduce { combine: Combine::Region, .. }
        | OpKind::Scan { combine: Combine::Region, .. } => combine(func, op),
        _ => Ok(()),
    }
}

fn types(func: &Func, values: &[Value]) -> Vec<Type> {
    values.iter().map(|&v| func.ty(v)).collect()
}

fn list(types: &[Type]) -> String {
    let texts: Vec<String> = types.iter().map(Type::to_string).collect();
    format!("({})", texts.join(", "))
}

fn same(what: &str, found: &[Type], expected: &[Type]) -> Check {
    ensure!(found == expected, "{what} {} instead of {}", list(found), list(expected));
    Ok(())
}

/// What the region yields; a region that returns instead yields whatever is wanted.
fn yields(func: &Func, region: Region, expected: &[Type]) -> Check {
    let Some(&last) = func.region(region).ops.last() else {
        return Err("a region has no terminator".to_owned());
    };
    let last = func.op(last);
    match last.kind {
        OpKind::Yield => same("yields", &types(func, &last.operands), expected),
        _ => Ok(()),
    }
}

fn takes(func: &Func, region: Region, expected: &[Type]) -> Check {
    same("a region takes", &types(func, &func.region(region).args), expected)
}

fn for_loop(func: &Func, op: &OpData) -> Check {
    let index = Type::scalar(DType::I64);
    ensure!(op.operands.len() >= 3, "needs a lower bound, an upper bound and a step");
    let (bounds, inits) = op.operands.split_at(3);
    same("bounds are", &types(func, bounds), &[index; 3])?;
    let carried = types(func, inits);
    same("results are", &types(func, &op.results), &carried)?;
    let mut args = vec![index];
    args.extend(&carried);
    takes(func, op.regions[0], &args)?;
    yields(func, op.regions[0], &carried)
}

fn while_loop(func: &Func, op: &OpData) -> Check {
    let carried = types(func, &op.operands);
    same("results are", &types(func, &op.results), &carried)?;
    takes(func, op.regions[0], &carried)?;
    takes(func, op.regions[1], &carried)?;
    yields(func, op.regions[0], &[Type::scalar(DType::Bool)])?;
    yields(func, op.regions[1], &carried)
}

fn branch(func: &Func, op: &OpData) -> Check {
    same("takes", &types(func, &op.operands), &[Type::scalar(DType::Bool)])?;
    let results = types(func, &op.results);
    for &region in &op.regions {
        takes(func, region, &[])?;
        yields(func, region, &results)?;
    }
    Ok(())
}

/// The n left scalars, then the n right ones; n scalars come out.
fn combine(func: &Func, op: &OpData) -> Check {
    let scalars: Vec<Type> =
        op.operands.iter().map(|&v| Type::scalar(func.tile(v).dtype())).collect();
    let both = [scalars.clone(), scalars.clone()].concat();
    takes(func, op.regions[0], &both)?;
    yields(func, op.regions[0], &scalars)
}
