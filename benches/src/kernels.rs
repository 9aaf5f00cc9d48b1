//! A kernel whose launch is timed: the tutorial's vector add.

use genesis_kernel::kernel::Grid;
use genesis_kernel::prelude::*;
use genesis_kernel::runtime::{Array, Stream};

/// `out = x + y`
#[kernel]
pub(crate) fn vector_add<const BLOCK: usize>(x: Ptr<f32>, y: Ptr<f32>, out: PtrMut<f32>, n: i64) {
    let i = program_id(0) * BLOCK + arange::<BLOCK>();
    let mask = i < n;
    store(out + i, load(x + i, mask) + load(y + i, mask), mask);
}

/// Three small arrays to launch on.
pub(crate) struct Add {
    stream: Stream,
    arrays: std::cell::RefCell<[Array<f32>; 3]>,
}

impl Add {
    pub(crate) fn new(stream: &Stream) -> anyhow::Result<Add> {
        let array = || Array::zeros(stream, 1024);
        let arrays = [array()?, array()?, array()?];
        Ok(Add { stream: stream.clone(), arrays: arrays.into() })
    }

    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let [x, y, out] = &mut *self.arrays.borrow_mut();
        let consts = vector_add::Consts { BLOCK: 1024 };
        // SAFETY: the arrays hold 1024 elements each, which is what `n` says.
        unsafe { vector_add::launch(&self.stream, Grid::x(1), consts, (&*x, &*y, out, 1024i64))? };
        Ok(())
    }
}
