//! What a collective reads and writes, and how values are joined.

use std::ffi::c_void;

use cudarc::nccl::sys::{ncclDataType_t, ncclRedOp_t};

use super::library::HAS_FLOAT8;
use crate::diag::Error;
use crate::ir::DType;
use crate::runtime::Buffer;

/// How a reduction joins the values of the ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReduceOp {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// The sum over the number of ranks; of floats.
    Avg,
}

impl ReduceOp {
    pub(super) fn code(self) -> ncclRedOp_t {
        match self {
            ReduceOp::Sum => ncclRedOp_t::ncclSum,
            ReduceOp::Prod => ncclRedOp_t::ncclProd,
            ReduceOp::Max => ncclRedOp_t::ncclMax,
            ReduceOp::Min => ncclRedOp_t::ncclMin,
            ReduceOp::Avg => ncclRedOp_t::ncclAvg,
        }
    }
}

/// Elements that lie side by side in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    buffer: &'a Buffer,
    offset: usize,
    elements: usize,
    dtype: DType,
}

impl<'a> Span<'a> {
    /// `elements` of a dtype from byte `offset` on.
    ///
    /// # Errors
    /// If they do not lie inside the buffer, or not at a multiple of their size.
    pub fn new(
        buffer: &'a Buffer,
        offset: usize,
        elements: usize,
        dtype: DType,
    ) -> Result<Span<'a>, Error> {
        let end = elements.checked_mul(dtype.bytes()).and_then(|bytes| bytes.checked_add(offset));
        if end.is_none_or(|end| end > buffer.bytes()) || !offset.is_multiple_of(dtype.bytes()) {
            return Err(Error::launch(format!(
                "{elements} elements of {dtype} from byte {offset} do not lie in a buffer of {} bytes",
                buffer.bytes()
            )));
        }
        Ok(Span { buffer, offset, elements, dtype })
    }

    /// The buffer.
    pub fn buffer(&self) -> &'a Buffer {
        self.buffer
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// The dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub(super) fn address(&self) -> *mut c_void {
        (self.buffer.address() as usize + self.offset) as *mut c_void
    }

    pub(super) fn bytes(&self) -> usize {
        self.elements * self.dtype.bytes()
    }

    /// How NCCL is told of elements that it only moves: as bytes.
    pub(super) fn moved(&self) -> (usize, ncclDataType_t) {
        (self.bytes(), ncclDataType_t::ncclUint8)
    }
}

/// NCCL's name of a dtype that it adds.
pub(super) fn reduced(dtype: DType, op: ReduceOp, version: i32) -> Result<ncclDataType_t, Error> {
    let is_extreme = matches!(op, ReduceOp::Max | ReduceOp::Min);
    let code = match dtype {
        DType::F32 => ncclDataType_t::ncclFloat32,
        DType::F64 => ncclDataType_t::ncclFloat64,
        DType::F16 => ncclDataType_t::ncclFloat16,
        DType::BF16 => ncclDataType_t::ncclBfloat16,
        DType::F8E4M3 if version >= HAS_FLOAT8 => ncclDataType_t::ncclFloat8e4m3,
        DType::F8E5M2 if version >= HAS_FLOAT8 => ncclDataType_t::ncclFloat8e5m2,
        DType::I64 => ncclDataType_t::ncclInt64,
        DType::I32 => ncclDataType_t::ncclInt32,
        DType::I8 => ncclDataType_t::ncclInt8,
        DType::U64 => ncclDataType_t::ncclUint64,
        DType::U32 => ncclDataType_t::ncclUint32,
        DType::U8 => ncclDataType_t::ncclUint8,
        // Of zeros and ones the largest is "any", the smallest "all".
        DType::Bool if is_extreme => ncclDataType_t::ncclUint8,
        _ => {
            let hint = if dtype == DType::Bool { ": take Max for any, Min for all" } else { "" };
            return Err(Error::launch(format!("NCCL does not reduce {dtype} by {op:?}{hint}")));
        }
    };
    if op == ReduceOp::Avg && !dtype.is_float() {
        return Err(Error::launch(format!("NCCL does not average {dtype}: integers have no mean")));
    }
    Ok(code)
}
