//! Which op of a program a thread launches for.
//!
//! A GPU tells of a fault long after the launch that made it. So each launch leaves in its device's
//! ring of recent launches what the thread that made it says of itself here: an op's name, and the line of
//! the program that called it.

use std::cell::Cell;
use std::fmt;
use std::panic::Location;

/// What a thread launches for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// The op's name; empty outside of ops.
    pub op: &'static str,
    /// Whether it is the op's gradient.
    pub is_backward: bool,
    /// The line that called the op, as far as that is known.
    pub place: Option<&'static Location<'static>>,
}

thread_local! {
    static ORIGIN: Cell<Origin> = const { Cell::new(Origin { op: "", is_backward: false, place: None }) };
}

/// The origin of what this thread launches.
pub fn origin() -> Origin {
    ORIGIN.get()
}

/// Until the guard is dropped, this thread launches for another origin.
#[inline]
pub fn enter(origin: Origin) -> EnteredOrigin {
    EnteredOrigin { previous: ORIGIN.replace(origin) }
}

/// Gives back the origin from before when it is dropped.
#[derive(Debug)]
pub struct EnteredOrigin {
    previous: Origin,
}

impl Drop for EnteredOrigin {
    #[inline]
    fn drop(&mut self) {
        ORIGIN.set(self.previous);
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.op)?;
        if self.is_backward {
            f.write_str(" backward")?;
        }
        match self.place {
            Some(place) => write!(f, " at {}:{}", place.file(), place.line()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_ends_with_its_guard() {
        let place = Some(Location::caller());
        let outer = enter(Origin { op: "matmul", is_backward: true, place });
        {
            let _inner = enter(Origin { op: "sum", ..Origin::default() });
            assert_eq!(origin().to_string(), "sum");
        }
        assert!(origin().to_string().starts_with("matmul backward at "), "{}", origin());
        drop(outer);
        assert_eq!(origin(), Origin::default());
    }
}
