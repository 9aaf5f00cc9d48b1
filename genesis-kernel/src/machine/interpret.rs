//! Runs machine IR tile by tile, as unkindly as its protocol allows: a pass is tested without PTX.
//!
//! The interpreter of tile IR ([`crate::interp`]) says what a kernel means; this one says what its machine IR does. Ops
//! give the same tiles, but what is asynchronous happens at the worst moment:
//!
//! | what | when |
//! |---|---|
//! | `cp.async` overwrites a stage | where it is issued |
//! | its tile | is there after the `wait.copies` that covers it, for other threads after the next barrier |
//! | the copy engine | fills as many stages as are free, and refills one as soon as it is released |
//! | accumulators of an asynchronous MMA | are in flight until they are waited for |
//! | memory that is not constant | can't be read or written before `wait.grid` |
//!
//! What comes too early is an error that names the instruction, and what comes from the wrong stage is a wrong result.
//! A pipeline is a queue with one producer, so the producer runs first, and its stages are what a consumer finds; whether
//! the producer could have gone on at that point follows from the stages that were released.
//!
//! Tiles are whole: rows of a cluster's blocks and of a ping-pong schedule's warpgroups are not told apart, nor are the
//! steps of a reduction within a warp. [`crate::layout::simulate`] checks what each thread holds, the emulator runs PTX.

mod copies;
mod pipelines;
mod shared;
mod tensor_maps;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use self::copies::Loop;
use self::pipelines::{Fills, Reader};
use self::shared::Shared;
use self::tensor_maps::ViewArgument;
use super::tma_store::Panels;
use super::{Block, Bytes, For, Inst, Mma, MmaWait, Program, SharedMemory, WarpSpecialized};
use crate::interp::{Interpreter, Machine};
use crate::ir::{Func, InterpArg, Op, OpKind, Value};
use crate::layout::LayoutIr;
use crate::layout::ping_pong::ping_pong_loop;
use crate::target::GpuTarget;

type Checked = Result<(), String>;

/// How a block ends.
enum End {
    Next,
    Yield(Op),
    Return,
}

/// What all programs of a launch share.
struct Launch<'a> {
    lir: &'a LayoutIr,
    memory: &'a SharedMemory,
    grid: [u32; 3],
    /// One number for each parameter of the layout IR.
    slots: Vec<u64>,
    /// By parameter of the kernel as written.
    views: Vec<Option<ViewArgument>>,
    /// Buffers that the primary grid may write; none where it has ended.
    awaited: Vec<u64>,
    /// Whether the kernel may begin before the primary grid has ended.
    overlaps: bool,
}

/// Runs a kernel; gives what the memory of each argument that has some holds afterwards.
///
/// # Errors
/// At the first instruction that comes too early, by its text.
pub(super) fn run(
    kernel: &Func,
    (program, lir, memory): (&Program, &LayoutIr, &SharedMemory),
    gpu: &GpuTarget,
    grid: [u32; 3],
    args: &[InterpArg],
) -> Result<Vec<Vec<u8>>, String> {
    let overlaps = gpu.features.pdl;
    let mut interpreter = Interpreter::new(kernel);
    let (mut slots, mut views, mut awaited, mut starts) = (vec![], vec![], vec![], vec![]);
    for (param, arg) in kernel.params.iter().zip(args) {
        let mut add = |dtype, data: &[u8], writable| {
            let start = interpreter.add_buffer(&param.name, dtype, data.to_vec(), writable);
            starts.push(start);
            awaited.extend((overlaps && !param.attrs.constant).then_some(start));
            start
        };
        let (mut view, mut more) = (None, Vec::new());
        slots.push(match arg {
            InterpArg::Buffer(dtype, data) => add(*dtype, data, false),
            InterpArg::BufferMut(dtype, data) => add(*dtype, data, true),
            InterpArg::Scalar(scalar) => scalar.bits,
            InterpArg::View { dtype, data, offset, dims, strides, writable } => {
                let ptr = add(*dtype, data, *writable) + (offset * dtype.bytes()) as u64;
                more = dims.iter().chain(strides).map(|&n| n as u64).collect();
                view = Some(ViewArgument { ptr, dims: dims.clone(), strides: strides.clone() });
                ptr
            }
        });
        slots.extend(more);
        views.push(view);
    }
    let launch = Launch { lir, memory, grid, slots, views, awaited, overlaps };
    let programs = grid.iter().product();
    (0..programs).try_for_each(|number| launch.program(&mut interpreter, program, number))?;
    Ok(starts.into_iter().map(|start| interpreter.buffer(start).to_vec()).collect())
}

impl Launch<'_> {
    fn program(
        &self,
        interpreter: &mut Interpreter<'_>,
        program: &Program,
        number: u32,
    ) -> Checked {
        let mut fills = Fills::of(&self.lir.func.tma);
        match program {
            Program::Uniform(code) => {
                let mut role = self.role(interpreter, self.lir, &mut fills, number);
                role.run(&[&code.entry, &code.body])
            }
            Program::WarpSpecialized(roles) => self.roles(interpreter, roles, &mut fills, number),
        }
    }

    /// The producer, and then all consumers.
    fn roles(
        &self,
        interpreter: &mut Interpreter<'_>,
        roles: &WarpSpecialized,
        fills: &mut Fills,
        number: u32,
    ) -> Checked {
        let mut entry = roles.setup.clone();
        for part in &roles.producer {
            fills.begin_part();
            let mut role = self.role(interpreter, &part.lir, fills, number);
            role.run(&[&entry, &roles.producer_entry, &part.code.entry, &part.code.body])?;
            // The parts run one after the other: what the first has waited for is there.
            entry.retain(|inst| *inst == Inst::GridWait);
        }
        let sets = if ping_pong_loop(self.lir).is_some() { 2 } else { 1 };
        for set in 0..sets {
            let mut role = self.role(interpreter, self.lir, fills, number);
            role.set = Some(set).filter(|_| sets > 1);
            role.run(&[&roles.setup, &roles.consumers.entry, &roles.consumers.body])?;
        }
        Ok(())
    }

    fn role<'r>(
        &'r self,
        interpreter: &'r mut Interpreter<'_>,
        lir: &'r LayoutIr,
        fills: &'r mut Fills,
        number: u32,
    ) -> Role<'r> {
        let reader = Reader::of(fills);
        let mut tiles = interpreter.stepwise(&lir.func, self.grid);
        tiles.begin(number, &self.slots);
        tiles.hide(&self.awaited, true);
        Role {
            lir,
            launch: self,
            tiles,
            fills,
            reader,
            shared: Shared::default(),
            loops: Vec::new(),
            staged: BTreeMap::new(),
            in_flight: Vec::new(),
            exchanged: BTreeSet::new(),
            waited: !self.overlaps,
            set: None,
        }
    }
}

/// A tile that is not in registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Staged {
    /// In a stage of a TMA pipeline, by how many were filled before it, at an offset.
    Stage { channel: u8, number: usize, offset: u32 },
    /// What this op renames.
    Renamed(Op),
}

/// One role of a program.
struct Role<'r> {
    lir: &'r LayoutIr,
    launch: &'r Launch<'r>,
    /// Values and global memory.
    tiles: Machine<'r>,
    fills: &'r mut Fills,
    reader: Reader,
    shared: Shared,
    loops: Vec<Loop>,
    staged: BTreeMap<Value, Staged>,
    /// Accumulators of asynchronous MMAs, with their dots; the oldest first.
    in_flight: Vec<(Value, Op)>,
    /// Ops whose threads have exchanged what they need.
    exchanged: BTreeSet<Op>,
    /// Whether the primary grid's writes are visible.
    waited: bool,
    /// Which of two sets of consumers it is, where they alternate over tiles.
    set: Option<u32>,
}

impl Role<'_> {
    fn run(&mut self, blocks: &[&Block]) -> Checked {
        for block in blocks {
            self.block(block)?;
        }
        match self.in_flight.is_empty() && self.reader.is_idle() {
            true => Ok(()),
            false => {
                Err("the kernel ends with MMAs in flight, or a stage that they read".to_owned())
            }
        }
    }

    fn block(&mut self, block: &Block) -> Result<End, String> {
        for inst in block {
            let end = self.inst(inst).map_err(|why| match inst {
                // An instruction in it has been named.
                Inst::UnlessPrefetched { .. } => why,
                _ if !inst.blocks().is_empty() => why,
                _ => format!("{why}, at `{}`", text(inst, &self.lir.func)),
            })?;
            if !matches!(end, End::Next) {
                return Ok(end);
            }
        }
        Ok(End::Next)
    }

    fn inst(&mut self, inst: &Inst) -> Result<End, String> {
        match inst {
            Inst::Yield(op) => return Ok(End::Yield(*op)),
            Inst::Return(_) => return Ok(End::Return),
            Inst::For(inner) => return self.for_loop(inner),
            Inst::While { op, condition, body } => return self.while_loop(*op, condition, body),
            Inst::If { op, then, otherwise } => return self.branch(*op, [then, otherwise]),
            Inst::Exec { op, reads } => self.exec(*op, reads)?,
            Inst::Atomic { op, .. } | Inst::Recompute { op, .. } => self.effect(*op)?,
            Inst::Mma(mma) => self.mma(mma)?,
            Inst::WaitMma { complete, pending } => self.wait_mma(complete, *pending as usize)?,
            Inst::FinishMma(op) => self.in_flight.retain(|(_, other)| other != op),
            Inst::GridWait => {
                self.waited = true;
                self.tiles.hide(&self.launch.awaited, false);
            }
            Inst::StorePanel(panel) => self.registers(&[self.operand(panel.op, 0)])?,
            Inst::SendPanel(panel) => {
                let count = Panels::of(self.lir, panel.op).map_or(0, |panels| panels.count());
                if panel.number + 1 == count {
                    self.tma_store(panel.op)?;
                }
            }
            Inst::NoUnroll => {}
            Inst::UnlessPrefetched { channel, .. } if self.fills.is_prefetched(*channel) => {}
            Inst::UnlessPrefetched { body, .. } => return self.block(body),
            _ if self.copies(inst)? || self.exchange(inst)? => {}
            _ => self.pipeline(inst)?,
        }
        Ok(End::Next)
    }

    fn operand(&self, op: Op, number: usize) -> Value {
        self.lir.func.op(op).operands[number]
    }

    /// Fails unless these values are in registers.
    fn registers(&self, values: &[Value]) -> Checked {
        for value in values {
            if self.in_flight.iter().any(|(sums, _)| sums == value) {
                return Err(format!("%{} is in flight", value.0));
            }
            if self.staged.contains_key(value) {
                return Err(format!("%{} is in shared memory", value.0));
            }
        }
        Ok(())
    }

    /// Runs an op of registers.
    fn effect(&mut self, op: Op) -> Checked {
        let data = self.lir.func.op(op);
        self.registers(&data.operands)?;
        let writes = matches!(data.kind, OpKind::Store) || data.kind.is_atomic();
        if writes && !self.waited {
            return Err("memory is written that the primary grid may touch".to_owned());
        }
        self.tiles.run_op(op)
    }

    fn exec(&mut self, op: Op, reads: &[Bytes]) -> Checked {
        let data = self.lir.func.op(op);
        match data.kind {
            OpKind::TmaLoad(number) => self.tma_load(op, number),
            OpKind::TmaStore(_) => self.tma_store(op),
            OpKind::Dot { .. } => match self.lir.dots.get(&op).and_then(MmaWait::of) {
                // Its MMAs have given the sums.
                Some(MmaWait::Promoted) => Ok(()),
                _ => self.dot(op, reads),
            },
            _ if data.kind.is_view() && self.is_staged(data.operands[0]) => {
                self.staged.insert(data.results[0], Staged::Renamed(op));
                Ok(())
            }
            _ => {
                let needs = data.kind.is_exchange() && self.launch.memory.scratch(op).is_some();
                if needs && !self.exchanged.remove(&op) {
                    return Err("its threads have exchanged nothing".to_owned());
                }
                self.effect(op)
            }
        }
    }

    fn is_staged(&self, value: Value) -> bool {
        self.staged.contains_key(&value)
    }

    /// Reads a tile from shared memory where it is there.
    fn fetch(&mut self, value: Value) -> Checked {
        let func = &self.lir.func;
        match self.staged.get(&value) {
            Some(&Staged::Stage { channel, number, offset }) => {
                let tile = self.reader.tile(self.fills, channel, number, offset)?;
                self.tiles.set_elements(value, tile);
            }
            Some(&Staged::Renamed(op)) => {
                self.fetch(func.op(op).operands[0])?;
                self.tiles.run_op(op)?;
            }
            // What stands in a multistage buffer is renamed there.
            None => {
                if let Some(op) = func.def_op(value).filter(|&op| self.is_renamed_copy(op)) {
                    self.fetch(func.op(op).operands[0])?;
                    self.tiles.run_op(op)?;
                }
            }
        }
        Ok(())
    }

    /// A product of what its instruction reads.
    fn dot(&mut self, op: Op, reads: &[Bytes]) -> Checked {
        self.read(op, reads)?;
        let operands = self.lir.func.op(op).operands.clone();
        self.registers(&operands[2..])?;
        self.tiles.run_op(op)
    }

    /// Its operands become known.
    fn read(&mut self, op: Op, reads: &[Bytes]) -> Checked {
        let iteration = self.loops.last().map_or(0, |inner| inner.iteration);
        for bytes in reads {
            let range = bytes.at(iteration);
            match bytes.stage {
                None => self.shared.read_scratch(&range, op)?,
                Some(_) => {
                    let (load, tile) = self.shared.read_tile(&range)?;
                    self.tiles.set_elements(self.lir.func.op(load).results[0], tile);
                }
            }
        }
        let operands = self.lir.func.op(op).operands.clone();
        for &value in &operands[..2] {
            let in_flight = self.in_flight.iter().any(|(sums, _)| *sums == value);
            if in_flight {
                return Err(format!("%{} is in flight", value.0));
            }
            self.fetch(value)?;
        }
        Ok(())
    }

    fn mma(&mut self, mma: &Mma) -> Checked {
        self.read(mma.op, &mma.reads)?;
        // Accumulators stay in flight from one MMA to the next.
        self.tiles.run_op(mma.op)?;
        let sums = self.lir.func.op(mma.op).results[0];
        match mma.wait {
            MmaWait::Iteration => {
                for &channel in &mma.takes {
                    self.reader.take(channel, mma.op)?;
                }
                self.in_flight.push((sums, mma.op));
            }
            MmaWait::NextIteration => {
                self.reader.complete_held();
                self.in_flight = vec![(sums, mma.op)];
            }
            MmaWait::Promoted => self.in_flight.clear(),
        }
        Ok(())
    }

    /// All but the newest groups are complete.
    fn wait_mma(&mut self, complete: &[Op], pending: usize) -> Checked {
        let mut groups: Vec<Op> = self.in_flight.iter().map(|&(_, op)| op).collect();
        groups.dedup();
        let done = groups.len().saturating_sub(pending);
        let waited = &groups[..done];
        if let Some(missing) = complete.iter().find(|op| !waited.contains(op)) {
            return Err(format!("op {} may still be in flight", missing.0));
        }
        self.in_flight.retain(|(_, op)| !waited.contains(op));
        Ok(())
    }

    /// Hands values on, with where they are.
    fn assign(&mut self, to: &[Value], from: &[Value]) {
        let read = |value: &Value| (self.tiles.elements(*value), self.staged.get(value).copied());
        let values: Vec<_> = from.iter().map(read).collect();
        let flights: Vec<_> = from
            .iter()
            .map(|value| self.in_flight.iter().find(|(sums, _)| sums == value).map(|found| found.1))
            .collect();
        self.in_flight.retain(|(sums, _)| !from.contains(sums) && !to.contains(sums));
        for ((&value, (elements, staged)), flight) in to.iter().zip(values).zip(flights) {
            if let Some(elements) = elements {
                self.tiles.set_elements(value, elements);
            }
            self.staged.remove(&value);
            self.staged.extend(staged.map(|staged| (value, staged)));
            self.in_flight.extend(flight.map(|op| (value, op)));
        }
    }

    fn number(&self, value: Value) -> Result<i64, String> {
        let elements = self.tiles.elements(value);
        let first = elements.and_then(|elements| elements.first().copied());
        first.map(|bits| bits as i64).ok_or_else(|| format!("%{} is not known yet", value.0))
    }

    fn for_loop(&mut self, inner: &For) -> Result<End, String> {
        let data = self.lir.func.op(inner.op);
        let args = self.lir.func.region(data.regions[0]).args.clone();
        let [first, upper, step] = [0, 1, 2].map(|i| self.number(data.operands[i]));
        let (first, upper, step) = (first?, upper?, step?);
        let runs = step > 0 && first < upper;
        self.loops.push(Loop::new(inner.op, [first, upper, step]));
        if inner.hoisted || runs {
            self.block(&inner.prologue)?;
        }
        self.assign(&data.results, &data.operands[3..]);
        let mut index = Some(first).filter(|_| runs);
        while let Some(at) = index.filter(|&at| at < upper) {
            let iteration = self.begin_iteration(at);
            self.tiles.set_elements(args[0], Rc::new(vec![at as u64]));
            self.assign(&args[1..], &data.results);
            let own = self.set.is_none_or(|set| iteration % 2 == set);
            let other = inner.other.as_ref().filter(|_| !own);
            match self.block(other.unwrap_or(&inner.body))? {
                End::Yield(op) if other.is_none() => {
                    let next = self.lir.func.op(op).operands.clone();
                    self.check_yield(&next)?;
                    self.assign(&data.results, &next);
                }
                End::Return => return Ok(End::Return),
                End::Yield(_) | End::Next => {}
            }
            index = at.checked_add(step);
        }
        if runs {
            self.block(&inner.left)?;
        }
        self.loops.pop();
        Ok(End::Next)
    }

    /// Only accumulators that the next iteration's MMAs add to may be handed on in flight.
    fn check_yield(&self, values: &[Value]) -> Checked {
        let stays =
            |op: &Op| self.lir.dots.get(op).and_then(MmaWait::of) == Some(MmaWait::NextIteration);
        let early = |(sums, op): &&(Value, Op)| values.contains(sums) && !stays(op);
        match self.in_flight.iter().find(early) {
            Some((sums, _)) => Err(format!("%{} is in flight at an iteration's end", sums.0)),
            None => Ok(()),
        }
    }

    fn while_loop(&mut self, op: Op, condition: &Block, body: &Block) -> Result<End, String> {
        let data = self.lir.func.op(op);
        let args = data.regions.iter().map(|&region| self.lir.func.region(region).args.clone());
        let args: Vec<Vec<Value>> = args.collect();
        self.assign(&data.results, &data.operands);
        loop {
            self.assign(&args[0], &data.results);
            let End::Yield(decided) = self.block(condition)? else { return Ok(End::Return) };
            if self.number(self.operand(decided, 0))? == 0 {
                return Ok(End::Next);
            }
            self.assign(&args[1], &data.results);
            let End::Yield(next) = self.block(body)? else { return Ok(End::Return) };
            self.assign(&data.results, &self.lir.func.op(next).operands.clone());
        }
    }

    fn branch(&mut self, op: Op, ways: [&Block; 2]) -> Result<End, String> {
        let data = self.lir.func.op(op);
        self.registers(&data.operands)?;
        let taken = usize::from(self.number(data.operands[0])? == 0);
        match self.block(ways[taken])? {
            End::Yield(values) => {
                self.assign(&data.results, &self.lir.func.op(values).operands.clone());
                Ok(End::Next)
            }
            end => Ok(end),
        }
    }
}

/// The first line of an instruction.
fn text(inst: &Inst, func: &Func) -> String {
    let text = super::print(&vec![inst.clone()], func);
    text.lines().next().unwrap_or_default().trim().to_owned()
}
