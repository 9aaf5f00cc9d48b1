//! Paths in the tokens of a macro, which nobody parses.
//!
//! `check!(crate::ir::Func::new(), x.len)` names `crate::ir::Func::new` and `x`; `len` is a field.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};

use super::source::Name;

/// Every path, and every identifier that may be one.
pub(super) fn names(tokens: TokenStream) -> Vec<Name> {
    let mut found = Vec::new();
    scan(tokens, &[], &mut found);
    found
}

/// Adds what is named below a prefix, which tokens have where they are a group of a `use`.
fn scan(tokens: TokenStream, prefix: &[String], found: &mut Vec<Name>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Ident(ident) if starts_path(&tokens[..at]) => {
                at = path(&tokens, at, ident, prefix, found);
                continue;
            }
            TokenTree::Group(group) => scan(group.stream(), &[], found),
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
        at += 1;
    }
}

/// Reads the path that starts at an identifier; where it ends.
fn path(
    tokens: &[TokenTree],
    start: usize,
    first: &Ident,
    prefix: &[String],
    found: &mut Vec<Name>,
) -> usize {
    let mut segments = prefix.to_vec();
    segments.push(first.to_string());
    let mut at = start + 1;
    while is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':') {
        match tokens.get(at + 2) {
            Some(TokenTree::Ident(ident)) => segments.push(ident.to_string()),
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                scan(group.stream(), &segments, found);
                return at + 3;
            }
            _ => break,
        }
        at += 3;
    }
    found.push(Name { path: segments, line: first.span().start().line });
    at
}

/// Whether an identifier after these tokens is no field, method, lifetime or rest of a path.
fn starts_path(before: &[TokenTree]) -> bool {
    let last = before.last();
    let second = before.len().checked_sub(2).and_then(|at| before.get(at));
    let is_member = is_punct(last, '.') && !is_punct(second, '.');
    let is_rest = is_punct(last, ':') && is_punct(second, ':');
    !is_member && !is_rest && !is_punct(last, '\'')
}

fn is_punct(token: Option<&TokenTree>, of: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == of)
}
