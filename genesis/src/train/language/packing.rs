//! Sequence packing: which samples share a row.
//!
//! A row has room for so many tokens. Samples are put into rows longest first, each into the fullest row that still has
//! room for it (*best-fit decreasing*), which leaves 1 to 3 % of the rows empty on usual data.
//!
//! ```text
//! lengths 5 3 3 2 2 1, room for 6      rows [5 1] [3 3] [2 2]
//! ```
//!
//! # Source
//! Johnson, 1973; arXiv:2404.10830, which measured what truncation and packing do to language models.

use std::collections::BTreeMap;

/// The numbers of the samples of each row; no length may be over the capacity.
///
/// Rows are in the order of their first samples, so that data in order stays about in order.
pub(super) fn pack(lengths: &[usize], capacity: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&sample| std::cmp::Reverse(lengths[sample]));
    let mut rows: Vec<Vec<usize>> = Vec::new();
    // Rows by the room that they have left.
    let mut open: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for sample in order {
        let length = lengths[sample];
        let fit = open.range(length..).next().map(|(&room, _)| room);
        let (row, room) = match fit.and_then(|room| Some((open.get_mut(&room)?.pop()?, room))) {
            Some(found) => found,
            None => {
                rows.push(Vec::new());
                (rows.len() - 1, capacity)
            }
        };
        if open.get(&room).is_some_and(Vec::is_empty) {
            open.remove(&room);
        }
        rows[row].push(sample);
        let left = room.saturating_sub(length);
        if left > 0 {
            open.entry(left).or_default().push(row);
        }
    }
    rows.iter_mut().for_each(|row| row.sort_unstable());
    rows.sort();
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_row_with_room_is_taken() {
        assert_eq!(pack(&[2, 5, 3, 1, 2, 3], 6), [vec![0, 4], vec![1, 3], vec![2, 5]]);
        assert_eq!(pack(&[6, 6], 6), [vec![0], vec![1]]);
        assert!(pack(&[], 6).is_empty());
    }

    #[test]
    fn every_sample_is_in_one_row() {
        let lengths: Vec<usize> = (0..500).map(|i| 1 + (i * 7919) % 97).collect();
        let rows = pack(&lengths, 128);
        let mut all: Vec<usize> = rows.concat();
        all.sort_unstable();
        assert_eq!(all, (0..500).collect::<Vec<_>>());
        let used = |row: &Vec<usize>| row.iter().map(|&sample| lengths[sample]).sum::<usize>();
        assert!(rows.iter().all(|row| used(row) <= 128));
        let filled: usize = rows.iter().map(used).sum();
        assert!(filled as f64 > 0.97 * (rows.len() * 128) as f64, "{filled} in {}", rows.len());
    }
}
