//! Pools and resampling on the CPU: straight loops over lines, planes shared among the threads.
//!
//! They look by the same tables as the kernels of the language. Along a line the windows that see as many
//! elements at equal distances are one loop a place:
//!
//! ```text
//! windows of 3 that move by 2 over 7 elements, padding 1
//!   -  0  1 |  1  2  3    3  4  5 |  5  6  -
//!   ragged  |  even: place 0 sees 1, 3; place 1 sees 2, 4; place 2 sees 3, 5
//! ```

mod lines;
mod pairs;

use bytemuck::Pod;
use genesis_kernel::ir::DType;
use genesis_kernel::runtime::{HostElement, install};
use genesis_kernel::trace;
use half::{bf16, f16};
use rayon::prelude::*;

use self::lines::{Lines, TASK, is_one_task, least, moved, sizes};
use super::axis::Table;
use crate::tensor::Tensor;

/// A number that is compared.
trait Compared: HostElement + Pod + PartialOrd {
    /// What is below every number.
    const LOWEST: Self;
}

macro_rules! compared {
    ($($of:ty: $lowest:ident,)*) => {
        $(impl Compared for $of {
            const LOWEST: $of = <$of>::$lowest;
        })*
    };
}

compared! {
    f32: NEG_INFINITY, f64: NEG_INFINITY, f16: NEG_INFINITY, bf16: NEG_INFINITY,
    i8: MIN, i16: MIN, i32: MIN, i64: MIN, u8: MIN, u16: MIN, u32: MIN, u64: MIN,
}

/// A number that is summed, 16-bit floats in f32.
trait Summed: HostElement + Pod {
    /// What sums are in.
    type Sum: Copy + Send + Sync + std::ops::Mul<Output = Self::Sum> + std::ops::AddAssign;
    fn widen(self) -> Self::Sum;
    fn narrow(sum: Self::Sum) -> Self;
    /// A weight as sums have it.
    fn weight(by: f64) -> Self::Sum;
}

macro_rules! summed {
    ($($of:ty, $sum:ty, $widen:path, $narrow:path;)*) => {
        $(impl Summed for $of {
            type Sum = $sum;

            #[inline(always)]
            fn widen(self) -> $sum {
                $widen(self)
            }

            #[inline(always)]
            fn narrow(sum: $sum) -> $of {
                $narrow(sum)
            }

            #[inline(always)]
            fn weight(by: f64) -> $sum {
                by as $sum
            }
        })*
    };
}

summed! {
    f32, f32, std::convert::identity, std::convert::identity;
    f64, f64, std::convert::identity, std::convert::identity;
    f16, f32, f16::to_f32, f16::from_f32;
    bf16, f32, bf16::to_f32, bf16::from_f32;
}

/// The largest elements of windows and where they stand, all dense `[outer, D, H, W]` and not empty;
/// whether it was done, which it is not for planes of more elements than 32 bits count.
pub(super) fn max_pool(tables: &[Table; 3], x: &Tensor, y: &Tensor, which: &Tensor) -> bool {
    let lines = tables.each_ref().map(Lines::of);
    if sizes(&lines).0 >= u32::MAX as usize {
        return false;
    }
    if pairs::max_pool(&lines, x, y, which) {
        return true;
    }
    match x.dtype() {
        DType::F32 => max_planes::<f32>(&lines, x, y, which),
        DType::F64 => max_planes::<f64>(&lines, x, y, which),
        DType::F16 => max_planes::<f16>(&lines, x, y, which),
        DType::BF16 => max_planes::<bf16>(&lines, x, y, which),
        DType::I8 => max_planes::<i8>(&lines, x, y, which),
        DType::I16 => max_planes::<i16>(&lines, x, y, which),
        DType::I32 => max_planes::<i32>(&lines, x, y, which),
        DType::I64 => max_planes::<i64>(&lines, x, y, which),
        DType::U8 => max_planes::<u8>(&lines, x, y, which),
        DType::U16 => max_planes::<u16>(&lines, x, y, which),
        DType::U32 => max_planes::<u32>(&lines, x, y, which),
        DType::U64 => max_planes::<u64>(&lines, x, y, which),
        _ => return false,
    }
    true
}

fn max_planes<T: Compared>(lines: &[Lines; 3], x: &Tensor, y: &Tensor, which: &Tensor) {
    let _kernel = trace::host_kernel("max_pool", || moved(&[x, y, which]));
    let (before, after) = sizes(lines);
    let [depth, down, across] = lines;
    let width = across.outputs;
    let plane = |place: &mut Vec<u32>, ((y, which), x): ((&mut [T], &mut [i64]), &[T])| {
        let rows = y.chunks_mut(width).zip(which.chunks_mut(width));
        for (row, (best, which)) in rows.enumerate() {
            best.fill(T::LOWEST);
            place.fill(u32::MAX);
            for &d in depth.seen(row / down.outputs) {
                for &i in down.seen(row % down.outputs) {
                    let at = (d * down.inputs + i) * across.inputs;
                    max_line(across, &x[at..][..across.inputs], at as u32, best, place);
                }
            }
            // A window that sees nothing stands at the first element.
            let places = place.iter().map(|&at| if at == u32::MAX { 0 } else { i64::from(at) });
            which.iter_mut().zip(places).for_each(|(to, at)| *to = at);
        }
    };
    let (mut y, mut which, x) = (y.elements_mut::<T>(), which.elements_mut(), x.elements::<T>());
    if is_one_task(lines, y.len()) {
        let made = y.chunks_mut(after).zip(which.chunks_mut(after)).zip(x.chunks(before));
        let mut place = vec![0; width];
        return made.for_each(|item| plane(&mut place, item));
    }
    let planes = y.par_chunks_mut(after).with_min_len(least(lines));
    let which = which.par_chunks_mut(after);
    let work = planes.zip(which).zip(x.par_chunks(before));
    install(|| work.for_each_init(|| vec![0; width], plane));
}

/// What windows see of one line of the input, which begins at `start`, beside what they saw before.
fn max_line<T: Compared>(
    across: &Lines,
    line: &[T],
    start: u32,
    best: &mut [T],
    place: &mut [u32],
) {
    // NaN wins, of equals the first; what comes first wins over nothing.
    #[allow(clippy::eq_op, reason = "only NaN is not itself")]
    let wins = |v: T, best: T, place: u32| (v > best) | (v != v) | (place == u32::MAX);
    for part in &across.parts {
        for tap in 0..part.taps {
            let own = part.range.clone();
            let windows = best[own.clone()].iter_mut().zip(&mut place[own]);
            across.each(part, tap, line, windows, |(best, place), v, at| {
                let own = start + at as u32;
                let won = wins(v, *best, *place);
                *best = if won { v } else { *best };
                *place = if won { own } else { *place };
            });
        }
    }
    for &o in &across.ragged {
        if let (true, Some(&first)) = (across.is_wide, across.seen(o).first()) {
            let (v, at) = largest(&line[first..][..across.seen(o).len()]);
            if wins(v, best[o], place[o]) {
                (best[o], place[o]) = (v, start + (first + at) as u32);
            }
            continue;
        }
        for &at in across.seen(o) {
            if wins(line[at], best[o], place[o]) {
                (best[o], place[o]) = (line[at], start + at as u32);
            }
        }
    }
}

/// The largest of some neighbours and where the first of it stands: of numbers sixteen side by side, and of NaN the last, as
/// the loop over one after the other finds.
#[allow(clippy::eq_op, reason = "only NaN is not itself")]
fn largest<T: Compared>(line: &[T]) -> (T, usize) {
    let mut most = [T::LOWEST; LANES];
    let (whole, rest) = line.as_chunks::<LANES>();
    let mut has_nan = false;
    for chunk in whole.iter().map(|chunk| &chunk[..]).chain([rest]) {
        for (most, &v) in most.iter_mut().zip(chunk) {
            *most = if v > *most { v } else { *most };
            has_nan |= v != v;
        }
    }
    if let (true, Some(at)) = (has_nan, line.iter().rposition(|&v| v != v)) {
        return (line[at], at);
    }
    let most = most.into_iter().fold(T::LOWEST, |a, b| if b > a { b } else { a });
    let at = line.iter().position(|&v| v == most).unwrap_or(0);
    (line[at], at)
}

/// The gradient of [`max_pool`], by turned tables; whether it was done.
pub(super) fn max_pool_bwd(tables: &[Table; 3], dy: &Tensor, which: &Tensor, dx: &Tensor) -> bool {
    let lines = tables.each_ref().map(Lines::of);
    if pairs::max_pool_bwd(&lines, dy, which, dx) {
        return true;
    }
    match dx.dtype() {
        DType::F32 => put_planes::<f32>(&lines, dy, which, dx),
        DType::F64 => put_planes::<f64>(&lines, dy, which, dx),
        DType::F16 => put_planes::<f16>(&lines, dy, which, dx),
        DType::BF16 => put_planes::<bf16>(&lines, dy, which, dx),
        _ => return false,
    }
    true
}

fn put_planes<T: Summed>(lines: &[Lines; 3], dy: &Tensor, which: &Tensor, dx: &Tensor) {
    let _kernel = trace::host_kernel("max_pool backward", || moved(&[dy, which, dx]));
    let (windows, positions) = sizes(lines);
    // A window that no element names sees nothing: what it has for a place is none.
    let empty = lines.each_ref().map(|line| {
        let mut empty = vec![true; line.inputs];
        line.from.iter().for_each(|&o| empty[o] = false);
        empty
    });
    let any = empty.iter().flatten().any(|&is_empty| is_empty);
    let [_, down, across] = lines;
    let is_empty = |window: usize| {
        let (row, j) = (window / across.inputs, window % across.inputs);
        any && (empty[0][row / down.inputs] || empty[1][row % down.inputs] || empty[2][j])
    };
    let (mut dx, which) = (dx.elements_mut::<T>(), which.elements::<i64>());
    let dy = dy.elements::<T>();
    let planes = dx.par_chunks_mut(positions).with_min_len(least(lines));
    let work = planes.zip(which.par_chunks(windows)).zip(dy.par_chunks(windows));
    install(|| {
        work.for_each_init(
            || vec![T::weight(0.0); positions],
            |sums, ((dx, which), dy)| {
                sums.fill(T::weight(0.0));
                for (window, (&at, dy)) in which.iter().zip(dy).enumerate() {
                    if let Some(sum) = sums.get_mut(at as usize).filter(|_| !is_empty(window)) {
                        *sum += dy.widen();
                    }
                }
                dx.iter_mut().zip(&*sums).for_each(|(to, &sum)| *to = T::narrow(sum));
            },
        )
    });
}

/// Sums with weights along three axes, dense `[outer, D, H, W]` and not empty; whether it was done.
pub(super) fn resample(tables: &[Table; 3], x: &Tensor, y: &Tensor) -> bool {
    let lines = tables.each_ref().map(Lines::of);
    match y.dtype() {
        DType::F32 => sum_planes::<f32>(&lines, x, y),
        DType::F64 => sum_planes::<f64>(&lines, x, y),
        DType::F16 => sum_planes::<f16>(&lines, x, y),
        DType::BF16 => sum_planes::<bf16>(&lines, x, y),
        _ => return false,
    }
    true
}

/// A line that one of the result is made of: its number in a plane, and by which weight, also as sums have it.
type Seen<S> = (usize, f64, S);

fn sum_planes<T: Summed>(lines: &[Lines; 3], x: &Tensor, y: &Tensor) {
    let _kernel = trace::host_kernel("pool", || moved(&[x, y]));
    let (before, after) = sizes(lines);
    let [depth, down, across] = lines;
    let width = across.outputs;
    let count = after / width;
    let is_as_before = |row: usize| row > 0 && down.entries(row).eq(down.entries(row - 1));
    let repeats: Vec<bool> = (0..down.outputs).map(is_as_before).collect();
    let weights = Weights::<T>::of(across);
    let zero = T::weight(0.0);
    let state = || Made {
        seen: Vec::new(),
        line: vec![zero; across.inputs],
        sums: vec![zero; width],
        last: usize::MAX,
    };
    let (mut y, x) = (y.elements_mut::<T>(), x.elements::<T>());
    let x = &x[..];
    let make = |own: &mut Made<T::Sum>, at: usize, y: &mut [T]| {
        let (plane, row) = (at / count, at % count);
        if !repeats[row % down.outputs] || own.last.checked_add(1) != Some(at) {
            own.see(depth, down, row, |u, v| T::weight(u) * T::weight(v));
            own.sums.fill(zero);
            let x = &x[plane * before..][..before];
            weights.row(&own.seen, across.inputs, x, &mut own.line, &mut own.sums);
        }
        own.last = at;
        y.iter_mut().zip(&own.sums).for_each(|(to, &sum)| *to = T::narrow(sum));
    };
    // Lines of a task, at least; a few large planes are as well shared as many.
    let least = (least(lines) * count).min(TASK.div_ceil(width + before / count)).max(1);
    if y.len() <= least * width {
        let mut own = state();
        return y.chunks_mut(width).enumerate().for_each(|(at, y)| make(&mut own, at, y));
    }
    let work = y.par_chunks_mut(width).enumerate().with_min_len(least);
    install(|| work.for_each_init(state, |own, (at, y)| make(own, at, y)));
}

/// What a task has of the line that it made last.
struct Made<S> {
    seen: Vec<Seen<S>>,
    line: Vec<S>,
    sums: Vec<S>,
    last: usize,
}

impl<S> Made<S> {
    /// Finds the lines that a row of the result is made of, by the rows of both tables.
    fn see(&mut self, depth: &Lines, down: &Lines, row: usize, weight: impl Fn(f64, f64) -> S) {
        self.seen.clear();
        for (d, u) in depth.entries(row / down.outputs) {
            for (i, v) in down.entries(row % down.outputs) {
                self.seen.push((d * down.inputs + i, u * v, weight(u, v)));
            }
        }
    }
}

/// Numbers side by side in loops along a line.
const LANES: usize = 16;

/// The weights of a table along lines, as sums have them.
struct Weights<'l, T: Summed> {
    across: &'l Lines,
    /// Those of each part, place by place.
    parts: Vec<Vec<T::Sum>>,
    /// All of them, in the order of the entries.
    all: Vec<T::Sum>,
}

impl<T: Summed> Weights<'_, T> {
    fn of(across: &Lines) -> Weights<'_, T> {
        let of_part = |part: &lines::Part| {
            let by_place = |tap: usize| {
                part.range.clone().map(move |o| T::weight(across.weight[across.begins[o] + tap]))
            };
            (0..part.taps).flat_map(by_place).collect()
        };
        let all = across.weight.iter().map(|&by| T::weight(by)).collect();
        Weights { across, parts: across.parts.iter().map(of_part).collect(), all }
    }

    /// Adds what a row is made of. Several lines that it sees become one: its neighbours are summed at once.
    fn row(
        &self,
        row: &[Seen<T::Sum>],
        n: usize,
        x: &[T],
        line: &mut [T::Sum],
        sums: &mut [T::Sum],
    ) {
        match *row {
            [] => {}
            [(only, 1.0, _)] => self.line(&x[only * n..][..n], T::widen, sums),
            [(first, _, by), ref rest @ ..] => {
                line.iter_mut().zip(&x[first * n..]).for_each(|(to, x)| *to = by * x.widen());
                for &(other, _, by) in rest {
                    line.iter_mut().zip(&x[other * n..]).for_each(|(to, x)| *to += by * x.widen());
                }
                self.line(&*line, std::convert::identity, sums);
            }
        }
    }

    /// Adds what a line gives to the windows along it.
    #[inline(always)]
    fn line<E: Copy>(&self, line: &[E], widen: impl Fn(E) -> T::Sum + Copy, sums: &mut [T::Sum]) {
        let across = self.across;
        for (part, weights) in across.parts.iter().zip(&self.parts) {
            for (tap, weights) in weights.chunks_exact(part.range.len()).enumerate() {
                let sums = sums[part.range.clone()].iter_mut().zip(weights);
                across.each(part, tap, line, sums, |(sum, &by), v, _| *sum += by * widen(v));
            }
        }
        for &o in &across.ragged {
            let weights = &self.all[across.begins[o]..across.begins[o + 1]];
            let seen = across.seen(o);
            match seen.first() {
                Some(&first) if across.is_wide => {
                    sums[o] += product::<T, E>(&line[first..][..seen.len()], weights, widen);
                }
                _ => {
                    let mut sum = sums[o];
                    seen.iter().zip(weights).for_each(|(&at, &by)| sum += by * widen(line[at]));
                    sums[o] = sum;
                }
            }
        }
    }
}

/// The sum of neighbours with weights, sixteen side by side, halves with halves.
#[inline(always)]
fn product<T: Summed, E: Copy>(
    line: &[E],
    weights: &[T::Sum],
    widen: impl Fn(E) -> T::Sum,
) -> T::Sum {
    let mut sums = [T::weight(0.0); LANES];
    let ((xs, x), (by, rest)) = (line.as_chunks::<LANES>(), weights.as_chunks::<LANES>());
    for (xs, by) in xs.iter().zip(by) {
        for lane in 0..LANES {
            sums[lane] += by[lane] * widen(xs[lane]);
        }
    }
    for ((sum, &x), &by) in sums.iter_mut().zip(x).zip(rest) {
        *sum += by * widen(x);
    }
    for half in [8, 4, 2, 1] {
        for lane in 0..half {
            let upper = sums[lane + half];
            sums[lane] += upper;
        }
    }
    sums[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_neighbours_is_that_of_one_after_the_other() {
        let of = |line: &[f32]| -> (f32, usize) {
            let mut best = (f32::NEG_INFINITY, 0);
            for (at, &v) in line.iter().enumerate() {
                if v > best.0 || v.is_nan() || at == 0 {
                    best = (v, at);
                }
            }
            best
        };
        let line: Vec<f32> = (0..100).map(|i| ((i * 37) % 50) as f32 - 20.0).collect();
        for n in [1, 5, 15, 16, 17, 48, 63, 100] {
            let mut line = line[..n].to_vec();
            assert_eq!(largest(&line), of(&line));
            line[n / 2] = f32::NAN;
            line[n / 3] = f32::NAN;
            let (v, at) = largest(&line);
            assert!(v.is_nan() && at == of(&line).1);
            let none = vec![f32::NEG_INFINITY; n];
            assert_eq!(largest(&none), of(&none));
        }
    }

    #[test]
    fn products_of_neighbours_are_sums_of_all() {
        let line: Vec<f32> = (0..83).map(|i| (i % 7) as f32).collect();
        let weights: Vec<f32> = (0..83).map(|i| (i % 5) as f32 - 2.0).collect();
        for n in [0, 1, 16, 31, 83] {
            let sum: f32 = line[..n].iter().zip(&weights).map(|(a, b)| a * b).sum();
            assert_eq!(product::<f32, f32>(&line[..n], &weights[..n], f32::widen), sum);
        }
    }

    #[test]
    fn parts_of_a_table_see_what_its_rows_do() {
        // Windows that move by one, then by none, then ragged ones: parts and the others are all of it.
        let row = |o: usize| match o {
            0..20 => vec![(Some(o), 1.0), (Some(o + 1), 2.0)],
            20..40 => vec![(Some(5), 1.0)],
            _ => (0..o % 3).map(|k| (Some(k), 1.0)).collect(),
        };
        let lines = Lines::of(&Table::of([32, 50], 2, row).unwrap());
        let mut seen: Vec<usize> = lines.parts.iter().flat_map(|p| p.range.clone()).collect();
        seen.extend(&lines.ragged);
        seen.extend((40..50).filter(|o| o % 3 == 0));
        seen.sort();
        assert_eq!(seen, (0..50).collect::<Vec<_>>());
        let line: Vec<f32> = (0..32).map(|i| i as f32).collect();
        for part in &lines.parts {
            for tap in 0..part.taps {
                lines.each(part, tap, &line, part.range.clone(), |o, v, at| {
                    assert_eq!((v, at), (at as f32, lines.seen(o)[tap]));
                });
            }
        }
    }
}
