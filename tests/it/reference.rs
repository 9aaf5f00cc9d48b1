//! docs/language.md against the compiler's own tables: every function, method, macro, loop and option has its
//! entry with the arguments it takes, an example that uses it, and rustdoc; and every entry is one of them.
//!
//! What the macros read a call by (`table.rs`), what the front end builds (`builtins.rs`) and what rustc types
//! (`lang/functions`) are compared too: a function that one of them lacks fails here. The examples are
//! compiled and run as documentation tests of this crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use genesis_kernel::LaunchOptions;

/// Functions of the front end that only methods of the same name reach.
const METHODS_ONLY: [&str; 5] = ["to", "row", "col", "is_some", "is_none"];

/// Macros of kernels, and the functions of `genesis_kernel::lang` that say in rustdoc what they do.
const MACROS: [(&str, &str); 4] = [
    ("static_assert", "static_assert"),
    ("device_assert", "device_assert"),
    ("device_print", "print"),
    ("inline_asm", "inline_asm"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is in the workspace").to_owned()
}

fn read(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| path.to_owned())
}

/// The page, taken apart.
struct Page {
    /// The first cell of each row of a table, without its backticks: `load(ptr, mask?, other?)`.
    entries: Vec<String>,
    /// The code of all examples.
    code: String,
}

fn page() -> anyhow::Result<Page> {
    let text = read("docs/language.md")?;
    let (mut entries, mut code, mut in_code) = (Vec::new(), String::new(), false);
    for line in text.lines() {
        if line.starts_with("```") {
            in_code = line == "```rust";
        } else if in_code {
            code += line;
            code.push('\n');
        } else if let Some(cell) = line.strip_prefix("| `") {
            entries.extend(cell.split_once('`').map(|(entry, _)| entry.to_owned()));
        }
    }
    Ok(Page { entries, code })
}

/// A function or method, as a row of the macros' table says it is called.
struct Signature {
    name: String,
    usage: String,
}

/// The elements of a table of a source file: `const TABLE: &[T] = &[..];`.
fn table(source: &str, name: &str) -> anyhow::Result<Vec<syn::Expr>> {
    let file = syn::parse_file(source)?;
    let value = file.items.into_iter().find_map(|item| match item {
        syn::Item::Const(item) if item.ident == name => Some(item.expr),
        syn::Item::Static(item) if item.ident == name => Some(item.expr),
        _ => None,
    });
    let value = value.with_context(|| format!("there is no table {name}"))?;
    let syn::Expr::Reference(reference) = *value else { anyhow::bail!("{name} is no slice") };
    let syn::Expr::Array(array) = *reference.expr else { anyhow::bail!("{name} is no slice") };
    Ok(array.elems.into_iter().collect())
}

fn text(expr: &syn::Expr) -> Option<String> {
    match expr {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// How the page must write a row: `zeros::<T, M, N>()`, `load(ptr, mask?, other?)`.
fn signature(row: &syn::Expr) -> Option<Signature> {
    let syn::Expr::Call(call) = row else { return None };
    let args: Vec<&syn::Expr> = call.args.iter().collect();
    let name = text(args[0])?;
    let list = args.iter().find_map(|arg| match arg {
        syn::Expr::Reference(reference) => match &*reference.expr {
            syn::Expr::Array(array) => {
                Some(array.elems.iter().filter_map(text).collect::<Vec<_>>())
            }
            _ => None,
        },
        _ => None,
    })?;
    let min = args.iter().find_map(|arg| match arg {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(int), .. }) => int.base10_parse().ok(),
        _ => None,
    });
    let generics = match args[1] {
        syn::Expr::Path(kind) => kind.path.segments.last()?.ident.to_string(),
        _ => String::new(),
    };
    let generics = match generics.as_str() {
        "DType" => "::<U>",
        "Extents" => "::<M, N>",
        "OneExtent" => "::<N>",
        "DTypeExtents" => "::<T, M, N>",
        _ => "",
    };
    let min = min.unwrap_or(list.len());
    let args = list.iter().enumerate().map(|(i, arg)| match i < min {
        true => arg.clone(),
        false => format!("{arg}?"),
    });
    let args = args.collect::<Vec<_>>().join(", ");
    let shown = match name.strip_prefix("fast_") {
        Some(name) => format!("fast::{name}"),
        None => name.clone(),
    };
    Some(Signature { usage: format!("{shown}{generics}({args})"), name })
}

fn signatures(table_name: &str) -> anyhow::Result<Vec<Signature>> {
    let rows = table(&read("genesis-macros/src/table.rs")?, table_name)?;
    let found: Vec<Signature> = rows.iter().filter_map(signature).collect();
    anyhow::ensure!(found.len() == rows.len(), "a row of {table_name} is not understood");
    Ok(found)
}

/// Every function of the language: the compiler's own, and those written in the language.
fn functions() -> anyhow::Result<Vec<Signature>> {
    Ok(signatures("FUNCTIONS")?.into_iter().chain(signatures("LIBRARY")?).collect())
}

/// The names in a table of the front end.
fn front(table_name: &str) -> anyhow::Result<BTreeSet<String>> {
    let rows = table(&read("genesis-kernel/src/front/builtins.rs")?, table_name)?;
    let name = |row: &syn::Expr| match row {
        syn::Expr::Call(call) => call.args.first().and_then(text),
        syn::Expr::Struct(row) => {
            let is_name = |field: &&syn::FieldValue| matches!(&field.member, syn::Member::Named(member) if member == "name");
            row.fields.iter().find(is_name).and_then(|field| text(&field.expr))
        }
        _ => None,
    };
    Ok(rows.iter().filter_map(name).collect())
}

/// The public functions of source files, and whether rustdoc shows them.
fn public_functions(paths: &[&str]) -> anyhow::Result<BTreeMap<String, bool>> {
    let mut found = BTreeMap::new();
    for path in paths {
        let source = read(path)?;
        let lines: Vec<&str> = source.lines().map(str::trim).collect();
        for (i, line) in lines.iter().enumerate() {
            // In a call of a macro that makes functions the names stand below their documentation.
            let is_listed = i > 0
                && lines[i - 1].starts_with("///")
                && line.starts_with(|c: char| c.is_ascii_lowercase())
                && !line.contains(['(', '=', ','])
                && !["pub ", "const ", "static ", "type "]
                    .iter()
                    .any(|word| line.starts_with(word));
            if is_listed {
                let names = line.split([' ', ':', ';']).filter(|name| !name.is_empty());
                found.extend(names.map(|name| (name.to_owned(), true)));
            }
            let Some(rest) = line.strip_prefix("pub fn ") else { continue };
            let name: String =
                rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let above = lines[..i].iter().rev().take_while(|line| line.starts_with(['#', '/']));
            let is_hidden = above.clone().any(|line| line.contains("doc(hidden)"));
            let is_documented = above.clone().any(|line| line.starts_with("///"));
            if !name.is_empty() {
                found.insert(name, is_documented && !is_hidden);
            }
        }
    }
    Ok(found)
}

const TYPED: [&str; 7] = [
    "genesis-kernel/src/lang/functions.rs",
    "genesis-kernel/src/lang/functions/order.rs",
    "genesis-kernel/src/lang/functions/elementwise.rs",
    "genesis-kernel/src/lang/functions/products.rs",
    "genesis-kernel/src/lang/functions/random.rs",
    "genesis-kernel/src/lang/functions/views.rs",
    "genesis-kernel/src/lang/functions/mathematics.rs",
];

#[test]
fn every_function_has_its_entry() -> anyhow::Result<()> {
    let entries = page()?.entries;
    let missing: Vec<String> = functions()?
        .into_iter()
        .map(|function| function.usage)
        .filter(|usage| !entries.contains(usage))
        .collect();
    assert!(missing.is_empty(), "docs/language.md has no row for {missing:#?}");
    Ok(())
}

#[test]
fn every_method_has_its_entry() -> anyhow::Result<()> {
    let entries = page()?.entries;
    let missing: Vec<String> = signatures("METHODS")?
        .into_iter()
        .map(|method| method.usage)
        .filter(|usage| {
            !["x", "view", "views"].iter().any(|on| entries.contains(&format!("{on}.{usage}")))
        })
        .collect();
    assert!(missing.is_empty(), "docs/language.md has no row for methods {missing:#?}");
    Ok(())
}

#[test]
fn every_entry_of_a_function_is_one() -> anyhow::Result<()> {
    let mut known: BTreeSet<String> = functions()?.into_iter().map(|f| f.usage).collect();
    for method in signatures("METHODS")? {
        known.extend(["x", "view", "views"].map(|on| format!("{on}.{}", method.usage)));
    }
    let entries = page()?.entries;
    let is_call = |entry: &&String| {
        let head = entry.split(['(', '<']).next().unwrap_or_default();
        let is_name = |c: char| c.is_alphanumeric() || "_:.".contains(c);
        entry.ends_with(')') && !head.is_empty() && head.chars().all(is_name)
    };
    let calls: Vec<&String> = entries.iter().filter(is_call).collect();
    assert!(calls.len() > 100, "the tables of docs/language.md are not read");
    let loops = [".stages(n)", ".unroll(n)"];
    let unknown: Vec<&&String> = calls
        .iter()
        .filter(|entry| !known.contains(entry.as_str()) && !loops.contains(&entry.as_str()))
        .filter(|entry| !entry.starts_with("k::"))
        .collect();
    assert!(unknown.is_empty(), "docs/language.md has rows of what there is not: {unknown:#?}");
    let distinct: BTreeSet<&&String> = calls.iter().collect();
    assert_eq!(distinct.len(), calls.len(), "a row of docs/language.md stands twice");
    Ok(())
}

#[test]
fn every_function_is_in_an_example() -> anyhow::Result<()> {
    let code = page()?.code;
    let is_used = |shown: &str| {
        let name_ends = |rest: &str| rest.starts_with('(') || rest.starts_with("::<");
        let parts = code.split(shown);
        let heads = parts.clone().map(|part| part.chars().next_back());
        let tails = parts.skip(1).map(name_ends);
        let begins = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || "_:".contains(c));
        heads.zip(tails).any(|(before, after)| after && begins(before))
    };
    let shown = |name: &str| match name.strip_prefix("fast_") {
        Some(name) => format!("fast::{name}"),
        None => name.to_owned(),
    };
    let mut missing: Vec<String> =
        functions()?.into_iter().map(|f| shown(&f.name)).filter(|name| !is_used(name)).collect();
    let methods = signatures("METHODS")?.into_iter().map(|method| method.name);
    missing.extend(
        methods.filter(|name| {
            !["(", "::<"].iter().any(|tail| code.contains(&format!(".{name}{tail}")))
        }),
    );
    missing.extend(
        MACROS.iter().map(|(name, _)| format!("{name}!(")).filter(|call| !code.contains(call)),
    );
    assert!(missing.is_empty(), "no example of docs/language.md uses {missing:?}");
    Ok(())
}

#[test]
fn loops_macros_and_options_have_their_entries() -> anyhow::Result<()> {
    let Page { entries, .. } = page()?;
    let starts = |lead: &str| entries.iter().any(|entry| entry.starts_with(lead));
    let iterators = table_of_names("ITERATORS")?;
    for name in iterators {
        assert!(starts(&format!("for i in {name}(")), "docs/language.md has no row for `{name}`");
    }
    for (name, _) in MACROS {
        assert!(starts(&format!("{name}!(")), "docs/language.md has no row for `{name}!`");
    }
    // `LaunchOptions { num_warps: None, .. }`
    let options = format!("{:?}", LaunchOptions::default());
    let fields = options.split(['{', ',']).filter_map(|part| part.split_once(':'));
    for (field, _) in fields {
        let field = field.trim();
        assert!(entries.iter().any(|entry| entry == field), "no row for the option `{field}`");
    }
    Ok(())
}

/// The strings of `const NAMES: [&str; N] = [..];` of the macros' table.
fn table_of_names(name: &str) -> anyhow::Result<Vec<String>> {
    let file = syn::parse_file(&read("genesis-macros/src/table.rs")?)?;
    let names = file.items.into_iter().find_map(|item| match item {
        syn::Item::Const(item) if item.ident == name => match *item.expr {
            syn::Expr::Array(array) => Some(array.elems.iter().filter_map(text).collect()),
            _ => None,
        },
        _ => None,
    });
    names.with_context(|| format!("there is no table {name}"))
}

#[test]
fn the_macros_and_the_front_end_know_the_same_functions() -> anyhow::Result<()> {
    let names = |of: &str| -> anyhow::Result<BTreeSet<String>> {
        Ok(signatures(of)?.into_iter().map(|row| row.name).collect())
    };
    let (called, library, methods) = (names("FUNCTIONS")?, names("LIBRARY")?, names("METHODS")?);
    let built = front("BUILTINS")?;
    let of_views = &front("VIEW_METHODS")? | &front("LIST_METHODS")?;
    let missing: Vec<&String> = called.difference(&built).collect();
    assert!(missing.is_empty(), "the front end does not build {missing:?}");
    let unreachable =
        |name: &&String| !called.contains(*name) && !METHODS_ONLY.contains(&name.as_str());
    let unreachable: Vec<&String> = built.iter().filter(unreachable).collect();
    assert!(unreachable.is_empty(), "no kernel can call {unreachable:?}");
    let twice: Vec<&String> = called.intersection(&library).collect();
    assert!(twice.is_empty(), "{twice:?} are built and written in the language");
    let unknown: Vec<&String> =
        methods.iter().filter(|name| !built.contains(*name) && !of_views.contains(*name)).collect();
    assert!(unknown.is_empty(), "the front end has no methods {unknown:?}");
    Ok(())
}

#[test]
fn every_function_is_typed_and_shown_by_rustdoc() -> anyhow::Result<()> {
    let there: Vec<&str> = TYPED.into_iter().filter(|path| root().join(path).is_file()).collect();
    let typed = public_functions(&there)?;
    let fast = public_functions(&["genesis-kernel/src/lang/fast.rs"])?;
    for Signature { name, .. } in functions()? {
        // `fast::exp` is what people write, and what rustdoc shows.
        let shown = match name.strip_prefix("fast_") {
            Some(short) => fast.get(short),
            None => typed.get(&name),
        };
        assert_eq!(shown, Some(&true), "`{name}` has no documentation that rustdoc shows");
    }
    let control = public_functions(&["genesis-kernel/src/lang/control.rs"])?;
    let loops = ["range", "static_range", "persistent"].into_iter();
    for name in loops.chain(MACROS.map(|(_, function)| function)) {
        assert_eq!(control.get(name), Some(&true), "`{name}` has no documentation in rustdoc");
    }
    Ok(())
}

#[test]
fn public_functions_are_functions_of_the_language() -> anyhow::Result<()> {
    let there: Vec<&str> = TYPED.into_iter().filter(|path| root().join(path).is_file()).collect();
    let known: BTreeSet<String> = functions()?.into_iter().map(|f| f.name).collect();
    let variants = ["_masked", "_or", "_new", "_between", "_reverse", "_kept"];
    for name in public_functions(&there)?.keys() {
        let base = variants.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
        // A bound in a list of functions.
        if name.starts_with(char::is_uppercase) {
            continue;
        }
        assert!(known.contains(name) || known.contains(base), "no kernel can call `{name}`");
    }
    Ok(())
}
