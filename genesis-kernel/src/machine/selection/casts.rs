//! Casts by instructions of their own; see `casts`.
//!
//! ```text
//! select 5 cast codes less 8 mask 15       (c & 15).to::<bf16>() - 8.0
//! select 6 cast pairs                      f32 to bf16, two at a time
//! select 7 cast float8                     f8e4m3 to f16, two at a time
//! ```

use std::fmt;

/// How a cast, or one with a subtraction, is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cast {
    /// Codes of up to 8 bits become floats without a conversion, less a constant.
    Codes {
        /// The constant.
        zero: u8,
        /// What is done to the codes before.
        step: Step,
    },
    /// From f32 to 16 bits, by the instruction that rounds two and packs them.
    Pairs,
    /// From or to floats of 8 bits, by their instructions.
    Float8,
}

/// What is done to codes in registers of 8 bits, before they become floats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Nothing.
    None,
    /// Only these bits are left.
    Mask(u8),
    /// They move down by so many bits.
    Shift(u8),
}

impl Step {
    /// The largest code behind it.
    pub(crate) fn most(self) -> u8 {
        match self {
            Step::None => 255,
            Step::Mask(mask) => mask,
            Step::Shift(by) => 255 >> by,
        }
    }
}

impl fmt::Display for Cast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cast::Codes { zero, step: Step::None } => write!(f, "cast codes less {zero}"),
            Cast::Codes { zero, step: Step::Mask(mask) } => {
                write!(f, "cast codes less {zero} mask {mask}")
            }
            Cast::Codes { zero, step: Step::Shift(by) } => {
                write!(f, "cast codes less {zero} shift {by}")
            }
            Cast::Pairs => f.write_str("cast pairs"),
            Cast::Float8 => f.write_str("cast float8"),
        }
    }
}

#[cfg(test)]
impl Cast {
    /// Reads an entry's text.
    pub(super) fn parse(text: &str) -> Option<Cast> {
        match text.split(' ').collect::<Vec<_>>()[..] {
            ["cast", "codes", "less", zero, ref step @ ..] => {
                let step = match step {
                    [] => Step::None,
                    ["mask", mask] => Step::Mask(mask.parse().ok()?),
                    ["shift", by] => Step::Shift(by.parse().ok()?),
                    _ => return None,
                };
                Some(Cast::Codes { zero: zero.parse().ok()?, step })
            }
            ["cast", "pairs"] => Some(Cast::Pairs),
            ["cast", "float8"] => Some(Cast::Float8),
            _ => None,
        }
    }
}
