//! Samples and references of convolutions, pools and resizing: sums over places, in f64, place by place.

use genesis_kernel::ir::DType;

use super::sample::{Dense, FLOATS, Family, OpInfo, Refusal, cpu, refuse, samples};
use crate::error::Result;
use crate::ops::{Conv, Interpolation, Resize, Window};
use crate::tensor::Tensor;

/// An op in short: its name, how exact it is, the call, the reference, one shape an input.
struct Row(
    &'static str,
    Family,
    fn(&[Tensor]) -> Result<Tensor>,
    fn(&[Dense]) -> Dense,
    &'static [&'static [usize]],
);

pub(super) fn infos() -> Vec<OpInfo> {
    [CONVOLUTIONS, POOLS, RESIZED].into_iter().flatten().map(info).collect()
}

fn info(row: &'static Row) -> OpInfo {
    let Row(name, family, call, reference, shapes) = row;
    OpInfo {
        name: (*name).to_owned(),
        family: *family,
        dtypes: FLOATS.to_vec(),
        index_inputs: Vec::new(),
        is_differentiable: true,
        call: Box::new(*call),
        reference: Box::new(*reference),
        samples: samples(&[shapes], (0.1, 5.0)),
        refused: refused(name),
    }
}

fn refused(name: &str) -> Vec<Refusal> {
    match name {
        "conv/2d" => vec![
            refuse(
                || {
                    let (x, w) = (cpu(&[1, 3, 5, 5], DType::F32)?, cpu(&[2, 3, 6, 1], DType::F32)?);
                    x.conv(&w, None, &Conv::new(2))
                },
                "conv: a window of 6 is larger than 5 elements",
            ),
            refuse(
                || {
                    let (x, w) = (cpu(&[1, 3, 5], DType::F32)?, cpu(&[2, 3, 3], DType::F32)?);
                    x.conv(&w, Some(&cpu(&[3], DType::F32)?), &Conv::new(1))
                },
                "conv: the bias is [3], 2 channels need [2]",
            ),
        ],
        "conv_transpose" => vec![refuse(
            || {
                let (x, w) = (cpu(&[1, 3, 5], DType::F32)?, cpu(&[3, 2, 3], DType::F32)?);
                x.conv_transpose(&w, None, &Conv::new(1), &[1])
            },
            "conv_transpose: output padding [1] must be smaller than stride [1] or dilation [1]",
        )],
        "max_pool/padded" => vec![refuse(
            || {
                let window = Window { padding: vec![2], ..Window::new(&[3]) };
                Ok(cpu(&[1, 3, 5], DType::F32)?.max_pool(&window)?.0)
            },
            "max_pool: padding [2] is more than half of [3]",
        )],
        "avg_pool/ceil" => vec![refuse(
            || cpu(&[1, 3, 5], DType::F32)?.avg_pool(&Window::new(&[2]), true, Some(0)),
            "avg_pool: the divisor is 0",
        )],
        "adaptive_avg_pool" => vec![refuse(
            || cpu(&[3, 5], DType::F32)?.adaptive_avg_pool(&[2, 2]),
            "adaptive_avg_pool: [2, 2] windows do not share out shape [3, 5]",
        )],
        "interpolate/nearest" => vec![refuse(
            || {
                let to = Resize::To(vec![4]);
                cpu(&[1, 3, 5], DType::F32)?.interpolate(&to, Interpolation::Nearest, true)
            },
            "interpolate: corners are not aligned in mode Nearest",
        )],
        "pixel_shuffle" => vec![refuse(
            || cpu(&[3, 2, 2], DType::F32)?.pixel_shuffle(2),
            "pixel_shuffle: 3 channels are no multiple of 2 squared",
        )],
        _ => Vec::new(),
    }
}

/// How a reference moves along both axes: stride, padding, dilation.
type Moves = (usize, usize, usize);

/// Where place `k` of window `o` looks among `n` elements.
fn look(o: usize, k: usize, (stride, padding, dilation): Moves, n: usize) -> Option<usize> {
    (o * stride + k * dilation).checked_sub(padding).filter(|&at| at < n)
}

/// The convolution of two axes with as many channels of the result as `weight` has.
fn conv(x: &Dense, weight: &Dense, moves: Moves, groups: usize) -> Dense {
    let [o, c, kh, kw] = weight.shape[..] else { panic!("weights have four axes") };
    let windows = |n: usize, k: usize| (n + 2 * moves.1 - moves.2 * (k - 1) - 1) / moves.0 + 1;
    let (h, w) = (x.shape[2], x.shape[3]);
    Dense::from_fn(&[x.shape[0], o, windows(h, kh), windows(w, kw)], |at| {
        let mut sum = 0.0;
        for channel in 0..c {
            for (k, l) in (0..kh).flat_map(|k| (0..kw).map(move |l| (k, l))) {
                let seen = look(at[2], k, moves, h).zip(look(at[3], l, moves, w));
                if let Some((i, j)) = seen {
                    let from = at[1] / (o / groups) * c + channel;
                    sum += x.at(&[at[0], from, i, j]) * weight.at(&[at[1], channel, k, l]);
                }
            }
        }
        sum
    })
}

/// A convolution over two axes that moves so.
fn settings((stride, padding, dilation): Moves, groups: usize) -> Conv {
    let padding = vec![[padding; 2]; 2];
    Conv { stride: vec![stride; 2], padding, dilation: vec![dilation; 2], groups }
}

const CONVOLUTIONS: &[Row] = &[
    Row(
        "conv/2d",
        Family::MatMul,
        |x| x[0].conv(&x[1], None, &settings((2, 1, 1), 1)),
        |x| conv(&x[0], &x[1], (2, 1, 1), 1),
        &[&[2, 3, 6, 5], &[4, 3, 3, 2]],
    ),
    Row(
        "conv/bias",
        Family::MatMul,
        |x| x[0].conv(&x[1], Some(&x[2]), &settings((1, 0, 2), 1)),
        |x| {
            let y = conv(&x[0], &x[1], (1, 0, 2), 1);
            Dense::from_fn(&y.shape, |at| y.at(at) + x[2].data[at[1]])
        },
        &[&[1, 2, 5, 6], &[3, 2, 2, 3], &[3]],
    ),
    Row(
        "conv/depthwise",
        Family::MatMul,
        |x| x[0].conv(&x[1], None, &settings((1, 1, 1), 3)),
        |x| conv(&x[0], &x[1], (1, 1, 1), 3),
        &[&[2, 3, 4, 5], &[6, 1, 3, 3]],
    ),
    Row(
        "conv/1x1",
        Family::MatMul,
        |x| x[0].conv(&x[1], None, &settings((1, 0, 1), 1)),
        |x| conv(&x[0], &x[1], (1, 0, 1), 1),
        &[&[2, 3, 4, 5], &[4, 3, 1, 1]],
    ),
    Row(
        "conv_transpose",
        Family::MatMul,
        |x| x[0].conv_transpose(&x[1], None, &settings((2, 1, 1), 2), &[1, 0]),
        |x| {
            // Two groups of one channel to two; rows are one more than the windows need.
            Dense::from_fn(&[2, 4, 6, 5], |at| {
                let tap = |o: usize, n: usize, k: usize| look(o, k, (2, 1, 1), n);
                let mut sum = 0.0;
                for (i, j, k, l) in (0..81).map(|p| (p / 27, p / 9 % 3, p / 3 % 3, p % 3)) {
                    if tap(i, 6, k) == Some(at[2]) && tap(j, 5, l) == Some(at[3]) {
                        let group = at[1] / 2;
                        sum += x[0].at(&[at[0], group, i, j]) * x[1].at(&[group, at[1] % 2, k, l]);
                    }
                }
                sum
            })
        },
        &[&[2, 2, 3, 3], &[2, 2, 3, 3]],
    ),
];

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

fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

const POOLS: &[Row] = &[
    Row(
        "max_pool/padded",
        Family::Exact,
        |x| {
            let window = Window { stride: vec![2; 2], padding: vec![1; 2], ..Window::new(&[3, 3]) };
            Ok(x[0].max_pool(&window)?.0)
        },
        |x| pooled(&x[0], (3, (2, 1, 1)), [3, 4], largest),
        &[&[2, 5, 7]],
    ),
    Row(
        "avg_pool/ceil",
        Family::Softmax,
        |x| {
            let window = Window { padding: vec![1; 2], ceil: true, ..Window::new(&[3, 3]) };
            x[0].avg_pool(&window, false, None)
        },
        |x| pooled(&x[0], (3, (3, 1, 1)), [2, 3], mean),
        &[&[2, 5, 7]],
    ),
    Row(
        "lp_pool",
        Family::Softmax,
        |x| x[0].lp_pool(2.0, &Window::new(&[2, 2])),
        |x| pooled(&x[0], (2, (2, 0, 1)), [2, 3], |v| v.iter().map(|v| v * v).sum::<f64>().sqrt()),
        &[&[2, 5, 7]],
    ),
    Row(
        "adaptive_avg_pool",
        Family::Softmax,
        |x| x[0].adaptive_avg_pool(&[2, 3]),
        |x| shared(&x[0], [2, 3], mean),
        &[&[2, 5, 7]],
    ),
    Row(
        "adaptive_max_pool",
        Family::Exact,
        |x| Ok(x[0].adaptive_max_pool(&[2, 3])?.0),
        |x| shared(&x[0], [2, 3], largest),
        &[&[2, 5, 7]],
    ),
];

/// A line through the two elements of the last axis around each element of a result with aligned corners.
fn lined(x: &Dense, outputs: usize) -> Dense {
    let inputs = x.shape[2];
    Dense::from_fn(&[x.shape[0], x.shape[1], outputs], |at| {
        let place = at[2] as f64 * (inputs - 1) as f64 / (outputs - 1) as f64;
        let first = (place as usize).min(inputs - 2);
        let t = place - first as f64;
        let [a, b] = [first, first + 1].map(|i| x.at(&[at[0], at[1], i]));
        a + t * (b - a)
    })
}

const RESIZED: &[Row] = &[
    Row(
        "interpolate/nearest",
        Family::Exact,
        |x| x[0].interpolate(&Resize::By(vec![2.0, 1.5]), Interpolation::Nearest, false),
        |x| Dense::from_fn(&[1, 2, 6, 6], |at| x[0].at(&[at[0], at[1], at[2] / 2, at[3] * 2 / 3])),
        &[&[1, 2, 3, 4]],
    ),
    Row(
        "interpolate/linear",
        Family::Softmax,
        |x| x[0].interpolate(&Resize::To(vec![7]), Interpolation::Linear, true),
        |x| lined(&x[0], 7),
        &[&[2, 3, 4]],
    ),
    Row(
        "interpolate/area",
        Family::Softmax,
        |x| x[0].interpolate(&Resize::To(vec![2]), Interpolation::Area, false),
        |x| {
            Dense::from_fn(&[2, 3, 2], |at| {
                (0..2).map(|i| x[0].at(&[at[0], at[1], 2 * at[2] + i]) / 2.0).sum()
            })
        },
        &[&[2, 3, 4]],
    ),
    Row(
        "im2col",
        Family::Exact,
        |x| x[0].im2col(&Window { stride: vec![1, 2], ..Window::new(&[2, 2]) }),
        |x| {
            Dense::from_fn(&[1, 8, 4], |at| {
                let (c, k, l) = (at[1] / 4, at[1] / 2 % 2, at[1] % 2);
                x[0].at(&[0, c, at[2] / 2 + k, at[2] % 2 * 2 + l])
            })
        },
        &[&[1, 2, 3, 4]],
    ),
    Row(
        "col2im",
        Family::Softmax,
        |x| x[0].col2im(&Window { stride: vec![1, 2], ..Window::new(&[2, 2]) }, &[3, 4]),
        |x| {
            Dense::from_fn(&[1, 2, 3, 4], |at| {
                let column = |k: usize| {
                    let row = at[2].checked_sub(k).filter(|&row| row < 2)?;
                    Some(x[0].at(&[0, at[1] * 4 + k * 2 + at[3] % 2, row * 2 + at[3] / 2]))
                };
                (0..2).filter_map(column).sum()
            })
        },
        &[&[1, 8, 4]],
    ),
    Row(
        "pixel_shuffle",
        Family::Exact,
        |x| x[0].pixel_shuffle(2),
        |x| {
            Dense::from_fn(&[1, 2, 6, 4], |at| {
                let channel = at[1] * 4 + at[2] % 2 * 2 + at[3] % 2;
                x[0].at(&[0, channel, at[2] / 2, at[3] / 2])
            })
        },
        &[&[1, 8, 3, 2]],
    ),
];
