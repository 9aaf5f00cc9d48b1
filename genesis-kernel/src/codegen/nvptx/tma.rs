//! TMA: `cp.async.bulk.tensor` loads by the producer, stores of accumulators by the consumers.
//!
//! One thread issues a copy for each panel (one swizzle atom wide) of a tile, as a tensor map describes it; the panels
//! follow each other in shared memory. A load's bytes complete a transaction at its stage's full mbarrier. How a store is
//! staged, panel by panel, machine IR says.
//!
//! ```text
//! tma_load 0 %row, %k : bf16[128x128]
//!   panel 0    cp.async.bulk.tensor.2d [stage], [map, {k, row}], [full]
//!   panel 1    cp.async.bulk.tensor.2d [stage + 16384], [map, {k + 64, row}], [full]
//! ```

use super::super::llvm::Val;
use super::lowering::Lowering;
use super::pipeline_state::{Pipeline, Role};
use super::thread;
use crate::Error;
use crate::ir::{Multicast, Op, OpKind, TensorMap, TmaLoad, Value};
use crate::layout::{HwIndex, LinearLayout, SharedAccess, SharedGroup, SharedUnit};
use crate::machine::tma_store::Panels;
use crate::machine::{PANEL_BYTES, PANELS, Panel};
use crate::tuning::shared::PANEL_ROWS;

/// The widest access of one thread to shared memory, in bytes.
const WIDEST: u32 = 16;

/// How threads read a tile that lies in panels as a map's copies left it: every bit of an element's index
/// moves its place by an XOR, the swizzle included.
fn slot_access(layout: &LinearLayout, contiguous: usize, map: &TensorMap) -> SharedAccess {
    let (width, size) = (map.swizzle, map.dtype.bytes() as u32);
    let lines = layout.shape.numel() as u32 / layout.shape.extent(contiguous) as u32;
    let line = |flat: u32| match lines {
        1 => 0,
        _ => layout.coord(flat, 1 - contiguous),
    };
    let offset = |flat: u32| {
        let bytes = layout.coord(flat, contiguous) * size;
        if width == 0 {
            return bytes / size;
        }
        let place = bytes / width * width * lines + line(flat) * width + bytes % width;
        (place ^ place >> 3 & (width - 16)) / size
    };
    let place = |&basis: &u32| offset(basis);
    let groups = layout.vectors(contiguous, WIDEST / size).into_iter().map(|regs| {
        let first = HwIndex { reg: regs[0], ..HwIndex::default() };
        SharedGroup { offset: offset(layout.apply(first)), regs }
    });
    SharedAccess {
        unit: SharedUnit::Vector,
        lane: std::array::from_fn(|i| place(&layout.lane[i])),
        warp: layout.warp.iter().map(place).collect(),
        block: vec![0; layout.block.len()],
        groups: groups.collect(),
        copies: HwIndex::default(),
        ways: 1,
    }
}

impl<'a> Lowering<'a> {
    /// A load: the producer copies, consumers read the tile if it goes to registers.
    pub(super) fn tma_load(&mut self, op: Op, number: u8) -> Result<(), Error> {
        let load = self.func.tma.loads.get(number as usize);
        let load = load.ok_or_else(|| Error::bug(format!("there is no load {number}")))?;
        match self.copies()?.role {
            Role::Producer => self.copy_panels(op, load, self.pipeline(load.channel)?)?,
            Role::Consumer if load.registers => return self.read_slot(op, load),
            Role::Consumer => {}
        }
        // The tile is in shared memory: it has no registers.
        self.set(self.func.op(op).results[0], Vec::new());
        Ok(())
    }

    /// Reads a load's tile from its slot, each thread its part. The slot goes back to the producer with the
    /// product that follows, which all threads of a warpgroup begin together.
    fn read_slot(&mut self, op: Op, load: &TmaLoad) -> Result<(), Error> {
        let pipeline = self.pipeline(load.channel)?;
        let (map, _) = self.tensor_map(load.map)?;
        let value = self.func.op(op).results[0];
        let layout = self.layout(value)?;
        let access = slot_access(layout, usize::from(load.contiguous), map);
        let start = (load.offset, Some(self.slot_offset(pipeline)));
        let mut registers = vec![None; layout.num_regs() as usize];
        for group in 0..access.groups.len() {
            self.load_shared_group(&access, value, group, start, &mut registers);
        }
        self.result(op, registers.into_iter().flatten().collect())
    }

    /// Copies each panel of a tile to the next slot.
    fn copy_panels(&mut self, op: Op, load: &TmaLoad, pipeline: Pipeline) -> Result<(), Error> {
        let e = self.e;
        let data = self.func.op(op);
        let (map, descriptor) = self.tensor_map(load.map)?;
        let mut coordinates = self.coordinates(&data.operands, map)?;
        let bytes = map.block.iter().product::<u32>() * map.dtype.bytes() as u32;
        let panel_bytes = bytes * load.multicast.shares();
        let share = self.share(load, map, bytes, &mut coordinates)?;
        let (slot, barrier) = (self.slot_offset(pipeline), self.full_barrier(pipeline));
        for panel in 0..load.bytes / panel_bytes.max(1) {
            let offset = e.int(e.i32(), i64::from(load.offset + panel * panel_bytes));
            let place = self.shared_at(e.add(e.add(slot, offset), share));
            let mut args = vec![e.addrspacecast(place, e.ptr(7)), barrier, descriptor];
            args.extend(&coordinates);
            args[3] = e.add(args[3], e.int(e.i32(), i64::from(panel * map.block[0])));
            // The blocks that it goes to, where that is not only this one; no hint for the cache.
            let blocks = load.multicast.shares();
            let multicast = e.bool(blocks > 1);
            let targets = if blocks > 1 { (1 << blocks) - 1 } else { 0 };
            let (no, none) = (e.bool(false), e.int(e.i32(), 0));
            args.extend([e.int(e.i16(), targets), e.int(e.i64(), 0), multicast, no, none]);
            let rank = coordinates.len();
            let copy = format!("llvm.nvvm.cp.async.bulk.tensor.g2s.tile.{rank}d");
            e.intrinsic(&copy, &[], &args);
        }
        Ok(())
    }

    /// Moves coordinates to what this block brings of a load: its part of the tile, or its share of each
    /// panel, of `bytes`. Gives where a share begins in its panel.
    fn share(
        &mut self,
        load: &TmaLoad,
        map: &TensorMap,
        bytes: u32,
        coordinates: &mut [Val],
    ) -> Result<Val, Error> {
        let e = self.e;
        let int = |n: u32| e.int(e.i32(), i64::from(n));
        if load.multicast == Multicast::None {
            return Ok(int(0));
        }
        let rank = self.threads.rank(e);
        // Parts are along axis 0 of the tile: along the lines, unless that axis is contiguous.
        let along_lines = load.multicast.shares() > 1 || load.contiguous != 0;
        let lines = map.block.iter().skip(1).position(|&extent| extent > 1);
        let axis = match along_lines {
            true => 1 + lines.ok_or_else(|| Error::bug("blocks share a single line"))?,
            false => 0,
        };
        let extent = match along_lines {
            true => map.block[axis],
            false => load.bytes / bytes.max(1) * map.block[0],
        };
        coordinates[axis] = e.add(coordinates[axis], e.mul(rank, int(extent)));
        Ok(if load.multicast.shares() > 1 { e.mul(rank, int(bytes)) } else { int(0) })
    }

    /// A tensor map and its address.
    fn tensor_map(&self, number: u8) -> Result<(&'a TensorMap, Val), Error> {
        let func = self.func;
        let map = func.tma.maps.get(number as usize);
        let address = self.copies()?.maps.get(number as usize).copied();
        map.zip(address).ok_or_else(|| Error::bug(format!("there is no tensor map {number}")))
    }

    /// Coordinates of a view in the order of a map's axes, 32 bits wide.
    fn coordinates(&self, values: &[Value], map: &TensorMap) -> Result<Vec<Val>, Error> {
        let e = self.e;
        let one = |&axis: &u8| {
            let value = values.get(axis as usize);
            let value = value.ok_or_else(|| Error::bug("a tensor map has an axis too many"))?;
            Ok(e.trunc(self.scalar(*value)?, e.i32()))
        };
        map.axes.iter().map(one).collect()
    }

    /// How the value of a store is cut into panels.
    fn panels(&self, op: Op) -> Result<Panels, Error> {
        let missing = || Error::bug("a store by the copy engine whose value does not fit its map");
        Panels::of(self.lir, op).ok_or_else(missing)
    }

    /// Writes a panel of a store to its buffer.
    pub(super) fn store_panel(&mut self, panel: &Panel) -> Result<(), Error> {
        let value = self.func.op(panel.op).operands[0];
        let panels = self.panels(panel.op)?;
        let registers = self.get(value)?;
        let first = panels.first_register(panel.number);
        let part = &registers[first..first + panels.span() as usize / 2];
        let start = self.panel_start(panel.buffer)?;
        self.write_panel(&panels, value, part, start);
        Ok(())
    }

    /// Sends a panel to global memory.
    pub(super) fn send_panel(&mut self, panel: &Panel) -> Result<(), Error> {
        let e = self.e;
        let int = |n: u32| e.int(e.i32(), i64::from(n));
        let data = self.func.op(panel.op);
        let OpKind::TmaStore(number) = data.kind else {
            return Err(Error::bug("a panel of what is no store"));
        };
        let store = self.func.tma.stores.get(number as usize);
        let store = store.ok_or_else(|| Error::bug(format!("there is no store {number}")))?;
        let panels = self.panels(panel.op)?;
        let (map, descriptor) = self.tensor_map(store.map)?;
        let mut at = self.coordinates(&data.operands[1..], map)?;
        let groups = self.lir.num_warps / 4;
        let mut first_row = e.mul(self.copies()?.group, int(PANEL_ROWS));
        if self.lir.num_blocks > 1 {
            let of_block = int(panels.blocks * groups * PANEL_ROWS);
            first_row = e.add(first_row, e.mul(self.threads.rank(e), of_block));
        }
        let [block, column] =
            [panel.number / panels.per_block(), panel.number % panels.per_block()];
        let rows = e.add(first_row, int(block * groups * PANEL_ROWS));
        let columns = int(column * panels.span());
        let (along, across) = if panels.transposed { (rows, columns) } else { (columns, rows) };
        at[0] = e.add(at[0], along);
        at[panels.line_axis] = e.add(at[panels.line_axis], across);
        let place = self.shared_at(self.panel_start(panel.buffer)?);
        self.only(self.copies()?.leads, |e| {
            let mut args = vec![place, descriptor];
            args.extend(&at);
            args.extend([e.int(e.i64(), 0), e.bool(false)]);
            let copy = format!("llvm.nvvm.cp.async.bulk.tensor.s2g.tile.{}d", at.len());
            e.intrinsic(&copy, &[], &args);
            e.intrinsic("llvm.nvvm.cp.async.bulk.commit.group", &[], &[]);
        });
        Ok(())
    }

    /// Where one of this warpgroup's panels starts in shared memory.
    fn panel_start(&self, buffer: u32) -> Result<Val, Error> {
        let e = self.e;
        let int = |n: u32| e.int(e.i32(), i64::from(n));
        let copies = self.copies()?;
        let own = e.mul(copies.unit, int(PANELS * PANEL_BYTES));
        Ok(e.add(own, int(copies.staging + buffer * PANEL_BYTES)))
    }

    /// A barrier of this warpgroup.
    pub(super) fn group_barrier(&self) -> Result<(), Error> {
        let e = self.e;
        let first = e.int(e.i32(), thread::FIRST_GROUP_BARRIER);
        thread::named_barrier(e, e.add(self.copies()?.unit, first), 128);
        Ok(())
    }

    /// Waits until the copy engine has read all but so many of this warpgroup's panels.
    pub(super) fn wait_panels(&self, left: u32) -> Result<(), Error> {
        self.only(self.copies()?.leads, |e| {
            let pending = e.int(e.i32(), i64::from(left));
            e.intrinsic("llvm.nvvm.cp.async.bulk.wait.group.read", &[], &[pending]);
        });
        Ok(())
    }

    /// Writes a panel's elements to shared memory, swizzled.
    fn write_panel(&mut self, panels: &Panels, value: Value, registers: &[Val], start: Val) {
        let row_shift = panels.width.ilog2();
        match panels.size {
            2 if panels.transposed => self.write_transposed(registers, start, row_shift),
            2 => self.write_matrices(registers, start, row_shift),
            _ => self.write_pairs(value, registers, start, row_shift),
        }
    }

    /// 16-bit elements, four 8x8 matrices an instruction: rows 0 and 8, then the next 8 columns.
    fn write_matrices(&mut self, registers: &[Val], start: Val, row_shift: u32) {
        let e = self.e;
        let [r0, r1, r2] = swizzled_rows(row_shift);
        let lane = [r0, r1, r2, 8 << row_shift, 16];
        let place = self.in_group(&lane, 16 << row_shift);
        for (i, part) in (0..).zip(registers.chunks(8)) {
            let column = e.int(e.i32(), 32 * i);
            self.store_matrices(part, e.add(start, e.xor(place, column)), "");
        }
    }

    /// The same where a line of the panel is a column: a warp's 16 rows are 32 bytes of each line.
    ///
    /// ```text
    /// line = column 0     rows 0..8 | rows 8..16 | rows of warp 1 ..      matrices 0 and 1
    /// line = column 8     rows 0..8 | rows 8..16 | ..                     matrices 2 and 3
    /// ```
    fn write_transposed(&mut self, registers: &[Val], start: Val, row_shift: u32) {
        let e = self.e;
        let [r0, r1, r2] = swizzled_rows(row_shift);
        let lane = [r0, r1, r2, 16, 8 << row_shift];
        let place = self.in_group(&lane, 32);
        for (i, part) in (0..).zip(registers.chunks(8)) {
            let line = e.int(e.i32(), (16 * i) << row_shift);
            self.store_matrices(part, e.add(start, e.add(place, line)), ".trans");
        }
    }

    /// Four 8x8 matrices of 16-bit elements, each lane's address that of a line of one of them.
    fn store_matrices(&mut self, registers: &[Val], at: Val, how: &str) {
        let e = self.e;
        let words = registers.chunks(2).map(|pair| e.bitcast(e.build_vec(pair), e.i32()));
        let address = self.shared_at(at);
        let args: Vec<Val> = [address].into_iter().chain(words).collect();
        let store = format!("llvm.nvvm.stmatrix.sync.aligned.m8n8.x4{how}.b16");
        e.intrinsic(&store, &[e.type_of(address)], &args);
    }

    /// 32-bit elements, two columns an instruction.
    fn write_pairs(&mut self, value: Value, registers: &[Val], start: Val, row_shift: u32) {
        let e = self.e;
        let [r0, r1, r2] = swizzled_rows(row_shift);
        let lane = [8, 16, r0, r1, r2];
        let place = self.in_group(&lane, 16 << row_shift);
        for (i, pair) in (0..).zip(registers.chunks(2)) {
            let column = e.int(e.i32(), 32 * (i / 2));
            let row = e.int(e.i32(), (i % 2) * (8 << row_shift));
            let at = e.add(start, e.add(e.xor(place, column), row));
            self.write_shared(value, pair, self.shared_at(at), None);
        }
    }

    /// A linear map of the lane and, of so many bytes each, of the 16 rows that each warp of a warpgroup has.
    fn in_group(&mut self, lane: &[u32; 5], warp_bytes: u32) -> Val {
        let warps = self.lir.num_warps.ilog2() as usize;
        let warp: Vec<u32> = (0..warps).map(|i| if i < 2 { warp_bytes << i } else { 0 }).collect();
        self.threads.map(self.e, lane, &warp)
    }
}

/// Where the three lowest bits of a row's number go in a panel with rows of `1 << row_shift` bytes: the
/// row, and what the hardware's swizzle makes of it, which XORs bits 4.. of an address by bits 7..
/// within a row.
fn swizzled_rows(row_shift: u32) -> [u32; 3] {
    [0, 1, 2].map(|bit| {
        let row: u32 = 1 << (row_shift + bit);
        row | row >> 3 & ((1 << row_shift) - 1) & 0x70
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_swizzled_as_the_hardware_does() {
        for row_shift in [5, 6, 7] {
            let bases = swizzled_rows(row_shift);
            for row in 0..8 {
                let plain = row << row_shift;
                let swizzled = plain ^ (plain >> 7 & ((1 << row_shift) / 16 - 1)) << 4;
                assert_eq!(crate::layout::f2::combine(&bases, row), swizzled);
            }
        }
    }
}
