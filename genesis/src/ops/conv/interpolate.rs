//! Resizing of the last axes: `interpolate`.
//!
//! Every mode is, axis by axis, a sum of neighbours with weights: a [`Table`]. Source positions are
//! computed in the precision that PyTorch computes them in, so that a nearest neighbour is the same one.

use genesis_kernel::ir::DType;

use super::pool::resample;
use crate::error::{Error, Result};
use crate::launch::axis::Table;
use crate::ops::wrong_dtype;
use crate::tensor::Tensor;

/// How elements between elements are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interpolation {
    /// The nearest element, as most programs round: `floor(i * scale)`.
    Nearest,
    /// The element nearest to the center: `floor((i + 0.5) * scale)`.
    NearestExact,
    /// A line between two elements along each axis: linear, bilinear and trilinear.
    Linear,
    /// A cubic of four elements along each axis; of two axes bicubic.
    Cubic,
    /// The mean of the elements that an element covers.
    Area,
}

/// What `interpolate` makes of the last axes.
#[derive(Clone, PartialEq, Debug)]
pub enum Resize {
    /// These extents.
    To(Vec<usize>),
    /// The extents times these factors, rounded down.
    By(Vec<f64>),
}

impl Tensor {
    /// The last one to three axes resized.
    ///
    /// With `align_corners` the centers of the first and last elements stay where they are; else the
    /// outer edges do.
    ///
    /// # Shapes
    /// `[N, C, ..]` gives `[N, C, ..]` with the last axes of the new extents.
    /// # Numerics
    /// Sums are in f32 for f16 and bf16. Cubics may leave the range of their elements.
    /// # Errors
    /// If there are not as many numbers as axes behind the first two, an extent is 0, the dtype is no
    /// float, or corners are aligned in a mode that has none.
    /// # Source
    /// `torch.nn.functional.interpolate`, without antialiasing.
    #[track_caller]
    pub fn interpolate(
        &self,
        resize: &Resize,
        mode: Interpolation,
        align_corners: bool,
    ) -> Result<Tensor> {
        const NAME: &str = "interpolate";
        if !self.dtype().is_arithmetic_float() {
            return Err(wrong_dtype(NAME, "a float", self.dtype()));
        }
        let has_corners = matches!(mode, Interpolation::Linear | Interpolation::Cubic);
        if align_corners && !has_corners {
            return Err(Error::op(NAME, format!("corners are not aligned in mode {mode:?}")));
        }
        let n = match resize {
            Resize::To(extents) => extents.len(),
            Resize::By(factors) => factors.len(),
        };
        if !(1..=3).contains(&n) || self.rank() != n + 2 {
            let message = format!("{resize:?} does not fit shape {:?}", self.shape());
            return Err(Error::op(NAME, message));
        }
        let axis = |at: usize| axis(self.shape()[at + 2], resize, at);
        let axes: Vec<Line> = (0..n).map(axis).collect::<Result<_>>()?;
        if mode == Interpolation::Area {
            let extents: Vec<usize> = axes.iter().map(|line| line.outputs).collect();
            return self.adaptive_avg_pool(&extents);
        }
        let wide = self.dtype() == DType::F64;
        let table = |line: &Line| line.table(mode, align_corners, wide);
        resample(self, &axes.iter().map(table).collect::<Result<Vec<_>>>()?)
    }
}

/// One axis: its extents, and the factor between them where one was given.
struct Line {
    inputs: usize,
    outputs: usize,
    factor: Option<f64>,
}

fn axis(inputs: usize, resize: &Resize, at: usize) -> Result<Line> {
    let (outputs, factor) = match resize {
        Resize::To(extents) => (extents[at], None),
        Resize::By(factors) => ((inputs as f64 * factors[at]) as usize, Some(factors[at])),
    };
    if inputs == 0 || outputs == 0 || i32::try_from(outputs.max(inputs)).is_err() {
        let message = format!("an axis of {inputs} can't become one of {outputs}");
        return Err(Error::op("interpolate", message));
    }
    Ok(Line { inputs, outputs, factor })
}

/// A cubic between four elements, as far from the second as `t`: Keys' kernel with -0.75.
fn cubic(t: f64) -> [f64; 4] {
    const A: f64 = -0.75;
    let near = |x: f64| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let far = |x: f64| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]
}

impl Line {
    /// Steps of the input for one of the result, from edge to edge.
    fn scale(&self) -> f64 {
        match self.factor {
            Some(factor) if factor > 0.0 => 1.0 / factor,
            _ => self.inputs as f64 / self.outputs as f64,
        }
    }

    fn nearest(&self, o: usize, exact: bool) -> usize {
        let scale = match self.factor {
            Some(factor) if factor > 0.0 => (1.0 / factor) as f32,
            _ => self.inputs as f32 / self.outputs as f32,
        };
        let at = if exact { (o as f32 + 0.5) * scale } else { o as f32 * scale };
        (at.floor() as usize).min(self.inputs - 1)
    }

    /// Where an element of the result lies in the input, in f64 or rounded to f32 at each step.
    fn position(&self, o: usize, align_corners: bool, wide: bool) -> f64 {
        let round = |x: f64| if wide { x } else { f64::from(x as f32) };
        let o = o as f64;
        if !align_corners {
            return round(round(round(self.scale()) * (o + 0.5)) - 0.5);
        }
        match self.outputs {
            1 => 0.0,
            n => round(round((self.inputs - 1) as f64 / (n - 1) as f64) * o),
        }
    }

    fn table(&self, mode: Interpolation, align_corners: bool, wide: bool) -> Result<Table> {
        let last = self.inputs as i64 - 1;
        let clamp = |at: i64| Some(at.clamp(0, last) as usize);
        let row = |o: usize| match mode {
            Interpolation::Linear if self.inputs == self.outputs => vec![(Some(o), 1.0)],
            Interpolation::Linear => {
                let at = self.position(o, align_corners, wide).max(0.0);
                let first = (at.floor() as i64).min(last);
                let t = (at - first as f64).clamp(0.0, 1.0);
                vec![(clamp(first), 1.0 - t), (clamp(first + 1), t)]
            }
            Interpolation::Cubic => {
                let at = self.position(o, align_corners, wide);
                let first = (at.floor() as i64).min(last);
                let weights = cubic((at - first as f64).clamp(0.0, 1.0));
                let tap = |(k, weight)| (clamp(first - 1 + k as i64), weight);
                weights.into_iter().enumerate().map(tap).collect()
            }
            _ => vec![(Some(self.nearest(o, mode == Interpolation::NearestExact)), 1.0)],
        };
        let taps = match mode {
            Interpolation::Linear if self.inputs == self.outputs => 1,
            Interpolation::Linear => 2,
            Interpolation::Cubic => 4,
            _ => 1,
        };
        Table::of([self.inputs, self.outputs], taps, row)
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Dense, FLOATS, Family, OpInfo, cpu};
    use crate::ops::{Interpolation, Resize};

    /// A line through the two elements of the last axis around each element of a result with aligned corners.
    fn lined(x: &Dense, outputs: usize) -> Dense {
        let inputs = x.shape[2];
        Dense::from_fn(&[x.shape[0], x.shape[1], outputs], |at| {
            let place = at[2] as f64 * (inputs - 1) as f64 / (outputs - 1) as f64;
            let first = (place as usize).min(inputs - 2);
            let t = place - first as f64;
            let [a, b] = [first, first + 1].map(|i| x.at(&[at[0], at[1], i]));
            a + t * (b - a)
        })
    }

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "interpolate/nearest",
            Family::Exact,
            |x| x[0].interpolate(&Resize::By(vec![2.0, 1.5]), Interpolation::Nearest, false),
            |x| {
                Dense::from_fn(&[1, 2, 6, 6], |at| {
                    x[0].at(&[at[0], at[1], at[2] / 2, at[3] * 2 / 3])
                })
            },
            &[&[&[1, 2, 3, 4]]],
        )
        .peer("F.interpolate(x[0], scale_factor=(2.0, 1.5))")
        .of(FLOATS)
        .refusing(&[(
            || {
                let to = Resize::To(vec![4]);
                cpu(&[1, 3, 5], DType::F32)?.interpolate(&to, Interpolation::Nearest, true)
            },
            "interpolate: corners are not aligned in mode Nearest",
        )]),
        OpInfo::new(
            "interpolate/linear",
            Family::Softmax,
            |x| x[0].interpolate(&Resize::To(vec![7]), Interpolation::Linear, true),
            |x| lined(&x[0], 7),
            &[&[&[2, 3, 4]]],
        )
        .peer("F.interpolate(x[0], 7, mode='linear', align_corners=True)"),
        OpInfo::new(
            "interpolate/area",
            Family::Softmax,
            |x| x[0].interpolate(&Resize::To(vec![2]), Interpolation::Area, false),
            |x| {
                Dense::from_fn(&[2, 3, 2], |at| {
                    (0..2).map(|i| x[0].at(&[at[0], at[1], 2 * at[2] + i]) / 2.0).sum()
                })
            },
            &[&[&[2, 3, 4]]],
        )
        .peer("F.interpolate(x[0], 2, mode='area')"),
    ];
}
