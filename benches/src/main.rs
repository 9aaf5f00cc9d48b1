//! `bench`: times Genesis beside its peers and prints a table; `genesis bench` starts it.
//!
//! ```text
//! bench                                   every case
//! bench --case 'softmax/*' --case 'add/*' --quick --json
//! bench --case softmax/bf16/100x3000      any size of a known op
//! bench --out benches/results/h200.jsonl  a line of JSON a case, appended
//! bench ops --quick                       every op of the op table beside PyTorch: see `sweep`
//! bench train --kernels                   training steps of language models beside torch.compile: see `train`
//! ```
//!
//! ```text
//! add/bf16/8192x8192    0.09713 ms   4146 GB/s   97%  1 x 1.00  torch 0.10020 ms  ratio 1.032  err 3.8e-3
//! ```
//!
//! Our time, the rate, the share of the roofline, how many kernels ran and how often their IR moves what
//! must be moved, the faster peer, its time over ours, the distance from f64.
//!
//! A case is `<op>/<dtype>/<shape>[/<variant>]`. On a GPU the peers are PyTorch (cuBLAS) and Triton, run
//! by `peer.py` on the same GPU in turns with us; where Python, torch or a GPU is missing the table says
//! so. Every result is checked against f64 before it is timed. `cpu/chain/..` are chains of ops on the CPU
//! beside PyTorch there, whatever the device; what else the host and the CPU back end do, `cargo bench -p
//! benches` times with criterion.

mod cpu;
mod driver;
mod host;
mod kernels;
mod launch;
mod memory;
mod name;
mod ops;
mod options;
mod peer;
mod report;
mod roofline;
mod run;
mod step;
mod sweep;
mod table;
mod timing;
mod train;
mod way;

use std::process::ExitCode;

use clap::Parser;

use options::Options;

fn main() -> ExitCode {
    let options = Options::parse();
    // Not the error's own form, which has a backtrace where the environment asks for one.
    match run::all(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
