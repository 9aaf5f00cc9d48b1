//! A kernel in machine IR: what its threads do together first, and what each role does.
//!
//! Without a producer all threads run one function. With one they set up mbarriers, meet, and part:
//!
//! ```text
//! setup        init.mbarriers, barrier, wait.grid                    all threads
//! producer     give.registers                                        its warpgroup
//!              wait.empty, arm, copies                               one of its threads
//! consumers    take.registers, wait.full, mma, ..                    all others
//! teardown     leave.cluster                                         all threads
//! ```
//!
//! A producer may have two parts: a prefetch of constant tiles, and what comes after the wait for the primary grid.

use super::{
    Block, Code, Constant, Inst, RunBy, SharedMemory, ping_pong, pipeline::lower, print,
    producer_ir, producer_prologue::producer_prologue, programmatic_dependent_launch,
    register_budget, setup,
};
use crate::ir::Func;
use crate::layout::LayoutIr;
use crate::target::GpuTarget;

/// A kernel's code.
pub(crate) enum Program {
    /// All threads of a block run the same.
    Uniform(Box<Code>),
    /// Warps have roles.
    WarpSpecialized(Box<WarpSpecialized>),
}

/// The code of a kernel whose warps have roles.
#[derive(Clone)]
pub(crate) struct WarpSpecialized {
    /// What all threads of a block do before they part.
    pub(crate) setup: Block,
    /// What the producer's warpgroup does before all but one of its threads leave.
    pub(crate) producer_entry: Block,
    /// What that thread does, one part after the other.
    pub(crate) producer: Vec<ProducerPart>,
    /// What the consumers do.
    pub(crate) consumers: Code,
    /// What all threads do at last.
    pub(crate) teardown: Block,
}

/// A part of a producer, which is a function of its own.
#[derive(Clone)]
pub(crate) struct ProducerPart {
    /// Its layout IR.
    pub(crate) lir: LayoutIr,
    /// Its code.
    pub(crate) code: Code,
    /// Which tiles it copies.
    pub(crate) constant: Constant,
}

impl Program {
    /// That of a kernel.
    pub(crate) fn of(lir: &LayoutIr, memory: &SharedMemory, gpu: &GpuTarget) -> Program {
        match &lir.producer {
            None => Program::Uniform(Box::new(lower(lir, memory, gpu, RunBy::Block))),
            Some(feeds) => {
                Program::WarpSpecialized(Box::new(WarpSpecialized::of(lir, feeds, memory, gpu)))
            }
        }
    }

    /// Its text.
    pub(crate) fn text(&self, lir: &LayoutIr) -> String {
        let func = &lir.func;
        match self {
            Program::Uniform(code) => print(&code.entry, func) + &code.text(func),
            Program::WarpSpecialized(roles) => roles.text(func),
        }
    }
}

impl Code {
    /// The text of its body, and of how its ops are computed.
    fn text(&self, func: &Func) -> String {
        print(&self.body, func) + &self.selection.text(func)
    }
}

impl WarpSpecialized {
    fn of(lir: &LayoutIr, feeds: &Func, memory: &SharedMemory, gpu: &GpuTarget) -> WarpSpecialized {
        let mut setup = setup::pipelines(lir, memory);
        let part = |func: &Func, constant: Constant| {
            let lir = producer_ir(func, lir);
            let code = lower(&lir, memory, gpu, RunBy::Producer(constant));
            ProducerPart { lir, code, constant }
        };
        let waits = [Inst::GridWait, Inst::LaunchDependents];
        let mut consumers = lower(lir, memory, gpu, RunBy::Consumers);
        let producer = match producer_prologue(lir, gpu) {
            Some(prologue) => {
                let mut rest = part(feeds, Constant::Prefetched);
                rest.code.entry.extend(waits.clone());
                consumers.entry.extend(waits);
                vec![part(&prologue, Constant::Prefetch), rest]
            }
            None => {
                programmatic_dependent_launch::after_setup(&mut setup, lir, memory, gpu);
                vec![part(feeds, Constant::All)]
            }
        };
        let mut producer_entry = Block::new();
        register_budget::run([&mut producer_entry, &mut consumers.entry], lir, gpu);
        if ping_pong::has_turns(lir) {
            consumers.entry.push(Inst::PassFirstTurn);
        }
        let leaves = (lir.num_blocks > 1).then_some(Inst::LeaveCluster);
        let teardown = leaves.into_iter().collect();
        WarpSpecialized { setup, producer_entry, producer, consumers, teardown }
    }

    fn text(&self, func: &Func) -> String {
        let mut sections = vec![("setup", print(&self.setup, func))];
        let last = self.producer.len() - 1;
        for (i, part) in self.producer.iter().enumerate() {
            let name = match i < last {
                true => "the producer, before it waits for the grid",
                false => "the producer",
            };
            let entry = if i == 0 { &self.producer_entry[..] } else { &[] };
            let entry: Block = entry.iter().chain(&part.code.entry).cloned().collect();
            let func = &part.lir.func;
            sections.push((name, print(&entry, func) + &part.code.text(func)));
        }
        let consumers = print(&self.consumers.entry, func) + &self.consumers.text(func);
        sections.push(("consumers", consumers));
        if !self.teardown.is_empty() {
            sections.push(("teardown", print(&self.teardown, func)));
        }
        let section = |(name, text)| format!("// {name}\n{text}");
        sections.into_iter().map(section).collect::<Vec<_>>().join("\n")
    }
}

/// What the threads of each role of a kernel do, as text; or why it does not compile.
pub(crate) fn text(lir: &LayoutIr, gpu: &GpuTarget) -> String {
    match SharedMemory::of(lir, gpu) {
        Ok(memory) => Program::of(lir, &memory, gpu).text(lir),
        Err(error) => error.to_string(),
    }
}
