//! Custom autograd functions: a forward and its gradient, written by hand.

use std::panic::Location;

use genesis_kernel::trace;

use super::apply::describe;
use super::op::{Backward, SavedTensors};
use super::saved::{Parts, Recorded, Saved};
use super::tape::{Edge, Node};
use crate::error::{Error, Result};
use crate::mode::{is_grad_enabled, no_grad};
use crate::tensor::{Tensor, TensorType};

/// An op with a gradient of its own. What the op needs beside tensors are fields of the type that
/// implements this.
///
/// Nothing in `forward` is recorded. What `backward` is made of is, where the gradients are to be
/// differentiated again: made of differentiable ops it has a second derivative, else say so by
/// [`Function::ONCE_DIFFERENTIABLE`].
///
/// Writing to an input is not for a `Function`: return a new tensor.
///
/// # Examples
/// The exponential, which reads its own result:
/// ```
/// use genesis::autograd::{Context, Function};
/// use genesis::{Result, Tensor};
///
/// struct Exp;
///
/// impl Function for Exp {
///     fn forward(&self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
///         let y = inputs[0].exp()?;
///         ctx.save_for_backward(&[&y]);
///         Ok(vec![y])
///     }
///
///     fn backward(&self, ctx: &Context, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
///         Ok(vec![Some(grads[0].mul(&ctx.saved_tensors()[0])?)])
///     }
/// }
///
/// let x = Tensor::from_slice(&[0.0f32], &[1])?.requires_grad_(true)?;
/// Exp.apply(&[&x])?.backward()?;
/// assert_eq!(x.grad().expect("x requires a gradient").item()?, 1.0);
/// # Ok::<(), genesis::Error>(())
/// ```
pub trait Function: Send + Sync + Sized + 'static {
    /// Whether the gradient is not made of differentiable ops, such as one of a kernel. Differentiating
    /// it is an error then, rather than a wrong result.
    const ONCE_DIFFERENTIABLE: bool = false;

    /// The name in errors.
    fn name(&self) -> &str {
        let name = std::any::type_name::<Self>();
        name.rsplit("::").next().unwrap_or(name)
    }

    /// Computes the results, and saves what the gradient reads.
    ///
    /// # Errors
    /// If the inputs do not fit.
    fn forward(&self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>>;

    /// The gradient of each input, or none, from that of each result; zeros came for a result that
    /// nothing depends on.
    ///
    /// # Errors
    /// If an op refuses.
    fn backward(&self, ctx: &Context, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>>;

    /// Runs a function with one result.
    ///
    /// # Errors
    /// As `forward`, or if there is another number of results.
    #[track_caller]
    fn apply(self, inputs: &[&Tensor]) -> Result<Tensor> {
        let name = self.name().to_owned();
        let mut results = self.apply_many(inputs)?;
        match results.len() {
            1 => Ok(results.remove(0)),
            n => Err(Error::op(name, format!("gave {n} results, `apply` is for one"))),
        }
    }

    /// Runs a function, whatever the number of results.
    ///
    /// # Errors
    /// As `forward`.
    #[track_caller]
    fn apply_many(self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        run(self, inputs)
    }
}

/// What a [`Function`] keeps from its forward to its backward.
#[derive(Debug, Default)]
pub struct Context {
    saved: Vec<Tensor>,
    not_differentiable: Vec<Tensor>,
    needed: Vec<bool>,
}

impl Context {
    /// Keeps tensors for the backward: inputs, results or any other. A change of one in place until then
    /// is noticed.
    pub fn save_for_backward(&mut self, tensors: &[&Tensor]) {
        self.saved = tensors.iter().map(|&tensor| tensor.clone()).collect();
    }

    /// What was saved, in order.
    pub fn saved_tensors(&self) -> &[Tensor] {
        &self.saved
    }

    /// Says of results that they have no gradient. Those of integers have none anyway.
    pub fn mark_non_differentiable(&mut self, results: &[&Tensor]) {
        self.not_differentiable = results.iter().map(|&tensor| tensor.clone()).collect();
    }

    /// Whether each input wants a gradient; the others' need not be computed.
    pub fn needs_input_grad(&self) -> &[bool] {
        &self.needed
    }
}

/// A function that ran.
struct Ran<F> {
    function: F,
    inputs: Vec<TensorType>,
    results: Vec<(TensorType, genesis_kernel::runtime::Device)>,
}

#[track_caller]
fn run<F: Function>(function: F, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    let needed: Vec<bool> = inputs.iter().map(|input| input.requires_grad()).collect();
    let is_recorded = is_grad_enabled() && needed.contains(&true);
    let mut ctx = Context { needed, ..Context::default() };
    let made = {
        let _op = trace::op(label::<F>(), Location::caller(), || describe(inputs));
        no_grad(|| function.forward(&mut ctx, inputs))?
    };
    // A result that is an input, or that the function keeps, is another tensor outside.
    let results: Vec<Tensor> = made.iter().map(Tensor::detach).collect();
    if is_recorded {
        record(function, &ctx, inputs, &made, &results)?;
    }
    for result in &results {
        for input in inputs {
            result.note_unrecorded_view(input);
        }
    }
    Ok(results)
}

#[track_caller]
fn record<F: Function>(
    function: F,
    ctx: &Context,
    inputs: &[&Tensor],
    made: &[Tensor],
    results: &[Tensor],
) -> Result<()> {
    let save = |tensor: &Tensor| {
        let is_input = inputs.iter().any(|input| input.is_same(tensor));
        match made.iter().position(|result| result.is_same(tensor)) {
            Some(slot) if !is_input => {
                Saved::output(function.name(), &results[slot], slot as u32).map(Some)
            }
            _ => Saved::input(function.name(), tensor).map(Some),
        }
    };
    let saved = ctx.saved.iter().map(save).collect::<Result<_>>()?;
    let edges = inputs.iter().map(|input| input.edge()).collect();
    let ran = Ran {
        inputs: inputs.iter().map(|input| input.tensor_type()).collect(),
        results: results.iter().map(|r| (r.tensor_type(), r.device())).collect(),
        function,
    };
    let saved = Parts { inputs: saved, output: None };
    let node = Node::new(Recorded::new(ran, saved), results.len() as u32, edges);
    for (slot, (result, made)) in results.iter().zip(made).enumerate() {
        let marked = ctx.not_differentiable.iter().any(|other| other.is_same(made));
        if !marked && result.dtype().is_arithmetic_float() {
            result.meta().set_history(Some((node.clone(), slot as u32)));
        }
    }
    Ok(())
}

/// The type without its modules.
fn label<F>() -> &'static str {
    let name = std::any::type_name::<F>();
    name.rsplit("::").next().unwrap_or(name)
}

impl<F: Function> Backward for Ran<F> {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn label(&self) -> &'static str {
        label::<F>()
    }

    fn backward(
        &self,
        saved: &SavedTensors,
        dys: &[Option<Tensor>],
    ) -> Result<Vec<Option<Tensor>>> {
        let ctx = Context {
            saved: saved.inputs.iter().flatten().cloned().collect(),
            not_differentiable: Vec::new(),
            needed: saved.wanted.clone(),
        };
        let whole = |(dy, (ty, device)): (&Option<Tensor>, &(TensorType, _))| match dy {
            Some(dy) => Ok(dy.clone()),
            None => Tensor::zeros(&ty.shape, (ty.dtype, *device)),
        };
        let dys = dys.iter().zip(&self.results).map(whole).collect::<Result<Vec<_>>>()?;
        if !F::ONCE_DIFFERENTIABLE || !is_grad_enabled() {
            return self.check(self.function.backward(&ctx, &dys)?);
        }
        let grads = self.check(no_grad(|| self.function.backward(&ctx, &dys))?)?;
        let read = dys.iter().chain(&ctx.saved);
        Ok(self.refuse_second(&grads, read.filter_map(Tensor::edge).collect()))
    }
}

impl<F: Function> Ran<F> {
    /// Refuses gradients that do not fit the inputs.
    fn check(&self, mut grads: Vec<Option<Tensor>>) -> Result<Vec<Option<Tensor>>> {
        if grads.len() != self.inputs.len() {
            let message =
                format!("gave {} gradients for {} inputs", grads.len(), self.inputs.len());
            return Err(Error::op(self.name(), message));
        }
        for (index, (grad, ty)) in grads.iter_mut().zip(&self.inputs).enumerate() {
            let Some(grad) = grad else { continue };
            if grad.shape() != ty.shape {
                let message = format!(
                    "the gradient of input {index} has shape {:?}, the input {:?}",
                    grad.shape(),
                    ty.shape
                );
                return Err(Error::op(self.name(), message));
            }
            if grad.dtype() != ty.dtype {
                *grad = grad.to_dtype(ty.dtype)?;
            }
        }
        Ok(grads)
    }

    /// Gradients whose own gradient is an error.
    fn refuse_second(&self, grads: &[Option<Tensor>], edges: Vec<Edge>) -> Vec<Option<Tensor>> {
        let op = Once { name: self.name().to_owned() };
        let edges: Vec<Option<Edge>> = edges.into_iter().map(Some).collect();
        let node = Node::new(Recorded::new(op, Parts::default()), 1, edges);
        let refuse = |grad: &Tensor| {
            let grad = grad.detach();
            grad.meta().set_history(Some((node.clone(), 0)));
            grad
        };
        grads.iter().map(|grad| grad.as_ref().map(refuse)).collect()
    }
}

/// The gradient of a gradient that has none.
struct Once {
    name: String,
}

impl Backward for Once {
    fn name(&self) -> &str {
        &self.name
    }

    fn label(&self) -> &'static str {
        "function"
    }

    fn backward(&self, _: &SavedTensors, _: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Err(Error::op(
            &self.name,
            "its gradient can't be differentiated: it is once differentiable",
        ))
    }
}
