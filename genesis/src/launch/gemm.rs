//! Products of matrices on the CPU, by the `gemm` crate.
//!
//! A product of medium size is cut along its longer side into as many parts as there are threads, and
//! each part is made by one of them, the caller being one: that costs less than waking all threads and
//! letting them wait for each other. No cut is along what is summed, and no part is so small that `gemm`
//! would sum it otherwise, so that every number of threads gives the same bits.

use ::gemm::Parallelism;
use genesis_kernel::ir::DType;
use genesis_kernel::runtime::{install, share_items, threads_here};
use genesis_kernel::trace as profiled;

use super::cast;
use crate::dispatch::trace;
use crate::error::Result;
use crate::tensor::Tensor;
use crate::tensor::products::{Matrix, MatrixMut, Previous, Real, multiply};

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
            products::<f32>(&a.to_dtype(DType::F32)?, &b.to_dtype(DType::F32)?, c, REPLACED);
        }
        DType::F64 => products::<f64>(a, b, c, REPLACED),
        _ => {
            let wide = Tensor::uninitialized(c.shape(), (DType::F32, c.device()))?;
            products::<f32>(&a.to_dtype(DType::F32)?, &b.to_dtype(DType::F32)?, &wide, REPLACED);
            return cast(&wide, c);
        }
    }
    Ok(())
}

const REPLACED: Previous = Previous::Replaced;

/// `c += a b` on the CPU of three dense tensors of f32 or of f64.
pub(crate) fn matmul_add_cpu(a: &Tensor, b: &Tensor, c: &Tensor) -> Result<()> {
    trace::check_real("matmul", &[a, b, c])?;
    match c.dtype() {
        DType::F64 => products::<f64>(a, b, c, Previous::Kept),
        _ => products::<f32>(a, b, c, Previous::Kept),
    }
    Ok(())
}

/// Where a product is cut: along its rows (axis 0) or columns (axis 1), into parts of so many of them.
struct Cut {
    axis: usize,
    counts: Vec<usize>,
}

impl Cut {
    /// The parts of each of so many products `[m, k] x [k, n]` for so many threads.
    fn of([batches, m, n]: [usize; 3], threads: usize) -> Cut {
        let longer = m.max(n);
        // A row or a column alone is summed otherwise too, by its length.
        let most = if m.min(n) > 1 { longer / LEAST } else { 1 };
        let count = threads.div_ceil(batches).min(most).max(1);
        let begin = |part: usize| match part == count {
            true => longer,
            false => longer * part / count / STEP * STEP,
        };
        let counts = (0..count).map(|part| begin(part + 1) - begin(part)).collect();
        Cut { axis: usize::from(m <= n), counts }
    }

    /// The parts of one product: what is multiplied, and where it goes.
    fn parts<'m, T>(
        &self,
        a: Matrix<'m, T>,
        b: Matrix<'m, T>,
        c: MatrixMut<'m, T>,
    ) -> Vec<(Matrix<'m, T>, Matrix<'m, T>, MatrixMut<'m, T>)>
    where
        T: Copy,
    {
        let (mut rest, mut from, mut parts) = (c, 0, Vec::with_capacity(self.counts.len()));
        for &count in &self.counts {
            let (own, others) = rest.cut(self.axis, count);
            let (a, b) = match self.axis {
                0 => (a.part(0, from, count), b),
                _ => (a, b.part(1, from, count)),
            };
            parts.push((a, b, own));
            (rest, from) = (others, from + count);
        }
        parts
    }
}

/// Matrices of a batch, as they lie.
#[derive(Clone, Copy)]
struct Matrices<'t, T> {
    elements: &'t [T],
    first: usize,
    extents: [usize; 2],
    strides: [isize; 3],
}

impl<'t, T: Real> Matrices<'t, T> {
    fn of(t: &Tensor, (elements, first): (&'t [T], usize)) -> Matrices<'t, T> {
        let strides = [0, 1, 2].map(|axis| t.strides()[axis] as isize);
        Matrices { elements, first, extents: [t.shape()[1], t.shape()[2]], strides }
    }

    fn of_batch(&self, batch: usize) -> Matrix<'t, T> {
        let [skipped, row, column] = self.strides;
        let first = self.first as isize + batch as isize * skipped;
        Matrix::new(self.elements, first as usize, self.extents, [row, column])
    }
}

fn products<T: Real>(a: &Tensor, b: &Tensor, c: &Tensor, previous: Previous) {
    let extents = [c.shape()[0], c.shape()[1], c.shape()[2], a.shape()[2]];
    let _kernel = profiled::host_kernel("gemm", || work::<T>(extents));
    let [batches, m, n, k] = extents;
    if batches * m * n == 0 {
        return;
    }
    let ((of_a, first_a), (of_b, first_b)) = (a.spread::<T>(), b.spread::<T>());
    let (a, b) = (Matrices::of(a, (&of_a, first_a)), Matrices::of(b, (&of_b, first_b)));
    let c = &mut *c.elements_mut::<T>();
    let several = |first: usize, c: &mut [T], by: Parallelism| {
        for (batch, c) in (first..).zip(c.chunks_exact_mut(m * n)) {
            multiply(a.of_batch(batch), b.of_batch(batch), (MatrixMut::of(c, n), previous), by);
        }
    };
    let (each, threads) = (m * n * k, threads_here());
    if each >= MANY && threads > 1 {
        return install(|| several(0, c, Parallelism::Rayon(0)));
    }
    let wanted = if batches * each <= FEW { 1 } else { threads };
    let cut = Cut::of([batches, m, n], wanted);
    // Products of a few numbers are made together.
    let least = FEW.div_ceil((each / cut.counts.len()).max(1));
    if cut.counts.len() == 1 {
        let least = least.min(batches);
        let lots = c.chunks_mut(least * m * n).enumerate().collect();
        return share_items(lots, 1, |(lot, c)| several(lot * least, c, Parallelism::None));
    }
    let all = c.chunks_exact_mut(m * n).enumerate();
    let parts = all.flat_map(|(batch, c)| {
        cut.parts(a.of_batch(batch), b.of_batch(batch), MatrixMut::of(c, n))
    });
    share_items(parts.collect(), least, |(a, b, c)| {
        multiply(a, b, (c, previous), Parallelism::None);
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
            let (left, right) = (a.spread::<f32>(), b.spread::<f32>());
            let a = Matrices::of(&a, (&left.0, left.1)).of_batch(0);
            let b = Matrices::of(&b, (&right.0, right.1)).of_batch(0);
            let product = |threads: usize| {
                let mut c = vec![0.0; m * n];
                for (a, b, c) in Cut::of([1, m, n], threads).parts(a, b, MatrixMut::of(&mut c, n)) {
                    multiply(a, b, (c, REPLACED), Parallelism::None);
                }
                c
            };
            let whole = product(1);
            for threads in [2, 3, 4] {
                assert_eq!(product(threads), whole, "{m} x {n} x {k} by {threads}");
            }
        }
        Ok(())
    }
}
