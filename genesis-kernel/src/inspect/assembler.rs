//! NVIDIA's assembler and disassembler, where a machine has them.
//!
//! Nothing needs them to run: the driver assembles. They say what the driver does not without a GPU:
//! registers, spills and the instructions themselves.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::diag::Error;
use crate::knobs;

/// What the assembler says of a kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Assembled {
    /// Machine code.
    pub cubin: Vec<u8>,
    /// Registers of one thread.
    pub registers: u32,
    /// Shared memory that the code itself declares, in bytes.
    pub shared_bytes: u32,
    /// Bytes of stack of one thread.
    pub stack_bytes: u32,
    /// Bytes stored because registers ran out.
    pub spill_store_bytes: u32,
    /// Bytes loaded because registers ran out.
    pub spill_load_bytes: u32,
    /// Everything it printed.
    pub log: String,
}

/// Where a tool of NVIDIA's is (`ptxas`, `nvdisasm`): beside what `GENESIS_PTXAS` names, in `PATH`, in
/// the CUDA toolkit's usual place, or in `.tools/bin` of the working directory or one above it.
pub fn find_tool(name: &str) -> Option<PathBuf> {
    if let Some(ptxas) = &knobs::get().ptxas {
        let sibling = if name == "ptxas" { ptxas.clone() } else { ptxas.with_file_name(name) };
        if sibling.is_file() {
            return Some(sibling);
        }
    }
    let toolkit = PathBuf::from("/usr/local/cuda/bin");
    let here = std::env::current_dir().unwrap_or_default();
    let tools = here.ancestors().map(|dir| dir.join(".tools/bin"));
    let mut folders = knobs::search_path().into_iter().chain([toolkit]).chain(tools);
    folders.find_map(|dir| Some(dir.join(name)).filter(|tool| tool.is_file()))
}

/// Assembles PTX for an architecture such as `sm_90a`.
///
/// # Errors
/// If `ptxas` is not there, or refuses the PTX: what it printed.
pub fn assemble(ptx: &str, arch: &str) -> Result<Assembled, Error> {
    let tool = find_tool("ptxas")
        .ok_or_else(|| Error::device("`ptxas` was not found; set GENESIS_PTXAS to where it is"))?;
    let dir = tempfile::tempdir().map_err(|error| io_error("a temporary folder", &error))?;
    let (source, target) = (dir.path().join("kernel.ptx"), dir.path().join("kernel.cubin"));
    std::fs::write(&source, ptx).map_err(|error| io_error("kernel.ptx", &error))?;
    let mut command = Command::new(tool);
    command.args(["-v", "-lineinfo", "-O3", "-arch", arch, "-o"]).arg(&target).arg(&source);
    let log = run(command, &source)?;
    let cubin = std::fs::read(&target).map_err(|error| io_error("kernel.cubin", &error))?;
    Ok(read_log(cubin, log))
}

/// The instructions in machine code, one a line.
///
/// # Errors
/// If `nvdisasm` is not there.
pub fn disassemble(cubin: &[u8]) -> Result<String, Error> {
    let tool = find_tool("nvdisasm").ok_or_else(|| {
        Error::device(
            "sass: NVIDIA's `nvdisasm` was not found; it is looked for in PATH and beside \
             GENESIS_PTXAS",
        )
    })?;
    let file = tempfile::NamedTempFile::with_suffix(".cubin")
        .map_err(|error| io_error("a temporary file", &error))?;
    std::fs::write(file.path(), cubin).map_err(|error| io_error("kernel.cubin", &error))?;
    let mut command = Command::new(tool);
    command.arg("-c").arg(file.path());
    run(command, file.path())
}

/// Runs a tool and returns all it printed.
fn run(mut command: Command, source: &Path) -> Result<String, Error> {
    let output = command
        .output()
        .map_err(|error| io_error(&command.get_program().to_string_lossy(), &error))?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    let text = text.replace(&*source.to_string_lossy(), "kernel.ptx");
    if output.status.success() { Ok(text) } else { Err(Error::bug(text.trim())) }
}

fn io_error(what: &str, error: &std::io::Error) -> Error {
    Error::device(format!("{what}: {error}"))
}

fn read_log(cubin: Vec<u8>, log: String) -> Assembled {
    let number = |what: &str| number_before(&log, what).unwrap_or(0);
    Assembled {
        registers: number(" registers"),
        shared_bytes: number(" bytes smem"),
        stack_bytes: number(" bytes stack frame"),
        spill_store_bytes: number(" bytes spill stores"),
        spill_load_bytes: number(" bytes spill loads"),
        cubin,
        log,
    }
}

/// The number that stands before a text.
fn number_before(log: &str, text: &str) -> Option<u32> {
    let head = &log[..log.find(text)?];
    let digits = head.len() - head.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    head[head.len() - digits..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_assembler_says() {
        let log = "ptxas info    : Compiling entry function 'softmax' for 'sm_90a'\n\
                   ptxas info    : Function properties for softmax\n    \
                   16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\n\
                   ptxas info    : Used 38 registers, used 1 barriers, 128 bytes smem\n";
        let assembled = read_log(vec![1], log.to_owned());
        assert_eq!((assembled.registers, assembled.shared_bytes), (38, 128));
        assert_eq!(
            (assembled.stack_bytes, assembled.spill_store_bytes, assembled.spill_load_bytes),
            (16, 8, 4)
        );
        assert_eq!(read_log(Vec::new(), String::new()), Assembled::default());
    }

    #[test]
    fn a_missing_tool_is_not_found() {
        assert_eq!(find_tool("no-such-tool-of-nvidias"), None);
    }
}
