//! What is known of an op: how its reference, samples and refusals are written down.

use genesis_kernel::ir::DType;

use crate::error::Result;
use crate::tensor::Tensor;

/// A tensor of the reference: values in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct Dense {
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// The values.
    pub data: Vec<f64>,
}

impl Dense {
    /// Values computed from coordinates.
    pub fn from_fn(shape: &[usize], mut f: impl FnMut(&[usize]) -> f64) -> Dense {
        let mut at = vec![0; shape.len()];
        let data = (0..crate::shape::product(shape.iter()))
            .map(|index: usize| {
                let mut rest = index;
                for (coordinate, &extent) in at.iter_mut().zip(shape).rev() {
                    *coordinate = rest % extent;
                    rest /= extent;
                }
                f(&at)
            })
            .collect();
        Dense { shape: shape.to_vec(), data }
    }

    /// The value at coordinates aligned at the last axis, where extents of 1 repeat.
    pub fn at(&self, coordinates: &[usize]) -> f64 {
        let skip = coordinates.len() - self.shape.len();
        let mut index = 0;
        for (&coordinate, &extent) in coordinates[skip..].iter().zip(&self.shape) {
            index = index * extent + if extent == 1 { 0 } else { coordinate };
        }
        self.data[index]
    }
}

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
    /// Softmax, norms and cross entropy.
    Softmax,
    /// Products of matrices with this inner extent taken from the first input.
    MatMul,
}

/// Shapes of the inputs of a call, and where their values come from.
#[derive(Clone, Debug)]
pub struct Sample {
    /// One shape an input.
    pub shapes: Vec<Vec<usize>>,
    /// Values are drawn from this range.
    pub range: (f64, f64),
}

/// A call that must be refused.
pub struct Refusal {
    /// The call.
    pub call: Box<dyn Fn() -> Result<Tensor> + Send + Sync>,
    /// The exact error.
    pub message: String,
}

type Call = Box<dyn Fn(&[Tensor]) -> Result<Tensor> + Send + Sync>;
type Reference = Box<dyn Fn(&[Dense]) -> Dense + Send + Sync>;

/// Everything a test needs of an op.
pub struct OpInfo {
    /// The name users know it by.
    pub name: String,
    /// How exact it must be.
    pub family: Family,
    /// The dtypes it takes.
    pub dtypes: Vec<DType>,
    /// Inputs that are indices: i64 below this bound.
    pub index_inputs: Vec<(usize, usize)>,
    /// Whether tests differentiate it.
    pub is_differentiable: bool,
    /// The call.
    pub call: Call,
    /// The f64 reference.
    pub reference: Reference,
    /// Sample inputs.
    pub samples: Vec<Sample>,
    /// Refused calls.
    pub refused: Vec<Refusal>,
}

pub(super) const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::BF16, DType::F16];
pub(super) const NUMBERS: [DType; 12] = [
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

pub(super) fn samples(shapes: &[&[&[usize]]], range: (f64, f64)) -> Vec<Sample> {
    let owned = |shapes: &[&[usize]]| shapes.iter().map(|s| s.to_vec()).collect();
    shapes.iter().map(|s| Sample { shapes: owned(s), range }).collect()
}

pub(super) fn refuse(
    call: impl Fn() -> Result<Tensor> + Send + Sync + 'static,
    message: &str,
) -> Refusal {
    Refusal { call: Box::new(call), message: message.to_owned() }
}

pub(super) fn cpu(shape: &[usize], dtype: DType) -> Result<Tensor> {
    Tensor::zeros(shape, (dtype, genesis_kernel::runtime::Device::Cpu))
}
