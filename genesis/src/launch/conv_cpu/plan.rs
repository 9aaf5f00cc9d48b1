//! Where the windows of a convolution look, as offsets into a copy of one image.
//!
//! A copy of an image with its padding, on a grid, makes every place of a window a fixed distance: the
//! window one further along sees its elements one further along. So one offset a place is all that a
//! loop needs, and a vector of windows loads a vector of elements:
//!
//! ```text
//! an image of 2 by 3, padding 1        place (1, 2) of the windows at
//!   . . . . .                          0 1 2      sees    7  8  9
//!   . a b c .     (grid of 4 by 5)     5 6 7             12 13 14
//!   . d e f .                          3 4 are no windows: what they sum is not kept
//!   . . . . .
//! ```
//!
//! Where windows move by steps, the copy has the elements of each phase of a step together. The gradient
//! of the input is the same on a copy of the result's, once for each phase of the input.

use std::ops::Range;

use super::super::axis::Axis;
use super::super::convolution::{Convolution, Part};
use super::lanes::Lines;
use super::loops::{Loops, Number, Rows, Run};

/// Bytes of the copy of an image, about: what a core's second cache holds beside the weights.
const COPY_BYTES: usize = 512 << 10;
/// The fewest lines of a band: each repeats what a window spans.
const FEWEST: usize = 4;

/// What one axis is for a sum over places: steps `t` that the result makes, and cells of the copy, of
/// which step `t` sees cell `t + shift` at each place.
#[derive(Debug)]
struct Line {
    /// Elements of the source.
    source: usize,
    /// Cell `e` of phase `p` of the copy is element `e * step + p - before`.
    step: usize,
    before: isize,
    phases: Vec<usize>,
    /// What the result's elements are.
    outs: Vec<Out>,
    places: Vec<Place>,
}

/// The steps that make one phase of the result: step `t` makes element `t * step + shift`.
#[derive(Clone, Copy, Debug)]
struct Out {
    phase: usize,
    first: usize,
    count: usize,
    step: usize,
    shift: isize,
}

/// One place of a window along an axis.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The phase of the copy that it sees, by number.
    phase: usize,
    shift: isize,
    /// The phase of the result that it adds to.
    out: usize,
}

impl Line {
    /// An axis whose result is the convolution's.
    fn of_result(axis: &Axis) -> Line {
        let mut phases: Vec<usize> =
            (0..axis.kernel).map(|k| k * axis.dilation % axis.stride).collect();
        phases.sort_unstable();
        phases.dedup();
        let place = |k: usize| {
            let skipped = k * axis.dilation;
            let phase = phases.binary_search(&(skipped % axis.stride)).unwrap_or_default();
            Place { phase, shift: (skipped / axis.stride) as isize, out: 0 }
        };
        Line {
            source: axis.input,
            step: axis.stride,
            before: axis.before as isize,
            places: (0..axis.kernel).map(place).collect(),
            outs: vec![Out { phase: 0, first: 0, count: axis.output, step: 1, shift: 0 }],
            phases,
        }
    }

    /// An axis whose result is the gradient of the input.
    fn of_input(axis: &Axis) -> Line {
        let out = |phase: usize| {
            let shift = phase as isize - axis.before as isize;
            let first = axis.before.saturating_sub(phase).div_ceil(axis.stride);
            let end = (axis.input + axis.before).saturating_sub(phase).div_ceil(axis.stride);
            Out { phase, first, count: end.saturating_sub(first), step: axis.stride, shift }
        };
        let place = |k: usize| {
            let skipped = k * axis.dilation;
            let shift = -((skipped / axis.stride) as isize);
            Place { phase: 0, shift, out: skipped % axis.stride }
        };
        Line {
            source: axis.output,
            step: 1,
            before: 0,
            phases: vec![0],
            outs: (0..axis.stride).map(out).filter(|out| out.count > 0).collect(),
            places: (0..axis.kernel).map(place).collect(),
        }
    }

    /// The least and the greatest shift.
    fn shifts(&self) -> (isize, isize) {
        let all = || self.places.iter().map(|place| place.shift);
        (all().min().unwrap_or(0), all().max().unwrap_or(0))
    }

    /// All steps.
    fn steps(&self) -> Range<usize> {
        let first = self.outs.iter().map(|out| out.first).min().unwrap_or(0);
        let end = self.outs.iter().map(|out| out.first + out.count).max().unwrap_or(0);
        first..end
    }

    /// Cells for so many steps.
    fn cells(&self, steps: usize) -> usize {
        let (low, high) = self.shifts();
        steps + (high - low) as usize
    }

    /// Of `n` cells from `first` on those that are elements of the source, and the first of these.
    fn inside(&self, phase: usize, first: isize, n: usize) -> (Range<usize>, usize) {
        let at = |cell: usize| {
            (first + cell as isize) * self.step as isize + self.phases[phase] as isize - self.before
        };
        let begin = at(0);
        let skipped = if begin < 0 { ((-begin) as usize).div_ceil(self.step) } else { 0 };
        let skipped = skipped.min(n);
        let left = self.source as isize - at(skipped);
        let seen = if left > 0 { (left as usize).div_ceil(self.step) } else { 0 };
        (skipped..skipped + seen.min(n - skipped), at(skipped).max(0) as usize)
    }
}

/// How one image of one group is computed: on which copy, in which bands.
#[derive(Debug)]
pub(super) struct Plan {
    lines: [Line; 3],
    /// Channels of the copy.
    pub channels: usize,
    /// The axis that is cut into bands, and the steps of each. The result has one element along those before,
    /// so that a band is one piece of each of its channels.
    axis: usize,
    pub bands: Vec<Range<usize>>,
    /// Cells of the grid along each axis, and of all phases of a channel.
    grid: [usize; 3],
    cells: usize,
    /// The result's extents along the axes.
    made: [usize; 3],
}

/// The sums of one phase of the result: the places that they are over.
#[derive(Debug)]
pub(super) struct Pass {
    outs: [Out; 3],
    /// Places of the weights, in their order.
    pub places: Vec<usize>,
    /// Where each of those lies in the copy, for each channel.
    pub offsets: Vec<usize>,
}

/// Positions of a pass that one tile takes.
#[derive(Debug)]
pub(super) struct Positions {
    /// The first in the grid.
    pub first: usize,
    /// Vectors.
    pub vectors: usize,
    /// Those of them that are wanted.
    pub runs: Range<usize>,
}

impl Plan {
    /// The plan of a product of numbers of `bytes` bytes, in at least so many bands if it can be cut.
    pub(super) fn of(shape: &Convolution, part: Part, bytes: usize, bands: usize) -> Plan {
        let (lines, channels, made) = match part {
            Part::Input => {
                let made = shape.axes.map(|axis| axis.input);
                (shape.axes.each_ref().map(Line::of_input), shape.outputs, made)
            }
            _ => {
                let made = shape.axes.map(|axis| axis.output);
                (shape.axes.each_ref().map(Line::of_result), shape.inputs, made)
            }
        };
        let steps = lines.each_ref().map(Line::steps);
        let axis = (0..3).find(|&axis| made[axis] > 1).unwrap_or(2);
        let phases: usize = crate::shape::product(lines.iter().map(|line| line.phases.len()));
        let others = (0..3).filter(|&other| other != axis);
        let each: usize =
            crate::shape::product(others.map(|other| lines[other].cells(steps[other].len())));
        let room = COPY_BYTES / (channels * phases * each * bytes).max(1);
        let all = steps[axis].len();
        let room = room.saturating_sub(lines[axis].cells(0)).min(all.div_ceil(bands));
        let most = room.max(FEWEST).min(all.max(1));
        let ends = steps[axis].end;
        let cut = steps[axis].clone().step_by(most).map(|first| first..(first + most).min(ends));
        let grid = [0, 1, 2].map(|i| lines[i].cells(if i == axis { most } else { steps[i].len() }));
        let cells = crate::shape::product(grid.iter());
        Plan { bands: cut.collect(), lines, channels, axis, grid, cells, made }
    }

    /// Elements of the copy, with what a tile of so many positions may read beyond.
    pub(super) fn copied(&self, tile: usize) -> usize {
        let phases: usize = crate::shape::product(self.lines.iter().map(|line| line.phases.len()));
        self.channels * phases * self.cells + tile
    }

    /// Sums for each phase of the result.
    pub(super) fn passes(&self) -> Vec<Pass> {
        let [depth, down, across] = &self.lines;
        let mut passes = Vec::new();
        for &d in &depth.outs {
            for &h in &down.outs {
                passes.extend(across.outs.iter().map(|&w| self.pass([d, h, w])));
            }
        }
        passes
    }

    fn pass(&self, outs: [Out; 3]) -> Pass {
        // The places of an axis that add to this phase: number, phase of the copy, cells.
        let matching = |axis: usize| {
            let (line, low) = (&self.lines[axis], self.lines[axis].shifts().0);
            let all = line.places.iter().enumerate();
            let own = all.filter(move |(_, place)| place.out == outs[axis].phase);
            own.map(move |(k, place)| (k, place.phase, (place.shift - low) as usize))
        };
        let phases = self.lines.each_ref().map(|line| line.phases.len());
        let kernel = self.lines.each_ref().map(|line| line.places.len());
        let (mut places, mut own) = (Vec::new(), Vec::new());
        for (d, phase_d, z) in matching(0) {
            for (h, phase_h, i) in matching(1) {
                for (w, phase_w, j) in matching(2) {
                    places.push((d * kernel[1] + h) * kernel[2] + w);
                    let phase = (phase_d * phases[1] + phase_h) * phases[2] + phase_w;
                    own.push(phase * self.cells + (z * self.grid[1] + i) * self.grid[2] + j);
                }
            }
        }
        let channel = crate::shape::product(phases.iter()) * self.cells;
        let offsets = (0..self.channels).flat_map(|c| own.iter().map(move |at| c * channel + at));
        Pass { offsets: offsets.collect(), outs, places }
    }

    /// Steps of each axis in a band.
    fn steps(&self, band: &Range<usize>) -> [Range<usize>; 3] {
        [0, 1, 2].map(|i| if i == self.axis { band.clone() } else { self.lines[i].steps() })
    }

    /// The piece of a channel of the result that a band makes.
    pub(super) fn made(&self, band: &Range<usize>) -> Range<usize> {
        let (line, all) = (&self.lines[self.axis], self.made[self.axis]);
        let each: usize = crate::shape::product(self.made[self.axis + 1..].iter());
        // What the first phase of a step makes; the step's others follow it.
        let first = |step: usize| {
            let phase = &line.outs[0];
            let made = (step * phase.step) as isize + phase.shift - phase.phase as isize;
            usize::try_from(made).unwrap_or(0).min(all) * each
        };
        first(band.start)..first(band.end)
    }

    /// Copies an image to the grid of a band.
    pub(super) fn copy<T: Number>(
        &self,
        band: &Range<usize>,
        image: &Image<'_, T>,
        copy: &mut [T],
        loops: &dyn Loops<T>,
    ) {
        let first = self.steps(band);
        let first = [0, 1, 2].map(|i| first[i].start as isize + self.lines[i].shifts().0);
        let [depth, down, across] = &self.lines;
        let [of_channel, of_plane, of_row, of_element] = image.strides;
        let mut planes = copy.chunks_exact_mut(self.grid[1] * self.grid[2]);
        for channel in 0..self.channels {
            let channel = image.first + channel as isize * of_channel;
            for (d, h) in pairs(depth.phases.len(), down.phases.len()) {
                for w in 0..across.phases.len() {
                    let (deep, z) = depth.inside(d, first[0], self.grid[0]);
                    let (high, i) = down.inside(h, first[1], self.grid[1]);
                    let (wide, j) = across.inside(w, first[2], self.grid[2]);
                    for (plane, cells) in planes.by_ref().take(self.grid[0]).enumerate() {
                        if !deep.contains(&plane) {
                            cells.fill(T::ZERO);
                            continue;
                        }
                        let z = z + (plane - deep.start) * depth.step;
                        let at = z as isize * of_plane + i as isize * of_row;
                        let width = self.grid[2];
                        cells[..high.start * width].fill(T::ZERO);
                        cells[high.end * width..].fill(T::ZERO);
                        let rows = Rows {
                            from: Lines {
                                elements: image.elements,
                                first: channel + at + j as isize * of_element,
                                apart: down.step as isize * of_row,
                            },
                            rows: high.len(),
                            to: &mut cells[high.start * width..high.end * width],
                            width,
                            inside: wide.clone(),
                        };
                        match across.step as isize * of_element {
                            1 => loops.rows(rows),
                            step => apart(rows, step),
                        }
                    }
                }
            }
        }
    }

    /// The lines of positions that a pass makes in a band: the first in the grid, how many, and where
    /// the first goes in a channel of the result.
    pub(super) fn lines(&self, pass: &Pass, band: &Range<usize>) -> Vec<Run> {
        let steps = self.steps(band);
        let own = [0, 1, 2].map(|i| {
            let out = &pass.outs[i];
            out.first.max(steps[i].start)..(out.first + out.count).min(steps[i].end)
        });
        let to = |axis: usize, step: usize| {
            let out = &pass.outs[axis];
            ((step * out.step) as isize + out.shift) as usize
        };
        let mut lines = Vec::new();
        if own[2].is_empty() {
            return lines;
        }
        for d in own[0].clone() {
            for h in own[1].clone() {
                let row = (d - steps[0].start) * self.grid[1] + h - steps[1].start;
                let at = row * self.grid[2] + own[2].start - steps[2].start;
                let row = to(0, d) * self.made[1] + to(1, h);
                let to = row * self.made[2] + to(2, own[2].start);
                lines.push(Run { at, n: own[2].len(), to });
            }
        }
        lines
    }
}

/// An image of a slice, or some of its channels.
pub(super) struct Image<'t, T> {
    pub elements: &'t [T],
    /// Where the first element of the first channel is.
    pub first: isize,
    /// How far channels are apart, and neighbours along the three axes.
    pub strides: [isize; 4],
}

impl Pass {
    /// How far apart neighbours along the last axis are in the result.
    pub(super) fn step(&self) -> usize {
        self.outs[2].step
    }
}

/// Cuts lines of positions into tiles of up to `most` vectors of `lanes` positions, and gives what each
/// tile has of them.
pub(super) fn tiles(
    lines: &[Run],
    step: usize,
    lanes: usize,
    most: usize,
) -> (Vec<Positions>, Vec<Run>) {
    let (mut tiles, mut runs) = (Vec::new(), Vec::new());
    let mut lines = lines.iter().copied();
    let mut next = lines.next();
    let end = |line: &Run| line.at + line.n;
    while let Some(line) = next {
        let (first, begin) = (line.at, runs.len());
        let room = most * lanes;
        let mut last = first;
        while let Some(line) = next.filter(|line| line.at < first + room) {
            let n = (end(&line)).min(first + room) - line.at;
            // A run ends with its vector.
            let at = line.at - first;
            let cuts =
                (at / lanes..).map(|vector| [(vector * lanes).max(at), (vector + 1) * lanes]);
            for [begin, end] in cuts.take_while(|[begin, _]| *begin < at + n) {
                let n = end.min(at + n) - begin;
                runs.push(Run { at: begin, n, to: line.to + (begin - at) * step });
            }
            last = line.at + n;
            next = match n < line.n {
                true => Some(Run { at: last, n: line.n - n, to: line.to + n * step }),
                false => lines.next(),
            };
        }
        let vectors = (last - first).div_ceil(lanes);
        tiles.push(Positions { first, vectors, runs: begin..runs.len() });
    }
    (tiles, runs)
}

/// All pairs of numbers below these.
fn pairs(n: usize, m: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n).flat_map(move |i| (0..m).map(move |j| (i, j)))
}

/// Copies rows of elements that are so far apart.
fn apart<T: Number>(job: Rows<'_, T>, step: isize) {
    let Rows { from, to, width, inside, .. } = job;
    for (row, to) in to.chunks_exact_mut(width).enumerate() {
        to[..inside.start].fill(T::ZERO);
        to[inside.end..].fill(T::ZERO);
        let Some(last) = inside.len().checked_sub(1) else { continue };
        let to = &mut to[inside.clone()];
        if step == 2 {
            let seen = from.row(row, 2 * last + 1);
            let (pairs, end) = (seen.as_chunks::<2>().0, seen[2 * last]);
            to[..last].iter_mut().zip(pairs).for_each(|(to, pair)| *to = pair[0]);
            to[last] = end;
        } else if step > 0 {
            let seen = from.row(row, last * step as usize + 1);
            to.iter_mut().zip(seen.iter().step_by(step as usize)).for_each(|(to, &v)| *to = v);
        } else {
            for (i, to) in to.iter_mut().enumerate() {
                let at = from.first + row as isize * from.apart + i as isize * step;
                *to = from.elements[at as usize];
            }
        }
    }
}
