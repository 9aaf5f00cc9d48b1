//! Tensors by name from some ranks to the first of a group, one at a time, so that its device holds one of them.

use std::collections::BTreeMap;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;
use serde::{Deserialize, Serialize};

use super::group::ProcessGroup;
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

const NAME: &str = "distributed";

/// What a rank tells the first one of the tensors that it sends.
#[derive(Serialize, Deserialize)]
struct Told {
    tensors: Vec<(String, Vec<usize>, String)>,
    numbers: BTreeMap<String, f64>,
}

/// Tensors in the order of ranks, and numbers.
pub(crate) type Collected = (Vec<(String, Tensor)>, BTreeMap<String, f64>);

/// Tensors and numbers of all ranks of a group on the first one, in the order of ranks; nothing on the others. Tensors go
/// to a device one by one. All ranks call it.
pub(crate) fn collect(
    group: &ProcessGroup,
    own: Vec<(String, Tensor)>,
    numbers: BTreeMap<String, f64>,
    to: Device,
) -> Result<Collected> {
    if group.rank() == 0 {
        let (mut all, mut numbers) = (own, numbers);
        for rank in 1..group.size() {
            let told = listen(group, rank)?;
            numbers.extend(told.numbers);
            for (name, shape, dtype) in told.tensors {
                let tensor = room(group, &shape, dtype_of(&dtype)?)?;
                group.receive(&tensor, rank)?;
                all.push((name, tensor.to_device(to)?));
            }
        }
        return Ok((all, numbers));
    }
    let told =
        |(name, t): &(String, Tensor)| (name.clone(), t.shape().to_vec(), t.dtype().to_string());
    let told = Told { tensors: own.iter().map(told).collect(), numbers };
    let text = serde_json::to_vec(&told).map_err(|error| Error::op(NAME, error.to_string()))?;
    let device = group.device();
    group.send(&Tensor::from_slice_on(&[text.len() as i64], &[1], device)?, 0)?;
    group.send(&Tensor::from_slice_on(&text, &[text.len()], device)?, 0)?;
    for (_, tensor) in own {
        group.send(&tensor.detach().to_device(device)?.contiguous()?, 0)?;
    }
    Ok(Collected::default())
}

/// What a rank says that it will send.
fn listen(group: &ProcessGroup, rank: usize) -> Result<Told> {
    let length = room(group, &[1], DType::I64)?;
    group.receive(&length, rank)?;
    let text = room(group, &[length.item()? as usize], DType::U8)?;
    group.receive(&text, rank)?;
    serde_json::from_slice(&text.to_vec::<u8>()?)
        .map_err(|error| Error::op(NAME, format!("rank {rank}: {error}")))
}

fn room(group: &ProcessGroup, shape: &[usize], dtype: DType) -> Result<Tensor> {
    no_grad(|| Tensor::empty(shape, (dtype, group.device())))
}

fn dtype_of(name: &str) -> Result<DType> {
    let known = [DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::U8];
    let found = known.into_iter().find(|dtype| dtype.to_string() == name);
    found.ok_or_else(|| Error::op(NAME, format!("a rank sends {name}, which is not known")))
}
