//! Random programs on the interpreter, the CPU, emulated GPUs and a real one: the same bits everywhere.
//!
//! A run of any length, from any seed, which a failure names:
//! `GENESIS_TEST_PROGRAMS=300000 GENESIS_TEST_SEED=0 GENESIS_TEST_THREADS=8 cargo test --release -p tests
//! --test it differential:: -- --nocapture`. Half of the programs are tile IR, half are kernels in the
//! language's syntax. `GENESIS_TEST_SECONDS` ends it early, and the report says how many programs ran.
//!
//! Those kernels are trees, and `#[kernel]` never reads them: a hundred are in `written.in` as text that it
//! does read, and must give the same tile IR. `UPDATE_EXPECT=1 cargo test -p tests written_kernels` writes
//! that file anew, where the generator has changed.

use std::time::Duration;

use genesis::Device;
use genesis_kernel::GpuTarget;
use genesis_kernel::differential::{Campaign, Machine, Report, Source, is_as_written};

use crate::gpu::gpu;

/// Random kernels as the macro reads them.
#[allow(unused, unused_braces, unused_parens, clippy::all, reason = "nobody wrote them")]
mod written {
    use genesis_kernel::KernelDef;
    use genesis_kernel::prelude::*;

    include!("written.in");
}

/// Programs of each kind where nothing else is asked for.
const PROGRAMS: u64 = 150;

/// The seeds of `written.in`.
const WRITTEN: std::ops::Range<u64> = 0..100;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Half of the programs of this run as tile IR, half as kernels.
fn run(machines: &[Machine]) -> [Report; 2] {
    let first = number("GENESIS_TEST_SEED").unwrap_or(0);
    let count = number("GENESIS_TEST_PROGRAMS").map_or(PROGRAMS, |n| n.div_ceil(2));
    let threads = number("GENESIS_TEST_THREADS").map(|n| n as usize);
    let all = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = threads.unwrap_or_else(all);
    let limit = number("GENESIS_TEST_SECONDS").map(|seconds| Duration::from_secs(seconds) / 2);
    [Source::TileIr, Source::Kernels].map(|source| {
        let (seeds, machines) = (first..first + count, machines.to_vec());
        let report = Campaign { source, seeds, machines, threads, limit }.run();
        println!("{source:?}: {report}");
        report
    })
}

fn check(machines: &[Machine]) {
    for report in run(machines) {
        assert!(report.failures.is_empty(), "{report}");
        // A generator that the front end refuses, or a compiler that refuses most, shows nothing.
        assert!(report.valid * 10 >= report.programs * 9, "{report}");
        let passed = report.counts.get("PASS").copied().unwrap_or(0);
        assert!(passed * 10 >= report.valid * machines.len() as u64 * 8, "{report}");
    }
}

#[test]
fn random_programs_agree_on_the_cpu_and_emulated_gpus() {
    let targets = [GpuTarget::SM_80, GpuTarget::SM_90A, GpuTarget::SM_120A];
    check(&[&[Machine::Cpu][..], &targets.map(Machine::Emulated)].concat());
}

#[test]
fn random_programs_agree_on_the_gpu() {
    let Some(device) = gpu("random programs") else { return };
    assert!(matches!(device, Device::Cuda(_)));
    check(&[Machine::Device(device)]);
}

#[test]
fn written_kernels_are_those_of_their_seeds() {
    let text = genesis_kernel::differential::written(WRITTEN);
    expect_test::expect_file!["written.in"].assert_eq(&text);
}

#[test]
fn the_macro_reads_what_the_generator_means() {
    assert!(written::KERNELS.len() >= 80);
    for (seed, kernel) in written::KERNELS {
        is_as_written(*seed, kernel).unwrap_or_else(|error| panic!("{error}"));
    }
}
