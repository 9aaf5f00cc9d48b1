//! The device that a launch is shaped for.

use super::gpus;
use super::multiprocessor::BLOCKS_OF_ANY_CLUSTER;
use crate::target::{GpuFeatures, GpuTarget, Target};

/// The device that a launch is shaped for: its multiprocessors, and what its code may use. A copy of it is cheap, for
/// every launch asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chip {
    /// The processor.
    Cpu,
    /// A GPU.
    Gpu {
        /// Its multiprocessors.
        multiprocessors: usize,
        /// What code for it may use.
        features: GpuFeatures,
    },
}

impl Chip {
    /// The usual chip of a target: an H200 for sm_90a.
    pub fn of_target(target: &Target) -> Chip {
        match target {
            Target::Cpu => Chip::Cpu,
            Target::Gpu(gpu) => Chip::Gpu {
                multiprocessors: gpus::of_target(gpu).multiprocessors as usize,
                features: gpu.features,
            },
        }
    }

    /// The chip that stands for a GPU which can't be asked.
    pub fn unknown_gpu() -> Chip {
        Chip::of_target(&Target::Gpu(GpuTarget::SM_90A))
    }

    /// Whether it is the processor.
    pub fn is_cpu(&self) -> bool {
        matches!(self, Chip::Cpu)
    }

    /// What code may use; none on the processor.
    pub fn features(&self) -> Option<&GpuFeatures> {
        match self {
            Chip::Cpu => None,
            Chip::Gpu { features, .. } => Some(features),
        }
    }

    /// Programs that run at the same time if each takes a multiprocessor: a fixed number on the processor, so that
    /// results do not depend on how many cores there are.
    pub fn multiprocessors(&self) -> usize {
        match *self {
            Chip::Cpu => 16,
            Chip::Gpu { multiprocessors, .. } => multiprocessors,
        }
    }

    /// The most blocks of a cluster that any GPU with clusters runs without being asked for more; 1 without clusters.
    pub fn max_cluster(&self) -> usize {
        let has_clusters = self.features().is_some_and(GpuFeatures::has_clusters);
        if has_clusters { BLOCKS_OF_ANY_CLUSTER } else { 1 }
    }

    /// Whether MMAs read their operands where TMA puts them; else operands share registers with accumulators.
    pub fn tma_feeds_mma(&self) -> bool {
        self.features().is_some_and(GpuFeatures::tma_feeds_mma)
    }
}
