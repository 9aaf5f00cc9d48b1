//! A deep-learning framework whose every GPU operation is a kernel written in Rust.
//!
//! Names and semantics are PyTorch's where the meaning is equal. Methods return [`Result`];
//! operators on tensors chain through results.
//!
//! ```
//! use genesis::Tensor;
//!
//! let w = Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3])?.requires_grad_(true)?;
//! let loss = (&w * &w)?.sum()?;
//! loss.backward()?;
//! assert_eq!(w.grad().expect("w requires a gradient").to_vec::<f32>()?, [2.0, 4.0, 6.0]);
//! # Ok::<(), genesis::Error>(())
//! ```

// What `#[derive(Module)]` writes names the crate `genesis`, inside of it too.
extern crate self as genesis;

pub mod amp;
pub mod autograd;
pub mod data;
mod dispatch;
pub mod distributed;
mod error;
mod files;
pub mod fuse;
pub mod generate;
pub mod graph;
pub mod hub;
pub mod io;
mod launch;
pub mod memory;
mod mode;
pub mod models;
pub mod nn;
pub mod ops;
pub mod optim;
mod parameter;
pub mod plan;
pub mod profiler;
pub mod random;
pub mod serve;
mod shape;
mod tensor;
pub mod text;
mod threads;
pub mod train;

pub use autograd::{enable_grad, no_grad};
pub use error::{Error, Result};
pub use fuse::fuse;
pub use genesis_kernel::ir::DType;
pub use genesis_kernel::runtime::{Device, Event, Stream, with_stream};
pub use graph::{Graph, graph};
pub use ops::argument::{TensorArg, TensorArgMut};
pub use ops::promote::{promote_types, result_type};
pub use ops::{
    GridOrder, Index, MatmulPrecision, RoundingMode, ScatterReduce, Tolerance, Unique,
    are_deterministic_algorithms_enabled, matmul_precision, set_matmul_precision,
    use_deterministic_algorithms,
};
pub use random::manual_seed;
pub use tensor::{Creation, Tensor, TensorType};
pub use threads::{num_threads, set_num_threads};
