//! Gated activations of a joined product, and the norm of a sum: one launch each where nothing is recorded. Where a gradient
//! is wanted the one is composed, as it is of an operand that lies across rows, and the other made of ops.

use genesis_kernel::kernel::Grid;
use genesis_kernel::tuning::rows::{MAX_ROW, RowBlock, gated_columns};
use kernels::gated as device;

use crate::autograd::is_grad_enabled;
use crate::error::{Error, Result};
use crate::launch;
use crate::launch::config::chip;
use crate::launch::epilogue::Gate;
use crate::ops::{Activation, check_pair, composite, wrong_dtype};
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
    /// `f(gate) up` of a product whose last axis is the gate, then what it lets through.
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
        let Some((&both, lead)) = self.shape().split_last().filter(|(both, _)| *both % 2 == 0)
        else {
            let message = format!("needs a last axis of two halves, got {:?}", self.shape());
            return Err(Error::op(NAME, message));
        };
        let width = both / 2;
        let shape = [lead, &[width]].concat();
        let is_recorded = is_grad_enabled() && self.requires_grad();
        let is_across = self.device().is_cuda() && self.strides().last() != Some(&1);
        if is_recorded || is_across {
            let half = |first| self.narrow(-1, first, width);
            let halves = [&half(0)?, &half(width)?];
            return composite(NAME, &[f64::from(gate as u8)], halves, |[x, up], n| {
                Tensor::rounded_once([x, up], |[wide, up]| {
                    let open = match n[0] {
                        0.0 => wide.silu(),
                        1.0 => wide.gelu(),
                        _ => wide.gelu_tanh(),
                    };
                    // Rounded as if the activation was an op of its own.
                    open?.to_dtype(x.dtype())?.to_dtype(wide.dtype())?.mul(&up)
                })
            });
        }
        let rows = crate::shape::product(lead.iter());
        let y = Tensor::uninitialized(&[rows, width], (self.dtype(), self.device()))?;
        if y.numel() > 0 {
            let x = self.detach().reshape(&[rows, both])?;
            let cols = gated_columns(&chip(self.device()), width, self.dtype().bytes());
            let consts = [1, cols, gate as usize].map(|n| n as i64);
            let grid = Grid::xy(rows, width.div_ceil(cols));
            let dtypes = [self.dtype(), launch::accumulate_dtype(self.dtype())];
            let tensors = [(&x, false), (&y, true)];
            launch::views(&device::gated::KERNEL, grid, &dtypes, &consts, &tensors, &[])?;
        }
        y.reshape(&shape)
    }

    /// A sum and its RMS norm: `s = x + residual` and `s / sqrt(mean(s^2) + eps) * weight`, in this order.
    ///
    /// # Shapes
    /// `x` and `residual: [.., C]`, `weight: [C]` give two of `[.., C]`.
    /// # Numerics
    /// Statistics in f32 for 16-bit dtypes, of the sum as it is stored: the bits of `add` and `rms_norm`.
    /// # Errors
    /// If shapes, dtypes or devices do not fit.
    #[track_caller]
    pub fn add_rms_norm(
        &self,
        residual: &Tensor,
        weight: &Tensor,
        eps: f64,
    ) -> Result<(Tensor, Tensor)> {
        const NAME: &str = "add_rms_norm";
        check_pair(NAME, self, residual)?;
        check_pair(NAME, self, weight)?;
        let Some((&c, lead)) = self.shape().split_last() else {
            return Err(Error::op(NAME, "needs at least 1 dimension(s), got shape []"));
        };
        if residual.shape() != self.shape() || weight.shape() != [c] {
            let (x, r, weight) = (self.shape(), residual.shape(), weight.shape());
            let message = format!("shapes {x:?}, {r:?} and a weight {weight:?} do not fit");
            return Err(Error::op(NAME, message));
        }
        let is_recorded =
            is_grad_enabled() && [self, residual, weight].iter().any(|t| t.requires_grad());
        if is_recorded || c > MAX_ROW || self.numel() == 0 || !self.dtype().is_arithmetic_float() {
            let sum = self.add(residual)?;
            let y = sum.rms_norm(weight, eps)?;
            return Ok((sum, y));
        }
        let rows = crate::shape::product(lead.iter());
        let flat = |t: &Tensor| t.detach().reshape(&[rows, c]);
        let fresh = || Tensor::uninitialized(&[rows, c], (self.dtype(), self.device()));
        let (x, r, weight) = (flat(self)?, flat(residual)?, weight.detach());
        let (sum, y) = (fresh()?, fresh()?);
        let wide = launch::accumulate_dtype(self.dtype());
        let block = RowBlock::of_one_sum(&chip(self.device()), rows, c);
        let consts = [block.rows as i64, block.cols as i64];
        let grid = Grid::x(rows.div_ceil(block.rows));
        let tensors = [(&x, false), (&r, false), (&weight, false), (&sum, true), (&y, true)];
        let (kernel, numbers) = (&device::add_rms_norm::KERNEL, [launch::number(wide, eps)]);
        let dtypes = [self.dtype(), wide];
        launch::warped_views(kernel, grid, &dtypes, &consts, block.warps, &tensors, &numbers)?;
        Ok((sum.reshape(self.shape())?, y.reshape(self.shape())?))
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use crate::launch::epilogue::Gate;
    use crate::ops::info::{Dense, Family, OpInfo, WIDE, by_row, zip};

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
            "add_rms_norm",
            Family::Softmax,
            |x| Ok(x[0].add_rms_norm(&x[1], &x[2], 1e-5)?.1),
            |x| {
                by_row(&zip(&x[0], &x[1], |a, b| a + b), |row| {
                    let square = row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
                    row.iter()
                        .zip(&x[2].data)
                        .map(|(v, w)| v / (square + 1e-5).sqrt() * w)
                        .collect()
                })
            },
            &[&[&[3, 40], &[3, 40], &[40]]],
        )
        .peer("F.rms_norm(x[0] + x[1], x[2].shape, x[2], 1e-5)")
        .of(WIDE),
    ];
}
