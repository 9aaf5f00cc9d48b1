//! Streaming kernels at every block size and number of warps: the same right bits from each of them, and on
//! a GPU a table of their speeds to choose from.

use genesis::ops::info::{Dense, OpInfo, all};
use genesis::{DType, Device};
use genesis_kernel::kernel::{Grid, KernelDef, LaunchOptions};
use genesis_kernel::runtime::{Arg, Array, AsPtrMut, Event, ViewArg};
use half::bf16;
use kernels::elementwise as device;

use crate::gpu::devices;

/// Kernels of dense tensors, with the op of each.
const KERNELS: [(&str, &KernelDef); 3] = [
    ("add", &device::add_flat::KERNEL),
    ("gelu", &device::gelu_flat::KERNEL),
    ("exp", &device::exp_flat::KERNEL),
];

/// Elements whose results are looked at: some blocks of the longest.
const FEW: usize = 1 << 16;
/// Elements that are timed: 256 MiB of f32.
const MANY: usize = 1 << 26;

/// How a kernel is launched.
#[derive(Clone, Copy, Debug)]
struct Variant {
    block: i64,
    num_warps: u32,
}

impl Variant {
    /// Elements of one thread.
    fn each(self) -> i64 {
        self.block / 32 / i64::from(self.num_warps)
    }
}

/// Those that give a thread 4 to 64 elements.
fn variants() -> impl Iterator<Item = Variant> {
    let of = |block| [2, 4, 8, 16].map(|num_warps| Variant { block, num_warps });
    let all = [512, 1024, 2048, 4096, 8192].into_iter().flat_map(of);
    all.filter(|variant| (4..=64).contains(&variant.each()))
}

/// Tensors of one dtype: operands, and the result behind them.
struct Tensors {
    device: Device,
    dtype: DType,
    n: usize,
    /// Words of memory, of f32 or of two bf16.
    arrays: Vec<Array<u32>>,
}

impl Tensors {
    fn new(device: Device, dtype: DType, n: usize, count: usize) -> Tensors {
        let stream = device.stream();
        let words = n * dtype.bytes() / 4;
        // Numbers of 0.5 to 1 of both signs in each half of a word.
        let number = |i: u32| 0x3f00_3f00 | i.wrapping_mul(0x9e37_79b9) & 0x80ff_80ff;
        let values: Vec<u32> = (0..words as u32).map(number).collect();
        let arrays = (0..count).map(|_| stream.upload(&values).expect("there is memory")).collect();
        Tensors { device, dtype, n, arrays }
    }

    /// Views of one axis of the arrays.
    fn args(&mut self) -> Vec<Arg> {
        let (dtype, n, last) = (self.dtype, self.n as i64, self.arrays.len() - 1);
        let view = |(i, array): (usize, &mut Array<u32>)| {
            let Arg::Ptr(mut ptr) = AsPtrMut::<u32>::as_arg(&array).arg() else {
                unreachable!("an array")
            };
            (ptr.dtype, ptr.mutable) = (dtype, i == last);
            Arg::View(ViewArg::new(ptr, &[n], &[1]).expect("a view of one axis"))
        };
        self.arrays.iter_mut().enumerate().map(view).collect()
    }

    fn launch(&self, kernel: &KernelDef, variant: Variant, args: &[Arg]) {
        let options =
            LaunchOptions { num_warps: Some(variant.num_warps), ..LaunchOptions::default() };
        let grid = Grid::x(self.n as i64 / variant.block);
        let (stream, dtypes) = (self.device.stream(), [self.dtype, DType::F32]);
        // SAFETY: the views are of whole arrays, of which only the last is written.
        unsafe {
            kernel.launch_with(&stream, grid, &dtypes, &[variant.block], options, args).unwrap();
        }
    }

    /// The elements of an array.
    fn values(&self, array: usize) -> Vec<f64> {
        let words = self.arrays[array].to_vec().expect("it is read back");
        let halves = |word: u32| {
            [word as u16, (word >> 16) as u16].map(|bits| bf16::from_bits(bits).to_f64())
        };
        match self.dtype {
            DType::F32 => words.into_iter().map(|word| f64::from(f32::from_bits(word))).collect(),
            _ => words.into_iter().flat_map(halves).collect(),
        }
    }
}

/// Every variant gives what the op's definition says, to the bit what the first one gives.
fn check(info: &OpInfo, kernel: &KernelDef, dtype: DType, device: Device) {
    let count = kernel.ast.params.len();
    let mut first: Option<Vec<f64>> = None;
    for variant in variants() {
        let what = format!("{} {dtype} {variant:?} on {device}", info.name);
        let mut tensors = Tensors::new(device, dtype, FEW, count);
        let args = tensors.args();
        tensors.launch(kernel, variant, &args);
        let got = tensors.values(count - 1);
        if let Some(first) = &first {
            let other = got.iter().zip(first).position(|(a, b)| a.to_bits() != b.to_bits());
            assert_eq!(other, None, "{what}: an element that another block size gives otherwise");
            continue;
        }
        let operand = |array| Dense { shape: vec![FEW], data: tensors.values(array) };
        let operands: Vec<Dense> = (0..count - 1).map(operand).collect();
        let expected = (info.reference)(&operands).data;
        assert_eq!(got.len(), expected.len(), "{what}");
        for (i, (&got, &wanted)) in got.iter().zip(&expected).enumerate() {
            // A last place of bf16: functions whose result is rounded to 16 bits are computed to about as many.
            let rounding = if dtype == DType::BF16 { 0.5f64.powi(7) * wanted.abs() } else { 0.0 };
            let allowed = rounding + 1e-6 * (1.0 + wanted.abs());
            assert!((got - wanted).abs() <= allowed, "{what}: {i} is {got} and not {wanted}");
        }
        first = Some(got);
    }
}

/// Speeds, for people to read: other tests may run beside this one.
fn print_speeds(name: &str, kernel: &KernelDef, dtype: DType, device: Device) {
    let mut tensors = Tensors::new(device, dtype, MANY, kernel.ast.params.len());
    let args = tensors.args();
    let bytes = (args.len() * MANY * dtype.bytes()) as f64;
    let stream = device.stream();
    for variant in variants() {
        let time = || {
            let start = Event::record(&stream).unwrap();
            tensors.launch(kernel, variant, &args);
            let end = Event::record(&stream).unwrap();
            stream.synchronize().unwrap();
            end.elapsed_ms(&start).unwrap()
        };
        let ms = (0..12).map(|_| time()).fold(f64::INFINITY, f64::min);
        let (Variant { block, .. }, each, rate) = (variant, variant.each(), bytes / ms / 1e6);
        println!("{name}/{dtype:6} block {block:5} {each:2} a thread  {ms:.4} ms {rate:5.0} GB/s");
    }
}

#[test]
fn streaming_kernels_give_the_same_bits_at_every_block_size() {
    let infos = all();
    for device in devices("speeds of streaming kernels") {
        for (name, kernel) in KERNELS {
            let info = infos.iter().find(|info| info.name == name).expect("an op of the table");
            for dtype in [DType::F32, DType::BF16] {
                check(info, kernel, dtype, device);
                if device.is_cuda() {
                    print_speeds(name, kernel, dtype, device);
                }
            }
        }
    }
}
