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
];

/// Ops that no row of tests/src/conform covers, or not with every keyword: docs/pytorch.md says why.
const UNSUPPORTED: &[&str] = &[
    // `padding_idx` is a field of `nn::Embedding`; nothing scales gradients by frequency.
    "nn.functional.embedding",
    "nn.functional.embedding_bag",
    "nn.functional.local_response_norm",
    "nn.functional.multi_margin_loss",
    "nn.functional.multilabel_soft_margin_loss",
];

/// Ops of which some cases differ from PyTorch, and why.
const DIFFERENT: &[(&str, &str)] = &[
    ("math/logaddexp2", "each operand becomes a float by itself, so that i32 beside f16 gives f32"),
    ("math/pow", "an integer to a negative power is a rounded quotient, where PyTorch refuses"),
    ("special/F.binary_cross_entropy", "PyTorch's 1e-12 is 0 in f16, so that its gradient is NaN"),
    ("special/F.gelu", "PyTorch's vectors give NaN for infinity, where the limit is infinity"),
    ("special/F.hardswish", "PyTorch gives NaN for -infinity, where the limit is 0"),
];

/// Every group with its name.
pub(crate) fn groups() -> impl Iterator<Item = (&'static str, Group)> {
    GROUPS.iter().map(|(name, _)| (*name, group(name)))
}

fn group(name: &str) -> Group {
    let (_, file) = GROUPS.iter().find(|(known, _)| *known == name).expect("a group of the list");
    Group::read(file).expect("a file that generate.py wrote")
}

/// `group/op` of a line of a report, which begins with `group/op.number`.
fn op_of(problem: &str) -> &str {
    let id = problem.split(' ').next().unwrap_or_default();
    id.rsplit_once('.').map_or(id, |(op, _)| op)
}

fn check(name: &'static str) {
    let filter = std::env::var("GENESIS_PARITY").unwrap_or_default();
    let group = group(name);
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
        let is_known = |problem: &&String| !DIFFERENT.iter().any(|(op, _)| *op == op_of(problem));
        let wrong: Vec<_> = report.wrong.iter().filter(is_known).collect();
        assert!(wrong.is_empty(), "{} cases are wrong: {wrong:#?}", wrong.len());
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
