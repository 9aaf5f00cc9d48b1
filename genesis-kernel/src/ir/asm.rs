//! Constraints of inline assembly: which register each operand of its text is.
//!
//! `=r,r,f` is a result of 32 bits (`$0`), an input of 32 bits (`$1`) and one of f32 (`$2`), as LLVM writes it for
//! NVPTX. What LLVM would end the process for is refused here.

use super::types::DType;

/// What the letters of constraints are for.
pub(crate) const HELP: &str =
    "`h`, `r` and `l` are numbers of 16, 32 and 64 bits, `f` is f32 and `d` is f64";

/// The letter of each operand, the result's first.
///
/// # Errors
/// Why the constraints are none.
pub(crate) fn letters(constraints: &str) -> Result<Vec<char>, String> {
    let mut letters = Vec::new();
    for (i, part) in constraints.split(',').map(str::trim).enumerate() {
        let letter = match (i, part.strip_prefix('=')) {
            (0, Some(letter)) => letter,
            (0, None) => {
                return Err(format!(
                    "the constraints `{constraints}` begin with no result, such as `=r`"
                ));
            }
            (_, Some(_)) => return Err("inline assembly has one result".to_owned()),
            (_, None) => part,
        };
        match letter {
            "h" | "r" | "l" | "f" | "d" => letters.extend(letter.chars()),
            _ => return Err(format!("`{part}` is no constraint: {HELP}")),
        }
    }
    Ok(letters)
}

/// Whether numbers of a dtype stand in the register of a letter.
pub(crate) fn fits(letter: char, dtype: DType) -> bool {
    match letter {
        'h' => dtype.bits() == 16,
        'r' => dtype.bits() == 32,
        'l' => dtype.bits() == 64,
        'f' => dtype == DType::F32,
        'd' => dtype == DType::F64,
        _ => false,
    }
}

/// Whether a text names no more operands than there are.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check_text(text: &str, operands: usize) -> Result<(), String> {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('$') {
        if let Some(after) = after.strip_prefix('$') {
            rest = after;
            continue;
        }
        let digits = after.chars().take_while(char::is_ascii_digit).count();
        let (number, after) = after.split_at(digits);
        match number.parse::<usize>() {
            Ok(n) if n < operands => rest = after,
            Ok(n) => {
                let last = operands - 1;
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
    fn constraints_name_the_result_first() {
        assert_eq!(letters("=r, h,d"), Ok(vec!['r', 'h', 'd']));
        assert!(letters("r,r").unwrap_err().contains("begin with no result"));
        assert!(letters("=r,=r").unwrap_err().contains("one result"));
        assert!(letters("=r,q").unwrap_err().starts_with("`q` is no constraint"));
        assert!(letters("").unwrap_err().contains("begin with no result"));
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
