//! Operands of products as the copy engine brings them: tiles of a view, swizzled for the tensor cores.

use super::lines::Line;
use super::source::Source;
use crate::ir::{DType, Func, Multicast, Op, Region, TensorMap, Value};
use crate::tuning::shared::RESIDENT_ELEMENTS;

/// Slots of an operand that is brought once.
pub(super) const RESIDENT: u32 = 1;
/// Slots of an operand that is brought anew for each of several loops: that of the next one comes while
/// this one is read.
const RESIDENT_AGAIN: u32 = 2;
/// Lines of a panel after which every swizzle starts anew.
const SWIZZLED_LINES: u32 = 8;

pub(super) struct Operand {
    pub(super) source: Source,
    pub(super) tile: Value,
    pub(super) map: TensorMap,
    pub(super) bytes: u32,
    pub(super) contiguous: u8,
    /// Whether that axis is K.
    pub(super) along_k: bool,
    /// Whether threads read it into registers.
    pub(super) registers: bool,
    pub(super) multicast: Multicast,
    /// Slots, where it is brought before the loop of its product.
    pub(super) resident: Option<u32>,
}

impl Operand {
    pub(super) fn is_line(&self) -> bool {
        self.map.swizzle == 0
    }

    /// A line, which threads read.
    pub(super) fn of_line(func: &Func, load: Op, line: Line) -> Operand {
        let Line { map, view, axis, bytes } = line;
        Operand {
            source: Source { load, view, axes: [vec![], vec![]], chain: vec![] },
            tile: func.op(load).results[0],
            map,
            bytes,
            contiguous: axis as u8,
            along_k: false,
            registers: true,
            multicast: Multicast::None,
            resident: None,
        }
    }

    /// Whether `wgmma` can read it: only 16-bit operands may have M or N contiguous.
    pub(super) fn is_factor(&self) -> bool {
        self.along_k || self.map.dtype.bytes() == 2
    }
}

/// An operand whose axis of K is `k`, loaded in this region.
pub(super) fn operand(
    func: &Func,
    uses: &[u32],
    region: Region,
    (tile, k): (Value, usize),
    multicast: Multicast,
) -> Option<Operand> {
    let source = Source::of(func, uses, tile)?;
    if !func.region(region).ops.contains(&source.load) {
        return None;
    }
    let ty = func.tile(tile);
    let size = ty.dtype().bytes() as u32;
    let (contiguous, beside) = source.contiguous()?;
    let mut extents = [0, 1].map(|axis| ty.shape.extent(axis) as u32);
    extents[0] /= multicast.parts();
    let loaded = func.tile(func.op(source.load).results[0]).shape;
    let mut block: Vec<u32> = loaded.extents().iter().map(|&extent| extent as u32).collect();
    // What one block brings.
    let lines = extents[1 - contiguous] / multicast.shares();
    if !lines.is_multiple_of(SWIZZLED_LINES) && multicast.shares() > 1 {
        return None;
    }
    match (&source.axes[0][..], &source.axes[1][..]) {
        ([first], [second]) => {
            block[usize::from(*first)] = extents[0];
            block[usize::from([*first, *second][1 - contiguous])] = lines;
        }
        _ if multicast.parts() * multicast.shares() > 1 => return None,
        _ => {}
    }
    let wide = block[usize::from(source.view.unit)] * size;
    let panel = [128, 64, 32].into_iter().find(|&panel| wide.is_multiple_of(panel))?;
    if !beside.is_empty() && panel != wide {
        return None;
    }
    // What multiplies f32 here is tf32.
    let map = source.view.map(&block, panel, beside)?;
    let map = TensorMap { tf32: ty.dtype() == DType::F32, ..map };
    let bytes = extents[0] * extents[1] * size;
    let along_k = contiguous == k;
    let contiguous = contiguous as u8;
    Some(Operand {
        source,
        tile,
        map,
        bytes,
        contiguous,
        along_k,
        registers: false,
        multicast,
        resident: None,
    })
}

/// A left operand that is loaded before the loop of its product: it stays in shared memory, where it
/// would take registers else. Small ones are as well off there.
pub(super) fn resident(
    func: &Func,
    uses: &[u32],
    inner: Region,
    (tile, k): (Value, usize),
) -> Option<Operand> {
    if func.tile(tile).shape.numel() < RESIDENT_ELEMENTS {
        return None;
    }
    let load = Source::of(func, uses, tile)?.load;
    let is_in = |region: &Region| func.region(*region).ops.contains(&load);
    let (region, stages) = match is_in(&func.body) {
        true => (func.body, RESIDENT),
        false => {
            let walk = func.walk();
            let mut regions = walk.iter().flat_map(|&op| &func.op(op).regions);
            (*regions.find(|region| is_in(region))?, RESIDENT_AGAIN)
        }
    };
    let found =
        operand(func, uses, region, (tile, k), Multicast::None).filter(|_| region != inner)?;
    Some(Operand { resident: Some(stages), ..found })
}
