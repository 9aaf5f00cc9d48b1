//! `genesis tokenizer`, `pretrain`, `sft`, `dpo` and `convert` as people call them: from a text to a model that answers,
//! killed runs, and what is said of files and flags that can't be used.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Where every run of the command keeps compiled kernels, so that each is compiled once.
const KERNELS: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels");

/// The command, on the CPU and with no file of the user's.
fn genesis(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_genesis"));
    command.args(args).env("GENESIS_DEVICE", "cpu").env("GENESIS_CACHE_DIR", KERNELS);
    command.env("HF_HUB_OFFLINE", "1").stdin(Stdio::null());
    command
}

/// What a command says on success.
fn done(command: &mut Command) -> String {
    let output = command.output().expect("the command starts");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", said(&output.stderr));
    said(&output.stdout)
}

/// What a command says that fails, in one line.
fn refused(command: &mut Command) -> String {
    let Output { status, stderr, .. } = command.output().expect("the command starts");
    let text = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!(status.code(), Some(1), "{text}");
    text.trim_end().to_owned()
}

/// A folder with a text, conversations and a tokenizer.
struct Workplace(tempfile::TempDir);

impl Workplace {
    fn new() -> Workplace {
        let workplace = Workplace(tempfile::tempdir().expect("a folder for a test"));
        let text = "In the beginning was the word. And the word was good. ".repeat(30);
        fs::write(workplace.path("book.txt"), text).expect("a text");
        let line = |n: usize| {
            let said =
                [("Who?", "The word."), ("What?", "The beginning was good."), ("When?", "Then.")];
            let (user, assistant) = said[n % said.len()];
            json!({"messages": [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]})
        };
        let lines: String = (0..12).map(|n| format!("{}\n", line(n))).collect();
        fs::write(workplace.path("chats.jsonl"), lines).expect("conversations");
        let mut train = genesis(&["tokenizer", "train", "--vocab", "300", "--out"]);
        let train = train.arg(workplace.path("tokenizer")).arg(workplace.path("book.txt"));
        let said = done(train);
        assert!(said.starts_with("300 tokens, ") || said.contains(" tokens, "), "{said}");
        workplace
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A short run on the text.
    fn pretrain(&self, out: &str, more: &[&str]) -> Command {
        let mut command =
            genesis(&["pretrain", "tiny", "--sequence-length", "32", "--batch-size", "2"]);
        command.arg("--tokenizer").arg(self.path("tokenizer"));
        command.arg("--data").arg(self.path("book.txt"));
        command.arg("--out").arg(self.path(out)).args(more);
        command
    }

    fn sft(&self, model: &Path, out: &str, more: &[&str]) -> Command {
        let mut command = genesis(&["sft", "--batch-size", "2"]);
        command.arg(model).arg("--data").arg(self.path("chats.jsonl"));
        command.arg("--out").arg(self.path(out)).args(more);
        command
    }
}

/// Step, loss and norm of each line, as they are written.
fn losses(out: &Path) -> Vec<(u64, String, String)> {
    let text = fs::read_to_string(out.join("metrics.jsonl")).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .filter(|line| line.get("loss").is_some())
        .map(|line| {
            let step = line["step"].as_u64().expect("each line has its step");
            (step, line["loss"].to_string(), line["grad_norm"].to_string())
        })
        .collect()
}

#[test]
fn from_a_text_to_a_model_that_answers() {
    let workplace = Workplace::new();
    let said = done(&mut workplace.pretrain("base", &["--steps", "4", "--prompt", "In the"]));
    assert!(said.contains("model = \"tiny\"") && said.contains("> In the"), "{said}");
    let model = workplace.path("base/model");
    for name in ["config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"] {
        assert!(model.join(name).is_file(), "{name}");
    }
    let config = workplace.path("run.toml");
    let text = "learning-rate = 1e-3\nepochs = 7\nlora_rank = 4\nlora_targets = [\"q_proj\", \"v_proj\"]\n";
    fs::write(&config, text).expect("a configuration");
    let mut sft = workplace.sft(
        &model,
        "chat",
        &["--sequence-length=32", "--epochs=2", "--json", "--eval-data"],
    );
    let said = done(sft.arg(workplace.path("chats.jsonl")).arg("--config").arg(&config));
    let said: Value = serde_json::from_str(&said).expect("one JSON value");
    assert!(said["perplexity"].as_f64().is_some_and(|found| found > 1.0), "{said}");
    let resolved = fs::read_to_string(workplace.path("chat/config.toml")).expect("it is saved");
    for line in ["learning_rate = 0.001", "epochs = 2", "lora_rank = 4"] {
        assert!(resolved.lines().any(|own| own == line), "{resolved}");
    }
    assert!(workplace.path("chat/adapter/adapter_config.json").is_file());
    let prompts = workplace.path("prompts.jsonl");
    fs::write(&prompts, "{\"messages\": [{\"role\": \"user\", \"content\": \"Who?\"}]}\n")
        .expect("a file");
    let mut generate =
        genesis(&["generate", "--max-tokens", "4", "--temperature", "0", "--prompts"]);
    let said = done(generate.arg(&prompts).arg(workplace.path("chat/model")));
    let answer: Value = serde_json::from_str(&said).expect("a line of JSON");
    assert!(answer["usage"]["completion_tokens"].as_u64().is_some_and(|n| n > 0), "{answer}");
}

/// From pairs of answers to a file that is loaded again.
#[test]
fn from_pairs_to_a_gguf_file() {
    let workplace = Workplace::new();
    done(&mut workplace.pretrain("base", &["--steps", "2"]));
    let pairs = workplace.path("pairs.jsonl");
    let line = json!({"prompt": "In the ", "chosen": "beginning", "rejected": "word"});
    fs::write(&pairs, format!("{line}\n").repeat(4)).expect("pairs");
    let mut dpo = genesis(&["dpo", "--json", "--sequence-length=32", "--epochs=3", "--lr=1e-3"]);
    dpo.arg(workplace.path("base/model")).arg("--data").arg(&pairs).arg("--eval-data").arg(&pairs);
    dpo.args(["--beta=0.5", "--lora-rank=4", "--dora", "--tensorboard", "--out"]);
    let said = done(dpo.arg(workplace.path("better")));
    let said: Value = serde_json::from_str(&said).expect("one JSON value");
    assert_eq!((&said["reward_accuracy"], &said["perplexity"]), (&json!(1.0), &Value::Null));
    let files = fs::read_dir(workplace.path("better")).expect("a folder").flatten();
    let is_of_events = |name: &str| name.starts_with("events.out.tfevents.");
    let mut names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    assert!(names.any(|name| is_of_events(&name)), "no events");
    let adapter = fs::read_to_string(workplace.path("better/adapter/adapter_config.json"));
    assert!(adapter.expect("it is saved").contains("\"use_dora\": true"));
    // A file of 8 bits, and what it says.
    let (model, file) = (workplace.path("better/model"), workplace.path("better.gguf"));
    let convert = || {
        let mut convert = genesis(&["convert", "--dtype", "q8_0"]);
        convert.arg(&model).arg(&file);
        convert
    };
    let said = done(&mut convert());
    assert!(said.contains("better.gguf: Q8_0, "), "{said}");
    assert!(refused(&mut convert()).ends_with("is there already; --overwrite it"));
    done(convert().arg("--overwrite"));
    let prompts = workplace.path("prompts.jsonl");
    fs::write(&prompts, "{\"prompt\": \"In the \"}\n").expect("a file");
    let mut generate =
        genesis(&["generate", "--max-tokens", "4", "--temperature", "0", "--prompts"]);
    let said = done(generate.arg(&prompts).arg(&file));
    let answer: Value = serde_json::from_str(&said).expect("a line of JSON");
    assert!(answer["usage"]["completion_tokens"].as_u64().is_some_and(|n| n > 0), "{answer}");
    // What is of pairs is said to who has texts.
    let config = workplace.path("run.toml");
    fs::write(&config, "beta = 0.1").expect("a configuration");
    let mut sft = workplace.sft(&model, "chat", &["--config"]);
    let why = "error: beta is of pairs, from which `genesis dpo` learns";
    assert_eq!(refused(sft.arg(&config)), why);
}

/// What a run would need is said before it, and nothing is written.
#[test]
fn a_dry_run_says_what_memory_is_needed() {
    let workplace = Workplace::new();
    let said = done(&mut workplace.pretrain("out", &["--dry-run"]));
    let last = said.lines().last().expect("a line");
    assert!(last.starts_with("memory on cpu: weights ") && last.ends_with(" at a time"), "{said}");
    let said = done(&mut workplace.pretrain("out", &["--dry-run", "--json"]));
    let plan: Value = serde_json::from_str(&said).expect("one JSON value");
    let bytes = |name: &str| plan[name].as_u64().expect("bytes");
    assert_eq!(bytes("optimizer_bytes"), 2 * bytes("gradients_bytes"));
    assert!(bytes("peak_bytes") > bytes("weights_bytes") + bytes("optimizer_bytes"), "{plan}");
    assert!(!workplace.path("out").exists());
    // What a run would refuse is refused before it.
    let said = refused(&mut workplace.pretrain("out", &["--dry-run", "--dora"]));
    assert!(said.ends_with("train: dora is a kind of adapters; give them a lora_rank"), "{said}");
}

/// Killed where it stands, in the middle of an epoch, until it is done.
#[test]
fn a_killed_run_goes_on_with_the_same_losses() {
    let workplace = Workplace::new();
    let more = ["--steps", "12", "--save-every", "1"];
    done(&mut workplace.pretrain("whole", &more));
    let whole = losses(&workplace.path("whole"));
    assert_eq!(whole.len(), 12);
    let out = workplace.path("parts");
    for round in 0..4 {
        let steps = losses(&out).len();
        let mut command = workplace.pretrain("parts", &more);
        if round > 0 {
            command.arg("--resume");
        }
        let child = command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = child.spawn().expect("it starts");
        let start = Instant::now();
        while losses(&out).len() < steps + 2 && child.try_wait().expect("it is there").is_none() {
            assert!(start.elapsed() < Duration::from_secs(120), "it does not train");
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = child.kill();
        child.wait().expect("it ends");
    }
    done(workplace.pretrain("parts", &more).arg("--resume"));
    assert_eq!(losses(&out), whole);
    let weights = |out: &str| fs::read(workplace.path(out).join("model/model.safetensors"));
    assert_eq!(weights("parts").expect("saved"), weights("whole").expect("saved"));
}

/// The same on two ranks.
fn on_ranks(command: &Command) -> Command {
    let mut all = genesis(&["run", "-n", "2"]);
    all.arg(command.get_program()).args(command.get_args()).args(["--device", "cpu"]);
    all
}

#[test]
fn ranks_share_a_model() {
    let workplace = Workplace::new();
    done(&mut workplace.pretrain("alone", &["--steps", "2", "--accumulate", "2"]));
    let parts = workplace.pretrain("parts", &["--steps", "2", "--fsdp", "2"]);
    done(&mut on_ranks(&parts));
    let (alone, parts) = (workplace.path("alone"), workplace.path("parts"));
    assert_eq!(losses(&alone).len(), 2);
    for ((step, one, _), (_, all, _)) in losses(&alone).iter().zip(losses(&parts)) {
        let number = |text: &str| text.parse::<f64>().expect("a loss");
        let (one, all) = (number(one), number(&all));
        assert!((one - all).abs() < 1e-6 * one, "step {step}: {all} on two ranks, {one} on one");
    }
    assert!(parts.join("model/model.safetensors").is_file());
    let three = workplace.pretrain("three", &["--steps", "1", "--tp", "3"]);
    let said = on_ranks(&three).output().expect("the command starts").stderr;
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.contains("tp 3: a multiple of 3 ranks is needed, 2 were started"), "{said}");
}

#[test]
fn what_can_not_be_used_is_said_in_one_line() {
    let workplace = Workplace::new();
    let ends = |said: String, end: &str| assert!(said.ends_with(end), "{said:?}, not {end:?}");
    let mut bare = genesis(&["pretrain", "tiny", "--data"]);
    let said = refused(bare.arg(workplace.path("book.txt")));
    ends(said, "needs a tokenizer: name its folder; `genesis tokenizer train` makes one");
    let said = refused(genesis(&["sft", "tiny", "--data"]).arg(workplace.path("book.txt")));
    assert_eq!(said, "error: tiny is no trained model; `genesis pretrain` begins from it");
    ends(refused(&mut genesis(&["pretrain"])), "preset: tiny, 5m, 20m, 60m, 135m, 360m, 1b");
    let mut nothing = genesis(&["pretrain", "tiny", "--tokenizer"]);
    ends(refused(nothing.arg(workplace.path("tokenizer"))), "train: no data is named");
    // The data.
    let data = workplace.path("bad.jsonl");
    for (text, end) in [
        ("{\"messages\": []}\n", "bad.jsonl:1: `messages` is empty"),
        ("\n{\"prompt\": \"a\"}\n", "bad.jsonl:2: `completion` is missing"),
        ("", "bad.jsonl: holds nothing to train on"),
    ] {
        fs::write(&data, text).expect("a file");
        let mut command = genesis(&["pretrain", "tiny", "--tokenizer"]);
        ends(refused(command.arg(workplace.path("tokenizer")).arg("--data").arg(&data)), end);
    }
    let parquet = workplace.path("rows.parquet");
    fs::write(&parquet, "PAR1").expect("a file");
    let mut command = genesis(&["pretrain", "tiny", "--tokenizer"]);
    let said = refused(command.arg(workplace.path("tokenizer")).arg("--data").arg(&parquet));
    ends(said, "rows.parquet: Parquet is not read; write its rows as lines of JSON (.jsonl)");
    // The configuration.
    let config = workplace.path("run.toml");
    for (text, end) in [
        ("epoch = 3", "run.toml: unknown field `epoch`"),
        ("epochs = \"many\"", "run.toml: invalid type: string \"many\", expected usize"),
        ("epochs = ", "run.toml: TOML parse error at line 1, column 10"),
    ] {
        fs::write(&config, text).expect("a file");
        let said = refused(workplace.pretrain("out", &[]).arg("--config").arg(&config));
        assert!(said.contains(end), "{said:?}, not {end:?}");
    }
    assert!(!workplace.path("out").exists());
    // The folder.
    done(&mut workplace.pretrain("out", &["--steps", "1"]));
    let said = refused(&mut workplace.pretrain("out", &["--steps", "1"]));
    ends(said, "(--resume), delete what it wrote (--overwrite), or name another folder");
    done(&mut workplace.pretrain("out", &["--steps", "1", "--overwrite"]));
    // The model.
    let model = workplace.path("out/model");
    let said = refused(&mut workplace.sft(&model, "chat", &["--sequence-length", "64"]));
    ends(said, "train: sequence_length is 64, the model has 32 positions");
    fs::remove_file(model.join("chat_template.jinja")).expect("it is there");
    ends(
        refused(&mut workplace.sft(&model, "chat", &["--sequence-length=32"])),
        "chat template: the model has none",
    );
    fs::remove_file(model.join("tokenizer.json")).expect("it is there");
    let said = refused(&mut workplace.sft(&model, "chat2", &["--sequence-length=32"]));
    assert!(said.contains("tokenizer.json"), "{said}");
    let mut again = genesis(&["tokenizer", "train", "--out"]);
    let said = refused(again.arg(workplace.path("tokenizer")).arg(workplace.path("book.txt")));
    ends(said, "holds a tokenizer; name another folder, or --overwrite it");
    let mut small = genesis(&["tokenizer", "train", "--vocab", "100", "--out"]);
    let said = refused(small.arg(workplace.path("small")).arg(workplace.path("book.txt")));
    let why = "tokenizer: a vocabulary of 100 has no room for 256 bytes and 3 special tokens";
    ends(said, why);
}
