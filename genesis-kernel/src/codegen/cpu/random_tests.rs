//! Random programs on the interpreter, through the passes, and on the CPU at both levels: the same
//! bits, but for what a NaN holds beside being one.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::{OptLevel, linked};
use crate::differential::{compare, reduce};
use crate::interp::run_func;
use crate::ir::random::{RandomProgram, random_program};
use crate::ir::{ArgValue, InterpArg};
use crate::ir::{DType, Func, Scalar, print};
use crate::passes;

/// Programs of one run of the tests.
const PROGRAMS: u64 = 2000;

/// Seeds past those that once differed: loops whose results a region around them yields, and a store
/// whose mask LLVM knows to have one lane.
const FOUND: [u64; 4] = [2603, 2812, 3343, 6937];

/// What no kernel may touch around its memory: 16 bytes, written with this.
const GUARD: [u8; 16] = [0xa5; 16];

type Memory = Vec<Vec<u8>>;

#[test]
fn the_cpu_agrees_with_the_interpreter() {
    let failures: BTreeMap<u64, String> = (0..PROGRAMS)
        .into_par_iter()
        .chain(FOUND)
        .filter_map(|seed| check(seed).err().map(|e| (seed, e)))
        .collect();
    let shown: Vec<String> =
        failures.iter().take(3).map(|(seed, e)| format!("seed {seed}: {e}")).collect();
    let n = failures.len();
    let seeds: Vec<u64> = failures.keys().copied().collect();
    assert!(n == 0, "{n} programs differ: {seeds:?}\n{}", shown.join("\n"));
}

fn check(seed: u64) -> Result<(), String> {
    let program = random_program(seed);
    let Err(error) = agree(&program) else { return Ok(()) };
    let stage = error.split(':').next().unwrap_or_default();
    let small = minimized(program, stage);
    let error = agree(&small).err().unwrap_or(error);
    Err(format!("{error}\ngrid {:?}\n{}", small.grid, print(&small.func)))
}

/// The stage at which the bits differ, and where.
fn agree(program: &RandomProgram) -> Result<(), String> {
    let fail = |stage: &str, e: String| format!("{stage}: {e}");
    // The expansion of transcendental functions is the only pass that may change bits.
    let mut expanded = program.func.clone();
    passes::run(&mut expanded, &[passes::EXPAND_MATH]);
    let expected = interpret(&expanded, program).map_err(|e| fail("interpreter", e))?;
    let mut func = passes::views::run(&program.func).map_err(|e| fail("views", e.to_string()))?;
    passes::run(&mut func, passes::PIPELINE);
    passes::run(&mut func, passes::EXACT);
    let after = interpret(&func, program).map_err(|e| fail("passes", e))?;
    compare::same(program, &expected, &after, false).map_err(|e| fail("passes", e))?;
    for opt in [OptLevel::O0, OptLevel::O3] {
        let stage = format!("cpu at {opt:?}");
        let after = run_cpu(&func, program, opt).map_err(|e| fail(&stage, e))?;
        compare::same(program, &expected, &after, false).map_err(|e| fail(&stage, e))?;
    }
    Ok(())
}

/// What each argument's memory holds afterwards.
fn interpret(func: &Func, program: &RandomProgram) -> Result<Memory, String> {
    if func.params.len() == program.args.len() {
        return run_func(func, program.grid, program.args.clone()).map_err(|e| e.to_string());
    }
    let args: Vec<Vec<InterpArg>> = program.args.iter().map(flattened).collect();
    let starts = args.iter().scan(0, |at, parts| {
        let start = *at;
        *at += parts.len();
        Some(start)
    });
    let starts: Vec<usize> = starts.collect();
    let after = run_func(func, program.grid, args.concat()).map_err(|e| e.to_string())?;
    Ok(starts.into_iter().map(|start| after[start].clone()).collect())
}

/// A view as the pointer and the numbers that `passes::views` makes of it.
fn flattened(arg: &InterpArg) -> Vec<InterpArg> {
    let InterpArg::View { dtype, data, dims, strides, writable, .. } = arg else {
        return vec![arg.clone()];
    };
    let data = data.clone();
    let mut parts = vec![match writable {
        true => InterpArg::BufferMut(*dtype, data),
        false => InterpArg::Buffer(*dtype, data),
    }];
    let numbers = dims.iter().chain(strides);
    parts.extend(numbers.map(|&n| InterpArg::Scalar(Scalar::int(DType::I64, n))));
    parts
}

/// Memory at a multiple of 16 with guards on both sides.
struct Guarded {
    words: Vec<u128>,
    len: usize,
}

impl Guarded {
    fn new(data: &[u8]) -> Guarded {
        let mut words = vec![u128::from_le_bytes(GUARD); data.len().div_ceil(16) + 2];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        bytes[16..16 + data.len()].copy_from_slice(data);
        Guarded { words, len: data.len() }
    }

    fn address(&mut self) -> u64 {
        self.words[1..].as_mut_ptr() as u64
    }

    /// The data, if the guards stand.
    fn data(&self) -> Result<Vec<u8>, String> {
        let bytes: &[u8] = bytemuck::cast_slice(&self.words);
        let (before, rest) = bytes.split_at(16);
        let (data, after) = rest.split_at(self.len);
        let stands = |guard: &[u8]| guard.iter().all(|&b| b == GUARD[0]);
        if stands(before) && stands(after) {
            Ok(data.to_vec())
        } else {
            Err("memory beside a buffer was written".to_owned())
        }
    }
}

fn run_cpu(func: &Func, program: &RandomProgram, opt: OptLevel) -> Result<Memory, String> {
    let kernel = linked(func, opt).map_err(|e| e.to_string())?;
    let mut memory: Vec<Guarded> = program.args.iter().map(|a| Guarded::new(a.data())).collect();
    let args: Vec<ArgValue> = program
        .args
        .iter()
        .zip(&mut memory)
        .map(|(arg, memory)| match arg {
            InterpArg::Buffer(..) | InterpArg::BufferMut(..) => ArgValue::Ptr(memory.address()),
            InterpArg::Scalar(scalar) => ArgValue::Scalar(*scalar),
            InterpArg::View { dtype, offset, dims, strides, .. } => ArgValue::View {
                ptr: memory.address() + (offset * dtype.bytes()) as u64,
                dims: dims.clone(),
                strides: strides.clone(),
            },
        })
        .collect();
    // SAFETY: the interpreter ran the program over memory of this size without an error.
    unsafe { kernel.run(&args, program.grid) }.map_err(|e| e.to_string())?;
    memory.iter().map(Guarded::data).collect()
}

/// The program without every op that it fails without, at the same stage.
fn minimized(mut program: RandomProgram, stage: &str) -> RandomProgram {
    let fails = |program: &RandomProgram| agree(program).is_err_and(|e| e.starts_with(stage));
    // A change makes others possible, but rarely after the second time.
    for _ in 0..3 {
        for op in program.func.walk().into_iter().rev() {
            let mut smaller = program.clone();
            if reduce::remove(&mut smaller.func, op) && fails(&smaller) {
                program = smaller;
            }
        }
    }
    program
}
