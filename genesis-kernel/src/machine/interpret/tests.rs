//! Machine IR means what tile IR means, and each of its waits is needed.

use super::run;
use crate::DType;
use crate::compile::gpu_layout;
use crate::interp::run_func;
use crate::ir::random::{RandomOptions, random_program_with};
use crate::ir::{Func, InterpArg, Scalar, parse as parse_ir};
use crate::kernel::KernelDef;
use crate::layout::simulate::tests::elements;
use crate::layout::{LayoutIr, LayoutOptions, assign};
use crate::machine::golden::{attend, tiles};
use crate::machine::tests::MATMUL;
use crate::machine::{Block, Code, Inst, Program, SharedMemory, WarpSpecialized};
use crate::prelude::*;
use crate::target::GpuTarget;

/// A kernel on its way to a GPU.
struct Compiled {
    /// As it was written.
    kernel: Func,
    lir: LayoutIr,
    gpu: GpuTarget,
}

impl Compiled {
    fn of_text(text: &str, options: &LayoutOptions, gpu: GpuTarget) -> Compiled {
        let kernel = parse_ir(text).expect("it is tile IR");
        Compiled { lir: lowered(&kernel, options).expect("it has layouts"), kernel, gpu }
    }

    /// A kernel of bf16 for an H200, whose tiles the copy engine brings; no kernel writes the parameters whose bits are
    /// set in `constant`.
    fn on_hopper(kernel: &KernelDef, consts: &[i64], num_warps: u32, constant: u32) -> Compiled {
        let hints = Hints { num_warps: Some(num_warps), constant, ..Hints::contiguous(kernel.ast) };
        let special = kernel.specialize(&[DType::BF16], consts, &hints).expect("it is well formed");
        let gpu = GpuTarget::SM_90A;
        let lir = gpu_layout(&special, &gpu).expect("it has layouts");
        Compiled { kernel: special.func, lir, gpu }
    }

    fn memory(&self) -> SharedMemory {
        SharedMemory::of(&self.lir, &self.gpu).expect("it fits")
    }

    fn program(&self) -> Program {
        Program::of(&self.lir, &self.memory(), &self.gpu)
    }

    fn run(
        &self,
        program: &Program,
        grid: [u32; 3],
        args: &[InterpArg],
    ) -> Result<Vec<Vec<u64>>, String> {
        let memory = self.memory();
        let after = run(&self.kernel, (program, &self.lir, &memory), &self.gpu, grid, args)?;
        Ok(elements(args, &after))
    }

    fn expected(&self, grid: [u32; 3], args: &[InterpArg]) -> Vec<Vec<u64>> {
        let after = run_func(&self.kernel, grid, args.to_vec()).expect("it runs");
        let with_memory = args.iter().zip(after);
        let memories: Vec<Vec<u8>> = with_memory
            .filter(|(arg, _)| !matches!(arg, InterpArg::Scalar(_)))
            .map(|(_, bytes)| bytes)
            .collect();
        elements(args, &memories)
    }

    /// Compares what the code does with what the kernel means; and that without any instruction of these it does not.
    fn check(&self, grid: [u32; 3], args: &[InterpArg], needed: fn(&Inst) -> bool) -> usize {
        let (program, expected) = (self.program(), self.expected(grid, args));
        let text = || program.text(&self.lir);
        let got = self.run(&program, grid, args).unwrap_or_else(|why| panic!("{why}\n{}", text()));
        assert!(got == expected, "other numbers\n{}", text());
        let broken = without_each(&program, needed);
        let count = broken.len();
        for (number, program) in broken.into_iter().enumerate() {
            let got = self.run(&program, grid, args);
            let lacks = || missing(&text(), &program.text(&self.lir));
            assert!(got != Ok(expected.clone()), "as good without {number}: {}", lacks());
        }
        count
    }
}

/// The lines of a text that another lacks.
fn missing(whole: &str, other: &str) -> String {
    let mut rest = other.lines().peekable();
    let lacks = |line: &&str| rest.next_if(|next| next == line).is_none();
    whole.lines().filter(lacks).collect::<Vec<_>>().join("\n")
}

fn lowered(kernel: &Func, options: &LayoutOptions) -> Option<LayoutIr> {
    let func = crate::passes::views::run(kernel).ok()?;
    let mut func = crate::passes::pad::run(&func).ok()?;
    crate::passes::run(&mut func, crate::passes::PIPELINE);
    assign(&func, options).ok()
}

/// Whole numbers, whose sums are exact in any order.
fn numbers(count: usize, dtype: DType) -> Vec<u8> {
    let number = |i: usize| Scalar::float(dtype, ((i * 7 + i / 3) % 5) as f64 - 2.0).bits;
    let bytes = |i| number(i).to_le_bytes()[..dtype.bytes()].to_vec();
    (0..count).flat_map(bytes).collect()
}

/// A view of a matrix.
fn matrix(dtype: DType, [rows, columns]: [usize; 2], writable: bool) -> InterpArg {
    let data = match writable {
        true => vec![0; rows * columns * dtype.bytes()],
        false => numbers(rows * columns, dtype),
    };
    let (dims, strides) = (vec![rows as i64, columns as i64], vec![columns as i64, 1]);
    InterpArg::View { dtype, data, offset: 0, dims, strides, writable }
}

/// Every program that lacks one such instruction.
fn without_each(program: &Program, is: fn(&Inst) -> bool) -> Vec<Program> {
    match program {
        Program::Uniform(code) => {
            let entries = broken(&code.entry, is).into_iter();
            let entries = entries.map(|entry| Code { entry, ..(**code).clone() });
            let bodies = broken(&code.body, is).into_iter();
            let bodies = bodies.map(|body| Code { body, ..(**code).clone() });
            entries.chain(bodies).map(|code| Program::Uniform(Box::new(code))).collect()
        }
        Program::WarpSpecialized(roles) => {
            let mut all = Vec::new();
            let mut add = |change: &dyn Fn(&mut WarpSpecialized) -> &mut Block| {
                let mut roles = roles.clone();
                for block in broken(&change(&mut roles).clone(), is) {
                    *change(&mut roles) = block;
                    all.push(Program::WarpSpecialized(roles.clone()));
                }
            };
            add(&|roles| &mut roles.setup);
            add(&|roles| &mut roles.consumers.entry);
            add(&|roles| &mut roles.consumers.body);
            for part in 0..roles.producer.len() {
                add(&|roles| &mut roles.producer[part].code.entry);
                add(&|roles| &mut roles.producer[part].code.body);
            }
            all
        }
    }
}

/// Every block that lacks one such instruction.
fn broken(block: &Block, is: fn(&Inst) -> bool) -> Vec<Block> {
    let mut all = Vec::new();
    for (at, inst) in block.iter().enumerate() {
        let with = |new: Option<Inst>| -> Block {
            block[..at].iter().cloned().chain(new).chain(block[at + 1..].iter().cloned()).collect()
        };
        if is(inst) {
            all.push(with(None));
        }
        let mut parts = inst.clone();
        let count = inside(&mut parts).len();
        for part in 0..count {
            let own = inside(&mut parts)[part].clone();
            for block in broken(&own, is) {
                let mut changed = inst.clone();
                *inside(&mut changed)[part] = block;
                all.push(with(Some(changed)));
            }
        }
    }
    all
}

/// All blocks of an instruction.
fn inside(inst: &mut Inst) -> Vec<&mut Block> {
    match inst {
        Inst::For(inner) => {
            let inner = &mut **inner;
            let own = [&mut inner.prologue, &mut inner.body, &mut inner.left];
            own.into_iter().chain(inner.other.as_mut()).collect()
        }
        Inst::UnlessPrefetched { body, .. } => vec![body],
        _ => inst.blocks_mut(),
    }
}

#[test]
fn random_programs_mean_the_same() {
    // Padding changes the order in which floats are added.
    let options = RandomOptions {
        ordered_floats: false,
        transcendental: false,
        steps: 16,
        ..RandomOptions::default()
    };
    let mut runs = 0;
    for seed in 0..120 {
        let random = random_program_with(seed, options);
        let num_warps = [1, 2, 4][seed as usize % 3];
        let options = LayoutOptions { num_warps: Some(num_warps), ..LayoutOptions::default() };
        let Some(lir) = lowered(&random.func, &options) else { continue };
        let compiled = Compiled { kernel: random.func, lir, gpu: GpuTarget::SM_90A };
        let got = compiled.run(&compiled.program(), random.grid, &random.args);
        let expected = compiled.expected(random.grid, &random.args);
        let text = || compiled.program().text(&compiled.lir);
        assert!(got == Ok(expected), "seed {seed}: {:?}\n{}", got.err(), text());
        runs += 1;
    }
    assert!(runs > 60, "{runs}");
}

#[test]
fn copies_of_a_multistage_buffer_are_waited_for() {
    let options = LayoutOptions { num_warps: Some(4), ..LayoutOptions::default() };
    let compiled = Compiled::of_text(&MATMUL.replace("CONSTANT", ""), &options, GpuTarget::SM_80);
    let args = [
        matrix(DType::BF16, [64, 160], false),
        matrix(DType::BF16, [160, 64], false),
        InterpArg::Buffer(DType::F32, 3.0_f32.to_le_bytes().to_vec()),
        matrix(DType::F32, [64, 64], true),
    ];
    let needed =
        |inst: &Inst| matches!(inst, Inst::WaitCopies(_) | Inst::Barrier | Inst::CommitCopies);
    assert!(compiled.check([1; 3], &args, needed) >= 3);
}

/// Instructions of a pipeline that no code may lack.
fn of_pipelines(inst: &Inst) -> bool {
    matches!(
        inst,
        Inst::WaitFull(_)
            | Inst::WaitMma { .. }
            | Inst::FinishMma(_)
            | Inst::Arm(_)
            | Inst::Advance(_)
            | Inst::ReleaseNext(_)
            | Inst::ReleaseHeld(_)
            | Inst::HoldNext(_)
            | Inst::Release { .. }
            | Inst::GridWait
    )
}

/// Arguments of [`tiles`].
fn product([m, n, k]: [usize; 3]) -> [InterpArg; 3] {
    let [a, b] = [[m, k], [k, n]].map(|shape| matrix(DType::BF16, shape, false));
    [a, b, matrix(DType::BF16, [m, n], true)]
}

#[test]
fn a_product_takes_its_tiles_from_the_stages_that_hold_them() {
    let compiled = Compiled::on_hopper(&tiles::KERNEL, &[128, 32, 64], 8, 0);
    let args = product([128, 32, 832]);
    assert!(compiled.check([1; 3], &args, of_pipelines) >= 6);
}

#[test]
fn two_consumers_alternate_over_tiles() {
    let compiled = Compiled::on_hopper(&tiles::KERNEL, &[64, 256, 64], 4, 0);
    assert!(compiled.program().text(&compiled.lir).contains("await.tile"));
    let args = product([64 * 3, 256, 128]);
    assert!(compiled.check([1; 3], &args, of_pipelines) >= 6);
}

#[test]
fn what_is_constant_comes_before_the_grid() {
    let compiled = Compiled::on_hopper(&tiles::KERNEL, &[128, 32, 64], 8, 0b11);
    let Program::WarpSpecialized(roles) = compiled.program() else { panic!("it has a producer") };
    assert_eq!(roles.producer.len(), 2, "{}", compiled.program().text(&compiled.lir));
    // Here the producer has nothing to wait for, and waits all the same.
    let needed = |inst: &Inst| *inst != Inst::GridWait && of_pipelines(inst);
    assert!(compiled.check([1; 3], &product([128, 32, 832]), needed) >= 6);
}

#[test]
fn attention_reads_no_accumulator_in_flight() {
    let compiled = Compiled::on_hopper(&attend::KERNEL, &[128, 32, 64], 8, 0);
    let q = matrix(DType::BF16, [128, 64], false);
    let [k, v] = [(); 2].map(|()| matrix(DType::BF16, [128, 64], false));
    let args = [q, k, v, matrix(DType::BF16, [128, 64], true)];
    // A GPU's exp2 is another function, which rounds to the same numbers of 8 bits.
    // Nothing comes after a pipeline's last stage, so the producer need not advance past it.
    let needed = |inst: &Inst| !matches!(inst, Inst::Advance(_)) && of_pipelines(inst);
    assert!(compiled.check([1; 3], &args, needed) >= 6);
}

#[test]
fn an_error_names_its_instruction() {
    let compiled = Compiled::on_hopper(&tiles::KERNEL, &[128, 32, 64], 8, 0);
    let waits = |inst: &Inst| matches!(inst, Inst::WaitFull(_));
    let program = without_each(&compiled.program(), waits).remove(0);
    let why = compiled.run(&program, [1; 3], &product([128, 32, 832])).unwrap_err();
    assert!(why.contains("read before it is full, at `mma "), "{why}");
}
