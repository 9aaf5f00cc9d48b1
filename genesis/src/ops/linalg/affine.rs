//! GEMM with a bias and activation epilogue, on GPUs in one kernel.

use genesis_kernel::kernel::KernelDef;

use super::matmul::{check_product, gradients, gradients_onto, is_tf32, product};
use super::tensor_copies;
use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::dispatch::autocast::{Precision, Precisions};
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{Op, Saves, apply, check_pair, unbroadcast};
use crate::tensor::Tensor;

/// In what autocast computes these.
pub(super) const AUTOCAST: Precisions = &[
    ("matmul_bias", Precision::Half),
    ("matmul_bias_gelu", Precision::Half),
    ("matmul_bias_relu", Precision::Half),
    ("matmul_bias_silu", Precision::Half),
];

/// The function that follows a linear layer.
#[derive(Clone, Copy, Debug, Default)]
pub enum Activation {
    /// None.
    #[default]
    Identity,
    /// The larger of x and 0.
    Relu,
    /// Exact GELU, `x * Phi(x)`.
    Gelu,
    /// GELU by tanh.
    GeluTanh,
    /// `x * sigmoid(x)`
    Silu,
    /// Any other function of a tensor: `Activation::Other(Tensor::tanh)`.
    Other(fn(&Tensor) -> Result<Tensor>),
}

impl Activation {
    /// The function of each element.
    ///
    /// # Errors
    /// If the dtype is not one of the function.
    #[track_caller]
    pub fn apply(self, x: &Tensor) -> Result<Tensor> {
        match self {
            Activation::Identity => Ok(x.clone()),
            Activation::Relu => x.relu(),
            Activation::Gelu => x.gelu(),
            Activation::GeluTanh => x.gelu_tanh(),
            Activation::Silu => x.silu(),
            Activation::Other(function) => function(x),
        }
    }

    /// Whether one kernel should compute it together with the product of these and their bias.
    ///
    /// The gradients of GELU and SiLU need what the function was given, so that these two are joined where no
    /// gradient is recorded. The gradient of ReLU follows from its result.
    pub(crate) fn joins(self, operands: [&Tensor; 3]) -> bool {
        match self {
            Activation::Identity | Activation::GeluTanh | Activation::Other(_) => false,
            Activation::Relu => has_one_kernel(operands[0]),
            Activation::Gelu | Activation::Silu => {
                has_one_kernel(operands[0]) && !is_recorded(operands)
            }
        }
    }
}

/// Whether the tape keeps an op of these.
fn is_recorded(operands: [&Tensor; 3]) -> bool {
    is_grad_enabled() && operands.iter().any(|operand| operand.requires_grad())
}

/// Whether a product with this left operand is one kernel with its bias.
fn has_one_kernel(a: &Tensor) -> bool {
    a.device().is_cuda() && !is_tf32(a.dtype())
}

impl Tensor {
    /// The matrix product plus a row: `self other + bias`. On GPUs the row is added before the sums are
    /// rounded and stored.
    ///
    /// # Shapes
    /// `[.., M, K]`, `[.., K, N]` and `[N]` give `[.., M, N]`; a vector `[K]` on the left is a row whose
    /// axis the result drops.
    /// # Numerics
    /// As [`matmul`](Tensor::matmul).
    /// # Errors
    /// If inner extents or dtypes differ, leading axes do not broadcast, the left operand is a scalar, the
    /// right one has less than two axes, or `bias` is not `[N]`.
    #[track_caller]
    pub fn matmul_bias(&self, other: &Tensor, bias: &Tensor) -> Result<Tensor> {
        affine(Epilogue::None, self, other, bias)
    }

    /// Exact GELU of [`matmul_bias`](Tensor::matmul_bias), in one kernel on GPUs where no gradient is recorded.
    ///
    /// # Shapes
    /// `[.., M, K]`, `[.., K, N]` and `[N]` give `[.., M, N]`; a vector `[K]` on the left is a row whose
    /// axis the result drops.
    /// # Numerics
    /// As [`matmul_bias_activation`](Tensor::matmul_bias_activation).
    /// # Errors
    /// As [`matmul_bias`](Tensor::matmul_bias).
    #[track_caller]
    pub fn matmul_bias_gelu(&self, other: &Tensor, bias: &Tensor) -> Result<Tensor> {
        self.matmul_bias_activation(other, bias, Activation::Gelu)
    }

    /// An activation of [`matmul_bias`](Tensor::matmul_bias); all but [`Activation::GeluTanh`] and
    /// [`Activation::Other`] are computed on the sums, in one kernel on GPUs.
    ///
    /// Where a gradient is recorded, GELU and SiLU are ops of their own: their backward reads what they were given.
    ///
    /// # Shapes
    /// `[.., M, K]`, `[.., K, N]` and `[N]` give `[.., M, N]`; a vector `[K]` on the left is a row whose
    /// axis the result drops.
    /// # Numerics
    /// As [`matmul`](Tensor::matmul): 16-bit floats are rounded once, after the activation, and before an op of its own
    /// too.
    /// # Errors
    /// As [`matmul_bias`](Tensor::matmul_bias), and those of another function.
    #[track_caller]
    pub fn matmul_bias_activation(
        &self,
        other: &Tensor,
        bias: &Tensor,
        activation: Activation,
    ) -> Result<Tensor> {
        let epilogue = match activation {
            Activation::Identity => Epilogue::None,
            Activation::Relu => Epilogue::Relu,
            Activation::Gelu => Epilogue::Gelu,
            Activation::Silu => Epilogue::Silu,
            Activation::GeluTanh => return self.matmul_bias(other, bias)?.gelu_tanh(),
            Activation::Other(function) => return function(&self.matmul_bias(other, bias)?),
        };
        affine(epilogue, self, other, bias)
    }
}

#[track_caller]
fn affine(epilogue: Epilogue, a: &Tensor, b: &Tensor, bias: &Tensor) -> Result<Tensor> {
    if a.rank() == 1 {
        return affine(epilogue, &a.unsqueeze(0)?, b, bias)?.squeeze(-2);
    }
    let op = epilogue.op_name();
    if a.rank() == 0 || b.rank() < 2 {
        let message = format!("needs a row and a matrix, got {:?} and {:?}", a.shape(), b.shape());
        return Err(Error::op(op, message));
    }
    check_product(op, a, b)?;
    let n = b.dim(-1)?;
    if bias.shape() != [n] {
        let message = format!("the bias is {:?}, {:?} needs [{n}]", bias.shape(), b.shape());
        return Err(Error::op(op, message));
    }
    check_pair(op, a, bias)?;
    let run = |epilogue| {
        let shapes = [a.shape().to_vec(), b.shape().to_vec()];
        apply(Affine { epilogue, shapes }, &[a, b, bias])
    };
    match epilogue {
        // Their gradients read what they were given: to keep it takes less time than the product again.
        Epilogue::Gelu | Epilogue::Silu if is_recorded([a, b, bias]) => {
            epilogue.apply(run(Epilogue::None)?)
        }
        _ => run(epilogue),
    }
}

/// What a kernel does with the sums of a product and its bias.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Epilogue {
    None,
    Relu,
    Gelu,
    Silu,
}

impl Epilogue {
    fn op_name(self) -> &'static str {
        match self {
            Epilogue::None => "matmul_bias",
            Epilogue::Relu => "matmul_bias_relu",
            Epilogue::Gelu => "matmul_bias_gelu",
            Epilogue::Silu => "matmul_bias_silu",
        }
    }

    /// As an op of its own.
    #[track_caller]
    fn apply(self, y: Tensor) -> Result<Tensor> {
        match self {
            Epilogue::None => Ok(y),
            Epilogue::Relu => y.relu(),
            Epilogue::Gelu => y.gelu(),
            Epilogue::Silu => y.silu(),
        }
    }

    /// The kernels for a bias along the rows of the result, and for one along its columns.
    fn kernels(self) -> [&'static KernelDef; 2] {
        use kernels::matmul as device;
        match self {
            Epilogue::None => [&device::matmul_bias::KERNEL, &device::matmul_bias_down::KERNEL],
            Epilogue::Relu => {
                [&device::matmul_bias_relu::KERNEL, &device::matmul_bias_relu_down::KERNEL]
            }
            Epilogue::Gelu => {
                [&device::matmul_bias_gelu::KERNEL, &device::matmul_bias_gelu_down::KERNEL]
            }
            Epilogue::Silu => {
                [&device::matmul_bias_silu::KERNEL, &device::matmul_bias_silu_down::KERNEL]
            }
        }
    }
}

/// The kernels of a product plus a bias: see [`launch::matmul_bias`].
pub(super) fn row_bias() -> [&'static KernelDef; 2] {
    Epilogue::None.kernels()
}

/// `epilogue(a b + bias)`
struct Affine {
    epilogue: Epilogue,
    shapes: [Vec<usize>; 2],
}

impl Affine {
    /// By an op each, rounded once.
    #[track_caller]
    fn composed(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let dtype = inputs[0].dtype();
        let wide = launch::accumulate_dtype(dtype);
        let [a, b, bias] = [0, 1, 2].map(|i| inputs[i].to_dtype(wide));
        self.epilogue.apply(a?.matmul(&b?)?.add(&bias?)?)?.to_dtype(dtype)
    }

    fn bias_gradient(&self, saved: &SavedTensors, dz: &Tensor) -> Result<Option<Tensor>> {
        let n = self.shapes[1].last().copied().unwrap_or(0);
        saved.wanted[2].then(|| unbroadcast(dz, &[n])).transpose()
    }

    /// The gradient of what the epilogue was given.
    fn before_epilogue(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Tensor> {
        match self.epilogue {
            Epilogue::None => Ok(dy.clone()),
            Epilogue::Relu => dy.mul(&saved.output().gt_scalar(0.0)?.to_dtype(dy.dtype())?),
            Epilogue::Gelu | Epilogue::Silu => {
                unreachable!("where a gradient is recorded these are ops of their own")
            }
        }
    }
}

impl Op for Affine {
    fn name(&self) -> &'static str {
        self.epilogue.op_name()
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (a, b, bias) = (inputs[0], inputs[1], inputs[2]);
        if !has_one_kernel(a) || a.dim(-1)? == 0 {
            return self.composed(inputs);
        }
        let kernels = self.epilogue.kernels();
        product(a, b, &|a, b, c| tensor_copies::matmul_bias([a, b, bias], c, kernels))
    }

    fn saves(&self) -> Saves {
        match self.epilogue {
            Epilogue::Relu => Saves { inputs: 3, output: true },
            Epilogue::None | Epilogue::Gelu | Epilogue::Silu => Saves::inputs(3),
        }
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let dz = self.before_epilogue(saved, dy)?;
        let [da, db] = gradients(saved, [true; 2], &dz, &self.shapes)?;
        Ok(vec![da, db, self.bias_gradient(saved, &dz)?])
    }

    /// The operands'; the bias's is small.
    fn widens(&self, input: usize) -> bool {
        input < 2
    }

    fn adds_to(&self) -> Option<usize> {
        Some(0)
    }

    fn backward_onto(
        &self,
        saved: &SavedTensors,
        dy: &Tensor,
        onto: &Tensor,
    ) -> Result<Vec<Option<Tensor>>> {
        let dz = self.before_epilogue(saved, dy)?;
        let [da, db] = gradients_onto(saved, &dz, &self.shapes, onto)?;
        Ok(vec![da, db, self.bias_gradient(saved, &dz)?])
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::error::Result;
    use crate::ops::Activation;
    use crate::ops::elementwise::reference::erf;
    use crate::ops::info::{Dense, Family, OpInfo, Sample, cpu};
    use crate::ops::linalg::reference::product_of;
    use crate::tensor::Tensor;

    /// The products and their biases, under an activation.
    fn biased(x: &[Dense], activation: fn(f64) -> f64) -> Dense {
        let product = product_of(&x[0], &x[1]);
        let n = x[2].data.len().max(1);
        let value = |(i, v): (usize, &f64)| activation(v + x[2].data[i % n]);
        Dense { data: product.data.iter().enumerate().map(value).collect(), ..product }
    }

    /// What integers are refused with.
    fn integers(activation: Activation) -> Result<Tensor> {
        let (a, b) = (cpu(&[2, 2], DType::I32)?, cpu(&[2, 2], DType::I32)?);
        a.matmul_bias_activation(&b, &cpu(&[2], DType::I32)?, activation)
    }

    const SAMPLES: &[Sample] = &[
        &[&[1, 1], &[1, 1], &[1]],
        &[&[3, 4], &[4, 5], &[5]],
        &[&[2, 17, 33], &[33, 9], &[9]],
        &[&[3, 1, 4, 5], &[2, 5, 6], &[6]],
        &[&[70, 100], &[100, 65], &[65]],
        &[&[0, 4], &[4, 5], &[5]],
        // Sums of nothing, which have to be exact.
        &[&[2, 0], &[0, 3], &[3]],
    ];

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "matmul_bias",
            Family::MatMul,
            |x| x[0].matmul_bias(&x[1], &x[2]),
            |x| biased(x, |v| v),
            SAMPLES,
        )
        .peer("torch.addmm(x[2], x[0], x[1])")
        .within(-2.0, 2.0)
        .refusing(&[
            (
                || {
                    let (a, b) = (cpu(&[4, 8], DType::F32)?, cpu(&[8, 2], DType::F32)?);
                    a.matmul_bias(&b, &cpu(&[3], DType::F32)?)
                },
                "matmul_bias: the bias is [3], [8, 2] needs [2]",
            ),
            (
                || {
                    let (a, b) = (cpu(&[4, 8], DType::F32)?, cpu(&[6, 2], DType::F32)?);
                    a.matmul_bias(&b, &cpu(&[2], DType::F32)?)
                },
                "matmul_bias: inner extents differ, [4, 8] and [6, 2]",
            ),
            (
                || {
                    let (a, b) = (cpu(&[4, 8], DType::F32)?, cpu(&[8], DType::F32)?);
                    a.matmul_bias(&b, &cpu(&[8], DType::F32)?)
                },
                "matmul_bias: needs a row and a matrix, got [4, 8] and [8]",
            ),
        ]),
        OpInfo::new(
            "matmul_bias_gelu",
            Family::MatMul,
            |x| x[0].matmul_bias_gelu(&x[1], &x[2]),
            |x| biased(x, |v| 0.5 * v * (1.0 + erf(v * std::f64::consts::FRAC_1_SQRT_2))),
            SAMPLES,
        )
        .peer("F.gelu(torch.addmm(x[2], x[0], x[1]))")
        .within(-1.0, 1.0)
        .refusing(&[(
            || integers(Activation::Gelu),
            "matmul_bias_gelu: needs a float dtype, got i32",
        )]),
        OpInfo::new(
            "matmul_bias_relu",
            Family::MatMul,
            |x| x[0].matmul_bias_activation(&x[1], &x[2], Activation::Relu),
            |x| biased(x, |v| v.max(0.0)),
            SAMPLES,
        )
        .peer("F.relu(torch.addmm(x[2], x[0], x[1]))")
        .within(-2.0, 2.0)
        .refusing(&[(
            || integers(Activation::Relu),
            "matmul_bias_relu: needs a float dtype, got i32",
        )]),
        OpInfo::new(
            "matmul_bias_silu",
            Family::MatMul,
            |x| x[0].matmul_bias_activation(&x[1], &x[2], Activation::Silu),
            |x| biased(x, |v| v / (1.0 + (-v).exp())),
            SAMPLES.split_at(6).0,
        )
        .peer("F.silu(torch.addmm(x[2], x[0], x[1]))")
        .within(-1.0, 1.0)
        .refusing(&[(
            || integers(Activation::Silu),
            "matmul_bias_silu: needs a float dtype, got i32",
        )]),
    ];
}
