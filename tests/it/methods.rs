//! The public methods of tensors and the rows of ops, as the sources declare them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Expr, ImplItem, Item, Visibility};

/// The sources in a folder of `genesis/src`.
fn sources(folder: &str) -> Vec<(PathBuf, syn::File)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../genesis/src");
    let (mut files, mut folders) = (Vec::new(), vec![root.join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the sources").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = fs::read_to_string(&path).expect("a source file");
                let file = syn::parse_file(&text);
                files.push((path.clone(), file.unwrap_or_else(|e| panic!("{path:?}: {e}"))));
            }
        }
    }
    files
}

/// The public methods that the sources in a folder give tensors: those of `impl Tensor`, and of the rows of
/// tables, which tell them at run time.
pub(crate) fn of_tensors(folder: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (path, file) in sources(folder) {
        for item in &file.items {
            match item {
                Item::Impl(block) if is_tensor(&block.self_ty) && block.trait_.is_none() => {
                    names.extend(block.items.iter().filter_map(public_method));
                }
                // `in_place!(neg_ = neg())`
                Item::Macro(call) if call.mac.path.is_ident("in_place") => {
                    names.extend(first_name(&call.mac.tokens));
                }
                Item::Macro(call) if call.ident.as_ref().is_some_and(|name| name != "in_place") => {
                    let words = words(&call.mac.tokens);
                    let declares = words.windows(3).any(|w| w == ["pub", "fn", "$"]);
                    let tells = words.iter().any(|word| word == "METHODS");
                    assert!(!declares || tells, "{path:?}: its rows are in no table of methods");
                }
                _ => {}
            }
        }
    }
    names.extend(genesis::ops::info::methods().map(|method| method.name.to_owned()));
    names
}

fn is_tensor(ty: &syn::Type) -> bool {
    matches!(ty, syn::Type::Path(path) if path.path.is_ident("Tensor"))
}

fn public_method(item: &ImplItem) -> Option<String> {
    let ImplItem::Fn(method) = item else { return None };
    matches!(method.vis, Visibility::Public(_)).then(|| method.sig.ident.to_string())
}

fn first_name(tokens: &TokenStream) -> Option<String> {
    words(tokens).into_iter().next()
}

/// Names and signs, those in groups too.
fn words(tokens: &TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    for token in tokens.clone() {
        match token {
            TokenTree::Group(group) => found.extend(words(&group.stream())),
            token => found.push(token.to_string()),
        }
    }
    found
}

/// Every name that the calls of the rows of ops name: methods, and the functions beside the rows with what
/// those name. Refused calls are no rows, and references compute without tensors.
pub(crate) fn called_by_rows() -> BTreeSet<String> {
    let mut called = BTreeSet::new();
    for (path, file) in sources("ops") {
        let own = path.file_stem().is_some_and(|stem| stem == "info").then_some(&file.items);
        let inline = file.items.iter().find_map(|item| match item {
            Item::Mod(module) if module.ident == "info" => module.content.as_ref(),
            _ => None,
        });
        if let Some(items) = inline.map(|(_, items)| items).or(own) {
            called.extend(called_by(items));
        }
    }
    called
}

fn called_by(items: &[Item]) -> BTreeSet<String> {
    let mut functions = BTreeMap::new();
    let mut rows = Names::default();
    for item in items {
        match item {
            Item::Fn(function) => {
                let mut names = Names { is_inside: true, ..Names::default() };
                names.visit_block(&function.block);
                functions.insert(function.sig.ident.to_string(), names.found);
            }
            Item::Static(rows_of_ops) if rows_of_ops.ident == "INFOS" => {
                rows.visit_expr(&rows_of_ops.expr);
            }
            _ => {}
        }
    }
    let named = rows.found.clone();
    let through = named.iter().filter_map(|name| functions.get(name)).flatten().cloned();
    rows.found.extend(through);
    rows.found
}

/// Collects what the calls of rows name.
#[derive(Default)]
struct Names {
    /// Whether this is a call already, in which everything counts.
    is_inside: bool,
    found: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for Names {
    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        let is_row = matches!(&*call.func, Expr::Path(path)
            if path.path.segments.iter().map(|s| s.ident.to_string()).eq(["OpInfo", "new"]));
        if is_row && !self.is_inside {
            self.is_inside = true;
            // The name, the family, the call, the reference, the samples.
            self.visit_expr(&call.args[2]);
            self.is_inside = false;
        } else {
            visit::visit_expr_call(self, call);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if self.is_inside {
            self.found.insert(call.method.to_string());
            visit::visit_expr_method_call(self, call);
        } else {
            // `OpInfo::new(..).refusing(..)`
            self.visit_expr(&call.receiver);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if self.is_inside {
            self.found.extend(path.segments.last().map(|segment| segment.ident.to_string()));
        }
    }

    /// `over!("sum", Sum, sum_dims, ..)` names its call.
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.found.extend(words(&call.tokens));
    }
}
