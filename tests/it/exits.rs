//! Processes that end while their threads compile and compute.
//!
//! `exit` runs the destructors of LLVM's statics. A thread that is inside LLVM at that moment must not
//! crash the process: its exit status is the one that was asked for.
//!
//! `GENESIS_TEST_EXITS=1000 cargo test -p tests exits` starts more of them.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use genesis::data::SampleRng;
use genesis::{DType, Device, Result, Tensor};
use genesis_kernel::inspect::{Emit, InspectRequest, inspect};
use genesis_kernel::target::Target;

use crate::assemble::{dtypes, usual};

/// How a child ends and what its threads do meanwhile; set for children only.
const CHILD: &str = "GENESIS_TEST_EXITS_BY";

/// The status of a child that ends by itself.
const STATUS: i32 = 7;

/// What a thread does until its process is gone.
fn work(kind: &str, number: u64) -> Result<()> {
    match kind {
        "compile" => compile(number),
        "launch" => launch(number),
        _ => compute(number),
    }
}

/// Compiles kernels for a GPU and for this processor.
fn compile(number: u64) -> Result<()> {
    let (mut rng, all) = (SampleRng::new(number), kernels::all());
    loop {
        let kernel = all[rng.below(all.len())];
        let (target, emit) = match rng.below(2) {
            0 => (Target::sm_90a(), Emit::Ptx),
            _ => (Target::host(), Emit::Asm),
        };
        let mut request =
            InspectRequest::new(kernel, target, emit).dtypes(&dtypes(kernel, DType::F32));
        for name in kernel.ast.consts {
            request = request.set(name, usual(name));
        }
        // A kernel that refuses these constants is as good as another.
        let _ = inspect(kernel, &request);
    }
}

/// Launches kernels that were not compiled before, so that they are, and linked.
fn launch(number: u64) -> Result<()> {
    let mut rng = SampleRng::new(number);
    loop {
        let shape = [1 + rng.below(40), 1 + rng.below(3000)];
        let x = Tensor::ones(&shape, Device::Cpu)?;
        let y = match rng.below(5) {
            0 => x.softmax(-1)?,
            1 => x.exp()?.sum_dims(&[0], false)?,
            2 => x.cumsum(1)?,
            3 => x.to_dtype(DType::BF16)?.tanh()?,
            _ => x.sort(1, false)?.0,
        };
        drop(y);
    }
}

/// Computes what was compiled before.
fn compute(_: u64) -> Result<()> {
    let x = Tensor::ones(&[256, 256], Device::Cpu)?;
    loop {
        x.matmul(&x)?.relu()?.add(&x)?.softmax(-1)?.sum()?.item()?;
    }
}

/// The process that ends while its threads work; no test of its own.
#[test]
fn child_that_exits() {
    let Ok(how) = std::env::var(CHILD) else { return };
    let words: Vec<&str> = how.split(' ').collect();
    let [by, kind, micros] = words[..] else { panic!("{how} is not BY KIND MICROS") };
    for number in 0..3 {
        let kind = kind.to_owned();
        std::thread::spawn(move || work(&kind, number));
    }
    std::thread::sleep(Duration::from_micros(micros.parse().expect("a number")));
    if by == "exit" {
        std::process::exit(STATUS);
    }
}

/// How many processes end in one way.
fn rounds() -> usize {
    std::env::var("GENESIS_TEST_EXITS").ok().and_then(|n| n.parse().ok()).unwrap_or(8)
}

#[test]
fn a_process_may_end_while_its_threads_work() {
    let program = std::env::current_exe().expect("this program has a path");
    let mut rng = SampleRng::new(std::process::id().into());
    let mut wrong = Vec::new();
    let mut all = 0;
    for _ in 0..rounds() {
        for (by, kind) in [
            ("exit", "compile"),
            ("exit", "launch"),
            ("exit", "compute"),
            ("return", "compile"),
            ("return", "launch"),
            ("return", "compute"),
        ] {
            // Some end before their threads have begun.
            let latest = [600, 150_000][rng.below(2)];
            let how = format!("{by} {kind} {}", rng.below(latest));
            let mut command = Command::new(&program);
            command.args(["--exact", "exits::child_that_exits", "--nocapture"]);
            command.env(CHILD, &how).env("GENESIS_CACHE_DIR", "");
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().expect("a process starts");
            let started = Instant::now();
            let status = loop {
                if let Some(status) = child.try_wait().expect("the child is ours") {
                    break status.to_string();
                }
                if started.elapsed() > Duration::from_secs(60) {
                    child.kill().expect("the child is ours");
                    child.wait().expect("the child is ours");
                    break "no end in 60 s".to_owned();
                }
                std::thread::sleep(Duration::from_millis(1));
            };
            let want = if by == "exit" { STATUS } else { 0 };
            if status != format!("exit status: {want}") {
                wrong.push(format!("{how}: {status}"));
            }
            all += 1;
        }
    }
    assert!(wrong.is_empty(), "{} of {all} processes crashed: {wrong:#?}", wrong.len());
}
