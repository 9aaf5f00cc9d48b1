//! Hostile calls and damaged files: a minute of them, and that no method of a tensor is left out.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tests::abuse::{self, Plan};

/// Methods that take nothing that could be hostile, or need a GPU.
const LEFT_OUT: [(&str, &str); 28] = [
    ("shape", "a getter"),
    ("strides", "a getter"),
    ("layout", "a getter"),
    ("dtype", "a getter"),
    ("tensor_type", "a getter"),
    ("device", "a getter"),
    ("rank", "a getter"),
    ("numel", "a getter"),
    ("is_contiguous", "a getter"),
    ("is_same", "a getter"),
    ("is_pinned", "a getter"),
    ("version", "a getter"),
    ("stream", "a getter"),
    ("detach", "called on results"),
    ("record_stream", "takes a stream of a GPU"),
    ("requires_grad", "a getter"),
    ("requires_grad_", "called on arguments"),
    ("is_leaf", "a getter"),
    ("is_inference", "a getter"),
    ("grad", "a getter"),
    ("set_grad", "takes any tensor, answers nothing"),
    ("zero_grad", "takes nothing"),
    ("detach_", "takes nothing"),
    ("retain_grad", "takes nothing"),
    ("retains_grad", "a getter"),
    ("register_hook", "takes a function"),
    ("register_post_accumulate_grad_hook", "takes a function"),
    ("backward_with", "the row `backward` goes there"),
];

#[test]
fn every_method_of_a_tensor_is_abused() -> Result<()> {
    let names: BTreeSet<String> =
        ["tensor", "ops", "autograd"].into_iter().flat_map(crate::methods::of_tensors).collect();
    ensure!(names.len() > 400, "only {} methods are found in the sources", names.len());
    let rows: BTreeSet<String> = abuse::rows().iter().map(|row| row.name.to_owned()).collect();
    let is_left_out = |name: &String| LEFT_OUT.iter().any(|left| left.0 == name);
    let missing: Vec<&String> =
        names.iter().filter(|n| !rows.contains(*n) && !is_left_out(n)).collect();
    ensure!(missing.is_empty(), "not in tests/src/abuse/table.rs: {missing:?}");
    Ok(())
}

/// Public names of modules that are not called with hostile arguments: traits, what a call gives, getters and
/// switches, what needs files of an installation or trains for minutes.
const PARTS_LEFT_OUT: &str = "
    AdaptiveAvgPoolNd AdaptiveMaxPoolNd AvgPoolNd BatchNormNd Call ConvNd ConvTransposeNd Cut DropoutNd ForwardHandle
    GruGates InstanceNormNd Layer LoadReport LstmGates MaxPoolNd Mismatch PackedSequence PadNd Pads Part
    RecurrentCell quantized_numbers RnnGates Shard Summary SummaryRow Training Visitor VisitorMut Walk count_flops module_path observe watch
    Batch Member Setting Epoch FashionMnist ImageFolder IterableDataset Map Sample Subset Tensors Best
    CheckpointInfo Difference Mapped OnSaveError Resumed OPS Precision autocast_dtype is_autocast_enabled
    without_autocast GgmlType GgufArray GgufTensor GgufType GgufValue Stored shard_names Anomaly Function HookHandle ModeGuard SavedTensors enable_grad is_grad_enabled
    is_inference_mode_enabled no_grad set_grad_enabled default_generator manual_seed thread_rng Lambda
";

#[test]
fn every_part_of_training_is_abused() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let words = |text: &str| -> BTreeSet<String> {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        text.split(|c| !is_part(c)).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let mut known = words(PARTS_LEFT_OUT);
    known.extend(words(&fs::read_to_string(root.join("src/mutate.rs"))?));
    for entry in fs::read_dir(root.join("src/abuse"))? {
        known.extend(words(&fs::read_to_string(entry?.path())?));
    }
    let mut names = BTreeSet::new();
    for module in ["nn", "optim", "optim/schedule", "data", "io", "amp", "autograd", "random"] {
        let text = fs::read_to_string(root.join(format!("../genesis/src/{module}/mod.rs")))?;
        for item in text.split("\npub ").skip(1) {
            if let Some(used) = item.strip_prefix("use ").and_then(|item| item.split(';').next()) {
                let list = used.rsplit("::").next().unwrap_or_default();
                names.extend(words(list.split(" as ").last().unwrap_or_default()));
            } else if let Some(function) = item.strip_prefix("fn ") {
                names.extend(function.split(['(', '<']).next().map(str::to_owned));
            }
        }
    }
    ensure!(names.len() > 250, "only {} names are found in the sources", names.len());
    let missing: Vec<&String> = names.difference(&known).collect();
    ensure!(missing.is_empty(), "not in tests/src/abuse: {missing:?}");
    Ok(())
}

#[test]
fn no_numbers_are_computed_that_memory_does_not_hold() -> Result<()> {
    for name in ["linspace", "logspace", "arange"] {
        let report = abuse::run(&Plan { calls: 400, only: Some(name.to_owned()), ..plan() })?;
        ensure!(report.failures.is_empty(), "{name}: {}", report.failures.join("\n"));
    }
    Ok(())
}

#[test]
fn calls_take_no_more_memory_than_they_need() -> Result<()> {
    // A mask of 100 axes, and means of integers of which many come of few.
    for (name, from) in
        [("masked_select", 737_409), ("adaptive_avg_pool", 4_017_443), ("graph", 3_009_839)]
    {
        let report = abuse::run(&Plan { calls: 1, from, only: Some(name.to_owned()), ..plan() })?;
        ensure!(report.failures.is_empty(), "{name}: {}", report.failures.join("\n"));
    }
    Ok(())
}

/// Nothing, as long as it takes.
fn plan() -> Plan {
    Plan {
        program: env!("CARGO_BIN_EXE_genesis-abuse").into(),
        calls: 0,
        files: 0,
        from: 0,
        jobs: None,
        // Other tests run beside this one, so that more than 10 s of the clock may be 10 s of work.
        patience: Duration::from_secs(60),
        longest: Duration::from_secs(1 << 30),
        only: None,
    }
}

#[test]
fn hostile_calls_and_damaged_files_are_errors() -> Result<()> {
    // As in `calls:1000000,files:1000000`; all of it then, however long it takes.
    let wanted = std::env::var("GENESIS_TEST_ABUSE").ok();
    let count = |name: &str| -> Result<u64> {
        let Some(wanted) = &wanted else { return Ok(1 << 40) };
        let part = wanted.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix(':'));
        part.map_or(Ok(0), str::parse).with_context(|| format!("GENESIS_TEST_ABUSE={wanted}"))
    };
    let report = abuse::run(&Plan {
        calls: count("calls")?,
        files: count("files")?,
        patience: Duration::from_secs(if wanted.is_some() { 10 } else { 60 }),
        longest: Duration::from_secs(if wanted.is_some() { 1 << 30 } else { 50 }),
        ..plan()
    })?;
    println!("{:?}", report.done);
    ensure!(report.done.values().all(|&n| n > 100), "hardly anything was done: {:?}", report.done);
    let failures = report.failures.join("\ngenesis-abuse ");
    ensure!(report.failures.is_empty(), "genesis-abuse {failures}");
    Ok(())
}
