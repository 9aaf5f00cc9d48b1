//! Names in scope: one frame for the kernel and one for each device function being inlined.
//!
//! A frame is a stack of slots; a block remembers its height and cuts back to it, a `let` pushes, so
//! shadowing is the search order. A slot's position is its identity: that is how a loop knows that
//! it assigns the variable outside and not one of its own of the same name.

use crate::ir::{DType, Region};

use super::ast::FnAst;
use super::value::Val;

/// A variable.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) name: &'static str,
    pub(super) val: Val,
}

/// A function being walked.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) ast: &'static FnAst,
    /// What the type parameters stand for.
    pub(super) dtypes: Vec<(&'static str, DType)>,
    /// What the const parameters stand for.
    pub(super) consts: Vec<(&'static str, i64)>,
    pub(super) slots: Vec<Slot>,
    /// The region in which the body began: a device function may `return` only there.
    pub(super) entry: Region,
    /// What a `return` of a device function gave.
    pub(super) result: Option<Val>,
}

impl Frame {
    pub(super) fn new(ast: &'static FnAst, entry: Region) -> Frame {
        let (dtypes, consts) = (Vec::new(), Vec::new());
        Frame { ast, dtypes, consts, slots: Vec::new(), entry, result: None }
    }

    /// The position of the innermost variable of this name.
    pub(super) fn slot(&self, name: &str) -> Option<usize> {
        self.slots.iter().rposition(|slot| slot.name == name)
    }

    /// What a name stands for: a variable, else a const parameter.
    pub(super) fn lookup(&self, name: &str) -> Option<Val> {
        if let Some(slot) = self.slot(name) {
            return Some(self.slots[slot].val.clone());
        }
        let constant = self.consts.iter().find(|(known, _)| *known == name)?;
        Some(Val::int(constant.1))
    }

    /// The dtype a type parameter stands for.
    pub(super) fn dtype(&self, name: &str) -> Option<DType> {
        self.dtypes.iter().find(|(known, _)| *known == name).map(|(_, dtype)| *dtype)
    }

    /// Declares a variable.
    pub(super) fn declare(&mut self, name: &'static str, val: Val) {
        self.slots.push(Slot { name, val });
    }
}
