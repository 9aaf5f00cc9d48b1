//! What launches have to move and compute, counted once for each kind of launch.
//!
//! The count is of the kernel's tile IR. That of a kernel without loops is the same for each program; that
//! of one with loops follows from its arguments. It takes far longer than a launch, so that it is made once
//! in a process, not in each recording.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::event::Kernel;
use super::kinds::{Args, Key};
use crate::compile::{self, launch_cost};
use crate::front::Hints;
use crate::ir::{DType, Func, Op, OpKind, Value};
use crate::kernel::{KernelDef, Launch};
use crate::runtime::Arg;

/// Counts that are kept; a program whose sizes never repeat starts anew.
const KEPT: usize = 1 << 14;

/// The counts of the process so far, which recordings share.
static COSTS: Mutex<Costs> = Mutex::new(Costs { codes: BTreeMap::new(), works: BTreeMap::new() });

#[derive(Debug)]
struct Costs {
    codes: BTreeMap<usize, Code>,
    /// By the hash of a launch's variant.
    works: BTreeMap<u64, Kernel>,
}

/// One specialisation of a kernel.
#[derive(Debug)]
struct Code {
    func: Option<Func>,
    /// What each program costs, where that does not depend on arguments.
    fixed: Option<compile::Cost>,
    dtype: Option<DType>,
    /// The numbers that the length of a loop follows from.
    follows: Args,
    /// How often memory moves the elements of each parameter: once if they are only read or only written.
    times: Vec<u64>,
}

/// What a launch with this key has to do, and the numbers that this depends on. Code has one address as long
/// as the process lives.
pub(super) fn count(
    key: Key<'_>,
    (def, code): (&KernelDef, usize),
    (launch, grid): (&Launch<'_>, [u32; 3]),
    hints: &dyn Fn() -> Hints,
) -> (Kernel, Args) {
    let mut costs = COSTS.lock().unwrap_or_else(PoisonError::into_inner);
    let Costs { codes, works } = &mut *costs;
    let code = codes.entry(code).or_insert_with(|| Code::new(def, launch, hints));
    let hash = key.variant(code.follows);
    if let Some(known) = works.get(&hash) {
        return (*known, code.follows);
    }
    let programs = grid.iter().map(|&n| u64::from(n)).product();
    let work = code.work(launch, programs);
    if works.len() == KEPT {
        works.clear();
    }
    works.insert(hash, work);
    (work, code.follows)
}

impl Code {
    fn new(def: &KernelDef, launch: &Launch<'_>, hints: &dyn Fn() -> Hints) -> Code {
        // What was launched was compiled, so that it can be again.
        let special = def.specialize(launch.dtypes, launch.consts, &hints());
        let Ok(func) = special.map(|special| special.func) else {
            let (follows, times) = (Args::NONE, Vec::new());
            return Code { func: None, fixed: None, dtype: None, follows, times };
        };
        let dtype = func.walk().into_iter().find_map(|op| {
            let data = func.op(op);
            let is_product = matches!(data.kind, OpKind::Dot { .. });
            is_product.then(|| func.tile(data.operands[0]).dtype())
        });
        let mut loops = func.walk().into_iter().map(|op| &func.op(op).kind);
        let has_loops = loops.any(OpKind::is_loop);
        let fixed = (!has_loops).then(|| compile::cost(&func));
        let times = func.params.iter().map(|param| times(&func, param.value)).collect();
        let follows = follows_numbers(&func, launch.args);
        Code { fixed, dtype, follows, times, func: Some(func) }
    }

    fn work(&self, launch: &Launch<'_>, programs: u64) -> Kernel {
        let cost = match (&self.fixed, &self.func) {
            (Some(cost), _) => *cost,
            (None, Some(func)) => launch_cost(func, launch.grid, launch.args),
            (None, None) => return Kernel::default(),
        };
        // A tile's lanes outside of a tensor count as on, and an element that several programs read
        // counts for each: what memory must move is no more than the operands.
        let times = self.times.iter().copied().chain(std::iter::repeat(2));
        let most = launch.args.iter().zip(times).map(|(arg, n)| n * elements_bytes(arg)).sum();
        Kernel {
            bytes: programs.saturating_mul(cost.bytes).min(most),
            flops: programs.saturating_mul(cost.flops),
            product_flops: programs.saturating_mul(cost.product_flops),
            dtype: self.dtype,
            has_unknown_loops: cost.has_runtime_loops,
        }
    }
}

/// The numbers among the arguments that the length of a loop follows from: others than extents.
fn follows_numbers(func: &Func, args: &[Arg]) -> Args {
    let is_number = |arg: &Arg| matches!(arg, Arg::Scalar(scalar) if !scalar.dtype.is_float());
    let params = func.params.iter().zip(args).enumerate();
    let numbers = params.filter(|(_, (_, arg))| is_number(arg));
    let mut following: BTreeMap<Value, Args> =
        numbers.map(|(index, (param, _))| (param.value, Args::one(index))).collect();
    let mut all = Args::NONE;
    for op in func.walk() {
        let data = func.op(op);
        let is_loop = matches!(data.kind, OpKind::For(_));
        // A loop's bounds and step come first.
        let looked_at = if is_loop { 3 } else { data.operands.len() };
        let operands = data.operands.iter().take(looked_at);
        let from = operands.filter_map(|value| following.get(value).copied());
        let from = from.fold(Args::NONE, Args::and);
        if is_loop {
            all = all.and(from);
        }
        if from != Args::NONE {
            following.extend(data.results.iter().map(|&result| (result, from)));
        }
    }
    all
}

/// 1 for a view that is only read or only written, else 2.
fn times(func: &Func, param: Value) -> u64 {
    let used = |kind: OpKind| {
        let is = |op: &Op| func.op(*op).kind == kind && func.op(*op).operands[0] == param;
        func.walk().iter().any(is)
    };
    if used(OpKind::ViewLoad) == used(OpKind::ViewStore) { 2 } else { 1 }
}

/// Bytes of the elements that an argument has.
fn elements_bytes(arg: &Arg) -> u64 {
    match arg {
        Arg::Scalar(_) => 0,
        Arg::Ptr(ptr) => ptr.bytes,
        Arg::Views(all) => all.ptr.bytes,
        Arg::View(view) => {
            let axes = view.dims().iter().zip(view.strides());
            let count = |(&dim, &stride): (&i64, &i64)| if stride == 0 { 1 } else { dim.max(0) };
            let elements: u64 = axes.map(|axis| count(axis) as u64).product();
            elements * view.ptr.dtype.bytes() as u64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{BinaryOp, Builder, LoopOptions, ParamAttrs, Scalar, Type};

    /// The numbers that loops follow of a kernel of `seed`, `n` and `step`, whose loop ends at what `end`
    /// makes of them.
    fn followed(end: impl FnOnce(&mut Builder<'_>, [Value; 3]) -> Value) -> Args {
        let mut func = Func::new("loop");
        let params = ["seed", "n", "step"]
            .map(|name| func.add_param(name, Type::scalar(DType::I64), ParamAttrs::default()));
        let body = func.add_region();
        func.add_region_arg(body, Type::scalar(DType::I64));
        Builder::at(&mut func, body, None).yield_values(&[]);
        let mut b = Builder::new(&mut func);
        b.binary(BinaryOp::Add, params[0], params[2]);
        let end = end(&mut b, params);
        let (zero, one) = (b.int(DType::I64, 0), b.int(DType::I64, 1));
        b.for_loop([zero, end, one], &[], body, LoopOptions::default());
        b.ret();
        follows_numbers(&func, &[Arg::Scalar(Scalar::int(DType::I64, 1)); 3])
    }

    #[test]
    fn loops_follow_the_numbers_that_their_bounds_are_made_of() {
        assert_eq!(followed(|b, _| b.int(DType::I64, 8)), Args::NONE);
        assert_eq!(followed(|_, [_, n, _]| n), Args::one(1));
        let sum = |b: &mut Builder<'_>, [_, n, step]: [Value; 3]| {
            let one = b.int(DType::I64, 1);
            let n = b.binary(BinaryOp::Add, n, one);
            b.binary(BinaryOp::Add, n, step)
        };
        assert_eq!(followed(sum), Args::one(1).and(Args::one(2)));
    }
}
