//! `break` and `continue`, as loops without them: the compiler of kernels knows loops that run to their end, and
//! conditions.
//!
//! What follows a jump in the body of a loop runs only where nothing jumped, and a loop that may be left is a
//! `while`:
//!
//! ```text
//! for i in range(0, n) {           let mut _loop_is_over = false;
//!     let v = load(x + i);         let (mut at, end, step) = (0, n, 1);
//!     if v == 0 { break; }         while !_loop_is_over && at < end {
//!     store(y + i, v);                 let i = at; at = at + step; let mut _iteration_is_over = false;
//! }                                    let v = load(x + i);
//!                                      if v == 0 { { _loop_is_over = true; _iteration_is_over = true; } }
//!                                      if !_iteration_is_over { store(y + i, v); }
//!                                  }
//! ```
//!
//! `static_range` stays, since it is unrolled, and what comes after the jump is left out of each copy at run time.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;

/// What jumps there are in the body of a loop; those of loops inside it are theirs.
#[derive(Clone, Copy, Default)]
struct Jumps {
    breaks: bool,
    continues: bool,
}

impl Jumps {
    fn any(self) -> bool {
        self.breaks || self.continues
    }

    fn and(self, other: Jumps) -> Jumps {
        let (breaks, continues) = (self.breaks || other.breaks, self.continues || other.continues);
        Jumps { breaks, continues }
    }
}

/// Why a loop with jumps can't be written without.
pub(crate) enum Refusal {
    /// It has options, which are about loops that run to their end.
    Options,
}

/// A `for` whose body jumps, as a block without jumps; none where there is nothing to do.
pub(crate) fn without_jumps_in_for(
    for_loop: &syn::ExprForLoop,
) -> Option<Result<syn::Block, Refusal>> {
    let mut body = for_loop.body.clone();
    let jumps = replace_in_block(&mut body);
    if !jumps.any() || for_loop.label.is_some() {
        return None;
    }
    let span = for_loop.for_token.span;
    let (pat, iter, stmts) = (&for_loop.pat, &for_loop.expr, &body.stmts);
    let rest = quote_spanned!(span => let mut _iteration_is_over = false; #(#stmts)*);
    if !jumps.breaks {
        return parsed(quote_spanned!(span => { for #pat in #iter { #rest } }));
    }
    match bounds(iter)? {
        Bounds::WithOptions => Some(Err(Refusal::Options)),
        Bounds::Static => parsed(quote_spanned! { span => {
            let mut _loop_is_over = false;
            for #pat in #iter {
                if !_loop_is_over { #rest }
            }
        }}),
        Bounds::Range { start, end, step } => {
            let (step, goes_on) = match step {
                None => (quote!(1), quote_spanned!(span => _next_index < _end_of_range)),
                Some(step) => (
                    step,
                    quote_spanned!(span => (_step_of_range > 0 && _next_index < _end_of_range
                        || _step_of_range < 0 && _next_index > _end_of_range)),
                ),
            };
            parsed(quote_spanned! { span => {
                let mut _loop_is_over = false;
                let mut _next_index: i64 = #start;
                let _end_of_range: i64 = #end;
                let _step_of_range: i64 = #step;
                while !_loop_is_over && #goes_on {
                    let #pat = _next_index;
                    _next_index = _next_index + _step_of_range;
                    #rest
                }
            }})
        }
    }
}

/// A `while` whose body jumps, as a block without jumps; none where there is nothing to do.
pub(crate) fn without_jumps_in_while(while_loop: &syn::ExprWhile) -> Option<syn::Block> {
    let mut body = while_loop.body.clone();
    let jumps = replace_in_block(&mut body);
    if !jumps.any() || while_loop.label.is_some() {
        return None;
    }
    let span = while_loop.while_token.span;
    let (cond, stmts) = (&while_loop.cond, &body.stmts);
    let rest = quote_spanned!(span => let mut _iteration_is_over = false; #(#stmts)*);
    let block = match jumps.breaks {
        false => quote_spanned!(span => { while #cond { #rest } }),
        true => quote_spanned! { span => {
            let mut _loop_is_over = false;
            while !_loop_is_over && (#cond) { #rest }
        }},
    };
    syn::parse2(block).ok()
}

fn parsed(block: TokenStream) -> Option<Result<syn::Block, Refusal>> {
    syn::parse2(block).ok().map(Ok)
}

/// What a `for` runs over.
enum Bounds {
    Range { start: TokenStream, end: TokenStream, step: Option<TokenStream> },
    Static,
    WithOptions,
}

/// None for what is no range: it is refused where ranges are read.
fn bounds(iter: &syn::Expr) -> Option<Bounds> {
    let range = |start: TokenStream, end: TokenStream, step| Bounds::Range { start, end, step };
    match iter {
        syn::Expr::Paren(paren) => bounds(&paren.expr),
        syn::Expr::MethodCall(_) => Some(Bounds::WithOptions),
        syn::Expr::Range(syn::ExprRange {
            start: Some(start),
            end: Some(end),
            limits: syn::RangeLimits::HalfOpen(_),
            ..
        }) => Some(range(quote!(#start), quote!(#end), None)),
        syn::Expr::Call(call) => {
            let syn::Expr::Path(path) = &*call.func else { return None };
            let name = path.path.get_ident()?.to_string();
            let args: Vec<&syn::Expr> = call.args.iter().collect();
            let span = call.func.span();
            match (name.as_str(), &args[..]) {
                ("static_range", _) => Some(Bounds::Static),
                ("range", [start, end]) => Some(range(quote!(#start), quote!(#end), None)),
                ("range", [start, end, step]) => {
                    Some(range(quote!(#start), quote!(#end), Some(quote!(#step))))
                }
                ("persistent", [total]) => Some(range(
                    quote_spanned!(span => program_id(0)),
                    quote!(#total),
                    Some(quote_spanned!(span => num_programs(0))),
                )),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Replaces the jumps of a block by assignments, and puts what follows one under a condition.
fn replace_in_block(block: &mut syn::Block) -> Jumps {
    let stmts = std::mem::take(&mut block.stmts);
    let (stmts, jumps) = replaced(stmts);
    block.stmts = stmts;
    jumps
}

fn replaced(stmts: Vec<syn::Stmt>) -> (Vec<syn::Stmt>, Jumps) {
    let mut done = Vec::new();
    let mut stmts = stmts.into_iter();
    while let Some(mut stmt) = stmts.next() {
        let jumps = replace_in_stmt(&mut stmt);
        let span = stmt.span();
        done.push(stmt);
        if !jumps.any() {
            continue;
        }
        let (rest, later) = replaced(stmts.collect());
        if !rest.is_empty() {
            let guarded = quote_spanned!(span => if !_iteration_is_over { #(#rest)* });
            done.extend(syn::parse2::<syn::Expr>(guarded).map(|expr| syn::Stmt::Expr(expr, None)));
        }
        return (done, jumps.and(later));
    }
    (done, Jumps::default())
}

fn replace_in_stmt(stmt: &mut syn::Stmt) -> Jumps {
    let syn::Stmt::Expr(expr, _) = stmt else { return Jumps::default() };
    let span = expr.span();
    let (jumps, assignments) = match expr {
        syn::Expr::Break(syn::ExprBreak { label: None, expr: None, .. }) => (
            Jumps { breaks: true, continues: false },
            quote_spanned!(span => { _loop_is_over = true; _iteration_is_over = true; }),
        ),
        syn::Expr::Continue(syn::ExprContinue { label: None, .. }) => (
            Jumps { breaks: false, continues: true },
            quote_spanned!(span => { _iteration_is_over = true; }),
        ),
        other => return replace_in_expr(other),
    };
    match syn::parse2::<syn::Expr>(assignments) {
        Ok(block) => *stmt = syn::Stmt::Expr(block, None),
        Err(_) => return Jumps::default(),
    }
    jumps
}

/// Jumps in the branches of an `if` and in blocks. Loops inside have jumps of their own.
fn replace_in_expr(expr: &mut syn::Expr) -> Jumps {
    match expr {
        syn::Expr::If(branch) => {
            let then = replace_in_block(&mut branch.then_branch);
            let otherwise = branch.else_branch.as_mut().map(|(_, expr)| replace_in_expr(expr));
            then.and(otherwise.unwrap_or_default())
        }
        syn::Expr::Block(block) if block.label.is_none() => replace_in_block(&mut block.block),
        _ => Jumps::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::ToTokens;

    fn check(source: &str, expected: Option<&str>) {
        let expr: syn::Expr = syn::parse_str(source).expect("Rust");
        let block = match &expr {
            syn::Expr::ForLoop(for_loop) => match without_jumps_in_for(for_loop) {
                Some(Ok(block)) => Some(block),
                _ => None,
            },
            syn::Expr::While(while_loop) => without_jumps_in_while(while_loop),
            _ => None,
        };
        let expected = expected.map(|text| {
            let block: syn::Block = syn::parse_str(text).expect("Rust");
            block.to_token_stream().to_string()
        });
        assert_eq!(block.map(|block| block.to_token_stream().to_string()), expected);
    }

    #[test]
    fn loops_without_jumps_stay() {
        check("for i in 0..n { for j in 0..n { if j > 2 { break; } } }", None);
        check("while a { b(); }", None);
    }

    #[test]
    fn what_follows_a_jump_is_under_a_condition() {
        check(
            "while a { if b { c(); continue; } d(); if e { break } f() }",
            Some(
                "{ let mut _loop_is_over = false; while !_loop_is_over && (a) { \
                 let mut _iteration_is_over = false; \
                 if b { c(); { _iteration_is_over = true; } } \
                 if !_iteration_is_over { d(); \
                 if e { { _loop_is_over = true; _iteration_is_over = true; } } \
                 if !_iteration_is_over { f() } } } }",
            ),
        );
    }
}
