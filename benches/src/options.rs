//! The command line.

use std::path::PathBuf;

use clap::Parser;
use genesis::Device;

/// Time Genesis beside its peers.
#[derive(Parser, Clone, Debug)]
#[command(name = "bench")]
pub(crate) struct Options {
    /// Only cases that match, such as 'softmax/*'; a name not in the table is run too. With `ops` also
    /// what a name contains. May be given again.
    #[arg(long = "case", value_name = "GLOB")]
    pub(crate) cases: Vec<String>,
    /// `ops` for every op of the op table, by what it says of itself; `train` for training steps of language
    /// models; else only cases whose name contains this.
    #[arg(value_name = "FILTER")]
    pub(crate) filter: Option<String>,
    /// Print JSON lines instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Append a line of JSON for each case to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Half the time for each case; of the op table fewer shapes too.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Start no case after so many seconds.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) budget: Option<f64>,
    /// Give up on a case after so many seconds and go on with the next.
    #[arg(long, value_name = "SECONDS", default_value_t = 100.0)]
    pub(crate) limit: f64,
    /// Start after this case.
    #[arg(long, value_name = "CASE")]
    pub(crate) after: Option<String>,
    /// cpu, cuda or cuda:1; a GPU where there is one.
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// The peer's script, in place of the one in this program.
    #[arg(long, value_name = "FILE")]
    pub(crate) peer: Option<PathBuf>,
    /// Time without peers.
    #[arg(long)]
    pub(crate) no_peer: bool,
    /// Print the names of the cases and stop.
    #[arg(long)]
    pub(crate) list: bool,
    /// With `ops`: compare the result of each row's call with PyTorch's on small inputs, and stop.
    #[arg(long)]
    pub(crate) check: bool,
    /// With `train`: also print what the kernels of a step are and take.
    #[arg(long)]
    pub(crate) kernels: bool,
    /// Print what the rows of this file, which `ops` wrote, say together, and stop.
    #[arg(long, value_name = "FILE")]
    pub(crate) summary: Option<PathBuf>,
}

impl Options {
    /// Whether the op table is swept.
    pub(crate) fn sweeps(&self) -> bool {
        self.filter.as_deref() == Some("ops")
    }

    /// Whether training steps are timed.
    pub(crate) fn trains(&self) -> bool {
        self.filter.as_deref() == Some("train")
    }

    /// The device that is asked for.
    pub(crate) fn device(&self) -> anyhow::Result<Device> {
        match &self.device {
            Some(name) => {
                Device::from_name(name).ok_or_else(|| anyhow::anyhow!("no device is called {name}"))
            }
            None => Ok(Device::default()),
        }
    }
}
