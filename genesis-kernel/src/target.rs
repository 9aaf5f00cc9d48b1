//! What code is compiled for: this machine's processor, or a GPU architecture.
//!
//! Passes and back ends see the machine only through these types, so that code for an H200 can be
//! made, read and assembled on a laptop. A GPU is a row of [`GpuTarget::ALL`]: nothing asks for an architecture by its
//! name or number, but for the [feature](GpuFeatures) that is meant.
//!
//! ```text
//!           mma    TMA  clusters  PDL  setmaxnreg  shared memory of a block
//! sm_80     sync   -    -         -    -           163 KB
//! sm_86     sync   -    -         -    -            99 KB
//! sm_90     sync   yes  16        yes  -           227 KB
//! sm_90a    wgmma  yes  16        yes  yes         227 KB
//! sm_100a   sync   yes  16        yes  yes         227 KB
//! sm_120a   sync   yes   8        yes  yes          99 KB
//! ```

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
    /// Major and minor compute capability of the first GPU that runs its PTX.
    capability: (u32, u32),
    /// Whether later GPUs run its PTX too.
    portability: Portability,
    name: &'static str,
    /// The PTX version times ten: 80 is PTX 8.0.
    pub ptx_version: u32,
    /// The oldest driver that reads that version, as CUDA counts: 12080 is CUDA 12.8.
    pub driver_version: u32,
    /// What the GPU can do, and how much of everything it has.
    pub features: GpuFeatures,
}

/// Which GPUs run a target's PTX.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Portability {
    /// Those of its compute capability and all later ones.
    Forward,
    /// Those of its compute capability only, whose own instructions it may use (`sm_90a`).
    Specific,
}

/// The matrix multiply-accumulate instructions that products are made of. They decide where operands and accumulators
/// live:
///
/// | family | operands | accumulators | issued by |
/// |---|---|---|---|
/// | `mma.sync` | registers, by `ldmatrix` | registers | a warp, which waits |
/// | `wgmma` | shared memory; the left one also registers | registers | a warpgroup, which goes on |
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MmaFamily {
    /// `mma.sync`, which every GPU has.
    Sync,
    /// `wgmma.mma_async`, of Hopper alone.
    Wgmma,
}

impl MmaFamily {
    /// Whether operands are read where they lie in shared memory.
    pub fn reads_shared(self) -> bool {
        match self {
            MmaFamily::Sync => false,
            MmaFamily::Wgmma => true,
        }
    }
}

/// The instruction by which tensor cores multiply f64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum F64Mma {
    /// `mma.sync.m8n8k4`, of A100 on.
    M8N8K4,
    /// `mma.sync.m16n8k8`, of H100 on: as much as four of the others.
    M16N8K8,
}

/// What a GPU can do that the compiler makes use of, and how much of everything it has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct GpuFeatures {
    /// What matrix products are made of.
    pub mma: MmaFamily,
    /// How products of f64 are made.
    pub mma_f64: F64Mma,
    /// Whether the Tensor Memory Accelerator (TMA, the copy engine) moves tiles: `cp.async.bulk.tensor`.
    pub tma: bool,
    /// The most blocks of a thread block cluster; 1 where there are no clusters.
    pub max_cluster: u32,
    /// Programmatic dependent launch (PDL): `griddepcontrol`.
    pub pdl: bool,
    /// Whether `setmaxnreg` moves registers from one warpgroup to another.
    pub setmaxnreg: bool,
    /// Whether `cvt` has pairs of floats of 8 bits, `e4m3x2` and `e5m2x2`.
    pub f8_conversions: bool,
    /// Whether bf16 has additions and multiplications beside the fused one.
    pub bf16_arithmetic: bool,
    /// Whether memory adds to bf16: `red.add.noftz.bf16`.
    pub bf16_reductions: bool,
    /// Whether memory adds to up to 16 bytes of neighbouring floats at once: `red.add.v4.f32`.
    pub vector_reductions: bool,
    /// The most shared memory that one block may ask for, in bytes.
    pub max_shared_bytes: u32,
    /// 32-bit registers of a multiprocessor.
    pub registers: u32,
    /// Threads that a multiprocessor holds at once.
    pub max_threads: u32,
    /// Blocks that a multiprocessor holds at once.
    pub max_blocks: u32,
}

impl GpuFeatures {
    /// Whether blocks can form clusters, which see each other's shared memory.
    pub fn has_clusters(&self) -> bool {
        self.max_cluster > 1
    }

    /// Whether matrix products read tiles where TMA puts them.
    pub fn tma_feeds_mma(&self) -> bool {
        self.tma && self.mma.reads_shared()
    }
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

    /// B200, with its own instructions.
    pub fn sm_100a() -> Target {
        Target::Gpu(GpuTarget::SM_100A)
    }

    /// RTX 50, with their own instructions.
    pub fn sm_120a() -> Target {
        Target::Gpu(GpuTarget::SM_120A)
    }

    /// The target with this name: `cpu`, `host` or that of a GPU in [`GpuTarget::ALL`].
    pub fn from_name(name: &str) -> Option<Target> {
        if matches!(name, "cpu" | "host") {
            return Some(Target::Cpu);
        }
        GpuTarget::ALL.into_iter().find(|gpu| gpu.name() == name).map(Target::Gpu)
    }

    /// The names that [`Target::from_name`] takes: `sm_80, sm_86 .. and host`.
    pub fn names() -> String {
        let gpus: Vec<&str> = GpuTarget::ALL.iter().map(GpuTarget::name).collect();
        format!("{} and host", gpus.join(", "))
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
    pub const SM_80: GpuTarget = GpuTarget {
        capability: (8, 0),
        portability: Portability::Forward,
        name: "sm_80",
        ptx_version: 80,
        driver_version: 12_000,
        features: GpuFeatures {
            mma: MmaFamily::Sync,
            mma_f64: F64Mma::M8N8K4,
            tma: false,
            max_cluster: 1,
            pdl: false,
            setmaxnreg: false,
            f8_conversions: false,
            bf16_arithmetic: false,
            bf16_reductions: false,
            vector_reductions: false,
            max_shared_bytes: 166_912,
            registers: 65_536,
            max_threads: 2048,
            max_blocks: 32,
        },
    };
    /// RTX 30.
    pub const SM_86: GpuTarget = GpuTarget {
        capability: (8, 6),
        name: "sm_86",
        features: GpuFeatures {
            max_shared_bytes: 101_376,
            max_threads: 1536,
            max_blocks: 16,
            ..GpuTarget::SM_80.features
        },
        ..GpuTarget::SM_80
    };
    /// RTX 40. LLVM has the conversions of floats of 8 bits from PTX 8.1 on.
    pub const SM_89: GpuTarget = GpuTarget {
        capability: (8, 9),
        name: "sm_89",
        ptx_version: 81,
        driver_version: 12_010,
        features: GpuFeatures { f8_conversions: true, max_blocks: 24, ..GpuTarget::SM_86.features },
        ..GpuTarget::SM_86
    };
    /// H100 without its own instructions: code that later GPUs run too.
    pub const SM_90: GpuTarget = GpuTarget {
        capability: (9, 0),
        name: "sm_90",
        features: GpuFeatures {
            mma_f64: F64Mma::M16N8K8,
            tma: true,
            max_cluster: 16,
            pdl: true,
            f8_conversions: true,
            bf16_arithmetic: true,
            bf16_reductions: true,
            vector_reductions: true,
            max_shared_bytes: 232_448,
            ..GpuTarget::SM_80.features
        },
        ..GpuTarget::SM_89
    };
    /// H100 and H200.
    pub const SM_90A: GpuTarget = GpuTarget {
        portability: Portability::Specific,
        name: "sm_90a",
        ptx_version: 83,
        driver_version: 12_030,
        features: GpuFeatures {
            mma: MmaFamily::Wgmma,
            setmaxnreg: true,
            ..GpuTarget::SM_90.features
        },
        ..GpuTarget::SM_90
    };
    /// B200 without its own instructions.
    pub const SM_100: GpuTarget = GpuTarget {
        capability: (10, 0),
        name: "sm_100",
        ptx_version: 86,
        driver_version: 12_070,
        features: GpuFeatures { ..GpuTarget::SM_90.features },
        ..GpuTarget::SM_90
    };
    /// B200.
    pub const SM_100A: GpuTarget = GpuTarget {
        portability: Portability::Specific,
        name: "sm_100a",
        features: GpuFeatures { setmaxnreg: true, ..GpuTarget::SM_100.features },
        ..GpuTarget::SM_100
    };
    /// RTX 50 without their own instructions.
    pub const SM_120: GpuTarget = GpuTarget {
        capability: (12, 0),
        name: "sm_120",
        ptx_version: 87,
        driver_version: 12_080,
        features: GpuFeatures {
            max_cluster: 8,
            max_shared_bytes: 101_376,
            max_threads: 1536,
            max_blocks: 24,
            ..GpuTarget::SM_100.features
        },
        ..GpuTarget::SM_100
    };
    /// RTX 50.
    pub const SM_120A: GpuTarget = GpuTarget {
        portability: Portability::Specific,
        name: "sm_120a",
        features: GpuFeatures { setmaxnreg: true, ..GpuTarget::SM_120.features },
        ..GpuTarget::SM_120
    };

    /// Every architecture with a name of its own; of those that a GPU runs the last is the best for it.
    pub const ALL: [GpuTarget; 9] = [
        GpuTarget::SM_80,
        GpuTarget::SM_86,
        GpuTarget::SM_89,
        GpuTarget::SM_90,
        GpuTarget::SM_90A,
        GpuTarget::SM_100,
        GpuTarget::SM_100A,
        GpuTarget::SM_120,
        GpuTarget::SM_120A,
    ];

    /// `sm_90a`
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether a GPU of this compute capability runs its PTX, by a driver of this version.
    pub fn runs_on(&self, capability: (u32, u32), driver_version: u32) -> bool {
        let is_of_gpu = match self.portability {
            Portability::Forward => capability >= self.capability,
            Portability::Specific => capability == self.capability,
        };
        is_of_gpu && driver_version >= self.driver_version
    }

    /// The target for a device of this compute capability with a driver of this version; none below 8.0.
    ///
    /// PTX for an older architecture runs on a newer one, so a GPU newer than those named here gets
    /// the newest code that is not tied to one architecture, and so does one whose driver is too old for PTX of its
    /// own.
    pub fn for_device(capability: (u32, u32), driver_version: u32) -> Option<GpuTarget> {
        let runs = |target: &GpuTarget| target.runs_on(capability, driver_version);
        GpuTarget::ALL.into_iter().rfind(runs)
    }
}

impl fmt::Display for GpuTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWEST_DRIVER: u32 = 13_000;

    #[test]
    fn names_read_back() {
        for gpu in GpuTarget::ALL {
            assert_eq!(Target::from_name(gpu.name()), Some(Target::Gpu(gpu)));
            assert!(Target::names().contains(gpu.name()));
        }
        assert_eq!(Target::from_name("host"), Some(Target::Cpu));
        assert_eq!(Target::from_name("sm_75"), None);
    }

    #[test]
    fn a_gpu_gets_the_newest_code_that_it_runs() {
        let of = |major, minor| {
            GpuTarget::for_device((major, minor), NEWEST_DRIVER).map(|target| target.name())
        };
        let expected = [
            ((7, 5), None),
            ((8, 0), Some("sm_80")),
            ((8, 6), Some("sm_86")),
            ((8, 7), Some("sm_86")),
            ((8, 9), Some("sm_89")),
            ((9, 0), Some("sm_90a")),
            ((10, 0), Some("sm_100a")),
            // Code with an `a` is for one architecture.
            ((10, 3), Some("sm_100")),
            ((11, 0), Some("sm_100")),
            ((12, 0), Some("sm_120a")),
            ((12, 1), Some("sm_120")),
            ((13, 0), Some("sm_120")),
        ];
        for ((major, minor), name) in expected {
            assert_eq!(of(major, minor), name, "{major}.{minor}");
        }
    }

    #[test]
    fn an_older_driver_gets_older_code() {
        let of = |capability, driver| {
            GpuTarget::for_device(capability, driver).map(|target| target.name())
        };
        assert_eq!(of((8, 9), 12_000), Some("sm_86"));
        assert_eq!(of((9, 0), 12_020), Some("sm_90"));
        assert_eq!(of((10, 0), 12_060), Some("sm_90"));
        assert_eq!(of((10, 0), 12_070), Some("sm_100a"));
        assert_eq!(of((12, 0), 12_070), Some("sm_100"));
        assert_eq!(of((12, 0), 12_080), Some("sm_120a"));
        assert_eq!(of((12, 0), 11_080), None);
    }

    /// The best target of a device is found from the end of the list.
    #[test]
    fn targets_ascend() {
        assert!(GpuTarget::ALL.is_sorted());
    }
}
