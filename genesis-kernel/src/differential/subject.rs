//! One program, the machines that it runs on, and how it fares there.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::compare::{self, Memory};
use crate::codegen::cpu::CpuKernel;
use crate::codegen::nvptx::GpuKernel;
use crate::compile::{self, Executable, Specialized};
use crate::diag::Error;
use crate::emulate::Emulator;
use crate::front::Hints;
use crate::interp::run_func;
use crate::ir::random::RandomProgram;
use crate::ir::{ArgValue, InterpArg};
use crate::launch::owned;
use crate::runtime::{Device, Stream};
use crate::target::GpuTarget;

/// Where a program runs beside the interpreter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// Machine code of this processor.
    Cpu,
    /// PTX for this architecture, run by the emulator.
    Emulated(GpuTarget),
    /// A real device.
    Device(Device),
}

/// How one program fared on one machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The same memory.
    Pass,
    /// The compiler refuses it with a diagnostic, such as too much shared memory.
    Unsupported(String),
    /// The compiler fails: its own error, or a panic.
    CompileFail(String),
    /// Another value, where.
    Mismatch(String),
    /// It compiled and did not run to its end: races, stray accesses, waits for ever.
    Fault(String),
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Machine::Cpu => f.write_str("cpu"),
            Machine::Emulated(target) => write!(f, "emulated {target}"),
            Machine::Device(device) => write!(f, "{device}"),
        }
    }
}

impl Outcome {
    /// Its name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Pass => "PASS",
            Outcome::Unsupported(_) => "UNSUPPORTED",
            Outcome::CompileFail(_) => "COMPILE_FAIL",
            Outcome::Mismatch(_) => "MISMATCH",
            Outcome::Fault(_) => "FAULT",
        }
    }

    pub(super) fn why(&self) -> &str {
        match self {
            Outcome::Pass => "",
            Outcome::Unsupported(why)
            | Outcome::CompileFail(why)
            | Outcome::Mismatch(why)
            | Outcome::Fault(why) => why,
        }
    }

    pub(super) fn is_failure(&self) -> bool {
        !matches!(self, Outcome::Pass | Outcome::Unsupported(_))
    }
}

/// A program as machines take it.
#[derive(Clone)]
pub(super) struct Subject {
    pub(super) program: RandomProgram,
    pub(super) hints: Hints,
}

impl Subject {
    fn special(&self) -> Specialized {
        Specialized::new(self.program.func.clone(), &[], &[], &self.hints)
    }

    /// What the interpreter leaves in memory.
    pub(super) fn expected(&self) -> Result<Memory, String> {
        let func = compile::exact(&self.program.func);
        run_func(&func, self.program.grid, self.program.args.clone()).map_err(|e| e.to_string())
    }

    /// How it fares on a machine.
    pub(super) fn outcome(&self, machine: Machine, expected: &Memory) -> Outcome {
        let run = AssertUnwindSafe(|| match machine {
            Machine::Cpu => self.on_device(&Device::Cpu.stream()),
            Machine::Emulated(target) => self.emulated(&target),
            Machine::Device(device) => self.on_device(&device.stream()),
        });
        let found = match catch_unwind(run) {
            Ok(Ok(found)) => found,
            Ok(Err(outcome)) => return outcome,
            Err(panic) => return Outcome::CompileFail(format!("panic: {}", message(&*panic))),
        };
        let is_gpu = match machine {
            Machine::Cpu => false,
            Machine::Emulated(_) => true,
            Machine::Device(device) => device.is_cuda(),
        };
        match compare::same(&self.program, expected, &found, is_gpu) {
            Ok(()) => Outcome::Pass,
            Err(where_) => Outcome::Mismatch(where_),
        }
    }

    fn on_device(&self, stream: &Stream) -> Result<Memory, Outcome> {
        let code = match stream.device() {
            // Not what a launch would take: that is the interpreter where `GENESIS_CHECK` asks for it.
            Device::Cpu => self.on_this_processor().map(Executable::Cpu),
            Device::Cuda(_) => compile::load_anew(&self.special(), stream).map(Executable::Cuda),
        };
        let code = code.map_err(refused)?;
        // SAFETY: the interpreter ran the program with these arguments without an error.
        let found = unsafe { owned::run(&code, stream, self.program.grid, &self.program.args) };
        found.map_err(|error| Outcome::Fault(error.to_string()))
    }

    fn on_this_processor(&self) -> Result<CpuKernel, Error> {
        let (func, object) = compile::compile_cpu(&self.program.func)?;
        CpuKernel::link(&func, object)
    }

    fn emulated(&self, target: &GpuTarget) -> Result<Memory, Outcome> {
        let (_, code) = compile::compile_gpu(&self.special(), target).map_err(refused)?;
        let mut emulator = Emulator::new();
        let (mut starts, mut args) = (Vec::new(), Vec::new());
        for (param, arg) in self.program.func.params.iter().zip(&self.program.args) {
            let mut add =
                |writable| emulator.add_buffer(param.name.clone(), arg.data().to_vec(), writable);
            let (start, value) = match arg {
                InterpArg::Scalar(scalar) => (None, ArgValue::Scalar(*scalar)),
                InterpArg::Buffer(..) => {
                    let start = add(false);
                    (Some(start), ArgValue::Ptr(start))
                }
                InterpArg::BufferMut(..) => {
                    let start = add(true);
                    (Some(start), ArgValue::Ptr(start))
                }
                InterpArg::View { dtype, offset, dims, strides, writable, .. } => {
                    let start = add(*writable);
                    let ptr = start + (offset * dtype.bytes()) as u64;
                    let (dims, strides) = (dims.clone(), strides.clone());
                    (Some(start), ArgValue::View { ptr, dims, strides })
                }
            };
            starts.push(start);
            args.push(value);
        }
        let run: Result<(), _> = emulator.run(&code, self.program.grid, &args);
        run.map_err(|fault| Outcome::Fault(with_line(&code, &fault.to_string(), fault.ptx_line)))?;
        let bytes = |start: Option<u64>| start.map_or(Vec::new(), |s| emulator.buffer(s).to_vec());
        Ok(starts.into_iter().map(bytes).collect())
    }
}

/// The first line of a message, without the numbers and names of values in it.
pub(super) fn kind(why: &str) -> String {
    let line = why.lines().next().unwrap_or_default();
    let (mut text, mut is_name) = (String::new(), false);
    for c in line.chars() {
        is_name = c == '%' || (is_name && c.is_ascii_alphanumeric());
        match c {
            _ if is_name && c != '%' => {}
            '0'..='9' if text.ends_with('#') => {}
            '0'..='9' => text.push('#'),
            _ => text.push(c),
        }
    }
    text
}

/// Warps and stages, which must not change a bit.
pub(super) fn hints(seed: u64) -> Hints {
    let num_warps = [None, Some(1), Some(2), Some(4), None, Some(8)][(seed % 6) as usize];
    let num_stages = [None, None, Some(1), Some(2), Some(3)][(seed / 6 % 5) as usize];
    Hints { num_warps, num_stages, ..Hints::default() }
}

/// A fault with the instruction where it happened.
fn with_line(code: &GpuKernel, fault: &str, line: u32) -> String {
    let inst = (line as usize).checked_sub(1).and_then(|at| code.ptx.lines().nth(at));
    format!("{fault}\n  {}", inst.unwrap_or_default().trim())
}

/// What a compiler's error is: a refusal where it is in the user's words.
fn refused(error: Error) -> Outcome {
    match error.diagnostic() {
        Some(_) => Outcome::Unsupported(error.to_string()),
        None => Outcome::CompileFail(error.to_string()),
    }
}

pub(super) fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
    text.unwrap_or_default()
}

/// What a program leaves in memory on the interpreter, and that the CPU and emulated GPUs leave the same.
#[cfg(test)]
pub(crate) fn everywhere(program: RandomProgram) -> Memory {
    let subject = Subject { program, hints: Hints { num_warps: Some(2), ..Hints::default() } };
    let expected = subject.expected().unwrap_or_else(|error| panic!("{error}"));
    let gpus = [GpuTarget::SM_80, GpuTarget::SM_90A].map(Machine::Emulated);
    for machine in gpus.into_iter().chain([Machine::Cpu]) {
        let outcome = subject.outcome(machine, &expected);
        assert_eq!(
            outcome,
            Outcome::Pass,
            "{machine:?}\n{}",
            crate::ir::print(&subject.program.func)
        );
    }
    expected
}
