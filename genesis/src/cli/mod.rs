//! Subcommands: arguments in, text out. All work is done by the library.
//!
//! Errors go to stderr as one message. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 stopped by
//! Ctrl-C after saving.

mod bench;
mod ckpt;
mod doctor;
mod inspect;
mod kernels;
mod mem;
mod train;
mod tune;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// GPU kernels and deep learning in Rust.
#[derive(Parser)]
#[command(name = "genesis", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Say what this machine has and what Genesis will use.
    Doctor(doctor::Args),
    /// List the kernels of the framework.
    Kernels(kernels::Args),
    /// Show what a kernel compiles to, and what it needs.
    Inspect(inspect::Args),
    /// Train a model.
    Train(train::Args),
    /// Look at snapshots of memory.
    Mem(mem::Args),
    /// List, check and compare checkpoints.
    Ckpt(ckpt::Args),
    /// Find the fastest configuration of a kernel.
    Tune(tune::Args),
    /// Time Genesis beside PyTorch, cuBLAS and Triton.
    Bench(bench::Args),
}

/// Why a command ended without success.
enum Failure {
    /// A message for stderr.
    Message(String),
    /// Stopped by the user; everything is saved.
    Stopped,
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Message(error.to_string())
    }
}

type Outcome = Result<(), Failure>;

/// Parses the command line and does what it says.
pub(crate) fn run() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Doctor(args) => doctor::run(&args),
        Command::Kernels(args) => kernels::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Mem(args) => mem::run(&args),
        Command::Ckpt(args) => ckpt::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Bench(args) => bench::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Message(message)) => {
            let prefix = if message.starts_with("error") { "" } else { "error: " };
            eprintln!("{prefix}{message}");
            ExitCode::FAILURE
        }
        Err(Failure::Stopped) => ExitCode::from(130),
    }
}

/// Prints a line to stdout; a closed pipe ends the program quietly.
fn say(line: impl std::fmt::Display) {
    use std::io::Write;
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(0);
    }
}
