//! Layouts: which thread holds which element, and how tiles move between layouts.
//!
//! A layout is a linear map over F2 ([`LinearLayout`]); everything here is integer arithmetic on
//! its bases. [`assign`] makes layout IR ([`LayoutIr`]) of a function: every tile has a
//! layout, and code is generated from it.

mod assign;
pub mod blocked;
mod choose_warps;
mod coalesce;
pub mod convert;
pub mod f2;
mod gather;
mod histogram;
mod infer;
mod insert_conversions;
pub mod linear;
pub mod lir;
pub mod mma;
pub mod multistage;
pub mod ping_pong;
mod rematerialize_loads;
mod resident;
pub mod scratch;
#[cfg(test)]
pub(crate) mod simulate;
mod swizzle;
mod verify;
mod warp_gather;
pub mod warp_specialization;

pub use assign::assign;
pub use blocked::{Blocked, blocked, blocked_in};
pub use convert::{Conversion, ShufflePlan, exchange_steps, plan, stays_in_block, view_registers};
pub(crate) use gather::GatherPlan;
pub(crate) use histogram::HistogramPlan;
pub use linear::{HwBit, HwIndex, LANE_BITS, LANES, LinearLayout, Reduction};
pub(crate) use lir::WIDEST_ACCESS;
pub use lir::{
    Access, DotOperand, DotPlan, DotUnit, LayoutIr, LayoutOptions, MultistageBuffer,
    RegisterOperand, SharedOperand, StagedLoad, WgmmaKind,
};
pub use scratch::{SharedAccess, SharedGroup, SharedPlan, SharedUnit};
pub use verify::verify;
pub(crate) use warp_gather::{Source, WarpGather};
