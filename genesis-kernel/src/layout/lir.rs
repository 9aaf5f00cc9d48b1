//! Layout IR: tile IR in which every tile has a layout, and what code generation asks of it.
//!
//! It is the same function, with `convert_layout` ops where a value is wanted in two layouts, and a
//! table of layouts by value. In it:
//!
//! * a scalar has no layout: every thread holds it;
//! * operands and result of an elementwise op, a load, a store, an atomic or a scan have one layout;
//! * `broadcast`, `expand_dims`, `reshape` and `transpose` only rename registers
//!   ([`LayoutIr::view_registers`]), `join` and `split` likewise: the new axis is register bit 0 of
//!   the joined tile, or wherever the split tile has it;
//! * `gather` has its index's layout, and takes its tile in any; `scatter` has any, and takes its tile in its index's;
//! * `reduce` gives the slice of its operand's layout, replicated over what was reduced;
//! * loop-carried values and results of `if` keep one layout;
//! * `dot` has its accumulator's layout; see [`DotPlan`] for its operands.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::sync::Arc;

use super::convert::{self, Conversion};
use super::gather::GatherPlan;
use super::histogram::HistogramPlan;
use super::linear::{LinearLayout, Reduction};
use super::scratch::{SharedAccess, SharedPlan};
use crate::ir::print::names;
use crate::ir::{DType, Func, Op, OpKind, Type, Value};
use crate::tuning::multiprocessor::VECTOR_BYTES;

/// Choices that the caller makes for a kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LayoutOptions {
    /// Warps of a block; chosen by the size of the tiles where it is none.
    pub num_warps: Option<u32>,
    /// Blocks of the cluster that is a program; one where it is none.
    pub cluster: Option<u32>,
    /// Iterations of loads in flight in loops that say nothing of their own.
    pub num_stages: Option<u32>,
    /// The most shared memory of a block, in bytes, which multistage of slots take what they can of; 0 where
    /// it is not known.
    pub max_shared_bytes: u32,
    /// As [`LayoutIr::program_bytes`].
    pub program_bytes: Option<u64>,
}

/// A function with a layout for every tile.
#[derive(Clone, Debug)]
pub struct LayoutIr {
    /// The function.
    pub func: Func,
    /// The layout of each value, by its index; none for scalars.
    pub layouts: Vec<Option<Arc<LinearLayout>>>,
    /// Warps of a block.
    pub num_warps: u32,
    /// Blocks of the cluster that is a program.
    pub num_blocks: u32,
    /// How each load, store and atomic of tiles goes to memory.
    pub accesses: BTreeMap<Op, Access>,
    /// How each dot is computed.
    pub dots: BTreeMap<Op, DotPlan>,
    /// The loops whose loads run ahead through shared memory.
    pub multistage: BTreeMap<Op, MultistageBuffer>,
    /// What one thread of a warpgroup of its own runs beside `func`, where `func` has loads by the
    /// copy engine: the same control flow with nothing but those loads in it, whose results it does
    /// not use. `num_warps` does not count that warpgroup.
    pub producer: Option<Func>,
    /// Bytes of global memory that a program moves, by the cost model; none where it has loops, or nobody counted.
    pub program_bytes: Option<u64>,
}

/// How one thread's registers go to global memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Access {
    /// Registers that are one access: consecutive addresses, rising, under one mask value. All groups
    /// have the same length, a power of two, of at most 16 bytes in all.
    pub groups: Vec<Vec<u32>>,
    /// The alignment of every group's first address, in bytes.
    pub alignment: u32,
    /// Lane bits that hold copies: a store or atomic is done where they are 0.
    pub lane_copies: u32,
    /// Warp bits that hold copies: a store or atomic is done where they are 0.
    pub warp_copies: u32,
    /// Bits of the block's rank that hold copies: a store or atomic is done where they are 0.
    pub block_copies: u32,
}

impl Access {
    /// Elements of one access.
    pub fn vector(&self) -> u32 {
        self.groups.first().map_or(1, |group| group.len() as u32)
    }
}

/// How a dot is computed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DotPlan {
    /// What multiplies.
    pub unit: DotUnit,
    /// Where operand A, `[M, K]`, comes from.
    pub a: DotOperand,
    /// Where operand B, `[K, N]`, comes from.
    pub b: DotOperand,
    /// The accumulator is only loop-carried into this dot, so that the async MMA of one iteration may still
    /// be in flight when the next is issued.
    pub async_across_iterations: bool,
    /// The unit's own sums keep fewer digits than f32: this product starts at zero and is added to the
    /// accumulator by ordinary instructions.
    pub promoted: bool,
}

/// What multiplies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DotUnit {
    /// `mma.sync.m16n8k16` on f16 or bf16, accumulating f32.
    Mma16,
    /// `mma.sync.m16n8k8` on f32 rounded to tf32.
    MmaTf32,
    /// The same on f32 as the sum of two tf32: three products of the four.
    MmaTf32x3,
    /// `mma.sync.m16n8k32` on i8 or u8, accumulating i32, which wraps.
    MmaInt8,
    /// `mma.sync.m16n8k8` on f64, or what it is made of.
    MmaF64,
    /// Multiply-adds of each thread's own elements.
    Fma,
    /// `wgmma` of four warps together, operands in shared memory (A perhaps in registers).
    Wgmma(WgmmaKind),
}

/// What `wgmma` multiplies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WgmmaKind {
    /// bf16, f32 accumulators; k is 16.
    Bf16,
    /// f16, f32 accumulators; k is 16.
    F16,
    /// f32 as tf32, f32 accumulators; k is 8, operands in shared memory have K contiguous.
    Tf32,
    /// f8e4m3; k is 32, operands in shared memory have K contiguous, and sums keep 13 bits of fraction.
    F8E4M3,
    /// f8e5m2, likewise.
    F8E5M2,
    /// i8, i32 accumulators, which wrap; k is 32, operands in shared memory have K contiguous.
    I8,
    /// u8, likewise.
    U8,
}

impl WgmmaKind {
    /// Elements of an operand in one 32-bit register.
    pub fn packed(self) -> u32 {
        match self {
            WgmmaKind::Tf32 => 1,
            WgmmaKind::Bf16 | WgmmaKind::F16 => 2,
            WgmmaKind::F8E4M3 | WgmmaKind::F8E5M2 | WgmmaKind::I8 | WgmmaKind::U8 => 4,
        }
    }

    /// What multiplies operands of a dtype; none if nothing does.
    pub fn of(dtype: DType) -> Option<WgmmaKind> {
        match dtype {
            DType::BF16 => Some(WgmmaKind::Bf16),
            DType::F16 => Some(WgmmaKind::F16),
            DType::F32 => Some(WgmmaKind::Tf32),
            DType::F8E4M3 => Some(WgmmaKind::F8E4M3),
            DType::F8E5M2 => Some(WgmmaKind::F8E5M2),
            DType::I8 => Some(WgmmaKind::I8),
            DType::U8 => Some(WgmmaKind::U8),
            _ => None,
        }
    }
}

impl DotUnit {
    /// How far one step goes along K.
    pub fn step(self) -> u32 {
        match self {
            DotUnit::Mma16 => 16,
            DotUnit::MmaTf32 | DotUnit::MmaTf32x3 | DotUnit::MmaF64 => 8,
            DotUnit::MmaInt8 => 32,
            DotUnit::Fma => 1,
            // 32 bytes.
            DotUnit::Wgmma(kind) => 8 * kind.packed(),
        }
    }

    /// Elements of an operand in one register of a fragment, which f64 fills alone.
    pub fn packed(self) -> u32 {
        match self {
            DotUnit::Mma16 => 2,
            DotUnit::MmaInt8 => 4,
            DotUnit::MmaTf32 | DotUnit::MmaTf32x3 | DotUnit::MmaF64 | DotUnit::Fma => 1,
            DotUnit::Wgmma(kind) => kind.packed(),
        }
    }

    /// Whether it is `mma.sync`: tensor cores that read registers and are waited for.
    pub fn is_mma_sync(self) -> bool {
        match self {
            DotUnit::Mma16
            | DotUnit::MmaTf32
            | DotUnit::MmaTf32x3
            | DotUnit::MmaInt8
            | DotUnit::MmaF64 => true,
            DotUnit::Fma | DotUnit::Wgmma(_) => false,
        }
    }
}

/// The multistage buffer of a loop: its stages and what is copied into them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MultistageBuffer {
    /// Stages; at least 2. One is read while the others are filled.
    pub stages: u32,
    /// Bytes of a slot.
    pub slot_bytes: u32,
    /// Ops of the body, in order, that give the loads' addresses and masks.
    pub slice: Vec<Op>,
    /// What is copied.
    pub loads: Vec<StagedLoad>,
    /// The loads, and the ops that rename their values: they are not computed in registers.
    pub skipped: BTreeSet<Op>,
}

/// A load that is a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StagedLoad {
    /// The load.
    pub op: Op,
    /// Where its tile begins in a slot, in bytes.
    pub offset: u32,
    /// Bytes of the tile.
    pub bytes: u32,
    /// Where its registers go, were they in registers.
    pub store: SharedAccess,
}

impl MultistageBuffer {
    /// Bytes of all slots.
    pub fn bytes(&self) -> u32 {
        self.stages * self.slot_bytes
    }

    /// The copy of a load.
    pub fn load(&self, op: Op) -> Option<&StagedLoad> {
        self.loads.iter().find(|load| load.op == op)
    }
}

impl StagedLoad {
    /// The offset of each register in thread 0, in elements.
    pub fn offsets(&self) -> Vec<u32> {
        let n: usize = self.store.groups.iter().map(|group| group.regs.len()).sum();
        let mut offsets = vec![0; n];
        for group in &self.store.groups {
            for (offset, &reg) in (group.offset..).zip(&group.regs) {
                offsets[reg as usize] = offset;
            }
        }
        offsets
    }

    /// The registers of each copy: those next to each other in global memory, cut to what is next to each other in shared
    /// memory too.
    pub fn copies(&self, lir: &LayoutIr) -> Vec<Vec<u32>> {
        let offsets = self.offsets();
        let is_run = |group: &[u32]| {
            let first = offsets[group[0] as usize];
            let follows =
                (first..).zip(group).all(|(offset, &reg)| offsets[reg as usize] == offset);
            follows && first.is_multiple_of(group.len() as u32)
        };
        let cut = |group: &Vec<u32>| match is_run(group) {
            true => vec![group.clone()],
            false => group.iter().map(|&reg| vec![reg]).collect(),
        };
        lir.access(self.op).groups.iter().flat_map(cut).collect()
    }

    /// Whether `cp.async` does all of its copies: those of 4, 8 and 16 bytes.
    pub fn is_async(&self, lir: &LayoutIr) -> bool {
        let size = lir.func.tile(lir.func.op(self.op).results[0]).dtype().bytes();
        self.copies(lir).iter().all(|copy| matches!(size * copy.len(), 4 | 8 | 16))
    }
}

/// An operand of a dot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DotOperand {
    /// In registers, perhaps after a way through shared memory.
    Registers(Box<RegisterOperand>),
    /// In shared memory, where the copy engine put it.
    Shared(SharedOperand),
}

impl DotOperand {
    /// The operand where it comes to registers.
    pub fn registers(&self) -> Option<&RegisterOperand> {
        match self {
            DotOperand::Registers(operand) => Some(operand),
            DotOperand::Shared(_) => None,
        }
    }
}

impl fmt::Display for DotOperand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DotOperand::Registers(operand) if operand.staging.is_some() => f.write_str("staged"),
            DotOperand::Registers(_) => f.write_str("registers"),
            DotOperand::Shared(operand) => {
                let SharedOperand { load, rows, depth, swizzle, .. } = operand;
                let major = if operand.k_major { "K" } else { "MN" };
                write!(
                    f,
                    "load {load} ({rows} of {depth}, {major}-major, panels of {swizzle} bytes)"
                )
            }
        }
    }
}

/// An operand of a dot in a slot of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedOperand {
    /// The entry of the function's `tma.loads` that brings it.
    pub load: u8,
    /// Whether K is the contiguous axis; else M or N is.
    pub k_major: bool,
    /// Bytes of an element.
    pub size: u32,
    /// Width of a panel and span of the swizzle, in bytes.
    pub swizzle: u32,
    /// Extent along M (operand A) or N (operand B), in a block.
    pub rows: u32,
    /// Extent along K.
    pub depth: u32,
}

/// An operand of a dot in registers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegisterOperand {
    /// The layout in which the unit wants the whole operand. A step along K uses the registers whose
    /// K coordinate is in the step.
    pub fragment: Arc<LinearLayout>,
    /// The way from the value's layout to the fragment through shared memory: store everything, a
    /// barrier, then load each step's groups. None where the value is in the fragment layout already.
    pub staging: Option<SharedPlan>,
    /// The load whose slot of a ring the staging is, which nobody stores to but copies; see
    /// [`LayoutIr::multistage`].
    pub ring: Option<Op>,
}

impl RegisterOperand {
    /// The bits of the flat index along K above what one step reads: operand A is 0, B is 1.
    pub fn steps(&self, unit: DotUnit, side: usize) -> u32 {
        let k = 1 - side;
        let step = match unit {
            // A vector of elements along K is as good as one along M or N.
            DotUnit::Fma => FMA_STEP,
            _ => unit.step(),
        };
        let above = (self.fragment.shape.extent(k) as u32 - 1) & !(step - 1);
        above << self.fragment.shift(k)
    }
}

/// Elements along K that multiply-adds read at once, where they are next to each other.
const FMA_STEP: u32 = 4;
/// The widest access of one thread to global memory, in bytes.
pub(crate) const WIDEST_ACCESS: u32 = VECTOR_BYTES as u32;

impl LayoutIr {
    /// The layout of a tile; none for a scalar.
    pub fn layout(&self, value: Value) -> Option<&Arc<LinearLayout>> {
        self.layouts.get(value.index())?.as_ref()
    }

    /// Registers of a value in each thread; 1 for a scalar.
    pub fn num_regs(&self, value: Value) -> u32 {
        self.layout(value).map_or(1, |layout| layout.num_regs())
    }

    /// For `broadcast`, `expand_dims`, `reshape`, `transpose`: the operand's register behind each
    /// register of the result. All zero for a scalar operand.
    pub fn view_registers(&self, op: Op) -> Option<Vec<u32>> {
        let data = self.func.op(op);
        let (operand, result) = (*data.operands.first()?, *data.results.first()?);
        let Some(from) = self.layout(operand) else {
            return Some(vec![0; self.num_regs(result) as usize]);
        };
        match self.layout(result) {
            Some(to) => convert::view_registers(&data.kind, from, to),
            // A scalar made from a tile of one element.
            None => Some(vec![0]),
        }
    }

    /// The way of a `gather`.
    pub(crate) fn gather(&self, op: Op) -> Option<GatherPlan> {
        let data = self.func.op(op);
        let OpKind::Gather { axis } = data.kind else { return None };
        let (x, result) = (data.operands[0], data.results[0]);
        let bits = element_bits(self.func.ty(x));
        Some(GatherPlan::new(self.layout(x)?, self.layout(result)?, axis as usize, bits))
    }

    /// The way of a `scatter`: that of a gather the other way round, which is read as the gather's tile is written.
    pub(crate) fn scatter(&self, op: Op) -> Option<GatherPlan> {
        let data = self.func.op(op);
        let OpKind::Scatter { axis } = data.kind else { return None };
        let (x, result) = (data.operands[0], data.results[0]);
        let bits = element_bits(self.func.ty(x));
        let plan = GatherPlan::new(self.layout(result)?, self.layout(x)?, axis as usize, bits);
        Some(plan.through_shared())
    }

    /// The counters of a `histogram`.
    pub(crate) fn histogram(&self, op: Op) -> HistogramPlan {
        let data = self.func.op(op);
        let [elements, bins] =
            [data.operands[0], data.results[1]].map(|v| self.func.tile(v).shape.numel() as u32);
        HistogramPlan::new(elements, bins, self.num_warps)
    }

    /// The way of a `convert_layout`.
    pub fn conversion(&self, op: Op) -> Option<Conversion> {
        let data = self.func.op(op);
        let (operand, result) = (*data.operands.first()?, *data.results.first()?);
        let bits = element_bits(self.func.ty(result));
        Some(convert::plan(self.layout(operand)?, self.layout(result)?, bits))
    }

    /// How an op's registers go to memory, in vectors no wider than their alignment.
    pub fn access(&self, op: Op) -> Access {
        let ptr = self.func.op(op).operands[0];
        let bytes = self.func.tile(ptr).dtype().bytes() as u32;
        let mut access = match self.accesses.get(&op) {
            Some(access) => access.clone(),
            None => Access {
                groups: (0..self.num_regs(ptr)).map(|reg| vec![reg]).collect(),
                alignment: bytes,
                lane_copies: self.layout(ptr).map_or(31, |layout| layout.free_lanes()),
                warp_copies: self
                    .layout(ptr)
                    .map_or(self.num_warps - 1, |layout| layout.free_warps()),
                block_copies: self
                    .layout(ptr)
                    .map_or(self.num_blocks - 1, |layout| layout.free_blocks()),
            },
        };
        let alignment = 1 << access.alignment.max(1).trailing_zeros();
        let most = (alignment.min(WIDEST_ACCESS) / bytes).max(1) as usize;
        if access.vector() as usize > most {
            access.groups =
                access.groups.iter().flat_map(|g| g.chunks(most).map(<[u32]>::to_vec)).collect();
        }
        access.alignment = alignment.max(bytes).min(access.vector() * bytes);
        access
    }

    /// What a `reduce` goes over.
    pub fn reduction(&self, op: Op) -> Option<Reduction> {
        let data = self.func.op(op);
        match data.kind {
            OpKind::Reduce { axis, .. } => {
                Some(self.layout(*data.operands.first()?)?.reduction(axis as usize))
            }
            _ => None,
        }
    }

    /// The layouts, one line a value by its name in the function's text, which `--emit lir` shows
    /// first.
    pub fn layout_text(&self) -> String {
        let mut text = match self.num_blocks {
            1 => format!("// {} warps\n", self.num_warps),
            n => format!("// {n} blocks of {} warps\n", self.num_warps),
        };
        let names = names(&self.func);
        for (index, layout) in self.layouts.iter().enumerate() {
            if let (Some(layout), Some(name)) = (layout, names.get(&Value(index as u32))) {
                // Writing to a string can't fail.
                let _ = writeln!(text, "// %{name}: {layout}");
            }
        }
        for plan in self.func.walk().iter().filter_map(|op| self.dots.get(op)) {
            let crossing =
                if plan.async_across_iterations { ", async across iterations" } else { "" };
            let _ = writeln!(text, "// dot: {:?}, {} by {}{crossing}", plan.unit, plan.a, plan.b);
        }
        for ring in self.func.walk().iter().filter_map(|op| self.multistage.get(op)) {
            let (loads, ahead) = (ring.loads.len(), ring.stages - 1);
            let (stages, bytes) = (ring.stages, ring.slot_bytes);
            let _ = writeln!(
                text,
                "// ring of {stages} slots of {bytes} bytes: {loads} loads run {ahead} iterations ahead"
            );
        }
        for access in self.func.walk().iter().filter_map(|op| self.accesses.get(op)) {
            let (n, vector) = (access.groups.len(), access.vector());
            let _ =
                writeln!(text, "// access: {n} x {vector} elements, {} bytes", access.alignment);
        }
        text
    }
}

/// Bits of one element in a register that is moved: addresses have 64, bool 8.
pub fn element_bits(ty: Type) -> u32 {
    match ty.as_tile() {
        Some(tile) if !tile.is_ptr() => tile.dtype().bytes() as u32 * 8,
        _ => 64,
    }
}
