//! What code is compiled for: this machine's processor, or a GPU architecture.
//!
//! Passes and back ends see the machine only through these types, so that code for an H200 can be
//! made, read and assembled on a laptop.

use std::fmt;

/// What a kernel is compiled for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Target {
    /// The processor this program runs on.
    Cpu,
    /// An NVIDIA GPU.
    Gpu(GpuTarget),
}

/// An NVIDIA GPU architecture and the PTX that its driver reads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct GpuTarget {
    /// The compute capability times ten: 80, 86, 89, 90.
    pub sm: u32,
    /// Whether architecture-specific instructions (`sm_90a`: wgmma, TMA multicast) may be used. Such
    /// PTX runs on that architecture only.
    pub specific: bool,
    /// The PTX version times ten: 80 is PTX 8.0.
    pub ptx_version: u32,
    /// The most shared memory one block may ask for, in bytes.
    pub max_shared_bytes: u32,
}

impl Target {
    /// The processor this program runs on.
    pub fn host() -> Target {
        Target::Cpu
    }

    /// A100 and, through the driver, every later GPU.
    pub fn sm_80() -> Target {
        Target::Gpu(GpuTarget::SM_80)
    }

    /// H100 and H200, with their own instructions.
    pub fn sm_90a() -> Target {
        Target::Gpu(GpuTarget::SM_90A)
    }

    /// The target with this name: `cpu`, `host`, `sm_80`, `sm_86`, `sm_89`, `sm_90`, `sm_90a`.
    pub fn from_name(name: &str) -> Option<Target> {
        if matches!(name, "cpu" | "host") {
            return Some(Target::Cpu);
        }
        GpuTarget::ALL.into_iter().find(|gpu| gpu.name() == name).map(Target::Gpu)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Cpu => f.write_str("cpu"),
            Target::Gpu(gpu) => gpu.fmt(f),
        }
    }
}

impl GpuTarget {
    /// A100.
    pub const SM_80: GpuTarget =
        GpuTarget { sm: 80, specific: false, ptx_version: 80, max_shared_bytes: 166_912 };
    /// RTX 30.
    pub const SM_86: GpuTarget =
        GpuTarget { sm: 86, specific: false, ptx_version: 80, max_shared_bytes: 101_376 };
    /// RTX 40.
    pub const SM_89: GpuTarget =
        GpuTarget { sm: 89, specific: false, ptx_version: 80, max_shared_bytes: 101_376 };
    /// H100 without its own instructions: code that later GPUs run too.
    pub const SM_90: GpuTarget =
        GpuTarget { sm: 90, specific: false, ptx_version: 80, max_shared_bytes: 232_448 };
    /// H100 and H200.
    pub const SM_90A: GpuTarget =
        GpuTarget { sm: 90, specific: true, ptx_version: 83, max_shared_bytes: 232_448 };

    /// Every architecture with a name of its own.
    pub const ALL: [GpuTarget; 5] =
        [GpuTarget::SM_80, GpuTarget::SM_86, GpuTarget::SM_89, GpuTarget::SM_90, GpuTarget::SM_90A];

    /// `sm_90a`
    pub fn name(&self) -> String {
        format!("sm_{}{}", self.sm, if self.specific { "a" } else { "" })
    }

    /// Whether blocks can form clusters, which see each other's shared memory.
    pub fn has_clusters(&self) -> bool {
        self.sm >= 90
    }

    /// The target for a device of this compute capability; none below 8.0.
    ///
    /// PTX for an older architecture runs on a newer one, so a GPU newer than those named here gets
    /// the newest code that is not tied to one architecture.
    pub fn for_capability(major: u32, minor: u32) -> Option<GpuTarget> {
        match (major, minor) {
            (0..8, _) => None,
            (8, 0..6) => Some(GpuTarget::SM_80),
            (8, 6..9) => Some(GpuTarget::SM_86),
            (8, _) => Some(GpuTarget::SM_89),
            (9, 0) => Some(GpuTarget::SM_90A),
            _ => Some(GpuTarget::SM_90),
        }
    }
}

impl fmt::Display for GpuTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for gpu in GpuTarget::ALL {
            assert_eq!(Target::from_name(&gpu.name()), Some(Target::Gpu(gpu)));
        }
        assert_eq!(Target::from_name("host"), Some(Target::Cpu));
        assert_eq!(Target::from_name("sm_75"), None);
    }

    #[test]
    fn a_newer_gpu_gets_code_that_runs_forward() {
        assert_eq!(GpuTarget::for_capability(7, 5), None);
        assert_eq!(GpuTarget::for_capability(9, 0), Some(GpuTarget::SM_90A));
        assert_eq!(GpuTarget::for_capability(12, 0), Some(GpuTarget::SM_90));
    }
}
