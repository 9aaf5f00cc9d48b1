//! The program outside the workspace: its manifest resolves without the network, and gives its source
//! the crates it uses. The source itself is a module of these tests.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is in the workspace").to_owned()
}

/// What cargo makes of the example's manifest, in a copy that is pinned to the workspace's versions.
fn metadata() -> anyhow::Result<Value> {
    let folder = tempfile::tempdir()?;
    let source = root().join("docs/example");
    let manifest = std::fs::read_to_string(source.join("Cargo.toml"))?;
    let manifest = manifest.replace("../..", &root().display().to_string());
    std::fs::write(folder.path().join("Cargo.toml"), manifest)?;
    std::fs::create_dir(folder.path().join("src"))?;
    std::fs::copy(source.join("src/main.rs"), folder.path().join("src/main.rs"))?;
    std::fs::copy(root().join("Cargo.lock"), folder.path().join("Cargo.lock"))?;
    let output = Command::new("cargo")
        .args(["metadata", "--offline", "--format-version=1", "--quiet", "--manifest-path"])
        .arg(folder.path().join("Cargo.toml"))
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The crates that a source names in `use` lines.
fn used(source: &str) -> BTreeSet<&str> {
    let lines = source.lines().filter_map(|line| line.trim_start().strip_prefix("use "));
    let roots = lines.filter_map(|path| path.split([':', ';', ' ']).next());
    roots.filter(|name| !["std", "core", "crate", "super", "self"].contains(name)).collect()
}

#[test]
fn the_examples_manifest_and_source_fit() -> anyhow::Result<()> {
    let metadata = metadata()?;
    let nodes = metadata["resolve"]["nodes"].as_array().context("cargo resolves the crates")?;
    let node = |id: &Value| nodes.iter().find(|node| node["id"] == *id);
    let root_node = node(&metadata["resolve"]["root"]).context("the example is a package")?;
    let deps = root_node["deps"].as_array().context("the example has dependencies")?;
    let given: BTreeSet<&str> = deps.iter().filter_map(|dep| dep["name"].as_str()).collect();
    let source = std::fs::read_to_string(root().join("docs/example/src/main.rs"))?;
    assert_eq!(used(&source), given, "what main.rs uses is what Cargo.toml gives");
    let kernel = deps.iter().find(|dep| dep["name"] == "genesis_kernel");
    let kernel = kernel.and_then(|dep| node(&dep["pkg"])).context("it uses genesis-kernel")?;
    // Without one of these LLVM is not linked at all.
    let features: Vec<&str> =
        kernel["features"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    ensure!(features.iter().any(|f| ["static-llvm", "dynamic-llvm"].contains(f)), "{features:?}");
    Ok(())
}
