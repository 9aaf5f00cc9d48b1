//! Pictures sampled at the points of a grid, and the grids of affine maps.
//!
//! Made of other ops: the elements around each point are rows of a table, read by [`Tensor::embedding`],
//! whose gradient adds up in a fixed order; the distances are the weights.

use genesis_kernel::ir::DType;

use crate::autograd::is_grad_enabled;
use crate::dispatch::trace;
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{check_pair, wrong_dtype};
use crate::shape;
use crate::tensor::{Creation, Tensor};

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
struct Tap {
    at: Tensor,
    weight: Option<Tensor>,
}

impl GridSample {
    /// What the kernel calls these: mode, padding, alignment, and elements beside a point along an axis.
    fn consts(&self) -> [i64; 4] {
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
    fn taps(&self, x: &Tensor, extent: usize) -> Result<Vec<Tap>> {
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

impl Tensor {
    /// The values at the points of a grid, whose coordinates go from -1 to 1, the last axis first.
    ///
    /// # Shapes
    /// `[N, C, H, W]` with `grid: [N, A, B, 2]` gives `[N, C, A, B]`; `[N, C, D, H, W]` with
    /// `[N, A, B, E, 3]` gives `[N, C, A, B, E]`.
    /// # Numerics
    /// Positions and sums are in f32 for 16-bit dtypes.
    /// # Errors
    /// If shapes, dtypes or devices do not fit, or there are no elements.
    /// # Examples
    /// ```
    /// # use genesis::{DType, Tensor, ops::GridSample};
    /// let x = Tensor::from_slice(&[1.0f32, 3.0, 5.0, 7.0], &[1, 1, 2, 2])?;
    /// let center = Tensor::zeros(&[1, 1, 1, 2], DType::F32)?;
    /// assert_eq!(x.grid_sample(&center, &GridSample::default())?.item()?, 4.0);
    /// # Ok::<(), genesis::Error>(())
    /// ```
    /// # Source
    /// Same conventions as `torch.nn.functional.grid_sample`.
    #[track_caller]
    pub fn grid_sample(&self, grid: &Tensor, options: &GridSample) -> Result<Tensor> {
        self.check_grid(grid)?;
        let is_recorded =
            is_grad_enabled() && [self, grid].iter().any(|t| t.requires_grad()) || trace::is_on();
        let is_plain = grid.numel() > 0 && self.numel() > 0 && self.numel() < 1 << 31;
        if !is_recorded && is_plain && self.dtype() == grid.dtype() {
            return self.sampled_at(grid, options);
        }
        let (n, c, extents) = (self.shape()[0], self.shape()[1], &self.shape()[2..]);
        let points = &grid.shape()[1..grid.rank() - 1];
        let wide = launch::accumulate_dtype(self.dtype());
        let grid = grid.to_dtype(wide)?.reshape(&[
            n,
            crate::shape::product(points.iter()),
            extents.len(),
        ])?;
        let table = self.to_dtype(wide)?.movedim(&[1], &[-1])?.contiguous()?;
        let table = table.reshape(&[n * crate::shape::product(extents.iter()), c])?; // [N H W, C]
        let coordinate = |axis: usize| grid.select(2, extents.len() - 1 - axis);
        let taps = |axis: usize| options.taps(&coordinate(axis)?, extents[axis]);
        let axes: Vec<Vec<Tap>> = (0..extents.len()).map(taps).collect::<Result<_>>()?;
        let mut sum: Option<Tensor> = None;
        for choice in 0..crate::shape::product(axes.iter().map(Vec::len)) {
            let part = corner(&table, &axes, extents, choice)?; // [N, P, C]
            sum = Some(match sum {
                Some(sum) => sum.add(&part)?,
                None => part,
            });
        }
        let all = sum.ok_or_else(|| Error::op("grid_sample", "there is no axis"))?;
        all.transpose(1, 2)?.reshape(&[&[n, c], points].concat())?.to_dtype(self.dtype())
    }

    /// [`Tensor::grid_sample`] by a kernel, which no gradient goes through.
    #[track_caller]
    fn sampled_at(&self, grid: &Tensor, options: &GridSample) -> Result<Tensor> {
        let (n, c, extents) = (self.shape()[0], self.shape()[1], &self.shape()[2..]);
        let shape = [&[n, c], &grid.shape()[1..grid.rank() - 1]].concat();
        let points = shape::product(shape[2..].iter());
        let whole = |t: &Tensor, shape: &[usize]| t.reshape(shape)?.contiguous();
        let x = whole(self, &[n, c, shape::product(extents.iter())])?;
        let grid = whole(grid, &[n, points, extents.len()])?;
        self.storage().wait_arrived()?;
        let y = Tensor::uninitialized(&[n, c, points], (self.dtype(), self.device()))?;
        launch::grid_sample::grid_sample([&x, &grid], &y, extents, options.consts())?;
        y.reshape(&shape)
    }

    fn check_grid(&self, grid: &Tensor) -> Result<()> {
        const NAME: &str = "grid_sample";
        if !self.dtype().is_arithmetic_float() {
            return Err(wrong_dtype(NAME, "a float", self.dtype()));
        }
        check_pair(NAME, self, grid)?;
        let axes = self.rank().saturating_sub(2);
        let fits = (2..=3).contains(&axes)
            && grid.rank() == self.rank()
            && grid.shape()[0] == self.shape()[0]
            && grid.shape()[axes + 1] == axes
            && self.shape()[2..].iter().all(|&extent| extent > 0);
        if !fits {
            let (x, grid) = (self.shape(), grid.shape());
            return Err(Error::op(NAME, format!("a grid {grid:?} does not fit shape {x:?}")));
        }
        Ok(())
    }

    /// The points of an affine map: to each of a picture of `size` the place it comes from, for
    /// [`Tensor::grid_sample`].
    ///
    /// # Shapes
    /// `[N, 2, 3]` with a size `[N, C, H, W]` gives `[N, H, W, 2]`; `[N, 3, 4]` with `[N, C, D, H, W]`
    /// gives `[N, D, H, W, 3]`.
    /// # Errors
    /// If the shape and the size do not fit, or the dtype is not a float.
    /// # Source
    /// Same conventions as `torch.nn.functional.affine_grid`.
    #[track_caller]
    pub fn affine_grid(&self, size: &[usize], align_corners: bool) -> Result<Tensor> {
        const NAME: &str = "affine_grid";
        if !self.dtype().is_arithmetic_float() {
            return Err(wrong_dtype(NAME, "a float", self.dtype()));
        }
        let axes = size.len().saturating_sub(2);
        if !(2..=3).contains(&axes) || self.shape() != [size[0], axes, axes + 1] {
            let message = format!("maps {:?} do not fit a size {size:?}", self.shape());
            return Err(Error::op(NAME, message));
        }
        let extents = &size[2..];
        let at = Creation { dtype: self.dtype(), device: self.device() };
        let base = |axis: usize| -> Result<Tensor> {
            let mut line = vec![1; axes];
            line[axis] = extents[axis];
            steps(extents[axis], align_corners, at)?.reshape(&line)?.broadcast_to(extents)
        };
        let mut parts: Vec<Tensor> = (0..axes).rev().map(base).collect::<Result<_>>()?;
        parts.push(Tensor::ones(extents, at)?);
        let base = Tensor::stack(&parts.iter().collect::<Vec<_>>(), -1)?;
        let base = base.reshape(&[crate::shape::product(extents.iter()), axes + 1])?; // [H W, 3]
        let points = base.matmul(&self.transpose(1, 2)?)?; // [N, H W, 2]
        points.reshape(&[&[size[0]], extents, &[axes]].concat())
    }
}

/// The coordinates of `n` elements between -1 and 1.
fn steps(n: usize, align_corners: bool, at: Creation) -> Result<Tensor> {
    let place = |i: usize| match (align_corners, n) {
        (true, 1) => 0.0,
        (true, n) => 2.0 * i as f64 / (n - 1) as f64 - 1.0,
        (false, n) => (2 * i + 1) as f64 / n as f64 - 1.0,
    };
    Tensor::from_f64(&(0..n).map(place).collect::<Vec<_>>(), &[n], at)
}

/// What one element of each axis adds to the points, `[N, P, C]`: the `choice`th combination.
fn corner(table: &Tensor, axes: &[Vec<Tap>], extents: &[usize], choice: usize) -> Result<Tensor> {
    let (mut left, mut place, mut weight) = (choice, None::<Tensor>, None::<Tensor>);
    let mut is_there: Option<Tensor> = None;
    for (taps, &extent) in axes.iter().zip(extents) {
        let tap = &taps[left % taps.len()];
        left /= taps.len();
        let inside = tap.at.ge_scalar(0.0)?.logical_and(&tap.at.lt_scalar(extent as f64)?)?;
        let at = tap.at.masked_fill(&inside.logical_not()?, 0.0)?.to_dtype(DType::I64)?;
        place = Some(match place {
            Some(place) => place.mul_scalar(extent as f64)?.add(&at)?,
            None => at,
        });
        is_there = Some(match is_there {
            Some(all) => all.logical_and(&inside)?,
            None => inside,
        });
        weight = match (weight, &tap.weight) {
            (Some(all), Some(own)) => Some(all.mul(own)?),
            (all, own) => all.or_else(|| own.clone()),
        };
    }
    let missing = || Error::op("grid_sample", "there is no axis");
    let (place, is_there) = (place.ok_or_else(missing)?, is_there.ok_or_else(missing)?);
    let (n, area) = (place.shape()[0], crate::shape::product(extents.iter()) as f64);
    let picture = Tensor::arange(0.0, n as f64, 1.0, (DType::I64, place.device()))?;
    let rows = table.embedding(&place.add(&picture.mul_scalar(area)?.unsqueeze(1)?)?)?;
    // Zeros before they are weighed: a point that is NaN gives NaN.
    let rows = rows.masked_fill(&is_there.logical_not()?.unsqueeze(-1)?, 0.0)?;
    match weight {
        Some(weight) => rows.mul(&weight.unsqueeze(-1)?),
        None => Ok(rows),
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use crate::ops::GridSample;
    use crate::ops::info::{Dense, Family, OpInfo, WIDE};

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "grid_sample",
            Family::Softmax,
            |x| {
                let corners = GridSample { align_corners: true, ..GridSample::default() };
                x[0].grid_sample(&x[1], &corners)
            },
            |x| {
                Dense::from_fn(&[2, 2, 4, 3], |at| {
                    let point = |axis: usize| x[1].at(&[at[0], at[2], at[3], axis]);
                    let pixel = |axis: usize, n: usize| (point(axis) + 1.0) / 2.0 * (n - 1) as f64;
                    let (row, column) = (pixel(1, 5), pixel(0, 6));
                    let near = |place: f64, i: usize| (1.0 - (place - i as f64).abs()).max(0.0);
                    let pixels = (0..5).flat_map(|i| (0..6).map(move |j| (i, j)));
                    let weighted = |(i, j): (usize, usize)| {
                        near(row, i) * near(column, j) * x[0].at(&[at[0], at[1], i, j])
                    };
                    pixels.map(weighted).sum()
                })
            },
            &[&[&[2, 2, 5, 6], &[2, 4, 3, 2]]],
        )
        .within(-1.0, 1.0)
        .peer("F.grid_sample(x[0], x[1], align_corners=True)")
        .of(WIDE),
        OpInfo::new(
            "affine_grid",
            Family::Softmax,
            |x| x[0].affine_grid(&[1, 2, 3, 4], true),
            |x| {
                Dense::from_fn(&[1, 3, 4, 2], |at| {
                    let place = [at[2] as f64 * 2.0 / 3.0 - 1.0, at[1] as f64 - 1.0, 1.0];
                    (0..3).map(|k| x[0].at(&[0, at[3], k]) * place[k]).sum()
                })
            },
            &[&[&[1, 2, 3]]],
        )
        .peer("F.affine_grid(x[0], (1, 2, 3, 4), True)")
        .of(WIDE),
    ];
}
