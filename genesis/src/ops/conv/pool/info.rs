//! What tests know of pools, in f64, window by window.

use genesis_kernel::ir::DType;

use crate::ops::Window;
use crate::ops::conv::reference::{Moves, look};
use crate::ops::info::{Dense, Family, OpInfo, WIDE, cpu, largest, mean};

/// A fold of what each window of two axes sees of the last two axes of a tensor of rank 3.
fn pooled(
    x: &Dense,
    (kernel, moves): (usize, Moves),
    windows: [usize; 2],
    fold: fn(&[f64]) -> f64,
) -> Dense {
    Dense::from_fn(&[x.shape[0], windows[0], windows[1]], |at| {
        let seen = |o: usize, n: usize| {
            (0..kernel).filter_map(move |k| look(o, k, moves, n)).collect::<Vec<_>>()
        };
        let (rows, columns) = (seen(at[1], x.shape[1]), seen(at[2], x.shape[2]));
        let values: Vec<f64> =
            rows.iter().flat_map(|&i| columns.iter().map(move |&j| x.at(&[at[0], i, j]))).collect();
        fold(&values)
    })
}

/// A fold of windows that share out the last two axes.
fn shared(x: &Dense, size: [usize; 2], fold: fn(&[f64]) -> f64) -> Dense {
    Dense::from_fn(&[x.shape[0], size[0], size[1]], |at| {
        let range = |axis: usize| {
            let (i, n, m) = (at[axis], size[axis - 1], x.shape[axis]);
            i * m / n..((i + 1) * m).div_ceil(n)
        };
        let values: Vec<f64> =
            range(1).flat_map(|i| range(2).map(move |j| x.at(&[at[0], i, j]))).collect();
        fold(&values)
    })
}

pub(in crate::ops) static INFOS: &[OpInfo] = &[
    OpInfo::new(
        "max_pool",
        Family::Exact,
        |x| Ok(x[0].max_pool(&Window::new(&[2, 2]))?.0),
        |x| {
            Dense::from_fn(&[2, 2, 2], |at| {
                let at = |i: usize, j: usize| x[0].at(&[at[0], 2 * at[1] + i, 2 * at[2] + j]);
                at(0, 0).max(at(0, 1)).max(at(1, 0)).max(at(1, 1))
            })
        },
        &[&[&[2, 4, 5]]],
    )
    .peer("F.max_pool2d(x[0], 2)"),
    OpInfo::new(
        "max_pool/padded",
        Family::Exact,
        |x| {
            let window = Window { stride: vec![2; 2], padding: vec![1; 2], ..Window::new(&[3, 3]) };
            Ok(x[0].max_pool(&window)?.0)
        },
        |x| pooled(&x[0], (3, (2, 1, 1)), [3, 4], largest),
        &[&[&[2, 5, 7]]],
    )
    .peer("F.max_pool2d(x[0], 3, 2, 1)")
    .refusing(&[(
        || {
            let window = Window { padding: vec![2], ..Window::new(&[3]) };
            Ok(cpu(&[1, 3, 5], DType::F32)?.max_pool(&window)?.0)
        },
        "max_pool: padding [2] is more than half of [3]",
    )]),
    OpInfo::new(
        "avg_pool",
        Family::Softmax,
        |x| x[0].avg_pool(&Window::new(&[2, 2]), true, None),
        |x| {
            Dense::from_fn(&[2, 2, 2], |at| {
                let at = |i: usize, j: usize| x[0].at(&[at[0], 2 * at[1] + i, 2 * at[2] + j]);
                (at(0, 0) + at(0, 1) + at(1, 0) + at(1, 1)) / 4.0
            })
        },
        &[&[&[2, 4, 5]]],
    )
    .peer("F.avg_pool2d(x[0], 2)"),
    OpInfo::new(
        "avg_pool/ceil",
        Family::Softmax,
        |x| {
            let window = Window { padding: vec![1; 2], ceil: true, ..Window::new(&[3, 3]) };
            x[0].avg_pool(&window, false, None)
        },
        |x| pooled(&x[0], (3, (3, 1, 1)), [2, 3], mean),
        &[&[&[2, 5, 7]]],
    )
    .peer("F.avg_pool2d(x[0], 3, 3, 1, True, False)")
    .refusing(&[(
        || cpu(&[1, 3, 5], DType::F32)?.avg_pool(&Window::new(&[2]), true, Some(0)),
        "avg_pool: the divisor is 0",
    )]),
    OpInfo::new(
        "lp_pool",
        Family::Softmax,
        |x| x[0].lp_pool(2.0, &Window::new(&[2, 2])),
        |x| pooled(&x[0], (2, (2, 0, 1)), [2, 3], |v| v.iter().map(|v| v * v).sum::<f64>().sqrt()),
        &[&[&[2, 5, 7]]],
    )
    .peer("F.lp_pool2d(x[0], 2.0, 2)"),
    OpInfo::new(
        "adaptive_avg_pool",
        Family::Softmax,
        |x| x[0].adaptive_avg_pool(&[2, 3]),
        |x| shared(&x[0], [2, 3], mean),
        &[&[&[2, 5, 7]]],
    )
    .peer("F.adaptive_avg_pool2d(x[0], (2, 3))")
    .refusing(&[(
        || cpu(&[3, 5], DType::F32)?.adaptive_avg_pool(&[2, 2]),
        "adaptive_avg_pool: [2, 2] windows do not share out shape [3, 5]",
    )]),
    OpInfo::new(
        "adaptive_max_pool",
        Family::Exact,
        |x| Ok(x[0].adaptive_max_pool(&[2, 3])?.0),
        |x| shared(&x[0], [2, 3], largest),
        &[&[&[2, 5, 7]]],
    )
    .peer("F.adaptive_max_pool2d(x[0], (2, 3))"),
    OpInfo::new(
        "max_unpool",
        Family::Exact,
        |x| {
            let (most, which) = x[0].max_pool(&Window::new(&[2]))?;
            most.max_unpool(&which, &x[0].shape()[1..])
        },
        |x| {
            Dense::from_fn(&[2, 6], |at| {
                let pair = at[1] / 2 * 2;
                let (a, b) = (x[0].at(&[at[0], pair]), x[0].at(&[at[0], pair + 1]));
                let v = x[0].at(at);
                if v == a.max(b) { v } else { 0.0 }
            })
        },
        &[&[&[2, 6]]],
    )
    .peer(
        "F.max_unpool1d(*F.max_pool1d(x[0], 2, return_indices=True), 2, \
             output_size=x[0].shape[1:])",
    )
    .of(WIDE),
];
