//! `device_assert!` and `device_print!`.
//!
//! A failed assertion leaves its number where the host can read it after the fault, with what it compared
//! and where, then traps. The first thread to fail writes; the others wait a moment before they trap, which
//! would end the first one too.
//! Printing goes through the driver's `vprintf`: scalars by one thread, tiles by every thread, an
//! element a line with its coordinates.

use super::super::elementwise::{Target as Machine, cast};
use super::super::llvm::{IntPred, Order, Val};
use super::lower::{GLOBAL, Lowering, Registers};
use crate::Error;
use crate::ir::{DType, Elem, Op, OpKind, Value};
use crate::layout::HwIndex;

/// Words of eight bytes that a failed assertion leaves, by number; the first holds its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failed {
    /// Which kind of number was compared: 0 none, 1 signed, 2 unsigned, 3 f64.
    Kind = 1,
    /// The program.
    X = 2,
    Y = 3,
    Z = 4,
    /// The element of the tile in row-major order, plus 1; 0 for a scalar.
    Element = 5,
    /// What was compared.
    Left = 6,
    Right = 7,
}

/// Words that an assertion may leave.
pub(crate) const FAILED_WORDS: usize = 8;

impl Lowering<'_> {
    pub(super) fn assert(&mut self, op: Op) -> Result<(), Error> {
        let e = self.e;
        let holds = self.operands(op)?[0].to_vec();
        let all = holds.into_iter().reduce(|a, b| e.and(a, b)).unwrap_or_else(|| e.bool(true));
        let (failed, report, stop, fine) =
            (e.block("failed"), e.block("report"), e.block("stop"), e.block("fine"));
        e.cond_br(all, fine, failed);
        e.position(failed);
        let status = self.status.ok_or_else(|| Error::bug("an assertion has no status"))?;
        let number = self.asserts.get(&op).copied().unwrap_or(0) as i64 + 1;
        e.cond_br(e.icmp(IntPred::Eq, status, e.int(e.i64(), 0)), stop, report);
        e.position(report);
        let address = e.inttoptr(status, e.ptr(GLOBAL));
        let (tell, wait) = (e.block("tell"), e.block("wait"));
        let (none, number) = (e.int(e.i32(), 0), e.int(e.i32(), number));
        let before = e.atomic_cas(address, none, number, Order::Relaxed);
        e.cond_br(e.icmp(IntPred::Eq, before, none), tell, wait);
        e.position(tell);
        self.tell_failure(op, address)?;
        e.inline_asm(e.void(), "membar.sys;", "~{memory}", &[], true);
        e.br(stop);
        e.position(wait);
        e.inline_asm(e.void(), "nanosleep.u32 1000000;", "~{memory}", &[], true);
        e.br(stop);
        e.position(stop);
        e.inline_asm(e.void(), "trap;", "~{memory}", &[], true);
        // Nothing runs after a trap, but code that joins again keeps barriers out of divergent paths.
        e.br(fine);
        e.position(fine);
        Ok(())
    }

    /// Writes what failed, in the words that [`Failed`] numbers.
    fn tell_failure(&mut self, op: Op, address: Val) -> Result<(), Error> {
        let e = self.e;
        let write = |word: Failed, value: Val| {
            let place = e.gep(e.i64(), address, e.int(e.i64(), word as i64));
            e.set_volatile(e.store_aligned(value, place, 8));
        };
        for (axis, word) in ['x', 'y', 'z'].into_iter().zip([Failed::X, Failed::Y, Failed::Z]) {
            let unit = if self.lir.num_blocks == 1 { "cta" } else { "cluster" };
            let name = format!("llvm.nvvm.read.ptx.sreg.{unit}id.{axis}");
            write(word, e.zext(e.intrinsic(&name, &[], &[]), e.i64()));
        }
        let condition = self.func.op(op).operands[0];
        let holds = self.get(condition)?;
        let first = |of: &dyn Fn(usize) -> Val| {
            let last = holds.len() - 1;
            (0..last).rev().fold(of(last), |later, i| e.select(holds[i], later, of(i)))
        };
        if let Some(layout) = self.lir.layout(condition) {
            let thread = self.threads.place(e, &layout.lane, &layout.warp, &layout.block);
            let place = |reg: usize| {
                let at = layout.apply(HwIndex { reg: reg as u32, ..HwIndex::default() });
                e.int(e.i32(), i64::from(at))
            };
            let element = e.zext(e.xor(thread, first(&place)), e.i64());
            write(Failed::Element, e.add(element, e.int(e.i64(), 1)));
        }
        let Some((operands, dtype)) = self.compared(condition, holds.len()) else { return Ok(()) };
        let (wide, kind) = match dtype {
            dtype if dtype.is_float() => (DType::F64, 3),
            dtype if dtype.is_unsigned_int() => (DType::I64, 2),
            _ => (DType::I64, 1),
        };
        for (registers, word) in operands.iter().zip([Failed::Left, Failed::Right]) {
            let value = first(&|reg| registers[reg]);
            write(word, cast(e, Machine::Nvptx, value, dtype, wide));
        }
        write(Failed::Kind, e.int(e.i64(), kind));
        Ok(())
    }

    /// What a condition compares, where it is just that and both sides are at hand.
    fn compared(&self, condition: Value, len: usize) -> Option<(Vec<Registers>, DType)> {
        let def = self.func.def_op(condition)?;
        let data = self.func.op(def);
        let OpKind::Compare(_) = data.kind else { return None };
        let tile = self.func.ty(data.operands[0]).as_tile()?;
        let Elem::Data(dtype) = tile.elem else { return None };
        let operands = self.operands(def).ok()?;
        let fits = operands.iter().all(|registers| registers.len() == len);
        (fits && dtype != DType::Bool).then_some((operands, dtype))
    }

    pub(super) fn print(&mut self, op: Op) -> Result<(), Error> {
        let data = self.func.op(op);
        let OpKind::Print { format } = &data.kind else {
            return Err(Error::bug("a print without a format"));
        };
        let operands = self.operands(op)?;
        let tile = data.operands.iter().copied().find(|&v| self.lir.layout(v).is_some());
        let Some(tile) = tile else {
            let values: Vec<Val> = operands.iter().map(|o| o[0]).collect();
            let line = printf_format(format, self, &data.operands);
            return self.print_line(
                &line,
                &[],
                op,
                &values,
                [31, self.lir.num_warps - 1, self.lir.num_blocks - 1],
            );
        };
        let layout = self.layout(tile)?.clone();
        let rank = layout.shape.rank();
        let text = printf_format(format, self, &data.operands);
        let line = format!("[{}] {text}", vec!["%lld"; rank].join(", "));
        for reg in 0..layout.num_regs() {
            let at = layout.apply(HwIndex { reg, ..HwIndex::default() });
            let thread = self.threads.place(self.e, &layout.lane, &layout.warp, &layout.block);
            let flat = self.e.xor(thread, self.e.int(self.e.i32(), i64::from(at)));
            let coords: Vec<Val> = (0..rank)
                .map(|axis| {
                    let e = self.e;
                    let shift = e.int(e.i32(), i64::from(layout.shift(axis)));
                    let mask = e.int(e.i32(), layout.shape.extent(axis) as i64 - 1);
                    e.zext(e.and(e.lshr(flat, shift), mask), e.i64())
                })
                .collect();
            let values: Vec<Val> =
                operands.iter().map(|o| o[(reg as usize).min(o.len() - 1)]).collect();
            let copies = [layout.free_lanes(), layout.free_warps(), layout.free_blocks()];
            self.print_line(&line, &coords, op, &values, copies)?;
        }
        Ok(())
    }

    /// One line of `vprintf`, by the threads in which these lane, warp and block bits are 0.
    fn print_line(
        &mut self,
        format: &str,
        coords: &[Val],
        op: Op,
        values: &[Val],
        copies: [u32; 3],
    ) -> Result<(), Error> {
        let e = self.e;
        let types = self.func.op(op).operands.iter().map(|&v| self.func.tile(v));
        let mut args = coords.to_vec();
        for (tile, &value) in types.zip(values) {
            args.push(match tile.dtype() {
                _ if tile.is_ptr() => e.ptrtoint(value, e.i64()),
                dtype if dtype.is_float() => cast(e, Machine::Nvptx, value, dtype, DType::F64),
                DType::Bool => e.zext(value, e.i64()),
                dtype => cast(e, Machine::Nvptx, value, dtype, DType::I64),
            });
        }
        let prints = self.threads.is_first(e, copies[0], copies[1], copies[2]);
        let (inside, done) = (e.block("print"), e.block("print.end"));
        e.cond_br(prints.unwrap_or_else(|| e.bool(true)), inside, done);
        e.position(inside);
        let room = e.array(e.i64(), args.len().max(1) as u64);
        let slots = self.threads.in_entry(e, || e.alloca(room, 8));
        for (i, &arg) in args.iter().enumerate() {
            let slot = e.gep(e.i64(), slots, e.int(e.i64(), i as i64));
            e.store_aligned(arg, slot, 8);
        }
        let text = e.string("format", &format!("{format}\n"), GLOBAL);
        let text = e.addrspacecast(text, e.ptr(0));
        let print = *self
            .vprintf
            .get_or_insert_with(|| e.declare("vprintf", e.i32(), &[e.ptr(0), e.ptr(0)]));
        e.call(print, &[text, slots]);
        e.br(done);
        e.position(done);
        Ok(())
    }
}

/// The user's format for `vprintf`: every `{}` becomes what its operand is printed by.
fn printf_format(format: &str, lowering: &Lowering<'_>, operands: &[Value]) -> String {
    let types = operands.iter().map(|&v| lowering.func.tile(v));
    let specs: Vec<&str> = types
        .map(|tile| match tile.dtype() {
            _ if tile.is_ptr() => "0x%llx",
            dtype if dtype.is_float() => "%g",
            dtype if dtype.is_unsigned_int() => "%llu",
            _ => "%lld",
        })
        .collect();
    substitute(format, &specs)
}

/// Fills the `{}` of a format in order; `{{` and `}}` are braces, and `%` is itself.
fn substitute(format: &str, specs: &[&str]) -> String {
    let mut specs = specs.iter();
    let mut text = String::new();
    let mut rest = format;
    while let Some(c) = rest.chars().next() {
        let (piece, len) = match c {
            _ if rest.starts_with("{{") => ("{", 2),
            _ if rest.starts_with("}}") => ("}", 2),
            '{' => {
                (specs.next().copied().unwrap_or(""), rest.find('}').map_or(rest.len(), |i| i + 1))
            }
            '%' => ("%%", 1),
            _ => (&rest[..c.len_utf8()], c.len_utf8()),
        };
        text.push_str(piece);
        rest = &rest[len..];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_those_of_printf() {
        assert_eq!(substitute("x = {}, 5% of {:?}", &["%g", "%lld"]), "x = %g, 5%% of %lld");
        assert_eq!(substitute("{{}} {} {}", &["%g"]), "{} %g ");
    }
}
