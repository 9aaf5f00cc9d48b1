//! What a pass is: a name, and a function that changes another in place.

use crate::ir::Func;

/// One step of a pipeline.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// Its name, as dumps and errors print it.
    pub name: &'static str,
    /// What it does.
    pub run: fn(&mut Func),
}
