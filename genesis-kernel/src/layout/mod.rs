//! Layouts: which thread holds which element, and how tiles move between layouts.
//!
//! A layout is a linear map over F2 ([`LinearLayout`]); everything here is integer arithmetic on
//! its bases. Layout IR ([`LayoutIr`]) is a function whose tiles all have one; code is generated
//! from it.

pub mod blocked;
pub mod convert;
pub mod f2;
pub mod linear;
pub mod lir;
pub mod mma;
pub mod scratch;

pub use blocked::{Blocked, blocked, blocked_in};
pub use convert::{Conversion, ShufflePlan, plan, view_registers};
pub use linear::{HwBit, HwIndex, LANE_BITS, LANES, LinearLayout, Reduction};
pub use lir::{Access, DotOperand, DotPlan, DotUnit, LayoutIr, LayoutOptions};
pub use scratch::{SharedAccess, SharedPlan};
