//! Which file lowers which instruction and which op, and ops that only say which register is which.

use super::super::elementwise::{self, Target as Machine, packed_asm};
use super::super::llvm::Val;
use super::atomic::ptx_scope;
use super::lowering::Lowering;
use super::pipeline_state::Role;
use super::programmatic_dependent_launch;
use super::registers::Registers;
use super::thread;
use crate::Error;
use crate::ir::{Combine, Op, OpKind, Type, UnaryOp, Value};
use crate::machine::{Cast, Inst, Part, Register};

/// The barrier of the warps that compute, in a kernel with a producer; 0 is that of all threads.
const CONSUMERS: i64 = 1;

impl<'a> Lowering<'a> {
    /// A barrier of all threads of the cluster.
    fn cluster_barrier(&mut self) {
        thread::arrive_in_cluster(self.e);
        thread::await_cluster(self.e);
    }

    /// A barrier of all threads of the block that run this function.
    pub(super) fn barrier(&mut self) {
        match self.copies.as_ref().map(|copies| copies.role) {
            None => thread::barrier(self.e),
            Some(Role::Consumer) => {
                let e = self.e;
                let number =
                    match self.copies.as_ref().filter(|copies| copies.ping_pong_tiles.is_some()) {
                        Some(copies) => {
                            e.add(copies.unit, e.int(e.i32(), thread::FIRST_GROUP_BARRIER))
                        }
                        None => e.int(e.i32(), CONSUMERS),
                    };
                thread::named_barrier(self.e, number, 32 * self.lir.num_warps);
            }
            // It is one thread.
            Some(Role::Producer) => {}
        }
    }

    /// The code of a region. Gives what it yields; none where it returns from the kernel.
    pub(super) fn region(&mut self, block: &'a [Inst]) -> Result<Option<Vec<Registers>>, Error> {
        let depth = self.values.scopes.len();
        let yielded = self.until_end(block);
        while self.values.scopes.len() > depth {
            self.end_rematerialized();
        }
        yielded
    }

    fn until_end(&mut self, block: &'a [Inst]) -> Result<Option<Vec<Registers>>, Error> {
        for inst in block {
            match inst {
                Inst::Yield(op) => return self.operands(*op).map(Some),
                Inst::Return(_) => {
                    self.e.br(self.frame.exit);
                    return Ok(None);
                }
                _ => self.inst(inst)?,
            }
        }
        // The body of a function may end without a terminator.
        self.e.br(self.frame.exit);
        Ok(None)
    }

    /// Instructions that fall through.
    pub(super) fn run(&mut self, block: &'a [Inst]) -> Result<(), Error> {
        block.iter().try_for_each(|inst| self.inst(inst))
    }

    fn inst(&mut self, inst: &'a Inst) -> Result<(), Error> {
        let Some(op) = inst.op() else { return self.of_no_op(inst) };
        let outer = std::mem::replace(&mut self.here, op);
        self.e.locate(self.func.op(op).loc);
        self.part_of_op(op, inst)?;
        self.here = outer;
        self.e.locate(self.func.op(outer).loc);
        Ok(())
    }

    fn part_of_op(&mut self, op: Op, inst: &'a Inst) -> Result<(), Error> {
        match inst {
            Inst::Exec { .. } => self.lower(op),
            Inst::Mma(mma) => self.issue_mma(mma),
            Inst::Recompute { from, .. } => self.recompute(op, from),
            Inst::Combine { across, .. } => self.combine_across(op, *across),
            Inst::Atomic { by, .. } => self.atomic(op, *by),
            Inst::StorePanel(panel) => self.store_panel(panel),
            Inst::SendPanel(panel) => self.send_panel(panel),
            Inst::StoreShared(part) => self.store_part(part, false),
            Inst::StoreCluster(part) => self.store_part(part, true),
            Inst::AwaitCluster(_) => self.await_stores(op),
            Inst::LoadShared(part) => self.load_part(part),
            Inst::LoadIndices { ahead, .. } => self.load_indices(*ahead),
            Inst::Addresses { ahead, .. } => self.addresses(*ahead),
            Inst::Copy { load, .. } => self.copy(*load),
            Inst::FinishCopies { .. } => self.finish_copies(),
            Inst::For(inner) => self.for_loop(inner),
            Inst::While { condition, body, .. } => self.while_loop(op, condition, body),
            Inst::If { then, otherwise, .. } => self.if_else(op, [then, otherwise]),
            _ => Err(Error::bug(format!("{inst:?} is no part of an op"))),
        }
    }

    /// An instruction that is of no op: what synchronizes, and the state of pipelines.
    fn of_no_op(&mut self, inst: &'a Inst) -> Result<(), Error> {
        let e = self.e;
        match inst {
            Inst::Barrier => self.barrier(),
            Inst::ClusterBarrier => self.cluster_barrier(),
            Inst::ClusterWait => thread::await_cluster(e),
            Inst::GridWait => programmatic_dependent_launch::wait_for_grid(e),
            Inst::LaunchDependents => programmatic_dependent_launch::launch_dependents(e),
            Inst::CommitCopies => {
                e.inline_asm(e.void(), "cp.async.commit_group;", "~{memory}", &[], true);
            }
            Inst::WaitCopies(groups) => {
                let text = format!("cp.async.wait_group {groups};");
                e.inline_asm(e.void(), &text, "~{memory}", &[], true);
            }
            Inst::SchedulingBarrier(op) => self.scheduling_barrier(*op)?,
            Inst::WaitMma { complete, pending } => self.wait_mma(complete, *pending)?,
            // The branch that goes back says it.
            Inst::NoUnroll => {}
            Inst::AwaitTile => self.await_tile()?,
            Inst::PassTile => self.pass_tile()?,
            Inst::Rematerialize(ops) => self.begin_rematerialized(ops)?,
            Inst::Fence(scope) => {
                let text = format!("fence.acq_rel.{};", ptx_scope(*scope));
                e.inline_asm(e.void(), &text, "~{memory}", &[], true);
            }
            Inst::WaitPanels(left) => self.wait_panels(*left)?,
            Inst::WarpgroupBarrier => self.group_barrier()?,
            Inst::AsyncFence => {
                e.intrinsic("llvm.nvvm.fence.proxy.async.shared_cta", &[], &[]);
            }
            _ => self.pipeline_inst(inst)?,
        }
        Ok(())
    }

    /// An op that is a single instruction.
    pub(super) fn op(&mut self, op: Op) -> Result<(), Error> {
        let outer = std::mem::replace(&mut self.here, op);
        self.e.locate(self.func.op(op).loc);
        self.lower(op)?;
        self.here = outer;
        self.e.locate(self.func.op(outer).loc);
        Ok(())
    }

    /// Writes this thread's share of an exchange; `to_cluster` where other blocks need it.
    fn store_part(&mut self, part: &Part, to_cluster: bool) -> Result<(), Error> {
        match self.func.op(part.op).kind {
            OpKind::Reduce { .. } => self.store_partial_results(part.op, to_cluster),
            OpKind::Scan { .. } => self.store_totals(part.op, to_cluster),
            OpKind::ConvertLayout => self.store_converted(part.op),
            OpKind::Gather { .. } => self.store_gathered(part.op),
            OpKind::Scatter { .. } => self.store_scattered(part.op),
            OpKind::Histogram => self.store_histogram(part.op, part.number),
            OpKind::Dot { .. } => self.store_operands(part.op),
            OpKind::AtomicRmw(..) | OpKind::AtomicCas(_) => self.store_old_values(part.op),
            ref kind => Err(Error::bug(format!("{kind:?} exchanges nothing"))),
        }
    }

    /// Reads what threads have written.
    fn load_part(&mut self, part: &Part) -> Result<(), Error> {
        match self.func.op(part.op).kind {
            OpKind::Reduce { .. } => self.load_partial_results(part.op),
            OpKind::Scan { .. } => self.load_totals(part.op),
            OpKind::ConvertLayout => self.load_converted(part.op),
            OpKind::Gather { .. } => self.load_gathered(part.op),
            OpKind::Scatter { .. } => self.load_scattered(part.op),
            OpKind::Histogram => self.load_histogram(part.op, part.number),
            OpKind::AtomicRmw(..) | OpKind::AtomicCas(_) => self.load_old_values(part.op),
            ref kind => Err(Error::bug(format!("{kind:?} exchanges nothing"))),
        }
    }

    fn lower(&mut self, op: Op) -> Result<(), Error> {
        match self.facts.code.selection.casts.get(&op) {
            Some(&Cast::Codes { zero, step }) => return self.codes_less_zero(op, zero, step),
            Some(Cast::Pairs) => return self.cast_pairs(op),
            Some(Cast::Float8) => return self.cast_float8(op),
            None => {}
        }
        match &self.func.op(op).kind {
            OpKind::Const(scalar) => {
                let value = self.e.scalar(*scalar);
                self.result(op, vec![value])
            }
            OpKind::Iota => self.iota(op),
            OpKind::ProgramId(axis) => self.special_register(op, "id", *axis),
            OpKind::NumPrograms(axis) => self.special_register(op, "nid", *axis),
            OpKind::Unary(_)
            | OpKind::Binary(_)
            | OpKind::Compare(_)
            | OpKind::Select
            | OpKind::Fma
            | OpKind::Asm { .. }
            | OpKind::Cast
            | OpKind::Bitcast
            | OpKind::PtrAdd
            | OpKind::MultipleOf(_) => self.elementwise(op),
            OpKind::Broadcast
            | OpKind::ExpandDims { .. }
            | OpKind::Reshape
            | OpKind::Transpose { .. } => self.rename(op),
            OpKind::Join => self.join(op),
            OpKind::Split => self.split(op),
            OpKind::Load => self.load(op),
            OpKind::Store => self.store(op),
            OpKind::ViewPtr => self.view_part(op, |_| 0),
            OpKind::ViewDim(axis) => self.view_part(op, |_| 1 + *axis as usize),
            OpKind::ViewStride(axis) => self.view_part(op, |rank| 1 + rank + *axis as usize),
            OpKind::Reduce { .. } => self.reduce(op),
            OpKind::Scan { .. } => self.scan(op),
            OpKind::Gather { .. } => self.finish_gather(op),
            OpKind::Scatter { .. } => self.finish_scatter(op),
            OpKind::Histogram => self.finish_histogram(op),
            OpKind::Dot { .. } => self.dot(op),
            OpKind::Assert { .. } => self.assert(op),
            OpKind::Print { .. } => self.print(op),
            OpKind::ConvertLayout => self.convert_layout(op),
            OpKind::TmaLoad(number) => self.tma_load(op, *number),
            kind @ (OpKind::ViewLoad
            | OpKind::AtomicRmw(..)
            | OpKind::AtomicCas(_)
            | OpKind::TmaStore(_)
            | OpKind::ViewStore
            | OpKind::MakeView
            | OpKind::Yield
            | OpKind::Return
            | OpKind::For(_)
            | OpKind::While
            | OpKind::If) => Err(Error::bug(format!("{kind:?} reached GPU code generation"))),
        }
    }

    fn iota(&mut self, op: Op) -> Result<(), Error> {
        let result = self.func.op(op).results[0];
        let layout = self.layout(result)?;
        let ty = self.e.register_ty(self.dtype(result));
        let thread = self.threads.offset(self.e, &layout.lane, &layout.warp, &layout.block);
        let bits = self.e.int_bits(ty);
        let thread = match bits {
            0..32 => self.e.trunc(thread, ty),
            32 => thread,
            _ => self.e.zext(thread, ty),
        };
        let at = |reg| i64::from(crate::layout::f2::combine(&layout.reg, reg));
        let registers = (0..layout.num_regs())
            .map(|reg| match at(reg) {
                0 => thread,
                // Registers and threads hold different bits of the index, so that this can't carry.
                offset => self.e.add(thread, self.e.int(ty, offset)),
            })
            .collect();
        self.result(op, registers)?;
        self.note_increments(op)
    }

    fn special_register(&mut self, op: Op, name: &str, axis: u8) -> Result<(), Error> {
        let axis = ['x', 'y', 'z'].get(axis as usize).copied().unwrap_or('x');
        // A program is a block, or a cluster of them.
        let unit = if self.lir.num_blocks == 1 { "cta" } else { "cluster" };
        let (count, id) = name.split_at(name.len() - 2);
        let name = format!("llvm.nvvm.read.ptx.sreg.{count}{unit}{id}.{axis}");
        let number = self.e.intrinsic(&name, &[], &[]);
        let wide = self.e.zext(number, self.e.i64());
        self.result(op, vec![wide])
    }

    fn elementwise(&mut self, op: Op) -> Result<(), Error> {
        let result = self.func.op(op).results[0];
        if self.by_increments(op)? {
            return Ok(());
        }
        let operands = self.operands_of_rows(op)?;
        if let OpKind::Asm { pack: 2.., .. } = self.func.op(op).kind {
            return self.packed_asm(op, &operands);
        }
        if let OpKind::Unary(UnaryOp::TanFar) = self.func.op(op).kind {
            // A branch that is seldom taken: one for all elements of a thread, between which others would stand. Sines are
            // short: bf16 takes 12 % longer so, with 17 registers more.
            let all = self.one(op, &[self.e.build_vec(&operands[0])])?;
            let registers = (0..operands[0].len() as u32).map(|i| self.e.extract(all, i)).collect();
            return self.result(op, registers);
        }
        let mut registers: Vec<Val> = Vec::new();
        for reg in 0..self.lir.num_regs(result) as usize {
            let parts: Vec<Val> = operands.iter().map(|o| o[reg]).collect();
            registers.push(match self.without_code(op, reg, &parts, &registers) {
                Some(known) => known,
                None => self.one(op, &parts)?,
            });
        }
        self.result(op, registers)
    }

    /// Inline assembly of several elements: registers of a thread one after the other, the last again where there are
    /// too few.
    fn packed_asm(&mut self, op: Op, operands: &[Registers]) -> Result<(), Error> {
        let data = self.func.op(op);
        let OpKind::Asm { pack, .. } = data.kind else {
            return Err(Error::bug("this is no inline assembly"));
        };
        let n = self.lir.num_regs(data.results[0]) as usize;
        let mut registers: Vec<Val> = Vec::new();
        for first in (0..n).step_by(usize::from(pack)) {
            let numbers = (first..first + usize::from(pack)).map(|reg| reg.min(n - 1));
            let parts: Vec<Vec<Val>> =
                operands.iter().map(|of| numbers.clone().map(|reg| of[reg]).collect()).collect();
            registers.extend(packed_asm(self.e, self.func, op, &parts)?);
        }
        registers.truncate(n);
        self.result(op, registers)
    }

    /// A register of an op's result that needs no code, as machine IR has selected: of masks, and of what they select.
    pub(super) fn without_code(
        &self,
        op: Op,
        reg: usize,
        parts: &[Val],
        before: &[Val],
    ) -> Option<Val> {
        Some(match self.facts.code.selection.masks.register(op, reg)? {
            Register::Constant(value) => self.e.bool(value),
            Register::Equal(first) => before[first as usize],
            Register::Operand(i) => parts[i],
        })
    }

    /// Ops that only say which register is which.
    fn rename(&mut self, op: Op) -> Result<(), Error> {
        let operand = self.get(self.func.op(op).operands[0])?;
        if operand.is_empty() {
            // A tile in shared memory, which only a dot reads: it knows how the tile lies there.
            self.set(self.func.op(op).results[0], operand);
            return Ok(());
        }
        let map = self.lir.view_registers(op).ok_or_else(|| {
            Error::bug(format!("{:?} moves data between threads", self.func.op(op).kind))
        })?;
        let registers = map.iter().map(|&reg| operand[reg as usize]).collect();
        self.result(op, registers)?;
        self.note_increments(op)
    }

    fn join(&mut self, op: Op) -> Result<(), Error> {
        let operands = self.operands(op)?;
        let result = self.func.op(op).results[0];
        let bit = self.last_axis_register(result)?;
        let registers = (0..self.lir.num_regs(result))
            .map(|reg| operands[(reg >> bit & 1) as usize][without_bit(reg, bit) as usize])
            .collect();
        self.result(op, registers)
    }

    fn split(&mut self, op: Op) -> Result<(), Error> {
        let data = self.func.op(op);
        let operand = self.get(data.operands[0])?;
        let bit = self.last_axis_register(data.operands[0])?;
        let half = |wanted: u32| -> Vec<Val> {
            let all = 0..operand.len() as u32;
            all.filter(|reg| reg >> bit & 1 == wanted).map(|reg| operand[reg as usize]).collect()
        };
        self.set(data.results[0], half(0));
        self.set(data.results[1], half(1));
        Ok(())
    }

    /// The register bit that holds the last axis, of extent 2.
    fn last_axis_register(&self, value: Value) -> Result<usize, Error> {
        let bit = self.layout(value)?.holder(1).and_then(|bit| bit.reg());
        bit.ok_or_else(|| Error::bug("the halves of a tile are in different threads"))
    }

    fn view_part(&mut self, op: Op, part: impl Fn(usize) -> usize) -> Result<(), Error> {
        let view = self.func.op(op).operands[0];
        let rank = match self.func.ty(view) {
            Type::View { rank, .. } => rank as usize,
            Type::Tile(_) => return Err(Error::bug("a tile is no view")),
        };
        let value = self.get(view)?[part(rank)];
        self.result(op, vec![value])
    }

    /// Two elements, or as many pairs as the op has operands, to one by what the op says. Inside of a
    /// region nothing crosses threads.
    pub(super) fn combine(
        &mut self,
        op: Op,
        combine: Combine,
        left: &[Val],
        right: &[Val],
    ) -> Result<Vec<Val>, Error> {
        let data = self.func.op(op);
        match combine {
            Combine::Op(binary) => {
                let dtype = self.dtype(data.operands[0]);
                let pair = [left[0], right[0]];
                let one = elementwise::binary(self.e, Machine::Nvptx, binary, dtype, &pair)?;
                Ok(vec![one])
            }
            Combine::Region => {
                let region = data.regions[0];
                let args = &self.func.region(region).args;
                for (&arg, &value) in args.iter().zip(left.iter().chain(right)) {
                    self.set(arg, vec![value]);
                }
                let code = self.facts.code;
                let block = code.combines.get(&region);
                let block = block.ok_or_else(|| Error::bug("a combination without code"))?;
                let yielded = self.region(block)?;
                let yielded = yielded.ok_or_else(|| Error::bug("a combination returns"))?;
                Ok(yielded.iter().map(|registers| registers[0]).collect())
            }
        }
    }
}

/// A number without one of its bits: those above move down.
fn without_bit(number: u32, bit: usize) -> u32 {
    number & ((1 << bit) - 1) | number >> (bit + 1) << bit
}
