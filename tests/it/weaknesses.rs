//! The fifteen weaknesses of the framework this one succeeds, in order of weight: for each, a test that
//! would have caught it.
//!
//! Everything runs on the CPU, and on a GPU where there is one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use genesis::amp::{Autocast, GradScaler, GradScalerOptions, autocast};
use genesis::autograd::BackwardOptions;
use genesis::nn::{Linear, Module, Relu, Sequential};
use genesis::ops::{Attention, Classes, Index, Reduction};
use genesis::optim::{Adam, AdamOptions, AdamW, AdamWOptions, Optimizer, clip_grad_norm_};
use genesis::random::thread_rng;
use genesis::{DType, Device, Result, Tensor, manual_seed, no_grad};
use genesis_kernel::inspect::launches;

/// An op of one tensor, and of two.
type One = fn(&Tensor) -> Result<Tensor>;
type Two = fn(&Tensor, &Tensor) -> Result<Tensor>;

fn devices() -> Vec<Device> {
    crate::gpu::devices("the weaknesses")
}

/// A tensor of f64 numbers.
fn numbers(values: &[f64], shape: &[usize], device: Device) -> Result<Tensor> {
    Tensor::from_f64(values, shape, (DType::F64, device))
}

fn integers(values: &[i64], shape: &[usize], device: Device) -> Result<Tensor> {
    Tensor::from_slice_on(values, shape, device)
}

fn leaf(values: &[f64], shape: &[usize], device: Device) -> Result<Tensor> {
    numbers(values, shape, device)?.requires_grad_(true)
}

fn slope(x: &Tensor) -> Vec<f64> {
    x.grad().expect("a gradient arrived").to_f64_vec().expect("it can be read")
}

fn near(got: &[f64], want: &[f64], error: f64) {
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        assert!((got - want).abs() <= error, "{got} is not {want}");
    }
}

/// 1. Gradients were given to the wrong operand where the left one wanted none.
#[test]
fn gradients_reach_the_right_operand() -> Result<()> {
    for device in devices() {
        let c = numbers(&[2.0, 3.0, 5.0, 7.0], &[2, 2], device)?;
        let cases: [(&str, Two, [f64; 4]); 5] = [
            ("c @ w", |c, w| c.matmul(w), [7.0, 7.0, 10.0, 10.0]),
            ("c + w", |c, w| c.add(w), [1.0; 4]),
            ("c - w", |c, w| c.sub(w), [-1.0; 4]),
            ("c * w", |c, w| c.mul(w), [2.0, 3.0, 5.0, 7.0]),
            ("c / w", |c, w| c.div(w), [-2.0, -3.0 / 4.0, -5.0 / 9.0, -7.0 / 16.0]),
        ];
        for (what, f, want) in cases {
            let w = leaf(&[1.0, 2.0, 3.0, 4.0], &[2, 2], device)?;
            f(&c, &w)?.sum()?.backward()?;
            println!("{what}");
            near(&slope(&w), &want, 1e-12);
            assert!(c.grad().is_none(), "{what}");
        }
        // Ordinary data into a layer: the weight gets a gradient of its own shape.
        let layer = Linear::new(784, 32, device)?;
        let data = Tensor::ones(&[8, 784], device)?;
        layer.forward(&data)?.sum()?.backward()?;
        for (name, parameter) in layer.named_parameters() {
            let grad = parameter.grad().expect("every parameter takes part");
            assert_eq!(grad.shape(), parameter.shape(), "{name}");
            assert!(grad.to_f64_vec()?.iter().all(|&g| g == 8.0), "{name}");
        }
        // -(t / p - (1 - t) / (1 - p)) / 2
        let p = leaf(&[0.25, 0.5], &[2], device)?;
        let target = numbers(&[1.0, 0.0], &[2], device)?;
        p.binary_cross_entropy(&target, Reduction::Mean)?.backward()?;
        near(&slope(&p), &[-2.0, 1.0], 1e-12);
    }
    Ok(())
}

/// 2. Full reductions dropped what lies beyond 2,097,152 elements, and kept partial sums in 16 bits.
#[test]
fn reductions_see_every_element() -> Result<()> {
    const N: usize = (1 << 22) + 13;
    for device in devices() {
        let ones = Tensor::ones(&[N], device)?.requires_grad_(true)?;
        assert_eq!(ones.sum()?.item()?, N as f64);
        assert_eq!(ones.mean()?.item()?, 1.0);
        let last = numbers(&[9.0, -9.0], &[2], device)?.to_dtype(DType::F32)?;
        let peaks = Tensor::cat(&[&ones.detach(), &last], 0)?;
        assert_eq!((peaks.max()?.item()?, peaks.min()?.item()?), (9.0, -9.0));
        assert_eq!(peaks.argmax_all()?.item()?, N as f64);
        ones.sum()?.backward()?;
        let norm = clip_grad_norm_(std::slice::from_ref(&ones), 1.0, 2.0)?;
        assert!((norm.item()? - (N as f64).sqrt()).abs() < 1e-2);
        // The sum of these is over the largest f16; their mean is not.
        let halves = Tensor::full(&[100_000], 2.0, (DType::F16, device))?;
        assert_eq!(halves.mean()?.item()?, 2.0);
    }
    Ok(())
}

/// 3. Random numbers were not in their range, consecutive calls were shifts of each other, the CPU ignored
///    the seed, and dropout dropped nothing.
#[test]
fn random_numbers_are_random_and_follow_the_seed() -> Result<()> {
    let _own = thread_rng(0);
    const N: usize = 100_000;
    let moments = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / N as f64;
        let var = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / N as f64;
        (mean, var.sqrt())
    };
    let mut first: Option<Vec<f64>> = None;
    for device in devices() {
        manual_seed(11);
        let uniform = Tensor::rand(&[N], device)?.to_f64_vec()?;
        let next = Tensor::rand(&[N], device)?.to_f64_vec()?;
        let normal = Tensor::randn(&[N], device)?.to_f64_vec()?;
        assert!(uniform.iter().all(|v| (0.0..1.0).contains(v)));
        let (mean, std) = moments(&uniform);
        assert!((mean - 0.5).abs() < 0.01 && (std - 12f64.sqrt().recip()).abs() < 0.01);
        let (mean, std) = moments(&normal);
        assert!(mean.abs() < 0.02 && (std - 1.0).abs() < 0.02, "{mean} {std}");
        let tails = normal.iter().filter(|v| v.abs() > 3.0).count() as f64 / N as f64;
        assert!((0.0017..0.0037).contains(&tails), "{tails} are beyond three sigma");
        for shift in 0..4 {
            let equal = uniform[shift..].iter().zip(&next).filter(|(a, b)| a == b).count();
            assert!(equal < 10, "{equal} numbers come again {shift} places on");
        }
        manual_seed(11);
        assert_eq!(Tensor::rand(&[N], device)?.to_f64_vec()?, uniform, "the seed decides");
        let ones = Tensor::ones(&[N], device)?;
        let kept = ones.dropout(0.3)?.to_f64_vec()?;
        let zeros = kept.iter().filter(|&&v| v == 0.0).count() as f64 / N as f64;
        assert!((zeros - 0.3).abs() < 0.01, "{zeros} of the elements are dropped");
        assert!(kept.iter().all(|&v| v == 0.0 || (v - 1.0 / 0.7).abs() < 1e-6));
        // One seed, one sequence, on whatever device.
        assert_eq!(first.get_or_insert_with(|| uniform.clone()), &uniform);
    }
    Ok(())
}

/// 4. LayerNorm was wrong where the width is no power of two.
#[test]
fn layer_norm_is_right_at_every_width() -> Result<()> {
    for device in devices() {
        for width in [1usize, 3, 5, 31, 33, 100, 768, 1000, 1025] {
            let value = |i: usize| ((i * 37 % 101) as f64 - 50.0) / 25.0 + 3.0;
            let values: Vec<f64> = (0..2 * width).map(value).collect();
            let x = Tensor::from_f64(&values, &[2, width], (DType::F32, device))?;
            let weight = Tensor::full(&[width], 2.0, device)?;
            let bias = Tensor::full(&[width], 0.5, device)?;
            let got = x.layer_norm(&weight, &bias, 1e-5)?.to_f64_vec()?;
            for (row, got) in values.chunks(width).zip(got.chunks(width)) {
                let mean = row.iter().sum::<f64>() / width as f64;
                let var = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / width as f64;
                let want = row.iter().map(|v| (v - mean) / (var + 1e-5).sqrt() * 2.0 + 0.5);
                near(got, &want.collect::<Vec<_>>(), 2e-4);
            }
        }
    }
    Ok(())
}

/// 5. Data-parallel training did not sum gradients, because hooks of parameters never ran.
///
/// What it stands on is here: each parameter's hook runs once a backward, with the whole gradient, and
/// those of the last layers before the first layer's backward. With communicators this test will
/// compare two ranks with one.
#[test]
fn hooks_of_parameters_run_once_a_backward_as_gradients_become_ready() -> Result<()> {
    for device in devices() {
        let layers: Vec<Linear> =
            (0..3).map(|_| Linear::new(4, 4, device)).collect::<Result<_>>()?;
        let order = Arc::new(AtomicUsize::new(0));
        let mut ready = Vec::new();
        for layer in &layers {
            for (_, parameter) in layer.named_parameters() {
                let (own, order) = (Arc::new(std::sync::Mutex::new(Vec::new())), order.clone());
                ready.push(own.clone());
                parameter.register_post_accumulate_grad_hook(move |parameter| {
                    let grad = parameter.grad().expect("it is up to date").to_f64_vec()?;
                    let place = order.fetch_add(1, Ordering::Relaxed);
                    own.lock().expect("no other test holds it").push((place, grad));
                    Ok(())
                })?;
            }
        }
        let x = Tensor::ones(&[2, 4], device)?;
        let forward = || -> Result<Tensor> {
            let h = layers[0].forward(&x)?.tanh()?;
            // The middle layer is used twice.
            let h = layers[1].forward(&layers[1].forward(&h)?)?;
            layers[2].forward(&h)?.square()?.sum()
        };
        forward()?.backward()?;
        let mut last = usize::MAX;
        for (parameter, seen) in layers.iter().flat_map(Module::parameters).zip(&ready) {
            let seen = seen.lock().expect("the hooks have run");
            let [(place, grad)] = &seen[..] else { panic!("ran {} times", seen.len()) };
            near(grad, &slope(&parameter), 0.0);
            // Two parameters a layer: those of a later layer come first.
            assert!(place / 2 <= last, "an earlier layer was ready before");
            last = place / 2;
        }
        forward()?.backward()?;
        assert!(ready.iter().all(|seen| seen.lock().expect("they have run").len() == 2));
    }
    Ok(())
}

/// 6. Of several uses of one index only the last one's gradient was kept; scatter_add and gather were
///    wrong along other axes than the first.
#[test]
fn repeated_indices_sum_their_gradients() -> Result<()> {
    for device in devices() {
        let twice = integers(&[1, 0, 1, 1], &[4], device)?;
        let cases: [(&str, Two); 4] = [
            ("embedding", |w, i| w.embedding(i)),
            ("index", |w, i| w.index(&[Index::Tensor(i.clone())])),
            ("index_select", |w, i| w.index_select(0, i)),
            ("gather", |w, i| w.gather(0, &i.reshape(&[4, 1])?.expand(&[4, 2])?)),
        ];
        for (what, f) in cases {
            let w = leaf(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2], device)?;
            f(&w, &twice)?.sum()?.backward()?;
            println!("{what}");
            near(&slope(&w), &[1.0, 1.0, 3.0, 3.0, 0.0, 0.0], 0.0);
        }
        let zeros = numbers(&[0.0; 8], &[2, 2, 2], device)?;
        let index = integers(&[1, 1, 0, 1, 1, 1, 0, 0], &[2, 2, 2], device)?;
        let source = numbers(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], &[2, 2, 2], device)?;
        let sums: [(i64, [f64; 8]); 4] = [
            (0, [0.0, 0.0, 10.0, 8.0, 6.0, 8.0, 0.0, 4.0]),
            (1, [3.0, 0.0, 1.0, 6.0, 7.0, 8.0, 5.0, 6.0]),
            (2, [0.0, 3.0, 3.0, 4.0, 0.0, 11.0, 15.0, 0.0]),
            (-1, [0.0, 3.0, 3.0, 4.0, 0.0, 11.0, 15.0, 0.0]),
        ];
        for (dim, want) in sums {
            let got = zeros.scatter_add(dim, &index, &source)?;
            near(&got.to_f64_vec()?, &want, 0.0);
        }
        let got = source.gather(-1, &index)?.to_f64_vec()?;
        near(&got, &[2.0, 2.0, 3.0, 4.0, 6.0, 6.0, 7.0, 7.0], 0.0);
    }
    Ok(())
}

/// 7. Copies, casts, var, std and triangles cut the graph silently, writes in place gave wrong gradients,
///    and values written into a slice lost theirs.
#[test]
fn nothing_cuts_the_graph_silently() -> Result<()> {
    for device in devices() {
        let values = [1.0, -2.0, 3.0, 0.5];
        let ways: [(&str, One, [f64; 4]); 8] = [
            ("copy", |w| w.copy(), [1.0; 4]),
            ("to_dtype", |w| w.to_dtype(DType::F32)?.to_dtype(DType::F64), [1.0; 4]),
            ("var", |w| w.var_dims(&[0, 1], 0.0, false), [0.1875, -1.3125, 1.1875, -0.0625]),
            (
                "std",
                |w| w.std_dims(&[0, 1], 0.0, false)?.square(),
                [0.1875, -1.3125, 1.1875, -0.0625],
            ),
            ("triu", |w| w.triu(0), [1.0, 1.0, 0.0, 1.0]),
            ("tril", |w| w.tril(0), [1.0, 0.0, 1.0, 1.0]),
            (
                "*=",
                |w| {
                    let y = (w * 2.0)?;
                    y.mul_(&numbers(&[3.0], &[1], w.device())?)?;
                    Ok(y)
                },
                [6.0; 4],
            ),
            (
                "y[0] = w[1]",
                |w| {
                    let y = (w * 1.0)?;
                    y.select(0, 0)?.copy_(&w.select(0, 1)?)?;
                    Ok(y)
                },
                [0.0, 0.0, 2.0, 2.0],
            ),
        ];
        for (what, f, want) in ways {
            let w = leaf(&values, &[2, 2], device)?;
            f(&w)?.sum()?.backward()?;
            println!("{what}");
            near(&slope(&w), &want, 1e-6);
        }
    }
    Ok(())
}

/// 8. The state of an optimizer was not restored, and saving emptied what it was given.
#[test]
fn training_goes_on_where_it_was_saved() -> Result<()> {
    for device in devices() {
        let x = Tensor::ones(&[4, 3], device)?;
        let step = |net: &Linear, optimizer: &mut Adam| -> Result<()> {
            optimizer.zero_grad();
            net.forward(&x)?.square()?.sum()?.backward()?;
            optimizer.step()
        };
        let optimizer = |net: &Linear| Adam::new(net.named_parameters(), AdamOptions::default());
        let net = Linear::new(3, 2, device)?;
        let mut adam = optimizer(&net);
        (0..3).try_for_each(|_| step(&net, &mut adam))?;

        let folder = tempfile::tempdir()?;
        let (weights, means) = (folder.path().join("weights"), folder.path().join("means"));
        let (model, state) = (net.state_dict(), adam.state_dict()?);
        genesis::io::save_safetensors(&weights, &model)?;
        genesis::io::save_safetensors(&means, &state.tensors)?;
        assert_eq!((model.len(), state.tensors.len()), (2, 4), "saving takes nothing away");
        let again = Linear::new(3, 2, device)?;
        again.load_state_dict(&genesis::io::load_safetensors(&weights, device)?)?;
        let mut restored = optimizer(&again);
        let tensors = genesis::io::load_safetensors(&means, device)?;
        let numbers = state.numbers.clone();
        restored.load_state_dict(&genesis::optim::State { tensors, numbers })?;

        (0..3).try_for_each(|_| step(&net, &mut adam))?;
        (0..3).try_for_each(|_| step(&again, &mut restored))?;
        for (own, other) in net.parameters().iter().zip(again.parameters()) {
            assert_eq!(own.to_vec::<f32>()?, other.to_vec::<f32>()?);
        }
    }
    Ok(())
}

/// 9. Containers and tied weights counted a parameter twice, and the optimizer stepped it twice.
#[test]
fn a_tied_weight_is_one_parameter() -> Result<()> {
    for device in devices() {
        let first = Linear::without_bias(3, 3, device)?;
        let mut second = Linear::without_bias(3, 3, device)?;
        second.weight = first.weight.clone();
        let weight = first.weight.tensor().clone();
        let net = Sequential::new().with(first).with(Relu).with(second);
        assert_eq!((net.parameters().len(), net.num_parameters()), (1, 9));
        let before = weight.to_f64_vec()?;
        net.forward(&Tensor::ones(&[1, 3], device)?)?.sum()?.backward()?;
        let options = AdamOptions { lr: 0.1, ..AdamOptions::default() };
        // Even if it is given twice.
        Adam::new([net.parameters(), net.parameters()].concat(), options).step()?;
        // The first step of Adam is one learning rate against the sign of the gradient.
        for ((before, after), grad) in before.iter().zip(weight.to_f64_vec()?).zip(slope(&weight)) {
            let step = if grad == 0.0 { 0.0 } else { 0.1 * grad.signum() };
            assert!((before - after - step).abs() < 1e-4, "{before} to {after} by {grad}");
        }
    }
    Ok(())
}

/// 10. Basic ops raised errors on the CPU or on the GPU.
#[test]
fn basic_ops_run_everywhere_with_gradients() -> Result<()> {
    for device in devices() {
        let ops: [(&str, One); 6] = [
            ("sigmoid", |x| x.sigmoid()),
            ("tanh", |x| x.tanh()),
            ("maximum", |x| x.maximum(&(x * 2.0)?)),
            ("min", |x| x.min_dims(&[0], false)),
            ("bce with logits", |x| {
                x.binary_cross_entropy_with_logits(&x.ones_like()?, Reduction::Mean)
            }),
            ("softmax", |x| x.softmax(-1)),
        ];
        for (what, f) in ops {
            let x = leaf(&[0.3, -0.7, 2.0], &[3], device)?;
            let weights = numbers(&[1.0, 2.0, 4.0], &[3], device)?;
            f(&x)?.mul(&weights)?.sum()?.backward()?;
            assert!(slope(&x).iter().any(|&g| g != 0.0), "{what}");
        }
        assert_eq!(Tensor::eye(2, 3, device)?.to_f64_vec()?, [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
        let x = numbers(&[0.0, 5.0, 1.0, 0.0], &[2, 2], device)?;
        assert_eq!(x.argmax(1)?.to_f64_vec()?, [1.0, 0.0]);
        assert_eq!(x.min()?.item()?, 0.0);
        assert_eq!(x.nonzero()?.to_f64_vec()?, [0.0, 1.0, 1.0, 0.0]);
        // Labels of -100 are left out of the mean.
        let target = integers(&[1, -100], &[2], device)?;
        let logits = leaf(&[0.0, 0.0, 3.0, -3.0], &[2, 2], device)?;
        let loss = logits.cross_entropy_loss(&target, &Classes::default())?;
        assert!((loss.item()? - 2f64.ln()).abs() < 1e-6);
        loss.backward()?;
        near(&slope(&logits), &[0.5, -0.5, 0.0, 0.0], 1e-6);
    }
    Ok(())
}

/// 11. Attention was always causal and took a few shapes only; chat was a stub.
///
/// What inference stands on is here: any length, causal or not, queries shorter than keys as with a
/// cache, fewer key heads than query heads. Generation will add its own test.
#[test]
fn attention_takes_any_shape_and_is_causal_only_when_asked() -> Result<()> {
    for device in devices() {
        let _own = thread_rng(3);
        let draw = |heads, length, size| Tensor::randn(&[1, heads, length, size], device);
        let (q, k, v) = (draw(4, 7, 5)?, draw(2, 13, 5)?, draw(2, 13, 5)?);
        let options = Attention { groups: true, ..Attention::default() };
        let y = q.scaled_dot_product_attention(&k, &v, &options)?;
        assert_eq!(y.shape(), [1, 4, 7, 5]);
        // Whether a late key is seen by the first query.
        let changed = k.detach().copy()?;
        changed.narrow(2, 12, 1)?.fill_(3.0)?;
        let seen = |is_causal: bool| -> Result<bool> {
            let options = Attention { is_causal, groups: true, ..Attention::default() };
            let of = |k: &Tensor| -> Result<Vec<f64>> {
                let y = q.scaled_dot_product_attention(k, &v, &options)?;
                y.narrow(2, 0, 1)?.to_f64_vec()
            };
            Ok(of(&k)? != of(&changed)?)
        };
        assert!(seen(false)? && !seen(true)?);
    }
    Ok(())
}

/// 12. Work was done in loops of the host: launches for each element sorted, element arithmetic on 4
///     coordinates of dense tensors, a walk of the graph that recursed.
#[test]
fn the_number_of_launches_does_not_grow_with_the_data() -> Result<()> {
    for device in devices() {
        let count = |n: usize, f: One| -> Result<usize> {
            let values: Vec<f64> = (0..n).map(|i| ((i * 7919) % n) as f64).collect();
            let x = Tensor::from_f64(&values, &[n], (DType::F32, device))?;
            let (result, launched) = launches(|| f(&x));
            result?;
            Ok(launched.len())
        };
        let ops: [(&str, One); 4] = [
            ("argsort", |x| x.argsort(0, false)),
            ("topk", |x| Ok(x.topk(50, 0, true)?.0)),
            ("repeat_interleave", |x| x.repeat_interleave(3, 0)),
            ("nonzero", |x| x.nonzero()),
        ];
        for (what, f) in ops {
            // A sorting network has a launch for each of its stages, which are few.
            let launches = count(1024, f)?;
            assert!(launches < 64, "{what}: {launches} launches for 1024 elements");
        }
        // Dense operands walk one axis.
        let x = Tensor::ones(&[4, 5, 6, 7], device)?;
        let (sum, launched) = launches(|| x.add(&x));
        sum?;
        let names: Vec<&str> = launched.iter().map(|launch| launch.kernel).collect();
        assert_eq!(names, ["add_flat"]);
        let x = leaf(&[1.0], &[1], device)?;
        let mut y = x.clone();
        for _ in 0..5_000 {
            y = y.neg()?;
        }
        y.sum()?.backward()?;
        near(&slope(&x), &[1.0], 0.0);
    }
    Ok(())
}

/// 13. Memory ran out for good, and freed memory of one size was of no use to another.
///
/// Counters of memory come with the memory statistics; this test will read them.
#[test]
fn running_out_of_memory_is_an_error_to_go_on_from() -> Result<()> {
    for device in devices() {
        let error = Tensor::zeros(&[1 << 50], device).expect_err("no machine has 4 PiB");
        assert!(error.is_out_of_memory(), "{error}");
        // Tensors that are dropped leave room for others, however often.
        for round in 0..64 {
            let x = Tensor::full(&[1 << 20, 1 + round % 3], 1.0, device)?;
            assert_eq!(x.narrow(0, 0, 1)?.sum()?.item()?, (1 + round % 3) as f64);
        }
    }
    Ok(())
}

/// 14. Autocast failed on the CPU and did not nest, and the scaler's state was lost.
#[test]
fn autocast_nests_on_every_device_and_the_scaler_has_a_state() -> Result<()> {
    for device in devices() {
        let w = Tensor::ones(&[4, 4], device)?.requires_grad_(true)?;
        let x = Tensor::ones(&[2, 4], device)?;
        let loss = autocast(DType::BF16, || {
            let island = Autocast { enabled: false, ..DType::BF16.into() };
            let inner = autocast(island, || x.matmul(&w))?;
            let outer = x.matmul(&w)?;
            assert_eq!((inner.dtype(), outer.dtype()), (DType::F32, DType::BF16));
            inner.sum()?.add(&outer.to_dtype(DType::F32)?.sum()?)
        })?;
        assert_eq!(x.matmul(&w)?.dtype(), DType::F32, "the region has ended");
        loss.backward()?;
        near(&slope(&w), &[4.0; 16], 0.0);

        let options = GradScalerOptions { init_scale: 8.0, ..GradScalerOptions::default() };
        let scaler = GradScaler::new(options, device)?;
        let mut other = GradScaler::new(GradScalerOptions::default(), device)?;
        other.load_state_dict(&scaler.state_dict()?)?;
        assert_eq!(other.get_scale()?, 8.0);
    }
    Ok(())
}

/// 14, too. bf16 was corrupted on its way from and to the host, and promotion left it out.
#[test]
fn bf16_survives_the_host_and_takes_part_in_everything() -> Result<()> {
    for device in devices() {
        let values = [1.0, -2.5, 3.0e38, 1.0e-38, 0.15625];
        let wide = Tensor::from_f64(&values, &[5], (DType::F64, device))?;
        let bf16 = wide.to_dtype(DType::BF16)?;
        let raw = bf16.to_vec::<half::bf16>()?;
        assert_eq!(raw, values.map(half::bf16::from_f64));
        let back = Tensor::from_slice_on(&raw, &[5], device)?;
        assert_eq!(back.to_f64_vec()?, raw.iter().map(|v| v.to_f64()).collect::<Vec<_>>());
        assert_eq!(genesis::promote_types(DType::BF16, DType::F32), DType::F32);
        assert_eq!(genesis::promote_types(DType::BF16, DType::F16), DType::F32);
        let w = Tensor::ones(&[3, 3], (DType::BF16, device))?.requires_grad_(true)?;
        let x = Tensor::ones(&[2, 3], (DType::BF16, device))?;
        x.matmul(&w)?.sum()?.backward()?;
        assert_eq!(w.grad().expect("w takes part").dtype(), DType::BF16);
        near(&slope(&w), &[2.0; 9], 0.0);
    }
    Ok(())
}

/// 15. The CPU was another framework, and could not run layer norm, GELU, dropout or the default AdamW.
#[test]
fn the_cpu_trains_on_its_own() -> Result<()> {
    let _own = thread_rng(5);
    let device = Device::Cpu;
    let (inner, outer) = (Linear::new(6, 16, device)?, Linear::new(16, 1, device)?);
    let [scale, shift] = [Tensor::ones(&[16], device)?, Tensor::zeros(&[16], device)?]
        .map(|t| t.requires_grad_(true).expect("floats may require gradients"));
    let mut parameters: Vec<Tensor> =
        [&inner, &outer].into_iter().flat_map(Module::parameters).collect();
    parameters.extend([scale.clone(), shift.clone()]);
    let options = AdamWOptions { lr: 1e-2, ..AdamWOptions::default() };
    let mut optimizer = AdamW::new(parameters, options);
    let x = Tensor::randn(&[64, 6], device)?;
    let y = no_grad(|| x.narrow(1, 0, 1)?.mul(&x.narrow(1, 1, 1)?))?;
    let mut losses = Vec::new();
    for _ in 0..60 {
        let h = inner.forward(&x)?.layer_norm(&scale, &shift, 1e-5)?.gelu()?.dropout(0.02)?;
        let loss = outer.forward(&h)?.sub(&y)?.square()?.mean()?;
        optimizer.zero_grad();
        loss.backward_with(None, BackwardOptions::default())?;
        optimizer.step()?;
        losses.push(loss.item()?);
    }
    assert!(losses[59] < 0.5 * losses[0], "{} to {}", losses[0], losses[59]);
    Ok(())
}
