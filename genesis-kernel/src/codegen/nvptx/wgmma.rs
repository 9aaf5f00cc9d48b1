//! `wgmma.mma_async`: a warpgroup multiplies operands in shared memory; the left one may be in registers.
//!
//! An instruction gets each operand as a *descriptor*: where it starts, and the two strides with which
//! the hardware walks over groups of eight rows. An operand is made of panels `S` bytes wide (see
//! [`crate::ir::tma`]); one step along K takes 32 bytes of it:
//!
//! ```text
//! contiguous  panel          start of k-step s                      leading stride     other stride
//! K           [rows][S]      (32 s / S) * rows * S + 32 s % S       unused             8 S
//! M or N      [depth][S]     16 s * S                               depth * S          8 S
//! ```
//!
//! In the first case the next 64 rows are 64 S further, in the second 128 / S panels.
//!
//! The MMAs are asynchronous. Inline assembly that takes and gives all accumulators ties them to the issue and the
//! wait: neither LLVM nor ptxas may touch an accumulator between the two.

use super::super::llvm::{Emitter, Ty, Val};
use super::collective::Partial;
use super::dot::Fragment;
use super::lowering::Lowering;
use super::registers::Registers;
use crate::Error;
use crate::ir::{Func, Op, OpKind, Value};
use crate::layout::{DotOperand, DotPlan, DotUnit, SharedOperand, WgmmaKind};
use crate::machine::{For, Inst, Mma, MmaWait};

/// Rows of one instruction.
const ROWS: u32 = 64;
/// Bytes of one step along K.
const STEP_BYTES: u32 = 32;

impl SharedOperand {
    /// Where a step along K starts, in bytes from the start of the tile.
    fn step_offset(&self, step: u32) -> u32 {
        let width = self.swizzle;
        if self.k_major {
            let along = STEP_BYTES * step;
            along / width * self.rows * width + along % width
        } else {
            STEP_BYTES / self.size * step * width
        }
    }

    /// Where a block of 64 rows starts, in bytes from the start of the tile.
    fn block_offset(&self, block: u32) -> u32 {
        if self.k_major {
            block * ROWS * self.swizzle
        } else {
            block * (ROWS * self.size / self.swizzle) * self.depth * self.swizzle
        }
    }

    /// The strides of a descriptor, leading one first, in bytes.
    fn strides(&self) -> [u32; 2] {
        let leading = if self.k_major { 16 } else { self.depth * self.swizzle };
        [leading, 8 * self.swizzle]
    }

    /// A descriptor but for the address, which its low 14 bits take in units of 16 bytes.
    fn descriptor(&self) -> i64 {
        let [leading, other] = self.strides().map(|stride| i64::from(stride >> 4));
        let swizzle: i64 = match self.swizzle {
            128 => 1,
            64 => 2,
            32 => 3,
            _ => 0,
        };
        swizzle << 62 | other << 32 | leading << 16
    }
}

/// One operand on its way into instructions.
enum Source<'a> {
    /// The descriptor of k-step 0 of this warpgroup's first rows.
    Shared(&'a SharedOperand, Val),
    Registers(Fragment<'a>),
}

/// The instructions of a dot, as inline assembly that changes all of its sums in place. One piece of
/// assembly for all is several times faster to compile than one for each.
struct Assembly {
    kind: WgmmaKind,
    /// Columns of an instruction.
    columns: u32,
    /// Whether M or N is the contiguous axis, for A and B.
    transposed: [bool; 2],
    /// Sums of all instructions: operands from 0 on come out, as many after them go in.
    sums: u32,
    text: String,
    /// What else goes in, as operands after the sums.
    words: Vec<Val>,
    letters: String,
}

impl Assembly {
    fn new(kind: WgmmaKind, columns: u32, transposed: [bool; 2], sums: u32) -> Assembly {
        let text = "{ .reg .pred p, q; setp.ne.b32 p, 1, 0; setp.ne.b32 q, 0, 0; \
                    wgmma.fence.sync.aligned;"
            .to_owned();
        let (words, letters) = (Vec::new(), String::new());
        Assembly { kind, columns, transposed, sums, text, words, letters }
    }

    /// Adds an operand, a descriptor or four registers; gives how the text names it.
    fn operand(&mut self, words: &[Val]) -> String {
        let first = 2 * self.sums + self.words.len() as u32;
        self.words.extend(words);
        let is_descriptor = words.len() == 1;
        let letter = if is_descriptor { ",l" } else { ",r" };
        self.letters.push_str(&letter.repeat(words.len()));
        if is_descriptor { format!("${first}") } else { list(first, words.len() as u32) }
    }

    /// Adds an instruction whose sums start at number `first`, in place of what they were or added to it.
    fn multiply(&mut self, first: u32, a: &str, b: &str, replaces: bool) {
        let (to, ty) = match self.kind {
            WgmmaKind::Bf16 => ("f32", "bf16"),
            WgmmaKind::F16 => ("f32", "f16"),
            WgmmaKind::Tf32 => ("f32", "tf32"),
            WgmmaKind::F8E4M3 => ("f32", "e4m3"),
            WgmmaKind::F8E5M2 => ("f32", "e5m2"),
            WgmmaKind::I8 => ("s32", "s8"),
            WgmmaKind::U8 => ("s32", "u8"),
        };
        let [ta, tb] = self.transposed.map(u8::from);
        // Signs of the operands, where they have one, and which are transposed, where they may be.
        let flags = match (self.kind, a.starts_with('{')) {
            (WgmmaKind::I8 | WgmmaKind::U8, _) => String::new(),
            (WgmmaKind::Tf32 | WgmmaKind::F8E4M3 | WgmmaKind::F8E5M2, _) => ", 1, 1".to_owned(),
            (_, true) => format!(", 1, 1, {tb}"),
            (_, false) => format!(", 1, 1, {ta}, {tb}"),
        };
        let (columns, sums) = (self.columns, list(first, self.columns / 2));
        let k = DotUnit::Wgmma(self.kind).step();
        let adds = if replaces { "q" } else { "p" };
        self.text.push_str(&format!(
            "\n\twgmma.mma_async.sync.aligned.m64n{columns}k{k}.{to}.{ty}.{ty} \
             {sums}, {a}, {b}, {adds}{flags};"
        ));
    }

    /// Issues everything as one group, and waits until at most `pending` groups are in flight, if that is said. Gives
    /// the accumulators.
    fn issue(&mut self, e: &Emitter, sums: &[Val], pending: Option<u32>) -> Vec<Val> {
        self.text.push_str("\n\twgmma.commit_group.sync.aligned;");
        if let Some(pending) = pending {
            self.text.push_str(&format!("\n\twgmma.wait_group.sync.aligned {pending};"));
        }
        self.text.push_str(" }");
        let constraints = format!("{}{},~{{memory}}", tied(e, sums), self.letters);
        change_in_place(e, &self.text, &constraints, sums, &self.words)
    }
}

/// `{$2,$3}`
fn list(first: u32, count: u32) -> String {
    let all: Vec<String> = (first..first + count).map(|i| format!("${i}")).collect();
    format!("{{{}}}", all.join(","))
}

/// The constraints of sums, f32 or i32, that go in and come out.
fn tied(e: &Emitter, sums: &[Val]) -> String {
    let output = |&sum: &Val| if e.type_of(sum) == e.f32() { "=f" } else { "=r" }.to_owned();
    let inputs = (0..sums.len()).map(|i| i.to_string());
    sums.iter().map(output).chain(inputs).collect::<Vec<_>>().join(",")
}

/// Inline assembly that changes sums in place; all threads of a warpgroup come here together.
fn change_in_place(
    e: &Emitter,
    text: &str,
    constraints: &str,
    sums: &[Val],
    others: &[Val],
) -> Vec<Val> {
    let types: Vec<Ty> = sums.iter().map(|&sum| e.type_of(sum)).collect();
    let args: Vec<Val> = sums.iter().chain(others).copied().collect();
    let call = e.inline_asm(e.structure(&types), text, constraints, &args, true);
    e.set_convergent(call);
    (0..sums.len() as u32).map(|i| e.extract_value(call, i)).collect()
}

/// Waits until at most `pending` groups are in flight, of which none has these accumulators.
pub(super) fn wait(e: &Emitter, pending: u32, sums: &[Val]) -> Vec<Val> {
    let n = sums.len() as u32;
    let text = format!("// {}\n\twgmma.wait_group.sync.aligned {pending};", list(0, n));
    let constraints = format!("{},~{{memory}}", tied(e, sums));
    change_in_place(e, &text, &constraints, sums, &[])
}

impl<'a> Lowering<'a> {
    /// Issues the MMAs of a dot.
    pub(super) fn issue_mma(&mut self, mma: &Mma) -> Result<(), Error> {
        let (op, lir) = (mma.op, self.lir);
        let plan = lir.dots.get(&op).ok_or_else(|| Error::bug("a dot has no plan"))?;
        let DotUnit::Wgmma(kind) = plan.unit else {
            return Err(Error::bug("an MMA that is not asynchronous"));
        };
        let sums = self.get(self.func.op(op).operands[2])?;
        let begins =
            mma.wait == MmaWait::Promoted || is_zero(self.func, self.func.op(op).operands[2]);
        let mut assembly = self.products(op, plan, kind, (sums.len() as u32, begins))?;
        let e = self.e;
        let unset: Vec<Val> = sums.iter().map(|&sum| e.poison(e.type_of(sum))).collect();
        let before = if begins { &unset } else { &sums[..] };
        match mma.wait {
            // These may stay in flight, those of the iteration before may not.
            MmaWait::NextIteration => {
                let sums = assembly.issue(e, &sums, Some(1));
                self.result(op, sums)
            }
            MmaWait::Promoted => {
                let products = assembly.issue(e, before, Some(0));
                self.partial.insert(op, Partial::Registers(products));
                Ok(())
            }
            MmaWait::Iteration => {
                if mma.awaits_turn {
                    self.await_turn()?;
                }
                let sums = assembly.issue(e, before, None);
                if mma.passes_turn {
                    self.pass_turn()?;
                }
                for &channel in &mma.takes {
                    let stage = self.take_next(self.pipeline(channel)?);
                    self.copies_mut()?.taken.insert((op, channel), stage);
                }
                self.result(op, sums)
            }
        }
    }

    /// Adds the sums of promoted MMAs to their accumulators.
    pub(super) fn promote(&mut self, op: Op) -> Result<(), Error> {
        let sums = self.get(self.func.op(op).operands[2])?;
        let Some(Partial::Registers(products)) = self.partial.remove(&op) else {
            return Err(Error::bug("a dot has no sums to promote"));
        };
        let e = self.e;
        self.result(op, sums.iter().zip(products).map(|(&sum, part)| e.fadd(sum, part)).collect())
    }

    /// Waits until the MMAs of some dots are complete, and at most `pending` groups in flight.
    pub(super) fn wait_mma(&mut self, complete: &[Op], pending: u32) -> Result<(), Error> {
        for &op in complete {
            let value = self.func.op(op).results[0];
            let sums = wait(self.e, pending, &self.get(value)?);
            self.set(value, sums);
        }
        Ok(())
    }

    /// After the last iteration of a loop, which yields these values: waits for MMAs in flight and releases their
    /// stages. Gives the values as they are then.
    ///
    /// This stands before the control flow of no and of some iterations merges: ptxas must not see another
    /// instruction touch accumulators in flight, not even a phi of them and the initial values.
    pub(super) fn finish_products(
        &mut self,
        inner: &'a For,
        mut yielded: Vec<Registers>,
    ) -> Result<Vec<Registers>, Error> {
        let func = self.func;
        let last = func.region(func.op(inner.op).regions[0]).ops.last();
        for inst in &inner.left {
            let Inst::FinishMma(op) = inst else {
                self.pipeline_inst(inst)?;
                continue;
            };
            let sum = func.op(*op).results[0];
            let at = last.and_then(|&last| func.op(last).operands.iter().position(|&v| v == sum));
            let at = at
                .ok_or_else(|| Error::bug("an accumulator in flight is not carried by its loop"))?;
            yielded[at] = wait(self.e, 0, &yielded[at]).into();
        }
        Ok(yielded)
    }

    /// The channel of an operand, and where it begins in a slot.
    fn load_of(&self, operand: &SharedOperand) -> Result<(u8, u32), Error> {
        let load = self.func.tma.loads.get(operand.load as usize);
        let load = load.ok_or_else(|| Error::bug(format!("there is no load {}", operand.load)))?;
        Ok((load.channel, load.offset))
    }

    /// Every instruction of a dot, of which the first ones replace so many sums where it `begins`.
    fn products(
        &mut self,
        op: Op,
        plan: &'a DotPlan,
        kind: WgmmaKind,
        (sums, begins): (u32, bool),
    ) -> Result<Assembly, Error> {
        let data = self.func.op(op);
        let [a, b] = [0, 1].map(|i| self.func.tile(data.operands[i]).shape);
        let [rows, depth, columns] = [a.extent(0), a.extent(1), b.extent(1)].map(|n| n as u32);
        let rows = rows / self.lir.num_blocks;
        let groups = self.lir.num_warps / 4;
        let (per_block, unit) = (columns / 2, DotUnit::Wgmma(kind));
        let n_blocks = rows / ROWS / groups;
        if sums != n_blocks * per_block {
            return Err(Error::bug("a dot's accumulators do not fit wgmma"));
        }
        let mut left = self.source(op, 0, &plan.a, ROWS)?;
        let mut right = self.source(op, 1, &plan.b, 0)?;
        let transposed = [is_transposed(&plan.a), is_transposed(&plan.b)];
        let mut assembly = Assembly::new(kind, columns, transposed, sums);
        for step in 0..depth / unit.step() {
            let b = assembly.operand(&self.words(&mut right, unit, step, 0)?);
            for block in 0..n_blocks {
                let a = self.words(&mut left, unit, step, block * groups)?;
                let a = assembly.operand(&a);
                assembly.multiply(block * per_block, &a, &b, begins && step == 0);
            }
        }
        Ok(assembly)
    }

    /// An operand; `rows_each` are the rows of a warpgroup, 0 where all have all of it.
    fn source(
        &mut self,
        op: Op,
        number: usize,
        operand: &'a DotOperand,
        rows_each: u32,
    ) -> Result<Source<'a>, Error> {
        let e = self.e;
        let operand = match operand {
            DotOperand::Registers(_) if number == 1 => {
                return Err(Error::bug("operand B of wgmma is in registers"));
            }
            DotOperand::Registers(operand) => {
                return Ok(Source::Registers(self.fragment(op, number, operand)?));
            }
            DotOperand::Shared(operand) => operand,
        };
        let (channel, offset) = self.load_of(operand)?;
        let int = |n: u32| e.int(e.i32(), i64::from(n));
        let mut address = e.add(self.slot_offset(self.pipeline(channel)?), int(offset));
        if rows_each != 0 {
            let group = self.copies()?.group;
            address = e.add(address, e.mul(group, int(operand.block_offset(1))));
        }
        let address = e.add(address, e.ptrtoint(self.frame.shared, e.i32()));
        let units = e.and(e.lshr(address, int(4)), int(0x3fff));
        let descriptor = e.or(e.zext(units, e.i64()), e.int(e.i64(), operand.descriptor()));
        Ok(Source::Shared(operand, descriptor))
    }

    /// What an instruction takes for an operand: a descriptor, or four registers.
    fn words(
        &mut self,
        source: &mut Source<'a>,
        unit: DotUnit,
        step: u32,
        block: u32,
    ) -> Result<Vec<Val>, Error> {
        let e = self.e;
        match source {
            Source::Shared(operand, descriptor) => {
                let offset = operand.step_offset(step) + operand.block_offset(block);
                Ok(vec![e.add(*descriptor, e.int(e.i64(), i64::from(offset >> 4)))])
            }
            Source::Registers(fragment) => {
                let at = |i, j| [ROWS * block + i, unit.step() * step + j];
                self.mma_words(unit, fragment, at, [2, 2])
            }
        }
    }
}

/// Whether a tile is 0 everywhere.
fn is_zero(func: &Func, mut value: Value) -> bool {
    loop {
        if let Some(scalar) = func.as_const(value) {
            return scalar.to_f64() == 0.0;
        }
        let Some(op) = func.def_op(value) else { return false };
        match func.op(op).kind {
            OpKind::Broadcast | OpKind::ConvertLayout => value = func.op(op).operands[0],
            _ => return false,
        }
    }
}

fn is_transposed(operand: &DotOperand) -> bool {
    matches!(operand, DotOperand::Shared(operand) if !operand.k_major)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the copy engine puts an element, in bytes, before the swizzle.
    fn in_panels(o: &SharedOperand, row: u32, k: u32) -> u32 {
        let [along, other, length] = if o.k_major { [k, row, o.rows] } else { [row, k, o.depth] };
        let bytes = along * o.size;
        bytes / o.swizzle * length * o.swizzle + other * o.swizzle + bytes % o.swizzle
    }

    /// Where an instruction reads an element, by the descriptor of its step and block.
    fn by_descriptor(o: &SharedOperand, row: u32, k: u32, block_rows: u32) -> u32 {
        let per_step = STEP_BYTES / o.size;
        let start = o.step_offset(k / per_step) + o.block_offset(row / block_rows);
        let [leading, other] = o.strides();
        let (row, k) = (row % block_rows, k % per_step);
        if o.k_major {
            start + row / 8 * other + row % 8 * o.swizzle + k * o.size
        } else {
            let bytes = row * o.size;
            let within = bytes % o.swizzle;
            start + bytes / o.swizzle * leading + k / 8 * other + k % 8 * o.swizzle + within
        }
    }

    #[test]
    fn descriptors_read_what_the_copy_engine_wrote() {
        for (size, swizzle, k_major) in [
            (2, 128, true),
            (2, 64, true),
            (2, 32, true),
            (4, 128, true),
            (4, 32, true),
            (2, 128, false),
            (2, 64, false),
            (2, 32, false),
        ] {
            for (rows, depth) in [(64, 64), (128, 64), (256, 128), (128, 32)] {
                let operand = SharedOperand { load: 0, k_major, size, swizzle, rows, depth };
                let most = if k_major { depth } else { rows } * size;
                if swizzle > most {
                    continue;
                }
                for (row, k) in (0..rows).flat_map(|row| (0..depth).map(move |k| (row, k))) {
                    let written = in_panels(&operand, row, k);
                    // As operand A, in blocks of 64 rows, and as operand B, whole.
                    assert_eq!(by_descriptor(&operand, row, k, ROWS), written);
                    assert_eq!(by_descriptor(&operand, row, k, rows), written);
                }
            }
        }
    }

    #[test]
    fn a_descriptor_says_strides_and_swizzle() {
        let operand =
            SharedOperand { load: 0, k_major: true, size: 2, swizzle: 128, rows: 128, depth: 64 };
        assert_eq!(operand.descriptor(), 0x4000_0040_0001_0000);
        let operand = SharedOperand { k_major: false, ..operand };
        assert_eq!(operand.descriptor(), 0x4000_0040_0200_0000);
    }

    #[test]
    fn instructions_name_their_operands() {
        let e = Emitter::new("test");
        let [one, four] = [1, 4].map(|n| vec![e.int(e.i64(), 0); n]);
        let mut assembly = Assembly::new(WgmmaKind::Bf16, 8, [false, true], 8);
        let b = assembly.operand(&one);
        let a = assembly.operand(&four);
        assembly.multiply(4, &a, &b, false);
        assembly.multiply(0, "$9", &b, true);
        assert_eq!(
            assembly.text.lines().skip(1).collect::<Vec<_>>(),
            [
                "\twgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 \
                 {$4,$5,$6,$7}, {$17,$18,$19,$20}, $16, p, 1, 1, 1;",
                "\twgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 \
                 {$0,$1,$2,$3}, $9, $16, q, 1, 1, 0, 1;"
            ]
        );
        assert_eq!(assembly.letters, ",l,r,r,r,r");
        let sums = [e.f32(), e.i32()].map(|ty| e.poison(ty));
        assert_eq!(tied(&e, &sums), "=f,=r,0,1");
    }

    #[test]
    fn integers_have_neither_signs_nor_transposes() {
        let e = Emitter::new("test");
        let mut assembly = Assembly::new(WgmmaKind::U8, 8, [false; 2], 4);
        let b = assembly.operand(&[e.int(e.i64(), 0)]);
        assembly.multiply(0, "$9", &b, false);
        let last = assembly.text.lines().last();
        let wanted = "\twgmma.mma_async.sync.aligned.m64n8k32.s32.u8.u8 {$0,$1,$2,$3}, $9, $8, p;";
        assert_eq!(last, Some(wanted));
    }
}
