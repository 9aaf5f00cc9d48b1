//! From tensors to launches: block sizes, grids, views. The only module of the framework that launches.

pub(crate) mod along;
pub(crate) mod axis;
pub(crate) mod config;
pub(crate) mod conv;
mod conv_cpu;
pub(crate) mod convolution;
pub(crate) mod deferred_norm;
pub(crate) mod distance;
pub(crate) mod epilogue;
pub(crate) mod fused;
mod gemm;
pub(crate) mod linear_rows;
pub(crate) mod linear_tiles;
pub(crate) mod many;
pub(crate) mod planes;
pub(crate) mod quantized;
pub(crate) mod quantized_tiles;
mod reduce;
pub(crate) mod rows;
mod tile;
pub(crate) mod window;
mod window_cpu;

use genesis_kernel::compose::indirect;
use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::{DenseLaunch, Grid, KernelDef, LaunchOptions};
use genesis_kernel::runtime::{Arg, Device, PtrArg, ViewArg};

pub(crate) use self::config::MAX_ROW;
pub(crate) use self::gemm::matmul_cpu;
pub(crate) use self::reduce::{arg_rows, cumsum, extreme, scan, sum};
use crate::dispatch::capture;
use crate::dispatch::trace;
use crate::error::Result;
use crate::shape::{Layout, collapse};
use crate::tensor::Tensor;

/// What a dtype is computed in: f32 for 16-bit floats, else itself.
pub(crate) fn accumulate_dtype(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    }
}

fn scalar(dtype: DType, value: f64) -> Arg {
    Arg::Scalar(if dtype.is_float() {
        Scalar::float(dtype, value)
    } else {
        Scalar::int(dtype, value as i64)
    })
}

/// A tensor as a view argument with other extents and strides over the same first element.
fn view(t: &Tensor, shape: &[usize], strides: &[i64], mutable: bool) -> Arg {
    let mut dims = [0; 4];
    dims.iter_mut().zip(shape).for_each(|(dim, &extent)| *dim = extent as i64);
    let view = ViewArg::new(base(t, mutable), &dims[..shape.len().min(4)], strides);
    Arg::View(view.expect("views here have at most 4 axes"))
}

/// The first element of a tensor.
fn base(t: &Tensor, mutable: bool) -> PtrArg {
    t.storage().note_use();
    capture::hold(t.storage());
    let skipped = (t.layout().offset() * t.dtype().bytes()) as u64;
    let bytes = (t.storage().bytes() as u64).saturating_sub(skipped);
    PtrArg { device: t.device(), address: t.address(), bytes, dtype: t.dtype(), mutable }
}

/// A pointer argument.
pub(crate) fn pointer(t: &Tensor, mutable: bool) -> Arg {
    Arg::Ptr(base(t, mutable))
}

/// A dense matrix with its axes exchanged.
fn turned(t: &Tensor, mutable: bool) -> Arg {
    let [rows, columns] = [0, 1].map(|axis| t.shape()[axis]);
    view(t, &[columns, rows], &[1, columns as i64], mutable)
}

/// A pointer argument that the kernel does not follow.
pub(crate) fn no_pointer(device: Device, dtype: DType) -> Arg {
    Arg::Ptr(PtrArg { device, address: 0, bytes: 0, dtype, mutable: false })
}

pub(crate) fn own_view(t: &Tensor, mutable: bool) -> Arg {
    view(t, t.shape(), t.strides(), mutable)
}

fn flat_view(t: &Tensor, mutable: bool) -> Arg {
    Arg::View(ViewArg::flat(base(t, mutable), t.numel()))
}

fn launch(
    kernel: &'static KernelDef,
    on: &Tensor,
    grid: Grid,
    dtypes: &[DType],
    consts: &[i64],
    args: &[Arg],
) -> Result<()> {
    launch_with(kernel, on, grid, dtypes, consts, None, args)
}

/// [`launch`] with the number of warps chosen.
#[allow(clippy::too_many_arguments, reason = "a launch is all of these")]
fn launch_with(
    kernel: &'static KernelDef,
    on: &Tensor,
    grid: Grid,
    dtypes: &[DType],
    consts: &[i64],
    num_warps: Option<u32>,
    args: &[Arg],
) -> Result<()> {
    let options = LaunchOptions { num_warps, ..LaunchOptions::default() };
    launch_as(kernel, on, grid, dtypes, consts, options, args)
}

/// [`launch`] with all choices made.
#[allow(clippy::too_many_arguments, reason = "a launch is all of these")]
pub(crate) fn launch_as(
    kernel: &'static KernelDef,
    on: &Tensor,
    grid: Grid,
    dtypes: &[DType],
    consts: &[i64],
    options: LaunchOptions,
    args: &[Arg],
) -> Result<()> {
    if trace::records(on) {
        return Err(trace::refusal(kernel.name()));
    }
    let kernel = if capture::has_cells() { indirect(kernel, args)? } else { kernel };
    let stream = &on.device().stream();
    // SAFETY: every argument is a view over storage that its tensor keeps alive, with extents and
    // strides inside it; results are fresh, or written by the in-place ops that own them.
    Ok(unsafe { kernel.launch_with(stream, grid, dtypes, consts, options, args) }?)
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

fn all_dense(tensors: &[&Tensor], shape: &[usize]) -> bool {
    tensors.iter().all(|t| t.is_contiguous() && t.shape() == shape)
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
    let tile::Flat { block, warps } = tile::flat(out.device(), bytes);
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
    /// A function by many steps in f64.
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
    let (mut shape, mut strides) = collapse(&layouts);
    let turned = steps == Steps::Few && tile::face(&mut shape, &mut strides);
    if shape.len() > 4 {
        return halves(kernel, dtypes, inputs, out, numbers);
    }
    let pad = 4 - shape.len();
    let dims: Vec<usize> = std::iter::repeat_n(1, pad).chain(shape).collect();
    let full =
        |s: &[i64]| -> Vec<i64> { std::iter::repeat_n(0, pad).chain(s.iter().copied()).collect() };
    let mut args: Vec<Arg> =
        inputs.iter().zip(&strides).map(|(t, s)| view(t, &dims, &full(s), false)).collect();
    args.push(view(out, &dims, &full(&strides[inputs.len()]), true));
    args.extend_from_slice(numbers);
    let bytes = widest(inputs.iter().copied().chain([out]));
    let tile::Tile { rows, cols, warps } = match steps {
        Steps::Many => tile::of_many_steps(out.device(), dims[2], dims[3]),
        Steps::Few if turned => tile::turned(out.device()),
        Steps::Few => tile::tile(out.device(), bytes, dims[2], dims[3]),
    };
    let grid = dims[0] * dims[1] * dims[2].div_ceil(rows) * dims[3].div_ceil(cols);
    let consts = [rows as i64, cols as i64];
    launch_with(kernel, out, Grid::x(grid), dtypes, &consts, warps, &args)
}

/// Cuts a tensor of too many axes along the first, one slice a launch.
fn halves(
    kernel: &'static KernelDef,
    dtypes: &[DType],
    inputs: &[&Tensor],
    out: &Tensor,
    numbers: &[Arg],
) -> Result<()> {
    for index in 0..out.shape()[0] {
        let parts: Result<Vec<Tensor>> = inputs.iter().map(|t| t.select(0, index)).collect();
        let parts = parts?;
        let refs: Vec<&Tensor> = parts.iter().collect();
        strided(kernel, dtypes, &refs, &out.select(0, index)?, numbers)?;
    }
    Ok(())
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
    if out.numel() > 0 && all_dense(inputs, out.shape()) && out.is_contiguous() {
        flat(dense, dtypes, inputs, out, numbers)
    } else {
        strided(any, dtypes, inputs, out, numbers)
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
    let tile::Tile { rows, cols, warps } = tile::tile(z.device(), z.dtype().bytes(), m, n);
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

/// Fills a tensor with one value.
pub(crate) fn fill(y: &Tensor, value: Scalar) -> Result<()> {
    if trace::records(y) {
        return trace::fill(y, value);
    }
    let number = [Arg::Scalar(value)];
    if y.numel() > 0 && y.is_contiguous() {
        let usual = tile::flat(y.device(), y.dtype().bytes()).block;
        let block = if y.numel() >= 1 << 22 { 8192 } else { usual };
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

/// Fills a dense vector by a kernel that computes each element from its index and some numbers.
fn counted(kernel: &'static KernelDef, y: &Tensor, numbers: &[f64]) -> Result<()> {
    if y.numel() == 0 {
        return Ok(());
    }
    // Numbers are computed in f64, of which a thread holds few.
    let block = tile::flat(y.device(), 8).block;
    let mut args = vec![flat_view(y, true)];
    args.extend(numbers.iter().map(|&number| Arg::Scalar(Scalar::float(DType::F64, number))));
    let grid = Grid::x(y.numel().div_ceil(block));
    launch(kernel, y, grid, &[y.dtype()], &[block as i64], &args)
}

/// Copies, converting; both of one shape, any strides.
pub(crate) fn cast(x: &Tensor, y: &Tensor) -> Result<()> {
    if !trace::records(y) && across(x, y)? {
        return Ok(());
    }
    let kernels = (&kernels::copy::cast::KERNEL, &kernels::copy::cast_flat::KERNEL);
    either(kernels, &[x.dtype(), y.dtype()], &[x], y, &[])
}

/// Copies where the operand is dense along another axis than the result, by turning tiles; false where
/// that is not so.
fn across(x: &Tensor, y: &Tensor) -> Result<bool> {
    let tile = tile::turned(y.device()).rows;
    let (shape, strides) = collapse(&[x.layout(), y.layout()]);
    if !(2..=4).contains(&shape.len()) {
        return Ok(false);
    }
    let last = shape.len() - 1;
    let turned = (0..last).rev().find(|&axis| strides[0][axis] == 1 && shape[axis] >= 16);
    let Some(turned) = turned else { return Ok(false) };
    if y.numel() == 0 || strides[0][last] == 1 || strides[1][last] != 1 || shape[last] < 16 {
        return Ok(false);
    }
    let mut order: Vec<usize> = (0..last).filter(|&axis| axis != turned).collect();
    order.extend([turned, last]);
    let pad = 4 - order.len();
    let along = |order: &[usize], of: &[i64], fill: i64| -> Vec<i64> {
        std::iter::repeat_n(fill, pad).chain(order.iter().map(|&axis| of[axis])).collect()
    };
    let extents: Vec<i64> = shape.iter().map(|&extent| extent as i64).collect();
    let to_usize = |v: Vec<i64>| -> Vec<usize> { v.into_iter().map(|e| e as usize).collect() };
    let dims = to_usize(along(&order, &extents, 1));
    let out = view(y, &dims, &along(&order, &strides[1], 0), true);
    order.swap(last - 1, last);
    let from = to_usize(along(&order, &extents, 1));
    let operand = view(x, &from, &along(&order, &strides[0], 0), false);
    let grid = dims[0] * dims[1] * dims[2].div_ceil(tile) * dims[3].div_ceil(tile);
    let (dtypes, consts) = ([x.dtype(), y.dtype()], [tile as i64, tile as i64]);
    let kernel = &kernels::copy::cast_across::KERNEL;
    launch(kernel, y, Grid::x(grid), &dtypes, &consts, &[operand, out])?;
    Ok(true)
}

/// Products of fewer rows than this run as products of as few columns: `c' = b' a'`.
const FEW_ROWS: usize = 64;

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
    // SAFETY: every argument is a view over storage that its tensor keeps alive, with extents and
    // strides inside it; the result is fresh.
    Ok(unsafe { kernel.launch_tuned(stream, dtypes, &args) }?)
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

/// How many parts K is cut into, so that there is a tile for most multiprocessors: a power of two, 1 where
/// the tiles are enough, or a part would be too short to be worth a store of its sums. The error of a long
/// sum of f32, which grows with its length, is less of parts too.
pub(crate) fn parts(a: &Tensor, c: &Tensor) -> usize {
    let [batch, m, n] = [0, 1, 2].map(|axis| c.shape()[axis]);
    let k = a.shape()[2];
    if batch != 1 {
        return 1;
    }
    let (step, least) = match a.dtype().bytes() {
        2 => (K_STEP, LEAST_K),
        bytes => (16 / bytes, LEAST_WIDE_K),
    };
    let tiles = match is_swapped(c) {
        true => n.div_ceil(FEW_ROWS),
        false => m.div_ceil(128) * n.div_ceil(128),
    };
    let wanted = config::multiprocessors(a.device()) / tiles.max(1);
    let fits = |parts: &usize| k.is_multiple_of(parts * step) && k / parts >= least;
    [16, 8, 4].into_iter().filter(|&parts| parts <= wanted).find(fits).unwrap_or(1)
}

/// Elements of K of one step of a tile for tensor cores.
const K_STEP: usize = 64;
/// Elements of K of the shortest part.
const LEAST_K: usize = 1024;
/// The same of f32 and f64, whose multiply-adds take longer.
const LEAST_WIDE_K: usize = 512;

/// Whether a product runs with its operands swapped.
fn is_swapped(c: &Tensor) -> bool {
    let (m, n) = (c.shape()[1], c.shape()[2]);
    m < FEW_ROWS && n > m
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
    let tile::Flat { block, warps } = match tensors.len() {
        ..4 => tile::flat(on.device(), bytes),
        _ => tile::flat_of_many(on.device(), bytes),
    };
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
    let mut args: Vec<Arg> = tensors.iter().map(|&(t, mutable)| own_view(t, mutable)).collect();
    args.extend_from_slice(numbers);
    launch_with(kernel, tensors[0].0, grid, dtypes, consts, num_warps, &args)
}

/// A kernel on rows that it keeps, by the choices for them; operands, then numbers.
pub(crate) fn kept_rows(
    kernel: &'static KernelDef,
    dtypes: &[DType],
    kept: rows::KeptRows,
    tensors: &[(&Tensor, bool)],
    numbers: &[Arg],
) -> Result<()> {
    let rows::KeptRows { rows, cols, options } = kept;
    let mut args: Vec<Arg> = tensors.iter().map(|&(t, mutable)| own_view(t, mutable)).collect();
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
