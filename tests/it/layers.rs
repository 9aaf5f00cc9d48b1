//! Layers: which module of a crate may use which, and that no files use each other in a circle.
//!
//! The graph is that of files. Every path in code counts, also in macros; what is for tests does not. A
//! path counts for the file that defines what it names, however it was re-exported on the way, and
//! `mod x; pub use x::Y;` alone uses nothing.
//!
//! Each crate has a table beside this file. A line `a: b c` lets the module `a` use `b` and `c`; one
//! `in a circle: file` names a file that is in a circle still. Both fail where they say too much, so that
//! the tables get shorter. In a table that is `from the bottom up` a module may use those of lines before
//! its own only, but for `!c`, which is known. To see every circle and its edges:
//!
//! ```text
//! cargo test -p tests --test it layers:: -- --nocapture
//! ```

mod graph;
mod resolve;
mod source;
mod table;
mod test_only;
mod tests;
mod tokens;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};

use graph::Graph;
use table::Table;
use tree::Tree;

/// Crates: the folder of the sources, the roots in it, and the table.
const CRATES: [(&str, &[&str], &str); 8] = [
    ("genesis-macros/src", &["lib.rs"], include_str!("layers/genesis-macros.txt")),
    ("genesis-kernel/emulator/src", &["lib.rs"], include_str!("layers/genesis-emulator.txt")),
    ("genesis-kernel/src", &["lib.rs"], include_str!("layers/genesis-kernel.txt")),
    ("kernels/src", &["lib.rs"], include_str!("layers/kernels.txt")),
    ("genesis/src", &["lib.rs", "main.rs"], include_str!("layers/genesis.txt")),
    ("benches/src", &["main.rs"], include_str!("layers/benches.txt")),
    ("tests/driver/src", &["lib.rs"], include_str!("layers/driver.txt")),
    ("tests/nccl/src", &["lib.rs"], include_str!("layers/nccl.txt")),
];

/// The graph of every root of a crate's sources.
fn graphs(folder: &str, roots: &[&str]) -> Vec<Graph> {
    let root: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is in the workspace").into();
    let folder = root.join(folder);
    let read = |file: &Path| fs::read_to_string(folder.join(file)).ok();
    roots.iter().map(|root| Graph::of(&Tree::load(root, &read))).collect()
}

/// Calls a check for each crate and fails with everything that it says.
fn check(of: impl Fn(&[Graph], &Table) -> Vec<String>) {
    let mut wrong = Vec::new();
    for (folder, roots, table) in CRATES {
        let said = of(&graphs(folder, roots), &Table::parse(table));
        wrong.extend(said.into_iter().map(|said| format!("{folder}: {said}")));
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn modules_use_what_their_crate_lets_them() {
    check(|graphs, table| table.check_modules(graphs));
}

#[test]
fn files_use_each_other_in_no_circle() {
    for (folder, roots, _) in CRATES {
        for graph in graphs(folder, roots) {
            print(folder, &graph);
        }
    }
    check(|graphs, table| table.check_circles(graphs));
}

/// Prints every circle of a crate.
fn print(folder: &str, graph: &Graph) {
    let circles = graph.circles();
    let n: usize = circles.iter().map(std::collections::BTreeSet::len).sum();
    println!("{folder}: {} circles of {n} files among {}", circles.len(), graph.files.len());
    for circle in circles {
        println!("  a circle of {} files", circle.len());
        for (from, to) in graph.edges.keys() {
            if circle.contains(from) && circle.contains(to) {
                println!("    {}", graph.describe(*from, *to));
            }
        }
    }
}
