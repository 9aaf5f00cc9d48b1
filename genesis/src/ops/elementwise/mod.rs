//! Ops on each element by itself; operands broadcast and promote.

mod activation;
mod arith;
mod binary;
mod compare;
mod logic;
mod math;
mod math_pairs;
mod operators;
mod polygamma;
#[cfg(feature = "op-info")]
pub(super) mod reference;
mod scalar;
mod select;
mod unary;

pub(super) use super::operands::check_pair;
use crate::dispatch::autocast::Precisions;
#[cfg(feature = "op-info")]
use crate::ops::info::{Method, OpInfo};
pub use arith::{RoundingMode, Tolerance};

/// In what autocast computes the ops of this folder.
pub(super) const AUTOCAST: &[Precisions] = &[
    logic::AUTOCAST,
    activation::AUTOCAST,
    unary::AUTOCAST,
    binary::AUTOCAST,
    scalar::AUTOCAST,
    math::AUTOCAST,
    math_pairs::AUTOCAST,
    compare::AUTOCAST,
    select::AUTOCAST,
];

/// The rows of this folder.
#[cfg(feature = "op-info")]
pub(super) static INFOS: &[&[OpInfo]] = &[
    unary::info::INFOS,
    binary::info::INFOS,
    scalar::info::INFOS,
    math::info::INFOS,
    math_pairs::info::INFOS,
    polygamma::info::INFOS,
    compare::info::INFOS,
    select::info::INFOS,
    arith::info::INFOS,
    activation::info::INFOS,
    logic::info::INFOS,
];

/// The methods that rows of tables declare.
#[cfg(feature = "op-info")]
pub(super) static METHODS: &[&[Method]] = &[
    unary::info::METHODS,
    binary::info::METHODS,
    scalar::info::METHODS,
    math::info::METHODS,
    math_pairs::info::METHODS,
    compare::info::METHODS,
];
