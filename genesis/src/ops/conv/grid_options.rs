//! How the points of a grid are sampled: positions along an axis, the elements beside them, and how much these count.

use crate::error::Result;
use crate::tensor::Tensor;

/// How a value between elements is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GridMode {
    /// Of the two elements beside it along each axis, by distance.
    #[default]
    Linear,
    /// The nearest element; of two as near the even one.
    Nearest,
    /// Of four elements along each axis, by a cubic.
    Cubic,
}

/// What is beyond the edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GridPadding {
    /// Zeros.
    #[default]
    Zeros,
    /// The last element.
    Border,
    /// The elements mirrored at the edge.
    Reflection,
}

/// What [`Tensor::grid_sample`] can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GridSample {
    /// How a value between elements is made.
    pub mode: GridMode,
    /// What is beyond the edge.
    pub padding: GridPadding,
    /// Whether -1 and 1 are the centers of the first and last elements, and not their outer edges.
    pub align_corners: bool,
}

/// An element beside the points: which it is, and how much it counts. NaN is no index.
pub(super) struct Tap {
    pub(super) at: Tensor,
    pub(super) weight: Option<Tensor>,
}

impl GridSample {
    /// What the kernel calls these: mode, padding, alignment, and elements beside a point along an axis.
    pub(super) fn consts(&self) -> [i64; 4] {
        let (mode, taps) = match self.mode {
            GridMode::Linear => (0, 2),
            GridMode::Nearest => (1, 1),
            GridMode::Cubic => (2, 4),
        };
        let padding = match self.padding {
            GridPadding::Zeros => 0,
            GridPadding::Border => 1,
            GridPadding::Reflection => 2,
        };
        [mode, padding, i64::from(self.align_corners), taps]
    }

    /// Elements beside a point along an axis.
    pub(super) fn taps_of_axis(&self) -> usize {
        self.consts()[3] as usize
    }

    /// What [`consts`](GridSample::consts) says.
    pub(super) fn of_consts(consts: &[f64]) -> GridSample {
        let mode = match consts[0] as i64 {
            0 => GridMode::Linear,
            1 => GridMode::Nearest,
            _ => GridMode::Cubic,
        };
        let padding = match consts[1] as i64 {
            0 => GridPadding::Zeros,
            1 => GridPadding::Border,
            _ => GridPadding::Reflection,
        };
        GridSample { mode, padding, align_corners: consts[2] != 0.0 }
    }

    /// How much the elements beside points count, by their numbers from 0 on; nearest ones count once.
    pub(super) fn weight(&self, x: &Tensor, step: &Tensor, extent: usize) -> Result<Tensor> {
        let at = self.position(x, extent)?;
        if self.mode == GridMode::Cubic {
            let [first, second, third, last] = cubic(&at.sub(&at.detach().floor()?)?)?;
            let or = |number: f64, own: &Tensor, others: &Tensor| {
                step.eq_scalar(number)?.where_(own, others)
            };
            return or(0.0, &first, &or(1.0, &second, &or(2.0, &third, &last)?)?);
        }
        let at = self.inside(&at, extent)?;
        let near = at.sub(&at.detach().floor()?)?;
        // `1 - near` and `near`, as one term of each, which has one gradient.
        near.mul(&step.mul_scalar(2.0)?.sub_scalar(1.0)?)?.add(&step.rsub_scalar(1.0)?)
    }

    /// Which elements are beside points, by their numbers from 0 on; NaN is none.
    pub(super) fn element(&self, x: &Tensor, step: &Tensor, extent: usize) -> Result<Tensor> {
        let at = self.position(&x.detach(), extent)?;
        match self.mode {
            GridMode::Cubic => self.inside(&at.floor()?.add(&step.sub_scalar(1.0)?)?, extent),
            GridMode::Nearest => self.inside(&at, extent)?.round()?.add(step),
            GridMode::Linear => self.inside(&at, extent)?.floor()?.add(step),
        }
    }

    /// Positions of points from -1 to 1 along an axis of this extent.
    fn position(&self, x: &Tensor, extent: usize) -> Result<Tensor> {
        let n = extent as f64;
        match self.align_corners {
            true => x.add_scalar(1.0)?.mul_scalar((n - 1.0) / 2.0),
            false => x.add_scalar(1.0)?.mul_scalar(n)?.sub_scalar(1.0)?.div_scalar(2.0),
        }
    }

    /// Positions brought back into the axis; the gradient is zero where they were beyond its edge.
    fn inside(&self, at: &Tensor, extent: usize) -> Result<Tensor> {
        let last = extent as f64 - 1.0;
        if self.padding == GridPadding::Zeros {
            return Ok(at.clone());
        }
        let at = match self.padding {
            GridPadding::Reflection => self.reflected(at, extent)?,
            _ => at.clone(),
        };
        if extent == 1 { at.detach().mul_scalar(0.0) } else { at.hardtanh(0.0, last) }
    }

    fn reflected(&self, at: &Tensor, extent: usize) -> Result<Tensor> {
        let n = extent as f64;
        let (low, span) = if self.align_corners { (0.0, n - 1.0) } else { (-0.5, n) };
        if span == 0.0 {
            return at.detach().mul_scalar(0.0);
        }
        let away = at.sub_scalar(low)?.abs()?;
        let turns = away.detach().div_scalar(span)?.floor()?;
        let rest = away.sub(&turns.mul_scalar(span)?)?;
        let is_odd = turns.remainder_scalar(2.0)?.gt_scalar(0.5)?;
        is_odd.where_(&rest.rsub_scalar(span)?, &rest)?.add_scalar(low)
    }

    /// The elements beside the points along one axis.
    pub(super) fn taps(&self, x: &Tensor, extent: usize) -> Result<Vec<Tap>> {
        let at = self.position(x, extent)?;
        if self.mode == GridMode::Cubic {
            let first = at.detach().floor()?;
            let weights = cubic(&at.sub(&first)?)?;
            let tap = |(k, weight): (usize, Tensor)| {
                let at = self.inside(&first.add_scalar(k as f64 - 1.0)?, extent)?;
                Ok(Tap { at: at.detach(), weight: Some(weight) })
            };
            return weights.into_iter().enumerate().map(tap).collect();
        }
        let at = self.inside(&at, extent)?;
        if self.mode == GridMode::Nearest {
            return Ok(vec![Tap { at: at.detach().round()?, weight: None }]);
        }
        let first = at.detach().floor()?;
        let (near, far) = (at.sub(&first)?, first.add_scalar(1.0)?);
        let second = Tap { at: far, weight: Some(near.clone()) };
        Ok(vec![Tap { at: first, weight: Some(near.rsub_scalar(1.0)?) }, second])
    }
}

/// The weights of four elements for points as far behind the second as `t`: Keys' kernel with -0.75.
fn cubic(t: &Tensor) -> Result<[Tensor; 4]> {
    const A: f64 = -0.75;
    let near = |t: &Tensor| {
        let inner = t.mul_scalar(A + 2.0)?.sub_scalar(A + 3.0)?;
        inner.mul(t)?.mul(t)?.add_scalar(1.0)
    };
    let far = |t: &Tensor| {
        let t = t.add_scalar(1.0)?;
        let inner = t.mul_scalar(A)?.sub_scalar(5.0 * A)?.mul(&t)?.add_scalar(8.0 * A)?;
        inner.mul(&t)?.sub_scalar(4.0 * A)
    };
    let rest = t.rsub_scalar(1.0)?;
    Ok([far(t)?, near(t)?, near(&rest)?, far(&rest)?])
}
