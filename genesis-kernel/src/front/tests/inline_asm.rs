//! Inline assembly: PTX on emulated GPUs, and what stands for it on the interpreter and the CPU.

use super::runs::{assembles, bytes, numbers, program_of, written};
use crate::differential::everywhere;
use crate::front::Hints;
use crate::ir::{DType, InterpArg};
use crate::kernel::KernelDef;
use crate::prelude::*;
use crate::target::Target;

#[kernel]
fn mixed<const M: usize, const N: usize>(
    x: Ptr<u32>,
    y: PtrMut<u32>,
    wide: PtrMut<u64>,
    f: PtrMut<f32>,
    half: PtrMut<bf16>,
) {
    let at = arange::<M>().col() * N + arange::<N>().row();
    let v = load(x + at);
    let row = load(x + arange::<N>()).row();
    let lop3 =
        inline_asm!("lop3.b32 $0, $1, $2, $3, 0x96;", "=r,r,r,r", v, row, 7_u32, v ^ row ^ 7_u32);
    store(y + at, lop3);
    // A register of its own, and one of another width.
    let text = inline_asm!(
        "{ .reg .b64 t;\n mul.wide.u32 t, $1, $1;\n add.u64 $0, t, 1; }",
        "=l,r",
        v,
        v.to::<u64>() * v.to::<u64>() + 1
    );
    store(wide + at, text);
    let half_of =
        inline_asm!("mul.f32 $0, $1, 0f3F000000;", "=f,f", v.to::<f32>(), v.to::<f32>() * 0.5);
    store(f + at, half_of);
    let bits = inline_asm!(
        "xor.b16 $0, $1, 1;",
        "=h, h",
        half_of.to::<bf16>(),
        flipped(half_of.to::<bf16>())
    );
    store(half + at, bits);
    let one = inline_asm!("mov.u32 $0, 9; // $$", "=r", 9_u32);
    store(y, one);
}

#[device]
fn flipped<S: Shape>(x: Tile<bf16, S>) -> Tile<bf16, S> {
    bitcast::<bf16>(bitcast::<i16>(x) ^ 1)
}

#[test]
fn text_and_value_are_the_same() {
    let x: Vec<u32> = (0..32).map(|i| i * 77_777).collect();
    let args = vec![
        InterpArg::Buffer(DType::U32, bytes(&x)),
        written(DType::U32, 32),
        written(DType::U64, 32),
        written(DType::F32, 32),
        written(DType::BF16, 32),
    ];
    let memory = everywhere(program_of(&mixed::KERNEL, &[], &[4, 8], args));
    let y = numbers::<u32>(&memory[1]);
    assert_eq!(y[0], 9);
    let expected: Vec<u32> = (1..32).map(|i| x[i] ^ x[i % 8] ^ 7).collect();
    assert_eq!(y[1..], expected);
    let squares: Vec<u64> = x.iter().map(|&v| u64::from(v) * u64::from(v) + 1).collect();
    assert_eq!(numbers::<u64>(&memory[2]), squares);
    assert_eq!(numbers::<f32>(&memory[3])[3], 3.0 * 77_777.0 / 2.0);
}

#[test]
fn assembly_assembles() {
    assembles(&mixed::KERNEL, &[], &[4, 64]);
}

#[test]
fn what_stands_for_the_text_is_no_code_of_a_gpu() {
    let special = approximate::KERNEL.specialize(&[], &[], &Hints::default()).unwrap();
    let ptx = |target| special.compile(&target).unwrap().ptx().unwrap().to_owned();
    for text in [ptx(Target::sm_80()), ptx(Target::sm_90a())] {
        assert!(text.contains("tanh.approx.f32"), "{text}");
        assert!(!text.contains("ex2"), "{text}");
    }
    assert!(special.tir().contains(r#"asm "tanh.approx.f32 $0, $1;" "=f,f""#));
}

#[kernel]
fn approximate(x: Ptr<f32>, y: PtrMut<f32>) {
    let v = load(x);
    store(y, inline_asm!("tanh.approx.f32 $0, $1;", "=f,f", v, tanh(v)));
}

fn refusal(kernel: &KernelDef, dtypes: &[DType]) -> String {
    let built = crate::front::build(kernel.ast, dtypes, &[], &Hints::default());
    built.map_or_else(|error| error.message, |_| "accepted".to_owned())
}

#[kernel]
fn misnamed(x: Ptr<f32>) {
    let v = load(x);
    let w = inline_asm!("add.f32 $0, $1, $2;", "=f,f", v, v + v);
    device_assert!(w == w, "a number");
}

#[kernel]
fn unconstrained(x: Ptr<f32>) {
    let v = load(x);
    let w = inline_asm!("add.f32 $0, $1, $1;", "=f,f,f", v, v + v);
    device_assert!(w == w, "a number");
}

#[kernel]
fn unknown(x: Ptr<f32>) {
    let v = load(x);
    let w = inline_asm!("add.f32 $0, $1, $1;", "=f,x", v, v + v);
    device_assert!(w == w, "a number");
}

#[kernel]
fn unfit<T: Number>(x: Ptr<T>) {
    let v = load(x);
    let w = inline_asm!("add.f32 $0, $1, $1;", "=r,f", v, 1_u32);
    device_assert!(w == w, "a number");
}

#[kernel]
fn narrow(x: Ptr<u8>) {
    let v = load(x);
    let w = inline_asm!("mov.u32 $0, 1;", "=r", v);
    device_assert!(w == w, "a number");
}

#[kernel]
fn shaped(x: Ptr<f32>) {
    let v = load(x + arange::<8>());
    let w = inline_asm!("add.f32 $0, $1, $1;", "=f,f", v, 1.0_f32);
    device_assert!(w == w, "a number");
}

#[device]
fn stores(x: PtrMut<f32>) -> f32 {
    store(x, 1.0);
    1.0_f32
}

#[kernel]
fn effects(x: PtrMut<f32>) {
    let w = inline_asm!("mov.f32 $0, 1.0;", "=f", stores(x));
    device_assert!(w == w, "a number");
}

#[test]
fn what_fits_no_register_is_refused() {
    let cases: [(&KernelDef, &[DType], &str); 7] = [
        (&misnamed::KERNEL, &[], "the assembly names `$2`, its operands are `$0` to `$1`"),
        (&unconstrained::KERNEL, &[], "`inline_asm!` has 1 input, its constraints name 2"),
        (&unfit::KERNEL, &[DType::I32], "the constraint `f` does not fit a scalar of i32"),
        (&narrow::KERNEL, &[], "the constraint `=r` does not fit a result of u8"),
        (&shaped::KERNEL, &[], "an input of shape [8] for a result of shape []"),
        (&effects::KERNEL, &[], "the value of `inline_asm!` has side effects"),
        (&unfit::KERNEL, &[DType::F32], "accepted"),
    ];
    for (kernel, dtypes, message) in cases {
        assert_eq!(refusal(kernel, dtypes), message);
    }
    assert!(refusal(&unknown::KERNEL, &[]).starts_with("`x` is no constraint: `h`, `r` and `l`"));
}
