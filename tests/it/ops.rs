//! Tests generated from the table of ops: forward and refusals; `gradients` has theirs.
//!
//! A sample is drawn in f64, rounded to the dtype, and laid out in several ways; the reference sees
//! the rounded values, so what is left is the op's own error. Tolerances are by family and dtype.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use genesis::ops::info::{Dense, Family, OpInfo, Sample, all, methods};
use genesis::{DType, Device, Tensor};
use genesis_kernel::ir::Scalar;

/// Devices that the ops run on: the CPU, and a GPU where one is.
pub(crate) fn devices() -> Vec<Device> {
    crate::gpu::devices("the table of ops")
}

/// Numbers that are the same in every run.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// How an input lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lay {
    Contiguous,
    /// Every second element of a longer last axis.
    Stepped,
    /// The transpose of a tensor that was written transposed.
    Transposed,
    /// The middle of a larger tensor.
    Narrowed,
}

const LAYS: [Lay; 4] = [Lay::Contiguous, Lay::Stepped, Lay::Transposed, Lay::Narrowed];

fn lay_out(x: &Tensor, lay: Lay) -> genesis::Result<Tensor> {
    let rank = x.rank();
    match lay {
        Lay::Stepped if rank > 0 => {
            let pair = [x.shape(), &[2]].concat();
            let wide = x.unsqueeze(-1)?.broadcast_to(&pair)?.copy()?;
            let mut shape = x.shape().to_vec();
            shape[rank - 1] *= 2;
            wide.reshape(&shape)?.step(-1, 2)
        }
        Lay::Transposed if rank > 1 => x.t()?.copy()?.t(),
        Lay::Narrowed if rank > 0 && x.numel() > 0 => {
            let extent = x.shape()[0];
            let tripled = [&[3], x.shape()].concat();
            let mut joined = x.shape().to_vec();
            joined[0] *= 3;
            x.broadcast_to(&tripled)?.copy()?.reshape(&joined)?.narrow(0, extent, extent)
        }
        _ => Ok(x.clone()),
    }
}

/// The inputs of a sample: as the reference sees them, and as tensors.
pub(crate) fn inputs(
    info: &OpInfo,
    sample: Sample,
    dtype: DType,
    lay: Lay,
    device: Device,
) -> genesis::Result<(Vec<Dense>, Vec<Tensor>)> {
    let mut draw = Draw(0x5EED ^ sample.len() as u64);
    let mut dense = Vec::new();
    let mut tensors = Vec::new();
    for (index, shape) in sample.iter().enumerate() {
        let bound = info.index_inputs.iter().find(|(input, _)| *input == index).map(|&(_, n)| n);
        let dtype = if bound.is_some() { DType::I64 } else { dtype };
        let (low, high) = bound.map_or(info.range, |n| (0.0, n as f64));
        let is_float = dtype.is_float();
        let low = if dtype.is_unsigned_int() { low.max(0.0) } else { low };
        let values: Vec<f64> = (0..shape.iter().product::<usize>())
            .map(|_| low + draw.next() * (high - low))
            .map(|v| if is_float && !info.is_whole { v } else { v.floor() })
            .collect();
        let x = Tensor::from_f64(&values, shape, (dtype, device))?;
        dense.push(Dense { shape: shape.to_vec(), data: x.to_f64_vec()? });
        tensors.push(lay_out(&x, lay)?);
    }
    Ok((dense, tensors))
}

/// The distance from one number of a dtype to the next at this size.
fn ulp(dtype: DType, value: f64) -> f64 {
    let (bits, least) = match dtype {
        DType::F16 => (10, -24),
        DType::BF16 => (7, -133),
        DType::F32 => (23, -149),
        DType::F8E4M3 => (3, -9),
        DType::F8E5M2 => (2, -16),
        _ => (52, -1074),
    };
    let exponent =
        if value == 0.0 { least } else { (value.abs().log2().floor() as i32 - bits).max(least) };
    2f64.powi(exponent)
}

/// The error that is allowed at one element.
fn allowed(info: &OpInfo, dtype: DType, reference: f64, scale: f64, k: usize) -> f64 {
    let one = ulp(dtype, reference);
    let is_half = matches!(dtype, DType::F16 | DType::BF16);
    let eps = ulp(dtype, 1.0);
    match info.family {
        _ if !dtype.is_float() => 0.0,
        Family::Exact => 0.5 * one,
        Family::Arithmetic => {
            if is_half {
                one
            } else {
                0.5 * one * 1.000001
            }
        }
        // The f64 references are sums and quotients of their own, good to a few ULP; the functions
        // themselves are held to 2 ULP by the compiler's tests against a longer format.
        Family::Transcendental if dtype == DType::F64 => 30.0 * one,
        Family::Transcendental => {
            if is_half {
                one
            } else {
                6.0 * one
            }
        }
        // Near a zero of the whole, the rounding of its parts remains.
        Family::Chain if dtype == DType::F64 => 30.0 * eps,
        Family::Chain => one + 2.0 * if is_half { ulp(DType::F32, 1.0) } else { eps },
        Family::Sum | Family::Mean => 4.0 * eps * scale + one,
        Family::Softmax => match dtype {
            DType::F32 => 1e-5 + 2e-6 * reference.abs(),
            DType::F64 => 1e-12,
            _ => 4.0 * eps * reference.abs().max(0.05),
        },
        // Tensor cores keep 13 bits of what they add.
        Family::MatMul if dtype.is_f8() => 2f64.powi(-12) * scale,
        Family::MatMul => {
            let wide = if is_half { ulp(DType::F32, 1.0) } else { eps };
            2.0 * (k as f64).sqrt() * wide * scale + one
        }
    }
}

/// A bound on the sum of magnitudes that a result element comes from.
fn magnitude(info: &OpInfo, dense: &[Dense]) -> (f64, usize) {
    let top = |d: &Dense| d.data.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    match info.family {
        Family::MatMul => {
            let k = *dense[0].shape.last().expect("a matrix has axes");
            (k as f64 * top(&dense[0]) * top(&dense[1]), k.max(1))
        }
        Family::Mean => (top(&dense[0]), 1),
        Family::Sum => (dense[0].data.iter().map(|v| v.abs()).sum(), 1),
        _ => (1.0, 1),
    }
}

pub(crate) fn check_forward(
    info: &OpInfo,
    sample: Sample,
    dtype: DType,
    lay: Lay,
    device: Device,
) -> Result<(), String> {
    let what = format!("{} {dtype} {lay:?} {device} {:?}", info.name, sample);
    let text = |error: genesis::Error| format!("{what}: {error}");
    let (dense, tensors) = inputs(info, sample, dtype, lay, device).map_err(text)?;
    let got = (info.call)(&tensors).map_err(text)?;
    let want = (info.reference)(&dense);
    if got.shape() != want.shape {
        return Err(format!("{what}: the shape is {:?}, not {:?}", got.shape(), want.shape));
    }
    let (scale, k) = magnitude(info, &dense);
    let (values, got_dtype) = (got.to_f64_vec().map_err(text)?, got.dtype());
    for (index, (&got, &want)) in values.iter().zip(&want.data).enumerate() {
        let want = match got_dtype {
            dtype if dtype.is_float() => want,
            // Integers truncate in division and wrap.
            dtype => Scalar::int(dtype, want as i64).to_f64(),
        };
        let same = got == want || (got.is_nan() && want.is_nan());
        // Integers may give floats, which are rounded.
        let rounded = if got_dtype.is_float() { got_dtype } else { dtype };
        let limit = allowed(info, rounded, want, scale, k);
        if !same && (got - want).abs() > limit {
            return Err(format!(
                "{what}: element {index} is {got}, the reference {want}, {limit:e} is allowed"
            ));
        }
    }
    Ok(())
}

/// Checks every case, on all cores: most of the time goes to compiling a kernel for each.
pub(crate) fn on_all_cores<C: Sync, R: Send>(
    cases: &[C],
    check: impl Fn(&C) -> Option<R> + Sync,
) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let next = AtomicUsize::new(0);
    let work = || -> Vec<R> {
        let taken = std::iter::repeat_with(|| cases.get(next.fetch_add(1, Ordering::Relaxed)));
        taken.map_while(|case| case).filter_map(&check).collect()
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let results = workers.into_iter().map(|worker| match worker.join() {
            Ok(results) => results,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        results.flatten().collect()
    })
}

/// Every sample of every op that takes a dtype, in every layout.
fn check_dtype(dtype: DType) {
    let infos = all();
    let mut cases = Vec::new();
    for device in devices() {
        for &info in infos.iter().filter(|info| info.dtypes.contains(&dtype)) {
            let samples = info.samples.iter();
            cases.extend(samples.flat_map(|&sample| LAYS.map(|lay| (info, sample, lay, device))));
        }
    }
    println!("{} cases", cases.len());
    assert!(!cases.is_empty(), "no op takes {dtype}");
    let problems = on_all_cores(&cases, |&(info, sample, lay, device)| {
        check_forward(info, sample, dtype, lay, device).err()
    });
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

/// A test a dtype: on a GPU the driver assembles one kernel at a time, and processes that take a part
/// of the tests each are the way to use its cores.
macro_rules! forward {
    ($($name:ident: $dtype:ident,)*) => {
        mod forward {
            use super::*;

            $(#[test]
            fn $name() {
                check_dtype(DType::$dtype);
            })*

            #[test]
            fn every_dtype_has_a_test() {
                let tested = [$(DType::$dtype),*];
                let infos = all();
                let mut dtypes = infos.iter().flat_map(|info| info.dtypes);
                let missing = dtypes.find(|dtype| !tested.contains(dtype));
                assert_eq!(missing, None);
                let cases = infos.iter().map(|info| info.samples.len() * info.dtypes.len());
                let cases = cases.sum::<usize>() * LAYS.len();
                assert!(cases >= 1500, "only {cases} cases");
            }
        }
    };
}

forward! {
    i8: I8,
    i16: I16,
    i32: I32,
    i64: I64,
    u8: U8,
    u16: U16,
    u32: U32,
    u64: U64,
    f16: F16,
    bf16: BF16,
    f32: F32,
    f64: F64,
    f8e4m3: F8E4M3,
    f8e5m2: F8E5M2,
}

#[test]
fn refusals_have_their_exact_text() {
    for info in all() {
        for (call, message) in info.refused {
            let error = call().expect_err(message);
            assert_eq!(error.to_string(), *message);
        }
    }
}

/// Methods that are no op, or whose result is another every time, or that other tests hold to a reference.
const WITHOUT_ROW: &[(&str, &str)] = &[
    ("stream", "a handle"),
    ("arg", "an argument of a kernel"),
    ("arg_mut", "an argument of a kernel"),
    ("item", "a number on the host"),
    ("item_as", "a number on the host"),
    ("to_f64_vec", "how tests read every result"),
    ("from_slice", "how tests make operands"),
    ("from_vec", "how tests make operands"),
    ("empty", "its values are arbitrary"),
    ("empty_like", "its values are arbitrary"),
    ("to_device", "`runtime` has its tests"),
    ("to_device_non_blocking", "`runtime` has its tests"),
    ("pin_memory", "`runtime` has its tests"),
    ("is_pinned", "a getter"),
    ("record_stream", "it has no result"),
    ("allclose", "a bool on the host"),
    ("equal", "a bool on the host"),
    ("attention_backend", "a choice on the host"),
    ("varlen_attn", "`varlen` has its tests"),
    ("varlen_attn_with_lse", "`varlen` has its tests"),
    ("paged_attention", "`paged` has its tests"),
    ("rotate_and_cache", "`rotate` has its tests"),
    ("rotate_and_attend", "`paged_decode` has its tests"),
    ("quantized_linear", "`quantized` has its tests"),
    ("linear_rows", "`linear_rows` has its tests"),
    ("sample_tokens", "`sample_tokens` has its tests"),
    ("rand", "random"),
    ("uniform", "random"),
    ("randn", "random"),
    ("normal", "random"),
    ("randint", "random"),
    ("randperm", "random"),
    ("bernoulli", "random"),
    ("gamma", "random"),
    ("poisson", "random"),
    ("multinomial", "random"),
    ("dropout", "random"),
];

#[test]
fn every_public_op_has_a_row() {
    let called = crate::methods::called_by_rows();
    let rows = all();
    let names = crate::methods::of_tensors("ops");
    let has_row = |name: &str| {
        let is_of_table = methods().any(|method| method.name == name)
            && rows.iter().any(|row| row.name.split('/').next() == Some(name));
        is_of_table || called.contains(name)
    };
    // The in-place form of an op is held to it by another test.
    let is_in_place = |name: &str| name.ends_with('_') && name != "where_";
    let without: Vec<&String> = names
        .iter()
        .filter(|name| !is_in_place(name) && !has_row(name))
        .filter(|name| !WITHOUT_ROW.iter().any(|(left, _)| left == name))
        .collect();
    assert!(without.is_empty(), "no row of `OpInfo` calls {without:?}");
    let is_stale = |name: &&str| has_row(name) || !names.contains(*name);
    let stale: Vec<&str> = WITHOUT_ROW.iter().map(|(name, _)| *name).filter(is_stale).collect();
    assert!(stale.is_empty(), "these have rows, or are gone: {stale:?}");
}

/// What a row's method gives, and what its in-place form leaves.
#[test]
fn in_place_forms_leave_what_the_op_gives() -> genesis::Result<()> {
    let table: BTreeMap<&str, _> = methods().map(|method| (method.name, method.call)).collect();
    let mut count = 0;
    for (name, write) in &table {
        let Some(op) = name.strip_suffix('_').and_then(|op| table.get(op)) else { continue };
        let of = |values: &[i64]| Tensor::from_slice_on(values, &[3], Device::Cpu);
        let (x, y) = (of(&[3, 1, 2])?, of(&[2, 1, 3])?);
        let is_of_ints = op(&x.to_dtype(DType::F32)?, &y.to_dtype(DType::F32)?, 2.0).is_err();
        let dtype = if is_of_ints { DType::I64 } else { DType::F32 };
        let (x, y) = (x.to_dtype(dtype)?.copy()?, y.to_dtype(dtype)?);
        let want = op(&x, &y, 2.0)?;
        let got = write(&x, &y, 2.0)?;
        let bits = |t: &Tensor| -> genesis::Result<Vec<u64>> {
            Ok(t.to_f64_vec()?.into_iter().map(f64::to_bits).collect())
        };
        assert_eq!(bits(&got)?, bits(&want)?, "{name}");
        count += 1;
    }
    assert!(count >= 50, "only {count} forms");
    Ok(())
}
