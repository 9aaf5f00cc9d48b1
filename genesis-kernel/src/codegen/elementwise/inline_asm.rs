//! Inline assembly: each operand in the register that its constraint names.

use super::super::llvm::{Emitter, Ty, Val};
use super::Target;
use crate::Error;
use crate::ir::{DType, asm};

/// One element's assembly; `dtypes` are those of the result and the operands.
pub(super) fn lower(
    e: &Emitter,
    target: Target,
    (text, constraints): (&str, &str),
    dtypes: Vec<DType>,
    operands: &[Val],
) -> Result<Val, Error> {
    let letters = asm::letters(constraints).map_err(Error::bug)?;
    if target != Target::Nvptx || letters.len() != dtypes.len() {
        return Err(Error::bug("inline assembly beside what stands for it"));
    }
    let register = |letter: char| -> Ty {
        match letter {
            'h' => e.i16(),
            'l' => e.i64(),
            'f' => e.f32(),
            'd' => e.f64(),
            _ => e.i32(),
        }
    };
    let inputs = operands.iter().zip(&letters[1..]);
    let inputs: Vec<Val> = inputs.map(|(&x, &letter)| e.bitcast(x, register(letter))).collect();
    let constraints: Vec<String> = letters.iter().map(char::to_string).collect();
    let constraints = format!("={}", constraints.join(","));
    let found = e.inline_asm(register(letters[0]), text, &constraints, &inputs, false);
    Ok(e.bitcast(found, e.register_ty(dtypes[0])))
}
