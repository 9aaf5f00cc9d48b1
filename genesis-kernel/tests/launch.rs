//! Kernels as programs launch them, on the CPU.

use genesis_kernel::prelude::*;
use genesis_kernel::runtime::{AsPtr, AsPtrMut, AsScalar, AsView, AsViewMut, CheckedArg};
use genesis_kernel::{
    Arg, ArgValue, Array, Buffer, DType, Device, Error, Grid, Hints, HostElement, Scalar, Target,
};

/// `out = x + y`
#[kernel]
pub fn add<T: Number, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i64) {
    let i = program_id(0) * BLOCK + arange::<BLOCK>();
    let mask = i < n;
    store(out + i, load(x + i, mask) + load(y + i, mask), mask);
}

/// `y = 2 x` over views of any strides.
#[kernel]
pub fn double<T: Float, const M: usize, const N: usize>(x: View<T, 2>, y: ViewMut<T, 2>) {
    let (i, j) = (program_id(0) * M, program_id(1) * N);
    let v = x.load::<M, N>([i, j]);
    y.store([i, j], v + v);
}

/// Stops where an element is negative.
#[kernel]
pub fn checked<const BLOCK: usize>(x: View<f32, 1>) {
    let v = x.load::<BLOCK>([program_id(0) * BLOCK]);
    device_assert!(v >= 0.0, "x must not be negative");
}

#[test]
fn a_pointer_kernel_runs_and_its_tail_is_masked() -> Result<(), Error> {
    let stream = Device::Cpu.stream();
    let n = 1000;
    let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let y: Vec<f32> = x.iter().map(|v| 0.5 * v).collect();
    let (x_in, y_in) = (stream.upload(&x)?, stream.upload(&y)?);
    let mut out = stream.upload(&vec![-1.0f32; n + 1])?;
    let (grid, consts) = (Grid::x(n.div_ceil(128)), add::Consts { BLOCK: 128 });
    // SAFETY: all three have at least `n` elements.
    unsafe { add::launch::<f32>(&stream, grid, consts, (&x_in, &y_in, &mut out, n))? };
    let out = out.to_vec()?;
    assert!(out[..n].iter().zip(&x).all(|(o, x)| *o == 1.5 * x));
    assert_eq!(out[n], -1.0);
    Ok(())
}

#[test]
fn a_view_kernel_follows_strides() -> Result<(), Error> {
    let stream = Device::Cpu.stream();
    let x = stream.upload(&(0..15).map(|i| bf16::from_f32(i as f32)).collect::<Vec<_>>())?;
    let mut y = Array::<bf16>::zeros(&stream, 15)?;
    let (grid, consts) = (Grid::xy(1, 3), double::Consts { M: 8, N: 2 });
    // x as [5, 3] read along its columns: [3, 5] with strides [1, 3].
    let columns = x.strided(0, [3, 5], [1, 3])?;
    double::launch::<bf16>(&stream, grid, consts, (columns, y.view_mut([3, 5])?))?;
    let expected: Vec<f32> = (0..15).map(|i| 2.0 * ((i % 5) * 3 + i / 5) as f32).collect();
    let y: Vec<f32> = y.to_vec()?.into_iter().map(f32::from).collect();
    assert_eq!(y, expected);
    Ok(())
}

#[test]
fn an_empty_grid_runs_nothing_and_compiles_once() -> Result<(), Error> {
    let stream = Device::Cpu.stream();
    let x = stream.upload(&[1.0f64; 6])?;
    let mut y = stream.upload(&[5.0f64; 6])?;
    for grid in [Grid::xy(0, 1), Grid::xy(1, 0)] {
        let consts = double::Consts { M: 2, N: 3 };
        double::launch::<f64>(&stream, grid, consts, (x.view([2, 3])?, y.view_mut([2, 3])?))?;
    }
    assert_eq!(y.to_vec()?, [5.0; 6]);
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused_in_words() -> Result<(), Error> {
    let stream = Device::Cpu.stream();
    let x = stream.upload(&[1.0f32; 4])?;
    let mut y = stream.upload(&[1.0f32; 4])?;
    let x_arg = AsPtr::as_arg(&&x).arg();
    let out_arg = AsPtrMut::as_arg(&&mut y).arg();
    let n = AsScalar::<i64>::as_arg(&4i64).arg();
    let launch = |args: &[Arg]| {
        let (grid, dtypes, consts) = (Grid::x(1), &[DType::BF16], &[128]);
        // SAFETY: refused before anything is accessed.
        unsafe { add::KERNEL.launch(&stream, grid, dtypes, consts, args) }.unwrap_err().to_string()
    };
    assert_eq!(
        launch(&[x_arg, x_arg, out_arg, n]),
        "add: argument `x` has dtype f32, the kernel was asked for bf16"
    );
    assert_eq!(launch(&[x_arg]), "add: 1 arguments were given, the kernel takes 4");
    Ok(())
}

/// `y = x` times 2; both have one shape.
#[kernel]
pub fn tied<const N: usize>(x: View<f32, 2>, y: ViewMut<f32, 2>) {
    static_assert!(N > 1, "N is a block");
    device_assert!(x.dim(0) == y.dim(0), "rows");
    device_assert!(x.dim(1) == y.dim(1), "columns");
    let i = program_id(0);
    y.store([i, 0], x.load::<1, N>([i, 0]) * 2.0);
}

#[test]
fn extents_that_a_kernel_ties_are_checked_before_it_runs() -> Result<(), Error> {
    let stream = Device::Cpu.stream();
    let x = stream.upload(&[1.0f32; 12])?;
    let mut y = Array::<f32>::zeros(&stream, 12)?;
    let consts = || tied::Consts { N: 8 };
    tied::launch(&stream, Grid::x(3), consts(), (x.view([3, 4])?, y.view_mut([3, 4])?))?;
    assert_eq!(y.to_vec()?, [2.0; 12]);
    let short = stream.upload(&[1.0f32; 8])?;
    let args = (short.view([2, 4])?, y.view_mut([2, 6])?);
    let error = tied::launch(&stream, Grid::x(2), consts(), args).unwrap_err();
    assert_eq!(
        error.to_string(),
        "tied: `x` is [2, 4] and `y` is [2, 6]; the kernel ties x.dim(1) to y.dim(1)"
    );
    Ok(())
}

#[test]
fn a_failed_assertion_names_kernel_and_message() -> Result<(), Error> {
    let stream = Device::Cpu.stream();
    let consts = || checked::Consts { BLOCK: 4 };
    let good = stream.upload(&[1.0f32, 0.0, 3.0])?;
    checked::launch(&stream, Grid::x(1), consts(), (&good,))?;
    let bad = stream.upload(&[1.0f32, -2.0, 3.0])?;
    let error = checked::launch(&stream, Grid::x(1), consts(), (&bad,)).unwrap_err().to_string();
    assert!(error.contains("checked") && error.contains("x must not be negative"), "{error}");
    Ok(())
}

#[test]
fn every_stage_of_the_cpu_can_be_read() -> Result<(), Error> {
    let special = add::KERNEL.specialize(&[DType::F32], &[128], &Default::default())?;
    assert!(special.tir().contains("load"), "{}", special.tir());
    let compiled = special.compile(&Target::Cpu)?;
    assert!(compiled.llvm()?.contains("define"));
    assert!(!compiled.asm()?.is_empty());
    assert_eq!(
        compiled.ptx().unwrap_err().to_string(),
        "add: there is no PTX for cpu; ask for sm_80 or sm_90a"
    );
    assert_eq!(compiled.resources()?.bytes_per_program, 3 * 4 * 128);
    Ok(())
}

#[test]
fn many_threads_launch_one_kernel() -> Result<(), Error> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|t| {
                scope.spawn(move || -> Result<(), Error> {
                    let stream = Device::Cpu.stream();
                    let x = stream.upload(&vec![t; 64])?;
                    for _ in 0..20 {
                        let mut out = Array::<i32>::zeros(&stream, 64)?;
                        let consts = add::Consts { BLOCK: 64 };
                        // SAFETY: all have 64 elements.
                        unsafe {
                            add::launch::<i32>(
                                &stream,
                                Grid::x(1),
                                consts,
                                (&x, &x, &mut out, 64),
                            )?;
                        }
                        assert_eq!(out.to_vec()?, vec![2 * t; 64]);
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })
}

/// Softmax of each row.
#[kernel]
pub fn softmax<T: Float, const BLOCK: usize>(x: Ptr<T>, y: PtrMut<T>, n_cols: i64) {
    let row = program_id(0) * n_cols;
    let col = arange::<BLOCK>();
    let mask = col < n_cols;
    let v = load(x + row + col, mask, T::NEG_INFINITY).to::<f32>();
    let e = exp(v - max(v, 0));
    store(y + row + col, (e / sum(e, 0)).to::<T>(), mask);
}

#[test]
fn rows_of_a_softmax_sum_to_one() -> Result<(), Error> {
    let stream = Device::Cpu.stream();
    let (rows, cols) = (5, 37);
    let x: Vec<f32> = (0..rows * cols).map(|i| ((i * 7919) % 101) as f32 / 10.0).collect();
    let x_in = stream.upload(&x)?;
    let mut y = Array::<f32>::zeros(&stream, rows * cols)?;
    let consts = softmax::Consts { BLOCK: 64 };
    // SAFETY: both have `rows * cols` elements.
    unsafe { softmax::launch::<f32>(&stream, Grid::x(rows), consts, (&x_in, &mut y, cols))? };
    for (row, x) in y.to_vec()?.chunks(cols).zip(x.chunks(cols)) {
        let max = x.iter().copied().fold(f32::MIN, f32::max);
        let sum: f64 = x.iter().map(|v| f64::from(v - max).exp()).sum();
        for (y, x) in row.iter().zip(x) {
            let expected = f64::from(x - max).exp() / sum;
            assert!((f64::from(*y) - expected).abs() < 1e-6 * expected.max(1e-6), "{y} {expected}");
        }
    }
    Ok(())
}

#[test]
fn code_for_a_gpu_needs_none() -> Result<(), Error> {
    let hints = Hints::contiguous(softmax::KERNEL.ast);
    for target in [Target::sm_80(), Target::sm_90a()] {
        for dtype in [DType::F32, DType::BF16] {
            let special = softmax::KERNEL.specialize(&[dtype], &[1024], &hints)?;
            let compiled = special.compile(&target)?;
            assert!(compiled.ptx()?.contains(&format!(".target {target}")), "{}", compiled.ptx()?);
            assert!(compiled.lir()?.contains("warps"));
            assert!(compiled.resources()?.num_warps.is_some_and(|warps| warps > 0));
        }
    }
    Ok(())
}

#[test]
fn the_interpreter_gives_the_bits_of_the_cpu() -> Result<(), Error> {
    let stream = Device::Cpu.stream();
    let x: Vec<f32> = (0..40).map(|i| ((i * 7919) % 101) as f32 / 10.0).collect();
    let x_in = stream.upload(&x)?;
    let mut y = Array::<f32>::zeros(&stream, 40)?;
    // SAFETY: both have 2 * 20 elements.
    unsafe {
        let consts = softmax::Consts { BLOCK: 32 };
        softmax::launch::<f32>(&stream, Grid::x(2), consts, (&x_in, &mut y, 20))?;
    }
    let special = softmax::KERNEL.specialize(&[DType::F32], &[32], &Hints::default())?;
    let mut interpreter = special.interpreter();
    let bytes: Vec<u8> = x.iter().flat_map(|v| v.to_le_bytes()).collect();
    let x_ptr = interpreter.add_buffer("x", DType::F32, bytes, false);
    let y_ptr = interpreter.add_buffer("y", DType::F32, vec![0; 160], true);
    let n = Scalar::int(DType::I64, 20);
    let args = [ArgValue::Ptr(x_ptr), ArgValue::Ptr(y_ptr), ArgValue::Scalar(n)];
    interpreter.run([2, 1, 1], &args).map_err(|error| Error::launch(error.to_string()))?;
    let expected: Vec<u8> = y.to_vec()?.iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(interpreter.buffer(y_ptr), expected);
    Ok(())
}

/// Writes 7 where a tile of `x` at these coordinates is inside, and counts what it reads there.
#[kernel]
pub fn poke<T: Number, const M: usize, const N: usize>(
    x: ViewMut<T, 2>,
    seen: ViewMut<i64, 1>,
    i: i64,
    j: i64,
) {
    let read = x.load::<M, N>([i, j]).to::<i64>();
    seen.store([0], sum(sum(read, 1), 0));
    x.store([i, j], full::<T, M, N>(T::from(7)));
    // Coordinates that are known not to be negative take another way.
    x.store([maximum(i, 0), maximum(j, 0)], full::<T, M, N>(T::from(7)));
}

/// What [`poke`] does to a view of 3 by 5 in the middle of an array, for coordinates that leave it, far
/// away and around the ends of the integers.
fn poke_around<T: HostElement + Number>(of: fn(u8) -> T) -> Result<(), Error> {
    let stream = Device::Cpu.stream();
    let mut seen = Array::<i64>::zeros(&stream, 1)?;
    let near = [i64::MIN, i64::MIN + 2, -5, -1, 0, 2, 4, 9, i64::MAX - 6, i64::MAX - 1, i64::MAX];
    for strides in [[5, 1], [-5, 1], [1, 3], [14, -2]] {
        for (i, j) in near.iter().flat_map(|&i| near.map(|j| (i, j))) {
            let mut x = stream.upload(&[of(1); 96])?;
            let view = x.strided_mut(48, [3, 5], strides)?;
            let consts = poke::Consts { M: 4, N: 8 };
            poke::launch::<T>(&stream, Grid::x(1), consts, (view, &mut seen, i, j))?;
            let mut expected = vec![of(1); 96];
            let mut read = 0;
            for (row, column) in (0..3).flat_map(|row| (0..5).map(move |column| (row, column))) {
                let inside = |i: i64, j: i64| {
                    let (down, right) = (row - i128::from(i), column - i128::from(j));
                    (0..4).contains(&down) && (0..8).contains(&right)
                };
                let at = 48 + row as i64 * strides[0] + column as i64 * strides[1];
                read += i64::from(inside(i, j));
                if inside(i, j) || inside(i.max(0), j.max(0)) {
                    expected[at as usize] = of(7);
                }
            }
            assert_eq!(x.to_vec()?, expected, "{strides:?} at [{i}, {j}]");
            assert_eq!(seen.to_vec()?, [read], "{strides:?} at [{i}, {j}]");
        }
    }
    Ok(())
}

#[test]
fn no_coordinate_leaves_a_view() -> Result<(), Error> {
    poke_around::<u8>(|value| value)?;
    poke_around::<i16>(i16::from)?;
    poke_around::<f64>(f64::from)
}

/// `y = 2 x`
#[kernel]
pub fn twice<const BLOCK: usize>(x: View<f32, 1>, y: ViewMut<f32, 1>) {
    let at = program_id(0) * BLOCK;
    let v = x.load::<BLOCK>([at]);
    y.store([at], v + v);
}

/// An argument of a program's own: part of a buffer, which nothing borrows for writing.
struct Part<'a>(&'a Buffer, usize, usize, i64);

impl Part<'_> {
    fn checked(&self, mutable: bool) -> CheckedArg<'_> {
        let Part(buffer, offset, len, stride) = *self;
        let layout = (&[len as i64][..], &[stride][..]);
        let arg = CheckedArg::view(buffer, offset, DType::F32, layout, mutable);
        arg.expect("the tests name parts that are there")
    }
}

impl AsView<f32, 1> for Part<'_> {
    fn as_arg(&self) -> CheckedArg<'_> {
        self.checked(false)
    }
}

impl AsViewMut<f32, 1> for Part<'_> {
    fn as_arg(&self) -> CheckedArg<'_> {
        self.checked(true)
    }
}

#[test]
fn memory_that_is_read_and_written_at_once_is_refused() -> Result<(), Error> {
    let stream = Device::Cpu.stream();
    let x = stream.upload(&(0..12).map(|i| i as f32).collect::<Vec<_>>())?;
    let run = |from: (usize, usize, i64), to: (usize, usize, i64)| {
        let part = |(offset, len, stride)| Part(x.buffer(), offset, len, stride);
        let consts = twice::Consts { BLOCK: 8 };
        twice::launch(&stream, Grid::x(1), consts, (part(from), part(to)))
    };
    let error = run((0, 4, 1), (3, 4, 1)).unwrap_err().to_string();
    assert_eq!(error, "twice: arguments `x` and `y` share memory, and the kernel writes `y`");
    assert!(run((0, 4, 1), (0, 4, 1)).is_err() && run((0, 4, 3), (9, 1, 1)).is_err());
    // Elements that take turns share nothing.
    run((0, 6, 2), (1, 6, 2))?;
    assert_eq!(x.to_vec()?[..6], [0.0, 0.0, 2.0, 4.0, 4.0, 8.0]);
    run((0, 4, 1), (4, 4, 1))?;
    Ok(())
}

/// A pointer to a view's first element.
#[device]
fn start(x: View<f32, 1>) -> Ptr<f32> {
    x.ptr()
}

/// Reads through it.
#[device]
fn first(x: View<f32, 1>) -> f32 {
    load(start(x))
}

/// Declared unsafe, since what it calls is not checked.
#[kernel]
pub unsafe fn spread<const BLOCK: usize>(x: View<f32, 1>, y: ViewMut<f32, 1>) {
    y.store([0], full::<f32, BLOCK>(first(x)));
}

#[test]
fn what_nothing_checks_has_no_safe_launch() -> Result<(), Error> {
    assert!(add::KERNEL.is_unchecked() && spread::KERNEL.is_unchecked());
    assert!(!double::KERNEL.is_unchecked() && !poke::KERNEL.is_unchecked());
    let stream = Device::Cpu.stream();
    let x = stream.upload(&[3.0f32])?;
    let mut y = Array::<f32>::zeros(&stream, 4)?;
    let (grid, consts) = (Grid::x(1), spread::Consts { BLOCK: 4 });
    // SAFETY: it reads the first element of `x`, which is there.
    unsafe { spread::launch(&stream, grid, consts, (&x, &mut y))? };
    assert_eq!(y.to_vec()?, [3.0; 4]);
    let args = [x.buffer(), y.buffer()]
        .map(|b| CheckedArg::view(b, 0, DType::F32, (&[1], &[1]), true).expect("it is inside"));
    let error = spread::KERNEL.launch_checked(&stream, grid, &[], &[4], args).unwrap_err();
    assert_eq!(
        error.to_string(),
        "spread: the kernel takes pointers or makes promises, so that its launch is `unsafe`"
    );
    Ok(())
}
