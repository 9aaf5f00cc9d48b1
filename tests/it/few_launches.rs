//! How many launches ops of small tensors take on a GPU, where each costs as much as the work: forward, and backward
//! where they have one. Their results are those of the CPU.

use genesis::autograd::{GradOptions, grad};
use genesis::ops::{
    BagMode, Bags, BatchStats, Classes, Ctc, Gate, GridMode, GridPadding, GridSample, MultiMargin,
    PadMode, Reduction, Triplet, Window,
};
use genesis::profiler::{ProfilerOptions, profile};
use genesis::{DType, Device, Result, Tensor};

use crate::gpu::gpu;

type Call = fn(&[Tensor]) -> Result<Tensor>;

/// Launches of an op on operands of these shapes, forward and backward; 0 where it has no gradient.
struct Row {
    name: &'static str,
    shapes: &'static [&'static [usize]],
    dtype: DType,
    launches: [usize; 2],
    call: Call,
}

const fn row(
    name: &'static str,
    shapes: &'static [&'static [usize]],
    launches: [usize; 2],
    call: Call,
) -> Row {
    Row { name, shapes, dtype: DType::F32, launches, call }
}

fn refs(x: &[Tensor]) -> Vec<&Tensor> {
    x.iter().collect()
}

const SQUARE: &[&[usize]] = &[&[64, 64]];
const TWO: &[&[usize]] = &[&[64, 64], &[64, 64]];
const EIGHT: &[&[usize]] =
    &[&[2, 3], &[5, 3], &[1, 3], &[4, 3], &[8, 3], &[1, 3], &[2, 3], &[7, 3]];

fn rows() -> impl Iterator<Item = Row> {
    let all = [
        comparisons_and_writes(),
        joins(),
        parts(),
        reductions(),
        elementwise(),
        products(),
        selections(),
        pools(),
        losses(),
    ];
    all.into_iter().flatten()
}

/// Comparisons, and what is written over the first operand.
fn comparisons_and_writes() -> Vec<Row> {
    vec![
        row("eq_scalar", SQUARE, [1, 0], |x| x[0].eq_scalar(0.5)),
        row("lt_scalar of columns", SQUARE, [1, 0], |x| x[0].t()?.lt_scalar(0.5)),
        row("add_", TWO, [1, 0], |x| in_place(x, |own, x| own.add_(&x[1]))),
        row("mul_", TWO, [1, 0], |x| in_place(x, |own, x| own.mul_(&x[1]))),
        row("mul_ of a row", &[&[64, 48], &[48]], [1, 0], |x| {
            in_place(x, |own, x| own.mul_(&x[1]))
        }),
        row("mul_scalar_", SQUARE, [1, 0], |x| in_place(x, |own, _| own.mul_scalar_(3.0))),
        row("exp_ of columns", SQUARE, [1, 0], |x| in_place(x, |own, _| own.t()?.relu_())),
    ]
}

/// Tensors side by side, and shifted or padded.
fn joins() -> Vec<Row> {
    vec![
        row("cat along rows", TWO, [1, 0], |x| Tensor::cat(&refs(x), 0)),
        row("cat along columns", &[&[64, 64], &[64, 3]], [1, 0], |x| Tensor::cat(&refs(x), 1)),
        row("cat of eight", EIGHT, [1, 0], |x| Tensor::cat(&refs(x), 0)),
        row("cat of three", &[&[2, 3, 5], &[2, 4, 5], &[2, 1, 5]], [1, 0], |x| {
            Tensor::cat(&refs(x), 1)
        }),
        row("stack", TWO, [1, 0], |x| Tensor::stack(&refs(x), -1)),
        row("dstack", TWO, [1, 0], |x| Tensor::dstack(&refs(x))),
        row("hstack", TWO, [1, 0], |x| Tensor::hstack(&refs(x))),
        row("column_stack", &[&[64], &[64, 5]], [1, 0], |x| Tensor::column_stack(&refs(x))),
        row("block_diag", &[&[5, 7], &[3], &[64, 2]], [1, 0], |x| Tensor::block_diag(&refs(x))),
        row("roll", SQUARE, [1, 1], |x| x[0].roll(3, 1)),
        row("pad by a value", SQUARE, [1, 0], |x| x[0].pad(&[1, 2, 3, 0], PadMode::Constant(7.0))),
        row("pad by a mirror", SQUARE, [1, 1], |x| x[0].pad(&[3, 5], PadMode::Reflect)),
        row("pad by the other end", SQUARE, [1, 1], |x| x[0].pad(&[3, 5], PadMode::Circular)),
    ]
}

/// Views, whose gradients are put together where they meet, and copies of them.
fn parts() -> Vec<Row> {
    vec![
        row("narrow", SQUARE, [0, 1], |x| x[0].narrow(1, 3, 9)),
        row("as_strided", SQUARE, [0, 2], |x| x[0].as_strided(&[60, 32], &[64, 2], 5)),
        row("parts of a tensor", &[&[6, 48]], [2, 2], |x| {
            let parts = x[0].chunk(3, 1)?;
            parts[2].mul(&parts[0])?.add(&parts[1])
        }),
        row("slices that meet", &[&[6, 9]], [1, 3], |x| {
            x[0].narrow(1, 1, 5)?.add(&x[0].narrow(1, 3, 5)?)
        }),
        row("elements of a line", &[&[3, 8]], [1, 1], |x| {
            let lines = x[0].unbind(0)?;
            Tensor::cat(&[&lines[2], &lines[0]], 0)
        }),
        row("slice_scatter", &[&[6, 9], &[6, 4]], [1, 1], |x| {
            x[0].slice_scatter(&x[1], 1, Some(3), Some(7), 1)
        }),
        row("pixel_shuffle", &[&[2, 8, 65, 64]], [1, 1], |x| x[0].pixel_shuffle(2)),
        row("copy of six axes", &[&[2, 4, 3, 2, 2, 64]], [1, 0], |x| {
            x[0].permute(&[2, 0, 3, 1, 5, 4])?.contiguous()
        }),
    ]
}

/// Sums, norms, softmax and the like along axes.
fn reductions() -> Vec<Row> {
    vec![
        row("norm of columns", SQUARE, [2, 2], |x| x[0].vector_norm(2.0, &[0], false)),
        row("norm of rows", SQUARE, [2, 2], |x| x[0].t()?.vector_norm(2.0, &[0], false)),
        row("nansum of columns", SQUARE, [1, 1], |x| x[0].nansum(&[0], false)),
        row("group_norm", &[&[2, 6, 5], &[6], &[6]], [2, 6], |x| {
            x[0].group_norm(3, Some(&x[1]), Some(&x[2]), 1e-5)
        }),
        row("batch_norm", &[&[4, 6, 5], &[6], &[6]], [3, 4], |x| {
            let stats = BatchStats { running: None, training: true, momentum: 0.1, eps: 1e-5 };
            x[0].batch_norm(Some(&x[1]), Some(&x[2]), &stats)
        }),
        row("local_response_norm", &[&[2, 5, 6]], [4, 5], |x| {
            x[0].local_response_norm(3, 0.5, 0.75, 1.0)
        }),
        row("softmax", SQUARE, [1, 1], |x| x[0].softmax(-1)),
        row("log_softmax", SQUARE, [1, 1], |x| x[0].log_softmax(-1)),
        row("logsumexp", SQUARE, [3, 1], |x| x[0].logsumexp(&[-1], false)),
        row("mode", &[&[6, 40]], [6, 4], |x| Ok(x[0].mul_scalar(3.0)?.round()?.mode(0, false)?.0)),
        row("median_dim", &[&[6, 40]], [5, 2], |x| Ok(x[0].median_dim(1, false)?.0)),
        row("nanmedian", &[&[6, 40]], [5, 2], |x| x[0].nanmedian()),
        row("argmax_all of a long row", &[&[70_001]], [5, 0], |x| x[0].argmax_all()),
    ]
}

/// Gates, and functions of two operands.
fn elementwise() -> Vec<Row> {
    vec![
        row("glu", &[&[8, 64]], [1, 2], |x| x[0].glu(-1)),
        row("gated", &[&[8, 64]], [1, 1], |x| x[0].gated(Gate::Silu)),
        row("gated across rows", &[&[64, 48]], [1, 0], |x| x[0].t()?.gated(Gate::GeluTanh)),
        row("logaddexp", TWO, [1, 1], |x| x[0].logaddexp(&x[1])),
        row("logaddexp2", TWO, [1, 1], |x| x[0].logaddexp2(&x[1])),
    ]
}

/// Products and distances.
fn products() -> Vec<Row> {
    vec![
        row("a matrix times a vector", &[&[48, 64], &[64]], [1, 2], |x| x[0].mv(&x[1])),
        row("a turned matrix times a vector", &[&[64, 48], &[64]], [1, 2], |x| x[0].t()?.mv(&x[1])),
        row("a row times a turned matrix", &[&[1, 64], &[48, 64]], [1, 2], |x| {
            x[0].matmul(&x[1].t()?)
        }),
        row("matmul_bias_gelu", &[&[16, 24], &[24, 8], &[8]], [2, 4], |x| {
            x[0].matmul_bias_gelu(&x[1], &x[2])
        }),
        row("cdist", &[&[20, 7], &[33, 7]], [1, 2], |x| x[0].cdist(&x[1], 1.0)),
        row("cosine_similarity", TWO, [3, 4], |x| x[0].cosine_similarity(&x[1], 1, 1e-8)),
    ]
}

/// Indices of rows of a table of 9, for bags.
fn bag_indices(shape: &[usize], device: Device) -> Result<Tensor> {
    let at: Vec<i64> = (0..24).map(|i| i * 5 % 9).collect();
    Tensor::from_slice_on(&at, shape, device)
}

/// Rows and elements at indices.
fn selections() -> Vec<Row> {
    vec![
        row("embedding_bag", &[&[9, 20]], [1, 4], |x| {
            let index = bag_indices(&[6, 4], x[0].device())?;
            x[0].embedding_bag(&index, &Bags { mode: BagMode::Mean, ..Bags::default() })
        }),
        row("embedding_bag by weight", &[&[9, 20], &[6, 4]], [1, 4], |x| {
            let index = bag_indices(&[6, 4], x[0].device())?;
            let (mode, per_sample_weights) = (BagMode::Sum, Some(x[1].clone()));
            x[0].embedding_bag(&index, &Bags { mode, per_sample_weights, ..Bags::default() })
        }),
        row("embedding_bag at offsets", &[&[9, 20]], [5, 24], |x| {
            let index = bag_indices(&[24], x[0].device())?;
            let offsets = Some(Tensor::from_slice_on(&[0i64, 7, 7, 20], &[4], x[0].device())?);
            let bags =
                Bags { mode: BagMode::Mean, offsets, padding_idx: Some(5), ..Bags::default() };
            x[0].embedding_bag(&index, &bags)
        }),
        row("put", &[&[40, 50], &[64]], [2, 1], |x| {
            let places: Vec<i64> = (0..64).map(|i| i * 37 % 90).collect();
            let places = Tensor::from_slice_on(&places, &[64], x[0].device())?;
            x[0].put(&places, &x[1], true)
        }),
        row("take_along_dim of rows", &[&[12, 40]], [1, 4], |x| {
            let rows = Tensor::from_slice_on(&[3i64, 0, -1, 3], &[4, 1], x[0].device())?;
            x[0].take_along_dim(&rows, 0)
        }),
    ]
}

/// Windows of images, and points of them.
fn pools() -> Vec<Row> {
    vec![
        row("grid_sample", &[&[2, 3, 5, 4], &[2, 3, 2, 2]], [1, 19], |x| {
            x[0].grid_sample(&x[1], &GridSample::default())
        }),
        row("grid_sample by a cubic", &[&[1, 2, 5, 4], &[1, 3, 2, 2]], [1, 19], |x| {
            let (mode, padding) = (GridMode::Cubic, GridPadding::Reflection);
            x[0].grid_sample(&x[1], &GridSample { mode, padding, ..GridSample::default() })
        }),
        row("grid_sample of a volume", &[&[2, 2, 3, 5, 4], &[2, 3, 2, 2, 3]], [1, 24], |x| {
            let padding = GridPadding::Border;
            let options = GridSample { padding, align_corners: true, ..GridSample::default() };
            x[0].grid_sample(&x[1], &options)
        }),
        row("adaptive_avg_pool", &[&[1, 2, 9, 9]], [1, 1], |x| x[0].adaptive_avg_pool(&[2, 2])),
        row("adaptive_max_pool", &[&[1, 2, 9, 9]], [1, 1], |x| {
            Ok(x[0].adaptive_max_pool(&[2, 2])?.0)
        }),
        row("avg_pool", &[&[2, 3, 9, 9]], [1, 1], |x| {
            let stride = vec![2, 2];
            x[0].avg_pool(&Window { stride, ..Window::new(&[3, 3]) }, true, None)
        }),
    ]
}

/// Classes of 64 rows, of 10.
fn classes(device: Device) -> Result<Tensor> {
    let classes: Vec<i64> = (0..64).map(|i| i * 3 % 10).collect();
    Tensor::from_slice_on(&classes, &[64], device)
}

fn losses() -> Vec<Row> {
    vec![
        row("nll_loss", &[&[64, 10]], [1, 1], |x| {
            let target = classes(x[0].device())?;
            x[0].nll_loss(&target, &Classes { ignore_index: 3, ..Classes::default() })
        }),
        row("multi_margin_loss", &[&[64, 10]], [1, 1], |x| {
            let target = classes(x[0].device())?;
            x[0].multi_margin_loss(&target, &MultiMargin { p: 2, ..MultiMargin::default() })
        }),
        row("multilabel_margin_loss", &[&[3, 5]], [10, 8], |x| {
            let classes = [2i64, 0, -1, 1, 3, 4, 3, 2, 1, 0, -1, 1, 1, 1, 1];
            let target = Tensor::from_slice_on(&classes, &[3, 5], x[0].device())?;
            x[0].multilabel_margin_loss(&target, Reduction::Mean)
        }),
        row("ctc_loss", &[&[9, 2, 4]], [2, 6], |x| {
            let labels = Tensor::from_slice_on(&[1i64, 2, 2, 3], &[4], x[0].device())?;
            x[0].ctc_loss(&labels, &[9, 7], &[3, 1], &Ctc::default())
        }),
        row("triplet_margin_loss", &[&[6, 40], &[6, 40], &[6, 40]], [2, 2], |x| {
            x[0].triplet_margin_loss([&x[1], &x[2]], &Triplet::default())
        }),
    ]
}

/// What an op leaves of a copy of the first operand.
fn in_place(x: &[Tensor], op: impl Fn(&Tensor, &[Tensor]) -> Result<()>) -> Result<Tensor> {
    let own = x[0].detach();
    op(&own, x)?;
    Ok(own)
}

fn operands(row: &Row, device: Device) -> Result<Vec<Tensor>> {
    let of = |(number, shape): (usize, &&[usize])| {
        let n: usize = shape.iter().product();
        let values: Vec<f64> =
            (0..n).map(|i| ((i + number) * 7 % 23) as f64 / 16.0 - 0.5).collect();
        Tensor::from_f64(&values, shape, (row.dtype, device))
    };
    row.shapes.iter().enumerate().map(of).collect()
}

/// Launches of a call, and what it gave.
fn counted<T>(call: impl Fn() -> Result<T>) -> Result<(Vec<&'static str>, T)> {
    let (result, profile) = profile(ProfilerOptions::default(), |_| call())?;
    Ok((profile.events().launches.iter().map(|launch| launch.kernel).collect(), result))
}

/// Results of an op and of its gradients, and the kernels that each launched.
type Ran = (Vec<Vec<f64>>, [Vec<&'static str>; 2]);

/// Values, and where there are any those of the gradients, with the launches of both.
fn run(row: &Row, device: Device) -> Result<Ran> {
    let has_gradient = row.launches[1] > 0;
    let x = operands(row, device)?;
    let x = x.into_iter().map(|x| x.requires_grad_(has_gradient)).collect::<Result<Vec<_>>>()?;
    let (forward, y) = counted(|| (row.call)(&x))?;
    let mut values = vec![y.detach().to_f64_vec()?];
    let mut backward = Vec::new();
    if has_gradient {
        let n = y.numel();
        let dy: Vec<f64> = (0..n).map(|i| (i * 5 % 19) as f64 / 8.0 - 1.0).collect();
        let dy = Tensor::from_f64(&dy, y.shape(), (row.dtype, device))?;
        let options = GradOptions { grad_outputs: &[Some(&dy)], ..GradOptions::default() };
        let grads;
        (backward, grads) = counted(|| grad(&[&y], &refs(&x), options))?;
        for dx in grads.iter().flatten() {
            values.push(dx.to_f64_vec()?);
        }
    }
    Ok((values, [forward, backward]))
}

/// Whether values are those that the CPU has, but for the order of its sums.
fn are_close(ours: &[Vec<f64>], theirs: &[Vec<f64>]) -> bool {
    let is_close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-5 * b.abs().max(1.0);
    let are = |(a, b): (&Vec<f64>, &Vec<f64>)| a.len() == b.len() && a.iter().zip(b).all(is_close);
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(are)
}

#[test]
fn small_ops_take_few_launches() -> Result<()> {
    let Some(device) = gpu("launches of small ops") else { return Ok(()) };
    let mut problems = Vec::new();
    for row in rows() {
        // What is made once, such as counters, is made by the first call.
        run(&row, device)?;
        let (values, launches) = run(&row, device)?;
        let counts = [launches[0].len(), launches[1].len()];
        if counts != row.launches {
            problems.push(format!("{}: {counts:?} launches, {launches:?}", row.name));
        }
        if !are_close(&values, &run(&row, Device::Cpu)?.0) {
            problems.push(format!("{}: other values than on the CPU", row.name));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// Parts that begin anywhere, of every width of elements, some of them turned.
#[test]
fn joined_parts_lie_where_they_should() -> Result<()> {
    let Some(device) = gpu("joins") else { return Ok(()) };
    for dtype in [DType::F64, DType::F32, DType::BF16, DType::U8, DType::Bool] {
        let of = |device: Device| -> Result<Vec<Vec<f64>>> {
            let values: Vec<f64> = (0..40 * 36).map(|i| (i % 7) as f64).collect();
            let x = Tensor::from_f64(&values, &[40, 36], (dtype, device))?;
            let parts = [x.narrow(0, 1, 5)?, x.narrow(0, 0, 7)?, x.narrow(0, 13, 1)?];
            let columns = [x.narrow(1, 1, 5)?, x.narrow(1, 8, 16)?, x.narrow(1, 3, 32)?];
            let turned = [x.narrow(1, 0, 36)?.t()?, x.narrow(0, 0, 36)?];
            let many: Vec<Tensor> =
                (0..19).map(|i| x.narrow(0, i, i % 4 + 1)).collect::<Result<_>>()?;
            let flat = x.ravel()?;
            let lines = [flat.narrow(0, 1, 1000)?, flat.narrow(0, 3, 9)?, flat.narrow(0, 0, 0)?];
            let joined = [
                Tensor::cat(&refs(&parts), 0)?,
                Tensor::cat(&refs(&columns), 1)?,
                Tensor::cat(&refs(&turned), 1)?,
                Tensor::cat(&refs(&many), 0)?,
                Tensor::cat(&refs(&lines), 0)?,
                Tensor::stack(&[&x, &x.flip(&[1])?, &x], -1)?,
                Tensor::stack(&[&x, &x], 1)?,
                x.roll(5, 0)?,
                x.roll(-3, 1)?,
            ];
            joined.iter().map(Tensor::to_f64_vec).collect()
        };
        assert_eq!(of(device)?, of(Device::Cpu)?, "{dtype}");
    }
    Ok(())
}

/// Padding along one axis and several, with elements gone at some ends.
#[test]
fn padding_stands_where_it_should() -> Result<()> {
    let Some(device) = gpu("padding") else { return Ok(()) };
    let all: [(&[i64], PadMode); 9] = [
        (&[1, 2], PadMode::Constant(3.0)),
        (&[-1, 2, 0, 1, 2, 2], PadMode::Constant(-1.0)),
        (&[0, 0, 3, -2], PadMode::Constant(0.5)),
        (&[3, 4], PadMode::Reflect),
        (&[2, -1, 1, 2], PadMode::Reflect),
        (&[-2, 3, 0, 1], PadMode::Reflect),
        (&[5, 6], PadMode::Circular),
        (&[-2, 3, 2, -1], PadMode::Circular),
        (&[2, 1], PadMode::Replicate),
    ];
    for dtype in [DType::F32, DType::BF16] {
        for (pads, mode) in all {
            let of = |device: Device| -> Result<Vec<Vec<f64>>> {
                let values: Vec<f64> = (0..2 * 3 * 5 * 7).map(|i| (i % 31) as f64).collect();
                let x = Tensor::from_f64(&values, &[2, 3, 5, 7], (dtype, device))?;
                let x = x.requires_grad_(true)?;
                let y = x.pad(pads, mode)?;
                y.mul(&y.detach())?.sum()?.backward()?;
                let dx = x.grad().map(|dx| dx.to_f64_vec()).transpose()?;
                Ok([Some(y.detach().to_f64_vec()?), dx].into_iter().flatten().collect())
            };
            assert_eq!(of(device)?, of(Device::Cpu)?, "{dtype} {pads:?} {mode:?}");
        }
    }
    Ok(())
}
