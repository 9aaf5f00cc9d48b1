//! Operands of products as tensor copies (TMA) bring them to MMAs that read shared memory, and as multiply-adds read them.
//!
//! A tensor copy wants an address and strides that are multiples of 16 bytes, MMAs of what has not 16 bits want both
//! operands contiguous along K, and kernels are compiled for that where the contiguous extent is such a multiple too. What
//! lies otherwise goes through the registers of threads to `mma.sync`, element by element where rows are odd: a product of
//! 4095 in bf16 takes 1.35 ms so on an H200. A large product is therefore worth a copy of such an operand with a wider
//! contiguous axis:
//!
//! ```text
//! a: bf16 [4095, K = 4095]     copied to [4095, 4096], with zeros behind K
//! b: bf16 [K = 4095, 4095]     copied to [4095, 4096]; what is behind N goes to columns that the result lacks
//! ```
//!
//! Multiply-adds of f32 want the other axis contiguous, the one that the result shares: what a thread reads as a vector
//! and multiplies at the same time then is in registers of both banks. Vectors along K are multiplied a bank at a time,
//! and by SASS a multiply-add waits 0.36 clocks for its operands, against 0.22. On an H200, copies included:
//!
//! ```text
//!                                       as they lie   copied
//! 4096, a or both along K               3.01 ms       2.87 to 2.90
//! 4095, a along K; both along K         3.33; 3.54    2.93
//! 4096, along M and N already           2.77
//! ```

use std::borrow::Cow;

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::KernelDef;
use genesis_kernel::knobs;
use genesis_kernel::runtime::Device;

use crate::error::Result;
use crate::launch;
use crate::launch::config::chip;
use crate::tensor::Tensor;

/// Bytes that addresses and strides of a tensor copy are multiples of.
const GRANULE: usize = 16;
/// Bytes of a cache line: a row of a tile that begins elsewhere is in one line more.
const LINE: usize = 128;
/// Rows and columns of a product whose operands are worth a copy, at least: how often each element of a copy is used.
const LEAST_REUSE: usize = 64;

/// Products of two numbers from which on copies of the operands are worth their launches, by how much faster tensor cores
/// are that read shared memory: 6 times of 16 bits, more of integers, whose other way is a byte a load.
const MANY_OF_16_BITS: usize = 1 << 27;
const MANY_OF_TF32: usize = 1 << 24;
const MANY_OF_8_BITS: usize = 1 << 21;
/// The same of multiply-adds, which are only 5 % faster of copies, or 12 to 17 % where rows are odd; and how often each
/// element of such a copy is used, at least.
const MANY_OF_F32: usize = 1 << 31;
const REUSE_OF_F32: usize = 1024;

/// Which axis of an operand, `[batch, rows, K]`, is contiguous.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contiguous {
    /// The last or the one before it.
    Either,
    /// The last.
    AlongK,
    /// The one before it.
    AcrossK,
}

/// `c = a b` of tensors of rank 3 on a GPU; see [`launch::matmul`].
///
/// # Errors
/// If a launch fails.
pub(super) fn matmul(a: &Tensor, b: &Tensor, c: &Tensor, tf32: bool) -> Result<()> {
    let [a, b] = operands([a, b], c, tf32)?;
    launch::matmul(&a, &b, c, tf32)
}

/// `c += a b` of tensors of rank 3 on a GPU; see [`launch::matmul_add`].
///
/// # Errors
/// If a launch fails.
pub(super) fn matmul_add(a: &Tensor, b: &Tensor, c: &Tensor, tf32: bool) -> Result<()> {
    let [a, b] = operands([a, b], c, tf32)?;
    launch::matmul_add(&a, &b, c, tf32)
}

/// `c = f(a b + bias)` of tensors of rank 3 on a GPU; see [`launch::matmul_bias`].
///
/// # Errors
/// If a launch fails.
pub(super) fn matmul_bias(
    [a, b, bias]: [&Tensor; 3],
    c: &Tensor,
    kernels: [&'static KernelDef; 2],
) -> Result<()> {
    let [a, b] = operands([a, b], c, false)?;
    launch::matmul_bias([&a, &b, bias], c, kernels)
}

/// `c = a b` of integers of 8 bits on any device; see [`launch::matmul_int8`].
///
/// # Errors
/// If a launch fails.
pub(super) fn matmul_int8(a: &Tensor, b: &Tensor, c: &Tensor) -> Result<()> {
    let [a, b] = operands([a, b], c, false)?;
    launch::matmul_int8(&a, &b, c)
}

/// The operands, or copies of them that lie as the product wants them, where it is large enough.
fn operands<'t>([a, b]: [&'t Tensor; 2], c: &Tensor, tf32: bool) -> Result<[Cow<'t, Tensor>; 2]> {
    let (many, reuse, contiguous) = match a.dtype() {
        DType::F16 | DType::BF16 => (MANY_OF_16_BITS, LEAST_REUSE, Contiguous::Either),
        DType::F32 if tf32 => (MANY_OF_TF32, LEAST_REUSE, Contiguous::AlongK),
        DType::F32 => (MANY_OF_F32, REUSE_OF_F32, Contiguous::AcrossK),
        DType::I8 | DType::U8 => (MANY_OF_8_BITS, LEAST_REUSE, Contiguous::AlongK),
        _ => return Ok([Cow::Borrowed(a), Cow::Borrowed(b)]),
    };
    let work = crate::shape::product([c.numel(), a.shape()[2]]);
    let is_reused = c.shape()[1].min(c.shape()[2]) >= reuse;
    let gains = || contiguous == Contiguous::AcrossK || has_tensor_copies(c.device());
    if work < many || !is_reused || !gains() {
        return Ok([Cow::Borrowed(a), Cow::Borrowed(b)]);
    }
    let b = match lies_well(&b.t()?, contiguous) {
        true => Cow::Borrowed(b),
        false => Cow::Owned(copied(&b.t()?, contiguous)?.t()?),
    };
    let a = match lies_well(a, contiguous) {
        true => Cow::Borrowed(a),
        false => Cow::Owned(copied(a, contiguous)?),
    };
    Ok([a, b])
}

/// Whether MMAs of a device read what tensor copies bring, and the compiler lets them.
fn has_tensor_copies(device: Device) -> bool {
    knobs::get().tma && chip(device).tma_feeds_mma()
}

/// Whether an operand `[batch, rows, K]` lies as the product wants it, in rows that begin at multiples of 16 bytes; an axis of one element has any
/// stride.
fn lies_well(t: &Tensor, contiguous: Contiguous) -> bool {
    let (shape, bytes) = (t.shape(), t.dtype().bytes());
    let step = |axis: usize| if shape[axis] <= 1 { 0 } else { t.strides()[axis] as usize * bytes };
    let along = |last: usize, other: usize| {
        let is_unit = shape[last] <= 1 || t.strides()[last] == 1;
        let all = [shape[last] * bytes, step(other), step(0), t.address() as usize];
        is_unit && all.iter().all(|of| of.is_multiple_of(GRANULE))
    };
    match contiguous {
        Contiguous::Either => along(2, 1) || along(1, 2),
        Contiguous::AlongK => along(2, 1),
        Contiguous::AcrossK => along(1, 2),
    }
}

/// A copy of an operand `[batch, rows, K]` whose rows begin at multiples of 16 bytes, long ones at cache lines, with zeros
/// behind them. What a broadcast batch repeats is copied once.
fn copied(t: &Tensor, contiguous: Contiguous) -> Result<Tensor> {
    if t.shape()[0] > 1 && t.strides()[0] == 0 {
        let copy = copied(&t.narrow(0, 0, 1)?, contiguous)?;
        return copy.broadcast_to(&[&t.shape()[..1], &copy.shape()[1..]].concat());
    }
    let is_turned = match contiguous {
        Contiguous::Either => t.strides()[2] != 1 && t.strides()[1] == 1,
        Contiguous::AlongK => false,
        Contiguous::AcrossK => true,
    };
    if is_turned {
        return copied(&t.t()?, Contiguous::AlongK)?.t();
    }
    let [batch, rows, k] = [0, 1, 2].map(|axis| t.shape()[axis]);
    let granule = if k * t.dtype().bytes() >= LINE { LINE } else { GRANULE };
    let wide = k.next_multiple_of(granule / t.dtype().bytes());
    let copy = Tensor::uninitialized(&[batch, rows, wide], (t.dtype(), t.device()))?;
    launch::cast(t, &copy.narrow(2, 0, k)?)?;
    if wide > k {
        launch::fill(&copy.narrow(2, k, wide - k)?, Scalar::zero(t.dtype()))?;
    }
    Ok(copy)
}
