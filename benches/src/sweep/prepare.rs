//! A call made ready on our side, and what the peer is asked to make ready.

use genesis::autograd::{GradOptions, grad};
use genesis::ops::info::{Input, bytes_of};
use genesis::random::default_generator;
use genesis::{DType, Device, Tensor};
use serde_json::{Value, json};

use super::call::Call;
use super::kind::Layout;
use crate::ops::Prepared;
use crate::roofline::Work;

/// All buffers of a case take about this many bytes together, several times a cache.
const ROTATING_BYTES: f64 = 256e6;
/// A case may take no more memory than this, on either side.
const MOST_BYTES: f64 = 8e9;

/// A call that is ready on our side.
pub(crate) struct Ready {
    pub(crate) prepared: Prepared,
    pub(crate) sets: usize,
    pub(crate) work: Work,
    /// What the peer is asked; none where PyTorch has no such call, with the reason.
    pub(crate) request: std::result::Result<Value, &'static str>,
    /// What both sides have to come to.
    pub(crate) result: Result,
}

/// Shape and dtype of a result.
pub(crate) struct Result {
    /// None where it depends on values.
    shape: Option<Vec<usize>>,
    rank: usize,
    dtype: String,
}

impl Result {
    /// Compares it with what the peer says of its own: a guard against timing different things.
    ///
    /// # Errors
    /// If they differ: how.
    pub(crate) fn check(&self, theirs: &Value) -> anyhow::Result<()> {
        let shape = theirs["shape"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_same = match &self.shape {
            Some(own) => theirs["shape"] == json!(own),
            None => shape.len() == self.rank,
        };
        let (own, dtype) = (&self.shape, &self.dtype);
        anyhow::ensure!(
            is_same && theirs["dtype"] == dtype.as_str(),
            "results differ: ours is {own:?} {dtype}, the peer's {} {}",
            theirs["shape"],
            theirs["dtype"]
        );
        Ok(())
    }
}

/// A set of operands of the backward.
struct Graph {
    inputs: Vec<Tensor>,
    y: Tensor,
    dy: Tensor,
}

/// Makes a call ready on a device.
///
/// # Errors
/// If the op refuses it, memory runs out, or the call would take too much of it.
pub(crate) fn prepare(call: &Call, device: Device) -> anyhow::Result<Ready> {
    genesis::use_deterministic_algorithms(!call.is_unordered);
    let inputs = &call.inputs;
    let layouts = layouts(call, inputs);
    let moved: Vec<(usize, DType)> =
        inputs.iter().zip(&layouts).map(|(input, layout)| (layout.len, input.dtype)).collect();
    let draw = |track: bool| -> genesis::Result<Vec<Tensor>> {
        inputs.iter().zip(&layouts).map(|(i, l)| make(i, l, device, track)).collect()
    };
    // Two sets say whether the shape of the result depends on values.
    let (first, second) = ((call.run)(&draw(false)?)?, (call.run)(&draw(false)?)?);
    let shape = (first.shape() == second.shape()).then(|| first.shape().to_vec());
    let result = Result { shape, rank: first.rank(), dtype: first.dtype().to_string() };
    let elements = first.numel() as f64;
    let shapes: Vec<Vec<usize>> = inputs.iter().map(|input| input.shape.clone()).collect();
    let bytes = bytes_of(&moved, (first.numel(), first.dtype()));
    let flops = call.info.map_or(0.0, |info| info.flops_of(&shapes, elements));
    drop((first, second));
    let factor = if call.is_backward { 2.0 } else { 1.0 };
    let work = Work { bytes: factor * bytes, flops: factor * flops };
    let sets = (ROTATING_BYTES / work.bytes.max(1.0)).ceil().clamp(1.0, 8.0) as usize;
    let total = sets as f64 * work.bytes;
    anyhow::ensure!(total <= MOST_BYTES, "it would take {:.0} GB", total / 1e9);
    let prepared = match call.is_backward {
        false => forward(call, sets, || draw(false))?,
        true => backward(call, sets, || draw(true))?,
    };
    let request = call.peer.clone().map(|expr| {
        let described: Vec<Value> =
            inputs.iter().zip(&layouts).map(|(input, layout)| describe(input, layout)).collect();
        json!({
            "do": "prepare", "op": "call", "dtype": call.dtype.to_string(), "dims": [],
            "call": expr, "inputs": described, "backward": call.is_backward, "sets": sets,
            "deterministic": call.wants_order(),
        })
    });
    Ok(Ready { prepared, sets, work, request, result })
}

/// How the inputs of a call lie; indices are dense.
fn layouts(call: &Call, inputs: &[Input]) -> Vec<Layout> {
    let is_view = |input: &Input| !input.is_index && input.shape.len() >= 2;
    let last = inputs.iter().rposition(is_view);
    let of = |(index, input): (usize, &Input)| match input.is_index {
        true => Layout::of(super::kind::Kind::Large, &input.shape, false),
        false => Layout::of(call.kind, &input.shape, last == Some(index)),
    };
    inputs.iter().enumerate().map(of).collect()
}

/// An input as it lies in memory; a leaf where its gradient is asked for.
fn make(input: &Input, layout: &Layout, device: Device, track: bool) -> genesis::Result<Tensor> {
    let base = input.draw(&[layout.len], device, default_generator())?;
    let x = base.as_strided(&input.shape, &layout.strides, layout.offset)?.detach();
    x.requires_grad_(track && input.dtype.is_float())
}

fn describe(input: &Input, layout: &Layout) -> Value {
    json!({
        "shape": input.shape, "strides": layout.strides, "offset": layout.offset, "len": layout.len,
        "dtype": input.dtype.to_string(), "low": input.low, "high": input.high, "whole": input.is_whole,
    })
}

fn each<T>(sets: usize, make: impl Fn() -> genesis::Result<T>) -> genesis::Result<Vec<T>> {
    (0..sets).map(|_| make()).collect()
}

fn forward(
    call: &Call,
    sets: usize,
    draw: impl Fn() -> genesis::Result<Vec<Tensor>>,
) -> anyhow::Result<Prepared> {
    let run = call.run;
    Prepared::new(each(sets, draw)?, move |x: &Vec<Tensor>| run(x), |_, _| Ok(0.0))
}

fn backward(
    call: &Call,
    sets: usize,
    draw: impl Fn() -> genesis::Result<Vec<Tensor>>,
) -> anyhow::Result<Prepared> {
    let run = call.run;
    let make = || {
        let inputs = draw()?;
        let y = run(&inputs)?;
        let dy = Tensor::uniform(y.shape(), -1.0, 1.0, (y.dtype(), y.device()))?;
        Ok(Graph { inputs, y, dy })
    };
    let op = |set: &Graph| {
        let leaves: Vec<&Tensor> = set.inputs.iter().filter(|x| x.requires_grad()).collect();
        let given = [Some(&set.dy)];
        let options = GradOptions {
            grad_outputs: &given,
            retain_graph: true,
            allow_unused: true,
            ..GradOptions::default()
        };
        grad(&[&set.y], &leaves, options)
    };
    Prepared::new(each(sets, make)?, op, |_, _| Ok(0.0))
}
