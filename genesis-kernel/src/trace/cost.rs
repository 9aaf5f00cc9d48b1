//! What launches have to move and compute, counted once for each kind of launch.
//!
//! The count is of the kernel's tile IR. That of a kernel without loops is the same for each program; that
//! of one with loops follows from its arguments, and is kept by a hash of them. A training step launches
//! the same things again and again, so that all but the first find their count here.

use std::collections::BTreeMap;

use super::event::Kernel;
use crate::inspect::{self, launch_cost};
use crate::ir::{DType, Func, Op, OpKind, Value};
use crate::kernel::{Hints, KernelDef};
use crate::launch::Launch;
use crate::runtime::Arg;

/// Counts of loops that are kept; a kernel whose number of iterations never repeats starts anew.
const KEPT: usize = 1 << 14;

/// The counts so far.
#[derive(Debug, Default)]
pub(super) struct Costs {
    codes: BTreeMap<usize, Code>,
    looping: BTreeMap<u64, inspect::Cost>,
}

/// One specialisation of a kernel.
#[derive(Debug)]
struct Code {
    func: Option<Func>,
    /// What each program costs, where that does not depend on arguments.
    fixed: Option<inspect::Cost>,
    dtype: Option<DType>,
    /// How often memory moves the elements of each parameter: once if they are only read or only written.
    times: Vec<u64>,
}

impl Costs {
    /// What a launch has to do.
    pub(super) fn count(
        &mut self,
        (def, code): (&KernelDef, usize),
        launch: &Launch<'_>,
        programs: u64,
        hints: &dyn Fn() -> Hints,
    ) -> Kernel {
        let entry = self.codes.entry(code).or_insert_with(|| Code::new(def, launch, hints));
        let cost = match (&entry.fixed, &entry.func) {
            (Some(cost), _) => *cost,
            (None, None) => return Kernel::default(),
            (None, Some(func)) => {
                if self.looping.len() == KEPT {
                    self.looping.clear();
                }
                let count = || launch_cost(func, launch.grid, launch.args);
                *self.looping.entry(hash(code, launch)).or_insert_with(count)
            }
        };
        // A tile's lanes outside of a tensor count as on, and an element that several programs read
        // counts for each: what memory must move is no more than the operands.
        let times = entry.times.iter().copied().chain(std::iter::repeat(2));
        let most = launch.args.iter().zip(times).map(|(arg, n)| n * elements_bytes(arg)).sum();
        Kernel {
            bytes: programs.saturating_mul(cost.bytes).min(most),
            flops: programs.saturating_mul(cost.flops),
            product_flops: programs.saturating_mul(cost.product_flops),
            dtype: entry.dtype,
            has_unknown_loops: cost.has_runtime_loops,
        }
    }
}

impl Code {
    fn new(def: &KernelDef, launch: &Launch<'_>, hints: &dyn Fn() -> Hints) -> Code {
        // What was launched was compiled, so that it can be again.
        let special = def.specialize(launch.dtypes, launch.consts, &hints());
        let Ok(func) = special.map(|special| special.func) else {
            return Code { func: None, fixed: None, dtype: None, times: Vec::new() };
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
        Code { fixed, dtype, times, func: Some(func) }
    }
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
            // Elements of a view may lie at the same place.
            view.memory().bytes.min(elements * view.ptr.dtype.bytes() as u64)
        }
    }
}

/// What a kernel's loops may depend on: integers, extents and the grid.
fn hash(code: usize, launch: &Launch<'_>) -> u64 {
    let mut hash = code as u64;
    let mut add = |word: i64| {
        hash = (hash ^ word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    };
    [launch.grid.x, launch.grid.y, launch.grid.z].into_iter().for_each(&mut add);
    for arg in launch.args {
        match arg {
            Arg::Scalar(scalar) if !scalar.dtype.is_float() => add(scalar.bits as i64),
            Arg::View(view) => view.dims().iter().chain(view.strides()).for_each(|&n| add(n)),
            Arg::Scalar(_) | Arg::Ptr(_) => {}
        }
    }
    hash
}
