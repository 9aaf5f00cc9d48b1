//! Which ops run in which precision under autocast: what the files of the ops say, in one table.

pub use crate::dispatch::autocast::Precision;
use crate::ops::AUTOCAST;

type Row = (&'static str, Precision);

/// The ops that autocast changes, by name, in order. f64 and integers are left alone; what is not here runs
/// in the dtype of its operands.
pub const OPS: &[Row] = &in_order();

/// Ops that the files name.
const COUNT: usize = {
    let (mut count, mut folder) = (0, 0);
    while folder < AUTOCAST.len() {
        let mut file = 0;
        while file < AUTOCAST[folder].len() {
            count += AUTOCAST[folder][file].len();
            file += 1;
        }
        folder += 1;
    }
    count
};

/// The rows of every file, each put before those whose names come after its own.
const fn in_order() -> [Row; COUNT] {
    let mut rows = [("", Precision::Half); COUNT];
    let (mut count, mut folder) = (0, 0);
    while folder < AUTOCAST.len() {
        let mut file = 0;
        while file < AUTOCAST[folder].len() {
            let mut at = 0;
            while at < AUTOCAST[folder][file].len() {
                insert(&mut rows, count, AUTOCAST[folder][file][at]);
                (count, at) = (count + 1, at + 1);
            }
            file += 1;
        }
        folder += 1;
    }
    rows
}

/// Puts a row among the first `count`, which are in order.
const fn insert(rows: &mut [Row; COUNT], count: usize, row: Row) {
    let mut at = count;
    while at > 0 && is_before(row.0, rows[at - 1].0) {
        rows[at] = rows[at - 1];
        at -= 1;
    }
    rows[at] = row;
}

/// Whether a name comes before another.
const fn is_before(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    if at == a.len() || at == b.len() { a.len() < b.len() } else { a[at] < b[at] }
}

/// What autocast does to an op; nothing where it is not in the table.
pub(super) fn precision(op: &str) -> Option<Precision> {
    OPS.binary_search_by(|(name, _)| (*name).cmp(op)).ok().map(|at| OPS[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_found() {
        assert!(OPS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(precision("matmul"), Some(Precision::Half));
        assert_eq!(precision("softmax"), Some(Precision::Single));
        assert_eq!(precision("add"), Some(Precision::Widest));
        assert_eq!(precision("relu"), None);
    }
}
