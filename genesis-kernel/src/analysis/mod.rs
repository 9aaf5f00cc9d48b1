//! What is known about values without running the kernel.

pub mod axis;
mod constant;
pub mod masks;
mod persistent;
pub mod range;

pub use axis::{AxisAnalysis, AxisInfo, Run};
pub use constant::{base, is_constant};
pub use persistent::{is_persistent, is_share_of_grid};
pub use range::{Range, Ranges};
