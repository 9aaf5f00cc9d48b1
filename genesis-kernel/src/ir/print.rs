//! Tile IR as text. [`super::parse()`] reads it back.
//!
//! Values are numbered in the order in which they appear, parameters keep the user's names, and a
//! region is indented. Two functions that differ only in ids print the same, so the text is also what
//! tests compare and what cache keys are made of.
//!
//! ```text
//! kernel NAME(PARAM, ..) [contract] { TABLE .. OP .. }
//! PARAM     %name: TYPE [readonly] [exclusive] [multiple_of N] [unit_stride] [unit_axis AXIS]
//!           [zero_stride] [zero_row_stride] [stride_multiple_of N] [narrow] [natural] [constant]
//! TABLE     tma map .. | tma channel .. | tma load .. | tma store ..     one entry of the copy engine
//! TYPE      f32 | f32[128x64] | *f32[1024] | view<f32,2>
//! OP        [%r, .. =] HEAD [%operand, ..] [: TYPE, ..]      one type for each result
//! HEAD      const LITERAL | iota | program_id AXIS | num_programs AXIS | neg .. | add .. | cmp lt
//!           | select | fma | asm "text" "=r,r" | cast | bitcast | broadcast | expand_dims AXIS | reshape
//!           | transpose [1, 0] | join | split | ptr_add | load [once] | store [kept] | atomic_rmw add [ORDER] [SCOPE]
//!           | atomic_cas [ORDER] [SCOPE]
//!           | view_ptr | view_dim AXIS | view_stride AXIS | view_load | view_store
//!           | make_view
//!           | reduce add AXIS | scan add AXIS [reverse] | gather AXIS | dot ieee | assert "text" | print "text"
//!           | multiple_of N | convert_layout | yield | return
//! ORDER     relaxed | acquire | release | acq_rel          SCOPE     block | cluster | system
//! LITERAL   3 | 1.5 | inf | -inf | nan | true | bits 0x7fc00001
//! ```
//!
//! Ops that own regions:
//!
//! ```text
//! %3 = for %4 = %lower to %upper step %step carry (%5 = %init) stages 4 unroll 2 { .. } : f32
//! %3 = while carry (%4 = %init) { .. } do (%5) { .. } : f32
//! %3 = if %cond { .. } else { .. } : f32
//! %3, %4 = reduce AXIS %x, %y by (%5: f32, %6: i64, %7: f32, %8: i64) { .. } : f32[4], i64[4]
//! %3, %4 = scan AXIS [reverse] %x, %y by (..) { .. } : f32[4x8], i64[4x8]
//! ```
//!
//! `//` starts a comment. Source locations are not printed.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use super::func::{Func, Op, OpData, ParamAttrs, Region, Value};
use super::number::Scalar;
use super::ops::{Combine, LoopOptions, OpKind};
use super::ordering::AtomicOrdering;
use super::tma::{Multicast, TensorMap, TmaLoad, TmaStore};
use super::types::DType;

impl fmt::Display for Func {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print(self))
    }
}

/// The function as text.
pub fn print(func: &Func) -> String {
    let mut printer = Printer::new(func);
    printer.kernel();
    printer.out
}

/// The name of each value in the text, without its `%`.
pub fn names(func: &Func) -> BTreeMap<Value, String> {
    let mut printer = Printer::new(func);
    printer.kernel();
    printer.names
}

/// The first line of one op's text, with the names it has in the whole; none where the op is not
/// reached from the body.
pub fn op_text(func: &Func, op: Op) -> Option<String> {
    let mut printer = Printer::new(func);
    printer.kernel();
    let start = *printer.starts.get(&op)?;
    printer.out[start..].lines().next().map(str::to_owned)
}

/// An op's first word in text, for messages.
pub fn mnemonic(kind: &OpKind) -> String {
    head(kind).split(' ').next().unwrap_or_default().to_owned()
}

struct Printer<'f> {
    func: &'f Func,
    names: BTreeMap<Value, String>,
    next: u32,
    out: String,
    /// Where each op's text starts.
    starts: BTreeMap<Op, usize>,
}

impl<'f> Printer<'f> {
    fn new(func: &'f Func) -> Printer<'f> {
        let names = func.params.iter().map(|p| (p.value, p.name.clone())).collect();
        Printer { func, names, next: 0, out: String::new(), starts: BTreeMap::new() }
    }

    fn kernel(&mut self) {
        let params: Vec<String> = self
            .func
            .params
            .iter()
            .map(|p| format!("%{}: {}{}", p.name, self.func.ty(p.value), attrs(&p.attrs)))
            .collect();
        let contract = if self.func.contract { " contract" } else { "" };
        self.out = format!("kernel {}({}){contract} ", self.func.name, params.join(", "));
        self.region(self.func.body, 0);
        self.out.push('\n');
    }

    fn name(&mut self, value: Value) -> String {
        let next = &mut self.next;
        let name = self.names.entry(value).or_insert_with(|| {
            *next += 1;
            (*next - 1).to_string()
        });
        format!("%{name}")
    }

    fn list(&mut self, values: &[Value]) -> String {
        let names: Vec<String> = values.iter().map(|&v| self.name(v)).collect();
        names.join(", ")
    }

    fn region(&mut self, region: Region, depth: usize) {
        self.out.push_str("{\n");
        if region == self.func.body {
            self.tables();
        }
        for &op in &self.func.region(region).ops {
            self.out.push_str(&"  ".repeat(depth + 1));
            self.op(op, depth + 1);
            self.out.push('\n');
        }
        self.out.push_str(&"  ".repeat(depth));
        self.out.push('}');
    }

    /// The tables of the copy engine, one entry a line.
    fn tables(&mut self) {
        let tma = &self.func.tma;
        let maps = tma.maps.iter().map(|map| {
            let TensorMap { param, dtype, axes, block, swizzle, tf32 } = map;
            let rounds = if *tf32 { " tf32" } else { "" };
            format!(
                "map param {param} {dtype} axes {axes:?} block {block:?} swizzle {swizzle}{rounds}"
            )
        });
        let channels = tma.channels.iter().map(|channel| {
            format!("channel stages {} bytes {}", channel.stages, channel.slot_bytes)
        });
        let loads =
            tma.loads.iter().map(|load| {
                let TmaLoad {
                    map,
                    channel,
                    offset,
                    bytes,
                    contiguous,
                    registers,
                    multicast,
                    constant,
                } = load;
                let to = if *registers { " registers" } else { "" };
                let multicast = match multicast {
                    Multicast::None => String::new(),
                    Multicast::Partition(blocks) => format!(" parts {blocks}"),
                    Multicast::All(blocks) => format!(" multicast {blocks}"),
                };
                let constant = if *constant { " constant" } else { "" };
                format!(
                    "load map {map} channel {channel} offset {offset} bytes {bytes} \
                 contiguous {contiguous}{to}{multicast}{constant}"
                )
            });
        let stores = tma.stores.iter().map(|TmaStore { map, contiguous }| {
            let transposed = if *contiguous == 0 { " transposed" } else { "" };
            format!("store map {map}{transposed}")
        });
        for line in maps.chain(channels).chain(loads).chain(stores) {
            self.out.push_str(&format!("  tma {line}\n"));
        }
    }

    fn op(&mut self, op: Op, depth: usize) {
        let data = self.func.op(op);
        self.starts.insert(op, self.out.len());
        if !data.results.is_empty() {
            let results = self.list(&data.results);
            self.push(&results);
            self.push(" = ");
        }
        match &data.kind {
            OpKind::For(options) => self.for_loop(data, *options, depth),
            OpKind::While => self.while_loop(data, depth),
            OpKind::If => self.branch(data, depth),
            kind => self.plain(data, kind, depth),
        }
        if !data.results.is_empty() {
            let types: Vec<String> =
                data.results.iter().map(|&r| self.func.ty(r).to_string()).collect();
            self.push(" : ");
            self.push(&types.join(", "));
        }
    }

    fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn plain(&mut self, data: &OpData, kind: &OpKind, depth: usize) {
        self.push(&head(kind));
        if let Some(cache) = data.cache.name() {
            self.push(" ");
            self.push(cache);
        }
        if !data.operands.is_empty() {
            let operands = self.list(&data.operands);
            self.push(" ");
            self.push(&operands);
        }
        for &region in &data.regions {
            self.push(" by ");
            self.typed_args(region);
            self.push(" ");
            self.region(region, depth);
        }
    }

    fn typed_args(&mut self, region: Region) {
        let args = self.func.region(region).args.clone();
        let args: Vec<String> =
            args.iter().map(|&a| format!("{}: {}", self.name(a), self.func.ty(a))).collect();
        self.push(&format!("({})", args.join(", ")));
    }

    fn for_loop(&mut self, data: &OpData, options: LoopOptions, depth: usize) {
        let args = self.region_args(data, 0);
        let (bounds, inits) = data.operands.split_at(data.operands.len().min(3));
        let index: String = args.first().map(|&a| self.name(a)).unwrap_or_default();
        let bounds: Vec<String> = bounds.iter().map(|&b| self.name(b)).collect();
        self.push(&format!("for {index} = "));
        for (bound, end) in bounds.iter().zip([" to ", " step ", ""]) {
            self.push(bound);
            self.push(end);
        }
        self.carry(args.get(1..).unwrap_or_default(), inits);
        for (name, n) in [("stages", options.stages), ("unroll", options.unroll)] {
            if n != 0 {
                self.push(&format!(" {name} {n}"));
            }
        }
        self.push(" ");
        self.regions(data, depth);
    }

    fn while_loop(&mut self, data: &OpData, depth: usize) {
        self.push("while");
        let args = self.region_args(data, 0);
        self.carry(&args, &data.operands);
        self.push(" ");
        if let &[cond, body] = data.regions.as_slice() {
            self.region(cond, depth);
            let args = self.region_args(data, 1);
            let args = self.list(&args);
            self.push(&format!(" do ({args}) "));
            self.region(body, depth);
        }
    }

    fn branch(&mut self, data: &OpData, depth: usize) {
        let cond = self.list(&data.operands);
        self.push(&format!("if {cond} "));
        self.regions(data, depth);
    }

    fn regions(&mut self, data: &OpData, depth: usize) {
        for (i, &region) in data.regions.iter().enumerate() {
            if i > 0 {
                self.push(" else ");
            }
            self.region(region, depth);
        }
    }

    fn region_args(&self, data: &OpData, number: usize) -> Vec<Value> {
        data.regions.get(number).map(|&r| self.func.region(r).args.clone()).unwrap_or_default()
    }

    fn carry(&mut self, args: &[Value], inits: &[Value]) {
        if args.is_empty() && inits.is_empty() {
            return;
        }
        let pairs: Vec<String> = args
            .iter()
            .zip(inits)
            .map(|(&a, &i)| format!("{} = {}", self.name(a), self.name(i)))
            .collect();
        self.push(&format!(" carry ({})", pairs.join(", ")));
    }
}

fn attrs(attrs: &ParamAttrs) -> String {
    let mut text = String::new();
    let flag = |text: &mut String, on: bool, name: &str| {
        if on {
            text.push(' ');
            text.push_str(name);
        }
    };
    let number = |text: &mut String, n: u64, name: &str| {
        if n > 1 {
            write!(text, " {name} {n}").expect("a string takes any text");
        }
    };
    flag(&mut text, attrs.readonly, "readonly");
    flag(&mut text, attrs.exclusive, "exclusive");
    number(&mut text, attrs.multiple_of, "multiple_of");
    flag(&mut text, attrs.unit_stride, "unit_stride");
    if let Some(axis) = attrs.unit_axis {
        write!(text, " unit_axis {axis}").expect("a string takes any text");
    }
    flag(&mut text, attrs.zero_stride, "zero_stride");
    flag(&mut text, attrs.zero_row_stride, "zero_row_stride");
    number(&mut text, attrs.stride_multiple_of, "stride_multiple_of");
    flag(&mut text, attrs.narrow, "narrow");
    flag(&mut text, attrs.natural, "natural");
    flag(&mut text, attrs.constant, "constant");
    text
}

/// What stands before the operands.
fn head(kind: &OpKind) -> String {
    match kind {
        OpKind::Const(scalar) => format!("const {}", literal(*scalar)),
        OpKind::ProgramId(axis) => format!("program_id {axis}"),
        OpKind::NumPrograms(axis) => format!("num_programs {axis}"),
        OpKind::Unary(op) => op.name().to_owned(),
        OpKind::Binary(op) => op.name().to_owned(),
        OpKind::Compare(predicate) => format!("cmp {}", predicate.name()),
        OpKind::ExpandDims { axis } => format!("expand_dims {axis}"),
        OpKind::Transpose { perm } => format!("transpose {perm:?}"),
        OpKind::AtomicRmw(op, ordering) => {
            format!("atomic_rmw {}{}", op.name(), ordering_words(*ordering))
        }
        OpKind::AtomicCas(ordering) => format!("atomic_cas{}", ordering_words(*ordering)),
        OpKind::ViewDim(axis) => format!("view_dim {axis}"),
        OpKind::ViewStride(axis) => format!("view_stride {axis}"),
        OpKind::Reduce { axis, combine } => format!("reduce {}{axis}", combine_name(*combine)),
        OpKind::Scan { axis, reverse, combine } => {
            let reverse = if *reverse { " reverse" } else { "" };
            format!("scan {}{axis}{reverse}", combine_name(*combine))
        }
        OpKind::Gather { axis } => format!("gather {axis}"),
        OpKind::Scatter { axis } => format!("scatter {axis}"),
        OpKind::Dot { precision } => format!("dot {}", precision.name()),
        OpKind::Asm { text, constraints, pack, from } => {
            let pack = if *pack == 1 { String::new() } else { format!(" pack {pack}") };
            let from = if *from == 0 { String::new() } else { format!(" from {from}") };
            format!("asm {text:?} {constraints:?}{pack}{from}")
        }
        OpKind::Assert { message } => format!("assert {message:?}"),
        OpKind::Print { format } => format!("print {format:?}"),
        OpKind::MultipleOf(n) => format!("multiple_of {n}"),
        OpKind::TmaLoad(n) => format!("tma_load {n}"),
        OpKind::TmaStore(n) => format!("tma_store {n}"),
        kind => bare_name(kind).to_owned(),
    }
}

/// The words of an atomic's order and scope, each after a space.
fn ordering_words(ordering: AtomicOrdering) -> String {
    let words = [ordering.order.name(), ordering.scope.name()];
    words.into_iter().flatten().flat_map(|word| [" ", word]).collect()
}

/// The whole head of the kinds that carry nothing, and the first word of the others.
fn bare_name(kind: &OpKind) -> &'static str {
    match kind {
        OpKind::Iota => "iota",
        OpKind::Select => "select",
        OpKind::Fma => "fma",
        OpKind::Cast => "cast",
        OpKind::Bitcast => "bitcast",
        OpKind::Broadcast => "broadcast",
        OpKind::Reshape => "reshape",
        OpKind::Join => "join",
        OpKind::Split => "split",
        OpKind::Histogram => "histogram",
        OpKind::PtrAdd => "ptr_add",
        OpKind::Load => "load",
        OpKind::Store => "store",
        OpKind::ViewPtr => "view_ptr",
        OpKind::ViewLoad => "view_load",
        OpKind::ViewStore => "view_store",
        OpKind::MakeView => "make_view",
        OpKind::For(_) => "for",
        OpKind::While => "while",
        OpKind::If => "if",
        OpKind::Yield => "yield",
        OpKind::Return => "return",
        OpKind::ConvertLayout => "convert_layout",
        OpKind::Const(_)
        | OpKind::ProgramId(_)
        | OpKind::NumPrograms(_)
        | OpKind::Unary(_)
        | OpKind::Binary(_)
        | OpKind::Compare(_)
        | OpKind::Asm { .. }
        | OpKind::ExpandDims { .. }
        | OpKind::Transpose { .. }
        | OpKind::AtomicRmw(..)
        | OpKind::AtomicCas(_)
        | OpKind::ViewDim(_)
        | OpKind::ViewStride(_)
        | OpKind::Reduce { .. }
        | OpKind::Scan { .. }
        | OpKind::Gather { .. }
        | OpKind::Scatter { .. }
        | OpKind::Dot { .. }
        | OpKind::Assert { .. }
        | OpKind::Print { .. }
        | OpKind::MultipleOf(_)
        | OpKind::TmaLoad(_)
        | OpKind::TmaStore(_) => "",
    }
}

fn combine_name(combine: Combine) -> String {
    match combine {
        Combine::Op(op) => format!("{} ", op.name()),
        Combine::Region => String::new(),
    }
}

/// A constant so that it reads back bit for bit.
///
/// NaNs other than the usual one and bits that no value of the dtype has are written in hexadecimal.
pub(super) fn literal(scalar: Scalar) -> String {
    let text = match scalar.dtype {
        DType::Bool => (scalar.bits != 0).to_string(),
        DType::U64 => scalar.bits.to_string(),
        DType::F64 => float_text(f64::from_bits(scalar.bits), |v| format!("{v:?}")),
        // Every value of the narrower floats is an f32, whose shortest text is the clearest.
        DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::BF16 | DType::F32 => {
            float_text(scalar.to_f64(), |v| format!("{:?}", v as f32))
        }
        _ => scalar.to_i64().to_string(),
    };
    match super::parse::literal_value(&text, scalar.dtype) {
        Some(back) if back == scalar => text,
        _ => format!("bits {:#x}", scalar.bits),
    }
}

fn float_text(value: f64, finite: impl Fn(f64) -> String) -> String {
    if value.is_nan() {
        "nan".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "inf".to_owned() } else { "-inf".to_owned() }
    } else {
        finite(value)
    }
}
