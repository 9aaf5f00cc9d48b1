//! What a closure does to tensors that stand for others: the launches it would make, as nodes.
//!
//! While a trace is on, memory that ops ask for is a *symbol*: storage without bytes. A launch that
//! writes to a symbol is written down instead, with its kernel, its operands as views of earlier nodes,
//! and its numbers. So every method of a tensor works as it does otherwise, with its promotion of
//! dtypes, its checks and its tape, whatever it is made of; what no composed kernel can do is refused.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::KernelDef;
use genesis_kernel::runtime::{Arg, Device};

use crate::error::{Error, Result};
use crate::shape::Layout;
use crate::tensor::{Storage, Tensor};

/// A value of the trace.
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: DType,
}

/// How a value is made.
pub(crate) enum Kind {
    /// A tensor that is given: its elements are places in its memory.
    Leaf,
    /// One number everywhere.
    Number(Scalar),
    /// The maths of a kernel, element by element.
    Map { def: &'static KernelDef, dtypes: Vec<DType>, uses: Vec<Use>, numbers: Vec<Scalar> },
    /// A reduction of the middle axis of three.
    Fold { fold: Reduction, from: Use, scale: f64 },
}

/// Which reduction.
#[derive(Clone, Copy)]
pub(crate) enum Reduction {
    Sum,
    /// By the kernels over rows and over columns.
    Extreme([&'static KernelDef; 4]),
}

/// A view of a node.
#[derive(Clone)]
pub(crate) struct Use {
    pub(crate) node: usize,
    pub(crate) layout: Layout,
    pub(crate) dtype: DType,
}

/// A trace under way, and what it came to.
#[derive(Default)]
pub(crate) struct Trace {
    pub(crate) nodes: Vec<Node>,
    /// Tensors beside the arguments, with their nodes.
    pub(crate) captured: Vec<(usize, Tensor)>,
    symbols: BTreeMap<u64, usize>,
}

thread_local! {
    static ON: Cell<bool> = const { Cell::new(false) };
    static OP: Cell<&'static str> = const { Cell::new("") };
    static TRACE: RefCell<Option<Trace>> = const { RefCell::new(None) };
}

/// Whether this thread traces.
pub(crate) fn is_on() -> bool {
    ON.get()
}

/// A number for new storage: 0, or that of a symbol where this thread traces.
fn symbol() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if ON.get() { NEXT.fetch_add(1, Ordering::Relaxed) } else { 0 }
}

/// A value of the trace: a tensor without memory.
pub(crate) fn symbolic(layout: Layout, dtype: DType, device: Device) -> Result<Tensor> {
    let storage = Storage::symbolic(device, symbol(), layout.end())?.into();
    Ok(Tensor::plain(storage, layout, dtype))
}

/// Notes the op that runs now, for errors, unless it runs in another; gives what was noted before.
#[inline]
pub(crate) fn enter(op: &'static str) -> &'static str {
    let outer = OP.get();
    if ON.get() && outer.is_empty() {
        OP.set(op);
    }
    outer
}

/// The op that [`enter`] noted has run.
#[inline]
pub(crate) fn leave(outer: &'static str) {
    if ON.get() {
        OP.set(outer);
    }
}

/// Whether a launch that writes to a tensor is written down and not made.
#[inline]
pub(crate) fn records(out: &Tensor) -> bool {
    out.storage().is_symbol()
}

/// That a kernel can't be part of a fused one.
#[cold]
pub(crate) fn refusal(kernel: &str) -> Error {
    let op = OP.get();
    let name = if op.is_empty() { kernel } else { op };
    Error::op(
        "fuse",
        format!(
            "`{name}` can't be fused: only elementwise ops, casts, comparisons, `where_` and sums, \
             means and extremes can; call it outside of the closure"
        ),
    )
}

/// Refuses a read on the host.
pub(crate) fn check_read(t: &Tensor) -> Result<()> {
    if !records(t) {
        return Ok(());
    }
    let message =
        "the closure reads a value on the host, where it is not: it runs once, for all values";
    Err(Error::op("fuse", message))
}

/// Refuses ops that work on memory by other means than a launch.
pub(crate) fn check_real(what: &str, tensors: &[&Tensor]) -> Result<()> {
    match tensors.iter().any(|t| records(t)) {
        true => Err(refusal(what)),
        false => Ok(()),
    }
}

/// Writes down an elementwise launch.
#[cold]
pub(crate) fn map(
    def: &'static KernelDef,
    dtypes: &[DType],
    inputs: &[&Tensor],
    out: &Tensor,
    numbers: &[Arg],
) -> Result<()> {
    with(|trace| {
        let uses = inputs.iter().map(|t| trace.operand(t)).collect::<Result<Vec<_>>>()?;
        let number = |arg: &Arg| match arg {
            Arg::Scalar(scalar) => Ok(*scalar),
            Arg::Ptr(_) | Arg::View(_) | Arg::Views(_) => Err(refusal(def.name())),
        };
        let numbers = numbers.iter().map(number).collect::<Result<Vec<_>>>()?;
        trace.define(out, Kind::Map { def, dtypes: dtypes.to_vec(), uses, numbers })
    })
}

/// Writes down that a tensor is one number.
#[cold]
pub(crate) fn fill(out: &Tensor, value: Scalar) -> Result<()> {
    with(|trace| trace.define(out, Kind::Number(value)))
}

/// Writes down a sum of the middle axis of three.
#[cold]
pub(crate) fn sum(x: &Tensor, out: &Tensor, scale: f64) -> Result<()> {
    with(|trace| {
        let from = trace.operand(x)?;
        trace.define(out, Kind::Fold { fold: Reduction::Sum, from, scale })
    })
}

/// Writes down an extreme of the middle axis of three.
#[cold]
pub(crate) fn extreme(kernels: [&'static KernelDef; 4], x: &Tensor, out: &Tensor) -> Result<()> {
    with(|trace| {
        let from = trace.operand(x)?;
        trace.define(out, Kind::Fold { fold: Reduction::Extreme(kernels), from, scale: 1.0 })
    })
}

fn with<T>(f: impl FnOnce(&mut Trace) -> Result<T>) -> Result<T> {
    TRACE.with_borrow_mut(|trace| match trace {
        Some(trace) => f(trace),
        None => Err(Error::op("fuse", "a tensor of a fused closure is used outside of it")),
    })
}

/// Runs a closure on this thread with the trace on.
pub(crate) fn run<T>(f: impl FnOnce() -> Result<T>) -> Result<(Trace, T)> {
    struct Off;
    impl Drop for Off {
        fn drop(&mut self) {
            ON.set(false);
            TRACE.set(None);
        }
    }
    if ON.replace(true) {
        return Err(Error::op("fuse", "a fused function is called in the closure of another"));
    }
    let off = Off;
    OP.set("");
    TRACE.set(Some(Trace::default()));
    let result = f()?;
    let trace = TRACE.take().unwrap_or_default();
    drop(off);
    Ok((trace, result))
}

/// A tensor that stands for a given one of this layout.
pub(crate) fn leaf(like: &Tensor) -> Result<Tensor> {
    let layout = like.layout().lowest_at_zero();
    let leaf = symbolic(layout, like.dtype(), like.device())?;
    with(|trace| {
        trace.symbols.insert(leaf.storage().symbol(), trace.nodes.len());
        let (shape, dtype) = (like.shape().to_vec(), like.dtype());
        trace.nodes.push(Node { kind: Kind::Leaf, shape, dtype });
        Ok(())
    })?;
    Ok(leaf)
}

/// What a result of the closure is.
pub(crate) fn result(t: &Tensor) -> Result<Use> {
    with(|trace| trace.operand(t))
}

impl Trace {
    /// How many launches the ops would make one by one.
    pub(crate) fn launches(&self) -> usize {
        self.nodes.iter().filter(|node| !matches!(node.kind, Kind::Leaf)).count()
    }

    fn operand(&mut self, t: &Tensor) -> Result<Use> {
        let node = match t.storage().symbol() {
            0 => self.capture(t)?,
            symbol => *self.symbols.get(&symbol).ok_or_else(|| {
                Error::op("fuse", "the closure reads a tensor that nothing was written to")
            })?,
        };
        let (own, dtype) = (self.nodes[node].dtype, t.dtype());
        let is_logic = |dtype| matches!(dtype, DType::Bool | DType::U8);
        if own != dtype && !(is_logic(own) && is_logic(dtype)) {
            return Err(Error::op("fuse", format!("the bytes of {own} can't be seen as {dtype}")));
        }
        let mut layout = t.layout().clone();
        if let Kind::Leaf = self.nodes[node].kind
            && t.storage().symbol() == 0
        {
            // The captured tensor is given as it is: from the lowest of its own elements.
            layout = layout.lowest_at_zero();
        }
        Ok(Use { node, layout, dtype })
    }

    /// A tensor of the closure's own.
    fn capture(&mut self, t: &Tensor) -> Result<usize> {
        if t.requires_grad() {
            let message =
                "the closure holds a tensor that requires a gradient; pass it as an argument";
            return Err(Error::op("fuse", message));
        }
        let is_own = |(_, other): &&(usize, Tensor)| {
            other.address() == t.address()
                && std::sync::Arc::ptr_eq(other.storage(), t.storage())
                && other.layout() == t.layout()
                && other.dtype() == t.dtype()
        };
        if let Some((node, _)) = self.captured.iter().find(is_own) {
            return Ok(*node);
        }
        self.captured.push((self.nodes.len(), t.detach()));
        self.nodes.push(Node { kind: Kind::Leaf, shape: t.shape().to_vec(), dtype: t.dtype() });
        Ok(self.nodes.len() - 1)
    }

    fn define(&mut self, out: &Tensor, kind: Kind) -> Result<()> {
        let symbol = out.storage().symbol();
        if let Some(&node) = self.symbols.get(&symbol)
            && let Kind::Leaf = self.nodes[node].kind
        {
            let message = format!("`{}` writes into an argument in place", OP.get());
            return Err(Error::op("fuse", message));
        }
        if !out.is_contiguous()
            || out.layout().offset() != 0
            || out.storage().elements() != out.numel()
        {
            let message = format!("`{}` writes into a part of a tensor", OP.get());
            return Err(Error::op("fuse", message));
        }
        self.symbols.insert(symbol, self.nodes.len());
        self.nodes.push(Node { kind, shape: out.shape().to_vec(), dtype: out.dtype() });
        Ok(())
    }
}
