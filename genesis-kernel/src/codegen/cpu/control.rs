//! Loops and branches.
//!
//! Scalars that a loop carries are phis. Each tile that it carries has two buffers, the one of this
//! iteration and the one of the next, which change places at the back edge: so the next values may be
//! computed in any order from this iteration's, and nothing is copied. A value that the body yields is
//! computed right into the buffer of the next iteration.

use super::super::llvm::{Block, IntPred, Val};
use super::lowering::Lower;
use crate::Error;
use crate::ir::{Op, OpKind, Region, Value};

/// What a loop carries while it runs: one entry for each carried value.
struct Carried {
    /// The register, or the address of this iteration's buffer.
    now: Vec<Val>,
    /// The address of the next iteration's buffer; none for a scalar.
    next: Vec<Option<Val>>,
}

impl Lower<'_> {
    /// Registers of scalars, and first and second buffers of tiles, the first filled.
    fn enter_loop(&mut self, inits: &[Value]) -> Result<Carried, Error> {
        let (mut now, mut next) = (Vec::new(), Vec::new());
        for &init in inits {
            if self.has_axes(init) {
                let tile = self.func.tile(init);
                let (first, second) = (self.alloc(tile), self.alloc(tile));
                self.copy_to(init, first)?;
                now.push(first);
                next.push(Some(second));
            } else {
                now.push(self.scalar(init)?);
                next.push(None);
            }
        }
        self.flush_all()?;
        Ok(Carried { now, next })
    }

    /// Phis at the head of a loop, to be completed at its back edge.
    fn loop_phis(&mut self, start: &Carried, before: Block) -> Carried {
        let e = self.e;
        let phi = |v: Val| e.phi(e.type_of(v), &[(v, before)]);
        let now = start.now.iter().map(|&v| phi(v)).collect();
        let next = start.next.iter().map(|v| v.map(phi)).collect();
        Carried { now, next }
    }

    /// Gives a region's arguments the carried values.
    fn bind(&mut self, args: &[Value], carried: &[Val]) {
        for (&arg, &value) in args.iter().zip(carried) {
            if self.has_axes(arg) {
                self.places[arg.index()] = Some(value);
            } else {
                self.scalars[arg.index()] = Some(value);
            }
        }
    }

    /// Runs a region so that what it yields ends in the places or as the registers that are given back;
    /// none if the region ends the program.
    fn run_region(
        &mut self,
        region: Region,
        places: &[Option<Val>],
    ) -> Result<Option<Vec<Val>>, Error> {
        self.aim(region, places);
        let Some(end) = self.region(region)? else {
            return Err(Error::bug("a region without a terminator"));
        };
        let data = self.func.op(end);
        if data.kind == OpKind::Return {
            self.pending.clear();
            return Ok(None);
        }
        let mut values = Vec::new();
        for (&value, place) in data.operands.iter().zip(places) {
            match *place {
                Some(place) => {
                    let is_aimed = self.targets[value.index()] == Some(place);
                    if is_aimed && self.places[value.index()].is_none() {
                        self.flush_reads(value)?;
                    }
                    // A loop's result lies in the loop's own buffers, wherever it was aimed.
                    if self.places[value.index()] != Some(place) {
                        self.copy_to(value, place)?;
                    }
                    values.push(place);
                }
                None => values.push(self.scalar(value)?),
            }
        }
        self.flush_all()?;
        Ok(Some(values))
    }

    /// Tells the ops of a region whose results it yields to write them where they are wanted.
    fn aim(&mut self, region: Region, places: &[Option<Val>]) {
        let ops = self.func.region(region).ops.clone();
        let Some(&end) = ops.last() else { return };
        let yielded = self.func.op(end).operands.clone();
        for (&value, &place) in yielded.iter().zip(places) {
            // What a loop gives lies in one of its own two buffers, and is copied.
            let is_loop = |op: Op| self.func.op(op).kind.is_loop();
            let is_own =
                self.func.def_op(value).is_some_and(|op| ops.contains(&op) && !is_loop(op));
            let is_free = self.targets[value.index()].is_none();
            if let (Some(place), true, true) =
                (place, is_own && is_free, self.plan.kept[value.index()])
            {
                self.targets[value.index()] = Some(place);
            }
        }
    }

    /// A counted loop. The index is compared before it is stepped, so that it never wraps.
    pub(super) fn for_loop(&mut self, op: Op) -> Result<(), Error> {
        let e = self.e;
        let data = self.func.op(op);
        let (bounds, inits) = data.operands.split_at(3);
        let (lower, upper, step) =
            (self.scalar(bounds[0])?, self.scalar(bounds[1])?, self.scalar(bounds[2])?);
        let start = self.enter_loop(inits)?;
        let (body, done) = (e.block("for"), e.block("for_end"));
        let forward = e.icmp(IntPred::Sgt, step, self.index(0));
        let enters = e.and(forward, e.icmp(IntPred::Slt, lower, upper));
        let before = e.current_block();
        e.cond_br(enters, body, done);
        e.position(body);
        let i = e.phi(e.i64(), &[(lower, before)]);
        let carried = self.loop_phis(&start, before);
        let args = self.func.region(data.regions[0]).args.clone();
        self.scalars[args[0].index()] = Some(i);
        self.bind(&args[1..], &carried.now);
        let yielded = self.run_region(data.regions[0], &carried.next)?;
        let mut ways = vec![(start.now, before)];
        if let Some(yielded) = yielded {
            let left = e.sub(upper, i);
            let goes_on = e.icmp(IntPred::Ugt, left, step);
            let latch = e.current_block();
            e.add_incoming(i, e.add(i, step), latch);
            self.close_loop(&carried, &yielded, latch);
            e.cond_br(goes_on, body, done);
            ways.push((yielded, latch));
        }
        e.position(done);
        self.join_ways(&data.results.clone(), &ways);
        Ok(())
    }

    /// Completes the phis: the buffers change places.
    fn close_loop(&mut self, carried: &Carried, yielded: &[Val], latch: Block) {
        for ((&now, &next), &value) in carried.now.iter().zip(&carried.next).zip(yielded) {
            self.e.add_incoming(now, value, latch);
            if let Some(next) = next {
                self.e.add_incoming(next, now, latch);
            }
        }
    }

    /// The results of control flow: registers or addresses, chosen by the way control came.
    fn join_ways(&mut self, results: &[Value], ways: &[(Vec<Val>, Block)]) {
        let e = self.e;
        for (number, &result) in results.iter().enumerate() {
            let incoming: Vec<(Val, Block)> =
                ways.iter().map(|(values, block)| (values[number], *block)).collect();
            let is_tile = self.has_axes(result);
            let ty = if is_tile { e.ptr(0) } else { self.register_ty(self.func.tile(result)) };
            let value = match incoming.as_slice() {
                [] => e.zero(ty),
                [(first, _), rest @ ..] if rest.iter().all(|(v, _)| v == first) => *first,
                _ => e.phi(ty, &incoming),
            };
            let slot = if is_tile { &mut self.places } else { &mut self.scalars };
            slot[result.index()] = Some(value);
        }
    }

    /// A loop while its first region yields true.
    pub(super) fn while_loop(&mut self, op: Op) -> Result<(), Error> {
        let e = self.e;
        let data = self.func.op(op);
        let start = self.enter_loop(&data.operands.clone())?;
        let (head, body, done) = (e.block("while"), e.block("while_body"), e.block("while_end"));
        let before = e.current_block();
        e.br(head);
        e.position(head);
        let carried = self.loop_phis(&start, before);
        let args = self.func.region(data.regions[0]).args.clone();
        self.bind(&args, &carried.now);
        let goes_on = self.run_region(data.regions[0], &[None])?;
        let Some(goes_on) = goes_on else {
            e.position(body);
            e.unreachable();
            e.position(done);
            self.join_ways(&data.results.clone(), &[]);
            return Ok(());
        };
        let tested = e.current_block();
        e.cond_br(goes_on[0], body, done);
        e.position(body);
        let args = self.func.region(data.regions[1]).args.clone();
        self.bind(&args, &carried.now);
        if let Some(yielded) = self.run_region(data.regions[1], &carried.next)? {
            let latch = e.current_block();
            self.close_loop(&carried, &yielded, latch);
            e.br(head);
        }
        e.position(done);
        self.join_ways(&data.results.clone(), &[(carried.now, tested)]);
        Ok(())
    }

    /// A branch on a scalar.
    pub(super) fn branch(&mut self, op: Op) -> Result<(), Error> {
        let e = self.e;
        let data = self.func.op(op);
        self.flush_all()?;
        let cond = self.scalar(data.operands[0])?;
        let mut places = Vec::new();
        for &result in &data.results {
            places.push(self.has_axes(result).then(|| self.new_place(result)));
        }
        let blocks = [e.block("then"), e.block("else")];
        let done = e.block("if_end");
        e.cond_br(cond, blocks[0], blocks[1]);
        let mut ways = Vec::new();
        for (block, &region) in blocks.into_iter().zip(&data.regions) {
            e.position(block);
            if let Some(values) = self.run_region(region, &places)? {
                ways.push((values, e.current_block()));
                e.br(done);
            }
        }
        e.position(done);
        self.join_ways(&data.results.clone(), &ways);
        Ok(())
    }
}
