//! What training on many GPUs takes, before there are any: memory, time and communication of a step.
//!
//! ```
//! use genesis::plan::{Given, Gpu, Job, ModelShape, Network, search};
//!
//! let model = ModelShape::named("Llama-3-8B").expect("a shape that is built in");
//! let job = Job {
//!     model,
//!     gpu: Gpu::H200,
//!     gpus: 8,
//!     gpus_per_node: 8,
//!     network: Network::IB_400,
//!     batch: 8,
//!     sequence: 8192,
//! };
//! let plans = search(&job, &Given::default(), 3)?;
//! println!("{}: {:.0} tokens/s", plans[0].strategy.mesh, plans[0].tokens_per_second(&job));
//! # Ok::<(), genesis::Error>(())
//! ```
//!
//! | file | what |
//! |---|---|
//! | `shape` | a model: parameters and FLOP |
//! | `gpu` | rates of kernels, as they were measured |
//! | `network` | what collectives cost over NVLink, InfiniBand and Ethernet |
//! | `mesh`, `job` | how ranks are laid out; what is trained, and in which way |
//! | `cost` | what each part of a model computes and sends |
//! | `memory` | what a rank holds |
//! | `schedule`, `timeline` | a step as the programs of its stages, and their simulation |
//! | `search` | the fastest strategies that fit |
//! | `checks` | what was measured beside what is computed |
//!
//! Numbers of several GPUs are predictions. `docs/scaling.md` says what was checked.

mod checks;
mod cost;
mod gpu;
mod job;
mod memory;
mod mesh;
mod network;
mod schedule;
mod search;
mod shape;
mod timeline;

#[cfg(test)]
mod tests;

pub use checks::{Check, checks};
pub use gpu::{Gpu, MEASURED, Measured, Rates};
pub use job::{Job, Overlap, Strategy};
pub use memory::Memory;
pub use mesh::{Axis, Mesh};
pub use network::{LINE_SHARE, NVLINK, Network};
pub use schedule::{StepTime, UnitTimes, simulate_units};
pub use search::{Given, mesh_of, search};
pub use shape::{Biases, MODEL_NAMES, ModelShape};

use crate::error::Result;

/// A strategy with what it takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Plan {
    /// The strategy.
    pub strategy: Strategy,
    /// Microbatches of a rank in a step.
    pub microbatches: usize,
    /// What a rank of the fullest stage holds.
    pub memory: Memory,
    /// Where the time of a step goes.
    pub time: StepTime,
}

impl Plan {
    /// Tokens a second of all GPUs together.
    pub fn tokens_per_second(&self, job: &Job) -> f64 {
        job.tokens() / self.time.seconds
    }

    /// Model FLOP utilization: the share of the GPUs' data sheet that the model's own arithmetic takes. What is computed
    /// again does not count.
    pub fn mfu(&self, job: &Job) -> f64 {
        let flops = self.tokens_per_second(job) * job.model.flops_per_token(job.sequence);
        flops / (job.gpus as f64 * job.gpu.peak)
    }
}

/// Simulates a step; the plan need not fit into memory.
///
/// # Errors
/// If the mesh is not one of the job's GPUs, the model, the batch or the sequence is not in equal parts, or the step has
/// more events than are simulated.
pub fn simulate(job: &Job, strategy: &Strategy) -> Result<Plan> {
    let microbatches = job.microbatches(strategy)?;
    let units = cost::units(job, strategy);
    let memory = memory::memory(job, strategy, &units, microbatches);
    let time = schedule::step(job, strategy, &units, microbatches)?;
    Ok(Plan { strategy: *strategy, microbatches, memory, time })
}
