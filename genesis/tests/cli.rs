//! The `genesis` command as people and scripts call it: outputs that can't be written, signals, two runs in
//! one folder, paths that are not UTF-8, and arguments that nobody means.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Where every run of the command keeps compiled kernels, so that each is compiled once.
const KERNELS: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels");

/// The command, on the CPU and with no file of the user's.
fn genesis(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_genesis"));
    command.args(args).env("GENESIS_DEVICE", "cpu").env("GENESIS_CACHE_DIR", KERNELS);
    command.stdin(Stdio::null());
    command
}

/// A text to train on, in a folder of its own.
fn text() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder for a test");
    let path = folder.path().join("text");
    fs::write(&path, "And he said unto them, Go to. And they went. ".repeat(60)).expect("a text");
    (folder, path)
}

/// A short training run to a folder.
fn train(data: &Path, out: &Path, more: &[&str]) -> Command {
    let mut command = genesis(&["train", "text", "--batch-size", "2"]);
    command.arg("--data").arg(data).arg("--out").arg(out).args(more);
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The exit code and what stderr got.
fn ended(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().expect("the command starts");
    (output.status.code(), stderr(&output))
}

/// The same where stdout is something else than a pipe that is read.
fn ended_into(command: &mut Command, stdout: Stdio) -> (Option<i32>, String) {
    let child = command.stdout(stdout).stderr(Stdio::piped()).spawn().expect("it starts");
    let output = child.wait_with_output().expect("it ends");
    (output.status.code(), stderr(&output))
}

/// A pipe that nobody reads.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").expect("the system has it").into()
}

/// Commands that print and are quick.
const PRINTING: &[&[&str]] = &[
    &["--help"],
    &["--version"],
    &["train", "text", "--help"],
    &["kernels"],
    &["kernels", "--json"],
    &["doctor"],
    &["doctor", "--json"],
    &["doctor", "--variables"],
    &["inspect", "tanh", "--emit", "tir"],
    &["inspect", "tanh", "--emit", "tir", "--json"],
    &["tune", "matmul", "--shape", "m=64,n=64,k=64", "--forecast", "sm_90a"],
];

#[test]
fn an_output_on_a_full_disk_is_an_error() {
    for args in PRINTING {
        let (code, text) = ended_into(&mut genesis(args), full());
        assert_eq!(code, Some(1), "{args:?}: {text}");
        assert!(text.starts_with("error: can't write to standard output: "), "{args:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{args:?}: {text}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_a_command_quietly() {
    for args in PRINTING {
        let (code, text) = ended_into(&mut genesis(args), closed());
        assert_eq!((code, text.as_str()), (Some(141), ""), "{args:?}");
    }
}

#[test]
fn a_stderr_that_cannot_be_written_changes_nothing() {
    let (folder, data) = text();
    let missing = folder.path().join("missing");
    let cases: [(&[&str], i32); 3] =
        [(&["ckpt", "ls"], 1), (&["ckpt", "verify"], 1), (&["nonsense"], 2)];
    for (args, want) in cases {
        for sink in [full(), closed()] {
            let status = genesis(args).arg(&missing).stderr(sink).status().expect("it starts");
            assert_eq!(status.code(), Some(want), "{args:?}");
        }
    }
    let out = folder.path().join("out");
    let mut command = train(&data, &out, &["--steps", "1", "--json"]);
    let status = command.stdout(Stdio::null()).stderr(full()).status();
    assert_eq!(status.expect("it starts").code(), Some(0));
}

#[test]
fn training_saves_where_its_lines_cannot_be_printed() {
    let (folder, data) = text();
    for (name, sink, want) in [("full", full(), 1), ("closed", closed(), 141)] {
        let out = folder.path().join(name);
        let (code, text) = ended_into(&mut train(&data, &out, &["--steps", "2"]), sink);
        assert_eq!(code, Some(want), "{name}: {text}");
        assert_eq!(text.contains("can't write to standard output"), name == "full", "{text}");
        assert!(out.join("model.safetensors").is_file(), "{name}");
        assert!(out.join("checkpoints/step-00000002/manifest.json").is_file(), "{name}");
    }
    // Where nothing is left behind there is nothing to go on for.
    let mut command = genesis(&["train", "text", "--epochs", "100000"]);
    let (code, text) = ended_into(command.arg("--data").arg(&data), closed());
    assert_eq!((code, text.as_str()), (Some(141), ""));
}

/// A run that goes on until it is stopped, once it has done some steps.
fn running(data: &Path, out: &Path) -> Child {
    let mut command = train(data, out, &["--epochs", "100000", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let start = Instant::now();
    while fs::read_to_string(out.join("metrics.jsonl")).unwrap_or_default().lines().count() < 2 {
        assert!(start.elapsed() < Duration::from_secs(120), "it does not train");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let status = Command::new("kill").args([name, &pid]).status().expect("there is kill");
    assert!(status.success(), "kill {name} {pid}");
}

#[test]
fn ctrl_c_and_sigterm_save() {
    let (folder, data) = text();
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        let out = folder.path().join(name);
        let child = running(&data, &out);
        signal(&child, name);
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(code), "{name}");
        let said: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("one JSON value");
        let step = said["steps"].as_u64().expect("steps");
        let path = out.join(format!("checkpoints/step-{step:08}/manifest.json"));
        assert!(path.is_file() && said["stopped"] == true, "{name}: {said}");
    }
}

#[test]
fn a_second_signal_ends_at_once() {
    let (folder, data) = text();
    for round in 0..4 {
        let mut child = running(&data, &folder.path().join(round.to_string()));
        signal(&child, "-INT");
        signal(&child, if round % 2 == 0 { "-INT" } else { "-TERM" });
        let status = child.wait().expect("it ends");
        // The first may have been enough already.
        assert!(matches!(status.code(), Some(130 | 143)), "{status}");
    }
}

#[test]
fn two_runs_do_not_write_to_one_folder() {
    let (folder, data) = text();
    let out = folder.path().join("out");
    let mut first = running(&data, &out);
    for more in ["", "--resume", "--overwrite"] {
        let more: Vec<&str> = more.split(' ').filter(|arg| !arg.is_empty()).collect();
        let (code, text) = ended(&mut train(&data, &out, &more));
        let who = format!("another run (process {} on ", first.id());
        assert!(code == Some(1) && text.contains(&who), "{more:?}: {code:?} {text}");
    }
    // The lock goes with its process, however that ends.
    first.kill().expect("it runs");
    first.wait().expect("it ends");
    let (code, text) = ended(&mut train(&data, &out, &["--steps", "1", "--overwrite"]));
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn a_folder_that_holds_a_run_is_refused() {
    let (folder, data) = text();
    let out = folder.path().join("out");
    let steps = |n: &str, more: &[&str]| {
        ended(&mut train(&data, &out, &[&["--steps", n][..], more].concat()))
    };
    assert_eq!(steps("2", &[]).0, Some(0));
    let (code, text) = steps("2", &[]);
    assert!(code == Some(1) && text.contains("--resume") && text.contains("--overwrite"), "{text}");
    assert_eq!(steps("2", &["--resume"]).0, Some(0));
    assert_eq!(steps("1", &["--overwrite"]).0, Some(0));
    assert!(!out.join("checkpoints/step-00000002").exists());
    let lines = fs::read_to_string(out.join("metrics.jsonl")).expect("metrics");
    assert_eq!(lines.lines().count(), 1);
    let both = ended(&mut train(&data, &out, &["--resume", "--overwrite"]));
    assert_eq!(both.0, Some(2), "{}", both.1);
}

#[test]
fn a_disk_that_is_full_may_be_gone_on_with() {
    let (folder, data) = text();
    // Files of more than 100 KiB can't be written: no checkpoint, but metrics.
    let limited = |out: &Path, more: &[&str]| {
        let run = train(&data, out, &[&["--steps", "3", "--save-every", "1"][..], more].concat());
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; ulimit -f 200; exec \"$0\" \"$@\""]);
        command.arg(run.get_program()).args(run.get_args()).env("GENESIS_CACHE_DIR", "");
        ended(command.env("GENESIS_DEVICE", "cpu"))
    };
    let (code, text) = limited(&folder.path().join("stops"), &[]);
    assert!(code == Some(1) && text.contains("can't write "), "{text}");
    let out = folder.path().join("goes-on");
    let (code, text) = limited(&out, &["--on-save-error", "continue"]);
    assert!(code == Some(1) && text.contains("not everything was written: can't write "), "{text}");
    let lines = fs::read_to_string(out.join("metrics.jsonl")).expect("metrics");
    assert_eq!(lines.lines().count(), 3);
    assert!(!out.join("model.safetensors").exists());
}

/// A name that is not UTF-8.
fn odd(folder: &Path, name: &str) -> PathBuf {
    folder.join(OsString::from_vec([name.as_bytes(), b"-\xFF\xFE"].concat()))
}

#[test]
fn paths_need_not_be_utf8() {
    let (folder, data) = text();
    let moved = odd(folder.path(), "data");
    fs::rename(&data, &moved).expect("the disk takes the name");
    let out = odd(folder.path(), "out");
    let mut command = train(&moved, &out, &["--steps", "1", "--json", "--profile"]);
    let (code, text) = ended(command.arg(odd(folder.path(), "trace")));
    assert_eq!(code, Some(0), "{text}");
    let commands: [&[&str]; 4] = [
        &["ckpt", "ls", "--json"],
        &["ckpt", "verify", "--json"],
        &["ckpt", "ls"],
        &["ckpt", "verify"],
    ];
    for args in commands {
        let output = genesis(args).arg(&out).output().expect("it starts");
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(text.contains("out-\u{FFFD}"), "{args:?}: {text}");
    }
    let (code, text) = ended(genesis(&["ckpt", "diff", "--json"]).args([&out, &out]));
    assert!(code == Some(1) && !text.contains("panicked"), "{text}");
    let cache = odd(folder.path(), "cache");
    let output = genesis(&["doctor", "--json"]).env("GENESIS_CACHE_DIR", &cache).output();
    let found: serde_json::Value =
        serde_json::from_slice(&output.expect("it starts").stdout).expect("JSON");
    let shown = found["cache"]["folder"].as_str().unwrap_or_default();
    assert!(shown.ends_with("cache-\u{FFFD}\u{FFFD}"), "{found}");
    assert_eq!(found["problems"], serde_json::json!([]));
}

#[test]
fn variables_that_cannot_be_used_are_named_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("a file");
    let below = file.join("below");
    let odd = OsString::from_vec(b"\xFF".to_vec());
    let cases: [(&str, &OsStr, &str); 4] = [
        ("GENESIS_DUMP_DIR", below.as_os_str(), "GENESIS_DUMP_DIR: can't write "),
        ("GENESIS_SYNC", OsStr::new("maybe"), "GENESIS_SYNC=maybe is not understood"),
        ("GENESIS_NUM_THREADS", &odd, "GENESIS_NUM_THREADS=\u{FFFD} is not understood"),
        ("GENESIS_PTXAS", below.as_os_str(), "GENESIS_PTXAS: "),
    ];
    for (name, value, want) in cases {
        let mut command = genesis(&["inspect", "tanh", "--emit", "ptx"]);
        let (code, text) = ended(command.env("GENESIS_DUMP", "tir,ptx").env(name, value));
        let is_it = |line: &&str| line.starts_with("warning: ") && line.contains(want);
        let found = text.lines().filter(is_it).count();
        assert!(code == Some(0) && found == 1, "{name}: {code:?} {text}");
    }
}

/// Calls by their words, and the exit code that is due. `FILE` is a text, `DIR` a folder, `LONG` a name that
/// no disk takes.
const NONSENSE: &[(&[&str], i32)] = &[
    (&["inspect", ""], 1),
    (&["inspect", "LONG"], 1),
    (&["inspect", "tanh", "--set", "BLOCK=9223372036854775807"], 1),
    (&["inspect", "tanh", "--set", "BLOCK=-1"], 1),
    (&["inspect", "tanh", "--set", "BLOCK=0"], 1),
    (&["inspect", "tanh", "--set", "=3"], 1),
    (&["inspect", "tanh", "--set", "BLOCK"], 2),
    (&["inspect", "tanh", "--set", "num_warps=9223372036854775807"], 1),
    (&["inspect", "tanh", "--set", "num_stages=-1"], 1),
    (&["ckpt", "ls", ""], 2),
    (&["ckpt", "ls", "FILE"], 1),
    (&["ckpt", "ls", "DIR/missing"], 1),
    (&["ckpt", "ls", "LONG"], 1),
    (&["ckpt", "verify", "FILE"], 1),
    (&["ckpt", "verify", "DIR"], 1),
    (&["ckpt", "diff", "DIR", "FILE"], 1),
    (&["ckpt", "diff", "", ""], 2),
    (&["mem", "view", "FILE"], 1),
    (&["mem", "view", "DIR"], 1),
    (&["mem", "view", "DIR/missing"], 1),
    (&["mem", "view", "/dev/null", "-o", "/dev/null"], 1),
    (&["tune", ""], 1),
    (&["tune", "tanh"], 1),
    (&["tune", "matmul", "--list", "DIR"], 2),
    (&["tune", "--list", "DIR"], 1),
    (&["tune", "--list", "FILE"], 1),
    (&["tune", "matmul", "--budget", "1e300s"], 2),
    (&["tune", "matmul", "--shape", "m=9223372036854775807,n=9223372036854775807"], 1),
    (&["tune", "matmul", "--shape", "m=99999999999999999999"], 2),
    (&["tune", "matmul", "--shape", "x=1"], 1),
    (&["tune", "matmul", "--transpose", "nobody"], 1),
    (&["train", "text", "--data", "DIR/missing"], 1),
    (&["train", "text", "--data", "DIR"], 1),
    (&["train", "text", "--data", "/dev/null"], 1),
    (&["train", "vae", "--data", "DIR/missing"], 1),
    (&["train", "vit", "--data", "FILE"], 1),
    (&["train", "text", "--data", "FILE", "--device", "tpu"], 1),
    (&["train", "text", "--data", "FILE", "--device", "cuda:99999999999999999999"], 1),
    (&["train", "text", "--data", "FILE", "--batch-size", "18446744073709551615"], 1),
    (&["train", "text", "--data", "FILE", "--batch-size", "9223372036854775807"], 1),
    (&["train", "text", "--data", "FILE", "--lr", "nan"], 2),
    (&["train", "text", "--data", "FILE", "--lr=-1"], 2),
    (&["train", "text", "--data", "FILE", "--lr", "1e300", "--steps", "9"], 0),
    (&["train", "text", "--data", "FILE", "--steps", "0"], 2),
    (&["train", "text", "--data", "FILE", "--seed=-1"], 2),
    (&["train", "text", "--data", "FILE", "--steps", "1", "--out", "FILE"], 1),
    (&["train", "text", "--data", "FILE", "--steps", "1", "--out", "FILE/below"], 1),
    (&["train", "text", "--data", "FILE", "--steps", "1", "--out", "LONG"], 1),
    (&["train", "text", "--data", "FILE", "--steps", "1", "--profile", "DIR"], 1),
    (&["train", "text", "--data", "FILE", "--steps", "1", "--resume"], 2),
    (&["bench", "--case", ""], 1),
    (&[], 2),
    (&[""], 2),
];

#[test]
fn nonsense_gets_an_error_of_one_line() {
    let (folder, data) = text();
    let (file, dir) = (data.display().to_string(), folder.path().display().to_string());
    let mut wrong = Vec::new();
    for &(words, want) in NONSENSE {
        let real = words.iter().map(|word| {
            word.replace("FILE", &file).replace("DIR", &dir).replace("LONG", &"x".repeat(5000))
        });
        let args: Vec<String> = real.collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let (code, text) = ended(genesis(&args).env_remove("HOME"));
        let errors = text.lines().filter(|line| line.starts_with("error")).count();
        let is_ours = text.contains("panicked") || text.contains("bug in Genesis");
        if code != Some(want) || is_ours || (want == 1 && errors != 1) {
            let text: String = text.chars().take(600).collect();
            wrong.push(format!("{words:?}: {code:?}, {want} is due: {text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn huge_numbers_that_mean_something_are_taken() {
    let (folder, data) = text();
    let huge = usize::MAX.to_string();
    let out = folder.path().join("deep").join("x".repeat(200)).join("y".repeat(200));
    let more = ["--epochs", &huge, "--steps", "1", "--save-every", &huge, "--seed", &huge];
    let (code, text) = ended(&mut train(&data, &out, &more));
    assert_eq!(code, Some(0), "{text}");
    let gone = tempfile::tempdir().expect("a folder");
    let mut command = genesis(&["kernels"]);
    assert_eq!(ended(command.current_dir(gone.path()).env_clear()).0, Some(0));
}
