//! Subcommands: arguments in, text out. All work is done by the library.
//!
//! Errors go to stderr as one message. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 stopped by
//! Ctrl-C and 143 by SIGTERM after saving, 141 nobody reads stdout any more.

mod answer;
mod bench;
mod chat;
mod ckpt;
mod convert;
mod doctor;
mod failure;
mod generate;
mod inspect;
mod kernels;
mod language;
mod mem;
mod model;
mod output;
mod plan;
mod progress;
mod rates;
mod run;
mod sampling;
mod serve;
mod signals;
mod tokenizer;
mod train;
mod tune;
mod values;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::failure::{Failure, Outcome};
use self::output::{say, warn};

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
    /// Fine-tune a published language model on conversations.
    Sft(Box<language::Sft>),
    /// Train a language model on texts.
    Pretrain(Box<language::Pretrain>),
    /// Teach a language model which of two answers is the better.
    Dpo(Box<language::Dpo>),
    /// Train a tokenizer.
    Tokenizer(tokenizer::Args),
    /// Talk with a language model.
    Chat(chat::Args),
    /// Answer a file of prompts, or time a language model.
    Generate(generate::Args),
    /// Serve a language model to OpenAI's clients.
    Serve(serve::Args),
    /// Start a program as several ranks on this machine, a GPU each.
    Run(run::Args),
    /// Say what training on many GPUs will take: memory, time, communication.
    Plan(Box<plan::Args>),
    /// Look at snapshots of memory.
    Mem(mem::Args),
    /// List, check and compare checkpoints.
    Ckpt(ckpt::Args),
    /// Write a language model as a GGUF file.
    Convert(convert::Args),
    /// Find the fastest configuration of a kernel.
    Tune(tune::Args),
    /// Time Genesis beside PyTorch, cuBLAS and Triton.
    Bench(bench::Args),
}

impl Failure {
    /// Says what there is to say, and gives the exit code.
    fn tell(&self) -> u8 {
        match self {
            Failure::Message(message) => {
                let prefix = if message.starts_with("error") { "" } else { "error: " };
                warn(format_args!("{prefix}{message}"));
                1
            }
            // As shells say it of a program that SIGPIPE ended.
            Failure::Closed => 141,
            &Failure::Stopped(status) => status,
        }
    }
}

/// Parses the command line and does what it says.
pub(crate) fn run() -> ExitCode {
    let outcome = match Cli::try_parse() {
        Ok(cli) => dispatch(&cli.command),
        // Help and version are what was asked for.
        Err(error) if !error.use_stderr() => say(help(&error.render()).trim_end()),
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(2);
        }
    };
    outcome.map_or_else(|failure| ExitCode::from(failure.tell()), |()| ExitCode::SUCCESS)
}

/// Help as text, with emphasis where stdout is a terminal.
fn help(text: &clap::builder::StyledStr) -> String {
    match std::io::stdout().is_terminal() {
        true => text.ansi().to_string(),
        false => text.to_string(),
    }
}

fn dispatch(command: &Command) -> Outcome {
    match command {
        Command::Doctor(args) => doctor::run(args),
        Command::Kernels(args) => kernels::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Train(args) => train::run(args),
        Command::Sft(args) => language::sft(args),
        Command::Pretrain(args) => language::pretrain(args),
        Command::Dpo(args) => language::dpo(args),
        Command::Tokenizer(args) => tokenizer::run(args),
        Command::Chat(args) => chat::run(args),
        Command::Generate(args) => generate::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Run(args) => run::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Mem(args) => mem::run(args),
        Command::Ckpt(args) => ckpt::run(args),
        Command::Convert(args) => convert::run(args),
        Command::Tune(args) => tune::run(args),
        Command::Bench(args) => bench::run(args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn flags_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }
}
