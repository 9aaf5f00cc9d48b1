//! The descriptor of an op: what tests, benches and the page of ops are made of.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::dense::Dense;
use crate::error::Result;
use crate::tensor::Tensor;

/// How exact an op must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// No rounding: every bit.
    Exact,
    /// One correctly rounded operation.
    Arithmetic,
    /// A transcendental function, or a short chain around one.
    Transcendental,
    /// A formula of several such steps, whose parts may cancel.
    Chain,
    /// A sum of many.
    Sum,
    /// A mean of many.
    Mean,
    /// Softmax, norms and cross entropy.
    Softmax,
    /// Products of matrices with this inner extent taken from the first input.
    MatMul,
}

/// One shape an input.
pub type Sample = &'static [&'static [usize]];

/// A call that must be refused, and its exact error.
pub type Refusal = (fn() -> Result<Tensor>, &'static str);

/// The call of PyTorch that an op is timed beside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// `torch.<name>(*x)`, by the row's name before its slash.
    Named,
    /// This expression of Python over the list `x` of inputs, where `F` is `torch.nn.functional`.
    Call(&'static str),
    /// None, for this reason.
    Missing(&'static str),
}

/// Floating-point operations of a call, by the shapes of its inputs and the elements of its result.
pub type Flops = fn(inputs: &[Vec<usize>], elements: f64) -> f64;

/// Everything a test needs of an op. What most ops share is in `OpInfo::new`.
pub struct OpInfo {
    /// The name users know it by; after a slash which of its rows this is.
    pub name: &'static str,
    /// How exact it must be.
    pub family: Family,
    /// The call.
    pub call: fn(&[Tensor]) -> Result<Tensor>,
    /// The f64 reference: slow, and obviously right.
    pub reference: fn(&[Dense]) -> Dense,
    /// Shapes of the inputs of some calls.
    pub samples: &'static [Sample],
    /// Values of inputs are drawn from this range.
    pub range: (f64, f64),
    /// Whether the values are whole numbers, so that some are equal and some are zero.
    pub is_whole: bool,
    /// Inputs that are indices: i64 below this bound.
    pub index_inputs: &'static [(usize, usize)],
    /// The dtypes it takes.
    pub dtypes: &'static [DType],
    /// Whether tests differentiate it.
    pub is_differentiable: bool,
    /// Refused calls.
    pub refused: &'static [Refusal],
    /// The same call in PyTorch.
    pub peer: Peer,
    /// What it computes, where that is more than a few operations an element and its family does not
    /// say it.
    pub flops: Option<Flops>,
    /// Axes, each of an input, whose extents are parameters of the call, such as the window of a
    /// convolution: larger calls have them as they are in the samples.
    pub parameters: &'static [(usize, usize)],
}

impl OpInfo {
    pub(in crate::ops) const fn new(
        name: &'static str,
        family: Family,
        call: fn(&[Tensor]) -> Result<Tensor>,
        reference: fn(&[Dense]) -> Dense,
        samples: &'static [Sample],
    ) -> OpInfo {
        OpInfo {
            name,
            family,
            call,
            reference,
            samples,
            range: (0.1, 5.0),
            is_whole: false,
            index_inputs: &[],
            dtypes: if matches!(family, Family::Exact) { MOVED } else { FLOATS },
            is_differentiable: true,
            refused: &[],
            peer: Peer::Named,
            flops: None,
            parameters: &[],
        }
    }

    /// Values from this range.
    pub(in crate::ops) const fn within(self, low: f64, high: f64) -> OpInfo {
        OpInfo { range: (low, high), ..self }
    }

    /// Of whole numbers.
    pub(in crate::ops) const fn whole(self) -> OpInfo {
        OpInfo { is_whole: true, ..self }
    }

    /// Inputs that are indices, with their bounds.
    pub(in crate::ops) const fn indexed(self, index_inputs: &'static [(usize, usize)]) -> OpInfo {
        OpInfo { index_inputs, ..self }
    }

    /// For these dtypes.
    pub(in crate::ops) const fn of(self, dtypes: &'static [DType]) -> OpInfo {
        OpInfo { dtypes, ..self }
    }

    /// Without a gradient.
    pub(in crate::ops) const fn flat(self) -> OpInfo {
        self.flat_if(true)
    }

    /// Without a gradient, where that is so.
    pub(in crate::ops) const fn flat_if(self, is_flat: bool) -> OpInfo {
        OpInfo { is_differentiable: !is_flat, ..self }
    }

    /// Timed beside this expression: see [`Peer::Call`].
    pub(in crate::ops) const fn peer(self, call: &'static str) -> OpInfo {
        OpInfo { peer: Peer::Call(call), ..self }
    }

    /// Timed alone, for this reason.
    pub(in crate::ops) const fn without_peer(self, reason: &'static str) -> OpInfo {
        OpInfo { peer: Peer::Missing(reason), ..self }
    }

    /// With so many floating-point operations.
    pub(in crate::ops) const fn computing(self, flops: Flops) -> OpInfo {
        OpInfo { flops: Some(flops), ..self }
    }

    /// With axes that are parameters.
    pub(in crate::ops) const fn keeping(self, parameters: &'static [(usize, usize)]) -> OpInfo {
        OpInfo { parameters, ..self }
    }

    /// The call of PyTorch, an expression of Python over the list `x` of inputs.
    ///
    /// # Errors
    /// Where there is none: why.
    pub fn peer_call(&self) -> std::result::Result<String, &'static str> {
        match self.peer {
            Peer::Named => Ok(format!("torch.{}(*x)", self.base_name())),
            Peer::Call(call) => Ok(call.to_owned()),
            Peer::Missing(reason) => Err(reason),
        }
    }

    /// The name of the op, whose rows have more behind a slash.
    pub fn base_name(&self) -> &'static str {
        self.name.split('/').next().unwrap_or(self.name)
    }

    /// Floating-point operations of a call, by the shapes of its inputs and the elements of its result; 0
    /// where memory is all that counts.
    pub fn flops_of(&self, inputs: &[Vec<usize>], elements: f64) -> f64 {
        let inner = || inputs.first().and_then(|shape| shape.last()).copied().unwrap_or(1);
        match (self.flops, self.family) {
            (Some(flops), _) => flops(inputs, elements),
            (None, Family::MatMul) => 2.0 * elements * inner() as f64,
            _ => 0.0,
        }
    }

    /// With calls that are refused.
    pub(in crate::ops) const fn refusing(self, refused: &'static [Refusal]) -> OpInfo {
        OpInfo { refused, ..self }
    }
}

/// Bytes that a call moves at least, of elements and dtypes of its inputs as they lie in memory, and of its result: each of
/// them once. The share of the roofline that a bench prints is by these, and by [`OpInfo::flops_of`].
pub fn bytes_of(inputs: &[(usize, DType)], result: (usize, DType)) -> f64 {
    let bytes = |&(elements, dtype): &(usize, DType)| (elements * dtype.bytes()) as f64;
    inputs.iter().chain([&result]).map(bytes).sum()
}

/// The elements of a shape.
pub(in crate::ops) fn numel(shape: &[usize]) -> f64 {
    shape.iter().map(|&n| n as f64).product::<f64>()
}

/// A method of tensors that a row of a table declares, called with a tensor or a number where it takes one.
pub struct Method {
    /// Its name.
    pub name: &'static str,
    /// The call: the result, or the tensor that was written to.
    pub call: fn(&Tensor, &Tensor, f64) -> Result<Tensor>,
}

/// Arithmetic floats.
pub(in crate::ops) const FLOATS: &[DType] = &[DType::F32, DType::F64, DType::BF16, DType::F16];
/// Floats of ops that round, and whose backward is tested elsewhere.
pub(in crate::ops) const WIDE: &[DType] = &[DType::F32, DType::F64];
/// Dtypes of ops that move elements or compare them: one of each size and kind.
pub(in crate::ops) const MOVED: &[DType] =
    &[DType::F32, DType::BF16, DType::F64, DType::I64, DType::U8];
/// Integers.
pub(in crate::ops) const INTEGERS: &[DType] =
    &[DType::I64, DType::I32, DType::I16, DType::I8, DType::U64, DType::U32, DType::U16, DType::U8];
/// Arithmetic floats and integers.
pub(in crate::ops) const NUMBERS: &[DType] = &[
    DType::F32,
    DType::F64,
    DType::BF16,
    DType::F16,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U64,
    DType::U32,
    DType::U16,
    DType::U8,
];

/// Shapes for an op on each element: of no axes, of no elements, over several tiles.
pub(in crate::ops) const ELEMENTWISE: &[Sample] =
    &[&[&[]], &[&[1]], &[&[7]], &[&[3, 5]], &[&[2, 3, 33]], &[&[0, 4]], &[&[5000]]];
/// The same of two operands that broadcast.
pub(in crate::ops) const ELEMENTWISE2: &[Sample] = &[
    &[&[], &[]],
    &[&[7], &[7]],
    &[&[3, 5], &[5]],
    &[&[3, 1], &[1, 5]],
    &[&[2, 3, 33], &[3, 1]],
    &[&[0, 4], &[4]],
    &[&[2, 1, 3, 1, 5], &[4, 1, 2, 1]],
    &[&[5000], &[1]],
];

/// Zeros on the CPU.
pub(in crate::ops) fn cpu(shape: &[usize], dtype: DType) -> Result<Tensor> {
    Tensor::zeros(shape, (dtype, Device::Cpu))
}
