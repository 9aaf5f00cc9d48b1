//! What is launched, where and with what.

use crate::front::LaunchOptions;
use crate::ir::DType;
use crate::runtime::{Arg, Grid, PtrArg, Stream};

/// Operands of a launch that takes the short way.
pub(crate) const MAX_DENSE_OPERANDS: usize = 8;

/// What is launched, where and with what; see [`KernelDef::launch_with`].
#[derive(Clone, Copy)]
pub(crate) struct Launch<'a> {
    pub(crate) stream: &'a Stream,
    pub(crate) grid: Grid,
    pub(crate) dtypes: &'a [DType],
    pub(crate) consts: &'a [i64],
    pub(crate) options: LaunchOptions,
    pub(crate) args: &'a [Arg],
}

/// What [`KernelDef::launch_dense`](super::KernelDef::launch_dense) launches: a kernel of views of one axis, all of one length and dense.
#[derive(Clone, Copy, Debug)]
pub struct DenseLaunch<'a> {
    /// Programs along the first axis of the grid, which is the only one.
    pub programs: usize,
    /// The kernel's type parameters.
    pub dtypes: &'a [DType],
    /// The kernel's constants.
    pub consts: &'a [i64],
    /// Choices of the caller's.
    pub options: LaunchOptions,
    /// Elements of each operand.
    pub len: usize,
    /// The first element of each operand.
    pub operands: &'a [PtrArg],
}
