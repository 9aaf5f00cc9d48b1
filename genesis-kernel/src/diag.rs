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
        self.write(f, "error")
    }
}

impl Diagnostic {
    fn write(&self, f: &mut fmt::Formatter<'_>, severity: &str) -> fmt::Result {
        write!(f, "{severity}: {}", self.message)?;
        if let Some(loc) = self.loc {
            write!(f, "\n  --> {}:{}:{}", loc.file, loc.line, loc.column)?;
            self.write_source(f, loc)?;
        }
        match &self.help {
            Some(help) => write!(f, "\n   = help: {help}"),
            None => Ok(()),
        }
    }

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

/// Something about a kernel that compiles and may still not be what its author meant: an option that has no effect,
/// or registers that spill. It prints as a [`Diagnostic`] does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning(Diagnostic);

impl Warning {
    /// A warning, at a place where it is about one.
    pub fn new(message: impl Into<String>, loc: Option<Loc>) -> Warning {
        Warning(Diagnostic::new(message, loc))
    }

    /// With a line of help.
    pub fn help(self, help: impl Into<String>) -> Warning {
        Warning(self.0.help(help))
    }

    /// What is said, in parts.
    pub fn diagnostic(&self) -> &Diagnostic {
        &self.0
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, "warning")
    }
}

/// Whether the source of a place is on this machine, so that a message about it shows the line.
pub(crate) fn has_source(loc: Loc) -> bool {
    source_line(loc).is_some()
}

/// The error of every fallible call of this crate.
///
/// Ask it what it is by the methods; print it for a person. `{:?}` prints the same, so that a `main` that returns
/// it, an `unwrap` or an `expect` shows the message and the line it is about.
#[derive(Clone, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] ErrorKind);

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.to_string();
        // Rust itself says `Error: ` before it.
        f.write_str(text.strip_prefix("error: ").unwrap_or(&text))
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_main_that_returns_an_error_shows_the_message_and_the_line() {
        let loc = Loc { file: "src/diag.rs", line: 1, column: 5, end_column: 9 };
        let diagnostic = Diagnostic::new("what is wrong", Some(loc)).label("here").help("do this");
        let error = Error::from(diagnostic);
        let shown = format!("Error: {error:?}");
        let expected = "Error: what is wrong
  --> src/diag.rs:1:5
  |
1 | //! What users are told: a `Diagnostic` for a kernel that is wrong, an `Error` for a call that is.
  |     ^^^^ here
   = help: do this";
        assert_eq!(shown, expected);
        assert_eq!(format!("{:?}", Error::launch("add: no")), "add: no");
    }
}
