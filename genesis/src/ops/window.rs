//! Windows over the last axes: convolutions and pools.
//!
//! The elements that one place of every window sees are a strided view; the views of all places,
//! stacked, are a matrix of patches. A convolution is the product of that matrix and the weights.

use genesis_kernel::ir::Scalar;

use super::PadMode;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Extents of the windows of a pool and how they move, one number an axis.
#[derive(Clone, Debug)]
pub struct Window {
    /// Elements along each axis.
    pub kernel: Vec<usize>,
    /// Steps between windows.
    pub stride: Vec<usize>,
    /// Elements added at both ends.
    pub padding: Vec<usize>,
    /// Steps between the elements of one window.
    pub dilation: Vec<usize>,
    /// Whether a window that leaves the tensor at its end counts.
    pub ceil: bool,
}

impl Window {
    /// Windows that lie side by side.
    pub fn new(kernel: &[usize]) -> Window {
        Window {
            kernel: kernel.to_vec(),
            stride: kernel.to_vec(),
            padding: vec![0; kernel.len()],
            dilation: vec![1; kernel.len()],
            ceil: false,
        }
    }

    fn check(&self, op: &str, x: &Tensor) -> Result<()> {
        let n = self.kernel.len();
        let lengths = [self.stride.len(), self.padding.len(), self.dilation.len()];
        if n == 0 || lengths != [n; 3] || !(n + 1..=n + 2).contains(&x.rank()) {
            let message = format!("windows of {:?} do not fit shape {:?}", self.kernel, x.shape());
            return Err(Error::op(op, message));
        }
        if self.kernel.iter().chain(&self.stride).chain(&self.dilation).any(|&n| n == 0) {
            return Err(Error::op(op, "kernel, stride and dilation must be positive"));
        }
        Ok(())
    }

    /// What one window spans along an axis.
    fn span(&self, axis: usize) -> usize {
        self.dilation[axis] * (self.kernel[axis] - 1) + 1
    }

    /// How many windows there are along each axis, and the elements that are missing at its end.
    fn counts(&self, op: &str, extents: &[usize]) -> Result<Vec<(usize, usize)>> {
        let count = |(axis, &extent): (usize, &usize)| {
            let (span, stride) = (self.span(axis), self.stride[axis]);
            let padded = extent + 2 * self.padding[axis];
            let refuse = || {
                let message = format!("a window of {span} is larger than {padded} elements");
                Error::op(op, message)
            };
            let room = padded.checked_sub(span).ok_or_else(refuse)?;
            let mut count = room / stride + 1;
            // The last window must begin inside the tensor or its padding in front.
            if self.ceil && room % stride != 0 && count * stride < extent + self.padding[axis] {
                count += 1;
            }
            Ok((count, ((count - 1) * stride + span).saturating_sub(padded)))
        };
        extents.iter().enumerate().map(count).collect()
    }
}

/// `x` padded by `value`, also where windows leave it at its end.
fn padded(x: &Tensor, window: &Window, counts: &[(usize, usize)], value: f64) -> Result<Tensor> {
    let pair = |axis: usize| {
        let before = window.padding[axis] as i64;
        [before, before + counts[axis].1 as i64]
    };
    let pads: Vec<i64> = (0..counts.len()).rev().flat_map(pair).collect();
    x.pad(&pads, PadMode::Constant(value))
}

/// The places of a window, the last axis fastest.
fn places(kernel: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for &extent in kernel {
        all = all
            .into_iter()
            .flat_map(|place| (0..extent).map(move |k| [&place[..], &[k]].concat()))
            .collect();
    }
    all
}

/// For each place of the windows the elements that stand there, along a new axis before the windowed
/// ones: `[.., K, ..]`.
fn patches(x: &Tensor, window: &Window, counts: &[(usize, usize)]) -> Result<Tensor> {
    let lead = x.rank() - counts.len();
    let at = |place: &Vec<usize>| {
        x.strided_view("unfold", |layout| {
            (0..counts.len()).fold(layout.clone(), |layout, axis| {
                let start = place[axis] * window.dilation[axis];
                layout.slice(lead + axis, start, window.stride[axis] as i64, counts[axis].0)
            })
        })
    };
    let views: Vec<Tensor> = places(&window.kernel).iter().map(at).collect::<Result<_>>()?;
    Tensor::stack(&views.iter().collect::<Vec<_>>(), lead as i64)
}

/// How a convolution moves, one number an axis.
#[derive(Clone, Debug)]
pub struct Conv {
    /// Steps between windows.
    pub stride: Vec<usize>,
    /// Zeros before and after each axis.
    pub padding: Vec<[usize; 2]>,
    /// Steps between the elements of one window.
    pub dilation: Vec<usize>,
    /// Groups of channels that do not see each other.
    pub groups: usize,
}

impl Conv {
    /// Every window, without padding.
    pub fn new(axes: usize) -> Conv {
        Conv {
            stride: vec![1; axes],
            padding: vec![[0; 2]; axes],
            dilation: vec![1; axes],
            groups: 1,
        }
    }
}

impl Tensor {
    /// The convolution (without flipping) over as many axes as `conv` has.
    ///
    /// # Shapes
    /// `[N, C, ..]` or `[C, ..]` with `weight: [O, C / groups, ..]` and `bias: [O]` gives `[N, O, ..]`.
    /// # Numerics
    /// As [`Tensor::matmul`].
    /// # Errors
    /// If shapes, groups or dtypes do not fit.
    pub fn conv(&self, weight: &Tensor, bias: Option<&Tensor>, conv: &Conv) -> Result<Tensor> {
        const NAME: &str = "conv";
        let axes = conv.stride.len();
        if self.rank() == axes + 1 {
            return self.unsqueeze(0)?.conv(weight, bias, conv)?.squeeze(0);
        }
        super::elementwise::check_pair(NAME, self, weight)?;
        let fits = self.rank() == axes + 2
            && weight.rank() == axes + 2
            && conv.padding.len() == axes
            && conv.dilation.len() == axes
            && conv.groups > 0
            && self.shape()[1] == weight.shape()[1] * conv.groups
            && weight.shape()[0].is_multiple_of(conv.groups);
        if !fits {
            let message = format!(
                "a weight of {:?} in {} groups does not fit shape {:?}",
                weight.shape(),
                conv.groups,
                self.shape()
            );
            return Err(Error::op(NAME, message));
        }
        let window = Window {
            kernel: weight.shape()[2..].to_vec(),
            stride: conv.stride.clone(),
            padding: vec![0; axes],
            dilation: conv.dilation.clone(),
            ceil: false,
        };
        let pads: Vec<i64> = conv.padding.iter().rev().flatten().map(|&p| p as i64).collect();
        let x = self.pad(&pads, PadMode::Constant(0.0))?;
        window.check(NAME, &x)?;
        let counts = window.counts(NAME, &x.shape()[2..])?;
        let (n, o, groups) = (x.shape()[0], weight.shape()[0], conv.groups);
        let inner: usize = weight.shape()[1..].iter().product();
        let windows: Vec<usize> = counts.iter().map(|&(count, _)| count).collect();
        let columns = patches(&x, &window, &counts)?; // [N, C, K, ..]
        let columns = columns.reshape(&[n, groups, inner, windows.iter().product()])?;
        let rows = weight.reshape(&[groups, o / groups, inner])?;
        let y = rows.matmul(&columns)?.reshape(&[&[n, o][..], &windows].concat())?;
        match bias {
            Some(bias) => {
                let line = [&[o][..], &vec![1; axes]].concat();
                y.add(&bias.reshape(&line)?)
            }
            None => Ok(y),
        }
    }

    /// The largest element of each window, and where it stands in the row-major order of the windowed
    /// axes. NaN wins; padding never does.
    ///
    /// # Errors
    /// If the windows do not fit.
    pub fn max_pool(&self, window: &Window) -> Result<(Tensor, Tensor)> {
        const NAME: &str = "max_pool";
        window.check(NAME, self)?;
        let axes = window.kernel.len();
        let lead = self.rank() - axes;
        if (0..axes).any(|axis| window.padding[axis] > window.kernel[axis] / 2) {
            let message =
                format!("padding {:?} is more than half of {:?}", window.padding, window.kernel);
            return Err(Error::op(NAME, message));
        }
        let extents = self.shape()[lead..].to_vec();
        let counts = window.counts(NAME, &extents)?;
        let lowest = match self.dtype() {
            dtype if dtype.is_float() => f64::NEG_INFINITY,
            dtype => Scalar::int(dtype, i64::MIN >> (64 - dtype.bits())).to_f64(),
        };
        let columns = patches(&padded(self, window, &counts, lowest)?, window, &counts)?;
        let dim = lead as i64;
        let (values, which) = columns.max_with_index(dim, false)?;
        Ok((values, which.apply_places(window, &extents, lead)?))
    }

    /// From places inside windows to places in the tensor.
    fn apply_places(&self, window: &Window, extents: &[usize], lead: usize) -> Result<Tensor> {
        let strides = crate::shape::contiguous_strides(extents);
        let axes = window.kernel.len();
        let inside: Vec<i64> = places(&window.kernel)
            .iter()
            .map(|p| (0..axes).map(|a| (p[a] * window.dilation[a]) as i64 * strides[a]).sum())
            .collect();
        let inside = Tensor::from_slice_on(&inside, &[inside.len()], self.device())?;
        let mut at = inside.take(self)?;
        for axis in 0..axes {
            let count = self.shape()[lead + axis];
            let start = |i: usize| {
                ((i * window.stride[axis]) as i64 - window.padding[axis] as i64) * strides[axis]
            };
            let starts: Vec<i64> = (0..count).map(start).collect();
            let mut line = vec![1; self.rank()];
            line[lead + axis] = count;
            at = at.add(&Tensor::from_slice_on(&starts, &line, self.device())?)?;
        }
        Ok(at)
    }

    /// The mean of each window. Padding counts as zeros where `count_padding` is set; `divisor` takes
    /// the place of the number of elements.
    ///
    /// # Errors
    /// If the windows do not fit or the divisor is 0.
    pub fn avg_pool(
        &self,
        window: &Window,
        count_padding: bool,
        divisor: Option<i64>,
    ) -> Result<Tensor> {
        const NAME: &str = "avg_pool";
        window.check(NAME, self)?;
        if divisor == Some(0) {
            return Err(Error::op(NAME, "the divisor is 0"));
        }
        let lead = self.rank() - window.kernel.len();
        let counts = window.counts(NAME, &self.shape()[lead..])?;
        let x = self.to_dtype(super::launch::accumulate_dtype(self.dtype()))?;
        let columns = patches(&padded(&x, window, &counts, 0.0)?, window, &counts)?;
        let sums = columns.sum_dims(&[lead as i64], false)?;
        let y = match divisor {
            Some(divisor) => sums.div_scalar(divisor as f64)?,
            None => {
                let sizes = sizes(window, &self.shape()[lead..], &counts, count_padding);
                let shape: Vec<usize> = counts.iter().map(|&(count, _)| count).collect();
                sums.div(&Tensor::from_f64(&sizes, &shape, (x.dtype(), x.device()))?)?
            }
        };
        y.to_dtype(self.dtype())
    }
}

/// The number of elements that each window counts.
fn sizes(window: &Window, extents: &[usize], counts: &[(usize, usize)], padding: bool) -> Vec<f64> {
    let mut all = vec![1.0];
    for (axis, &(count, _)) in counts.iter().enumerate() {
        let (pad, extent) = (window.padding[axis] as i64, extents[axis] as i64);
        let size = |i: usize| {
            let start = (i * window.stride[axis]) as i64 - pad;
            let end = (start + window.kernel[axis] as i64).min(extent + pad);
            match padding {
                true => (end - start) as f64,
                false => (end.min(extent) - start.max(0)) as f64,
            }
        };
        all = all
            .iter()
            .flat_map(|&n| (0..count).map(move |i| n * size(i)).collect::<Vec<_>>())
            .collect();
    }
    all
}
