//! What is left of a function where only some ops are wanted: these, the control flow around them, and what they use.

use super::{Def, Func, Op, OpKind, Region, Value};

/// Removes everything but the ops that are roots, the control flow around them and what they use.
pub(crate) fn keep(func: &mut Func, is_root: impl Fn(&OpKind) -> bool) {
    let mut live = Liveness::of(func);
    live.mark(func, is_root);
    sweep(func, &live, func.body);
}

struct Liveness {
    ops: Vec<bool>,
    values: Vec<bool>,
    /// The op that owns each op's region.
    owner: Vec<Option<Op>>,
    /// The op that owns each region, by the region's id.
    region_owner: Vec<Option<Op>>,
    work: Vec<Op>,
    value_work: Vec<Value>,
}

impl Liveness {
    fn of(func: &Func) -> Liveness {
        let mut live = Liveness {
            ops: vec![false; func.n_ops()],
            values: vec![false; func.n_values()],
            owner: vec![None; func.n_ops()],
            region_owner: Vec::new(),
            work: Vec::new(),
            value_work: Vec::new(),
        };
        for op in func.walk() {
            for &region in &func.op(op).regions {
                if live.region_owner.len() <= region.index() {
                    live.region_owner.resize(region.index() + 1, None);
                }
                live.region_owner[region.index()] = Some(op);
                for &inner in &func.region(region).ops {
                    live.owner[inner.index()] = Some(op);
                }
            }
        }
        live
    }

    fn mark(&mut self, func: &Func, is_root: impl Fn(&OpKind) -> bool) {
        for op in func.walk() {
            if is_root(&func.op(op).kind) {
                self.op(op);
            }
        }
        loop {
            if let Some(op) = self.work.pop() {
                self.uses(func, op);
            } else if let Some(value) = self.value_work.pop() {
                self.source(func, value);
            } else {
                return;
            }
        }
    }

    fn op(&mut self, op: Op) {
        if !std::mem::replace(&mut self.ops[op.index()], true) {
            self.work.push(op);
        }
    }

    fn value(&mut self, value: Value) {
        if !std::mem::replace(&mut self.values[value.index()], true) {
            self.value_work.push(value);
        }
    }

    /// What a live op needs.
    fn uses(&mut self, func: &Func, op: Op) {
        if let Some(owner) = self.owner[op.index()] {
            self.op(owner);
        }
        let data = func.op(op);
        let needed = match data.kind {
            // Carried values and yields are live one by one; see `source`.
            OpKind::For(_) => &data.operands[..3],
            OpKind::Yield if self.yields_to(func, op).is_some() => &[],
            _ => &data.operands[..],
        };
        for &operand in needed {
            self.value(operand);
        }
        for &region in &data.regions {
            if let Some(&last) = func.region(region).ops.last() {
                self.op(last);
            }
        }
    }

    /// The loop or branch that a yield ends, where it takes single values.
    fn yields_to(&self, func: &Func, op: Op) -> Option<Op> {
        let owner = self.owner[op.index()]?;
        matches!(func.op(owner).kind, OpKind::For(_) | OpKind::If).then_some(owner)
    }

    /// What a live value needs.
    fn source(&mut self, func: &Func, value: Value) {
        match func.value(value).def {
            Def::Result(op, _) => {
                self.op(op);
                if let Some(i) = func.op(op).results.iter().position(|&r| r == value) {
                    self.slot(func, op, i);
                }
            }
            Def::Argument(region, _) => {
                let Some(Some(op)) = self.region_owner.get(region.index()).copied() else { return };
                let args = &func.region(region).args;
                let Some(i) = args.iter().position(|&a| a == value) else { return };
                if matches!(func.op(op).kind, OpKind::For(_)) && i > 0 {
                    self.slot(func, op, i - 1);
                }
            }
        }
    }

    /// Number `i` of what a loop carries or a branch yields is live.
    fn slot(&mut self, func: &Func, op: Op, i: usize) {
        let data = func.op(op);
        let is_loop = matches!(data.kind, OpKind::For(_));
        if !is_loop && data.kind != OpKind::If {
            return;
        }
        if is_loop {
            self.value(data.operands[3 + i]);
            self.value(func.region(data.regions[0]).args[1 + i]);
            self.value(data.results[i]);
        }
        for &region in &data.regions {
            let last = func.region(region).ops.last().map(|&last| func.op(last));
            if let Some(last) = last.filter(|last| last.kind == OpKind::Yield) {
                self.value(last.operands[i]);
            }
        }
    }
}

fn sweep(func: &mut Func, live: &Liveness, region: Region) {
    let mut ops = std::mem::take(&mut func.region_mut(region).ops);
    ops.retain(|op| live.ops[op.index()]);
    for &op in &ops {
        drop_slots(func, live, op);
        for inner in func.op(op).regions.clone() {
            sweep(func, live, inner);
        }
    }
    func.region_mut(region).ops = ops;
}

/// Takes the results that nobody uses from a loop or a branch.
fn drop_slots(func: &mut Func, live: &Liveness, op: Op) {
    let data = func.op(op).clone();
    let (first_operand, first_arg) = match data.kind {
        OpKind::For(_) => (3, 1),
        OpKind::If => (1, 0),
        _ => return,
    };
    let keep: Vec<bool> = data.results.iter().map(|r| live.values[r.index()]).collect();
    if keep.iter().all(|&k| k) {
        return;
    }
    let kept = |values: &[Value], first: usize| -> Vec<Value> {
        let is_kept = |i: usize| i < first || keep.get(i - first).copied().unwrap_or(true);
        (0..values.len()).filter(|&i| is_kept(i)).map(|i| values[i]).collect()
    };
    let operands = kept(&data.operands, first_operand);
    func.op_mut(op).operands = operands;
    func.set_results(op, kept(&data.results, 0));
    for &region in &data.regions {
        let args = kept(&func.region(region).args, first_arg);
        func.set_region_args(region, args);
        let Some(&last) = func.region(region).ops.last() else { continue };
        if func.op(last).kind == OpKind::Yield {
            let yielded = kept(&func.op(last).operands, 0);
            func.op_mut(last).operands = yielded;
        }
    }
}
