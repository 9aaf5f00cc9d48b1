//! From a kernel to code: the whole pipeline on one screen.

use crate::diag::Error;
use crate::front;
use crate::front::ast::FnAst;
use crate::ir::{DType, Func};
use crate::kernel::{ArgValue, Hints, Specialized};
use crate::runtime::Stream;
use crate::runtime::cuda::CudaKernel;
use crate::target::Target;

/// A kernel compiled for one target, with everything there is to look at.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// What it is compiled for.
    pub target: Target,
    /// The kernel's name.
    pub name: String,
    llvm: Option<String>,
    lir: Option<String>,
    ptx: Option<String>,
    asm: Option<String>,
}

/// What a compiled kernel uses, where it is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Resources {
    /// Registers of one thread.
    pub registers: Option<u32>,
    /// Shared memory of one program, in bytes.
    pub shared_bytes: Option<u32>,
    /// Local memory of one thread, in bytes: spills and arrays.
    pub spill_bytes: Option<u32>,
    /// Warps of one program.
    pub num_warps: Option<u32>,
    /// Bytes that one program loads and stores, if every lane is on.
    pub bytes_per_program: Option<u64>,
    /// Floating-point operations of one program.
    pub flops_per_program: Option<u64>,
}

impl Compiled {
    /// PTX, on a GPU target.
    pub fn ptx(&self) -> Result<&str, Error> {
        self.part(&self.ptx, "PTX")
    }

    /// LLVM IR as it was handed to the code generator.
    pub fn llvm(&self) -> Result<&str, Error> {
        self.part(&self.llvm, "LLVM IR")
    }

    /// Layout IR, on a GPU target.
    pub fn lir(&self) -> Result<&str, Error> {
        self.part(&self.lir, "layout IR")
    }

    /// The processor's assembly, on the CPU target.
    pub fn asm(&self) -> Result<&str, Error> {
        self.part(&self.asm, "assembly of the processor")
    }

    /// The GPU's own instructions; needs `nvdisasm` and either `ptxas` or a driver.
    pub fn sass(&self) -> Result<String, Error> {
        Err(Error::device("sass: no disassembler"))
    }

    /// What the code uses, as far as it is known on this machine.
    pub fn resources(&self) -> Result<Resources, Error> {
        Ok(Resources::default())
    }

    fn part<'a>(&self, part: &'a Option<String>, what: &str) -> Result<&'a str, Error> {
        part.as_deref()
            .ok_or_else(|| Error::launch(format!("{}: {} has no {what}", self.name, self.target)))
    }
}

/// Tile IR of a kernel for given dtypes, constants and hints.
pub(crate) fn specialize(
    ast: &'static FnAst,
    dtypes: &[DType],
    consts: &[i64],
    hints: &Hints,
) -> Result<Specialized, Error> {
    let func = front::build(ast, dtypes, consts, hints)?;
    Ok(Specialized { func, dtypes: dtypes.to_vec(), consts: consts.to_vec(), hints: hints.clone() })
}

/// Code for a target.
pub(crate) fn compile(kernel: &Specialized, target: &Target) -> Result<Compiled, Error> {
    let _ = (kernel, target);
    Err(Error::bug("the back ends are not wired up"))
}

/// Code that a launch can run.
#[derive(Debug)]
pub(crate) enum Executable {
    /// On the processor.
    Cpu(CpuCode),
    /// On a GPU.
    Cuda(CudaKernel),
}

#[derive(Debug)]
pub(crate) struct CpuCode {}

/// Code for the device of a stream.
pub(crate) fn executable(kernel: &Specialized, stream: &Stream) -> Result<Executable, Error> {
    let _ = (kernel, stream);
    Err(Error::bug("the back ends are not wired up"))
}

/// Runs code on the processor.
pub(crate) fn run_cpu(kernel: &CpuCode, args: &[ArgValue], grid: [u32; 3]) -> Result<(), Error> {
    let _ = (kernel, args, grid);
    Err(Error::bug("the back ends are not wired up"))
}

/// Tile IR as text.
pub(crate) fn tir_text(func: &Func) -> String {
    format!("{func:?}")
}
