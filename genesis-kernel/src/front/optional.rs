//! Optional parameters: whether one is there is known when the kernel is specialised, so that nothing is left of the
//! branch that is not taken.

use super::arguments::Call;
use super::ast::ParamAst;
use super::lower::{Lower, Res};
use super::value::Val;

/// `x.is_some()`, `x.is_none()`
pub(super) fn is_some(lower: &mut Lower, call: &Call) -> Res {
    match &call.args[0].val {
        Val::Optional(inner) => Ok(Val::bool(inner.is_some() == (call.name == "is_some"))),
        val => {
            let found = lower.describe(val);
            let message = format!("`{}` is a method of an `Option`, this is {found}", call.name);
            Err(lower.error(call.span, message))
        }
    }
}

/// The value of a kernel's parameter, by the constant that says whether it is there.
pub(super) fn of_param(lower: &Lower, param: &ParamAst, name: &str, val: Val) -> Val {
    if !param.optional {
        return val;
    }
    let constant = lower.frame().lookup(&format!("{name}.is_some"));
    let is_there = constant.is_some_and(|constant| constant.as_int() == Some(1));
    Val::Optional(is_there.then(|| Box::new(val)))
}
