//! `gradcheck`: gradients against finite differences.
//!
//! A function `f` of some inputs is nudged at one element after the other, and the change of each element
//! of its outputs is compared with what the backward says. This costs as many calls as there are elements,
//! so take small inputs, in f64.

use genesis_kernel::ir::DType;

use super::backward::{GradOptions, grad};
use crate::error::{Error, Result};
use crate::mode::{enable_grad, no_grad};
use crate::tensor::{Tensor, host};

/// How gradients are compared with differences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradCheck {
    /// How far an element is moved to either side.
    pub eps: f64,
    /// The error that is allowed at a slope of 0.
    pub atol: f64,
    /// The error that is allowed beside, as a part of the slope.
    pub rtol: f64,
    /// The most by which two backwards may differ.
    pub nondet_tol: f64,
    /// Compares a weighted sum of all output elements, one backward, rather than each for itself.
    pub fast_mode: bool,
    /// The most elements of an input that are moved, spread over it; all of them where this is none.
    pub elements: Option<usize>,
}

impl Default for GradCheck {
    /// PyTorch's: `eps` 1e-6, `atol` 1e-5, `rtol` 1e-3, `nondet_tol` 0, every element.
    fn default() -> GradCheck {
        GradCheck {
            eps: 1e-6,
            atol: 1e-5,
            rtol: 1e-3,
            nondet_tol: 0.0,
            fast_mode: false,
            elements: None,
        }
    }
}

/// Compares the gradients of `f` with central differences, for every input that requires a gradient.
///
/// # Errors
/// If they differ: the first wrong element, and both slopes. Also if no input requires a gradient, one
/// that does is not f64, `f` refuses, or two backwards give different results.
///
/// # Examples
/// ```
/// use genesis::{DType, Tensor};
/// use genesis::autograd::{GradCheck, gradcheck};
///
/// let x = Tensor::from_f64(&[0.3, -0.8], &[2], DType::F64)?.requires_grad_(true)?;
/// gradcheck(|x| Ok(vec![x[0].tanh()?]), &[&x], GradCheck::default())?;
/// // One that forgets a part of what it depends on:
/// let wrong = gradcheck(|x| Ok(vec![x[0].mul(&x[0].detach())?]), &[&x], GradCheck::default());
/// let text = wrong.expect_err("half of the slope is missing").to_string();
/// assert!(text.starts_with("gradcheck: output 0 element [0] by input 0 element [0]"), "{text}");
/// # Ok::<(), genesis::Error>(())
/// ```
pub fn gradcheck(
    f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    inputs: &[&Tensor],
    options: GradCheck,
) -> Result<()> {
    Check { name: "gradcheck", f: &f, inputs, options }.run()
}

/// Compares the second derivatives of `f` with differences of its gradients.
///
/// # Errors
/// As [`gradcheck`].
pub fn gradgradcheck(
    f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    inputs: &[&Tensor],
    options: GradCheck,
) -> Result<()> {
    let outputs = enable_grad(|| f(&owned(inputs)))?;
    let outputs: Vec<&Tensor> = outputs.iter().filter(|y| y.requires_grad()).collect();
    let mut weights = Weights::default();
    let seeds = outputs.iter().map(|y| weights.like(y)?.requires_grad_(true));
    let seeds = seeds.collect::<Result<Vec<_>>>()?;
    let wanted: Vec<bool> = inputs.iter().map(|input| input.requires_grad()).collect();
    let first = |all: &[Tensor]| -> Result<Vec<Tensor>> {
        let (inputs, seeds) = all.split_at(wanted.len());
        // Inputs of the check may be leaves or not; the inner derivative is by what it was given.
        let outputs = f(inputs)?;
        let outputs: Vec<&Tensor> = outputs.iter().filter(|y| y.requires_grad()).collect();
        let by: Vec<&Tensor> = inputs.iter().zip(&wanted).filter(|p| *p.1).map(|p| p.0).collect();
        let grad_outputs: Vec<Option<&Tensor>> = seeds.iter().map(Some).collect();
        let options = GradOptions {
            grad_outputs: &grad_outputs,
            create_graph: true,
            materialize_grads: true,
            ..GradOptions::default()
        };
        Ok(grad(&outputs, &by, options)?.into_iter().flatten().collect())
    };
    let all: Vec<&Tensor> = inputs.iter().copied().chain(&seeds).collect();
    Check { name: "gradgradcheck", f: &first, inputs: &all, options }.run()
}

fn owned(inputs: &[&Tensor]) -> Vec<Tensor> {
    inputs.iter().map(|&input| input.clone()).collect()
}

/// Weights that are the same in every run, between -0.4 and 0.6.
struct Weights(u64);

impl Default for Weights {
    fn default() -> Weights {
        Weights(99)
    }
}

impl Weights {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64 - 0.4
    }

    fn like(&mut self, tensor: &Tensor) -> Result<Tensor> {
        let values: Vec<f64> = (0..tensor.numel()).map(|_| self.next()).collect();
        Tensor::from_f64(&values, tensor.shape(), (tensor.dtype(), tensor.device()))
    }
}

struct Check<'a> {
    name: &'static str,
    f: &'a dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    inputs: &'a [&'a Tensor],
    options: GradCheck,
}

/// The sums of an output's elements that are compared.
enum Sums {
    /// Each element for itself, of so many.
    Each(usize),
    /// All of them at once, by weights.
    Weighted(Vec<f64>),
}

impl Sums {
    fn count(&self) -> usize {
        match self {
            Sums::Each(count) => *count,
            Sums::Weighted(_) => 1,
        }
    }

    /// What sum `at` has each element times.
    fn weights(&self, at: usize, output: &Tensor) -> Result<Tensor> {
        let weights = Tensor::host_values("gradcheck", output.numel(), |i| match self {
            Sums::Each(_) => f64::from(u8::from(i == at)),
            Sums::Weighted(weights) => weights[i],
        })?;
        Tensor::from_f64(&weights, output.shape(), (output.dtype(), output.device()))
    }

    /// Sum `at` of these.
    fn of(&self, at: usize, elements: &[f64]) -> f64 {
        match self {
            Sums::Each(_) => elements[at],
            Sums::Weighted(weights) => weights.iter().zip(elements).map(|(w, x)| w * x).sum(),
        }
    }
}

/// The slopes of a number by every input, as the backward says.
type Row = Vec<Option<Vec<f64>>>;

/// The rows of the Jacobian one after the other, of each only the elements that are moved.
struct Jacobian {
    /// The slopes in a row.
    width: usize,
    /// Where those of each input begin in a row.
    starts: Vec<usize>,
    slopes: Vec<f64>,
}

impl Check<'_> {
    fn run(&self) -> Result<()> {
        self.check_inputs()?;
        let outputs = enable_grad(|| (self.f)(&self.handles()))?;
        let mut weights = Weights::default();
        for (number, output) in outputs.iter().enumerate() {
            if !output.dtype().is_arithmetic_float() || output.numel() == 0 {
                continue;
            }
            let sums = match self.options.fast_mode {
                true => Sums::Weighted((0..output.numel()).map(|_| weights.next()).collect()),
                false => Sums::Each(output.numel()),
            };
            let jacobian = self.jacobian(output, &sums)?;
            self.compare(number, output.shape(), &sums, &jacobian)?;
        }
        Ok(())
    }

    /// The elements of an input that are moved.
    fn moved(&self, input: &Tensor) -> impl ExactSizeIterator<Item = usize> + use<> {
        let count = if input.requires_grad() { input.numel() } else { 0 };
        let step = self.options.elements.map_or(1, |most| count.div_ceil(most.max(1)));
        (0..count).step_by(step.max(1))
    }

    fn error(&self, message: impl Into<String>) -> Error {
        Error::op(self.name, message)
    }

    fn check_inputs(&self) -> Result<()> {
        let mut wanting = self.inputs.iter().filter(|input| input.requires_grad()).peekable();
        if wanting.peek().is_none() {
            return Err(self.error("no input requires a gradient"));
        }
        match wanting.find(|input| input.dtype() != DType::F64) {
            Some(input) => {
                let message = format!("differences need f64, an input has {}", input.dtype());
                Err(self.error(message))
            }
            None => Ok(()),
        }
    }

    fn handles(&self) -> Vec<Tensor> {
        owned(self.inputs)
    }

    /// The slopes of each sum of an output's elements.
    fn jacobian(&self, output: &Tensor, sums: &Sums) -> Result<Jacobian> {
        let moved = |input: &&Tensor| self.moved(input).len();
        let (mut width, mut starts) = (0, Vec::new());
        for count in self.inputs.iter().map(moved) {
            starts.push(width);
            width += count;
        }
        let mut slopes = host::reserve(self.name, sums.count().saturating_mul(width))?;
        let mut first = None;
        for at in 0..sums.count() {
            let row = self.row(output, sums, at)?;
            for (input, row) in self.inputs.iter().zip(&row) {
                slopes.extend(row.iter().flat_map(|row| self.moved(input).map(|place| row[place])));
            }
            first.get_or_insert(row);
        }
        if let Some(first) = first {
            self.check_same(&first, &self.row(output, sums, 0)?)?;
        }
        Ok(Jacobian { width, starts, slopes })
    }

    /// The slopes of one sum of an output's elements.
    fn row(&self, output: &Tensor, sums: &Sums, at: usize) -> Result<Row> {
        let by: Vec<&Tensor> = self.inputs.iter().copied().filter(|x| x.requires_grad()).collect();
        let grads = if output.requires_grad() {
            let options = GradOptions {
                grad_outputs: &[Some(&sums.weights(at, output)?)],
                retain_graph: true,
                allow_unused: true,
                ..GradOptions::default()
            };
            grad(&[output], &by, options)?
        } else {
            vec![None; by.len()]
        };
        let mut grads = grads.into_iter();
        let values = |input: &&Tensor| {
            if !input.requires_grad() {
                return Ok(None);
            }
            match grads.next().flatten() {
                Some(grad) if grad.shape() != input.shape() => Err(self.error(format!(
                    "a gradient has shape {:?}, its input {:?}",
                    grad.shape(),
                    input.shape()
                ))),
                Some(grad) => grad.to_f64_vec().map(Some),
                None => Ok(Some(vec![0.0; input.numel()])),
            }
        };
        self.inputs.iter().map(values).collect()
    }

    fn check_same(&self, first: &Row, second: &Row) -> Result<()> {
        let pairs = first.iter().flatten().flatten().zip(second.iter().flatten().flatten());
        for (a, b) in pairs {
            if (a - b).abs() > self.options.nondet_tol {
                return Err(self.error(format!("one backward gives {a}, the next {b}")));
            }
        }
        Ok(())
    }

    fn compare(
        &self,
        number: usize,
        shape: &[usize],
        sums: &Sums,
        jacobian: &Jacobian,
    ) -> Result<()> {
        let GradCheck { atol, rtol, .. } = self.options;
        for (index, (input, start)) in self.inputs.iter().zip(&jacobian.starts).enumerate() {
            for (column, at) in (*start..).zip(self.moved(input)) {
                let change = self.difference([number, index, at], shape)?;
                for place in 0..sums.count() {
                    let numeric = sums.of(place, &change);
                    let own = jacobian.slopes[place * jacobian.width + column];
                    let error = (own - numeric).abs();
                    if error <= atol + rtol * numeric.abs() {
                        continue;
                    }
                    let what = match self.options.fast_mode {
                        true => format!("a weighted sum of output {number}"),
                        false => format!("output {number} element {:?}", coordinates(place, shape)),
                    };
                    return Err(self.error(format!(
                        "{what} by input {index} element {:?}: the backward says {own}, differences {numeric}",
                        coordinates(at, input.shape())
                    )));
                }
            }
        }
        Ok(())
    }

    /// The slopes of all elements of an output by one element of an input.
    fn difference(&self, [number, index, at]: [usize; 3], shape: &[usize]) -> Result<Vec<f64>> {
        let input = self.inputs[index];
        let values = input.to_f64_vec()?;
        let step = self.options.eps * values[at].abs().max(1.0);
        let moved = |by: f64| -> Result<Vec<f64>> {
            let mut values = values.clone();
            values[at] += by;
            let nudged = Tensor::from_f64(&values, input.shape(), (input.dtype(), input.device()))?;
            let mut inputs = self.handles();
            // A second derivative needs the first, so gradients go on being wanted.
            inputs[index] = nudged.requires_grad_(true)?;
            let outputs = match self.name {
                "gradcheck" => no_grad(|| (self.f)(&inputs))?,
                _ => enable_grad(|| (self.f)(&inputs))?,
            };
            match outputs.get(number).filter(|output| output.shape() == shape) {
                Some(output) => output.to_f64_vec(),
                None => {
                    Err(self
                        .error(format!("output {number} of shape {shape:?} is not there again")))
                }
            }
        };
        let (above, below) = (moved(step)?, moved(-step)?);
        Ok(above.iter().zip(&below).map(|(a, b)| (a - b) / (2.0 * step)).collect())
    }
}

fn coordinates(at: usize, shape: &[usize]) -> Vec<usize> {
    let mut rest = at;
    let mut index = vec![0; shape.len()];
    for (coordinate, &extent) in index.iter_mut().zip(shape).rev() {
        *coordinate = rest % extent;
        rest /= extent;
    }
    index
}
