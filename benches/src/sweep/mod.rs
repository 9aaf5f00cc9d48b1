//! `bench ops`: every op of the op table, forward and backward, beside PyTorch.
//!
//! Nothing is listed here. A row of the table says what the op is called with, how its samples grow
//! ([`genesis::ops::info::Growth`]) and what the same call is in PyTorch; from it come the cases
//!
//! ```text
//! ops/softmax/f32/large        [4096, 4096]
//! ops/softmax/f32/odd          [4095, 4095]
//! ops/softmax/bf16/large/bwd   its backward alone, of a forward that ran before
//! ops/index_add/f32/large/unordered
//! ```
//!
//! Where there is an index the peer is PyTorch with its deterministic algorithms, since ours are; `unordered`
//! is both without ([`genesis::use_deterministic_algorithms`]).
//!
//! of the kinds of [`Kind`]. Both sides draw inputs of the same shapes, strides and ranges; that shape and
//! dtype of the results agree is looked at before anything is timed, the values themselves are what the
//! tests of the table are for, and `bench ops --check`.

mod call;
mod calls;
mod check;
mod kind;
mod prepare;
mod scope;
mod summary;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use genesis::ops::info::{Family, Growth, OpInfo, all};
use rayon::prelude::*;

use crate::table::Case;
pub(crate) use call::Call;
pub(crate) use check::check;
pub(crate) use kind::Kind;
pub(crate) use prepare::{Result, prepare};
pub(crate) use scope::{PREFIX, Scope};
pub(crate) use summary::{Summary, read};

/// The calls of a scope by their names, made once a process: the ops have to be asked how they grow.
pub(crate) fn calls(scope: Scope) -> &'static BTreeMap<String, Call> {
    static CALLS: OnceLock<BTreeMap<String, Call>> = OnceLock::new();
    CALLS.get_or_init(|| {
        let each: Vec<Vec<Call>> = all().into_par_iter().map(|info| of_row(info, scope)).collect();
        let named = if scope.device.is_cuda() { calls::all() } else { Vec::new() };
        each.into_iter().flatten().chain(named).map(|call| (call.name.clone(), call)).collect()
    })
}

/// The cases of a scope, in the order of their names.
pub(crate) fn cases(scope: Scope) -> Vec<Case> {
    calls(scope).keys().map(|name| Case { name: name.clone(), must: None, aim: None }).collect()
}

/// The calls of a row.
fn of_row(info: &'static OpInfo, scope: Scope) -> Vec<Call> {
    let Ok(growth) = info.growth() else { return Vec::new() };
    let broadcast = info.broadcast_growth();
    let mut calls = Vec::new();
    for (kind, dtype, is_backward) in Kind::wanted(info, scope.is_quick) {
        let grown: Option<&Growth> =
            if kind == Kind::Broadcast { broadcast.as_ref() } else { Some(&growth) };
        let Some(grown) = grown.filter(|grown| kind == Kind::Small || grown.grows()) else {
            continue;
        };
        let shapes = grown.shapes(info, &kind.limits(scope), kind == Kind::Odd);
        if kind.applies(&shapes) {
            let part = if is_backward { "/bwd" } else { "" };
            let row = info.name.replace(' ', "_");
            let call = Call {
                name: format!("{PREFIX}{row}/{dtype}/{}{part}", kind.name()),
                row: info.name,
                run: info.call,
                peer: info.peer_call(),
                inputs: info.inputs(grown.sample(), &shapes, dtype),
                kind,
                dtype,
                is_backward,
                is_unordered: false,
                info: Some(info),
            };
            calls.extend(unordered(&call));
            calls.push(call);
        }
    }
    calls
}

/// A large call that may add up floats at indices, in any order.
fn unordered(call: &Call) -> Option<Call> {
    let adds = call.is_backward || call.info.is_some_and(|info| info.family == Family::Sum);
    let is_one = call.wants_order() && adds && call.kind == Kind::Large && call.dtype.is_float();
    is_one.then(|| Call {
        name: format!("{}/unordered", call.name),
        is_unordered: true,
        ..call.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_its_cases() {
        let scope = Scope { device: genesis::Device::Cpu, is_quick: true };
        let calls = calls(scope);
        for info in all() {
            let prefix = format!("{PREFIX}{}/", info.name.replace(' ', "_"));
            assert!(calls.keys().any(|name| name.starts_with(&prefix)), "{} has none", info.name);
        }
        let shapes = |name: &str| -> Vec<Vec<usize>> {
            calls[name].inputs.iter().map(|input| input.shape.clone()).collect()
        };
        assert_eq!(shapes("ops/matmul/f32/large"), [[512, 1024], [1024, 512]]);
        assert_eq!(shapes("ops/matmul/f32/small"), [[64, 64], [64, 64]]);
        assert_eq!(shapes("ops/add/f32/large"), [[1024, 1024], [1024, 1024]]);
        assert_eq!(shapes("ops/softmax/f32/odd"), [[1023, 1023]]);
        assert_eq!(shapes("ops/conv/2d/f32/large")[1][2..], [3, 2]);
        assert_eq!(shapes("ops/embedding/f32/large"), [vec![1024, 1024], vec![1024]]);
    }
}
