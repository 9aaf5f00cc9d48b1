//! What a differentiable operation is: how it computes its result, and where gradients go.

use genesis_kernel::ir::DType;

use super::parts::Place;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Which tensors an op's backward reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Saves {
    /// One bit per input, the first in bit 0.
    pub inputs: u32,
    /// The result.
    pub output: bool,
}

impl Saves {
    /// Nothing: the backward needs only `dy`.
    pub const NOTHING: Saves = Saves { inputs: 0, output: false };
    /// The inputs with these bits.
    pub const fn inputs(bits: u32) -> Saves {
        Saves { inputs: bits, output: false }
    }
    /// The result.
    pub const OUTPUT: Saves = Saves { inputs: 0, output: true };
}

/// An operation on tensors.
pub trait Op: Send + Sync + 'static {
    /// The name users know it by.
    fn name(&self) -> &'static str;

    /// Computes the result, or refuses.
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor>;

    /// What [`backward`](Op::backward) reads.
    fn saves(&self) -> Saves {
        Saves::NOTHING
    }

    /// The gradient of each input, made of differentiable ops; `None` where there is none.
    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>>;

    /// Of an op that takes a slice of its one input, where that is: the gradient is `dy` there, and zero elsewhere.
    #[doc(hidden)]
    fn place(&self) -> Option<Place> {
        None
    }

    /// Of an op whose result is its inputs one after the other along the first axis, none of them copied: how much of that
    /// axis each is. Their gradients are parts of `dy`, which lie in its memory where nobody else has that.
    #[doc(hidden)]
    fn rows(&self) -> Option<&[usize]> {
        None
    }

    /// Of a conversion: the dtype of its one input, in which `dy` may come too.
    #[doc(hidden)]
    fn converts_from(&self) -> Option<DType> {
        None
    }

    /// Whether [`backward`](Op::backward) can give the gradient of an input in the dtype that it is summed in, where
    /// [`SavedTensors::wide`] asks for that.
    #[doc(hidden)]
    fn widens(&self, input: usize) -> bool {
        let _ = input;
        false
    }

    /// The input whose gradient [`backward_onto`](Op::backward_onto) adds to one that came another way, in the launch that
    /// computes it; none where an op does not.
    #[doc(hidden)]
    fn adds_to(&self) -> Option<usize> {
        None
    }

    /// [`backward`](Op::backward) with the gradient of input [`adds_to`](Op::adds_to) added to `onto`, which is of that
    /// input's shape and dtype. It is rounded as the gradient and then the sum are, or once. Nobody differentiates it.
    #[doc(hidden)]
    fn backward_onto(
        &self,
        saved: &SavedTensors,
        dy: &Tensor,
        onto: &Tensor,
    ) -> Result<Vec<Option<Tensor>>> {
        let mut grads = self.backward(saved, dy)?;
        if let Some(grad) = self.adds_to().and_then(|input| grads.get_mut(input)) {
            *grad = Some(match grad.take() {
                Some(grad) => onto.add(&grad)?,
                None => onto.clone(),
            });
        }
        Ok(grads)
    }
}

/// The tensors that a backward reads.
pub struct SavedTensors {
    pub(super) inputs: Vec<Option<Tensor>>,
    pub(super) output: Option<Tensor>,
    /// Whether each input wants a gradient.
    pub wanted: Vec<bool>,
    /// In which dtype each input's gradient is welcome beside the input's own; empty where none is.
    pub(super) wide: Vec<Option<DType>>,
}

impl SavedTensors {
    /// Inputs and a result as an op saves them, for a backward that is called outside of the tape.
    pub(crate) fn of(inputs: &[&Tensor], output: &Tensor) -> SavedTensors {
        SavedTensors {
            inputs: inputs.iter().map(|&input| Some(input.clone())).collect(),
            output: Some(output.clone()),
            wanted: vec![true; inputs.len()],
            wide: Vec::new(),
        }
    }

    /// The dtype in which the gradient of an input is better given than in the input's: that of the sums behind it, where
    /// the input was converted from that.
    pub(crate) fn wide(&self, index: usize) -> Option<DType> {
        self.wide.get(index).copied().flatten()
    }

    /// Input number `index`, which the op asked to save.
    pub fn input(&self, index: usize) -> &Tensor {
        self.inputs[index].as_ref().expect("the op's `saves` names every input its backward reads")
    }

    /// Which tensors these are.
    pub(crate) fn kinds(&self) -> Kinds {
        let inputs = self.inputs.iter().map(Option::is_some).collect();
        Kinds { inputs, output: self.output.is_some(), wanted: self.wanted.clone() }
    }

    /// The tensors that were saved: the inputs, then the result.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Tensor> {
        self.inputs.iter().chain([&self.output]).flatten()
    }

    /// The result, which the op asked to save.
    pub fn output(&self) -> &Tensor {
        self.output.as_ref().expect("the op's `saves` asks for the result its backward reads")
    }
}

/// Which tensors are saved, and which gradients are wanted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Kinds {
    inputs: Vec<bool>,
    output: bool,
    wanted: Vec<bool>,
}

impl Kinds {
    /// These tensors, as [`SavedTensors::all`] gives them.
    pub(crate) fn of(&self, tensors: &[Tensor]) -> SavedTensors {
        let mut next = tensors.iter().cloned();
        let mut take = |is: bool| if is { next.next() } else { None };
        let inputs = self.inputs.iter().map(|&is| take(is)).collect();
        let output = take(self.output);
        SavedTensors { inputs, output, wanted: self.wanted.clone(), wide: Vec::new() }
    }
}

/// How a node turns the gradients of its results into those of its inputs.
pub(crate) trait Backward: Send + Sync {
    /// The name users know the op by.
    fn name(&self) -> &str;

    /// The name in profiles and in errors of a GPU.
    fn label(&self) -> &'static str;

    /// The gradient of each input; `dys` has one place for each result, and at least one is there.
    fn backward(&self, saved: &SavedTensors, dys: &[Option<Tensor>])
    -> Result<Vec<Option<Tensor>>>;

    /// See [`Op::place`].
    fn place(&self) -> Option<Place> {
        None
    }

    /// See [`Op::rows`].
    fn rows(&self) -> Option<&[usize]> {
        None
    }

    /// See [`Op::converts_from`].
    fn converts_from(&self) -> Option<DType> {
        None
    }

    /// See [`Op::widens`].
    fn widens(&self, input: usize) -> bool {
        let _ = input;
        false
    }

    /// See [`Op::adds_to`].
    fn adds_to(&self) -> Option<usize> {
        None
    }

    /// See [`Op::backward_onto`]; there is one result.
    fn backward_onto(
        &self,
        saved: &SavedTensors,
        dys: &[Option<Tensor>],
        onto: &Tensor,
    ) -> Result<Vec<Option<Tensor>>> {
        let _ = (saved, dys, onto);
        Err(Error::op(self.name(), "adds to no gradient, which is a bug"))
    }
}

/// An op of the table: it has one result.
pub(super) struct Single<O>(pub(super) O);

impl<O: Op> Backward for Single<O> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn label(&self) -> &'static str {
        self.0.name()
    }

    fn backward(
        &self,
        saved: &SavedTensors,
        dys: &[Option<Tensor>],
    ) -> Result<Vec<Option<Tensor>>> {
        match dys {
            [Some(dy)] => self.0.backward(saved, dy),
            _ => Ok(Vec::new()),
        }
    }

    fn adds_to(&self) -> Option<usize> {
        self.0.adds_to()
    }

    fn backward_onto(
        &self,
        saved: &SavedTensors,
        dys: &[Option<Tensor>],
        onto: &Tensor,
    ) -> Result<Vec<Option<Tensor>>> {
        match dys {
            [Some(dy)] => self.0.backward_onto(saved, dy, onto),
            // Nothing comes this way; what came another way stays.
            _ => {
                let input = self.0.adds_to().unwrap_or(0);
                let mut grads = vec![None; input + 1];
                grads[input] = Some(onto.clone());
                Ok(grads)
            }
        }
    }

    fn place(&self) -> Option<Place> {
        self.0.place()
    }

    fn rows(&self) -> Option<&[usize]> {
        self.0.rows()
    }

    fn converts_from(&self) -> Option<DType> {
        self.0.converts_from()
    }

    fn widens(&self, input: usize) -> bool {
        self.0.widens(input)
    }
}
