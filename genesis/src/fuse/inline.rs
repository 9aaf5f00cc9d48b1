//! One kernel in the making: the values that it computes, and how each lies along the axes it walks.

use std::collections::BTreeMap;

use genesis_kernel::compose::{Access, Form, Leaf, Recipe, Source, Step, StepKind};
use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::KernelDef;
use genesis_kernel::runtime::Arg;

use crate::dispatch::trace::{Kind, Node, Use};
use crate::error::Error;
use crate::launch::{accumulate_dtype, fused};
use crate::shape::{Axes, Layout, collapse_strides, contiguous_strides, memory_order, reordered};

/// The most tensors of one kernel.
const MAX_LEAVES: usize = 20;

/// Why a kernel can't be made as it was meant.
pub(super) enum Stop {
    /// This value has to be stored first.
    Needs(usize),
    /// It can't be made at all.
    Error(Error),
}

/// A tensor as it is read: by slot, from an offset, with strides along the axes of the walk.
#[derive(Clone, PartialEq, Eq)]
struct Read {
    slot: usize,
    dtype: DType,
    offset: i64,
    strides: Vec<i64>,
}

/// A value along the axes of the walk.
type Place = (usize, Vec<i64>, i64);

pub(super) struct Inline<'a> {
    nodes: &'a [Node],
    slots: &'a BTreeMap<usize, usize>,
    /// The axes that are walked.
    space: Vec<usize>,
    reads: Vec<Read>,
    steps: Vec<Step>,
    known: BTreeMap<Place, Source>,
    numbers: Numbers,
    params: Vec<Scalar>,
}

/// What the numbers of a closure are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Numbers {
    /// Part of the kernel: another number is another kernel.
    Fixed,
    /// Given at each launch: one kernel serves all of them.
    Given,
}

impl<'a> Inline<'a> {
    pub(super) fn new(
        nodes: &'a [Node],
        slots: &'a BTreeMap<usize, usize>,
        space: Vec<usize>,
        numbers: Numbers,
    ) -> Inline<'a> {
        let (reads, steps, known) = (Vec::new(), Vec::new(), BTreeMap::new());
        Inline { nodes, slots, space, reads, steps, known, numbers, params: Vec::new() }
    }

    /// A number as the kernel takes it.
    fn number(&mut self, value: Scalar) -> Source {
        if self.numbers == Numbers::Fixed || value.dtype == DType::Bool {
            return Source::Number(value);
        }
        let index = self.params.iter().position(|own| *own == value).unwrap_or_else(|| {
            self.params.push(value);
            self.params.len() - 1
        });
        Source::Param(index)
    }

    /// The numbers that a launch gives, in the order of the recipe's.
    pub(super) fn params(&self) -> Vec<Arg> {
        self.params.iter().map(|&value| Arg::Scalar(value)).collect()
    }

    /// A node's value where a step along axis `a` moves by `strides[a]` of its elements.
    ///
    /// 16-bit floats are f32 between their loads and stores.
    pub(super) fn value(
        &mut self,
        node: usize,
        strides: &[i64],
        offset: i64,
    ) -> Result<Source, Stop> {
        let place = (node, strides.to_vec(), offset);
        if let Some(&known) = self.known.get(&place) {
            return Ok(known);
        }
        let made = match (self.slots.get(&node), &self.nodes[node].kind) {
            (Some(&slot), _) => self.read(slot, self.nodes[node].dtype, strides, offset)?,
            (None, Kind::Number(value)) => self.number(wide_number(*value)),
            (None, Kind::Map { def, dtypes, uses, numbers }) if offset == 0 => {
                self.map(node, strides, (def, dtypes, numbers), uses)?
            }
            (None, _) => return Err(Stop::Needs(node)),
        };
        self.known.insert(place, made);
        Ok(made)
    }

    fn read(
        &mut self,
        slot: usize,
        dtype: DType,
        strides: &[i64],
        offset: i64,
    ) -> Result<Source, Stop> {
        let read = Read { slot, dtype, offset, strides: strides.to_vec() };
        let index = match self.reads.iter().position(|other| *other == read) {
            Some(index) => index,
            None => {
                self.reads.push(read);
                self.reads.len() - 1
            }
        };
        if self.reads.len() > MAX_LEAVES {
            let message = format!("one kernel would read more than {MAX_LEAVES} tensors");
            return Err(Stop::Error(Error::op("fuse", message)));
        }
        let leaf = Source::Leaf(index);
        let wide = accumulate_dtype(dtype);
        Ok(if wide == dtype { leaf } else { self.step(StepKind::Cast(wide), vec![leaf]) })
    }

    fn step(&mut self, kind: StepKind, inputs: Vec<Source>) -> Source {
        let step = Step { kind, inputs };
        let index = self.steps.iter().position(|other| *other == step).unwrap_or_else(|| {
            self.steps.push(step);
            self.steps.len() - 1
        });
        Source::Step(index)
    }

    fn map(
        &mut self,
        node: usize,
        strides: &[i64],
        (def, dtypes, numbers): (&'static KernelDef, &[DType], &[Scalar]),
        uses: &[Use],
    ) -> Result<Source, Stop> {
        let mut inputs = Vec::with_capacity(uses.len());
        for from in uses {
            let own = self.along(strides, &self.nodes[node].shape, &from.layout);
            let (own, offset) = own.ok_or(Stop::Needs(node))?;
            let value = self.value(from.node, &own, offset)?;
            inputs.push(match (self.nodes[from.node].dtype, from.dtype) {
                (DType::Bool, DType::U8) => self.step(StepKind::Cast(DType::U8), vec![value]),
                (DType::U8, DType::Bool) => self.step(StepKind::NotZero(DType::U8), vec![value]),
                _ => value,
            });
        }
        if matches!(def.name(), "cast" | "cast_flat") {
            return Ok(self.cast(inputs[0], dtypes[0], dtypes[1]));
        }
        let dtypes = dtypes.iter().map(|&dtype| accumulate_dtype(dtype)).collect();
        let numbers = numbers.iter().map(|&number| self.number(number)).collect();
        Ok(self.step(StepKind::Kernel(def, dtypes, numbers), inputs))
    }

    /// A conversion rounds as the op does.
    fn cast(&mut self, value: Source, from: DType, to: DType) -> Source {
        let wide = accumulate_dtype(to);
        if from == to || (wide == to && to == accumulate_dtype(from)) {
            return value;
        }
        let value = self.step(StepKind::Cast(to), vec![value]);
        if wide == to { value } else { self.step(StepKind::Cast(wide), vec![value]) }
    }

    /// The strides and offset of an operand of this layout, for a walk that moves by `strides` over a
    /// value of this shape; none where that has no such form.
    fn along(&self, strides: &[i64], shape: &[usize], layout: &Layout) -> Option<(Vec<i64>, i64)> {
        let offset = layout.offset() as i64;
        if layout.is_contiguous() {
            return Some((strides.to_vec(), offset));
        }
        let dense = contiguous_strides(shape);
        let mut taken = vec![false; shape.len()];
        let mut own = Vec::with_capacity(strides.len());
        for (&stride, &extent) in strides.iter().zip(&self.space) {
            if stride == 0 || extent == 1 {
                own.push(0);
                continue;
            }
            let axis = (0..shape.len()).find(|&axis| {
                !taken[axis] && shape[axis] == extent && dense[axis] == stride && extent > 1
            })?;
            taken[axis] = true;
            own.push(layout.strides()[axis]);
        }
        Some((own, offset))
    }

    /// Walks the axes in the order in which those of the tensors that are read lie in memory; which that is, none where
    /// it is the order of the axes.
    pub(super) fn walk_as_read(&mut self) -> Option<Axes<usize>> {
        let along: Vec<&[i64]> = self.reads.iter().map(|read| &read.strides[..]).collect();
        let order = memory_order(&self.space, &along)?;
        self.reorder(&order);
        Some(order)
    }

    /// Walks the axes after the first ones in the order in which those of the tensors that are read lie in memory: a
    /// reduction over them has no order.
    pub(super) fn reduce_as_read(&mut self, kept: usize) {
        let along: Vec<&[i64]> = self.reads.iter().map(|read| &read.strides[kept..]).collect();
        let Some(order) = memory_order(&self.space[kept..], &along) else { return };
        let all: Axes<usize> = (0..kept).chain(order.iter().map(|&axis| kept + axis)).collect();
        self.reorder(&all);
    }

    fn reorder(&mut self, order: &[usize]) {
        self.space = reordered(&self.space, order);
        for read in &mut self.reads {
            read.strides = reordered(&read.strides, order);
        }
    }

    /// The axes that all tensors walk as one joined, with the strides of each tensor.
    pub(super) fn collapsed(&self) -> (Vec<usize>, Vec<Vec<i64>>) {
        let dense = contiguous_strides(&self.space);
        let reads = self.reads.iter().map(|read| &read.strides[..]);
        collapse_strides(&self.space, &reads.chain([&dense[..]]).collect::<Vec<_>>())
    }

    /// Strides along rows and columns, where the first axes are the rows; none where they do not join.
    pub(super) fn rows(&self, kept: usize) -> Option<Vec<Vec<i64>>> {
        let joined = |from: usize, to: usize| -> Option<Vec<i64>> {
            let along: Vec<&[i64]> = self.reads.iter().map(|r| &r.strides[from..to]).collect();
            let (shape, strides) = collapse_strides(&self.space[from..to], &along);
            let one = |s: &Vec<i64>| s.first().copied().unwrap_or(0);
            (shape.len() <= 1).then(|| strides.iter().map(one).collect())
        };
        let (rows, cols) = (joined(0, kept)?, joined(kept, self.space.len())?);
        Some(rows.into_iter().zip(cols).map(|(row, col)| vec![row, col]).collect())
    }

    /// The recipe over axes of these extents, and the views that its kernel reads.
    pub(super) fn recipe(
        &self,
        form: Form,
        results: Vec<(Source, DType)>,
        dims: &[usize],
        strides: &[Vec<i64>],
        rank: usize,
    ) -> Result<(Recipe, Vec<fused::Operand>), Stop> {
        let (mut leaves, mut operands) = (Vec::new(), Vec::new());
        let dims = padded(dims, rank, 1);
        for (read, strides) in self.reads.iter().zip(strides) {
            let strides = padded(strides, rank, 0);
            let (access, axes) = access(&strides);
            leaves.push(Leaf { dtype: read.dtype, access });
            let (mut own, mut steps) = (vec![1], vec![1]);
            if access != Access::One {
                own = axes.iter().map(|&axis| dims[axis] as i64).collect();
                steps = axes.iter().map(|&axis| strides[axis]).collect();
            }
            let (slot, offset) = (read.slot, read.offset);
            operands.push(fused::Operand {
                slot,
                offset,
                dims: own,
                strides: steps,
                mutable: false,
            });
        }
        let steps = self.steps.clone();
        let params = self.params.iter().map(|number| number.dtype).collect();
        Ok((Recipe { form, leaves, params, steps, results, folds: Vec::new() }, operands))
    }
}

/// Which axes a tensor of these strides has.
fn access(strides: &[i64]) -> (Access, Vec<usize>) {
    match strides {
        _ if strides.iter().all(|&stride| stride == 0) => (Access::One, Vec::new()),
        [0, _] => (Access::Row, vec![1]),
        [_, 0] => (Access::Column, vec![0]),
        _ => (Access::Full, (0..strides.len()).collect()),
    }
}

fn wide_number(value: Scalar) -> Scalar {
    match accumulate_dtype(value.dtype) {
        wide if wide != value.dtype => Scalar::float(wide, value.to_f64()),
        _ => value,
    }
}

/// Some before others.
fn joined<T: Copy>(before: impl Iterator<Item = T>, after: &[T]) -> Vec<T> {
    before.chain(after.iter().copied()).collect()
}

/// Extents with others before them, so that there are `rank`.
pub(super) fn padded<T: Copy>(extents: &[T], rank: usize, with: T) -> Vec<T> {
    joined(std::iter::repeat_n(with, rank.saturating_sub(extents.len())), extents)
}
