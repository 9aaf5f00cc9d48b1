//! What users read when a kernel, a launch or a module is wrong: each file of `ui/` is refused, with the text beside
//! it. `UPDATE_EXPECT=1` writes the texts anew; read them as a user would.
//!
//! rustc reads each case with the libraries that this program was built with. A tool that has cargo check them once
//! more, with flags of its own, takes minutes for what is here seconds.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use expect_test::expect_file;
use rayon::prelude::*;
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("ui")
}

/// The names of files of one kind, and where they are.
fn files(extension: &str) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder())? {
        let path = entry?.path();
        if path.extension().is_some_and(|of_file| of_file == extension) {
            let name = path.file_stem().context("a file has a name")?.to_string_lossy();
            files.push((name.into_owned(), path));
        }
    }
    files.sort();
    Ok(files)
}

fn texts() -> anyhow::Result<Vec<(String, String)>> {
    let files = files("stderr")?.into_iter();
    files.map(|(name, path)| Ok((name, std::fs::read_to_string(path)?))).collect()
}

#[test]
fn wrong_kernels_are_refused_with_advice() -> anyhow::Result<()> {
    let libraries = Libraries::of_this_program()?;
    let report = |(name, _): &(String, PathBuf)| libraries.report(name);
    let cases = files("rs")?;
    let reports = cases.par_iter().map(report).collect::<anyhow::Result<Vec<String>>>()?;
    for ((_, path), report) in cases.iter().zip(&reports) {
        expect_file![path.with_extension("stderr")].assert_eq(report);
    }
    Ok(())
}

/// What cases are compiled with.
struct Libraries {
    /// Where cargo puts what it builds.
    folder: PathBuf,
    kernel: PathBuf,
    genesis: PathBuf,
}

impl Libraries {
    fn of_this_program() -> anyhow::Result<Libraries> {
        let program = std::env::current_exe()?;
        let folder = program.parent().context("a program is in a folder")?.to_owned();
        let (kernel, genesis) = (newest(&folder, "genesis_kernel")?, newest(&folder, "genesis")?);
        Ok(Libraries { folder, kernel, genesis })
    }

    /// What rustc says of a case.
    fn report(&self, case: &str) -> anyhow::Result<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace")?;
        let out = tempfile::tempdir()?;
        let output = Command::new("rustc")
            // The sources that notes show are known by their paths from here.
            .current_dir(root)
            .arg(format!("tests/ui/{case}.rs"))
            .args(["--remap-path-prefix=tests/ui=ui", "--crate-name=case", "--edition=2024"])
            .args(["--emit=metadata", "--error-format=json", "--out-dir"])
            .arg(out.path())
            .args(["--verbose", "--diagnostic-width=140", "-Adead_code", "--extern"])
            .arg(format!("genesis_kernel={}", self.kernel.display()))
            .arg("--extern")
            .arg(format!("genesis={}", self.genesis.display()))
            .arg(format!("-Ldependency={}", self.folder.display()))
            .output()
            .context("rustc")?;
        ensure!(!output.status.success(), "{case} compiles");
        let mut reports = Vec::new();
        for line in String::from_utf8(output.stderr)?.lines() {
            let message: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
            // The others count the errors and say what explains them.
            if message["spans"].as_array().is_some_and(|spans| !spans.is_empty()) {
                reports.push(stable(message["rendered"].as_str().context("a report is a text")?));
            }
        }
        Ok(reports.join("\n"))
    }
}

/// The library that cargo built last: the one that this program was built with, or another of the same sources.
fn newest(folder: &Path, library: &str) -> anyhow::Result<PathBuf> {
    let start = format!("lib{library}-");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(&start) && name.ends_with(".rlib") {
            found.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    let newest = found.into_iter().max().map(|(_, path)| path);
    newest.with_context(|| format!("there is no {start}..rlib in {}", folder.display()))
}

/// A report without what other edits change: where lines are in files that are not the case's own.
///
/// ```text
///  --> genesis-kernel/src/lang/control.rs:18:21       --> genesis-kernel/src/lang/control.rs
///   |                                                  |
/// 18 | pub fn condition<C: Condition>(_cond: C)         | pub fn condition<C: Condition>(_cond: C)
/// ```
fn stable(report: &str) -> String {
    let (mut is_own, mut text) = (true, String::new());
    for line in report.trim_end().lines() {
        let place = ["--> ", "::: "].iter().find_map(|arrow| line.trim_start().strip_prefix(arrow));
        match place {
            Some(place) => is_own = place.starts_with("ui/"),
            // The next note or suggestion, which is of the case where it names no file.
            None => is_own |= line.starts_with(|first: char| first.is_alphabetic()),
        }
        let is_number = |text: &str| text.trim_start().parse::<u32>().is_ok();
        let shown = match line.split_once(" |") {
            _ if is_own => line.to_owned(),
            Some((number, code)) if is_number(number) => {
                format!("{} |{code}", " ".repeat(number.len()))
            }
            _ if place.is_some() => line.split_inclusive(".rs").next().unwrap_or(line).to_owned(),
            _ => line.to_owned(),
        };
        text += shown.trim_end();
        text.push('\n');
    }
    text
}

#[test]
fn there_are_enough_cases() -> anyhow::Result<()> {
    assert!(texts()?.len() >= 60);
    Ok(())
}

#[test]
fn each_mistake_is_one_error() -> anyhow::Result<()> {
    // These hold more than one mistake.
    let several = ["several_refusals", "and_of_masks", "reduce_of_nine"];
    for (name, text) in texts()? {
        let errors = text.lines().filter(|line| line.starts_with("error")).count();
        assert!(errors == 1 || several.contains(&name.as_str()), "{name}: {errors} errors");
        let warnings = text.lines().filter(|line| line.starts_with("warning")).count();
        assert!(warnings == 0, "{name}: {warnings} warnings");
    }
    Ok(())
}

#[test]
fn each_error_is_on_the_users_line() -> anyhow::Result<()> {
    for (name, text) in texts()? {
        let place = text.lines().find(|line| line.trim_start().starts_with("-->"));
        let place = place.with_context(|| format!("{name}: no place"))?;
        assert!(place.contains(&format!("ui/{name}.rs")), "{name}: {place}");
    }
    Ok(())
}

#[test]
fn no_error_names_the_inside_of_the_compiler() -> anyhow::Result<()> {
    let inside = ["shadow", "FnAst", "ExprAst", "front::", "passes::", "syn::", "LLVM", "layout"];
    for (name, text) in texts()? {
        for word in inside {
            assert!(!text.contains(word), "{name} says `{word}`");
        }
    }
    Ok(())
}
