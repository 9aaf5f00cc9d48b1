//! Machine IR as text.
//!
//! Ops have the numbers of their order in the function, so that the text does not depend on what passes took away; what an
//! op is stands behind it as a comment.
//!
//! ```text
//! exec 6                      // load
//! store.shared 7.0 0..64      // reduce
//! barrier
//! load.shared 7.0 0..64
//! exec 7                      // reduce
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;

use super::words::{self, AXES, word};
use super::{Across, Anew, Block, Bytes, Inst, Mma, MmaWait, Panel, Part};
use crate::ir::print::mnemonic;
use crate::ir::{Func, Op};

/// The text of a function's code.
pub fn print(code: &Block, func: &Func) -> String {
    let numbers = func.walk().into_iter().zip(0..).collect();
    let mut printer = Printer { func, numbers, text: String::new() };
    printer.block(code, 0);
    printer.text
}

struct Printer<'f> {
    func: &'f Func,
    numbers: BTreeMap<Op, u32>,
    text: String,
}

impl Printer<'_> {
    fn block(&mut self, block: &Block, depth: usize) {
        block.iter().for_each(|inst| self.inst(inst, depth));
    }

    fn inst(&mut self, inst: &Inst, depth: usize) {
        let indent = "  ".repeat(depth);
        match inst {
            Inst::For(inner) => {
                let hoisted = if inner.hoisted { " hoisted" } else { "" };
                self.line(depth, &format!("for {}{hoisted} {{", self.number(inner.op)), None);
                if !inner.prologue.is_empty() {
                    self.line(depth + 1, "prologue {", None);
                    self.block(&inner.prologue, depth + 2);
                    self.line(depth + 1, "}", None);
                }
                self.block(&inner.body, depth + 1);
                for (name, block) in [("other", inner.other.as_ref()), ("left", Some(&inner.left))]
                {
                    let Some(block) = block.filter(|block| name == "other" || !block.is_empty())
                    else {
                        continue;
                    };
                    self.line(depth, &format!("}} {name} {{"), None);
                    self.block(block, depth + 1);
                }
                self.line(depth, "}", None);
            }
            Inst::Once(body) => {
                self.line(depth, "once {", None);
                self.block(body, depth + 1);
                self.line(depth, "}", None);
            }
            Inst::UnlessPrefetched { channel, body } => {
                self.line(depth, &format!("unless.prefetched {channel} {{"), None);
                self.block(body, depth + 1);
                self.line(depth, "}", None);
            }
            Inst::While { op, condition, body } => {
                self.line(depth, &format!("while {} {{", self.number(*op)), None);
                self.block(condition, depth + 1);
                let _ = writeln!(self.text, "{indent}}} do {{");
                self.block(body, depth + 1);
                self.line(depth, "}", None);
            }
            Inst::If { op, then, otherwise } => {
                self.line(depth, &format!("if {} {{", self.number(*op)), None);
                self.block(then, depth + 1);
                let _ = writeln!(self.text, "{indent}}} else {{");
                self.block(otherwise, depth + 1);
                self.line(depth, "}", None);
            }
            _ => {
                let text = self.simple(inst);
                self.line(depth, &text, inst.op());
            }
        }
    }

    fn line(&mut self, depth: usize, text: &str, op: Option<Op>) {
        let indent = "  ".repeat(depth);
        let line = format!("{indent}{text}");
        let _ = match op {
            Some(op) => writeln!(self.text, "{line:<39} // {}", mnemonic(&self.func.op(op).kind)),
            None => writeln!(self.text, "{line}"),
        };
    }

    fn simple(&self, inst: &Inst) -> String {
        let number = |op: &Op| self.number(*op);
        match inst {
            Inst::Exec { op, reads } if reads.is_empty() => format!("exec {}", number(op)),
            Inst::Exec { op, reads } => {
                let reads: Vec<String> = reads.iter().map(bytes).collect();
                format!("exec {} reads {}", number(op), reads.join(", "))
            }
            Inst::Combine { op, across: Across::Registers(bit) } => {
                format!("combine {} registers {bit}", number(op))
            }
            Inst::Combine { op, across: Across::Lanes(bit) } => {
                format!("combine {} lanes {bit}", number(op))
            }
            Inst::InitBarriers { at, count, arrivals } => {
                format!("init.mbarriers {at} count {count} arrivals {arrivals}")
            }
            Inst::ExpectBytes { at, bytes } => format!("expect.bytes {at} {bytes}"),
            Inst::LoadIndices { of, ahead } => format!("indices {}+{ahead}", number(of)),
            Inst::Addresses { of, ahead } => format!("addresses {}+{ahead}", number(of)),
            Inst::Copy { load, ahead, bytes: to } => {
                format!("copy {}+{ahead} {}", number(load), bytes(to))
            }
            Inst::Mma(mma) => self.mma(mma),
            Inst::WaitMma { complete, pending } => {
                format!("wait.mma {} pending {pending}", self.list(complete))
            }
            Inst::Release { channel, of } => format!("release {channel} of {}", number(of)),
            Inst::CountPrefetched { channel, more } => {
                format!("count.prefetched {channel} {}", if *more { "more" } else { "less" })
            }
            Inst::Recompute { op, from: Anew::Packed(axis) } => {
                format!("recompute {} packed {}", number(op), AXES[usize::from(*axis)])
            }
            Inst::Recompute { op, from: Anew::Operands(anew) } => {
                let anew: Vec<String> = anew.iter().map(usize::to_string).collect();
                format!("recompute {} anew {}", number(op), anew.join(", "))
            }
            Inst::Rematerialize(ops) => {
                format!("rematerialize {}", self.list(ops)).trim_end().to_owned()
            }
            _ => self.of_one_operand(inst),
        }
    }

    /// An instruction whose word is in a table.
    fn of_one_operand(&self, inst: &Inst) -> String {
        match inst {
            Inst::StoreShared(part)
            | Inst::StoreCluster(part)
            | Inst::AwaitCluster(part)
            | Inst::LoadShared(part) => self.part(word(words::PARTS, part, inst), part),
            Inst::StorePanel(panel) | Inst::SendPanel(panel) => {
                self.panel(word(words::PANELS, panel, inst), panel)
            }
            Inst::WaitCopies(n)
            | Inst::WaitPanels(n)
            | Inst::GiveRegisters(n)
            | Inst::TakeRegisters(n) => format!("{} {n}", word(words::NUMBERED, n, inst)),
            Inst::WaitFull(channel)
            | Inst::WaitEmpty(channel)
            | Inst::Arm(channel)
            | Inst::Advance(channel)
            | Inst::ReleaseNext(channel)
            | Inst::ReleaseResident(channel)
            | Inst::ReleaseHeld(channel)
            | Inst::HoldNext(channel) => {
                format!("{} {channel}", word(words::CHANNELS, channel, inst))
            }
            _ => match (inst.op(), words::PLAIN.iter().find(|(_, plain)| plain == inst)) {
                (_, Some((word, _))) => (*word).to_owned(),
                (Some(op), None) => format!("{} {}", word(words::OPS, &op, inst), self.number(op)),
                (None, None) => match inst {
                    Inst::SchedulingBarrier(op) => {
                        format!("{} {}", word(words::OPS, op, inst), self.number(*op))
                    }
                    _ => String::new(),
                },
            },
        }
    }

    /// `4, 5, 9`
    fn list(&self, ops: &[Op]) -> String {
        let all: Vec<String> = ops.iter().map(|&op| self.number(op).to_string()).collect();
        all.join(", ")
    }

    /// `mma 9 reads 0..64 takes 0, 1 in next iteration awaits turn passes turn`
    fn mma(&self, mma: &Mma) -> String {
        let mut text = format!("mma {}", self.number(mma.op));
        let mut add = |more: String| text += &more;
        if !mma.reads.is_empty() {
            let reads: Vec<String> = mma.reads.iter().map(bytes).collect();
            add(format!(" reads {}", reads.join(", ")));
        }
        if !mma.takes.is_empty() {
            let takes: Vec<String> = mma.takes.iter().map(u8::to_string).collect();
            add(format!(" takes {}", takes.join(", ")));
        }
        match mma.wait {
            MmaWait::Iteration => {}
            MmaWait::NextIteration => add(" into.next".to_owned()),
            MmaWait::Promoted => add(" promoted".to_owned()),
        }
        if mma.awaits_turn {
            add(" awaits.turn".to_owned());
        }
        if mma.passes_turn {
            add(" passes.turn".to_owned());
        }
        text
    }

    fn part(&self, name: &str, part: &Part) -> String {
        let Part { op, number, bytes } = part;
        format!("{name} {}.{number} {}..{}", self.number(*op), bytes.start, bytes.end)
    }

    /// `store.panel 14.3 buffer 1`
    fn panel(&self, name: &str, panel: &Panel) -> String {
        let Panel { op, number, buffer } = panel;
        format!("{name} {}.{number} buffer {buffer}", self.number(*op))
    }

    fn number(&self, op: Op) -> u32 {
        self.numbers.get(&op).copied().unwrap_or(u32::MAX)
    }
}

fn bytes(bytes: &Bytes) -> String {
    let range = format!("{}..{}", bytes.range.start, bytes.range.end);
    match bytes.stage {
        Some(stage) => {
            format!("{range} stage {} of {} by {}", stage.first, stage.count, stage.bytes)
        }
        None => range,
    }
}
