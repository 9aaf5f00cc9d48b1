//! Pictures sampled at the points of a grid, and the grids of affine maps.
//!
//! The elements around each point are rows of a table, and the distances are their weights: by a kernel, with gradients
//! that add up in a fixed order ([`BagSlopes`]); on the CPU where a gradient is recorded, and where it is differentiated
//! again, by other ops.

use genesis_kernel::ir::DType;

use super::corners::Corners;
use super::grid_options::{GridSample, Tap};
use crate::autograd::{self, GradOptions, SavedTensors, enable_grad, is_grad_enabled};
use crate::dispatch::trace;
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::index::BagSlopes;
use crate::ops::{Op, Saves, apply, check_pair, wrong_dtype};
use crate::shape;
use crate::tensor::{Creation, Tensor};

const NAME: &str = "grid_sample";

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
        if is_plain && self.dtype() == grid.dtype() {
            if !is_recorded {
                return sampled_at(self, grid, options);
            }
            if self.device().is_cuda() && !trace::is_on() {
                return apply(Sampled { options: *options }, &[self, grid]);
            }
        }
        self.sampled_by_ops(grid, options)
    }

    /// [`Tensor::grid_sample`] by ops, which have gradients of any order.
    #[track_caller]
    fn sampled_by_ops(&self, grid: &Tensor, options: &GridSample) -> Result<Tensor> {
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

    fn check_grid(&self, grid: &Tensor) -> Result<()> {
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

/// [`Tensor::grid_sample`] by a kernel.
#[track_caller]
fn sampled_at(x: &Tensor, grid: &Tensor, options: &GridSample) -> Result<Tensor> {
    let (n, c, extents) = (x.shape()[0], x.shape()[1], &x.shape()[2..]);
    let shape = [&[n, c], &grid.shape()[1..grid.rank() - 1]].concat();
    let points = shape::product(shape[2..].iter());
    let whole = |t: &Tensor, shape: &[usize]| t.reshape(shape)?.contiguous();
    let pixels = whole(x, &[n, c, shape::product(extents.iter())])?;
    let grid = whole(grid, &[n, points, extents.len()])?;
    x.storage().wait_arrived()?;
    let y = Tensor::uninitialized(&[n, c, points], (x.dtype(), x.device()))?;
    launch::grid_sample::grid_sample([&pixels, &grid], &y, extents, options.consts())?;
    y.reshape(&shape)
}

/// On a GPU: the kernel of a grid sample, and gradients by rows of a table: pixels are its rows, and each point sums those
/// around it by weight.
struct Sampled {
    options: GridSample,
}

impl Op for Sampled {
    fn name(&self) -> &'static str {
        NAME
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        sampled_at(inputs[0], inputs[1], &self.options)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(3)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (x, grid) = (saved.input(0), saved.input(1));
        if !is_grad_enabled() {
            return slopes([x, grid], dy, &self.options, &saved.wanted);
        }
        let y = x.sampled_by_ops(grid, &self.options)?;
        let wanted: Vec<&Tensor> = [x, grid]
            .into_iter()
            .zip(&saved.wanted)
            .filter(|(_, is)| **is)
            .map(|(t, _)| t)
            .collect();
        let options = GradOptions {
            grad_outputs: &[Some(dy)],
            create_graph: true,
            allow_unused: true,
            ..GradOptions::default()
        };
        let mut found = autograd::grad(&[&y], &wanted, options)?.into_iter();
        Ok(saved.wanted.iter().map(|&is| if is { found.next().flatten() } else { None }).collect())
    }
}

/// The gradients of a grid sample.
fn slopes(
    [x, grid]: [&Tensor; 2],
    dy: &Tensor,
    options: &GridSample,
    wanted: &[bool],
) -> Result<Vec<Option<Tensor>>> {
    let (n, c, extents) = (x.shape()[0], x.shape()[1], &x.shape()[2..]);
    let points = dy.numel() / (n * c);
    let wide = launch::accumulate_dtype(x.dtype());
    let around = options.taps_of_axis().pow(extents.len() as u32);
    let leaf = grid.detach().to_dtype(wide)?.reshape(&[n * points, extents.len()])?;
    let leaf = leaf.detach().requires_grad_(wanted[1])?;
    let corners = Corners::of(options, &leaf, extents)?;
    let index = corners.index(n)?.reshape(&[n * points * around])?;
    let weights = enable_grad(|| corners.weights()?.reshape(&[n * points * around]))?;
    let dy = dy.reshape(&[n, c, points])?.transpose(1, 2)?.to_dtype(wide)?; // [N, P, C]
    let dy = dy.reshape(&[n * points, c])?.contiguous()?;
    let of = BagSlopes { index: &index, bag: None, length: around, dy: &dy };
    let pixels = shape::product(extents.iter());
    let dx = match wanted[0] {
        true => {
            let rows = of.of_table((n * pixels, x.dtype()), Some(&weights.detach()))?;
            let dx = rows.reshape(&[n, pixels, c])?.transpose(1, 2)?.contiguous()?;
            Some(dx.reshape(x.shape())?)
        }
        false => None,
    };
    // The nearest element stays the nearest.
    if !wanted[1] || !weights.requires_grad() {
        return Ok(vec![dx, None]);
    }
    let table = x.detach().reshape(&[n, c, pixels])?.transpose(1, 2)?.contiguous()?;
    let dweights = of.of_weights(&table.reshape(&[n * pixels, c])?)?;
    // In a picture of one pixel every point is brought back to it: no weight depends on a point.
    let given = GradOptions {
        grad_outputs: &[Some(&dweights)],
        allow_unused: true,
        ..GradOptions::default()
    };
    let dgrid = autograd::grad(&[&weights], &[&leaf], given)?.pop().flatten();
    let dgrid =
        dgrid.map(|dgrid| dgrid.to_dtype(grid.dtype())?.reshape(grid.shape())).transpose()?;
    Ok(vec![dx, dgrid])
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
