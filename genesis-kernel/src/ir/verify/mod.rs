//! What holds of every function of tile IR, checked.
//!
//! A back end relies on all of this and checks none of it again; a pass keeps it, and is checked after
//! it ran in tests and debug builds. A failure is a bug in Genesis, never the user's: front ends
//! refuse a wrong kernel in the user's words before there is IR.
//!
//! Structure:
//! * Parameters are the arguments of the body, in order, with different names that are identifiers:
//!   scalars, scalar pointers or views of rank 1 to 5. No other value is a view.
//! * Each op is in one region, each region in one op. Operands are defined before, in the same region
//!   or one around it.
//! * A region ends with its only terminator: the body with `return`; the bodies of `for`, `while` and
//!   `if` with `yield` or `return`; a condition of `while` and a combine region with `yield`.
//! * A combine region holds constants and elementwise ops on scalars only, so that a back end may run
//!   it on many lanes at once.
//!
//! Types:
//! * Extents are at least 1, ranks at most 5, a tile has at most 2^25 elements (2^20 of a user's, each
//!   of five axes padded to a power of two).
//! * Operands and results agree as `ops.rs` says at each kind. Nothing broadcasts by itself: masks,
//!   offsets, conditions and operands have the shape of the result.
//! * Arithmetic has one dtype. `neg`, `abs`, `add`, `sub`, `mul`, `div`, `rem`, `min`, `max` and kin
//!   take integers and floats; `not`, `and`, `or`, `xor` integers and bools; shifts and `mul_hi`
//!   integers; `fma`, rounding and transcendental ops floats. Pointers move, cast to nothing and are
//!   only selected, reshaped and carried.
//! * `dot` takes two operands of one float dtype with an f32 accumulator, or f64 with f64; tf32 needs
//!   f32 operands, and fast sums those of 8 bits, with which nothing else computes. Atomics work on 32 and 64 bit numbers, `add` also on f16 and bf16; bitwise ones on
//!   integers.
//! * Constants have bits that a value of their dtype has.

mod check;
mod control;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use self::check::{Check, ensure};
use super::func::{Def, Func, Op, Region, Value};
use super::ops::OpKind;
use super::print::op_text;
use super::types::{Shape, Type};

/// The most elements of a tile.
pub const MAX_ELEMENTS: usize = 1 << 25;

/// Whether the function keeps the invariants at the top of this file.
///
/// # Errors
/// The first thing that is wrong, with the op as text.
pub fn verify(func: &Func) -> Result<(), String> {
    Owners::default().region(func, func.body)?;
    let mut verifier = Verifier { func, in_scope: vec![false; func.n_values()] };
    verifier.params()?;
    verifier.region(func.body, Place::Body)
}

/// What kind of region is looked at, which decides how it may end and what it may hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Body,
    /// The body of a loop or branch.
    Block,
    Condition,
    Combine,
}

struct Verifier<'f> {
    func: &'f Func,
    in_scope: Vec<bool>,
}

/// What was met on the way down. It goes first: what is not a tree can't even be printed.
#[derive(Default)]
struct Owners {
    ops: BTreeSet<Op>,
    regions: BTreeSet<Region>,
}

impl Owners {
    fn region(&mut self, func: &Func, region: Region) -> Check {
        ensure!(self.regions.insert(region), "a region has two owners");
        for &op in &func.region(region).ops {
            ensure!(self.ops.insert(op), "an op is in two places");
            func.op(op).regions.iter().try_for_each(|&inner| self.region(func, inner))?;
        }
        Ok(())
    }
}

impl Verifier<'_> {
    fn params(&self) -> Check {
        let args = &self.func.region(self.func.body).args;
        let values: Vec<Value> = self.func.params.iter().map(|p| p.value).collect();
        ensure!(*args == values, "parameters are not the arguments of the body");
        let mut names = BTreeSet::new();
        for param in &self.func.params {
            let name = &param.name;
            let is_name = name.split('.').all(is_identifier);
            ensure!(is_name, "parameter {name:?} is not an identifier");
            ensure!(names.insert(name), "two parameters are named {name:?}");
            match self.func.ty(param.value) {
                Type::Tile(ty) => {
                    ensure!(ty.shape.is_scalar(), "parameter {name:?} is a tile, {ty}");
                }
                Type::View { rank, .. } => {
                    ensure!((1..=5).contains(&rank), "parameter {name:?} is a view of rank {rank}");
                }
            }
        }
        Ok(())
    }

    fn region(&mut self, region: Region, place: Place) -> Check {
        let data = self.func.region(region);
        for (i, &arg) in data.args.iter().enumerate() {
            let def = Def::Argument(region, i as u32);
            ensure!(
                self.func.value(arg).def == def,
                "an argument of a region is defined elsewhere"
            );
            if place != Place::Body {
                self.value_type(arg)?;
            }
            self.in_scope[arg.index()] = true;
        }
        for (i, &op) in data.ops.iter().enumerate() {
            let is_last = i + 1 == data.ops.len();
            self.op(op, place, is_last).map_err(|e| with_op(self.func, op, &e))?;
        }
        ensure!(!data.ops.is_empty(), "a region has no terminator");
        let results = data.ops.iter().flat_map(|&op| &self.func.op(op).results);
        for &value in data.args.iter().chain(results) {
            self.in_scope[value.index()] = false;
        }
        Ok(())
    }

    fn op(&mut self, op: Op, place: Place, is_last: bool) -> Check {
        let data = self.func.op(op);
        for (i, &operand) in data.operands.iter().enumerate() {
            ensure!(self.in_scope[operand.index()], "operand {i} is not defined here");
            if place == Place::Combine {
                let is_scalar =
                    self.func.ty(operand).as_tile().is_some_and(|t| t.shape.is_scalar());
                ensure!(is_scalar, "operand {i} in a combine region is not a scalar");
            }
        }
        for (i, &result) in data.results.iter().enumerate() {
            let def = Def::Result(op, i as u32);
            ensure!(self.func.value(result).def == def, "result {i} is defined elsewhere");
            // A view is a parameter or made by its op; nothing else gives one.
            if data.kind != OpKind::MakeView {
                self.value_type(result)?;
            }
        }
        placement(&data.kind, place, is_last)?;
        rules::check(self.func, data)?;
        control::check(self.func, data)?;
        for (i, &region) in data.regions.iter().enumerate() {
            self.region(region, inner_place(&data.kind, i))?;
        }
        for &result in &data.results {
            self.in_scope[result.index()] = true;
        }
        Ok(())
    }

    fn value_type(&self, value: Value) -> Check {
        match self.func.ty(value) {
            Type::Tile(ty) => check_shape(ty.shape),
            ty @ Type::View { .. } => Err(format!("{ty} is not a parameter")),
        }
    }
}

fn is_identifier(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
    starts && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// The innermost op's text is enough to find it.
fn with_op(func: &Func, op: Op, message: &str) -> String {
    if message.contains("\n  in: ") {
        return message.to_owned();
    }
    match op_text(func, op) {
        Some(text) => format!("{message}\n  in: {text}"),
        None => message.to_owned(),
    }
}

fn check_shape(shape: Shape) -> Check {
    let extents = shape.extents();
    ensure!(extents.iter().all(|&e| e > 0), "shape {shape} has an extent of 0");
    let elements = extents.iter().try_fold(1_usize, |n, &e| n.checked_mul(e));
    let fits = elements.is_some_and(|n| n <= MAX_ELEMENTS);
    ensure!(fits, "shape {shape} has over {MAX_ELEMENTS} elements");
    Ok(())
}

fn inner_place(kind: &OpKind, number: usize) -> Place {
    match (kind, number) {
        (OpKind::Reduce { .. } | OpKind::Scan { .. }, _) => Place::Combine,
        (OpKind::While, 0) => Place::Condition,
        _ => Place::Block,
    }
}

fn placement(kind: &OpKind, place: Place, is_last: bool) -> Check {
    ensure!(kind.is_terminator() == is_last, "a region ends with its only terminator");
    let allowed = match (kind, place) {
        (OpKind::Return, Place::Body | Place::Block) => true,
        (OpKind::Return, _) => false,
        (OpKind::Yield, place) => place != Place::Body,
        (OpKind::Const(_), _) => true,
        (kind, Place::Combine) => kind.is_elementwise() && *kind != OpKind::PtrAdd,
        _ => true,
    };
    ensure!(allowed, "this op may not stand in {}", place.name());
    Ok(())
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Place::Body => "the body of a kernel",
            Place::Block => "a loop or branch",
            Place::Condition => "a condition",
            Place::Combine => "a combine region",
        }
    }
}
