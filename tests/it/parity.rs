//! Op parity: thousands of calls whose answers PyTorch gave, by group, on every device.
//!
//! `tests/parity/generate.py` makes the groups; a case that differs is named by its id, and
//! `GENESIS_PARITY=ID cargo test -p tests --test it parity` runs it alone.

use std::collections::BTreeSet;

use tests::conform::parity::Group;

/// The groups, as the binary carries them.
const GROUPS: &[(&str, &[u8])] = &[
    ("math", include_bytes!("../parity/math.gz")),
    ("reduce", include_bytes!("../parity/reduce.gz")),
    ("shape", include_bytes!("../parity/shape.gz")),
    ("index", include_bytes!("../parity/index.gz")),
    ("nn", include_bytes!("../parity/nn.gz")),
    ("special", include_bytes!("../parity/special.gz")),
    ("vision", include_bytes!("../parity/vision.gz")),
];

/// Ops that no row of tests/src/conform covers, or not with every keyword: docs/pytorch.md says why.
const UNSUPPORTED: &[&str] = &[
    // Nothing scales gradients by frequency.
    "nn.functional.embedding",
];

/// Where a case differs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    Everywhere,
    /// Where GPUs compute a function that is rounded to 16 bits by fewer instructions.
    Gpus,
}
use Where::{Everywhere, Gpus};

/// Cases that differ from PyTorch on purpose, where, and why; one that does not is a mistake of this list.
const DIFFERENT: &[(&str, Where, &str)] = &[
    // (1 - x) x is kept from 0 by 1e-12, which is 0 in f16: 0 / 0. The gradient is that of f32.
    ("special/F.binary_cross_entropy.3", Everywhere, "PyTorch's gradient is NaN in f16"),
    // PyTorch's loops without vectors, its f64 and its GPUs give infinity as well.
    ("special/F.gelu.0", Everywhere, "PyTorch's f32 vectors give NaN for infinity"),
    ("special/F.gelu.2", Everywhere, "PyTorch's bf16 vectors give NaN for infinity"),
    // genesis-kernel/src/passes/math: the limit, and results that would not be normal in f32.
    ("special/F.gelu.3", Gpus, "0 for -infinity, where PyTorch multiplies infinity by 0"),
];

/// Every group with its name.
pub(crate) fn groups() -> impl Iterator<Item = (&'static str, Group)> {
    GROUPS.iter().map(|(name, _)| (*name, group(name)))
}

fn group(name: &str) -> Group {
    let (_, file) = GROUPS.iter().find(|(known, _)| *known == name).expect("a group of the list");
    Group::read(file).expect("a file that generate.py wrote")
}

/// The id of the case of a line of a report, with which it begins.
fn id_of(problem: &str) -> &str {
    problem.split(' ').next().unwrap_or_default()
}

/// Of how many cases one runs: all, unless the environment says otherwise.
const EVERY: &str = "GENESIS_PARITY_EVERY";

fn check(name: &'static str) {
    let filter = std::env::var("GENESIS_PARITY").unwrap_or_default();
    let every = std::env::var(EVERY).ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let mut group = group(name);
    let mut number = 0;
    group.cases.retain(|_| {
        number += 1;
        number % every == 0
    });
    let is_there = |id: &str| group.cases.iter().any(|case| case.id == id);
    for device in crate::gpu::devices("op parity") {
        let report = group.run(device, &filter);
        println!(
            "{name} on {device}: {} right, {} wrong, {} unsupported {:?}",
            report.right,
            report.wrong.len(),
            report.unsupported,
            report.missing
        );
        report.wrong.iter().for_each(|problem| println!("  {problem}"));
        let is_here = |place: Where| place == Everywhere || device.is_cuda();
        let different = DIFFERENT.iter().filter(|(_, place, _)| is_here(*place));
        let different: Vec<&str> = different.map(|(id, ..)| *id).collect();
        let is_new = |problem: &&String| !different.contains(&id_of(problem));
        let wrong: Vec<_> = report.wrong.iter().filter(is_new).collect();
        assert!(wrong.is_empty(), "{} cases are wrong: {wrong:#?}", wrong.len());
        let of_group = |id: &&&str| is_there(id) && id.contains(&filter);
        let listed = different.iter().filter(of_group);
        let right: Vec<_> =
            listed.filter(|id| !report.wrong.iter().any(|line| id_of(line) == **id)).collect();
        assert!(right.is_empty(), "{right:?} are right, and stand in the list of what differs");
        let missing = report.missing.iter().map(String::as_str);
        let new: Vec<_> = missing.filter(|op| !UNSUPPORTED.contains(op)).collect();
        assert!(new.is_empty(), "{new:?} have no row in tests/src/conform");
    }
}

#[test]
fn elementwise_ops_agree_with_pytorch() {
    check("math");
}

#[test]
fn reductions_and_products_agree_with_pytorch() {
    check("reduce");
}

#[test]
fn shapes_agree_with_pytorch() {
    check("shape");
}

#[test]
fn indexing_and_order_agree_with_pytorch() {
    check("index");
}

#[test]
fn functions_of_networks_agree_with_pytorch() {
    check("nn");
}

#[test]
fn special_values_agree_with_pytorch() {
    check("special");
}

#[test]
fn grids_bags_and_margins_agree_with_pytorch() {
    check("vision");
}

/// Every op stays inside its memory, and none of its programs race: a sample of the cases through the
/// interpreter, which must raise no alarm. `GENESIS_CHECK=bounds` runs all of them so.
#[test]
fn a_sample_raises_no_alarm_in_the_interpreter() {
    let child = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["parity::", "--test-threads", "1"])
        .args(["--skip", "there_are_enough", "--skip", "no_alarm"])
        .envs([("GENESIS_CHECK", "bounds"), ("GENESIS_DEVICE", "cpu"), (EVERY, "23")])
        .output()
        .expect("it starts");
    let text = [&child.stdout[..], &child.stderr[..]].map(String::from_utf8_lossy).concat();
    assert!(child.status.success(), "{text}");
    assert!(text.contains("7 passed"), "{text}");
}

#[test]
fn there_are_enough_cases() {
    let mut ids = BTreeSet::new();
    for (name, _) in GROUPS {
        let cases = group(name).cases;
        ids.extend(
            cases.into_iter().filter(|case| !UNSUPPORTED.contains(&case.op())).map(|case| case.id),
        );
    }
    println!("{} cases", ids.len());
    assert!(ids.len() >= 6000, "{} cases", ids.len());
}
