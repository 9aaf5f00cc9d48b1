//! Indices that are not there, on a GPU: found by the launch that reads them, told at the next read.
//!
//! A launch does not wait, so that an op on a GPU can't refuse what it has not seen. Its kernel sends a
//! wrong index to a place that is none, so that nothing outside of the tensor is touched, and leaves the
//! number of the op in a flag of the device. Who next brings values to the host finds it there: that read
//! fails with the op's name, and the flag is clear again.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::{Arg, Device};
use kernels::index as device;

use super::launch;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// The ops that leave a flag, by number.
const OPS: [&str; 12] = [
    "index",
    "take",
    "put",
    "gather",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "index_select",
    "index_add",
    "index_copy",
    "index_fill",
    "index_reduce",
];

static FLAGS: Mutex<BTreeMap<Device, Tensor>> = Mutex::new(BTreeMap::new());

/// The flag of a device: one number, 0 where all is well.
#[track_caller]
fn flag(on: Device) -> Result<Tensor> {
    let mut flags = FLAGS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(flag) = flags.get(&on) {
        return Ok(flag.clone());
    }
    let flag = Tensor::zeros(&[1], (DType::I64, on))?;
    flags.insert(on, flag.clone());
    Ok(flag)
}

/// `step` times an index into `extent` elements, where what is below 0 counts from the end. An index that
/// is not there becomes a place far below 0, and sets the flag.
#[track_caller]
pub(super) fn resolve(op: &str, index: &Tensor, extent: usize, step: i64) -> Result<Tensor> {
    let places = Tensor::uninitialized(index.shape(), (DType::I64, index.device()))?;
    let flag = flag(index.device())?;
    let code = OPS.iter().position(|known| *known == op).unwrap_or(0) + 1;
    let number = |value: i64| Arg::Scalar(genesis_kernel::ir::Scalar::int(DType::I64, value));
    let numbers =
        [number(extent as i64), number(step), launch::pointer(&flag, true), number(code as i64)];
    launch::strided(&device::resolve::KERNEL, &[], &[index], &places, &numbers)?;
    Ok(places)
}

/// Refuses where a launch before this found an index that was not there; to be called when the device
/// is done.
pub(crate) fn check(on: Device) -> Result<()> {
    let flags = FLAGS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(flag) = flags.get(&on) else { return Ok(()) };
    let mut bytes = [0; 8];
    flag.storage().buffer().read(0, &mut bytes)?;
    let code = u64::from_le_bytes(bytes) as usize;
    if code == 0 {
        return Ok(());
    }
    launch::fill(flag, genesis_kernel::ir::Scalar::int(DType::I64, 0))?;
    let op = OPS.get(code - 1).copied().unwrap_or("index");
    let message = format!("an index was out of range on {on}; found when values were read");
    Err(Error::op(op, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_index_goes_nowhere_and_is_told_once() -> Result<()> {
        let index = Tensor::from_slice_on(&[1i64, -1, 5, -6, 0], &[5], Device::Cpu)?;
        let places = resolve("gather", &index, 5, 10)?.to_vec::<i64>()?;
        assert_eq!([places[0], places[1], places[4]], [10, 40, 0]);
        assert!(places[2] < -(1 << 60) && places[3] < -(1 << 60));
        let error = check(Device::Cpu).expect_err("5 and -6 are not in 0..5");
        let text = "gather: an index was out of range on cpu; found when values were read";
        assert_eq!(error.to_string(), text);
        check(Device::Cpu)
    }
}
