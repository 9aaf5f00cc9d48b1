//! How much `bench ops` times, and where.

use genesis::Device;

/// What names of these cases begin with.
pub(crate) const PREFIX: &str = "ops/";

/// How much is timed.
#[derive(Clone, Copy)]
pub(crate) struct Scope {
    pub(crate) device: Device,
    pub(crate) is_quick: bool,
}
