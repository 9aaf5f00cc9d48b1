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

use super::calls::{self, Call, module_path};
use super::module::{Module, Seen, Visitor, identity};
use crate::autograd::anomaly;
use crate::error::Result;
use crate::tensor::Tensor;

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
    if anomaly::is_on() {
        anomaly::name_layers_by(module_path);
    }
    calls::call(identity(module), std::any::type_name::<M>, tensor, run)
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
    calls::observe(names, hook, run)
}
