//! How integers and addresses run along the axes of a tile: what vector access needs to know.
//!
//! A tile is cut, axis by axis, in aligned *runs* of a power-of-two length inside which the value
//! moves by a constant *step* from element to element. A step of 0 is a run of equal values. A
//! *divisor* says which power of two divides the value where the runs of all axes begin.
//!
//! ```text
//! %0 = iota : i64[64]                     step 1, run 64, divisor: any
//! %1 = add (mul program_id, 64), %0       step 1, run 64, divisor 64
//! %2 = rem %1, 16                         step 1, run 16, divisor 16
//! %3 = div %1, 16                         step 0, run 16, divisor 1
//! %4 = lt %1, %n      (%n: multiple of 8) step 0, run 8
//! ```
//!
//! The address `ptr + %1` is 4-byte elements in runs of 64, the mask constant in runs of 8, so that a
//! load takes vectors of up to 8 elements.
//!
//! Addresses have steps in elements and divisors in bytes.

use super::range::Ranges;
use crate::ir::{
    BinaryOp, Elem, Func, Op, OpKind, ParamAttrs, Predicate, Region, Shape, TileType, Value,
};

/// The divisor of 0: large enough for any use, small enough to multiply.
const ANY_DIVISOR: u64 = 1 << 40;

/// How a value runs along one axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// What each element adds to the one before in the same run.
    pub step: i64,
    /// Elements of a run: the whole axis, or a power of two that divides the runs' positions.
    pub length: u64,
}

impl Run {
    /// Nothing is known.
    pub const NONE: Run = Run { step: 0, length: 1 };
}

/// How a value runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AxisInfo {
    /// Along each axis.
    pub runs: Vec<Run>,
    /// A power of two that divides the value wherever the runs of all axes begin.
    pub divisor: u64,
}

impl AxisInfo {
    fn unknown(shape: Shape) -> AxisInfo {
        AxisInfo { runs: vec![Run::NONE; shape.rank()], divisor: 1 }
    }

    /// One value everywhere.
    fn uniform(shape: Shape, divisor: u64) -> AxisInfo {
        let runs = shape.extents().iter().map(|&e| Run { step: 0, length: e as u64 }).collect();
        AxisInfo { runs, divisor }
    }

    /// The power of two that divides the value where runs along `axis` begin, at any place along the
    /// other axes.
    pub fn divisor_along(&self, axis: usize, unit: u64) -> u64 {
        let others = self.runs.iter().enumerate().filter(|&(i, run)| i != axis && run.length > 1);
        others.fold(self.divisor, |d, (_, run)| d.min(power_of_two(run.step).saturating_mul(unit)))
    }

    /// Whether every element is equal.
    pub fn is_uniform(&self, shape: Shape) -> bool {
        let axes = self.runs.iter().zip(shape.extents());
        axes.into_iter().all(|(run, extent)| run.step == 0 && run.length == extent as u64)
    }

    /// The length of the runs of equal values along an axis.
    pub fn constancy(&self, axis: usize) -> u64 {
        let run = self.runs[axis];
        if run.step == 0 { run.length } else { 1 }
    }

    /// With shorter runs along an axis. `unit` is what the divisor counts a step of 1 as.
    fn shorten(&mut self, axis: usize, length: u64, unit: u64) {
        let run = &mut self.runs[axis];
        if length >= run.length {
            return;
        }
        // Runs now begin at multiples of the new length inside the old runs, too.
        let stride = power_of_two(run.step).saturating_mul(unit);
        self.divisor = self.divisor.min(stride.saturating_mul(length));
        run.length = length;
        if length == 1 {
            run.step = 0;
        }
    }
}

/// The runs of every value of a function.
#[derive(Clone, Debug)]
pub struct AxisAnalysis {
    infos: Vec<Option<AxisInfo>>,
    ranges: Ranges,
}

impl AxisAnalysis {
    /// Analyses a function without views.
    pub fn of(func: &Func) -> AxisAnalysis {
        let infos = vec![None; func.n_values()];
        let mut analysis = AxisAnalysis { infos, ranges: Ranges::of(func) };
        for param in &func.params {
            if let Some(tile) = func.ty(param.value).as_tile() {
                analysis.infos[param.value.index()] = Some(parameter(tile, &param.attrs));
            }
        }
        analysis.region(func, func.body);
        analysis
    }

    /// How a value runs.
    pub fn of_value(&self, func: &Func, value: Value) -> AxisInfo {
        match &self.infos[value.index()] {
            Some(info) => info.clone(),
            None => AxisInfo::unknown(shape_of(func, value)),
        }
    }

    /// The ranges that were used.
    pub fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    /// The most elements, a power of two, that a load, store or atomic through `ptr` under `mask` can
    /// take together along `axis`: consecutive, aligned to their size, of at most 16 bytes, under one
    /// value of the mask.
    pub fn vector(&self, func: &Func, ptr: Value, mask: Option<Value>, axis: usize) -> u64 {
        let size = func.tile(ptr).dtype().bytes() as u64;
        let info = self.of_value(func, ptr);
        let run = info.runs[axis];
        if run.step != 1 {
            return 1;
        }
        let mask = mask.map_or(u64::MAX, |mask| self.of_value(func, mask).constancy(axis));
        let aligned = info.divisor_along(axis, size) / size;
        let limit = run.length.min(mask).min(aligned).min(16 / size).max(1);
        1 << limit.ilog2()
    }

    fn region(&mut self, func: &Func, region: Region) {
        for &op in &func.region(region).ops {
            match func.op(op).kind {
                OpKind::For(_) => self.for_loop(func, op),
                OpKind::While => self.while_loop(func, op),
                OpKind::If => self.branch(func, op),
                _ => self.simple(func, op),
            }
        }
    }

    fn simple(&mut self, func: &Func, op: Op) {
        let data = func.op(op);
        let infos = self.results(func, op);
        for (&result, info) in data.results.iter().zip(infos) {
            self.infos[result.index()] = Some(info);
        }
    }

    fn for_loop(&mut self, func: &Func, op: Op) {
        let data = func.op(op);
        let body = data.regions[0];
        let index = func.region(body).args[0];
        let lower = self.of_value(func, data.operands[0]);
        let step = self.of_value(func, data.operands[2]);
        let divisor = lower.divisor.min(step.divisor);
        self.infos[index.index()] = Some(AxisInfo::uniform(Shape::SCALAR, divisor));
        let carried = func.region(body).args[1..].to_vec();
        self.carry(func, &carried, &data.operands[3..], &data.results, &[body]);
    }

    fn while_loop(&mut self, func: &Func, op: Op) {
        let data = func.op(op);
        let (cond, body) = (data.regions[0], data.regions[1]);
        let args = func.region(body).args.clone();
        self.carry(func, &args, &data.operands, &data.results, &[cond, body]);
    }

    /// Runs the body of a loop with what is carried until nothing changes. What is known only
    /// shrinks, by halves, so this ends.
    fn carry(
        &mut self,
        func: &Func,
        args: &[Value],
        inits: &[Value],
        results: &[Value],
        regions: &[Region],
    ) {
        let mut known: Vec<AxisInfo> = inits.iter().map(|&v| self.of_value(func, v)).collect();
        let body = *regions.last().expect("a loop has a body");
        loop {
            for (&arg, info) in args.iter().zip(&known) {
                self.infos[arg.index()] = Some(info.clone());
            }
            // The condition's region has arguments of its own for the same values.
            if let [cond, _] = regions {
                let cond_args = func.region(*cond).args.clone();
                for (arg, info) in cond_args.iter().zip(&known) {
                    self.infos[arg.index()] = Some(info.clone());
                }
            }
            for &region in regions {
                self.region(func, region);
            }
            let next: Vec<AxisInfo> = match yielded(func, body) {
                Some(values) => {
                    let pairs = values.iter().zip(&known);
                    pairs
                        .map(|(&v, info)| join(info.clone(), self.of_value(func, v), unit(func, v)))
                        .collect()
                }
                None => known.clone(),
            };
            if next == known {
                break;
            }
            known = next;
        }
        for (&result, info) in results.iter().zip(known) {
            self.infos[result.index()] = Some(info);
        }
    }

    fn branch(&mut self, func: &Func, op: Op) {
        let data = func.op(op);
        for &region in &data.regions {
            self.region(func, region);
        }
        let sides: Vec<Vec<Value>> =
            data.regions.iter().filter_map(|&region| yielded(func, region)).collect();
        for (i, &result) in data.results.iter().enumerate() {
            let infos = sides.iter().map(|values| self.of_value(func, values[i]));
            let info = infos.reduce(|a, b| join(a, b, unit(func, result)));
            self.infos[result.index()] = info;
        }
    }

    fn results(&self, func: &Func, op: Op) -> Vec<AxisInfo> {
        let data = func.op(op);
        let one = |info: AxisInfo| vec![info];
        let operand = |i: usize| self.of_value(func, data.operands[i]);
        let operands = || data.operands.iter().map(|&v| self.of_value(func, v));
        let Some(&result) = data.results.first() else { return vec![] };
        let shape = shape_of(func, result);
        match &data.kind {
            OpKind::Const(scalar) if scalar.dtype.is_int() => {
                one(AxisInfo::uniform(shape, power_of_two(scalar.to_i64())))
            }
            OpKind::Const(_) | OpKind::ProgramId(_) | OpKind::NumPrograms(_) => {
                one(AxisInfo::uniform(shape, 1))
            }
            OpKind::Iota => one(counting(shape)),
            OpKind::Binary(op) if func.tile(result).dtype().is_int() => {
                one(self.binary(func, *op, [data.operands[0], data.operands[1]]))
            }
            OpKind::Compare(predicate) => {
                one(self.compare(func, *predicate, [data.operands[0], data.operands[1]]))
            }
            OpKind::PtrAdd => one(offset(func, result, operand(0), operand(1))),
            OpKind::Cast => one(cast(func, data.operands[0], result, operand(0))),
            OpKind::Select => one(select(operand(0), operand(1), operand(2), unit(func, result))),
            // Equal operands give equal values; also the masks and addresses of a load.
            OpKind::Unary(_)
            | OpKind::Binary(_)
            | OpKind::Fma
            | OpKind::Asm { .. }
            | OpKind::Bitcast
            | OpKind::Load => one(constant_runs(shape, operands())),
            OpKind::MultipleOf(n) => one(promised(operand(0), n.trailing_zeros())),
            OpKind::ConvertLayout => one(operand(0)),
            OpKind::Broadcast
            | OpKind::ExpandDims { .. }
            | OpKind::Reshape
            | OpKind::Transpose { .. } => {
                let from = func.tile(data.operands[0]).shape;
                one(view(&data.kind, operand(0), from, shape, unit(func, result)))
            }
            OpKind::Reduce { axis, .. } => self.collected(func, op, *axis, reduced),
            OpKind::Scan { axis, .. } => self.collected(func, op, *axis, scanned),
            OpKind::AtomicRmw(..)
            | OpKind::AtomicCas(_)
            | OpKind::Gather { .. }
            | OpKind::Scatter { .. }
            | OpKind::Histogram
            | OpKind::Dot { .. }
            | OpKind::Join
            | OpKind::Split
            | OpKind::ViewPtr
            | OpKind::ViewDim(_)
            | OpKind::ViewStride(_)
            | OpKind::ViewLoad
            | OpKind::ViewStore
            | OpKind::MakeView
            | OpKind::TmaLoad(_)
            | OpKind::TmaStore(_)
            | OpKind::Store
            | OpKind::For(_)
            | OpKind::While
            | OpKind::If
            | OpKind::Yield
            | OpKind::Return
            | OpKind::Assert { .. }
            | OpKind::Print { .. } => {
                data.results.iter().map(|&v| AxisInfo::unknown(shape_of(func, v))).collect()
            }
        }
    }

    /// The results of a reduction or scan, by what it leaves of runs along an axis.
    fn collected(
        &self,
        func: &Func,
        op: Op,
        axis: u8,
        left: fn(AxisInfo, usize) -> AxisInfo,
    ) -> Vec<AxisInfo> {
        let data = func.op(op);
        let operands = data.operands.iter().map(|&v| self.of_value(func, v));
        let from = func.tile(data.operands[0]).shape;
        vec![left(constant_runs(from, operands), axis as usize); data.results.len()]
    }

    fn binary(&self, func: &Func, op: BinaryOp, [a, b]: [Value; 2]) -> AxisInfo {
        let shape = shape_of(func, a);
        let (left, right) = (self.of_value(func, a), self.of_value(func, b));
        let natural = self.ranges.of_value(a).low >= 0;
        let constant = func.as_const(b).map(|c| c.to_i64());
        match op {
            BinaryOp::Add => add(left, right, 1, 1),
            BinaryOp::Sub => add(left, right, -1, 1),
            BinaryOp::Mul => match (constant, func.as_const(a).map(|c| c.to_i64())) {
                (Some(factor), _) => scale(left, factor),
                (None, Some(factor)) => scale(right, factor),
                (None, None) => multiply(shape, left, right),
            },
            BinaryOp::Shl if constant.is_some_and(|c| (0..40).contains(&c)) => {
                scale(left, 1 << constant.unwrap_or(0))
            }
            BinaryOp::Div if natural => divide(shape, left, &right),
            BinaryOp::Rem if natural => remainder(shape, left, &right),
            // A mask of low bits is a remainder, a right shift a quotient, for any sign.
            BinaryOp::And if constant.is_some_and(|c| c > 0 && c.wrapping_add(1) & c == 0) => {
                let divisor = power_of_two(constant.unwrap_or(0).wrapping_add(1));
                remainder(shape, left, &AxisInfo::uniform(shape, divisor))
            }
            BinaryOp::Shr if constant.is_some_and(|c| (0..40).contains(&c)) => {
                let divisor = 1 << constant.unwrap_or(0);
                divide(shape, left, &AxisInfo::uniform(shape, divisor))
            }
            BinaryOp::Min | BinaryOp::Max => {
                let divisor = all_divisor(&left, 1).min(all_divisor(&right, 1));
                AxisInfo { divisor, ..constant_runs(shape, [left, right].into_iter()) }
            }
            _ => constant_runs(shape, [left, right].into_iter()),
        }
    }

    fn compare(&self, func: &Func, predicate: Predicate, [a, b]: [Value; 2]) -> AxisInfo {
        let shape = shape_of(func, a);
        let (left, right) = (self.of_value(func, a), self.of_value(func, b));
        let mut info = constant_runs(shape, [left.clone(), right.clone()].into_iter());
        // A rising left side crosses a multiple of its own divisor only between runs.
        let (rising, bound) = match predicate {
            Predicate::Lt | Predicate::Ge => (left, right),
            Predicate::Gt | Predicate::Le => (right, left),
            Predicate::Eq | Predicate::Ne => return info,
        };
        if !func.tile(a).dtype().is_int() {
            return info;
        }
        for axis in 0..shape.rank() {
            let (run, still) = (rising.runs[axis], bound.constancy(axis));
            if run.step.count_ones() != 1 || run.step < 1 {
                continue;
            }
            let aligned = rising.divisor_along(axis, 1).min(bound.divisor_along(axis, 1));
            let equal = (aligned / run.step.unsigned_abs()).max(1);
            let length = common(common(run.length, still), equal);
            if length > info.runs[axis].length {
                info.runs[axis] = Run { step: 0, length };
            }
        }
        info
    }
}

/// 0, 1, 2, ..
fn counting(shape: Shape) -> AxisInfo {
    let length = shape.numel() as u64;
    AxisInfo { runs: vec![Run { step: 1, length }], divisor: ANY_DIVISOR }
}

/// Addresses moved by offsets in elements.
fn offset(func: &Func, result: Value, ptr: AxisInfo, mut by: AxisInfo) -> AxisInfo {
    let size = func.tile(result).dtype().bytes() as u64;
    by.divisor = by.divisor.saturating_mul(size).min(ANY_DIVISOR);
    add(ptr, by, 1, size)
}

/// A value that the user says is a multiple of `1 << zeros`.
fn promised(mut info: AxisInfo, zeros: u32) -> AxisInfo {
    info.divisor = info.divisor.max(1 << zeros.min(40));
    info
}

fn reduced(mut info: AxisInfo, axis: usize) -> AxisInfo {
    info.runs.remove(axis);
    info
}

fn scanned(mut info: AxisInfo, axis: usize) -> AxisInfo {
    info.runs[axis] = Run::NONE;
    info
}

fn shape_of(func: &Func, value: Value) -> Shape {
    func.ty(value).as_tile().map_or(Shape::SCALAR, |tile| tile.shape)
}

/// What a step of 1 adds to the number that the divisor divides: bytes for addresses.
fn unit(func: &Func, value: Value) -> u64 {
    match func.ty(value).as_tile() {
        Some(tile) if tile.is_ptr() => tile.dtype().bytes() as u64,
        _ => 1,
    }
}

/// The largest power of two that divides a number.
fn power_of_two(n: i64) -> u64 {
    if n == 0 { ANY_DIVISOR } else { (1 << n.trailing_zeros()).min(ANY_DIVISOR) }
}

/// The longest run that both lengths allow. Lengths are powers of two or the whole axis.
fn common(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn parameter(tile: TileType, attrs: &ParamAttrs) -> AxisInfo {
    let known = if attrs.multiple_of == 0 { 1 } else { 1 << attrs.multiple_of.trailing_zeros() };
    let natural = match tile.elem {
        Elem::Ptr(dtype) => dtype.bytes() as u64,
        Elem::Data(_) => 1,
    };
    AxisInfo::uniform(tile.shape, known.max(natural).min(ANY_DIVISOR))
}

fn yielded(func: &Func, region: Region) -> Option<Vec<Value>> {
    let last = func.op(*func.region(region).ops.last()?);
    matches!(last.kind, OpKind::Yield).then(|| last.operands.clone())
}

/// Cuts two values to common runs, then lets `step` say what each axis becomes.
fn meet(mut a: AxisInfo, mut b: AxisInfo, unit: u64) -> (AxisInfo, AxisInfo) {
    for axis in 0..a.runs.len() {
        let length = common(a.runs[axis].length, b.runs[axis].length);
        a.shorten(axis, length, unit);
        b.shorten(axis, length, unit);
    }
    (a, b)
}

/// `a + sign * b`; a step of 1 is `unit` of what the divisor divides.
fn add(a: AxisInfo, b: AxisInfo, sign: i64, unit: u64) -> AxisInfo {
    let (mut a, b) = meet(a, b, unit);
    a.divisor = a.divisor.min(b.divisor);
    for axis in 0..a.runs.len() {
        match b.runs[axis].step.checked_mul(sign).and_then(|s| a.runs[axis].step.checked_add(s)) {
            Some(step) => a.runs[axis].step = step,
            None => a.shorten(axis, 1, unit),
        }
    }
    a
}

/// A power of two that divides every element.
fn all_divisor(info: &AxisInfo, unit: u64) -> u64 {
    info.divisor_along(usize::MAX, unit)
}

fn scale(mut info: AxisInfo, factor: i64) -> AxisInfo {
    info.divisor = info.divisor.saturating_mul(power_of_two(factor)).min(ANY_DIVISOR);
    for axis in 0..info.runs.len() {
        match info.runs[axis].step.checked_mul(factor) {
            Some(step) => info.runs[axis].step = step,
            None => info.shorten(axis, 1, 1),
        }
    }
    info
}

fn multiply(shape: Shape, a: AxisInfo, b: AxisInfo) -> AxisInfo {
    let divisor = all_divisor(&a, 1).saturating_mul(all_divisor(&b, 1)).min(ANY_DIVISOR);
    AxisInfo { divisor, ..constant_runs(shape, [a, b].into_iter()) }
}

/// Equal operands give equal results; nothing else is known.
fn constant_runs(shape: Shape, operands: impl Iterator<Item = AxisInfo>) -> AxisInfo {
    let mut info = AxisInfo::uniform(shape, 1);
    for operand in operands {
        for (axis, run) in info.runs.iter_mut().enumerate() {
            run.length = common(run.length, operand.constancy(axis));
        }
    }
    info
}

/// The quotient of a number that is not negative: equal within one multiple of the divisor.
fn divide(shape: Shape, a: AxisInfo, b: &AxisInfo) -> AxisInfo {
    let mut info = constant_runs(shape, [a.clone(), b.clone()].into_iter());
    for axis in 0..shape.rank() {
        let run = a.runs[axis];
        if run.step != 1 {
            continue;
        }
        let aligned = a.divisor_along(axis, 1).min(b.divisor_along(axis, 1));
        let length = common(common(run.length, b.constancy(axis)), aligned);
        if length > 1 {
            info.runs[axis] = Run { step: 0, length };
        }
    }
    info
}

/// The remainder of a number that is not negative: it runs as the number does within one multiple of
/// the divisor.
fn remainder(shape: Shape, mut a: AxisInfo, b: &AxisInfo) -> AxisInfo {
    let original = a.clone();
    for axis in 0..shape.rank() {
        let run = original.runs[axis];
        let length = match run.step {
            0 => common(run.length, b.constancy(axis)),
            1 => {
                let aligned = original.divisor_along(axis, 1).min(b.divisor_along(axis, 1));
                common(common(run.length, b.constancy(axis)), aligned)
            }
            _ => 1,
        };
        a.shorten(axis, length, 1);
    }
    a.divisor = a.divisor.min(all_divisor(b, 1));
    a
}

/// A narrower integer may wrap, but not inside a rising run that begins at a multiple of its span.
fn cast(func: &Func, from: Value, to: Value, mut info: AxisInfo) -> AxisInfo {
    let shape = shape_of(func, to);
    let (from, to) = (func.tile(from).dtype(), func.tile(to).dtype());
    if !from.is_int() || !to.is_int() {
        return constant_runs(shape, std::iter::once(info));
    }
    // No aligned span of this size crosses the place where either type wraps.
    let span = 1 << (from.bits().min(to.bits()) - 1).min(40);
    for axis in 0..info.runs.len() {
        let Run { step, length } = info.runs[axis];
        let aligned = info.divisor_along(axis, 1).min(span);
        let kept = match step {
            0 => length,
            1.. if step.count_ones() == 1 => common(length, (aligned / step.unsigned_abs()).max(1)),
            _ => 1,
        };
        info.shorten(axis, kept, 1);
    }
    info.divisor = info.divisor.min(span);
    info
}

/// Either of two values, by a condition.
fn select(cond: AxisInfo, a: AxisInfo, b: AxisInfo, unit: u64) -> AxisInfo {
    let (mut a, mut b) = meet(a, b, unit);
    for axis in 0..a.runs.len() {
        let equal = a.runs[axis].step == b.runs[axis].step;
        let length = common(a.runs[axis].length, cond.constancy(axis));
        let length = if equal { length } else { 1 };
        a.shorten(axis, length, unit);
        b.shorten(axis, length, unit);
    }
    a.divisor = a.divisor.min(b.divisor);
    a
}

/// Either of two values, the same one in every element.
fn join(a: AxisInfo, b: AxisInfo, unit: u64) -> AxisInfo {
    let whole = Run { step: 0, length: 0 };
    let cond = AxisInfo { runs: vec![whole; a.runs.len()], divisor: 1 };
    select(cond, a, b, unit)
}

/// The same numbers under another shape.
fn view(kind: &OpKind, mut info: AxisInfo, from: Shape, to: Shape, unit: u64) -> AxisInfo {
    match kind {
        OpKind::ExpandDims { axis } => {
            info.runs.insert(*axis as usize, Run::NONE);
            info
        }
        OpKind::Transpose { perm } => {
            info.runs = perm.iter().map(|&p| info.runs[p as usize]).collect();
            info
        }
        OpKind::Broadcast if from.is_scalar() => AxisInfo::uniform(to, info.divisor),
        OpKind::Broadcast => {
            for (axis, run) in info.runs.iter_mut().enumerate() {
                if from.extent(axis) != to.extent(axis) {
                    *run = Run { step: 0, length: to.extent(axis) as u64 };
                }
            }
            info
        }
        _ => reshape(info, from, to, unit),
    }
}

fn reshape(mut info: AxisInfo, from: Shape, to: Shape, unit: u64) -> AxisInfo {
    let wide = |shape: Shape| -> Vec<usize> {
        (0..shape.rank()).filter(|&axis| shape.extent(axis) != 1).collect()
    };
    let (old, new) = (wide(from), wide(to));
    let mut runs = vec![Run::NONE; to.rank()];
    let extents = |shape: Shape, axes: &[usize]| -> Vec<usize> {
        axes.iter().map(|&axis| shape.extent(axis)).collect()
    };
    if extents(from, &old) == extents(to, &new) {
        for (&a, &b) in old.iter().zip(&new) {
            runs[b] = info.runs[a];
        }
        return AxisInfo { runs, divisor: info.divisor };
    }
    let (Some(&last), Some(&new_last)) = (old.last(), new.last()) else {
        return AxisInfo::uniform(to, info.divisor);
    };
    if let [only] = old[..] {
        let whole = info.runs[only].length == from.extent(only) as u64;
        if whole {
            let mut step = Some(info.runs[only].step);
            for &axis in new.iter().rev() {
                let extent = to.extent(axis) as u64;
                runs[axis] = step.map_or(Run::NONE, |step| Run { step, length: extent });
                step = step.and_then(|s| s.checked_mul(extent as i64));
            }
            let divisor = if step.is_some() { info.divisor } else { 1 };
            return AxisInfo { runs, divisor };
        }
    }
    // What runs along the last axis still does, as far as both shapes cut it alike.
    for &axis in &old[..old.len() - 1] {
        info.shorten(axis, 1, unit);
    }
    let inner = common(from.extent(last) as u64, to.extent(new_last) as u64);
    info.shorten(last, common(info.runs[last].length, inner), unit);
    runs[new_last] = info.runs[last];
    AxisInfo { runs, divisor: info.divisor }
}

#[cfg(test)]
mod tests;
