//! Small kernels against plain Rust, at both levels.

use super::{OptLevel, compile};
use crate::ir::{DType, Scalar, parse};
use crate::kernel::ArgValue;

fn ptr<T>(data: &[T]) -> ArgValue {
    ArgValue::Ptr(data.as_ptr() as u64)
}

fn i64_arg(value: i64) -> ArgValue {
    ArgValue::Scalar(Scalar::int(DType::I64, value))
}

/// Runs a kernel at each level; `check` looks at the memory after each.
fn run(text: &str, args: &[ArgValue], grid: u32, mut check: impl FnMut()) {
    let func = parse::parse(text).unwrap();
    for opt in [OptLevel::O0, OptLevel::O3] {
        let kernel = compile(&func, opt).unwrap();
        kernel.run(args, [grid, 1, 1]).unwrap();
        check();
    }
}

#[test]
fn adds_with_a_mask() {
    let (n, block) = (1000, 96);
    let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let y: Vec<f32> = (0..n).map(|i| 0.5 * i as f32).collect();
    let out = vec![-1f32; n + 8];
    let text = "kernel add(%x: *f32 readonly, %y: *f32 readonly, %out: *f32 exclusive, %n: i64) {
  %0 = program_id 0 : i64
  %1 = const 96 : i64
  %2 = mul %0, %1 : i64
  %3 = iota : i64[96]
  %4 = broadcast %2 : i64[96]
  %5 = add %4, %3 : i64[96]
  %6 = broadcast %n : i64[96]
  %7 = cmp lt %5, %6 : bool[96]
  %8 = broadcast %x : *f32[96]
  %9 = ptr_add %8, %5 : *f32[96]
  %10 = load %9, %7 : f32[96]
  %11 = broadcast %y : *f32[96]
  %12 = ptr_add %11, %5 : *f32[96]
  %13 = load %12, %7 : f32[96]
  %14 = add %10, %13 : f32[96]
  %15 = broadcast %out : *f32[96]
  %16 = ptr_add %15, %5 : *f32[96]
  store %16, %14, %7
  yield
}
";
    let args = [ptr(&x), ptr(&y), ptr(&out), i64_arg(n as i64)];
    run(text, &args, n.div_ceil(block) as u32, || {
        for i in 0..n {
            assert_eq!(out[i], 1.5 * i as f32, "{i}");
        }
        assert_eq!(out[n..], [-1f32; 8]);
    });
}
