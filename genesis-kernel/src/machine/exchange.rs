//! How elements of reductions and scans meet: registers, then lanes, then warps of a block and of its cluster.
//!
//! An axis is taken bit by bit of its layout. Registers of a thread combine directly, lanes by shuffles. Warps exchange
//! partial results: each writes its own to the op's scratch in shared memory, a barrier, each reads all. Where blocks are
//! among the bits, each writes to the scratch of every block that differs in those (DSMEM).
//!
//! ```text
//! axis of 4096 over 8 warps     reg 3 bits, lane 5 bits, warp 3 bits, reg 1 bit
//!   steps                       Reg 0..2, Lane 0..4, Warps [0, 1, 2], Reg 3
//! ```

use crate::ir::{Combine, DType, Op, OpKind};
use crate::layout::{HwBit, LANE_BITS, LayoutIr, LinearLayout};

/// Scratch up to this many bytes gets an offset of its own.
pub(crate) const SMALL_BYTES: u32 = 1024;

/// One step along an axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Registers that differ in this bit.
    Reg(usize),
    /// Lanes that differ in this bit.
    Lane(usize),
    /// Warps, of this block and others of its cluster, that differ in some bits.
    Warps(Exchange),
}

/// Warps that exchange partial results: each writes its own to scratch, a barrier, each reads all.
/// Where blocks are among the bits, each writes them to the scratch of all blocks that differ in those.
///
/// The part of a register, lane, warp and block is at `combine(reg, r) ^ combine(lane, l) ^
/// combine(warp, w) ^ combine(block, b)`, in elements; the parts of the bits that are exchanged lie side
/// by side in the axis' order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Exchange {
    /// Bits of the warp and of the block's rank, the axis' lower ones first.
    pub(crate) bits: Vec<HwBit>,
    pub(crate) reg: Vec<u32>,
    pub(crate) lane: [u32; LANE_BITS],
    pub(crate) warp: Vec<u32>,
    pub(crate) block: Vec<u32>,
    /// Elements of the scratch.
    pub(crate) elements: u32,
}

impl Exchange {
    /// Bits of the layout that hold neither an exchanged bit nor one of `done` number the places.
    fn new(layout: &LinearLayout, bits: Vec<HwBit>, done: &[HwBit]) -> Exchange {
        let mut next = 1 << bits.len();
        let mut place = |bit: HwBit, basis: u32| {
            if basis == 0 || done.contains(&bit) {
                return 0;
            }
            next *= 2;
            next / 2
        };
        // Lanes first: those of a warp then write to different banks.
        let mut lane = [0; LANE_BITS];
        for (i, slot) in lane.iter_mut().enumerate() {
            *slot = place(HwBit::Lane(i), layout.lane[i]);
        }
        let reg = layout.reg.iter().enumerate().map(|(i, &b)| place(HwBit::Reg(i), b)).collect();
        let exchanged = |bit: HwBit| bits.iter().position(|&other| other == bit);
        let warp = (0..layout.warp.len())
            .map(|i| match exchanged(HwBit::Warp(i)) {
                Some(position) => 1 << position,
                None => place(HwBit::Warp(i), layout.warp[i]),
            })
            .collect();
        // Another block's scratch is another place already.
        let block = (0..layout.block.len())
            .map(|i| exchanged(HwBit::Block(i)).map_or(0, |position| 1 << position))
            .collect();
        Exchange { bits, reg, lane, warp, block, elements: next }
    }

    /// The bits of the block's rank that are exchanged, one a mask.
    pub(crate) fn blocks(&self) -> Vec<u32> {
        let ranks = self.bits.iter().filter_map(|bit| match bit {
            HwBit::Block(i) => Some(1 << i),
            HwBit::Reg(_) | HwBit::Lane(_) | HwBit::Warp(_) => None,
        });
        ranks.collect()
    }

    /// Parts that each thread reads.
    pub(crate) fn parts(&self) -> u32 {
        1 << self.bits.len()
    }
}

/// The steps along an axis; in the axis' order where `ordered`.
pub(crate) fn steps(layout: &LinearLayout, axis: usize, ordered: bool) -> Vec<Step> {
    let mut bits = layout.axis_bits(axis);
    if !ordered {
        bits.sort_by_key(|bit| match bit {
            HwBit::Reg(_) => 0,
            HwBit::Lane(_) => 1,
            HwBit::Warp(_) => 2,
            HwBit::Block(_) => 3,
        });
    }
    let mut steps = Vec::new();
    let mut done = Vec::new();
    let mut rest = bits.as_slice();
    while let [bit, others @ ..] = rest {
        let crosses = |bit: &&HwBit| matches!(bit, HwBit::Warp(_) | HwBit::Block(_));
        let run = rest.iter().take_while(crosses).count();
        match *bit {
            HwBit::Reg(i) => steps.push(Step::Reg(i)),
            HwBit::Lane(i) => steps.push(Step::Lane(i)),
            HwBit::Warp(_) | HwBit::Block(_) => {
                steps.push(Step::Warps(Exchange::new(layout, rest[..run].to_vec(), &done)));
            }
        }
        let taken = run.max(1);
        done.extend(&rest[..taken]);
        rest = if taken == 1 { others } else { &rest[taken..] };
    }
    steps
}

/// Bytes of one exchange: operands side by side.
pub(crate) fn exchange_bytes(exchange: &Exchange, dtypes: &[DType]) -> u32 {
    dtypes.iter().map(|dtype| slot_bytes(exchange, *dtype)).sum()
}

/// Bytes of one operand's parts.
pub(crate) fn slot_bytes(exchange: &Exchange, dtype: DType) -> u32 {
    (exchange.elements * dtype.bytes() as u32).next_multiple_of(16)
}

pub(crate) fn dtypes(lir: &LayoutIr, op: Op) -> Vec<DType> {
    lir.func.op(op).operands.iter().map(|&v| lir.func.tile(v).dtype()).collect()
}

/// The steps of a reduction or scan.
pub(crate) fn steps_of(lir: &LayoutIr, op: Op) -> Vec<Step> {
    let data = lir.func.op(op);
    let (axis, ordered) = match data.kind {
        OpKind::Reduce { axis, combine } => (axis, combine == Combine::Region),
        OpKind::Scan { axis, .. } => (axis, true),
        _ => return Vec::new(),
    };
    let layout = lir.layout(data.operands[0]);
    layout.map_or(Vec::new(), |layout| steps(layout, axis as usize, ordered))
}

/// Whether an op, or one inside of it, writes to the shared memory of other blocks.
pub(crate) fn stores_dsmem(lir: &LayoutIr, op: Op) -> bool {
    if lir.num_blocks == 1 {
        return false;
    }
    let crosses = |step: &Step| match step {
        Step::Warps(exchange) => !exchange.blocks().is_empty(),
        Step::Reg(_) | Step::Lane(_) => false,
    };
    let inside = lir.func.op(op).regions.iter().flat_map(|&region| &lir.func.region(region).ops);
    steps_of(lir, op).iter().any(crosses) || inside.into_iter().any(|&op| stores_dsmem(lir, op))
}

/// Bytes of the largest exchange.
pub(crate) fn most_bytes(steps: &[Step], dtypes: &[DType]) -> u32 {
    let exchanges = steps.iter().map(|step| match step {
        Step::Warps(exchange) => exchange_bytes(exchange, dtypes),
        Step::Reg(_) | Step::Lane(_) => 0,
    });
    exchanges.max().unwrap_or(0)
}
