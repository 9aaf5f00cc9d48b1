//! Shared-memory allocation: where pipelines, store panels, scratch and mbarriers lie in dynamic shared memory.
//!
//! ```text
//! 0        stages of each TMA pipeline, one pipeline after another      multiples of 1024
//! panels   two a warpgroup, for stores by the copy engine             multiples of 1024
//! scratch  what each op needs while it runs
//! mbarriers  full[stage], then empty[stage], for each pipeline          8 bytes each
//! ```
//!
//! Swizzles are counted from address 0, so stages, tiles in them and panels start at multiples of 1024, where every
//! swizzle starts anew.
//!
//! Scratch is live during one op, which may be a loop with all that is in it. Small scratch buffers get offsets of their
//! own, so that their reuse needs no barrier; large ones whose live ranges are disjoint share bytes, the largest
//! allocated first.
//!
//! ```text
//! reduce   write 0..32, barrier, read 0..32
//! reduce   write 32..64, barrier, read 32..64     no barrier before: other bytes
//! convert  write 64..4160, barrier, read
//! convert  barrier, write 64..4160, barrier, read
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use super::exchange::SMALL_BYTES;
use super::scratch::scratch_bytes;
use crate::Error;
use crate::ir::{Func, Op};
use crate::layout::LayoutIr;
use crate::layout::ping_pong::computing_warps;
use crate::target::GpuTarget;
use crate::tuning::multiprocessor::WARPGROUP_WARPS;
use crate::tuning::shared::{PANEL_ROW_BYTES, PANEL_ROWS, PANELS_BYTES};

/// What slots and panels are aligned to.
pub(crate) const SWIZZLE_ALIGNMENT: u32 = 1024;
/// Panels of a warpgroup: one is filled while the other leaves.
pub(crate) const PANELS: u32 = PANELS_BYTES / PANEL_BYTES;
/// Bytes of a panel, at most.
pub(crate) const PANEL_BYTES: u32 = PANEL_ROWS * PANEL_ROW_BYTES;
/// Bytes of an mbarrier.
pub(crate) const BARRIER_BYTES: u32 = 8;

/// Where a pipeline lies in shared memory, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PipelineLayout {
    /// Its first slot.
    pub(crate) start: u32,
    /// Bytes of a slot.
    pub(crate) slot_bytes: u32,
    /// Slots.
    pub(crate) stages: u32,
    /// Bytes that the copies into one slot bring.
    pub(crate) copied: u32,
    /// The barriers that say that a slot is full.
    pub(crate) full: u32,
    /// The barriers that say that a slot is empty.
    pub(crate) empty: u32,
}

/// All of a block's dynamic shared memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedMemory {
    pub(crate) pipelines: Vec<PipelineLayout>,
    /// Panels of stores.
    pub(crate) staging: u32,
    pub(crate) allocation: ScratchAllocation,
    /// The order barriers of a ping-pong schedule over tiles.
    pub(crate) order_barriers: u32,
    /// Bytes in all.
    pub(crate) bytes: u32,
}

impl SharedMemory {
    /// That of a kernel.
    ///
    /// # Errors
    /// If it needs more than a block of the GPU has.
    pub(crate) fn of(lir: &LayoutIr, target: &GpuTarget) -> Result<SharedMemory, Error> {
        let uses = lir.func.count_uses();
        let all = lir.func.walk().into_iter().map(|op| (op, scratch_bytes(lir, &uses, op)));
        let wanted: Vec<(Op, u32)> = all.filter(|&(_, bytes)| bytes > 0).collect();
        let sets = computing_warps(lir) / lir.num_warps;
        let memory = SharedMemory::new(&lir.func, [lir.num_warps, sets], &wanted);
        if memory.bytes <= target.features.max_shared_bytes {
            return Ok(memory);
        }
        let largest = wanted.iter().max_by_key(|(_, bytes)| *bytes);
        let loc = largest.and_then(|&(op, _)| lir.func.op(op).loc);
        let (needed, most) = (memory.bytes, target.features.max_shared_bytes);
        let message =
            format!("this kernel needs {needed} bytes of shared memory, {target} has {most}");
        Err(crate::Diagnostic::new(message, loc).help("use smaller tiles").into())
    }

    /// The bytes of an op's scratch.
    pub(crate) fn scratch(&self, op: Op) -> Option<Range<u32>> {
        self.allocation.of(op)
    }

    /// Gives everything a place; `num_warps` compute, in each of `sets`; `scratch` is
    /// what each op needs while it runs.
    pub(crate) fn new(
        func: &Func,
        [num_warps, sets]: [u32; 2],
        scratch: &[(Op, u32)],
    ) -> SharedMemory {
        let tma = &func.tma;
        let mut top = 0;
        let mut starts = Vec::new();
        for channel in &tma.channels {
            starts.push(top);
            top += channel.stages * channel.slot_bytes.next_multiple_of(SWIZZLE_ALIGNMENT);
        }
        let staging = top;
        if !tma.stores.is_empty() {
            top += sets * num_warps.div_ceil(WARPGROUP_WARPS) * PANELS_BYTES;
        }
        let allocation = ScratchAllocation::after(func, top, scratch);
        top = allocation.end;
        if !tma.channels.is_empty() {
            top = top.next_multiple_of(BARRIER_BYTES);
        }
        let mut pipelines = Vec::new();
        for ((number, channel), start) in (0..).zip(&tma.channels).zip(starts) {
            let bytes = channel.stages * BARRIER_BYTES;
            pipelines.push(PipelineLayout {
                start,
                slot_bytes: channel.slot_bytes.next_multiple_of(SWIZZLE_ALIGNMENT),
                stages: channel.stages,
                copied: tma.copied_bytes(number),
                full: top,
                empty: top + bytes,
            });
            top += 2 * bytes;
        }
        let order_barriers = top;
        if sets > 1 {
            top += sets * BARRIER_BYTES;
        }
        SharedMemory { pipelines, staging, allocation, order_barriers, bytes: top }
    }
}

/// All scratch starts at a multiple of this many bytes.
const ALIGNMENT: u32 = 128;

/// Where the scratch of each op lies in shared memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScratchAllocation {
    allocation: BTreeMap<Op, Range<u32>>,
    /// Where they end, in bytes.
    pub(crate) end: u32,
}

impl ScratchAllocation {
    /// Allocates each op's scratch, in bytes, at `start` or after it.
    pub(crate) fn after(func: &Func, start: u32, wanted: &[(Op, u32)]) -> ScratchAllocation {
        let mut allocation = BTreeMap::new();
        let mut top = start;
        for &(op, bytes) in wanted.iter().filter(|&&(_, bytes)| bytes <= SMALL_BYTES) {
            let start = top;
            top = start + bytes.next_multiple_of(16);
            allocation.insert(op, start..top);
        }
        let floor = top.next_multiple_of(ALIGNMENT);
        let mut large: Vec<Live> = wanted
            .iter()
            .filter(|&&(_, bytes)| bytes > SMALL_BYTES)
            .map(|&(op, bytes)| Live { op, bytes, during: lifetime(func, op) })
            .collect();
        // The largest first; where several are as large, in program order.
        large.sort_by_key(|live| (u32::MAX - live.bytes, live.during.start));
        let mut placed: Vec<(Range<usize>, Range<u32>)> = Vec::new();
        for live in large {
            let start = first_fit(&live, floor, &placed);
            let bytes = start..start + live.bytes;
            top = top.max(bytes.end);
            allocation.insert(live.op, bytes.clone());
            placed.push((live.during, bytes));
        }
        ScratchAllocation { allocation, end: top }
    }

    /// The bytes of an op's scratch.
    pub(crate) fn of(&self, op: Op) -> Option<Range<u32>> {
        self.allocation.get(&op).cloned()
    }
}

/// A large scratch and when it lives, in numbers of ops.
struct Live {
    op: Op,
    bytes: u32,
    during: Range<usize>,
}

/// The ops from an op to the end of its regions, by their numbers in program order.
fn lifetime(func: &Func, op: Op) -> Range<usize> {
    let walk = func.walk();
    let start = walk.iter().position(|&other| other == op).unwrap_or(0);
    let mut regions = func.op(op).regions.clone();
    let mut inside = 0;
    while let Some(region) = regions.pop() {
        let ops = &func.region(region).ops;
        inside += ops.len();
        regions.extend(ops.iter().flat_map(|&inner| func.op(inner).regions.clone()));
    }
    start..start + 1 + inside
}

/// The lowest place above `floor` that nothing takes that lives at the same time.
fn first_fit(live: &Live, floor: u32, placed: &[(Range<usize>, Range<u32>)]) -> u32 {
    let overlap = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
    let mut taken: Vec<&Range<u32>> =
        placed.iter().filter(|(during, _)| overlap(during, &live.during)).map(|(_, b)| b).collect();
    taken.sort_by_key(|bytes| bytes.start);
    let mut start = floor;
    for bytes in taken {
        if start + live.bytes <= bytes.start {
            break;
        }
        start = start.max(bytes.end.next_multiple_of(ALIGNMENT));
    }
    start
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::ir::{Channel, Multicast, Tma, TmaLoad, TmaStore};

    #[test]
    fn scratch_alone_starts_at_0() {
        let memory = SharedMemory::new(&Func::new("alone"), [4, 1], &[(Op(3), 20)]);
        assert_eq!((memory.allocation.of(Op(3)), memory.bytes), (Some(0..32), 32));
    }

    #[test]
    fn four_stages_of_a_matmul_and_its_panels_fit() {
        let load = |offset, bytes| TmaLoad {
            map: 0,
            channel: 0,
            offset,
            bytes,
            contiguous: 1,
            registers: false,
            multicast: Multicast::None,
            constant: false,
        };
        let mut func = Func::new("matmul");
        func.tma = Tma {
            maps: Vec::new(),
            loads: vec![load(0, 16384), load(16384, 32768)],
            stores: vec![TmaStore { map: 2, contiguous: 1 }],
            channels: vec![Channel { stages: 4, slot_bytes: 49152 }],
        };
        let memory = SharedMemory::new(&func, [8, 1], &[]);
        let pipeline = memory.pipelines[0];
        assert_eq!((pipeline.start, pipeline.copied, memory.staging), (0, 49152, 196_608));
        assert_eq!((pipeline.full, pipeline.empty), (229_376, 229_408));
        assert_eq!(memory.bytes, 229_440);
    }

    #[test]
    fn large_scratch_shares_bytes_unless_live_ranges_overlap() {
        let text = "
kernel scratch(%n: i64) {
  %0 = const 0 : i64
  %1 = const 1 : i64
  for %2 = %0 to %n step %1 {
    %3 = add %2, %1 : i64
    yield
  }
  return
}
";
        let func = crate::ir::parse(text).unwrap();
        let [first, second, ring, inside] = func.walk()[..4] else { panic!("four ops") };
        let wanted = [(first, 4096), (second, 32), (ring, 8192), (inside, 2048)];
        let allocation = ScratchAllocation::after(&func, 0, &wanted);
        let names = ["first", "second", "ring", "inside"];
        let ranges = wanted.iter().zip(names).map(|(&(op, _), name)| {
            let bytes = allocation.of(op).unwrap_or_default();
            format!("{name} {}..{}\n", bytes.start, bytes.end)
        });
        expect![[r#"
            first 128..4224
            second 0..32
            ring 128..8320
            inside 8320..10368
        "#]]
        .assert_eq(&ranges.collect::<String>());
        assert_eq!(allocation.end, 10368);
    }
}
