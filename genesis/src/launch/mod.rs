//! From tensors to launches: block sizes, grids, views. The only module of the framework that launches.

pub(crate) mod along;
mod arguments;
mod axes;
pub(crate) mod axis;
pub(crate) mod columns;
mod columns_cpu;
pub(crate) mod config;
pub(crate) mod conv;
mod conv_cpu;
pub(crate) mod convolution;
pub(crate) mod deferred_norm;
pub(crate) mod distance;
pub(crate) mod epilogue;
mod face;
pub(crate) mod fused;
mod gemm;
pub(crate) mod grid_sample;
pub(crate) mod join;
pub(crate) mod linear_rows;
pub(crate) mod linear_tiles;
pub(crate) mod many;
pub(crate) mod pad;
pub(crate) mod planes;
pub(crate) mod quantized;
pub(crate) mod quantized_tiles;
mod reduce;
pub(crate) mod select_cpu;
mod split_k;
mod start;
mod upright;
pub(crate) mod window;
mod window_cpu;

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::{DenseLaunch, Grid, KernelDef, LaunchOptions};
use genesis_kernel::runtime::{Arg, PtrArg};
use genesis_kernel::tuning::elementwise::{Flat, Tile};
use genesis_kernel::tuning::products::{self, part_of_k, split_k};
use genesis_kernel::tuning::rows::KeptRows;

use self::arguments::{base, flat_view, scalar, turned, view};
pub(crate) use self::arguments::{no_pointer, own_view, pointer};
use self::config::chip;
pub(crate) use self::gemm::{matmul_add_cpu, matmul_cpu};
pub(crate) use self::reduce::{
    Fold, arg_cols, arg_rows, counters, cumsum, extreme, fold, join_moments, scan, slope_sums, sum,
    variance,
};
use self::split_k::Uncut;
pub(crate) use self::start::launch_as;
use self::start::{launch, launch_with};
use self::upright::{across, or_copy, upright_copies, upright_rows, views_of};
use crate::dispatch::capture;
use crate::dispatch::trace;
use crate::error::Result;
use crate::shape::{Layout, collapse, collapse_for_last};
use crate::tensor::Tensor;

/// What a dtype is computed in: f32 for 16-bit floats, else itself.
pub(crate) fn accumulate_dtype(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    }
}

/// The arguments, by bit, whose memory stays as it is: see [`LaunchOptions::constant`].
fn constants(args: &[(u32, &Tensor)]) -> u32 {
    args.iter().filter(|(_, t)| t.storage().is_constant()).map(|&(number, _)| 1 << number).sum()
}

/// The tensors, by the bit of their place, that the launch right ahead does not write: a kernel may read them before
/// that one has ended. See [`LaunchOptions::constant`].
pub(crate) fn settled(tensors: &[&Tensor]) -> u32 {
    let is_settled = |t: &Tensor| {
        let PtrArg { device, address, bytes, .. } = base(t, false);
        !device.stream().may_be_written_ahead(address, bytes)
    };
    (0..).zip(tensors).filter(|(_, t)| is_settled(t)).map(|(place, _)| 1 << place).sum()
}

/// Bytes of an element of the widest tensor.
fn widest<'t>(tensors: impl IntoIterator<Item = &'t Tensor>) -> usize {
    tensors.into_iter().map(|t| t.dtype().bytes()).max().unwrap_or(1)
}

/// Whether all tensors have the shape of the result and lie as it does, without gaps.
fn are_one_line(inputs: &[&Tensor], out: &Tensor) -> bool {
    if inputs.iter().any(|t| t.shape() != out.shape()) {
        return false;
    }
    if out.is_contiguous() || inputs.iter().any(|t| t.is_contiguous()) {
        return out.is_contiguous() && inputs.iter().all(|t| t.is_contiguous());
    }
    let layouts: Vec<&Layout> = inputs.iter().chain([&out]).map(|t| t.layout()).collect();
    let (shape, strides) = collapse_for_last(&layouts);
    shape.len() == 1 && strides.iter().all(|steps| steps[..] == [1])
}

/// Runs a dense kernel over one axis; operands then numbers.
fn flat(
    kernel: &'static KernelDef,
    dtypes: &[DType],
    inputs: &[&Tensor],
    out: &Tensor,
    numbers: &[Arg],
) -> Result<()> {
    let bytes = widest(inputs.iter().copied().chain([out]));
    let Flat { block, warps } = Flat::of_few(&chip(out.device()), bytes);
    let programs = out.numel().div_ceil(block);
    let consts = [block as i64];
    if numbers.is_empty() && !capture::has_cells() && !trace::records(out) {
        let run = |operands: &[PtrArg]| {
            let options = LaunchOptions { num_warps: warps, ..LaunchOptions::default() };
            let len = out.numel();
            let dense = DenseLaunch { programs, dtypes, consts: &consts, options, len, operands };
            // SAFETY: as in `launch_as`.
            Ok(unsafe { kernel.launch_dense(&out.device().stream(), &dense) }?)
        };
        match inputs {
            [x] => return run(&[base(x, false), base(out, true)]),
            [x, y] => return run(&[base(x, false), base(y, false), base(out, true)]),
            _ => {}
        }
    }
    let result = flat_view(out, true);
    let run =
        |args: &[Arg]| launch_with(kernel, out, Grid::x(programs), dtypes, &consts, warps, args);
    match (inputs, numbers) {
        // No list for what many launches are.
        ([x], [c]) => run(&[flat_view(x, false), result, *c]),
        _ => {
            let mut args: Vec<Arg> = inputs.iter().map(|t| flat_view(t, false)).collect();
            args.push(result);
            args.extend_from_slice(numbers);
            run(&args)
        }
    }
}

/// Runs a kernel over tensors of one shape and any strides.
pub(crate) fn strided(
    kernel: &'static KernelDef,
    dtypes: &[DType],
    inputs: &[&Tensor],
    out: &Tensor,
    numbers: &[Arg],
) -> Result<()> {
    by_steps(Steps::Few, kernel, dtypes, inputs, out, numbers)
}

/// How much an elementwise kernel computes for an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Steps {
    /// So little that memory is what it waits for.
    Few,
    /// A function by many steps.
    Many,
}

/// [`strided`] of a kernel that computes much or little.
pub(crate) fn by_steps(
    steps: Steps,
    kernel: &'static KernelDef,
    dtypes: &[DType],
    inputs: &[&Tensor],
    out: &Tensor,
    numbers: &[Arg],
) -> Result<()> {
    if trace::records(out) {
        return trace::map(kernel, dtypes, inputs, out, numbers);
    }
    if out.numel() == 0 {
        return Ok(());
    }
    let layouts: Vec<&Layout> = inputs.iter().chain([&out]).map(|t| t.layout()).collect();
    let (mut shape, mut strides) = collapse_for_last(&layouts);
    if shape.len() > 4 {
        return laid_out(steps, kernel, dtypes, inputs, out, numbers);
    }
    let copies = upright_copies(inputs, &shape, &mut strides)?;
    let turned = steps == Steps::Few && face::face(&mut shape, &mut strides);
    if !turned {
        face::heighten(&mut shape, &mut strides);
    }
    let pad = 4 - shape.len();
    let dims: Vec<usize> = std::iter::repeat_n(1, pad).chain(shape).collect();
    let full =
        |s: &[i64]| -> Vec<i64> { std::iter::repeat_n(0, pad).chain(s.iter().copied()).collect() };
    let mut args: Vec<Arg> = Vec::with_capacity(inputs.len() + 1 + numbers.len());
    for (place, (&t, s)) in inputs.iter().zip(&strides).enumerate() {
        args.push(view(or_copy(&copies, place, t), &dims, &full(s), false));
    }
    args.push(view(out, &dims, &full(&strides[inputs.len()]), true));
    args.extend_from_slice(numbers);
    let bytes = widest(inputs.iter().copied().chain([out]));
    let chip = &chip(out.device());
    let Tile { rows, cols, warps } = match steps {
        Steps::Many => Tile::of_many_steps(chip, dims[2], dims[3]),
        Steps::Few if turned => Tile::transposed(chip),
        Steps::Few => Tile::of(chip, bytes, dims[2], dims[3]),
    };
    let grid = dims[0] * dims[1] * dims[2].div_ceil(rows) * dims[3].div_ceil(cols);
    let consts = [rows as i64, cols as i64];
    launch_with(kernel, out, Grid::x(grid), dtypes, &consts, warps, &args)
}

/// A kernel on tensors of more axes than it walks: of dense copies of those that have the most.
fn laid_out(
    steps: Steps,
    kernel: &'static KernelDef,
    dtypes: &[DType],
    inputs: &[&Tensor],
    out: &Tensor,
    numbers: &[Arg],
) -> Result<()> {
    let mut operands: Vec<Tensor> = inputs.iter().map(|&t| t.clone()).collect();
    while lay_out_one(&mut operands)? {
        let refs: Vec<&Tensor> = operands.iter().collect();
        let layouts: Vec<&Layout> = refs.iter().chain([&out]).map(|t| t.layout()).collect();
        if collapse_for_last(&layouts).0.len() <= 4 {
            return by_steps(steps, kernel, dtypes, &refs, out, numbers);
        }
    }
    let refs: Vec<&Tensor> = operands.iter().collect();
    let dense = Tensor::uninitialized(out.shape(), (out.dtype(), out.device()))?;
    by_steps(steps, kernel, dtypes, &refs, &dense, numbers)?;
    cast(&dense, out)
}

/// A dense copy of the operand that has the most axes in memory, in its place; false where all are dense.
fn lay_out_one(operands: &mut [Tensor]) -> Result<bool> {
    let scattered = operands.iter_mut().filter(|t| !t.is_contiguous());
    let Some(widest) = scattered.max_by_key(|t| axes::own_axes(t)) else { return Ok(false) };
    let dense = Tensor::uninitialized(widest.shape(), (widest.dtype(), widest.device()))?;
    cast(widest, &dense)?;
    *widest = dense;
    Ok(true)
}

type Pair = (&'static KernelDef, &'static KernelDef);

/// The dense kernel where everything is dense, else the strided one.
fn either(
    (any, dense): Pair,
    dtypes: &[DType],
    inputs: &[&Tensor],
    out: &Tensor,
    numbers: &[Arg],
) -> Result<()> {
    if trace::records(out) {
        return trace::map(any, dtypes, inputs, out, numbers);
    }
    if out.numel() > 0 && are_one_line(inputs, out) {
        flat(dense, dtypes, inputs, out, numbers)
    } else {
        strided(any, dtypes, inputs, out, numbers)
    }
}

/// [`by_steps`], or the dense kernel where there is one and everything is dense; what is computed in f64 fills the
/// registers for its blocks.
pub(crate) fn function(
    (any, dense): (&'static KernelDef, Option<&'static KernelDef>),
    steps: Steps,
    dtypes: &[DType],
    inputs: &[&Tensor],
    out: &Tensor,
) -> Result<()> {
    let is_wide = dtypes.last() == Some(&DType::F64) && out.device().is_cuda();
    let fits = !is_wide && !trace::records(out) && out.numel() > 0;
    match dense {
        Some(dense) if fits && are_one_line(inputs, out) => flat(dense, dtypes, inputs, out, &[]),
        _ => by_steps(steps, any, dtypes, inputs, out, &[]),
    }
}

pub(crate) fn unary(kernels: Pair, x: &Tensor, y: &Tensor) -> Result<()> {
    either(kernels, &[x.dtype(), accumulate_dtype(x.dtype())], &[x], y, &[])
}

pub(crate) fn binary(kernels: Pair, lines: Pair, x: &Tensor, y: &Tensor, z: &Tensor) -> Result<()> {
    let dtypes = [x.dtype(), accumulate_dtype(x.dtype())];
    if !trace::records(z) && line(lines, &dtypes, x, y, z)? {
        return Ok(());
    }
    either(kernels, &dtypes, &[x, y], z, &[])
}

/// [`binary`] of dense tensors of one shape.
pub(crate) fn binary_dense(kernels: Pair, x: &Tensor, y: &Tensor, z: &Tensor) -> Result<()> {
    let dtypes = [x.dtype(), accumulate_dtype(x.dtype())];
    if trace::records(z) {
        return trace::map(kernels.0, &dtypes, &[x, y], z, &[]);
    }
    if z.numel() == 0 { Ok(()) } else { flat(kernels.1, &dtypes, &[x, y], z, &[]) }
}

/// A dense matrix with one row or one column; false where that is not what the operands are.
fn line((row, column): Pair, dtypes: &[DType], x: &Tensor, y: &Tensor, z: &Tensor) -> Result<bool> {
    if y.is_contiguous() {
        return Ok(false);
    }
    let (shape, strides) = collapse(&[x.layout(), y.layout(), z.layout()]);
    let [m, n] = shape[..] else { return Ok(false) };
    if m * n == 0 || strides[0] != [n as i64, 1] || strides[2] != [n as i64, 1] {
        return Ok(false);
    }
    let (kernel, extent, stride) = match strides[1][..] {
        [0, step] if step != 0 => (row, n, step),
        [step, 0] if step != 0 => (column, m, step),
        _ => return Ok(false),
    };
    let Tile { rows, cols, warps } = Tile::of(&chip(z.device()), z.dtype().bytes(), m, n);
    let args = [
        view(x, &[m, n], &strides[0], false),
        view(y, &[extent], &[stride], false),
        view(z, &[m, n], &strides[2], true),
    ];
    let grid = Grid::x(m.div_ceil(rows) * n.div_ceil(cols));
    launch_with(kernel, z, grid, dtypes, &[rows as i64, cols as i64], warps, &args)?;
    Ok(true)
}

pub(crate) fn scalar_op(kernels: Pair, x: &Tensor, y: &Tensor, c: f64) -> Result<()> {
    let wide = accumulate_dtype(x.dtype());
    either(kernels, &[x.dtype(), wide], &[x], y, &[scalar(wide, c)])
}

/// Whether each element of `x` and a number are as the kernels say, which take the number rounded to its dtype.
pub(crate) fn compare_number(kernels: Pair, x: &Tensor, z: &Tensor, c: f64) -> Result<()> {
    let (dtype, wide) = (x.dtype(), accumulate_dtype(x.dtype()));
    let own = if dtype.is_float() { Scalar::float(dtype, c).to_f64() } else { c };
    either(kernels, &[dtype, wide], &[x], z, &[scalar(wide, own)])
}

/// Fills a tensor with one value.
pub(crate) fn fill(y: &Tensor, value: Scalar) -> Result<()> {
    if trace::records(y) {
        return trace::fill(y, value);
    }
    let number = [Arg::Scalar(value)];
    if y.numel() > 0 && y.is_contiguous() {
        let block = Flat::of_fill(&chip(y.device()), y.numel(), y.dtype().bytes());
        let grid = Grid::x(y.numel().div_ceil(block));
        let args = [flat_view(y, true), number[0]];
        let kernel = &kernels::copy::fill_flat::KERNEL;
        return launch(kernel, y, grid, &[value.dtype], &[block as i64], &args);
    }
    strided(&kernels::copy::fill::KERNEL, &[value.dtype], &[], y, &number)
}

/// Writes `start + i * step` to element `i` of a dense vector.
pub(crate) fn arange(y: &Tensor, start: f64, step: f64) -> Result<()> {
    counted(&kernels::copy::arange_flat::KERNEL, y, &[start, step])
}

/// Writes numbers from `start` to `end`, both included, at distances of `step` to a dense vector.
pub(crate) fn linspace(y: &Tensor, start: f64, end: f64, step: f64) -> Result<()> {
    counted(&kernels::copy::linspace_flat::KERNEL, y, &[start, end, step])
}

/// Writes `base` to the power of numbers from `start` to `end`, as [`linspace`] has them, to a dense vector.
pub(crate) fn logspace(y: &Tensor, [start, end, step]: [f64; 3], base: f64) -> Result<()> {
    counted(&kernels::copy::logspace_flat::KERNEL, y, &[start, end, step, base])
}

/// Fills a dense vector by a kernel that computes each element from its index and some numbers.
fn counted(kernel: &'static KernelDef, y: &Tensor, numbers: &[f64]) -> Result<()> {
    if y.numel() == 0 {
        return Ok(());
    }
    // Numbers are computed in f64, of which a thread holds few.
    let block = Flat::of_few(&chip(y.device()), 8).block;
    let mut args = vec![flat_view(y, true)];
    args.extend(numbers.iter().map(|&number| Arg::Scalar(Scalar::float(DType::F64, number))));
    let grid = Grid::x(y.numel().div_ceil(block));
    launch(kernel, y, grid, &[y.dtype()], &[block as i64], &args)
}

/// Copies, converting; both of one shape, any strides.
pub(crate) fn cast(x: &Tensor, y: &Tensor) -> Result<()> {
    let is_dense = are_one_line(&[x], y);
    if !trace::records(y) && y.numel() > 0 && !is_dense && (across(x, y)? || scattered(x, y)?) {
        return Ok(());
    }
    let kernels = (&kernels::copy::cast::KERNEL, &kernels::copy::cast_flat::KERNEL);
    either(kernels, &[x.dtype(), y.dtype()], &[x], y, &[])
}

/// Copies along many axes or short ones; false where they are few and long.
fn scattered(x: &Tensor, y: &Tensor) -> Result<bool> {
    if !axes::suits(x, y) {
        return Ok(false);
    }
    if let Some(walk) = axes::walk(x, y) {
        let [x_inner, x_outer, y_inner, y_outer] = walk.views;
        let of =
            |t, (dims, strides): ([usize; 4], [i64; 4]), mutable| view(t, &dims, &strides, mutable);
        let args = [
            of(x, x_inner, false),
            of(x, x_outer, false),
            of(y, y_inner, true),
            of(y, y_outer, false),
        ];
        let (grid, dtypes) = (Grid::x(walk.programs), [x.dtype(), y.dtype()]);
        launch_with(walk.kernel, y, grid, &dtypes, &walk.consts, walk.warps, &args)?;
        return Ok(true);
    }
    if collapse_for_last(&[x.layout(), y.layout()]).0.len() <= 4 {
        return Ok(false);
    }
    // One slice a launch.
    for index in 0..y.shape()[0] {
        cast(&x.select(0, index)?, &y.select(0, index)?)?;
    }
    Ok(true)
}

/// `c = a b` over the last two axes of tensors of rank 3, by the kernel; `c` is as wide as the operands,
/// or as their sums.
///
/// Tiles for tensor cores have 64 rows at least and 16 columns, so that with few rows most of a tile
/// would be empty. Swapping the operands is a matter of strides.
pub(crate) fn matmul(a: &Tensor, b: &Tensor, c: &Tensor, tf32: bool) -> Result<()> {
    trace::check_real("matmul", &[a, b, c])?;
    let args = match is_swapped(c) {
        true => [transposed(b, false), transposed(a, false), transposed(c, true)],
        false => [own_view(a, false), own_view(b, false), own_view(c, true)],
    };
    let stream = &c.device().stream();
    let dtypes = [a.dtype(), accumulate_dtype(a.dtype())];
    let (kernel, dtypes) = match (tf32 && a.dtype() == DType::F32, a.dtype() == c.dtype()) {
        (true, _) => (&kernels::matmul::matmul_tf32::KERNEL, &[][..]),
        (false, true) => (&kernels::matmul::matmul::KERNEL, &dtypes[..]),
        (false, false) => (&kernels::matmul::matmul_wide::KERNEL, &dtypes[..]),
    };
    let uncut = Uncut { kernel, args: &args, dtypes, sizes: sizes_of(a, c), adds: false };
    if !tf32 && let Some(cut) = split_k::cut(c, &uncut)? {
        return split_k::run(c, &uncut, cut);
    }
    // SAFETY: every argument is a view over storage that its tensor keeps alive, with extents and
    // strides inside it; the result is fresh.
    Ok(unsafe { kernel.launch_tuned(stream, dtypes, &args) }?)
}

/// Batch, M, N and K of a product as its kernel sees them.
fn sizes_of(a: &Tensor, c: &Tensor) -> [usize; 4] {
    let [batch, m, n] = [0, 1, 2].map(|axis| c.shape()[axis]);
    let (m, n) = if is_swapped(c) { (n, m) } else { (m, n) };
    [batch, m, n, a.shape()[2]]
}

/// `c += a b` over the last two axes of tensors of rank 3, by the kernel; `c` is as wide as the operands, or as their sums.
pub(crate) fn matmul_add(a: &Tensor, b: &Tensor, c: &Tensor, tf32: bool) -> Result<()> {
    trace::check_real("matmul", &[a, b, c])?;
    let args = match is_swapped(c) {
        true => [transposed(b, false), transposed(a, false), transposed(c, true)],
        false => [own_view(a, false), own_view(b, false), own_view(c, true)],
    };
    let dtypes = [a.dtype(), accumulate_dtype(a.dtype())];
    let (kernel, dtypes) = match (tf32 && a.dtype() == DType::F32, a.dtype() == c.dtype()) {
        (true, _) => (&kernels::matmul::matmul_add_tf32::KERNEL, &[][..]),
        (false, true) => (&kernels::matmul::matmul_add::KERNEL, &dtypes[..]),
        (false, false) => (&kernels::matmul::matmul_add_wide::KERNEL, &dtypes[..]),
    };
    let uncut = Uncut { kernel, args: &args, dtypes, sizes: sizes_of(a, c), adds: true };
    if !tf32 && let Some(cut) = split_k::cut(c, &uncut)? {
        return split_k::run(c, &uncut, cut);
    }
    // SAFETY: as in `matmul`; what is added to is read and written by one program an element.
    Ok(unsafe { kernel.launch_tuned(&c.device().stream(), dtypes, &args) }?)
}

/// `c = a b` of integers of 8 bits, all of rank 3; `c` is of integers too, and keeps the low bits of i32 sums.
pub(crate) fn matmul_int8(a: &Tensor, b: &Tensor, c: &Tensor) -> Result<()> {
    trace::check_real("matmul", &[a, b, c])?;
    let args = match is_swapped(c) {
        true => [transposed(b, false), transposed(a, false), transposed(c, true)],
        false => [own_view(a, false), own_view(b, false), own_view(c, true)],
    };
    let kernel = &kernels::matmul_int::matmul_int8::KERNEL;
    // SAFETY: as in `matmul`.
    Ok(unsafe { kernel.launch_tuned(&c.device().stream(), &[a.dtype(), c.dtype()], &args) }?)
}

/// Split K: how many parts the sums of a product are made in, and how long each is. What K has beyond them is one more.
pub(crate) fn parts(a: &Tensor, c: &Tensor) -> (usize, usize) {
    let [batch, m, n] = [0, 1, 2].map(|axis| c.shape()[axis]);
    let (k, bytes) = (a.shape()[2], a.dtype().bytes());
    let parts = if batch == 1 { split_k(&chip(a.device()), [m, n, k], bytes) } else { 1 };
    (parts, part_of_k(k, parts, bytes))
}

/// Split K of a product whose K is far longer than its rows and columns: how many parts its sums are made in, and how long
/// each is. What K has beyond them is one more.
pub(crate) fn long_parts(a: &Tensor, c: &Tensor) -> (usize, usize) {
    let [m, n] = [1, 2].map(|axis| c.shape()[axis]);
    products::split_long_k(&chip(a.device()), [m, n, a.shape()[2]], a.dtype().bytes())
}

/// Whether a product runs with its operands swapped.
fn is_swapped(c: &Tensor) -> bool {
    let (m, n) = (c.shape()[1], c.shape()[2]);
    products::is_swapped(m, n)
}

/// `c = f(a b + bias)` for tensors of rank 3 and a bias of rank 1; `kernels` are for a bias along the rows of
/// `c`, and for one along its columns.
pub(crate) fn matmul_bias(
    [a, b, bias]: [&Tensor; 3],
    c: &Tensor,
    kernels: [&'static KernelDef; 2],
) -> Result<()> {
    trace::check_real("linear", &[a, b, bias, c])?;
    let bias = own_view(bias, false);
    let swapped = is_swapped(c);
    let args = match swapped {
        false => [own_view(a, false), own_view(b, false), bias, own_view(c, true)],
        true => [transposed(b, false), transposed(a, false), bias, transposed(c, true)],
    };
    let kernel = kernels[usize::from(swapped)];
    let dtypes = [c.dtype(), accumulate_dtype(c.dtype())];
    // SAFETY: every argument is a view over storage that its tensor keeps alive, with extents and
    // strides inside it; the result is fresh.
    Ok(unsafe { kernel.launch_tuned(&c.device().stream(), &dtypes, &args) }?)
}

/// `c = scale_a scale_b a b` of 8-bit floats, all of rank 3 but the scales, which have one element.
pub(crate) fn scaled_matmul(
    [a, b, scale_a, scale_b]: [&Tensor; 4],
    c: &Tensor,
    fast: bool,
) -> Result<()> {
    use kernels::matmul_f8 as device;
    trace::check_real("scaled_matmul", &[a, b, c])?;
    let args = match is_swapped(c) {
        true => [
            transposed(b, false),
            transposed(a, false),
            own_view(scale_b, false),
            own_view(scale_a, false),
            transposed(c, true),
        ],
        false => [
            own_view(a, false),
            own_view(b, false),
            own_view(scale_a, false),
            own_view(scale_b, false),
            own_view(c, true),
        ],
    };
    let kernel = if fast { &device::matmul_f8_fast::KERNEL } else { &device::matmul_f8::KERNEL };
    let stream = &c.device().stream();
    // SAFETY: as in `matmul`.
    Ok(unsafe { kernel.launch_tuned(stream, &[a.dtype(), c.dtype()], &args) }?)
}

/// A tensor of rank 3 with the last two axes swapped.
fn transposed(t: &Tensor, mutable: bool) -> Arg {
    let (shape, strides) = (t.shape(), t.strides());
    view(t, &[shape[0], shape[2], shape[1]], &[strides[0], strides[2], strides[1]], mutable)
}

/// A kernel over `block` elements a program of dense tensors of one length: views, then numbers.
pub(crate) fn dense(
    kernel: &'static KernelDef,
    dtypes: &[DType],
    more_consts: &[i64],
    tensors: &[(&Tensor, bool)],
    numbers: &[Arg],
) -> Result<()> {
    let on = tensors[0].0;
    if on.numel() == 0 {
        return Ok(());
    }
    let bytes = widest(tensors.iter().map(|&(t, _)| t));
    let Flat { block, warps } = Flat::of_tensors(&chip(on.device()), tensors.len(), bytes);
    let mut args: Vec<Arg> = tensors.iter().map(|&(t, mutable)| flat_view(t, mutable)).collect();
    args.extend_from_slice(numbers);
    let consts = [&[block as i64], more_consts].concat();
    let grid = Grid::x(on.numel().div_ceil(block));
    launch_with(kernel, on, grid, dtypes, &consts, warps, &args)
}

/// A kernel on views as they are.
pub(crate) fn views(
    kernel: &'static KernelDef,
    grid: Grid,
    dtypes: &[DType],
    consts: &[i64],
    tensors: &[(&Tensor, bool)],
    numbers: &[Arg],
) -> Result<()> {
    warped_views(kernel, grid, dtypes, consts, None, tensors, numbers)
}

/// [`views`] with the number of warps chosen.
#[allow(clippy::too_many_arguments, reason = "a launch is all of these")]
pub(crate) fn warped_views(
    kernel: &'static KernelDef,
    grid: Grid,
    dtypes: &[DType],
    consts: &[i64],
    num_warps: Option<u32>,
    tensors: &[(&Tensor, bool)],
    numbers: &[Arg],
) -> Result<()> {
    let copies = upright_rows(tensors)?;
    let mut args = views_of(tensors, &copies);
    args.extend_from_slice(numbers);
    launch_with(kernel, tensors[0].0, grid, dtypes, consts, num_warps, &args)
}

/// A kernel on tiles of planes of these extents, by views as they are: its constants are the rows and columns of a tile,
/// and `more`.
pub(crate) fn tiled(
    kernel: &'static KernelDef,
    [planes, down, across]: [usize; 3],
    dtypes: &[DType],
    more: &[i64],
    tensors: &[(&Tensor, bool)],
    numbers: &[Arg],
) -> Result<()> {
    // The registers of a thread hold a piece of each tensor.
    let bytes = (widest(tensors.iter().map(|&(t, _)| t)) * tensors.len()).min(16);
    let Tile { rows, cols, warps } = Tile::of(&chip(tensors[0].0.device()), bytes, down, across);
    let grid = Grid::x(planes * down.div_ceil(rows) * across.div_ceil(cols));
    let consts = [&[rows as i64, cols as i64], more].concat();
    warped_views(kernel, grid, dtypes, &consts, warps, tensors, numbers)
}

/// A kernel on rows that it keeps, by the choices for them; operands, then numbers.
pub(crate) fn kept_rows(
    kernel: &'static KernelDef,
    dtypes: &[DType],
    kept: KeptRows,
    tensors: &[(&Tensor, bool)],
    numbers: &[Arg],
) -> Result<()> {
    let KeptRows { rows, cols, warps, cluster } = kept;
    let options = LaunchOptions { num_warps: warps, cluster, ..LaunchOptions::default() };
    let copies = upright_rows(tensors)?;
    let mut args = views_of(tensors, &copies);
    args.extend_from_slice(numbers);
    let grid = Grid::x(tensors[0].0.shape()[0].div_ceil(rows));
    let consts = [rows as i64, cols as i64];
    launch_as(kernel, tensors[0].0, grid, dtypes, &consts, options, &args)
}

/// A kernel on arguments as they are, of which `on` is one, with the number of warps chosen.
#[allow(clippy::too_many_arguments, reason = "a launch is all of these")]
pub(crate) fn warped(
    kernel: &'static KernelDef,
    on: &Tensor,
    grid: Grid,
    dtypes: &[DType],
    consts: &[i64],
    num_warps: Option<u32>,
    args: &[Arg],
) -> Result<()> {
    launch_with(kernel, on, grid, dtypes, consts, num_warps, args)
}

/// A view argument.
pub(crate) fn view_of(t: &Tensor, mutable: bool) -> Arg {
    own_view(t, mutable)
}

/// A number argument.
pub(crate) fn number(dtype: DType, value: f64) -> Arg {
    scalar(dtype, value)
}
