//! What calls there are.

use cudarc::nccl::sys::{ncclDataType_t, ncclRedOp_t};

/// A call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    AllReduce(ncclDataType_t, ncclRedOp_t),
    Reduce(ncclDataType_t, ncclRedOp_t, usize),
    Broadcast(usize),
    AllGather,
    ReduceScatter(ncclDataType_t, ncclRedOp_t),
    Send(usize),
    Receive(usize),
}
