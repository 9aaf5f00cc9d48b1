//! Gathers along an axis and masked compare-and-swap: every dtype, on the interpreter, the CPU and emulated GPUs.

use super::runs::{assembles, bytes, numbers, program_of, written};
use crate::differential::everywhere;
use crate::front::Hints;
use crate::ir::{DType, InterpArg, Scalar};
use crate::kernel::KernelDef;
use crate::prelude::*;
use crate::target::Target;

/// `y[i, j] = x[i, index[i, j]]` and `z[j, i] = x'[index'[j, i], i]`.
#[kernel]
fn gathers<T: Element, I: Int, const M: usize, const N: usize, const K: usize>(
    x: Ptr<T>,
    index: Ptr<I>,
    y: PtrMut<T>,
    z: PtrMut<T>,
) {
    let v = load(x + (arange::<M>().col() * N + arange::<N>().row()));
    let at = arange::<M>().col() * K + arange::<K>().row();
    let i = load(index + at);
    store(y + at, gather(v, i, 1));
    store(z + trans(at), gather(v.trans(), i.trans(), 0));
}

/// `y[i, index[i, j]] = x[i, j]` and `z[index'[j, i], i] = x'[j, i]`.
#[kernel]
fn scatters<T: Element, I: Int, const M: usize, const N: usize>(
    x: Ptr<T>,
    index: Ptr<I>,
    y: PtrMut<T>,
    z: PtrMut<T>,
) {
    let at = arange::<M>().col() * N + arange::<N>().row();
    let (v, i) = (load(x + at), load(index + at));
    store(y + at, scatter(v, i, 1));
    store(z + trans(at), scatter(v.trans(), i.trans(), 0));
}

/// Whole numbers of a dtype that are all different, as far as it has as many.
fn different(dtype: DType, n: usize) -> Vec<u8> {
    let number = |i: usize| match dtype {
        DType::Bool => Scalar::int(dtype, (i % 3 == 1) as i64),
        _ if dtype.is_float() => Scalar::float(dtype, (i % 200) as f64 + 1.0),
        _ => Scalar::int(dtype, i as i64 + 1),
    };
    (0..n).flat_map(|i| number(i).bits.to_le_bytes()[..dtype.bytes()].to_vec()).collect()
}

fn check(dtype: DType, index: DType, [m, n, k]: [usize; 3]) {
    // Some are before the first element, some past the last.
    let place = |i: usize| (i * 7 % (n + 2)) as i64 - i64::from(index.is_signed_int());
    let places: Vec<i64> = (0..m * k).map(place).collect();
    let scalars = places.iter().map(|&at| Scalar::int(index, at));
    let raw = scalars.flat_map(|s| s.bits.to_le_bytes()[..index.bytes()].to_vec()).collect();
    let x = different(dtype, m * n);
    let args = vec![
        InterpArg::Buffer(dtype, x.clone()),
        InterpArg::Buffer(index, raw),
        written(dtype, m * k),
        written(dtype, m * k),
    ];
    let consts = [m, n, k].map(|c| c as i64);
    let memory = everywhere(program_of(&gathers::KERNEL, &[dtype, index], &consts, args));
    let size = dtype.bytes();
    let expected: Vec<u8> = (0..m * k)
        .flat_map(|i| match usize::try_from(places[i]) {
            Ok(at) if at < n => x[(i / k * n + at) * size..][..size].to_vec(),
            _ => vec![0; size],
        })
        .collect();
    assert_eq!(memory[2], expected, "{dtype} by {index}");
    assert_eq!(memory[3], expected, "{dtype} by {index}, along columns");
}

#[test]
fn every_dtype_is_gathered() {
    for dtype in DType::ALL {
        check(dtype, DType::I32, [4, 16, 8]);
    }
}

#[test]
fn every_integer_is_an_index() {
    for index in DType::ALL.into_iter().filter(|dtype| dtype.is_int()) {
        check(DType::F32, index, [2, 32, 16]);
    }
}

#[test]
fn extents_need_not_be_powers_of_two() {
    check(DType::F32, DType::I64, [3, 5, 7]);
    check(DType::I16, DType::U8, [1, 200, 9]);
    check(DType::BF16, DType::I8, [5, 100, 1]);
    check(DType::F64, DType::I64, [1, 1, 3]);
    check(DType::F32, DType::I32, [8, 256, 64]);
}

/// `y[i, j] = x[i, index[i, j]]`
#[kernel]
fn picked<T: Element, const M: usize, const N: usize>(x: Ptr<T>, index: Ptr<i32>, y: PtrMut<T>) {
    let at = arange::<M>().col() * N + arange::<N>().row();
    store(y + at, gather(load(x + at), load(index + at), 1));
}

fn code_of_picked(dtype: DType, consts: [i64; 2], num_warps: u32) -> String {
    let hints = Hints { num_warps: Some(num_warps), ..Hints::default() };
    let special = picked::KERNEL.specialize(&[dtype], &consts, &hints).unwrap();
    let compiled = special.compile(&Target::sm_80()).unwrap();
    compiled.ptx().unwrap().to_owned()
}

/// Rows of four, each read at once: `y[i, j] = x[i, 3 - j] + x[i, index[i, j]]`.
#[kernel]
fn own<const M: usize>(x: Ptr<f32>, index: Ptr<i32>, y: PtrMut<f32>) {
    let column = arange::<4>().row();
    let at = arange::<M>().col() * 4 + column;
    let v = load(multiple_of(x, 4) + at);
    let back = gather(v, (3 - column).broadcast_to::<M, 4>(), 1);
    store(multiple_of(y, 4) + at, back + gather(v, load(multiple_of(index, 4) + at), 1));
}

#[test]
fn registers_of_a_thread_are_chosen_from() {
    for m in [1_usize, 8, 64, 256] {
        let x: Vec<f32> = (0..m * 4).map(|i| (i * 5 % 97) as f32).collect();
        let index: Vec<i32> = (0..m * 4).map(|i| (i * 7 % 6) as i32 - 1).collect();
        let args = vec![
            InterpArg::Buffer(DType::F32, bytes(&x)),
            InterpArg::Buffer(DType::I32, bytes(&index)),
            written(DType::F32, m * 4),
        ];
        let memory = everywhere(program_of(&own::KERNEL, &[], &[m as i64], args));
        let picked = |i: usize| match index[i] {
            at @ 0..4 => x[i / 4 * 4 + at as usize],
            _ => 0.0,
        };
        let expected = (0..m * 4).map(|i| x[i / 4 * 4 + 3 - i % 4] + picked(i));
        assert_eq!(numbers::<f32>(&memory[2]), expected.collect::<Vec<f32>>());
    }
    assembles(&own::KERNEL, &[], &[256]);
}

#[test]
fn what_a_warp_holds_is_shuffled() {
    for (dtype, consts) in [(DType::F32, [4, 32]), (DType::BF16, [16, 64]), (DType::Bool, [4, 32])]
    {
        let ptx = code_of_picked(dtype, consts, 4);
        assert!(ptx.contains("shfl.sync.idx"), "{dtype}: {ptx}");
        assert!(!ptx.contains("st.shared") && !ptx.contains("bar.sync"), "{dtype}: {ptx}");
    }
    // Two rows in the lanes of a warp, and two registers of each lane for a row.
    for (consts, shuffles) in [([32, 16], 4), ([16, 64], 16)] {
        let ptx = code_of_picked(DType::F32, consts, 4);
        assert_eq!(ptx.matches("shfl.sync.idx").count(), shuffles, "{ptx}");
    }
    // A row of a thread's own registers.
    let special = own::KERNEL.specialize(&[], &[256], &Hints::default()).unwrap();
    let ptx = special.compile(&Target::sm_80()).unwrap().ptx().unwrap().to_owned();
    assert!(!ptx.contains("shfl") && !ptx.contains("st.shared"), "{ptx}");
    // A row of four warps, and one of too many registers.
    for consts in [[1, 512], [16, 1024]] {
        assert!(code_of_picked(DType::F32, consts, 4).contains("st.shared"));
    }
}

#[test]
fn shuffled_rows_are_those_of_the_interpreter() {
    for dtype in DType::ALL {
        for (m, n) in [(4, 32), (32, 16), (64, 4), (3, 32), (2, 128), (8, 20), (1, 1)] {
            check(dtype, DType::I32, [m, n, n]);
        }
    }
}

/// The middle axis of three, a whole row by another, and a tile that is computed.
#[kernel]
fn rows<const N: usize>(x: Ptr<i32>, y: PtrMut<i32>) {
    let i = arange::<N>();
    let v = load(x + i);
    store(y + i, gather(v, N - 1 - i, 0));
    store(y + N + i, gather(i * i, v.to::<i64>() & (N - 1), 0).to::<i32>());
    let cube = v.reshape::<2, { N / 4 }, 2>();
    let at = (cube + 1) % (N / 4).to::<i32>();
    let middle = gather(cube, at, 1).reshape::<N>();
    store(y + 2 * N + i, middle + sum(gather(v, arange::<1>(), 0), 0) * 0);
    let mut w = v;
    for step in range(0, 3) {
        w = gather(w, (i + step) & (N - 1), 0);
    }
    store(y + 3 * N + i, w);
}

#[test]
fn three_axes_and_loops_are_gathered() {
    let x: Vec<i32> = (0..32).map(|i| (i * 5) % 23).collect();
    let args = vec![InterpArg::Buffer(DType::I32, bytes(&x)), written(DType::I32, 128)];
    let y = numbers::<i32>(&everywhere(program_of(&rows::KERNEL, &[], &[32], args))[1]);
    let reversed: Vec<i32> = x.iter().rev().copied().collect();
    assert_eq!(y[..32], reversed);
    let squares: Vec<i32> = x.iter().map(|v| (v & 31) * (v & 31)).collect();
    assert_eq!(y[32..64], squares);
    let middle: Vec<i32> =
        (0..32usize).map(|i| x[i / 16 * 16 + (x[i] as usize + 1) % 8 * 2 + i % 2]).collect();
    assert_eq!(y[64..96], middle);
    let moved: Vec<i32> = (0..32).map(|i| x[(i + 3) % 32]).collect();
    assert_eq!(y[96..], moved);
}

/// Elements of a matrix, a row and a cube, one of them where there is none.
#[kernel]
fn elements<T: Number, const M: usize, const N: usize>(x: Ptr<T>, y: PtrMut<T>, i: i64, j: i64) {
    let v = load(x + (arange::<M>().col() * N + arange::<N>().row()));
    store(y, element(v, [i, j]));
    store(y + 1, element(load(x + arange::<N>()), [j]) + element(v, [0, 0]));
    store(y + 2, element(v.expand_dims(1), [i, 0, j - 1]));
    store(y + 3, element(v, [i, j - 100]));
    store(y + 4, element(v + element(v, [1, 1]), [M - 1, N - 1]));
}

#[test]
fn an_element_is_taken() {
    for dtype in [DType::F32, DType::I8, DType::F16, DType::I64] {
        for [m, n] in [[2_usize, 3], [8, 16], [16, 64]] {
            let x = different(dtype, m * n);
            let (i, j) = (m - 1, n / 2);
            let scalar = |v: usize| InterpArg::Scalar(Scalar::int(DType::I64, v as i64));
            let args =
                vec![InterpArg::Buffer(dtype, x.clone()), written(dtype, 5), scalar(i), scalar(j)];
            let consts = [m as i64, n as i64];
            let memory = everywhere(program_of(&elements::KERNEL, &[dtype], &consts, args));
            let size = dtype.bytes();
            let at = |i: usize, j: usize| &x[(i * n + j) * size..][..size];
            let found: Vec<&[u8]> = memory[1].chunks(size).collect();
            assert_eq!((found[0], found[2]), (at(i, j), at(i, j - 1)), "{dtype}");
            assert_eq!(found[3], vec![0; size], "{dtype}");
            if dtype == DType::I64 {
                let sums = numbers::<i64>(&memory[1]);
                assert_eq!((sums[1], sums[4]), ((j + 2) as i64, (m * n + n + 2) as i64));
            }
        }
    }
    assembles(&elements::KERNEL, &[DType::F32], &[16, 64]);
}

/// Swaps of every second element, of a tile whose extent is no power of two.
#[kernel]
fn swaps<T: Number, const N: usize>(x: PtrMut<T>, old: PtrMut<T>) {
    let i = arange::<N>();
    store(old + i, atomic_cas(x + i, T::ONE, T::ZERO, i % 2 == 0));
    atomic_cas(x + i, T::ONE, T::MAX, i > 3);
}

fn largest(dtype: DType) -> Scalar {
    match dtype {
        DType::F32 => Scalar::float(dtype, f64::from(f32::MAX)),
        DType::F64 => Scalar::float(dtype, f64::MAX),
        _ if dtype.is_signed_int() => Scalar::int(dtype, i64::MAX >> (64 - dtype.bits())),
        _ => Scalar::int(dtype, -1),
    }
}

#[test]
fn swaps_are_masked() {
    let wide = |dtype: &DType| dtype.bits() >= 32 && (dtype.is_int() || dtype.is_float());
    for dtype in DType::ALL.into_iter().filter(wide) {
        for n in [8_usize, 6] {
            let number = |v: i64| match dtype.is_float() {
                true => Scalar::float(dtype, v as f64),
                false => Scalar::int(dtype, v),
            };
            let raw = |values: &[Scalar]| -> Vec<u8> {
                values.iter().flat_map(|s| s.bits.to_le_bytes()[..dtype.bytes()].to_vec()).collect()
            };
            let x: Vec<Scalar> = (0..n).map(|i| number(if i == 2 { 5 } else { 1 })).collect();
            let args = vec![InterpArg::BufferMut(dtype, raw(&x)), written(dtype, n)];
            let memory = everywhere(program_of(&swaps::KERNEL, &[dtype], &[n as i64], args));
            let old: Vec<Scalar> =
                (0..n).map(|i| if i % 2 == 0 { x[i] } else { number(0) }).collect();
            assert_eq!(memory[1], raw(&old), "{dtype}");
            let most = largest(dtype);
            let new = |i: usize| match i {
                2 => x[2],
                i if i % 2 == 0 => number(0),
                i if i > 3 => most,
                _ => number(1),
            };
            assert_eq!(memory[0], raw(&(0..n).map(new).collect::<Vec<_>>()), "{dtype}");
        }
    }
}

#[test]
fn gathers_assemble() {
    for dtype in [DType::F32, DType::Bool, DType::U8, DType::BF16, DType::F64, DType::F8E4M3] {
        assembles(&gathers::KERNEL, &[dtype, DType::I64], &[4, 128, 32]);
        assembles(&gathers::KERNEL, &[dtype, DType::U8], &[3, 20, 6]);
    }
    for dtype in [DType::F32, DType::Bool, DType::BF16, DType::F64] {
        assembles(&picked::KERNEL, &[dtype], &[32, 16]);
        assembles(&picked::KERNEL, &[dtype], &[256, 4]);
    }
    assembles(&rows::KERNEL, &[], &[256]);
    assembles(&swaps::KERNEL, &[DType::F32], &[6]);
}

fn refusal(kernel: &KernelDef, dtypes: &[DType], consts: &[i64]) -> String {
    let built = crate::front::build(kernel.ast, dtypes, consts, &Hints::default());
    built.map_or_else(|error| error.to_string(), |_| "accepted".to_owned())
}

#[kernel]
fn misfits<const M: usize, const N: usize>(y: PtrMut<f32>) {
    let v = zeros::<f32, M, 8>();
    store(y, sum(sum(gather(v, zeros::<i64, M, N>(), 1), 1), 0));
}

#[test]
fn every_extent_along_the_axis_fits() {
    assert_eq!(refusal(&misfits::KERNEL, &[], &[4, 3]), "accepted");
}

#[test]
fn what_other_blocks_of_a_cluster_hold_is_refused() {
    let hints = Hints { cluster: Some(2), num_warps: Some(4), ..Hints::default() };
    let special = rows::KERNEL.specialize(&[], &[256], &hints).unwrap();
    let error = special.compile(&Target::sm_90a()).unwrap_err().to_string();
    assert!(error.contains("this gathers from the tile of another block of a cluster"), "{error}");
    assert!(error.contains("cluster: 1"), "{error}");
}

fn check_scatter(dtype: DType, index: DType, [m, n]: [usize; 2]) {
    let place = |i: usize| (i % n * 5 + i / n * 3) % n;
    let scalars = (0..m * n).map(|i| Scalar::int(index, place(i) as i64));
    let raw = scalars.flat_map(|s| s.bits.to_le_bytes()[..index.bytes()].to_vec()).collect();
    let x = different(dtype, m * n);
    let args = vec![
        InterpArg::Buffer(dtype, x.clone()),
        InterpArg::Buffer(index, raw),
        written(dtype, m * n),
        written(dtype, m * n),
    ];
    let consts = [m, n].map(|c| c as i64);
    let memory = everywhere(program_of(&scatters::KERNEL, &[dtype, index], &consts, args));
    let size = dtype.bytes();
    let mut expected = vec![0; m * n * size];
    for i in 0..m * n {
        let to = i / n * n + place(i);
        expected[to * size..][..size].copy_from_slice(&x[i * size..][..size]);
    }
    assert_eq!(memory[2], expected, "{dtype} by {index}");
    assert_eq!(memory[3], expected, "{dtype} by {index}, along columns");
}

#[test]
fn every_dtype_is_scattered() {
    for dtype in DType::ALL {
        check_scatter(dtype, DType::I32, [4, 16]);
    }
    for index in DType::ALL.into_iter().filter(|dtype| dtype.is_int()) {
        check_scatter(DType::F32, index, [2, 32]);
    }
    // More elements than threads, fewer, and an axis that is padded.
    check_scatter(DType::I64, DType::I32, [1, 4096]);
    check_scatter(DType::I16, DType::I64, [3, 2]);
}
