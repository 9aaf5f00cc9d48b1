//! Negation and absolute value of integers, which wrap at the least value.
//!
//! To LLVM `abs` and `0 - x` of the least value give it again, and it selects PTX's `abs` and `neg` for
//! them. ptxas (12.8 to 13.0, from `-O1` on) takes their results to be the mathematical ones: it
//! sign-extends the operand of `neg.s16` and `abs.s16` and uses the 32-bit result as it is, so that
//! -32768 becomes 32768; and an `abs` of 32 or 64 bits is never less than 0 to it.
//!
//! ```text
//! neg.s16 %rs2, %rs1;      not.b16 %rs2, %rs1;
//!                          add.s16 %rs2, %rs2, 1;
//!
//! abs.s32 %r2, %r1;        { .reg .b32 %neg32;
//!                          neg.s32 %neg32, %r1;
//!                          max.s32 %r2, %r1, %neg32; }
//! ```
//!
//! are right, and cost an instruction more. This is done to the text of the PTX, since LLVM makes both
//! instructions from many forms (`select(x < 0, -x, x)`, `x * -1`, `~x + 1`) while it selects.

/// PTX with nothing in it that ptxas takes not to wrap.
pub(super) fn wrapping(ptx: &str) -> String {
    let mut out = String::with_capacity(ptx.len());
    for line in ptx.split_inclusive('\n') {
        match rewritten(line) {
            Some(line) => out += &line,
            None => out += line,
        }
    }
    out
}

/// What stands for a line where it is `neg.s16` or `abs`.
fn rewritten(line: &str) -> Option<String> {
    let (name, operands) = line.trim().strip_suffix(';')?.split_once(char::is_whitespace)?;
    let mut operands = operands.split(',').map(str::trim);
    let (to, mut from) = (operands.next()?, operands.next()?);
    match (name, operands.next()) {
        ("neg.s16", None) => {}
        ("sub.s16", Some(x)) if from == "0" => from = x,
        ("abs.s16" | "abs.s32" | "abs.s64", None) => return Some(absolute(&name[5..], to, from)),
        _ => return None,
    }
    Some(negated(to, from))
}

fn negated(to: &str, from: &str) -> String {
    format!("\tnot.b16 \t{to}, {from};\n\tadd.s16 \t{to}, {to}, 1;\n")
}

fn absolute(bits: &str, to: &str, from: &str) -> String {
    let least = format!("%neg{bits}");
    let negative = match bits {
        "16" => negated(&least, from),
        _ => format!("\tneg.s{bits} \t{least}, {from};\n"),
    };
    format!("\t{{ .reg .b{bits} \t{least};\n{negative}\tmax.s{bits} \t{to}, {from}, {least}; }}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_may_not_wrap() {
        let ptx = "{\n\tneg.s16 \t%rs2, %rs1;\n\tneg.s32 \t%r2, %r1;\n\tsub.s16 \t%rs3, 0, %rs2;\n\
                   \tabs.s32 \t%r2, %r2;\n\tabs.s16 \t%rs1, %rs2;\n\tabs.f32 \t%r3, %r2;\n}\n";
        expect_test::expect![[r#"
            {
            	not.b16 	%rs2, %rs1;
            	add.s16 	%rs2, %rs2, 1;
            	neg.s32 	%r2, %r1;
            	not.b16 	%rs3, %rs2;
            	add.s16 	%rs3, %rs3, 1;
            	{ .reg .b32 	%neg32;
            	neg.s32 	%neg32, %r2;
            	max.s32 	%r2, %r2, %neg32; }
            	{ .reg .b16 	%neg16;
            	not.b16 	%neg16, %rs2;
            	add.s16 	%neg16, %neg16, 1;
            	max.s16 	%rs1, %rs2, %neg16; }
            	abs.f32 	%r3, %r2;
            }
        "#]]
        .assert_eq(&wrapping(ptx));
    }
}
