//! Reductions, scans and dots, in the orders that the module's head fixes.

use genesis_emulator::numbers::round_tf32;

use super::elementwise::binary_one;
use super::tiles::Lines;
use crate::ir::{BinaryOp, DType, DotPrecision, Scalar, Shape, scalar};

/// The most lanes of a reduction along the last axis.
const MAX_LANES: usize = 64;

/// One tile reduced by an op.
pub(super) fn reduce(op: BinaryOp, dtype: DType, x: &[u64], shape: Shape, axis: usize) -> Vec<u64> {
    let lines = Lines::new(shape, axis);
    let is_last = axis + 1 == shape.rank();
    let mut line = Vec::with_capacity(lines.n);
    let combine = |a: u64, b: u64| binary_one(op, dtype, a, b);
    let mut out = Vec::with_capacity(lines.outer * lines.inner);
    for start in lines.starts() {
        line.clear();
        line.extend((0..lines.n).map(|k| x[start + k * lines.inner]));
        out.push(if is_last { by_lanes(&line, combine) } else { in_order(&line, combine) });
    }
    out
}

fn in_order(line: &[u64], combine: impl Fn(u64, u64) -> u64) -> u64 {
    let (first, rest) = line.split_first().expect("extents are at least 1");
    rest.iter().fold(*first, |acc, &x| combine(acc, x))
}

fn by_lanes(line: &[u64], combine: impl Fn(u64, u64) -> u64) -> u64 {
    let mut n_lanes = (1 << line.len().ilog2()).min(MAX_LANES);
    let mut lanes = line[..n_lanes].to_vec();
    for (i, &x) in line.iter().enumerate().skip(n_lanes) {
        let lane = i % n_lanes;
        lanes[lane] = combine(lanes[lane], x);
    }
    while n_lanes > 1 {
        n_lanes /= 2;
        for i in 0..n_lanes {
            lanes[i] = combine(lanes[i], lanes[i + n_lanes]);
        }
    }
    lanes[0]
}

/// Several tiles reduced together: `combine` takes the n left and n right scalars.
pub(super) fn reduce_with<E>(
    xs: &[&[u64]],
    shape: Shape,
    axis: usize,
    mut combine: impl FnMut(&[u64], &[u64]) -> Result<Vec<u64>, E>,
) -> Result<Vec<Vec<u64>>, E> {
    let lines = Lines::new(shape, axis);
    let mut out = vec![Vec::with_capacity(lines.outer * lines.inner); xs.len()];
    for start in lines.starts() {
        let element = |k: usize| xs.iter().map(|x| x[start + k * lines.inner]).collect::<Vec<_>>();
        let mut acc = element(0);
        for k in 1..lines.n {
            acc = combine(&acc, &element(k))?;
        }
        for (out, bits) in out.iter_mut().zip(acc) {
            out.push(bits);
        }
    }
    Ok(out)
}

/// Several tiles scanned together; see [`reduce_with`].
pub(super) fn scan_with<E>(
    xs: &[&[u64]],
    shape: Shape,
    axis: usize,
    reverse: bool,
    mut combine: impl FnMut(&[u64], &[u64]) -> Result<Vec<u64>, E>,
) -> Result<Vec<Vec<u64>>, E> {
    let lines = Lines::new(shape, axis);
    let mut out: Vec<Vec<u64>> = xs.iter().map(|x| x.to_vec()).collect();
    for start in lines.starts() {
        let at = |step: usize| {
            let k = if reverse { lines.n - 1 - step } else { step };
            start + k * lines.inner
        };
        let mut acc: Vec<u64> = xs.iter().map(|x| x[at(0)]).collect();
        for step in 1..lines.n {
            let right: Vec<u64> = xs.iter().map(|x| x[at(step)]).collect();
            acc = combine(&acc, &right)?;
            for (out, &bits) in out.iter_mut().zip(&acc) {
                out[at(step)] = bits;
            }
        }
    }
    Ok(out)
}

/// The operands of a dot and their extents.
pub(super) struct Dot<'a> {
    pub(super) a: &'a [u64],
    pub(super) b: &'a [u64],
    pub(super) acc: &'a [u64],
    pub(super) from: DType,
    pub(super) to: DType,
    pub(super) extents: [usize; 3],
    pub(super) precision: DotPrecision,
}

/// `acc + a b`.
pub(super) fn dot(dot: &Dot<'_>) -> Vec<u64> {
    let [m, k, n] = dot.extents;
    if dot.to.is_int() {
        return dot_of_integers(dot);
    }
    let (a, b) = (dot.widen(dot.a), dot.widen(dot.b));
    let mut out = dot.acc.to_vec();
    for row in 0..m {
        for col in 0..n {
            let terms = (0..k).map(|i| (a[row * k + i], b[i * n + col]));
            let acc = &mut out[row * n + col];
            *acc = match dot.to {
                DType::F64 => {
                    terms.fold(f64::from_bits(*acc), |s, (a, b)| a.mul_add(b, s)).to_bits()
                }
                // Only f32 is left, and a and b are exact in it.
                _ => u64::from(
                    terms
                        .fold(f32::from_bits(*acc as u32), |s, (a, b)| {
                            (a as f32).mul_add(b as f32, s)
                        })
                        .to_bits(),
                ),
            };
        }
    }
    out
}

/// The same of integers, whose sums wrap.
fn dot_of_integers(dot: &Dot<'_>) -> Vec<u64> {
    let [m, k, n] = dot.extents;
    let widen = |x: &[u64]| -> Vec<Scalar> {
        let wide = |&bits: &u64| scalar::cast(Scalar { dtype: dot.from, bits }, dot.to);
        x.iter().map(wide).collect()
    };
    let (a, b) = (widen(dot.a), widen(dot.b));
    let element = |(at, &bits): (usize, &u64)| {
        let (row, column) = (at / n, at % n);
        let terms = (0..k).map(|i| (a[row * k + i], b[i * n + column]));
        let before = Scalar { dtype: dot.to, bits };
        terms.fold(before, |sum, (a, b)| scalar::fma(a, b, sum)).bits
    };
    debug_assert_eq!(dot.acc.len(), m * n);
    dot.acc.iter().enumerate().map(element).collect()
}

impl Dot<'_> {
    /// The values that are multiplied, as f64, which holds each of them exactly.
    fn widen(&self, x: &[u64]) -> Vec<f64> {
        let is_rounded = self.precision == DotPrecision::Tf32;
        x.iter()
            .map(|&bits| if is_rounded { round_tf32(bits as u32).into() } else { bits })
            .map(|bits| scalar::cast(Scalar { dtype: self.from, bits }, DType::F64).to_f64())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_then_halves() {
        // Subtraction is no reduction, but shows the order.
        let combine = |a: u64, b: u64| (a.wrapping_mul(10)).wrapping_add(b);
        // Lanes [1*10+5, 2, 3, 4] -> [15*10+3, 2*10+4] -> 153*10+24.
        assert_eq!(by_lanes(&[1, 2, 3, 4, 5], combine), 1554);
        assert_eq!(in_order(&[1, 2, 3, 4, 5], combine), 12345);
    }
}
