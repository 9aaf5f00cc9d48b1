//! Elementwise ops on tiles, by the scalar semantics of [`scalar`]; common ones directly.

use crate::ir::{BinaryOp, DType, Predicate, Scalar, UnaryOp, scalar};

pub(super) fn unary(op: UnaryOp, dtype: DType, x: &[u64]) -> Vec<u64> {
    x.iter().map(|&bits| scalar::unary(op, Scalar { dtype, bits }).bits).collect()
}

pub(super) fn binary(op: BinaryOp, dtype: DType, a: &[u64], b: &[u64]) -> Vec<u64> {
    match (op, dtype) {
        (BinaryOp::Add, DType::I64 | DType::U64) => zip(a, b, u64::wrapping_add),
        (BinaryOp::Mul, DType::I64 | DType::U64) => zip(a, b, u64::wrapping_mul),
        (BinaryOp::And, DType::Bool | DType::I64 | DType::U64 | DType::U32) => {
            zip(a, b, |a, b| a & b)
        }
        (BinaryOp::Add, DType::F32) => zip_f32(a, b, |a, b| a + b),
        (BinaryOp::Sub, DType::F32) => zip_f32(a, b, |a, b| a - b),
        (BinaryOp::Mul, DType::F32) => zip_f32(a, b, |a, b| a * b),
        (BinaryOp::Div, DType::F32) => zip_f32(a, b, |a, b| a / b),
        _ => zip(a, b, |a, b| binary_one(op, dtype, a, b)),
    }
}

pub(super) fn binary_one(op: BinaryOp, dtype: DType, a: u64, b: u64) -> u64 {
    scalar::binary(op, Scalar { dtype, bits: a }, Scalar { dtype, bits: b }).bits
}

pub(super) fn compare(predicate: Predicate, dtype: DType, a: &[u64], b: &[u64]) -> Vec<u64> {
    zip(a, b, |a, b| {
        let (a, b) = (Scalar { dtype, bits: a }, Scalar { dtype, bits: b });
        u64::from(scalar::compare(predicate, a, b))
    })
}

pub(super) fn select(cond: &[u64], a: &[u64], b: &[u64]) -> Vec<u64> {
    let pairs = a.iter().zip(b);
    cond.iter().zip(pairs).map(|(&c, (&a, &b))| if c != 0 { a } else { b }).collect()
}

pub(super) fn fma(dtype: DType, a: &[u64], b: &[u64], c: &[u64]) -> Vec<u64> {
    let of = |bits: u64| Scalar { dtype, bits };
    let pairs = a.iter().zip(b);
    pairs.zip(c).map(|((&a, &b), &c)| scalar::fma(of(a), of(b), of(c)).bits).collect()
}

pub(super) fn cast(from: DType, to: DType, x: &[u64]) -> Vec<u64> {
    x.iter().map(|&bits| scalar::cast(Scalar { dtype: from, bits }, to).bits).collect()
}

pub(super) fn bitcast(from: DType, to: DType, x: &[u64]) -> Vec<u64> {
    x.iter().map(|&bits| scalar::bitcast(Scalar { dtype: from, bits }, to).bits).collect()
}

/// Addresses moved by offsets that count elements.
pub(super) fn ptr_add(dtype: DType, ptr: &[u64], offset: &[u64]) -> Vec<u64> {
    zip(ptr, offset, |p, o| p.wrapping_add(o.wrapping_mul(dtype.bytes() as u64)))
}

fn zip(a: &[u64], b: &[u64], f: impl Fn(u64, u64) -> u64) -> Vec<u64> {
    a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect()
}

fn zip_f32(a: &[u64], b: &[u64], f: impl Fn(f32, f32) -> f32) -> Vec<u64> {
    let of = |bits: u64| f32::from_bits(bits as u32);
    zip(a, b, |a, b| u64::from(f(of(a), of(b)).to_bits()))
}
