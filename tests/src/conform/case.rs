//! A case of a suite: reading it, running it, writing what came out.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use genesis::autograd::BackwardOptions;
use genesis::io::{load_safetensors, save_safetensors};
use genesis::{Device, Tensor};
use serde_json::{Value as Json, json};

use super::call::{Call, Value};
use super::table;

/// A line of the manifest.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name; its tensors are in `id.safetensors`.
    pub id: String,
    json: Json,
}

/// What a case gave: `out0`, .. and `gi0`, .., or why not.
pub type Outcome = std::result::Result<BTreeMap<String, Tensor>, String>;

/// The cases of a suite, in the manifest's order. A line that is no case is one that is refused.
///
/// # Errors
/// If the manifest can't be read.
pub fn load(suite: &Path) -> Result<Vec<Case>> {
    let path = suite.join("manifest.jsonl");
    let bytes = fs::read(&path).with_context(|| format!("can't read {path:?}"))?;
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    Ok(lines.map(|(number, line)| case_or_refusal(number + 1, line)).collect())
}

/// The cases of a manifest.
///
/// # Errors
/// If a line is not a JSON object with an id.
pub fn parse(manifest: &str) -> Result<Vec<Case>> {
    let case = |line: &str| Case::from_json(serde_json::from_str(line)?);
    manifest.lines().filter(|line| !line.trim().is_empty()).map(case).collect()
}

/// The case of a line; a line that is none becomes a case that is refused, named by its number.
fn case_or_refusal(number: usize, line: &str) -> Case {
    let problem = match serde_json::from_str(line).map(Case::from_json) {
        Ok(Ok(case)) if is_file_name(&case.id) => return case,
        Ok(Ok(case)) => format!("the id {:?} is no name of a file", case.id),
        Ok(Err(error)) => format!("{error:#}"),
        Err(error) => error.to_string(),
    };
    Case { id: format!("line-{number}"), json: json!({"op": "", "problem": problem}) }
}

/// Whether files may be named so: nothing outside the folder.
fn is_file_name(id: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "-_.+".contains(c);
    !id.is_empty() && id.len() < 200 && id.chars().all(plain) && !id.starts_with('.')
}

impl Case {
    /// A case of a JSON object.
    ///
    /// # Errors
    /// If it has no id.
    pub fn from_json(json: Json) -> Result<Case> {
        let id = json["id"].as_str().context("a case has an id")?.to_owned();
        Ok(Case { id, json })
    }

    /// The whole line of the manifest.
    pub fn json(&self) -> &Json {
        &self.json
    }

    /// A field of the manifest; null where there is none.
    pub fn field(&self, name: &str) -> &Json {
        &self.json[name]
    }

    /// PyTorch's name of the op.
    pub fn op(&self) -> &str {
        self.json["op"].as_str().unwrap_or_default()
    }

    /// The overload.
    pub fn variant(&self) -> &str {
        self.json["variant"].as_str().unwrap_or_default()
    }

    /// Whether the call must be refused.
    pub fn must_fail(&self) -> bool {
        self.json["must_fail"].as_bool().unwrap_or(false)
    }

    /// Whether the call draws random numbers, which are not PyTorch's.
    pub fn is_random(&self) -> bool {
        self.json["kwargs"]["dropout_p"].as_f64().is_some_and(|p| p > 0.0)
    }

    /// The names of tensors in a list of the case such as `out`; none where the list has a null.
    pub fn names(&self, list: &str) -> Vec<Option<String>> {
        let at =
            if list.starts_with("grad_") { &self.json["grad"][list] } else { &self.json[list] };
        let name = |item: &Json| item["tensor"].as_str().map(str::to_owned);
        at.as_array().map(|items| items.iter().map(name).collect()).unwrap_or_default()
    }

    /// Every tensor of the case with its shape and strides.
    ///
    /// # Errors
    /// If the file can't be read or a view lies outside its tensor.
    pub fn tensors(&self, suite: &Path, device: Device) -> Result<BTreeMap<String, Tensor>> {
        let path = suite.join(format!("{}.safetensors", self.id));
        if !path.exists() {
            return Ok(BTreeMap::new());
        }
        let stored = load_safetensors(&path, device)?;
        let view = |(name, flat): (String, Tensor)| {
            let view = &self.json["views"][&name];
            let numbers = |key: &str| -> Option<Vec<i64>> {
                view[key].as_array()?.iter().map(Json::as_i64).collect()
            };
            let (Some(shape), Some(strides)) = (numbers("shape"), numbers("stride")) else {
                return Ok((name, flat));
            };
            let shape: Vec<usize> =
                shape.into_iter().map(usize::try_from).collect::<Result<_, _>>()?;
            let tensor = flat.as_strided(&shape, &strides, 0)?;
            Ok((name, tensor))
        };
        stored.into_iter().map(view).collect()
    }

    /// Runs the call and its gradients. A panic of the library is an outcome and says so.
    pub fn run(&self, suite: &Path, device: Device) -> Outcome {
        self.run_with(device, || self.tensors(suite, device))
    }

    /// Runs the call on tensors from elsewhere.
    ///
    /// What a GPU tells later, such as an index that is not there, is waited for: it belongs to this case
    /// and to none after it.
    pub fn run_with(
        &self,
        device: Device,
        tensors: impl FnOnce() -> Result<BTreeMap<String, Tensor>>,
    ) -> Outcome {
        let run = AssertUnwindSafe(|| self.try_run(device, tensors));
        let outcome = catch_unwind(run);
        let told_later = wait(device);
        match outcome {
            Ok(Ok(results)) => told_later.map(|()| results).map_err(|error| format!("{error:#}")),
            Ok(Err(error)) => Err(format!("{error:#}")),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                Err(format!("panic: {}", text.unwrap_or("without a message")))
            }
        }
    }

    fn try_run(
        &self,
        device: Device,
        tensors: impl FnOnce() -> Result<BTreeMap<String, Tensor>>,
    ) -> Result<BTreeMap<String, Tensor>> {
        if let Some(problem) = self.json["problem"].as_str() {
            bail!("malformed: {problem}");
        }
        let row = table::find(self.op(), self.variant())
            .ok_or_else(|| anyhow!("unsupported: {} {}", self.op(), self.variant()))?;
        let tensors = tensors()?;
        let wants_grads = self.json["grad"].is_object();
        let call = self.call(&tensors, wants_grads, device)?;
        let outs = row(&call)?;
        let mut results = BTreeMap::new();
        if wants_grads {
            self.gradients(&call, &outs, &tensors, &mut results)?;
        }
        for (k, out) in outs.iter().enumerate() {
            results.insert(format!("out{k}"), out.detach());
        }
        Ok(results)
    }

    fn call(
        &self,
        tensors: &BTreeMap<String, Tensor>,
        wants_grads: bool,
        device: Device,
    ) -> Result<Call> {
        let grads = self.names("grad_in");
        let seen = std::cell::Cell::new(0);
        let tensor = |name: &str| -> Result<Tensor> {
            let tensor = tensors.get(name).with_context(|| format!("no tensor {name}"))?.detach();
            if !wants_grads || !tensor.dtype().is_float() {
                return Ok(tensor);
            }
            let index = seen.replace(seen.get() + 1);
            // PyTorch gives no gradient of a tensor that is changed in place or is held still.
            let still = !self.json["tensors"][name]["still"].is_null();
            let is_buffer = still
                || self.op().ends_with("batch_norm") && matches!(grads.get(index), Some(None));
            Ok(if is_buffer { tensor } else { tensor.requires_grad_(true)? })
        };
        let mut args = vec![Value::parse(&self.json["input"], &tensor)?];
        for item in self.json["args"].as_array().into_iter().flatten() {
            args.push(Value::parse(item, &tensor)?);
        }
        let mut kwargs = BTreeMap::new();
        for (name, item) in self.json["kwargs"].as_object().into_iter().flatten() {
            kwargs.insert(name.clone(), Value::parse(item, &tensor)?);
        }
        let (op, variant) = (self.op().to_owned(), self.variant().to_owned());
        Ok(Call { op, variant, args, kwargs, device })
    }

    /// Gradients of the floating inputs for the seeds of the case.
    fn gradients(
        &self,
        call: &Call,
        outs: &[Tensor],
        tensors: &BTreeMap<String, Tensor>,
        results: &mut BTreeMap<String, Tensor>,
    ) -> Result<()> {
        let options = BackwardOptions { retain_graph: true, ..BackwardOptions::default() };
        for (out, seed) in outs.iter().zip(self.names("grad_out")) {
            let Some(seed) = seed else { continue };
            let seed = tensors.get(&seed).with_context(|| format!("no tensor {seed}"))?;
            if out.requires_grad() {
                out.backward_with(Some(seed), options)?;
            }
        }
        let mut inputs = Vec::new();
        call.args.iter().for_each(|value| value.tensors(&mut inputs));
        // In the order of the call, which is that of the line and not that of the names.
        let named = self.json["kwargs"].as_object().into_iter().flatten();
        named.filter_map(|(name, _)| call.kwargs.get(name)).for_each(|v| v.tensors(&mut inputs));
        let wanted = self.names("grad_in");
        let floats = inputs.iter().filter(|t| t.dtype().is_float());
        for (k, (input, wanted)) in floats.zip(wanted).enumerate() {
            if wanted.is_none() && input.grad().is_none() {
                continue;
            }
            let grad = match input.grad() {
                Some(grad) => grad,
                None => input.detach().zeros_like()?,
            };
            results.insert(format!("gi{k}"), grad.detach());
        }
        Ok(())
    }
}

/// Waits for a device, and fails where it refused what this thread launched.
fn wait(device: Device) -> Result<()> {
    if device.is_cuda() {
        Tensor::zeros(&[1], device)?.to_vec::<f32>()?;
    }
    Ok(())
}

/// Writes an outcome: a safetensors file of the results, or an `.err` file of the message.
///
/// # Errors
/// If the files can't be written.
pub fn write(folder: &Path, id: &str, outcome: &Outcome) -> Result<()> {
    match outcome {
        Ok(results) => save_safetensors(folder.join(format!("{id}.safetensors")), results)?,
        Err(message) => fs::write(folder.join(format!("{id}.err")), format!("{message}\n"))?,
    }
    Ok(())
}
