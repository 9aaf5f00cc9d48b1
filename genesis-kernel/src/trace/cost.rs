//! What launches have to move and compute, counted once for each kind of launch.
//!
//! The count is of the kernel's tile IR. That of a kernel without loops is the same for each program; that
//! of one with loops follows from its arguments. It takes far longer than a launch, so that it is made once
//! in a process, not in each recording.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use super::event::Kernel;
use crate::inspect::{self, launch_cost};
use crate::ir::{DType, Func, Op, OpKind, Value};
use crate::kernel::{Hints, KernelDef};
use crate::launch::Launch;
use crate::runtime::Arg;

/// Counts that are kept; a program whose sizes never repeat starts anew.
const KEPT: usize = 1 << 14;

/// The counts of the process so far, which recordings share.
static COSTS: Mutex<Costs> = Mutex::new(Costs { codes: BTreeMap::new(), works: BTreeMap::new() });

#[derive(Debug)]
struct Costs {
    codes: BTreeMap<usize, Code>,
    /// By the hash of a launch.
    works: BTreeMap<u64, (Kernel, bool)>,
}

/// One specialisation of a kernel.
#[derive(Debug)]
struct Code {
    func: Option<Func>,
    /// What each program costs, where that does not depend on arguments.
    fixed: Option<inspect::Cost>,
    dtype: Option<DType>,
    /// Whether a loop's length follows from numbers among the arguments.
    follows_numbers: bool,
    /// How often memory moves the elements of each parameter: once if they are only read or only written.
    times: Vec<u64>,
}

/// What a launch with this hash has to do, and whether that depends on numbers that the kernel is given. Code
/// has one address as long as the process lives.
pub(super) fn count(
    hash: u64,
    (def, code): (&KernelDef, usize),
    (launch, grid): (&Launch<'_>, [u32; 3]),
    hints: &dyn Fn() -> Hints,
) -> (Kernel, bool) {
    let mut costs = COSTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = costs.works.get(&hash) {
        return *known;
    }
    let programs = grid.iter().map(|&n| u64::from(n)).product();
    let code = costs.codes.entry(code).or_insert_with(|| Code::new(def, launch, hints));
    let work = (code.work(launch, programs), code.follows_numbers);
    if costs.works.len() == KEPT {
        costs.works.clear();
    }
    costs.works.insert(hash, work);
    work
}

impl Code {
    fn new(def: &KernelDef, launch: &Launch<'_>, hints: &dyn Fn() -> Hints) -> Code {
        // What was launched was compiled, so that it can be again.
        let special = def.specialize(launch.dtypes, launch.consts, &hints());
        let Ok(func) = special.map(|special| special.func) else {
            let (follows_numbers, times) = (false, Vec::new());
            return Code { func: None, fixed: None, dtype: None, follows_numbers, times };
        };
        let dtype = func.walk().into_iter().find_map(|op| {
            let data = func.op(op);
            let is_product = matches!(data.kind, OpKind::Dot { .. });
            is_product.then(|| func.tile(data.operands[0]).dtype())
        });
        let mut loops = func.walk().into_iter().map(|op| &func.op(op).kind);
        let has_loops = loops.any(|kind| matches!(kind, OpKind::For(_) | OpKind::While));
        let fixed = (!has_loops).then(|| inspect::cost(&func));
        let times = func.params.iter().map(|param| times(&func, param.value)).collect();
        let follows_numbers = follows_numbers(&func, launch.args);
        Code { fixed, dtype, follows_numbers, times, func: Some(func) }
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

/// Whether the length of a loop follows from numbers among the arguments: others than extents.
fn follows_numbers(func: &Func, args: &[Arg]) -> bool {
    let is_number = |arg: &Arg| matches!(arg, Arg::Scalar(scalar) if !scalar.dtype.is_float());
    let numbers = func.params.iter().zip(args).filter(|(_, arg)| is_number(arg));
    let mut following: BTreeSet<Value> = numbers.map(|(param, _)| param.value).collect();
    for op in func.walk() {
        let data = func.op(op);
        let is_loop = matches!(data.kind, OpKind::For(_));
        // A loop's bounds and step come first.
        let looked_at = if is_loop { 3 } else { data.operands.len() };
        if data.operands.iter().take(looked_at).any(|value| following.contains(value)) {
            if is_loop {
                return true;
            }
            following.extend(data.results.iter().copied());
        }
    }
    false
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
        Arg::View(view) => {
            let axes = view.dims().iter().zip(view.strides());
            let count = |(&dim, &stride): (&i64, &i64)| if stride == 0 { 1 } else { dim.max(0) };
            let elements: u64 = axes.map(|axis| count(axis) as u64).product();
            elements * view.ptr.dtype.bytes() as u64
        }
    }
}
