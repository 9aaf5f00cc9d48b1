//! Lists of views: one parameter for as many tensors as a launch has, of which a kernel chooses by a number.

use std::marker::PhantomData;

use super::param::{KernelParam, PresentOf};
use super::view::{View, ViewMut};
use super::{Element, typed};
use crate::front::ast::{DTypeAst, ParamAst, PatternAst, Span, TypeAst};
use crate::ir::DType;
use crate::runtime::{Arg, AsParam, CheckedArg, HostElement, ViewList, ViewListMut};

/// Tensors of `RANK` axes that the kernel reads, each of its own extents and strides, anywhere in the device's memory.
pub struct Views<T, const RANK: usize>(PhantomData<T>);

/// Tensors of `RANK` axes that the kernel reads and writes. While the kernel runs nothing else does.
pub struct ViewsMut<T, const RANK: usize>(PhantomData<T>);

/// What `#[autotune]` sees of a list.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct ListLen(usize);

impl ListLen {
    /// How many views it has.
    #[allow(clippy::len_without_is_empty, reason = "a kernel's list has no more than `len`")]
    pub fn len(&self) -> usize {
        self.0
    }

    /// Of the list whose first argument has this place: its table is the next one.
    fn of(args: &[Arg], first: usize) -> ListLen {
        match args.get(first + 1) {
            Some(Arg::View(table)) => ListLen(table.dims().first().map_or(0, |&n| n as usize)),
            _ => ListLen(0),
        }
    }
}

/// Where a field of the language's own would be declared.
const NOWHERE: Span = Span { line: 1, column: 1, end_column: 2 };

const fn field(name: &'static PatternAst, ty: TypeAst) -> ParamAst {
    ParamAst { span: NOWHERE, pattern: name, ty, optional: false }
}

/// A row for each view, as `runtime/list.rs` writes it.
const TABLE: ParamAst = field(
    &PatternAst::Name("table"),
    TypeAst::View { dtype: DTypeAst::Fixed(DType::I64), rank: 2, mutable: false },
);

macro_rules! list {
    ($list:ident: $mutable:literal, $view:ident, $passed:ident) => {
        impl<T, const RANK: usize> Clone for $list<T, RANK> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T, const RANK: usize> Copy for $list<T, RANK> {}

        #[allow(clippy::len_without_is_empty, reason = "a kernel's list has no more than `len`")]
        impl<T: Element, const RANK: usize> $list<T, RANK> {
            /// How many views there are.
            pub fn len(self) -> i64 {
                typed()
            }

            /// The view at a place, from 0 on; where there is none, one that has no elements.
            pub fn at(self, _index: i64) -> $view<T, RANK> {
                typed()
            }
        }

        #[diagnostic::do_not_recommend]
        impl<T, const RANK: usize> PresentOf<$list<T, RANK>> for () {
            fn add_to(&self, _there: &mut Vec<bool>) {}
        }

        #[diagnostic::do_not_recommend]
        impl<T, const RANK: usize> KernelParam for $list<T, RANK> {
            const DTYPES: &'static [&'static str] = &["T"];
            const FIELDS: &'static [ParamAst] = &[
                field(
                    &PatternAst::Name("views"),
                    TypeAst::Views {
                        dtype: DTypeAst::Param("T"),
                        rank: RANK as u8,
                        mutable: $mutable,
                    },
                ),
                TABLE,
            ];
            const HAS_POINTERS: bool = false;
            type Problem<'args> = ListLen;

            fn problem(args: &[Arg], first: usize) -> ListLen {
                ListLen::of(args, first)
            }
        }

        #[diagnostic::do_not_recommend]
        impl<T: HostElement, const RANK: usize> AsParam<$list<T, RANK>> for $passed<'_, T, RANK> {
            fn add_to<'arg>(&'arg self, args: &mut Vec<CheckedArg<'arg>>) {
                $passed::add_to(self, args);
            }
        }
    };
}
list!(Views: false, View, ViewList);
list!(ViewsMut: true, ViewMut, ViewListMut);

#[diagnostic::do_not_recommend]
impl<T: HostElement, const RANK: usize> AsParam<Views<T, RANK>> for &ViewList<'_, T, RANK> {
    fn add_to<'arg>(&'arg self, args: &mut Vec<CheckedArg<'arg>>) {
        ViewList::add_to(self, args);
    }
}

#[diagnostic::do_not_recommend]
impl<T: HostElement, const RANK: usize> AsParam<ViewsMut<T, RANK>>
    for &mut ViewListMut<'_, T, RANK>
{
    fn add_to<'arg>(&'arg self, args: &mut Vec<CheckedArg<'arg>>) {
        ViewListMut::add_to(self, args);
    }
}
