//! What goes through the copy engine: products whose operands it can bring, stores of their results.

use std::collections::{BTreeMap, BTreeSet};

use super::lines::Line;
use super::operand::{Operand, RESIDENT, operand, resident};
use super::order;
use super::registers::computed;
use super::source::{GRANULE, Source, View, through};
use crate::analysis::axis::AxisAnalysis;
use crate::ir::{
    Channel, DType, DotPrecision, Func, LoopOptions, Multicast, Op, OpKind, Region, TensorMap, Tma,
    TmaLoad, TmaStore, Value,
};
use crate::layout::mma::wgmma_warps;
use crate::tuning::registers::MAX_ACCUMULATORS;
use crate::tuning::shared::{MIN_STAGES, MOST_PANELS_BYTES, PANEL_ROW_BYTES, PANEL_ROWS};

/// Where a tile may begin in a slot: what the widest swizzle repeats after.
const TILE_ALIGNMENT: u32 = 1024;
/// The same of one line, which is not swizzled.
const LINE_ALIGNMENT: u32 = 128;
/// Tensor maps that a launch passes at most.
const MAX_MAPS: usize = 16;

/// What the pass knows of the launch and the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Warps of a block beside the producer's, where the launch says so.
    pub num_warps: Option<u32>,
    /// Blocks of the cluster that is a program; 0 or 1 where it is none.
    pub num_blocks: u32,
    /// Slots of a ring in loops that say nothing of their own.
    pub num_stages: Option<u32>,
    /// The most shared memory of a block, in bytes.
    pub max_shared_bytes: u32,
}

/// Which ops become which entries of the tables.
#[derive(Default)]
pub(super) struct Plan {
    pub tma: Tma,
    /// Loads: what stands for each.
    pub loads: BTreeMap<Op, Vec<TmaOperand>>,
    /// Stores: the entry, and the tile of rank 2 that is stored.
    pub stores: BTreeMap<Op, (u8, Value)>,
    /// Ops between loads and their dots, which go.
    pub gone: BTreeSet<Op>,
    /// Regions whose products read the same tiles, with the channel that brings them all.
    common: BTreeMap<Region, Option<u8>>,
    /// Operands of products that other products read too, as what stands for them in the new function.
    pub shared: Vec<(TmaOperand, Value)>,
}

/// A load by the copy engine, for one `dot`.
#[derive(Clone, Copy)]
pub(super) struct TmaOperand {
    /// The entry.
    pub number: u8,
    /// The operand that it stands for.
    pub tile: Value,
    /// The product whose operand it is, where others read what was loaded too.
    pub only_for: Option<Op>,
}

/// A `dot` that can read both operands in shared memory.
struct Product {
    dot: Op,
    region: Region,
    /// What the copy engine brings: the left operand or what it is computed from, then the right one.
    operands: Vec<Operand>,
    /// M, N.
    shape: [u32; 2],
    /// Rows of a block, where a program is a cluster of several.
    rows: u32,
    stages: u32,
    /// Whether the sums of each dot are promoted: accumulated in as many registers again, then added in f32.
    promoted: bool,
}

impl Plan {
    /// What can be done in a function; none if nothing.
    pub(super) fn of(func: &Func, options: &Options) -> Option<Plan> {
        let uses = func.count_uses();
        let blocks = u8::try_from(options.num_blocks.max(1)).ok()?;
        let axes = AxisAnalysis::of(func);
        let mut products = Vec::new();
        for op in func.walk() {
            if let OpKind::For(loop_options) = func.op(op).kind {
                let stages = stages(loop_options, options);
                let region = func.op(op).regions[0];
                let dots = func.region(region).ops.iter();
                let found = |&op: &Op| product(func, &uses, (region, op), stages, blocks);
                products.extend(dots.filter_map(found).filter(|p| p.is_aligned(func, &axes)));
            }
        }
        let fewest = products.iter().map(|product| wgmma_warps(product.rows)).min()?;
        let warps = options.num_warps.unwrap_or(fewest);
        products.retain(|product| product.suits(warps));
        add_lines(func, &axes, &mut products);
        let mut plan = Plan { common: common(&products), ..Plan::default() };
        for product in &products {
            plan.add_product(func, &uses, product)?;
        }
        plan.round_slots();
        plan.shrink(&products, options);
        plan.fits(options).then_some(())?;
        plan.add_stores(func, &axes, &products);
        (!plan.tma.loads.is_empty()).then_some(plan)
    }

    /// Lets every slot begin where a tile may.
    fn round_slots(&mut self) {
        for channel in &mut self.tma.channels {
            channel.slot_bytes = channel.slot_bytes.next_multiple_of(TILE_ALIGNMENT);
        }
    }

    /// Whether every ring can have as many slots as hide any latency.
    fn fits(&self, options: &Options) -> bool {
        self.least_bytes() < options.max_shared_bytes
    }

    /// Bytes of rings that hide some latency.
    fn least_bytes(&self) -> u32 {
        let least = |channel: &Channel| match channel.stages {
            RESIDENT => channel.slot_bytes,
            _ => MIN_STAGES * channel.slot_bytes,
        };
        self.tma.channels.iter().map(least).sum()
    }

    /// Gives operands of loops one slot where two leave too little for the others.
    fn shrink(&mut self, products: &[Product], options: &Options) {
        if self.least_bytes() + MOST_PANELS_BYTES < options.max_shared_bytes {
            return;
        }
        let operands = products.iter().flat_map(|product| &product.operands);
        let loads: Vec<Op> =
            operands.filter(|o| o.resident.is_some()).map(|o| o.source.load).collect();
        let brought = loads.iter().filter_map(|load| self.loads.get(load)).flatten();
        for &TmaOperand { number, .. } in brought {
            let channel = self.tma.loads[usize::from(number)].channel;
            self.tma.channels[usize::from(channel)].stages = RESIDENT;
        }
    }

    fn add_product(&mut self, func: &Func, uses: &[u32], product: &Product) -> Option<()> {
        let (resident, moving): (Vec<&Operand>, Vec<&Operand>) =
            product.operands.iter().partition(|operand| operand.resident.is_some());
        if let Some(stages) = resident.first().and_then(|operand| operand.resident) {
            let channel = self.add_channel(stages)?;
            resident
                .iter()
                .try_for_each(|operand| self.bring(func, uses, product, operand, channel))?;
        }
        // What threads read themselves is read by whatever uses it.
        let moving = moving.into_iter().filter(|operand| !self.is_in_registers(operand));
        let (again, new): (Vec<&Operand>, Vec<&Operand>) =
            moving.partition(|operand| self.brought(product, operand).is_some());
        for operand in again {
            let load = self.brought(product, operand)?;
            self.push(func, uses, product, operand, load)?;
        }
        if new.is_empty() {
            return Some(());
        }
        let channel = self.channel_of(product)?;
        new.iter().try_for_each(|operand| self.bring(func, uses, product, operand, channel))
    }

    /// The channel of what a product's loop brings.
    fn channel_of(&mut self, product: &Product) -> Option<u8> {
        match self.common.get(&product.region).copied() {
            Some(Some(channel)) => Some(channel),
            Some(None) => {
                let channel = self.add_channel(product.stages)?;
                self.common.insert(product.region, Some(channel));
                Some(channel)
            }
            None => self.add_channel(product.stages),
        }
    }

    /// Adds a ring.
    fn add_channel(&mut self, stages: u32) -> Option<u8> {
        let channel = u8::try_from(self.tma.channels.len()).ok()?;
        self.tma.channels.push(Channel { stages, slot_bytes: 0 });
        Some(channel)
    }

    /// The load of an operand for a product before this one, in whose slot this one can find it too.
    fn brought(&self, product: &Product, operand: &Operand) -> Option<TmaLoad> {
        let brought = self.loads.get(&operand.source.load)?.first()?;
        let load = self.tma.loads.get(usize::from(brought.number))?;
        let is_shared = self.common.get(&product.region) == Some(&Some(load.channel));
        let is_same = self.tma.maps.get(usize::from(load.map)) == Some(&operand.map)
            && (load.bytes, load.multicast) == (operand.bytes, operand.multicast)
            && !load.registers
            && !operand.registers;
        let contiguous = operand.contiguous;
        (is_shared && is_same).then(|| TmaLoad { contiguous, ..load.clone() })
    }

    /// Whether a product before this one made threads read what this one is computed from.
    fn is_in_registers(&self, operand: &Operand) -> bool {
        let brought = self.loads.get(&operand.source.load).into_iter().flatten();
        let mut loads =
            brought.filter_map(|brought| self.tma.loads.get(usize::from(brought.number)));
        operand.registers && loads.any(|load| load.registers)
    }

    /// Brings an operand to the end of a channel's slots.
    fn bring(
        &mut self,
        func: &Func,
        uses: &[u32],
        product: &Product,
        operand: &Operand,
        channel: u8,
    ) -> Option<()> {
        let map = self.map(&operand.map)?;
        let slot_bytes = &mut self.tma.channels[usize::from(channel)].slot_bytes;
        let alignment = if operand.is_line() { LINE_ALIGNMENT } else { TILE_ALIGNMENT };
        let offset = slot_bytes.next_multiple_of(alignment);
        let Operand { bytes, contiguous, registers, multicast, .. } = *operand;
        *slot_bytes = offset + bytes;
        let constant = func.params[operand.map.param as usize].attrs.constant;
        let load =
            TmaLoad { map, channel, offset, bytes, contiguous, registers, multicast, constant };
        self.push(func, uses, product, operand, load)
    }

    /// Lets a load stand for an operand of a product.
    fn push(
        &mut self,
        func: &Func,
        uses: &[u32],
        product: &Product,
        operand: &Operand,
        load: TmaLoad,
    ) -> Option<()> {
        let number = u8::try_from(self.tma.loads.len()).ok()?;
        let registers = load.registers;
        self.tma.loads.push(load);
        let Source { load, chain, .. } = &operand.source;
        let is_alone = |op: &Op| uses[func.op(*op).results[0].index()] == 1;
        // A tile that threads read is read by whatever uses it.
        let is_alone = registers || (is_alone(load) && chain.iter().all(is_alone));
        let only_for = (!is_alone).then_some(product.dot);
        let brought = TmaOperand { number, tile: operand.tile, only_for };
        self.loads.entry(*load).or_default().push(brought);
        if is_alone {
            self.gone.extend(chain);
        }
        Some(())
    }

    fn map(&mut self, map: &TensorMap) -> Option<u8> {
        let maps = &mut self.tma.maps;
        let found = maps.iter().position(|other| other == map).unwrap_or_else(|| {
            maps.push(map.clone());
            maps.len() - 1
        });
        u8::try_from(found).ok().filter(|_| found < MAX_MAPS)
    }

    fn add_stores(&mut self, func: &Func, axes: &AxisAnalysis, products: &[Product]) {
        let made = made_by(func, products);
        for op in func.walk() {
            // The copy engine knows edges and no masks.
            if func.op(op).kind != OpKind::ViewStore || is_masked(func, op) {
                continue;
            }
            let found = store(func, op, products, &made);
            let is_aligned = |(_, map, _): &(Value, TensorMap, u8)| {
                starts_aligned(func, axes, func.op(op).operands[2..][usize::from(map.axes[0])], map)
            };
            let Some((tile, map, contiguous)) = found.filter(is_aligned) else { continue };
            let entry = u8::try_from(self.tma.stores.len()).ok();
            if let (Some(entry), Some(map)) = (entry, self.map(&map)) {
                self.tma.stores.push(TmaStore { map, contiguous });
                self.stores.insert(op, (entry, tile));
            }
        }
    }
}

/// Whether a store of a view has a mask behind its coordinates.
fn is_masked(func: &Func, op: Op) -> bool {
    let operands = &func.op(op).operands;
    operands.len() > 2 + func.tile(operands[1]).shape.rank()
}

fn stages(of_loop: LoopOptions, options: &Options) -> u32 {
    match of_loop.stages {
        0 => options.num_stages.unwrap_or(0),
        stages => u32::from(stages),
    }
}

impl Product {
    /// Whether the copy engine can start where the loads of the operands do.
    fn is_aligned(&self, func: &Func, axes: &AxisAnalysis) -> bool {
        self.operands.iter().all(|Operand { source, map, .. }| {
            let start = func.op(source.load).operands[1..][usize::from(source.view.unit)];
            starts_aligned(func, axes, start, map)
        })
    }

    /// Whether this many warps can share it.
    fn suits(&self, warps: u32) -> bool {
        let (m, n) = (self.rows, self.shape[1]);
        matches!(warps, 4 | 8 | 16)
            && m.is_multiple_of(16 * warps)
            && m * n / (32 * warps) <= MAX_ACCUMULATORS / if self.promoted { 2 } else { 1 }
    }
}

/// Whether the boxes of a map start at multiples of 16 bytes along its contiguous axis, where `start` is
/// their first element. The copy engine faults at others, however the view lies in memory.
fn starts_aligned(func: &Func, axes: &AxisAnalysis, start: Value, map: &TensorMap) -> bool {
    let bytes = axes.of_value(func, start).divisor * map.dtype.bytes() as u64;
    bytes.is_multiple_of(GRANULE)
}

/// A `dot` whose operands are loaded in the same region, in shapes that the tensor cores of each of some
/// blocks take.
fn product(
    func: &Func,
    uses: &[u32],
    (region, dot): (Region, Op),
    stages: u32,
    blocks: u8,
) -> Option<Product> {
    let data = func.op(dot);
    let OpKind::Dot { precision } = data.kind else { return None };
    let tiles = [0, 1, 2].map(|i| func.tile(data.operands[i]));
    let [m, k] = [0, 1].map(|axis| tiles[0].shape.extent(axis));
    let n = tiles[1].shape.extent(1);
    let size = match (tiles[0].dtype(), tiles[1].dtype(), tiles[2].dtype(), precision) {
        (DType::BF16, DType::BF16, DType::F32, _) | (DType::F16, DType::F16, DType::F32, _) => 2,
        (DType::F32, DType::F32, DType::F32, DotPrecision::Tf32) => 4,
        (a, b, DType::F32, _) if a == b && a.is_f8() => 1,
        (DType::I8, DType::I8, DType::I32, _) | (DType::U8, DType::U8, DType::I32, _) => 1,
        _ => return None,
    };
    let rows = m / usize::from(blocks);
    let fits = rows > 0
        && rows.is_multiple_of(64)
        && (8..=256).contains(&n)
        && (k * size).is_multiple_of(32)
        && [m, n, k].iter().all(|extent| extent.is_power_of_two());
    if !fits {
        return None;
    }
    let [own, all] = match blocks {
        1 => [Multicast::None; 2],
        _ => [Multicast::Partition(blocks), Multicast::All(blocks)],
    };
    let [a, b] = [data.operands[0], data.operands[1]];
    let left = operand(func, uses, region, (a, 1), own)
        .or_else(|| resident(func, uses, region, (a, 1)).filter(|_| blocks == 1))
        .filter(Operand::is_factor);
    let mut operands = match left {
        Some(left) => vec![left],
        // Blocks share what only the tensor cores read.
        None if blocks > 1 => return None,
        None => computed(func, uses, region, a)?,
    };
    operands.push(operand(func, uses, region, (b, 0), all).filter(Operand::is_factor)?);
    let (shape, rows) = ([m as u32, n as u32], rows as u32);
    let promoted = tiles[0].dtype().is_f8() && precision == DotPrecision::Ieee;
    Some(Product { dot, region, operands, shape, rows, stages, promoted })
}

/// The regions where two products read what one load brings: what they bring has one channel, whose slots go back behind
/// the last of them, once that one's MMAs are complete. Those of the others are by then, too.
fn common(products: &[Product]) -> BTreeMap<Region, Option<u8>> {
    let mut regions: BTreeMap<Region, Vec<&Product>> = BTreeMap::new();
    products.iter().for_each(|product| regions.entry(product.region).or_default().push(product));
    regions.retain(|_, products| {
        let moving = |product: &&Product| {
            let moving = product.operands.iter().filter(|operand| operand.resident.is_none());
            moving.map(|operand| operand.source.load).collect::<BTreeSet<Op>>()
        };
        let loads: Vec<BTreeSet<Op>> = products.iter().map(moving).collect();
        let all: BTreeSet<Op> = loads.iter().flatten().copied().collect();
        all.len() < loads.iter().map(BTreeSet::len).sum()
    });
    regions.into_keys().map(|region| (region, None)).collect()
}

/// Lets lines that are loaded in the loops of products come with them, each with the one that follows.
fn add_lines(func: &Func, axes: &AxisAnalysis, products: &mut [Product]) {
    let walk = func.walk();
    for region in walk.iter().flat_map(|&op| &func.op(op).regions) {
        let ops = &func.region(*region).ops;
        for (at, &load) in ops.iter().enumerate() {
            let follows = |product: &&mut Product| ops[at..].contains(&product.dot);
            let Some(line) = Line::of(func, load) else { continue };
            let start = func.op(load).operands[1..][line.axis];
            let next = products
                .iter_mut()
                .filter(follows)
                .min_by_key(|product| ops.iter().position(|&op| op == product.dot));
            if let Some(product) = next.filter(|_| starts_aligned(func, axes, start, &line.map)) {
                product.operands.push(Operand::of_line(func, load, line));
            }
        }
    }
}

/// Values that are computed element by element from what the products made.
fn made_by(func: &Func, products: &[Product]) -> Vec<bool> {
    let mut made = vec![false; func.n_values()];
    // Owners come before what they own, so results of loops are seen on the way back.
    let walk = func.walk();
    for _ in 0..2 {
        for &op in walk.iter().rev().chain(&walk) {
            let data = func.op(op);
            let is_product = products.iter().any(|product| product.dot == op);
            let follows =
                data.kind.is_elementwise() && data.operands.iter().any(|v| made[v.index()]);
            if is_product || follows {
                data.results.iter().for_each(|v| made[v.index()] = true);
            }
            for &region in &data.regions {
                let Some(&last) = func.region(region).ops.last() else { continue };
                let last = func.op(last);
                if matches!(last.kind, OpKind::Yield) && matches!(data.kind, OpKind::For(_)) {
                    for (result, yielded) in data.results.iter().zip(&last.operands) {
                        made[result.index()] |= made[yielded.index()];
                    }
                }
            }
        }
    }
    made
}

/// The tile of rank 2 that a store writes, the map that does it, and the tile's axis that lies contiguous in memory.
fn store(
    func: &Func,
    op: Op,
    products: &[Product],
    made: &[bool],
) -> Option<(Value, TensorMap, u8)> {
    let data = func.op(op);
    let view = View::of(func, data.operands[0]).filter(|_| order::allows_copy(func, op))?;
    let mut chain = Vec::new();
    let mut tile = data.operands[1];
    while func.tile(tile).shape.rank() != 2 {
        let op = func.def_op(tile)?;
        let (OpKind::Reshape | OpKind::ExpandDims { .. }) = func.op(op).kind else { return None };
        chain.push(op);
        tile = func.op(op).operands[0];
    }
    let axes =
        chain.iter().rev().try_fold(vec![Some(0), Some(1)], |axes, &op| through(func, op, axes))?;
    let ty = func.tile(tile);
    let [m, n] = [0, 1].map(|axis| ty.shape.extent(axis) as u32);
    let size = ty.dtype().bytes() as u32;
    let contiguous = axes.get(usize::from(view.unit)).copied().flatten()?;
    let is_cut = match contiguous {
        1 => matches!(size, 2 | 4) && (n * size).is_multiple_of(PANEL_ROW_BYTES),
        // Matrices of 16-bit elements are transposed as they are stored.
        _ => size == 2 && n.is_multiple_of(PANEL_ROWS),
    };
    let fits =
        made[tile.index()] && is_cut && products.iter().any(|product| product.shape == [m, n]);
    let is_row = |axis: Option<u8>| axis.is_some_and(|axis| axis != contiguous);
    let block: Vec<u32> =
        axes.iter().map(|&axis| if is_row(axis) { PANEL_ROWS } else { 1 }).collect();
    let map = fits.then(|| view.map(&block, PANEL_ROW_BYTES, &[])).flatten()?;
    Some((tile, map, contiguous))
}
