//! Arguments of a function of tile IR.

use super::number::Scalar;
use super::types::DType;

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

/// An argument with its memory.
#[derive(Clone, PartialEq, Debug)]
pub enum InterpArg {
    /// A pointer to memory that is only read.
    Buffer(DType, Vec<u8>),
    /// A pointer to memory that is written.
    BufferMut(DType, Vec<u8>),
    /// A number.
    Scalar(Scalar),
    /// A view of memory of its own.
    View {
        /// The elements' dtype.
        dtype: DType,
        /// The memory.
        data: Vec<u8>,
        /// Where the first element is, in elements.
        offset: usize,
        /// Extents, outermost first.
        dims: Vec<i64>,
        /// Strides in elements.
        strides: Vec<i64>,
        /// Whether it may be written.
        writable: bool,
    },
}

impl InterpArg {
    /// The memory behind the argument; empty for a number.
    pub fn data(&self) -> &[u8] {
        match self {
            InterpArg::Buffer(_, data) | InterpArg::BufferMut(_, data) => data,
            InterpArg::View { data, .. } => data,
            InterpArg::Scalar(_) => &[],
        }
    }
}
