//! Loops that `break` and `continue` leave, everywhere.

use super::runs::{bytes, int, numbers, program_of, written};
use crate::differential::everywhere;
use crate::ir::{DType, InterpArg};
use crate::prelude::*;

/// Where the first 0 is; how many numbers before it are even; and the same counted from the end.
#[kernel]
fn first_zero(x: Ptr<i32>, out: PtrMut<i64>, n: i64) {
    let mut at = -1_i64;
    let mut evens = 0_i64;
    for i in range(0, n) {
        let v = load(x + i);
        if v == 0 {
            at = i;
            break;
        }
        if v % 2 != 0 {
            continue;
        }
        evens += 1;
    }
    store(out, at);
    store(out + 1, evens);
    for i in range(n - 1, -1, -2) {
        if load(x + i) == 0 {
            break;
        } else {
            at = i;
        }
    }
    store(out + 2, at);
}

/// Jumps of inner loops are theirs; of `while`, unrolled and persistent loops too.
#[kernel]
fn nested(out: PtrMut<i64>, n: i64) {
    let mut sum = 0_i64;
    for i in 0..n {
        for j in range(0, n) {
            if j == i {
                break;
            }
            if j == 1 || i == 4 {
                continue;
            }
            sum += 10 * i + j;
        }
        if i == 5 {
            break;
        }
        sum += 1000;
    }
    store(out, sum);
    let mut left = n;
    let mut steps = 0_i64;
    while left > 100 || left > 0 {
        left -= 1;
        if left == 2 {
            break;
        }
        steps += 1;
    }
    store(out + 1, steps);
    let mut unrolled = 0_i64;
    for k in static_range(0, 6) {
        if k == n - 5 {
            break;
        }
        unrolled += k + 1;
    }
    store(out + 2, unrolled);
    for tile in persistent(n) {
        if tile == 3 {
            break;
        }
        unrolled += 100;
    }
    store(out + 3, unrolled);
}

fn nested_of(n: i64) -> [i64; 4] {
    let mut out = [0; 4];
    for i in 0..n {
        for j in 0..n {
            if j == i {
                break;
            }
            if j == 1 || i == 4 {
                continue;
            }
            out[0] += 10 * i + j;
        }
        if i == 5 {
            break;
        }
        out[0] += 1000;
    }
    out[1] = n - 3;
    out[2] = (0..(n - 5).min(6)).map(|k| k + 1).sum();
    out[3] = out[2] + 100 * 3;
    out
}

#[test]
fn loops_are_left_where_they_say() {
    for x in [vec![4, 3, 2, 8, 0, 6, 0, 2], vec![1, 2, 3], vec![0], vec![]] {
        let n = x.len() as i64;
        let input = InterpArg::Buffer(DType::I32, bytes(&x));
        let args = vec![input, written(DType::I64, 3), int(n)];
        let memory = everywhere(program_of(&first_zero::KERNEL, &[], &[], args));
        let found: Vec<i64> = numbers(&memory[1]);
        let at = x.iter().position(|&v| v == 0).map_or(-1, |i| i as i64);
        let before = &x[..if at < 0 { x.len() } else { at as usize }];
        let evens = before.iter().filter(|&&v| v % 2 == 0).count() as i64;
        let mut last = at;
        let from_the_end = (0..n).rev().step_by(2);
        for i in from_the_end.take_while(|&i| x[i as usize] != 0) {
            last = i;
        }
        assert_eq!(found, [at, evens, last], "{x:?}");
    }
}

#[test]
fn a_jump_is_of_the_innermost_loop() {
    for n in [6, 9] {
        let args = vec![written(DType::I64, 4), int(n)];
        let memory = everywhere(program_of(&nested::KERNEL, &[], &[], args));
        assert_eq!(numbers::<i64>(&memory[0]), nested_of(n), "{n}");
    }
}
