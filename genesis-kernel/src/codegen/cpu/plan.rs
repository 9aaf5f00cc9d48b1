//! Which tile values are computed where they are read, and which are kept in scratch memory.
//!
//! A value is kept where it must be (results of reductions, control flow, loads that a later store may
//! change) or where computing it once is cheaper (a costly value that several loops read, or that a
//! broadcast would repeat). Everything else is virtual.
//!
//! ```text
//! v = load p          virtual: read by two loops, but a load is cheap
//! m = reduce max v    kept (a scalar here, so a register)
//! e = exp (v - m)     kept: two loops read it, and an exp costs more than reading it back
//! s = reduce add e
//! store q, e / s
//! ```

use std::collections::BTreeSet;

use crate::analysis::base;
use crate::ir::{BinaryOp, DType, Func, Op, OpKind, Region, UnaryOp, Value};

/// What readers and costs decide about each value, indexed by value, and facts about each op.
pub(super) struct Plan {
    /// Whether a tile value is kept in scratch.
    pub(super) kept: Vec<bool>,
    /// The matrix that a value is the transpose of, where it is a load that squares of registers turn.
    pub(super) turned: Vec<Option<Value>>,
    /// Whether any loop or scalar op reads the value.
    pub(super) is_read: Vec<bool>,
    position: Vec<usize>,
    region: Vec<Option<Region>>,
    effects: Vec<Op>,
}

/// A register of AVX-512.
const REGISTER_BYTES: usize = 64;

/// Instructions, roughly, that recomputing a chunk may cost before it is kept instead.
const CHEAP: u32 = 12;

/// Instructions, roughly, that a value may cost for each element of a larger tile it is repeated in.
const CHEAP_REPEATED: u32 = 5;

/// Whether an op's results are computed by loops of its own.
pub(super) fn is_root(kind: &OpKind) -> bool {
    match kind {
        OpKind::Store
        | OpKind::AtomicRmw(..)
        | OpKind::AtomicCas(_)
        | OpKind::Reduce { .. }
        | OpKind::Scan { .. }
        | OpKind::Gather { .. }
        | OpKind::Scatter { .. }
        | OpKind::Histogram
        | OpKind::Dot { .. }
        | OpKind::For(_)
        | OpKind::While
        | OpKind::If
        | OpKind::Yield
        | OpKind::Return
        | OpKind::Assert { .. }
        | OpKind::Print { .. }
        | OpKind::ViewLoad
        | OpKind::ViewStore
        | OpKind::MakeView
        | OpKind::TmaLoad(_)
        | OpKind::TmaStore(_)
        | OpKind::ConvertLayout => true,
        OpKind::Const(_)
        | OpKind::Iota
        | OpKind::ProgramId(_)
        | OpKind::NumPrograms(_)
        | OpKind::Unary(_)
        | OpKind::Binary(_)
        | OpKind::Compare(_)
        | OpKind::Select
        | OpKind::Fma
        | OpKind::Asm { .. }
        | OpKind::Cast
        | OpKind::Bitcast
        | OpKind::Broadcast
        | OpKind::ExpandDims { .. }
        | OpKind::Reshape
        | OpKind::Transpose { .. }
        | OpKind::Join
        | OpKind::Split
        | OpKind::PtrAdd
        | OpKind::Load
        | OpKind::ViewPtr
        | OpKind::ViewDim(_)
        | OpKind::ViewStride(_)
        | OpKind::MultipleOf(_) => false,
    }
}

/// Whether a value is a tile with axes.
pub(super) fn has_axes(func: &Func, value: Value) -> bool {
    func.ty(value).as_tile().is_some_and(|t| !t.shape.is_scalar())
}

/// Whether a reshape only inserts or drops axes of extent 1.
pub(super) fn is_trivial_reshape(func: &Func, op: Op) -> bool {
    let data = func.op(op);
    let wide = |v: Value| -> Vec<usize> {
        func.tile(v).shape.extents().into_iter().filter(|&n| n != 1).collect()
    };
    wide(data.operands[0]) == wide(data.results[0])
}

impl Plan {
    /// Decides about every value of a function.
    pub(super) fn new(func: &Func) -> Plan {
        let order = func.walk();
        let mut plan = Plan {
            kept: vec![false; func.n_values()],
            turned: turned(func, &order),
            is_read: vec![false; func.n_values()],
            position: vec![0; func.n_ops()],
            region: vec![None; func.n_ops()],
            effects: Vec::new(),
        };
        plan.number(func, &order);
        let costs = costs(func, &order);
        let rows = rows_of_indices(func, &order);
        let gathered = gathered(func, &order);
        let mut readers: Vec<BTreeSet<Op>> = vec![BTreeSet::new(); func.n_values()];
        let mut repeated = vec![false; func.n_values()];
        let mut spread = vec![false; func.n_values()];
        let mut reshaped = vec![false; func.n_values()];
        for &op in order.iter().rev() {
            for &result in &func.op(op).results {
                let v = result.index();
                plan.is_read[v] = !readers[v].is_empty();
                let cheap = if is_index(func, op) { CHEAP } else { CHEAP_REPEATED };
                let costly = costs[v] > CHEAP && readers[v].len() > 1 && !rows[v]
                    || costs[v] > cheap && repeated[v] && !is_bound(func, op)
                    || spread[v] && widens(func, op);
                plan.kept[v] = has_axes(func, result)
                    && plan.is_read[v]
                    && (is_root(&func.op(op).kind)
                        || gathered[v]
                        || plan.turned[v].is_some()
                        || reshaped[v] && (costs[v] > CHEAP || func.tile(result).shape.rank() > 1)
                        || costly
                        || plan.must_keep(func, op, &readers[v], costs[v]));
            }
            plan.note_reads(func, op, &mut readers, (&mut repeated, &mut spread), &mut reshaped);
        }
        for region in order.iter().flat_map(|&op| &func.op(op).regions) {
            for &arg in &func.region(*region).args {
                plan.kept[arg.index()] = has_axes(func, arg);
            }
        }
        plan
    }

    fn number(&mut self, func: &Func, order: &[Op]) {
        for (position, &op) in order.iter().enumerate() {
            self.position[op.index()] = position;
            if func.op(op).kind.is_pointer_write() {
                self.effects.push(op);
            }
        }
        let nested = order.iter().flat_map(|&op| func.op(op).regions.clone());
        for region in [func.body].into_iter().chain(nested) {
            for &op in &func.region(region).ops {
                self.region[op.index()] = Some(region);
            }
        }
    }

    /// Adds an op's own reads: a root or a kept value reads, a virtual value's readers read through it.
    fn note_reads(
        &self,
        func: &Func,
        op: Op,
        readers: &mut [BTreeSet<Op>],
        (repeated, spread): (&mut [bool], &mut [bool]),
        reshaped: &mut [bool],
    ) {
        let data = func.op(op);
        let reads_itself = is_root(&data.kind)
            || data.results.iter().any(|&r| self.kept[r.index()])
            || data.results.iter().any(|&r| !has_axes(func, r));
        let through: BTreeSet<Op> = if reads_itself {
            BTreeSet::from([op])
        } else {
            data.results.iter().flat_map(|r| readers[r.index()].clone()).collect()
        };
        let is_repeated = !reads_itself && data.results.iter().any(|r| repeated[r.index()]);
        let is_spread = !reads_itself && data.results.iter().any(|r| spread[r.index()]);
        for &operand in &data.operands {
            let v = operand.index();
            readers[v].extend(through.iter().copied());
            repeated[v] |= is_repeated || self.repeats(func, op, operand);
            spread[v] |= is_spread || spreads(func, op, operand);
            reshaped[v] |= data.kind == OpKind::Reshape && !is_trivial_reshape(func, op);
        }
    }

    fn repeats(&self, func: &Func, op: Op, operand: Value) -> bool {
        let data = func.op(op);
        data.kind == OpKind::Broadcast
            && has_axes(func, operand)
            && func.tile(operand).shape.numel() < func.tile(data.results[0]).shape.numel()
    }

    /// Loads that memory may change under before they are read, or that loops would repeat; and costly
    /// values that a deeper loop reads.
    fn must_keep(&self, func: &Func, op: Op, readers: &BTreeSet<Op>, cost: u32) -> bool {
        let is_load = func.op(op).kind == OpKind::Load;
        let elsewhere = readers.iter().any(|r| self.region[r.index()] != self.region[op.index()]);
        if !is_load {
            return elsewhere && cost > CHEAP_REPEATED;
        }
        elsewhere || readers.iter().any(|&reader| self.is_clobbered(func, op, reader))
    }

    /// Whether an effect stands between a load and its reader, or is the reader and writes other
    /// elements than the load has read.
    fn is_clobbered(&self, func: &Func, load: Op, reader: Op) -> bool {
        let (from, to) = (self.position[load.index()], self.position[reader.index()]);
        self.effects.iter().any(|&effect| {
            let at = self.position[effect.index()];
            from < at
                && at <= to
                && may_alias(func, load, effect)
                && !(effect == reader && is_in_place(func, load, effect))
        })
    }
}

/// Whether an op repeats its operand along the last axis: what each element is computed from is one number, and
/// the instructions that compute it have one lane.
fn spreads(func: &Func, op: Op, operand: Value) -> bool {
    let data = func.op(op);
    let last = |v: Value| func.tile(v).shape.extents().last().copied();
    data.kind == OpKind::Broadcast
        && has_axes(func, operand)
        && last(operand) == Some(1)
        && last(data.results[0]) != Some(1)
}

/// Whether an op converts several 16-bit floats of a row, which takes one instruction for a vector of them and
/// three for each that is loaded alone.
fn widens(func: &Func, op: Op) -> bool {
    let data = func.op(op);
    if data.kind != OpKind::Cast {
        return false;
    }
    let tile = func.tile(data.operands[0]);
    let is_row = tile.shape.extents().last().is_some_and(|&n| n > 1);
    is_row && matches!(tile.dtype(), DType::F16 | DType::BF16)
}

/// Of each value, whether it is read at places that are computed.
fn gathered(func: &Func, order: &[Op]) -> Vec<bool> {
    let mut gathered = vec![false; func.n_values()];
    for &op in order {
        if let OpKind::Gather { .. } = func.op(op).kind {
            gathered[func.op(op).operands[0].index()] = true;
        }
    }
    gathered
}

/// Rows and columns of a square that registers transpose: as many as a register has lanes.
pub(super) fn side(dtype: DType) -> usize {
    REGISTER_BYTES / dtype.bytes().max(4)
}

/// Of each value, the matrix that it is the transpose of, where that is a load: see [`loaded`]. Products pack their operands
/// themselves.
fn turned(func: &Func, order: &[Op]) -> Vec<Option<Value>> {
    let mut turned = vec![None; func.n_values()];
    for &op in order {
        if let Some(matrix) = loaded(func, op) {
            turned[func.op(op).results[0].index()] = Some(matrix);
        }
        if let OpKind::Dot { .. } = func.op(op).kind {
            func.op(op).operands.iter().for_each(|v| turned[v.index()] = None);
        }
    }
    turned
}

/// The matrix that an op transposes, where it is a load of whole squares: chunks of its transpose would be gathered from as
/// many cache lines as they have lanes.
fn loaded(func: &Func, op: Op) -> Option<Value> {
    let data = func.op(op);
    let OpKind::Transpose { perm } = &data.kind else { return None };
    let tile = func.tile(data.operands[0]);
    if perm[..] != [1, 0] || tile.is_ptr() {
        return None;
    }
    let is_whole = tile.shape.extents().iter().all(|n| n % side(tile.dtype()) == 0);
    (is_whole && is_loaded(func, data.operands[0])).then_some(data.operands[0])
}

/// Whether a value is a load, perhaps with axes of extent 1 more or less.
fn is_loaded(func: &Func, value: Value) -> bool {
    let Some(op) = func.def_op(value) else { return false };
    let data = func.op(op);
    match data.kind {
        OpKind::Load => true,
        OpKind::ExpandDims { .. } => is_loaded(func, data.operands[0]),
        OpKind::Reshape => is_trivial_reshape(func, op) && is_loaded(func, data.operands[0]),
        _ => false,
    }
}

/// Whether an op computes addresses or indices: mostly those of a chunk's first lane, which are scalars, and
/// the rest is the form of the access. Kept ones would be gathered through.
fn is_index(func: &Func, op: Op) -> bool {
    let data = func.op(op);
    let is_sum = matches!(
        data.kind,
        OpKind::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul)
            | OpKind::Broadcast
            | OpKind::ExpandDims { .. }
    );
    let tile = func.ty(data.results[0]).as_tile();
    tile.is_some_and(|t| t.is_ptr() || is_sum && t.dtype() == DType::I64)
}

/// Of each value, whether it is a tile of indices of several axes that are sums and products of those of fewer: what
/// costs something is computed once a row, and beside it a row is a start and a step.
fn rows_of_indices(func: &Func, order: &[Op]) -> Vec<bool> {
    let is_wide =
        |v: Value| func.tile(v).shape.extents().into_iter().filter(|&n| n > 1).count() > 1;
    let mut rows = vec![false; func.n_values()];
    for &op in order {
        let data = func.op(op);
        let Some(&result) = data.results.first() else { continue };
        let is_row = |&v: &Value| !has_axes(func, v) || !is_wide(v) || rows[v.index()];
        rows[result.index()] = has_axes(func, result)
            && is_wide(result)
            && is_index(func, op)
            && data.operands.iter().all(is_row);
    }
    rows
}

/// Whether an op is a comparison, or a conjunction: a mask, which bounds the loops that read it if it is not
/// kept, and then costs nothing.
fn is_bound(func: &Func, op: Op) -> bool {
    let data = func.op(op);
    let is_bool = |v: &Value| has_axes(func, *v) && func.tile(*v).dtype() == DType::Bool;
    match data.kind {
        OpKind::Compare(_) => true,
        OpKind::Binary(BinaryOp::And) | OpKind::Broadcast | OpKind::ExpandDims { .. } => {
            data.operands.iter().all(is_bool)
        }
        _ => false,
    }
}

/// Whether the effect of `effect` may change what `load` reads.
pub(super) fn may_alias(func: &Func, load: Op, effect: Op) -> bool {
    let (read, written) =
        (base(func, func.op(load).operands[0]), base(func, func.op(effect).operands[0]));
    let attrs = |value: Option<Value>| {
        let value = value?;
        func.params.iter().find(|p| p.value == value).map(|p| &p.attrs)
    };
    if attrs(read).is_some_and(|a| a.readonly) {
        return false;
    }
    let is_exclusive = |value| attrs(value).is_some_and(|a| a.exclusive);
    let differ = read != written && read.is_some() && written.is_some();
    !(differ && (is_exclusive(read) || is_exclusive(written)))
}

/// Whether a store writes exactly the elements that a load read, each by the lane that read it, and no
/// element twice: then a loop may read and write chunk after chunk.
fn is_in_place(func: &Func, load: Op, store: Op) -> bool {
    let (from, to) = (func.op(load).operands[0], func.op(store).operands[0]);
    func.op(store).kind == OpKind::Store
        && func.tile(from).shape.rank() == 1
        && lane_step(func, to, MAX_DEPTH) == Some(1)
        && from == to
}

/// How deep an address may be for it to be looked through.
const MAX_DEPTH: u32 = 12;

/// How much a value of rank 1 grows from lane to lane, where that is a constant.
fn lane_step(func: &Func, value: Value, depth: u32) -> Option<i64> {
    let op = func.op(func.def_op(value)?);
    let depth = depth.checked_sub(1)?;
    let step = |i: usize| lane_step(func, op.operands[i], depth);
    match op.kind {
        OpKind::Iota => Some(1),
        OpKind::Broadcast if !has_axes(func, op.operands[0]) => Some(0),
        OpKind::PtrAdd | OpKind::Binary(BinaryOp::Add) => Some(step(0)?.wrapping_add(step(1)?)),
        OpKind::Binary(BinaryOp::Sub) => Some(step(0)?.wrapping_sub(step(1)?)),
        OpKind::MultipleOf(_) => step(0),
        _ => None,
    }
}

/// Instructions, roughly, that one chunk of each value costs if everything it reads is virtual.
fn costs(func: &Func, order: &[Op]) -> Vec<u32> {
    let mut costs = vec![0u32; func.n_values()];
    for &op in order {
        let data = func.op(op);
        let inner: u32 = data
            .operands
            .iter()
            .filter(|&&v| has_axes(func, v))
            .map(|v| costs[v.index()])
            .fold(0, u32::saturating_add);
        let cost = match &data.kind {
            OpKind::Load => 3,
            kind if is_root(kind) => 0,
            OpKind::Binary(BinaryOp::Div | BinaryOp::Rem)
            | OpKind::Unary(UnaryOp::Sqrt | UnaryOp::Rsqrt) => inner.saturating_add(6),
            kind if kind.is_elementwise() => inner.saturating_add(1),
            _ => inner,
        };
        for result in &data.results {
            costs[result.index()] = if has_axes(func, *result) { cost } else { 0 };
        }
    }
    costs
}
