//! A table as loops on the CPU walk it: without its missing entries, and with the places that are even.

use std::ops::Range;

use genesis_kernel::trace;

use crate::launch::axis::Table;
use crate::tensor::Tensor;

/// Elements that a task should read and write at least.
pub(super) const TASK: usize = 1 << 15;

/// Neighbours in the result that have equally many entries.
pub(super) struct Part {
    /// Which.
    pub(super) range: Range<usize>,
    /// How many entries each has.
    pub(super) taps: usize,
    /// How far each of these sees from the one before, where that is the same for all.
    step: Option<usize>,
    /// What they see, place by place: the first entries of all of them, the second, and so on.
    by_place: Vec<usize>,
}

/// The shortest part, and how many parts make up for it that one of them has no step.
const SHORTEST: usize = 8;
/// Entries of an element of the result from which on it is a loop of its own, where there are few of them.
const WIDE: usize = 16;

/// A table without its missing entries.
pub(super) struct Lines {
    /// Elements along the axis before and after.
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// Where the entries of each element of the result begin, and where the last end.
    pub(super) begins: Vec<usize>,
    pub(super) from: Vec<usize>,
    pub(super) weight: Vec<f64>,
    /// Elements of the result that are loops together.
    pub(super) parts: Vec<Part>,
    /// The others that have entries.
    pub(super) ragged: Vec<usize>,
    /// Whether the others see many neighbours each.
    pub(super) is_wide: bool,
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
        let (parts, ragged) = (Vec::new(), Vec::new());
        let mut lines =
            Lines { inputs, outputs, begins, from, weight, parts, ragged, is_wide: false };
        lines.find_parts();
        lines
    }

    fn find_parts(&mut self) {
        let counts: Vec<usize> = self.begins.windows(2).map(|ends| ends[1] - ends[0]).collect();
        let of_neighbours = |o: usize| self.seen(o).windows(2).all(|pair| pair[0] + 1 == pair[1]);
        let is_wide = |o: usize| counts[o] >= WIDE && of_neighbours(o);
        self.is_wide = self.outputs < 2 * WIDE && (0..self.outputs).all(is_wide);
        let (mut parts, mut ragged) = (Vec::new(), Vec::new());
        let mut begin = 0;
        for run in counts.chunk_by(|a, b| a == b) {
            let range = begin..begin + run.len();
            begin = range.end;
            match run[0] {
                0 => {}
                _ if self.is_wide || range.len() < SHORTEST => ragged.extend(range),
                taps => parts.extend(self.by_steps(range, taps)),
            }
        }
        (self.parts, self.ragged) = (parts, ragged);
    }

    /// Elements with equally many entries, cut where the step changes, or whole where that is too often.
    fn by_steps(&self, range: Range<usize>, taps: usize) -> Vec<Part> {
        let step = |o: usize| -> Option<usize> {
            let moves = self.seen(o).iter().zip(self.seen(o - 1));
            let mut moves = moves.map(|(a, b)| a.wrapping_sub(*b));
            let first = moves.next()?;
            (first <= self.inputs && moves.all(|other| other == first)).then_some(first)
        };
        let mut cuts: Vec<(Range<usize>, Option<usize>)> = Vec::new();
        for o in range.clone() {
            match cuts.last_mut() {
                Some((own, of)) if own.len() == 1 => {
                    (own.end, *of) = (o + 1, step(o));
                }
                Some((own, of)) if of.is_some() && *of == step(o) => own.end = o + 1,
                _ => cuts.push((o..o + 1, Some(0))),
            }
        }
        let has_steps = cuts.iter().all(|(_, step)| step.is_some());
        if !has_steps || cuts.len() * SHORTEST > range.len() {
            cuts = vec![(range, None)];
        }
        let part = |(range, step): (Range<usize>, Option<usize>)| {
            let seen = |tap: usize| range.clone().map(move |o| (tap, o));
            let by_place = (0..taps).flat_map(seen).map(|(tap, o)| self.seen(o)[tap]).collect();
            Part { range: range.clone(), taps, step, by_place }
        };
        cuts.into_iter().map(part).collect()
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

    /// Gives each element of a part what it sees of a line at one place, and where.
    #[inline(always)]
    pub(super) fn each<T: Copy, I>(
        &self,
        part: &Part,
        tap: usize,
        line: &[T],
        items: impl Iterator<Item = I>,
        mut visit: impl FnMut(I, T, usize),
    ) {
        assert_eq!(line.len(), self.inputs, "a line has the elements of the axis");
        let n = part.range.len();
        let places = &part.by_place[tap * n..][..n];
        let Some(&from) = places.first() else { return };
        let items = items.take(n);
        match part.step {
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

/// Whether a result of so many elements is one task, which the thread that wants it does itself.
pub(super) fn is_one_task(lines: &[Lines; 3], elements: usize) -> bool {
    let (_, after) = sizes(lines);
    elements / after.max(1) <= least(lines)
}

/// What a kernel moves that sees each of these once.
pub(super) fn moved(tensors: &[&Tensor]) -> trace::Kernel {
    let bytes = tensors.iter().map(|t| (t.numel() * t.dtype().bytes()) as u64).sum();
    trace::Kernel { bytes, ..trace::Kernel::default() }
}
