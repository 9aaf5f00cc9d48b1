//! What users are told: a `Diagnostic` for a kernel that is wrong, an `Error` for a call that is.

use std::fmt;

use crate::ir::Loc;

/// A kernel that can't be compiled as asked, in the user's words, at the user's line.
///
/// It prints as rustc prints: message, file, line and column, the source line with a caret where the
/// file can be read, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// What is wrong, lower case, no full stop.
    pub message: String,
    /// Where.
    pub loc: Option<Loc>,
    /// What stands at the caret, such as the shape of that operand.
    pub label: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl Diagnostic {
    /// A diagnostic at a place.
    pub fn new(message: impl Into<String>, loc: Option<Loc>) -> Diagnostic {
        Diagnostic { message: message.into(), loc, label: String::new(), help: None }
    }

    /// With text at the caret.
    pub fn label(mut self, label: impl Into<String>) -> Diagnostic {
        self.label = label.into();
        self
    }

    /// With a line of help.
    pub fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        if let Some(loc) = self.loc {
            write!(f, "\n  --> {}:{}:{}", loc.file, loc.line, loc.column)?;
            self.write_source(f, loc)?;
        }
        match &self.help {
            Some(help) => write!(f, "\n   = help: {help}"),
            None => Ok(()),
        }
    }
}

impl Diagnostic {
    fn write_source(&self, f: &mut fmt::Formatter<'_>, loc: Loc) -> fmt::Result {
        let Some(line) = source_line(loc) else { return Ok(()) };
        let number = loc.line.to_string();
        let margin = " ".repeat(number.len());
        let indent = " ".repeat(loc.column.saturating_sub(1) as usize);
        let carets = "^".repeat(loc.end_column.saturating_sub(loc.column).max(1) as usize);
        let label = format!("{indent}{carets} {}", self.label);
        write!(f, "\n{margin} |\n{number} | {line}\n{margin} | {}", label.trim_end())
    }
}

/// The line of source, if the file is where the compiler saw it: below the working directory or one
/// of its parents.
fn source_line(loc: Loc) -> Option<String> {
    let text = std::env::current_dir()
        .ok()?
        .ancestors()
        .find_map(|dir| std::fs::read_to_string(dir.join(loc.file)).ok())?;
    text.lines().nth(loc.line.checked_sub(1)? as usize).map(str::to_owned)
}

impl std::error::Error for Diagnostic {}

/// The error of every fallible call of this crate.
///
/// Ask it what it is by the methods; print it for a person.
#[derive(Clone, Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] ErrorKind);

#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ErrorKind {
    #[error("{0}")]
    Kernel(Diagnostic),
    #[error("{0}")]
    Launch(String),
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    #[error("{0}")]
    Device(String),
    #[error("the GPU stopped working: {0}")]
    DeviceLost(String),
    #[error("this is a bug in Genesis: {0}")]
    Bug(String),
}

impl Error {
    /// A launch that does not fit the kernel: which argument, what was expected, what was given.
    pub fn launch(message: impl Into<String>) -> Error {
        ErrorKind::Launch(message.into()).into()
    }

    /// A device that is missing or refuses.
    pub fn device(message: impl Into<String>) -> Error {
        ErrorKind::Device(message.into()).into()
    }

    /// Memory that could not be had.
    pub fn out_of_memory(message: impl Into<String>) -> Error {
        ErrorKind::OutOfMemory(message.into()).into()
    }

    /// A device whose context is broken for the rest of the process.
    pub fn device_lost(message: impl Into<String>) -> Error {
        ErrorKind::DeviceLost(message.into()).into()
    }

    /// Something that can't happen unless Genesis is wrong.
    pub fn bug(message: impl Into<String>) -> Error {
        ErrorKind::Bug(message.into()).into()
    }

    /// The diagnostic, where the kernel itself is wrong.
    pub fn diagnostic(&self) -> Option<&Diagnostic> {
        match &self.0 {
            ErrorKind::Kernel(diagnostic) => Some(diagnostic),
            _ => None,
        }
    }

    /// Whether memory ran out; the process can go on.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self.0, ErrorKind::OutOfMemory(_))
    }

    /// Whether the device is lost for the rest of the process.
    pub fn is_device_lost(&self) -> bool {
        matches!(self.0, ErrorKind::DeviceLost(_))
    }
}

impl From<Diagnostic> for Error {
    fn from(diagnostic: Diagnostic) -> Error {
        ErrorKind::Kernel(diagnostic).into()
    }
}
