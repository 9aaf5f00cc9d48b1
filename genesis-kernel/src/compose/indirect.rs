//! A kernel that reads its numbers from memory: what a graph replays has to find them there.
//!
//! ```text
//! kernel scale(x: View<T, 1>, y: ViewMut<T, 1>, c: A) { .. }
//! kernel scale(x: View<T, 1>, y: ViewMut<T, 1>, c: Ptr<A>) { let c = load(c); .. }
//! ```

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::write::{call, keep, keep_all, let_, name};
use crate::diag::Error;
use crate::front::ast::{BlockAst, FnAst, ParamAst, PatternAst, TypeAst};
use crate::kernel::KernelDef;
use crate::runtime::Arg;

/// The kernel, changed to take a pointer for each scalar that the arguments give a pointer for; the
/// kernel itself where there is none.
///
/// # Errors
/// If such a scalar has no name.
pub fn indirect(def: &'static KernelDef, args: &[Arg]) -> Result<&'static KernelDef, Error> {
    static KNOWN: Mutex<BTreeMap<(usize, u64), &'static KernelDef>> = Mutex::new(BTreeMap::new());
    let is_indirect = |(param, arg): (&ParamAst, &Arg)| {
        matches!((param.ty, arg), (TypeAst::Scalar(_), Arg::Ptr(_)))
    };
    let pairs = def.ast.params.iter().zip(args).enumerate();
    let which = pairs.filter(|&(_, pair)| is_indirect(pair)).map(|(i, _)| i);
    let mask = which.filter(|&i| i < 64).fold(0u64, |mask, i| mask | 1 << i);
    if mask == 0 {
        return Ok(def);
    }
    let key = (std::ptr::from_ref(def).addr(), mask);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(changed) = known.get(&key) {
        return Ok(changed);
    }
    let changed: &'static KernelDef = Box::leak(Box::new(KernelDef::new(rewrite(def.ast, mask)?)));
    known.insert(key, changed);
    Ok(changed)
}

fn rewrite(ast: &'static FnAst, mask: u64) -> Result<&'static FnAst, Error> {
    let (mut params, mut stmts) = (Vec::new(), Vec::new());
    for (i, param) in ast.params.iter().enumerate() {
        let (TypeAst::Scalar(dtype), true) = (param.ty, i < 64 && mask >> i & 1 == 1) else {
            params.push(*param);
            continue;
        };
        let PatternAst::Name(own) = *param.pattern else {
            return Err(Error::launch(format!("{}: a number without a name", ast.name)));
        };
        params.push(ParamAst { ty: TypeAst::Ptr { dtype, mutable: false }, ..*param });
        stmts.push(let_(own, call("load", Vec::new(), vec![name(own)])));
    }
    stmts.extend_from_slice(ast.body.stmts);
    let body = keep(BlockAst { stmts: keep_all(stmts), value: ast.body.value });
    Ok(keep(FnAst { params: keep_all(params), body, ..super::body::copy(ast) }))
}
