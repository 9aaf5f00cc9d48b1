//! The programs outside the workspace: their manifests resolve without the network, and give their
//! sources the crates they use. The sources themselves are modules of these tests, which see of the
//! library what any other crate sees.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is in the workspace").to_owned()
}

/// The programs, each with its own crates.
const PROGRAMS: [&str; 2] = ["docs/example", "docs/example-train"];

/// What cargo makes of a program's manifest, in a copy that is pinned to the workspace's versions.
fn metadata(program: &str) -> anyhow::Result<Value> {
    let folder = tempfile::tempdir()?;
    let source = root().join(program);
    let manifest = std::fs::read_to_string(source.join("Cargo.toml"))?;
    let manifest = manifest.replace("../..", &root().display().to_string());
    std::fs::write(folder.path().join("Cargo.toml"), manifest)?;
    std::fs::create_dir(folder.path().join("src"))?;
    std::fs::copy(source.join("src/main.rs"), folder.path().join("src/main.rs"))?;
    std::fs::copy(root().join("Cargo.lock"), folder.path().join("Cargo.lock"))?;
    // Crates of other platforms need not be on this machine.
    let output = Command::new("cargo")
        .args(["metadata", "--offline", "--format-version=1", "--quiet"])
        .args(["--filter-platform", &host()?, "--manifest-path"])
        .arg(folder.path().join("Cargo.toml"))
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The platform that rustc compiles for here.
fn host() -> anyhow::Result<String> {
    let output = Command::new("rustc").arg("-vV").output()?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names its host")?.to_owned())
}

/// The crates that a source names in `use` lines.
fn used(source: &str) -> BTreeSet<&str> {
    let lines = source.lines().filter_map(|line| line.trim_start().strip_prefix("use "));
    let roots = lines.filter_map(|path| path.split([':', ';', ' ']).next());
    roots.filter(|name| !["std", "core", "crate", "super", "self"].contains(name)).collect()
}

#[test]
fn the_manifests_and_sources_fit() -> anyhow::Result<()> {
    PROGRAMS.iter().try_for_each(|program| check(program).with_context(|| program.to_string()))
}

fn check(program: &str) -> anyhow::Result<()> {
    let metadata = metadata(program)?;
    let nodes = metadata["resolve"]["nodes"].as_array().context("cargo resolves the crates")?;
    let node = |id: &Value| nodes.iter().find(|node| node["id"] == *id);
    let root_node = node(&metadata["resolve"]["root"]).context("the example is a package")?;
    let deps = root_node["deps"].as_array().context("the example has dependencies")?;
    let given: BTreeSet<&str> = deps.iter().filter_map(|dep| dep["name"].as_str()).collect();
    let source = std::fs::read_to_string(root().join(program).join("src/main.rs"))?;
    assert_eq!(used(&source), given, "what main.rs uses is what Cargo.toml gives");
    let kernel = deps.iter().find(|dep| dep["name"] == "genesis_kernel");
    let kernel = kernel.and_then(|dep| node(&dep["pkg"])).context("it uses genesis-kernel")?;
    // Without one of these LLVM is not linked at all.
    let features: Vec<&str> =
        kernel["features"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    ensure!(features.iter().any(|f| ["static-llvm", "dynamic-llvm"].contains(f)), "{features:?}");
    Ok(())
}
