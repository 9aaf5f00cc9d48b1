//! Atomics: element by element, by one of the threads that hold an element. Which instruction does it, says machine IR.
//!
//! An addition whose old value nobody wants is one predicated `red` instruction, of a vector where it can be. What the
//! hardware lacks is a loop of compare-and-swap around the code of the elementwise op, so that NaN and -0 mean the same
//! everywhere. Where threads hold copies and the old value is wanted, the one thread hands it to the others through shared
//! memory.

use super::super::elementwise::{self, Target as Machine, from_memory, to_memory};
use super::super::llvm::{IntPred, Order, Rmw, Val};
use super::collective::Partial;
use super::lowering::Lowering;
use super::memory::operand_list;
use super::registers::Registers;
use crate::Error;
use crate::ir::{AtomicOp, BinaryOp, DType, MemoryScope, Op, OpKind};
use crate::layout::f2;
use crate::machine::{AtomicBy, Guard, scope_of};

fn integer_op(op: AtomicOp, signed: bool) -> Rmw {
    match (op, signed) {
        (AtomicOp::Add, _) => Rmw::Add,
        (AtomicOp::Max, true) => Rmw::Max,
        (AtomicOp::Max, false) => Rmw::UMax,
        (AtomicOp::Min, true) => Rmw::Min,
        (AtomicOp::Min, false) => Rmw::UMin,
        (AtomicOp::And, _) => Rmw::And,
        (AtomicOp::Or, _) => Rmw::Or,
        (AtomicOp::Xor, _) => Rmw::Xor,
        (AtomicOp::Exchange, _) => Rmw::Xchg,
    }
}

/// A scope in PTX.
pub(super) fn ptx_scope(scope: MemoryScope) -> &'static str {
    match scope {
        MemoryScope::Block => "cta",
        MemoryScope::Cluster => "cluster",
        MemoryScope::Gpu => "gpu",
        MemoryScope::System => "sys",
    }
}

/// An atomic of integers in PTX, without its scope.
fn ptx_op(op: AtomicOp, signed: bool) -> (&'static str, char) {
    match op {
        AtomicOp::Add => ("add", 'u'),
        AtomicOp::Max => ("max", if signed { 's' } else { 'u' }),
        AtomicOp::Min => ("min", if signed { 's' } else { 'u' }),
        AtomicOp::And => ("and", 'b'),
        AtomicOp::Or => ("or", 'b'),
        AtomicOp::Xor => ("xor", 'b'),
        AtomicOp::Exchange => ("exch", 'b'),
    }
}

/// The elementwise op of a loop of compare-and-swap.
fn swapped(kind: &OpKind) -> Result<BinaryOp, Error> {
    match kind {
        OpKind::AtomicRmw(AtomicOp::Add, _) => Ok(BinaryOp::Add),
        OpKind::AtomicRmw(AtomicOp::Max, _) => Ok(BinaryOp::Max),
        OpKind::AtomicRmw(AtomicOp::Min, _) => Ok(BinaryOp::Min),
        _ => Err(Error::bug(format!("{kind:?} is no loop"))),
    }
}

impl Lowering<'_> {
    pub(super) fn atomic(&mut self, op: Op, by: AtomicBy) -> Result<(), Error> {
        if let AtomicBy::Reduction { vector } = by {
            return self.atomic_reduction(op, vector.into());
        }
        let data = self.func.op(op);
        let operands = self.operands(op)?;
        let mask = data.kind.mask_operand().and_then(|position| operands.get(position));
        let access = self.lir.access(op);
        let dtype = self.dtype(data.results[0]);
        let scope = scope_of(self.lir, self.facts.gpu, op);
        let mut old = Vec::new();
        for reg in 0..operands[0].len() {
            let is_masked = self.guard(op, reg) == Guard::Masked;
            let on = self.predicate(&access, mask.map(|mask| mask[reg]).filter(|_| is_masked));
            let parts: Vec<Val> = operands.iter().map(|o| o[reg]).collect();
            old.push(if by == AtomicBy::SwapLoop {
                let binary = swapped(&data.kind)?;
                self.guarded(on, dtype, |lowering| {
                    lowering.swap_loop(binary, (dtype, scope), parts[0], parts[1])
                })?
            } else {
                self.guarded(on, dtype, |lowering| lowering.atomic_element(op, scope, &parts))?
            });
        }
        let is_wanted = self.facts.uses[data.results[0].index()] > 0;
        if is_wanted && self.facts.memory.scratch(op).is_some() {
            self.partial.insert(op, Partial::Registers(old));
            return Ok(());
        }
        self.result(op, old)
    }

    /// Additions to as many neighbouring elements at once, whose old values nobody wants.
    fn atomic_reduction(&mut self, op: Op, vector: usize) -> Result<(), Error> {
        let data = self.func.op(op);
        let operands = self.operands(op)?;
        let mask = data.kind.mask_operand().and_then(|position| operands.get(position));
        let access = self.lir.access(op);
        let dtype = self.dtype(data.results[0]);
        let scope = scope_of(self.lir, self.facts.gpu, op);
        for group in access.groups.iter().flat_map(|group| group.chunks(vector)) {
            let leader = group[0] as usize;
            let is_masked = self.guard(op, leader) == Guard::Masked;
            let on = self.predicate(&access, mask.map(|mask| mask[leader]).filter(|_| is_masked));
            let values: Vec<Val> = group.iter().map(|&reg| operands[1][reg as usize]).collect();
            self.reduce_in_memory(scope, dtype, operands[0][leader], &values, on)?;
        }
        let zero = self.e.zero(self.e.register_ty(dtype));
        self.result(op, vec![zero; operands[0].len()])
    }

    /// Adds to neighbouring elements, the first of which a pointer is to.
    fn reduce_in_memory(
        &self,
        scope: MemoryScope,
        dtype: DType,
        ptr: Val,
        values: &[Val],
        on: Option<Val>,
    ) -> Result<(), Error> {
        let e = self.e;
        let (name, ty) = match dtype {
            DType::F32 => ("add", "f32"),
            DType::F64 => ("add", "f64"),
            DType::I32 | DType::U32 => ("add", "u32"),
            DType::I64 | DType::U64 => ("add", "u64"),
            DType::F16 => ("add.noftz", "f16"),
            DType::BF16 => ("add.noftz", "bf16"),
            _ => return Err(Error::bug(format!("memory does not add to {dtype}"))),
        };
        let letter = match (dtype, dtype.bytes()) {
            (DType::F32, _) => 'f',
            (DType::F64, _) => 'd',
            (_, 2) => 'h',
            (_, 4) => 'r',
            _ => 'l',
        };
        let on = on.unwrap_or_else(|| e.bool(true));
        let scope = ptx_scope(scope);
        let vector = match values.len() {
            1 => String::new(),
            n => format!(".v{n}"),
        };
        let list = operand_list(2, values.len() as u32);
        let text = format!("@$0 red.relaxed.{scope}.global.{name}{vector}.{ty} [$1], {list};");
        let constraints = format!("b,l{},~{{memory}}", format!(",{letter}").repeat(values.len()));
        let args: Vec<Val> = [on, ptr].into_iter().chain(values.iter().copied()).collect();
        e.inline_asm(e.void(), &text, &constraints, &args, true);
        Ok(())
    }

    /// Runs code where `on` is true; zero elsewhere.
    fn guarded(
        &mut self,
        on: Option<Val>,
        dtype: DType,
        body: impl FnOnce(&mut Self) -> Result<Val, Error>,
    ) -> Result<Val, Error> {
        let Some(on) = on else { return body(self) };
        let e = self.e;
        let ty = e.register_ty(dtype);
        let (inside, done) = (e.block("on"), e.block("on.end"));
        let before = e.current_block();
        e.cond_br(on, inside, done);
        e.position(inside);
        let value = body(self)?;
        let after = e.current_block();
        e.br(done);
        e.position(done);
        Ok(e.phi(ty, &[(e.zero(ty), before), (value, after)]))
    }

    fn atomic_element(
        &mut self,
        op: Op,
        scope: MemoryScope,
        operands: &[Val],
    ) -> Result<Val, Error> {
        let e = self.e;
        let data = self.func.op(op);
        let dtype = self.dtype(data.results[0]);
        let bits = e.int_ty(dtype.bytes() as u32 * 8);
        let to_bits = |x| e.bitcast(to_memory(e, dtype, x), bits);
        let from_bits = |x| from_memory(e, dtype, e.bitcast(x, e.memory_ty(dtype)));
        match data.kind {
            OpKind::AtomicRmw(AtomicOp::Add, _) if matches!(dtype, DType::F32 | DType::F64) => {
                let name = if dtype == DType::F32 { "add.f32" } else { "add.f64" };
                Ok(match scope {
                    MemoryScope::Gpu => {
                        e.atomic_rmw(Rmw::FAdd, operands[0], operands[1], Order::Relaxed)
                    }
                    scope => self.scoped(name, scope, &operands[..2]),
                })
            }
            OpKind::AtomicRmw(atomic, _) => {
                let (signed, value) = (dtype.is_signed_int(), to_bits(operands[1]));
                let old = match scope {
                    MemoryScope::Gpu => {
                        e.atomic_rmw(integer_op(atomic, signed), operands[0], value, Order::Relaxed)
                    }
                    scope => {
                        let (name, class) = ptx_op(atomic, signed);
                        let name = format!("{name}.{class}{}", dtype.bytes() * 8);
                        self.scoped(&name, scope, &[operands[0], value])
                    }
                };
                Ok(from_bits(old))
            }
            _ => {
                let (expected, new) = (to_bits(operands[1]), to_bits(operands[2]));
                Ok(from_bits(self.compare_and_swap((dtype, scope), operands[0], expected, new)))
            }
        }
    }

    fn compare_and_swap(
        &self,
        (dtype, scope): (DType, MemoryScope),
        ptr: Val,
        expected: Val,
        new: Val,
    ) -> Val {
        let e = self.e;
        match scope {
            MemoryScope::Gpu => e.atomic_cas(ptr, expected, new, Order::Relaxed),
            scope => {
                let name = format!("cas.b{}", dtype.bytes() * 8);
                self.scoped(&name, scope, &[ptr, expected, new])
            }
        }
    }

    /// An atomic of another scope than the GPU's, which LLVM has no instruction for: it writes no scope, and that is the
    /// GPU's to PTX. Gives the old value, of the type of the last operand.
    fn scoped(&self, name: &str, scope: MemoryScope, operands: &[Val]) -> Val {
        let e = self.e;
        let letter = match name.rsplit_once('.').map(|(_, ty)| ty) {
            Some("f32") => 'f',
            Some("f64") => 'd',
            Some("b16") => 'h',
            Some(ty) if ty.ends_with("64") => 'l',
            _ => 'r',
        };
        let values = operands.len() - 1;
        let places: Vec<String> = (2..2 + values).map(|n| format!("${n}")).collect();
        let scope = ptx_scope(scope);
        let text = format!("atom.relaxed.{scope}.global.{name} $0, [$1], {};", places.join(", "));
        let constraints = format!("={letter},l{},~{{memory}}", format!(",{letter}").repeat(values));
        e.inline_asm(e.type_of(operands[values]), &text, &constraints, operands, true)
    }

    fn swap_loop(
        &mut self,
        binary: BinaryOp,
        (dtype, scope): (DType, MemoryScope),
        ptr: Val,
        value: Val,
    ) -> Result<Val, Error> {
        let e = self.e;
        let bits = e.int_ty(dtype.bits());
        let first = e.load_aligned(bits, ptr, dtype.bytes() as u32);
        e.set_volatile(first);
        let (before, again, done) = (e.current_block(), e.block("again"), e.block("swapped"));
        e.br(again);
        e.position(again);
        let seen = e.phi(bits, &[(first, before)]);
        let old = e.bitcast(seen, e.register_ty(dtype));
        let new = elementwise::binary(e, Machine::Nvptx, binary, dtype, &[old, value])?;
        let found = self.compare_and_swap((dtype, scope), ptr, seen, e.bitcast(new, bits));
        e.add_incoming(seen, found, e.current_block());
        e.cond_br(e.icmp(IntPred::Eq, found, seen), done, again);
        e.position(done);
        Ok(old)
    }

    /// Writes old values, by the threads that have them.
    pub(super) fn store_old_values(&mut self, op: Op) -> Result<(), Error> {
        let Some(Partial::Registers(old)) = self.partial.remove(&op) else {
            return Err(Error::bug("an atomic gave nothing"));
        };
        let result = self.func.op(op).results[0];
        let addresses = self.old_value_addresses(op)?;
        let (lanes, warps) = match self.lir.layout(result) {
            Some(layout) => (layout.free_lanes(), layout.free_warps()),
            None => (31, self.lir.num_warps - 1),
        };
        let first = self.threads.all_zero(self.e, lanes, warps);
        for (&value, &address) in old.iter().zip(addresses.iter()) {
            self.write_shared(result, &[value], address, first);
        }
        Ok(())
    }

    /// Reads them, in every thread that holds a copy.
    pub(super) fn load_old_values(&mut self, op: Op) -> Result<(), Error> {
        let e = self.e;
        let dtype = self.dtype(self.func.op(op).results[0]);
        let size = dtype.bytes() as u32;
        let load = |&address: &Val| {
            from_memory(e, dtype, e.load_aligned(e.memory_ty(dtype), address, size))
        };
        let old = self.old_value_addresses(op)?.iter().map(load).collect();
        self.result(op, old)
    }

    /// Where each register's old value is in shared memory.
    fn old_value_addresses(&mut self, op: Op) -> Result<Registers, Error> {
        let e = self.e;
        let start = self.scratch(op)?.start;
        let result = self.func.op(op).results[0];
        let size = self.dtype(result).bytes() as u32;
        let Some(layout) = self.lir.layout(result).cloned() else {
            return Ok(Registers::from(vec![self.shared_at(e.int(e.i32(), i64::from(start)))]));
        };
        let scale = |bases: &[u32]| bases.iter().map(|b| b * size).collect::<Vec<u32>>();
        let thread = self.threads.map(e, &scale(&layout.lane), &scale(&layout.warp));
        let at = |reg| i64::from(f2::combine(&layout.reg, reg) * size + start);
        let all = 0..layout.num_regs();
        Ok(all.map(|reg| self.shared_at(e.add(thread, e.int(e.i32(), at(reg))))).collect())
    }
}
