//! How block sizes and warps change the speed of streaming kernels, on a GPU: a table to choose from.

use genesis::{DType, Device};
use genesis_kernel::kernel::{Grid, KernelDef, LaunchOptions};
use genesis_kernel::runtime::{Arg, Array, AsPtrMut, Event, ViewArg};

const N: usize = 8192 * 8192;

/// An array as a view of one axis, of elements of another dtype and as many as fit.
fn view(array: &mut Array<u32>, dtype: DType, mutable: bool) -> Arg {
    let Arg::Ptr(mut ptr) = AsPtrMut::<u32>::as_arg(&array).arg() else { unreachable!("an array") };
    (ptr.dtype, ptr.mutable) = (dtype, mutable);
    Arg::View(ViewArg::new(ptr, &[N as i64], &[1]).expect("a view of one axis"))
}

/// The best of several times of a launch, in ms.
fn time(run: &dyn Fn()) -> f64 {
    let stream = Device::Cuda(0).stream();
    let mut best = f64::INFINITY;
    for _ in 0..12 {
        let start = Event::record(&stream).unwrap();
        run();
        let end = Event::record(&stream).unwrap();
        stream.synchronize().unwrap();
        best = best.min(end.elapsed_ms(&start).unwrap());
    }
    best
}

fn table(name: &str, kernel: &KernelDef, dtype: DType, arrays: &mut [Array<u32>]) {
    let stream = Device::Cuda(0).stream();
    let (dtypes, last) = ([dtype, DType::F32], arrays.len() - 1);
    let args: Vec<Arg> =
        arrays.iter_mut().enumerate().map(|(i, array)| view(array, dtype, i == last)).collect();
    let bytes = (args.len() * N * dtype.bytes()) as f64;
    for block in [512i64, 1024, 2048, 4096, 8192] {
        for num_warps in [2, 4, 8, 16].map(Some) {
            let each = block as u32 / 32 / num_warps.unwrap_or(1);
            if !(4..=64).contains(&each) {
                continue;
            }
            let options = LaunchOptions { num_warps, ..LaunchOptions::default() };
            let grid = Grid::x((N as i64).div_euclid(block));
            // SAFETY: the views are of whole arrays, of which only the last is written.
            let run = || unsafe {
                kernel.launch_with(&stream, grid, &dtypes, &[block], options, &args).unwrap();
            };
            let ms = time(&run);
            let rate = bytes / ms / 1e6;
            println!("{name:10} block {block:5} {each:2} a thread  {ms:.4} ms {rate:5.0} GB/s");
        }
    }
}

#[test]
fn streaming_variants() {
    if Device::cuda_count() == 0 {
        println!("skipped: no GPU");
        return;
    }
    use kernels::elementwise as device;
    let stream = Device::Cuda(0).stream();
    // Numbers around 1 in both halves of a word.
    let values: Vec<u32> =
        (0..N as u32).map(|i| 0x3f00_3f00 | i.wrapping_mul(0x9e37_79b9) & 0x80ff_80ff).collect();
    let mut arrays: Vec<Array<u32>> = (0..3).map(|_| stream.upload(&values).unwrap()).collect();
    for dtype in [DType::F32, DType::BF16] {
        table(&format!("add/{dtype}"), &device::add_flat::KERNEL, dtype, &mut arrays);
        table(&format!("gelu/{dtype}"), &device::gelu_flat::KERNEL, dtype, &mut arrays[..2]);
        table(&format!("exp/{dtype}"), &device::exp_flat::KERNEL, dtype, &mut arrays[..2]);
    }
}
