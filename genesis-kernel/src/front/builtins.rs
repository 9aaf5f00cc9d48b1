//! The functions of the language: one table from name to handler.
//!
//! A function can be called as a method of its first argument, so the table serves both; only views
//! have methods of their own.

use crate::diag::Diagnostic;

use super::arguments::Call;
use super::ast::{GenericAst, Span};
use super::lower::{Lower, Res};
use super::value::{Operand, Val};
use super::{
    bits, create, gather, list, math, memory, optional, order, random, reduce, scaled, shapes,
    views,
};

/// A function of the language.
struct Builtin {
    name: &'static str,
    /// The fewest and the most arguments.
    arity: (usize, usize),
    /// Which argument is an axis; it may also be written among the `::<..>` arguments.
    axis: Option<usize>,
    run: fn(&mut Lower, &Call) -> Res,
}

const fn f(
    name: &'static str,
    min: usize,
    max: usize,
    run: fn(&mut Lower, &Call) -> Res,
) -> Builtin {
    Builtin { name, arity: (min, max), axis: None, run }
}

const fn a(name: &'static str, max: usize, run: fn(&mut Lower, &Call) -> Res) -> Builtin {
    Builtin { name, arity: (2, max), axis: Some(1), run }
}

/// Every function. A name stands here once.
static BUILTINS: &[Builtin] = &[
    Builtin { name: "program_id", arity: (1, 1), axis: Some(0), run: create::program_id },
    Builtin { name: "num_programs", arity: (1, 1), axis: Some(0), run: create::num_programs },
    f("arange", 0, 0, create::arange),
    f("zeros", 0, 0, create::zeros),
    f("ones", 0, 0, create::ones),
    f("full", 1, 1, create::full),
    f("zeros_like", 1, 1, create::zeros_like),
    f("full_like", 2, 2, create::full_like),
    f("to", 1, 1, math::to),
    f("cast", 1, 1, math::to),
    f("bitcast", 1, 1, math::bitcast),
    f("row", 1, 1, shapes::row),
    f("col", 1, 1, shapes::col),
    a("expand_dims", 2, shapes::expand_dims),
    a("squeeze", 2, shapes::squeeze),
    f("reshape", 1, 1, shapes::reshape),
    f("broadcast_to", 1, 1, shapes::broadcast_to),
    f("trans", 1, 1, shapes::trans),
    f("permute", 1, 2, shapes::permute),
    f("join", 2, 2, shapes::join),
    f("cat", 2, 2, shapes::cat),
    f("interleave", 2, 2, shapes::interleave),
    f("split", 1, 1, shapes::split),
    f("where_", 3, 3, math::where_),
    f("load", 1, 3, memory::load),
    f("load_once", 1, 3, memory::load),
    f("load_kept", 1, 3, memory::load),
    f("store", 2, 3, memory::store),
    f("store_once", 2, 3, memory::store),
    f("store_kept", 2, 3, memory::store),
    f("atomic_add", 2, 3, memory::atomic_rmw),
    f("atomic_max", 2, 3, memory::atomic_rmw),
    f("atomic_min", 2, 3, memory::atomic_rmw),
    f("atomic_and", 2, 3, memory::atomic_rmw),
    f("atomic_or", 2, 3, memory::atomic_rmw),
    f("atomic_xor", 2, 3, memory::atomic_rmw),
    f("atomic_xchg", 2, 3, memory::atomic_rmw),
    f("atomic_cas", 3, 4, memory::atomic_cas),
    f("dot", 2, 3, reduce::dot),
    f("dot_tf32", 2, 3, reduce::dot),
    f("dot_tf32x3", 2, 3, reduce::dot),
    f("fast_dot", 2, 3, reduce::dot),
    f("dot_scaled", 5, 5, scaled::dot_scaled),
    a("sum", 3, reduce::simple),
    a("prod", 3, reduce::simple),
    a("max", 3, reduce::simple),
    a("min", 3, reduce::simple),
    a("max_num", 3, reduce::simple),
    a("min_num", 3, reduce::simple),
    a("xor_sum", 3, reduce::simple),
    a("any", 3, reduce::simple),
    a("all", 3, reduce::simple),
    a("argmax", 3, reduce::arg_best),
    a("argmin", 3, reduce::arg_best),
    a("max_with_index", 2, reduce::arg_best),
    a("min_with_index", 2, reduce::arg_best),
    a("flip", 2, order::flip),
    a("sort", 3, order::sort),
    a("argsort", 3, order::argsort),
    a("topk", 2, order::topk),
    f("histogram", 1, 1, order::histogram),
    f("histogram_with_ranks", 1, 1, order::histogram_with_ranks),
    Builtin { name: "gather", arity: (3, 3), axis: Some(2), run: gather::gather },
    Builtin { name: "scatter", arity: (3, 3), axis: Some(2), run: gather::scatter },
    f("element", 2, 2, gather::element),
    Builtin { name: "reduce", arity: (3, 3), axis: Some(1), run: reduce::reduce },
    Builtin { name: "associative_scan", arity: (3, 4), axis: Some(1), run: reduce::scan },
    a("cumsum", 3, reduce::cumulative),
    a("cumprod", 3, reduce::cumulative),
    a("softmax", 2, reduce::softmax),
    f("exp", 1, 1, math::float_unary),
    f("fast_exp", 1, 1, math::fast),
    f("fast_exp2", 1, 1, math::fast),
    f("fast_recip", 1, 1, math::fast_unary),
    f("fast_sqrt", 1, 1, math::fast_unary),
    f("fast_log2", 1, 1, math::fast_unary),
    f("fast_demanded", 2, 2, math::fast_demanded),
    f("fast_sigmoid", 1, 1, math::fast),
    f("fast_tanh", 1, 1, math::fast),
    f("exp2", 1, 1, math::float_unary),
    f("log", 1, 1, math::float_unary),
    f("log2", 1, 1, math::float_unary),
    f("log1p", 1, 1, math::float_unary),
    f("tan", 1, 1, math::float_unary),
    f("sqrt", 1, 1, math::float_unary),
    f("rsqrt", 1, 1, math::float_unary),
    f("sin", 1, 1, math::float_unary),
    f("cos", 1, 1, math::float_unary),
    f("tanh", 1, 1, math::float_unary),
    f("erf", 1, 1, math::float_unary),
    f("sigmoid", 1, 1, math::float_unary),
    f("floor", 1, 1, math::float_unary),
    f("ceil", 1, 1, math::float_unary),
    f("round", 1, 1, math::float_unary),
    f("trunc", 1, 1, math::float_unary),
    f("abs", 1, 1, math::abs),
    f("fma", 3, 3, math::fma),
    f("minimum", 2, 2, math::extremum),
    f("maximum", 2, 2, math::extremum),
    f("minimum_num", 2, 2, math::extremum),
    f("maximum_num", 2, 2, math::extremum),
    f("clamp", 3, 3, math::clamp),
    f("cdiv", 2, 2, math::cdiv),
    f("umulhi", 2, 2, math::umulhi),
    f("popcount", 1, 1, math::bits),
    f("clz", 1, 1, math::bits),
    f("ffs", 1, 1, bits::ffs),
    f("brev", 1, 1, bits::brev),
    f("ldexp", 2, 2, bits::ldexp),
    f("is_nan", 1, 1, math::is_nan),
    f("is_inf", 1, 1, math::is_inf),
    f("is_finite", 1, 1, math::is_inf),
    f("rand", 2, 2, random::rand),
    f("randn", 2, 2, random::randn),
    f("randint", 2, 4, random::randint),
    f("randint4x", 2, 2, random::randint4x),
    f("multiple_of", 1, 2, create::multiple_of),
    f("grouped", 4, 4, create::grouped),
    f("view_of", 3, 3, views::view_of),
    f("is_some", 1, 1, optional::is_some),
    f("is_none", 1, 1, optional::is_some),
];

/// Methods of views.
static VIEW_METHODS: &[Builtin] = &[
    Builtin { name: "dim", arity: (2, 2), axis: Some(1), run: views::dim },
    Builtin { name: "stride", arity: (2, 2), axis: Some(1), run: views::stride },
    f("ptr", 1, 1, views::ptr),
    f("load", 2, 2, views::load),
    f("load_once", 2, 2, views::load),
    f("load_kept", 2, 2, views::load),
    f("store", 3, 4, views::store),
    f("store_once", 3, 4, views::store),
    f("store_kept", 3, 4, views::store),
    f("subview", 3, 4, views::subview),
];

/// Methods of lists of views.
static LIST_METHODS: &[Builtin] = &[f("at", 2, 2, list::at), f("len", 1, 1, list::len)];

/// Calls a function of the language.
pub(super) fn call(
    lower: &mut Lower,
    name: &'static str,
    span: Span,
    generics: &'static [GenericAst],
    args: Vec<Operand>,
) -> Res {
    match BUILTINS.iter().find(|builtin| builtin.name == name) {
        Some(builtin) => run(lower, builtin, 0, Call { name, span, generics, args }),
        None => {
            let error = lower.error(span, format!("there is no function `{name}`"));
            Err(suggest(error, name, BUILTINS))
        }
    }
}

/// Calls a method; the receiver is the first argument.
pub(super) fn method(
    lower: &mut Lower,
    name: &'static str,
    span: Span,
    generics: &'static [GenericAst],
    args: Vec<Operand>,
) -> Res {
    let table = match args.first().map(|receiver| &receiver.val) {
        Some(Val::Struct(_)) => LIST_METHODS,
        Some(receiver) if lower.view_type(receiver).is_some() => VIEW_METHODS,
        _ => BUILTINS,
    };
    match table.iter().find(|builtin| builtin.name == name) {
        Some(builtin) => run(lower, builtin, 1, Call { name, span, generics, args }),
        None => {
            let found = args.first().map_or_else(String::new, |o| lower.describe(&o.val));
            let error = lower.error(span, format!("{found} has no method `{name}`"));
            Err(suggest(error, name, table))
        }
    }
}

/// Checks the number of arguments and runs the handler; `receivers` are not counted in messages.
fn run(lower: &mut Lower, builtin: &Builtin, receivers: usize, mut call: Call) -> Res {
    if let Some(axis) = builtin.axis
        && call.args.len() + 1 >= builtin.arity.0
        && call.args.len() < builtin.arity.1
        && let [GenericAst::Const(expr), ..] = call.generics
        && call.args.len() >= axis
    {
        let operand = lower.operand(expr)?;
        call.args.insert(axis, operand);
    }
    let (min, max) = builtin.arity;
    if (min..=max).contains(&call.args.len()) {
        return (builtin.run)(lower, &call);
    }
    let (min, max) = (min - receivers.min(min), max - receivers.min(max));
    let expected = if min == max { min.to_string() } else { format!("{min} to {max}") };
    let plural = if expected == "1" { "argument" } else { "arguments" };
    let given = call.args.len().saturating_sub(receivers);
    let message = format!("`{}` takes {expected} {plural}, {given} given", builtin.name);
    Err(lower.error(call.span, message))
}

/// Names a function that is spelled nearly like this one.
fn suggest(error: Diagnostic, name: &str, table: &[Builtin]) -> Diagnostic {
    // Of names that are as near, one as long: letters change places more often than they are lost.
    let far = |near: &str| (distance(name, near), near.len().abs_diff(name.len()));
    let near = table.iter().map(|b| (far(b.name), b.name)).min();
    match near {
        Some(((distance, _), near)) if distance <= 2 => {
            error.help(format!("did you mean `{near}`?"))
        }
        _ => error,
    }
}

/// The number of single-character edits between two names.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.chars().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_stands_twice() {
        for table in [BUILTINS, VIEW_METHODS, LIST_METHODS] {
            let mut names: Vec<&str> = table.iter().map(|b| b.name).collect();
            names.sort_unstable();
            let n = names.len();
            names.dedup();
            assert_eq!(names.len(), n);
        }
    }

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("sotre", "store"), 2);
        assert_eq!(distance("sum", "sum"), 0);
        assert_eq!(distance("", "abc"), 3);
    }
}
