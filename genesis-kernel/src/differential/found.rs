//! Programs that once failed, cut down: each is the same on every machine now.

use super::{Machine, Outcome, Subject};
use crate::front::Hints;
use crate::ir::InterpArg;
use crate::ir::random::{RandomProgram, Rng};
use crate::ir::{DType, Scalar, Type, parse};
use crate::target::GpuTarget;

/// Elements of each argument's memory.
const ELEMENTS: usize = 1024;
/// Elements along each axis of a view.
const EXTENT: i64 = 64;

/// A view whose extents are all 64, along whose last axis the stride is 1.
fn view(dtype: DType, data: Vec<u8>, rank: u8, writable: bool) -> InterpArg {
    let dims = vec![EXTENT; usize::from(rank)];
    let strides: Vec<i64> = (0..u32::from(rank)).rev().map(|axis| EXTENT.pow(axis)).collect();
    InterpArg::View { dtype, data, offset: 0, dims, strides, writable }
}

/// Runs a program on random data.
fn check(num_warps: u32, text: &str) {
    let hints = Hints { num_warps: Some(num_warps), ..Hints::default() };
    check_with(hints, text, |rng, dtype, len| rng.data(dtype, len));
}

/// Whole numbers from -2 to 2, with which sums are exact in any order.
fn whole(rng: &mut Rng, dtype: DType, len: usize) -> Vec<u8> {
    let bits = (0..len).map(|_| Scalar::float(dtype, f64::from(rng.range(0, 4) as i32 - 2)).bits);
    bits.flat_map(|bits| bits.to_le_bytes().into_iter().take(dtype.bytes())).collect()
}

/// As [`check`], with what else the compiler is told to choose, and on these data.
fn check_with(hints: Hints, text: &str, draw: fn(&mut Rng, DType, usize) -> Vec<u8>) {
    let func = parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut rng = Rng::new(7);
    let args = func.params.iter().map(|param| match func.ty(param.value) {
        Type::Tile(tile) if tile.is_ptr() => {
            let data = draw(&mut rng, tile.dtype(), ELEMENTS);
            match param.attrs.readonly {
                true => InterpArg::Buffer(tile.dtype(), data),
                false => InterpArg::BufferMut(tile.dtype(), data),
            }
        }
        Type::Tile(tile) => InterpArg::Scalar(rng.scalar(tile.dtype())),
        Type::View { dtype, rank } => {
            let data = draw(&mut rng, dtype, EXTENT.pow(u32::from(rank)) as usize);
            view(dtype, data, rank, !param.attrs.readonly)
        }
    });
    let args = args.collect();
    let program = RandomProgram { func, args, grid: [1; 3], approximate: Vec::new() };
    let subject = Subject { program, hints };
    let expected = subject.expected().unwrap_or_else(|e| panic!("{e}\n{text}"));
    let gpus = [GpuTarget::SM_80, GpuTarget::SM_90A].map(Machine::Emulated);
    for machine in [Machine::Cpu, gpus[0], gpus[1]] {
        let outcome = subject.outcome(machine, &expected);
        assert_eq!(outcome, Outcome::Pass, "{machine:?}\n{text}");
    }
}

/// LLVM made one store of four bytes, behind the barrier that hands them to other threads: the memory was
/// `noalias`, which nobody else could know.
#[test]
fn stores_stay_before_their_barrier() {
    check(
        2,
        "kernel hand(%x: *i32 readonly, %a: *bool exclusive, %b: *bool exclusive) {
            %0 = iota : i64[256]
            %1 = broadcast %x : *i32[256]
            %2 = ptr_add %1, %0 : *i32[256]
            %3 = load %2 : i32[256]
            %4 = cast %3 : bf16[256]
            %5 = const 0.0 : bf16
            %6 = broadcast %5 : bf16[256]
            %7 = fma %4, %6, %6 : bf16[256]
            %8 = cmp ne %7, %4 : bool[256]
            %9 = broadcast %a : *bool[256]
            %10 = ptr_add %9, %0 : *bool[256]
            store %10, %8
            %11 = const 0 : i64
            %12 = broadcast %11 : i64[256]
            %13 = ptr_add %9, %12 : *bool[256]
            %14 = load %13 : bool[256]
            %15 = select %8, %14, %8 : bool[256]
            %16 = broadcast %b : *bool[256]
            %17 = ptr_add %16, %0 : *bool[256]
            store %17, %15
            return
        }",
    );
}

#[test]
fn a_load_between_stores_of_other_threads_is_not_the_one_before() {
    check(
        4,
        "kernel turn(%x: *i32 readonly, %a: *i32 exclusive, %b: *i32 exclusive) {
            %0 = iota : i64[128]
            %1 = const 127 : i64
            %2 = broadcast %1 : i64[128]
            %3 = sub %2, %0 : i64[128]
            %4 = broadcast %x : *i32[128]
            %5 = ptr_add %4, %0 : *i32[128]
            %6 = load %5 : i32[128]
            %7 = broadcast %a : *i32[128]
            %8 = ptr_add %7, %0 : *i32[128]
            %9 = ptr_add %7, %3 : *i32[128]
            %10 = load %9 : i32[128]
            store %8, %6
            %11 = load %9 : i32[128]
            %12 = add %10, %11 : i32[128]
            %13 = broadcast %b : *i32[128]
            %14 = ptr_add %13, %0 : *i32[128]
            store %14, %12
            return
        }",
    );
}

/// A sum that multiply-adds leave becomes that of tensor cores, which lay it out in another way.
#[test]
fn a_dot_keeps_the_layout_of_its_unit() {
    check(
        1,
        "kernel random(%out5: *f32 exclusive) {
            %0 = const 0.0 : f16
            %1 = broadcast %0 : f16[16x5]
            %3 = broadcast %0 : f16[5x16]
            %4 = const 0.0 : f32
            %5 = broadcast %4 : f32[16x16]
            %6 = dot ieee %1, %3, %5 : f32[16x16]
            %14 = const 0.0 : f8e5m2
            %15 = broadcast %14 : f8e5m2[32x32]
            %17 = broadcast %14 : f8e5m2[32x8]
            %18 = reshape %6 : f32[32x8]
            %24 = dot ieee %15, %17, %18 : f32[32x8]
            %29 = iota : i64[256]
            %30 = reshape %29 : i64[32x8]
            %31 = broadcast %out5 : *f32[32x8]
            %32 = ptr_add %31, %30 : *f32[32x8]
            store %32, %24
            return
        }",
    );
}

/// The upper half of a product by -2 is a difference of two words with a borrow.
#[test]
fn words_are_subtracted_with_a_borrow() {
    check(
        1,
        "kernel high(%out: *i64 exclusive) {
            %0 = program_id 0 : i64
            %1 = const -2 : i64
            %2 = mul_hi %0, %1 : i64
            store %out, %2
            return
        }",
    );
}

/// A product that nobody uses, in more iterations than a ring has slots, behind `%sums`.
fn unused_product(used: &str) -> String {
    format!(
        "kernel unused(%a: view<bf16,2> readonly multiple_of 16 unit_stride stride_multiple_of 16, \
            %b: view<bf16,2> readonly multiple_of 16 unit_stride stride_multiple_of 16, \
            %out: *f32 exclusive) {{
            %0 = const 0 : i64
            %1 = const 64 : i64
            %2 = const 16 : i64
            %3 = const 0.0 : f32
            %4 = broadcast %3 : f32[64x16]
            %5 = for %6 = %0 to %1 step %2 carry (%7 = %4) {{
                %8 = view_load %a, %0, %6 : bf16[64x16]
                %9 = view_load %b, %6, %0 : bf16[16x16]
                %10 = dot ieee %8, %9, %7 : f32[64x16]
                yield %10
            }} : f32[64x16]
            {used}
            %11 = iota : i64[1024]
            %12 = reshape %11 : i64[64x16]
            %13 = broadcast %out : *f32[64x16]
            %14 = ptr_add %13, %12 : *f32[64x16]
            store %14, %sums
            return
        }}"
    )
}

/// The producer brought its tiles all the same and waited for ever for somebody to free their slots.
#[test]
fn tiles_of_a_product_that_nobody_uses_are_not_brought() {
    check(1, &unused_product("%sums = neg %4 : f32[64x16]"));
}

/// The same where only the passes find out that nobody uses it.
#[test]
fn tiles_of_a_product_that_folds_away_are_not_brought() {
    let choice = "%no = const false : bool
            %noes = broadcast %no : bool[64x16]
            %sums = select %noes, %5, %4 : f32[64x16]";
    check(1, &unused_product(choice));
}

/// The analysis of runs added 1 to the mask, to see that it is one of low bits.
#[test]
fn a_mask_of_all_bits_but_the_sign_is_a_remainder() {
    check(
        1,
        "kernel mask(%out: *i64 exclusive) {
            %0 = program_id 0 : i64
            %1 = const -5 : i64
            %2 = sub %1, %0 : i64
            %3 = const 9223372036854775807 : i64
            %4 = and %2, %3 : i64
            store %out, %4
            return
        }",
    );
}

/// ptxas takes `neg.s16` and `abs` not to wrap, which the emulator refuses in its place.
#[test]
fn the_least_integer_is_its_own_negative() {
    check(
        1,
        "kernel least(%x: *i16 readonly, %n: *i32 exclusive, %a: *i16 exclusive, %b: *bool exclusive) {
            %0 = iota : i64[128]
            %1 = broadcast %x : *i16[128]
            %2 = ptr_add %1, %0 : *i16[128]
            %3 = load %2 : i16[128]
            %4 = neg %3 : i16[128]
            %5 = cast %4 : i32[128]
            %6 = broadcast %n : *i32[128]
            %7 = ptr_add %6, %0 : *i32[128]
            store %7, %5
            %8 = abs %3 : i16[128]
            %9 = const 3 : i16
            %10 = broadcast %9 : i16[128]
            %11 = shr %8, %10 : i16[128]
            %12 = broadcast %a : *i16[128]
            %13 = ptr_add %12, %0 : *i16[128]
            store %13, %11
            %14 = abs %5 : i32[128]
            %15 = const 0 : i32
            %16 = broadcast %15 : i32[128]
            %17 = cmp lt %14, %16 : bool[128]
            %18 = broadcast %b : *bool[128]
            %19 = ptr_add %18, %0 : *bool[128]
            store %19, %17
            return
        }",
    );
}

/// The CPU kept a tile of which a loop over one element read half, and wrote that half alone.
#[test]
fn a_tile_of_which_half_is_read_is_kept_whole() {
    check(
        1,
        "kernel half(%x: *f32 readonly, %k: i64, %a: *u64 exclusive, %b: *f32 exclusive) {
            %0 = const 0 : i64
            %1 = iota : i64[2]
            %2 = broadcast %x : *f32[2]
            %3 = ptr_add %2, %1 : *f32[2]
            %4 = load %3 : f32[2]
            %5 = reshape %4 : f32[1x2]
            %6, %7 = split %5 : f32[1], f32[1]
            %8, %9 = while carry (%10 = %k, %11 = %6) {
                %12 = const false : bool
                yield %12
            } do (%13, %14) {
                %15 = cast %7 : u64[1]
                %16 = broadcast %a : *u64[1]
                %17 = atomic_rmw add %16, %15 : u64[1]
                yield %0, %14
            } : i64, f32[1]
            %18 = broadcast %b : *f32[2]
            %19 = ptr_add %18, %1 : *f32[2]
            store %19, %4
            return
        }",
    );
}

/// The product of an iteration ran into the next one, which waited for the only slot. All sums are exact.
#[test]
fn products_of_one_slot_do_not_wait_for_themselves() {
    let hints = Hints { num_warps: Some(4), num_stages: Some(1), ..Hints::default() };
    let unit = "readonly multiple_of 16 unit_axis 1 stride_multiple_of 16";
    check_with(
        hints,
        &format!(
            "kernel product(%a: view<bf16,2> {unit}, %b: view<bf16,2> {unit}, %c: view<f32,2> exclusive) {{
            %0 = const 0 : i64
            %1 = const 64 : i64
            %2 = const 32 : i64
            %3 = const 0.0 : f32
            %4 = broadcast %3 : f32[64x64]
            %5 = for %6 = %0 to %1 step %2 carry (%7 = %4) {{
                %8 = view_load %a, %0, %6 : bf16[64x32]
                %9 = view_load %b, %6, %0 : bf16[32x64]
                %10 = dot ieee %8, %9, %7 : f32[64x64]
                yield %10
            }} : f32[64x64]
            view_store %c, %5, %0, %0
            return
        }}"
        ),
        whole,
    );
}

/// LLVM gave NaN for the lesser of NaN and a number that comes of an integer.
#[test]
fn nan_is_no_extreme_beside_what_is_known_to_be_a_number() {
    check(
        1,
        "kernel extreme(%a: *f64 exclusive, %b: *f64 exclusive) {
            %0 = program_id 0 : i64
            %1 = const -2 : i64
            %2 = xor %1, %0 : i64
            %3 = bitcast %2 : f64
            %4 = cast %2 : f64
            %5 = min_num %3, %4 : f64
            store %a, %5
            %6 = max_num %4, %3 : f64
            store %b, %6
            return
        }",
    );
}

/// ptxas made one instruction of the maximum and the comparison, whose unused half decided, as
/// only a GPU shows; here the rewritten text is seen to be right.
#[test]
fn a_remainder_by_a_maximum_of_16_bits() {
    check(
        1,
        "kernel rem(%x: *i16 readonly, %o: *i16 exclusive) {
            %0 = iota : i64[128]
            %1 = broadcast %x : *i16[128]
            %2 = ptr_add %1, %0 : *i16[128]
            %3 = load %2 : i16[128]
            %4 = const 0 : i16
            %5 = broadcast %4 : i16[128]
            %6 = max %3, %5 : i16[128]
            %7 = const 3 : i16
            %8 = broadcast %7 : i16[128]
            %9 = rem %8, %6 : i16[128]
            %10 = broadcast %o : *i16[128]
            %11 = ptr_add %10, %0 : *i16[128]
            store %11, %9
            return
        }",
    );
}

#[test]
fn half_bits_as_bfloat_are_compared_with_zero() {
    let text = "
kernel k(%x: *f16 readonly, %y: *bf16) {
  %0 = iota : i64[64]
  %1 = broadcast %x : *f16[64]
  %2 = ptr_add %1, %0 : *f16[64]
  %3 = load %2 : f16[64]
  %4 = add %3, %3 : f16[64]
  %5 = bitcast %4 : bf16[64]
  %6 = const 0.0 : bf16
  %7 = broadcast %6 : bf16[64]
  %8 = cmp ne %5, %7 : bool[64]
  %9 = const 1.0 : bf16
  %10 = broadcast %9 : bf16[64]
  %11 = select %8, %5, %10 : bf16[64]
  %12 = broadcast %y : *bf16[64]
  %13 = ptr_add %12, %0 : *bf16[64]
  store %13, %11
  return
}
";
    check(2, text);
    let by_integers = text.replace(
        "%5 = bitcast %4 : bf16[64]",
        "%20 = bitcast %4 : i16[64]\n  %5 = bitcast %20 : bf16[64]",
    );
    check(2, &by_integers);
}
