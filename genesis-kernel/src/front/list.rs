//! Lists of views: how many there are, and the view that a number chooses.
//!
//! ```text
//! a.at(g)     %inside = 0 <= %g < view_dim 0 %table
//!             %row = ptr_add (view_ptr %table), %g * 5          a row of five numbers, as `runtime/list.rs` writes it
//!             %first = multiple_of 4 (load %row, %inside)       what the launch knows of all of them holds for each
//!             %view = make_view (ptr_add (view_ptr %views), %first), (load %row + 1, %inside), ..
//! ```
//!
//! Where there is no such view all loads give 0: it has no elements, and an access of it does nothing.

use crate::ir::{BinaryOp, Builder, DType, Predicate, Type, Value};

use super::arguments::Call;
use super::ast::TypeAst;
use super::lower::{Lower, Res};
use super::value::Val;

/// The parameters that a list is.
#[derive(Clone, Copy)]
struct List {
    /// What its views have in common.
    views: Value,
    /// A row for each.
    table: Value,
}

/// `a.len()`
pub(super) fn len(lower: &mut Lower, call: &Call) -> Res {
    let list = lower.list(call)?;
    Ok(Val::Ir(lower.build().view_dim(list.table, 0)))
}

/// `a.at(i)`
pub(super) fn at(lower: &mut Lower, call: &Call) -> Res {
    lower.refuse_in_combine(call.span, "`at`")?;
    let list = lower.list(call)?;
    let index = lower.scalar_index("index", &call.args[1])?;
    let Type::View { dtype, rank } = lower.func.ty(list.views) else {
        return Err(lower.error(call.span, "a list is one of views"));
    };
    let param = lower.func.params.iter().find(|param| param.value == list.views);
    let known = param.map(|param| param.attrs.clone()).unwrap_or_default();
    let mut b = lower.build();
    let row = Row::of(&mut b, list.table, index, i64::from(rank));
    let first = row.load(&mut b, 0);
    let first = multiple_of(&mut b, first, known.multiple_of / dtype.bytes() as u64);
    let base = b.view_ptr(list.views);
    let ptr = b.ptr_add(base, first);
    let rank = i64::from(rank);
    let unit = if known.unit_stride { Some(rank - 1) } else { known.unit_axis.map(i64::from) };
    let (mut extents, mut strides) = (Vec::new(), Vec::new());
    for axis in 0..rank {
        let is_inner = axis == unit.unwrap_or(rank - 1);
        let multiple = known.stride_multiple_of;
        extents.push(row.size(&mut b, 1 + axis, if is_inner { multiple } else { 0 }, known.narrow));
        strides.push(match unit == Some(axis) {
            true => b.int(DType::I64, 1),
            false => row.size(&mut b, 1 + rank + axis, multiple, known.narrow),
        });
    }
    Ok(Val::Ir(b.make_view(ptr, &extents, &strides)))
}

/// A row of the table.
struct Row {
    ptr: Value,
    /// Whether there is one.
    inside: Value,
}

impl Row {
    fn of(b: &mut Builder<'_>, table: Value, index: Value, rank: i64) -> Row {
        let (zero, len) = (b.int(DType::I64, 0), b.view_dim(table, 0));
        let above = b.compare(Predicate::Ge, index, zero);
        let below = b.compare(Predicate::Lt, index, len);
        let inside = b.binary(BinaryOp::And, above, below);
        let columns = b.int(DType::I64, 1 + 2 * rank);
        let (ptr, skipped) = (b.view_ptr(table), b.binary(BinaryOp::Mul, index, columns));
        Row { ptr: b.ptr_add(ptr, skipped), inside }
    }

    /// A number of the row; 0 where there is no row.
    fn load(&self, b: &mut Builder<'_>, column: i64) -> Value {
        let column = b.int(DType::I64, column);
        let ptr = b.ptr_add(self.ptr, column);
        b.load(ptr, Some(self.inside), None)
    }

    /// An extent or a stride. One of 31 bits goes through 32, so that indices made of it need no more.
    fn size(&self, b: &mut Builder<'_>, column: i64, multiple: u64, is_narrow: bool) -> Value {
        let mut size = self.load(b, column);
        if is_narrow {
            size = b.cast(size, DType::I32);
            size = b.cast(size, DType::I64);
        }
        multiple_of(b, size, multiple)
    }
}

fn multiple_of(b: &mut Builder<'_>, number: Value, n: u64) -> Value {
    if n > 1 { b.multiple_of(number, n) } else { number }
}

impl Lower {
    fn list(&self, call: &Call) -> Res<List> {
        let list = match &call.args[0].val {
            Val::Struct(fields) => match fields[..] {
                [(_, Val::Ir(views)), (_, Val::Ir(table))] => Some(List { views, table }),
                _ => None,
            },
            _ => None,
        };
        list.filter(|list| self.is_list(list)).ok_or_else(|| {
            let found = self.describe(&call.args[0].val);
            let message = format!("`{}` is a method of lists of views, this is {found}", call.name);
            self.error(call.span, message)
        })
    }

    /// Whether they are what a launch checks: any other table could lead anywhere.
    fn is_list(&self, list: &List) -> bool {
        let kernel = self.frames.first().map_or(&[][..], |frame| frame.ast.params);
        let mut params = self.func.params.iter().zip(kernel);
        let is_views = params.any(|(param, ast)| {
            param.value == list.views && matches!(ast.ty, TypeAst::Views { .. })
        });
        is_views && params.next().is_some_and(|(param, _)| param.value == list.table)
    }
}
