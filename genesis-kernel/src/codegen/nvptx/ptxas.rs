//! NVIDIA's assembler, where it is installed: what PTX costs in registers and memory.
//!
//! Nothing needs it to run kernels, since the driver assembles PTX too. It says without a GPU whether
//! the PTX is legal and what it uses, so tests and `Compiled::resources` ask it. It is looked for at
//! `GENESIS_PTXAS`, in `.tools/` of the working directory or one of its parents, and in `PATH`;
//! `scripts/ptxas.sh` installs it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

/// What a kernel uses once assembled.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Assembled {
    /// Registers of one thread.
    pub registers: u32,
    /// Bytes stored by one thread because registers ran out.
    pub spill_stores: u32,
    /// Bytes loaded back by one thread.
    pub spill_loads: u32,
    /// Bytes of local memory of one thread.
    pub stack_bytes: u32,
    /// Bytes of static shared memory of one block; what is asked for at launch is not in it.
    pub shared_bytes: u32,
    /// What the assembler warns about.
    pub warnings: Vec<String>,
    /// The machine code.
    pub cubin: Vec<u8>,
}

/// The assembler's path, if it is installed.
pub fn find() -> Option<PathBuf> {
    find_tool("ptxas")
}

/// The assembler for a unit test. Without one the test says so, past the harness, or fails where
/// `GENESIS_TEST_REQUIRE` names `ptxas`.
#[cfg(test)]
pub(crate) fn find_or_skip() -> Option<PathBuf> {
    use std::io::Write;
    static SAID: std::sync::Once = std::sync::Once::new();
    let found = find();
    if found.is_none() {
        let is_required = crate::knobs::tests_require("ptxas");
        assert!(
            !is_required,
            "this test needs ptxas, which is required: scripts/ptxas.sh installs it"
        );
        SAID.call_once(|| {
            let what = "the compiler's unit tests assemble nothing (scripts/ptxas.sh installs it)";
            // Not `eprintln!`, which the harness takes.
            let _ = writeln!(std::io::stderr(), "skipped: no ptxas: {what}");
        });
    }
    found
}

/// The disassembler's path, if it is installed.
pub fn find_nvdisasm() -> Option<PathBuf> {
    find_tool("nvdisasm")
}

/// What to tell whoever needs a tool that [`find_tool`] does not find.
pub fn missing(name: &str) -> String {
    format!(
        "NVIDIA's `{name}` was not found beside GENESIS_PTXAS, in .tools here or above, or in PATH; \
         scripts/ptxas.sh of Genesis' repository installs it"
    )
}

/// Where a tool of NVIDIA's is, if it is installed.
pub fn find_tool(name: &str) -> Option<PathBuf> {
    let given = crate::knobs::get().ptxas.as_ref();
    if let Some(ptxas) = given.filter(|ptxas| !ptxas.is_file()) {
        let why = format!("{} is no file; looked for in PATH", ptxas.display());
        crate::knobs::warn_once("GENESIS_PTXAS", why);
    }
    let beside = given.map(|ptxas| ptxas.with_file_name(name));
    let working = std::env::current_dir().unwrap_or_default();
    let local = working.ancestors().map(|dir| dir.join(".tools").join(name));
    let in_path = crate::knobs::search_path().into_iter().map(|dir| dir.join(name));
    beside.into_iter().chain(local).chain(in_path).find(|path| path.is_file())
}

/// Assembles PTX for an architecture such as `sm_90a`.
///
/// # Errors
/// If the assembler can't be run or refuses the PTX; the error has its words.
pub fn assemble(ptxas: &Path, ptx: &str, arch: &str) -> Result<Assembled, Error> {
    let failed = |why: std::io::Error| Error::device(format!("ptxas: {why}"));
    let dir = tempfile::tempdir().map_err(failed)?;
    let (input, output) = (dir.path().join("kernel.ptx"), dir.path().join("kernel.cubin"));
    std::fs::write(&input, ptx).map_err(failed)?;
    let run = Command::new(ptxas)
        .args(["-v", &format!("-arch={arch}"), "-o"])
        .arg(&output)
        .arg(&input)
        .output()
        .map_err(failed)?;
    let log =
        String::from_utf8_lossy(&run.stderr).into_owned() + &String::from_utf8_lossy(&run.stdout);
    if !run.status.success() {
        return Err(Error::bug(format!("ptxas for {arch} refuses the PTX:\n{log}")));
    }
    let cubin = std::fs::read(&output).map_err(failed)?;
    Ok(Assembled { cubin, ..parse(&log) })
}

/// Disassembles machine code.
///
/// # Errors
/// If the disassembler can't be run or refuses the code.
pub fn disassemble(nvdisasm: &Path, cubin: &[u8]) -> Result<String, Error> {
    let failed = |why: std::io::Error| Error::device(format!("nvdisasm: {why}"));
    let dir = tempfile::tempdir().map_err(failed)?;
    let input = dir.path().join("kernel.cubin");
    std::fs::write(&input, cubin).map_err(failed)?;
    let run = Command::new(nvdisasm).args(["-c", "-plr"]).arg(&input).output().map_err(failed)?;
    if !run.status.success() {
        let log = String::from_utf8_lossy(&run.stderr);
        return Err(Error::device(format!("nvdisasm: {log}")));
    }
    Ok(String::from_utf8_lossy(&run.stdout).into_owned())
}

/// Reads the log of `-v`. Numbers of several entry functions add up, but a module has one.
fn parse(log: &str) -> Assembled {
    let mut found = Assembled::default();
    for line in log.lines() {
        if line.contains("warning") || line.contains("(C75") {
            found.warnings.push(line.to_owned());
        }
        found.registers += number_before(line, " registers", "Used ");
        found.stack_bytes += number_before(line, " bytes stack frame", "");
        found.spill_stores += number_before(line, " bytes spill stores", "");
        found.spill_loads += number_before(line, " bytes spill loads", "");
        found.shared_bytes += number_before(line, " bytes smem", "");
    }
    found
}

/// The number that stands before `unit` and after `lead`; 0 where there is none.
fn number_before(line: &str, unit: &str, lead: &str) -> u32 {
    let Some((head, _)) = line.split_once(unit) else { return 0 };
    let digits = head.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or("");
    let led = head[..head.len() - digits.len()].ends_with(lead);
    if led { digits.parse().unwrap_or(0) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_log() {
        let log = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'f' for 'sm_90a'
ptxas info    : Function properties for f
    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 32 bytes smem
ptxas warning : something slow (C7510)
";
        let found = parse(log);
        assert_eq!(found.registers, 168);
        assert_eq!((found.stack_bytes, found.spill_stores, found.spill_loads), (16, 8, 4));
        assert_eq!(found.shared_bytes, 32);
        assert_eq!(found.warnings.len(), 1);
    }

    #[test]
    fn assembles_and_refuses() {
        let Some(ptxas) = find_or_skip() else { return };
        let ptx = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry f() { ret; }\n";
        let found = assemble(&ptxas, ptx, "sm_80").unwrap();
        assert!(!found.cubin.is_empty() && found.warnings.is_empty());
        let refused = assemble(&ptxas, &ptx.replace("ret", "jump"), "sm_80").unwrap_err();
        assert!(refused.to_string().contains("kernel.ptx"));
    }
}
