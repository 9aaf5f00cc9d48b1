//! What tests know of convolutions, in f64, element by element.

use genesis_kernel::ir::DType;

use crate::ops::Conv;
use crate::ops::conv::reference::{Moves, look};
use crate::ops::info::{Dense, Family, OpInfo, cpu, numel};

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

pub(in crate::ops) static INFOS: &[OpInfo] = &[
    OpInfo::new(
        "conv",
        Family::MatMul,
        |x| {
            let conv =
                Conv { stride: vec![2], padding: vec![[1, 1]], dilation: vec![2], groups: 2 };
            x[0].conv(&x[1], None, &conv)
        },
        |x| {
            // Two groups of two channels, one result each; 9 places of which every second window begins.
            Dense::from_fn(&[2, 2, 3], |at| {
                let tap = |c: usize, k: usize| {
                    let place = (at[2] * 2 + 2 * k) as i64 - 1;
                    if !(0..7).contains(&place) {
                        return 0.0;
                    }
                    x[0].at(&[at[0], 2 * at[1] + c, place as usize]) * x[1].at(&[at[1], c, k])
                };
                (0..2).flat_map(|c| (0..3).map(move |k| (c, k))).map(|(c, k)| tap(c, k)).sum()
            })
        },
        &[&[&[2, 4, 7], &[2, 2, 3]]],
    )
    .keeping(&[(1, 2)])
    .computing(|x, y| 2.0 * y * numel(&x[1][1..]))
    .peer("F.conv1d(x[0], x[1], None, 2, 1, 2, 2)")
    .refusing(&[(
        || cpu(&[1, 3, 5], DType::F32)?.conv(&cpu(&[1, 2, 3], DType::F32)?, None, &Conv::new(1)),
        "conv: a weight of [1, 2, 3] in 1 groups does not fit shape [1, 3, 5]",
    )]),
    OpInfo::new(
        "conv/2d",
        Family::MatMul,
        |x| x[0].conv(&x[1], None, &settings((2, 1, 1), 1)),
        |x| conv(&x[0], &x[1], (2, 1, 1), 1),
        &[&[&[2, 3, 6, 5], &[4, 3, 3, 2]]],
    )
    .keeping(&[(1, 2), (1, 3)])
    .computing(|x, y| 2.0 * y * numel(&x[1][1..]))
    .peer("F.conv2d(x[0], x[1], None, 2, 1)")
    .refusing(&[
        (
            || {
                let (x, w) = (cpu(&[1, 3, 5, 5], DType::F32)?, cpu(&[2, 3, 6, 1], DType::F32)?);
                x.conv(&w, None, &Conv::new(2))
            },
            "conv: a window of 6 is larger than 5 elements",
        ),
        (
            || {
                let (x, w) = (cpu(&[1, 3, 5], DType::F32)?, cpu(&[2, 3, 3], DType::F32)?);
                x.conv(&w, Some(&cpu(&[3], DType::F32)?), &Conv::new(1))
            },
            "conv: the bias is [3], 2 channels need [2]",
        ),
    ]),
    OpInfo::new(
        "conv/bias",
        Family::MatMul,
        |x| x[0].conv(&x[1], Some(&x[2]), &settings((1, 0, 2), 1)),
        |x| {
            let y = conv(&x[0], &x[1], (1, 0, 2), 1);
            Dense::from_fn(&y.shape, |at| y.at(at) + x[2].data[at[1]])
        },
        &[&[&[1, 2, 5, 6], &[3, 2, 2, 3], &[3]]],
    )
    .keeping(&[(1, 2), (1, 3)])
    .computing(|x, y| 2.0 * y * numel(&x[1][1..]))
    .peer("F.conv2d(x[0], x[1], x[2], 1, 0, 2)"),
    OpInfo::new(
        "conv/depthwise",
        Family::MatMul,
        |x| x[0].conv(&x[1], None, &settings((1, 1, 1), 3)),
        |x| conv(&x[0], &x[1], (1, 1, 1), 3),
        &[&[&[2, 3, 4, 5], &[6, 1, 3, 3]]],
    )
    .keeping(&[(1, 2), (1, 3)])
    .computing(|x, y| 2.0 * y * numel(&x[1][1..]))
    .peer("F.conv2d(x[0], x[1], None, 1, 1, 1, 3)"),
    OpInfo::new(
        "conv/1x1",
        Family::MatMul,
        |x| x[0].conv(&x[1], None, &settings((1, 0, 1), 1)),
        |x| conv(&x[0], &x[1], (1, 0, 1), 1),
        &[&[&[2, 3, 4, 5], &[4, 3, 1, 1]]],
    )
    .keeping(&[(1, 2), (1, 3)])
    .computing(|x, y| 2.0 * y * numel(&x[1][1..]))
    .peer("F.conv2d(x[0], x[1])"),
    OpInfo::new(
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
        &[&[&[2, 2, 3, 3], &[2, 2, 3, 3]]],
    )
    .keeping(&[(1, 2), (1, 3)])
    .computing(|x, _| 2.0 * numel(&x[0]) * numel(&x[1][1..]))
    .peer("F.conv_transpose2d(x[0], x[1], None, 2, 1, (1, 0), 2)")
    .refusing(&[(
        || {
            let (x, w) = (cpu(&[1, 3, 5], DType::F32)?, cpu(&[3, 2, 3], DType::F32)?);
            x.conv_transpose(&w, None, &Conv::new(1), &[1])
        },
        "conv_transpose: output padding [1] must be smaller than stride [1] or dilation [1]",
    )]),
];
