//! Quantized weights as kernels take them.

use crate::tensor::Tensor;

/// A quantized weight's tensors.
#[derive(Clone, Copy)]
pub(crate) struct Planes<'t> {
    pub(crate) codes: &'t Tensor,
    pub(crate) scales: &'t Tensor,
    pub(crate) mins: Option<&'t Tensor>,
    pub(crate) zero: u8,
    /// Whether all groups of a row have one scale.
    pub(crate) is_by_row: bool,
}

impl Planes<'_> {
    pub(super) fn parts(&self) -> usize {
        self.scales.shape()[1]
    }

    pub(super) fn groups(&self) -> usize {
        self.codes.shape()[1]
    }

    pub(super) fn lanes(&self) -> usize {
        self.codes.shape()[2]
    }

    /// Constants that say what codes are: bits, and whether there are minimums.
    pub(super) fn form(&self) -> [i64; 2] {
        [if self.parts() == 2 { 4 } else { 8 }, i64::from(self.mins.is_some())]
    }
}
