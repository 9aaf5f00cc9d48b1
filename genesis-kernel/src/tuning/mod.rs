//! Heuristics: what is chosen by the numbers of the hardware. Nothing outside of this module knows one.
//!
//! There is a model, and there are tables. The model says what a multiprocessor holds ([`multiprocessor`]: warps,
//! registers, shared memory) and how long a launch takes on a device ([`Work`]: operations, bytes and programs against
//! the rates of a [`Machine`]). The tables say what the devices are: what code may use is in [`crate::target`], one row an
//! architecture; how many of everything a product has, and how fast it is, in [`gpus`], one row a product. A new GPU is a
//! row of each.
//!
//! Choices are functions of shapes, dtypes and a [`Chip`] or a [`Machine`], plain data all of them: what is chosen for an
//! H200 can be asked, and is tested, on a laptop.
//!
//! | choice | of what | asked by |
//! |---|---|---|
//! | [`warps`] | warps of a block, ping-pong schedules | layouts |
//! | [`registers`] | budgets of warp roles, occupancy, accumulators | machine IR, layouts |
//! | [`shared`] | stages of pipelines and multistage buffers | layouts, TMA conversion |
//! | [`products`] | tiles, warps and stages of matrix products, split K | kernels, launches |
//! | [`linear`] | the same of products whose rows keep their bits | launches |
//! | [`elementwise`], [`rows`], [`reductions`] | tiles of kernels that memory bounds | launches |
//! | [`windows`] | tiles of pools and resampling | launches |
//! | [`logits`] | rows of logits that are in memory at a time | launches |
//! | [`sorting`] | pieces and parts of sorted keys, compactions and scans | launches |
//! | [`attention`] | tiles of attention, of tensors and over a paged cache | launches |
//!
//! Every choice for a wide set of shapes is in the files of `golden/`, which a test compares: a change of the model shows
//! there first.
//!
//! ```text
//! matmul bf16 4096 x 4096 x 4096, sm_90a      128x128x64, 2 x 4 warps (ping-pong), 6 stages
//!   work       2 * 128 * 128 * 4096 FLOP and 2 * 256 * 4096 bytes of each of 1024 programs
//!   machine    132 multiprocessors, 4096 FLOP and 80 bytes a clock each
//! ```

mod chip;
#[cfg(test)]
mod golden;
mod machine;
mod work;

pub mod attention;
pub mod elementwise;
pub mod gpus;
pub mod linear;
pub mod logits;
pub mod multiprocessor;
pub mod products;
pub mod reductions;
pub mod registers;
pub mod rows;
pub mod shared;
pub mod sorting;
pub mod split_k;
pub mod warps;
pub mod windows;

pub use chip::Chip;
pub use machine::{Machine, Unit};
pub use work::Work;
