//! Padded functions against the functions they come from, on the interpreter.

use crate::interp::{Interpreter, run_func};
use crate::ir::{ArgValue, DType, Func, InterpArg, Scalar, parse, verify};

fn i32s(n: i32) -> Vec<u8> {
    (0..n).flat_map(|v| (v * 7 % 23 - 9).to_le_bytes()).collect()
}

/// Runs a body over `x: *i32` of 64 elements and `out: *i32`; `%v: i32[shape]` is what it loads, in
/// row-major order, and `%r: i32[n]` what it stores.
fn check(shape: &[usize], n: usize, body: &str) {
    let numel: usize = shape.iter().product();
    let extents: Vec<String> = shape.iter().map(usize::to_string).collect();
    let extents = extents.join("x");
    // Coordinates are made axis by axis: a flat iota could not be reshaped.
    let mut load = String::new();
    let mut stride = numel;
    for (axis, extent) in shape.iter().enumerate() {
        stride /= extent;
        load += &format!("%i{axis} = iota : i64[{extent}]\n");
        let mut name = format!("i{axis}");
        let mut dims = vec![*extent];
        for other in 0..shape.len() {
            if other == axis {
                continue;
            }
            let at = if other < axis { other } else { dims.len() };
            dims.insert(at, 1);
            let text: Vec<String> = dims.iter().map(usize::to_string).collect();
            load +=
                &format!("%{name}_e{other} = expand_dims {at} %{name} : i64[{}]\n", text.join("x"));
            name = format!("{name}_e{other}");
        }
        load += &format!("%b{axis} = broadcast %{name} : i64[{extents}]\n");
        load += &format!("%s{axis} = const {stride} : i64\n");
        load += &format!("%t{axis} = broadcast %s{axis} : i64[{extents}]\n");
        load += &format!("%m{axis} = mul %b{axis}, %t{axis} : i64[{extents}]\n");
        load += &match axis {
            0 => format!("%o0 = add %m0, %z : i64[{extents}]\n"),
            _ => format!("%o{axis} = add %o{}, %m{axis} : i64[{extents}]\n", axis - 1),
        };
    }
    let last = shape.len() - 1;
    let text = format!(
        "kernel k(%x: *i32, %out: *i32) {{
%zero = const 0 : i64
%z = broadcast %zero : i64[{extents}]
{load}
%px = broadcast %x : *i32[{extents}]
%qx = ptr_add %px, %o{last} : *i32[{extents}]
%v = load %qx : i32[{extents}]
{body}
%ir = iota : i64[{n}]
%po = broadcast %out : *i32[{n}]
%qo = ptr_add %po, %ir : *i32[{n}]
store %qo, %r
return
}}"
    );
    let func = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    same(
        &func,
        vec![
            InterpArg::Buffer(DType::I32, i32s(numel as i32)),
            InterpArg::BufferMut(DType::I32, i32s(n as i32)),
        ],
    );
}

fn same(func: &Func, args: Vec<InterpArg>) {
    let padded = super::run(func).unwrap();
    verify(&padded).unwrap_or_else(|error| panic!("{error}\n{padded}"));
    for op in padded.walk() {
        for &value in &padded.op(op).results {
            let shape = padded.tile(value).shape;
            assert!(shape.extents().iter().all(|e| e.is_power_of_two()), "{padded}");
        }
    }
    let expected = run_func(func, [1, 1, 1], args.clone()).unwrap();
    let got = run_func(&padded, [1, 1, 1], args).unwrap_or_else(|e| panic!("{e}\n{padded}"));
    assert_eq!(got, expected, "{padded}");
}

#[test]
fn loads_and_stores_touch_only_the_users_elements() {
    check(&[6], 6, "%r = add %v, %v : i32[6]");
}

#[test]
fn reductions_see_neutral_elements() {
    for op in ["add", "mul", "min", "max", "and", "or", "xor"] {
        check(&[6, 3], 6, &format!("%r = reduce {op} 1 %v : i32[6]"));
        check(&[6, 3], 3, &format!("%r = reduce {op} 0 %v : i32[3]"));
        check(&[4, 6], 4, &format!("%r = reduce {op} 1 %v : i32[4]"));
    }
}

#[test]
fn scans_go_from_either_end() {
    check(&[6], 6, "%r = scan add 0 %v : i32[6]");
    check(&[6], 6, "%r = scan add 0 reverse %v : i32[6]");
}

/// `a - b` neither commutes nor has a neutral element.
const MINUS: &str = "by (%a: i32, %b: i32) {\n%c = sub %a, %b : i32\nyield %c\n}";

#[test]
fn functions_combine_only_what_counts() {
    check(&[6], 6, &format!("%r = scan 0 reverse %v {MINUS} : i32[6]"));
    check(&[6, 3], 6, &format!("%r = reduce 1 %v {MINUS} : i32[6]"));
    check(&[6, 3], 3, &format!("%r = reduce 0 %v {MINUS} : i32[3]"));
}

#[test]
fn shapes_follow_where_order_is_kept() {
    check(&[6, 4], 24, "%r = reshape %v : i32[24]");
    check(&[6, 1], 6, "%r = reshape %v : i32[6]");
    check(&[24], 24, "%w = reshape %v : i32[6x4]\n%r = reshape %w : i32[24]");
    check(&[3, 6], 6, "%w = transpose [1, 0] %v : i32[6x3]\n%r = reduce add 1 %w : i32[6]");
    check(&[6], 12, "%w = join %v, %v : i32[6x2]\n%r = reshape %w : i32[12]");
}

#[test]
fn asserts_hold_for_what_is_added() {
    let positive = "%c = cmp eq %v, %v : bool[6]\nassert \"equal\" %c\n";
    check(&[6], 6, &format!("{positive}%r = add %v, %v : i32[6]"));
}

#[test]
fn loops_and_branches_carry_padded_tiles() {
    check(
        &[6],
        6,
        "%three = const 3 : i64\n%one = const 1 : i64
%sum = for %k = %zero to %three step %one carry (%acc = %v) {
  %next = add %acc, %v : i32[6]
  yield %next
} : i32[6]
%cond = cmp lt %zero, %one : bool
%r = if %cond { yield %sum } else { yield %v } : i32[6]",
    );
}

#[test]
fn merging_padding_from_the_middle_is_refused() {
    let func = parse("kernel k() {\n%0 = iota : i64[12]\n%1 = reshape %0 : i64[4x3]\nreturn\n}");
    let error = super::run(&func.unwrap()).unwrap_err();
    assert!(error.message.contains("can't reshape [12] to [4, 3]"), "{error}");
}

#[test]
fn dots_see_zeros_along_k() {
    let func = parse(
        "kernel k(%x: *f32, %out: *f32) {
  %0 = iota : i64[6]
  %1 = expand_dims 1 %0 : i64[6x1]
  %2 = broadcast %1 : i64[6x6]
  %3 = expand_dims 0 %0 : i64[1x6]
  %4 = broadcast %3 : i64[6x6]
  %5 = const 6 : i64
  %6 = broadcast %5 : i64[6x6]
  %7 = mul %2, %6 : i64[6x6]
  %8 = add %7, %4 : i64[6x6]
  %9 = broadcast %x : *f32[6x6]
  %10 = ptr_add %9, %8 : *f32[6x6]
  %11 = load %10 : f32[6x6]
  %inf = const inf : f32
  %infs = broadcast %inf : f32[6x6]
  %12 = div %11, %11 : f32[6x6]
  %13 = const 0.0 : f32
  %14 = broadcast %13 : f32[6x6]
  %15 = dot ieee %11, %12, %14 : f32[6x6]
  %16 = broadcast %out : *f32[6x6]
  %17 = ptr_add %16, %8 : *f32[6x6]
  store %17, %15
  return
}",
    );
    let data: Vec<u8> = (1..37).flat_map(|v| (v as f32).to_le_bytes()).collect();
    same(
        &func.unwrap(),
        vec![InterpArg::Buffer(DType::F32, data.clone()), InterpArg::BufferMut(DType::F32, data)],
    );
}

#[test]
fn neutral_elements_change_nothing() {
    use crate::ir::{BinaryOp, scalar};
    let ops = [
        BinaryOp::Add,
        BinaryOp::Mul,
        BinaryOp::Min,
        BinaryOp::Max,
        BinaryOp::MinNum,
        BinaryOp::MaxNum,
        BinaryOp::And,
        BinaryOp::Or,
        BinaryOp::Xor,
    ];
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_number()) {
        for op in ops {
            let Some(neutral) = super::neutral(op, dtype) else { continue };
            for value in [-128, -3, 0, 1, 7, 127] {
                let mut x = Scalar::int(dtype, value);
                if dtype.is_float() && value == 0 {
                    x = Scalar::float(dtype, -0.0);
                }
                assert_eq!(scalar::binary(op, x, neutral), x, "{op:?} {dtype} {value}");
                assert_eq!(scalar::binary(op, neutral, x), x, "{op:?} {dtype} {value}");
            }
        }
    }
}

#[test]
fn random_programs_stay_what_they_were() {
    use crate::ir::random::{RandomOptions, random_program_with};
    // Padding changes the order in which floats are added.
    let options = RandomOptions { ordered_floats: false, ..RandomOptions::default() };
    for seed in 0..150 {
        let program = random_program_with(seed, options);
        let func = crate::passes::views::run(&program.func).unwrap();
        let Ok(padded) = super::run(&func) else { continue };
        verify(&padded).unwrap_or_else(|error| panic!("{error}\n{padded}"));
        let expected = run_flat(&func, program.grid, &program.args);
        let got = run_flat(&padded, program.grid, &program.args);
        assert!(got == expected, "seed {seed}\n{func}\n{padded}");
    }
}

/// Runs a function whose views are pointers and numbers by now.
fn run_flat(func: &Func, grid: [u32; 3], args: &[InterpArg]) -> Vec<Vec<u8>> {
    let mut interpreter = Interpreter::new(func);
    let (mut flat, mut starts) = (Vec::new(), Vec::new());
    for arg in args {
        let mut add = |dtype: DType, data: &[u8], writable| {
            let ptr = interpreter.add_buffer("", dtype, data.to_vec(), writable);
            starts.push(ptr);
            ptr
        };
        match arg {
            InterpArg::Buffer(dtype, data) => flat.push(ArgValue::Ptr(add(*dtype, data, false))),
            InterpArg::BufferMut(dtype, data) => flat.push(ArgValue::Ptr(add(*dtype, data, true))),
            InterpArg::Scalar(scalar) => flat.push(ArgValue::Scalar(*scalar)),
            InterpArg::View { dtype, data, offset, dims, strides, writable } => {
                let ptr = add(*dtype, data, *writable) + (offset * dtype.bytes()) as u64;
                flat.push(ArgValue::Ptr(ptr));
                let index = |v: &i64| ArgValue::Scalar(Scalar::int(DType::I64, *v));
                flat.extend(dims.iter().chain(strides).map(index));
            }
        }
    }
    interpreter.run(grid, &flat).unwrap_or_else(|error| panic!("{error}\n{func}"));
    starts.iter().map(|&ptr| interpreter.buffer(ptr).to_vec()).collect()
}
