//! Gated activations: of a joined product, by kernels of their own, and of two tensors, which are composed, as it is of an
//! operand that lies across rows.

use genesis_kernel::kernel::{Grid, KernelDef};
use genesis_kernel::tuning::rows::gated_columns;
use kernels::gated as device;

use crate::autograd::{GradOptions, SavedTensors, grad, is_grad_enabled};
use crate::error::{Error, Result};
use crate::launch;
use crate::launch::config::chip;
use crate::launch::epilogue::Gate;
use crate::ops::{Activation, Op, Saves, apply, check_pair, composite, wrong_dtype};
use crate::tensor::Tensor;

impl Gate {
    /// The gate whose function an activation is.
    pub(crate) fn of(activation: Activation) -> Option<Gate> {
        match activation {
            Activation::Silu => Some(Gate::Silu),
            Activation::Gelu => Some(Gate::Gelu),
            Activation::GeluTanh => Some(Gate::GeluTanh),
            _ => None,
        }
    }
}

impl Tensor {
    /// `f(self) up`: SwiGLU's product where the gate is SiLU, GEGLU's where it is GELU, forward and backward a launch each.
    ///
    /// # Shapes
    /// Both are of one shape, and so is the result.
    /// # Numerics
    /// In f32 for 16-bit dtypes; the activation is rounded to the dtype before the product.
    /// # Errors
    /// If shapes, dtypes or devices differ, or the dtype is not a float.
    /// # Source
    /// arXiv:2002.05202.
    /// # Examples
    /// ```
    /// # use genesis::{Tensor, ops::Gate};
    /// let (x, up) = (Tensor::from_slice(&[0.0f32, 20.0], &[2])?, Tensor::from_slice(&[3.0f32, 5.0], &[2])?);
    /// assert_eq!(x.gate(&up, Gate::Silu)?.to_vec::<f32>()?, [0.0, 100.0]);
    /// # Ok::<(), genesis::Error>(())
    /// ```
    #[track_caller]
    pub fn gate(&self, up: &Tensor, gate: Gate) -> Result<Tensor> {
        const NAME: &str = "gate";
        if !self.dtype().is_arithmetic_float() {
            return Err(wrong_dtype(NAME, "a float", self.dtype()));
        }
        check_pair(NAME, self, up)?;
        if up.shape() != self.shape() {
            let message = format!("shapes {:?} and {:?} differ", self.shape(), up.shape());
            return Err(Error::op(NAME, message));
        }
        composite(NAME, &[f64::from(gate as u8)], [self, up], |[x, up], n| {
            Tensor::rounded_once([x, up], |[wide, up]| {
                let open = match n[0] {
                    0.0 => wide.silu(),
                    1.0 => wide.gelu(),
                    _ => wide.gelu_tanh(),
                };
                // Rounded as if the activation was an op of its own.
                open?.to_dtype(x.dtype())?.to_dtype(wide.dtype())?.mul(&up)
            })
        })
    }

    /// `f(gate) up` of a product whose last axis is the gate, then what it lets through, forward and backward a launch each.
    ///
    /// # Shapes
    /// `[.., 2 F]` gives `[.., F]`.
    /// # Numerics
    /// In f32 for 16-bit dtypes; the activation is rounded to the dtype before the product.
    /// # Errors
    /// If the last axis is odd or missing, or the dtype is not a float.
    /// # Source
    /// arXiv:2002.05202.
    /// # Examples
    /// ```
    /// # use genesis::{Tensor, ops::Gate};
    /// let x = Tensor::from_slice(&[0.0f32, 20.0, 3.0, 5.0], &[1, 4])?;
    /// assert_eq!(x.gated(Gate::Silu)?.to_vec::<f32>()?, [0.0, 100.0]);
    /// # Ok::<(), genesis::Error>(())
    /// ```
    #[track_caller]
    pub fn gated(&self, gate: Gate) -> Result<Tensor> {
        const NAME: &str = "gated";
        if !self.dtype().is_arithmetic_float() {
            return Err(wrong_dtype(NAME, "a float", self.dtype()));
        }
        let Some(&both) = self.shape().last().filter(|both| *both % 2 == 0) else {
            let message = format!("needs a last axis of two halves, got {:?}", self.shape());
            return Err(Error::op(NAME, message));
        };
        if self.device().is_cuda() && self.strides().last() != Some(&1) {
            let [gating, up] = halves(self, both / 2)?;
            return gating.gate(&up, gate);
        }
        apply(Gated { gate }, &[self])
    }
}

/// The gate, and what it lets through.
#[track_caller]
fn halves(x: &Tensor, width: usize) -> Result<[Tensor; 2]> {
    Ok([x.narrow(-1, 0, width)?, x.narrow(-1, width, width)?])
}

/// [`Tensor::gated`]
struct Gated {
    gate: Gate,
}

impl Gated {
    /// Launches a kernel over matrices, the last of which it writes, of rows of `width` elements at most.
    fn launch(&self, kernel: &'static KernelDef, tensors: &[&Tensor], width: usize) -> Result<()> {
        let Some((&y, read)) = tensors.split_last() else { return Ok(()) };
        let cols = gated_columns(&chip(y.device()), width, y.dtype().bytes());
        let consts = [1, cols, self.gate as usize].map(|n| n as i64);
        let grid = Grid::xy(y.shape()[0], width.div_ceil(cols));
        let dtypes = [y.dtype(), launch::accumulate_dtype(y.dtype())];
        let tensors: Vec<_> = read.iter().map(|&t| (t, false)).chain([(y, true)]).collect();
        launch::views(kernel, grid, &dtypes, &consts, &tensors, &[])
    }
}

impl Op for Gated {
    fn name(&self) -> &'static str {
        "gated"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0];
        let (rows, both) = (x.numel() / x.dim(-1)?.max(1), x.dim(-1)?);
        let width = both / 2;
        let y = Tensor::uninitialized(&[rows, width], (x.dtype(), x.device()))?;
        if y.numel() > 0 {
            self.launch(&device::gated::KERNEL, &[&x.reshape(&[rows, both])?, &y], width)?;
        }
        y.reshape(&[&x.shape()[..x.rank() - 1], &[width]].concat())
    }

    fn saves(&self) -> Saves {
        Saves::inputs(1)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let x = saved.input(0);
        let (rows, both) = (x.numel() / x.dim(-1)?.max(1), x.dim(-1)?);
        let width = both / 2;
        if is_grad_enabled() {
            return Ok(vec![Some(self.differentiable(x, dy, width)?)]);
        }
        let dx = Tensor::uninitialized(&[rows, both], (x.dtype(), x.device()))?;
        if dx.numel() > 0 {
            let (x, dy) = (x.reshape(&[rows, both])?, dy.reshape(&[rows, width])?);
            self.launch(&device::gated_bwd::KERNEL, &[&x, &dy, &dx], width)?;
        }
        Ok(vec![Some(dx.reshape(x.shape())?)])
    }
}

impl Gated {
    /// The gradient that has one itself: that of the gate of two tensors.
    fn differentiable(&self, x: &Tensor, dy: &Tensor, width: usize) -> Result<Tensor> {
        let x = if x.requires_grad() { x.clone() } else { x.detach().requires_grad_(true)? };
        let [gating, up] = halves(&x, width)?;
        let y = gating.gate(&up, self.gate)?;
        let given = [Some(dy)];
        let options =
            GradOptions { grad_outputs: &given, create_graph: true, ..GradOptions::default() };
        let parts = grad(&[&y], &[&gating, &up], options)?;
        Tensor::cat(&parts.iter().flatten().collect::<Vec<_>>(), -1)
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use crate::launch::epilogue::Gate;
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Dense, Family, OpInfo, cpu, zip};

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "gated",
            Family::Softmax,
            |x| x[0].gated(Gate::Silu),
            |x| {
                Dense::from_fn(&[3, 4], |at| {
                    let gate = x[0].at(at);
                    gate / (1.0 + (-gate).exp()) * x[0].at(&[at[0], at[1] + 4])
                })
            },
            &[&[&[3, 8]]],
        )
        .peer("F.silu(x[0].chunk(2, -1)[0]) * x[0].chunk(2, -1)[1]")
        .within(-3.0, 3.0),
        OpInfo::new(
            "gate",
            Family::Softmax,
            |x| x[0].gate(&x[1], Gate::Silu),
            |x| zip(&x[0], &x[1], |gate, up| gate / (1.0 + (-gate).exp()) * up),
            &[&[&[3, 8], &[3, 8]], &[&[2, 3, 7], &[2, 3, 7]]],
        )
        .peer("F.silu(x[0]) * x[1]")
        .within(-3.0, 3.0)
        .refusing(&[(
            || cpu(&[2, 3], DType::F32)?.gate(&cpu(&[3], DType::F32)?, Gate::Silu),
            "gate: shapes [2, 3] and [3] differ",
        )]),
    ];
}
