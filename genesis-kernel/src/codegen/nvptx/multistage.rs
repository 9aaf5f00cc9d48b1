//! Loops over a multistage buffer: `cp.async` fills shared-memory stages ahead of the MMAs that read them.
//!
//! Which copies, waits and barriers there are, and where, says machine IR (see [`crate::machine`]); here are the
//! registers that such a loop carries: the stage that is read, the stage that is filled, and indices loaded ahead.
//!
//! A copy of 4, 8 or 16 bytes is `cp.async`, which passes by the registers; a mask that is false makes zeros of it. Where
//! addresses allow only less, the bytes are loaded before the body and stored to the stage after it, when they have
//! arrived.
//!
//! Where addresses follow from indices in memory, such as the pages of a cache, these are loaded one iteration ahead of the
//! copies that need them, and carried in registers: otherwise each iteration would wait for a load before its copies
//! begin.
//!
//! ```text
//! before the loop      load indices of iterations 0 .. stages, then copy 0 .. stages - 1
//! iteration i          copy iteration i + stages - 1, whose indices are in registers
//!                      load the indices of iteration i + stages
//! ```

use std::collections::BTreeMap;

use super::super::llvm::{Block as LlvmBlock, IntPred, Val};
use super::copying::{Ahead, Copying, Header, Late};
use super::lowering::Lowering;
use super::memory::Cached;
use super::registers::Registers;
use crate::Error;
use crate::ir::{DType, Op, OpKind};
use crate::layout::{MultistageBuffer, StagedLoad};
use crate::machine::For;

impl<'a> Lowering<'a> {
    /// A counted loop over a multistage buffer.
    pub(super) fn multistage_loop(
        &mut self,
        inner: &'a For,
        buffer: &MultistageBuffer,
    ) -> Result<(), Error> {
        let e = self.e;
        let data = self.func.op(inner.op);
        let [lower, upper, step] = [0, 1, 2].map(|i| data.operands[i]);
        let [lower, upper, step] = [self.scalar(lower)?, self.scalar(upper)?, self.scalar(step)?];
        if inner.hoisted {
            self.begin_copies(inner, buffer, [lower, upper, step])?;
        }
        let inits: Vec<Registers> =
            data.operands[3..].iter().map(|&v| self.get(v)).collect::<Result<_, _>>()?;
        let advances = e.icmp(IntPred::Sgt, step, e.int(e.i64(), 0));
        let (first, header) = (e.block("ring"), e.block("ring.for"));
        let (body, done) = (e.block("ring.body"), e.block("ring.end"));
        let before = e.current_block();
        e.cond_br(advances, first, done);

        e.position(first);
        if !inner.hoisted {
            self.begin_copies(inner, buffer, [lower, upper, step])?;
        }
        let filled = e.current_block();
        e.br(header);

        e.position(header);
        self.enter_header(buffer, (lower, filled))?;
        let carried = self.carried(&inits, filled);
        let index = self.header()?.index;
        let again = e.icmp(IntPred::Slt, index, upper);
        e.cond_br(again, body, done);

        e.position(body);
        let region = data.regions[0];
        let args = self.func.region(region).args.clone();
        self.set(args[0], vec![index]);
        self.bind(&args[1..], &carried.registers());
        for load in &buffer.loads {
            let read = self.header()?.read;
            self.buffers.slots.insert(load.op, read);
        }
        if let Some(next) = self.region(&inner.body)? {
            let last = e.current_block();
            self.close_header(buffer, step, last)?;
            let back = e.br(header);
            self.close_loop(&inner.body, &carried, &next, last, back);
        }
        self.buffers.copying.pop();

        e.position(done);
        let skipped: Vec<Vec<Val>> = inits.iter().map(|r| r.to_vec()).collect();
        self.merge(&data.results, &[(before, skipped), (header, carried.phis)]);
        Ok(())
    }

    /// The loop's prologue.
    fn begin_copies(
        &mut self,
        inner: &'a For,
        buffer: &MultistageBuffer,
        bounds: [Val; 3],
    ) -> Result<(), Error> {
        let first = self.first_iterations(buffer, bounds);
        self.buffers.copying.push(Copying {
            of: inner.op,
            bounds: [bounds[1], bounds[2]],
            first,
            header: None,
            indices: BTreeMap::new(),
            current: None,
            late: Vec::new(),
        });
        self.run(&inner.prologue)
    }

    /// The phis of the loop's header, where the builder stands; `lower` comes from the block of the prologue.
    fn enter_header(
        &mut self,
        buffer: &MultistageBuffer,
        (lower, filled): (Val, LlvmBlock),
    ) -> Result<(), Error> {
        let e = self.e;
        let next = self.copying()?.indices.remove(&(buffer.stages - 1)).unwrap_or_default();
        let last_stage = e.int(e.i32(), i64::from(buffer.bytes() - buffer.slot_bytes));
        let header = Header {
            index: e.phi(e.i64(), &[(lower, filled)]),
            read: e.phi(e.i32(), &[(e.int(e.i32(), 0), filled)]),
            write: e.phi(e.i32(), &[(last_stage, filled)]),
            indices: self.carried(&next, filled),
        };
        self.copying()?.header = Some(header);
        Ok(())
    }

    /// What the phis become by way of the last block of the body.
    fn close_header(
        &mut self,
        buffer: &MultistageBuffer,
        step: Val,
        last: LlvmBlock,
    ) -> Result<(), Error> {
        let e = self.e;
        let next = self.copying()?.indices.remove(&buffer.stages).unwrap_or_default();
        let header = self.header()?;
        e.add_incoming(header.index, e.add(header.index, step), last);
        for stage in [header.read, header.write] {
            e.add_incoming(stage, self.stage_after(buffer, stage), last);
        }
        header.indices.close(e, &next, last);
        Ok(())
    }

    fn copying(&mut self) -> Result<&mut Copying, Error> {
        self.buffers.copying.last_mut().ok_or_else(|| Error::bug("a copy outside of its loop"))
    }

    fn header(&self) -> Result<&Header, Error> {
        let header = self.buffers.copying.last().and_then(|copying| copying.header.as_ref());
        header.ok_or_else(|| Error::bug("a loop over a multistage buffer has not begun"))
    }

    /// Where the current iteration's tile of a load is in shared memory: bytes, and the stage to add.
    pub(super) fn slot_of(&mut self, load: Op) -> Result<(u32, Option<Val>), Error> {
        let bug = || Error::bug("a load of a multistage buffer has no stage");
        let found =
            self.lir.multistage.iter().find_map(|(&op, buffer)| Some((op, buffer.load(load)?)));
        let (op, copied) = found.ok_or_else(bug)?;
        let stage = *self.buffers.slots.get(&load).ok_or_else(bug)?;
        Ok((self.scratch(op)?.start + copied.offset, Some(stage)))
    }

    /// The iterations that are copied before the loop, and the one behind them.
    fn first_iterations(
        &self,
        buffer: &MultistageBuffer,
        [lower, upper, step]: [Val; 3],
    ) -> Vec<Ahead> {
        let e = self.e;
        let (mut index, mut exists) = (lower, e.bool(true));
        let stages = (0..buffer.stages).map(|stage| {
            // An index that passes the largest number begins again below the loop's lower bound.
            let in_order = e.icmp(IntPred::Sge, index, lower);
            exists = e.and(exists, e.and(in_order, e.icmp(IntPred::Slt, index, upper)));
            let at = e.int(e.i32(), i64::from(stage * buffer.slot_bytes));
            let ahead = Ahead { index, exists, at };
            index = e.add(index, step);
            ahead
        });
        stages.collect()
    }

    /// The iteration that is so many ahead: of the loop's first one in its prologue, of the current one in its body.
    fn iteration_ahead(&mut self, count: u32) -> Result<Ahead, Error> {
        let e = self.e;
        let copying = self.copying()?;
        let [upper, step] = copying.bounds;
        let Some(header) = &copying.header else {
            let ahead = copying.first.get(count as usize).copied();
            return ahead.ok_or_else(|| Error::bug("a prologue copies too many iterations"));
        };
        let (current, at) = (header.index, header.write);
        let distance = e.mul(step, e.int(e.i64(), i64::from(count)));
        let index = e.add(current, distance);
        let in_order = e.icmp(IntPred::Sgt, index, current);
        let exists = e.and(in_order, e.icmp(IntPred::Slt, index, upper));
        Ok(Ahead { index, exists, at })
    }

    /// Runs some of the ops that a buffer's addresses follow from, for an iteration; then the loop's index is again what
    /// it was.
    fn in_iteration(
        &mut self,
        ahead: Ahead,
        run: impl FnOnce(&mut Self, &MultistageBuffer) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let of = self.copying()?.of;
        let lir = self.lir;
        let buffer = lir.multistage.get(&of);
        let buffer = buffer.ok_or_else(|| Error::bug("a loop has no multistage buffer"))?;
        let index = self.func.region(self.func.op(of).regions[0]).args[0];
        self.set(index, vec![ahead.index]);
        run(self, buffer)?;
        if let Some(header) = &self.copying()?.header {
            let current = header.index;
            self.set(index, vec![current]);
        }
        Ok(())
    }

    /// Loads what the addresses of an iteration's copies follow from.
    pub(super) fn load_indices(&mut self, count: u32) -> Result<(), Error> {
        let ahead = self.iteration_ahead(count)?;
        let mut indices = Vec::new();
        self.in_iteration(ahead, |lowering, buffer| {
            let func = lowering.func;
            let is_load = |&inner: &Op| func.op(inner).kind == OpKind::Load;
            let last = buffer.slice.iter().rposition(is_load).map_or(0, |last| last + 1);
            for &inner in &buffer.slice[..last] {
                match func.op(inner).kind {
                    OpKind::Load => {
                        lowering.load_where(inner, Some(ahead.exists))?;
                        indices.push(lowering.get(func.op(inner).results[0])?);
                    }
                    _ => lowering.op(inner)?,
                }
            }
            Ok(())
        })?;
        self.copying()?.indices.insert(count, indices);
        Ok(())
    }

    /// Computes the addresses and masks of an iteration's copies.
    pub(super) fn addresses(&mut self, count: u32) -> Result<(), Error> {
        let ahead = self.iteration_ahead(count)?;
        let carried = self.copying()?.header.as_ref().map(|header| header.indices.registers());
        let known = match carried {
            Some(carried) => carried,
            None => self.copying()?.indices.get(&count).cloned().unwrap_or_default(),
        };
        self.in_iteration(ahead, |lowering, buffer| {
            let func = lowering.func;
            let mut known = known.iter();
            for &inner in &buffer.slice {
                let data = func.op(inner);
                match (&data.kind, known.as_slice()) {
                    (OpKind::Load, [index, ..]) => {
                        lowering.set(data.results[0], index.clone());
                        known.next();
                    }
                    (OpKind::Load, []) => return Err(Error::bug("a copy has no index")),
                    _ => lowering.op(inner)?,
                }
            }
            Ok(())
        })?;
        self.copying()?.current = Some(ahead);
        Ok(())
    }

    /// Begins to copy a load's tile, of the iteration whose addresses were computed last.
    pub(super) fn copy(&mut self, load: Op) -> Result<(), Error> {
        let copying = self.copying()?;
        let (of, ahead) = (copying.of, copying.current);
        let ahead = ahead.ok_or_else(|| Error::bug("a copy has no addresses"))?;
        let copied = self.lir.multistage.get(&of).and_then(|buffer| buffer.load(load));
        let copied = copied.ok_or_else(|| Error::bug("a copy of no load"))?;
        let start = self.scratch(of)?.start + copied.offset;
        self.copy_tile(copied, start, ahead)
    }

    /// Stores what copies that `cp.async` can't do have loaded.
    pub(super) fn finish_copies(&mut self) -> Result<(), Error> {
        for Late { load, registers, address, on } in std::mem::take(&mut self.copying()?.late) {
            let value = self.func.op(load).results[0];
            self.write_shared(value, &registers, address, on);
        }
        Ok(())
    }

    fn copy_tile(&mut self, load: &StagedLoad, start: u32, ahead: Ahead) -> Result<(), Error> {
        let data = self.func.op(load.op);
        let operands = self.operands(load.op)?;
        let (ptr, mask) = (&operands[0], operands.get(1));
        let access = self.lir.access(load.op);
        let (lanes, warps) = (access.lane_copies, access.warp_copies);
        let on = match self.threads.all_zero(self.e, lanes, warps) {
            Some(first) => self.e.and(ahead.exists, first),
            None => ahead.exists,
        };
        let value = data.results[0];
        let size = self.dtype(value).bytes() as u32;
        let offsets = load.offsets();
        let thread = self.shared_thread(&load.store, size);
        for group in load.copies(self.lir) {
            let leader = group[0] as usize;
            let offset = offsets[leader];
            let address =
                self.shared_group(&load.store, thread, offset, size, start, Some(ahead.at));
            let mask = mask.map(|mask| mask[leader]);
            let bytes = size * group.len() as u32;
            if matches!(bytes, 4 | 8 | 16) {
                self.copy_async(address, ptr[leader], bytes, on, mask);
                continue;
            }
            let is_wanted = mask.map_or(ahead.exists, |mask| self.e.and(mask, ahead.exists));
            let dtype: DType = self.dtype(value);
            let n = group.len();
            let cached = Cached::usual(self.cached_by(load.op));
            let how = (Some(is_wanted), None);
            let registers = self.load_asm(dtype, n, ptr[leader], cached, how);
            let late = Late { load: load.op, registers, address, on: Some(on) };
            self.copying()?.late.push(late);
        }
        Ok(())
    }

    /// `cp.async` where `on` is true; zeros where the mask is false.
    fn copy_async(&self, to: Val, from: Val, bytes: u32, on: Val, mask: Option<Val>) {
        let e = self.e;
        let int = |n: u32| e.int(e.i32(), i64::from(n));
        // Copies of 16 bytes pass by the first-level cache.
        let cache = if bytes == 16 { "cg" } else { "ca" };
        let head = format!("@$0 cp.async.{cache}.shared.global.L2::128B [$1], [$2], {bytes}");
        match mask {
            Some(mask) => {
                let size = e.select(mask, int(bytes), int(0));
                let args = [on, to, from, size];
                let text = format!("{head}, $3;");
                e.inline_asm(e.void(), &text, "b,l,l,r,~{memory}", &args, true);
            }
            None => {
                let text = format!("{head};");
                e.inline_asm(e.void(), &text, "b,l,l,~{memory}", &[on, to, from], true);
            }
        }
    }

    fn stage_after(&self, buffer: &MultistageBuffer, stage: Val) -> Val {
        let e = self.e;
        let next = e.add(stage, e.int(e.i32(), i64::from(buffer.slot_bytes)));
        let wraps = e.icmp(IntPred::Eq, next, e.int(e.i32(), i64::from(buffer.bytes())));
        e.select(wraps, e.int(e.i32(), 0), next)
    }
}
