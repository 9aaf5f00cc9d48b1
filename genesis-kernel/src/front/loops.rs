//! Loops: unrolled where their bounds are known and few, else ops that carry what the body assigns.
//!
//! What a loop carries is found on the syntax first. A literal that is carried has no dtype yet: the
//! body is walked with it soft, and if an iteration leaves a hard value in its place the walk is
//! undone and done again from that dtype.

use crate::analysis::{Range, Ranges};
use crate::diag::Diagnostic;
use crate::ir::{
    BinaryOp, DType, Func, LoopOptions, OpKind, Predicate, Region, Type, UnaryOp, Value,
};

use super::assigned::assigned_in;
use super::ast::{BlockAst, ExprAst, IterAst, PatternAst, Span};
use super::broadcast::Class;
use super::lower::{Lower, MAX_UNROLLED, Res, describe_type};
use super::value::{Lit, Operand, Val};

/// The longest range that is unrolled without being asked to.
const UNROLLED_UNASKED: i128 = 64;

/// A range with its bounds walked.
struct Bounds {
    /// Start, end, step as i64: of the indices, or of the number of the iteration in `line`.
    values: [Value; 3],
    /// Start and step of the indices, for a range that may count down.
    line: Option<[Value; 2]>,
    /// The dtype of the index, and whether it is only a literal's.
    index: (DType, bool),
}

/// One value carried round a loop.
struct Leaf {
    init: Value,
    ty: Type,
    soft: bool,
}

/// How a variable's value is made of what the loop carries.
enum Carried {
    Leaf(usize),
    Tuple(Vec<Carried>),
    /// What can't be carried and must stay as it is.
    Fixed(Val),
}

/// A dtype found for a carried literal, and whether it is still soft.
type Hint = Option<(DType, bool)>;

/// What a loop carries.
struct Carry {
    slots: Vec<(usize, &'static str, Carried)>,
    leaves: Vec<Leaf>,
}

impl Carry {
    fn inits(&self) -> Vec<Value> {
        self.leaves.iter().map(|leaf| leaf.init).collect()
    }
}

/// The state to go back to when a loop must be walked again.
struct Checkpoint {
    func: Func,
    variables: Vec<(&'static str, Val)>,
    unrolled: usize,
}

impl Lower {
    /// `for pattern in iter { body }`
    pub(super) fn for_loop(
        &mut self,
        pattern: &'static PatternAst,
        iter: &'static IterAst,
        body: &'static BlockAst,
        span: Span,
    ) -> Res<()> {
        match iter {
            IterAst::Persistent(total) => {
                self.refuse_in_combine(span, "a loop over a run-time range")?;
                let total = self.operand(total)?;
                let total = self.scalar_index("`persistent`", &total)?;
                let start = self.build().program_id(0);
                let step = self.build().num_programs(0);
                let values = [start, total, step];
                let bounds = Bounds { values, line: None, index: (DType::I64, false) };
                self.counted(pattern, &bounds, LoopOptions::default(), body, span)
            }
            IterAst::Range { start, end, step, stages, unroll, is_static } => {
                let (start, end) = (self.operand(start)?, self.operand(end)?);
                let step = step.map(|step| self.operand(step)).transpose()?;
                if let Some(step) = step.as_ref().filter(|step| step.val.as_int() == Some(0)) {
                    let error = self.error(step.span(), "the step of a range is 0");
                    return Err(error.help("count up with a step above 0, down with one below"));
                }
                let options = LoopOptions { stages: *stages, unroll: *unroll };
                let asked = options != LoopOptions::default() || step.is_some();
                if let Some(indices) = self.known_range(&start, &end, step.as_ref())
                    && (*is_static || (!asked && indices.len() as i128 <= UNROLLED_UNASKED))
                {
                    return self.unroll(pattern, indices, body, span);
                }
                if *is_static {
                    let error = self.error(span, "the bounds of `static_range` are not constants");
                    return Err(error.help("loop over run-time bounds with `range`"));
                }
                self.refuse_in_combine(span, "a loop over a run-time range")?;
                let bounds = self.bounds(&start, &end, step.as_ref())?;
                self.counted(pattern, &bounds, options, body, span)
            }
        }
    }

    /// The indices of a range whose bounds are all known, unless they are far too many.
    fn known_range(
        &self,
        start: &Operand,
        end: &Operand,
        step: Option<&Operand>,
    ) -> Option<Vec<Val>> {
        let (first, end_at) = (start.val.as_int()?, end.val.as_int()?);
        let by = i128::from(step.map_or(Some(1), |step| step.val.as_int())?);
        let way = (i128::from(end_at) - i128::from(first)) * by.signum();
        if way <= 0 {
            return Some(Vec::new());
        }
        let count = (way - 1) / by.abs() + 1;
        let count = usize::try_from(count).ok()?.min(MAX_UNROLLED + 1);
        let operands = [Some(start), Some(end), step];
        let dtype = operands.into_iter().flatten().find_map(|operand| match &operand.val {
            Val::Const(scalar) => Some(scalar.dtype),
            _ => None,
        });
        let index = |i: usize| {
            let at = i128::from(first) + i as i128 * by;
            match dtype {
                Some(dtype) => Val::Const(crate::ir::Scalar::int(dtype, at as i64)),
                None => Val::Lit(Lit::Int(at)),
            }
        };
        Some((0..count).map(index).collect())
    }

    fn unroll(
        &mut self,
        pattern: &'static PatternAst,
        indices: Vec<Val>,
        body: &'static BlockAst,
        span: Span,
    ) -> Res<()> {
        for index in indices {
            self.unrolled += 1;
            if self.unrolled > MAX_UNROLLED {
                let message = format!("over {MAX_UNROLLED} iterations would be unrolled");
                return Err(self
                    .error(span, message)
                    .help("loop with `range(a, b, step)` instead"));
            }
            let mark = self.frame().slots.len();
            self.declare(pattern, index, span)?;
            self.block(body)?;
            self.frame_mut().slots.truncate(mark);
            if self.returned {
                break;
            }
        }
        Ok(())
    }

    fn bounds(&mut self, start: &Operand, end: &Operand, step: Option<&Operand>) -> Res<Bounds> {
        let all: Vec<&Operand> = [Some(start), Some(end), step].into_iter().flatten().collect();
        let index = self.common_dtype("a range", Class::Int, &all)?;
        let mut values = [None; 3];
        for (slot, operand) in values.iter_mut().zip(&all) {
            if self.shape(&operand.val).is_some_and(|shape| !shape.is_scalar()) {
                let found = self.describe(&operand.val);
                return Err(
                    self.error(operand.span(), format!("a range needs scalars, this is {found}"))
                );
            }
            let value = self.coerce(operand, index.0)?;
            *slot = Some(self.build().cast(value, DType::I64));
        }
        let values = values.map(|value| value.unwrap_or_else(|| self.build().int(DType::I64, 1)));
        let steps = Ranges::of_one(&self.func, values[2]);
        if steps.low > 0 {
            return Ok(Bounds { values, line: None, index });
        }
        let [start, _, step] = values;
        let count = self.iterations(values, steps);
        let (zero, one) = (self.build().int(DType::I64, 0), self.build().int(DType::I64, 1));
        Ok(Bounds { values: [zero, count, one], line: Some([start, step]), index })
    }

    /// How many indices there are from `start` in steps of `step`, up or down, before `end` is reached or
    /// passed. A loop of tile IR only counts up, so that this is all that passes see of counting down.
    fn iterations(&mut self, [start, end, step]: [Value; 3], steps: Range) -> Value {
        if steps.low <= 0 && steps.high >= 0 {
            let zero = self.build().int(DType::I64, 0);
            let moves = self.build().compare(Predicate::Ne, step, zero);
            let message = "the step of a range is not 0".to_owned();
            self.build().push(OpKind::Assert { message }, &[moves], &[], &[]);
        }
        let mut b = self.build();
        let (zero, one) = (b.int(DType::I64, 0), b.int(DType::U64, 1));
        let (from, to) = match steps.high < 0 {
            true => (end, start),
            false => {
                let rises = b.compare(Predicate::Gt, step, zero);
                (b.select(rises, start, end), b.select(rises, end, start))
            }
        };
        let runs = b.compare(Predicate::Lt, from, to);
        let moves = b.compare(Predicate::Ne, step, zero);
        let runs = b.binary(BinaryOp::And, runs, moves);
        // Without a sign neither overflows: of the lowest i64 the magnitude is 2^63.
        let way = b.binary(BinaryOp::Sub, to, from);
        let way = b.cast(way, DType::U64);
        let size = b.unary(UnaryOp::Abs, step);
        let size = b.cast(size, DType::U64);
        let before = b.binary(BinaryOp::Sub, way, one);
        let before = b.binary(BinaryOp::Div, before, size);
        let count = b.binary(BinaryOp::Add, before, one);
        let most = b.int(DType::U64, i64::MAX);
        let count = b.binary(BinaryOp::Min, count, most);
        let count = b.cast(count, DType::I64);
        b.select(runs, count, zero)
    }

    fn counted(
        &mut self,
        pattern: &'static PatternAst,
        bounds: &Bounds,
        options: LoopOptions,
        body: &'static BlockAst,
        span: Span,
    ) -> Res<()> {
        self.carrying(body, span, |lower, carry, hints| {
            let region = lower.func.add_region();
            let index = lower.func.add_region_arg(region, Type::scalar(DType::I64));
            let args = lower.add_args(region, carry);
            let (dtype, soft) = bounds.index;
            let outs = lower.walk_body(region, carry, &args, hints, span, |lower| {
                let index = lower.index_at(bounds, index);
                let index = lower.build().cast(index, dtype);
                let index = if soft { Val::Soft(index) } else { Val::Ir(index) };
                let mark = lower.frame().slots.len();
                lower.declare(pattern, index, span)?;
                lower.block(body)?;
                lower.frame_mut().slots.truncate(mark);
                Ok(())
            })?;
            lower.finish_region(region, &outs);
            Ok(lower.build().for_loop(bounds.values, &carry.inits(), region, options))
        })
    }

    /// The index of an iteration, from what the loop counts.
    fn index_at(&mut self, bounds: &Bounds, counted: Value) -> Value {
        let Some([start, step]) = bounds.line else { return counted };
        let mut b = self.build();
        let way = b.binary(BinaryOp::Mul, counted, step);
        b.binary(BinaryOp::Add, start, way)
    }

    /// `while cond { body }`
    pub(super) fn while_loop(
        &mut self,
        cond: &'static ExprAst,
        body: &'static BlockAst,
        span: Span,
    ) -> Res<()> {
        self.refuse_in_combine(span, "`while`")?;
        self.carrying(body, span, |lower, carry, hints| {
            let cond_region = lower.func.add_region();
            let args = lower.add_args(cond_region, carry);
            lower.bind(carry, &args);
            let value = lower.within(cond_region, |lower| {
                let operand = lower.operand(cond)?;
                lower.condition("`while`", &operand)
            })?;
            lower.finish_region(cond_region, &[value]);
            let region = lower.func.add_region();
            let args = lower.add_args(region, carry);
            let outs = lower.walk_body(region, carry, &args, hints, span, |lower| {
                lower.block(body).map(|_| ())
            })?;
            lower.finish_region(region, &outs);
            Ok(lower.build().while_loop(&carry.inits(), cond_region, region))
        })
    }

    /// Builds a loop by `build`, again while that finds better dtypes for carried literals, and then
    /// gives the variables their values after the loop.
    fn carrying(
        &mut self,
        body: &'static BlockAst,
        span: Span,
        mut build: impl FnMut(&mut Lower, &mut Carry, &mut Vec<Hint>) -> Res<Vec<Value>>,
    ) -> Res<()> {
        let names = assigned_in(body);
        let mut hints: Vec<Hint> = Vec::new();
        let outer_returned = std::mem::replace(&mut self.returned, false);
        // Each walk again makes at least one carried literal hard, so this ends.
        loop {
            let checkpoint = self.carries_soft(&names).then(|| self.checkpoint());
            let mut carry = self.carry_in(&names, &hints, span)?;
            let mut found = vec![None; carry.leaves.len()];
            let results = build(self, &mut carry, &mut found)?;
            self.returned = outer_returned;
            match checkpoint {
                Some(checkpoint) if found.iter().any(Option::is_some) => {
                    self.roll_back(checkpoint);
                    hints.resize(found.len(), None);
                    for (hint, found) in hints.iter_mut().zip(found) {
                        *hint = found.or(*hint);
                    }
                }
                _ => {
                    self.bind(&carry, &results);
                    return Ok(());
                }
            }
        }
    }

    fn carries_soft(&self, names: &[&'static str]) -> bool {
        let vals = names.iter().filter_map(|name| self.frame().lookup(name));
        vals.into_iter().any(|val| self.any_soft(&val))
    }

    fn any_soft(&self, val: &Val) -> bool {
        match val {
            Val::Tuple(parts) => parts.iter().any(|part| self.any_soft(part)),
            val => self.is_soft(val),
        }
    }

    fn checkpoint(&self) -> Checkpoint {
        let (func, variables) = (self.func.clone(), self.variables());
        Checkpoint { func, variables, unrolled: self.unrolled }
    }

    fn roll_back(&mut self, checkpoint: Checkpoint) {
        self.func = checkpoint.func;
        self.restore(&checkpoint.variables);
        self.unrolled = checkpoint.unrolled;
        self.returned = false;
    }

    /// The values of the assigned variables before the loop.
    fn carry_in(&mut self, names: &[&'static str], hints: &[Hint], span: Span) -> Res<Carry> {
        let mut carry = Carry { slots: Vec::new(), leaves: Vec::new() };
        for &name in names {
            let Some(slot) = self.frame().slot(name) else { continue };
            let val = self.frame().slots[slot].val.clone();
            let carried = self.carry_in_val(val, hints, &mut carry.leaves, span)?;
            carry.slots.push((slot, name, carried));
        }
        Ok(carry)
    }

    fn carry_in_val(
        &mut self,
        val: Val,
        hints: &[Hint],
        leaves: &mut Vec<Leaf>,
        span: Span,
    ) -> Res<Carried> {
        if let Val::Tuple(parts) = val {
            let parts = parts.into_iter();
            let parts = parts.map(|part| self.carry_in_val(part, hints, leaves, span));
            return Ok(Carried::Tuple(parts.collect::<Res<Vec<Carried>>>()?));
        }
        let (init, soft) = match self.number_kind(&val) {
            Some((dtype, soft)) => {
                let hint = hints.get(leaves.len()).copied().flatten().filter(|_| soft);
                let (dtype, soft) = hint.unwrap_or((dtype, soft));
                (self.coerce_val(&val, dtype, span)?, soft)
            }
            None => match self.pointee(&val) {
                Some((pointer, ..)) => (pointer, false),
                None => return Ok(Carried::Fixed(val)),
            },
        };
        leaves.push(Leaf { init, ty: self.func.ty(init), soft });
        Ok(Carried::Leaf(leaves.len() - 1))
    }

    fn add_args(&mut self, region: Region, carry: &Carry) -> Vec<Value> {
        let types = carry.leaves.iter().map(|leaf| leaf.ty);
        types.map(|ty| self.func.add_region_arg(region, ty)).collect()
    }

    /// Gives the carried variables these values.
    fn bind(&mut self, carry: &Carry, values: &[Value]) {
        for (slot, _, carried) in &carry.slots {
            let val = resolve(carried, &carry.leaves, values);
            self.frame_mut().slots[*slot].val = val;
        }
    }

    /// Walks a body and gives what it hands to the next iteration.
    fn walk_body(
        &mut self,
        region: Region,
        carry: &mut Carry,
        args: &[Value],
        found: &mut [Hint],
        span: Span,
        walk: impl FnOnce(&mut Lower) -> Res<()>,
    ) -> Res<Vec<Value>> {
        self.bind(carry, args);
        self.within(region, |lower| {
            walk(lower)?;
            let mut outs = args.to_vec();
            if !lower.returned {
                for (slot, name, carried) in &carry.slots {
                    let val = lower.frame().slots[*slot].val.clone();
                    let mut out = Out { leaves: &mut carry.leaves, outs: &mut outs, found, span };
                    lower.carry_out(carried, &val, name, &mut out)?;
                }
            }
            lower.returned = false;
            Ok(outs)
        })
    }

    fn carry_out(&mut self, carried: &Carried, val: &Val, name: &str, out: &mut Out) -> Res<()> {
        match (carried, val) {
            (Carried::Tuple(parts), Val::Tuple(vals)) if parts.len() == vals.len() => {
                for (part, val) in parts.iter().zip(vals) {
                    self.carry_out(part, val, name, out)?;
                }
                Ok(())
            }
            (Carried::Leaf(leaf), val) => self.carry_out_leaf(*leaf, val, name, out),
            (Carried::Fixed(old), val) if old == val => Ok(()),
            (Carried::Fixed(_) | Carried::Tuple(_), val) => {
                let found = self.describe(val);
                let message = format!("`{name}` is {found}, which a loop can't assign");
                Err(self.error(out.span, message).help("assign tiles, scalars and pointers"))
            }
        }
    }

    fn carry_out_leaf(&mut self, leaf: usize, val: &Val, name: &str, out: &mut Out) -> Res<()> {
        let Leaf { ty, soft, .. } = out.leaves[leaf];
        let changed = |lower: &Lower| lower.type_changes(ty, val, name, out.span);
        let Some((dtype, val_soft)) = self.number_kind(val) else {
            return match val {
                Val::Ir(value) if self.func.ty(*value) == ty => {
                    out.outs[leaf] = *value;
                    Ok(())
                }
                _ => Err(changed(self)),
            };
        };
        let tile = ty.as_tile().filter(|tile| !tile.is_ptr()).ok_or_else(|| changed(self))?;
        if self.shape(val) != Some(tile.shape) {
            return Err(changed(self));
        }
        let own = tile.dtype();
        match (soft, val_soft) {
            (false, false) if dtype != own => return Err(changed(self)),
            (true, false) if dtype != own => {
                out.found[leaf] = Some((dtype, false));
                return Ok(());
            }
            (true, true) if dtype.is_float() && !own.is_float() => {
                out.found[leaf] = Some((dtype, true));
                return Ok(());
            }
            (true, false) => out.leaves[leaf].soft = false,
            (false, false) | (_, true) => {}
        }
        out.outs[leaf] = self.coerce_val(val, own, out.span)?;
        Ok(())
    }

    fn type_changes(&self, ty: Type, val: &Val, name: &str, span: Span) -> Diagnostic {
        let (before, after) = (describe_type(ty), self.describe(val));
        let message = format!("`{name}` is {before} before the loop and {after} after one pass");
        self.error(span, message).help("start it with the dtype and shape that the loop gives it")
    }
}

/// Where what a body hands to the next iteration is gathered.
struct Out<'a> {
    leaves: &'a mut Vec<Leaf>,
    outs: &'a mut [Value],
    found: &'a mut [Hint],
    span: Span,
}

fn resolve(carried: &Carried, leaves: &[Leaf], values: &[Value]) -> Val {
    match carried {
        Carried::Leaf(leaf) if leaves[*leaf].soft => Val::Soft(values[*leaf]),
        Carried::Leaf(leaf) => Val::Ir(values[*leaf]),
        Carried::Tuple(parts) => {
            Val::Tuple(parts.iter().map(|part| resolve(part, leaves, values)).collect())
        }
        Carried::Fixed(val) => val.clone(),
    }
}
