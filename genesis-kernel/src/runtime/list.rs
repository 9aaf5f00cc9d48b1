//! Lists of views, which a kernel takes as one argument and chooses from by a number that it computes.
//!
//! ```text
//! stream.views(&[x, y])?            table, on the device: a row for each view
//!   x: [4, 6], strides [6, 1]         first element   extents   strides
//!   y: [8, 6], strides [6, 1]               0           4, 6      6, 1
//!                                         256           8, 6      6, 1
//! ```
//!
//! The table counts elements from one of the views, and so a kernel makes no pointer of a number: it moves the one that it
//! is given. Nothing but this file writes a table, and what is in it was checked when the views were made: an access through
//! a view of the list is as safe as through one that is an argument of its own.

use std::marker::PhantomData;

use super::arg::{PtrArg, ViewArg};
use super::args::{AsView, AsViewMut, CheckedArg};
use super::array::Array;
use super::element::HostElement;
use super::overlap::share_elements;
use super::reach::reach;
use super::stream::Stream;
use crate::diag::Error;
use crate::ir::{DType, MAX_RANK};

/// Views to read, as one argument of a launch: what [`Stream::views`] makes, for a parameter `Views<T, RANK>`.
#[derive(Debug)]
pub struct ViewList<'a, T, const RANK: usize> {
    list: List<'a>,
    element: PhantomData<T>,
}

/// Views to write, as one argument of a launch: what [`Stream::views_mut`] makes, for a parameter `ViewsMut<T, RANK>`.
#[derive(Debug)]
pub struct ViewListMut<'a, T, const RANK: usize> {
    list: List<'a>,
    element: PhantomData<T>,
}

#[derive(Debug)]
struct List<'a> {
    /// What all of them have in common; see [`Arg::Views`](super::Arg::Views).
    all: ViewArg,
    /// A row for each.
    table: Array<i64>,
    /// The table as a matrix.
    rows: ViewArg,
    views: Vec<CheckedArg<'a>>,
}

impl Stream {
    /// Views of any extents and strides, anywhere on this stream's device, as one argument. The table of them is copied to
    /// the device here, once for as many launches as the list is given to.
    ///
    /// # Errors
    /// If a view is on another device, or that has no memory for the table.
    pub fn views<'a, T: HostElement, const RANK: usize>(
        &self,
        views: &'a [impl AsView<T, RANK>],
    ) -> Result<ViewList<'a, T, RANK>, Error> {
        let list = List::of(self, views.iter().map(AsView::as_arg), (T::DTYPE, RANK), false)?;
        Ok(ViewList { list, element: PhantomData })
    }

    /// [`Stream::views`] of those that are written.
    ///
    /// # Errors
    /// As [`Stream::views`]; also if two of them share an element.
    pub fn views_mut<'a, T: HostElement, const RANK: usize>(
        &self,
        views: &'a mut [impl AsViewMut<T, RANK>],
    ) -> Result<ViewListMut<'a, T, RANK>, Error> {
        let views: &'a [_] = views;
        let list = List::of(self, views.iter().map(AsViewMut::as_arg), (T::DTYPE, RANK), true)?;
        Ok(ViewListMut { list, element: PhantomData })
    }
}

macro_rules! list_methods {
    ($list:ident) => {
        impl<'a, T, const RANK: usize> $list<'a, T, RANK> {
            /// How many views there are.
            pub fn len(&self) -> usize {
                self.list.views.len()
            }

            /// Whether there are none.
            pub fn is_empty(&self) -> bool {
                self.list.views.is_empty()
            }

            /// Adds the two arguments that it is: what the views have in common, and the table.
            pub(crate) fn add_to<'l>(&'l self, args: &mut Vec<CheckedArg<'l>>) {
                self.list.add_to(args);
            }
        }
    };
}
list_methods!(ViewList);
list_methods!(ViewListMut);

impl<'a> List<'a> {
    fn of(
        stream: &Stream,
        views: impl Iterator<Item = CheckedArg<'a>>,
        (dtype, rank): (DType, usize),
        mutable: bool,
    ) -> Result<List<'a>, Error> {
        let views: Vec<CheckedArg<'a>> = views.collect();
        let mut plain = Vec::new();
        for (i, view) in views.iter().enumerate() {
            plain.push(
                *checked(stream, view, (dtype, rank))
                    .map_err(|why| Error::launch(format!("views: view {i} of the list {why}")))?,
            );
        }
        if mutable {
            check_apart(&views)?;
        }
        let all = common(&plain, PtrArg::nothing(dtype, mutable), rank);
        let rows: Vec<i64> = plain.iter().flat_map(|view| row(view, all.ptr.address)).collect();
        let table = stream.upload(&rows)?;
        let rows = *rows_of(&table, rank)?.as_view().expect("it was made as a view");
        Ok(List { all, table, rows, views })
    }

    fn add_to<'l>(&'l self, args: &mut Vec<CheckedArg<'l>>) {
        args.push(CheckedArg::list(self.all, &self.views, &self.rows));
        let table = rows_of(&self.table, self.all.rank.into());
        args.push(table.expect("it was made before, when the list was"));
    }
}

/// A table as a matrix.
fn rows_of(table: &Array<i64>, rank: usize) -> Result<CheckedArg<'_>, Error> {
    let columns = row_len(rank);
    let (dims, strides) = ([table.len() / columns, columns].map(|n| n as i64), [columns as i64, 1]);
    CheckedArg::view(table.buffer(), 0, DType::I64, (&dims, &strides), false)
}

/// Numbers in a row of the table: the first element, extents, strides.
pub(crate) const fn row_len(rank: usize) -> usize {
    1 + 2 * rank
}

/// A view that a list of this stream may have.
fn checked<'v>(
    stream: &Stream,
    view: &'v CheckedArg<'_>,
    (dtype, rank): (DType, usize),
) -> Result<&'v ViewArg, String> {
    let view = view.as_view().ok_or("is no view")?;
    let (ptr, device) = (&view.ptr, stream.device());
    if (ptr.dtype, usize::from(view.rank)) != (dtype, rank) {
        return Err(format!(
            "is of {} with {} axes, not {dtype} with {rank}",
            ptr.dtype, view.rank
        ));
    }
    if ptr.device != device && !ptr.is_nothing() {
        return Err(format!("is on {}, the stream on {device}", ptr.device));
    }
    if !ptr.address.is_multiple_of(dtype.bytes() as u64) {
        return Err(format!("starts between two elements of {} bytes", dtype.bytes()));
    }
    Ok(view)
}

/// Refuses views of which two share an element. In the order of their addresses few are near enough to look at twice.
fn check_apart(views: &[CheckedArg<'_>]) -> Result<(), Error> {
    let range = |view: &CheckedArg<'_>| view.as_view().and_then(bytes_of);
    let mut order: Vec<(u64, u64, usize)> = views
        .iter()
        .enumerate()
        .filter_map(|(i, view)| range(view).map(|(start, end)| (start, end, i)))
        .collect();
    order.sort_unstable();
    for (n, &(_, end, i)) in order.iter().enumerate() {
        for &(_, _, j) in order[n + 1..].iter().take_while(|&&(start, ..)| start < end) {
            if share_elements(&views[i].arg(), &views[j].arg()) {
                let (i, j) = (i.min(j), i.max(j));
                return Err(Error::launch(format!(
                    "views_mut: views {i} and {j} of the list share memory"
                )));
            }
        }
    }
    Ok(())
}

/// The first address of a view's elements and the one behind the last; none if it has no elements.
pub(crate) fn bytes_of(view: &ViewArg) -> Option<(u64, u64)> {
    let (low, high) = reach(view.dims(), view.strides())?;
    let size = view.ptr.dtype.bytes() as i128;
    let at = |element: i128| {
        let address = i128::from(view.ptr.address).saturating_add(element.saturating_mul(size));
        u64::try_from(address.max(0)).unwrap_or(u64::MAX)
    };
    Some((at(low), at(high.saturating_add(1))))
}

/// What is true of each of these views, as [`Arg::Views`](super::Arg::Views) says it.
fn common(views: &[ViewArg], nothing: PtrArg, rank: usize) -> ViewArg {
    let mut all = ViewArg::nothing(nothing, rank as u8);
    // Where the one starts whose address is a multiple of least, the others start a multiple of that further.
    if let Some(base) = views.iter().min_by_key(|view| view.ptr.address.trailing_zeros()) {
        all.ptr = PtrArg { mutable: nothing.mutable, ..base.ptr };
    }
    let size = |view: &ViewArg| bytes_of(view).map_or(0, |(start, end)| end - start);
    all.ptr.bytes = views.iter().map(size).fold(0, u64::saturating_add);
    for axis in 0..rank.min(MAX_RANK) {
        all.dims[axis] = views.iter().fold(0, |bits, view| bits | view.dims[axis]);
        let mut strides = views.iter().filter_map(|view| stride_used(view, axis));
        let Some(first) = strides.next() else { continue };
        let (bits, differ) =
            strides.fold((first, false), |(bits, differ), s| (bits | s, differ | (s != first)));
        // Bits of strides that differ are those of no stride, but for 0 and 1 together.
        all.strides[axis] = if differ && bits == 1 { 3 } else { bits };
    }
    all
}

/// The stride along an axis, if anything is ever multiplied by it.
fn stride_used(view: &ViewArg, axis: usize) -> Option<i64> {
    let is_used = view.dims[axis] > 1 && !view.dims().contains(&0);
    is_used.then_some(view.strides[axis])
}

/// The row of the table of a view, counted from an address.
fn row(view: &ViewArg, from: u64) -> impl Iterator<Item = i64> + '_ {
    let distance = view.ptr.address.wrapping_sub(from) as i64 / view.ptr.dtype.bytes() as i64;
    let axes = 0..usize::from(view.rank);
    // A stride that is not used is a multiple of whatever the others are.
    let strides = axes.map(|axis| stride_used(view, axis).unwrap_or(0));
    std::iter::once(distance).chain(view.dims().iter().copied()).chain(strides)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Arg, Device};

    fn args<'l>(add: impl FnOnce(&mut Vec<CheckedArg<'l>>)) -> (ViewArg, ViewArg) {
        let mut args = Vec::new();
        add(&mut args);
        match args[..].iter().map(CheckedArg::arg).collect::<Vec<_>>()[..] {
            [Arg::Views(all), Arg::View(table)] => (all, table),
            ref other => panic!("a list is two arguments, not {other:?}"),
        }
    }

    #[test]
    fn the_table_counts_from_one_of_the_views() {
        let stream = Device::Cpu.stream();
        let (x, y) = (stream.upload(&[0.0f32; 24]).unwrap(), stream.upload(&[0.0f32; 48]).unwrap());
        let views = [x.view([4, 6]).unwrap(), y.strided(1, [7, 1], [6, 9]).unwrap()];
        let list = stream.views(&views).unwrap();
        let (all, table) = args(|args| list.add_to(args));
        // The second starts behind an address that is a multiple of 64.
        assert_eq!(all.ptr.address, y.buffer().address() + 4);
        assert_eq!((all.dims(), all.strides()), (&[7, 7][..], &[6, 1][..]));
        assert_eq!(all.ptr.bytes, 96 + 4 * 37);
        let distance = (x.buffer().address() as i64 - all.ptr.address as i64) / 4;
        assert_eq!(list.list.table.to_vec().unwrap(), [distance, 4, 6, 6, 1, 0, 7, 1, 6, 0]);
        assert_eq!((table.dims(), table.strides()), (&[2, 5][..], &[5, 1][..]));
    }

    #[test]
    fn what_views_have_in_common_is_true_of_each() {
        let stream = Device::Cpu.stream();
        let x = stream.upload(&[0i32; 512]).unwrap();
        let common = |views: &[([usize; 2], [i64; 2])]| {
            let views: Vec<_> =
                views.iter().map(|&(dims, strides)| x.strided(0, dims, strides).unwrap()).collect();
            let list = stream.views(&views).unwrap();
            let (all, _) = args(|args| list.add_to(args));
            ([all.dims[0], all.dims[1]], [all.strides[0], all.strides[1]])
        };
        assert_eq!(common(&[([4, 8], [8, 1]), ([2, 16], [16, 1])]), ([6, 24], [24, 1]));
        // A stride of 1 and one of 0 are neither; along an axis of one element none is used.
        assert_eq!(common(&[([4, 8], [8, 1]), ([4, 8], [8, 0])]), ([4, 8], [8, 3]));
        assert_eq!(common(&[([4, 8], [8, 1]), ([4, 1], [8, 0])]), ([4, 9], [8, 1]));
        assert_eq!(common(&[([4, 8], [8, 0]), ([0, 8], [7, 1])]), ([4, 8], [8, 0]));
        assert_eq!(common(&[]), ([0, 0], [0, 0]));
    }

    #[test]
    fn views_that_are_written_are_apart() {
        let stream = Device::Cpu.stream();
        let x = stream.upload(&[0u8; 24]).unwrap();
        let part = |offset, dims: [i64; 2]| {
            CheckedArg::view(x.buffer(), offset, DType::U8, (&dims, &[6, 1]), true).unwrap()
        };
        assert!(check_apart(&[part(3, [4, 3]), part(0, [4, 3])]).is_ok());
        let error = check_apart(&[part(3, [4, 3]), part(12, [1, 2]), part(0, [4, 4])]).unwrap_err();
        assert_eq!(error.to_string(), "views_mut: views 0 and 2 of the list share memory");
    }
}
