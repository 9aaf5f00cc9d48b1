//! `genesis bench`: starts the benchmark, a program of its own beside this one, so that what users
//! build carries no benchmarks.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use super::{Failure, Outcome};

/// Time Genesis beside PyTorch, cuBLAS and Triton.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(super) struct Args {
    /// What the benchmark takes, such as --case 'softmax/*' --json; --help lists it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// The names that the program goes by: as it is shipped, and as cargo builds it.
const NAMES: [&str; 2] = ["bench", "benches"];

pub(super) fn run(args: &Args) -> Outcome {
    let Some(program) = find() else {
        return Err(Failure::Message(
            "the benchmark is not beside this program; build it: cargo build --release -p benches"
                .to_owned(),
        ));
    };
    let status = Command::new(&program).args(&args.arguments).status()?;
    match status.code() {
        Some(0) => Ok(()),
        // It has said why.
        Some(code) => Err(Failure::Stopped(u8::try_from(code).unwrap_or(1))),
        None => Err(Failure::Message(format!("{} ended with {status}", program.display()))),
    }
}

/// The benchmark beside this program.
fn find() -> Option<PathBuf> {
    let folder = std::env::current_exe().ok()?.parent()?.to_owned();
    NAMES.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}
