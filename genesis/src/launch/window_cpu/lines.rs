//! A table as loops on the CPU walk it: without its missing entries, and with the places that are even.

use std::ops::Range;

use genesis_kernel::trace;

use crate::launch::axis::Table;
use crate::tensor::Tensor;

/// Elements that a task should read and write at least.
const TASK: usize = 1 << 15;

/// A table without its missing entries.
pub(super) struct Lines {
    /// Elements along the axis before and after.
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// Where the entries of each element of the result begin, and where the last end.
    pub(super) begins: Vec<usize>,
    pub(super) from: Vec<usize>,
    pub(super) weight: Vec<f64>,
    /// The longest run of neighbours in the result that have equally many entries, `taps`.
    pub(super) even: Range<usize>,
    pub(super) taps: usize,
    /// How far each of these sees from the one before, where that is the same for all.
    pub(super) step: Option<usize>,
    /// What they see, place by place: the first entries of all of them, the second, and so on.
    pub(super) by_place: Vec<usize>,
}

impl Lines {
    pub(super) fn of(table: &Table) -> Lines {
        let (mut begins, mut from, mut weight) = (vec![0], Vec::new(), Vec::new());
        for (index, by) in table.index.chunks(table.taps).zip(table.weight.chunks(table.taps)) {
            for (&at, &by) in index.iter().zip(by) {
                if let Ok(at) = usize::try_from(at) {
                    from.push(at);
                    weight.push(by);
                }
            }
            begins.push(from.len());
        }
        let (inputs, outputs) = (table.inputs, table.outputs);
        assert!(from.iter().all(|&at| at < inputs), "a table looks at elements of its axis");
        let (even, by_place) = (0..0, Vec::new());
        let mut lines =
            Lines { inputs, outputs, begins, from, weight, even, taps: 0, step: None, by_place };
        lines.find_even();
        lines
    }

    fn find_even(&mut self) {
        let count = |o: usize| self.begins[o + 1] - self.begins[o];
        let (mut first, mut end, mut begin) = (0, 0, 0);
        for o in 0..self.outputs {
            if count(o) != count(begin) {
                begin = o;
            }
            if o + 1 - begin > end - first {
                (first, end) = (begin, o + 1);
            }
        }
        self.taps = if first < end { count(first) } else { 0 };
        let moved = |(a, b): (&usize, &usize)| a.wrapping_sub(*b);
        let moves =
            (first + 1..end).flat_map(|o| self.seen(o).iter().zip(self.seen(o - 1)).map(moved));
        let step = moves.clone().next().unwrap_or(1);
        self.step =
            (step <= self.inputs && moves.clone().all(|other| other == step)).then_some(step);
        let seen = |tap: usize| (first..end).map(move |o| (tap, o));
        let all = (0..self.taps).flat_map(seen);
        self.by_place = all.map(|(tap, o)| self.seen(o)[tap]).collect();
        self.even = first..end;
    }

    pub(super) fn seen(&self, o: usize) -> &[usize] {
        &self.from[self.begins[o]..self.begins[o + 1]]
    }

    /// What `o` is made of, and the weights.
    pub(super) fn entries(&self, o: usize) -> impl Iterator<Item = (usize, f64)> {
        let own = self.begins[o]..self.begins[o + 1];
        self.from[own.clone()].iter().copied().zip(self.weight[own].iter().copied())
    }

    /// Whether these are windows of two side by side.
    pub(super) fn is_pairs(&self) -> bool {
        let n = self.outputs;
        n == self.inputs / 2 && (0..n).all(|o| self.seen(o) == [2 * o, 2 * o + 1])
    }

    /// Whether this is the turned table of windows of two side by side.
    pub(super) fn is_turned_pairs(&self) -> bool {
        let own = |i: usize| match i / 2 < self.inputs {
            true => self.seen(i) == [i / 2],
            false => self.seen(i).is_empty(),
        };
        self.outputs / 2 == self.inputs && (0..self.outputs).all(own)
    }

    /// Elements of the result that are not even.
    pub(super) fn ragged(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.even.start).chain(self.even.end..self.outputs)
    }

    /// Gives each of the even elements of the result what it sees of a line at one place, and where.
    #[inline(always)]
    pub(super) fn each<T: Copy, I>(
        &self,
        tap: usize,
        line: &[T],
        items: impl Iterator<Item = I>,
        mut visit: impl FnMut(I, T, usize),
    ) {
        assert_eq!(line.len(), self.inputs, "a line has the elements of the axis");
        let n = self.even.len();
        let places = &self.by_place[tap * n..][..n];
        let Some(&from) = places.first() else { return };
        let items = items.take(n);
        match self.step {
            Some(0) => items.for_each(|item| visit(item, line[from], from)),
            Some(1) => {
                let seen = line[from..][..n].iter().enumerate();
                items.zip(seen).for_each(|(item, (j, &v))| visit(item, v, from + j));
            }
            // Pairs of neighbours of which the first is seen, or the second.
            Some(2) if from + 2 * n <= line.len() => {
                let pairs = line[from..][..2 * n].as_chunks::<2>().0.iter().enumerate();
                items.zip(pairs).for_each(|(item, (j, &[v, _]))| visit(item, v, from + 2 * j));
            }
            Some(2) if from > 0 => {
                let pairs = line[from - 1..][..2 * n].as_chunks::<2>().0.iter().enumerate();
                items.zip(pairs).for_each(|(item, (j, &[_, v]))| visit(item, v, from + 2 * j));
            }
            Some(step) => {
                let seen = line[from..].iter().step_by(step).enumerate();
                items.zip(seen).for_each(|(item, (j, &v))| visit(item, v, from + step * j));
            }
            None => items.zip(places).for_each(|(item, &at)| visit(item, line[at], at)),
        }
    }
}

/// Elements of a plane before and after.
pub(super) fn sizes(lines: &[Lines; 3]) -> (usize, usize) {
    let all = |of: fn(&Lines) -> usize| crate::shape::product(lines.iter().map(of));
    (all(|line| line.inputs), all(|line| line.outputs))
}

/// Planes that one task takes at least.
pub(super) fn least(lines: &[Lines; 3]) -> usize {
    let (before, after) = sizes(lines);
    TASK.div_ceil((before + after).max(1))
}

/// What a kernel moves that sees each of these once.
pub(super) fn moved(tensors: &[&Tensor]) -> trace::Kernel {
    let bytes = tensors.iter().map(|t| (t.numel() * t.dtype().bytes()) as u64).sum();
    trace::Kernel { bytes, ..trace::Kernel::default() }
}
