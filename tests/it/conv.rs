//! Convolutions against sums written out in f64: odd extents, strides, dilation, groups, layouts, and
//! their gradients of both orders.

use genesis::autograd::{GradCheck, GradOptions, grad, gradcheck, gradgradcheck};
use genesis::ops::Conv;
use genesis::{DType, Device, Result, Tensor};

use crate::gpu::gpu;

/// A convolution of one, two or three axes.
#[derive(Clone, Copy, Debug)]
struct Case {
    batch: usize,
    groups: usize,
    /// Channels of a group, in and out.
    channels: [usize; 2],
    input: &'static [usize],
    kernel: &'static [usize],
    stride: &'static [usize],
    padding: &'static [usize],
    dilation: &'static [usize],
}

impl Case {
    fn conv(&self) -> Conv {
        Conv {
            stride: self.stride.to_vec(),
            padding: self.padding.iter().map(|&n| [n, n]).collect(),
            dilation: self.dilation.to_vec(),
            groups: self.groups,
        }
    }

    /// Windows along each axis.
    fn output(&self) -> Vec<usize> {
        let along = |axis: usize| {
            let span = self.dilation[axis] * (self.kernel[axis] - 1) + 1;
            (self.input[axis] + 2 * self.padding[axis] - span) / self.stride[axis] + 1
        };
        (0..self.input.len()).map(along).collect()
    }

    fn input_shape(&self) -> Vec<usize> {
        [&[self.batch, self.groups * self.channels[0]], self.input].concat()
    }

    fn weight_shape(&self) -> Vec<usize> {
        [&[self.groups * self.channels[1], self.channels[0]], self.kernel].concat()
    }

    fn output_shape(&self) -> Vec<usize> {
        [&[self.batch, self.groups * self.channels[1]], &self.output()[..]].concat()
    }

    /// Calls `sum(x, weight, y)` with the numbers of elements that meet in a product.
    fn meet(&self, mut sum: impl FnMut(usize, usize, usize)) {
        let [inputs, outputs] = self.channels;
        let (output, extent) = (self.output(), |of: &[usize]| of.iter().product::<usize>());
        for n in 0..self.batch {
            for o in 0..self.groups * outputs {
                for c in 0..inputs {
                    let channel = o / outputs * inputs + c;
                    for window in 0..extent(&output) {
                        for place in 0..extent(self.kernel) {
                            let Some(at) = self.look(&output, window, place) else { continue };
                            let x = (n * self.groups * inputs + channel) * extent(self.input) + at;
                            let w = (o * inputs + c) * extent(self.kernel) + place;
                            let y = (n * self.groups * outputs + o) * extent(&output) + window;
                            sum(x, w, y);
                        }
                    }
                }
            }
        }
    }

    /// The element of a channel that a place of a window sees.
    fn look(&self, output: &[usize], mut window: usize, mut place: usize) -> Option<usize> {
        let (mut at, mut step) = (0, 1);
        for axis in (0..output.len()).rev() {
            let (i, k) = (window % output[axis], place % self.kernel[axis]);
            (window, place) = (window / output[axis], place / self.kernel[axis]);
            let seen = i * self.stride[axis] + k * self.dilation[axis];
            let seen = seen.checked_sub(self.padding[axis]).filter(|&n| n < self.input[axis])?;
            at += seen * step;
            step *= self.input[axis];
        }
        Some(at)
    }
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    // One axis, two, three.
    Case { batch: 2, groups: 1, channels: [3, 5], input: &[33], kernel: &[4], stride: &[1], padding: &[2], dilation: &[1] },
    Case { batch: 1, groups: 2, channels: [2, 3], input: &[50], kernel: &[3], stride: &[3], padding: &[4], dilation: &[2] },
    Case { batch: 3, groups: 1, channels: [1, 9], input: &[9, 11], kernel: &[3, 3], stride: &[1, 1], padding: &[1, 1], dilation: &[1, 1] },
    Case { batch: 2, groups: 1, channels: [5, 13], input: &[7, 17], kernel: &[3, 2], stride: &[2, 1], padding: &[0, 1], dilation: &[1, 2] },
    Case { batch: 2, groups: 3, channels: [4, 2], input: &[10, 9], kernel: &[5, 3], stride: &[3, 2], padding: &[2, 3], dilation: &[1, 1] },
    Case { batch: 2, groups: 1, channels: [17, 40], input: &[6, 5], kernel: &[1, 1], stride: &[1, 1], padding: &[0, 0], dilation: &[1, 1] },
    Case { batch: 2, groups: 1, channels: [6, 7], input: &[9, 8], kernel: &[1, 1], stride: &[2, 3], padding: &[0, 0], dilation: &[1, 1] },
    Case { batch: 1, groups: 1, channels: [2, 20], input: &[4, 53], kernel: &[3, 3], stride: &[1, 1], padding: &[1, 1], dilation: &[1, 1] },
    // Steps longer than windows: elements that none sees.
    Case { batch: 2, groups: 1, channels: [3, 4], input: &[11, 13], kernel: &[2, 2], stride: &[4, 3], padding: &[1, 0], dilation: &[1, 1] },
    // Windows as large as the image, and padding larger than steps.
    Case { batch: 4, groups: 1, channels: [3, 10], input: &[5, 6], kernel: &[5, 6], stride: &[1, 1], padding: &[0, 0], dilation: &[1, 1] },
    Case { batch: 2, groups: 1, channels: [2, 3], input: &[3, 2], kernel: &[4, 5], stride: &[2, 2], padding: &[5, 4], dilation: &[2, 1] },
    // Depthwise, and several results a channel.
    Case { batch: 2, groups: 6, channels: [1, 1], input: &[8, 7], kernel: &[3, 3], stride: &[1, 2], padding: &[1, 1], dilation: &[1, 1] },
    Case { batch: 2, groups: 5, channels: [1, 3], input: &[8, 7], kernel: &[3, 3], stride: &[1, 1], padding: &[2, 2], dilation: &[2, 2] },
    Case { batch: 2, groups: 4, channels: [1, 8], input: &[20], kernel: &[5], stride: &[1], padding: &[2], dilation: &[1] },
    Case { batch: 2, groups: 1, channels: [3, 6], input: &[4, 5, 6], kernel: &[2, 3, 3], stride: &[1, 2, 1], padding: &[1, 1, 1], dilation: &[1, 1, 2] },
    Case { batch: 1, groups: 2, channels: [2, 2], input: &[6, 4, 5], kernel: &[3, 1, 2], stride: &[2, 1, 3], padding: &[1, 0, 1], dilation: &[2, 1, 1] },
];

fn values(n: usize, step: usize) -> Vec<f64> {
    (0..n).map(|i| ((i * step + i / 7) % 23) as f64 / 8.0 - 1.4).collect()
}

fn tensor(values: &[f64], shape: &[usize], dtype: DType) -> Result<Tensor> {
    Tensor::from_f64(values, shape, (dtype, Device::Cpu))
}

/// What a dtype may be away from sums in f64 that are about 30 at most.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 1e-4,
        DType::F16 => 3e-2,
        _ => 0.25,
    }
}

fn near(what: &str, got: &Tensor, want: &[f64], dtype: DType) -> Result<()> {
    let (got, limit) = (got.to_f64_vec()?, tolerance(dtype));
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= limit, "{what}: element {i} is {got}, should be {want}");
    }
    Ok(())
}

/// The same numbers with the channels next to each other in memory, as channels-last tensors have them.
fn channels_last(t: &Tensor) -> Result<Tensor> {
    let rank = t.rank() as i64;
    let last: Vec<i64> = [0].into_iter().chain(2..rank).chain([1]).collect();
    let back: Vec<i64> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    t.permute(&last)?.contiguous()?.permute(&back)
}

fn gradients(y: &Tensor, inputs: &[&Tensor], dy: &Tensor) -> Result<Vec<Tensor>> {
    let options = GradOptions { grad_outputs: &[Some(dy)], ..GradOptions::default() };
    let all = grad(&[y], inputs, options)?;
    Ok(all.into_iter().map(|dx| dx.expect("the result depends on every input")).collect())
}

/// The result and both gradients of a case, and the transposed convolution.
fn check(case: &Case, dtype: DType, lay: impl Fn(&Tensor) -> Result<Tensor>) -> Result<()> {
    let sizes = [case.input_shape(), case.weight_shape(), case.output_shape()];
    let [x, w, dy] = [0, 1, 2].map(|i| {
        // As the dtype has them.
        let numel: usize = sizes[i].iter().product();
        tensor(&values(numel, [5, 7, 3][i]), &sizes[i], dtype)
    });
    let (x, w, dy) = (x?, w?, dy?);
    let bias = tensor(&values(w.shape()[0], 11), &[w.shape()[0]], dtype)?;
    let [xs, ws, dys, biases] =
        [x.to_f64_vec()?, w.to_f64_vec()?, dy.to_f64_vec()?, bias.to_f64_vec()?];
    let windows: usize = case.output().iter().product();
    let mut y: Vec<f64> = (0..dys.len()).map(|i| biases[i / windows % biases.len()]).collect();
    let (mut dx, mut dw) = (vec![0.0; xs.len()], vec![0.0; ws.len()]);
    case.meet(|i, j, k| {
        y[k] += xs[i] * ws[j];
        dx[i] += dys[k] * ws[j];
        dw[j] += dys[k] * xs[i];
    });
    let (x, dy) = (lay(&x)?.detach().requires_grad_(true)?, lay(&dy)?);
    let w = w.requires_grad_(true)?;
    let got = x.conv(&w, Some(&bias), &case.conv())?;
    near(&format!("{dtype:?} {case:?}"), &got, &y, dtype)?;
    let gradients = gradients(&got, &[&x, &w], &dy)?;
    near(&format!("dx {dtype:?} {case:?}"), &gradients[0], &dx, dtype)?;
    // A sum over all images.
    let whole: Vec<f64> = dw.iter().map(|v| v / 16.0).collect();
    let scaled = gradients[1].to_dtype(DType::F64)?.div_scalar(16.0)?;
    near(&format!("dw {dtype:?} {case:?}"), &scaled, &whole, dtype)?;
    let more: Vec<usize> = (0..case.input.len()).map(|axis| case.left_over(axis)).collect();
    if more.iter().enumerate().any(|(at, &n)| n >= case.stride[at].max(case.dilation[at])) {
        return Ok(());
    }
    let what = format!("transposed {dtype:?} {case:?}");
    let turned = dy.conv_transpose(&w.detach(), None, &case.conv(), &more)?;
    near(&what, &turned, &dx, dtype)?;
    let channels = turned.shape()[1];
    let bias = tensor(&values(channels, 11), &[channels], dtype)?;
    let biases = bias.to_f64_vec()?;
    let each = dx.len() / (case.batch * channels);
    let moved = dx.iter().enumerate().map(|(i, dx)| dx + biases[i / each % channels]);
    let turned = dy.conv_transpose(&w.detach(), Some(&bias), &case.conv(), &more)?;
    near(&what, &turned, &moved.collect::<Vec<_>>(), dtype)?;
    // Rounded once, after the bias.
    let [dy, w, bias] = [&dy, &w.detach(), &bias].map(|t| t.to_dtype(wider(dtype)));
    let sums = dy?.conv_transpose(&w?, Some(&bias?), &case.conv(), &more)?;
    assert_eq!(turned.to_f64_vec()?, sums.to_dtype(dtype)?.to_f64_vec()?, "{what}");
    Ok(())
}

/// What sums are made in.
fn wider(dtype: DType) -> DType {
    if dtype.bytes() == 2 { DType::F32 } else { dtype }
}

impl Case {
    /// Elements at the end of an axis that no step of a window reaches.
    fn left_over(&self, axis: usize) -> usize {
        let span = self.dilation[axis] * (self.kernel[axis] - 1) + 1;
        let steps = (self.output()[axis] - 1) * self.stride[axis];
        self.input[axis] + 2 * self.padding[axis] - span - steps
    }
}

/// Windows for every kernel of convolutions, of small extents.
#[rustfmt::skip]
const OF_EVERY_KERNEL: &[Case] = &[
    // Boxes of several images, and for a gradient one product a phase.
    Case { batch: 3, groups: 1, channels: [48, 56], input: &[6, 5], kernel: &[3, 2], stride: &[1, 1], padding: &[1, 1], dilation: &[1, 1] },
    Case { batch: 2, groups: 1, channels: [56, 48], input: &[3, 4, 5], kernel: &[2, 1, 3], stride: &[1, 1, 1], padding: &[1, 0, 2], dilation: &[1, 1, 2] },
    Case { batch: 2, groups: 1, channels: [56, 64], input: &[7, 6], kernel: &[3, 3], stride: &[2, 2], padding: &[1, 1], dilation: &[1, 1] },
    // Gathered: taps of few channels, groups, channels that are no multiple of a load.
    Case { batch: 2, groups: 1, channels: [3, 20], input: &[9, 10], kernel: &[7, 7], stride: &[2, 2], padding: &[3, 3], dilation: &[1, 1] },
    Case { batch: 2, groups: 3, channels: [8, 8], input: &[5, 6], kernel: &[3, 3], stride: &[1, 1], padding: &[1, 1], dilation: &[1, 1] },
    Case { batch: 1, groups: 2, channels: [5, 17], input: &[4, 5, 6], kernel: &[2, 3, 3], stride: &[2, 1, 3], padding: &[1, 1, 1], dilation: &[1, 2, 2] },
    // Products of matrices, and those whose lines are no multiple of a load.
    Case { batch: 3, groups: 1, channels: [16, 24], input: &[4, 4], kernel: &[1, 1], stride: &[1, 1], padding: &[0, 0], dilation: &[1, 1] },
    Case { batch: 3, groups: 1, channels: [12, 7], input: &[3, 5], kernel: &[1, 1], stride: &[1, 1], padding: &[0, 0], dilation: &[1, 1] },
    // Depthwise.
    Case { batch: 2, groups: 6, channels: [1, 1], input: &[8, 7], kernel: &[3, 3], stride: &[1, 1], padding: &[1, 1], dilation: &[1, 1] },
    Case { batch: 2, groups: 3, channels: [1, 5], input: &[9, 10], kernel: &[3, 5], stride: &[2, 2], padding: &[2, 1], dilation: &[1, 1] },
    Case { batch: 2, groups: 4, channels: [2, 1], input: &[40], kernel: &[5], stride: &[1], padding: &[4], dilation: &[2] },
];

/// Channels and positions of which there are enough for the largest tiles, of 256 channels and of 256 positions.
#[rustfmt::skip]
const OF_LARGE_TILES: &[Case] = &[
    Case { batch: 2, groups: 1, channels: [72, 248], input: &[91, 90], kernel: &[3, 3], stride: &[1, 1], padding: &[1, 1], dilation: &[1, 1] },
    Case { batch: 2, groups: 1, channels: [64, 128], input: &[130, 129], kernel: &[3, 3], stride: &[1, 1], padding: &[1, 1], dilation: &[1, 1] },
    Case { batch: 8, groups: 1, channels: [136, 264], input: &[20, 21], kernel: &[2, 3], stride: &[1, 1], padding: &[1, 0], dilation: &[1, 2] },
];

/// Whole numbers, so that sums are exact in any order.
fn whole(shape: &[usize], step: usize, on: (DType, Device)) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    let values: Vec<f64> = (0..n).map(|i| ((i * step + i / 7) % 5) as f64 - 2.0).collect();
    Tensor::from_f64(&values, shape, on)
}

/// The result and both gradients of a case on a device.
fn all_of(case: &Case, dtype: DType, device: Device) -> Result<Vec<Vec<f64>>> {
    let x = whole(&case.input_shape(), 3, (dtype, device))?.requires_grad_(true)?;
    let w = whole(&case.weight_shape(), 4, (dtype, device))?.requires_grad_(true)?;
    let bias = whole(&case.weight_shape()[..1], 2, (dtype, device))?;
    let y = x.conv(&w, Some(&bias), &case.conv())?;
    let dy = whole(y.shape(), 2, (dtype, device))?;
    let gradients = gradients(&y, &[&x, &w], &dy)?;
    [&y].into_iter().chain(&gradients).map(Tensor::to_f64_vec).collect()
}

#[test]
fn a_gpu_gives_what_the_cpu_does() -> Result<()> {
    let Some(device) = gpu("convolutions by every kernel") else { return Ok(()) };
    for case in OF_EVERY_KERNEL {
        for dtype in [DType::F32, DType::BF16] {
            let [got, want] = [device, Device::Cpu].map(|on| all_of(case, dtype, on));
            assert_eq!(got?, want?, "{dtype} {case:?}");
        }
    }
    Ok(())
}

#[test]
fn large_tiles_give_what_the_cpu_does() -> Result<()> {
    let Some(device) = gpu("convolutions by large tiles") else { return Ok(()) };
    for case in OF_LARGE_TILES {
        let [got, want] = [device, Device::Cpu].map(|on| all_of(case, DType::BF16, on));
        // Not by `assert_eq`, which would print millions of numbers.
        assert!(got? == want?, "{case:?}");
    }
    Ok(())
}

#[test]
fn every_shape_gives_the_sums_of_the_definition() -> Result<()> {
    for case in CASES {
        for dtype in [DType::F64, DType::F32] {
            check(case, dtype, |t| Ok(t.clone()))?;
        }
    }
    Ok(())
}

#[test]
fn half_floats_are_summed_in_f32() -> Result<()> {
    for case in &CASES[2..5] {
        for dtype in [DType::F16, DType::BF16] {
            check(case, dtype, |t| Ok(t.clone()))?;
        }
    }
    Ok(())
}

#[test]
fn images_may_lie_in_memory_as_they_like() -> Result<()> {
    for case in CASES {
        check(case, DType::F32, channels_last)?;
    }
    Ok(())
}

#[test]
fn strided_and_repeated_images_are_read_where_they_are() -> Result<()> {
    let conv = Conv { padding: vec![[1, 0], [0, 2]], ..Conv::new(2) };
    let all = tensor(&values(2 * 3 * 8 * 14, 5), &[2, 3, 8, 14], DType::F64)?;
    let w = tensor(&values(4 * 3 * 3 * 3, 7), &[4, 3, 3, 3], DType::F64)?;
    let cut = all.flip(&[3])?.narrow(3, 2, 9)?.transpose(2, 3)?;
    let got = cut.conv(&w, None, &conv)?;
    assert_eq!(got.to_f64_vec()?, cut.contiguous()?.conv(&w, None, &conv)?.to_f64_vec()?);
    let one = all.narrow(0, 0, 1)?.expand(&[5, 3, 8, 14])?;
    let got = one.conv(&w, None, &conv)?;
    assert_eq!(got.to_f64_vec()?, one.contiguous()?.conv(&w, None, &conv)?.to_f64_vec()?);
    // A gradient that is one number everywhere.
    let x = cut.contiguous()?.requires_grad_(true)?;
    let w = w.requires_grad_(true)?;
    let y = x.conv(&w, None, &conv)?;
    let ones = y.ones_like()?;
    let shape: Vec<i64> = y.shape().iter().map(|&n| n as i64).collect();
    let flat = Tensor::ones(&[], (DType::F64, Device::Cpu))?.expand(&shape)?;
    let [want, got] = [&ones, &flat].map(|dy| gradients(&x.conv(&w, None, &conv)?, &[&x, &w], dy));
    for (want, got) in want?.iter().zip(&got?) {
        assert_eq!(want.to_f64_vec()?, got.to_f64_vec()?);
    }
    Ok(())
}

#[test]
fn nothing_convolved_is_nothing() -> Result<()> {
    let zeros = |shape: &[usize]| Tensor::zeros(shape, (DType::F32, Device::Cpu));
    let conv = Conv { padding: vec![[1, 1]; 2], ..Conv::new(2) };
    let bias = tensor(&[1.0, 2.0], &[2], DType::F32)?;
    assert_eq!(
        zeros(&[0, 3, 4, 5])?.conv(&zeros(&[2, 3, 3, 3])?, Some(&bias), &conv)?.shape(),
        [0, 2, 4, 5]
    );
    let none = zeros(&[1, 0, 2, 2])?.conv(&zeros(&[2, 0, 3, 3])?, Some(&bias), &conv)?;
    assert_eq!(none.to_f64_vec()?, [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]);
    let x = zeros(&[0, 3, 4, 5])?.requires_grad_(true)?;
    let w = tensor(&values(54, 3), &[2, 3, 3, 3], DType::F32)?.requires_grad_(true)?;
    x.conv(&w, None, &conv)?.sum()?.backward()?;
    assert_eq!(w.grad().expect("a gradient").to_f64_vec()?, [0.0; 54]);
    Ok(())
}

#[test]
fn what_is_not_finite_stays_where_windows_see_it() -> Result<()> {
    let mut values = vec![0.0; 2 * 6 * 20];
    values[6 * 20 + 2 * 20 + 17] = f64::NAN;
    let x = tensor(&values, &[1, 2, 6, 20], DType::F32)?;
    let w = tensor(&vec![1.0; 3 * 2 * 9], &[3, 2, 3, 3], DType::F32)?;
    let conv = Conv { padding: vec![[1, 1]; 2], ..Conv::new(2) };
    let got = x.conv(&w, None, &conv)?.to_f64_vec()?;
    for (at, value) in got.iter().enumerate() {
        let (i, j) = (at / 20 % 6, at % 20);
        let sees = (1..=3).contains(&i) && (16..=18).contains(&j);
        assert_eq!(value.is_nan(), sees, "row {i}, column {j}");
    }
    Ok(())
}

#[test]
fn large_images_are_cut_into_bands() -> Result<()> {
    // A copy of an image is larger than the cache holds, so that bands meet at a line.
    let case = Case {
        batch: 1,
        groups: 1,
        channels: [48, 2],
        input: &[90, 80],
        kernel: &[3, 3],
        stride: &[1, 1],
        padding: &[1, 1],
        dilation: &[1, 1],
    };
    check(&case, DType::F64, |t| Ok(t.clone()))
}

#[test]
fn first_and_second_derivatives_are_right() -> Result<()> {
    let options = GradCheck { fast_mode: true, elements: Some(8), ..GradCheck::default() };
    for case in CASES.iter().filter(|case| case.input.iter().product::<usize>() <= 130) {
        let case = Case { batch: 1, ..*case };
        let leaf = |shape: &[usize], step| {
            let values = values(shape.iter().product(), step);
            tensor(&values, shape, DType::F64)?.requires_grad_(true)
        };
        let x = leaf(&case.input_shape(), 5)?;
        let w = leaf(&case.weight_shape(), 7)?;
        let bias = leaf(&[w.shape()[0]], 3)?;
        let f = |t: &[Tensor]| Ok(vec![t[0].conv(&t[1], Some(&t[2]), &case.conv())?]);
        gradcheck(f, &[&x, &w, &bias], options)?;
        gradgradcheck(f, &[&x, &w, &bias], options)?;
        let y = leaf(&case.output_shape(), 3)?;
        let none = vec![0; case.input.len()];
        let bias = leaf(&[case.input_shape()[1]], 3)?;
        let transposed =
            |t: &[Tensor]| Ok(vec![t[0].conv_transpose(&t[1], t.get(2), &case.conv(), &none)?]);
        if transposed(&[y.clone(), w.clone()]).is_ok() {
            for inputs in [&[&y, &w][..], &[&y, &w, &bias]] {
                gradcheck(transposed, inputs, options)?;
                gradgradcheck(transposed, inputs, options)?;
            }
        }
    }
    Ok(())
}
