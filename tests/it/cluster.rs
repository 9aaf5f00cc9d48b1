//! Programs that are clusters of blocks: what rows kept in registers need of the assembler, and whether
//! every size of cluster gives the same softmax.

use genesis::{DType, Device, Tensor};
use genesis_kernel::inspect::{Emit, InspectRequest, inspect};
use genesis_kernel::kernel::{Grid, KernelDef, LaunchOptions};
use genesis_kernel::runtime::{Arg, Array, AsPtrMut, ViewArg};
use genesis_kernel::target::Target;
use kernels::softmax as device;

use crate::gpu::gpu;
use crate::skipped::has_ptxas;

/// Columns, warps and blocks of rows of 32 bits that softmax keeps; see the table of choices.
const WIDE: &[(i64, u32, u32)] = &[(32_768, 16, 1), (65_536, 8, 4), (155_648, 8, 8)];

/// The same of 16 bits.
const KEPT: &[(i64, u32, u32)] = &[
    (8192, 4, 1),
    (12_288, 8, 1),
    (16_384, 8, 1),
    (32_768, 16, 1),
    (40_960, 8, 2),
    (65_536, 8, 2),
    (155_648, 8, 4),
    (212_992, 8, 8),
    (262_144, 8, 8),
];

#[test]
fn kept_rows_fit_the_registers() {
    if !has_ptxas("registers of rows that are kept") {
        return;
    }
    for kernel in [&device::softmax::KERNEL, &device::log_softmax::KERNEL] {
        let rows = KEPT.iter().map(|row| (row, DType::BF16));
        for (&(columns, warps, blocks), dtype) in
            rows.chain(WIDE.iter().map(|row| (row, DType::F32)))
        {
            let mut request = InspectRequest::new(kernel, Target::sm_90a(), Emit::Ptx)
                .dtypes(&[dtype, DType::F32])
                .set("ROWS", 1)
                .set("COLS", columns);
            request.hints.num_warps = Some(warps);
            request.hints.cluster = Some(blocks);
            let found = inspect(kernel, &request).unwrap_or_else(|why| panic!("{why}"));
            let name = kernel.name();
            assert_eq!(found.resources.spill_bytes, Some(0), "{name} of {columns} columns");
            let in_cluster = found.text.contains("barrier.cluster");
            assert_eq!(in_cluster, blocks > 1, "{name} of {columns} columns");
        }
    }
}

#[test]
fn a_cluster_is_no_larger_than_the_gpu_allows() {
    let refusal = |target: Target, blocks| {
        let mut request = InspectRequest::new(&device::softmax::KERNEL, target, Emit::Ptx)
            .dtypes(&[DType::BF16, DType::F32])
            .set("ROWS", 1)
            .set("COLS", 65_536);
        request.hints.num_warps = Some(4);
        request.hints.cluster = Some(blocks);
        let found = inspect(&device::softmax::KERNEL, &request);
        found.err().map(|error| error.to_string())
    };
    assert_eq!(refusal(Target::sm_100a(), 16), None);
    assert_eq!(refusal(Target::sm_120a(), 8), None);
    let of_16 = refusal(Target::sm_120a(), 16).expect("there are 8 blocks at most");
    assert!(of_16.contains("in clusters of 16 blocks, sm_120a has 8"), "{of_16}");
    let of_2 = refusal(Target::sm_80(), 2).expect("there are no clusters");
    assert!(of_2.contains("in clusters, which sm_80 does not have"), "{of_2}");
}

fn view(array: &mut Array<f32>, dims: [i64; 2], mutable: bool) -> Arg {
    let Arg::Ptr(mut ptr) = AsPtrMut::<f32>::as_arg(&array).arg() else { unreachable!("an array") };
    ptr.mutable = mutable;
    Arg::View(ViewArg::new(ptr, &dims, &[dims[1], 1]).unwrap())
}

/// Softmax of rows in tiles of these columns, by clusters of a size.
fn softmax(values: &[f32], n: usize, columns: i64, cluster: u32) -> Vec<f32> {
    let stream = Device::Cuda(0).stream();
    let dims = [(values.len() / n) as i64, n as i64];
    let mut x = stream.upload(values).unwrap();
    let mut y: Array<f32> = Array::zeros(&stream, values.len()).unwrap();
    let args = [view(&mut x, dims, false), view(&mut y, dims, true)];
    let kernel: &KernelDef = &device::softmax::KERNEL;
    let options =
        LaunchOptions { num_warps: Some(4), cluster: Some(cluster), ..LaunchOptions::default() };
    let (dtypes, consts) = ([DType::F32, DType::F32], [1, columns]);
    // SAFETY: the views are of whole arrays, of which only the last is written.
    unsafe { kernel.launch_with(&stream, Grid::x(dims[0]), &dtypes, &consts, options, &args) }
        .unwrap();
    y.to_vec().unwrap()
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count as u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 20) as f32 / 256.0 - 8.0).collect()
}

fn wanted(row: &[f32]) -> Vec<f64> {
    let top = row.iter().fold(f64::NEG_INFINITY, |top, &v| top.max(f64::from(v)));
    let powers: Vec<f64> = row.iter().map(|&v| (f64::from(v) - top).exp()).collect();
    let total: f64 = powers.iter().sum();
    powers.iter().map(|power| power / total).collect()
}

fn has_clusters() -> bool {
    let target = gpu("clusters").and_then(Device::target);
    target.is_some_and(|target| target.features.has_clusters())
}

#[test]
fn every_cluster_gives_the_same_softmax() {
    if !has_clusters() {
        return;
    }
    // A power of two and not, whole vectors and not.
    for (n, columns) in [(8192, 8192), (5000, 8192), (5000, 6144), (4097, 5120)] {
        let values = numbers(37 * n);
        let rows: Vec<f64> = values.chunks(n).flat_map(wanted).collect();
        for cluster in [1, 2, 4, 8, 16] {
            let got = softmax(&values, n, columns, cluster);
            for (i, (&got, &want)) in got.iter().zip(&rows).enumerate() {
                let off = (f64::from(got) - want).abs();
                assert!(off <= 1e-5 * want, "{n} of {columns} by {cluster} at {i}: {got}, {want}");
            }
        }
    }
}

#[test]
fn long_rows_are_right() {
    if !has_clusters() {
        return;
    }
    for n in [8192, 12_000, 40_000, 65_544, 151_936] {
        let values = numbers(3 * n);
        for (dtype, most) in [(DType::BF16, 5e-3), (DType::F32, 1e-5)] {
            let x = Tensor::from_slice(&values, &[3, n]).unwrap().to_dtype(dtype).unwrap();
            let rounded: Vec<f32> = x.to_dtype(DType::F32).unwrap().to_vec().unwrap();
            let y = x.to_device(Device::Cuda(0)).unwrap().softmax(-1).unwrap();
            let got: Vec<f32> =
                y.to_device(Device::Cpu).unwrap().to_dtype(DType::F32).unwrap().to_vec().unwrap();
            for (row, got) in rounded.chunks(n).zip(got.chunks(n)) {
                for (i, (want, &got)) in wanted(row).into_iter().zip(got).enumerate() {
                    let off = (f64::from(got) - want).abs();
                    assert!(off <= most * want + 1e-38, "{dtype} {n} at {i}: {got}, {want}");
                }
            }
        }
    }
}
