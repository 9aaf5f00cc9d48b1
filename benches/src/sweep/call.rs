//! A call that `bench ops` times, on both sides.

use genesis::ops::info::{Input, OpInfo};
use genesis::{DType, Tensor};

use super::kind::Kind;

/// A call that is timed.
#[derive(Clone)]
pub(crate) struct Call {
    /// The name of the case.
    pub(crate) name: String,
    /// The row that it is from.
    pub(crate) row: &'static str,
    /// Our call.
    pub(crate) run: fn(&[Tensor]) -> genesis::Result<Tensor>,
    /// The peer's, or why it has none.
    pub(crate) peer: std::result::Result<String, &'static str>,
    pub(crate) inputs: Vec<Input>,
    pub(crate) kind: Kind,
    pub(crate) dtype: DType,
    pub(crate) is_backward: bool,
    /// Whether both sides may add up in any order.
    pub(crate) is_unordered: bool,
    /// Floating-point operations by the elements of the result, where a row says them.
    pub(crate) info: Option<&'static OpInfo>,
}

impl Call {
    /// Whether the peer adds up in a fixed order, as we do unless told otherwise: where there is an index.
    pub(crate) fn wants_order(&self) -> bool {
        !self.is_unordered && self.inputs.iter().any(|input| input.is_index)
    }

    /// The shapes for people: `4096x4096, 4096`.
    pub(crate) fn shapes_text(&self) -> String {
        let text = |input: &Input| {
            let extents: Vec<String> = input.shape.iter().map(usize::to_string).collect();
            if extents.is_empty() { "1".to_owned() } else { extents.join("x") }
        };
        self.inputs.iter().map(text).collect::<Vec<_>>().join(", ")
    }
}
