//! A compiled kernel, to look at.

use std::sync::OnceLock;

use super::cost::{Cost, cost};
use super::{draw, traffic, usage, warnings};
use crate::codegen::cpu::{self, OptLevel};
use crate::codegen::nvptx::{self, GpuKernel, ptxas};
use crate::compile::Specialized;
use crate::diag::{Error, Warning};
use crate::ir::{Func, print};
use crate::layout::LayoutIr;
use crate::runtime::cuda::{self, EntryPoint};
use crate::target::{GpuTarget, Target};

/// A kernel compiled for one target, with everything there is to look at.
#[derive(Debug)]
pub struct Compiled {
    name: String,
    target: Target,
    cost: Cost,
    warnings: Vec<Warning>,
    code: Code,
}

#[derive(Debug)]
enum Code {
    Cpu(Box<CpuCode>),
    Gpu(Box<GpuCode>),
}

/// A text that is made when somebody asks for it.
type Lazy = OnceLock<Result<String, Error>>;

#[derive(Debug)]
struct CpuCode {
    func: Func,
    llvm: Lazy,
    assembly: Lazy,
}

#[derive(Debug)]
struct GpuCode {
    kernel: GpuKernel,
    target: GpuTarget,
    lir: LayoutIr,
    lir_text: OnceLock<String>,
    llvm: Lazy,
}

/// What a compiled kernel uses, where it is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Resources {
    /// Registers of one thread.
    pub registers: Option<u32>,
    /// Shared memory of one program, in bytes.
    pub shared_bytes: Option<u32>,
    /// Bytes of local memory of one thread: spilled registers and arrays.
    pub spill_bytes: Option<u32>,
    /// Warps of one program.
    pub num_warps: Option<u32>,
    /// Bytes that one program loads and stores if every lane is on; loops of a length known at run
    /// time only count once.
    pub bytes_per_program: u64,
    /// Floating-point operations of one program, counted likewise.
    pub flops_per_program: u64,
    /// Whether there are loops of a length known at run time only.
    pub has_runtime_loops: bool,
    /// The worst number of passes of one access of shared memory over what it would need without bank
    /// conflicts, as predicted from layouts; 1 is none.
    pub bank_ways: Option<u32>,
    /// What the assembler warns about, such as products that it had to run one after the other.
    pub warnings: Vec<String>,
}

impl Compiled {
    pub(super) fn cpu(source: &Specialized, func: Func) -> Compiled {
        let (llvm, assembly) = (Lazy::new(), Lazy::new());
        Compiled {
            name: source.func.name.clone(),
            target: Target::Cpu,
            cost: cost(&source.func),
            warnings: Vec::new(),
            code: Code::Cpu(Box::new(CpuCode { func, llvm, assembly })),
        }
    }

    pub(super) fn gpu(
        source: &Specialized,
        target: &GpuTarget,
        lir: LayoutIr,
        kernel: GpuKernel,
    ) -> Compiled {
        let warnings = warnings::of_options(&source.func, &source.hints, &lir);
        let (lir_text, llvm) = (OnceLock::new(), Lazy::new());
        Compiled {
            name: source.func.name.clone(),
            target: Target::Gpu(*target),
            cost: cost(&source.func),
            warnings,
            code: Code::Gpu(Box::new(GpuCode { kernel, target: *target, lir, lir_text, llvm })),
        }
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is compiled for.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// What may not be as its author meant: options of loops and of the launch that have no effect on a GPU, and why.
    /// What spills is known where the code is assembled: see [`Compiled::resources`] and
    /// [`Inspection::warnings`](crate::inspect::Inspection::warnings).
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// PTX, on a GPU target.
    pub fn ptx(&self) -> Result<&str, Error> {
        match &self.code {
            Code::Gpu(gpu) => Ok(&gpu.kernel.ptx),
            Code::Cpu(_) => Err(self.has_no("PTX", "sm_80 or sm_90a")),
        }
    }

    /// LLVM IR as it was handed to LLVM.
    pub fn llvm(&self) -> Result<&str, Error> {
        match &self.code {
            Code::Gpu(gpu) => {
                let llvm = gpu.llvm.get_or_init(|| nvptx::llvm_ir(&gpu.lir, &gpu.target));
                llvm.as_deref().map_err(Error::clone)
            }
            Code::Cpu(cpu) => {
                let llvm = cpu.llvm.get_or_init(|| cpu::llvm_ir(&cpu.func, OptLevel::O3));
                llvm.as_deref().map_err(Error::clone)
            }
        }
    }

    /// Layout IR, on a GPU target.
    pub fn lir(&self) -> Result<&str, Error> {
        match &self.code {
            Code::Gpu(gpu) => Ok(gpu.lir_text.get_or_init(|| lir_text(&gpu.lir))),
            Code::Cpu(_) => Err(self.has_no("layout IR", "sm_80 or sm_90a")),
        }
    }

    /// The layouts drawn, and what moves between them, on a GPU target.
    pub fn layouts(&self) -> Result<String, Error> {
        match &self.code {
            Code::Gpu(gpu) => Ok(draw::layouts(&gpu.lir)),
            Code::Cpu(_) => Err(self.has_no("layout", "sm_80 or sm_90a")),
        }
    }

    /// The processor's assembly, on the CPU target.
    pub fn asm(&self) -> Result<&str, Error> {
        match &self.code {
            Code::Cpu(cpu) => {
                let assembly = cpu.assembly.get_or_init(|| cpu::assembly(&cpu.func, OptLevel::O3));
                assembly.as_deref().map_err(Error::clone)
            }
            Code::Gpu(_) => Err(self.has_no("assembly of the processor", "cpu")),
        }
    }

    /// The kernel with the lines of its source, for an [`Emulator`](crate::emulate::Emulator).
    ///
    /// # Errors
    /// On the CPU target.
    pub fn with_lines(&self) -> Result<GpuKernel, Error> {
        match &self.code {
            Code::Gpu(gpu) => nvptx::compile_with_lines(&gpu.lir, &gpu.target),
            Code::Cpu(_) => Err(self.has_no("PTX", "sm_80 or sm_90a")),
        }
    }

    /// The GPU's own instructions.
    ///
    /// # Errors
    /// On the CPU target, and where `nvdisasm`, and `ptxas` or a GPU of the architecture, are missing.
    pub fn sass(&self) -> Result<String, Error> {
        let Code::Gpu(gpu) = &self.code else {
            return Err(self.has_no("SASS", "sm_80 or sm_90a"));
        };
        let nvdisasm = ptxas::find_nvdisasm()
            .ok_or_else(|| Error::device(format!("sass: {}", ptxas::missing("nvdisasm"))))?;
        ptxas::disassemble(&nvdisasm, &machine_code(&gpu.kernel, &gpu.target)?)
    }

    /// What the code uses, as far as this machine can tell: registers and spills need `ptxas` or a GPU
    /// of the architecture.
    ///
    /// # Errors
    /// If the assembler refuses the code.
    pub fn resources(&self) -> Result<Resources, Error> {
        let mut resources = Resources {
            bytes_per_program: self.cost.bytes,
            flops_per_program: self.cost.flops,
            has_runtime_loops: self.cost.has_runtime_loops,
            ..Resources::default()
        };
        let Code::Gpu(gpu) = &self.code else { return Ok(resources) };
        let (kernel, target) = (&gpu.kernel, &gpu.target);
        resources.num_warps = Some(kernel.num_warps);
        resources.shared_bytes = Some(kernel.shared_bytes);
        resources.bank_ways = Some(traffic::worst_ways(&gpu.lir));
        if let Some(ptxas) = ptxas::find() {
            let usage = usage::of(&ptxas, &kernel.ptx, target.name())?;
            resources.registers = Some(usage.registers);
            resources.spill_bytes = Some(usage.spill_bytes);
            resources.shared_bytes = Some(kernel.shared_bytes + usage.shared_bytes);
            resources.warnings = usage.warnings;
        } else if let Some(device) = device_for(target) {
            let entry = EntryPoint {
                name: &kernel.name,
                threads: kernel.threads,
                cluster: kernel.num_blocks,
                dynamic_shared_bytes: kernel.shared_bytes,
                is_persistent: false,
                dependent_launch: false,
                maps: &kernel.maps,
                asserts: &[],
            };
            let loaded = device.load(&kernel.ptx, &entry)?;
            resources.registers = Some(loaded.registers);
            resources.spill_bytes = Some(loaded.local_bytes);
            resources.shared_bytes = Some(loaded.shared_bytes);
        }
        Ok(resources)
    }

    fn has_no(&self, what: &str, targets: &str) -> Error {
        Error::launch(format!(
            "{}: there is no {what} for {}; ask for {targets}",
            self.name, self.target
        ))
    }
}

pub(super) fn lir_text(lir: &LayoutIr) -> String {
    let text = print::print(&lir.func) + &lir.layout_text();
    match &lir.producer {
        Some(producer) => {
            format!("{text}\n// what the producer's thread runs\n{}", print::print(producer))
        }
        None => text,
    }
}

fn machine_code(kernel: &GpuKernel, target: &GpuTarget) -> Result<Vec<u8>, Error> {
    match (ptxas::find(), device_for(target)) {
        (Some(ptxas), _) => Ok(ptxas::assemble(&ptxas, &kernel.ptx, target.name())?.cubin),
        (None, Some(device)) => device.assemble(&kernel.ptx),
        (None, None) => Err(Error::device(format!(
            "sass: neither `ptxas` nor a GPU for {target} is there; set GENESIS_PTXAS to where it is"
        ))),
    }
}

/// A GPU of this machine whose driver assembles for a target.
fn device_for(target: &GpuTarget) -> Option<&'static cuda::CudaDevice> {
    let count = cuda::device_count().unwrap_or(0);
    (0..count)
        .filter_map(|number| cuda::open(number).ok())
        .find(|device| device.info().target.name() == target.name())
}
