//! What commands print: nothing else in `cli` and `train` writes to stdout or stderr.
//!
//! A write to stdout may fail: its reader has gone, or it is a file on a full disk. Then the command ends
//! with the status that says so, after it has saved what it was asked to save. Nothing is lost where stderr
//! can't be written: there is nobody to tell.

use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, Write};
use std::path::Path;

use super::{Failure, Outcome};

/// Prints a line to stdout.
pub(super) fn say(line: impl std::fmt::Display) -> Outcome {
    put(format_args!("{line}\n"))
}

/// Prints to stdout what more may follow on the same line.
pub(super) fn put(text: impl std::fmt::Display) -> Outcome {
    let mut out = std::io::stdout().lock();
    let written = write!(out, "{text}").and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::Closed,
        _ => Failure::Message(format!("can't write to standard output: {error}")),
    })
}

/// Prints a line to stderr.
pub(super) fn warn(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A path in JSON, which has no bytes that are not UTF-8: they are replaced.
pub(super) fn path_text(path: &Path) -> String {
    path.display().to_string()
}

/// Lines of a command that goes on where they can't be printed, and says so at its end.
pub(super) struct Lines {
    /// Whether stdout is for one JSON value, so that lines go to stderr.
    json: bool,
    /// Whether the command leaves something behind beside its lines.
    keeps: bool,
    failure: RefCell<Option<Failure>>,
    failed: Cell<bool>,
}

impl Lines {
    pub(super) fn new(json: bool, keeps: bool) -> Lines {
        Lines { json, keeps, failure: RefCell::new(None), failed: Cell::new(false) }
    }

    /// Prints a line. Where nobody reads the lines and nothing else is left behind, the process ends.
    pub(super) fn line(&self, line: impl std::fmt::Display) {
        if self.json {
            return warn(line);
        }
        if self.failed.get() {
            return;
        }
        if let Err(failure) = say(line) {
            if !self.keeps {
                std::process::exit(failure.tell().into());
            }
            self.failed.set(true);
            self.failure.replace(Some(failure));
        }
    }

    /// What went wrong with the lines so far, once.
    pub(super) fn end(&self) -> Outcome {
        self.failure.take().map_or(Ok(()), Err)
    }
}
