//! Windows over the last axes, as users give them: their extents and how they move.

use crate::error::{Error, Result};
use crate::launch::axis::Axis;
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

    /// Refuses windows that do not fit the last axes of `x`, which has one or two axes before them.
    pub(super) fn check(&self, op: &str, x: &Tensor) -> Result<()> {
        let n = self.kernel.len();
        let lengths = [self.stride.len(), self.padding.len(), self.dilation.len()];
        if n == 0 || n > 3 || lengths != [n; 3] || !(n + 1..=n + 2).contains(&x.rank()) {
            let message = format!("windows of {:?} do not fit shape {:?}", self.kernel, x.shape());
            return Err(Error::op(op, message));
        }
        if self.kernel.iter().chain(&self.stride).chain(&self.dilation).any(|&n| n == 0) {
            return Err(Error::op(op, "kernel, stride and dilation must be positive"));
        }
        let mut all =
            [&self.kernel, &self.stride, &self.dilation, &self.padding].into_iter().flatten();
        if all.any(|&n| n > i32::MAX as usize) {
            return Err(Error::op(op, "kernel, stride, dilation and padding must be below 2^31"));
        }
        Ok(())
    }

    /// The windows along each of the axes that have these extents.
    pub(super) fn axes(&self, op: &str, extents: &[usize]) -> Result<Vec<Axis>> {
        let axis = |(at, &input): (usize, &usize)| {
            let (stride, pad) = (self.stride[at], self.padding[at]);
            let mut axis = Axis {
                input,
                output: 0,
                kernel: self.kernel[at],
                stride,
                before: pad,
                dilation: self.dilation[at],
            };
            axis.output = match self.ceil {
                false => axis.room(op, pad)? / stride + 1,
                true => axis.windows_begun(op, pad)?,
            };
            Ok(axis)
        };
        extents.iter().enumerate().map(axis).collect()
    }
}
