//! Gradients of every differentiable op of the table against differences, in f64: the first derivative
//! at every sample, the second at the small ones.

use genesis::autograd::{GradCheck, gradcheck, gradgradcheck};
use genesis::ops::info::{OpInfo, Sample, all};
use genesis::{DType, Device, Result, Tensor};

use crate::ops::{Lay, devices, inputs, on_all_cores};

/// A few elements of each input, and all outputs in one sum: the table is long.
const QUICK: GradCheck = GradCheck {
    eps: 1e-6,
    atol: 1e-5,
    rtol: 1e-3,
    nondet_tol: 0.0,
    fast_mode: true,
    elements: Some(6),
};

/// The inputs of a sample, those that are not indices as leaves.
fn leaves(info: &OpInfo, sample: Sample, device: Device) -> Result<Vec<Tensor>> {
    let (_, tensors) = inputs(info, sample, DType::F64, Lay::Contiguous, device)?;
    let leaf = |(i, t): (usize, Tensor)| match info.index_inputs.iter().any(|&(at, _)| at == i) {
        true => Ok(t),
        false => t.copy()?.requires_grad_(true),
    };
    tensors.into_iter().enumerate().map(leaf).collect()
}

/// Every differentiable op at the samples that fit, on every device; so many at least.
fn check(
    least: usize,
    fits: impl Fn(&OpInfo, Sample) -> bool,
    check: impl Fn(&OpInfo, &[&Tensor]) -> Result<()> + Sync,
) {
    let infos = all();
    let mut cases = Vec::new();
    for device in devices() {
        for &info in infos.iter().filter(|info| info.is_differentiable) {
            let samples = info.samples.iter().copied().filter(|sample| fits(info, sample));
            cases.extend(samples.map(|sample| (info, sample, device)));
        }
    }
    println!("{} cases", cases.len());
    assert!(cases.len() >= least, "only {} cases", cases.len());
    let problems = on_all_cores(&cases, |&(info, sample, device)| {
        let leaves = match leaves(info, sample, device) {
            Ok(leaves) => leaves,
            Err(error) => return Some(format!("{} {device}: {error}", info.name)),
        };
        let leaves: Vec<&Tensor> = leaves.iter().collect();
        let error = check(info, &leaves).err()?;
        Some(format!("{} {device} {:?}: {error}", info.name, sample))
    });
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

fn numel(sample: Sample) -> usize {
    sample.iter().map(|shape| shape.iter().product::<usize>()).sum()
}

#[test]
fn agree_with_differences() {
    check(300, |_, _| true, |info, leaves| gradcheck(|x| Ok(vec![(info.call)(x)?]), leaves, QUICK));
}

#[test]
fn of_gradients_agree_with_differences() {
    let is_small = |info: &OpInfo, sample: Sample| {
        // Where no sample is small, the smallest stands for the op.
        let least = info.samples.iter().copied().map(numel).filter(|&n| n > 0).min().unwrap_or(0);
        numel(sample) > 0 && numel(sample) <= least.max(64)
    };
    check(100, is_small, |info, leaves| {
        gradgradcheck(|x| Ok(vec![(info.call)(x)?]), leaves, QUICK)
    });
}

/// The gradient of an op with two operands must not depend on which of them want one.
#[test]
fn are_the_same_whichever_inputs_want_one() {
    let several = |info: &OpInfo, sample: Sample| {
        info.index_inputs.is_empty() && sample.len() > 1 && numel(sample) <= 64
    };
    check(50, several, |info, leaves| {
        (0..leaves.len()).try_for_each(|only| {
            let alone: Vec<Tensor> = leaves
                .iter()
                .enumerate()
                .map(|(i, t)| if i == only { (*t).clone() } else { t.detach() })
                .collect();
            let alone: Vec<&Tensor> = alone.iter().collect();
            gradcheck(|x| Ok(vec![(info.call)(x)?]), &alone, QUICK)
        })
    });
}

#[test]
fn what_is_no_number_is_told_of_its_own_element() -> Result<()> {
    let x = Tensor::from_f64(&[1e-9], &[1], DType::F64)?.requires_grad_(true)?;
    // The logarithm of what is moved below 0 is not one; that of no other element is.
    let f = |x: &[Tensor]| Ok(vec![Tensor::cat(&[&x[0], &x[0].log()?], 0)?]);
    let error = gradcheck(f, &[&x], GradCheck::default()).expect_err("no number");
    assert!(error.to_string().contains("output 0 element [1] by input 0 element [0]"), "{error}");
    Ok(())
}

#[test]
fn an_output_that_changes_its_shape_is_refused() -> Result<()> {
    let x = Tensor::from_f64(&[1.0, 2.0], &[2], DType::F64)?.requires_grad_(true)?;
    let calls = std::cell::Cell::new(0);
    let f = |x: &[Tensor]| match calls.replace(calls.get() + 1) {
        0 => Ok(vec![x[0].clone()]),
        _ => Ok(vec![x[0].sum()?]),
    };
    let error = gradcheck(f, &[&x], GradCheck::default()).expect_err("another shape");
    assert!(error.to_string().ends_with("output 0 of shape [2] is not there again"), "{error}");
    Ok(())
}
