//! Layout-conversion insertion: writes layout IR, with a `convert_layout` where a value is used in another layout.
//!
//! First a backward walk collects the layouts in which each value is used. Then the function is written anew: a
//! rematerializable value, a view of another, or a load that is cheaper to rematerialize than to convert, once for
//! each layout; any other value once, with a `convert_layout` after it for each layout that is not its own.
//!
//! ```text
//! %i = iota : i64[64]                %0 = iota      slice of the rows' layout
//! %r = expand_dims %i, 1      ->     %1 = iota      slice of the columns' layout
//! %c = expand_dims %i, 0             %2 = expand_dims %0, 1
//!                                    %3 = expand_dims %1, 0
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use super::convert::{Conversion, plan};
use super::infer::{Infer, Shared};
use super::linear::LinearLayout;
use super::lir::{DotUnit, element_bits};
use super::mma;
use super::rematerialize_loads::rematerialized_loads;
use crate::ir::{Func, Op, OpKind, Region, Type, Value};

/// A function with layouts by value, and what became of its dots.
pub(super) struct Converted {
    pub func: Func,
    pub layouts: Vec<Option<Shared>>,
    /// For each new dot, the old one.
    pub dots: Vec<(Op, Op)>,
}

/// Writes the function in the layouts that were inferred.
pub(super) fn insert_conversions(infer: &Infer<'_>) -> Converted {
    let old = infer.func;
    let mut new = Func::new(old.name.clone());
    new.contract = old.contract;
    new.tma = old.tma.clone();
    let none = vec![false; old.n_values()];
    let rematerialized = rematerialized_loads(infer, &wanted(infer, &none));
    let mut writer = Writer {
        infer,
        wanted: wanted(infer, &rematerialized),
        rematerialized,
        placed: vec![Vec::new(); old.n_values()],
        out: Converted { func: new, layouts: Vec::new(), dots: Vec::new() },
    };
    for param in &old.params {
        let (name, attrs) = (param.name.clone(), param.attrs.clone());
        let value = writer.out.func.add_param(name, old.ty(param.value), attrs);
        writer.record(param.value, None, value);
    }
    let body = writer.out.func.body;
    writer.ops(old.body, body);
    writer.out
}

struct Writer<'i, 'f> {
    infer: &'i Infer<'f>,
    /// The layouts in which each old value is wanted.
    wanted: Vec<Vec<Shared>>,
    /// The old values that are computed anew in each of them, though they are not free.
    rematerialized: Vec<bool>,
    /// What stands for each old value in each layout.
    placed: Vec<Vec<(Option<Shared>, Value)>>,
    out: Converted,
}

impl Writer<'_, '_> {
    fn record(&mut self, old: Value, layout: Option<Shared>, new: Value) {
        let layouts = &mut self.out.layouts;
        layouts.resize(layouts.len().max(new.index() + 1), None);
        layouts[new.index()].clone_from(&layout);
        self.placed[old.index()].push((layout, new));
    }

    fn get(&self, old: Value, layout: Option<&Shared>) -> Value {
        let placed = &self.placed[old.index()];
        let found = placed.iter().find(|(have, _)| have.as_ref() == layout);
        found.or(placed.first()).expect("values are placed before they are used").1
    }

    fn ops(&mut self, from: Region, to: Region) {
        let old = self.infer.func;
        for &op in &old.region(from).ops {
            match multi_layout(self.infer, &self.rematerialized, op) {
                Some(result) => {
                    for layout in self.wanted[result.index()].clone() {
                        self.op(op, from, to, Some(&layout));
                    }
                }
                None => self.op(op, from, to, None),
            }
        }
    }

    fn region(&mut self, from: Region) -> Region {
        let old = self.infer.func;
        let to = self.out.func.add_region();
        let args = &old.region(from).args;
        for &arg in args {
            let new = self.out.func.add_region_arg(to, old.ty(arg));
            self.record(arg, self.infer.layout(arg).cloned(), new);
        }
        for &arg in args {
            self.convert(arg, to, None);
        }
        self.ops(from, to);
        to
    }

    /// Writes an op whose result, if it is placed in many layouts, is to have this one.
    fn op(&mut self, op: Op, from: Region, to: Region, layout: Option<&Shared>) {
        let old = self.infer.func;
        let data = old.op(op);
        let operands: Vec<Value> = requirements(self.infer, op, from, layout)
            .iter()
            .zip(&data.operands)
            .map(|(wanted, &operand)| self.get(operand, wanted.as_ref()))
            .collect();
        let regions: Vec<Region> = data.regions.iter().map(|&r| self.region(r)).collect();
        let types: Vec<Type> = data.results.iter().map(|&v| old.ty(v)).collect();
        let new = self.out.func.add_op(data.kind.clone(), &operands, &types, &regions, data.loc);
        self.out.func.op_mut(new).cache = data.cache;
        self.out.func.region_mut(to).ops.push(new);
        if matches!(data.kind, OpKind::Dot { .. }) {
            self.out.dots.push((new, op));
        }
        let forward = self.infer.forward(op);
        for (i, &result) in data.results.iter().enumerate() {
            let value = self.out.func.op(new).results[i];
            let natural = layout.or(forward.as_ref()).or(self.infer.layout(result)).cloned();
            let is_tile = !old.ty(result).as_tile().is_some_and(|tile| tile.shape.is_scalar());
            self.record(result, natural.filter(|_| is_tile), value);
        }
        if layout.is_none() {
            for &result in &data.results {
                self.convert(result, to, Some(op));
            }
        }
    }

    /// Converts a value that was just placed to the other layouts in which it is wanted.
    fn convert(&mut self, old: Value, to: Region, op: Option<Op>) {
        let Some((Some(own), source)) = self.placed[old.index()].first().cloned() else { return };
        for layout in self.wanted[old.index()].clone() {
            if layout == own {
                continue;
            }
            let ty = self.infer.func.ty(old);
            let loc = op.and_then(|op| self.infer.func.op(op).loc);
            let kind = OpKind::ConvertLayout;
            let convert = self.out.func.add_op(kind, &[source], &[ty], &[], loc);
            self.out.func.region_mut(to).ops.push(convert);
            let value = self.out.func.op(convert).results[0];
            self.record(old, Some(layout), value);
        }
    }
}

/// The result of an op that is written once for each layout in which it is wanted.
fn multi_layout(infer: &Infer<'_>, rematerialized: &[bool], op: Op) -> Option<Value> {
    let data = infer.func.op(op);
    let &[result] = data.results.as_slice() else { return None };
    let is_tile = !infer.func.ty(result).as_tile()?.shape.is_scalar();
    let is_cheap = infer.free[result.index()] || rematerialized[result.index()];
    (is_tile && (data.kind.is_view() || is_cheap)).then_some(result)
}

/// The layouts in which each value is wanted, in a fixed order.
fn wanted(infer: &Infer<'_>, rematerialized: &[bool]) -> Vec<Vec<Shared>> {
    let func = infer.func;
    let mut regions: BTreeMap<Op, Region> = BTreeMap::new();
    let owned = func.walk().into_iter().flat_map(|op| func.op(op).regions.clone());
    for region in owned.chain([func.body]) {
        regions.extend(func.region(region).ops.iter().map(|&op| (op, region)));
    }
    let mut wanted: Vec<Vec<Shared>> = vec![Vec::new(); func.n_values()];
    for op in func.walk().into_iter().rev() {
        let layouts: Vec<Option<Shared>> = match multi_layout(infer, rematerialized, op) {
            Some(result) => wanted[result.index()].iter().cloned().map(Some).collect(),
            None => vec![None],
        };
        for layout in layouts {
            let requirements = requirements(infer, op, regions[&op], layout.as_ref());
            for (layout, operand) in requirements.into_iter().zip(&func.op(op).operands) {
                let list = &mut wanted[operand.index()];
                list.extend(layout.filter(|layout| !list.contains(layout)));
            }
        }
    }
    wanted
}

/// The layout in which an op of a region wants each operand; `result` is that of a result that is
/// placed in many.
fn requirements(
    infer: &Infer<'_>,
    op: Op,
    region: Region,
    result: Option<&Shared>,
) -> Vec<Option<Shared>> {
    let data = infer.func.op(op);
    let n = data.operands.len();
    let own = || result.or_else(|| infer.layout(*data.results.first()?));
    let shape = |i: usize| infer.func.tile(data.operands[i]).shape;
    let one = |layout: Option<LinearLayout>| vec![layout.map(Arc::new)];
    let scalar =
        |i: usize| infer.func.ty(data.operands[i]).as_tile().is_none_or(|t| t.shape.is_scalar());
    match &data.kind {
        kind if kind.is_elementwise() => vec![own().cloned(); n],
        OpKind::Broadcast | OpKind::ExpandDims { .. } | OpKind::Reshape if scalar(0) => vec![None],
        OpKind::Broadcast => one(own().map(|layout| layout.project(shape(0)))),
        OpKind::ExpandDims { .. } | OpKind::Reshape => match own() {
            Some(layout) => one(Some(layout.reshape(shape(0)))),
            None => vec![infer.layout_or_default(data.operands[0])],
        },
        OpKind::Transpose { perm } => one(own().map(|layout| layout.untranspose(perm))),
        OpKind::Load if result.is_some() => vec![result.cloned(); n],
        kind if kind.is_pointer_access() => {
            vec![infer.accesses.get(&op).cloned(); n]
        }
        OpKind::Reduce { .. } | OpKind::Scan { .. } | OpKind::Join | OpKind::Split => {
            vec![infer.forward_operand(op); n]
        }
        OpKind::Gather { .. } => vec![infer.layout_or_default(data.operands[0]), own().cloned()],
        OpKind::Scatter { .. } => vec![infer.layout_or_default(data.operands[0]); 2],
        OpKind::Histogram => one(Some(infer.histogram_layout(shape(0)))),
        OpKind::Dot { .. } => {
            let operand = |i: usize| dot_operand(infer, op, i);
            vec![operand(0), operand(1), own().cloned()]
        }
        OpKind::For(_) => {
            let carried = data.results.iter().map(|&v| infer.layout(v).cloned());
            [None, None, None].into_iter().chain(carried).collect()
        }
        OpKind::While => data.results.iter().map(|&v| infer.layout(v).cloned()).collect(),
        OpKind::Yield => {
            let mut layouts = infer.wanted_by_yield(region);
            layouts.resize(n, None);
            layouts
        }
        OpKind::TmaStore(_) => {
            let mut layouts = one(Some(infer.wgmma_layout(shape(0))));
            layouts.resize(n, None);
            layouts
        }
        OpKind::Assert { .. } | OpKind::Print { .. } => {
            data.operands.iter().map(|&v| infer.layout_or_default(v)).collect()
        }
        _ => vec![None; n],
    }
}

/// An operand of a dot: in the fragment layout where it is there already but for register names, else
/// as it is, to be staged.
fn dot_operand(infer: &Infer<'_>, op: Op, i: usize) -> Option<Shared> {
    let value = infer.func.op(op).operands[i];
    let layout = infer.layout_or_default(value)?;
    let fragment = fragment(infer, op, i);
    let bits = element_bits(infer.func.ty(value));
    match plan(&layout, &fragment, bits) {
        Conversion::Registers(_) => Some(Arc::new(fragment)),
        Conversion::Shuffle(_) | Conversion::Shared(_) => Some(layout),
    }
}

/// The layout in which the unit of a dot takes operand 0 or 1.
pub(super) fn fragment(infer: &Infer<'_>, op: Op, i: usize) -> LinearLayout {
    let data = infer.func.op(op);
    let shape = infer.func.tile(data.operands[i]).shape;
    let (unit, warps) = infer.units[&op];
    let width = unit.packed();
    match (unit, i) {
        (DotUnit::Fma, _) => {
            let acc = infer.layout(data.results[0]).expect("a dot's result has a layout");
            fma_fragment(acc, shape, i)
        }
        (_, 0) => mma::operand_a(shape, warps, width, infer.num_warps),
        _ => mma::operand_b(shape, warps, width, infer.num_warps),
    }
}

/// What each thread multiplies: all of K for its rows (operand 0) or columns (operand 1).
fn fma_fragment(acc: &LinearLayout, shape: crate::ir::Shape, i: usize) -> LinearLayout {
    let own = acc.slice(1 - i);
    let k = shape.extent(1 - i);
    let all = LinearLayout::replicated(crate::ir::Shape::new(&[k]), acc.num_warps());
    // The own axis is `i`: rows of A, columns of B.
    let (mut layout, shift_own, shift_k) = match i {
        0 => (own.clone(), k.ilog2(), 0),
        _ => (own.clone(), 0, shape.extent(1).ilog2()),
    };
    layout.shape = shape;
    for bases in [&mut layout.reg, &mut layout.lane, &mut layout.warp] {
        bases.iter_mut().for_each(|basis| *basis <<= shift_own);
    }
    layout.reg.extend(all.reg.iter().map(|basis| basis << shift_k));
    layout
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::layout::assign::tests::{PAIRS, moves_of};

    #[test]
    fn what_is_wanted_in_two_layouts_is_converted_between_them() {
        // Memory that the kernel may write is read once.
        expect![[r#"
              %4 = load %3 : f32[64]
              %8 = convert_layout %7 : f32[64]
              store %23, %13
        "#]]
        .assert_eq(&moves_of(&PAIRS.replace("readonly", "exclusive"), 4));
    }
}
