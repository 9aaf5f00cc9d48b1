//! Dynamic shared memory as a whole: where pipelines, store panels, scratch and barriers lie.
//!
//! ```text
//! 0        slots of each channel, one pipeline after another          multiples of 1024
//! staging  two panels a warpgroup, for stores by the copy engine  multiples of 1024
//! scratch  what each op needs while it runs (`SharedAllocation`)
//! barriers full[slot], then empty[slot], for each channel         8 bytes each
//! ```
//!
//! Swizzles are counted from address 0, so slots, tiles in them and panels start at multiples of 1024,
//! where every swizzle starts anew.

use super::membar::SharedAllocation;
use crate::ir::{Func, Op};

/// What slots and panels are aligned to.
pub(super) const SWIZZLE_ALIGNMENT: u32 = 1024;
/// Rows of a panel on its way out: those of one `wgmma`.
pub(super) const PANEL_ROWS: u32 = 64;
/// Panels of a warpgroup: one is filled while the other leaves.
pub(super) const PANELS: u32 = 2;
/// Bytes of a panel, at most.
pub(super) const PANEL_BYTES: u32 = PANEL_ROWS * 128;
/// Bytes of an mbarrier.
pub(super) const BARRIER_BYTES: u32 = 8;

/// Where a pipeline lies in shared memory, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PipelineLayout {
    /// Its first slot.
    pub(super) start: u32,
    /// Bytes of a slot.
    pub(super) slot_bytes: u32,
    /// Slots.
    pub(super) stages: u32,
    /// Bytes that the copies into one slot bring.
    pub(super) copied: u32,
    /// The barriers that say that a slot is full.
    pub(super) full: u32,
    /// The barriers that say that a slot is empty.
    pub(super) empty: u32,
}

/// Where everything lies.
#[derive(Clone, Debug, Default)]
pub(super) struct Arena {
    pub(super) pipelines: Vec<PipelineLayout>,
    /// Panels of stores.
    pub(super) staging: u32,
    pub(super) allocation: SharedAllocation,
    /// The order barriers of a ping-pong schedule over tiles.
    pub(super) order_barriers: u32,
    /// Bytes in all.
    pub(super) bytes: u32,
}

impl Arena {
    /// Gives everything a place; `num_warps` compute, in each of `sets`; `scratch` is
    /// what each op needs while it runs.
    pub(super) fn new(func: &Func, [num_warps, sets]: [u32; 2], scratch: &[(Op, u32)]) -> Arena {
        let tma = &func.tma;
        let mut top = 0;
        let mut starts = Vec::new();
        for channel in &tma.channels {
            starts.push(top);
            top += channel.stages * channel.slot_bytes.next_multiple_of(SWIZZLE_ALIGNMENT);
        }
        let staging = top;
        if !tma.stores.is_empty() {
            top += sets * num_warps.div_ceil(4) * PANELS * PANEL_BYTES;
        }
        let allocation = SharedAllocation::after(func, top, scratch);
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
        Arena { pipelines, staging, allocation, order_barriers, bytes: top }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Channel, Multicast, Tma, TmaLoad, TmaStore};

    #[test]
    fn scratch_alone_starts_at_0() {
        let arena = Arena::new(&Func::new("alone"), [4, 1], &[(Op(3), 20)]);
        assert_eq!((arena.allocation.of(Op(3)), arena.bytes), (Some(0..32), 32));
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
            stores: vec![TmaStore { map: 2 }],
            channels: vec![Channel { stages: 4, slot_bytes: 49152 }],
        };
        let arena = Arena::new(&func, [8, 1], &[]);
        let pipeline = arena.pipelines[0];
        assert_eq!((pipeline.start, pipeline.copied, arena.staging), (0, 49152, 196_608));
        assert_eq!((pipeline.full, pipeline.empty), (229_376, 229_408));
        assert_eq!(arena.bytes, 229_440);
    }
}
