//! What a crate's modules may use, and which of its files are in circles still.

use std::collections::BTreeSet;

use super::graph::Graph;

/// A crate's table.
#[derive(Default)]
pub(super) struct Table<'a> {
    /// What each top module may use, in the order of the lines.
    modules: Vec<(&'a str, BTreeSet<&'a str>)>,
    /// Whether a module may only use those of lines before its own.
    is_ordered: bool,
    /// Uses against that order which are known.
    upward: BTreeSet<(&'a str, &'a str)>,
    /// Files that are in a circle.
    in_circles: BTreeSet<&'a str>,
}

impl<'a> Table<'a> {
    /// Reads `a: b !c`, `in a circle: file` and `from the bottom up`; `#` starts a comment.
    pub(super) fn parse(text: &'a str) -> Table<'a> {
        let mut table = Table::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            match line.split_once(':') {
                Some(("in a circle", file)) => drop(table.in_circles.insert(file.trim())),
                Some((module, used)) => table.add(module, used),
                None if line == "from the bottom up" => table.is_ordered = true,
                None => assert!(line.trim().is_empty(), "a table has no lines such as: {line}"),
            }
        }
        table
    }

    fn add(&mut self, module: &'a str, used: &'a str) {
        assert!(self.used_by(module).is_none(), "the table has two lines for {module}");
        let marked = used.split_whitespace().filter_map(|used| used.strip_prefix('!'));
        self.upward.extend(marked.map(|used| (module, used)));
        let used = used.split_whitespace().map(|used| used.trim_start_matches('!')).collect();
        self.modules.push((module, used));
    }

    /// What a module may use; none if the table does not have it.
    fn used_by(&self, module: &str) -> Option<&BTreeSet<&'a str>> {
        self.modules.iter().find(|(name, _)| *name == module).map(|(_, used)| used)
    }

    /// Uses against the order of the lines, and marks of what is none.
    fn check_order(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (at, (module, used)) in self.modules.iter().enumerate() {
            for used in used {
                let is_below = self.modules[..at].iter().any(|(below, _)| below == used);
                match (is_below, self.upward.contains(&(module, used))) {
                    (false, false) if self.is_ordered => {
                        wrong.push(format!(
                            "`{used}` does not stand before `{module}`, which uses it"
                        ));
                    }
                    (true, true) => {
                        wrong.push(format!("`{module}` may use `{used}`: take the ! away"))
                    }
                    _ => {}
                }
            }
        }
        wrong
    }

    /// Edges between top modules that the table does not have, and the other way around.
    pub(super) fn check_modules(&self, graphs: &[Graph]) -> Vec<String> {
        let mut wrong = self.check_order();
        let mut used = BTreeSet::new();
        for graph in graphs {
            for (from, to) in graph.edges.keys() {
                let (from_top, to_top) = (&*graph.tops[*from], &*graph.tops[*to]);
                if from_top != to_top && used.insert((from_top, to_top)) {
                    let is_allowed =
                        self.used_by(from_top).is_some_and(|used| used.contains(to_top));
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
                .filter(|top| self.used_by(top).is_none())
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
