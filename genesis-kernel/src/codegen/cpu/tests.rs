//! Small kernels against plain Rust, at both levels.

use std::time::Instant;

use super::{OptLevel, linked, llvm_ir};
use crate::ir::{ArgValue, DType, Scalar, parse};

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
        let kernel = linked(&func, opt).unwrap();
        // SAFETY: the arguments are slices of the caller's, as long as the kernel goes.
        unsafe { kernel.run(args, [grid, 1, 1]).unwrap() };
        check();
    }
}

/// A sum of `%n` elements, so many a program.
fn add(block: usize) -> String {
    format!(
        "kernel add(%x: *f32 readonly, %y: *f32 readonly, %out: *f32 exclusive, %n: i64) {{
  %0 = program_id 0 : i64
  %1 = const {block} : i64
  %2 = mul %0, %1 : i64
  %3 = iota : i64[{block}]
  %4 = broadcast %2 : i64[{block}]
  %5 = add %4, %3 : i64[{block}]
  %6 = broadcast %n : i64[{block}]
  %7 = cmp lt %5, %6 : bool[{block}]
  %8 = broadcast %x : *f32[{block}]
  %9 = ptr_add %8, %5 : *f32[{block}]
  %10 = load %9, %7 : f32[{block}]
  %11 = broadcast %y : *f32[{block}]
  %12 = ptr_add %11, %5 : *f32[{block}]
  %13 = load %12, %7 : f32[{block}]
  %14 = add %10, %13 : f32[{block}]
  %15 = broadcast %out : *f32[{block}]
  %16 = ptr_add %15, %5 : *f32[{block}]
  store %16, %14, %7
  yield
}}
"
    )
}

#[test]
fn adds_with_a_mask() {
    let (n, block) = (1000, 96);
    let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let y: Vec<f32> = (0..n).map(|i| 0.5 * i as f32).collect();
    let out = vec![-1f32; n + 8];
    let args = [ptr(&x), ptr(&y), ptr(&out), i64_arg(n as i64)];
    run(&add(block), &args, n.div_ceil(block) as u32, || {
        for (i, &got) in out[..n].iter().enumerate() {
            assert_eq!(got, 1.5 * i as f32, "{i}");
        }
        assert_eq!(out[n..], [-1f32; 8]);
    });
}

#[test]
fn a_small_tensor_in_a_large_tile_costs_what_it_holds() {
    let block = 1 << 16;
    let func = parse::parse(&add(block)).unwrap();
    let kernel = linked(&func, OptLevel::O3).unwrap();
    let (x, y, out) = (vec![1f32; block], vec![2f32; block], vec![0f32; block]);
    let fastest = |n: usize| {
        let args = [ptr(&x), ptr(&y), ptr(&out), i64_arg(n as i64)];
        let times = (0..50).map(|_| {
            let start = Instant::now();
            // SAFETY: the kernel writes `n` of the elements that are there.
            unsafe { kernel.run(&args, [1; 3]).unwrap() };
            start.elapsed()
        });
        times.min().unwrap()
    };
    let (few, all) = (fastest(100), fastest(block));
    assert_eq!(out, vec![3f32; block]);
    assert!(4 * few < all, "100 elements take {few:?}, {block} take {all:?}");
}

/// Comparisons of `start + i` with `n`, by which lines of 40 are stored: also those that wrap, that hold from
/// some lane on, or for no lane at all.
#[test]
fn a_store_ends_where_its_mask_does_and_nowhere_before() {
    const N: usize = 40;
    type Compare = fn(&i64, &i64) -> bool;
    let compares: [(&str, Compare); 4] =
        [("lt", i64::lt), ("le", i64::le), ("gt", i64::gt), ("ge", i64::ge)];
    let near = |center: i64| [-17, -1, 0, 1, 16, 39, 40].map(|d| center.wrapping_add(d));
    for (name, compare) in compares {
        for (a, b) in [("%at", "%bound"), ("%bound", "%at")] {
            let text = stored_where(N, &format!("cmp {name} {a}, {b}"));
            let func = parse::parse(&text).unwrap();
            let kernel = linked(&func, OptLevel::O3).unwrap();
            for start in [near(0), near(i64::MAX), near(i64::MIN)].concat() {
                for n in [near(0), near(start), near(i64::MAX), near(i64::MIN)].concat() {
                    let out = vec![0f32; N];
                    let args = [ptr(&out), i64_arg(start), i64_arg(n)];
                    // SAFETY: the kernel writes lanes of a tile that is as long as `out`.
                    unsafe { kernel.run(&args, [1; 3]).unwrap() };
                    for (i, &got) in out.iter().enumerate() {
                        let at = start.wrapping_add(i as i64);
                        let is_stored =
                            if a == "%at" { compare(&at, &n) } else { compare(&n, &at) };
                        assert_eq!(got == 1.0, is_stored, "{name} {a} {b}: {start} + {i}, {n}");
                    }
                }
            }
        }
    }
}

/// A kernel that stores ones where a comparison of `%at`, which counts up from `%start`, and `%bound` holds.
fn stored_where(n: usize, compare: &str) -> String {
    format!(
        "kernel test(%out: *f32 exclusive, %start: i64, %n: i64) {{
  %i = iota : i64[{n}]
  %first = broadcast %start : i64[{n}]
  %at = add %first, %i : i64[{n}]
  %bound = broadcast %n : i64[{n}]
  %mask = {compare} : bool[{n}]
  %base = broadcast %out : *f32[{n}]
  %to = ptr_add %base, %i : *f32[{n}]
  %one = const 1.0 : f32
  %ones = broadcast %one : f32[{n}]
  store %to, %ones, %mask
  yield
}}
"
    )
}

/// A kernel that loads `in` of one shape, computes `body` from `%v` and stores `%r`, row-major.
fn program(dtype: DType, shape: &str, body: &str, result: &str, out: DType) -> String {
    let address = |name: &str, shape: &str, prefix: &str, dtype: DType| {
        let total: usize = shape.split('x').map(|n| n.parse::<usize>().unwrap()).product();
        format!(
            "  %{prefix}i = iota : i64[{total}]
  %{prefix}j = reshape %{prefix}i : i64[{shape}]
  %{prefix}p = broadcast %{name} : *{dtype}[{shape}]
  %{prefix}q = ptr_add %{prefix}p, %{prefix}j : *{dtype}[{shape}]
"
        )
    };
    format!(
        "kernel test(%x: *{dtype} readonly, %out: *{out} exclusive) {{
{}  %v = load %lq : {dtype}[{shape}]
{body}{}  store %sq, %r
  yield
}}
",
        address("x", shape, "l", dtype),
        address("out", result, "s", out),
    )
}

/// The interpreter's order along the last axis.
fn lanes_sum(row: &[f32]) -> f32 {
    let lanes = 64.min(1 << row.len().ilog2());
    let mut acc: Vec<f32> = row[..lanes].to_vec();
    for (i, &x) in row.iter().enumerate().skip(lanes) {
        acc[i % lanes] += x;
    }
    while acc.len() > 1 {
        let upper = acc.split_off(acc.len() / 2);
        acc.iter_mut().zip(upper).for_each(|(a, b)| *a += b);
    }
    acc[0]
}

fn values(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919) % 1013) as f32 * 0.37 - 100.0).collect()
}

#[test]
fn reduces_the_last_axis_in_the_fixed_order() {
    for n in [1usize, 2, 3, 5, 16, 17, 63, 64, 65, 100, 128, 300] {
        let x = values(3 * n);
        let out = vec![0f32; 3];
        let body = "  %r = reduce add 1 %v : f32[3]\n";
        let text = program(DType::F32, &format!("3x{n}"), body, "3", DType::F32);
        run(&text, &[ptr(&x), ptr(&out)], 1, || {
            for (row, &sum) in x.chunks(n).zip(&out) {
                assert_eq!(sum.to_bits(), lanes_sum(row).to_bits(), "{n}");
            }
        });
    }
}

#[test]
fn reduces_another_axis_in_order() {
    for (m, n) in [(1, 5), (5, 1), (7, 33), (20, 16)] {
        let x = values(m * n);
        let out = vec![0f32; n];
        let body = format!("  %r = reduce add 0 %v : f32[{n}]\n");
        let text = program(DType::F32, &format!("{m}x{n}"), &body, &n.to_string(), DType::F32);
        run(&text, &[ptr(&x), ptr(&out)], 1, || {
            for j in 0..n {
                let sum = (1..m).fold(x[j], |sum, i| sum + x[i * n + j]);
                assert_eq!(out[j].to_bits(), sum.to_bits(), "{m}x{n}");
            }
        });
    }
}

#[test]
fn scans_both_ways() {
    let (m, n) = (5, 19);
    let x = values(m * n);
    let out = vec![0f32; m * n];
    for axis in 0..2 {
        for reverse in [false, true] {
            let word = if reverse { "reverse " } else { "" };
            let body = format!("  %r = scan add {axis} {word}%v : f32[{m}x{n}]\n");
            let text = program(DType::F32, "5x19", &body, "5x19", DType::F32);
            run(&text, &[ptr(&x), ptr(&out)], 1, || {
                let (count, stride, outer) = if axis == 0 { (m, n, n) } else { (n, 1, m) };
                for o in 0..outer {
                    let start = if axis == 0 { o } else { o * n };
                    let at = |i: usize| start + stride * if reverse { count - 1 - i } else { i };
                    let mut acc = x[at(0)];
                    for i in 0..count {
                        acc = if i == 0 { acc } else { acc + x[at(i)] };
                        assert_eq!(out[at(i)], acc, "axis {axis} {word}");
                    }
                }
            });
        }
    }
}

#[test]
fn finds_the_largest_by_a_region() {
    let (m, n) = (4, 21);
    let x = values(m * n);
    let out = vec![0i64; m];
    let body = "  %i = iota : i64[21]
  %e = expand_dims 0 %i : i64[1x21]
  %b = broadcast %e : i64[4x21]
  %best, %r = reduce 1 %v, %b by (%0: f32, %1: i64, %2: f32, %3: i64) {
    %4 = cmp gt %2, %0 : bool
    %5 = select %4, %2, %0 : f32
    %6 = select %4, %3, %1 : i64
    yield %5, %6
  } : f32[4], i64[4]
";
    let text = program(DType::F32, "4x21", body, "4", DType::I64);
    run(&text, &[ptr(&x), ptr(&out)], 1, || {
        for (row, &at) in x.chunks(n).zip(&out) {
            let largest = row.iter().copied().fold(f32::MIN, f32::max);
            assert_eq!(at, row.iter().position(|&v| v == largest).unwrap() as i64);
        }
    });
}

#[test]
fn multiplies_matrices_of_any_size() {
    for (m, n, k) in [(1, 1, 1), (8, 32, 4), (9, 35, 7), (3, 16, 5), (17, 61, 12)] {
        let x = values(m * k + k * n);
        let out = vec![0f32; m * n];
        let text = format!(
            "kernel test(%x: *f32 readonly, %out: *f32 exclusive) {{
  %ai = iota : i64[{mk}]
  %aj = reshape %ai : i64[{m}x{k}]
  %ap = broadcast %x : *f32[{m}x{k}]
  %aq = ptr_add %ap, %aj : *f32[{m}x{k}]
  %a = load %aq : f32[{m}x{k}]
  %c = const {mk} : i64
  %y = ptr_add %x, %c : *f32
  %bi = iota : i64[{kn}]
  %bj = reshape %bi : i64[{n}x{k}]
  %bt = transpose [1, 0] %bj : i64[{k}x{n}]
  %bp = broadcast %y : *f32[{k}x{n}]
  %bq = ptr_add %bp, %bt : *f32[{k}x{n}]
  %b = load %bq : f32[{k}x{n}]
  %z = const 0.5 : f32
  %zs = broadcast %z : f32[{m}x{n}]
  %d = dot ieee %a, %b, %zs : f32[{m}x{n}]
  %oi = iota : i64[{mn}]
  %oj = reshape %oi : i64[{m}x{n}]
  %op = broadcast %out : *f32[{m}x{n}]
  %oq = ptr_add %op, %oj : *f32[{m}x{n}]
  store %oq, %d
  yield
}}
",
            mk = m * k,
            kn = k * n,
            mn = m * n
        );
        run(&text, &[ptr(&x), ptr(&out)], 1, || {
            for i in 0..m {
                for j in 0..n {
                    let term = |acc: f32, p: usize| x[i * k + p].mul_add(x[m * k + j * k + p], acc);
                    let want = (0..k).fold(0.5, term);
                    assert_eq!(out[i * n + j].to_bits(), want.to_bits(), "{m}x{n}x{k} {i},{j}");
                }
            }
        });
    }
}

#[test]
fn loops_carry_tiles_and_branches_choose_them() {
    let x = values(37);
    let out = vec![0f32; 37];
    // Two carried tiles that change places and grow, five times; odd turns negate.
    let body = "  %z = const 0 : i64
  %five = const 5 : i64
  %one = const 1 : i64
  %two = const 2 : i64
  %c = const 1.0 : f32
  %cs = broadcast %c : f32[37]
  %a, %b, %n = for %i = %z to %five step %one carry (%p = %v, %q = %cs, %m = %z) {
    %odd = rem %i, %two : i64
    %is = cmp eq %odd, %one : bool
    %t = if %is {
      %neg = neg %q : f32[37]
      yield %neg
    } else {
      yield %q
    } : f32[37]
    %s = add %p, %t : f32[37]
    %m2 = add %m, %i : i64
    yield %t, %s, %m2
  } : f32[37], f32[37], i64
  %nf = cast %n : f32
  %ns = broadcast %nf : f32[37]
  %ab = sub %a, %b : f32[37]
  %r = add %ab, %ns : f32[37]
";
    let text = program(DType::F32, "37", body, "37", DType::F32);
    run(&text, &[ptr(&x), ptr(&out)], 1, || {
        for (&x, &got) in x.iter().zip(&out) {
            let (mut p, mut q, mut n) = (x, 1f32, 0);
            for i in 0..5 {
                let t = if i % 2 == 1 { -q } else { q };
                (p, q) = (t, p + t);
                n += i;
            }
            assert_eq!(got, p - q + n as f32);
        }
    });
}

#[test]
fn ends_a_program_early() {
    let out = vec![0i64; 8];
    let text = "kernel test(%out: *i64 exclusive) {
  %p = program_id 0 : i64
  %three = const 3 : i64
  %one = const 1 : i64
  %big = cmp gt %p, %three : bool
  %w = while carry (%c = %p) {
    %go = cmp gt %c, %one : bool
    yield %go
  } do (%d) {
    %less = sub %d, %one : i64
    yield %less
  } : i64
  if %big {
    return
  } else {
    yield
  }
  %q = ptr_add %out, %p : *i64
  %s = add %w, %three : i64
  store %q, %s
  yield
}
";
    run(text, &[ptr(&out)], 8, || assert_eq!(out, [3, 4, 4, 4, 0, 0, 0, 0]));
}

#[test]
fn counts_with_atomics() {
    let x: Vec<f32> = (0..1000).map(|i| (i % 10) as f32).collect();
    let counts = vec![0f32; 10];
    let text = "kernel test(%x: *f32 readonly, %out: *f32 exclusive) {
  %p = program_id 0 : i64
  %c = const 100 : i64
  %s = mul %p, %c : i64
  %i = iota : i64[100]
  %sb = broadcast %s : i64[100]
  %j = add %i, %sb : i64[100]
  %xp = broadcast %x : *f32[100]
  %xq = ptr_add %xp, %j : *f32[100]
  %v = load %xq : f32[100]
  %at = cast %v : i64[100]
  %op = broadcast %out : *f32[100]
  %oq = ptr_add %op, %at : *f32[100]
  %one = const 1.0 : f32
  %ones = broadcast %one : f32[100]
  %old = atomic_rmw add %oq, %ones : f32[100]
  yield
}
";
    let mut runs = 0;
    run(text, &[ptr(&x), ptr(&counts)], 10, || {
        runs += 1;
        assert_eq!(counts, [100.0 * runs as f32; 10]);
    });
}

#[test]
fn reports_a_failed_assertion() {
    let text = "kernel test(%n: i64) {
  %i = iota : i64[20]
  %b = broadcast %n : i64[20]
  %ok = cmp lt %i, %b : bool[20]
  assert \"i is below n\" %ok
  yield
}
";
    let func = parse::parse(text).unwrap();
    let kernel = linked(&func, OptLevel::O3).unwrap();
    // SAFETY: the kernel touches no memory.
    let run = |args: &[ArgValue], grid| unsafe { kernel.run(args, grid) };
    run(&[i64_arg(20)], [3, 1, 1]).unwrap();
    let error = run(&[i64_arg(19)], [3, 1, 1]).unwrap_err();
    assert_eq!(error.to_string(), "test: assertion failed in program 0: i is below n");
    let error = run(&[], [1, 1, 1]).unwrap_err();
    assert_eq!(error.to_string(), "test: the arguments have 0 parts, the parameters 1");
}

#[test]
fn a_tail_of_one_narrow_lane_writes_one_byte() {
    let x: Vec<i32> = (0..33).collect();
    let out = vec![0xa5u8; 48];
    let text = "kernel test(%x: *i32 readonly, %out: *u8 exclusive) {
  %i = iota : i64[33]
  %xp = broadcast %x : *i32[33]
  %xq = ptr_add %xp, %i : *i32[33]
  %v = load %xq : i32[33]
  %s = scan xor 0 reverse %v : i32[33]
  %b = cast %s : u8[33]
  %op = broadcast %out : *u8[33]
  %oq = ptr_add %op, %i : *u8[33]
  store %oq, %b
  yield
}
";
    run(text, &[ptr(&x), ptr(&out)], 1, || {
        let mut acc = 0;
        for i in (0..33).rev() {
            acc ^= x[i] as u8;
            assert_eq!(out[i], acc);
        }
        assert_eq!(out[33..], [0xa5; 15]);
    });
}

#[test]
fn doubling_an_index_often_takes_linear_time() {
    let mut body = String::from("  %d0 = iota : i64[64]\n  %m0 = cmp lt %d0, %d0 : bool[64]\n");
    for i in 0..60 {
        let next = i + 1;
        body += &format!("  %d{next} = add %d{i}, %d{i} : i64[64]\n");
        body += &format!("  %m{next} = and %m{i}, %m{i} : bool[64]\n");
    }
    let out = vec![7i32; 64];
    let text = format!(
        "kernel test(%out: *i32 exclusive) {{
{body}  %p = broadcast %out : *i32[64]
  %q = ptr_add %p, %d60 : *i32[64]
  %v = load %q, %m60 : i32[64]
  store %q, %v, %m60
  yield
}}
"
    );
    run(&text, &[ptr(&out)], 1, || assert_eq!(out, [7; 64]));
}

#[test]
fn halves_that_rows_repeat_are_converted_by_vectors() {
    let scales = [half::f16::from_f32(1.5); 16];
    let out = vec![0f32; 16 * 32];
    let text = "kernel test(%s: *f16 readonly, %out: *f32 exclusive) {
  %i = iota : i64[16]
  %sp = broadcast %s : *f16[16]
  %sq = ptr_add %sp, %i : *f16[16]
  %h = load %sq : f16[16]
  %f = cast %h : f32[16]
  %e = expand_dims 1 %f : f32[16x1]
  %w = broadcast %e : f32[16x32]
  %c = const 32 : i64
  %cb = broadcast %c : i64[16]
  %r = mul %i, %cb : i64[16]
  %re = expand_dims 1 %r : i64[16x1]
  %rb = broadcast %re : i64[16x32]
  %j = iota : i64[32]
  %je = expand_dims 0 %j : i64[1x32]
  %jb = broadcast %je : i64[16x32]
  %at = add %rb, %jb : i64[16x32]
  %op = broadcast %out : *f32[16x32]
  %oq = ptr_add %op, %at : *f32[16x32]
  store %oq, %w
  yield
}
";
    let func = parse::parse(text).unwrap();
    let ir = llvm_ir(&func, OptLevel::O3).unwrap();
    assert!(ir.contains("fpext <16 x half>") && !ir.contains("fpext half"), "{ir}");
    run(text, &[ptr(&scales), ptr(&out)], 1, || assert_eq!(out, [1.5; 16 * 32]));
}
