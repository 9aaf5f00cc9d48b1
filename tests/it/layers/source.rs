//! What one file defines, imports and names, module by module, without what is for tests.

use std::collections::BTreeSet;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::{test_only, tokens};

/// A module as its file has it: the file itself, or an inline `mod x { .. }` in it.
#[derive(Default)]
pub(super) struct Scope {
    /// Where it stands below the file's own module.
    pub(super) path: Vec<String>,
    /// Types, functions, constants, statics and traits.
    pub(super) items: BTreeSet<String>,
    /// Macros by `macro_rules!`.
    pub(super) macros: BTreeSet<String>,
    /// `mod x;`, with the `#[path]` that says where it is.
    pub(super) files: Vec<(String, Option<String>)>,
    /// Every `use`, name by name.
    pub(super) imports: Vec<Import>,
    /// Every other path.
    pub(super) names: Vec<Name>,
}

/// One name of a `use`.
pub(super) struct Import {
    /// What it is called here; none for `*`.
    pub(super) name: Option<String>,
    /// What it names.
    pub(super) path: Vec<String>,
    pub(super) line: usize,
    /// Whether other modules see it.
    pub(super) is_reexport: bool,
}

/// A path in code.
pub(super) struct Name {
    pub(super) path: Vec<String>,
    pub(super) line: usize,
}

/// The modules of a file, itself first.
///
/// # Panics
/// If it is no Rust.
pub(super) fn parse(file: &str, text: &str) -> Vec<Scope> {
    let parsed = syn::parse_file(text).unwrap_or_else(|error| panic!("{file}: {error}"));
    if test_only::is_test_only(&parsed.attrs) {
        return vec![Scope::default()];
    }
    let mut reader = Reader { scopes: vec![Scope::default()], current: 0 };
    parsed.items.iter().for_each(|item| reader.define(item));
    parsed.items.iter().for_each(|item| reader.visit_item(item));
    reader.scopes
}

/// Walks a file.
struct Reader {
    scopes: Vec<Scope>,
    /// The module that is walked.
    current: usize,
}

impl Reader {
    fn scope(&mut self) -> &mut Scope {
        &mut self.scopes[self.current]
    }

    /// Notes what an item of a module defines.
    fn define(&mut self, item: &syn::Item) {
        if test_only::is_test_only(test_only::of_item(item)) {
            return;
        }
        let name = match item {
            syn::Item::Const(item) => &item.ident,
            syn::Item::Enum(item) => &item.ident,
            syn::Item::Fn(item) => &item.sig.ident,
            syn::Item::Static(item) => &item.ident,
            syn::Item::Struct(item) => &item.ident,
            syn::Item::Trait(item) => &item.ident,
            syn::Item::TraitAlias(item) => &item.ident,
            syn::Item::Type(item) => &item.ident,
            syn::Item::Union(item) => &item.ident,
            syn::Item::Macro(item) => {
                let name = item.ident.as_ref().map(ToString::to_string);
                self.scope().macros.extend(name);
                return;
            }
            _ => return,
        };
        let name = name.to_string();
        self.scope().items.insert(name);
    }

    /// Notes a `use` below the path that is read so far.
    fn import(&mut self, tree: &syn::UseTree, path: &mut Vec<String>, is_reexport: bool) {
        let line = tree.span().start().line;
        let (name, last) = match tree {
            syn::UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                self.import(&tree.tree, path, is_reexport);
                path.pop();
                return;
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(tree, path, is_reexport));
                return;
            }
            syn::UseTree::Name(tree) => (Some(tree.ident.to_string()), Some(&tree.ident)),
            syn::UseTree::Rename(tree) => (Some(tree.rename.to_string()), Some(&tree.ident)),
            syn::UseTree::Glob(_) => (None, None),
        };
        let mut path = path.clone();
        let mut name = name;
        match last.map(ToString::to_string) {
            Some(last) if last == "self" => {
                name = name.filter(|name| name != "self").or_else(|| path.last().cloned());
            }
            last => path.extend(last),
        }
        self.scope().imports.push(Import { name, path, line, is_reexport });
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !test_only::is_test_only(test_only::of_item(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        if !test_only::is_test_only(test_only::of_impl_item(item)) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast syn::TraitItem) {
        if !test_only::is_test_only(test_only::of_trait_item(item)) {
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_expr(&mut self, expr: &'ast syn::Expr) {
        if !test_only::is_test_only(test_only::of_expr(expr)) {
            visit::visit_expr(self, expr);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !test_only::is_test_only(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_stmt_macro(&mut self, stmt: &'ast syn::StmtMacro) {
        if !test_only::is_test_only(&stmt.attrs) {
            visit::visit_stmt_macro(self, stmt);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !test_only::is_test_only(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if !test_only::is_test_only(&field.attrs) {
            visit::visit_field_value(self, field);
        }
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        if !test_only::is_test_only(&variant.attrs) {
            visit::visit_variant(self, variant);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if !test_only::is_test_only(&arm.attrs) {
            visit::visit_arm(self, arm);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = item.ident.to_string();
        let Some((_, items)) = &item.content else {
            let path = item.attrs.iter().find_map(path_attribute);
            self.scope().files.push((name, path));
            return;
        };
        let outer = self.current;
        let path = self.scope().path.iter().cloned().chain([name]).collect();
        self.current = self.scopes.len();
        self.scopes.push(Scope { path, ..Scope::default() });
        items.iter().for_each(|item| self.define(item));
        items.iter().for_each(|item| self.visit_item(item));
        self.current = outer;
    }

    fn visit_item_extern_crate(&mut self, item: &'ast syn::ItemExternCrate) {
        if item.ident != "self" {
            return;
        }
        let name = item.rename.as_ref().map(|(_, name)| name.to_string());
        let line = item.span().start().line;
        let path = vec!["crate".to_owned()];
        self.scope().imports.push(Import { name, path, line, is_reexport: true });
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            let is_reexport = !is_private(&item.vis);
            self.import(&item.tree, &mut Vec::new(), is_reexport);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let line = path.span().start().line;
            let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.scope().names.push(Name { path: segments, line });
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        visit::visit_path(self, &mac.path);
        self.visit_path(&mac.path);
        let names = tokens::names(mac.tokens.clone());
        self.scope().names.extend(names);
    }

    /// What an attribute names is no code, but where it is a path into the crate.
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        let syn::Meta::List(list) = &attribute.meta else { return };
        let mut names = tokens::names(list.tokens.clone());
        names.retain(|name| ["crate", "super", "self"].contains(&name.path[0].as_str()));
        self.scope().names.extend(names);
    }

    /// `pub(in crate::a)` uses nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

/// Whether nothing but the module and what is below it sees an item.
fn is_private(visibility: &syn::Visibility) -> bool {
    match visibility {
        syn::Visibility::Inherited => true,
        syn::Visibility::Restricted(restricted) => restricted.path.is_ident("self"),
        _ => false,
    }
}

/// The value of `#[path = ".."]`.
fn path_attribute(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value else {
        return None;
    };
    pair.path.is_ident("path").then(|| text.value())
}
