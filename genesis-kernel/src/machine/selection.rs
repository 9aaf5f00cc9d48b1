//! Instruction selection: how the registers of an op are computed where that is not by the op itself, register by register.
//!
//! An op of the layout IR stands in several places of the code: in its `exec`, among the addresses of a multistage
//! buffer's copies, and where it is rematerialized. It is computed in the same way in all of them, so what a pass selects
//! is a table by op beside the code, and in the text a line an op:
//!
//! ```text
//! exec 0                                  // iota
//! exec 1                                  // mul
//! exec 2                                  // broadcast
//! exec 3                                  // ptr_add
//! select 0 increments 128, 256            // iota
//! select 2 increments renamed -, -        // broadcast
//! select 3 increments sum                 // ptr_add
//! ```
//!
//! Each table is of one pass; its entries and their text are in a file of this folder. Code generation looks its ops up and
//! decides nothing.

mod cache;
mod casts;
mod increments;
mod masks;
mod short;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use self::cache::Cached;
pub(crate) use self::casts::{Cast, Step};
pub(crate) use self::increments::Increments;
pub(crate) use self::masks::{Guard, Masks, Register};
pub(crate) use self::short::{Counter, Narrow, Short};
use crate::ir::print::mnemonic;
use crate::ir::{Func, Op, OpKind, Value};

/// What passes have selected for the ops of one role's function.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Selection {
    /// Tiles whose registers are computed from each other.
    pub(crate) increments: BTreeMap<Op, Increments>,
    /// What is done in 32 bits instead of 64.
    pub(crate) narrow: Narrow,
    /// Masks that are known without code.
    pub(crate) masks: Masks,
    /// Casts that have instructions of their own.
    pub(crate) casts: BTreeMap<Op, Cast>,
    /// How loads and stores treat the caches.
    pub(crate) cached: BTreeMap<Op, Cached>,
    /// What loops carry as words of two 16-bit floats.
    pub(crate) words: BTreeSet<Value>,
    /// The operands of ops that are read from what was recomputed.
    pub(crate) anew: BTreeMap<Op, Vec<usize>>,
    /// Steps of reductions at which each lane reads a share of the partial results.
    pub(crate) shared_reads: BTreeMap<Op, Vec<usize>>,
    /// Whether 16-bit floats are computed with in pairs.
    pub(crate) packed_arithmetic: bool,
    /// Packed words that a thread keeps live at once to recompute from.
    pub(crate) packed_words: u32,
    /// Blocks of a multiprocessor that the assembler leaves registers for, if more than one may be needed.
    pub(crate) min_blocks: Option<u32>,
}

/// The word that begins a line.
const SELECT: &str = "select";
/// Words of what is of no op.
const PACKED_WORDS: &str = "packed.words";
const MIN_BLOCKS: &str = "min.blocks";
const PACKED_ARITHMETIC: &str = "packed.arithmetic";

impl Selection {
    /// Its text, one line an entry, in the order of the ops.
    pub(super) fn text(&self, func: &Func) -> String {
        let mut entries = self.texts(func);
        let numbers: BTreeMap<Op, u32> = func.walk().into_iter().zip(0..).collect();
        let number = |op: Op| numbers.get(&op).copied().unwrap_or(u32::MAX);
        entries.sort_by_key(|(op, _)| number(*op));
        let line = |(op, text): (Op, String)| {
            let number = number(op);
            let line = format!("{SELECT} {number} {text}");
            format!("{line:<39} // {}\n", mnemonic(&func.op(op).kind))
        };
        let of_all = [
            (PACKED_WORDS, Some(self.packed_words).filter(|&words| words != 0)),
            (MIN_BLOCKS, self.min_blocks),
        ];
        let of_all = of_all.iter().filter_map(|(name, n)| Some(format!("{name} {}\n", (*n)?)));
        let packed = self.packed_arithmetic.then(|| format!("{PACKED_ARITHMETIC}\n"));
        entries.into_iter().map(line).chain(of_all).chain(packed).collect()
    }

    /// The entries of all tables.
    fn texts(&self, func: &Func) -> Vec<(Op, String)> {
        let list = |name: &str, all: &[usize]| {
            let all: Vec<String> = all.iter().map(usize::to_string).collect();
            format!("{name} {}", all.join(", "))
        };
        let mut entries: Vec<(Op, String)> = self.narrow.texts(func);
        entries.extend(self.words_of(func).map(|(op, words)| (op, list("words", &words))));
        entries.extend(self.increments.iter().map(|(&op, of)| (op, of.to_string())));
        entries.extend(self.masks.texts());
        entries.extend(self.casts.iter().map(|(&op, cast)| (op, cast.to_string())));
        entries.extend(self.cached.iter().map(|(&op, cached)| (op, cached.to_string())));
        entries.extend(self.anew.iter().map(|(&op, anew)| (op, list("anew", anew))));
        let reads = self.shared_reads.iter();
        entries.extend(reads.map(|(&op, steps)| (op, list("shared.reads", steps))));
        entries
    }

    /// The loops that carry words, and which of what they carry these are.
    fn words_of<'f>(&'f self, func: &'f Func) -> impl Iterator<Item = (Op, Vec<usize>)> + 'f {
        let loops =
            func.walk().into_iter().filter(|&op| matches!(func.op(op).kind, OpKind::For(_)));
        let words = |op: Op| {
            let args = func.region(func.op(op).regions[0]).args.iter().skip(1).enumerate();
            (op, args.filter(|(_, arg)| self.words.contains(arg)).map(|(i, _)| i).collect())
        };
        loops.map(words).filter(|(_, words): &(Op, Vec<usize>)| !words.is_empty())
    }

    /// Reads the text of a selection for a function. Other lines are code.
    ///
    /// # Errors
    /// The line that is none.
    #[cfg(test)]
    pub(super) fn parse(text: &str, func: &Func) -> Result<Selection, String> {
        let ops = func.walk();
        let mut selection = Selection::default();
        let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default().trim());
        for line in lines {
            let number = |name| line.strip_prefix(name)?.trim().parse().ok();
            selection.packed_words = number(PACKED_WORDS).unwrap_or(selection.packed_words);
            selection.min_blocks = number(MIN_BLOCKS).or(selection.min_blocks);
            selection.packed_arithmetic |= line == PACKED_ARITHMETIC;
            let Some(entry) = line.strip_prefix(SELECT) else { continue };
            let (number, rest) = entry.trim().split_once(' ').unwrap_or_default();
            let op = number.parse().ok().and_then(|number: usize| ops.get(number).copied());
            let op = op.ok_or_else(|| format!("`{line}` is of no op"))?;
            selection.add(op, rest, func).ok_or_else(|| format!("`{line}` selects nothing"))?;
        }
        Ok(selection)
    }

    #[cfg(test)]
    fn add(&mut self, op: Op, text: &str, func: &Func) -> Option<()> {
        let (table, rest) = text.split_once(' ').unwrap_or((text, ""));
        let numbers = || {
            let all: Option<Vec<usize>> = rest.split(", ").map(|word| word.parse().ok()).collect();
            all
        };
        match table {
            "increments" => _ = self.increments.insert(op, Increments::parse(text)?),
            "cast" => _ = self.casts.insert(op, Cast::parse(text)?),
            "cache" => _ = self.cached.insert(op, Cached::parse(text)?),
            "anew" => _ = self.anew.insert(op, numbers()?),
            "shared.reads" => _ = self.shared_reads.insert(op, numbers()?),
            "words" => {
                let args = &func.region(func.op(op).regions[0]).args;
                self.words.extend(numbers()?.into_iter().map(|number| args[number + 1]));
            }
            "mask" | "guards" => self.masks.parse(op, text)?,
            _ => self.narrow.parse(op, text, func)?,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::RunBy;
    use crate::machine::golden::{attend, on_hopper, row_sum, selected};

    #[test]
    fn the_text_reads_back() {
        let kernels = [
            (row_sum(2048, None), RunBy::Block),
            (on_hopper(&attend::KERNEL, &[128, 64, 64], 8), RunBy::Consumers),
        ];
        for (lir, by) in kernels {
            let selection = selected(&lir, by);
            let text = selection.text(&lir.func);
            assert!(!text.is_empty());
            assert_eq!(Selection::parse(&text, &lir.func), Ok(selection), "{text}");
        }
    }

    #[test]
    fn what_is_no_selection_is_refused() {
        let func = row_sum(256, None).func;
        let refused = |text| Selection::parse(text, &func).expect_err("it is none");
        assert_eq!(refused("select 99 increments sum"), "`select 99 increments sum` is of no op");
        assert_eq!(refused("select 0 nothing"), "`select 0 nothing` selects nothing");
    }
}
