//! NCCL without GPUs that reach each other: `libnccl.so.2` as Genesis uses it, for processes of one
//! machine, over a file that they share.
//!
//! A collective copies what it sends to pinned memory, calls a function of the host in the order of its
//! stream that exchanges it with the other processes, and copies the result back. So it runs with any CUDA
//! driver, the virtual GPU of `tests/driver` included, also in graphs. Values are added in the order of
//! ranks, 16-bit floats in f32 and rounded once. Collectives of a process run in the order of their calls.
//!
//! Faults, and what links cost, are told by `VIRTUAL_NCCL`, words with commas between:
//!
//! | word | meaning |
//! |---|---|
//! | `dead=1:3` | rank 1 of the first communicator ends, as by kill -9, when its third collective is to run |
//! | `late=1:200` | rank 1 comes 200 ms late to each collective |
//! | `link=12.5` | 12.5 GB/s each way between ranks, on the clock of `VIRTUAL_GPU=clock`; bytes take no time without it |
//! | `latency=5` | a call takes 5 us beside its bytes, there |
//!
//! With that clock, of all processes or of none, a collective begins when the streams of all its ranks have come to it, and
//! ends after the cost of a ring over the link (`link`); the copies that it makes here take no time.
//!
//! Ranks whose calls do not match wait for ever, as with NCCL.

mod api;
mod channel;
mod clock;
mod communicator;
mod exchange;
mod faults;
mod kind;
mod link;
mod meeting;
mod options;
mod order;
mod reduce;
mod staging;
