//! `genesis kernels`

use serde_json::json;

use super::{Outcome, say};

/// List the kernels of the framework.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Outcome {
    let all = kernels::all();
    if args.json {
        let rows: Vec<serde_json::Value> = all
            .iter()
            .map(|kernel| {
                let ast = kernel.ast;
                let dtypes: Vec<&str> = ast.dtypes.iter().map(|d| d.name).collect();
                json!({
                    "name": ast.name,
                    "module": ast.module,
                    "dtypes": dtypes,
                    "consts": ast.consts,
                    "doc": ast.doc.trim(),
                })
            })
            .collect();
        return say(serde_json::Value::from(rows));
    }
    let width = all.iter().map(|kernel| kernel.name().len()).max().unwrap_or(0);
    for kernel in all {
        let summary = kernel.ast.doc.trim().lines().next().unwrap_or("").trim();
        say(format_args!("{:width$}  {summary}", kernel.name()))?;
    }
    say("\nSee one with `genesis inspect NAME --emit ptx`.")
}
