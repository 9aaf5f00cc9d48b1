//! How a rule is stated: a condition, and what is said where it does not hold.

/// What a rule gives.
pub(super) type Check = Result<(), String>;

/// Fails with a message unless the condition holds.
macro_rules! ensure {
    ($cond:expr, $($message:tt)+) => {
        if !$cond {
            return Err(format!($($message)+));
        }
    };
}
pub(super) use ensure;
