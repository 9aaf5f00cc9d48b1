//! Elements by their rank, of every dtype, against a sort on the host.

use genesis::{DType, Device, Result, Tensor};

use crate::gpu::devices;

/// Numbers of both signs where the dtype has them, with equals among them.
fn values(n: usize, dtype: DType) -> Vec<f64> {
    let number = |i: usize| ((i * 7919 + 13) % 211) as f64;
    let lowest =
        if matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64) { 0.0 } else { 97.0 };
    let range = if dtype.bytes() == 1 { 2.0 } else { 1.0 };
    (0..n).map(|i| ((number(i) - lowest) / range).trunc()).collect()
}

fn agrees(dtype: DType, device: Device) -> Result<()> {
    for n in [65, 300, 5000] {
        let host = values(n, dtype);
        let mut sorted = host.clone();
        sorted.sort_by(f64::total_cmp);
        let x =
            Tensor::from_slice_on(&host, &[n], Device::Cpu)?.to_dtype(dtype)?.to_device(device)?;
        for rank in [1, 2, n / 3, n / 2, n - 1, n] {
            let (value, at) = x.kthvalue(rank, 0, false)?;
            let at = at.item()? as usize;
            let what = format!("rank {rank} of {n} {dtype} on {device}");
            assert_eq!(value.item()?, sorted[rank - 1], "{what}");
            assert_eq!(host[at], sorted[rank - 1], "{what}: its place");
            let (top, _) = x.topk(rank, 0, true)?;
            let wanted: Vec<f64> = sorted.iter().rev().take(rank).copied().collect();
            assert_eq!(top.to_f64_vec()?, wanted, "the largest, {what}");
        }
    }
    Ok(())
}

/// 64 bits are all of a key: of numbers above zero the highest of them is set.
#[test]
fn elements_of_a_rank_are_those_of_a_sort() -> Result<()> {
    use DType::{BF16, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    for device in devices("elements of a rank") {
        for dtype in [F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8] {
            agrees(dtype, device)?;
        }
    }
    Ok(())
}
