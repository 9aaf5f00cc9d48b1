//! What is known of masks: registers without code of their own, and accesses without a predicate; see `masks`.
//!
//! ```text
//! select 5 mask T T . F             a comparison: true, true, an instruction, false
//! select 6 mask . =0 . =2           registers 1 and 3 are as the ones before them
//! select 8 mask %1 %1 . %2          a select: operand 1 twice, an instruction, operand 2
//! select 7 guards T T . F           a load: two without a predicate, one with its mask, one that is not done
//! ```

use std::collections::BTreeMap;
use std::fmt;

use crate::ir::Op;

/// What is known of the masks of a function.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Masks {
    /// Ops of which some registers need no code of their own; none for a register that does.
    pub(crate) registers: BTreeMap<Op, Vec<Option<Register>>>,
    /// Loads, stores and atomics of which some accesses need no predicate, by group of registers.
    pub(crate) guards: BTreeMap<Op, Vec<Guard>>,
}

/// What a register is without code of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Register {
    /// A constant, in every thread.
    Constant(bool),
    /// What another register of the result is.
    Equal(u32),
    /// That register of an operand.
    Operand(usize),
}

/// In which threads an access is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Guard {
    /// In all.
    Always,
    /// In none.
    Never,
    /// In those whose mask is true.
    Masked,
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Register::Constant(true) => f.write_str("T"),
            Register::Constant(false) => f.write_str("F"),
            Register::Equal(register) => write!(f, "={register}"),
            Register::Operand(operand) => write!(f, "%{operand}"),
        }
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Guard::Always => "T",
            Guard::Never => "F",
            Guard::Masked => ".",
        })
    }
}

impl Masks {
    /// What a register of an op's result is, if it needs no code.
    pub(crate) fn register(&self, op: Op, register: usize) -> Option<Register> {
        self.registers.get(&op)?[register]
    }

    /// In which threads an access is done that may have a mask, by the number of its group.
    pub(crate) fn guard(&self, op: Op, group: usize) -> Guard {
        self.guards.get(&op).map_or(Guard::Masked, |guards| guards[group])
    }

    /// The entries' texts.
    pub(super) fn texts(&self) -> Vec<(Op, String)> {
        let word = |one: &Option<Register>| one.map_or(".".to_owned(), |one| one.to_string());
        let registers = self.registers.iter().map(|(&op, all)| {
            let all: Vec<String> = all.iter().map(word).collect();
            (op, format!("mask {}", all.join(" ")))
        });
        let guards = self.guards.iter().map(|(&op, all)| {
            let all: Vec<String> = all.iter().map(Guard::to_string).collect();
            (op, format!("guards {}", all.join(" ")))
        });
        registers.chain(guards).collect()
    }

    /// Reads an entry's text.
    #[cfg(test)]
    pub(super) fn parse(&mut self, op: Op, text: &str) -> Option<()> {
        let (name, rest) = text.split_once(' ')?;
        let words = rest.split(' ');
        if name == "guards" {
            let guard = |word| match word {
                "T" => Some(Guard::Always),
                "F" => Some(Guard::Never),
                _ => (word == ".").then_some(Guard::Masked),
            };
            self.guards.insert(op, words.map(guard).collect::<Option<_>>()?);
            return Some(());
        }
        let register = |word: &str| match (word.get(..1)?, &word[1..]) {
            ("T", "") => Some(Some(Register::Constant(true))),
            ("F", "") => Some(Some(Register::Constant(false))),
            (".", "") => Some(None),
            ("=", number) => Some(Some(Register::Equal(number.parse().ok()?))),
            ("%", number) => Some(Some(Register::Operand(number.parse().ok()?))),
            _ => None,
        };
        self.registers.insert(op, words.map(register).collect::<Option<_>>()?);
        Some(())
    }
}
