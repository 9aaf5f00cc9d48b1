//! Windows along an axis: how they move, and where they look.
//!
//! Everything that slides (convolutions, pools) or resamples (`interpolate`) knows an axis of its input by
//! a [`Table`]: for each element of the result the elements it is made of. Its turned table says for each
//! element of the input which elements of the result it went to, so that a gradient gathers as its forward
//! does: nothing is added at random places, and every run gives the same bits.
//!
//! ```text
//! windows of 3 that move by 2 over 5 elements,     turned:
//! one before them is padding
//!   0: -  0  1                                       0: 0        3: 1 2
//!   1: 1  2  3                                       1: 0 1      4: 2
//!   2: 3  4  -                                       2: 1
//! ```

use crate::error::{Error, Result};
use crate::tensor::host;

/// How windows move along one axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Axis {
    /// Elements of the input.
    pub input: usize,
    /// Windows.
    pub output: usize,
    /// Elements of a window.
    pub kernel: usize,
    /// Steps between windows.
    pub stride: usize,
    /// Padding before the first element.
    pub before: usize,
    /// Steps between the elements of one window.
    pub dilation: usize,
}

impl Axis {
    /// An axis of one element that one window sees.
    pub(crate) const UNIT: Axis =
        Axis { input: 1, output: 1, kernel: 1, stride: 1, before: 0, dilation: 1 };

    /// What a window spans, and the elements with this much padding after the last.
    fn span(&self, op: &str, after: usize) -> Result<[usize; 2]> {
        let steps = self.kernel.checked_sub(1).and_then(|steps| steps.checked_mul(self.dilation));
        let padded = self.input.checked_add(self.before).and_then(|n| n.checked_add(after));
        let is_small = |n: &usize| i32::try_from(*n).is_ok();
        let span = steps.and_then(|n| n.checked_add(1)).filter(is_small);
        match (span, padded.filter(is_small), is_small(&self.stride)) {
            (Some(span), Some(padded), true) => Ok([span, padded]),
            _ => Err(Error::op(op, "windows and extents must be 1 to 2^31 elements")),
        }
    }

    /// How far the first window can move, with this much padding after the last element.
    pub(crate) fn room(&self, op: &str, after: usize) -> Result<usize> {
        let [span, padded] = self.span(op, after)?;
        padded.checked_sub(span).ok_or_else(|| too_large(op, span, padded))
    }

    /// The windows that begin inside the tensor or its padding in front, of which the last may leave the
    /// padding after it.
    pub(crate) fn windows_begun(&self, op: &str, after: usize) -> Result<usize> {
        let [span, padded] = self.span(op, after)?;
        let room = (padded + self.stride - 1).checked_sub(span);
        let mut windows = room.ok_or_else(|| too_large(op, span, padded))? / self.stride + 1;
        if (windows - 1) * self.stride >= self.input + self.before {
            windows -= 1;
        }
        Ok(windows)
    }

    /// Where place `k` of window `o` looks.
    pub(crate) fn look(&self, o: usize, k: usize) -> Option<usize> {
        let at = (o * self.stride + k * self.dilation).checked_sub(self.before)?;
        (at < self.input).then_some(at)
    }

    /// Where each place of each window looks, with weight 1.
    pub(crate) fn table(&self) -> Result<Table> {
        let row = |o: usize| (0..self.kernel).map(move |k| (self.look(o, k), 1.0));
        Table::of([self.input, self.output], self.kernel, row)
    }
}

fn too_large(op: &str, span: usize, padded: usize) -> Error {
    Error::op(op, format!("a window of {span} is larger than {padded} elements"))
}

/// What a function makes of each of three, if it makes it of all.
pub(crate) fn try_map<T, U>(three: &[T; 3], f: impl Fn(&T) -> Result<U>) -> Result<[U; 3]> {
    let [depth, down, across] = three;
    Ok([f(depth)?, f(down)?, f(across)?])
}

/// Three axes, the missing ones of one element, in front.
pub(crate) fn three<T: Clone>(axes: &[T], unit: T) -> [T; 3] {
    let at = |i: usize| (i + axes.len()).checked_sub(3).and_then(|i| axes.get(i)).cloned();
    [0, 1, 2].map(|i| at(i).unwrap_or_else(|| unit.clone()))
}

/// What each element of a result is made of along one axis: as many entries for each, of which some may
/// be none.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Table {
    /// Elements of the input.
    pub inputs: usize,
    /// Elements of the result.
    pub outputs: usize,
    /// Entries of one element of the result.
    pub taps: usize,
    /// The elements of the input, -1 for none.
    pub index: Vec<i32>,
    /// What they are multiplied by.
    pub weight: Vec<f64>,
}

impl Table {
    /// The table of rows of at most `taps` entries, made equally long. Both extents are below 2^31.
    ///
    /// # Errors
    /// If the host's memory can't hold it.
    pub(crate) fn of<R: IntoIterator<Item = (Option<usize>, f64)>>(
        [inputs, outputs]: [usize; 2],
        taps: usize,
        row: impl Fn(usize) -> R,
    ) -> Result<Table> {
        let taps = taps.max(1);
        let entries = outputs.saturating_mul(taps);
        let mut index: Vec<i32> = host::reserve("window", entries)?;
        let mut weight: Vec<f64> = host::reserve("window", entries)?;
        for o in 0..outputs {
            let missing = std::iter::repeat((None, 0.0));
            for (from, by) in row(o).into_iter().chain(missing).take(taps) {
                index.push(from.map_or(-1, |from| from as i32));
                weight.push(by);
            }
        }
        Ok(Table { inputs, outputs, taps, index, weight })
    }

    /// The table of an axis of one element that stays as it is.
    pub(crate) fn unit() -> Table {
        Table { inputs: 1, outputs: 1, taps: 1, index: vec![0], weight: vec![1.0] }
    }

    /// For each element of the input the elements of the result that it went to.
    pub(crate) fn turned(&self) -> Result<Table> {
        let entries = || self.index.iter().zip(&self.weight).enumerate();
        let source = |&from: &i32| usize::try_from(from).ok();
        let mut counts: Vec<usize> = host::reserve("window", self.inputs)?;
        counts.resize(self.inputs, 0);
        self.index.iter().filter_map(source).for_each(|from| counts[from] += 1);
        let taps = counts.iter().copied().max().unwrap_or(0).max(1);
        let size = self.inputs.saturating_mul(taps);
        let mut index: Vec<i32> = host::reserve("window", size)?;
        let mut weight: Vec<f64> = host::reserve("window", size)?;
        index.resize(size, -1);
        weight.resize(size, 0.0);
        counts.fill(0);
        for (entry, (from, &by)) in entries() {
            if let Some(from) = source(from) {
                let to = from * taps + counts[from];
                (index[to], weight[to]) = ((entry / self.taps) as i32, by);
                counts[from] += 1;
            }
        }
        Ok(Table { inputs: self.outputs, outputs: self.inputs, taps, index, weight })
    }
}

impl Table {
    /// Multiplies the weights of each element of the result.
    pub(crate) fn scale(&mut self, by: impl Fn(usize) -> f64) {
        for (o, weights) in self.weight.chunks_mut(self.taps).enumerate() {
            let by = by(o);
            weights.iter_mut().for_each(|weight| *weight *= by);
        }
    }

    /// How many elements of the input an element of the result is made of.
    pub(crate) fn count(&self, o: usize) -> usize {
        self.index[o * self.taps..][..self.taps].iter().filter(|&&from| from >= 0).count()
    }

    /// The weight of the first tap of an element of the result, which all its taps have.
    pub(crate) fn weight_of(&self, o: usize) -> f64 {
        self.weight[o * self.taps]
    }
}
