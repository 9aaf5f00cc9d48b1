//! What can be passed for an optional parameter of a kernel: `Some` of what could be passed if it were not, or
//! [`Absent`]. A `None` alone would not say what it is a `None` of.

use super::args::{AsPtr, AsPtrMut, AsScalar, AsView, AsViewMut, CheckedArg};
use super::element::HostElement;
use crate::ir::Scalar;

/// In place of an argument that a kernel can do without.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Absent;

macro_rules! optional {
    ($(
        $(#[$doc:meta])*
        $name:ident of $inner:ident<T $(, $rank:ident)?>, $text:literal: $none:expr;
    )*) => {$(
        $(#[$doc])*
        #[diagnostic::on_unimplemented(
            message = "`{Self}` can't be passed for an optional parameter",
            label = $text
        )]
        pub trait $name<T: HostElement $(, const $rank: usize)?> {
            /// Whether the argument is there.
            fn is_there(&self) -> bool;
            /// The argument; one of nothing where it is not there.
            fn as_arg(&self) -> CheckedArg<'_>;
        }

        #[diagnostic::do_not_recommend]
        impl<A: $inner<T $(, $rank)?>, T: HostElement $(, const $rank: usize)?>
            $name<T $(, $rank)?> for Option<A>
        {
            fn is_there(&self) -> bool {
                self.is_some()
            }

            fn as_arg(&self) -> CheckedArg<'_> {
                self.as_ref().map_or_else(|| $none, $inner::as_arg)
            }
        }

        #[diagnostic::do_not_recommend]
        impl<T: HostElement $(, const $rank: usize)?> $name<T $(, $rank)?> for Absent {
            fn is_there(&self) -> bool {
                false
            }

            fn as_arg(&self) -> CheckedArg<'_> {
                $none
            }
        }
    )*};
}

optional! {
    /// What can be passed for a parameter `Option<Ptr<T>>`.
    AsOptionalPtr of AsPtr<T>, "expected `Some(&array)` or `Absent`":
        CheckedArg::no_ptr(T::DTYPE, false);
    /// What can be passed for a parameter `Option<PtrMut<T>>`.
    AsOptionalPtrMut of AsPtrMut<T>, "expected `Some(&mut array)` or `Absent`":
        CheckedArg::no_ptr(T::DTYPE, true);
    /// What can be passed for a parameter `Option<View<T, RANK>>`.
    AsOptionalView of AsView<T, RANK>, "expected `Some(array.view([..])?)` or `Absent`":
        CheckedArg::no_view(T::DTYPE, RANK, false);
    /// What can be passed for a parameter `Option<ViewMut<T, RANK>>`.
    AsOptionalViewMut of AsViewMut<T, RANK>, "expected `Some(array.view_mut([..])?)` or `Absent`":
        CheckedArg::no_view(T::DTYPE, RANK, true);
    /// What can be passed for a scalar parameter `Option<T>`.
    AsOptionalScalar of AsScalar<T>, "expected `Some(number)` or `Absent`":
        CheckedArg::scalar(Scalar::zero(T::DTYPE));
}
