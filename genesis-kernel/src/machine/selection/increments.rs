//! Increments: how the registers of a tile that is linear in their numbers are computed from each other; see
//! `strength_reduction`.
//!
//! ```text
//! select 0 increments 128, 256           an iota of four registers
//! select 1 increments renamed 1, -       register 1 is the operand's register 2, register 2 its register 0 again
//! select 2 increments scaled 0           a multiplication of operand 0 by a scalar
//! ```

use std::fmt;

/// What the increments of an op's result are, one a bit of the register number. Where a tile has one register, or all of its
/// registers are equal, it has none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Increments {
    /// Constants, as the layout of an `iota` says.
    Constants(Vec<u32>),
    /// Those of the operand, whose registers are renamed: for each bit that of the operand's number; none where both
    /// registers are one of the operand's.
    Renamed(Vec<Option<u32>>),
    /// Those of operand 0.
    Same,
    /// The sums of those of both operands.
    Sum,
    /// Those of this operand, times the other one.
    Scaled(usize),
}

impl fmt::Display for Increments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |all: Vec<String>| all.join(", ");
        f.write_str("increments ")?;
        match self {
            Increments::Constants(all) => {
                f.write_str(&list(all.iter().map(u32::to_string).collect()))
            }
            Increments::Renamed(bits) => {
                let bit = |bit: &Option<u32>| bit.map_or("-".to_owned(), |bit| bit.to_string());
                write!(f, "renamed {}", list(bits.iter().map(bit).collect()))
            }
            Increments::Same => f.write_str("same"),
            Increments::Sum => f.write_str("sum"),
            Increments::Scaled(operand) => write!(f, "scaled {operand}"),
        }
    }
}

#[cfg(test)]
impl Increments {
    /// Reads an entry's text.
    pub(super) fn parse(text: &str) -> Option<Increments> {
        let words: Vec<&str> = text.split(' ').map(|word| word.trim_end_matches(',')).collect();
        match words.get(1..)? {
            ["same"] => Some(Increments::Same),
            ["sum"] => Some(Increments::Sum),
            ["scaled", operand] => Some(Increments::Scaled(operand.parse().ok()?)),
            ["renamed", bits @ ..] => {
                let bit = |bit: &&str| match *bit {
                    "-" => Some(None),
                    number => number.parse().ok().map(Some),
                };
                Some(Increments::Renamed(bits.iter().map(bit).collect::<Option<_>>()?))
            }
            all => {
                let all: Option<Vec<u32>> = all.iter().map(|number| number.parse().ok()).collect();
                Some(Increments::Constants(all?))
            }
        }
    }
}
