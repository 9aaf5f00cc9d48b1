//! The layers at work on a thread, and who hears of them.

use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::kind::short_name;
use crate::error::Result;
use crate::tensor::Tensor;

/// A layer that has run.
#[derive(Debug)]
pub struct Call<'c> {
    /// Its dotted name in the module that is observed.
    pub path: &'c str,
    /// Its type.
    pub kind: &'c str,
    /// What it gave.
    pub output: &'c Tensor,
    /// Multiplications and additions of products that it did itself, those of layers inside it left
    /// out.
    pub flops: u64,
}

/// Which module it is: its address, and its type, for a first field has the address of its owner.
pub(super) type Identity = (usize, TypeId);

type Hook = dyn FnMut(&Call<'_>) -> Result<()>;

/// Hears of the layers of one module.
struct Observer {
    /// Every module with its path and kind, in the order of the walk.
    names: Vec<(Identity, String, String)>,
    /// How often each was called: modules without fields may share an address, and are then told apart
    /// by the order of calls.
    calls: RefCell<Vec<usize>>,
    hook: RefCell<Box<Hook>>,
}

impl Observer {
    /// The number in `names` of the module that is called now.
    fn find(&self, who: Identity) -> Option<usize> {
        let calls = self.calls.borrow();
        let same = (0..self.names.len()).filter(|&i| self.names[i].0 == who);
        same.min_by_key(|&i| calls[i])
    }
}

/// A layer at work.
struct Frame {
    who: Identity,
    kind: fn() -> &'static str,
    flops: Cell<u64>,
}

thread_local! {
    static STACK: RefCell<Vec<Frame>> = const { RefCell::new(Vec::new()) };
    static OBSERVERS: RefCell<Vec<Rc<Observer>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `run` as the forward of a layer, and tells the observers of the tensor in its result.
pub(super) fn call<R>(
    who: Identity,
    kind: fn() -> &'static str,
    tensor: impl FnOnce(&R) -> &Tensor,
    run: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let frame = Frame { who, kind, flops: Cell::new(0) };
    STACK.with_borrow_mut(|stack| stack.push(frame));
    let pop = PopFrame;
    let result = run();
    let flops = STACK.with_borrow(|stack| stack.last().map_or(0, |frame| frame.flops.get()));
    drop(pop);
    let result = result?;
    tell(who, tensor(&result), flops)?;
    Ok(result)
}

/// Takes the last frame away, also when a panic unwinds.
struct PopFrame;

impl Drop for PopFrame {
    fn drop(&mut self) {
        STACK.with_borrow_mut(Vec::pop);
    }
}

fn tell(who: Identity, output: &Tensor, flops: u64) -> Result<()> {
    // The list is copied, so that a hook may itself observe.
    let observers = OBSERVERS.with_borrow(Vec::clone);
    for observer in observers {
        let Some(index) = observer.find(who) else { continue };
        observer.calls.borrow_mut()[index] += 1;
        let (_, path, kind) = &observer.names[index];
        // A hook that runs the module it observes hears nothing of that.
        if let Ok(mut hook) = observer.hook.try_borrow_mut() {
            hook(&Call { path, kind, output, flops })?;
        }
    }
    Ok(())
}

/// Whether anybody hears of the layers that run on this thread.
pub(crate) fn is_observed() -> bool {
    !OBSERVERS.with_borrow(Vec::is_empty)
}

/// Adds to the floating-point operations of the layer at work.
pub fn count_flops(count: impl FnOnce() -> u64) {
    if !is_observed() {
        return;
    }
    STACK.with_borrow(|stack| {
        if let Some(frame) = stack.last() {
            frame.flops.set(frame.flops.get().saturating_add(count()));
        }
    });
}

/// Operations as a product of extents.
pub(crate) fn flops(factors: &[usize]) -> u64 {
    factors.iter().fold(1, |product: u64, &factor| product.saturating_mul(factor as u64))
}

/// Calls `hook` for each layer among these modules that runs in `run`.
pub(super) fn observe<R>(
    names: Vec<(Identity, String, String)>,
    hook: impl FnMut(&Call<'_>) -> Result<()> + 'static,
    run: impl FnOnce() -> R,
) -> R {
    let calls = RefCell::new(vec![0; names.len()]);
    let observer = Observer { names, calls, hook: RefCell::new(Box::new(hook)) };
    OBSERVERS.with_borrow_mut(|all| all.push(Rc::new(observer)));
    let _remove = RemoveObserver;
    run()
}

/// Takes the last observer away, also when a panic unwinds.
struct RemoveObserver;

impl Drop for RemoveObserver {
    fn drop(&mut self) {
        OBSERVERS.with_borrow_mut(Vec::pop);
    }
}

/// The layer at work on this thread: its dotted name where its module is observed, else the types of
/// the layers at work, outermost first: `Sequential > Linear`. None outside of layers.
pub fn module_path() -> Option<String> {
    STACK.with_borrow(|stack| {
        let last = stack.last()?;
        let named = OBSERVERS.with_borrow(|all| {
            all.iter().rev().find_map(|o| o.find(last.who).map(|i| o.names[i].1.clone()))
        });
        let types = || {
            let kinds = stack.iter().map(|frame| short_name((frame.kind)()));
            kinds.collect::<Vec<_>>().join(" > ")
        };
        Some(named.unwrap_or_else(types))
    })
}
