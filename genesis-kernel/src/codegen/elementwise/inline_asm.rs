//! Inline assembly: the elements of each operand in the registers that its constraints name.
//!
//! ```text
//! pack 4   "=r,=r,r,f,f,f,f" of u16   (u8, f32)      {i32, i32} asm (i32 of 4 u8, f32, f32, f32, f32)
//! ```
//!
//! Every result of a text is an op of its own, whose text gives all of them: LLVM makes one call of equal ones. A result
//! is written early (`=&`): texts are of several instructions, and LLVM may else give it the register of an input that is
//! not read yet.

use super::super::llvm::{Emitter, Ty, Val};
use super::Target;
use crate::Error;
use crate::ir::{Func, Op, OpKind, asm};

/// One element's assembly. The text of several is run for copies of the one.
pub(super) fn lower(
    e: &Emitter,
    target: Target,
    func: &Func,
    op: Op,
    operands: &[Val],
) -> Result<Val, Error> {
    if target != Target::Nvptx {
        return Err(Error::bug("inline assembly beside what stands for it"));
    }
    let OpKind::Asm { pack, .. } = &func.op(op).kind else {
        return Err(Error::bug("this is no inline assembly"));
    };
    let operands: Vec<Vec<Val>> = operands.iter().map(|&x| vec![x; usize::from(*pack)]).collect();
    Ok(packed(e, func, op, &operands)?[0])
}

/// The assembly of `pack` elements: those of each operand, and those of the result.
pub(crate) fn packed(
    e: &Emitter,
    func: &Func,
    op: Op,
    operands: &[Vec<Val>],
) -> Result<Vec<Val>, Error> {
    let data = func.op(op);
    let OpKind::Asm { text, constraints, pack, from } = &data.kind else {
        return Err(Error::bug("this is no inline assembly"));
    };
    let letters = asm::letters(constraints).map_err(Error::bug)?;
    let unfit = || Error::bug("inline assembly beside what stands for it");
    let mut inputs = Vec::new();
    for (&value, elements) in data.operands.iter().zip(operands) {
        let dtype = func.tile(value).dtype();
        let letter = *letters.inputs.get(inputs.len()).ok_or_else(unfit)?;
        let each = asm::elements(letter, dtype).ok_or_else(unfit)? as usize;
        let words = elements.chunks(each).map(|chunk| e.bitcast(e.build_vec(chunk), ty(e, letter)));
        inputs.extend(words);
    }
    if inputs.len() != letters.inputs.len() {
        return Err(unfit());
    }
    let outputs: Vec<Ty> = letters.results.iter().map(|&letter| ty(e, letter)).collect();
    let names = letters.results.iter().map(|letter| format!("=&{letter}"));
    let names = names.chain(letters.inputs.iter().map(char::to_string)).collect::<Vec<_>>();
    let result = if outputs.len() == 1 { outputs[0] } else { e.structure(&outputs) };
    let call = e.inline_asm(result, text, &names.join(","), &inputs, false);
    e.set_pure(call);
    let dtype = func.tile(data.results[0]).dtype();
    let own = &letters.results[usize::from(*from)..];
    let count = asm::taken(own, dtype, *pack).ok_or_else(unfit)?;
    let each = u32::from(*pack) / count as u32;
    let mut found = Vec::new();
    for number in u32::from(*from)..u32::from(*from) + count as u32 {
        let word = if outputs.len() == 1 { call } else { e.extract_value(call, number) };
        let elements = e.bitcast(word, e.vec(e.register_ty(dtype), each));
        found.extend((0..each).map(|i| e.extract(elements, i)));
    }
    Ok(found)
}

/// The type of a register.
fn ty(e: &Emitter, letter: char) -> Ty {
    match letter {
        'h' => e.i16(),
        'l' => e.i64(),
        'f' => e.f32(),
        'd' => e.f64(),
        _ => e.i32(),
    }
}
