//! What users read when a kernel or a launch is wrong: each file of `ui/` is refused, with the text
//! beside it. `TRYBUILD=overwrite` writes the texts anew; read them as a user would.

use std::path::{Path, PathBuf};

use anyhow::Context;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("ui")
}

fn texts() -> anyhow::Result<Vec<(String, String)>> {
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(folder())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "stderr") {
            let name = path.file_stem().context("a file has a name")?.to_string_lossy();
            texts.push((name.into_owned(), std::fs::read_to_string(&path)?));
        }
    }
    texts.sort();
    Ok(texts)
}

#[test]
fn wrong_kernels_are_refused_with_advice() {
    trybuild::TestCases::new().compile_fail("ui/*.rs");
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
