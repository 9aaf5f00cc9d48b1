//! `bench [--out FILE] [FILTER]`: times Genesis beside its peers and prints a table.
//!
//! A row is `<op>/<dtype>/<shape>[/<device>]`. On a GPU the peers are PyTorch and Triton, run by
//! `peer.py` on the same machine in the same run; where Python or torch is missing the column says
//! so. On the CPU the peer is a loop written by hand with rayon. Every timed result is checked
//! against f64 first. Each row is also a line of JSON in FILE.

mod cpu;
mod driver;
mod gpu;
mod kernels;
mod launch;
mod peer;
mod report;

use std::path::PathBuf;

use report::Report;

fn main() -> anyhow::Result<()> {
    let mut out: Option<PathBuf> = None;
    let mut filter = String::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--out" => out = args.next().map(PathBuf::from),
            // What `cargo bench` adds.
            "--bench" => {}
            _ => filter = arg,
        }
    }
    let mut report = Report::new(out, filter)?;
    cpu::run(&mut report)?;
    gpu::run(&mut report)?;
    report.finish();
    Ok(())
}
