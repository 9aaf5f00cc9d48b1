//! Columns of windows on the CPU: straight loops over lines, images shared among the threads.

use std::ops::{AddAssign, Range};

use bytemuck::Pod;
use genesis_kernel::ir::DType;
use genesis_kernel::runtime::{HostElement, install};
use genesis_kernel::trace;
use half::{bf16, f16};
use rayon::prelude::*;

use super::axis::Axis;
use crate::tensor::Tensor;

/// Elements of a task below which another thread would cost more than it gives.
const TASK: usize = 1 << 15;

/// What lines of windows are made of, or add to: `visit(column, line, first, taken)` for each tap and line of windows
/// of a plane, where the line of columns begins, where the line of the image that it sees does, if there is one,
/// the element that the first of its windows inside sees, and which of its windows those are.
fn lines(axes: &[Axis; 3], mut visit: impl FnMut(usize, Option<usize>, usize, Range<usize>)) {
    let [depth, down, across] = axes;
    let mut column = 0;
    for (a, k) in (0..depth.kernel).flat_map(|a| (0..down.kernel).map(move |k| (a, k))) {
        for l in 0..across.kernel {
            let skipped = l * across.dilation;
            let begin = across.before.saturating_sub(skipped).div_ceil(across.stride);
            let end = (across.input + across.before).saturating_sub(skipped);
            let end = end.div_ceil(across.stride).min(across.output);
            let taken = begin.min(end)..end;
            let first = (begin * across.stride + skipped).saturating_sub(across.before);
            for (d, i) in (0..depth.output).flat_map(|d| (0..down.output).map(move |i| (d, i))) {
                let line = depth.look(d, a).zip(down.look(i, k));
                let line = line.map(|(z, row)| (z * down.input + row) * across.input);
                visit(column, line, first, taken.clone());
                column += across.output;
            }
        }
    }
}

/// Elements of an image and of its columns.
fn sizes(axes: &[Axis; 3]) -> [usize; 2] {
    let all = |of: fn(&Axis) -> usize| crate::shape::product(axes.iter().map(of));
    [all(|axis| axis.input), all(|axis| axis.kernel * axis.output)]
}

/// What is moved.
fn moved(from: &Tensor, to: &Tensor) -> trace::Kernel {
    let bytes = ((from.numel() + to.numel()) * to.dtype().bytes()) as u64;
    trace::Kernel { bytes, ..trace::Kernel::default() }
}

/// Columns of dense images, if they are of a dtype that is known here.
pub(super) fn im2col(axes: &[Axis; 3], x: &Tensor, y: &Tensor) -> bool {
    match x.dtype() {
        DType::F32 => columns::<f32>(axes, x, y),
        DType::F64 => columns::<f64>(axes, x, y),
        DType::F16 => columns::<f16>(axes, x, y),
        DType::BF16 => columns::<bf16>(axes, x, y),
        DType::I32 => columns::<i32>(axes, x, y),
        DType::I64 => columns::<i64>(axes, x, y),
        DType::U8 => columns::<u8>(axes, x, y),
        _ => return false,
    }
    true
}

fn columns<T: HostElement + Pod>(axes: &[Axis; 3], x: &Tensor, y: &Tensor) {
    let _kernel = trace::host_kernel("im2col", || moved(x, y));
    let ([before, after], across) = (sizes(axes), &axes[2]);
    let (x, mut y) = (x.elements::<T>(), y.elements_mut::<T>());
    let work = y.par_chunks_mut(after).with_min_len(TASK.div_ceil(after)).zip(x.par_chunks(before));
    install(|| {
        work.for_each(|(y, x)| {
            lines(axes, |column, line, first, taken| {
                let to = &mut y[column..][..across.output];
                let Some(line) = line.filter(|_| !taken.is_empty()) else {
                    return to.fill(T::zeroed());
                };
                to[..taken.start].fill(T::zeroed());
                to[taken.end..].fill(T::zeroed());
                let from = &x[line + first..line + across.input];
                let to = &mut to[taken];
                match across.stride {
                    1 => to.copy_from_slice(&from[..to.len()]),
                    step => {
                        to.iter_mut().zip(from.iter().step_by(step)).for_each(|(to, v)| *to = *v)
                    }
                }
            });
        });
    });
}

/// Dense images of columns, if they are of a dtype that is known here; 16-bit floats are summed in f32.
pub(super) fn col2im(axes: &[Axis; 3], x: &Tensor, y: &Tensor) -> bool {
    match x.dtype() {
        DType::F32 => images::<f32, f32>(axes, x, y, |v| v, |v| v),
        DType::F64 => images::<f64, f64>(axes, x, y, |v| v, |v| v),
        DType::F16 => images::<f16, f32>(axes, x, y, f16::to_f32, f16::from_f32),
        DType::BF16 => images::<bf16, f32>(axes, x, y, bf16::to_f32, bf16::from_f32),
        _ => return false,
    }
    true
}

fn images<T: HostElement + Pod, A: Pod + Send + AddAssign>(
    axes: &[Axis; 3],
    x: &Tensor,
    y: &Tensor,
    widen: impl Fn(T) -> A + Send + Sync,
    narrow: impl Fn(A) -> T + Send + Sync,
) {
    let _kernel = trace::host_kernel("col2im", || moved(x, y));
    let ([after, before], across) = (sizes(axes), &axes[2]);
    let (x, mut y) = (x.elements::<T>(), y.elements_mut::<T>());
    let least = TASK.div_ceil(before);
    let work = y.par_chunks_mut(after).with_min_len(least).zip(x.par_chunks(before));
    install(|| {
        work.for_each_init(
            || vec![A::zeroed(); after],
            |sums, (y, x)| {
                sums.fill(A::zeroed());
                lines(axes, |column, line, first, taken| {
                    let Some(line) = line.filter(|_| !taken.is_empty()) else { return };
                    let to = &mut sums[line + first..line + across.input];
                    let from = &x[column..][taken];
                    let to = to.iter_mut().step_by(across.stride);
                    to.zip(from).for_each(|(to, &v)| *to += widen(v));
                });
                y.iter_mut().zip(sums.iter()).for_each(|(to, &sum)| *to = narrow(sum));
            },
        );
    });
}
