//! Any op, driven from files: what the program `genesis-conform` runs, and the judge of its results.
//!
//! A suite is a folder with `manifest.jsonl`, one call a line, and a safetensors file a call. The call
//! names a PyTorch op and its arguments; [`table`] says what that is in Genesis.

pub mod call;
pub mod case;
pub mod judge;
pub mod mutate;
pub mod parity;
mod rows;
mod rows_conv;
mod rows_index;
mod rows_layers;
mod rows_math;
mod rows_more;
mod rows_nn;
mod rows_shape;
mod rows_vision;
pub mod table;
mod tolerance;
