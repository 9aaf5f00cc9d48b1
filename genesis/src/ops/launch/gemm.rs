//! Products of matrices on the CPU, by the `gemm` crate.
//!
//! A product of medium size is cut along its longer side into as many parts as there are threads, and
//! each part is made by one of them, the caller being one: that costs less than waking all threads and
//! letting them wait for each other. No cut is along what is summed, and no part is so small that `gemm`
//! would sum it otherwise, so that every number of threads gives the same bits.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::{install, share, threads_here};
use genesis_kernel::trace as profiled;

use super::cast;
use crate::error::Result;
use crate::fuse::trace;
use crate::tensor::Tensor;

/// Products of two numbers below which another thread would cost more than it gives.
const FEW: usize = 1 << 18;
/// Products of two numbers in one matrix from which on `gemm` spreads them itself.
const MANY: usize = 1 << 27;
/// Rows or columns of a part, at least: `gemm` treats matrices of up to 64 by 64 in a way of its own.
const LEAST: usize = 96;
/// Parts begin at multiples of this.
const STEP: usize = 16;

/// `c = a b` on the CPU: f32 and f64 by the `gemm` crate, 16-bit floats through f32.
pub(crate) fn matmul_cpu(a: &Tensor, b: &Tensor, c: &Tensor) -> Result<()> {
    trace::check_real("matmul", &[a, b, c])?;
    match c.dtype() {
        DType::F32 => {
            products::<f32>(&a.to_dtype(DType::F32)?, &b.to_dtype(DType::F32)?, c);
        }
        DType::F64 => products::<f64>(a, b, c),
        _ => {
            let wide = Tensor::uninitialized(c.shape(), (DType::F32, c.device()))?;
            products::<f32>(&a.to_dtype(DType::F32)?, &b.to_dtype(DType::F32)?, &wide);
            return cast(&wide, c);
        }
    }
    Ok(())
}

/// What `gemm` multiplies.
trait Element: Copy + Send + Sync + 'static {
    const ZERO: Self;
    const ONE: Self;
}

impl Element for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
}

impl Element for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
}

/// A matrix of a batch, as it lies.
#[derive(Clone, Copy)]
struct Matrices {
    address: u64,
    batch: isize,
    row: isize,
    column: isize,
}

impl Matrices {
    fn of(t: &Tensor) -> Matrices {
        let [batch, row, column] = [0, 1, 2].map(|axis| t.strides()[axis] as isize);
        Matrices { address: t.address(), batch, row, column }
    }

    fn at<T>(&self, batch: usize, row: usize, column: usize) -> *mut T {
        let skipped =
            batch as isize * self.batch + row as isize * self.row + column as isize * self.column;
        (self.address as *mut T).wrapping_offset(skipped)
    }
}

/// Products `[b, m, k] x [b, k, n]`.
#[derive(Clone, Copy)]
struct Job {
    a: Matrices,
    b: Matrices,
    c: Matrices,
    extents: [usize; 4],
}

/// Rows and columns of a product: the first and how many.
type Part = [(usize, usize); 2];

impl Job {
    /// Makes a part of one product.
    ///
    /// # Safety
    /// All three are matrices of these extents over live CPU memory of this type, and nothing else reads
    /// or writes the part of `c`.
    unsafe fn run<T: Element>(&self, batch: usize, part: Part, by: ::gemm::Parallelism) {
        let Job { a, b, c, extents: [_, _, _, k] } = *self;
        let [(row, m), (column, n)] = part;
        // SAFETY: says the caller.
        unsafe {
            ::gemm::gemm(
                m,
                n,
                k,
                c.at::<T>(batch, row, column),
                c.column,
                c.row,
                false,
                a.at::<T>(batch, row, 0),
                a.column,
                a.row,
                b.at::<T>(batch, 0, column),
                b.column,
                b.row,
                T::ZERO,
                T::ONE,
                false,
                false,
                false,
                by,
            );
        }
    }

    /// The parts of each product for so many threads.
    fn parts(&self, threads: usize) -> Vec<Part> {
        let [batches, m, n, _] = self.extents;
        let longer = m.max(n);
        // A row or a column alone is summed otherwise too, by its length.
        let most = if m.min(n) > 1 { longer / LEAST } else { 1 };
        let count = threads.div_ceil(batches).min(most).max(1);
        let begin = |part: usize| match part == count {
            true => longer,
            false => longer * part / count / STEP * STEP,
        };
        let range = |part: usize| (begin(part), begin(part + 1) - begin(part));
        let all = (0..count).map(range);
        if m > n {
            all.map(|rows| [rows, (0, n)]).collect()
        } else {
            all.map(|columns| [(0, m), columns]).collect()
        }
    }
}

fn products<T: Element>(a: &Tensor, b: &Tensor, c: &Tensor) {
    let extents = [c.shape()[0], c.shape()[1], c.shape()[2], a.shape()[2]];
    let _kernel = profiled::host_kernel("gemm", || work::<T>(extents));
    let job = Job { a: Matrices::of(a), b: Matrices::of(b), c: Matrices::of(c), extents };
    let [batches, m, n, k] = extents;
    if batches * m * n == 0 {
        return;
    }
    let (each, threads) = (m * n * k, threads_here());
    if each >= MANY && threads > 1 {
        let whole = || {
            // SAFETY: as below; `gemm` lets no two threads write one element.
            let one = |batch| unsafe {
                job.run::<T>(batch, [(0, m), (0, n)], ::gemm::Parallelism::Rayon(0))
            };
            (0..batches).for_each(one);
        };
        return install(whole);
    }
    let wanted = if batches * each <= FEW { 1 } else { threads };
    let parts = job.parts(wanted);
    let tasks = batches * parts.len();
    // Products of a few numbers are made together.
    let least = FEW.div_ceil((each / parts.len()).max(1)).min(tasks);
    share(tasks.div_ceil(least), |number| {
        for task in number * least..((number + 1) * least).min(tasks) {
            let (batch, part) = (task / parts.len(), parts[task % parts.len()]);
            // SAFETY: all three are matrices of these extents and strides over live CPU memory. `c` is
            // fresh, so nothing else reads or writes it, and parts do not overlap.
            unsafe { job.run::<T>(batch, part, ::gemm::Parallelism::None) };
        }
    });
}

/// What products `[b, m, k] x [b, k, n]` move and compute.
fn work<T>([b, m, n, k]: [usize; 4]) -> profiled::Kernel {
    let bytes = (b * (m * k + k * n + m * n) * size_of::<T>()) as u64;
    let flops = 2 * (b * m * n * k) as u64;
    profiled::Kernel { bytes, flops, product_flops: flops, ..profiled::Kernel::default() }
}

#[cfg(test)]
mod tests {
    use genesis_kernel::runtime::Device;

    use super::*;

    fn numbers(shape: &[usize], step: usize) -> Result<Tensor> {
        let n: usize = crate::shape::product(shape.iter());
        let values: Vec<f64> = (0..n).map(|i| (i * step % 1013) as f64 / 1013.0 - 0.5).collect();
        Tensor::from_f64(&values, shape, (DType::F32, Device::Cpu))
    }

    #[test]
    fn parts_give_the_bits_of_the_whole() -> Result<()> {
        // Longer along rows and columns, with more to sum than `gemm` sums at once.
        for [m, n, k] in [
            [128, 256, 784],
            [97, 300, 1500],
            [400, 20, 700],
            [2, 999, 700],
            [801, 1, 300],
            [800, 3, 300],
        ] {
            let (a, b) = (numbers(&[1, m, k], 7)?, numbers(&[1, n, k], 11)?.t()?);
            let product = |threads: usize| -> Result<Vec<f64>> {
                let c = Tensor::zeros(&[1, m, n], (DType::F32, Device::Cpu))?;
                let [a, b, out] = [&a, &b, &c].map(Matrices::of);
                let job = Job { a, b, c: out, extents: [1, m, n, k] };
                for part in job.parts(threads) {
                    // SAFETY: the tensors have these extents, and `c` is not used meanwhile.
                    unsafe { job.run::<f32>(0, part, ::gemm::Parallelism::None) };
                }
                c.to_f64_vec()
            };
            let whole = product(1)?;
            for threads in [2, 3, 4] {
                assert_eq!(product(threads)?, whole, "{m} x {n} x {k} by {threads}");
            }
        }
        Ok(())
    }
}
