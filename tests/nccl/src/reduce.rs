//! Joining values, as bytes of a dtype.

use cudarc::nccl::sys::{ncclDataType_t, ncclRedOp_t};
use half::{bf16, f16};

/// Bytes of an element.
pub(crate) fn bytes_of(dtype: ncclDataType_t) -> usize {
    use ncclDataType_t::*;
    match dtype {
        ncclInt8 | ncclUint8 | ncclFloat8e4m3 | ncclFloat8e5m2 | ncclNumTypes => 1,
        ncclFloat16 | ncclBfloat16 => 2,
        ncclInt32 | ncclUint32 | ncclFloat32 => 4,
        ncclInt64 | ncclUint64 | ncclFloat64 => 8,
    }
}

/// Whether this library joins such values.
pub(crate) fn reduces(dtype: ncclDataType_t) -> bool {
    use ncclDataType_t::*;
    !matches!(dtype, ncclFloat8e4m3 | ncclFloat8e5m2 | ncclNumTypes)
}

macro_rules! integers {
    ($t:ty, $op:expr, $parts:expr, $out:expr) => {
        fold::<$t, $t>(
            $parts,
            $out,
            |v| v,
            |v| v,
            |a, b| match $op {
                ncclRedOp_t::ncclProd => a.wrapping_mul(b),
                ncclRedOp_t::ncclMax => a.max(b),
                ncclRedOp_t::ncclMin => a.min(b),
                _ => a.wrapping_add(b),
            },
        )
    };
}

macro_rules! floats {
    ($t:ty, $wide:ty, $to:expr, $from:expr, $op:expr, $parts:expr, $out:expr) => {{
        let n = $parts.len() as $wide;
        let is_mean = $op == ncclRedOp_t::ncclAvg;
        fold::<$t, $wide>(
            $parts,
            $out,
            $to,
            |v| $from(if is_mean { v / n } else { v }),
            |a, b| match $op {
                ncclRedOp_t::ncclProd => a * b,
                ncclRedOp_t::ncclMax => a.max(b),
                ncclRedOp_t::ncclMin => a.min(b),
                _ => a + b,
            },
        )
    }};
}

/// Joins the pieces of all ranks, in the order of ranks.
pub(crate) fn reduce(dtype: ncclDataType_t, op: ncclRedOp_t, parts: &[Vec<u8>], out: &mut [u8]) {
    use ncclDataType_t::*;
    match dtype {
        ncclInt8 => integers!(i8, op, parts, out),
        ncclUint8 => integers!(u8, op, parts, out),
        ncclInt32 => integers!(i32, op, parts, out),
        ncclUint32 => integers!(u32, op, parts, out),
        ncclInt64 => integers!(i64, op, parts, out),
        ncclUint64 => integers!(u64, op, parts, out),
        ncclFloat32 => floats!(f32, f32, |v| v, |v| v, op, parts, out),
        ncclFloat64 => floats!(f64, f64, |v| v, |v| v, op, parts, out),
        ncclFloat16 => floats!(f16, f32, f16::to_f32, f16::from_f32, op, parts, out),
        ncclBfloat16 => floats!(bf16, f32, bf16::to_f32, bf16::from_f32, op, parts, out),
        ncclFloat8e4m3 | ncclFloat8e5m2 | ncclNumTypes => {}
    }
}

/// A number of so many bytes.
trait Bits: Copy {
    fn read(bytes: &[u8]) -> Self;
    fn write(self, bytes: &mut [u8]);
}

macro_rules! bits {
    ($($t:ty),*) => {$(
        impl Bits for $t {
            fn read(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$t>()];
                own.copy_from_slice(bytes);
                <$t>::from_ne_bytes(own)
            }

            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_ne_bytes());
            }
        }
    )*};
}

bits!(i8, u8, i32, u32, i64, u64, f32, f64, f16, bf16);

fn fold<T: Bits, W: Copy>(
    parts: &[Vec<u8>],
    out: &mut [u8],
    widen: impl Fn(T) -> W,
    narrow: impl Fn(W) -> T,
    join: impl Fn(W, W) -> W,
) {
    let size = size_of::<T>();
    for (index, to) in out.chunks_exact_mut(size).enumerate() {
        let values = parts.iter().map(|part| widen(T::read(&part[index * size..][..size])));
        if let Some(value) = values.reduce(&join) {
            narrow(value).write(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_means_and_extremes() {
        let of = |values: [f32; 2]| values.map(f32::to_ne_bytes).concat();
        let parts = [of([1.0, 5.0]), of([3.0, -5.0])];
        let join = |op| {
            let mut out = vec![0; 8];
            reduce(ncclDataType_t::ncclFloat32, op, &parts, &mut out);
            [f32::read(&out[..4]), f32::read(&out[4..])]
        };
        assert_eq!(join(ncclRedOp_t::ncclSum), [4.0, 0.0]);
        assert_eq!(join(ncclRedOp_t::ncclAvg), [2.0, 0.0]);
        assert_eq!(join(ncclRedOp_t::ncclMax), [3.0, 5.0]);
        assert_eq!(join(ncclRedOp_t::ncclMin), [1.0, -5.0]);
        assert_eq!(join(ncclRedOp_t::ncclProd), [3.0, -25.0]);
    }

    #[test]
    fn short_floats_are_rounded_once() {
        let part = |v: f32| bf16::from_f32(v).to_ne_bytes().to_vec();
        let mut out = vec![0; 2];
        // One by one, 256 + 1 would stay 256 in bf16, twice.
        let parts = [part(256.0), part(1.0), part(1.0)];
        reduce(ncclDataType_t::ncclBfloat16, ncclRedOp_t::ncclSum, &parts, &mut out);
        assert_eq!(bf16::read(&out).to_f32(), 258.0);
    }
}
