//! What is known about values without running the kernel.

pub mod axis;
pub mod masks;
pub mod range;

pub use axis::{AxisAnalysis, AxisInfo, Run};
pub use range::{Range, Ranges};
