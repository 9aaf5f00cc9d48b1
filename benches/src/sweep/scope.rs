//! How much `bench ops` times, and where.

use genesis::Device;

/// How much is timed.
#[derive(Clone, Copy)]
pub(crate) struct Scope {
    pub(crate) device: Device,
    pub(crate) is_quick: bool,
}
