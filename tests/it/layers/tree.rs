//! The modules of a crate, from its root file on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::source::{self, Import, Scope};

/// A crate: its modules, the root first.
pub(super) struct Tree {
    pub(super) modules: Vec<Module>,
    /// Names of files, from the folder of the sources.
    pub(super) files: Vec<String>,
}

/// A module, in a file of its own or inline.
pub(super) struct Module {
    /// From the crate's root, which is empty.
    pub(super) path: Vec<String>,
    /// The file, as an index of [`Tree::files`].
    pub(super) file: usize,
    pub(super) parent: Option<usize>,
    pub(super) children: BTreeMap<String, usize>,
    pub(super) scope: Scope,
}

impl Module {
    /// The imports of a name.
    pub(super) fn imports_of(&self, name: &str) -> impl Iterator<Item = &Import> {
        self.scope.imports.iter().filter(move |import| import.name.as_deref() == Some(name))
    }
}

impl Tree {
    /// Reads the crate whose root is a file of `read`, which knows files by their names.
    ///
    /// # Panics
    /// If a file that a module names is not there, or is no Rust.
    pub(super) fn load(root: &str, read: &dyn Fn(&Path) -> Option<String>) -> Tree {
        let mut tree = Tree { modules: Vec::new(), files: Vec::new() };
        let text = read(Path::new(root)).unwrap_or_else(|| panic!("{root} is not there"));
        tree.add_file(Path::new(root), None, Vec::new(), &text, read);
        tree
    }

    /// Adds a file and what is below it; its module.
    fn add_file(
        &mut self,
        file: &Path,
        parent: Option<usize>,
        path: Vec<String>,
        text: &str,
        read: &dyn Fn(&Path) -> Option<String>,
    ) -> usize {
        let first = self.modules.len();
        let index = self.files.len();
        self.files.push(file.display().to_string());
        for scope in source::parse(&file.display().to_string(), text) {
            let path: Vec<_> = path.iter().chain(&scope.path).cloned().collect();
            let parent = match scope.path.split_last() {
                None => parent,
                Some((_, outer)) => {
                    (first..self.modules.len()).find(|m| self.modules[*m].scope.path == outer)
                }
            };
            self.add(Module { path, file: index, parent, children: BTreeMap::new(), scope });
        }
        for module in first..self.modules.len() {
            let scope = &self.modules[module].scope;
            let folder = folder_of(file).join(scope.path.iter().collect::<PathBuf>());
            for (name, path) in scope.files.clone() {
                let (file, text) = find(file, &folder, &name, path.as_deref(), read);
                let path = [self.modules[module].path.as_slice(), &[name]].concat();
                self.add_file(&file, Some(module), path, &text, read);
            }
        }
        first
    }

    fn add(&mut self, module: Module) {
        let index = self.modules.len();
        if let (Some(parent), Some(name)) = (module.parent, module.path.last()) {
            self.modules[parent].children.insert(name.clone(), index);
        }
        self.modules.push(module);
    }
}

/// Where the modules of a file are.
fn folder_of(file: &Path) -> PathBuf {
    let stem = file.file_stem().unwrap_or_default();
    let parent = file.parent().unwrap_or(Path::new(""));
    let is_root = stem == "mod" || stem == "lib" || stem == "main";
    if is_root { parent.to_owned() } else { parent.join(stem) }
}

/// The file of a module.
fn find(
    file: &Path,
    folder: &Path,
    name: &str,
    path: Option<&str>,
    read: &dyn Fn(&Path) -> Option<String>,
) -> (PathBuf, String) {
    let places = match path {
        Some(path) => vec![file.parent().unwrap_or(Path::new("")).join(path)],
        None => vec![folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")],
    };
    places
        .into_iter()
        .find_map(|place| read(&place).map(|text| (place, text)))
        .unwrap_or_else(|| panic!("the module `{name}` of {} has no file", file.display()))
}
