//! The sample suite of PyTorch's answers, where it lies beside the repository.

use std::fs;
use std::path::{Path, PathBuf};

use genesis::io::save_safetensors;
use genesis::{Device, Tensor};
use tests::conform::mutate::Draw;
use tests::conform::parity::Group;
use tests::conform::{case, judge};

use crate::skipped::tell;

fn suite() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    let shared = root.ancestors().map(|folder| folder.join("shared/conform/sample"));
    shared.into_iter().find(|folder| folder.join("manifest.jsonl").exists())
}

#[test]
fn the_sample_suite_agrees_with_pytorch() {
    let Some(suite) = suite() else {
        return tell("no shared/conform/sample beside the repository: the sample suite".to_owned());
    };
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

/// What a line of a manifest gives for tensors.
fn outcome(line: &str, tensors: &[(&str, &Tensor)]) -> case::Outcome {
    let json = serde_json::from_str(line).expect("a line of JSON");
    let case = case::Case::from_json(json).expect("a case");
    let tensors = tensors.iter().map(|(name, t)| ((*name).to_owned(), (*t).clone())).collect();
    case.run_with(Device::Cpu, || Ok(tensors))
}

/// The elements of the first result of a call of `x`, `y`, `i` (integers) and `c` (bools).
fn values(call: &str) -> Result<Vec<f64>, String> {
    let float = |values: &[f32]| Tensor::from_slice(values, &[values.len()]).expect("a tensor");
    let (x, y) = (float(&[1.0, 2.0, 4.0]), float(&[3.0, 5.0, 7.0]));
    let i = Tensor::from_slice(&[1i64, 2, 0], &[3]).expect("a tensor");
    let c = Tensor::from_slice(&[true, false, true], &[3]).expect("a tensor");
    let tensors = [("x", &x), ("y", &y), ("i", &i), ("c", &c)];
    let mut outs = outcome(&format!(r#"{{"id": "a", {call}}}"#), &tensors)?;
    outs.remove("out0").expect("a result").to_f64_vec().map_err(|error| error.to_string())
}

/// A call by the op and the JSON of its arguments, where a letter in angles is a tensor.
fn call(op: &str, input: &str, more: &str) -> String {
    let text = format!(r#""op": "{op}", "input": {input}, {more}"#);
    ["x", "y", "i", "c"].iter().fold(text, |text, name| {
        text.replace(&format!("<{name}>"), &format!(r#"{{"tensor": "{name}"}}"#))
    })
}

#[test]
fn numbers_may_stand_where_pytorch_takes_them() {
    let same = |op: &str, input: &str, args: &str, want: &[f64]| {
        let got = values(&call(op, input, &format!(r#""args": {args}"#)));
        assert_eq!(got.as_deref(), Ok(want), "{op} {input} {args}");
    };
    same("sub", "2", "[<x>]", &[1.0, 0.0, -2.0]);
    same("add", "2.5", "[<x>]", &[3.5, 4.5, 6.5]);
    same("add", "2.5", "[<i>]", &[3.5, 4.5, 2.5]);
    same("mul", "3", "[<c>]", &[3.0, 0.0, 3.0]);
    same("div", "2", "[<x>]", &[2.0, 1.0, 0.5]);
    same("floor_divide", "7", "[<x>]", &[7.0, 3.0, 1.0]);
    same("remainder", "7", "[<y>]", &[1.0, 2.0, 0.0]);
    same("pow", "2", "[<x>]", &[2.0, 4.0, 16.0]);
    same("float_power", "2", "[<i>]", &[2.0, 4.0, 1.0]);
    same("xlogy", "0", "[<x>]", &[0.0, 0.0, 0.0]);
    same("bitwise_and", "3", "[<i>]", &[1.0, 2.0, 0.0]);
    same("bitwise_left_shift", "3", "[<i>]", &[6.0, 12.0, 3.0]);
    same("isin", "2", "[<i>]", &[1.0]);
    same("bucketize", "3.5", "[<x>]", &[2.0]);
    same("where", "<c>", "[1, <x>]", &[1.0, 2.0, 1.0]);
    same("where", "<c>", "[<x>, 9]", &[1.0, 9.0, 4.0]);
    same("where", "<c>", "[1, 2.5]", &[1.0, 2.5, 1.0]);
    same("where", "<x>", "[<c>, 9]", &[1.0, 9.0, 4.0]);
    same("lerp", "<x>", "[<y>, 0.25]", &[1.5, 2.75, 4.75]);
    for (op, input, args) in [
        ("eq", "2", "[<x>]"),
        ("fmod", "2", "[<x>]"),
        ("remainder", "2", "[3]"),
        ("atan2", "<x>", "[2]"),
    ] {
        let got = values(&call(op, input, &format!(r#""args": {args}"#)));
        assert!(
            got.is_err_and(|message| !message.starts_with("unsupported")),
            "{op} {input} {args}"
        );
    }
}

#[test]
fn keywords_mean_what_they_do_in_pytorch() {
    let get = |op: &str, input: &str, more: &str| values(&call(op, input, more));
    let scattered = |reduce: &str| {
        let more = format!(r#""args": [0, <i>, <y>], "kwargs": {{"reduce": "{reduce}"}}"#);
        get("scatter", "<x>", &more)
    };
    assert_eq!(scattered("add"), Ok(vec![8.0, 5.0, 9.0]));
    assert_eq!(scattered("multiply"), Ok(vec![7.0, 6.0, 20.0]));
    assert!(scattered("mean").is_err());
    let add = |x: &str, y: &str, alpha: &str| {
        get("add", x, &format!(r#""args": [{y}], "kwargs": {{"alpha": {alpha}}}"#))
    };
    assert_eq!(add("<c>", "<c>", "true"), Ok(vec![1.0, 0.0, 1.0]));
    assert_eq!(add("<c>", "<c>", "false"), Ok(vec![1.0, 0.0, 1.0]));
    assert_eq!(add("<i>", "<i>", "3"), Ok(vec![4.0, 8.0, 0.0]));
    assert_eq!(add("<x>", "<y>", "0.5"), Ok(vec![2.5, 4.5, 7.5]));
    for (x, y, alpha) in [
        ("<x>", "<y>", "true"),
        ("<i>", "<c>", "true"),
        ("<i>", "<i>", "1.5"),
        ("<c>", "<c>", "1.0"),
    ] {
        assert!(add(x, y, alpha).is_err(), "{x} {y} {alpha}");
    }
    let gelu = |word: &str| {
        get("nn.functional.gelu", "<x>", &format!(r#""kwargs": {{"approximate": "{word}"}}"#))
    };
    assert!(gelu("none").is_ok() && gelu("tanh").is_ok());
    for word in ["erf", "Tanh", ""] {
        assert!(gelu(word).is_err_and(|message| message.contains("unknown")), "{word}");
    }
    assert!(get("meshgrid", "[<x>, <y>]", r#""kwargs": {"indexing": "yx"}"#).is_err());
    // PyTorch has no such function.
    assert!(get("cbrt", "<x>", r#""args": []"#).is_err_and(|m| m.starts_with("unsupported:")));
}

#[test]
fn embeddings_take_the_keywords_that_the_library_has() {
    let table = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2]).expect("a tensor");
    let index = Tensor::from_slice(&[1i64, 0], &[2]).expect("a tensor");
    let run = |keywords: &str| {
        let line = format!(
            r#"{{"id": "a", "op": "nn.functional.embedding", "input": {{"tensor": "i"}},
                "args": [{{"tensor": "w"}}], "kwargs": {{{keywords}}}}}"#
        );
        let mut outs = outcome(&line, &[("i", &index), ("w", &table)])?;
        outs.remove("out0").expect("a result").to_f64_vec().map_err(|error| error.to_string())
    };
    let rows = Ok(vec![3.0, 4.0, 1.0, 2.0]);
    for keywords in [
        r#""scale_grad_by_freq": false, "sparse": false"#,
        r#""max_norm": null, "norm_type": 2.0"#,
        r#""padding_idx": -2"#,
    ] {
        assert_eq!(run(keywords), rows, "{keywords}");
    }
    for keywords in [r#""scale_grad_by_freq": true"#, r#""max_norm": 1.0"#, r#""sparse": true"#] {
        assert!(run(keywords).is_err_and(|m| m.starts_with("unsupported:")), "{keywords}");
    }
    for row in [2, -3] {
        let refusal = run(&format!(r#""padding_idx": {row}"#));
        assert!(refusal.is_err_and(|m| m.contains("padding_idx")), "{row}");
    }
}

/// Not by the names of the keywords: a suite numbers them as the call has them.
#[test]
fn gradients_are_in_the_order_of_the_call() {
    let x = Tensor::from_slice(&[1.0f32, 3.0], &[1, 1, 2]).expect("a tensor");
    let one = Tensor::from_slice(&[2.0f32], &[1]).expect("a tensor");
    let seed = Tensor::from_slice(&[0.0f32, 1.0], &[1, 1, 2]).expect("a tensor");
    let run = |keywords: &str| {
        let line = format!(
            r#"{{"id": "a", "op": "nn.functional.group_norm", "input": {{"tensor": "x"}}, "args": [1],
                "kwargs": {{{keywords}}}, "grad": {{"grad_out": [{{"tensor": "s"}}],
                "grad_in": [{{"tensor": "0"}}, {{"tensor": "1"}}, {{"tensor": "2"}}]}}}}"#
        );
        let outs = outcome(
            &line,
            &[("x", &x), ("w", &one), ("b", &one.copy().expect("a copy")), ("s", &seed)],
        );
        let outs = outs.expect("it runs");
        ["gi1", "gi2"].map(|name| outs[name].to_f64_vec().expect("values")[0])
    };
    let (weight, bias) = (r#""weight": {"tensor": "w"}"#, r#""bias": {"tensor": "b"}"#);
    let [of_weight, of_bias] = run(&format!("{weight}, {bias}"));
    assert!((of_weight - 1.0).abs() < 1e-4 && of_weight != 1.0 && of_bias == 1.0);
    assert_eq!(run(&format!("{bias}, {weight}")), [of_bias, of_weight]);
}
