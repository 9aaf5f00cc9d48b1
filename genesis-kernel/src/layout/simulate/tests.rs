//! Layout IR, and the code that is made of it, against the interpreter of tile IR: random programs,
//! and products through rings.

use super::*;
use crate::codegen::nvptx::compile_with_lines;
use crate::emulate::Emulator;
use crate::ir::random::{RandomOptions, RandomProgram, random_program_with};
use crate::ir::{ArgValue, Func, InterpArg};
use crate::layout::{LayoutOptions, assign};
use crate::passes;
use crate::target::GpuTarget;

/// Buffers and slots of arguments, views flattened.
fn flatten(args: &[InterpArg]) -> (Vec<Buffer>, Vec<u64>) {
    let (mut buffers, mut slots) = (Vec::new(), Vec::new());
    for arg in args {
        let mut add = |data: &[u8], writable| {
            buffers.push(Buffer { bytes: data.to_vec(), writable });
            start(buffers.len() - 1)
        };
        match arg {
            InterpArg::Buffer(_, data) => slots.push(add(data, false)),
            InterpArg::BufferMut(_, data) => slots.push(add(data, true)),
            InterpArg::Scalar(scalar) => slots.push(scalar.bits),
            InterpArg::View { dtype, data, offset, dims, strides, writable } => {
                slots.push(add(data, *writable) + (offset * dtype.bytes()) as u64);
                slots.extend(dims.iter().chain(strides).map(|&v| v as u64));
            }
        }
    }
    (buffers, slots)
}

/// The dtype and elements of each memory; a NaN is a NaN whatever its payload.
pub(crate) fn elements(args: &[InterpArg], memories: &[Vec<u8>]) -> Vec<Vec<u64>> {
    let dtypes = args.iter().filter_map(|arg| match arg {
        InterpArg::Buffer(dtype, _) | InterpArg::BufferMut(dtype, _) => Some(*dtype),
        InterpArg::View { dtype, .. } => Some(*dtype),
        InterpArg::Scalar(_) => None,
    });
    let element = |dtype: DType, bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(word);
        let is_nan = dtype.is_float() && Scalar { dtype, bits }.to_f64().is_nan();
        if is_nan { u64::MAX } else { bits }
    };
    dtypes
        .zip(memories)
        .map(|(dtype, memory)| {
            memory.chunks(dtype.bytes()).map(|bytes| element(dtype, bytes)).collect()
        })
        .collect()
}

/// What the interpreter leaves in the memory of each argument that has some.
fn interpreted(func: &Func, grid: [u32; 3], args: &[InterpArg]) -> Vec<Vec<u8>> {
    let after = crate::interp::run_func(func, grid, args.to_vec()).unwrap();
    let with_memory = args.iter().zip(after);
    with_memory
        .filter(|(arg, _)| !matches!(arg, InterpArg::Scalar(_)))
        .map(|(_, bytes)| bytes)
        .collect()
}

/// Whether there is code for it too.
fn check(program: &RandomProgram, func: &Func, num_warps: u32, name: &str) -> bool {
    let expected = interpreted(&program.func, program.grid, &program.args);
    let lir =
        assign(func, &LayoutOptions { num_warps: Some(num_warps), ..LayoutOptions::default() })
            .unwrap();
    let (buffers, slots) = flatten(&program.args);
    let got = run(&lir, program.grid, buffers, &slots);
    let [got, expected] = [got, expected].map(|memories| elements(&program.args, &memories));
    assert!(got == expected, "{name}\n{}\n{}", lir.func, lir.layout_text());
    let Some(emulated) = emulated(func, num_warps, program, name) else { return false };
    let emulated = elements(&program.args, &emulated);
    assert!(emulated == expected, "{name}, its code\n{}\n{}", lir.func, lir.layout_text());
    true
}

/// What the code of layout IR leaves in the memory of each argument that has some; none where a GPU has
/// no code, such as for remainders of floats.
fn emulated(
    func: &Func,
    num_warps: u32,
    program: &RandomProgram,
    name: &str,
) -> Option<Vec<Vec<u8>>> {
    let mut func = func.clone();
    passes::run(&mut func, passes::NVPTX);
    let options = LayoutOptions { num_warps: Some(num_warps), ..LayoutOptions::default() };
    let lir = assign(&func, &options).unwrap();
    let code = compile_with_lines(&lir, &GpuTarget::SM_80).ok()?;
    let mut emulator = Emulator::new();
    let (buffers, slots) = flatten(&program.args);
    let addresses: Vec<u64> = buffers
        .into_iter()
        .map(|buffer| emulator.add_buffer("argument", buffer.bytes, buffer.writable))
        .collect();
    // Both lay buffers out alike, so that a slot is an address there too.
    assert_eq!(addresses, (0..addresses.len()).map(start).collect::<Vec<u64>>());
    let args: Vec<ArgValue> = slots.into_iter().map(ArgValue::Ptr).collect();
    emulator
        .run(&code, program.grid, &args)
        .unwrap_or_else(|fault| panic!("{name}: {fault}\n{}\n{}", lir.func, code.ptx));
    Some(addresses.iter().map(|&address| emulator.buffer(address).to_vec()).collect())
}

#[test]
fn random_programs_mean_the_same_in_layouts() {
    // Padding and threads change the order in which floats are added.
    let options = RandomOptions {
        ordered_floats: false,
        transcendental: false,
        steps: 16,
        ..RandomOptions::default()
    };
    let (mut runs, mut emulated) = (0, 0);
    for seed in 0..200 {
        let program = random_program_with(seed, options);
        let func = passes::views::run(&program.func).unwrap();
        let Ok(mut func) = passes::pad::run(&func) else { continue };
        passes::run(&mut func, passes::PIPELINE);
        let num_warps = [1, 2, 4][seed as usize % 3];
        let name = format!("seed {seed}, {num_warps} warps");
        emulated += usize::from(check(&program, &func, num_warps, &name));
        runs += 1;
    }
    assert!(runs > 80 && emulated > 40, "{runs} ran, {emulated} emulated");
}

const MATMUL: &str = "
kernel matmul(%a: view<T,2> readonly unit_stride ATTRS, %b: view<T,2> readonly unit_stride ATTRS, %c: view<SUM,2> exclusive unit_stride ATTRS) {
  %0 = program_id 0 : i64
  %1 = program_id 1 : i64
  %2 = const 64 : i64
  %3 = mul %0, %2 : i64
  %4 = mul %1, %2 : i64
  %5 = const ZERO : SUM
  %6 = broadcast %5 : SUM[64x64]
  %7 = const 0 : i64
  %8 = view_dim 1 %a : i64
  %9 = const DEPTH : i64
  %10 = for %11 = %7 to %8 step %9 carry (%12 = %6) {
%13 = view_load %a, %3, %11 : T[64xDEPTH]
%14 = view_load %b, LEFT, RIGHT : T[ROWSxCOLUMNS]
TRANSPOSE
%16 = dot PRECISION %13, %15, %12 : SUM[64x64]
yield %16
  } : SUM[64x64]
  view_store %c, %10, %3, %4
  return
}
";

/// Steps along K of what tensor cores take at least.
fn depth(dtype: DType) -> i64 {
    (32 / dtype.bytes() as i64).max(16)
}

/// A product of whole numbers, which no precision rounds, `b` as `[K, N]` or as `[N, K]`.
fn product(dtype: DType, precision: &str, transposed: bool, aligned: bool) -> RandomProgram {
    let attrs = if aligned { "multiple_of 16 stride_multiple_of 8" } else { "" };
    let (sum, depth) = (dtype.accumulator().unwrap(), depth(dtype).to_string());
    let (rows, columns) = if transposed { ("64", &depth[..]) } else { (&depth[..], "64") };
    let (left, right) = if transposed { ("%4", "%11") } else { ("%11", "%4") };
    let turn = match transposed {
        true => format!("transpose [1, 0] %14 : {dtype}[{depth}x64]"),
        false => format!("reshape %14 : {dtype}[{depth}x64]"),
    };
    let text = MATMUL
        .replace("ATTRS", attrs)
        .replace("TRANSPOSE", &format!("%15 = {turn}"))
        .replace("PRECISION", precision)
        .replace("ZERO", if sum.is_float() { "0.0" } else { "0" })
        .replace("SUM", sum.name())
        .replace("DEPTH", &depth)
        .replace("ROWS", rows)
        .replace("COLUMNS", columns)
        .replace("LEFT", left)
        .replace("RIGHT", right)
        .replace("<T,", &format!("<{dtype},"))
        .replace(": T[", &format!(": {dtype}["));
    let func = crate::ir::parse(&text).unwrap_or_else(|why| panic!("{why}\n{text}"));
    let matrix = |dtype: DType, rows: usize, columns: usize, seed: i64| {
        let least = if dtype.is_unsigned_int() { 0 } else { -4 };
        let number = |i: usize| (i as i64 * 7 + seed) % 9 + least;
        let data = (0..rows * columns).flat_map(|i| {
            let bits = scalar::cast(Scalar::int(DType::I64, number(i)), dtype).bits;
            bits.to_le_bytes().into_iter().take(dtype.bytes()).collect::<Vec<u8>>()
        });
        InterpArg::View {
            dtype,
            data: data.collect(),
            offset: 0,
            dims: vec![rows as i64, columns as i64],
            strides: vec![columns as i64, 1],
            writable: seed == 0,
        }
    };
    let [m, n, k] = if aligned { [72, 80, 56] } else { [70, 67, 51] };
    let b = if transposed { [n, k] } else { [k, n] };
    let args = vec![matrix(dtype, m, k, 1), matrix(dtype, b[0], b[1], 2), matrix(sum, m, n, 0)];
    RandomProgram { func, grid: [2, 2, 1], args, approximate: Vec::new() }
}

#[test]
fn products_through_rings_mean_the_same() {
    let mut rings = 0;
    for (dtype, precision) in [
        (DType::F32, "ieee"),
        (DType::F32, "tf32"),
        (DType::F32, "tf32x3"),
        (DType::F16, "ieee"),
        (DType::BF16, "ieee"),
        (DType::F64, "ieee"),
        (DType::I8, "ieee"),
        (DType::U8, "ieee"),
    ] {
        for (transposed, aligned) in [(false, true), (true, true), (false, false)] {
            let program = product(dtype, precision, transposed, aligned);
            let func = passes::views::run(&program.func).unwrap();
            let mut func = passes::pad::run(&func).unwrap();
            passes::run(&mut func, passes::PIPELINE);
            let options = LayoutOptions { num_warps: Some(4), ..Default::default() };
            let lir = assign(&func, &options).unwrap();
            rings += lir.multistage.len();
            for plan in lir.dots.values().flat_map(|dot| [&dot.a, &dot.b]) {
                let plan = plan.registers().unwrap().staging.as_ref().unwrap();
                assert!(!aligned || (plan.store.ways, plan.load.ways) == (1, 1), "{dtype}");
            }
            let name = format!("{dtype} {precision} {transposed} {aligned}");
            assert!(check(&program, &func, 4, &name), "{name} has no code");
        }
    }
    assert_eq!(rings, 24);
}

/// The largest error of a product of random numbers of about 1, over the largest sum.
fn error_of(precision: &str) -> f64 {
    let mut program = product(DType::F32, precision, false, true);
    let mut state = 7_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let mut numbers: Vec<Vec<f32>> = Vec::new();
    for arg in &mut program.args[..2] {
        let InterpArg::View { data, .. } = arg else { panic!("a view") };
        let values: Vec<f32> = data.chunks(4).map(|_| random()).collect();
        *data = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        numbers.push(values);
    }
    let func = passes::views::run(&program.func).unwrap();
    let mut func = passes::pad::run(&func).unwrap();
    passes::run(&mut func, passes::PIPELINE);
    let options = LayoutOptions { num_warps: Some(4), ..LayoutOptions::default() };
    let (buffers, slots) = flatten(&program.args);
    let memories = run(&assign(&func, &options).unwrap(), program.grid, buffers, &slots);
    let [m, n, k] = [72, 80, 56];
    let [mut worst, mut largest] = [0_f64; 2];
    for (i, got) in memories[2].chunks(4).take(m * n).enumerate() {
        let got = f32::from_le_bytes(got.try_into().unwrap());
        let term = |j| f64::from(numbers[0][i / n * k + j]) * f64::from(numbers[1][j * n + i % n]);
        let want: f64 = (0..k).map(term).sum();
        worst = worst.max((f64::from(got) - want).abs());
        largest = largest.max(want.abs());
    }
    worst / largest
}

#[test]
fn three_products_of_tf32_are_nearly_as_good_as_f32() {
    let (exact, split) = (error_of("ieee"), error_of("tf32x3"));
    assert!(exact < 3e-7 && split < 4.0 * exact, "{exact} {split}");
}
