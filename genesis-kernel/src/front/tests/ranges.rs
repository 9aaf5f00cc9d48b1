//! Ranges that count up and down, on the interpreter, the processor and emulated GPUs.

use super::runs::{int, numbers, written};
use crate::differential::everywhere;
use crate::front::{Hints, build};
use crate::interp::run_func;
use crate::ir::random::RandomProgram;
use crate::ir::{DType, InterpArg};
use crate::kernel::KernelDef;
use crate::prelude::*;

/// Notes the indices of a range, and behind them how many there were.
#[kernel]
fn indices(start: i64, end: i64, step: i64, out: PtrMut<i64>) {
    let mut n = 0i64;
    for i in range(start, end, step) {
        store(out + n, i);
        n = n + 1;
    }
    store(out + 15, n);
}

/// The same with a step that the compiler knows.
#[kernel]
fn up<const STEP: usize>(start: i64, end: i64, out: PtrMut<i64>) {
    let mut n = 0i64;
    for i in range(start, end, STEP) {
        store(out + n, i);
        n = n + 1;
    }
    store(out + 15, n);
}

/// The same downwards.
#[kernel]
fn down<const STEP: usize>(start: i64, end: i64, out: PtrMut<i64>) {
    let mut n = 0i64;
    for i in range(start, end, 0 - STEP) {
        store(out + n, i);
        n = n + 1;
    }
    store(out + 15, n);
}

/// The same with all three known.
#[kernel]
fn constant(out: PtrMut<i64>) {
    let mut n = 0i64;
    for i in range(20, 1, -3) {
        store(out + n, i);
        n = n + 1;
    }
    store(out + 15, n);
}

/// Every index of a static range is there when the body is compiled.
#[kernel]
fn unrolled(out: PtrMut<i64>) {
    for i in static_range(9, 0, -4) {
        store(out + i, i);
    }
}

/// Sums of blocks from the last to the first, with what is past the end left out.
#[kernel]
fn backwards<const BLOCK: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i64) {
    let mut last = zeros::<f32, BLOCK>();
    for i in range((n - 1) / BLOCK * BLOCK, -1, 0 - BLOCK) {
        let at = i + arange::<BLOCK>();
        last = last * 0.5 + load(x + at, at < n);
    }
    store(out + arange::<BLOCK>(), last);
}

fn program(kernel: &KernelDef, consts: &[i64], args: Vec<InterpArg>) -> RandomProgram {
    let func = build(kernel.ast, &[], consts, &Hints::default());
    let func = func.unwrap_or_else(|diagnostic| panic!("{diagnostic}"));
    RandomProgram { func, grid: [1, 1, 1], args, approximate: Vec::new() }
}

fn noted(kernel: &KernelDef, consts: &[i64], mut args: Vec<InterpArg>) -> Vec<i64> {
    args.push(written(DType::I64, 16));
    let memory = everywhere(program(kernel, consts, args));
    let all: Vec<i64> = numbers(memory.last().expect("the buffer is the last"));
    all[..all[15] as usize].to_vec()
}

/// What a range means.
fn expected(start: i64, end: i64, step: i64) -> Vec<i64> {
    let (start, end, step) = (i128::from(start), i128::from(end), i128::from(step));
    let at = |k: i128| start + k * step;
    let inside = |&i: &i128| if step > 0 { i < end } else { i > end };
    (0..16).map(at).take_while(inside).map(|i| i as i64).collect()
}

const RANGES: [(i64, i64, i64); 16] = [
    (5, 0, -1),
    (0, 5, 1),
    (5, 0, -2),
    (5, -1, -2),
    (0, 0, -1),
    (0, 5, -1),
    (5, 0, 1),
    (0, 7, 3),
    (-3, -20, -7),
    (10, 0, -100),
    (i64::MAX, i64::MIN, -(1 << 62)),
    (i64::MIN, i64::MAX, 1 << 62),
    (i64::MIN + 2, i64::MIN, -1),
    (i64::MAX, i64::MIN, i64::MIN),
    (i64::MAX - 1, i64::MAX, i64::MAX),
    (100, 0, -9),
];

#[test]
fn run_time_steps_count_up_and_down() {
    for (start, end, step) in RANGES {
        let found = noted(&indices::KERNEL, &[], vec![int(start), int(end), int(step)]);
        assert_eq!(found, expected(start, end, step), "range({start}, {end}, {step})");
    }
}

#[test]
fn known_steps_count_up_and_down() {
    for (start, end, step) in RANGES.into_iter().filter(|&(.., step)| step != i64::MIN) {
        let kernel = if step > 0 { &up::KERNEL } else { &down::KERNEL };
        let found = noted(kernel, &[step.abs()], vec![int(start), int(end)]);
        assert_eq!(found, expected(start, end, step), "range({start}, {end}, {step})");
    }
    assert_eq!(noted(&constant::KERNEL, &[], Vec::new()), expected(20, 1, -3));
    let memory = everywhere(program(&unrolled::KERNEL, &[], vec![written(DType::I64, 10)]));
    assert_eq!(numbers::<i64>(&memory[0]), [0, 1, 0, 0, 0, 5, 0, 0, 0, 9]);
}

#[test]
fn tiles_are_carried_backwards() {
    for n in [1, 31, 32, 33, 200] {
        let x: Vec<f32> = (0..n).map(|i| (i % 7) as f32).collect();
        let args = vec![super::runs::read(&x), written(DType::F32, 32), int(n)];
        let memory = everywhere(program(&backwards::KERNEL, &[32], args));
        let mut last = [0f32; 32];
        for block in x.chunks(32).rev() {
            for (lane, sum) in last.iter_mut().enumerate() {
                *sum = *sum * 0.5 + block.get(lane).copied().unwrap_or(0.0);
            }
        }
        assert_eq!(numbers::<f32>(&memory[1]), last, "{n}");
    }
}

#[test]
fn a_step_of_zero_is_refused() {
    let text = match build(down::KERNEL.ast, &[], &[0], &Hints::default()) {
        Ok(_) => "accepted".to_owned(),
        Err(diagnostic) => diagnostic.to_string(),
    };
    assert!(text.contains("the step of a range is 0") && text.contains("^^^^"), "{text}");
    let args = vec![int(0), int(5), int(0), written(DType::I64, 16)];
    let program = program(&indices::KERNEL, &[], args);
    let error = run_func(&program.func, program.grid, program.args).expect_err("it stops");
    assert!(error.to_string().contains("the step of a range is not 0"), "{error}");
}
