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

/// Four bytes at a time, with two results of other widths; and two halves.
#[kernel]
fn packs<const N: usize>(
    x: Ptr<u8>,
    y: PtrMut<u8>,
    low: PtrMut<u16>,
    f: PtrMut<f32>,
    half: PtrMut<f16>,
) {
    let i = arange::<N>();
    let v = load(x + i);
    // Bytes that are added without carries between them.
    let one = 1_u8;
    let sums = inline_asm!(
        "{ .reg .b32 a, b; and.b32 a, $1, 0x7f7f7f7f; and.b32 b, $2, 0x7f7f7f7f;
         add.u32 a, a, b; xor.b32 b, $1, $2; and.b32 b, b, 0x80808080; xor.b32 $0, a, b; }",
        "=r,r,r",
        v,
        one,
        v + 1,
        pack = 4
    );
    store(y + i, sums);
    // A result that is written before the inputs are read: two registers of u16, four of f32.
    let (words, floats) = inline_asm!(
        "{ .reg .b32 t; and.b32 $0, $6, 0xff; and.b32 t, $6, 0xff00; shl.b32 t, t, 8; or.b32 $0, $0, t;
         shr.u32 $1, $6, 16; and.b32 t, $1, 0xff00; shl.b32 t, t, 8; and.b32 $1, $1, 0x00ff; or.b32 $1, $1, t;
         add.f32 $2, $7, $7; add.f32 $3, $8, $8; add.f32 $4, $9, $9; add.f32 $5, $10, $10; }",
        "=r,=r,=&f,=f,=f,=f,r,f,f,f,f",
        v,
        v.to::<f32>(),
        (v.to::<u16>(), v.to::<f32>() * 2.0),
        pack = 4
    );
    store(low + i, words);
    store(f + i, floats);
    let h = v.to::<f16>();
    store(half + i, inline_asm!("xor.b32 $0, $1, 0x80008000;", "=r,r", h, -h, pack = 2));
}

/// Of a scalar, and of both results of one element; a sum and a difference.
#[kernel]
fn results<const N: usize>(x: Ptr<u32>, y: PtrMut<u32>, z: PtrMut<i64>) {
    let i = arange::<N>();
    let (v, first) = (load(x + i), load(x));
    let (sum, difference) = inline_asm!(
        "add.u32 $0, $2, $3; sub.u32 $1, $2, $3;",
        "=r,=r,r,r",
        v,
        first,
        (v + first, v - first)
    );
    store(y + i, sum * difference);
    let (narrow, wide) = inline_asm!(
        "mov.b32 $0, 7; cvt.s64.s32 $1, $2;",
        "=r, =l, r",
        first,
        (7_i32, first.to::<i32>().to::<i64>())
    );
    let byte = inline_asm!("mov.b32 $0, 0x05050505;", "=r", 5_u8, pack = 4);
    store(z, wide + narrow.to::<i64>() + byte.to::<i64>());
}

#[test]
fn several_elements_and_results_are_those_of_the_values() {
    for n in [1_usize, 2, 4, 32, 96, 1024] {
        let x: Vec<u8> = (0..n).map(|i| (i * 77 % 256) as u8).collect();
        let args = vec![
            InterpArg::Buffer(DType::U8, x.clone()),
            written(DType::U8, n),
            written(DType::U16, n),
            written(DType::F32, n),
            written(DType::F16, n),
        ];
        let memory = everywhere(program_of(&packs::KERNEL, &[], &[n as i64], args));
        assert_eq!(memory[1], x.iter().map(|v| v.wrapping_add(1)).collect::<Vec<_>>());
        let words: Vec<u16> = x.iter().map(|&v| u16::from(v)).collect();
        assert_eq!(numbers::<u16>(&memory[2]), words);
        assert_eq!(numbers::<f32>(&memory[3])[n - 1], 2.0 * f32::from(x[n - 1]));
        let x: Vec<u32> = (0..n as u32).map(|i| i * 77_777 + 5).collect();
        let args = vec![
            InterpArg::Buffer(DType::U32, bytes(&x)),
            written(DType::U32, n),
            written(DType::I64, 1),
        ];
        let memory = everywhere(program_of(&results::KERNEL, &[], &[n as i64], args));
        let expected: Vec<u32> = x.iter().map(|v| (v + 5).wrapping_mul(v - 5)).collect();
        assert_eq!(numbers::<u32>(&memory[1]), expected);
        assert_eq!(numbers::<i64>(&memory[2]), [5 + 7 + 5]);
    }
}

#[test]
fn several_results_are_one_text() {
    let hints = Hints { num_warps: Some(4), ..Hints::default() };
    let ptx = |kernel: &KernelDef, n: i64| {
        let special = kernel.specialize(&[], &[n], &hints).unwrap();
        special.compile(&Target::sm_80()).unwrap().ptx().unwrap().to_owned()
    };
    // One element a thread: one text for sum and difference.
    assert_eq!(ptx(&results::KERNEL, 128).matches("sub.u32").count(), 1);
    // Sixteen bytes a thread: four texts, for both results.
    let text = ptx(&packs::KERNEL, 2048);
    assert_eq!(
        (text.matches("0x80808080").count(), text.matches("0x00ff").count()),
        (4, 4),
        "{text}"
    );
}

#[test]
fn assembly_assembles() {
    assembles(&packs::KERNEL, &[], &[2048]);
    assembles(&results::KERNEL, &[], &[256]);
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

#[kernel]
fn halved(x: Ptr<u8>) {
    let v = load(x + arange::<8>());
    let w = inline_asm!("mov.b32 $0, $1;", "=r,r", v, v, pack = 2);
    device_assert!(w == w, "a number");
}

#[kernel]
fn few(x: Ptr<u16>) {
    let v = load(x + arange::<8>());
    let w = inline_asm!("mov.b32 $0, $1;", "=r,r", v, v, pack = 4);
    device_assert!(w == w, "a number");
}

#[kernel]
fn many(x: Ptr<u16>) {
    let v = load(x + arange::<8>());
    let w = inline_asm!("mov.b32 $0, $1;", "=r,r,r", v, v, pack = 2);
    device_assert!(w == w, "a number");
}

#[kernel]
fn resultless(x: Ptr<u32>) {
    let v = load(x);
    let w = inline_asm!("mov.b32 $0, $2;", "=r,=r,r", v, v);
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
    let cases: [(&KernelDef, &[DType], &str); 11] = [
        (&halved::KERNEL, &[], "the constraint `r` does not fit a tile of u8 [8], 2 at a time"),
        (&few::KERNEL, &[], "4 elements of a tile of u16 [8] are 2 registers of `r`"),
        (&many::KERNEL, &[], "the constraints name 1 more registers than the inputs are"),
        (&resultless::KERNEL, &[], "`inline_asm!` has 1 result, its constraints name 2"),
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
