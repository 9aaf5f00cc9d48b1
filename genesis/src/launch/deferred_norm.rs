//! RMS norms in front of products of rows, whose division comes behind the product: see [`kernels::norm_rows`].

use std::cell::OnceCell;

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::{Grid, LaunchOptions};
use genesis_kernel::runtime::Device;
use kernels::norm_rows as device;

use super::{constants, launch_as, number, turned, view, view_of};
use crate::error::Result;
use crate::tensor::Tensor;

/// The weights of a norm: `weight + offset`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gain<'t> {
    /// `[C]`
    pub(crate) weight: &'t Tensor,
    /// 1 where weights are stored as their distance from 1.
    pub(crate) offset: f64,
}

/// The norm of rows `[.., C]` but for the division by their root mean squares.
#[derive(Clone, Debug)]
pub(crate) struct DeferredNorm {
    /// The rows before the norm, `[rows, C]`.
    of: Tensor,
    /// The rows times the weights, `[.., C]`.
    weighted: Tensor,
    /// Added to mean squares.
    eps: f64,
    /// What products of each row are multiplied by, `[rows]`, once a launch wants it.
    scales: OnceCell<Tensor>,
}

impl DeferredNorm {
    /// Whether norms of such rows may be deferred: the product of 16-bit floats must not overflow before the division.
    pub(crate) fn is_for(x: &Tensor) -> bool {
        x.dtype() == DType::BF16 && matches!(x.device(), Device::Cuda(_)) && x.numel() > 0
    }

    /// The norm of rows, in a launch of its own.
    pub(crate) fn new(x: &Tensor, gain: Gain<'_>, eps: f64) -> Result<DeferredNorm> {
        let norm = DeferredNorm::behind(
            x,
            Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?,
            eps,
        )?;
        let scales = norm.run(Some(gain))?;
        Ok(DeferredNorm { scales: scales.into(), ..norm })
    }

    /// The norm of rows that a product wrote with `weighted` beside them.
    pub(crate) fn behind(x: &Tensor, weighted: Tensor, eps: f64) -> Result<DeferredNorm> {
        let rows = crate::shape::product(x.shape()[..x.rank() - 1].iter());
        let of = x.detach().reshape(&[rows, x.dim(-1)?])?.contiguous()?;
        Ok(DeferredNorm { of, weighted, eps, scales: OnceCell::new() })
    }

    /// The rows times the weights, `[.., C]`: what products take.
    pub(crate) fn weighted(&self) -> &Tensor {
        &self.weighted
    }

    /// The rows before the norm, `[rows, C]`.
    pub(crate) fn of(&self) -> &Tensor {
        &self.of
    }

    /// What is added to mean squares.
    pub(crate) fn eps(&self) -> f64 {
        self.eps
    }

    /// What products of each row are multiplied by, where it is known.
    pub(crate) fn known_scales(&self) -> Option<&Tensor> {
        self.scales.get()
    }

    /// What products of each row are multiplied by, `[rows]`, f32.
    pub(crate) fn scales(&self) -> Result<&Tensor> {
        if let Some(scales) = self.scales.get() {
            return Ok(scales);
        }
        let scales = self.run(None)?;
        Ok(self.scales.get_or_init(|| scales))
    }

    /// Computes the scales, and the weighted rows where there are weights.
    fn run(&self, gain: Option<Gain<'_>>) -> Result<Tensor> {
        let (rows, at) = (self.of.shape()[0], self.of.device());
        let scales = Tensor::uninitialized(&[rows], (DType::F32, at))?;
        let weighted = self.weighted.reshape(self.of.shape())?;
        let each = if rows < 64 { 1 } else { 4 };
        let (weights, weighted) = match gain {
            Some(gain) => (view_of(gain.weight, false), turned(&weighted, true)),
            None => (view(&self.of, &[0], &[1], false), view(&weighted, &[0, 0], &[1, 1], true)),
        };
        let args = [
            turned(&self.of, false),
            weights,
            weighted,
            view_of(&scales, true),
            number(DType::F32, self.eps),
            number(DType::F32, gain.map_or(0.0, |gain| gain.offset)),
        ];
        let consts = [each as i64, i64::from(gain.is_some())];
        let options = LaunchOptions {
            constant: gain.map_or(0, |gain| constants(&[(1, gain.weight)])),
            num_warps: Some(each as u32),
            ..LaunchOptions::default()
        };
        let (kernel, grid) = (&device::rms_of_rows::KERNEL, Grid::x(rows.div_ceil(each)));
        launch_as(kernel, &self.of, grid, &[self.of.dtype()], &consts, options, &args)?;
        Ok(scales)
    }
}
