//! Layer norm and RMS norm along the last axis.
//!
//! The forward keeps the statistics of each row, from which the backward is one more pass over the
//! rows. Where the backward is itself differentiated it is made of ops.

use std::sync::OnceLock;

use genesis_kernel::kernel::{Grid, KernelDef};
use genesis_kernel::tuning::rows::{MAX_ROW, RowBlock, programs_of_long_rows, step_of_row};
use kernels::{norm as device, norm_bwd as device_bwd};

use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::dispatch::autocast::{Precision, Precisions};
use crate::error::{Error, Result};
use crate::launch;
use crate::launch::config::chip;
use crate::ops::{Op, Saves, apply, check_pair, wrong_dtype};
use crate::tensor::Tensor;

/// In what autocast computes these.
pub(super) const AUTOCAST: Precisions =
    &[("layer_norm", Precision::Single), ("rms_norm", Precision::Single)];

impl Tensor {
    /// Normalizes the last axis to zero mean and unit variance, then scales and shifts.
    ///
    /// `y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias`
    ///
    /// # Shapes
    /// `x: [.., C]`, `weight: [C]`, `bias: [C]` -> `[.., C]`
    /// # Numerics
    /// Statistics in f32 for 16-bit dtypes; `var` is the biased estimate.
    /// # Errors
    /// If `x` is rank 0, `weight` or `bias` is not `[C]`, or dtypes differ.
    /// # Source
    /// arXiv:1607.06450; same convention as `torch.nn.functional.layer_norm`.
    #[track_caller]
    pub fn layer_norm(&self, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
        check("layer_norm", self, &[("weight", weight), ("bias", bias)])?;
        apply(LayerNorm { eps, stats: OnceLock::new() }, &[self, weight, bias])
    }

    /// Divides the last axis by its root mean square, then scales.
    ///
    /// `y = x / sqrt(mean(x^2) + eps) * weight`
    ///
    /// # Shapes
    /// `x: [.., C]`, `weight: [C]` -> `[.., C]`
    /// # Numerics
    /// Statistics in f32 for 16-bit dtypes.
    /// # Errors
    /// If `x` is rank 0, `weight` is not `[C]`, or dtypes differ.
    /// # Source
    /// arXiv:1910.07467.
    #[track_caller]
    pub fn rms_norm(&self, weight: &Tensor, eps: f64) -> Result<Tensor> {
        check("rms_norm", self, &[("weight", weight)])?;
        apply(RmsNorm { eps, stats: OnceLock::new() }, &[self, weight])
    }
}

fn check(op: &'static str, x: &Tensor, params: &[(&str, &Tensor)]) -> Result<()> {
    if x.rank() == 0 {
        return Err(Error::op(op, "needs at least 1 dimension(s), got shape []"));
    }
    if !x.dtype().is_arithmetic_float() {
        return Err(wrong_dtype(op, "a float", x.dtype()));
    }
    let c = x.shape()[x.rank() - 1];
    for (name, param) in params {
        if param.shape() != [c] {
            let message = format!(
                "{name} is {:?}, the last axis of {:?} needs [{c}]",
                param.shape(),
                x.shape()
            );
            return Err(Error::op(op, message));
        }
        check_pair(op, x, param)?;
    }
    Ok(())
}

/// A tensor as `[rows, C]`.
#[track_caller]
fn as_rows(t: &Tensor) -> Result<Tensor> {
    let c = t.shape()[t.rank() - 1];
    t.reshape(&[t.numel().checked_div(c).unwrap_or(0), c])
}

/// The kernels of one norm.
struct Kernels {
    /// Whether there are a mean and a bias.
    centered: bool,
    short: &'static KernelDef,
    long: &'static KernelDef,
    bwd: &'static KernelDef,
    bwd_long: &'static KernelDef,
    params: &'static KernelDef,
}

static LAYER_NORM: Kernels = Kernels {
    centered: true,
    short: &device::layer_norm::KERNEL,
    long: &device::layer_norm_long::KERNEL,
    bwd: &device_bwd::layer_norm_bwd::KERNEL,
    bwd_long: &device_bwd::layer_norm_bwd_long::KERNEL,
    params: &device_bwd::layer_norm_params::KERNEL,
};

static RMS_NORM: Kernels = Kernels {
    centered: false,
    short: &device::rms_norm::KERNEL,
    long: &device::rms_norm_long::KERNEL,
    bwd: &device_bwd::rms_norm_bwd::KERNEL,
    bwd_long: &device_bwd::rms_norm_bwd_long::KERNEL,
    params: &device_bwd::rms_norm_params::KERNEL,
};

type Tensors<'a> = Vec<(&'a Tensor, bool)>;

impl Kernels {
    /// The result, and the statistics of rows: the mean where there is one, and one over the
    /// deviation.
    fn forward(&self, inputs: &[&Tensor], eps: f64) -> Result<(Tensor, Vec<Tensor>)> {
        let x = inputs[0];
        let y = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        let (rows, out) = (as_rows(x)?, as_rows(&y)?);
        let (m, n) = (rows.shape()[0], rows.shape()[1]);
        let wide = launch::accumulate_dtype(x.dtype());
        let stat = || Tensor::uninitialized(&[m], (wide, x.device()));
        let stats = if self.centered { vec![stat()?, stat()?] } else { vec![stat()?] };
        if x.numel() == 0 {
            return Ok((y, stats));
        }
        let mut tensors: Tensors<'_> = vec![(&rows, false)];
        tensors.extend(inputs[1..].iter().map(|&t| (t, false)));
        tensors.push((&out, true));
        tensors.extend(stats.iter().map(|t| (t, true)));
        let dtypes = [x.dtype(), wide];
        let eps = [launch::number(wide, eps)];
        if n > MAX_ROW {
            let consts = [step_of_row(n) as i64];
            launch::views(self.long, Grid::x(m), &dtypes, &consts, &tensors, &eps)?;
        } else {
            let block = if self.centered { RowBlock::kept } else { RowBlock::of_one_sum };
            let RowBlock { rows, cols, warps } = block(&chip(x.device()), m, n);
            let (grid, consts) = (Grid::x(m.div_ceil(rows)), [rows as i64, cols as i64]);
            launch::warped_views(self.short, grid, &dtypes, &consts, warps, &tensors, &eps)?;
        }
        Ok((y, stats))
    }

    /// The gradients of `x`, the weight and, where there is one, the bias.
    fn backward(
        &self,
        (x, weight): (&Tensor, &Tensor),
        stats: &[Tensor],
        dy: &Tensor,
    ) -> Result<Vec<Option<Tensor>>> {
        let dx = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        let n_params = if self.centered { 2 } else { 1 };
        let params = if x.numel() == 0 {
            Tensor::zeros(&[n_params, weight.numel()], (x.dtype(), x.device()))?
        } else {
            self.launch_backward((&as_rows(x)?, weight), stats, &as_rows(dy)?, &as_rows(&dx)?)?
        };
        let param = |index: usize| params.select(0, index).map(Some);
        let mut grads = vec![Some(dx)];
        for index in 0..n_params {
            grads.push(param(index)?);
        }
        Ok(grads)
    }

    /// Writes `dx` and gives the gradients of weight and bias as `[1 or 2, C]`.
    #[track_caller]
    fn launch_backward(
        &self,
        (x, weight): (&Tensor, &Tensor),
        stats: &[Tensor],
        dy: &Tensor,
        dx: &Tensor,
    ) -> Result<Tensor> {
        let (m, n) = (x.shape()[0], x.shape()[1]);
        let wide = launch::accumulate_dtype(x.dtype());
        let (dtypes, n_params) = ([x.dtype(), wide], if self.centered { 2 } else { 1 });
        let mut row_tensors: Tensors<'_> = vec![(x, false), (weight, false)];
        row_tensors.extend(stats.iter().map(|t| (t, false)));
        row_tensors.extend([(dy, false), (dx, true)]);
        let chip = &chip(x.device());
        let partial = match RowBlock::of_column_sums(chip, m, n, wide.bytes()) {
            Some(block) => {
                let RowBlock { rows, cols, warps } = block;
                let programs = block.programs_of_column_sums(chip, m);
                let shape = [n_params, programs, n];
                let partial = Tensor::uninitialized(&shape, (wide, x.device()))?;
                row_tensors.push((&partial, true));
                let consts = [rows as i64, cols as i64];
                let grid = Grid::x(programs);
                launch::warped_views(self.bwd, grid, &dtypes, &consts, warps, &row_tensors, &[])?;
                partial
            }
            None => {
                let step = [step_of_row(n) as i64];
                launch::views(self.bwd_long, Grid::x(m), &dtypes, &step, &row_tensors, &[])?;
                let programs = programs_of_long_rows(m);
                let shape = [n_params, programs, n];
                let partial = Tensor::uninitialized(&shape, (wide, x.device()))?;
                let mut tensors: Tensors<'_> = vec![(x, false)];
                tensors.extend(stats.iter().map(|t| (t, false)));
                tensors.extend([(dy, false), (&partial, true)]);
                let grid = Grid::xy(n.div_ceil(128), programs);
                launch::views(self.params, grid, &dtypes, &[32, 128], &tensors, &[])?;
                partial
            }
        };
        let params = Tensor::uninitialized(&[n_params, n], (x.dtype(), x.device()))?;
        launch::sum(&partial, &params, 1.0)?;
        Ok(params)
    }
}

/// The sum of `t` over all axes but the last, as `[C]`.
#[track_caller]
fn sum_rows(t: &Tensor) -> Result<Tensor> {
    let axes: Vec<i64> = (0..t.rank() as i64 - 1).collect();
    t.sum_dims(&axes, false)
}

struct LayerNorm {
    eps: f64,
    stats: OnceLock<Vec<Tensor>>,
}

impl Op for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (y, stats) = LAYER_NORM.forward(inputs, self.eps)?;
        self.stats.get_or_init(|| stats);
        Ok(y)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(3)
    }

    /// With h = (x - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - h mean(g h)).
    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        if let (false, Some(stats)) = (is_grad_enabled(), self.stats.get()) {
            return LAYER_NORM.backward((saved.input(0), saved.input(1)), stats, dy);
        }
        let dtype = dy.dtype();
        let wide = launch::accumulate_dtype(dtype);
        let (x, weight) = (saved.input(0).to_dtype(wide)?, saved.input(1).to_dtype(wide)?);
        let dy = dy.to_dtype(wide)?;
        let d = x.sub(&x.mean_dims(&[-1], true)?)?;
        let rstd = d.square()?.mean_dims(&[-1], true)?.add_scalar(self.eps)?.rsqrt()?;
        let h = d.mul(&rstd)?;
        let g = dy.mul(&weight)?;
        let correction = h.mul(&g.mul(&h)?.mean_dims(&[-1], true)?)?;
        let dx = g.sub(&g.mean_dims(&[-1], true)?)?.sub(&correction)?.mul(&rstd)?;
        let dw = sum_rows(&dy.mul(&h)?)?;
        let db = sum_rows(&dy)?;
        Ok(vec![Some(dx.to_dtype(dtype)?), Some(dw.to_dtype(dtype)?), Some(db.to_dtype(dtype)?)])
    }
}

struct RmsNorm {
    eps: f64,
    stats: OnceLock<Vec<Tensor>>,
}

impl Op for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (y, stats) = RMS_NORM.forward(inputs, self.eps)?;
        self.stats.get_or_init(|| stats);
        Ok(y)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(3)
    }

    /// With h = x rstd and g = dy weight: dx = rstd (g - h mean(g h)).
    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        if let (false, Some(stats)) = (is_grad_enabled(), self.stats.get()) {
            return RMS_NORM.backward((saved.input(0), saved.input(1)), stats, dy);
        }
        let dtype = dy.dtype();
        let wide = launch::accumulate_dtype(dtype);
        let (x, weight) = (saved.input(0).to_dtype(wide)?, saved.input(1).to_dtype(wide)?);
        let dy = dy.to_dtype(wide)?;
        let rstd = x.square()?.mean_dims(&[-1], true)?.add_scalar(self.eps)?.rsqrt()?;
        let h = x.mul(&rstd)?;
        let g = dy.mul(&weight)?;
        let dx = g.sub(&h.mul(&g.mul(&h)?.mean_dims(&[-1], true)?)?)?.mul(&rstd)?;
        let dw = sum_rows(&dy.mul(&h)?)?;
        Ok(vec![Some(dx.to_dtype(dtype)?), Some(dw.to_dtype(dtype)?)])
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Family, OpInfo, by_row, cpu, mean, variance};

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "layer_norm",
            Family::Softmax,
            |x| x[0].layer_norm(&x[1], &x[2], 1e-5),
            |x| {
                by_row(&x[0], |row| {
                    let (mean, var) = (mean(row), variance(row, 0.0));
                    let normed = row.iter().map(|v| (v - mean) / (var + 1e-5).sqrt());
                    normed
                        .zip(x[1].data.iter().zip(&x[2].data))
                        .map(|(h, (w, b))| h * w + b)
                        .collect()
                })
            },
            &[
                &[&[3, 7], &[7], &[7]],
                &[&[2, 3, 130], &[130], &[130]],
                &[&[0, 4], &[4], &[4]],
                &[&[2, 17000], &[17000], &[17000]],
            ],
        )
        .peer("F.layer_norm(x[0], x[1].shape, x[1], x[2])")
        .within(-3.0, 3.0)
        .refusing(&[
            (
                || {
                    let one = cpu(&[1], DType::F32)?;
                    cpu(&[], DType::F32)?.layer_norm(&one, &one, 1e-5)
                },
                "layer_norm: needs at least 1 dimension(s), got shape []",
            ),
            (
                || {
                    let (two, three) = (cpu(&[2], DType::F32)?, cpu(&[3], DType::F32)?);
                    cpu(&[2, 3], DType::F32)?.layer_norm(&two, &three, 1e-5)
                },
                "layer_norm: weight is [2], the last axis of [2, 3] needs [3]",
            ),
        ]),
        OpInfo::new(
            "rms_norm",
            Family::Softmax,
            |x| x[0].rms_norm(&x[1], 1e-5),
            |x| {
                by_row(&x[0], |row| {
                    let square = row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
                    row.iter()
                        .zip(&x[1].data)
                        .map(|(v, w)| v / (square + 1e-5).sqrt() * w)
                        .collect()
                })
            },
            &[
                &[&[3, 7], &[7]],
                &[&[2, 3, 130], &[130]],
                &[&[0, 4], &[4]],
                &[&[2, 17000], &[17000]],
            ],
        )
        .peer("F.rms_norm(x[0], x[1].shape, x[1], 1e-5)")
        .within(-3.0, 3.0)
        .refusing(&[(
            || cpu(&[2, 3], DType::F32)?.rms_norm(&cpu(&[2], DType::F32)?, 1e-5),
            "rms_norm: weight is [2], the last axis of [2, 3] needs [3]",
        )]),
    ];
}
