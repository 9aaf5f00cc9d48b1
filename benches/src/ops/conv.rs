//! Convolutions of two axes, padded so that the result has the input's extents, and their gradients.
//!
//! `conv2d/bf16/64x64x56x56/3x3` is 64 images of 64 channels, as many in the result, by windows of 3 by 3.
//! `/dx` and `/dw` are the gradients; `/last` is given channels that lie last in memory.

use genesis::Tensor;
use genesis::autograd::BackwardOptions;
use genesis::ops::Conv;

use super::{Op, Prepared, Setup, distance, sample};
use crate::name::CaseName;
use crate::roofline::Work;

/// The op of this file.
pub(super) fn ops() -> Vec<Op> {
    vec![Op { name: "conv2d", work, prepare }]
}

/// Images, channels, rows, columns.
fn extents(name: &CaseName) -> anyhow::Result<[usize; 4]> {
    match name.dims[..] {
        [n, c, h, w] => Ok([n, c, h, w]),
        _ => anyhow::bail!("{} needs a shape such as 64x64x56x56", name.text),
    }
}

/// The extent of a window along both axes, and which product.
fn variant(name: &CaseName) -> (usize, &str) {
    let (kernel, part) = name.variant.split_once('/').unwrap_or((&name.variant, ""));
    let extent = kernel.split('x').next().and_then(|extent| extent.parse().ok());
    (extent.unwrap_or(3), part)
}

fn work(name: &CaseName) -> Work {
    let Ok([n, c, h, w]) = extents(name) else { return Work::default() };
    let (k, _) = variant(name);
    let all = 2 * n * c * h * w + c * c * k * k;
    let flops = 2.0 * (n * c * h * w) as f64 * (c * k * k) as f64;
    Work { flops, ..Work::elements(name, all) }
}

/// Input, weights, and the result or its gradient.
struct Set {
    x: Tensor,
    w: Tensor,
    y: Tensor,
}

const AGAIN: BackwardOptions = BackwardOptions { retain_graph: true, create_graph: false };

fn prepare(setup: &Setup<'_>) -> anyhow::Result<Prepared> {
    let [n, c, h, w] = extents(setup.name)?;
    let (k, part) = variant(setup.name);
    let conv = Conv { padding: vec![[k / 2; 2]; 2], ..Conv::new(2) };
    let last = part == "last";
    let images = || match last {
        true => setup.randn(&[n, h, w, c])?.permute(&[0, 3, 1, 2]),
        false => setup.randn(&[n, c, h, w]),
    };
    let sets = setup.each(|| {
        let (x, y) = (images()?, setup.randn(&[n, c, h, w])?);
        let w = setup.randn(&[c, c, k, k])?.mul_scalar(1.0 / ((c * k * k) as f64).sqrt())?;
        Ok(Set { x, w, y })
    })?;
    match part {
        "" | "last" => {
            let op = move |set: &Set| set.x.conv(&set.w, None, &conv);
            Prepared::new(sets, op, move |set, y| check(&set.x, &set.w, y))
        }
        "dx" => {
            let op = move |set: &Set| set.y.conv_transpose(&set.w, None, &conv, &[0, 0]);
            // The same sum with the weights seen from the other side.
            let op_check = move |set: &Set, dx: &Tensor| {
                check(&set.y, &set.w.transpose(0, 1)?.flip(&[2, 3])?, dx)
            };
            Prepared::new(sets, op, op_check)
        }
        "dw" => {
            let sets: Vec<(Set, Tensor)> = sets
                .into_iter()
                .map(|set| {
                    let w = set.w.clone().requires_grad_(true)?;
                    let y = set.x.conv(&w, None, &conv)?;
                    Ok((Set { w, ..set }, y))
                })
                .collect::<genesis::Result<_>>()?;
            let op = |(set, y): &(Set, Tensor)| {
                y.backward_with(Some(&set.y), AGAIN)?;
                let dw = set.w.grad();
                // The next run makes it anew and adds nothing up.
                set.w.zero_grad();
                Ok(dw)
            };
            Prepared::new(sets, op, |(set, _), dw| {
                let dw = dw.as_ref().ok_or_else(|| anyhow::anyhow!("the gradient is missing"))?;
                check_weights(&set.x, &set.y, dw)
            })
        }
        other => anyhow::bail!("there are dx, dw and last, not {other}"),
    }
}

/// Lines of a plane and a place of the windows that look inside: `(to, from)` along one axis.
fn pairs(extent: usize, kernel: usize, place: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..extent).filter_map(move |i| {
        Some((i, (i + place).checked_sub(kernel / 2).filter(|&from| from < extent)?))
    })
}

/// Some channels of some images.
fn check(x: &Tensor, weight: &Tensor, y: &Tensor) -> anyhow::Result<f64> {
    let [n, c, h, w] = x.shape()[..] else { anyhow::bail!("images have four axes") };
    let k = weight.shape()[2];
    let weights = weight.to_f64_vec()?;
    let mut worst = 0.0f64;
    for image in sample(n, 2) {
        let seen = x.narrow(0, image, 1)?.to_f64_vec()?;
        for o in sample(c, 3) {
            let got = y.narrow(0, image, 1)?.narrow(1, o, 1)?.to_f64_vec()?;
            let mut want = vec![0.0; h * w];
            for (channel, place) in (0..c).flat_map(|channel| (0..k * k).map(move |p| (channel, p)))
            {
                let by = weights[(o * c + channel) * k * k + place];
                for (i, row) in pairs(h, k, place / k) {
                    for (j, column) in pairs(w, k, place % k) {
                        want[i * w + j] += by * seen[(channel * h + row) * w + column];
                    }
                }
            }
            worst = worst.max(distance(&got, &want, 1.0));
        }
    }
    Ok(worst)
}

/// The weights between some channels.
fn check_weights(x: &Tensor, dy: &Tensor, dw: &Tensor) -> anyhow::Result<f64> {
    let [n, c, h, w] = x.shape()[..] else { anyhow::bail!("images have four axes") };
    let k = dw.shape()[2];
    let mut worst = 0.0f64;
    for channel in sample(c, 3) {
        let seen = x.narrow(1, channel, 1)?.to_f64_vec()?;
        let given = dy.narrow(1, c - 1 - channel, 1)?.to_f64_vec()?;
        let got = dw.narrow(0, c - 1 - channel, 1)?.narrow(1, channel, 1)?.to_f64_vec()?;
        let sum = |place: usize| -> f64 {
            let rows = (0..n)
                .flat_map(|image| pairs(h, k, place / k).map(move |(i, row)| (image, i, row)));
            rows.map(|(image, i, row)| {
                let (to, from) = ((image * h + i) * w, (image * h + row) * w);
                pairs(w, k, place % k)
                    .map(|(j, column)| given[to + j] * seen[from + column])
                    .sum::<f64>()
            })
            .sum()
        };
        let want: Vec<f64> = (0..k * k).map(sum).collect();
        worst = worst.max(distance(&got, &want, ((n * h * w) as f64).sqrt()));
    }
    Ok(worst)
}
