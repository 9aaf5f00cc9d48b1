//! From a function of tile IR to one LLVM function: the loop over programs, and every op in order.
//!
//! The LLVM function is `void kernel(const u64* args, const i64* grid, i64 begin, i64 end, u8* scratch)`.
//! `args` has one 8-byte slot for each parameter, flattened: a pointer is its address, a scalar stands in
//! the low bytes, a view is its address, extents and strides. `grid` has the three extents, the address
//! of a [`Host`](super::run::Host), which asserts and prints call back, and a zero that LLVM does not
//! know to be one.
//! `begin..end` are linear program ids, axis 0 fastest.

use super::super::elementwise::from_memory;
use super::super::llvm::{Emitter, IntPred, Ty, Val};
use super::chunk::Chunk;
use super::lowering::{Lower, Program, View};
use super::plan::{Plan, is_root};
use crate::Error;
use crate::ir::{Elem, Func, Op, OpKind, Region, TileType, Type, Value};

/// The name of the function in every object.
pub(super) const SYMBOL: &str = "kernel";

/// Bytes at the start of scratch that masked-off scalar accesses use instead of memory.
const DUMMY_BYTES: u64 = 64;

/// Writes the function; gives the bytes of scratch that a program needs.
pub(super) fn lower(e: &Emitter, func: &Func) -> Result<u64, Error> {
    let (ptr, i64_ty) = (e.ptr(0), e.i64());
    let kernel = e.function(SYMBOL, e.void(), &[ptr, ptr, i64_ty, i64_ty, ptr]);
    e.add_enum_attr(kernel, "nounwind", 0);
    e.add_attr(kernel, "prefer-vector-width", "512");
    for param in [0, 1, 4] {
        e.add_param_attr(kernel, param, "noalias", 0);
    }
    let [args, grid, begin, end, scratch] = std::array::from_fn(|i| e.param(kernel, i as u32));
    let slot = |base, i: i64| e.gep(i64_ty, base, e.int(i64_ty, i));
    let word = |base, i| e.load_aligned(i64_ty, slot(base, i), 8);
    let counts = [word(grid, 0), word(grid, 1), word(grid, 2)];
    let host = e.inttoptr(word(grid, 3), ptr);
    let always = e.icmp(IntPred::Eq, word(grid, 4), e.int(i64_ty, 0));
    let entry_end = e.current_block();
    let [head, body, next, done] = ["programs", "program", "next", "done"].map(|n| e.block(n));
    let program =
        Program { ids: counts, counts, linear: begin, host, always, scratch, entry_end, next };
    let n = func.n_values();
    let mut lower = Lower {
        e,
        func,
        plan: Plan::new(func),
        scalars: vec![None; n],
        places: vec![None; n],
        pending: Vec::new(),
        targets: vec![None; n],
        program,
        n_asserts: 0,
        n_prints: 0,
        views: vec![None; n],
        scratch_bytes: DUMMY_BYTES,
    };
    lower.read_params(args);
    lower.program.entry_end = e.current_block();
    e.br(head);
    e.position(head);
    let linear = e.phi(i64_ty, &[(begin, lower.program.entry_end)]);
    e.cond_br(e.icmp(IntPred::Slt, linear, end), body, done);
    e.position(body);
    lower.enter_program(linear);
    lower.region(func.body)?;
    if !e.is_terminated() {
        e.br(next);
    }
    e.position(next);
    e.add_incoming(linear, e.add(linear, e.int(i64_ty, 1)), next);
    e.br(head);
    e.position(done);
    e.ret_void();
    Ok(lower.scratch_bytes)
}

impl Lower<'_> {
    fn read_params(&mut self, args: Val) {
        let e = self.e;
        let mut n_slots = 0;
        let mut slot = |ty: Ty| {
            let address = e.gep(e.i64(), args, e.int(e.i64(), n_slots));
            n_slots += 1;
            e.load_aligned(ty, address, 8)
        };
        for param in &self.func.params {
            let index = param.value.index();
            match self.func.ty(param.value) {
                Type::Tile(TileType { elem: Elem::Ptr(_), .. }) => {
                    self.scalars[index] = Some(e.inttoptr(slot(e.i64()), e.ptr(0)));
                }
                Type::Tile(TileType { elem: Elem::Data(dtype), .. }) => {
                    let value = slot(e.memory_ty(dtype));
                    self.scalars[index] = Some(from_memory(e, dtype, value));
                }
                Type::View { rank, .. } => {
                    let ptr = e.inttoptr(slot(e.i64()), e.ptr(0));
                    let dims = (0..rank).map(|_| slot(e.i64())).collect();
                    let strides = (0..rank).map(|_| slot(e.i64())).collect();
                    self.views[index] = Some(View { ptr, dims, strides });
                }
            }
        }
    }

    fn enter_program(&mut self, linear: Val) {
        let e = self.e;
        let [nx, ny, _] = self.program.counts;
        let rest = e.udiv(linear, nx);
        let x = e.sub(linear, e.mul(rest, nx));
        let z = e.udiv(rest, ny);
        let y = e.sub(rest, e.mul(z, ny));
        self.program.ids = [x, y, z];
        self.program.linear = linear;
    }

    /// Every op of a region up to its terminator, which is given back.
    pub(super) fn region(&mut self, region: Region) -> Result<Option<Op>, Error> {
        let func = self.func;
        for &op in &func.region(region).ops {
            match func.op(op).kind {
                OpKind::Yield => return Ok(Some(op)),
                OpKind::Return => {
                    self.end_program();
                    return Ok(Some(op));
                }
                _ => self.op(op)?,
            }
        }
        Ok(None)
    }

    fn op(&mut self, op: Op) -> Result<(), Error> {
        let data = self.func.op(op);
        match &data.kind {
            OpKind::Store => self.store(op),
            OpKind::AtomicRmw(..) | OpKind::AtomicCas(_) => self.atomic(op),
            OpKind::Reduce { .. } => self.reduce(op),
            OpKind::Scan { .. } => self.scan(op),
            OpKind::Gather { .. } => self.gather(op),
            OpKind::Scatter { axis } => self.scatter_tile(op, *axis as usize),
            OpKind::Histogram => self.histogram(op),
            OpKind::Dot { .. } => self.dot(op),
            OpKind::For(_) => self.for_loop(op),
            OpKind::While => self.while_loop(op),
            OpKind::If => self.branch(op),
            OpKind::Assert { .. } => self.assert(op),
            OpKind::Print { .. } => self.print(op),
            OpKind::ViewPtr | OpKind::ViewDim(_) | OpKind::ViewStride(_) => self.view_part(op),
            OpKind::ProgramId(_) | OpKind::NumPrograms(_) => self.program_part(op),
            kind if is_root(kind) => Err(Error::bug(format!("{kind:?} reached the CPU back end"))),
            _ => self.pure(op),
        }
    }

    /// A scalar is computed now; a tile waits for its readers.
    fn pure(&mut self, op: Op) -> Result<(), Error> {
        let results = self.func.op(op).results.clone();
        if results.iter().any(|r| self.plan.kept[r.index()]) {
            self.pending.push(op);
        }
        let scalars: Vec<Value> = results.into_iter().filter(|&r| !self.has_axes(r)).collect();
        if scalars.is_empty() {
            return Ok(());
        }
        for &operand in &self.func.op(op).operands {
            if self.has_axes(operand) {
                self.flush_reads(operand)?;
            }
        }
        let mut chunk = Chunk::scalar();
        for result in scalars {
            let value = self.compute(&mut chunk, result, &[])?;
            self.scalars[result.index()] = Some(value);
        }
        Ok(())
    }

    fn view_part(&mut self, op: Op) -> Result<(), Error> {
        let data = self.func.op(op);
        let view = self.views[data.operands[0].index()]
            .as_ref()
            .ok_or_else(|| Error::bug("a view that is no parameter"))?;
        let part = match data.kind {
            OpKind::ViewDim(axis) => view.dims[axis as usize],
            OpKind::ViewStride(axis) => view.strides[axis as usize],
            _ => view.ptr,
        };
        self.scalars[data.results[0].index()] = Some(part);
        Ok(())
    }

    fn program_part(&mut self, op: Op) -> Result<(), Error> {
        let data = self.func.op(op);
        let part = match data.kind {
            OpKind::ProgramId(axis) => self.program.ids[axis as usize],
            OpKind::NumPrograms(axis) => self.program.counts[axis as usize],
            _ => return Err(Error::bug("not an op about the program")),
        };
        self.scalars[data.results[0].index()] = Some(part);
        Ok(())
    }
}
