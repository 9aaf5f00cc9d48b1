//! Looking at what the compiler makes of a kernel: every stage as text, and what the code uses.
//!
//! Any program can do this with kernels of its own:
//!
//! ```no_run
//! use genesis_kernel::inspect::{Emit, InspectRequest, inspect};
//! use genesis_kernel::{DType, KernelDef, Target};
//!
//! fn show(kernel: &KernelDef) -> Result<(), genesis_kernel::Error> {
//!     let request = InspectRequest::new(kernel, Target::sm_90a(), Emit::Ptx)
//!         .dtypes(&[DType::BF16])
//!         .set("BLOCK", 1024);
//!     let inspection = inspect(kernel, &request)?;
//!     println!("{}\n{:?}", inspection.text, inspection.resources);
//!     Ok(())
//! }
//! ```

pub(crate) mod watch;

pub use crate::compile::{Cost, cost, launch_cost};
pub use watch::{Launched, launches};

pub use crate::codegen::nvptx::ptxas::{Assembled, find_tool};

use crate::codegen::nvptx::ptxas;
use crate::compile::{Resources, warnings};
use crate::diag::{Error, Warning};
use crate::front::ast::{FnAst, TypeAst};
use crate::front::{Hints, ParamHint};
use crate::ir::DType;
use crate::kernel::KernelDef;
use crate::runtime::{Device, cuda};
use crate::target::Target;

/// A stage of the compiler.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Emit {
    /// Tile IR, from the front end.
    Tir,
    /// Tile IR after each pass.
    Passes,
    /// Layout IR: tile IR with the place of each element in threads and registers.
    Lir,
    /// The layouts drawn, and what moves between them.
    Layout,
    /// LLVM IR.
    Llvm,
    /// PTX.
    Ptx,
    /// The GPU's own instructions.
    Sass,
    /// The processor's assembly.
    Asm,
}

impl Emit {
    /// Every stage with its name, in order.
    pub const ALL: [(Emit, &'static str); 8] = [
        (Emit::Tir, "tir"),
        (Emit::Passes, "passes"),
        (Emit::Lir, "lir"),
        (Emit::Layout, "layout"),
        (Emit::Llvm, "llvm"),
        (Emit::Ptx, "ptx"),
        (Emit::Sass, "sass"),
        (Emit::Asm, "asm"),
    ];

    /// The stage with this name.
    pub fn from_name(name: &str) -> Option<Emit> {
        Emit::ALL.into_iter().find(|&(_, n)| n == name).map(|(emit, _)| emit)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Emit::ALL[self as usize].1
    }
}

/// What to look at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InspectRequest {
    /// The dtypes, in the order of the kernel's type parameters.
    pub dtypes: Vec<DType>,
    /// Constants by name; each const parameter must be among them.
    pub consts: Vec<(String, i64)>,
    /// What to compile for.
    pub target: Target,
    /// The stage to print.
    pub emit: Emit,
    /// What is known about the arguments.
    pub hints: Hints,
}

/// What there is to see.
#[derive(Clone, PartialEq, Debug)]
pub struct Inspection {
    /// The kernel's name.
    pub name: String,
    /// What it was compiled for.
    pub target: Target,
    /// The stage as text.
    pub text: String,
    /// Registers, shared memory and so on, as far as this machine can tell.
    pub resources: Resources,
    /// Options that have no effect, and registers that spill.
    pub warnings: Vec<Warning>,
}

impl InspectRequest {
    /// A request for a kernel as launches of large contiguous tensors compile it.
    pub fn new(kernel: &KernelDef, target: Target, emit: Emit) -> InspectRequest {
        let hints = Hints::contiguous(kernel.ast);
        InspectRequest { dtypes: Vec::new(), consts: Vec::new(), target, emit, hints }
    }

    /// With these dtypes.
    pub fn dtypes(mut self, dtypes: &[DType]) -> InspectRequest {
        self.dtypes = dtypes.to_vec();
        self
    }

    /// With this constant.
    pub fn set(mut self, name: &str, value: i64) -> InspectRequest {
        self.consts.push((name.to_owned(), value));
        self
    }
}

impl Hints {
    /// What holds for large contiguous tensors: aligned, the last stride 1, the others and all counts
    /// multiples of 16.
    pub fn contiguous(ast: &FnAst) -> Hints {
        let hint = |ty: &TypeAst| match ty {
            TypeAst::View { .. } | TypeAst::Views { .. } => ParamHint {
                multiple_of: 16,
                equals_one: false,
                unit_stride: true,
                unit_axis: None,
                zero_stride: false,
                zero_row_stride: false,
                stride_multiple_of: 16,
                narrow: true,
            },
            _ => ParamHint { multiple_of: 16, ..ParamHint::default() },
        };
        let params = ast.params.iter().map(|param| hint(&param.ty)).collect();
        Hints { params, ..Hints::default() }
    }
}

impl KernelDef {
    /// The constants in the order of the kernel's const parameters.
    ///
    /// # Errors
    /// If one is missing, given twice, or not the kernel's.
    pub fn const_values(&self, consts: &[(String, i64)]) -> Result<Vec<i64>, Error> {
        let name = self.ast.name;
        let takes = || format!("{name} takes {}", self.ast.consts.join(", "));
        for (i, (given, _)) in consts.iter().enumerate() {
            if !self.ast.consts.contains(&given.as_str()) {
                return Err(Error::launch(format!("`{given}` is not a constant: {}", takes())));
            }
            if consts[..i].iter().any(|(earlier, _)| earlier == given) {
                return Err(Error::launch(format!("{name}: `{given}` is set twice")));
            }
        }
        let value = |wanted: &&str| consts.iter().find(|(given, _)| given == wanted);
        self.ast
            .consts
            .iter()
            .map(|wanted| match value(wanted) {
                Some(&(_, value)) => Ok(value),
                None => Err(Error::launch(format!("`{wanted}` has no value: {}", takes()))),
            })
            .collect()
    }
}

/// Compiles a kernel and shows one stage of it.
///
/// # Errors
/// If the kernel is wrong for the dtypes and constants, or the stage is not one of the target.
pub fn inspect(kernel: &KernelDef, request: &InspectRequest) -> Result<Inspection, Error> {
    let consts = kernel.const_values(&request.consts)?;
    let special = kernel.specialize(&request.dtypes, &consts, &request.hints)?;
    let compiled = special.compile(&request.target)?;
    let text = match request.emit {
        Emit::Tir => special.tir(),
        Emit::Passes => special.passes(&request.target)?,
        Emit::Lir => compiled.lir()?.to_owned(),
        Emit::Layout => compiled.layouts()?,
        Emit::Llvm => compiled.llvm()?.to_owned(),
        Emit::Ptx => compiled.ptx()?.to_owned(),
        Emit::Sass => compiled.sass()?,
        Emit::Asm => compiled.asm()?.to_owned(),
    };
    let resources = compiled.resources()?;
    let spills = warnings::of_spills(kernel.name(), resources.spill_bytes.unwrap_or(0));
    let warnings = compiled.warnings().iter().cloned().chain(spills).collect();
    Ok(Inspection {
        name: kernel.name().to_owned(),
        target: request.target.clone(),
        text,
        resources,
        warnings,
    })
}

/// Assembles PTX for an architecture such as `sm_90a` with NVIDIA's `ptxas`.
///
/// # Errors
/// If `ptxas` is not there, or refuses the PTX: what it printed.
pub fn assemble(ptx: &str, arch: &str) -> Result<Assembled, Error> {
    let ptxas = ptxas::find().ok_or_else(|| Error::device(ptxas::missing("ptxas")))?;
    ptxas::assemble(&ptxas, ptx, arch)
}

/// Assembles PTX for a GPU by its driver, which needs no `ptxas`; gives a cubin.
///
/// # Errors
/// If the device is no GPU that can be used, or the driver refuses the PTX: what it says.
pub fn assemble_by_driver(device: Device, ptx: &str) -> Result<Vec<u8>, Error> {
    match device {
        Device::Cpu => Err(Error::device("the CPU takes no PTX")),
        Device::Cuda(number) => cuda::open(number)?.assemble(ptx),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_have_names() {
        for (emit, name) in Emit::ALL {
            assert_eq!((Emit::from_name(name), emit.name()), (Some(emit), name));
        }
        assert_eq!(Emit::from_name("mlir"), None);
    }
}
