//! `genesis mem`

use std::path::PathBuf;

use genesis::memory::SnapshotFile;

use super::{Outcome, say};

/// Look at snapshots of memory.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Make a page of a snapshot that `genesis::memory::dump_snapshot` wrote.
    View {
        /// The snapshot.
        #[arg(value_name = "SNAPSHOT.json")]
        snapshot: PathBuf,
        /// The page; beside the snapshot without it.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

pub(super) fn run(args: &Args) -> Outcome {
    let Action::View { snapshot, output } = &args.action;
    let output = output.clone().unwrap_or_else(|| snapshot.with_extension("html"));
    if output == *snapshot {
        let message = format!("{} is the snapshot; name another --output", output.display());
        return Err(super::Failure::Message(message));
    }
    let page = SnapshotFile::read(snapshot)?.to_html();
    std::fs::write(&output, page)
        .map_err(|error| super::Failure::Message(format!("{}: {error}", output.display())))?;
    say(output.display())
}
