//! How a command ends.

/// Why a command ended without success.
pub(super) enum Failure {
    /// A message for stderr.
    Message(String),
    /// Nobody reads what is printed: for whom would a message be.
    Closed,
    /// Stopped by a signal, with the status that says which; everything is saved. Or another program ended with this
    /// status and has said why.
    Stopped(u8),
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Message(error.to_string())
    }
}

/// What a command gives.
pub(super) type Outcome = Result<(), Failure>;
