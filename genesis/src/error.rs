//! The one error type of the framework.
//!
//! A message names the op, the shapes and the dtypes, lower case and without a full stop:
//! `matmul: inner extents differ, [4, 8] and [6, 2]`. Ask an error what it is by its methods.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// What went wrong in a call of the framework.
#[derive(Clone, Debug)]
pub struct Error {
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Op { op: String, message: String },
    Kernel(genesis_kernel::Error),
    Io(String),
    Busy(String),
}

/// The result of a call of the framework.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A call of `op` that is wrong, and why.
    pub fn op(op: impl Into<String>, message: impl Into<String>) -> Error {
        Error { kind: Kind::Op { op: op.into(), message: message.into() } }
    }

    /// A file or a format that can't be used, and why.
    pub fn io(message: impl Into<String>) -> Error {
        Error { kind: Kind::Io(message.into()) }
    }

    /// A queue that is full, and how long it is; the same call may succeed later.
    pub fn busy(message: impl Into<String>) -> Error {
        Error { kind: Kind::Busy(message.into()) }
    }

    /// The name of the op that refused, where an op did.
    pub fn op_name(&self) -> Option<&str> {
        match &self.kind {
            Kind::Op { op, .. } => Some(op),
            Kind::Kernel(_) | Kind::Io(_) | Kind::Busy(_) => None,
        }
    }

    /// Whether a queue was full, so that the same call may succeed later.
    pub fn is_busy(&self) -> bool {
        matches!(self.kind, Kind::Busy(_))
    }

    /// Whether memory ran out; the process can go on.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(&self.kind, Kind::Kernel(error) if error.is_out_of_memory())
    }

    /// Whether the device is lost for the rest of the process.
    pub fn is_device_lost(&self) -> bool {
        matches!(&self.kind, Kind::Kernel(error) if error.is_device_lost())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Op { op, message } => write!(f, "{op}: {message}"),
            Kind::Kernel(error) => error.fmt(f),
            Kind::Io(message) | Kind::Busy(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}

impl From<genesis_kernel::Error> for Error {
    fn from(error: genesis_kernel::Error) -> Error {
        Error { kind: Kind::Kernel(error) }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error::io(error.to_string())
    }
}

/// A line on standard error; where that is closed there is nobody to tell.
pub(crate) fn warn(line: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "warning: {line}");
}

/// As [`warn`], the first time that the process says it.
pub(crate) fn warn_once(line: impl fmt::Display) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let line = line.to_string();
    if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(line.clone()) {
        warn(line);
    }
}
