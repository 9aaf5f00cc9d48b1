//! Tiles that the copy engine reads and writes.

use std::rc::Rc;

use super::{Checked, Role};
use crate::interp::Elements;
use crate::ir::{Op, Shape, TensorMap, Value};

/// A view's argument.
pub(super) struct ViewArgument {
    pub(super) ptr: u64,
    pub(super) dims: Vec<i64>,
    pub(super) strides: Vec<i64>,
}

impl Role<'_> {
    /// The tile of a load.
    pub(super) fn tile_of(&mut self, op: Op, map: u8, contiguous: u8) -> Result<Elements, String> {
        let func = &self.lir.func;
        let data = func.op(op);
        let map = &func.tma.maps[usize::from(map)];
        let shape = func.tile(data.results[0]).shape;
        let addresses = self.tile_addresses(map, shape, contiguous.into(), &data.operands)?;
        let read = |address: Option<u64>| match address {
            Some(address) => self.tiles.read(address, map.dtype),
            None => Ok(0),
        };
        addresses.into_iter().map(read).collect::<Result<Vec<u64>, String>>().map(Rc::new)
    }

    /// Writes the tile of a store.
    pub(super) fn tma_store(&mut self, op: Op) -> Checked {
        let func = &self.lir.func;
        let data = func.op(op);
        let crate::ir::OpKind::TmaStore(number) = data.kind else {
            return Err("no store by the copy engine".to_owned());
        };
        if !self.waited {
            return Err("memory is written that the primary grid may touch".to_owned());
        }
        let store = &func.tma.stores[usize::from(number)];
        let map = &func.tma.maps[usize::from(store.map)];
        let value = data.operands[0];
        self.registers(&[value])?;
        let shape = func.tile(value).shape;
        let contiguous = store.contiguous.into();
        let addresses = self.tile_addresses(map, shape, contiguous, &data.operands[1..])?;
        let elements = self.tiles.elements(value).ok_or("a store of nothing")?;
        for (address, &bits) in addresses.into_iter().zip(elements.iter()) {
            if let Some(address) = address {
                self.tiles.write(address, map.dtype, bits)?;
            }
        }
        Ok(())
    }

    /// The address of each element of a tile, row-major; none beyond the view's extents.
    fn tile_addresses(
        &self,
        map: &TensorMap,
        shape: Shape,
        contiguous: usize,
        coords: &[Value],
    ) -> Result<Vec<Option<u64>>, String> {
        let view = self.launch.views[map.param as usize].as_ref().ok_or("a map of no view")?;
        let coords = coords.iter().map(|&c| self.number(c)).collect::<Result<Vec<i64>, _>>()?;
        let extents = shape.extents();
        // The view's axis behind each axis of the tile.
        let many: Vec<usize> = (1..map.axes.len()).filter(|&i| map.block[i] > 1).collect();
        let row = match many.as_slice() {
            [] => map.axes.get(1).copied().unwrap_or(0),
            [one] => map.axes[*one],
            _ => return Err("a box of several axes is not interpreted".to_owned()),
        };
        let behind = |axis: usize| if axis == contiguous { map.axes[0] } else { row };
        let numel: usize = extents.iter().product();
        let address = |mut number: usize| {
            let mut at = coords.clone();
            for (axis, &extent) in extents.iter().enumerate().rev() {
                at[usize::from(behind(axis))] += (number % extent) as i64;
                number /= extent;
            }
            let inside = at.iter().zip(&view.dims).all(|(i, n)| (0..*n).contains(i));
            let offset: i64 = at.iter().zip(&view.strides).map(|(i, stride)| i * stride).sum();
            inside.then(|| view.ptr.wrapping_add_signed(offset * map.dtype.bytes() as i64))
        };
        Ok((0..numel).map(address).collect())
    }
}
