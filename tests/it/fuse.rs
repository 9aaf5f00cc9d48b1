//! Fused functions beside the same ops one by one: values, gradients, and what is refused.

use std::collections::BTreeSet;

use genesis::fuse::{Emit, Target};
use genesis::ops::info::{OpInfo, all, methods};
use genesis::{DType, Device, Result, Tensor, fuse};
use genesis_kernel::compose::{Access, Fold, Form, Leaf, Recipe, Source, Step, StepKind, compose};
use genesis_kernel::inspect::InspectRequest;

/// Numbers between 0.2 and 0.9.
fn x(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| 0.2 + 0.7 * ((i * 37 % 101) as f32 / 101.0)).collect();
    Tensor::from_slice_on(&values, shape, Device::default()).unwrap()
}

fn leaf(shape: &[usize]) -> Tensor {
    x(shape).requires_grad_(true).unwrap()
}

type Closure = fn(&[Tensor]) -> Result<Tensor>;

/// Values bit for bit, gradients to the last digits: they are added in another order.
fn check_with(f: Closure, inputs: &[Tensor], exact: bool) {
    let fused = fuse(f);
    let refs: Vec<&Tensor> = inputs.iter().collect();
    let (y, expected) = (fused.call(&refs).unwrap(), f(inputs).unwrap());
    assert_eq!((y.shape(), y.dtype()), (expected.shape(), expected.dtype()));
    let (values, wanted) = (y.to_f64_vec().unwrap(), expected.to_f64_vec().unwrap());
    if exact {
        let bits = |v: &[f64]| v.iter().map(|f| f.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&values), bits(&wanted));
    } else {
        close(&values, &wanted);
    }
    if !y.requires_grad() {
        return;
    }
    let dy = x(y.shape()).to_dtype(y.dtype()).unwrap();
    let grads = |y: &Tensor| -> Vec<Option<Tensor>> {
        inputs.iter().for_each(Tensor::zero_grad);
        y.backward_with(Some(&dy), Default::default()).unwrap();
        inputs.iter().map(Tensor::grad).collect()
    };
    for (own, other) in grads(&y).iter().zip(grads(&expected)) {
        match (own, other) {
            (Some(own), Some(other)) => {
                assert_eq!((own.shape(), own.dtype()), (other.shape(), other.dtype()));
                close(&own.to_f64_vec().unwrap(), &other.to_f64_vec().unwrap());
            }
            (None, None) => {}
            _ => panic!("a gradient is missing"),
        }
    }
}

fn close(values: &[f64], wanted: &[f64]) {
    for (a, b) in values.iter().zip(wanted) {
        assert!((a - b).abs() <= 2e-5 * (1.0 + b.abs()), "{a} and {b}");
    }
}

fn check(f: Closure, inputs: &[Tensor]) {
    check_with(f, inputs, true);
}

/// The kernel of a closure for GPUs, whose tiles have rows and columns where those of the CPU have one.
fn check_ptx(f: Closure, inputs: &[Tensor]) {
    let refs: Vec<&Tensor> = inputs.iter().collect();
    for target in [Target::sm_80(), Target::sm_90a()] {
        let texts = fuse(f).inspect_for(&refs, Emit::Ptx, &target).unwrap();
        assert!(texts.iter().all(|text| text.contains(".entry fused_")), "{texts:?}");
    }
}

fn chain(args: &[Tensor]) -> Result<Tensor> {
    let h = args[0].mul(&args[1])?.add(&args[2])?.tanh()?;
    h.mul(&args[0])?.exp()?.add_scalar(0.5)?.sqrt()?.rdiv_scalar(2.0)?.sub(&args[1])?.silu()
}

#[test]
fn a_chain_is_what_its_ops_are() {
    check(chain, &[leaf(&[5000]), leaf(&[5000]), leaf(&[5000])]);
    let one = fuse(chain).inspect(&[&x(&[8]), &x(&[8]), &x(&[8])], Emit::Tir).unwrap();
    assert_eq!(one.len(), 1);
}

#[test]
fn operands_broadcast() {
    check(chain, &[leaf(&[33, 70]), leaf(&[70]), leaf(&[33, 1])]);
    check(chain, &[leaf(&[3, 1, 5]), leaf(&[4, 1]), leaf(&[])]);
    check(chain, &[leaf(&[1]), leaf(&[2, 3, 4, 5]), leaf(&[3, 1, 5])]);
    check(chain, &[leaf(&[]), leaf(&[]), leaf(&[])]);
    check(chain, &[leaf(&[0, 3]), leaf(&[3]), leaf(&[])]);
}

#[test]
fn operands_lie_as_they_lie() {
    let turned = x(&[40, 30]).t().unwrap().detach().requires_grad_(true).unwrap();
    check(|a| a[0].mul(&a[1])?.gelu(), &[turned, x(&[30, 40])]);
    let part = x(&[20, 12]).narrow(1, 3, 5).unwrap();
    check(|a| a[0].add(&a[1])?.sin(), &[part, x(&[5])]);
    let back = x(&[9]).flip(&[0]).unwrap();
    check(|a| a[0].mul_scalar(3.0), &[back]);
    // Parts of one that lies backwards, or is turned back.
    let back = || x(&[6, 9]).narrow(1, 2, 6).unwrap().flip(&[0, 1]).unwrap();
    check(|a| a[0].narrow(1, 1, 3)?.exp()?.mul(&a[0].narrow(1, 2, 3)?), &[back()]);
    check(|a| a[0].flip(&[1])?.narrow(0, 2, 3)?.exp()?.sum_dims(&[1], false), &[back()]);
    check(|a| a[0].narrow(0, 1, 2)?.add(&a[1])?.flip(&[0]), &[back(), x(&[6])]);
    // A gate: halves of one operand.
    check(|a| a[0].narrow(1, 0, 4)?.silu()?.mul(&a[0].narrow(1, 4, 4)?), &[leaf(&[6, 8])]);
    // In another order than it was computed in: two kernels.
    check(|a| a[0].exp()?.t()?.add(&a[1])?.log(), &[leaf(&[6, 8]), leaf(&[8, 6])]);
}

#[test]
fn choices_casts_and_comparisons() {
    let f: Closure = |a| {
        let low = a[0].lt(&a[1])?;
        let bent = low.where_(&a[0].mul_scalar(0.1)?, &a[1].leaky_relu(0.2)?)?;
        bent.clamp(0.03, 0.8)?.maximum(&a[1].hardswish()?)?.to_dtype(DType::F64)?.abs()
    };
    check(f, &[leaf(&[7, 9]), leaf(&[9])]);
    check(|a| a[0].gt_scalar(0.5)?.logical_and(&a[0].lt_scalar(0.7)?), &[x(&[50])]);
    let ints = Tensor::from_slice_on(&[7i32, -3, 5, 2], &[4], Device::default()).unwrap();
    check(|a| a[0].mul(&a[0])?.add_scalar(1.0)?.remainder(&a[1]), &[ints.clone(), ints]);
}

/// Functions with loops in their kernels, which can't be composed.
const ALONE: [&str; 2] = ["lgamma", "digamma"];

/// The rows of floats of the tables of elementwise ops that take so many tensors.
fn rows(operands: usize) -> impl Iterator<Item = &'static OpInfo> {
    let names: BTreeSet<&str> = methods().map(|method| method.name).collect();
    let fits = move |info: &&OpInfo| {
        names.contains(info.name)
            && !ALONE.contains(&info.name)
            && info.samples[0].len() == operands
            && info.dtypes.contains(&DType::F32)
    };
    all().into_iter().filter(fits)
}

#[test]
fn every_row_of_the_tables_is_fused() {
    let f: Closure = |a| {
        let mut total = a[0].clone();
        for row in rows(1) {
            // Where it is a number on 0.2 to 0.9.
            let at = if row.range.0 > 1.0 { a[0].add_scalar(row.range.0)? } else { a[0].clone() };
            total = total.add(&(row.call)(&[at])?.mul_scalar(0.25)?)?;
        }
        Ok(total)
    };
    check(f, &[x(&[300])]);
    check_ptx(f, &[x(&[300])]);
    let g: Closure = |a| {
        let mut total = a[0].mul(&a[1])?;
        for row in rows(2) {
            total = total.add(&(row.call)(&a[..2])?)?;
        }
        total.minimum(&a[1])?.div(&a[0])?.maximum_scalar(0.1)?.minimum_scalar(90.0)?.div_scalar(3.0)
    };
    let column = x(&[20, 1]).add_scalar(0.1).unwrap();
    let operands = [
        [x(&[300]), column.clone()],
        [x(&[20, 300]), column],
        [x(&[300]), x(&[20, 300])],
        [x(&[]), x(&[20, 300])],
    ];
    check(g, &operands[0]);
    operands.iter().for_each(|operands| check_ptx(g, operands));
}

#[test]
fn a_reduction_ends_it() {
    for shape in [&[70, 130][..], &[3, 5, 40000], &[200_000], &[4]] {
        let inputs = [leaf(shape), leaf(&shape[shape.len() - 1..])];
        check_with(|a| a[0].mul(&a[1])?.exp()?.sum(), &inputs, false);
        check_with(|a| a[0].sub(&a[1])?.square()?.mean(), &inputs, false);
        check_with(|a| a[0].sub(&a[1])?.square()?.sum_dims(&[-1], true), &inputs, false);
        check(|a| a[0].sin()?.sub(&a[1])?.max_dims(&[-1], false), &inputs);
        check(|a| a[0].sin()?.sub(&a[1])?.min(), &inputs);
    }
    // The sum of squares is one launch, or two where programs share it.
    let one = fuse(|a| a[0].square()?.sum_dims(&[1], false));
    assert_eq!(one.inspect(&[&x(&[4096, 64])], Emit::Tir).unwrap().len(), 1);
    // Over the first axis, and with more after it.
    check_with(|a| a[0].exp()?.sum_dims(&[0], false), &[leaf(&[30, 20])], false);
    let softmax: Closure = |a| {
        let e = a[0].sub(&a[0].max_dims(&[-1], true)?)?.exp()?;
        e.div(&e.sum_dims(&[-1], true)?)
    };
    check_with(softmax, &[leaf(&[20, 30])], false);
}

#[test]
fn reductions_of_one_tensor_are_one_kernel() {
    let f: Closure = |a| {
        let (x, y) = (&a[0], &a[1]);
        let sums = x.mul(y)?.sum_dims(&[-1], true)?.add(&x.square()?.sum_dims(&[-1], true)?)?;
        let ends = x.max_dims(&[-1], true)?.sub(&x.sub(y)?.min_dims(&[-1], true)?)?;
        sums.mul(&ends)?.sub(&y.square()?.mean_dims(&[-1], true)?)
    };
    for shape in [&[70, 130][..], &[3, 5, 40000], &[200_000], &[4]] {
        check_with(f, &[leaf(shape), leaf(shape)], false);
        check_with(f, &[leaf(shape), leaf(&shape[shape.len() - 1..])], false);
    }
    let turned = x(&[40, 30]).t().unwrap().detach().requires_grad_(true).unwrap();
    check_with(f, &[turned, leaf(&[30, 40])], false);
    let inputs = [x(&[4096, 64]), x(&[4096, 64])];
    let refs: Vec<&Tensor> = inputs.iter().collect();
    let kernels = |f: Closure| fuse(f).inspect(&refs, Emit::Tir).unwrap().len();
    // Four reductions, and what is made of them and of an extreme of an operand, which is no composed kernel.
    assert_eq!(kernels(f), 2);
    let two: Closure =
        |a| a[0].mul(&a[1])?.sum_dims(&[-1], false)?.div(&a[0].square()?.sum_dims(&[-1], false)?);
    assert_eq!(kernels(two), 2);
    let apart: Closure =
        |a| a[0].square()?.sum_dims(&[-1], false)?.add(&a[1].square()?.sum_dims(&[-1], false)?);
    assert_eq!(kernels(apart), 3);
    check_ptx(f, &inputs);
}

#[test]
fn halves_are_rounded_once() {
    let f = fuse(|a| a[0].mul_scalar(1.001)?.add_scalar(1.0)?.sub_scalar(1.0)?.mul(&a[1]));
    let (u, v) = (x(&[999]), x(&[999]));
    let half = |t: &Tensor| t.to_dtype(DType::BF16).unwrap();
    let y = f.call(&[&half(&u), &half(&v)]).unwrap();
    assert_eq!(y.dtype(), DType::BF16);
    let single = |t: &Tensor| half(t).to_dtype(DType::F32).unwrap();
    let exact = f.call(&[&single(&u), &single(&v)]).unwrap().to_dtype(DType::BF16).unwrap();
    assert_eq!(y.to_f64_vec().unwrap(), exact.to_f64_vec().unwrap());
    let rounding: Closure = |a| a[0].mul_scalar(1.1)?.to_dtype(DType::BF16)?.to_dtype(DType::F32);
    check(rounding, &[x(&[99])]);
}

#[test]
fn the_second_derivative_is_that_of_the_ops() {
    let f = fuse(|a| a[0].mul(&a[0])?.mul(&a[0])?.sum());
    let u = leaf(&[4]);
    let create = genesis::autograd::BackwardOptions { create_graph: true, ..Default::default() };
    let y = f.call(&[&u]).unwrap();
    let du = genesis::autograd::grad(&[&y], &[&u], create).unwrap().remove(0).unwrap();
    du.sum().unwrap().backward().unwrap();
    let expected: Vec<f64> = u.to_f64_vec().unwrap().iter().map(|v| 6.0 * v).collect();
    close(&u.grad().unwrap().to_f64_vec().unwrap(), &expected);
}

#[test]
fn the_closure_runs_once_for_a_shape_and_reads_what_it_holds_each_time() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let runs = Arc::new(AtomicUsize::new(0));
    let held = x(&[3]);
    let (count, own) = (runs.clone(), held.clone());
    let f = fuse(move |a| {
        count.fetch_add(1, Ordering::Relaxed);
        a[0].add(&own)
    });
    let zero = Tensor::zeros(&[2, 3], (DType::F32, Device::default())).unwrap();
    let first = f.call(&[&zero]).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(first[..3], held.to_vec::<f32>().unwrap());
    held.mul_scalar_(2.0).unwrap();
    let second = f.call(&[&zero]).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(second[3], 2.0 * first[3]);
    f.call(&[&x(&[3])]).unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}

#[test]
fn a_fused_function_is_part_of_another() {
    let inner = fuse(|a| a[0].exp()?.mul(&a[1]));
    let outer = fuse(move |a| inner.call(&[&a[0], &a[1]])?.sqrt());
    let (u, v) = (x(&[20]), x(&[20]));
    let expected = u.exp().unwrap().mul(&v).unwrap().sqrt().unwrap().to_vec::<f32>().unwrap();
    assert_eq!(outer.call(&[&u, &v]).unwrap().to_vec::<f32>().unwrap(), expected);
    assert_eq!(outer.inspect(&[&u, &v], Emit::Tir).unwrap().len(), 1);
}

#[test]
fn every_form_compiles_for_a_gpu() {
    let ptx = |f: Closure, inputs: &[&Tensor]| {
        let texts = fuse(f).inspect(inputs, Emit::Ptx).unwrap();
        assert!(texts.iter().all(|text| text.contains(".entry fused_")), "{texts:?}");
        texts.len()
    };
    assert_eq!(ptx(chain, &[&x(&[999]), &x(&[999]), &x(&[])]), 1);
    assert_eq!(ptx(chain, &[&x(&[33, 70]), &x(&[70]), &x(&[33, 1])]), 1);
    assert_eq!(ptx(chain, &[&x(&[3, 1, 5]), &x(&[4, 1]), &x(&[])]), 1);
    let sum: Closure = |a| a[0].mul(&a[1])?.sum_dims(&[-1], false);
    assert_eq!(ptx(sum, &[&x(&[40, 3000]), &x(&[3000])]), 1);
    assert_eq!(ptx(|a| a[0].square()?.mean(), &[&x(&[30_000])]), 1);
    assert_eq!(ptx(|a| a[0].exp()?.max(), &[&x(&[300]).to_dtype(DType::BF16).unwrap()]), 1);
}

#[test]
fn what_can_not_be_fused_is_named() {
    let refused = |f: Closure| fuse(f).call(&[&x(&[3, 3])]).unwrap_err().to_string();
    let only = "only elementwise ops, casts, comparisons, `where_` and sums, means and extremes can; \
                call it outside of the closure";
    assert_eq!(refused(|a| a[0].matmul(&a[0])), format!("fuse: `matmul` can't be fused: {only}"));
    assert_eq!(refused(|a| a[0].softmax(-1)), format!("fuse: `softmax` can't be fused: {only}"));
    let read: Closure = |a| a[0].mul_scalar(a[0].sum()?.item()?);
    assert!(refused(read).starts_with("fuse: the closure reads a value on the host"));
    let write: Closure = |a| {
        a[0].mul_scalar_(2.0)?;
        Ok(a[0].clone())
    };
    assert!(refused(write).contains("in place"));
    let own = leaf(&[3]);
    let holds = fuse(move |a| a[0].add(&own)).call(&[&x(&[3])]).unwrap_err().to_string();
    assert_eq!(
        holds,
        "fuse: the closure holds a tensor that requires a gradient; pass it as an argument"
    );
    // A refusal leaves nothing behind.
    assert_eq!(x(&[2]).add_scalar(1.0).unwrap().numel(), 2);
}

/// Whole tiles of a reduction are read and added without a mask: how a composed kernel names its part of a row, and
/// where that ends, has to leave the compiler that.
#[test]
fn whole_tiles_of_composed_reductions_have_no_masks() {
    let leaves = vec![Leaf { dtype: DType::BF16, access: Access::Full }];
    let step = Step { kind: StepKind::Cast(DType::F32), inputs: vec![Source::Leaf(0)] };
    let results = vec![(Source::Step(0), DType::F32)];
    for fold in [Fold::Sum(DType::F32), Fold::Max] {
        let (leaves, steps, results) = (leaves.clone(), vec![step.clone()], results.clone());
        let recipe =
            Recipe { form: Form::Rows, leaves, params: vec![], steps, results, folds: vec![fold] };
        let kernel = compose(&recipe).expect("it composes");
        let target = Target::sm_90a();
        let hints = InspectRequest::new(kernel, target.clone(), Emit::Ptx).hints;
        let special = kernel.specialize(&[], &[1, 2048], &hints).expect("it is known");
        let compiled = special.compile(&target).expect("it compiles");
        let body = first_loop(compiled.ptx().expect("it is for a GPU"));
        let masked =
            |line: &&str| line.contains("selp") || line.contains("@") && !line.contains("bra");
        assert!(body.iter().any(|line| line.contains("ld.global")), "{fold:?}: {body:#?}");
        assert_eq!(body.iter().find(|line| masked(line)), None, "{fold:?}");
    }
}

/// The lines from the first label that is jumped back to, to that jump.
fn first_loop(ptx: &str) -> Vec<&str> {
    let lines: Vec<&str> = ptx.lines().map(str::trim).collect();
    let is_back = |label: &str, at: usize| {
        let jump = format!("{label};");
        let found =
            lines[at..].iter().position(|line| line.contains("bra") && line.ends_with(&jump));
        found.map(|length| at..at + length)
    };
    let labels =
        lines.iter().enumerate().filter_map(|(at, line)| Some((at, line.strip_suffix(':')?)));
    let found = labels.into_iter().find_map(|(at, label)| is_back(label, at));
    found.map(|range| lines[range].to_vec()).unwrap_or_default()
}
