//! Who is computing: layers say when they run, and observers hear it.
//!
//! A layer's `forward` runs inside [`watch`]. That keeps the stack of layers at work on a thread, which
//! is what [`module_path`] tells, and tells the observers on that thread of each output. An observer is
//! there for the length of a closure that borrows the module, so it can hold names of it.
//!
//! ```
//! use std::cell::RefCell;
//! use std::rc::Rc;
//! use genesis::nn::{self, Linear, Module, Relu, Sequential};
//! use genesis::{Device, Tensor};
//!
//! let net = Sequential::new().with(Linear::new(4, 8, Device::Cpu)?).with(Relu);
//! let x = Tensor::ones(&[2, 4], Device::Cpu)?;
//! let seen = Rc::new(RefCell::new(Vec::new()));
//! let list = seen.clone();
//! let hook = move |call: &nn::Call<'_>| {
//!     list.borrow_mut().push((call.path.to_owned(), call.output.shape().to_vec()));
//!     Ok(())
//! };
//! nn::observe(&net, hook, || net.forward(&x))?;
//! let expected = [("0", [2, 8]), ("1", [2, 8]), ("", [2, 8])];
//! assert_eq!(*seen.borrow(), expected.map(|(path, shape)| (path.to_owned(), shape.to_vec())));
//! # Ok::<(), genesis::Error>(())
//! ```

use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::visit::Seen;
use super::{Module, Visitor};
use crate::autograd::anomaly;
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
type Identity = (usize, TypeId);

pub(super) fn identity<M: Module + ?Sized>(module: &M) -> Identity {
    (std::ptr::from_ref(module).cast::<()>() as usize, module.type_id())
}

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

/// Runs `run` as the forward of a layer: observers hear of its result.
///
/// Layers of this library do so in their `forward`; do it in one of yours, that computes with
/// parameters of its own, so that it has a row in summaries.
///
/// # Errors
/// Those of `run` and of observers.
pub fn watch<M: Module>(module: &M, run: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
    watch_as(module, |output| output, run)
}

/// [`watch`] for a result that holds a tensor among other things.
pub(crate) fn watch_as<M: Module, R>(
    module: &M,
    tensor: impl FnOnce(&R) -> &Tensor,
    run: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let who = identity(module);
    let frame = Frame { who, kind: std::any::type_name::<M>, flops: Cell::new(0) };
    STACK.with_borrow_mut(|stack| stack.push(frame));
    let pop = PopFrame;
    if anomaly::is_on() {
        anomaly::name_layers_by(module_path);
    }
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

/// Runs `run`, in which `hook` hears of every layer of `module` that runs on this thread: what PyTorch
/// calls a forward hook.
///
/// An error of the hook is the error of the layer's forward.
pub fn observe<M: Module + ?Sized, R>(
    module: &M,
    hook: impl FnMut(&Call<'_>) -> Result<()> + 'static,
    run: impl FnOnce() -> R,
) -> R {
    let mut names = Vec::new();
    Visitor::walk(module.as_module(), &mut |path, seen| {
        if let Seen::Module(module) = seen {
            names.push((identity(module), path.to_owned(), module.kind()));
        }
    });
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

/// A type without its modules: `Sequential`, and `Conv2d` for one over two axes.
pub(super) fn short_name(full: &str) -> String {
    let mut name = String::new();
    let mut word = String::new();
    for letter in full.chars() {
        match letter {
            ':' => word.clear(),
            _ if letter.is_alphanumeric() || letter == '_' => word.push(letter),
            _ => {
                name.push_str(&word);
                word.clear();
                name.push(letter);
            }
        }
    }
    name.push_str(&word);
    (1..=3).fold(name, |name, n| name.replace(&format!("Nd<{n}>"), &format!("{n}d")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shortened() {
        assert_eq!(short_name("genesis::nn::linear::Linear"), "Linear");
        assert_eq!(short_name("genesis::nn::conv::ConvNd<2>"), "Conv2d");
        assert_eq!(short_name("a::Residual<b::c::Linear>"), "Residual<Linear>");
    }
}
