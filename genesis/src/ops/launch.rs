//! From tensors to launches: block sizes, grids, views. The only file of the framework that launches.

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::{Grid, KernelDef};
use genesis_kernel::runtime::{Arg, Device, PtrArg, ViewArg};

use crate::error::Result;
use crate::shape::{Layout, collapse, contiguous_strides};
use crate::tensor::Tensor;

/// The longest row that a kernel holds in one block.
pub(crate) const MAX_ROW: usize = 16384;

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
    let storage = t.storage();
    let skipped = (t.layout().offset * t.dtype().bytes()) as u64;
    let ptr = PtrArg {
        device: t.device(),
        address: t.address(),
        bytes: (storage.bytes() as u64).saturating_sub(skipped),
        dtype: t.dtype(),
        mutable,
    };
    let dims: Vec<i64> = shape.iter().map(|&extent| extent as i64).collect();
    Arg::View(ViewArg::new(ptr, &dims, strides).expect("views here have at most 4 axes"))
}

fn own_view(t: &Tensor, mutable: bool) -> Arg {
    view(t, t.shape(), t.strides(), mutable)
}

fn flat_view(t: &Tensor, mutable: bool) -> Arg {
    view(t, &[t.numel()], &[1], mutable)
}

fn launch(
    kernel: &KernelDef,
    on: &Tensor,
    grid: Grid,
    dtypes: &[DType],
    consts: &[i64],
    args: &[Arg],
) -> Result<()> {
    let stream = on.storage().buffer().stream();
    // SAFETY: every argument is a view over storage that its tensor keeps alive, with extents and
    // strides inside it; results are fresh, or written by the in-place ops that own them.
    Ok(unsafe { kernel.launch(stream, grid, dtypes, consts, args) }?)
}

/// Elements of one program of a dense kernel.
fn flat_block(device: Device) -> usize {
    match device {
        Device::Cpu => 4096,
        Device::Cuda(_) => 1024,
    }
}

/// Rows and columns of one program of a strided kernel.
fn tile(rows: usize, cols: usize) -> (usize, usize) {
    let across = [8, 32, 128, 1024].into_iter().find(|&c| c >= cols).unwrap_or(1024);
    (if rows == 1 { 1 } else { 1024 / across }, across)
}

fn all_dense(tensors: &[&Tensor], shape: &[usize]) -> bool {
    tensors.iter().all(|t| t.is_contiguous() && t.shape() == shape)
}

/// Runs a dense kernel over one axis; operands then numbers.
fn flat(
    kernel: &KernelDef,
    dtypes: &[DType],
    inputs: &[&Tensor],
    out: &Tensor,
    numbers: &[Arg],
) -> Result<()> {
    let block = flat_block(out.device());
    let mut args: Vec<Arg> = inputs.iter().map(|t| flat_view(t, false)).collect();
    args.push(flat_view(out, true));
    args.extend_from_slice(numbers);
    launch(kernel, out, Grid::x(out.numel().div_ceil(block)), dtypes, &[block as i64], &args)
}

/// Runs a kernel over tensors of one shape and any strides.
pub(crate) fn strided(
    kernel: &KernelDef,
    dtypes: &[DType],
    inputs: &[&Tensor],
    out: &Tensor,
    numbers: &[Arg],
) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let layouts: Vec<&Layout> = inputs.iter().chain([&out]).map(|t| t.layout()).collect();
    let (shape, strides) = collapse(&layouts);
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
    let (rows, cols) = tile(dims[2], dims[3]);
    let grid = dims[0] * dims[1] * dims[2].div_ceil(rows) * dims[3].div_ceil(cols);
    launch(kernel, out, Grid::x(grid), dtypes, &[rows as i64, cols as i64], &args)
}

/// Cuts a tensor of too many axes along the first, one slice a launch.
fn halves(
    kernel: &KernelDef,
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
    if out.numel() > 0 && all_dense(inputs, out.shape()) && out.is_contiguous() {
        flat(dense, dtypes, inputs, out, numbers)
    } else {
        strided(any, dtypes, inputs, out, numbers)
    }
}

pub(crate) fn unary(kernels: Pair, x: &Tensor, y: &Tensor) -> Result<()> {
    either(kernels, &[x.dtype(), accumulate_dtype(x.dtype())], &[x], y, &[])
}

pub(crate) fn binary(kernels: Pair, x: &Tensor, y: &Tensor, z: &Tensor) -> Result<()> {
    either(kernels, &[x.dtype(), accumulate_dtype(x.dtype())], &[x, y], z, &[])
}

pub(crate) fn scalar_op(kernels: Pair, x: &Tensor, y: &Tensor, c: f64) -> Result<()> {
    let wide = accumulate_dtype(x.dtype());
    either(kernels, &[x.dtype(), wide], &[x], y, &[scalar(wide, c)])
}

/// Fills a tensor with one value.
pub(crate) fn fill(y: &Tensor, value: Scalar) -> Result<()> {
    strided(&kernels::copy::fill::KERNEL, &[value.dtype], &[], y, &[Arg::Scalar(value)])
}

/// Copies, converting; both of one shape, any strides.
pub(crate) fn cast(x: &Tensor, y: &Tensor) -> Result<()> {
    let kernels = (&kernels::copy::cast::KERNEL, &kernels::copy::cast_flat::KERNEL);
    either(kernels, &[x.dtype(), y.dtype()], &[x], y, &[])
}

/// One program a row: `operands` first, then `results`, then numbers in the wide dtype. The block
/// covers `n` elements, or [`MAX_ROW`] of a longer row.
pub(crate) fn rows(
    kernel: &KernelDef,
    dtypes: &[DType],
    operands: &[&Tensor],
    results: &[&Tensor],
    n: usize,
    numbers: &[f64],
) -> Result<()> {
    let programs = operands[0].shape()[0];
    if programs == 0 {
        return Ok(());
    }
    let mut args: Vec<Arg> = operands.iter().map(|t| own_view(t, false)).collect();
    args.extend(results.iter().map(|t| own_view(t, true)));
    let wide = accumulate_dtype(dtypes[0]);
    args.extend(numbers.iter().map(|&value| scalar(wide, value)));
    let block = row_block(n);
    launch(kernel, results[0], Grid::x(programs), dtypes, &[block], &args)
}

/// The block that covers a row of `n` elements, or [`MAX_ROW`].
pub(crate) fn row_block(n: usize) -> i64 {
    n.next_power_of_two().clamp(16, MAX_ROW) as i64
}

/// `y = scale * sum(x)` over the middle axis of `x: [outer, n, inner]`, with `y: [outer, inner]`.
pub(crate) fn sum(x: &Tensor, y: &Tensor, scale: f64) -> Result<()> {
    let wide = accumulate_dtype(x.dtype());
    let numbers = [scalar(wide, scale)];
    let dtypes = [x.dtype(), wide];
    let kernels = (&kernels::reduce::sum_rows::KERNEL, &kernels::reduce::sum_cols::KERNEL);
    middle(kernels, &dtypes, x, y, &numbers)
}

/// The extreme over the middle axis of `x: [outer, n, inner]`, with `y: [outer, inner]`.
pub(crate) fn extreme(
    rows: &'static KernelDef,
    cols: &'static KernelDef,
    x: &Tensor,
    y: &Tensor,
) -> Result<()> {
    middle((rows, cols), &[x.dtype()], x, y, &[])
}

fn middle(
    (rows, cols): Pair,
    dtypes: &[DType],
    x: &Tensor,
    y: &Tensor,
    numbers: &[Arg],
) -> Result<()> {
    let (outer, n, inner) = (x.shape()[0], x.shape()[1], x.shape()[2]);
    if outer * inner == 0 {
        return Ok(());
    }
    let (kernel, grid, consts, mut args);
    if inner == 1 {
        let cols = n.next_power_of_two().clamp(16, 4096);
        let rows_of_tile = (4096 / cols).min(outer.next_power_of_two()).min(64);
        kernel = rows;
        grid = Grid::x(outer.div_ceil(rows_of_tile));
        consts = [rows_of_tile as i64, cols as i64];
        args = vec![view(x, &[outer, n], &x.strides()[..2], false), view(y, &[outer], &[1], true)];
    } else {
        let across = inner.next_power_of_two().clamp(16, 128);
        let down = n.next_power_of_two().clamp(1, 32);
        kernel = cols;
        grid = Grid::xy(inner.div_ceil(across), outer);
        consts = [down as i64, across as i64];
        args = vec![
            own_view(x, false),
            view(y, &[outer, inner], &contiguous_strides(&[outer, inner]), true),
        ];
    }
    args.extend_from_slice(numbers);
    launch(kernel, y, grid, dtypes, &consts, &args)
}

/// `c = a b` over the last two axes of tensors of rank 3, by the kernel.
pub(crate) fn matmul(a: &Tensor, b: &Tensor, c: &Tensor) -> Result<()> {
    let (batch, m, n) = (c.shape()[0], c.shape()[1], c.shape()[2]);
    let (bm, bn, bk) = match c.dtype() {
        DType::F16 | DType::BF16 => (64, 64, 32),
        _ => (32, 32, 16),
    };
    let grid = Grid::x(batch * m.div_ceil(bm) * n.div_ceil(bn));
    let dtypes = [c.dtype(), accumulate_dtype(c.dtype())];
    let consts = [bm as i64, bn as i64, bk as i64];
    let args = [own_view(a, false), own_view(b, false), own_view(c, true)];
    launch(&kernels::matmul::matmul::KERNEL, c, grid, &dtypes, &consts, &args)
}

/// `c = a b` on the CPU: f32 and f64 by the `gemm` crate, 16-bit floats through f32.
pub(crate) fn matmul_cpu(a: &Tensor, b: &Tensor, c: &Tensor) -> Result<()> {
    match c.dtype() {
        DType::F32 => gemm_batches::<f32>(a, b, c),
        DType::F64 => gemm_batches::<f64>(a, b, c),
        _ => {
            let wide = Tensor::uninitialized(c.shape(), (DType::F32, c.device()))?;
            gemm_batches::<f32>(&a.to_dtype(DType::F32)?, &b.to_dtype(DType::F32)?, &wide);
            return cast(&wide, c);
        }
    }
    Ok(())
}

fn gemm_batches<T: GemmElement>(a: &Tensor, b: &Tensor, c: &Tensor) {
    let (batches, m, n, k) = (c.shape()[0], c.shape()[1], c.shape()[2], a.shape()[2]);
    let at = |t: &Tensor, batch: usize| {
        (t.address() as *mut T).wrapping_offset(batch as isize * t.strides()[0] as isize)
    };
    let steps = |t: &Tensor| (t.strides()[2] as isize, t.strides()[1] as isize);
    let parallelism = if m * n * k > 64 * 64 * 64 {
        gemm::Parallelism::Rayon(0)
    } else {
        gemm::Parallelism::None
    };
    for batch in 0..batches {
        let (c_col, c_row) = steps(c);
        let (a_col, a_row) = steps(a);
        let (b_col, b_row) = steps(b);
        // SAFETY: all three are matrices of these extents and strides over live CPU memory, and `c`
        // is fresh, so nothing else reads or writes it.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                at(c, batch),
                c_col,
                c_row,
                false,
                at(a, batch),
                a_col,
                a_row,
                at(b, batch),
                b_col,
                b_row,
                T::ZERO,
                T::ONE,
                false,
                false,
                false,
                parallelism,
            );
        }
    }
}

/// What `gemm` multiplies.
trait GemmElement: Copy + Send + Sync + 'static {
    const ZERO: Self;
    const ONE: Self;
}

impl GemmElement for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
}

impl GemmElement for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
}

/// A kernel over `block` elements a program of dense tensors of one length: views, then numbers.
pub(crate) fn dense(
    kernel: &KernelDef,
    dtypes: &[DType],
    more_consts: &[i64],
    tensors: &[(&Tensor, bool)],
    numbers: &[Arg],
) -> Result<()> {
    let on = tensors[0].0;
    if on.numel() == 0 {
        return Ok(());
    }
    let block = flat_block(on.device());
    let mut args: Vec<Arg> = tensors.iter().map(|&(t, mutable)| flat_view(t, mutable)).collect();
    args.extend_from_slice(numbers);
    let consts = [&[block as i64], more_consts].concat();
    launch(kernel, on, Grid::x(on.numel().div_ceil(block)), dtypes, &consts, &args)
}

/// A kernel on views as they are.
pub(crate) fn views(
    kernel: &KernelDef,
    grid: Grid,
    dtypes: &[DType],
    consts: &[i64],
    tensors: &[(&Tensor, bool)],
    numbers: &[Arg],
) -> Result<()> {
    let mut args: Vec<Arg> = tensors.iter().map(|&(t, mutable)| own_view(t, mutable)).collect();
    args.extend_from_slice(numbers);
    launch(kernel, tensors[0].0, grid, dtypes, consts, &args)
}

/// A number argument.
pub(crate) fn number(dtype: DType, value: f64) -> Arg {
    scalar(dtype, value)
}
