//! The sample suite of PyTorch's answers, where it lies beside the repository.

use std::fs;
use std::path::{Path, PathBuf};

use genesis::io::save_safetensors;
use genesis::{Device, Tensor};
use tests::conform::mutate::Draw;
use tests::conform::parity::Group;
use tests::conform::{case, judge};

fn suite() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    let shared = root.ancestors().map(|folder| folder.join("shared/conform/sample"));
    shared.into_iter().find(|folder| folder.join("manifest.jsonl").exists())
}

#[test]
fn the_sample_suite_agrees_with_pytorch() {
    let Some(suite) = suite() else { return println!("skipped: no suite") };
    let cases = case::load(&suite).expect("the manifest is there");
    for device in crate::gpu::devices("the sample suite") {
        let verdicts = judge::all(&suite, &cases, device);
        let wrong: Vec<&String> = verdicts.iter().filter_map(|v| v.as_ref().err()).collect();
        println!("{device}: {} of {} right", cases.len() - wrong.len(), cases.len());
        assert!(wrong.is_empty(), "{device}: {wrong:#?}");
    }
}

#[test]
fn mutated_manifests_are_refused_or_run() {
    // Panics are caught and counted; their backtraces would drown the result.
    let seed = std::env::var("GENESIS_FUZZ").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let step = if seed == 1 { 19 } else { 2 };
    let died = |(_, group): (_, Group)| group.survives(Device::Cpu, step, seed);
    let died: Vec<String> = crate::parity::groups().flat_map(died).collect();
    assert!(died.is_empty(), "{} died: {died:#?}", died.len());
}

/// A suite of one case, `x + x`, in a folder of its own.
fn small_suite() -> (tempfile::TempDir, Vec<u8>) {
    let folder = tempfile::tempdir().expect("a folder");
    let line = r#"{"id": "a", "op": "add", "variant": "", "input": {"tensor": "x"},
        "args": [{"tensor": "x"}], "kwargs": {}, "views": {"x": {"shape": [2, 2], "stride": [1, 2]}},
        "out": [{"tensor": "y"}], "truth_f64": [null], "grad": null}"#;
    fs::write(folder.path().join("manifest.jsonl"), line.replace('\n', " ")).expect("written");
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[4]).expect("a tensor");
    let file = folder.path().join("a.safetensors");
    save_safetensors(&file, &[("x".to_owned(), x)].into()).expect("written");
    let bytes = fs::read(file).expect("just written");
    (folder, bytes)
}

#[test]
fn corrupt_files_are_refused_or_read() {
    let (folder, good) = small_suite();
    let case = case::load(folder.path()).expect("a manifest").remove(0);
    assert!(case.run(folder.path(), Device::Cpu).is_ok());
    let mut draw = Draw::new(7);
    for round in 0..400 {
        let mut bytes = good.clone();
        match round % 4 {
            0 => bytes.truncate(draw.below(good.len())),
            1 => bytes[draw.below(8)] = draw.below(256) as u8,
            2 => bytes.extend_from_slice(&good[..draw.below(good.len())]),
            _ => {
                let at = draw.below(good.len());
                bytes[at] ^= 1 << draw.below(8);
            }
        }
        fs::write(folder.path().join("a.safetensors"), bytes).expect("written");
        let outcome = case.run(folder.path(), Device::Cpu);
        assert!(!outcome.is_err_and(|e| e.starts_with("panic")), "round {round}");
    }
}

#[test]
fn lines_that_are_no_case_are_refused_by_number() {
    let folder = tempfile::tempdir().expect("a folder");
    let deep = "[".repeat(100_000);
    let text = format!("{{}}\n\nnonsense\n{{\"id\": \"../up\"}}\n{deep}\n{{\"id\": \"a\"}}\n");
    fs::write(folder.path().join("manifest.jsonl"), text).expect("written");
    let cases = case::load(folder.path()).expect("a manifest");
    let ids: Vec<&str> = cases.iter().map(|case| case.id.as_str()).collect();
    assert_eq!(ids, ["line-1", "line-3", "line-4", "line-5", "a"]);
    for case in &cases {
        let message = case.run(folder.path(), Device::Cpu).expect_err("no case can run");
        let words = ["malformed: ", "unsupported: "];
        assert!(words.iter().any(|word| message.starts_with(word)), "{message}");
    }
}
