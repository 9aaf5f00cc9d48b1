//! `genesis plan` as people and scripts call it, and the tables of docs/scaling.md, which are what it prints.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

fn plan(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_genesis"));
    command.arg("plan").args(args).env("GENESIS_DEVICE", "cpu").env("GENESIS_CACHE_DIR", "");
    command.output().expect("the command starts")
}

fn printed(args: &[&str]) -> String {
    let output = plan(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// The exit code, and what stderr got.
fn refused(args: &[&str]) -> (Option<i32>, String) {
    let output = plan(args);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").join("docs/scaling.md")
}

/// What the commands of a block print, one after the other.
fn answer(block: &str) -> String {
    let lines = block.lines().map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["genesis", "plan", args @ ..] = &words[..] else { panic!("{line} is no plan") };
        printed(args)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Every block of commands of the page is followed by one of what they print.
#[test]
fn tables_of_the_page_are_what_commands_print() {
    const COMMANDS: &str = "```sh\n";
    const TABLE: &str = "```\n\n```text\n";
    let old = fs::read_to_string(page()).expect("the page");
    let mut blocks = old.split(COMMANDS);
    let mut new = blocks.next().expect("a first part").to_owned();
    let mut count = 0;
    for block in blocks {
        let (commands, rest) =
            block.split_once(TABLE).expect("a table behind each block of commands");
        let (_, rest) = rest.split_once("```\n").expect("an end of the table");
        new += &[COMMANDS, commands, TABLE, &answer(commands), "```\n", rest].concat();
        count += 1;
    }
    assert!(count > 5, "{count} tables");
    let tables = old.matches("```text\n").count();
    assert_eq!(tables, count, "a table of the page has no command");
    if old != new {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scaling.md");
        fs::write(&path, new).expect("a folder for tests");
        panic!("docs/scaling.md is not what `genesis plan` prints; {} is", path.display());
    }
}

#[test]
fn json_has_the_numbers_of_the_table() {
    let text = printed(&["Llama-3-8B", "--gpus", "8", "--fsdp", "8", "--json"]);
    let plans: Value = serde_json::from_str(&text).expect("JSON");
    let best = &plans[0];
    assert_eq!(best["mesh"], json!({ "dp": 1, "fsdp": 8, "tp": 1, "cp": 1, "pp": 1 }));
    assert_eq!(best["memory_bytes"]["weights"], json!(8_030_261_248.0 * 4.0 / 8.0));
    let sum = |key: &str| -> f64 {
        best[key].as_object().expect(key).values().map(|ms| ms.as_f64().expect("ms")).sum()
    };
    let number = |key: &str| best[key].as_f64().expect(key);
    let parts = number("compute_ms") + number("bubble_ms") + sum("exposed_ms");
    assert!((parts / number("step_ms") - 1.0).abs() < 1e-9, "{best}");
    assert!(number("mfu") > 0.0 && number("mfu") < 1.0);
    let several = printed(&["Llama-3-70B", "--gpus", "8,64", "--json"]);
    let several: Value = serde_json::from_str(&several).expect("JSON");
    assert!(several[0]["error"].as_str().expect("an error").contains("needs"), "{several}");
    assert_eq!(several[1]["gpus"], 64);
}

#[test]
fn a_folder_is_planned_by_its_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mine");
    fs::create_dir(&path).expect("a folder in it");
    let config = json!({
        "model_type": "qwen2", "vocab_size": 151_936, "hidden_size": 896,
        "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
        "num_key_value_heads": 2, "tie_word_embeddings": true,
    });
    fs::write(path.join("config.json"), config.to_string()).expect("a configuration");
    let own = printed(&[path.to_str().expect("UTF-8"), "--gpus", "2"]);
    assert!(own.starts_with("mine, 0.49 B parameters;"), "{own}");
    let named = printed(&["Qwen2.5-0.5B", "--gpus", "2"]);
    assert_eq!(own.lines().skip(1).collect::<Vec<_>>(), named.lines().skip(1).collect::<Vec<_>>());
}

#[test]
fn what_can_not_be_is_one_line_that_names_the_cause() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().to_str().expect("UTF-8");
    for (args, why) in [
        (vec!["Llama-9", "--gpus", "8"], "`Llama-9` is no folder, and no shape that is built in"),
        (vec![empty, "--gpus", "8"], "config.json"),
        (vec!["Llama-3-8B", "--gpus", "64", "--tp", "3"], "are 3 ranks, not 64 GPUs"),
        (vec!["Llama-3-8B", "--gpus", "8", "--gpu", "abacus"], "no rates of a GPU `abacus`"),
        (vec!["Llama-3-8B", "--gpus", "8", "--network", "string"], "no network is called `string`"),
        (vec!["Llama-3-8B", "--gpus", "0"], "0 GPUs are not 1 to"),
        (vec!["Llama-3-8B", "--gpus", "18446744073709551615"], "GPUs are not 1 to"),
        (vec!["Llama-3-8B", "--gpus", "8", "--sequence", "18446744073709551615"], "are not 1 to"),
        (vec!["Llama-3-8B", "--gpus", "8", "--dp", "8", "--zero-1", "false"], "needs"),
        (vec!["Llama-3-70B", "--gpus", "8"], "weights"),
    ] {
        let (code, said) = refused(&args);
        assert_eq!(code, Some(1), "{args:?}: {said}");
        assert!(said.starts_with("error: ") && said.lines().count() == 1, "{args:?}: {said}");
        assert!(said.contains(why), "{args:?}: {said}");
    }
    for args in [vec!["Llama-3-8B"], vec!["--gpus", "8"], vec!["Llama-3-8B", "--gpus", "-1"]] {
        assert_eq!(refused(&args).0, Some(2), "{args:?}");
    }
}
