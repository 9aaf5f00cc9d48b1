//! The longest run of equal numbers of sorted rows.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&longest_run::KERNEL];

/// The later of two places.
#[device]
fn later(a: i64, b: i64) -> i64 {
    maximum(a, b)
}

/// `at[i]` is `order[i, j]` for the last `j` of the longest run of row `i` of `sorted: [m, n]`, of runs of one length that
/// of the first. NaN is a run of its own.
#[kernel]
pub fn longest_run<T: Number, const COLS: usize>(
    sorted: View<T, 2>,
    order: View<i64, 2>,
    at: ViewMut<i64, 1>,
) {
    let (i, n) = (program_id(0), sorted.dim(1));
    let line = sorted.ptr() + i * sorted.stride(0);
    let (mut first, mut most, mut end) = (0_i64, 0_i64, 0_i64);
    for j in range(0, n, COLS) {
        let place = j + arange::<COLS>();
        let own = load(line + place * sorted.stride(1), place < n);
        let before = load(line + (place - 1) * sorted.stride(1), (place > 0) & (place < n));
        // Where the run of each began, in this piece or before it.
        let begins = where_((place == 0) | (own != before), place, -1);
        let begun = maximum(associative_scan(begins, 0, later), first);
        let length = where_(place < n, place - begun + 1, 0);
        let longest = max(length, 0);
        let last = min(where_(length == longest, place, i64::MAX), 0);
        end = where_(longest > most, last, end);
        most = maximum(longest, most);
        first = max(where_(place < n, begun, 0), 0);
    }
    at.store([i], order.load::<1, 1>([i, end]).squeeze(0));
}
