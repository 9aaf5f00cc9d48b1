//! What a convolution is to its kernels: extents, windows, and which of its three products is made.

use super::axis::Axis;
use crate::shape::product;

/// What is convolved with what; channels are those of one group.
#[derive(Clone, Debug)]
pub(crate) struct Convolution {
    pub batch: usize,
    pub groups: usize,
    pub inputs: usize,
    pub outputs: usize,
    pub axes: [Axis; 3],
}

impl Convolution {
    /// `[N, groups * C, ..]`
    pub(crate) fn input_shape(&self) -> Vec<usize> {
        let lead = [self.batch, self.groups * self.inputs];
        lead.into_iter().chain(self.axes.map(|axis| axis.input)).collect()
    }

    /// `[N, groups * O, ..]`
    pub(crate) fn result_shape(&self) -> Vec<usize> {
        let lead = [self.batch, self.groups * self.outputs];
        lead.into_iter().chain(self.axes.map(|axis| axis.output)).collect()
    }

    /// `[groups * O, C, ..]`
    pub(crate) fn weight_shape(&self) -> Vec<usize> {
        let lead = [self.groups * self.outputs, self.inputs];
        lead.into_iter().chain(self.axes.map(|axis| axis.kernel)).collect()
    }

    /// Elements of a window.
    pub(crate) fn places(&self) -> usize {
        product(self.axes.iter().map(|axis| axis.kernel))
    }
}

/// Which of the three products.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Of the input and the weights.
    Result,
    /// The gradient of the input, of the result's and the weights.
    Input,
    /// The gradient of the weights, of the input and the result's.
    Weight,
}
