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

use self::lines::{Lines, least, moved, sizes};
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
    let (mut y, mut which, x) = (y.elements_mut::<T>(), which.elements_mut(), x.elements::<T>());
    let planes = y.par_chunks_mut(after).with_min_len(least(lines));
    let which = which.par_chunks_mut(after);
    let work = planes.zip(which).zip(x.par_chunks(before));
    install(|| {
        work.for_each_init(
            || vec![0; width],
            |place, ((y, which), x)| {
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
                    let places =
                        place.iter().map(|&at| if at == u32::MAX { 0 } else { i64::from(at) });
                    which.iter_mut().zip(places).for_each(|(to, at)| *to = at);
                }
            },
        )
    });
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
    for tap in 0..across.taps {
        let own = across.even.clone();
        let windows = best[own.clone()].iter_mut().zip(&mut place[own]);
        across.each(tap, line, windows, |(best, place), v, at| {
            let own = start + at as u32;
            let won = wins(v, *best, *place);
            *best = if won { v } else { *best };
            *place = if won { own } else { *place };
        });
    }
    for o in across.ragged() {
        for &at in across.seen(o) {
            if wins(line[at], best[o], place[o]) {
                (best[o], place[o]) = (line[at], start + at as u32);
            }
        }
    }
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

fn sum_planes<T: Summed>(lines: &[Lines; 3], x: &Tensor, y: &Tensor) {
    let _kernel = trace::host_kernel("pool", || moved(&[x, y]));
    let (before, after) = sizes(lines);
    let [depth, down, across] = lines;
    let width = across.outputs;
    // The weights of the even elements, place by place, then those of all others as they come.
    let by_place = |tap: usize| {
        let weights = across.even.clone().map(|o| across.weight[across.begins[o] + tap]);
        weights.map(T::weight).collect()
    };
    let even: Vec<Vec<T::Sum>> = (0..across.taps).map(by_place).collect();
    let (mut y, x) = (y.elements_mut::<T>(), x.elements::<T>());
    let planes = y.par_chunks_mut(after).with_min_len(least(lines));
    let work = planes.zip(x.par_chunks(before));
    let zero = T::weight(0.0);
    install(|| {
        work.for_each_init(
            || (vec![zero; across.inputs], vec![zero; width]),
            |(line, sums), (y, x)| {
                for (row, y) in y.chunks_mut(width).enumerate() {
                    // All lines that the windows see become one: its neighbours are summed at once.
                    line.fill(zero);
                    for (d, u) in depth.entries(row / down.outputs) {
                        for (i, v) in down.entries(row % down.outputs) {
                            let by = T::weight(u) * T::weight(v);
                            let seen = &x[(d * down.inputs + i) * across.inputs..];
                            line.iter_mut().zip(seen).for_each(|(to, x)| *to += by * x.widen());
                        }
                    }
                    sums.fill(zero);
                    sum_line::<T>(across, &even, line, sums);
                    y.iter_mut().zip(&*sums).for_each(|(to, &sum)| *to = T::narrow(sum));
                }
            },
        )
    });
}

/// Adds what a line gives to the windows along it.
fn sum_line<T: Summed>(across: &Lines, even: &[Vec<T::Sum>], line: &[T::Sum], sums: &mut [T::Sum]) {
    for (tap, weights) in even.iter().enumerate() {
        let sums = sums[across.even.clone()].iter_mut().zip(weights);
        across.each(tap, line, sums, |(sum, &weight), v, _| *sum += weight * v);
    }
    for o in across.ragged() {
        let mut sum = sums[o];
        across.entries(o).for_each(|(at, weight)| sum += T::weight(weight) * line[at]);
        sums[o] = sum;
    }
}
