//! Arguments of a function of tile IR.

use super::number::Scalar;

/// One argument as a back end or the interpreter takes it; one for each parameter.
#[derive(Clone, PartialEq, Debug)]
pub enum ArgValue {
    /// An address.
    Ptr(u64),
    /// A number of the parameter's dtype.
    Scalar(Scalar),
    /// A tensor: the address of its first element, extents, and strides in elements.
    View {
        /// The address of the first element.
        ptr: u64,
        /// Extents, outermost first.
        dims: Vec<i64>,
        /// Strides in elements.
        strides: Vec<i64>,
    },
}
