//! NCCL without GPUs that reach each other: `libnccl.so.2` as Genesis uses it, for processes of one
//! machine, over a file that they share.
//!
//! A collective copies what it sends to pinned memory, calls a function of the host in the order of its
//! stream that exchanges it with the other processes, and copies the result back. So it runs with any CUDA
//! driver, the virtual GPU of `tests/driver` included, also in graphs. Values are added in the order of
//! ranks, 16-bit floats in f32 and rounded once. Collectives of a process run in the order of their calls.
//!
//! Faults are told by `VIRTUAL_NCCL`, words with commas between:
//!
//! | word | meaning |
//! |---|---|
//! | `dead=1:3` | rank 1 of the first communicator ends, as by kill -9, when its third collective is to run |
//! | `late=1:200` | rank 1 comes 200 ms late to each collective |
//!
//! Ranks whose calls do not match wait for ever, as with NCCL.

mod api;
mod channel;
mod communicator;
mod exchange;
mod faults;
mod order;
mod reduce;
mod staging;
