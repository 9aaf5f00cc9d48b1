//! What went wrong in a run, at the kernel's own line.

use std::fmt;

use super::program::Program;

/// What a GPU would have said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// An address that is no memory.
    Address,
    /// An address that is no multiple of what is accessed.
    Misaligned,
    /// The kernel stopped itself.
    Trap,
    /// An instruction that may not be as it is.
    Instruction,
    /// Races, waits for ever and the like, of which a GPU says nothing.
    Order,
    /// The kernel or its arguments can't be run.
    Refused,
}

/// Why a run stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What a GPU would have said.
    pub kind: FaultKind,
    /// What is wrong.
    pub message: String,
    /// The file and line of the kernel's source, where the PTX says it.
    pub source: Option<(String, u32)>,
    /// The line of the PTX, from 1; 0 where no instruction is meant.
    pub ptx_line: u32,
    /// The program and the thread in its block.
    pub thread: Option<([u32; 3], u32)>,
}

impl Fault {
    /// The kernel or its arguments can't be run.
    pub fn refused(message: String) -> Fault {
        let kind = FaultKind::Refused;
        Fault { kind, message, source: None, ptx_line: 0, thread: None }
    }

    pub(super) fn at(program: &Program, inst: usize, message: String) -> Fault {
        let ptx_line = program.insts.get(inst).map_or(0, |inst| inst.line);
        let kind = FaultKind::Order;
        Fault { kind, message, source: source(program, inst), ptx_line, thread: None }
    }
}

fn source(program: &Program, inst: usize) -> Option<(String, u32)> {
    let (file, line, _) = program.insts.get(inst)?.source?;
    let (_, name) = program.files.iter().find(|(number, _)| *number == file)?;
    Some((name.clone(), line))
}

/// An instruction by where it stands.
pub(super) fn place(program: &Program, inst: usize) -> String {
    match source(program, inst) {
        Some((file, line)) => format!("{file}:{line}"),
        None => format!("line {} of the PTX", program.insts.get(inst).map_or(0, |inst| inst.line)),
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some((program, thread)) = self.thread {
            write!(f, " (program {program:?}, thread {thread})")?;
        }
        match &self.source {
            Some((file, line)) => write!(f, "\n  --> {file}:{line}")?,
            None if self.ptx_line > 0 => write!(f, "\n  --> line {} of the PTX", self.ptx_line)?,
            None => {}
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}
