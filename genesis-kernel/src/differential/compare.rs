//! Whether two memories are the same: bit by bit, a NaN like every other, and results that are only
//! defined to some ULP within those.

use crate::ir::InterpArg;
use crate::ir::random::RandomProgram;
use crate::ir::{DType, Scalar};

/// What every argument's memory holds.
pub(crate) type Memory = Vec<Vec<u8>>;

/// ULP between two results of a transcendental function, each within 4 of the true value.
const ULP: u64 = 8;
/// The same for results of 16 bits, each within 1 of the true value rounded.
const ULP_16: u64 = 2;

/// Compares what memories hold.
///
/// # Errors
/// The first element that differs.
pub(crate) fn same(
    program: &RandomProgram,
    expected: &Memory,
    found: &Memory,
    is_gpu: bool,
) -> Result<(), String> {
    for (i, arg) in program.args.iter().enumerate() {
        let dtype = match arg {
            InterpArg::Buffer(dtype, _) | InterpArg::BufferMut(dtype, _) => *dtype,
            InterpArg::View { dtype, .. } => *dtype,
            InterpArg::Scalar(_) => continue,
        };
        let is_rough = is_gpu && program.approximate.contains(&i);
        let size = dtype.bytes();
        let pairs = expected[i].chunks(size).zip(found[i].chunks(size));
        for (at, (expected, found)) in pairs.enumerate() {
            if expected == found {
                continue;
            }
            let (expected, found) = (element(dtype, expected), element(dtype, found));
            let is_same = is_nan(expected) && is_nan(found);
            let is_fine = is_same || is_rough && is_near(expected, found);
            if !is_fine {
                let name = &program.func.params[i].name;
                let show = |s: Scalar| format!("{:#x} ({})", s.bits, s.to_f64());
                let (expected, found) = (show(expected), show(found));
                return Err(format!("%{name}[{at}] is {found} instead of {expected}"));
            }
        }
    }
    Ok(())
}

fn element(dtype: DType, bytes: &[u8]) -> Scalar {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    Scalar { dtype, bits: u64::from_le_bytes(word) }
}

fn is_nan(s: Scalar) -> bool {
    s.dtype.is_float() && s.to_f64().is_nan()
}

/// Within the ULP of a function's results; those below the smallest normal number may be zero.
fn is_near(a: Scalar, b: Scalar) -> bool {
    if !a.dtype.is_float() || is_nan(a) || is_nan(b) {
        return false;
    }
    let (x, y) = (a.to_f64(), b.to_f64());
    let smallest = match a.dtype {
        DType::F16 => 6.103_515_625e-5,
        DType::F64 => f64::MIN_POSITIVE,
        _ => f64::from(f32::MIN_POSITIVE),
    };
    let limit = if a.dtype.bytes() == 2 { ULP_16 } else { ULP };
    (x.abs() < smallest && y.abs() < smallest) || ordered(a).abs_diff(ordered(b)) <= limit
}

/// Floats in order as integers in order.
fn ordered(s: Scalar) -> i64 {
    let top = 1_u64 << (s.dtype.bits() - 1);
    if s.bits & top == 0 { s.bits as i64 } else { -((s.bits & !top) as i64) }
}
