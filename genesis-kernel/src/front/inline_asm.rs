//! `inline_asm!("text", "constraints", x, y, value)`: PTX for each element, or for several, and the value that the CPU
//! and the interpreter compute in its place. Of a tuple of values each is a result, an op of its own.

use crate::diag::Diagnostic;
use crate::ir::asm::{self, Letters};
use crate::ir::{DType, Op, OpKind, Shape, Type, Value};

use super::ast::{ExprAst, ExprKind, Span};
use super::lower::{Lower, Res};
use super::value::{Operand, Val};

impl Lower {
    /// Inline assembly of so many elements; the last argument is the value or a tuple of them, the others are inputs.
    pub(super) fn inline_asm(
        &mut self,
        (text, constraints, pack): (&'static str, &'static str, u8),
        args: &'static [ExprAst],
        span: Span,
    ) -> Res {
        let Some((value, inputs)) = args.split_last() else {
            return Err(self.error(span, "`inline_asm!` has nothing for the CPU"));
        };
        let inputs = self.operands(inputs)?;
        let is_tuple = matches!(value.kind, ExprKind::Tuple(_));
        let values = self.twins(value, span)?;
        let letters = asm::letters(constraints).map_err(|why| self.error(span, why))?;
        asm::check_text(text, letters.count()).map_err(|why| self.error(span, why))?;
        if pack == 1 {
            self.check_counts(&letters, [values.len(), inputs.len()], span)?;
        }
        let shape = self.func.tile(values[0]).shape;
        let mut operands = Vec::new();
        let mut rest = &letters.inputs[..];
        for operand in &inputs {
            let value = self.asm_input(operand, shape)?;
            let dtype = self.func.tile(value).dtype();
            let found = || self.describe(&operand.val);
            let n = self.asm_registers((rest, ""), (dtype, pack), &found, operand.span())?;
            rest = &rest[n..];
            operands.push(value);
        }
        self.check_rest(rest, "inputs", span)?;
        let mut firsts = Vec::new();
        let mut rest = &letters.results[..];
        for &value in &values {
            let dtype = self.func.tile(value).dtype();
            firsts.push((letters.results.len() - rest.len()) as u8);
            let found = || format!("a result of {dtype}");
            let n = self.asm_registers((rest, "="), (dtype, pack), &found, span)?;
            rest = &rest[n..];
        }
        self.check_rest(rest, "results", span)?;
        let results = values.iter().zip(firsts).map(|(&value, from)| {
            let (text, constraints) = (text.to_owned(), constraints.to_owned());
            let kind = OpKind::Asm { text, constraints, pack, from };
            let operands: Vec<Value> = operands.iter().copied().chain([value]).collect();
            let ty = Type::Tile(self.func.tile(value));
            let op = self.build().push(kind, &operands, &[ty], &[]);
            Val::Ir(self.func.op(op).results[0])
        });
        let mut results: Vec<Val> = results.collect();
        if is_tuple { Ok(Val::Tuple(results)) } else { Ok(results.remove(0)) }
    }

    /// Of texts of one element every operand is one register.
    fn check_counts(&self, letters: &Letters, given: [usize; 2], span: Span) -> Res<()> {
        let named = [letters.results.len(), letters.inputs.len()];
        for ((given, named), what) in given.into_iter().zip(named).zip(["result", "input"]) {
            if given != named {
                let plural = if given == 1 { "" } else { "s" };
                let message = format!(
                    "`inline_asm!` has {given} {what}{plural}, its constraints name {named}"
                );
                let error = self.error(span, message);
                return Err(
                    error.help("the first constraints are those of results, as in `=r,r,r`")
                );
            }
        }
        Ok(())
    }

    /// How many of the registers an operand is, of those that the operands before it have left.
    fn asm_registers(
        &self,
        (rest, sign): (&[char], &str),
        (dtype, pack): (DType, u8),
        found: &dyn Fn() -> String,
        span: Span,
    ) -> Res<usize> {
        let Some(&letter) = rest.first() else {
            let message = format!("the constraints name no register for {}", found());
            return Err(self.error(span, message));
        };
        let Some(n) = asm::registers(letter, dtype, pack) else {
            let found = found();
            let many = if pack == 1 { String::new() } else { format!(", {pack} at a time") };
            let message = format!("the constraint `{sign}{letter}` does not fit {found}{many}");
            return Err(self.error(span, message).help(asm::HELP));
        };
        if asm::taken(rest, dtype, pack).is_none() {
            let found = found();
            let message =
                format!("{pack} elements of {found} are {n} registers of `{sign}{letter}`");
            let error = self.error(span, message);
            return Err(error.help("each has a constraint, one after the other"));
        }
        Ok(n)
    }

    fn check_rest(&self, rest: &[char], what: &str, span: Span) -> Res<()> {
        let n = rest.len();
        if n == 0 {
            return Ok(());
        }
        Err(self
            .error(span, format!("the constraints name {n} more registers than the {what} are")))
    }

    /// What stands for the assembly where there is none: it may be left out on a GPU, so it must do nothing else.
    fn twins(&mut self, value: &'static ExprAst, span: Span) -> Res<Vec<Value>> {
        let before = self.func.n_ops();
        let operands = match &value.kind {
            ExprKind::Tuple(parts) => self.operands(parts)?,
            _ => vec![self.operand(value)?],
        };
        let mut values = Vec::new();
        for operand in &operands {
            let (value, soft) = self.number("the value of `inline_asm!`", operand)?;
            if soft {
                return Err(self.untyped(operand, span));
            }
            values.push(value);
        }
        let made = (before..self.func.n_ops()).map(|number| Op(number as u32));
        if made.into_iter().any(|op| self.func.op(op).kind.has_effect()) {
            let error = self.error(value.span, "the value of `inline_asm!` has side effects");
            return Err(error.help("on a GPU it is not computed: store or print outside of it"));
        }
        let shapes: Vec<Shape> = values.iter().map(|&v| self.func.tile(v).shape).collect();
        if let Some(other) = shapes.iter().find(|&&shape| shape != shapes[0]) {
            let first = shapes[0];
            let message =
                format!("results of `inline_asm!` have one shape, these {first} and {other}");
            return Err(self.error(value.span, message));
        }
        Ok(values)
    }

    fn asm_input(&mut self, operand: &Operand, to: Shape) -> Res<Value> {
        let (input, soft) = self.number("`inline_asm!`", operand)?;
        if soft {
            return Err(self.untyped(operand, operand.span()));
        }
        let from = self.func.tile(input).shape;
        if from.broadcast(to) != Some(to) {
            let message = format!("an input of shape {from} for a result of shape {to}");
            let error = self.error(operand.span(), message);
            return Err(error.help("inputs broadcast to the shape of the last argument"));
        }
        Ok(self.build().broadcast(input, to))
    }

    fn untyped(&self, operand: &Operand, span: Span) -> Diagnostic {
        let found = self.describe(&operand.val);
        let error = self.error(span, format!("`inline_asm!` needs a dtype, this is {found}"));
        error.help(format!("give the literal a suffix, such as `1_{}`", DType::I32))
    }
}
