//! What a crate's modules may use, and which of its files are in circles still.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::Graph;

/// A crate's table.
#[derive(Default)]
pub(super) struct Table<'a> {
    /// What each top module may use.
    modules: BTreeMap<&'a str, BTreeSet<&'a str>>,
    /// Files that are in a circle.
    in_circles: BTreeSet<&'a str>,
}

impl<'a> Table<'a> {
    /// Reads `a: b c` and `in a circle: file`; `#` starts a comment.
    pub(super) fn parse(text: &'a str) -> Table<'a> {
        let mut table = Table::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            match line.split_once(':') {
                Some(("in a circle", file)) => drop(table.in_circles.insert(file.trim())),
                Some((module, used)) => {
                    let before = table.modules.insert(module, used.split_whitespace().collect());
                    assert!(before.is_none(), "the table has two lines for {module}");
                }
                None => assert!(line.trim().is_empty(), "a table has no lines such as: {line}"),
            }
        }
        table
    }

    /// Edges between top modules that the table does not have, and the other way around.
    pub(super) fn check_modules(&self, graphs: &[Graph]) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut used = BTreeSet::new();
        for graph in graphs {
            for (from, to) in graph.edges.keys() {
                let (from_top, to_top) = (&*graph.tops[*from], &*graph.tops[*to]);
                if from_top != to_top && used.insert((from_top, to_top)) {
                    let is_allowed =
                        self.modules.get(from_top).is_some_and(|used| used.contains(to_top));
                    if !is_allowed {
                        let edge = graph.describe(*from, *to);
                        wrong.push(format!("`{from_top}` may not use `{to_top}`: {edge}"));
                    }
                }
            }
        }
        let tops: BTreeSet<&str> =
            graphs.iter().flat_map(|g| g.tops.iter().map(|t| &**t)).collect();
        wrong.extend(
            tops.iter()
                .filter(|top| !self.modules.contains_key(*top))
                .map(|top| format!("the table has no line for the module `{top}`")),
        );
        for (from, allowed) in &self.modules {
            let unused = allowed.iter().filter(|to| !used.contains(&(*from, **to)));
            wrong.extend(unused.map(|to| format!("`{from}` does not use `{to}`: take it out")));
        }
        wrong
    }

    /// Circles of files that the table does not know, and files that are in none any more.
    pub(super) fn check_circles(&self, graphs: &[Graph]) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut found = BTreeSet::new();
        for graph in graphs {
            for circle in graph.circles() {
                let new = |file: &&usize| !self.in_circles.contains(&*graph.files[**file]);
                if let Some(file) = circle.iter().find(new) {
                    let way = graph.shortest_circle(*file);
                    let edges = way.windows(2).map(|pair| graph.describe(pair[0], pair[1]));
                    let edges: Vec<_> = edges.map(|edge| format!("\n    {edge}")).collect();
                    wrong.push(format!("files use each other in a circle{}", edges.concat()));
                }
                found.extend(circle.into_iter().map(|file| graph.files[file].clone()));
            }
        }
        let gone = self.in_circles.iter().filter(|file| !found.contains(**file));
        wrong.extend(gone.map(|file| format!("{file} is in no circle any more: take it out")));
        wrong
    }
}
