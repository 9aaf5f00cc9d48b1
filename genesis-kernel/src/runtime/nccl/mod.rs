//! NCCL: collectives between GPUs of several processes, as safe calls over [`Buffer`](super::Buffer)s.
//!
//! `libnccl.so.2` is loaded when a program first asks for it; a program that does not needs none. The
//! types are cudarc's; the functions are resolved here, since cudarc's loader knows the name
//! `libnccl.so`, which only the development packages have.
//!
//! Communicators are made non-blocking: a call that has to wait for other ranks gives
//! `ncclInProgress`, and the host polls for its end up to a deadline. So a rank that never comes is an
//! error, and not a process that hangs in a foreign library.

mod call;
mod communicator;
mod library;
mod span;

pub use call::Transfer;
pub use communicator::{Communicator, UniqueId};
pub use library::nccl_version;
pub use span::{ReduceOp, Span};
