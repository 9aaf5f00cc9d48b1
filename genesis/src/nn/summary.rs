//! A module as a table: what each layer has, gives and costs.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use super::visit::Seen;
use super::{Module, Visitor, watch};
use crate::autograd::no_grad;
use crate::error::Result;
use crate::tensor::Tensor;

/// A table of a module's layers; `{}` prints it.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// One row a module, each before those inside it.
    pub rows: Vec<SummaryRow>,
    /// The number of elements of all parameters, tied ones once.
    pub parameters: usize,
    /// Of these, the ones that require gradients.
    pub trainable: usize,
    /// Bytes of all parameters and buffers.
    pub state_bytes: usize,
    /// Floating-point operations of the run; a multiplication and an addition are two.
    pub flops: u64,
    /// Bytes of all outputs of layers.
    pub output_bytes: usize,
}

/// One module of a [`Summary`].
#[derive(Clone, Debug, Default)]
pub struct SummaryRow {
    /// Its dotted name.
    pub path: String,
    /// Its type.
    pub kind: String,
    /// The shape of its last output, where it ran as a layer.
    pub output: Option<Vec<usize>>,
    /// The number of elements of its own parameters, those of modules inside it left out; a tied one
    /// where it comes first.
    pub parameters: usize,
    /// Bytes of its own parameters and buffers.
    pub state_bytes: usize,
    /// Its own floating-point operations.
    pub flops: u64,
    /// Bytes of all its outputs.
    pub output_bytes: usize,
    /// How often it ran.
    pub calls: usize,
}

/// Flags of a module, put back when this goes.
struct Flags<'m>(Vec<(&'m super::Training, bool)>);

impl Drop for Flags<'_> {
    fn drop(&mut self) {
        for (flag, on) in &self.0 {
            flag.set(*on);
        }
    }
}

pub(super) fn of(module: &dyn Module, run: &mut dyn FnMut() -> Result<()>) -> Result<Summary> {
    let mut flags = Flags(Vec::new());
    Visitor::walk(module, &mut |_, seen| {
        if let Seen::Training(flag) = seen {
            flags.0.push((flag, flag.is_on()));
        }
    });
    let rows = Rc::new(RefCell::new(states(module)));
    let seen = rows.clone();
    let hook = move |call: &watch::Call<'_>| {
        if let Some(row) = seen.borrow_mut().iter_mut().find(|row| row.path == call.path) {
            row.output = Some(call.output.shape().to_vec());
            row.flops += call.flops;
            row.output_bytes += call.output.numel() * call.output.dtype().bytes();
            row.calls += 1;
        }
        Ok(())
    };
    module.eval();
    no_grad(|| watch::observe(module, hook, run))?;
    let rows = rows.take();
    let parameters = module.parameters();
    let trainable = parameters.iter().filter(|p| p.requires_grad());
    Ok(Summary {
        parameters: parameters.iter().map(Tensor::numel).sum(),
        trainable: trainable.map(Tensor::numel).sum(),
        state_bytes: rows.iter().map(|row| row.state_bytes).sum(),
        flops: rows.iter().map(|row| row.flops).sum(),
        output_bytes: rows.iter().filter(|row| is_leaf(row, &rows)).map(|r| r.output_bytes).sum(),
        rows,
    })
}

/// Whether no module is inside this one: outputs of containers are those of their last layers.
fn is_leaf(row: &SummaryRow, rows: &[SummaryRow]) -> bool {
    let inside = |other: &SummaryRow| match row.path.is_empty() {
        true => !other.path.is_empty(),
        false => other.path.strip_prefix(&row.path).is_some_and(|rest| rest.starts_with('.')),
    };
    !rows.iter().any(inside)
}

/// A row a module, with its own parameters and buffers.
fn states(module: &dyn Module) -> Vec<SummaryRow> {
    let (mut rows, mut open): (Vec<SummaryRow>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut known: Vec<&Tensor> = Vec::new();
    Visitor::walk(module, &mut |path, seen| {
        let (tensor, trained) = match seen {
            Seen::Module(module) => {
                open.push(rows.len());
                let row =
                    SummaryRow { path: path.to_owned(), kind: module.kind(), ..Default::default() };
                return rows.push(row);
            }
            Seen::End(_) => {
                open.pop();
                return;
            }
            Seen::Training(_) | Seen::Weight(_) => return,
            Seen::Parameter(parameter) => (parameter.tensor(), true),
            Seen::Buffer(buffer) => (buffer.tensor(), false),
        };
        if let Some(&row) = open.last()
            && !known.iter().any(|other| other.is_same(tensor))
        {
            known.push(tensor);
            rows[row].parameters += if trained { tensor.numel() } else { 0 };
            rows[row].state_bytes += tensor.numel() * tensor.dtype().bytes();
        }
    });
    rows
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table =
            vec![["layer", "type", "output", "parameters", "FLOPs", "bytes"].map(String::from)];
        for row in &self.rows {
            let path = if row.path.is_empty() { "(all)" } else { &row.path };
            let depth = if row.path.is_empty() { 0 } else { row.path.split('.').count() };
            let output = row.output.as_ref().map_or(String::new(), |shape| format!("{shape:?}"));
            table.push([
                format!("{}{path}", "  ".repeat(depth.saturating_sub(1))),
                row.kind.clone(),
                output,
                grouped(row.parameters as u64),
                grouped(row.flops),
                grouped(row.state_bytes as u64),
            ]);
        }
        let width = |column: usize| table.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..6).map(width).collect();
        for row in &table {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[column] - cell.len());
                let cell = if column < 3 { format!("{cell}{pad}") } else { format!("{pad}{cell}") };
                line.push_str(&cell);
                line.push_str("  ");
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        let numbers = [
            (self.parameters as u64, "parameters"),
            (self.trainable as u64, "trainable"),
            (self.flops, "FLOPs"),
            (self.state_bytes as u64, "bytes of state"),
            (self.output_bytes as u64, "bytes of outputs"),
        ];
        let total: Vec<String> =
            numbers.iter().map(|(number, unit)| format!("{} {unit}", grouped(*number))).collect();
        write!(f, "{}", total.join(", "))
    }
}

/// A number with its digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
