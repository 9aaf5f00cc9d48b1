//! Where the copy engine may start: at multiples of 16 bytes along the contiguous axis. A kernel whose
//! tiles start elsewhere, or may, takes another way; one that promises what does not hold is told so by
//! the emulator.

use genesis_kernel::codegen::nvptx::GpuKernel;
use genesis_kernel::emulate::{Emulator, Fault, FaultKind};
use genesis_kernel::kernel::{ArgValue, Hints, KernelDef};
use genesis_kernel::prelude::*;
use genesis_kernel::target::Target;
use genesis_kernel::{DType, Error, Scalar};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// `y = a b[:, from * STEP..]`, of which `b` has as many columns as tiles reach.
#[kernel]
fn from_column<const BM: usize, const BN: usize, const BK: usize, const STEP: usize>(
    a: View<bf16, 2>,
    b: View<bf16, 2>,
    y: ViewMut<f32, 2>,
    from: i64,
) {
    let mut acc = zeros::<f32, BM, BN>();
    for p in range(0, a.dim(1), BK) {
        acc = dot(a.load::<BM, BK>([0, p]), b.load::<BK, BN>([p, from * STEP]), acc);
    }
    y.store([0, 0], acc);
}

/// The same of a column that is said to be a multiple of 8.
#[kernel]
fn from_promised<const BM: usize, const BN: usize, const BK: usize>(
    a: View<bf16, 2>,
    b: View<bf16, 2>,
    y: ViewMut<f32, 2>,
    from: i64,
) {
    let column = multiple_of(from, 8);
    let mut acc = zeros::<f32, BM, BN>();
    for p in range(0, a.dim(1), BK) {
        acc = dot(a.load::<BM, BK>([0, p]), b.load::<BK, BN>([p, column]), acc);
    }
    y.store([0, 0], acc);
}

const M: usize = 64;
const N: usize = 64;
const K: usize = 128;
const COLUMNS: usize = 96;

fn code(kernel: &KernelDef, consts: &[i64]) -> std::result::Result<GpuKernel, Error> {
    let hints = Hints { num_warps: Some(4), ..Hints::contiguous(kernel.ast) };
    kernel.specialize(&[], consts, &hints)?.compile(&Target::sm_90a())?.with_lines()
}

/// Whether the engine brings the operands.
fn uses_the_engine(code: &GpuKernel) -> bool {
    code.ptx.contains("cp.async.bulk.tensor.2d.shared")
}

/// Small whole numbers.
fn draw(n: usize, by: usize) -> Vec<bf16> {
    (0..n).map(|i| bf16::from_f32(((i * by) % 7) as f32 - 3.0)).collect()
}

/// Runs it from a column and compares every sum.
fn check(code: &GpuKernel, from: i64, column: usize) -> Result {
    let (a, b) = (draw(M * K, 5), draw(K * COLUMNS, 3));
    let bytes = |values: &[bf16]| values.iter().flat_map(|v| v.to_bits().to_le_bytes()).collect();
    let mut emulator = Emulator::new();
    let view = |ptr, rows: usize, columns: usize| ArgValue::View {
        ptr,
        dims: vec![rows as i64, columns as i64],
        strides: vec![columns as i64, 1],
    };
    let y = emulator.add_buffer("y", vec![0; 4 * M * N], true);
    let args = [
        view(emulator.add_buffer("a", bytes(&a), false), M, K),
        view(emulator.add_buffer("b", bytes(&b), false), K, COLUMNS),
        view(y, M, N),
        ArgValue::Scalar(Scalar::int(DType::I64, from)),
    ];
    emulator.run(code, [1; 3], &args)?;
    let sums = emulator.buffer(y).chunks_exact(4);
    for (at, sum) in sums.enumerate() {
        let (i, j) = (at / N, at % N + column);
        let inside = |p: usize| if j < COLUMNS { b[p * COLUMNS + j].to_f32() } else { 0.0 };
        let wanted: f32 = (0..K).map(|p| a[i * K + p].to_f32() * inside(p)).sum();
        let sum = f32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]);
        assert!(sum == wanted, "row {i}, column {j}: {sum} and not {wanted}");
    }
    Ok(())
}

#[test]
fn tiles_that_start_at_multiples_of_16_bytes_use_the_engine() -> Result {
    let code = code(&from_column::KERNEL, &[M as i64, N as i64, 64, 8])?;
    assert!(uses_the_engine(&code));
    check(&code, 3, 24)
}

#[test]
fn tiles_that_may_start_anywhere_take_another_way() -> Result {
    let code = code(&from_column::KERNEL, &[M as i64, N as i64, 64, 1])?;
    assert!(!uses_the_engine(&code));
    check(&code, 3, 3)?;
    check(&code, 16, 16)
}

#[test]
fn a_promise_that_does_not_hold_is_a_fault() -> Result {
    let code = code(&from_promised::KERNEL, &[M as i64, N as i64, 64])?;
    assert!(uses_the_engine(&code));
    check(&code, 16, 16)?;
    let error = check(&code, 3, 3).expect_err("an engine that starts anywhere");
    let fault = error.downcast_ref::<Fault>();
    assert!(fault.is_some_and(|fault| fault.kind == FaultKind::Instruction), "{error}");
    assert!(error.to_string().contains("starts at element 3 of 2 bytes"), "{error}");
    Ok(())
}
