//! `genesis doctor`

use genesis::Device;
use serde_json::json;

use super::{Outcome, say};

/// Say what this machine has and what Genesis will use.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Outcome {
    let gpus = Device::cuda_count();
    let problem = Device::cuda_problem().map(|error| error.to_string());
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let ptxas = genesis_kernel::inspect::find_tool("ptxas");
    let ptxas = ptxas.map(|path| path.display().to_string());
    if args.json {
        say(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "default_device": Device::default().to_string(),
            "gpus": gpus,
            "cuda_problem": problem,
            "threads": threads,
            "ptxas": ptxas,
        }));
        return Ok(());
    }
    say(format_args!("genesis {}", env!("CARGO_PKG_VERSION")));
    say(format_args!("default device   {}", Device::default()));
    match problem {
        None => say(format_args!("GPUs             {gpus}")),
        Some(problem) => say(format_args!("GPUs             none: {problem}")),
    }
    say(format_args!("CPU threads      {threads}"));
    say(format_args!(
        "ptxas            {}",
        ptxas.as_deref().unwrap_or("none; only `inspect --emit sass` and register counts need it")
    ));
    Ok(())
}
