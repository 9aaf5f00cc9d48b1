//! Targets: what LLVM compiles for, the pass pipeline, and its outputs.

use std::ffi::CStr;
use std::sync::OnceLock;

use inkwell::OptimizationLevel;
use inkwell::llvm_sys::analysis::{LLVMVerifierFailureAction, LLVMVerifyModule};
use inkwell::llvm_sys::core::*;
use inkwell::llvm_sys::error::{LLVMDisposeErrorMessage, LLVMGetErrorMessage};
use inkwell::llvm_sys::support::LLVMParseCommandLineOptions;
use inkwell::llvm_sys::target::LLVMSetModuleDataLayout;
use inkwell::llvm_sys::target_machine::{LLVMCodeGenFileType, LLVMTargetMachineEmitToMemoryBuffer};
use inkwell::llvm_sys::transforms::pass_builder::LLVMRunPasses;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{
    CodeModel, InitializationConfig, RelocMode, Target, TargetMachine, TargetTriple,
};

use super::{Emitter, c_string, gate};
use crate::Error;

/// How hard LLVM's code generator works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    /// As directly as possible: for tests that compare with the optimized code.
    None,
    /// Everything.
    Aggressive,
}

/// A target with its processor and features.
pub(crate) struct Machine {
    machine: TargetMachine,
    // The last field: it is dropped after what is LLVM's.
    _inside: gate::Inside,
}

/// The processor of this machine and its features, as LLVM names them; also part of cache keys.
pub(crate) fn host_cpu() -> &'static (String, String) {
    static HOST: OnceLock<(String, String)> = OnceLock::new();
    HOST.get_or_init(|| {
        let name = TargetMachine::get_host_cpu_name().to_string_lossy().into_owned();
        let features = TargetMachine::get_host_cpu_features().to_string_lossy().into_owned();
        (name, features)
    })
}

/// Makes LLVM know the processor of this machine, which linking needs too.
pub(super) fn initialize_host() -> Result<(), Error> {
    static READY: OnceLock<Result<(), String>> = OnceLock::new();
    let ready = || Target::initialize_native(&InitializationConfig::default());
    READY.get_or_init(ready).clone().map_err(Error::bug)
}

impl Machine {
    /// The processor that runs this program.
    pub(crate) fn host(level: Level) -> Result<Machine, Error> {
        let _inside = gate::enter()?;
        initialize_host()?;
        let (cpu, features) = host_cpu();
        Machine::new(&TargetMachine::get_default_triple(), cpu, features, level)
    }

    /// An NVIDIA GPU, such as `sm_90a` with `+ptx83`.
    pub(crate) fn nvptx(arch: &str, features: &str) -> Result<Machine, Error> {
        static READY: OnceLock<()> = OnceLock::new();
        let _inside = gate::enter()?;
        READY.get_or_init(|| {
            Target::initialize_nvptx(&InitializationConfig::default());
            leave_out_address_passes();
        });
        let triple = TargetTriple::create("nvptx64-nvidia-cuda");
        Machine::new(&triple, arch, features, Level::Aggressive)
    }

    fn new(
        triple: &TargetTriple,
        cpu: &str,
        features: &str,
        level: Level,
    ) -> Result<Machine, Error> {
        let target = Target::from_triple(triple)
            .map_err(|why| Error::bug(format!("LLVM lacks a target: {}", why.to_string_lossy())))?;
        let level = match level {
            Level::None => OptimizationLevel::None,
            Level::Aggressive => OptimizationLevel::Aggressive,
        };
        let (reloc, code) = (RelocMode::PIC, CodeModel::Default);
        let machine = target.create_target_machine(triple, cpu, features, level, reloc, code);
        let machine = machine.ok_or_else(|| {
            Error::bug(format!("LLVM refused the target {} {cpu}", triple_text(triple)))
        })?;
        Ok(Machine { machine, _inside: gate::Inside::again() })
    }
}

/// Leaves out the code generator's passes that find common parts of addresses: a quarter of the
/// compilation of a kernel whose operands may have any strides, where `nvptx::steps` writes such
/// addresses with their common parts already. The switch is LLVM's own, and there is one a process.
fn leave_out_address_passes() {
    let arguments = [c"genesis", c"-opt-disable=slsr,nary-reassociate"].map(CStr::as_ptr);
    let count = arguments.len() as std::ffi::c_int;
    // SAFETY: the arguments are strings that end in a zero, as many as the count says.
    unsafe { LLVMParseCommandLineOptions(count, arguments.as_ptr(), c"".as_ptr()) }
}

fn triple_text(triple: &TargetTriple) -> String {
    triple.as_str().to_string_lossy().into_owned()
}

/// What comes first where a kernel calls functions of ours: their code goes in the place of the calls.
const INLINE: &str = "always-inline,globaldce,function(lower-expect),";

impl Emitter {
    /// Gives the module the target's triple and data layout; before any code is written.
    pub(crate) fn set_target(&self, machine: &Machine) {
        let triple = machine.machine.get_triple();
        let data = machine.machine.get_target_data();
        // SAFETY: the strings and the target data outlive the calls, which copy them.
        unsafe {
            LLVMSetTarget(self.module, triple.as_ptr());
            LLVMSetModuleDataLayout(self.module, data.as_mut_ptr());
        }
    }

    /// Whether the module is well formed; an error is a bug of ours and says what LLVM says.
    pub(crate) fn verify(&self) -> Result<(), Error> {
        let mut message = std::ptr::null_mut();
        // SAFETY: LLVM allocates the message also where all is well, and takes it back.
        unsafe {
            let action = LLVMVerifierFailureAction::LLVMReturnStatusAction;
            let failed = LLVMVerifyModule(self.module, action, &mut message) != 0;
            let text = CStr::from_ptr(message).to_string_lossy().into_owned();
            LLVMDisposeMessage(message);
            if failed { Err(Error::bug(format!("invalid LLVM IR: {text}"))) } else { Ok(()) }
        }
    }

    /// Runs a pipeline such as `default<O3>`, on functions of ours where they are called. The loop vectorizer stays off: our loops have their
    /// vectors already.
    pub(crate) fn run_passes(&self, passes: &str, machine: &Machine) -> Result<(), Error> {
        let first = if self.has_routines() { INLINE } else { "" };
        let options = PassBuilderOptions::create();
        options.set_loop_vectorization(false);
        options.set_loop_interleaving(false);
        options.set_loop_slp_vectorization(true);
        options.set_loop_unrolling(true);
        let passes = c_string(&format!("{first}{passes}"));
        let machine = machine.machine.as_mut_ptr();
        // SAFETY: module, machine and options live; LLVM gives an error object or null.
        unsafe {
            let error = LLVMRunPasses(self.module, passes.as_ptr(), machine, options.as_mut_ptr());
            if error.is_null() {
                return Ok(());
            }
            let message = LLVMGetErrorMessage(error);
            let text = CStr::from_ptr(message).to_string_lossy().into_owned();
            LLVMDisposeErrorMessage(message);
            Err(Error::bug(format!("LLVM's passes: {text}")))
        }
    }

    /// The module as the target's assembly.
    pub(crate) fn assembly(&self, machine: &Machine) -> Result<String, Error> {
        let bytes = self.emit(machine, LLVMCodeGenFileType::LLVMAssemblyFile)?;
        String::from_utf8(bytes).map_err(|_| Error::bug("LLVM wrote assembly that is not UTF-8"))
    }

    /// The module as an object file.
    pub(crate) fn object(&self, machine: &Machine) -> Result<Vec<u8>, Error> {
        self.emit(machine, LLVMCodeGenFileType::LLVMObjectFile)
    }

    fn emit(&self, machine: &Machine, kind: LLVMCodeGenFileType) -> Result<Vec<u8>, Error> {
        let (mut message, mut buffer) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: LLVM fills either the message or the buffer; both are given back.
        unsafe {
            let failed = LLVMTargetMachineEmitToMemoryBuffer(
                machine.machine.as_mut_ptr(),
                self.module,
                kind,
                &mut message,
                &mut buffer,
            );
            if failed != 0 {
                let text = CStr::from_ptr(message).to_string_lossy().into_owned();
                LLVMDisposeMessage(message);
                return Err(Error::bug(format!("LLVM's code generator: {text}")));
            }
            let start = LLVMGetBufferStart(buffer).cast::<u8>();
            let bytes = std::slice::from_raw_parts(start, LLVMGetBufferSize(buffer)).to_vec();
            LLVMDisposeMemoryBuffer(buffer);
            Ok(bytes)
        }
    }
}
