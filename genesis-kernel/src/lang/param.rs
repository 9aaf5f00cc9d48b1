//! Structs that kernels take.

use crate::front::ast::ParamAst;
use crate::front::fields::StructAst;
use crate::runtime::Arg;

/// A struct of scalars, pointers and views that a kernel takes as one parameter: `#[derive(KernelParam)]` implements
/// it.
#[diagnostic::on_unimplemented(
    message = "a kernel can't take `{Self}`",
    label = "no type of a parameter",
    note = "parameters are scalars (`i64`, `f32`, `T`), `Ptr<T>`, `PtrMut<T>`, `View<T, RANK>` and `ViewMut<T, RANK>`, \
            `Option`s of these, `Views<T, RANK>` and `ViewsMut<T, RANK>`, tuples, and structs under `#[derive(KernelParam)]`"
)]
pub trait KernelParam {
    /// The names of its type parameters, in order.
    const DTYPES: &'static [&'static str];
    /// The fields, each as a parameter of its own.
    const FIELDS: &'static [ParamAst];
    /// Whether one is a `Ptr` or `PtrMut`: a kernel that takes it has no safe launch.
    const HAS_POINTERS: bool;
    /// What `#[autotune]` sees of its arguments.
    type Problem<'args>;

    /// What `#[autotune]` sees of the arguments from the `first` one on.
    fn problem(args: &[Arg], first: usize) -> Self::Problem<'_>;
}

/// What says of a struct `P` which of its optional fields are there; `()` where none is optional.
#[doc(hidden)]
pub trait PresentOf<P> {
    /// Adds whether each is, in order.
    fn add_to(&self, there: &mut Vec<bool>);
}

/// What the compiler of kernels asks of a struct that a kernel or a device function takes. All ask by this function, so
/// that rustc says of what is no such struct the same each time, and prints it once.
#[doc(hidden)]
pub const fn struct_of<P: KernelParam>() -> StructAst {
    StructAst { fields: P::FIELDS, dtypes: P::DTYPES, has_pointers: P::HAS_POINTERS }
}
