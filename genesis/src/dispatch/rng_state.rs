//! Where a random number generator stands, which a captured step notes and a checkpoint goes back to.

/// The state of a generator: what to save to continue later with the same draws.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RngState {
    /// The key.
    pub seed: u64,
    /// The number of draws made so far.
    pub offset: u64,
}
