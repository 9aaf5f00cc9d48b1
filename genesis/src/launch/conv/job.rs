//! What the kernels of convolutions are told: how windows move along each axis, for each phase of what is made.
//!
//! The gradient of the input of windows that move by 2 is two convolutions whose windows move by one, one
//! for the elements that stand at even places and one for the others, each over the taps that reach them:
//!
//! ```text
//! windows of 3, one before them is padding       element 0 of x is seen by tap 1 of window 0: phase 1, tap 1
//!   -  x0  x1                                     element 1 by tap 2 of window 0 and tap 0 of window 1: phase 0
//!         x1  x2  x3
//! ```

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Arg;

use super::super::axis::Axis;
use super::super::convolution::{Convolution, Part};
use super::super::number;
use crate::error::Result;
use crate::tensor::Tensor;

/// What one launch makes along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Walk {
    /// Positions, which are elements `to`, `to + step`, .. of what is made.
    pub count: usize,
    pub to: usize,
    pub step: usize,
    /// Position `p` looks at element `p * moves + first + t * by` for each of so many taps `t`.
    pub taps: usize,
    pub moves: i64,
    pub first: i64,
    pub by: i64,
    /// Tap `t` is element `k_first + t * k_by` of the window.
    pub k_first: usize,
    pub k_by: i64,
}

impl Walk {
    /// The windows of a convolution.
    pub(super) fn of_result(axis: &Axis) -> Walk {
        Walk {
            count: axis.output,
            to: 0,
            step: 1,
            taps: axis.kernel,
            moves: axis.stride as i64,
            first: -(axis.before as i64),
            by: axis.dilation as i64,
            k_first: 0,
            k_by: 1,
        }
    }

    /// The elements of the input that stand in windows at places with this remainder of the stride.
    fn of_phase(axis: &Axis, phase: usize) -> Walk {
        let stride = axis.stride;
        let to = (phase + stride - axis.before % stride) % stride;
        let count = axis.input.saturating_sub(to).div_ceil(stride);
        let k_by = stride / gcd(axis.dilation, stride);
        let k_first = (0..k_by).find(|k| k * axis.dilation % stride == phase);
        let taps = k_first.map_or(0, |k| axis.kernel.saturating_sub(k).div_ceil(k_by));
        let k_first = k_first.filter(|_| taps > 0).unwrap_or(0);
        let begin = (to + axis.before) as i64 - (k_first * axis.dilation) as i64;
        // The last tap comes first, for it looks at the first element: memory is read upwards, as by a convolution.
        let (by, others) = (k_by * axis.dilation / stride, taps.saturating_sub(1));
        Walk {
            count,
            to,
            step: stride,
            taps,
            moves: 1,
            first: begin.div_euclid(stride as i64) - (others * by) as i64,
            by: by as i64,
            k_first: k_first + others * k_by,
            k_by: -(k_by as i64),
        }
    }

    /// The elements of the input, phase by phase.
    fn of_input(axis: &Axis) -> Vec<Walk> {
        let all = (0..axis.stride).map(|phase| Walk::of_phase(axis, phase));
        all.filter(|walk| walk.count > 0).collect()
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A product that is summed over taps and channels: the result, or the gradient of the input, which is
/// a convolution of the result's by the same weights seen from the other side.
pub(super) struct Job {
    pub batch: usize,
    pub groups: usize,
    /// Channels of a group that are summed, and that are made.
    pub summed: usize,
    pub made: usize,
    /// Extents of a window.
    pub kernel: [usize; 3],
    /// What each launch makes.
    pub launches: Vec<[Walk; 3]>,
    is_turned: bool,
}

impl Job {
    pub(super) fn of(shape: &Convolution, part: Part) -> Job {
        let Convolution { batch, groups, inputs, outputs, ref axes } = *shape;
        let is_turned = part == Part::Input;
        let (summed, made) = if is_turned { (outputs, inputs) } else { (inputs, outputs) };
        let kernel = axes.map(|axis| axis.kernel);
        let [depth, down, across] = axes.each_ref().map(|axis| match is_turned {
            true => Walk::of_input(axis),
            false => vec![Walk::of_result(axis)],
        });
        let pairs = depth.iter().flat_map(|&d| down.iter().map(move |&h| (d, h)));
        let launches = pairs.flat_map(|(d, h)| across.iter().map(move |&w| [d, h, w])).collect();
        Job { batch, groups, summed, made, kernel, launches, is_turned }
    }

    /// Whether all windows move by one.
    pub(super) fn moves_by_one(&self) -> bool {
        self.launches.iter().flatten().all(|walk| walk.moves == 1)
    }

    /// Elements of a window.
    pub(super) fn places(&self) -> usize {
        crate::shape::product(self.kernel.iter())
    }

    /// The weights of a convolution as a view `[groups, made, summed, kernel]`.
    pub(super) fn weight(&self, weight: &Tensor) -> Result<Tensor> {
        let (made, summed) = (self.made, self.summed);
        let (outer, inner) = if self.is_turned { (summed, made) } else { (made, summed) };
        let weight = weight.reshape(&[self.groups, outer, inner, self.places()])?;
        if self.is_turned { weight.transpose(1, 2) } else { Ok(weight) }
    }

    /// What a launch makes of `y`, as a view.
    pub(super) fn own(&self, y: &Tensor, walks: &[Walk; 3]) -> Result<Arg> {
        let mut own = y.clone();
        for (walk, dim) in walks.iter().zip(2..) {
            own = own.strided_view("conv", |layout| {
                layout.slice(dim, walk.to, walk.step as i64, walk.count)
            })?;
        }
        Ok(super::super::own_view(&own, true))
    }
}

/// Numbers of a kernel.
pub(super) fn integers(values: impl IntoIterator<Item = i64>) -> Vec<Arg> {
    values.into_iter().map(|value| number(DType::I64, value as f64)).collect()
}

/// What kernels are told of a launch: taps, where windows begin, how far apart taps are.
pub(super) fn taps(walks: &[Walk; 3]) -> impl Iterator<Item = i64> {
    walks.map(|walk| walk.taps as i64).into_iter()
}

/// Steps between windows.
pub(super) fn moves(walks: &[Walk; 3]) -> impl Iterator<Item = i64> {
    walks.map(|walk| walk.moves).into_iter()
}

/// Where the first window begins, and how far apart its taps look.
pub(super) fn looks(walks: &[Walk; 3]) -> impl Iterator<Item = i64> {
    walks.map(|walk| walk.first).into_iter().chain(walks.map(|walk| walk.by))
}

impl Job {
    /// The number of a launch's first tap among the weights, and how far apart those of its others are.
    pub(super) fn numbers(&self, walks: &[Walk; 3]) -> impl Iterator<Item = i64> + use<> {
        let [_, down, across] = self.kernel;
        let each = [down * across, across, 1];
        let first: usize = walks.iter().zip(each).map(|(walk, each)| walk.k_first * each).sum();
        let by = [0, 1, 2].map(|i| walks[i].k_by * each[i] as i64);
        [first as i64].into_iter().chain(by)
    }
}

/// A bias of so many channels, or a view of none.
pub(super) fn bias(inputs: &[&Tensor]) -> Arg {
    match inputs.get(2) {
        Some(bias) => super::super::own_view(bias, false),
        None => super::super::view(inputs[1], &[0], &[1], false),
    }
}

/// Bytes of the parts that a gradient of weights is made in, at most.
const PARTS_BYTES: usize = 64 << 20;
/// Steps that storing and adding up a part costs about as much as.
const STORE: usize = 8;

/// How many of `terms`, of `each` steps, a part of a sum takes, where parts have `tiles` tiles of `weights` weights in all: as
/// many parts as make the time of the busiest multiprocessor least, each of which has two programs.
///
/// On an H200, 64 by 64 weights of 3 by 3, of 64 images of 56 by 56, all launches: 22 parts of three images, of which half of
/// the multiprocessors had two tiles and the others one, took 83.8 us; 29 parts, of which all have two, 77.4.
pub(super) fn share(
    on: &Tensor,
    resident: usize,
    weights: usize,
    tiles: usize,
    [terms, each]: [usize; 2],
) -> usize {
    let slots = resident * super::super::config::multiprocessors(on.device());
    let most = (PARTS_BYTES / (4 * weights.max(1))).clamp(1, (2 * slots).div_ceil(tiles.max(1)));
    let steps = |parts: usize| terms.div_ceil(parts) * each + STORE;
    let time = |&parts: &usize| (tiles * parts).div_ceil(slots) * steps(parts);
    let parts = (1..=most).min_by_key(time).unwrap_or(1);
    terms.div_ceil(parts).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_have_every_element_and_tap_once() {
        for (input, kernel, stride, before, dilation) in
            [(9, 3, 2, 1, 1), (11, 4, 3, 2, 2), (7, 2, 4, 0, 1), (8, 5, 2, 7, 2), (6, 3, 6, 2, 4)]
        {
            let output = (input + 2 * before - dilation * (kernel - 1) - 1) / stride + 1;
            let axis = Axis { input, output, kernel, stride, before, dilation };
            let mut met = Vec::new();
            for walk in Walk::of_input(&axis) {
                for (p, t) in (0..walk.count).flat_map(|p| (0..walk.taps).map(move |t| (p, t))) {
                    let o = p as i64 * walk.moves + walk.first + t as i64 * walk.by;
                    if (0..output as i64).contains(&o) {
                        let to = walk.to + p * walk.step;
                        let k = (walk.k_first as i64 + t as i64 * walk.k_by) as usize;
                        met.push((to, k, o as usize));
                    }
                }
            }
            met.sort_unstable();
            let windows = (0..input).flat_map(|i| (0..kernel).map(move |k| (i, k)));
            let all = windows.flat_map(|(i, k)| (0..output).map(move |o| (i, k, o)));
            let sees = |&(i, k, o): &(usize, usize, usize)| axis.look(o, k) == Some(i);
            assert_eq!(met, all.filter(sees).collect::<Vec<_>>(), "{axis:?}");
        }
    }
}
