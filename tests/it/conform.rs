//! The sample suite of PyTorch's answers, where it lies beside the repository.

use std::path::{Path, PathBuf};

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
