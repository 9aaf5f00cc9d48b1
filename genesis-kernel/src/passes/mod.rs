//! To come.

pub(crate) mod rebuild;
pub mod views;
