//! What a path names.
//!
//! As rustc does, without types: from the module on that the path stands in, through imports and
//! re-exports, to the module that defines the item. What a macro defines is not seen, and taken to be
//! where the path says; what belongs to other crates is nothing.

use std::collections::BTreeSet;

use super::tree::Tree;

/// What a path names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// A module itself.
    Module(usize),
    /// An item that the module defines.
    Item(usize),
    /// Something of another crate.
    Foreign,
}

impl Target {
    fn is(self, kind: Kind) -> bool {
        matches!((self, kind), (Target::Module(_), Kind::Module) | (Target::Item(_), Kind::Item))
    }
}

/// What a name is taken for where a module and an item have it: `fold::fold` that is re-exported beside
/// `mod fold`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Module,
    Item,
}

/// Imports followed one after the other, at most; those of two modules may name each other.
const MAX_DEPTH: usize = 16;

impl Tree {
    /// What a path in a module's code names; none where that is a local variable or of another crate.
    pub(super) fn resolve(&self, module: usize, path: &[String], first: Kind) -> Option<Target> {
        Search { tree: self, depth: 0, globs: BTreeSet::new() }.walk(module, path, first)
    }

    /// The module that defines the macro of a name, as `macro_rules!` has it: textually above.
    pub(super) fn textual_macro(&self, module: usize, name: &str) -> Option<usize> {
        let mut at = Some(module);
        while let Some(module) = at {
            if self.modules[module].scope.macros.contains(name) {
                return Some(module);
            }
            at = self.modules[module].parent;
        }
        None
    }
}

/// The search for one path.
struct Search<'a> {
    tree: &'a Tree,
    /// Imports that are being followed.
    depth: usize,
    /// Modules whose globs were searched for a name; each may import the other's.
    globs: BTreeSet<(usize, String)>,
}

impl Search<'_> {
    fn walk(&mut self, module: usize, path: &[String], kind: Kind) -> Option<Target> {
        let kind_of = |at: usize| if at + 1 == path.len() { kind } else { Kind::Module };
        let (first, rest) = path.split_first()?;
        let mut target = match first.as_str() {
            "crate" => Target::Module(0),
            "self" if !rest.is_empty() => Target::Module(module),
            "super" => Target::Module(self.tree.modules[module].parent?),
            name => self.lookup(module, name, kind_of(0))?,
        };
        for (at, name) in path.iter().enumerate().skip(1) {
            let Target::Module(module) = target else { return Some(target) };
            target = match name.as_str() {
                "super" => Target::Module(self.tree.modules[module].parent?),
                "self" => target,
                name => self.lookup(module, name, kind_of(at)).unwrap_or(Target::Item(module)),
            };
        }
        Some(target)
    }

    /// What a name means in a module.
    fn lookup(&mut self, module: usize, name: &str, kind: Kind) -> Option<Target> {
        let here = &self.tree.modules[module];
        let child = here.children.get(name).map(|child| Target::Module(*child));
        if let Some(child) = child.filter(|_| kind == Kind::Module) {
            return Some(child);
        }
        let is_item = here.scope.items.contains(name) || here.scope.macros.contains(name);
        if is_item {
            return Some(Target::Item(module));
        }
        let imported = self.lookup_imports(module, name, kind);
        match imported {
            Some(Target::Item(_)) => imported,
            _ if child.is_some() => child,
            Some(_) => imported,
            None => self.lookup_globs(module, name, kind),
        }
    }

    /// What a name means by a module's `use x::name`.
    fn lookup_imports(&mut self, module: usize, name: &str, kind: Kind) -> Option<Target> {
        let tree = self.tree;
        let mut found = None;
        for import in tree.modules[module].imports_of(name) {
            // `use half;` is of another crate.
            let is_itself = import.path.len() == 1 && import.path[0] == name;
            let target = if is_itself { None } else { self.follow(module, &import.path, kind) };
            found = Some(target.unwrap_or(Target::Foreign));
            if target.is_some_and(|target| target.is(kind)) {
                break;
            }
        }
        found
    }

    /// What a name means by a module's `use x::*`.
    fn lookup_globs(&mut self, module: usize, name: &str, kind: Kind) -> Option<Target> {
        if !self.globs.insert((module, name.to_owned())) {
            return None;
        }
        let tree = self.tree;
        let imports = tree.modules[module].scope.imports.iter();
        imports.filter(|import| import.name.is_none()).find_map(|glob| {
            match self.follow(module, &glob.path, Kind::Module) {
                Some(Target::Module(from)) if from != module => self.lookup(from, name, kind),
                _ => None,
            }
        })
    }

    /// Resolves the path of an import.
    fn follow(&mut self, module: usize, path: &[String], kind: Kind) -> Option<Target> {
        if self.depth == MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        let target = self.walk(module, path, kind);
        self.depth -= 1;
        target
    }
}
