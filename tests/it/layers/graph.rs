//! Which file uses which, and the circles of that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::resolve::{Kind, Target};
use super::source::Import;
use super::tree::Tree;

/// Files and what they use of each other.
pub(super) struct Graph {
    /// Names of files.
    pub(super) files: Vec<String>,
    /// The top module of each file; `lib` or `main` for the root.
    pub(super) tops: Vec<String>,
    /// The first file uses the second, by these lines and paths.
    pub(super) edges: BTreeMap<(usize, usize), BTreeSet<(usize, String)>>,
}

impl Graph {
    /// The graph of a crate.
    pub(super) fn of(tree: &Tree) -> Graph {
        let root = tree.files[0].trim_end_matches(".rs").to_owned();
        let mut tops = vec![root; tree.files.len()];
        for module in &tree.modules {
            if let Some(top) = module.path.first().filter(|_| module.file != 0) {
                tops[module.file].clone_from(top);
            }
        }
        let mut graph = Graph { files: tree.files.clone(), tops, edges: BTreeMap::new() };
        for module in 0..tree.modules.len() {
            graph.add_imports(tree, module);
            graph.add_names(tree, module);
        }
        graph
    }

    fn add(&mut self, from: usize, to: usize, line: usize, path: &[String]) {
        if from != to {
            self.edges.entry((from, to)).or_default().insert((line, path.join("::")));
        }
    }

    fn add_imports(&mut self, tree: &Tree, module: usize) {
        for import in &tree.modules[module].scope.imports {
            // A module alone is not used yet; what is named through it is.
            let to = match tree.resolve(module, &import.path, Kind::Module) {
                Some(Target::Item(to)) => to,
                // `use super::*` brings in what the module defines.
                Some(Target::Module(to)) if import.name.is_none() => to,
                _ => continue,
            };
            if !is_facade(tree, module, to, import) {
                let (from, to) = (tree.modules[module].file, tree.modules[to].file);
                self.add(from, to, import.line, &import.path);
            }
        }
    }

    fn add_names(&mut self, tree: &Tree, module: usize) {
        let here = &tree.modules[module];
        for name in &here.scope.names {
            let to = match (tree.resolve(module, &name.path, Kind::Item), name.path.as_slice()) {
                (Some(Target::Item(to)), _) => to,
                (None, [only]) => match tree.textual_macro(module, only) {
                    Some(to) => to,
                    None => continue,
                },
                _ => continue,
            };
            self.add(here.file, tree.modules[to].file, name.line, &name.path);
        }
    }

    /// The circles: files that use each other, directly or not, largest first.
    pub(super) fn circles(&self) -> Vec<BTreeSet<usize>> {
        let reached: Vec<_> = (0..self.files.len()).map(|file| self.reached_from(file)).collect();
        let mut circles = BTreeSet::new();
        for (file, reached_here) in reached.iter().enumerate() {
            let circle: BTreeSet<usize> = reached_here
                .iter()
                .copied()
                .filter(|other| reached[*other].contains(&file))
                .collect();
            if !circle.is_empty() {
                circles.insert(circle);
            }
        }
        let mut circles: Vec<_> = circles.into_iter().collect();
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }

    /// The files that one uses, directly or not; itself only if it is in a circle.
    fn reached_from(&self, file: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut next = vec![file];
        while let Some(file) = next.pop() {
            next.extend(self.used_by(file).filter(|to| reached.insert(*to)));
        }
        reached
    }

    /// The files that a file names.
    fn used_by(&self, file: usize) -> impl Iterator<Item = usize> {
        self.edges.range((file, 0)..(file + 1, 0)).map(|((_, to), _)| *to)
    }

    /// The shortest way from a file back to itself.
    pub(super) fn shortest_circle(&self, file: usize) -> Vec<usize> {
        let mut came_from = BTreeMap::new();
        let mut next = VecDeque::from([file]);
        while let Some(at) = next.pop_front() {
            for to in self.used_by(at) {
                if to == file {
                    let mut way = vec![file, at];
                    while *way.last().expect("it has two") != file {
                        way.push(came_from[way.last().expect("it has two")]);
                    }
                    way.reverse();
                    return way;
                }
                came_from.entry(to).or_insert_with(|| {
                    next.push_back(to);
                    at
                });
            }
        }
        Vec::new()
    }

    /// An edge as a reader finds it: both files, and where the first names the second.
    pub(super) fn describe(&self, from: usize, to: usize) -> String {
        let uses = &self.edges[&(from, to)];
        let shown: Vec<_> =
            uses.iter().take(4).map(|(line, path)| format!("{line}: {path}")).collect();
        let more = uses.len().checked_sub(5).map_or(String::new(), |n| format!(", {} more", n + 1));
        format!("{} -> {}   ({}{more})", self.files[from], self.files[to], shown.join(", "))
    }
}

/// Whether an import only shows what is below the module, as `pub use x::Y` beside `mod x` does.
fn is_facade(tree: &Tree, module: usize, to: usize, import: &Import) -> bool {
    import.is_reexport && tree.modules[to].path.starts_with(&tree.modules[module].path)
}
