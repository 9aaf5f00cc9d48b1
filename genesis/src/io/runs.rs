//! Which elements of a whole tensor a rank's part has, as runs of the whole's row-major order.
//!
//! ```text
//! [4, 6], columns 2 and 3 (axis 1, part 1 of 3)     runs 2..4  8..10  14..16  20..22
//! of these 8 elements flat part 1 of 2              runs 14..16  20..22
//! ```
//!
//! Every cut keeps the order of elements, so the runs of any part ascend. What one part has of another is then found by one
//! merge of two ascending lists: a rank reads the elements that it needs out of the parts of any other ranks, and nobody
//! builds the whole tensor for it.

use std::iter::once;
use std::ops::Range;

use crate::nn::{Cut, Shard};
use crate::shape::product;

/// Elements of the whole, in the order in which the part has them.
pub(super) type Runs = Vec<Range<usize>>;

/// The shape of a part.
pub(crate) fn part_shape(shard: &Shard) -> Vec<usize> {
    match shard.cut {
        Cut::Flat => vec![product(shard.whole.iter()).div_ceil(shard.count.max(1))],
        Cut::Axis(axis) => {
            let mut shape = shard.whole.clone();
            if let Some(extent) = shape.get_mut(axis) {
                *extent /= shard.count.max(1);
            }
            shape
        }
    }
}

/// The cut that was made first.
pub(crate) fn outermost(shard: &Shard) -> &Shard {
    shard.outer.as_deref().map_or(shard, outermost)
}

/// The runs of a part; padding of a flat part is in none.
pub(super) fn runs(shard: &Shard) -> Runs {
    let elements = product(shard.whole.iter());
    let outer = match &shard.outer {
        Some(outer) => runs(outer),
        None => whole(elements),
    };
    match shard.cut {
        Cut::Flat => {
            let chunk = elements.div_ceil(shard.count.max(1));
            select(&outer, once(shard.index * chunk..(shard.index + 1) * chunk))
        }
        Cut::Axis(axis) => {
            let row = product(shard.whole[axis..].iter());
            let part = row / shard.whole[axis].max(1) * (shard.whole[axis] / shard.count.max(1));
            let rows = elements.checked_div(row).unwrap_or(0);
            let start = |at: usize| at * row + shard.index * part;
            select(&outer, (0..rows).map(|at| start(at)..start(at) + part))
        }
    }
}

/// The runs of a whole tensor.
pub(super) fn whole(elements: usize) -> Runs {
    once(0..elements).filter(|run| !run.is_empty()).collect()
}

/// Of the elements that `outer` lists those at ascending places in the list.
fn select(outer: &[Range<usize>], places: impl IntoIterator<Item = Range<usize>>) -> Runs {
    let (mut found, mut at, mut before) = (Runs::new(), 0, 0);
    for place in places {
        while let Some(run) = outer.get(at) {
            let own = before..before + run.len();
            let (start, end) = (place.start.max(own.start), place.end.min(own.end));
            if start < end {
                push(&mut found, run.start + start - own.start..run.start + end - own.start);
            }
            if place.end < own.end {
                break;
            }
            (at, before) = (at + 1, own.end);
        }
    }
    found
}

/// Adds a run, joined to the last one where it follows it.
fn push(runs: &mut Runs, next: Range<usize>) {
    match runs.last_mut() {
        Some(last) if last.end == next.start => last.end = next.end,
        _ => runs.push(next),
    }
}

/// Copies the elements, of so many bytes each, that both parts have; how many there are.
pub(super) fn copy_common(
    (from, source): (&[Range<usize>], &[u8]),
    (to, target): (&[Range<usize>], &mut [u8]),
    bytes: usize,
) -> usize {
    let (mut read, mut written, mut common) = (0, 0, 0);
    let (mut from, mut to) = (from.iter().peekable(), to.iter().peekable());
    while let (Some(a), Some(b)) = (from.peek(), to.peek()) {
        let (start, end) = (a.start.max(b.start), a.end.min(b.end));
        if start < end {
            let length = (end - start) * bytes;
            let (x, y) = ((read + start - a.start) * bytes, (written + start - b.start) * bytes);
            target[y..y + length].copy_from_slice(&source[x..x + length]);
            common += end - start;
        }
        if a.end <= b.end {
            read += from.next().map_or(0, Range::len);
        } else {
            written += to.next().map_or(0, Range::len);
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn shard(whole: &[usize], cut: Cut, (index, count): (usize, usize)) -> Shard {
        Shard { whole: whole.to_vec(), cut, index, count, outer: None }
    }

    #[test]
    fn runs_are_those_of_the_page() {
        let columns = shard(&[4, 6], Cut::Axis(1), (1, 3));
        assert_eq!(runs(&columns), [2..4, 8..10, 14..16, 20..22]);
        let flat = shard(&[4, 2], Cut::Flat, (1, 2));
        assert_eq!(runs(&Shard { outer: Some(Arc::new(columns)), ..flat }), [14..16, 20..22]);
        let one = |run| once(run).collect::<Runs>();
        assert_eq!(runs(&shard(&[4, 6], Cut::Axis(0), (1, 2))), one(12..24));
        // The last part of a flat cut is padded, and one behind it has nothing.
        assert_eq!(runs(&shard(&[5], Cut::Flat, (1, 2))), one(3..5));
        assert_eq!(runs(&shard(&[1], Cut::Flat, (2, 3))), Runs::new());
        assert_eq!(runs(&shard(&[2, 0], Cut::Axis(0), (1, 2))), Runs::new());
    }

    #[test]
    fn parts_of_every_cut_are_read_from_parts_of_every_other() {
        let cuts = [(Cut::Axis(0), 3), (Cut::Axis(1), 2), (Cut::Flat, 5), (Cut::Axis(2), 4)];
        let (shape, bytes) = ([6, 2, 4], (0..48).collect::<Vec<u8>>());
        let of = |(cut, count): (Cut, usize)| {
            let part = move |index| Shard { outer: None, ..shard(&shape, cut, (index, count)) };
            (0..count).map(part).map(|shard| runs(&shard)).collect::<Vec<Runs>>()
        };
        let taken = |part: &Runs| -> Vec<u8> {
            part.iter().flat_map(|run| bytes[run.clone()].to_vec()).collect()
        };
        for (saved, wanted) in cuts.iter().flat_map(|a| cuts.map(|b| (*a, b))) {
            for part in of(wanted) {
                let mut found = vec![99; taken(&part).len()];
                let copy = |from: Runs| copy_common((&from, &taken(&from)), (&part, &mut found), 1);
                let common: usize = of(saved).into_iter().map(copy).sum();
                assert_eq!((common, &found), (found.len(), &taken(&part)));
            }
        }
    }
}
