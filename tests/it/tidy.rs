//! What a machine can check of the code itself: sizes, headers, dependencies, words.

use std::collections::BTreeSet;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use proc_macro2::Delimiter::{Brace, Parenthesis};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// Files over the limit in lines, with the size they may not grow beyond; tables mostly.
const LARGE: &[(&str, usize)] = &[];

/// The longest file.
const MAX_LINES: usize = 800;

/// Which crate may use which, by their folders: itself and what stands to the right.
const CRATES: [(&str, &[&str]); 7] = [
    ("genesis-macros", &[]),
    ("genesis-kernel/emulator", &[]),
    ("genesis-kernel", &["genesis-macros", "genesis-kernel/emulator"]),
    ("kernels", &["genesis-kernel"]),
    ("genesis", &["genesis-kernel", "genesis-macros", "kernels"]),
    ("benches", &["genesis", "genesis-kernel", "kernels"]),
    ("tests", &["genesis", "genesis-kernel", "kernels"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is in the workspace").to_owned()
}

/// Every Rust file of the workspace, with its text.
fn sources() -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = CRATES.iter().map(|(name, _)| root().join(name)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the workspace").flatten() {
            let path = entry.path();
            if path.is_dir() {
                if path.file_name().is_some_and(|name| name != "target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).expect("below the root").display().to_string();
                files.push((name, fs::read_to_string(&path).expect("a source file")));
            }
        }
    }
    files.sort();
    // A crate may lie in the folder of another.
    files.dedup();
    assert!(files.len() > 50, "the walk found only {} files", files.len());
    files
}

#[test]
fn files_stay_small() {
    for (name, text) in sources() {
        let lines = text.lines().count();
        let limit = LARGE.iter().find(|(large, _)| *large == name).map_or(MAX_LINES, |(_, n)| *n);
        assert!(lines <= limit, "{name} has {lines} lines, the limit is {limit}");
    }
}

/// The lines of a text that are not for tests: items under `#[cfg(test)]` are left out, and a module of tests ends its file.
fn lines_outside_tests(text: &str) -> Vec<(usize, &str)> {
    let mut lines = text.lines().enumerate().peekable();
    let mut kept = Vec::new();
    while let Some((number, line)) = lines.next() {
        if !["#[cfg(test)]", "#[cfg(all(test"].iter().any(|form| line.trim().starts_with(form)) {
            kept.push((number + 1, line));
            continue;
        }
        let is_module = |line: &str| line.contains("mod ") && line.ends_with('{');
        if lines.peek().is_some_and(|(_, next)| is_module(next)) {
            break;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let end = format!("{indent}}}");
        let mut is_open = false;
        for (_, line) in lines.by_ref() {
            let is_alone = !is_open && line.ends_with(';');
            if line == end || is_alone && !line.trim_start().starts_with("#[") {
                break;
            }
            is_open |= line.starts_with(indent) && line.ends_with('{');
        }
    }
    kept
}

/// Files that are tests: their folder or name says so, or a `mod` under `#[cfg(test)]`.
fn is_test(name: &str, test_modules: &BTreeSet<String>) -> bool {
    let is_named =
        name.starts_with("tests/") || name.contains("/tests") || name.ends_with("_tests.rs");
    let module = name.trim_end_matches(".rs");
    is_named
        || test_modules.iter().any(|test| module == test || module.starts_with(&format!("{test}/")))
}

/// The modules that stand under `#[cfg(test)]`, as paths without `.rs`.
fn test_modules() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (name, text) in sources() {
        let folder = match name.trim_end_matches(".rs").rsplit_once('/') {
            Some((folder, "mod" | "lib" | "main")) => folder.to_owned(),
            _ => name.trim_end_matches(".rs").to_owned(),
        };
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for pair in lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]") {
            let module = pair[1].split("mod ").nth(1).and_then(|name| name.strip_suffix(';'));
            found.extend(module.map(|module| format!("{folder}/{module}")));
        }
    }
    found
}

/// Lines of a function, at most. Kernels are exempt: they have no calls to be cut at.
const MAX_FUNCTION: usize = 70;

/// The first and last lines of functions that run on the host, which have no `#[kernel]` or `#[device]`. Those that
/// macros make are functions too.
fn host_functions(code: TokenStream) -> Vec<RangeInclusive<usize>> {
    let (mut found, mut first, mut is_kernel) = (Vec::new(), None, false);
    let mut tokens = code.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let next = tokens.peek();
        match token {
            TokenTree::Ident(word) if word == "fn" => {
                let is_type = group(next).is_some_and(|group| is_in(group, Parenthesis));
                first = if is_type { first } else { Some(word.span().start().line) };
            }
            TokenTree::Punct(sign) if sign.as_char() == '#' => {
                is_kernel |= group(next).is_some_and(marks_kernel);
            }
            TokenTree::Punct(sign) if sign.as_char() == ';' => (first, is_kernel) = (None, false),
            TokenTree::Group(group) => {
                found.extend(host_functions(group.stream()));
                if is_in(&group, Brace) {
                    let last = group.span_close().end().line;
                    found.extend(first.take().filter(|_| !is_kernel).map(|first| first..=last));
                    is_kernel = false;
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    found
}

fn group(token: Option<&TokenTree>) -> Option<&Group> {
    match token {
        Some(TokenTree::Group(group)) => Some(group),
        _ => None,
    }
}

fn is_in(group: &Group, delimiter: Delimiter) -> bool {
    group.delimiter() == delimiter
}

/// Whether an attribute says that a function is one of the kernel language.
fn marks_kernel(attribute: &Group) -> bool {
    let name = attribute.stream().into_iter().next().map(|name| name.to_string());
    matches!(name.as_deref(), Some("kernel" | "device"))
}

#[test]
fn functions_stay_short() {
    let mut long = Vec::new();
    for (name, text) in sources() {
        let code = text.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        for lines in host_functions(code) {
            let (first, n) = (*lines.start(), lines.count());
            if n > MAX_FUNCTION {
                long.push(format!("{name}:{first}: {n} lines"));
            }
        }
    }
    assert!(long.is_empty(), "functions have {MAX_FUNCTION} lines at most:\n{}", long.join("\n"));
}

#[test]
fn kernels_are_told_from_functions_of_the_host() {
    let text = r##"
        #[kernel]
        #[autotune(BLOCK = [64, 128])]
        pub fn add() {
            store();
        }

        trait Shown {
            fn shown(&self, by: fn(u8) -> u8);
        }

        macro_rules! shown {
            ($name:ident) => {
                pub(crate) fn $name() -> fn(u8) -> &str {
                    r#"
                    }
                    "#
                }
            };
        }
    "##;
    assert_eq!(host_functions(text.parse().unwrap()), [14..=18]);
}

#[test]
fn a_dtype_stands_in_as_many_files_as_contributing_says() {
    let (tests, guide) = (test_modules(), fs::read_to_string(root().join("CONTRIBUTING.md")));
    let names_it = |(name, text): &(String, String)| {
        let lines = lines_outside_tests(text).into_iter();
        !is_test(name, &tests) && lines.map(|(_, line)| line).any(|line| line.contains("F8E5M2"))
    };
    let found: Vec<String> = sources().into_iter().filter(names_it).map(|(name, _)| name).collect();
    let said = format!("`F8E5M2` is named in {} files", found.len());
    let guide = guide.expect("a guide");
    assert!(guide.contains(&said), "CONTRIBUTING.md does not say: {said}:\n{}", found.join("\n"));
}

#[test]
fn nothing_is_unwrapped_outside_tests() {
    let (tests, mut found) = (test_modules(), Vec::new());
    for (name, text) in sources().into_iter().filter(|(name, _)| !is_test(name, &tests)) {
        let lines = lines_outside_tests(&text);
        let is_code = |line: &str| !line.trim_start().starts_with("//");
        let unwraps = lines.iter().filter(|(_, line)| is_code(line) && line.contains(".unwrap()"));
        found.extend(unwraps.map(|(number, line)| format!("{name}:{number}: {}", line.trim())));
    }
    assert!(found.is_empty(), "say why it holds, with `expect`:\n{}", found.join("\n"));
}

/// How a GPU's numbers are written: shared memory of a block, registers and multiprocessors.
const HARDWARE: [&str; 8] = [
    "232_448",
    "166_912",
    "101_376",
    "227 << 10",
    "163 << 10",
    "99 << 10",
    "registers: 65_536",
    "multiprocessors: 132",
];

#[test]
fn numbers_of_the_hardware_are_in_tables() {
    let (tests, mut found) = (test_modules(), Vec::new());
    let is_table = |name: &str| {
        let name = name.strip_prefix("genesis-kernel/src/").unwrap_or_default();
        name == "target.rs" || name.starts_with("tuning/")
    };
    for (name, text) in sources() {
        if is_test(&name, &tests) || is_table(&name) {
            continue;
        }
        let lines = lines_outside_tests(&text).into_iter();
        let numbers = lines.filter(|(_, line)| HARDWARE.iter().any(|form| line.contains(form)));
        found.extend(numbers.map(|(number, line)| format!("{name}:{number}: {}", line.trim())));
    }
    assert!(found.is_empty(), "ask `tuning` or `target` for these:\n{}", found.join("\n"));
}

#[test]
fn every_file_says_what_it_is() {
    for (name, text) in sources() {
        if !name.contains("/ui/") {
            assert!(text.starts_with("//!"), "{name} does not begin with a //! line");
        }
    }
}

#[test]
fn nothing_is_left_unfinished() {
    let words = ["todo!(", "unimplemented!(", "#[ignore", "dbg!("];
    for (name, text) in sources() {
        if name.ends_with("tidy.rs") {
            continue;
        }
        for word in words {
            let is_started = word == "#[ignore" && name.contains(RANKS);
            assert!(is_started || !text.contains(word), "{name} contains {word}");
        }
    }
}

/// What the ranks of `distributed` do: tests that cargo alone does not run.
const RANKS: &str = "tests/it/distributed/";

#[test]
fn every_test_of_ranks_is_started() {
    let sources = sources();
    let starter = sources.iter().find(|(name, _)| name.ends_with("tests/it/distributed.rs"));
    let starter = starter.map(|(_, text)| text.as_str()).unwrap_or_default();
    let ranks = sources.iter().filter(|(name, _)| name.contains(RANKS));
    let tests: Vec<&str> = ranks
        .flat_map(|(_, text)| text.split("#[ignore").skip(1))
        .filter_map(|rest| rest.split("fn ").nth(1)?.split('(').next())
        .collect();
    assert!(tests.len() > 5, "{tests:?}");
    for test in tests {
        let is_started = [format!("\"{test}\""), format!("::{test}\"")];
        assert!(is_started.iter().any(|call| starter.contains(call)), "no test starts `{test}`");
    }
}

/// A product of extents that a caller gives may be no number: `shape::numel` refuses it, `shape::count` says
/// so, and `shape::product` is of extents that were looked at. One that wraps names the memory of others.
#[test]
fn products_of_extents_are_counted() {
    let is_of_floats = |rest: &str| rest.starts_with("::<f64>()");
    for (name, text) in sources() {
        if !name.starts_with("genesis/src/") || name.starts_with("genesis/src/shape") {
            continue;
        }
        for (at, found) in text.match_indices(".product") {
            let rest = &text[at + found.len()..];
            let is_call = rest.starts_with("()") || rest.starts_with("::<");
            let line = text[..at].lines().count();
            assert!(
                !is_call || is_of_floats(rest),
                "{name}:{line} multiplies on its own; see `shape::product` and `shape::numel`"
            );
        }
    }
}

/// Places and extents are checked; only numbers that are meant to wrap do.
#[test]
fn places_never_wrap() {
    // Sums of integers wrap as PyTorch's do; the others step addresses.
    let meant = [
        "genesis/src/ops/linalg/matmul_int.rs",
        "genesis/src/launch/fused.rs",
        "genesis/src/launch/many.rs",
        "genesis/src/launch/window_cpu/lines.rs",
        "genesis/src/launch/window_cpu/pairs.rs",
    ];
    let of_places = ["shape", "tensor/", "dispatch/", "launch/", "fuse/", "ops/"]
        .map(|place| format!("genesis/src/{place}"));
    for (name, text) in sources() {
        let is_of_places = of_places.iter().any(|start| name.starts_with(&**start));
        if !is_of_places || meant.contains(&&*name) {
            continue;
        }
        for word in ["wrapping_mul", "wrapping_add", "wrapping_sub", "wrapping_neg"] {
            assert!(!text.contains(word), "{name} has {word}");
        }
    }
}

#[test]
fn crates_depend_in_one_direction() {
    for (name, allowed) in CRATES {
        let manifest =
            fs::read_to_string(root().join(name).join("Cargo.toml")).expect("a manifest");
        for (other, _) in CRATES {
            let package = other.replace("genesis-kernel/", "genesis-");
            let uses = manifest
                .lines()
                .any(|line| line.split(['.', ' ', '=']).next().is_some_and(|key| key == package));
            assert!(
                !uses || allowed.contains(&other),
                "{name} depends on {other}, which the order of crates does not allow"
            );
        }
    }
}

#[test]
fn only_the_code_generators_name_inkwell() {
    for (name, text) in sources() {
        let allowed = name.starts_with("genesis-kernel/src/codegen/") || name.ends_with("tidy.rs");
        assert!(allowed || !text.contains("inkwell::"), "{name} names inkwell");
    }
}

/// Where unsafe code is, as the files and folders that hold it.
const UNSAFE: &[&str] = &[
    // Memory, streams, the driver, machine code.
    "genesis-kernel/src/runtime/",
    // LLVM's C interface.
    "genesis-kernel/src/codegen/llvm.rs",
    "genesis-kernel/src/codegen/llvm/",
    // Elements as slices, and products of those.
    "genesis/src/tensor/storage.rs",
    "genesis/src/tensor/storage/",
    // Files as memory.
    "genesis/src/files/mapped.rs",
];

/// Where the promise that makes a launch safe is asked for, given or passed on. `unsafe` there is a
/// declaration or a call; it touches no memory by itself.
const PROMISES: &[&str] = &[
    "genesis-kernel/src/launch.rs",
    "genesis-kernel/src/launch/",
    "genesis-kernel/src/autotune/",
    "genesis-kernel/src/codegen/cpu/run.rs",
    // Random programs, over memory that the interpreter accepted.
    "genesis-kernel/src/differential/",
    "genesis-kernel/src/codegen/cpu/differential.rs",
    // Kernels declared `unsafe`.
    "kernels/src/",
    "genesis/src/launch/mod.rs",
    "genesis/src/launch/start.rs",
    // Replays.
    "genesis/src/graph/mod.rs",
];

/// What only code that touches memory by itself needs.
const RAW: [&str; 7] =
    ["*const ", "*mut ", "transmute", "from_raw", "MaybeUninit", "get_unchecked", "ptr::copy"];

/// The lines of a file, without its tests and comments, that hold unsafe code.
fn unsafe_lines(text: &str) -> Vec<&str> {
    let forms = ["{", "fn ", "impl", "trait ", "extern "].map(|form| format!("unsafe {form}"));
    let is_unsafe = |line: &&str| {
        let is_code = !line.trim_start().starts_with("//");
        is_code && (forms.iter().any(|form| line.contains(form)) || line.contains("#[unsafe"))
    };
    code(text).lines().filter(is_unsafe).collect()
}

/// What stands before the tests of a file.
fn code(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default()
}

#[test]
fn unsafe_code_is_where_it_belongs() {
    let is_in = |name: &str, list: &[&str]| {
        list.iter().any(|place| name == *place || place.ends_with('/') && name.starts_with(place))
    };
    for (name, text) in sources() {
        // The macros write text; tests and timings answer for themselves.
        let is_left_out = ["genesis-macros/", "genesis-kernel/tests/", "tests/", "benches/"]
            .iter()
            .any(|folder| name.starts_with(folder));
        if is_left_out || name.ends_with("tests.rs") || name.contains("/tests/") {
            continue;
        }
        let lines = unsafe_lines(&text);
        let Some(line) = lines.first().filter(|_| !is_in(&name, UNSAFE)) else { continue };
        assert!(
            is_in(&name, PROMISES),
            "{name} has unsafe code, `tidy.rs` says where it may be: {line}"
        );
        let is_comment = |line: &&str| line.trim_start().starts_with("//");
        for line in code(&text).lines().filter(|line| !is_comment(line)) {
            let raw = RAW.iter().find(|word| line.contains(**word));
            assert!(raw.is_none(), "{name} touches memory by itself: {line}");
        }
    }
}

#[test]
fn environment_variables_are_read_in_one_place() {
    for (name, text) in sources() {
        let allowed = name.ends_with("knobs.rs")
            || name.starts_with("tests/")
            || name.starts_with("benches/");
        assert!(
            allowed || !(text.contains("env::var(") || text.contains("env::var_os(")),
            "{name} reads the environment; knobs.rs is the place"
        );
    }
}

#[test]
fn printing_never_panics() {
    // The macros panic where their stream is closed or on a full disk, which is nobody's bug.
    let macros = ["println!(", "print!("];
    for (name, text) in sources() {
        let is_library =
            name.starts_with("genesis/src/") || name.starts_with("genesis-kernel/src/");
        if !is_library || name.contains("tests") || name.contains("/differential/") {
            continue;
        }
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let prints = macros.iter().any(|word| line.contains(word));
            let is_kernels = line.contains("device_print!(") || line.contains("`");
            assert!(!prints || is_kernels, "{name} prints by a macro that panics: {line}");
        }
    }
}

#[test]
fn tests_need_no_path_to_be_absent() {
    for (name, text) in sources().into_iter().filter(|(name, _)| !name.ends_with("tidy.rs")) {
        assert!(!text.contains("\"/nonexistent"), "{name}: take a tempdir's missing child");
    }
}

#[test]
fn the_architecture_names_every_top_module() {
    let text =
        fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md is there");
    for (name, _) in CRATES {
        assert!(text.contains(name), "ARCHITECTURE.md does not name {name}");
    }
    for folder in ["genesis-kernel/src", "genesis/src"] {
        for entry in fs::read_dir(root().join(folder)).expect("the sources are there").flatten() {
            let path = entry.path();
            let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let is_named = text.contains(&format!("`{stem}`"));
            let is_root = stem == "lib" || stem == "main";
            assert!(is_root || is_named, "ARCHITECTURE.md does not name `{stem}`");
        }
    }
}

/// Groups of kinds of ops that have a name in `ir/ops.rs`.
const NAMED_GROUPS: &[(&str, &[&str])] = &[
    ("is_view", &["Broadcast", "ExpandDims", "Reshape", "Transpose"]),
    ("is_collective", &["Reduce", "Scan"]),
    ("is_pointer_access", &["AtomicCas", "AtomicRmw", "Load", "Store"]),
    ("is_pointer_write", &["AtomicCas", "AtomicRmw", "Store"]),
    ("is_atomic", &["AtomicCas", "AtomicRmw"]),
    ("is_control_flow", &["For", "If", "While"]),
    ("is_loop", &["For", "While"]),
    ("is_terminator", &["Return", "Yield"]),
];

/// The kinds of ops that each `matches!` of a source names, in order.
fn kinds_asked_for(text: &str) -> Vec<BTreeSet<&str>> {
    let kinds = |question: &str| -> usize {
        let mut depth = 1;
        let ends = |c: char| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        };
        question.find(ends).unwrap_or(question.len())
    };
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let name = |rest: &str| rest.find(|c| !is_name(c)).unwrap_or(rest.len());
    let questions = text.split("matches!(").skip(1).map(|rest| &rest[..kinds(rest)]);
    questions
        .map(|question| {
            question.split("OpKind::").skip(1).map(|rest| &rest[..name(rest)]).collect()
        })
        .collect()
}

#[test]
fn groups_of_ops_are_asked_for_by_name() {
    let found =
        kinds_asked_for("matches!(k, OpKind::While | OpKind::For(_)) && matches!(x, Some(1))");
    assert_eq!(found, [BTreeSet::from(["For", "While"]), BTreeSet::new()]);
    for (name, text) in sources() {
        if !name.starts_with("genesis-kernel/src/") || name.ends_with("ir/ops.rs") {
            continue;
        }
        for kinds in kinds_asked_for(&text) {
            let is_it = |(_, group): &&(&str, &[&str])| kinds.iter().eq(group.iter());
            let group = NAMED_GROUPS.iter().find(is_it).map(|(group, _)| *group);
            assert!(
                group.is_none(),
                "{name} asks for {kinds:?}, which `OpKind::{}` does",
                group.unwrap()
            );
        }
    }
}
