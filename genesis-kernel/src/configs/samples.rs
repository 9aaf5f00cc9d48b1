//! What tests of tuning are about.

use crate::front::ast::{BlockAst, FnAst, Span};
use crate::ir::DType;
use crate::runtime::{Device, PtrArg};

/// A kernel without parameters, for tests.
pub(crate) const TEST_AST: FnAst = FnAst {
    name: "matmul",
    module: "test",
    file: "test.rs",
    span: Span { line: 1, column: 1, end_column: 2 },
    doc: "",
    dtypes: &[],
    consts: &[],
    params: &[],
    body: &BlockAst { stmts: &[], value: None },
    contract: false,
    ret: None,
};

/// An aligned address, for tests.
pub(crate) fn test_ptr(dtype: DType) -> PtrArg {
    PtrArg { device: Device::Cpu, address: 64, bytes: 1 << 20, dtype, mutable: false }
}
