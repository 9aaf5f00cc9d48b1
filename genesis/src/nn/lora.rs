//! Low-rank adapters (LoRA): a frozen weight, and two thin matrices beside it that are trained.
//!
//! Fine-tuning changes a weight by a matrix of low rank, so that matrix is trained as a product of two thin ones and
//! the weight stays as it is: no gradient, no state of an optimizer, and a file of some megabytes for what was learned.
//!
//! ```text
//! y = x W^T + scale * dropout(x) A^T B^T      W [out, in] frozen, A [r, in], B [out, r]
//! scale = alpha / r                            B begins as 0: an adapted model begins as the model
//! merged: W + scale * B A
//! ```
//!
//! *DoRA* trains the length of each row of the weight apart from its direction:
//!
//! ```text
//! y = x V^T * m / |V|     V = W + scale * B A     m [out] begins as the lengths |W| of the rows, so that y = x W^T
//! ```
//!
//! The lengths `|V|` count as constants in the backward, as section 4.3 of the paper has it.
//!
//! # Source
//! arXiv:2106.09685, arXiv:2402.09353 (DoRA); names, defaults and initial values of the `peft` library.

use super::module::{Seen, SeenMut};
use super::weight::{Adapted, Weight};
use super::{Module, Parameter, Training, Visitor, VisitorMut};
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::launch::accumulate_dtype;
use crate::tensor::{Creation, Tensor};

const NAME: &str = "lora";

/// Which products are adapted, and how.
#[derive(Clone, PartialEq, Debug)]
pub struct LoraOptions {
    /// The rank: rows of `A`, columns of `B`.
    pub rank: usize,
    /// The update is multiplied by `alpha / rank`.
    pub alpha: f64,
    /// The probability with which an input of the adapter is dropped in training.
    pub dropout: f64,
    /// The last parts of the names of the products, `q_proj`, or whole names; `all-linear` is every product but the head.
    pub targets: Vec<String>,
    /// Whether the lengths of rows are trained apart from their directions (*DoRA*).
    pub dora: bool,
}

impl Default for LoraOptions {
    fn default() -> LoraOptions {
        let targets = vec![ALL_LINEAR.to_owned()];
        LoraOptions { rank: 8, alpha: 16.0, dropout: 0.0, targets, dora: false }
    }
}

/// Stands for every product but the head.
const ALL_LINEAR: &str = "all-linear";

/// The end of the name of a product's weight.
const WEIGHT: &str = ".weight";

impl LoraOptions {
    fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::op(NAME, what));
        if self.rank == 0 {
            return refuse("the rank is 0, there must be at least 1".to_owned());
        }
        if !self.alpha.is_finite() || !(0.0..1.0).contains(&self.dropout) {
            let LoraOptions { alpha, dropout, .. } = self;
            return refuse(format!("alpha {alpha} or dropout {dropout} can't be used"));
        }
        match self.targets.is_empty() {
            true => refuse("no product is named that an adapter is for".to_owned()),
            false => Ok(()),
        }
    }

    /// Whether a product is meant, and by which target.
    fn target(&self, name: &str) -> Option<&str> {
        let last = name.rsplit('.').next().unwrap_or(name);
        // A router is no layer of its own elsewhere, and adapting it moves tokens between experts.
        let is_usual = last != "lm_head" && last != "gate";
        let is_meant = |target: &&String| match target.as_str() {
            ALL_LINEAR => is_usual,
            target => name == target || last == target || name.ends_with(&format!(".{target}")),
        };
        self.targets.iter().find(is_meant).map(String::as_str)
    }
}

/// Puts an adapter beside the weights that the options name, and freezes all else; gives the names of the products, in
/// order.
///
/// # Errors
/// If options contradict each other, a target names no product, one has an adapter already, a row has no direction that
/// DoRA could keep, or memory runs out. The error of a target names those that there are.
/// # Examples
/// ```no_run
/// # fn main() -> genesis::Result<()> {
/// use std::sync::Arc;
///
/// use genesis::models::{LoadOptions, load};
/// use genesis::nn::{LoraOptions, adapt};
///
/// let mut loaded = load("Qwen2.5-0.5B-Instruct", &LoadOptions { trainable: true, ..LoadOptions::default() })?;
/// let model = Arc::get_mut(&mut loaded.model).expect("nobody else has it yet");
/// let adapted = adapt(model, &LoraOptions { targets: vec!["q_proj".into(), "v_proj".into()], ..Default::default() })?;
/// assert_eq!(adapted.len(), 48);
/// # Ok(())
/// # }
/// ```
pub fn adapt<M: Module + ?Sized>(model: &mut M, options: &LoraOptions) -> Result<Vec<String>> {
    options.check()?;
    let products = products(model.as_module());
    for target in &options.targets {
        let only = LoraOptions { targets: vec![target.clone()], ..options.clone() };
        if !products.iter().any(|name| only.target(name).is_some()) {
            return Err(Error::op(NAME, no_product(target, &products)));
        }
    }
    model.requires_grad_(false)?;
    let (mut adapted, mut failed) = (Vec::new(), None);
    model.visit_mut(&mut VisitorMut::new(&mut |name, seen| {
        let SeenMut::Weight(weight) = seen else { return };
        let name = name.strip_suffix(WEIGHT).unwrap_or(name);
        if failed.is_some() || options.target(name).is_none() {
            return;
        }
        match adapter(weight.clone(), options) {
            _ if matches!(weight, Weight::Adapted(_)) => {
                failed = Some(Error::op(NAME, format!("{name} has an adapter already")));
            }
            Err(error) => failed = Some(error),
            Ok(new) => {
                *weight = Weight::Adapted(Box::new(new));
                adapted.push(name.to_owned());
            }
        }
    }));
    failed.map_or(Ok(adapted), Err)
}

/// Puts the updates of all adapters, and magnitudes of rows, into their weights, which are whole then; gives how many there were.
///
/// # Numerics
/// The sum is formed in f32 and rounded once to the dtype of the weight. A weight that other modules have too stays as
/// it is there.
/// # Errors
/// If memory runs out.
pub fn merge<M: Module + ?Sized>(model: &mut M) -> Result<usize> {
    let (mut count, mut failed) = (0, None);
    model.visit_mut(&mut VisitorMut::new(&mut |_, seen| {
        let SeenMut::Weight(weight) = seen else { return };
        let Weight::Adapted(adapted) = &*weight else { return };
        match no_grad(|| adapted.merged()) {
            Ok(merged) => {
                *weight = Weight::Whole(Parameter::frozen(merged));
                count += 1;
            }
            Err(error) => failed = Some(error),
        }
    }));
    failed.map_or(Ok(count), Err)
}

/// Every adapter with the name of its product.
pub fn adapters<M: Module + ?Sized>(model: &M) -> Vec<(String, Adapted)> {
    let mut found = Vec::new();
    Visitor::walk(model.as_module(), &mut |name, seen| {
        if let Seen::Weight(Weight::Adapted(adapted)) = seen {
            let name = name.strip_suffix(WEIGHT).unwrap_or(name);
            found.push((name.to_owned(), (**adapted).clone()));
        }
    });
    found
}

/// An adapter that changes nothing yet. `A` is drawn from the default generator.
fn adapter(base: Weight, options: &LoraOptions) -> Result<Adapted> {
    let [outputs, inputs] = base.shape();
    let (device, dtype) = base.place();
    let at = Creation { dtype: accumulate_dtype(dtype), device };
    let bound = 1.0 / (inputs.max(1) as f64).sqrt();
    let a = Tensor::uniform(&[options.rank, inputs], -bound, bound, at)?;
    let mut adapted = Adapted {
        base,
        lora_a: Parameter::new(a)?,
        lora_b: Parameter::new(Tensor::zeros(&[outputs, options.rank], at)?)?,
        magnitude: None,
        scale: options.alpha / options.rank as f64,
        dropout: options.dropout,
        training: Training::default(),
    };
    if options.dora {
        let lengths = adapted.lengths()?;
        let shortest = if outputs > 0 { lengths.min()?.item()? } else { 1.0 };
        if shortest.is_nan() || shortest <= 0.0 {
            return Err(Error::op(NAME, "a row of a weight is 0, and has no direction for DoRA"));
        }
        adapted.magnitude = Some(Parameter::new(lengths)?);
    }
    Ok(adapted)
}

/// The names of all products.
fn products(model: &dyn Module) -> Vec<String> {
    let mut found = Vec::new();
    Visitor::walk(model, &mut |name, seen| {
        if let Seen::Weight(_) = seen {
            found.push(name.strip_suffix(WEIGHT).unwrap_or(name).to_owned());
        }
    });
    found
}

fn no_product(target: &str, products: &[String]) -> String {
    let mut last: Vec<&str> = products.iter().filter_map(|name| name.rsplit('.').next()).collect();
    last.sort_unstable();
    last.dedup();
    format!("no product that can be adapted is called {target}; there are {}", last.join(", "))
}
