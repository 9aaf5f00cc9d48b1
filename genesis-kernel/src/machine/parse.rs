//! Machine IR from text; see [`super::print`].

use std::ops::Range;

use super::words::{self, AXES, maker};
use super::{Across, Anew, Block, Bytes, For, Inst, Mma, MmaWait, Panel, Part, Stage};
use crate::ir::Op;

/// Reads code whose ops are numbered as in `ops`: those of the function, in order.
///
/// # Errors
/// What is wrong, with the number of its line.
pub fn parse(text: &str, ops: &[Op]) -> Result<Block, String> {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default().trim());
    let lines = (1..).zip(lines).filter(|(_, line)| !line.is_empty()).collect();
    let mut parser = Parser { lines, next: 0, ops };
    let block = parser.block()?;
    match parser.lines.get(parser.next) {
        Some((number, line)) => Err(format!("line {number}: unexpected `{line}`")),
        None => Ok(block),
    }
}

struct Parser<'t> {
    lines: Vec<(usize, &'t str)>,
    next: usize,
    ops: &'t [Op],
}

impl<'t> Parser<'t> {
    /// Instructions up to a closing brace, or the end.
    fn block(&mut self) -> Result<Block, String> {
        let mut block = Block::new();
        while let Some(&(number, line)) = self.lines.get(self.next) {
            if line.starts_with('}') {
                break;
            }
            self.next += 1;
            let inst = self.inst(line);
            block.push(inst.map_err(|why| match why.starts_with("line ") {
                true => why,
                false => format!("line {number}: {why}"),
            })?);
        }
        Ok(block)
    }

    fn inst(&mut self, line: &'t str) -> Result<Inst, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = *words.first().ok_or("an instruction is due")?;
        if let Some((_, inst)) = words::PLAIN.iter().find(|(word, _)| *word == name) {
            return Ok(inst.clone());
        }
        if let Some(make) = maker(words::PARTS, name) {
            return Ok(make(self.part(&words)?));
        }
        if let Some(make) = maker(words::PANELS, name) {
            return Ok(make(self.panel(&words)?));
        }
        let missing = || format!("`{line}` lacks something");
        let word = |at: usize| words.get(at).copied().ok_or_else(missing);
        if let Some(make) = maker(words::NUMBERED, name) {
            return Ok(make(number(word(1)?)?));
        }
        if let Some(make) = maker(words::CHANNELS, name) {
            return Ok(make(channel(word(1)?)?));
        }
        if let Some(make) = maker(words::OPS, name) {
            return Ok(make(self.op(word(1)?)?));
        }
        match self.with_blocks(name, &words)? {
            Some(inst) => Ok(inst),
            None => self.with_operands(name, &words, &word),
        }
    }

    /// An instruction that has blocks; none if this is not one.
    fn with_blocks(&mut self, name: &str, words: &[&str]) -> Result<Option<Inst>, String> {
        let word = |at: usize| words.get(at).copied().ok_or("an op is due");
        Ok(Some(match name {
            "once" => Inst::Once(self.closed_block()?),
            "unless.prefetched" => {
                let channel = channel(word(1)?)?;
                Inst::UnlessPrefetched { channel, body: self.closed_block()? }
            }
            "for" => self.for_loop(self.op(word(1)?)?, words.contains(&"hoisted"))?,
            "while" => {
                let [condition, body] = self.two_blocks("} do {")?;
                Inst::While { op: self.op(word(1)?)?, condition, body }
            }
            "if" => {
                let [then, otherwise] = self.two_blocks("} else {")?;
                Inst::If { op: self.op(word(1)?)?, then, otherwise }
            }
            _ => return Ok(None),
        }))
    }

    fn closed_block(&mut self) -> Result<Block, String> {
        let body = self.block()?;
        self.expect("}")?;
        Ok(body)
    }

    fn with_operands(
        &self,
        name: &str,
        words: &[&str],
        word: &dyn Fn(usize) -> Result<&'t str, String>,
    ) -> Result<Inst, String> {
        Ok(match name {
            "exec" => Inst::Exec { op: self.op(word(1)?)?, reads: reads(&words[2..])? },
            "combine" => {
                let bit = number(word(3)?)? as usize;
                let across = match word(2)? {
                    "registers" => Across::Registers(bit),
                    "lanes" => Across::Lanes(bit),
                    other => return Err(format!("nothing is combined across `{other}`")),
                };
                Inst::Combine { op: self.op(word(1)?)?, across }
            }
            "init.mbarriers" => Inst::InitBarriers {
                at: number(word(1)?)?,
                count: number(word(3)?)?,
                arrivals: number(word(5)?)?,
            },
            "expect.bytes" => Inst::ExpectBytes { at: number(word(1)?)?, bytes: number(word(2)?)? },
            "indices" => {
                let (of, ahead) = self.ahead(word(1)?)?;
                Inst::LoadIndices { of, ahead }
            }
            "addresses" => {
                let (of, ahead) = self.ahead(word(1)?)?;
                Inst::Addresses { of, ahead }
            }
            "copy" => {
                let (load, ahead) = self.ahead(word(1)?)?;
                Inst::Copy { load, ahead, bytes: bytes(&words[2..])? }
            }
            "mma" => Inst::Mma(self.mma(&words[1..])?),
            "wait.mma" => {
                let at = words.iter().position(|&word| word == "pending").unwrap_or(words.len());
                let pending = number(word(at + 1)?)?;
                Inst::WaitMma { complete: self.list(&words[1..at])?, pending }
            }
            "release" => Inst::Release { channel: channel(word(1)?)?, of: self.op(word(3)?)? },
            "count.prefetched" => {
                Inst::CountPrefetched { channel: channel(word(1)?)?, more: word(2)? == "more" }
            }
            "recompute" => Inst::Recompute { op: self.op(word(1)?)?, from: anew(&words[2..])? },
            "rematerialize" => Inst::Rematerialize(self.list(&words[1..])?),
            _ => return Err(format!("unknown instruction `{name}`")),
        })
    }

    fn for_loop(&mut self, op: Op, hoisted: bool) -> Result<Inst, String> {
        let mut prologue = Block::new();
        if self.lines.get(self.next).is_some_and(|(_, line)| *line == "prologue {") {
            self.next += 1;
            prologue = self.block()?;
            self.expect("}")?;
        }
        let body = self.block()?;
        let mut parts = [None, None];
        for (part, start) in parts.iter_mut().zip(["} other {", "} left {"]) {
            if self.lines.get(self.next).is_some_and(|(_, line)| *line == start) {
                self.next += 1;
                *part = Some(self.block()?);
            }
        }
        self.expect("}")?;
        let [other, left] = parts;
        let left = left.unwrap_or_default();
        Ok(Inst::For(Box::new(For { op, prologue, hoisted, body, other, left })))
    }

    /// What stands behind `mma`; see the printer.
    fn mma(&self, words: &[&str]) -> Result<Mma, String> {
        let [first, rest @ ..] = words else { return Err("a dot is due".to_owned()) };
        let has = |word: &str| rest.contains(&word);
        let after = |word: &str| -> Vec<&str> {
            let at = rest.iter().position(|&other| other == word);
            let words = at.map_or(&[][..], |at| &rest[at + 1..]);
            let is_word = |word: &&&str| MMA_WORDS.contains(*word);
            words.iter().copied().take_while(|word| !is_word(&word)).collect()
        };
        let wait = match () {
            () if has("into.next") => MmaWait::NextIteration,
            () if has("promoted") => MmaWait::Promoted,
            () => MmaWait::Iteration,
        };
        let takes = after("takes");
        let takes = takes.into_iter().map(|text| channel(text.trim_end_matches(',')));
        let read = after("reads");
        Ok(Mma {
            op: self.op(first)?,
            reads: if read.is_empty() { Vec::new() } else { bytes_list(&read)? },
            takes: takes.collect::<Result<_, _>>()?,
            wait,
            awaits_turn: has("awaits.turn"),
            passes_turn: has("passes.turn"),
        })
    }

    /// `4, 5, 9`
    fn list(&self, words: &[&str]) -> Result<Vec<Op>, String> {
        words.iter().map(|word| self.op(word.trim_end_matches(','))).collect()
    }

    fn two_blocks(&mut self, between: &str) -> Result<[Block; 2], String> {
        let first = self.block()?;
        self.expect(between)?;
        let second = self.block()?;
        self.expect("}")?;
        Ok([first, second])
    }

    fn expect(&mut self, wanted: &str) -> Result<(), String> {
        match self.lines.get(self.next) {
            Some((_, line)) if *line == wanted => {
                self.next += 1;
                Ok(())
            }
            Some((number, line)) => Err(format!("line {number}: `{line}` where `{wanted}` is due")),
            None => Err(format!("the end where `{wanted}` is due")),
        }
    }

    fn op(&self, text: &str) -> Result<Op, String> {
        let number = number(text)? as usize;
        self.ops.get(number).copied().ok_or_else(|| format!("there is no op {number}"))
    }

    /// `14+2`
    fn ahead(&self, text: &str) -> Result<(Op, u32), String> {
        let (op, ahead) = text.split_once('+').ok_or_else(|| format!("`{text}` lacks a +"))?;
        Ok((self.op(op)?, number(ahead)?))
    }

    /// `store.panel 14.3 buffer 1`
    fn panel(&self, words: &[&str]) -> Result<Panel, String> {
        let [_, what, "buffer", buffer] = words else { return Err("a panel is due".to_owned()) };
        let (op, panel) = what.split_once('.').ok_or_else(|| format!("`{what}` lacks a panel"))?;
        Ok(Panel { op: self.op(op)?, number: number(panel)?, buffer: number(buffer)? })
    }

    /// `store.shared 7.0 0..64`
    fn part(&self, words: &[&str]) -> Result<Part, String> {
        let [_, what, range] = words else { return Err("an op and bytes are due".to_owned()) };
        let (op, part) = what.split_once('.').ok_or_else(|| format!("`{what}` lacks a part"))?;
        Ok(Part { op: self.op(op)?, number: number(part)?, bytes: bytes_range(range)? })
    }
}

/// Words that begin a property of MMAs.
const MMA_WORDS: [&str; 6] =
    ["reads", "takes", "into.next", "promoted", "awaits.turn", "passes.turn"];

fn channel(text: &str) -> Result<u8, String> {
    text.parse().map_err(|_| format!("`{text}` is no channel"))
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

/// `packed y`, or `anew 0, 1`
fn anew(words: &[&str]) -> Result<Anew, String> {
    match words {
        ["packed", axis] => {
            let axis = AXES.iter().position(|other| other == axis).ok_or("an axis is due")?;
            Ok(Anew::Packed(axis as u8))
        }
        ["anew", operands @ ..] => {
            let operand = |word: &&str| number(word.trim_end_matches(',')).map(|n| n as usize);
            Ok(Anew::Operands(operands.iter().map(operand).collect::<Result<_, _>>()?))
        }
        _ => Err(format!("nothing is computed from `{}`", words.join(" "))),
    }
}

/// `0..64`
fn bytes_range(text: &str) -> Result<Range<u32>, String> {
    let (start, end) = text.split_once("..").ok_or_else(|| format!("`{text}` is no range"))?;
    Ok(number(start)?..number(end)?)
}

/// `0..64`, or `0..64 stage 1 of 3 by 64`
fn bytes(words: &[&str]) -> Result<Bytes, String> {
    match words {
        [range] => Ok(bytes_range(range)?.into()),
        [range, "stage", first, "of", count, "by", each] => {
            let [first, count, bytes] = [first, count, each].map(|text| number(text));
            let stage = Stage { first: first?, count: count?, bytes: bytes? };
            Ok(Bytes { range: bytes_range(range)?, stage: Some(stage) })
        }
        _ => Err(format!("`{}` are no bytes", words.join(" "))),
    }
}

/// `reads 0..64, 64..128`, or nothing.
fn reads(words: &[&str]) -> Result<Vec<Bytes>, String> {
    let Some((&"reads", rest)) = words.split_first() else {
        return if words.is_empty() { Ok(Vec::new()) } else { Err("`reads` is due".to_owned()) };
    };
    bytes_list(rest)
}

/// `0..64, 64..128 stage 0 of 2 by 128`
fn bytes_list(words: &[&str]) -> Result<Vec<Bytes>, String> {
    let joined = words.join(" ");
    joined.split(", ").map(|one| bytes(&one.split(' ').collect::<Vec<_>>())).collect()
}
