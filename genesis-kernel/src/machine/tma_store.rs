//! Stores by the copy engine: each warpgroup sends its rows of an accumulator panel by panel.
//!
//! A warpgroup has two buffers of 64 rows for itself: it writes one, swizzled, while the copy engine may still read the
//! other. A store of one panel takes the first buffer each time, so that all panels before must have been read.
//!
//! ```text
//! exec 14                     wait.panels 1                one thread: the panel before the last has been read
//!                             barrier.warpgroup
//!                             store.panel 14.0 buffer 0    registers -> shared memory
//!                      ->     fence.async
//!                             barrier.warpgroup
//!                             send.panel 14.0 buffer 0     one thread
//!                             ..
//! return 16                   wait.panels 0
//!                             return 16
//! ```

use super::{Block, Inst, PANELS, Panel};
use crate::ir::{Op, OpKind, TensorMap};
use crate::layout::{LayoutIr, mma};
use crate::tuning::shared::PANEL_ROWS;

/// How a store's value is cut into panels.
///
/// A panel has [`PANEL_ROWS`] lines of `width` bytes. Lines are rows of the accumulator, or its columns where those lie
/// contiguous in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Panels {
    /// Bytes of a line of a panel.
    pub(crate) width: u32,
    /// Bytes of an element.
    pub(crate) size: u32,
    /// Columns of the tile.
    columns: u32,
    /// Blocks of 64 rows of a warpgroup.
    pub(crate) blocks: u32,
    /// The map's axis across lines.
    pub(crate) line_axis: usize,
    /// Whether lines are columns of the accumulator.
    pub(crate) transposed: bool,
}

impl Panels {
    /// Those of a store; none where its value is not laid out as an accumulator, or the map has other panels.
    pub(crate) fn of(lir: &LayoutIr, op: Op) -> Option<Panels> {
        let data = lir.func.op(op);
        let OpKind::TmaStore(number) = data.kind else { return None };
        let store = lir.func.tma.stores.get(usize::from(number))?;
        let map = lir.func.tma.maps.get(usize::from(store.map))?;
        let value = *data.operands.first()?;
        let shape = lir.func.tile(value).shape;
        let [rows, columns] = [0, 1].map(|axis| shape.extent(axis) as u32);
        let wanted = mma::wgmma_accumulator(shape, columns, [lir.num_warps, lir.num_blocks]);
        let is_accumulator = lir.layout(value).is_some_and(|layout| **layout == wanted);
        let (line_axis, size) = (line_axis(map)?, map.dtype.bytes() as u32);
        let transposed = store.contiguous == 0;
        let blocks = rows / lir.num_blocks / PANEL_ROWS / (lir.num_warps / 4).max(1);
        let panels = Panels { width: map.swizzle, size, columns, blocks, line_axis, transposed };
        let line = map.swizzle / size;
        let is_whole = match transposed {
            true => (line, size) == (PANEL_ROWS, 2) && columns.is_multiple_of(PANEL_ROWS),
            false => matches!(size, 2 | 4) && (1..=columns).contains(&line),
        };
        (is_accumulator && is_whole && map.block[0] == line).then_some(panels)
    }

    /// Columns of a panel.
    pub(crate) fn span(&self) -> u32 {
        if self.transposed { PANEL_ROWS } else { self.width / self.size }
    }

    /// Panels of a block of rows.
    pub(crate) fn per_block(&self) -> u32 {
        self.columns / self.span()
    }

    /// Panels of a warpgroup.
    pub(crate) fn count(&self) -> u32 {
        self.blocks * self.per_block()
    }

    /// The first register of a thread in a panel.
    pub(crate) fn first_register(&self, panel: u32) -> usize {
        let [block, column] = [panel / self.per_block(), panel % self.per_block()];
        ((block * self.columns + column * self.span()) / 2) as usize
    }
}

/// The map's axis across the lines of a panel.
fn line_axis(map: &TensorMap) -> Option<usize> {
    let axis = map.block.iter().skip(1).position(|&extent| extent == PANEL_ROWS)?;
    Some(axis + 1)
}

/// Cuts a block's stores into panels.
pub(super) fn run(block: &mut Block, lir: &LayoutIr) {
    if lir.func.tma.stores.is_empty() || lir.producer.is_none() {
        return;
    }
    // A buffer is used again two panels later, unless some store has an odd number of them.
    let stores = lir.func.walk().into_iter();
    let is_odd = |op: Op| Panels::of(lir, op).is_some_and(|p| !p.count().is_multiple_of(PANELS));
    let in_flight = if stores.into_iter().any(is_odd) { 0 } else { PANELS - 1 };
    expand(block, lir, in_flight);
    // What ends without a `return` ends here.
    if !matches!(block.last(), Some(Inst::Return(_) | Inst::Yield(_))) {
        block.push(Inst::WaitPanels(0));
    }
}

fn expand(block: &mut Block, lir: &LayoutIr, in_flight: u32) {
    let mut done = Block::new();
    for mut inst in std::mem::take(block) {
        inst.blocks_mut().into_iter().for_each(|block| expand(block, lir, in_flight));
        match inst {
            Inst::Exec { op, .. } if matches!(lir.func.op(op).kind, OpKind::TmaStore(_)) => {
                let count = Panels::of(lir, op).map_or(0, |panels| panels.count());
                done.extend((0..count).flat_map(|number| panel(op, number, in_flight)));
            }
            Inst::Return(_) => done.extend([Inst::WaitPanels(0), inst]),
            _ => done.push(inst),
        }
    }
    *block = done;
}

fn panel(op: Op, number: u32, in_flight: u32) -> [Inst; 6] {
    let panel = Panel { op, number, buffer: number % PANELS };
    [
        Inst::WaitPanels(in_flight),
        Inst::WarpgroupBarrier,
        Inst::StorePanel(panel),
        Inst::AsyncFence,
        Inst::WarpgroupBarrier,
        Inst::SendPanel(panel),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::warp_specialization::tests::{MATMUL, compiled};
    use crate::machine::{parse, print};
    use expect_test::expect;

    #[test]
    fn a_store_goes_out_panel_by_panel() {
        let lir = compiled(MATMUL, Some(8), crate::passes::NVPTX);
        let walk = lir.func.walk();
        let is_store = |&op: &Op| matches!(lir.func.op(op).kind, OpKind::TmaStore(_));
        let at = walk.iter().position(is_store).unwrap();
        let mut code = parse(&format!("exec {at}\nreturn {}", walk.len() - 1), &walk).unwrap();
        run(&mut code, &lir);
        expect![[r#"
            wait.panels 1
            barrier.warpgroup
            store.panel 14.0 buffer 0               // tma_store
            fence.async
            barrier.warpgroup
            send.panel 14.0 buffer 0                // tma_store
            wait.panels 1
            barrier.warpgroup
            store.panel 14.1 buffer 1               // tma_store
            fence.async
            barrier.warpgroup
            send.panel 14.1 buffer 1                // tma_store
            wait.panels 1
            barrier.warpgroup
            store.panel 14.2 buffer 0               // tma_store
            fence.async
            barrier.warpgroup
            send.panel 14.2 buffer 0                // tma_store
            wait.panels 1
            barrier.warpgroup
            store.panel 14.3 buffer 1               // tma_store
            fence.async
            barrier.warpgroup
            send.panel 14.3 buffer 1                // tma_store
            wait.panels 0
            return 16                               // return
        "#]]
        .assert_eq(&print(&code, &lir.func));
    }
}
