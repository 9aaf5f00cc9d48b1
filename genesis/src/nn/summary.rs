//! A module as a table: what each layer has, gives and costs.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use super::calls::{self, Call, Identity};
use super::training::Training;
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
struct Flags<'m>(Vec<(&'m Training, bool)>);

impl Drop for Flags<'_> {
    fn drop(&mut self) {
        for (flag, on) in &self.0 {
            flag.set(*on);
        }
    }
}

/// What a walk through a module finds for its summary.
pub(super) struct Walked<'m> {
    /// A row a module, with its own parameters and buffers.
    pub(super) rows: Vec<SummaryRow>,
    /// Every module with its path and kind.
    pub(super) names: Vec<(Identity, String, String)>,
    pub(super) flags: Vec<&'m Training>,
    pub(super) parameters: Vec<Tensor>,
}

/// A summary of one run of `run`, which may switch flags: they are put back.
pub(super) fn of(walked: Walked<'_>, run: &mut dyn FnMut() -> Result<()>) -> Result<Summary> {
    let Walked { rows, names, flags, parameters } = walked;
    let _flags = Flags(flags.into_iter().map(|flag| (flag, flag.is_on())).collect());
    let rows = Rc::new(RefCell::new(rows));
    let seen = rows.clone();
    let hook = move |call: &Call<'_>| {
        if let Some(row) = seen.borrow_mut().iter_mut().find(|row| row.path == call.path) {
            row.output = Some(call.output.shape().to_vec());
            row.flops += call.flops;
            row.output_bytes += call.output.numel() * call.output.dtype().bytes();
            row.calls += 1;
        }
        Ok(())
    };
    no_grad(|| calls::observe(names, hook, run))?;
    let rows = rows.take();
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
