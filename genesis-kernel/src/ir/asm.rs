//! Constraints of inline assembly: which registers the operands of its text are.
//!
//! `=r,r,f` is a result of 32 bits (`$0`), an input of 32 bits (`$1`) and one of f32 (`$2`), as LLVM writes it for
//! NVPTX. What LLVM would end the process for is refused here.
//!
//! A text of `pack` elements has as many registers for an operand as its elements fill: registers hold as many elements
//! as there is room for, and all those of an operand are of one kind.
//!
//! ```text
//! pack 4   "=r,=r,r,f,f,f,f"   u16 of u8 and f32: two each in $0 and $1, four in $2, one each in $3 to $6
//! ```

use super::types::DType;

/// What the letters of constraints are for.
pub(crate) const HELP: &str =
    "`h`, `r` and `l` are numbers of 16, 32 and 64 bits, `f` is f32 and `d` is f64";

/// How many elements one text may be of.
pub(crate) const PACKS: [u8; 4] = [1, 2, 4, 8];

/// The letter of each register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Letters {
    pub(crate) results: Vec<char>,
    pub(crate) inputs: Vec<char>,
}

impl Letters {
    /// How many registers the text may name.
    pub(crate) fn count(&self) -> usize {
        self.results.len() + self.inputs.len()
    }
}

/// The letters of constraints, results before inputs. That a result is written early, `=&r`, is true of all of them and
/// need not be said.
///
/// # Errors
/// Why the constraints are none.
pub(crate) fn letters(constraints: &str) -> Result<Letters, String> {
    let mut letters = Letters { results: Vec::new(), inputs: Vec::new() };
    for part in constraints.split(',').map(str::trim) {
        let result = part.strip_prefix('=');
        let letter = result.map_or(part, |letter| letter.strip_prefix('&').unwrap_or(letter));
        let list = match result {
            Some(_) if !letters.inputs.is_empty() => {
                return Err(format!("`{part}` is a result and stands behind an input"));
            }
            Some(_) => &mut letters.results,
            None => &mut letters.inputs,
        };
        match letter {
            "h" | "r" | "l" | "f" | "d" => list.extend(letter.chars()),
            _ if part.is_empty() => return Err("a constraint is empty".to_owned()),
            _ => return Err(format!("`{part}` is no constraint: {HELP}")),
        }
    }
    if letters.results.is_empty() {
        return Err(format!("the constraints `{constraints}` begin with no result, such as `=r`"));
    }
    Ok(letters)
}

/// How many elements of a dtype stand in a register of a letter; none where they fit no such register.
pub(crate) fn elements(letter: char, dtype: DType) -> Option<u32> {
    let width = match letter {
        'h' => 16,
        'r' => 32,
        'l' => 64,
        'f' => return (dtype == DType::F32).then_some(1),
        'd' => return (dtype == DType::F64).then_some(1),
        _ => return None,
    };
    let bits = dtype.bits();
    (dtype != DType::Bool && bits <= width).then(|| width / bits)
}

/// How many registers of a letter `pack` elements of a dtype fill; none where they fill none.
pub(crate) fn registers(letter: char, dtype: DType, pack: u8) -> Option<usize> {
    let (elements, pack) = (elements(letter, dtype)?, u32::from(pack));
    (pack % elements == 0).then(|| (pack / elements) as usize)
}

/// The registers that `pack` elements of a dtype are, from the first of some letters on; none where these are others.
pub(crate) fn taken(letters: &[char], dtype: DType, pack: u8) -> Option<usize> {
    let &letter = letters.first()?;
    let n = registers(letter, dtype, pack)?;
    letters.get(..n)?.iter().all(|&other| other == letter).then_some(n)
}

/// How many of the operands of an op are inputs: what is left is the value that stands for the text.
pub(crate) fn inputs(letters: &Letters, pack: u8, operands: &[DType]) -> usize {
    let mut rest = &letters.inputs[..];
    let is_input = |&&dtype: &&DType| match taken(rest, dtype, pack) {
        Some(n) => {
            rest = &rest[n..];
            true
        }
        None => false,
    };
    operands.iter().take_while(is_input).count()
}

/// Whether a text names no more registers than there are.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check_text(text: &str, registers: usize) -> Result<(), String> {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('$') {
        if let Some(after) = after.strip_prefix('$') {
            rest = after;
            continue;
        }
        let digits = after.chars().take_while(char::is_ascii_digit).count();
        let (number, after) = after.split_at(digits);
        match number.parse::<usize>() {
            Ok(n) if n < registers => rest = after,
            Ok(n) => {
                let last = registers - 1;
                return Err(format!(
                    "the assembly names `${n}`, its operands are `$0` to `${last}`"
                ));
            }
            Err(_) => {
                let why =
                    "a `$` of assembly stands before the number of an operand; `$$` is one itself";
                return Err(why.to_owned());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constraints_name_the_results_first() {
        let found = letters("=r, =&f,h,d").unwrap();
        assert_eq!((found.results, found.inputs), (vec!['r', 'f'], vec!['h', 'd']));
        assert!(letters("r,r").unwrap_err().contains("begin with no result"));
        assert!(letters("=r,r,=r").unwrap_err().contains("stands behind an input"));
        assert!(letters("=r,q").unwrap_err().starts_with("`q` is no constraint"));
        assert!(letters("").unwrap_err().contains("empty"));
    }

    #[test]
    fn registers_hold_what_there_is_room_for() {
        assert_eq!(registers('r', DType::U8, 4), Some(1));
        assert_eq!(registers('r', DType::BF16, 4), Some(2));
        assert_eq!(registers('h', DType::BF16, 4), Some(4));
        assert_eq!(registers('l', DType::I8, 8), Some(1));
        assert_eq!(registers('f', DType::F32, 2), Some(2));
        // No register is filled by half.
        assert_eq!(registers('r', DType::U8, 2), None);
        assert_eq!(registers('r', DType::I64, 1), None);
        assert_eq!(registers('r', DType::Bool, 4), None);
        assert_eq!(taken(&['r', 'f'], DType::U32, 2), None);
        assert_eq!(taken(&['r', 'r', 'f'], DType::U32, 2), Some(2));
        let found = letters("=r,r,f,f").unwrap();
        assert_eq!(inputs(&found, 2, &[DType::F16, DType::F32, DType::F16]), 2);
        assert_eq!(inputs(&found, 2, &[DType::F16, DType::F32]), 2);
    }

    #[test]
    fn a_text_names_operands_that_there_are() {
        assert_eq!(check_text("add.u32 $0, $1, 2; // $$1", 2), Ok(()));
        assert!(check_text("add.u32 $0, $1, $2;", 2).unwrap_err().contains("`$2`"));
        assert!(check_text("mov.u32 $0, ${1};", 2).unwrap_err().contains("number of an operand"));
        assert!(check_text("mov.u32 $0, $", 2).is_err());
        assert!(check_text("mov.u32 $0, $99999999999999999999;", 2).is_err());
    }
}
