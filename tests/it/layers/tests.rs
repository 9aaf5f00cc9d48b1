//! The graph of small crates.

use std::path::Path;

use super::graph::Graph;
use super::table::Table;
use super::tree::Tree;

/// The graph of a crate of these files.
fn graph(files: &[(&str, &str)]) -> Graph {
    let read = |file: &Path| {
        let found = files.iter().find(|(name, _)| Path::new(name) == file);
        found.map(|(_, text)| (*text).to_owned())
    };
    Graph::of(&Tree::load("lib.rs", &read))
}

/// Its edges, as `from > to`.
fn edges(files: &[(&str, &str)]) -> Vec<String> {
    let graph = graph(files);
    let stem = |file: &usize| graph.files[*file].trim_end_matches(".rs").to_owned();
    graph.edges.keys().map(|(from, to)| format!("{} > {}", stem(from), stem(to))).collect()
}

/// The edges of a crate of `a`, which is given, and of `b`, which has `B`, `fn make` and the module `c`.
fn edges_of(a: &str) -> Vec<String> {
    edges(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", a),
        ("b.rs", "pub mod c; pub struct B; pub fn make() {}"),
        ("b/c.rs", "pub struct C; pub enum E { One }"),
    ])
}

#[test]
fn use_trees_are_taken_apart() {
    let all = ["a > b", "a > b/c"];
    assert_eq!(edges_of("use crate::{b::{self, B}, b::c::C};"), all);
    assert_eq!(edges_of("use crate::b::{B as X, c::{C, E::{self, One}}};"), all);
    assert_eq!(edges_of("use super::b::*; use super::b::c::E::*;"), all);
    assert_eq!(edges_of("use std::fmt; use ::b::B;"), [""; 0]);
}

#[test]
fn paths_in_code_count() {
    assert_eq!(edges_of("fn f(x: crate::b::B) {}"), ["a > b"]);
    assert_eq!(edges_of("fn f() { super::b::make() }"), ["a > b"]);
    assert_eq!(edges_of("use crate::b; fn f() { b::c::E::One; }"), ["a > b/c"]);
    assert_eq!(edges_of("mod inner { fn f() { super::super::b::make() } }"), ["a > b"]);
    assert_eq!(edges_of("fn f() { use crate::b::c; c::C; }"), ["a > b/c"]);
    assert_eq!(edges_of("fn f(b: u32) -> u32 { b }"), [""; 0]);
}

#[test]
fn tokens_of_macros_count() {
    assert_eq!(edges_of("fn f() { assert_eq!(1, g(crate::b::B).make); }"), ["a > b"]);
    assert_eq!(edges_of("macro_rules! m { () => { $crate::b::c::C } }"), ["a > b/c"]);
    assert_eq!(edges_of("m! { use super::{b::c::C, b::make}; }"), ["a > b", "a > b/c"]);
    assert_eq!(edges_of("fn f() { println!(\"crate::b::B\"); x!(y.b, 'b); }"), [""; 0]);
}

#[test]
fn comments_attributes_and_visibility_do_not() {
    assert_eq!(edges_of("/// [`crate::b::B`]\nfn f() { /* crate::b::B */ }"), [""; 0]);
    assert_eq!(edges(&[("lib.rs", "mod a;"), ("a.rs", "pub(in crate::a) struct A;")]), [""; 0]);
    assert_eq!(edges_of("#[given(crate::b::B)] struct A;"), ["a > b"]);
}

#[test]
fn what_is_for_tests_is_left_out_wherever_it_stands() {
    let halfway = "#[cfg(test)] use crate::b::c::C; fn f() { crate::b::make() }";
    assert_eq!(edges_of(halfway), ["a > b"]);
    let rest = "mod tests { #[cfg(not(test))] fn g() { crate::b::make() } }";
    assert_eq!(edges_of(&format!("#[cfg(test)] fn f() {{ crate::b::c::C; }} {rest}")), ["a > b"]);
    assert_eq!(edges_of("#[cfg(all(unix, test))] mod tests { use crate::b::B; }"), [""; 0]);
    assert_eq!(edges_of("#[cfg(any(unix, test))] use crate::b::B;"), ["a > b"]);
    assert_eq!(edges_of("fn f() { #[cfg(test)] crate::b::make(); }"), [""; 0]);
    assert_eq!(edges_of("fn f() { #[cfg(test)] { use crate::b::B; } }"), [""; 0]);
    assert_eq!(edges_of("#![cfg(test)] use crate::b::B;"), [""; 0]);
    assert_eq!(edges_of("#[cfg(test)] mod there_is_no_file;"), [""; 0]);
}

#[test]
fn a_path_counts_for_the_file_that_defines_what_it_names() {
    let files = [
        ("lib.rs", "mod a; mod b; pub use b::C;"),
        ("a/mod.rs", "use crate::C; use crate::b::D;"),
        ("b/mod.rs", "mod c; mod d; pub use c::C; pub use d::*;"),
        ("b/c.rs", "pub struct C;"),
        ("b/d.rs", "pub struct D;"),
    ];
    assert_eq!(edges(&files), ["a/mod > b/c", "a/mod > b/d"]);
}

#[test]
fn a_facade_uses_nothing_and_code_does() {
    let child = |parent| [("lib.rs", "mod a;"), ("a.rs", parent), ("a/b.rs", "pub struct B;")];
    assert_eq!(edges(&child("mod b; pub(crate) use b::B;")), [""; 0]);
    assert_eq!(edges(&child("mod b; pub use b::B; fn f() -> B { B }")), ["a > a/b"]);
    assert_eq!(edges(&child("mod b; use b::B;")), ["a > a/b"]);
}

#[test]
fn a_child_uses_what_its_parent_defines_not_what_it_imports() {
    let files = |child| [("lib.rs", "mod a;"), ("a.rs", "mod b; struct A;"), ("a/b.rs", child)];
    assert_eq!(edges(&files("use super::A;")), ["a/b > a"]);
    assert_eq!(edges(&files("fn f() { super::by_macro() }")), ["a/b > a"]);
    let through = [
        ("lib.rs", "mod a; mod c;"),
        ("a.rs", "mod b; use crate::c::C;"),
        ("a/b.rs", "use super::C;"),
        ("c.rs", "pub struct C;"),
    ];
    assert_eq!(edges(&through), ["a > c", "a/b > c"]);
}

#[test]
fn an_item_and_a_module_may_have_one_name() {
    let files = [
        ("lib.rs", "mod a; mod fold; pub use fold::fold;"),
        ("a.rs", "use crate::fold; fn f() { fold() }"),
        ("fold.rs", "pub fn fold() {}"),
    ];
    assert_eq!(edges(&files), ["a > fold"]);
    let files = [
        ("lib.rs", "mod a; mod fold; fn fold() {}"),
        ("a.rs", "use crate::fold; fn f() { fold::inner() }"),
        ("fold.rs", "pub fn inner() {}"),
    ];
    assert_eq!(edges(&files), ["a > fold"]);
}

#[test]
fn macros_are_found_textually() {
    let files =
        [("lib.rs", "macro_rules! m { () => {} } mod a;"), ("a.rs", "m!(); fn f() { vec![m!()] }")];
    assert_eq!(edges(&files), ["a > lib"]);
}

#[test]
fn a_crate_has_a_name_for_itself() {
    let files = [
        ("lib.rs", "extern crate self as me; mod a; mod b;"),
        ("a.rs", "use me::b::B;"),
        ("b.rs", "pub struct B;"),
    ];
    assert_eq!(edges(&files), [""; 0]);
    let through = [files[0], ("a.rs", "use crate::me::b::B;"), files[2]];
    assert_eq!(edges(&through), ["a > b"]);
}

/// What the checks of circles and of modules say.
fn said(files: &[(&str, &str)], table: &str) -> Vec<String> {
    let (graphs, table) = ([graph(files)], Table::parse(table));
    [table.check_modules(&graphs), table.check_circles(&graphs)].concat()
}

#[test]
fn a_circle_is_said_with_its_lines() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "\nuse crate::b::B; pub struct A;"),
        ("b.rs", "use crate::c::C; pub struct B;"),
        ("c.rs", "use crate::a::A; pub struct C;"),
    ];
    let table = "lib:\na: b\nb: c\nc: a\n";
    let circle = "files use each other in a circle\
        \n    a.rs -> b.rs   (2: crate::b::B)\
        \n    b.rs -> c.rs   (1: crate::c::C)\
        \n    c.rs -> a.rs   (1: crate::a::A)";
    assert_eq!(said(&files, table), [circle]);
    let known = "in a circle: a.rs\nin a circle: b.rs\nin a circle: c.rs\n";
    assert_eq!(said(&files, &format!("{table}{known}")), [""; 0]);
    let broken = [files[0], files[1], files[2], ("c.rs", "pub struct C;")];
    let rest = said(&broken, "lib:\na: b\nb: c\nc:\nin a circle: a.rs");
    assert_eq!(rest, ["a.rs is in no circle any more: take it out"]);
}

#[test]
fn the_table_of_modules_is_exact() {
    let files =
        [("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::B;"), ("b.rs", "pub struct B;")];
    assert_eq!(said(&files, "lib:\na: b\nb:"), [""; 0]);
    let missing = "`a` may not use `b`: a.rs -> b.rs   (1: crate::b::B)";
    assert_eq!(said(&files, "lib:\na:\nb:"), [missing]);
    assert_eq!(said(&files, "lib:\na: b\nb: a"), ["`b` does not use `a`: take it out"]);
    assert_eq!(said(&files, "lib:\na: b"), ["the table has no line for the module `b`"]);
}
