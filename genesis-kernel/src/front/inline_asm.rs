//! `inline_asm!("text", "constraints", x, y, value)`: PTX for each element, and the value that the CPU and the
//! interpreter compute in its place.

use crate::diag::Diagnostic;
use crate::ir::{DType, Op, OpKind, Type, Value, asm};

use super::ast::{ExprAst, Span};
use super::lower::{Lower, Res};
use super::value::{Operand, Val};

impl Lower {
    /// Inline assembly; the last argument is the value, the others are inputs.
    pub(super) fn inline_asm(
        &mut self,
        text: &'static str,
        constraints: &'static str,
        args: &'static [ExprAst],
        span: Span,
    ) -> Res {
        let Some((value, inputs)) = args.split_last() else {
            return Err(self.error(span, "`inline_asm!` has nothing for the CPU"));
        };
        let inputs = self.operands(inputs)?;
        let value = self.twin(value, span)?;
        let wrong = |lower: &Lower, why: String| Err(lower.error(span, why));
        let letters = match asm::letters(constraints) {
            Ok(letters) => letters,
            Err(why) => return wrong(self, why),
        };
        if letters.len() != inputs.len() + 1 {
            let (given, named) = (inputs.len(), letters.len() - 1);
            let plural = if given == 1 { "input" } else { "inputs" };
            let message =
                format!("`inline_asm!` has {given} {plural}, its constraints name {named}");
            let error = self.error(span, message);
            return Err(error.help("the first constraint is that of the result, as in `=r,r,r`"));
        }
        if let Err(why) = asm::check_text(text, letters.len()) {
            return wrong(self, why);
        }
        let mut operands = Vec::new();
        for (operand, &letter) in inputs.iter().zip(&letters[1..]) {
            operands.push(self.asm_input(operand, letter, value)?);
        }
        let tile = self.func.tile(value);
        if !asm::fits(letters[0], tile.dtype()) {
            let why = format!(
                "the constraint `={}` does not fit a result of {}",
                letters[0],
                tile.dtype()
            );
            return Err(self.error(span, why).help(asm::HELP));
        }
        operands.push(value);
        let kind = OpKind::Asm { text: text.to_owned(), constraints: constraints.to_owned() };
        let op = self.build().push(kind, &operands, &[Type::Tile(tile)], &[]);
        Ok(Val::Ir(self.func.op(op).results[0]))
    }

    /// What stands for the assembly where there is none: it may be left out on a GPU, so it must do nothing else.
    fn twin(&mut self, value: &'static ExprAst, span: Span) -> Res<Value> {
        let before = self.func.n_ops();
        let operand = self.operand(value)?;
        let (value, soft) = self.number("the value of `inline_asm!`", &operand)?;
        let made = (before..self.func.n_ops()).map(|number| Op(number as u32));
        if made.into_iter().any(|op| self.func.op(op).kind.has_effect()) {
            let error = self.error(operand.span(), "the value of `inline_asm!` has side effects");
            return Err(error.help("on a GPU it is not computed: store or print outside of it"));
        }
        if soft {
            return Err(self.untyped(&operand, span));
        }
        Ok(value)
    }

    fn asm_input(&mut self, operand: &Operand, letter: char, value: Value) -> Res<Value> {
        let (input, soft) = self.number("`inline_asm!`", operand)?;
        if soft {
            return Err(self.untyped(operand, operand.span()));
        }
        let dtype = self.func.tile(input).dtype();
        if !asm::fits(letter, dtype) {
            let found = self.describe(&operand.val);
            let message = format!("the constraint `{letter}` does not fit {found}");
            return Err(self.error(operand.span(), message).help(asm::HELP));
        }
        let (from, to) = (self.func.tile(input).shape, self.func.tile(value).shape);
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
