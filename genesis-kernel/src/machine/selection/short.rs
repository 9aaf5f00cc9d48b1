//! Which 64-bit indices are computed, counted and carried in 32 bits; see `narrow`.
//!
//! ```text
//! select 4 narrow u32                      a product, of 32 bits to 64
//! select 7 counts s32 carries 0            a loop
//! select 9 counts s32 may.wrap             a loop whose index after the last one may need more bits
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::ir::{Func, Op, Value};

/// The ops and loops on 64-bit indices that 32 bits are enough for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Narrow {
    /// Products, quotients, remainders and comparisons that are done in 32 bits.
    pub(crate) ops: BTreeMap<Op, Short>,
    /// How each counted loop counts.
    pub(crate) loops: BTreeMap<Op, Counter>,
    /// Scalars that loops carry, and give at their ends, in 32 bits.
    pub(crate) carried: BTreeSet<Value>,
}

/// How 32 bits are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Short {
    /// As a signed number.
    Signed,
    /// As one that is not negative.
    Unsigned,
}

/// How a loop counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counter {
    /// In 32 bits.
    pub(crate) is_short: bool,
    /// The index after the last one may need more bits, as 32 where the step is the number of programs: so the distance
    /// to the bound is compared with the step.
    pub(crate) may_wrap: bool,
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Short::Signed => "narrow s32",
            Short::Unsigned => "narrow u32",
        })
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_short { "counts s32" } else { "counts s64" })?;
        f.write_str(if self.may_wrap { " may.wrap" } else { "" })
    }
}

impl Narrow {
    /// The entries' texts.
    pub(super) fn texts(&self, func: &Func) -> Vec<(Op, String)> {
        let ops = self.ops.iter().map(|(&op, short)| (op, short.to_string()));
        let loops = self.loops.iter().map(|(&op, counter)| {
            let args = func.region(func.op(op).regions[0]).args.iter().skip(1);
            let carried = args.enumerate().filter(|(_, arg)| self.carried.contains(arg));
            let carried: Vec<String> = carried.map(|(i, _)| i.to_string()).collect();
            let carries = if carried.is_empty() { "" } else { " carries " };
            (op, format!("{counter}{carries}{}", carried.join(", ")))
        });
        ops.chain(loops).collect()
    }

    /// Reads an entry's text.
    #[cfg(test)]
    pub(super) fn parse(&mut self, op: Op, text: &str, func: &Func) -> Option<()> {
        let words: Vec<&str> = text.split(' ').map(|word| word.trim_end_matches(',')).collect();
        match words[..] {
            ["narrow", "s32"] => _ = self.ops.insert(op, Short::Signed),
            ["narrow", "u32"] => _ = self.ops.insert(op, Short::Unsigned),
            ["counts", bits, ref rest @ ..] => {
                let (may_wrap, is_short) = (rest.contains(&"may.wrap"), bits == "s32");
                self.loops.insert(op, Counter { is_short, may_wrap });
                let carried = rest.iter().skip_while(|word| **word != "carries").skip(1);
                for word in carried {
                    self.carry(op, word.parse().ok()?, func);
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// A value that a loop carries goes round in 32 bits.
    pub(crate) fn carry(&mut self, op: Op, number: usize, func: &Func) {
        let data = func.op(op);
        let arg = func.region(data.regions[0]).args[number + 1];
        self.carried.extend([arg, data.results[number]]);
    }
}
