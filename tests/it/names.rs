//! The page of names, docs/pytorch.md: what it says of Genesis exists, and no name of PyTorch is
//! missing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is in the workspace").to_owned()
}

/// Every name that the sources of genesis declare: public items, and rows of tables of ops.
fn declared() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut folders = vec![root().join("genesis/src")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).expect("a source file");
            text.lines().for_each(|line| names.extend(names_of(line.trim())));
        }
    }
    names
}

/// The names that a line declares: `pub fn name(`, `name {`, `name, other;`, `Name = ..`, `in_place: name_;`,
/// `in_place!(name_ = ..`.
fn names_of(line: &str) -> Vec<String> {
    let line = ["in_place: ", "in_place!("]
        .iter()
        .find_map(|form| line.strip_prefix(form))
        .unwrap_or(line);
    let word = |text: &str| -> String {
        text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let kinds = ["fn ", "struct ", "enum ", "trait ", "type "];
    if let Some(item) = line.strip_prefix("pub ") {
        let item = kinds.iter().find_map(|kind| item.strip_prefix(kind));
        return item.map(word).into_iter().collect();
    }
    let ends = [" {", " = ", ";"].map(|end| line.find(end).unwrap_or(line.len()));
    let row = &line[..ends.into_iter().min().unwrap_or(0)];
    let is_name = |name: &str| !name.is_empty() && word(name) == name;
    let names: Vec<&str> = row.split(", ").collect();
    if names.iter().all(|name| is_name(name)) {
        names.into_iter().map(str::to_owned).collect()
    } else {
        Vec::new()
    }
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The lines of the page between two headings.
fn section<'p>(page: &'p str, heading: &str) -> &'p str {
    let (_, rest) = page.split_once(heading).expect("the page has the heading");
    rest.split_once("\n## ").map_or(rest, |(section, _)| section)
}

#[test]
fn names_of_the_page_exist() {
    let page = fs::read_to_string(root().join("docs/pytorch.md")).expect("the page");
    let declared = declared();
    let mut named: Vec<&str> = quoted(section(&page, "## Tensors: the same name")).collect();
    for heading in ["## Tensors: another name or form", "## Modules", "## Training"] {
        for row in section(&page, heading).lines().filter(|line| line.starts_with("| `")) {
            // The bar of a closure is written `\|`.
            let row = row.replace("\\|", "");
            let column = row.split('|').nth(2).expect("a second column").to_owned();
            named.extend(quoted(column.leak()));
        }
    }
    assert!(named.len() > 350, "the page has only {} names", named.len());
    let last = |name: &&str| name.rsplit("::").next().unwrap_or_default().to_owned();
    let missing: Vec<&str> =
        named.into_iter().filter(|name| !declared.contains(&last(name))).collect();
    assert!(missing.is_empty(), "no such names: {missing:?}");
}

#[test]
fn every_compared_op_is_on_the_page() {
    let page = fs::read_to_string(root().join("docs/pytorch.md")).expect("the page");
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let words: BTreeSet<&str> = page.split(|c: char| !is_part(c)).collect();
    let mut missing = BTreeSet::new();
    for (_, group) in crate::parity::groups() {
        for case in &group.cases {
            let op = case.op().rsplit('.').next().unwrap_or_default().to_owned();
            if !words.contains(op.as_str()) && op != "__getitem__" {
                missing.insert(op);
            }
        }
    }
    assert!(missing.is_empty(), "docs/pytorch.md does not name {missing:?}");
}

/// Whether a word of the page means a name; a star stands for any letters.
fn means(word: &str, name: &str) -> bool {
    match word.split_once('*') {
        None => word == name,
        Some((head, tail)) => {
            let is_long = name.len() >= head.len() + tail.trim_end_matches('*').len();
            let tail = tail.trim_end_matches('*');
            let middle = word.ends_with('*') && !tail.is_empty();
            is_long
                && name.starts_with(head)
                && if middle { name[head.len()..].contains(tail) } else { name.ends_with(tail) }
        }
    }
}

/// `tests/parity/names.txt` is what PyTorch has, written by `names.py` there.
#[test]
fn every_name_of_pytorch_is_on_the_page() {
    let page = fs::read_to_string(root().join("docs/pytorch.md")).expect("the page");
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '*';
    let words = page.split(|c: char| !is_part(c)).filter(|word| !word.trim_matches('*').is_empty());
    let words: BTreeSet<&str> = words.collect();
    let patterns: Vec<&str> = words.iter().copied().filter(|word| word.contains('*')).collect();
    let names = include_str!("../parity/names.txt");
    assert!(names.lines().count() > 1000);
    let is_known =
        |name: &&str| words.contains(name) || patterns.iter().any(|pattern| means(pattern, name));
    let missing: Vec<&str> = names.lines().filter(|name| !is_known(name)).collect();
    assert!(missing.is_empty(), "docs/pytorch.md does not explain {missing:?}");
    assert!(means("lu*", "lu_solve") && means("*_copy", "t_copy") && means("*_poly_*", "a_poly_b"));
    assert!(!means("lu*", "solve") && !means("*_copy", "copy"));
}
