//! Larger calls of an op, made from the samples of its row.
//!
//! Which axes may grow, and which must grow together, nobody lists: the call itself says it. An axis grows by
//! itself where the call takes the sample with this extent doubled; else together with all axes of the same
//! extent, where it takes that; else it is a parameter and stays, as does what the row names a parameter.
//!
//! ```text
//! matmul  [3, 4] x [4, 5]     3 and 5 each by itself, both 4 together     [4096, 4096] x [4096, 4096]
//! sum     [2, 3, 4]           each by itself                              [256, 256, 256]
//! glu     [2, 6, 2] along 1   6 to an even number only: its steps are 6   [256, 258, 256]
//! gather  [3, 4], index [5, 2] below 3                                    the bound is the first extent still
//! ```

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::row::{OpInfo, Sample, numel};
use crate::error::Result;
use crate::random::Generator;
use crate::tensor::Tensor;

/// An input of a call, to be drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// The dtype.
    pub dtype: DType,
    /// Values are drawn from this on, of integers whole ones.
    pub low: f64,
    /// Values are below this.
    pub high: f64,
    /// Whether the values are whole numbers.
    pub is_whole: bool,
    /// Whether it holds indices.
    pub is_index: bool,
}

impl Input {
    /// Such values in another shape, dense on a device.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn draw(&self, shape: &[usize], device: Device, rng: &Generator) -> Result<Tensor> {
        let at = (self.dtype, device);
        if !self.dtype.is_float() {
            return rng.randint(self.low as i64, self.high as i64, shape, at);
        }
        if self.dtype.is_f8() {
            let wide = (DType::F32, device);
            return rng.uniform(shape, self.low, self.high, wide)?.to_dtype(self.dtype);
        }
        let x = rng.uniform(shape, self.low, self.high, at)?;
        if self.is_whole { x.floor() } else { Ok(x) }
    }
}

/// What larger calls may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Elements of the largest input; the result may have twice as many.
    pub elements: f64,
    /// Floating-point operations.
    pub flops: f64,
}

/// Axes that grow together.
#[derive(Clone, Debug, PartialEq)]
struct Class {
    /// Axes, each of an input.
    axes: Vec<(usize, usize)>,
    /// Extents are multiples of this.
    step: usize,
    /// The extent of the sample.
    extent: usize,
    /// The elements of the result grow as this power of the extent.
    power: f64,
}

/// How a sample of an op grows.
#[derive(Clone, Debug, PartialEq)]
pub struct Growth {
    sample: Vec<Vec<usize>>,
    classes: Vec<Class>,
    /// The shape of the sample's result.
    result: Vec<usize>,
}

impl OpInfo {
    /// The inputs of a call in these shapes, which a sample grew to.
    pub fn inputs(&self, sample: &[Vec<usize>], shapes: &[Vec<usize>], dtype: DType) -> Vec<Input> {
        let of = |(index, shape): (usize, &Vec<usize>)| {
            let bound = self.index_inputs.iter().find(|(input, _)| *input == index);
            let shape = shape.clone();
            if let Some(&(_, bound)) = bound {
                let high = grown_bound(bound, sample, shapes) as f64;
                return Input {
                    shape,
                    dtype: DType::I64,
                    low: 0.0,
                    high,
                    is_whole: true,
                    is_index: true,
                };
            }
            let (low, high) = self.range;
            let low = if dtype.is_unsigned_int() { low.max(0.0) } else { low };
            let (low, high) =
                if dtype.is_float() { (low, high) } else { (low.floor(), high.ceil()) };
            Input { shape, dtype, low, high, is_whole: self.is_whole, is_index: false }
        };
        shapes.iter().enumerate().map(of).collect()
    }

    /// How its usual sample grows: one of two axes where there is one, in which operands have one shape
    /// where the op takes that.
    ///
    /// # Errors
    /// If it takes none of its samples.
    pub fn growth(&self) -> Result<Growth> {
        let sample = self.usual_sample();
        let is_same = sample.iter().all(|shape| *shape == sample[0]);
        let is_plain = is_same && sample[0].len() >= 2;
        let takes_same = self.samples.iter().any(|s| s.iter().all(|shape| *shape == s[0]));
        if !is_plain && takes_same && self.index_inputs.is_empty() {
            let matrices = vec![vec![3, 5]; sample.len()];
            if let Ok(growth) = Growth::of(self, matrices) {
                return Ok(growth);
            }
        }
        Growth::of(self, sample)
    }

    /// How a sample grows whose operands broadcast, where the op takes operands of one shape as well.
    pub fn broadcast_growth(&self) -> Option<Growth> {
        let takes_same = self.samples.iter().any(|s| s.iter().all(|shape| *shape == s[0]));
        let differs = |s: &&Sample| s.iter().any(|shape| *shape != s[0]) && s[0].len() >= 2;
        let is_full = |s: &&Sample| s.iter().all(|shape| !shape.contains(&0));
        let sample = self.samples.iter().filter(differs).find(is_full)?;
        if !takes_same || !self.index_inputs.is_empty() {
            return None;
        }
        Growth::of(self, owned(sample)).ok()
    }

    fn usual_sample(&self) -> Vec<Vec<usize>> {
        let is_full = |s: &&Sample| s.iter().all(|shape| !shape.contains(&0));
        let rank = |s: &Sample| s.iter().map(|shape| shape.len()).max().unwrap_or(0);
        let key = |s: &&Sample| {
            let extents = || s.iter().flat_map(|shape| shape.iter());
            let has_ones = extents().any(|&n| n == 1);
            let elements: usize = s.iter().map(|shape| crate::shape::product(shape.iter())).sum();
            (!extents().any(|&n| n > 1), has_ones, rank(s).abs_diff(2), elements)
        };
        self.samples.iter().filter(is_full).min_by_key(key).map(owned).unwrap_or_default()
    }

    /// The result of a small call on the CPU.
    fn probe(&self, sample: &[Vec<usize>], shapes: &[Vec<usize>]) -> Result<Tensor> {
        let dtype = self.dtypes.first().copied().unwrap_or(DType::F32);
        let inputs = self.inputs(sample, shapes, dtype);
        // The same values each time, so that shapes are the same in every run.
        let rng = Generator::new(0);
        let tensors: Result<Vec<Tensor>> =
            inputs.iter().map(|input| input.draw(&input.shape, Device::Cpu, &rng)).collect();
        (self.call)(&tensors?)
    }
}

fn owned(sample: &Sample) -> Vec<Vec<usize>> {
    sample.iter().map(|shape| shape.to_vec()).collect()
}

/// What indices are below: a bound that is an extent of the first input, or the number of its elements,
/// stays that; any other stays the number it is.
fn grown_bound(bound: usize, sample: &[Vec<usize>], shapes: &[Vec<usize>]) -> usize {
    let (Some(before), Some(after)) = (sample.first(), shapes.first()) else { return bound };
    let axes = before.iter().zip(after).filter(|(n, _)| **n == bound);
    let whole = (numel(before) as usize == bound).then(|| numel(after) as usize);
    axes.map(|(_, &n)| n).min().or(whole).unwrap_or(bound)
}

/// The shapes with these axes of another extent.
fn with(shapes: &[Vec<usize>], axes: &[(usize, usize)], extent: usize) -> Vec<Vec<usize>> {
    let mut shapes = shapes.to_vec();
    for &(input, axis) in axes {
        shapes[input][axis] = extent;
    }
    shapes
}

impl Growth {
    /// Finds out how a sample grows.
    ///
    /// # Errors
    /// If the op does not take it.
    fn of(info: &OpInfo, sample: Vec<Vec<usize>>) -> Result<Growth> {
        let result = info.probe(&sample, &sample)?.shape().to_vec();
        let mut growth = Growth { sample, classes: Vec::new(), result };
        for class in growth.find_classes(info) {
            growth.classes.push(class);
            // What grows by itself may still not grow beside others, such as a matrix beside its diagonal.
            if growth.doubled(info).is_err() {
                growth.classes.pop();
            }
        }
        let doubled = growth.doubled(info).map_or(0.0, |y| y.numel() as f64);
        growth.share_power(doubled);
        Ok(growth)
    }

    /// The result where all classes are doubled.
    fn doubled(&self, info: &OpInfo) -> Result<Tensor> {
        let extents: Vec<usize> = self.classes.iter().map(|class| 2 * class.extent).collect();
        info.probe(&self.sample, &self.shapes_of(&extents))
    }

    /// Axes of more than one element that are no parameters.
    fn axes(&self, info: &OpInfo) -> Vec<(usize, usize)> {
        let inputs = self.sample.iter().enumerate();
        let all = inputs.flat_map(|(input, shape)| (0..shape.len()).map(move |axis| (input, axis)));
        all.filter(|&(input, axis)| self.sample[input][axis] > 1)
            .filter(|at| !info.parameters.contains(at))
            .collect()
    }

    fn find_classes(&self, info: &OpInfo) -> Vec<Class> {
        let axes = self.axes(info);
        let extent = |&(input, axis): &(usize, usize)| self.sample[input][axis];
        let mut classes: Vec<Class> = Vec::new();
        for at in &axes {
            if classes.iter().any(|class| class.axes.contains(at)) {
                continue;
            }
            let equal: Vec<_> =
                axes.iter().copied().filter(|other| extent(other) == extent(at)).collect();
            let found = [vec![*at], equal].into_iter().find_map(|axes| self.class(info, axes));
            if let Some(class) = found {
                // What grew by itself before has to go along.
                classes.retain(|other| !other.axes.iter().any(|axis| class.axes.contains(axis)));
                classes.push(class);
            }
        }
        classes
    }

    /// These axes as a class, if the call takes them longer.
    fn class(&self, info: &OpInfo, axes: Vec<(usize, usize)>) -> Option<Class> {
        let extent = axes.first().map(|&(input, axis)| self.sample[input][axis])?;
        let call = |n: usize| info.probe(&self.sample, &with(&self.sample, &axes, n)).ok();
        let doubled = call(2 * extent)?;
        let step = if call(2 * extent + 1).is_some() { 1 } else { extent };
        let before = numel(&self.result).max(1.0);
        let power = (doubled.numel().max(1) as f64 / before).log2().max(0.0);
        Some(Class { axes, step, extent, power })
    }

    /// Has powers agree with the elements of the result where all classes are doubled: a concatenation's
    /// result is a sum of extents, not their product.
    fn share_power(&mut self, doubled: f64) {
        let total: f64 = self.classes.iter().map(|class| class.power).sum();
        let together = (doubled / numel(&self.result).max(1.0)).log2();
        if total > 0.0 && together > 0.0 && together < total {
            self.classes.iter_mut().for_each(|class| class.power *= together / total);
        }
    }

    /// Whether there is anything that grows.
    pub fn grows(&self) -> bool {
        !self.classes.is_empty()
    }

    /// The sample.
    pub fn sample(&self) -> &[Vec<usize>] {
        &self.sample
    }

    /// The shapes with an extent for each class.
    fn shapes_of(&self, extents: &[usize]) -> Vec<Vec<usize>> {
        let each = self.classes.iter().zip(extents);
        each.fold(self.sample.clone(), |shapes, (class, &n)| with(&shapes, &class.axes, n))
    }

    /// About how many elements the result has with an extent for each class.
    fn result_elements(&self, extents: &[usize]) -> f64 {
        let each = self.classes.iter().zip(extents);
        each.map(|(class, &n)| (n as f64 / class.extent as f64).powf(class.power))
            .fold(numel(&self.result).max(1.0), |all, factor| all * factor)
    }

    /// Shapes of a call with `1 << bits` elements in the input that grows most, powers of two, or where
    /// `is_odd` one less than that.
    fn extents(&self, bits: u32, is_odd: bool) -> Vec<usize> {
        let growing = |input: usize| {
            let axes = self.classes.iter().flat_map(|class| class.axes.iter());
            axes.filter(|at| at.0 == input).count() as u32
        };
        let most = (0..self.sample.len()).max_by_key(|&input| (growing(input), usize::MAX - input));
        let most = most.unwrap_or(0);
        let count = growing(most).max(1);
        let (each, rest) = (bits / count, bits % count);
        // The last axis of that input takes what is left.
        let last = self.classes.iter().flat_map(|class| class.axes.iter().copied());
        let last = last.filter(|at| at.0 == most).max();
        let of = |class: &Class| {
            let is_last = last.is_some_and(|at| class.axes.contains(&at));
            let extent = 1usize << (each + if is_last { rest } else { 0 });
            let steps = (extent / class.step).max(1) - usize::from(is_odd && extent > class.step);
            (steps.max(1) * class.step).max(class.extent)
        };
        self.classes.iter().map(of).collect()
    }

    /// The largest shapes within limits.
    pub fn shapes(&self, info: &OpInfo, limits: &Limits, is_odd: bool) -> Vec<Vec<usize>> {
        let top = limits.elements.max(1.0).log2() as u32;
        for bits in (1..=top).rev() {
            let extents = self.extents(bits, is_odd);
            let (shapes, result) = (self.shapes_of(&extents), self.result_elements(&extents));
            let largest = shapes.iter().map(|shape| numel(shape)).fold(0.0, f64::max);
            let fits = largest <= 1.1 * limits.elements && result <= 2.2 * limits.elements;
            if fits && info.flops_of(&shapes, result) <= limits.flops {
                return shapes;
            }
        }
        self.sample.clone()
    }
}
