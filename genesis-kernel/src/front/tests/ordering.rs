//! Atomics that say what they order: the same memory on every machine, and what the interpreter finds where an order is
//! too weak for what the kernel does.

use super::runs::{assembles, int, numbers, program_of, written};
use crate::differential::everywhere;
use crate::front::{Hints, build};
use crate::interp::run_func;
use crate::ir::DType;
use crate::prelude::*;

/// Each program leaves a number and counts itself; the last one adds up what is there.
#[kernel]
fn handed_on(left: PtrMut<i64>, done: PtrMut<i32>, sum: PtrMut<i64>) {
    let own = program_id(0);
    store(left + own, own + 1);
    if atomic_add::<Release, System>(done, 1) == num_programs(0).to::<i32>() - 1 {
        atomic_add::<Acquire>(done, 0);
        let mut all = 0_i64;
        for i in range(0, num_programs(0)) {
            all += load(left + i);
        }
        store(sum, all);
    }
}

/// The same by one atomic, whose order is the only one that there is.
macro_rules! counted {
    ($($name:ident: $($order:ident),*;)*) => {$(
        #[kernel]
        fn $name(left: PtrMut<i64>, done: PtrMut<i32>, sum: PtrMut<i64>) {
            let own = program_id(0);
            store(left + own, own + 1);
            if atomic_add::<$($order),*>(done, 1) == num_programs(0).to::<i32>() - 1 {
                store(sum, load(left) + load(left + 1));
            }
        }
    )*};
}

counted! {
    both: AcqRel;
    by_relaxed: Relaxed;
    by_acquire: Acquire;
    by_release: Release, Gpu;
    in_block: AcqRel, Block;
    in_cluster: Cluster;
}

fn memory() -> Vec<crate::ir::InterpArg> {
    vec![written(DType::I64, 4), written(DType::I32, 1), written(DType::I64, 1)]
}

#[test]
fn the_last_program_sees_what_all_released() {
    for kernel in [&handed_on::KERNEL, &both::KERNEL] {
        let mut program = program_of(kernel, &[], &[], memory());
        program.grid = [2, 1, 1];
        let memory = everywhere(program);
        assert_eq!(numbers::<i64>(&memory[2]), [3], "{}", kernel.name());
        assembles(kernel, &[], &[]);
    }
}

#[test]
fn an_order_that_is_too_weak_is_a_race() {
    let weak = [
        &by_relaxed::KERNEL,
        &by_acquire::KERNEL,
        &by_release::KERNEL,
        &in_block::KERNEL,
        &in_cluster::KERNEL,
    ];
    for kernel in weak {
        let func = build(kernel.ast, &[], &[], &Hints::default()).unwrap();
        let error = run_func(&func, [2, 1, 1], memory()).unwrap_err().to_string();
        assert!(error.ends_with("also written by another program"), "{}: {error}", kernel.name());
        assembles(kernel, &[], &[]);
    }
}

/// Every op in every form, each lane on an element of its own.
#[kernel]
fn forms(x: PtrMut<i32>, old: PtrMut<i32>, n: i64) {
    let i = arange::<64>();
    let (at, mask) = (x + i, i < n);
    let a = atomic_add::<Relaxed>(at, 3, mask) + atomic_max::<Acquire, Block>(at, 7, mask);
    let b = atomic_min::<Release, Cluster>(at, 40) + atomic_and::<AcqRel, System>(at, 62);
    let c = atomic_or::<System>(at, 1) + atomic_xor::<Gpu>(at, 5);
    atomic_xchg::<Release>(at, 9, i == 2);
    atomic_cas::<AcqRel, Cluster>(at, 8, 100);
    store(old + i, a * 10000 + b * 100 + c, mask);
}

#[test]
fn orders_and_scopes_change_no_number() {
    let args = vec![written(DType::I32, 64), written(DType::I32, 64), int(50)];
    let memory = everywhere(program_of(&forms::KERNEL, &[], &[], args));
    let (x, old) = (numbers::<i32>(&memory[0]), numbers::<i32>(&memory[1]));
    // 0, 3, 7, 7, 6, 7, 2 where the mask holds; 0, 0, 0, 0, 0, 1, 4 elsewhere.
    assert_eq!((x[0], x[2], x[63]), (2, 9, 4));
    assert_eq!((old[0], old[63]), (3 * 10000 + (7 + 7) * 100 + 6 + 7, 0));
    assembles(&forms::KERNEL, &[], &[]);
}
