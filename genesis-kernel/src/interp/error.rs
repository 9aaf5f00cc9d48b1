//! What stops the interpreter.

use std::fmt;

use crate::ir::{DType, Loc};

/// An error of a kernel, with where it happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterpError {
    /// The program's index along each axis of the grid; none before the first program ran.
    pub program: Option<[u32; 3]>,
    /// The user's source, where the op has it.
    pub loc: Option<Loc>,
    /// The op, such as `load`.
    pub op: String,
    /// What happened.
    pub kind: InterpErrorKind,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InterpErrorKind {
    /// The function does not verify.
    Invalid(String),
    /// The arguments do not fit the parameters.
    Argument(String),
    /// An access outside a buffer.
    OutOfBounds {
        /// The buffer that is next to the address; none where none is.
        buffer: Option<String>,
        /// The element's index in it.
        index: i64,
        /// How many elements it has.
        extent: usize,
    },
    /// An address that is no multiple of the element's size.
    Misaligned {
        /// The buffer.
        buffer: String,
        /// The distance from its start, in bytes.
        offset: usize,
        /// The element's dtype.
        dtype: DType,
    },
    /// A read of memory that nothing has written.
    Uninitialised {
        /// The buffer.
        buffer: String,
        /// The element's index in it.
        index: usize,
    },
    /// A write to memory that may not be written.
    ReadOnly {
        /// The buffer.
        buffer: String,
        /// The element's index in it.
        index: usize,
    },
    /// Two programs touched one element, one of them wrote, and not both were atomic.
    Race {
        /// The buffer.
        buffer: String,
        /// The element's index in it.
        index: usize,
        /// What the other program did, such as `written`.
        other: &'static str,
    },
    /// Two lanes of one store wrote different values to one element, of which either may stay.
    Lanes {
        /// The buffer.
        buffer: String,
        /// The element's index in it.
        index: usize,
    },
    /// A false assertion.
    Assert(String),
    /// A promise of `multiple_of` that does not hold.
    NotMultiple {
        /// The element.
        value: i64,
        /// What it should be a multiple of.
        n: u64,
    },
    /// A `scatter` whose index has not every place along its axis once.
    NoPermutation,
    /// More ops than a program may execute.
    Fuel {
        /// How many it may.
        ops: u64,
    },
}

impl InterpErrorKind {
    pub(super) fn before_any_program(self) -> InterpError {
        InterpError { program: None, loc: None, op: String::new(), kind: self }
    }
}

impl fmt::Display for InterpErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterpErrorKind::Invalid(message) => {
                write!(f, "this is a bug in Genesis, the IR is not valid: {message}")
            }
            InterpErrorKind::Argument(message) => f.write_str(message),
            InterpErrorKind::OutOfBounds { buffer: Some(buffer), index, extent } => {
                write!(f, "index {index} is outside `{buffer}`, which has {extent} elements")
            }
            InterpErrorKind::OutOfBounds { buffer: None, index, .. } => {
                write!(f, "address {index:#x} is in no buffer")
            }
            InterpErrorKind::Misaligned { buffer, offset, dtype } => {
                write!(f, "{offset} bytes into `{buffer}` there is no aligned {dtype}")
            }
            InterpErrorKind::Uninitialised { buffer, index } => {
                write!(f, "`{buffer}` was never written at index {index}")
            }
            InterpErrorKind::ReadOnly { buffer, index } => {
                write!(f, "`{buffer}` is read-only, this writes index {index}")
            }
            InterpErrorKind::Race { buffer, index, other } => {
                write!(f, "a race: index {index} of `{buffer}` is also {other} by another program")
            }
            InterpErrorKind::Lanes { buffer, index } => write!(
                f,
                "a race: two lanes of this store write different values to index {index} of `{buffer}`"
            ),
            InterpErrorKind::Assert(message) => write!(f, "assertion failed: {message}"),
            InterpErrorKind::NotMultiple { value, n } => {
                write!(f, "{value} is not a multiple of {n}, as was promised")
            }
            InterpErrorKind::NoPermutation => {
                write!(f, "the index of this scatter has not every place along the axis once")
            }
            InterpErrorKind::Fuel { ops } => {
                write!(f, "the program does not seem to end: it ran {ops} ops")
            }
        }
    }
}

impl fmt::Display for InterpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(loc) = self.loc {
            write!(f, "{}:{}:{}: ", loc.file, loc.line, loc.column)?;
        }
        if let Some(program) = self.program {
            write!(f, "`{}` in program {program:?}: ", self.op)?;
        }
        self.kind.fmt(f)
    }
}

impl std::error::Error for InterpError {}
