//! Runs layout IR thread by thread on the processor: finds wrong layouts without a GPU.
//!
//! Every thread has its registers, and they move exactly as the plans say: vectors of an access,
//! shuffles, shared memory with its offsets. So what a layout gets wrong shows as a wrong result
//! against the interpreter of tile IR. Barriers are perfect here; it is the data that is checked.

use std::collections::BTreeMap;

use super::convert::Conversion;
use super::linear::{HwBit, HwIndex, LANE_BITS, LANES, LinearLayout};
use super::lir::{Access, LayoutIr, RegisterOperand};
use super::scratch::{SharedAccess, SharedPlan, SharedUnit, matrix_element};
use super::{DotUnit, WarpGather, f2};
use crate::ir::{
    AtomicOp, BinaryOp, Combine, DType, Op, OpKind, Region, Scalar, Shape, Value, scalar,
};

/// The registers of every thread, thread by thread.
type Registers = Vec<u64>;

/// How a region ends.
enum End {
    Yield(Vec<Value>),
    Return,
}

struct Buffer {
    bytes: Vec<u8>,
    writable: bool,
}

struct Simulation<'l> {
    lir: &'l LayoutIr,
    values: Vec<Registers>,
    buffers: Vec<Buffer>,
    program: [u32; 3],
    grid: [u32; 3],
}

/// Buffers lie in the middle of as many bytes each.
const SPACE: u64 = 1 << 40;

/// The address of a buffer.
fn start(number: usize) -> u64 {
    (number as u64 + 1) * SPACE + SPACE / 2
}

/// Runs every program with one 64-bit slot for each parameter; gives what the buffers hold afterwards.
fn run(lir: &LayoutIr, grid: [u32; 3], buffers: Vec<Buffer>, slots: &[u64]) -> Vec<Vec<u8>> {
    let values = vec![Vec::new(); lir.func.n_values()];
    let mut sim = Simulation { lir, values, buffers, program: [0; 3], grid };
    for z in 0..grid[2] {
        for y in 0..grid[1] {
            for x in 0..grid[0] {
                sim.program = [x, y, z];
                for (param, &slot) in lir.func.params.iter().zip(slots) {
                    sim.values[param.value.index()] = vec![slot; sim.threads()];
                }
                sim.region(lir.func.body);
            }
        }
    }
    sim.buffers.into_iter().map(|buffer| buffer.bytes).collect()
}

impl Simulation<'_> {
    fn threads(&self) -> usize {
        (LANES * self.lir.num_warps) as usize
    }

    fn dtype(&self, value: Value) -> DType {
        let tile = self.lir.func.tile(value);
        if tile.is_ptr() { DType::U64 } else { tile.dtype() }
    }

    fn at(&self, value: Value, thread: usize, reg: usize) -> Scalar {
        let regs = self.lir.num_regs(value) as usize;
        Scalar { dtype: self.dtype(value), bits: self.values[value.index()][thread * regs + reg] }
    }

    /// The one value of a scalar; every thread must agree.
    fn uniform(&self, value: Value) -> Scalar {
        let registers = &self.values[value.index()];
        assert!(registers.iter().all(|r| *r == registers[0]), "%{} differs", value.0);
        self.at(value, 0, 0)
    }

    fn set(&mut self, value: Value, f: impl Fn(&Self, usize, usize) -> Scalar) {
        let regs = self.lir.num_regs(value) as usize;
        let pairs = (0..self.threads()).flat_map(|t| (0..regs).map(move |r| (t, r)));
        self.values[value.index()] = pairs.map(|(t, r)| f(self, t, r).bits).collect();
    }

    fn region(&mut self, region: Region) -> End {
        for &op in &self.lir.func.region(region).ops {
            let data = self.lir.func.op(op);
            match data.kind {
                OpKind::Yield => return End::Yield(data.operands.clone()),
                OpKind::Return => return End::Return,
                _ if data.kind.is_control_flow() => {
                    if let End::Return = self.control(op) {
                        return End::Return;
                    }
                }
                _ => self.op(op),
            }
        }
        End::Return
    }

    fn assign(&mut self, to: &[Value], from: &[Value]) {
        let values: Vec<Registers> = from.iter().map(|&v| self.values[v.index()].clone()).collect();
        for (&value, registers) in to.iter().zip(values) {
            self.values[value.index()] = registers;
        }
    }

    fn control(&mut self, op: Op) -> End {
        let data = self.lir.func.op(op);
        let args = |i: usize| &self.lir.func.region(data.regions[i]).args;
        let results = &data.results;
        match data.kind {
            OpKind::If => {
                let side = usize::from(self.uniform(data.operands[0]).bits == 0);
                match self.region(data.regions[side]) {
                    End::Yield(values) => self.assign(results, &values),
                    End::Return => return End::Return,
                }
            }
            OpKind::For(_) => {
                let [mut i, end, step] = [0, 1, 2].map(|k| self.uniform(data.operands[k]).to_i64());
                self.assign(results, &data.operands[3..]);
                while step > 0 && i < end {
                    let body = args(0);
                    self.assign(&body[1..], results);
                    self.values[body[0].index()] = vec![i as u64; self.threads()];
                    match self.region(data.regions[0]) {
                        End::Yield(values) => self.assign(results, &values),
                        End::Return => return End::Return,
                    }
                    let Some(next) = i.checked_add(step) else { break };
                    i = next;
                }
            }
            _ => {
                self.assign(results, &data.operands);
                loop {
                    self.assign(args(0), results);
                    match self.region(data.regions[0]) {
                        End::Yield(values) if self.uniform(values[0]).bits != 0 => {}
                        End::Yield(_) => break,
                        End::Return => return End::Return,
                    }
                    self.assign(args(1), results);
                    match self.region(data.regions[1]) {
                        End::Yield(values) => self.assign(results, &values),
                        End::Return => return End::Return,
                    }
                }
            }
        }
        End::Yield(vec![])
    }

    fn op(&mut self, op: Op) {
        let lir = self.lir;
        let data = lir.func.op(op);
        let x = data.operands.clone();
        let Some(&result) = data.results.first() else {
            match data.kind {
                OpKind::Store => self.store(op),
                OpKind::Assert { .. } | OpKind::Print { .. } => {}
                ref kind => panic!("{kind:?} gives nothing"),
            }
            return;
        };
        let dtype = self.dtype(result);
        let int = |v: u32| Scalar::int(DType::I64, i64::from(v));
        match &data.kind {
            OpKind::Const(c) => self.set(result, |_, _, _| *c),
            OpKind::Iota => {
                let layout = lir.layout(result).unwrap();
                self.set(result, |_, t, r| int(layout.apply(place(t, r))));
            }
            OpKind::ProgramId(axis) => self.set(result, |s, _, _| int(s.program[*axis as usize])),
            OpKind::NumPrograms(axis) => self.set(result, |s, _, _| int(s.grid[*axis as usize])),
            OpKind::Unary(k) => self.set(result, |s, t, r| scalar::unary(*k, s.at(x[0], t, r))),
            OpKind::Binary(k) => {
                self.set(result, |s, t, r| scalar::binary(*k, s.at(x[0], t, r), s.at(x[1], t, r)))
            }
            OpKind::Compare(k) => self.set(result, |s, t, r| {
                let yes = scalar::compare(*k, s.at(x[0], t, r), s.at(x[1], t, r));
                Scalar::int(DType::Bool, i64::from(yes))
            }),
            OpKind::Select => self.set(result, |s, t, r| {
                scalar::select(s.at(x[0], t, r), s.at(x[1], t, r), s.at(x[2], t, r))
            }),
            OpKind::Fma => self.set(result, |s, t, r| {
                scalar::fma(s.at(x[0], t, r), s.at(x[1], t, r), s.at(x[2], t, r))
            }),
            OpKind::Cast => self.set(result, |s, t, r| scalar::cast(s.at(x[0], t, r), dtype)),
            OpKind::Bitcast => self.set(result, |s, t, r| scalar::bitcast(s.at(x[0], t, r), dtype)),
            OpKind::MultipleOf(_) => self.assign(&[result], &x),
            OpKind::PtrAdd => {
                let size = lir.func.tile(result).dtype().bytes() as u64;
                self.set(result, |s, t, r| {
                    let offset = s.at(x[1], t, r).bits.wrapping_mul(size);
                    Scalar { dtype, bits: s.at(x[0], t, r).bits.wrapping_add(offset) }
                });
            }
            kind if kind.is_view() => {
                let map = lir.view_registers(op).expect("a view renames registers");
                self.set(result, |s, t, r| s.at(x[0], t, map[r] as usize));
            }
            OpKind::Join => self.set(result, |s, t, r| s.at(x[r & 1], t, r >> 1)),
            OpKind::Split => self.split(op),
            OpKind::ConvertLayout => self.convert(op),
            OpKind::Load => self.load(op),
            OpKind::AtomicRmw(..) | OpKind::AtomicCas(_) => self.atomic(op),
            OpKind::Reduce { .. } => self.reduce(op),
            OpKind::Scan { .. } => self.scan(op),
            OpKind::Gather { .. } => self.gather(op),
            OpKind::Scatter { .. } => self.scatter(op),
            OpKind::Histogram => self.histogram(op),
            OpKind::Dot { .. } => self.dot(op),
            kind => panic!("not in layout IR: {kind:?}"),
        }
    }

    fn histogram(&mut self, op: Op) {
        let data = self.lir.func.op(op);
        let (x, [ranks, counts]) = (data.operands[0], [data.results[0], data.results[1]]);
        let n = self.lir.func.tile(x).shape.numel() as u32;
        let layout = self.lir.layout(x).expect("tiles have layouts").clone();
        let mut many = vec![0; self.lir.func.tile(counts).shape.numel()];
        let mut rank_of = vec![0; n as usize];
        for flat in 0..n {
            let at = layout.solve(flat).expect("a layout holds all elements");
            let thread = (at.lane | at.warp << LANE_BITS) as usize;
            let bin = self.at(x, thread, at.reg as usize).bits as u32 as usize;
            if let Some(count) = many.get_mut(bin) {
                rank_of[flat as usize] = *count;
                *count += 1;
            }
        }
        let number = |n: i64| Scalar::int(DType::I32, n);
        self.set(ranks, |_, t, r| {
            let lane = place(t, r);
            number(rank_of[layout.apply(lane) as usize])
        });
        let held = self.lir.layout(counts).expect("tiles have layouts").clone();
        self.set(counts, |_, t, r| number(many[held.apply(place(t, r)) as usize]));
    }

    fn split(&mut self, op: Op) {
        let data = self.lir.func.op(op);
        let operand = data.operands[0];
        let Some(HwBit::Reg(bit)) = self.lir.layout(operand).unwrap().holder(1) else {
            panic!("a split tile has its last axis in registers")
        };
        for (half, &result) in data.results.iter().enumerate() {
            self.set(result, |s, t, r| {
                let low = r & ((1 << bit) - 1);
                s.at(operand, t, low | half << bit | r >> bit << (bit + 1))
            });
        }
    }

    fn convert(&mut self, op: Op) {
        let data = self.lir.func.op(op);
        let (from, to) = (data.operands[0], data.results[0]);
        match self.lir.conversion(op).unwrap() {
            Conversion::Registers(map) => {
                self.set(to, |s, t, r| s.at(from, t, map[r] as usize));
            }
            Conversion::Shuffle(plan) => self.set(to, |s, t, r| {
                let lane = t as u32 % LANES;
                let round = r ^ f2::combine(&plan.places, lane) as usize;
                let source = plan.lane_of[round] ^ f2::combine(&plan.lanes, lane);
                let reg = plan.sent[round] ^ f2::combine(&plan.sends, source);
                s.at(from, t - lane as usize + source as usize, reg as usize)
            }),
            Conversion::Shared(plan) => {
                let registers = self.through_shared(from, self.lir.num_regs(to), &plan);
                self.values[to.index()] = registers;
            }
        }
    }

    fn gather(&mut self, op: Op) {
        let data = self.lir.func.op(op);
        let (x, index, result) = (data.operands[0], data.operands[1], data.results[0]);
        let plan = self.lir.gather(op).expect("tiles have layouts");
        if let Some(within_warp) = &plan.within_warp {
            return self.gather_in_warps((x, index, result), within_warp, plan.extent);
        }
        let bits = self.dtype(x).bytes() as u32 * 8;
        let mut scratch: Vec<Option<u64>> = vec![None; (plan.bytes() * 8 / bits) as usize];
        for t in 0..self.threads() {
            each(&plan.store, bits, t, |reg, offset| {
                scratch[offset] = Some(self.at(x, t, reg).bits);
            });
        }
        let dtype = self.dtype(result);
        self.set(result, |s, t, r| {
            let at = place(t, r);
            let row = f2::combine(&plan.reg, at.reg)
                ^ f2::combine(&plan.lane, at.lane)
                ^ f2::combine(&plan.warp, at.warp);
            let wanted = u32::try_from(s.at(index, t, r).to_i64()).ok();
            let Some(wanted) = wanted.filter(|&i| i < plan.extent) else {
                return Scalar::zero(dtype);
            };
            let bits = scratch[(row + (wanted << plan.step)) as usize].expect("it was written");
            Scalar { dtype, bits }
        });
    }

    fn scatter(&mut self, op: Op) {
        let data = self.lir.func.op(op);
        let (x, index, result) = (data.operands[0], data.operands[1], data.results[0]);
        let plan = self.lir.scatter(op).expect("tiles have layouts");
        let bits = self.dtype(x).bytes() as u32 * 8;
        let mut scratch: Vec<Option<u64>> = vec![None; (plan.bytes() * 8 / bits) as usize];
        for t in 0..self.threads() {
            for r in 0..self.lir.num_regs(x) as usize {
                let at = place(t, r);
                let row = f2::combine(&plan.reg, at.reg)
                    ^ f2::combine(&plan.lane, at.lane)
                    ^ f2::combine(&plan.warp, at.warp);
                let to = u32::try_from(self.at(index, t, r).to_i64()).expect("a place of the axis");
                scratch[(row + (to << plan.step)) as usize] = Some(self.at(x, t, r).bits);
            }
        }
        let dtype = self.dtype(result);
        self.set(result, |_, t, r| {
            let mut found = None;
            each(&plan.store, bits, t, |reg, offset| {
                if reg == r {
                    found = scratch[offset];
                }
            });
            Scalar { dtype, bits: found.expect("every place is written") }
        });
    }

    fn gather_in_warps(
        &mut self,
        (x, index, result): (Value, Value, Value),
        plan: &WarpGather,
        extent: u32,
    ) {
        let dtype = self.dtype(result);
        self.set(result, |s, t, r| {
            let at = place(t, r);
            let wanted = u32::try_from(s.at(index, t, r).to_i64()).ok();
            let Some(wanted) = wanted.filter(|&i| i < extent) else {
                return Scalar::zero(dtype);
            };
            let parts = [
                WarpGather::sum(&plan.reg, at.reg),
                WarpGather::sum(&plan.lane, at.lane),
                WarpGather::sum(&plan.warp, at.warp),
                WarpGather::sum(&plan.axis, wanted),
            ];
            let lane = parts.iter().fold(0, |lane, part| lane ^ part.lane);
            let reg = parts.iter().fold(0, |reg, part| reg ^ part.reg);
            s.at(x, (at.warp * LANES + lane) as usize, reg as usize)
        });
    }

    /// A value's registers after a way through shared memory.
    fn through_shared(&self, from: Value, regs: u32, plan: &SharedPlan) -> Registers {
        let mut scratch: Vec<Option<u64>> = vec![None; plan.elements as usize];
        for t in 0..self.threads() {
            let at = place(t, 0);
            if at.lane & plan.store.copies.lane == 0 && at.warp & plan.store.copies.warp == 0 {
                each(&plan.store, plan.bits, t, |reg, offset| {
                    let old = scratch[offset].replace(self.at(from, t, reg).bits);
                    assert_eq!(old, None, "two threads write element {offset}");
                });
            }
        }
        let mut registers = vec![0; self.threads() * regs as usize];
        for t in 0..self.threads() {
            each(&plan.load, plan.bits, t, |reg, offset| {
                registers[t * regs as usize + reg] = scratch[offset].expect("it was written");
            });
        }
        registers
    }

    fn bytes(&mut self, address: u64, size: usize, write: bool) -> &mut [u8] {
        assert!(address.is_multiple_of(size as u64), "misaligned");
        let number = (address / SPACE) as usize;
        let buffer = &mut self.buffers[number.checked_sub(1).expect("an address of a buffer")];
        assert!(buffer.writable || !write, "a write to what is only read");
        let offset = (address % SPACE).wrapping_sub(SPACE / 2) as usize;
        &mut buffer.bytes[offset..][..size]
    }

    fn read(&mut self, address: u64, dtype: DType) -> Scalar {
        let mut word = [0; 8];
        word[..dtype.bytes()].copy_from_slice(self.bytes(address, dtype.bytes(), false));
        let bits = u64::from_le_bytes(word);
        if dtype.is_float() { Scalar { dtype, bits } } else { Scalar::int(dtype, bits as i64) }
    }

    fn write(&mut self, address: u64, value: Scalar) {
        let size = value.dtype.bytes();
        let word = value.bits.to_le_bytes();
        self.bytes(address, size, true).copy_from_slice(&word[..size]);
    }

    /// Holds the promises of an access, then gives its groups; a scalar is one group of one.
    fn groups(&self, op: Op, ptr: Value, mask: Option<Value>) -> Vec<Vec<u32>> {
        let Some(access) = self.lir.accesses.get(&op) else { return vec![vec![0]] };
        let size = self.lir.func.tile(ptr).dtype().bytes() as u64;
        for t in 0..self.threads() {
            for group in &access.groups {
                let mut on = group.iter().map(|&r| mask.map(|m| self.at(m, t, r as usize).bits));
                let first = on.next().unwrap();
                assert!(on.all(|m| m == first), "a mask cuts a vector");
                if first == Some(0) {
                    continue;
                }
                let address = self.at(ptr, t, group[0] as usize).bits;
                assert!(address.is_multiple_of(u64::from(access.alignment)), "alignment");
                for (i, &reg) in group.iter().enumerate() {
                    let own = self.at(ptr, t, reg as usize).bits;
                    assert_eq!(own, address + i as u64 * size, "consecutive");
                }
            }
        }
        access.groups.clone()
    }

    fn load(&mut self, op: Op) {
        let data = self.lir.func.op(op);
        let (ptr, result) = (data.operands[0], data.results[0]);
        let (mask, other) = (data.operands.get(1).copied(), data.operands.get(2).copied());
        let (dtype, regs) = (self.dtype(result), self.lir.num_regs(result) as usize);
        let mut registers = vec![0; self.threads() * regs];
        for reg in self.groups(op, ptr, mask).into_iter().flatten() {
            for t in 0..self.threads() {
                let on = mask.is_none_or(|m| self.at(m, t, reg as usize).bits != 0);
                let value = match (on, other) {
                    (true, _) => {
                        let address = self.at(ptr, t, reg as usize).bits;
                        self.read(address, dtype)
                    }
                    (false, Some(other)) => self.at(other, t, reg as usize),
                    (false, None) => Scalar::zero(dtype),
                };
                registers[t * regs + reg as usize] = value.bits;
            }
        }
        self.values[result.index()] = registers;
    }

    /// Whether a thread does a store or atomic that other threads hold copies of.
    fn is_first(access: Option<&Access>, t: usize) -> bool {
        let at = place(t, 0);
        match access {
            Some(access) => at.lane & access.lane_copies == 0 && at.warp & access.warp_copies == 0,
            None => t == 0,
        }
    }

    fn store(&mut self, op: Op) {
        let data = self.lir.func.op(op);
        let (ptr, value, mask) =
            (data.operands[0], data.operands[1], data.operands.get(2).copied());
        for reg in self.groups(op, ptr, mask).into_iter().flatten() {
            for t in 0..self.threads() {
                let on = mask.is_none_or(|m| self.at(m, t, reg as usize).bits != 0);
                if on && Self::is_first(self.lir.accesses.get(&op), t) {
                    let address = self.at(ptr, t, reg as usize).bits;
                    self.write(address, self.at(value, t, reg as usize));
                }
            }
        }
    }

    fn atomic(&mut self, op: Op) {
        let lir = self.lir;
        let data = lir.func.op(op);
        let (ptr, result) = (data.operands[0], data.results[0]);
        let regs = lir.num_regs(result) as usize;
        let access = lir.accesses.get(&op);
        let mut registers = vec![0; self.threads() * regs];
        for t in 0..self.threads() {
            if !Self::is_first(access, t) {
                continue;
            }
            for reg in 0..regs {
                let operand = |s: &Self, i: usize| s.at(data.operands[i], t, reg);
                let mask = data.kind.mask_operand().filter(|&i| i < data.operands.len());
                if mask.is_some_and(|i| operand(self, i).bits == 0) {
                    continue;
                }
                let address = operand(self, 0).bits;
                let old = self.read(address, lir.func.tile(ptr).dtype());
                let new = match &data.kind {
                    OpKind::AtomicRmw(kind, _) => rmw(*kind, old, operand(self, 1)),
                    _ if old.bits == operand(self, 1).bits => operand(self, 2),
                    _ => old,
                };
                self.write(address, new);
                registers[t * regs + reg] = old.bits;
            }
        }
        // Copies get the first thread's result.
        let (lanes, warps) =
            access.map_or((31, lir.num_warps - 1), |a| (a.lane_copies, a.warp_copies));
        for t in 0..self.threads() {
            let at = place(t, 0);
            let first = ((at.warp & !warps) * LANES + (at.lane & !lanes)) as usize;
            for reg in 0..regs {
                registers[t * regs + reg] = registers[first * regs + reg];
            }
        }
        self.values[result.index()] = registers;
    }

    fn combine(&mut self, op: Op, left: &[Scalar], right: &[Scalar]) -> Vec<Scalar> {
        let data = self.lir.func.op(op);
        let combine = match data.kind {
            OpKind::Reduce { combine, .. } | OpKind::Scan { combine, .. } => combine,
            _ => panic!("nothing to combine"),
        };
        if let Combine::Op(kind) = combine {
            return vec![scalar::binary(kind, left[0], right[0])];
        }
        let args = self.lir.func.region(data.regions[0]).args.clone();
        for (&arg, value) in args.iter().zip(left.iter().chain(right)) {
            self.values[arg.index()] = vec![value.bits; self.threads()];
        }
        match self.region(data.regions[0]) {
            End::Yield(values) => values.iter().map(|&v| self.uniform(v)).collect(),
            End::Return => panic!("a region that combines yields"),
        }
    }

    /// Each result register from the registers, lanes and warps that its plan names, by coordinate.
    fn reduce(&mut self, op: Op) {
        let lir = self.lir;
        let data = lir.func.op(op);
        let OpKind::Reduce { axis, .. } = data.kind else { panic!("a reduction") };
        let layout = lir.layout(data.operands[0]).unwrap().clone();
        let plan = lir.reduction(op).unwrap();
        let kept: Vec<usize> = (0..layout.reg.len()).filter(|i| plan.regs >> i & 1 == 0).collect();
        let out_regs = 1 << kept.len();
        let mut results = vec![vec![0; self.threads() * out_regs]; data.results.len()];
        for t in 0..self.threads() {
            for out in 0..out_regs {
                let base =
                    kept.iter().enumerate().fold(0, |b, (i, &bit)| b | (out >> i & 1) << bit);
                let at = place(t, base);
                let mut parts: Vec<(u32, Vec<Scalar>)> = Vec::new();
                for warp in subsets(plan.warps, lir.num_warps) {
                    for lane in subsets(plan.lanes, LANES) {
                        for reg in subsets(plan.regs, layout.num_regs()) {
                            let part = HwIndex {
                                reg: at.reg | reg,
                                lane: at.lane ^ lane,
                                warp: at.warp ^ warp,
                                block: 0,
                            };
                            let flat = layout.apply(part);
                            let thread = (part.warp * LANES + part.lane) as usize;
                            let values = data.operands.iter();
                            let values = values.map(|&v| self.at(v, thread, part.reg as usize));
                            parts.push((layout.coord(flat, axis as usize), values.collect()));
                        }
                    }
                }
                parts.sort_by_key(|(coord, _)| *coord);
                let coords = parts.iter().map(|(coord, _)| *coord);
                assert!(coords.eq(0..layout.shape.extent(axis as usize) as u32), "each once");
                let mut parts = parts.into_iter().map(|(_, values)| values);
                let first = parts.next().unwrap();
                let total = parts.fold(first, |sum, part| self.combine(op, &sum, &part));
                for (i, value) in total.iter().enumerate() {
                    results[i][t * out_regs + out] = value.bits;
                }
            }
        }
        for (&result, registers) in data.results.iter().zip(results) {
            self.values[result.index()] = registers;
        }
    }

    /// The elements of a tile by flat index; copies must agree.
    fn tile(&self, value: Value) -> Vec<Scalar> {
        let layout = self.lir.layout(value).unwrap();
        let mut tile = vec![None; layout.shape.numel()];
        for t in 0..self.threads() {
            for r in 0..layout.num_regs() as usize {
                let scalar = self.at(value, t, r);
                let old = tile[layout.apply(place(t, r)) as usize].replace(scalar);
                assert!(old.is_none_or(|old| old == scalar), "copies differ");
            }
        }
        tile.into_iter().map(|element| element.expect("every element is held")).collect()
    }

    fn scan(&mut self, op: Op) {
        let data = self.lir.func.op(op);
        let OpKind::Scan { axis, reverse, .. } = data.kind else { panic!("a scan") };
        let layout = self.lir.layout(data.operands[0]).unwrap().clone();
        let bits = layout.axis_bits(axis as usize);
        assert!(bits.windows(2).all(|pair| pair[0] < pair[1]), "registers, lanes, warps");
        let mut tiles: Vec<Vec<Scalar>> = data.operands.iter().map(|&v| self.tile(v)).collect();
        let (shift, extent) = (layout.shift(axis as usize), layout.shape.extent(axis as usize));
        for start in
            (0..layout.shape.numel()).filter(|&f| layout.coord(f as u32, axis as usize) == 0)
        {
            let mut line: Vec<usize> = (0..extent).map(|i| start + (i << shift)).collect();
            if reverse {
                line.reverse();
            }
            for pair in line.windows(2) {
                let [left, right] = [pair[0], pair[1]]
                    .map(|f| tiles.iter().map(|tile| tile[f]).collect::<Vec<Scalar>>());
                for (tile, value) in tiles.iter_mut().zip(self.combine(op, &left, &right)) {
                    tile[pair[1]] = value;
                }
            }
        }
        for (&result, tile) in data.results.iter().zip(tiles) {
            let layout = self.lir.layout(result).unwrap().clone();
            self.set(result, |_, t, r| tile[layout.apply(place(t, r)) as usize]);
        }
    }

    fn dot(&mut self, op: Op) {
        let lir = self.lir;
        let data = lir.func.op(op);
        let plan = &lir.dots[&op];
        let [left, right] = [&plan.a, &plan.b].map(|operand| operand.registers().unwrap());
        let a = self.fragment(data.operands[0], left, plan.unit);
        let b = self.fragment(data.operands[1], right, plan.unit);
        let layout = lir.layout(data.results[0]).unwrap().clone();
        let [ka, kb] = [left.fragment.shape, right.fragment.shape].map(Shape::extents);
        let (dtype, k_extent, n_extent) = (self.dtype(data.results[0]), ka[1], kb[1]);
        let operands = data.operands.clone();
        self.set(data.results[0], |s, t, r| {
            let at = layout.coords(layout.apply(place(t, r)));
            let (m, n) = (at[0] as usize, at[1] as usize);
            (0..k_extent).fold(s.at(operands[2], t, r), |acc, k| {
                let reach = |held: &[BTreeMap<u32, Scalar>], flat: usize| {
                    let group = if plan.unit == DotUnit::Fma { t } else { t / LANES as usize };
                    scalar::cast(held[group][&(flat as u32)], dtype)
                };
                let (x, y) = (reach(&a, m * k_extent + k), reach(&b, k * n_extent + n));
                match plan.unit {
                    DotUnit::MmaTf32x3 => {
                        let ([x, x_rest], [y, y_rest]) = (tf32_parts(x), tf32_parts(y));
                        let small = scalar::fma(x, y_rest, scalar::fma(x_rest, y, acc));
                        scalar::fma(x, y, small)
                    }
                    _ => scalar::fma(x, y, acc),
                }
            })
        });
    }

    /// The elements of an operand that each thread (multiply-adds) or warp (tensor cores) reaches.
    fn fragment(
        &self,
        value: Value,
        operand: &RegisterOperand,
        unit: DotUnit,
    ) -> Vec<BTreeMap<u32, Scalar>> {
        let layout: &LinearLayout = &operand.fragment;
        let regs = layout.num_regs();
        let registers = match &operand.staging {
            Some(plan) => {
                // A load of a ring is copied as its registers would be.
                let load = operand.ring.map(|load| self.lir.func.op(load).results[0]);
                self.through_shared(load.unwrap_or(value), regs, plan)
            }
            None => self.values[value.index()].clone(),
        };
        let groups =
            if unit == DotUnit::Fma { self.threads() } else { self.lir.num_warps as usize };
        let mut held = vec![BTreeMap::new(); groups];
        for t in 0..self.threads() {
            for r in 0..regs as usize {
                let bits = registers[t * regs as usize + r];
                let scalar = Scalar { dtype: self.dtype(value), bits };
                held[t * groups / self.threads()].insert(layout.apply(place(t, r)), scalar);
            }
        }
        held
    }
}

/// An f32 as the two tf32 numbers that tensor cores multiply.
fn tf32_parts(x: Scalar) -> [Scalar; 2] {
    let f32 = |bits: u32| Scalar { dtype: DType::F32, bits: u64::from(bits) };
    let large = (x.bits as u32).wrapping_add(0x1000) & !0x1fff;
    let rest = f32::from_bits(x.bits as u32) - f32::from_bits(large);
    [f32(large), f32(rest.to_bits() & !0x1fff)]
}

fn place(thread: usize, reg: usize) -> HwIndex {
    let thread = thread as u32;
    HwIndex { reg: reg as u32, lane: thread % LANES, warp: thread / LANES, block: 0 }
}

fn subsets(mask: u32, below: u32) -> impl Iterator<Item = u32> {
    (0..below).filter(move |bits| bits & !mask == 0)
}

/// Every register of a thread with its offset in shared memory.
fn each(access: &SharedAccess, bits: u32, thread: usize, mut f: impl FnMut(usize, usize)) {
    let at = place(thread, 0);
    let own = |lane| f2::combine(&access.lane, lane) ^ f2::combine(&access.warp, at.warp);
    for group in &access.groups {
        for (j, &reg) in (0..).zip(&group.regs) {
            let (lane, j, aligned) = match access.unit {
                SharedUnit::Vector => (at.lane, j, group.regs.len() as u32),
                SharedUnit::Matrix { .. } => {
                    let (lane, j) = matrix_element(access, bits, at.lane, j);
                    (lane, j, 128 / bits)
                }
            };
            let start = group.offset ^ own(lane);
            assert!(start.is_multiple_of(aligned), "aligned vectors");
            f(reg as usize, (start + j) as usize);
        }
    }
}

fn rmw(op: AtomicOp, old: Scalar, value: Scalar) -> Scalar {
    let binary = match op {
        AtomicOp::Add => BinaryOp::Add,
        AtomicOp::Max => BinaryOp::Max,
        AtomicOp::Min => BinaryOp::Min,
        AtomicOp::And => BinaryOp::And,
        AtomicOp::Or => BinaryOp::Or,
        AtomicOp::Xor => BinaryOp::Xor,
        AtomicOp::Exchange => return value,
    };
    scalar::binary(binary, old, value)
}

#[cfg(test)]
pub(crate) mod tests;
