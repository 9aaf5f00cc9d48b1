//! A kernel for given dtypes, constants and hints.

use std::sync::OnceLock;

use crate::front::Hints;
use crate::ir::{DType, Func};

/// A kernel for given dtypes, constants and hints: tile IR, ready for any back end.
#[derive(Clone, Debug)]
pub struct Specialized {
    /// The tile IR.
    pub func: Func,
    /// The dtypes, in the order of the kernel's type parameters.
    pub dtypes: Vec<DType>,
    /// The constants, in the order of the kernel's const parameters.
    pub consts: Vec<i64>,
    /// What is known about the arguments.
    pub hints: Hints,
    /// The tile IR with transcendental functions as the CPU computes them.
    pub(super) exact: OnceLock<Func>,
}

impl Specialized {
    /// Tile IR of a kernel for these dtypes and constants.
    pub fn new(func: Func, dtypes: &[DType], consts: &[i64], hints: &Hints) -> Specialized {
        let (dtypes, consts) = (dtypes.to_vec(), consts.to_vec());
        Specialized { func, dtypes, consts, hints: hints.clone(), exact: OnceLock::new() }
    }
}
