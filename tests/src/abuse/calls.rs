//! What a call is, and what is looked at in its results.

use genesis::ops::AttentionBackend;
use genesis::ops::info::{Method, methods};
use genesis::{Result, Tensor, Unique};

use super::generate::Gen;

/// A method by name.
pub struct Row {
    /// As in the sources.
    pub name: &'static str,
    call: Call,
}

enum Call {
    /// Draws arguments and calls it.
    Drawn(fn(&mut Gen) -> Result<Vec<Tensor>>),
    /// A method of a table of ops, called with tensors and a number.
    OfTable(&'static Method),
}

impl Row {
    pub(super) fn new(name: &'static str, call: fn(&mut Gen) -> Result<Vec<Tensor>>) -> Row {
        Row { name, call: Call::Drawn(call) }
    }

    pub(super) fn of_table(method: &'static Method) -> Row {
        Row { name: method.name, call: Call::OfTable(method) }
    }

    /// Draws arguments and calls it.
    pub fn call(&self, g: &mut Gen) -> Result<Vec<Tensor>> {
        match self.call {
            Call::Drawn(call) => call(g),
            Call::OfTable(method) => {
                let (x, y) = (g.tensor(), g.tensor());
                done((method.call)(&x, &y, g.v()))
            }
        }
    }
}

/// Every method that is called.
pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    rows.extend(methods().map(Row::of_table));
    super::table::methods(&mut rows);
    super::table::functions(&mut rows);
    super::table::others(&mut rows);
    super::language_models::language_models(&mut rows);
    super::layers::layers(&mut rows);
    super::training::training(&mut rows);
    super::data::data(&mut rows);
    super::launches::launches(&mut rows);
    rows
}

/// The tensors in a result.
pub(super) trait Out {
    /// Adds them.
    fn tensors(self, to: &mut Vec<Tensor>);
}

/// Results without tensors.
macro_rules! nothing {
    ($($type:ty)*) => { $(impl Out for $type { fn tensors(self, _: &mut Vec<Tensor>) {} })* };
}

nothing! { () bool f32 f64 usize i64 String AttentionBackend }

impl Out for Tensor {
    fn tensors(self, to: &mut Vec<Tensor>) {
        to.push(self);
    }
}

impl<T: Out> Out for Vec<T> {
    fn tensors(self, to: &mut Vec<Tensor>) {
        self.into_iter().for_each(|t| t.tensors(to));
    }
}

impl<T: Out> Out for Option<T> {
    fn tensors(self, to: &mut Vec<Tensor>) {
        self.into_iter().for_each(|t| t.tensors(to));
    }
}

impl<A: Out, B: Out> Out for (A, B) {
    fn tensors(self, to: &mut Vec<Tensor>) {
        self.0.tensors(to);
        self.1.tensors(to);
    }
}

impl Out for Unique {
    fn tensors(self, to: &mut Vec<Tensor>) {
        to.push(self.values);
    }
}

/// The tensors of an outcome.
pub(super) fn done<T: Out>(outcome: Result<T>) -> Result<Vec<Tensor>> {
    let mut tensors = Vec::new();
    outcome?.tensors(&mut tensors);
    Ok(tensors)
}

/// What is wrong with a tensor that a call gave; reads its ends.
pub(super) fn look(x: &Tensor) -> Option<String> {
    // That the layout lies in its storage, the only maker of tensors asserts, which is a panic here; that reading
    // goes by the layout is seen by reading.
    let layout = x.layout();
    if layout.numel() > 0 && layout.end() <= layout.start() {
        return Some(format!("layout ends before it starts: {layout:?}"));
    }
    let product = x.shape().iter().try_fold(1_usize, |all, &n| all.checked_mul(n));
    if !x.shape().contains(&0) && product != Some(x.numel()) {
        return Some(format!("{} elements in {:?}", x.numel(), x.shape()));
    }
    if x.numel() == 0 {
        return x.to_f64_vec().err().map(|error| format!("can't be read: {error}"));
    }
    for last in [false, true] {
        let mut end = x.detach();
        while end.rank() > 0 {
            let index = if last { end.shape()[0] - 1 } else { 0 };
            end = match end.select(0, index) {
                Ok(end) => end,
                Err(error) => {
                    return Some(format!("element {index} of {:?}: {error}", end.shape()));
                }
            };
        }
        if let Err(error) = end.item() {
            return Some(format!("an end can't be read: {error}"));
        }
    }
    None
}
