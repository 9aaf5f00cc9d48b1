//! `device_assert!` and `device_print!`.
//!
//! A failed assertion leaves its number where the host can read it after the fault, with what it compared
//! and where, then traps. The first thread to fail writes; the others wait a moment before they trap, which
//! would end the first one too.
//! Printing goes through the driver's `vprintf`: scalars by one thread, tiles by every thread, an
//! element a line with its coordinates.

use std::sync::Arc;

use super::super::elementwise::{Target as Machine, cast};
use super::super::llvm::{IntPred, Order, Val};
use super::lowering::Lowering;
use super::registers::{GLOBAL, Registers};
use crate::Error;
use crate::ir::{DType, Elem, Op, OpKind, Value};
use crate::layout::{HwIndex, LinearLayout};
use crate::printed::{Failed, fill};

impl Lowering<'_> {
    pub(super) fn assert(&mut self, op: Op) -> Result<(), Error> {
        let e = self.e;
        let holds = self.operands(op)?[0].to_vec();
        let all = holds.into_iter().reduce(|a, b| e.and(a, b)).unwrap_or_else(|| e.bool(true));
        let (failed, report, stop, fine) =
            (e.block("failed"), e.block("report"), e.block("stop"), e.block("fine"));
        e.cond_br(all, fine, failed);
        e.position(failed);
        let status = self.frame.status.ok_or_else(|| Error::bug("an assertion has no status"))?;
        let number = self.frame.asserts.get(&op).copied().unwrap_or(0) as i64 + 1;
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
            let thread = self.threads.offset(e, &layout.lane, &layout.warp, &layout.block);
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
        let (shown, extents) = self.printed(format, &data.operands);
        // Tiles of one shape that lie in the same threads in the same order share their lines.
        let mut groups: Vec<(Arc<LinearLayout>, &[i64])> = Vec::new();
        for (&value, extents) in shown.iter().zip(&extents) {
            let group = self.lir.layout(value).map(|layout| (Arc::clone(layout), &extents[..]));
            groups.extend(group.filter(|group| !groups.contains(group)));
        }
        if groups.is_empty() {
            let all: Vec<usize> = (0..shown.len()).collect();
            let values: Vec<Val> = operands[..shown.len()].iter().map(|o| o[0]).collect();
            let line = printf_format(format, self, &shown, &all);
            let copies = [31, self.lir.num_warps - 1, self.lir.num_blocks - 1];
            let prints = self.threads.is_first(self.e, copies[0], copies[1], copies[2]);
            return self.print_line(&line, &[], (&shown, &values), prints);
        }
        for (layout, real) in groups {
            let is_own = |&i: &usize| {
                let own = self.lir.layout(shown[i]);
                own.is_none_or(|own| *own == layout && extents[i] == real)
            };
            let own: Vec<usize> = (0..shown.len()).filter(is_own).collect();
            let values: Vec<Value> = own.iter().map(|&i| shown[i]).collect();
            let rank = layout.shape.rank();
            let text = printf_format(format, self, &shown, &own);
            let line = format!("[{}] {text}", vec!["%lld"; rank].join(", "));
            let copies = [layout.free_lanes(), layout.free_warps(), layout.free_blocks()];
            for reg in 0..layout.num_regs() {
                let e = self.e;
                let at = layout.apply(HwIndex { reg, ..HwIndex::default() });
                let thread = self.threads.offset(e, &layout.lane, &layout.warp, &layout.block);
                let flat = e.xor(thread, e.int(e.i32(), i64::from(at)));
                let coord = |axis: usize| {
                    let shift = e.int(e.i32(), i64::from(layout.shift(axis)));
                    let mask = e.int(e.i32(), layout.shape.extent(axis) as i64 - 1);
                    e.zext(e.and(e.lshr(flat, shift), mask), e.i64())
                };
                let coords: Vec<Val> = (0..rank).map(coord).collect();
                let element = |&i: &usize| {
                    let registers = &operands[i];
                    registers[(reg as usize).min(registers.len() - 1)]
                };
                let elements: Vec<Val> = own.iter().map(element).collect();
                // What was added to the tile is nobody's.
                let exists =
                    real.iter().zip(&coords).enumerate().filter_map(|(axis, (&extent, &at))| {
                        let is_padded = extent != layout.shape.extent(axis) as i64;
                        is_padded.then(|| e.icmp(IntPred::Slt, at, e.int(e.i64(), extent)))
                    });
                let first = self.threads.is_first(e, copies[0], copies[1], copies[2]);
                let prints = first.into_iter().chain(exists).reduce(|a, b| e.and(a, b));
                self.print_line(&line, &coords, (&values, &elements), prints)?;
            }
        }
        Ok(())
    }

    /// The operands that a format names, and the extents of each where they were padded.
    fn printed(&self, format: &str, operands: &[Value]) -> (Vec<Value>, Vec<Vec<i64>>) {
        let holes = format.replace("{{", "").replace("}}", "").matches('{').count();
        let (shown, rest) = operands.split_at(holes.min(operands.len()));
        let mut rest = rest.iter().filter_map(|&v| Some(self.func.as_const(v)?.to_i64()));
        let extents = shown
            .iter()
            .map(|&v| rest.by_ref().take(self.func.tile(v).shape.rank()).collect())
            .collect();
        (shown.to_vec(), extents)
    }

    /// One line of `vprintf`, by the threads in which the condition holds.
    fn print_line(
        &mut self,
        format: &str,
        coords: &[Val],
        (values, elements): (&[Value], &[Val]),
        prints: Option<Val>,
    ) -> Result<(), Error> {
        let e = self.e;
        let types = values.iter().map(|&v| self.func.tile(v));
        let mut args = coords.to_vec();
        for (tile, &value) in types.zip(elements) {
            args.push(match tile.dtype() {
                _ if tile.is_ptr() => e.ptrtoint(value, e.i64()),
                dtype if dtype.is_float() => cast(e, Machine::Nvptx, value, dtype, DType::F64),
                DType::Bool => e.zext(value, e.i64()),
                dtype => cast(e, Machine::Nvptx, value, dtype, DType::I64),
            });
        }
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
            .frame
            .vprintf
            .get_or_insert_with(|| e.declare("vprintf", e.i32(), &[e.ptr(0), e.ptr(0)]));
        e.call(print, &[text, slots]);
        e.br(done);
        e.position(done);
        Ok(())
    }
}

/// The user's format for `vprintf`: every `{}` becomes what its operand is printed by, and of operands that
/// are not in this line it says so.
fn printf_format(format: &str, lowering: &Lowering<'_>, shown: &[Value], own: &[usize]) -> String {
    let spec = |(i, &value): (usize, &Value)| match lowering.func.tile(value) {
        _ if !own.contains(&i) => "..",
        tile if tile.is_ptr() => "0x%llx",
        tile if tile.dtype().is_float() => "%g",
        tile if tile.dtype().is_unsigned_int() => "%llu",
        _ => "%lld",
    };
    let specs: Vec<&str> = shown.iter().enumerate().map(spec).collect();
    of_printf(format, &specs)
}

/// Fills the `{}` of a format; `%` is itself.
fn of_printf(format: &str, specs: &[&str]) -> String {
    fill(format, specs, |c| if c == '%' { "%%".to_owned() } else { c.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_those_of_printf() {
        assert_eq!(of_printf("x = {}, 5% of {:?}", &["%g", "%lld"]), "x = %g, 5%% of %lld");
        assert_eq!(of_printf("{{}} {} {}", &["%g"]), "{} %g ");
    }
}
