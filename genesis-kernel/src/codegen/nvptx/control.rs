//! Structured control flow as blocks and phis, one phi a register.
//!
//! Conditions and bounds are scalars, which all threads of a block agree on, so all take the same way.

use super::super::llvm::{Block as LlvmBlock, IntPred, Val};
use super::lowering::Lowering;
use super::registers::{Carried, Registers};
use crate::Error;
use crate::ir::{Op, Value};
use crate::machine::{Block, Counter, For, Inst};

impl<'a> Lowering<'a> {
    pub(super) fn for_loop(&mut self, inner: &'a For) -> Result<(), Error> {
        let (op, lir) = (inner.op, self.lir);
        if let Some(buffer) = lir.multistage.get(&op) {
            return self.multistage_loop(inner, buffer);
        }
        let e = self.e;
        let data = self.func.op(op);
        let [lower, upper, step] = [0, 1, 2].map(|i| data.operands[i]);
        let Counter { is_short, may_wrap } = self.counter(op)?;
        let [lower, upper, step] = [self.scalar(lower)?, self.scalar(upper)?, self.scalar(step)?]
            .map(|v| if is_short { e.trunc(v, e.i32()) } else { v });
        let inits: Vec<Registers> =
            data.operands[3..].iter().map(|&v| self.get(v)).collect::<Result<_, _>>()?;
        let advances = e.icmp(IntPred::Sgt, step, e.int(e.type_of(step), 0));
        let enters = e.and(advances, e.icmp(IntPred::Slt, lower, upper));
        let region = data.regions[0];
        let args = self.func.region(region).args.clone();
        let begun = self.words_of(&args[1..], &inits);
        let (body, done) = (e.block("for"), e.block("for.end"));
        let skipped = self.short(&data.results, &inits);
        let before = e.current_block();
        e.cond_br(enters, body, done);
        let mut ends = vec![(before, skipped)];

        e.position(body);
        let index = e.phi(e.type_of(step), &[(lower, before)]);
        let carried = self.carried(&begun, before);
        self.set(args[0], vec![if is_short { e.sext(index, e.i64()) } else { index }]);
        let held = self.of_words(&args[1..], &carried.registers());
        self.bind(&args[1..], &held);
        if let Some(next) = self.iteration(inner)? {
            // The test stands at the end: an iteration flows into the next one, as products that are
            // in flight across iterations must.
            let words = self.words_of(&args[1..], &next);
            let following = e.add(index, step);
            let again = match may_wrap {
                true => e.icmp(IntPred::Ugt, e.sub(upper, index), step),
                false => e.icmp(IntPred::Slt, following, upper),
            };
            let last = e.current_block();
            e.add_incoming(index, following, last);
            let left = e.block("for.left");
            let back = e.cond_br(again, body, left);
            self.close_loop(&inner.body, &carried, &words, last, back);
            e.position(left);
            // Taken apart here, not in the loop.
            let next = self.of_words(&args[1..], &words);
            let next = self.finish_products(inner, next)?;
            ends.push((e.current_block(), self.short(&data.results, &next)));
            e.br(done);
        }
        e.position(done);
        self.merge(&data.results, &ends);
        Ok(())
    }

    pub(super) fn while_loop(
        &mut self,
        op: Op,
        condition: &'a Block,
        repeated: &'a Block,
    ) -> Result<(), Error> {
        let e = self.e;
        let data = self.func.op(op);
        let inits = self.operands(op)?;
        let (header, body, done) = (e.block("while"), e.block("while.body"), e.block("while.end"));
        let before = e.current_block();
        e.br(header);

        e.position(header);
        let carried = self.carried(&inits, before);
        let args = self.func.region(data.regions[0]).args.clone();
        self.bind(&args, &carried.registers());
        let Some(yielded) = self.region(condition)? else {
            return Err(Error::bug("a condition returns"));
        };
        e.cond_br(yielded[0][0], body, done);

        e.position(body);
        let args = self.func.region(data.regions[1]).args.clone();
        self.bind(&args, &carried.registers());
        if let Some(next) = self.region(repeated)? {
            let last = e.current_block();
            let back = e.br(header);
            self.close_loop(repeated, &carried, &next, last, back);
        }

        e.position(done);
        self.bind(&data.results, &carried.registers());
        Ok(())
    }

    pub(super) fn if_else(&mut self, op: Op, ways: [&'a Block; 2]) -> Result<(), Error> {
        let e = self.e;
        let data = self.func.op(op);
        let cond = self.scalar(data.operands[0])?;
        let branches = [e.block("then"), e.block("else")];
        let done = e.block("if.end");
        e.cond_br(cond, branches[0], branches[1]);
        let mut ends = Vec::new();
        for (block, way) in branches.into_iter().zip(ways) {
            e.position(block);
            let yielded = self.region(way)?;
            if let Some(yielded) = yielded {
                ends.push((e.current_block(), self.short(&data.results, &yielded)));
                e.br(done);
            }
        }
        e.position(done);
        self.merge(&data.results, &ends);
        Ok(())
    }

    /// What goes round a loop for these values: indices in 32 bits, and two floats of 16 bits as a word, where machine IR
    /// says so.
    fn words_of(&self, values: &[Value], registers: &[Registers]) -> Vec<Registers> {
        let e = self.e;
        let word = |pair: &[Val]| e.bitcast(e.build_vec(pair), e.i32());
        let of = |(&value, all): (&Value, &Registers)| {
            if self.is_in_words(value) {
                all.chunks(2).map(word).collect()
            } else if self.is_carried_short(value) {
                all.iter().map(|&wide| e.trunc(wide, e.i32())).collect()
            } else {
                Registers::clone(all)
            }
        };
        values.iter().zip(registers).map(of).collect()
    }

    /// The registers of values that went round a loop.
    fn of_words(&self, values: &[Value], words: &[Registers]) -> Vec<Registers> {
        let e = self.e;
        let of = |(&value, words): (&Value, &Registers)| {
            if self.is_carried_short(value) {
                return words.iter().map(|&word| e.sext(word, e.i64())).collect();
            }
            if !self.is_in_words(value) {
                return Registers::clone(words);
            }
            let pair = e.vec(self.register_ty(value), 2);
            let halves = |&word: &Val| {
                let both = e.bitcast(word, pair);
                [e.extract(both, 0), e.extract(both, 1)]
            };
            words.iter().flat_map(halves).collect()
        };
        values.iter().zip(words).map(of).collect()
    }

    fn is_in_words(&self, value: Value) -> bool {
        self.facts.code.selection.words.contains(&value)
    }

    /// Phis at the start of a loop's header.
    pub(super) fn carried(&self, inits: &[Registers], before: LlvmBlock) -> Carried {
        let phi = |&init: &Val| self.e.phi(self.e.type_of(init), &[(init, before)]);
        Carried { phis: inits.iter().map(|init| init.iter().map(phi).collect()).collect() }
    }

    /// What is carried from the last block of a loop's body, by the branch that goes back.
    pub(super) fn close_loop(
        &self,
        body: &[Inst],
        carried: &Carried,
        next: &[Registers],
        last: LlvmBlock,
        back: Val,
    ) {
        carried.close(self.e, next, last);
        if body.contains(&Inst::NoUnroll) {
            self.e.set_no_unroll(back);
        }
    }

    pub(super) fn bind(&mut self, values: &[Value], registers: &[Registers]) {
        for (&value, registers) in values.iter().zip(registers) {
            self.set(value, registers.clone());
        }
    }

    /// Values that have one of several contents, depending on the block control comes from. Without
    /// any such block nothing reaches this code.
    pub(super) fn merge(&mut self, results: &[Value], ends: &[(LlvmBlock, Vec<Vec<Val>>)]) {
        let e = self.e;
        let one = |i: usize, reg: usize| {
            let incoming: Vec<(Val, LlvmBlock)> =
                ends.iter().map(|(block, values)| (values[i][reg], *block)).collect();
            match incoming.first() {
                None => e.poison(self.register_ty(results[i])),
                Some(&(first, _)) => e.phi(e.type_of(first), &incoming),
            }
        };
        let all =
            |i: usize| (0..self.lir.num_regs(results[i]) as usize).map(move |reg| one(i, reg));
        let merged: Vec<Vec<Val>> = (0..results.len()).map(|i| all(i).collect()).collect();
        for (&result, registers) in results.iter().zip(merged) {
            let is_index = self.is_carried_short(result);
            let wide = |v| if is_index && e.type_of(v) == e.i32() { e.sext(v, e.i64()) } else { v };
            self.set(result, registers.into_iter().map(wide).collect::<Vec<Val>>());
        }
    }

    /// The registers of values that [`Lowering::merge`] merges: indices that fit in 32 bits as such.
    pub(super) fn short(&self, values: &[Value], registers: &[Registers]) -> Vec<Vec<Val>> {
        let e = self.e;
        let of = |(&value, all): (&Value, &Registers)| match self.is_carried_short(value) {
            true => all.iter().map(|&wide| e.trunc(wide, e.i32())).collect(),
            false => all.to_vec(),
        };
        values.iter().zip(registers).map(of).collect()
    }
}
