//! Layers and losses beside PyTorch's: `tests/nn/layers.safetensors`, which `tests/nn/make.py` writes.
//!
//! A case is a module's state, inputs, and the f64 truth of outputs, gradients and buffers. The state is
//! loaded strictly, so names are PyTorch's. A result is right if each element is within f32's default
//! tolerance of the truth, or if its root mean squared error is at most twice that of PyTorch in f32.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use genesis::io::load_safetensors;
use genesis::nn::{self, Attend, Identity, Layer, Masks, Module, MultiheadAttention};
use genesis::ops::{Ctc, Reduction, Triplet};
use genesis::{DType, Device, Tensor, no_grad};

mod resizing;
mod table;
mod windows;

const CPU: Device = Device::Cpu;

type Outs = genesis::Result<Vec<Tensor>>;

/// How a module is called.
type Run = dyn Fn(&dyn Module, &[Tensor]) -> Outs;

/// A module, and how it is called.
struct Subject {
    module: Box<dyn Module>,
    run: Box<Run>,
}

/// A module with a call of its own.
fn subject<M: Module>(
    module: genesis::Result<M>,
    run: impl Fn(&M, &[Tensor]) -> Outs + 'static,
) -> genesis::Result<Subject> {
    let run = move |module: &dyn Module, x: &[Tensor]| {
        run(module.downcast_ref::<M>().expect("it was made as an M"), x)
    };
    Ok(Subject { module: Box::new(module?), run: Box::new(run) })
}

/// A layer of one input.
fn layer<L: Layer>(layer: genesis::Result<L>) -> genesis::Result<Subject> {
    subject(layer, |layer, x| Ok(vec![layer.forward(&x[0])?]))
}

/// A function without state.
fn loss(f: impl Fn(&[Tensor]) -> genesis::Result<Tensor> + 'static) -> genesis::Result<Subject> {
    subject(Ok(Identity), move |_, x| Ok(vec![f(x)?]))
}

/// A row: the name of a case, and what answers it.
type Row = (&'static str, fn() -> genesis::Result<Subject>);

/// The tensors of one case by name.
type Case = BTreeMap<String, Tensor>;

fn cases() -> Result<BTreeMap<String, Case>> {
    // In the binary, which travels to machines with a GPU alone.
    let bytes = include_bytes!("../nn/layers.safetensors");
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("layers.safetensors");
    std::fs::write(&file, bytes)?;
    let mut cases: BTreeMap<String, Case> = BTreeMap::new();
    for (name, tensor) in load_safetensors(file, CPU)? {
        let (case, rest) = name.split_once('/').context("names have a case")?;
        cases.entry(case.to_owned()).or_default().insert(rest.to_owned(), tensor);
    }
    Ok(cases)
}

/// The tensors whose names begin so, by the rest of their names.
fn part(case: &Case, prefix: &str) -> BTreeMap<String, Tensor> {
    let rest = |(name, tensor): (&String, &Tensor)| {
        Some((name.strip_prefix(prefix)?.to_owned(), tensor.clone()))
    };
    case.iter().filter_map(rest).collect()
}

/// The tensors `prefix0`, `prefix1`, ..
fn list(case: &Case, prefix: &str) -> Vec<Tensor> {
    (0..).map_while(|i| case.get(&format!("{prefix}{i}")).cloned()).collect()
}

/// Compares a result with the truth of that name.
fn judge(case: &Case, name: &str, got: &Tensor) -> Result<()> {
    let truth = case.get(name).with_context(|| format!("there is no {name}"))?;
    ensure!(got.shape() == truth.shape(), "{name}: {:?}, not {:?}", got.shape(), truth.shape());
    let (got, want) = (got.to_f64_vec()?, truth.to_f64_vec()?);
    let is_near = |g: f64, w: f64| {
        g == w || (g.is_nan() && w.is_nan()) || (g - w).abs() <= 1e-5 + 1.3e-6 * w.abs()
    };
    if got.iter().zip(&want).all(|(&g, &w)| is_near(g, w)) {
        return Ok(());
    }
    let squares: f64 = got.iter().zip(&want).map(|(g, w)| (g - w) * (g - w)).sum();
    let error = (squares / got.len() as f64).sqrt();
    let torch = case.get(&format!("rmse/{name}")).map_or(Ok(0.0), Tensor::item)?;
    ensure!(
        error <= 2.0 * torch,
        "{name}: error {error:.3e}, PyTorch's {torch:.3e}: {got:?}, not {want:?}"
    );
    Ok(())
}

fn check(name: &str, case: &Case, make: fn() -> genesis::Result<Subject>) -> Result<()> {
    let Subject { module, run } = make()?;
    module.load_state_dict(&part(case, "state/"))?;
    module.train(!name.ends_with(".eval"));
    let inputs: Vec<Tensor> = list(case, "in/");
    for (index, x) in inputs.iter().enumerate() {
        x.clone().requires_grad_(case.contains_key(&format!("din/{index}")))?;
    }
    let outputs = run(module.as_ref(), &inputs)?;
    let dys = list(case, "dy/");
    ensure!(outputs.len() == dys.len(), "{} outputs, not {}", outputs.len(), dys.len());
    let mut total = Tensor::zeros(&[], CPU)?;
    for (index, (output, dy)) in outputs.iter().zip(&dys).enumerate() {
        judge(case, &format!("out/{index}"), output)?;
        total = total.add(&output.mul(dy)?.sum()?)?;
    }
    if total.requires_grad() {
        total.backward()?;
    }
    for (index, x) in inputs.iter().enumerate() {
        if let Some(dx) = x.grad() {
            judge(case, &format!("din/{index}"), &dx)?;
        }
    }
    let parameters: BTreeMap<String, Tensor> = module.named_parameters().into_iter().collect();
    for name in part(case, "grad/").keys() {
        let grad = parameters[name].grad().with_context(|| format!("{name} has no gradient"))?;
        judge(case, &format!("grad/{name}"), &grad)?;
    }
    let state = module.state_dict();
    for name in part(case, "after/").keys() {
        judge(case, &format!("after/{name}"), &state[name])?;
    }
    Ok(())
}

#[test]
fn layers_give_what_pytorchs_give() -> Result<()> {
    let cases = cases()?;
    let rows = [table::rows(), windows::WINDOWS.to_vec(), resizing::RESIZING.to_vec()].concat();
    let mut wrong = Vec::new();
    for (name, make) in &rows {
        let Some(case) = cases.get(*name) else { bail!("there is no case {name}") };
        if let Err(error) = check(name, case, *make) {
            wrong.push(format!("{name}: {error:#}"));
        }
    }
    let known: BTreeSet<&str> = rows.iter().map(|(name, _)| *name).collect();
    let without: Vec<&String> =
        cases.keys().filter(|name| !known.contains(name.as_str())).collect();
    ensure!(without.is_empty(), "cases without a row: {without:?}");
    ensure!(
        wrong.is_empty(),
        "{} of {} cases are wrong:\n{}",
        wrong.len(),
        rows.len(),
        wrong.join("\n")
    );
    Ok(())
}
