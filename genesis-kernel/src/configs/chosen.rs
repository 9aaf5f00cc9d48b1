//! The configurations that were chosen for a kernel so far.

use std::sync::{Arc, OnceLock, RwLock};

use super::{Config, Record};
use crate::ir::DType;
use crate::runtime::Device;

/// Where a configuration comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The database on this disk.
    Database,
    /// The table that came with the kernel.
    Table,
    /// It was measured just now.
    Measured,
    /// The nearest problem that was measured.
    Near,
    /// The kernel's heuristic.
    Heuristic,
    /// The model.
    Model,
}

/// What a choice depends on, and the choice.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) hash: u64,
    pub(crate) device: Device,
    pub(crate) dtypes: Vec<DType>,
    pub(crate) sizes: Vec<i64>,
    pub(crate) forms: u64,
    pub(crate) config: Arc<Config>,
    pub(crate) source: Source,
}

/// The choices made so far for one kernel, sorted by hash.
#[derive(Debug, Default)]
pub struct Chosen {
    pub(crate) choices: RwLock<Vec<Choice>>,
    pub(crate) table: OnceLock<Vec<Record>>,
}

impl Chosen {
    pub(crate) const fn new() -> Chosen {
        Chosen { choices: RwLock::new(Vec::new()), table: OnceLock::new() }
    }
}
