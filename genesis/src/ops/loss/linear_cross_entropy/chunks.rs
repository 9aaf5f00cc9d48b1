//! Losses and gradients, chunk by chunk.

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::{Grid, LaunchOptions};
use genesis_kernel::runtime::{Arg, Device};
use genesis_kernel::tuning::logits::logit_rows;
use genesis_kernel::tuning::rows::{KeptRows, Pieces};
use kernels::logits as device;

use super::options::{LossOptions, NAME};
use crate::error::Result;
use crate::launch::config::chip;
use crate::launch::{self, accumulate_dtype};
use crate::ops::index::flag;
use crate::ops::linalg::into::{add_product, affine_into, long_product_into};
use crate::tensor::Tensor;

/// What logits are made of.
pub(super) struct Operands<'t> {
    /// `[N, D]`
    pub(super) x: &'t Tensor,
    /// `[V, D]`
    pub(super) weight: &'t Tensor,
    /// `[N]`
    pub(super) target: &'t Tensor,
    /// `[V]`
    pub(super) bias: Option<&'t Tensor>,
}

impl<'t> Operands<'t> {
    pub(super) fn new(
        x: &'t Tensor,
        weight: &'t Tensor,
        target: &'t Tensor,
        bias: Option<&'t Tensor>,
    ) -> Operands<'t> {
        Operands { x, weight, target, bias }
    }
}

/// Gradients of the operands, as they are summed.
#[derive(Default)]
pub(super) struct Gradients {
    pub(super) x: Option<Tensor>,
    pub(super) weight: Option<Tensor>,
    pub(super) bias: Option<Tensor>,
}

impl Gradients {
    /// Multiplies all by a number, in place.
    pub(super) fn scale(&self, by: &Tensor) -> Result<()> {
        for t in [&self.x, &self.weight, &self.bias].into_iter().flatten() {
            let wide = accumulate_dtype(t.dtype());
            let by = by.to_dtype(wide)?.reshape(&[1])?;
            let tensors = [(t, true), (&by, false)];
            launch::dense(&device::scale_by::KERNEL, &[t.dtype(), wide], &[], &tensors, &[])?;
        }
        Ok(())
    }

    /// In the dtypes that they go back in.
    pub(super) fn rounded(self, of: &Operands<'_>, weight: DType) -> Result<Gradients> {
        let to = |t: Option<Tensor>, dtype| t.map(|t: Tensor| t.to_dtype(dtype)).transpose();
        let bias = of.bias.map_or(weight, Tensor::dtype);
        Ok(Gradients {
            x: to(self.x, of.x.dtype())?,
            weight: to(self.weight, weight)?,
            bias: to(self.bias, bias)?,
        })
    }
}

/// A tensor with so many rows, the last of which are zeros; itself where it has them. A large product of rows that tensor
/// copies can't bring would copy both operands for each chunk.
fn with_zeros_behind(t: &Tensor, rows: usize) -> Result<Tensor> {
    let own = t.shape()[0];
    if own == rows {
        return Ok(t.clone());
    }
    let shape = [&[rows], &t.shape()[1..]].concat();
    let wide = Tensor::uninitialized(&shape, (t.dtype(), t.device()))?;
    launch::cast(t, &wide.narrow(0, 0, own)?)?;
    launch::fill(&wide.narrow(0, own, rows - own)?, Scalar::zero(t.dtype()))?;
    Ok(wide)
}

/// What is computed of operands.
pub(super) struct Chunks<'o> {
    pub(super) options: &'o LossOptions,
    /// Whether a gradient of `x`, the weight and the bias is wanted.
    pub(super) wants: [bool; 3],
    pub(super) weight_dtype: DType,
}

impl Chunks<'_> {
    /// The losses of rows, and gradients of the sum of them, each times its slope.
    pub(super) fn run(
        &self,
        of: &Operands<'_>,
        slope: Option<&Tensor>,
    ) -> Result<(Tensor, Gradients)> {
        let wide = accumulate_dtype(of.x.dtype());
        if of.x.device() == Device::Cpu && of.x.dtype() != wide {
            // Processors multiply 16-bit floats as f32: once for all chunks.
            let bias = of.bias.map(|bias| bias.to_dtype(wide)).transpose()?;
            let (x, weight) = (of.x.to_dtype(wide)?, of.weight.to_dtype(wide)?);
            return self.all(&Operands::new(&x, &weight, of.target, bias.as_ref()), slope);
        }
        self.all(of, slope)
    }

    fn all(&self, of: &Operands<'_>, slope: Option<&Tensor>) -> Result<(Tensor, Gradients)> {
        let (dtype, device) = (of.x.dtype(), of.x.device());
        let wide = accumulate_dtype(dtype);
        let (m, v) = (of.x.shape()[0], of.weight.shape()[0]);
        let ones = Tensor::ones(&[], (wide, device))?;
        let slope = match slope {
            Some(slope) => slope.clone(),
            None => ones.broadcast_to(&[m])?,
        };
        let losses = Tensor::uninitialized(&[m], (wide, device))?;
        let rows = logit_rows(&chip(device), m, v, dtype.bytes());
        // As many classes as the copy engine can bring of each row.
        let step = if device.is_cuda() { v.next_multiple_of(16 / dtype.bytes()) } else { v };
        let weight = with_zeros_behind(of.weight, step)?;
        let bias = of.bias.map(|bias| with_zeros_behind(bias, step)).transpose()?;
        let mut gradients = self.empty(of, step)?;
        let buffer = Tensor::uninitialized(&[rows.min(m), step], (dtype, device))?;
        for start in (0..m).step_by(rows) {
            let count = rows.min(m - start);
            let part = |t: &Tensor| t.narrow(0, start, count);
            let (x, all) = (part(of.x)?, buffer.narrow(0, 0, count)?);
            let (logits, behind) = (all.narrow(1, 0, v)?, all.narrow(1, v, step - v)?);
            affine_into([&x, &weight.t()?], bias.as_ref(), &all)?;
            let rows = [&part(of.target)?, &part(&slope)?, &part(&losses)?];
            self.losses(&logits, rows, &ones)?;
            if behind.numel() > 0 {
                launch::fill(&behind, Scalar::zero(dtype))?;
            }
            if let Some(dx) = &gradients.x {
                long_product_into(&all, &weight, &part(dx)?)?;
            }
            if let Some(dw) = &gradients.weight {
                add_product(&all.t()?, &x, dw, start == 0)?;
            }
            if let Some(db) = &mut gradients.bias {
                *db = db.add(&logits.sum_dims(&[0], false)?.to_dtype(wide)?)?;
            }
        }
        if step > v {
            gradients.weight = gradients.weight.map(|dw| dw.narrow(0, 0, v)).transpose()?;
        }
        Ok((losses, gradients))
    }

    /// Memory for gradients, that of the weight of so many rows; zeros where nothing is written to it.
    fn empty(&self, of: &Operands<'_>, classes: usize) -> Result<Gradients> {
        let (dtype, device) = (of.x.dtype(), of.x.device());
        let wide = accumulate_dtype(dtype);
        let wider = if self.weight_dtype == wide { wide } else { dtype };
        let fresh = |shape: &[usize], dtype| match of.x.shape()[0] {
            0 => Tensor::zeros(shape, (dtype, device)),
            _ => Tensor::uninitialized(shape, (dtype, device)),
        };
        let [x, weight, bias] = self.wants;
        Ok(Gradients {
            x: x.then(|| fresh(of.x.shape(), dtype)).transpose()?,
            weight: weight.then(|| fresh(&[classes, of.weight.shape()[1]], wider)).transpose()?,
            bias: bias
                .then(|| Tensor::zeros(&of.weight.shape()[..1], (wide, device)))
                .transpose()?,
        })
    }

    /// The losses of a chunk; logits become gradients where any is wanted.
    fn losses(
        &self,
        logits: &Tensor,
        [target, slope, losses]: [&Tensor; 3],
        ones: &Tensor,
    ) -> Result<()> {
        let LossOptions { weight, ignore, smoothing, softcap, z_loss, .. } = self.options;
        let (m, v) = (logits.shape()[0], logits.shape()[1]);
        let (dtype, wide) = (logits.dtype(), losses.dtype());
        let (chip, has_gradients) = (chip(logits.device()), self.wants.contains(&true));
        let [flag, code] = flag::args(NAME, logits.device(), v)?;
        let is_plain = weight.is_none() && softcap.is_none() && *smoothing == 0.0;
        let ignore = launch::number(DType::I64, *ignore as f64);
        let number = |value: f64| launch::number(wide, value);
        // Rows of one block that are longer spill: 880 bytes a thread at 8192 columns of bf16.
        let fits = |kept: &KeptRows| kept.cluster.is_some() || kept.cols <= 4096;
        let kept = KeptRows::of(&chip, m, v, dtype.bytes());
        let kept = kept.filter(|kept| has_gradients && is_plain && fits(kept));
        if let Some(kept) = kept {
            let tensors = [(logits, true), (target, false), (slope, false), (losses, true)];
            let numbers = [ignore, number(*z_loss), flag, code];
            let kernel = &device::logit_losses_kept::KERNEL;
            return launch::kept_rows(kernel, &[dtype, wide], kept, &tensors, &numbers);
        }
        let pieces = Pieces::of_row(&chip, v, dtype.bytes(), has_gradients);
        let weights = match weight {
            Some(weight) => weight.clone(),
            None => ones.broadcast_to(&[v])?,
        };
        let has = [has_gradients, softcap.is_some(), weight.is_some(), *smoothing > 0.0];
        let consts = [&pieces.consts()[..], &has.map(i64::from)[..]].concat();
        let views = [(target, false), (slope, false), (&weights, false), (losses, true)];
        let mut args: Vec<Arg> = vec![launch::own_view(logits, true)];
        args.extend(views.map(|(t, mutable)| launch::own_view(t, mutable)));
        let numbers = [number(*smoothing), number(*z_loss), number(softcap.unwrap_or(1.0))];
        args.extend([ignore].into_iter().chain(numbers).chain([flag, code]));
        let options = LaunchOptions { num_warps: pieces.warps, ..LaunchOptions::default() };
        let kernel = &device::logit_losses::KERNEL;
        launch::launch_as(kernel, logits, Grid::x(m), &[dtype, wide], &consts, options, &args)
    }
}
