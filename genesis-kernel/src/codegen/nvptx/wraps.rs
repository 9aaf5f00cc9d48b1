//! Negation, absolute value, minimum and maximum of integers, as ptxas gets them right.
//!
//! To LLVM `abs` and `0 - x` of the least value give it again, and it selects PTX's `abs` and `neg` for
//! them. ptxas (12.8 to 13.0, from `-O1` on) makes less of these:
//!
//! - It sign-extends the operand of `neg.s16` and `abs.s16` and uses the 32-bit result as it is, so that
//!   -32768 becomes 32768.
//! - An `abs` of 32 or 64 bits is never less than 0 to it.
//! - Of `max(a, max(b, -c))` it makes one `VIMNMX3` (from sm_90 on) and loses the sign; of `min` too.
//! - Of a `max` or `min` of 16 bits and a constant, and a comparison of the result with that constant, it
//!   makes one `VIMNMX.S16x2` (from sm_90 on), whose unused upper half writes the same predicate.
//!
//! ```text
//! neg.s32 %r2, %r1;        not.b32 %r2, %r1;
//!                          add.s32 %r2, %r2, 1;
//!
//! abs.s32 %r2, %r1;        { .reg .b32 %neg32;
//!                          not.b32 %neg32, %r1;
//!                          add.s32 %neg32, %neg32, 1;
//!                          max.s32 %r2, %r1, %neg32; }
//!
//! max.s16 %rs2, %rs1, 5;   { .reg .b32 %left, %right;
//!                          cvt.s32.s16 %left, %rs1;
//!                          cvt.s32.s16 %right, 5;
//!                          max.s32 %left, %left, %right;
//!                          cvt.u16.u32 %rs2, %left; }
//! ```
//!
//! are right, and cost an instruction or two more. This is done to the text of the PTX, since LLVM makes these
//! instructions from many forms (`select(x < 0, -x, x)`, `x * -1`, `~x + 1`) while it selects.

/// PTX with nothing in it that ptxas gets wrong.
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

/// What stands for a line where it is one of these.
fn rewritten(line: &str) -> Option<String> {
    let (name, operands) = line.trim().strip_suffix(';')?.split_once(char::is_whitespace)?;
    let mut operands = operands.split(',').map(str::trim);
    let (to, from) = (operands.next()?, operands.next()?);
    if let ("max.s16" | "max.u16" | "min.s16" | "min.u16", Some(other)) =
        (name, operands.clone().next())
    {
        return Some(widened(name, to, [from, other]));
    }
    let (verb, bits) = name.split_once(".s")?;
    match (verb, operands.next()) {
        ("neg", None) => Some(negated(bits, to, from)),
        ("sub", Some(x)) if from == "0" => Some(negated(bits, to, x)),
        ("abs", None) => Some(absolute(bits, to, from)),
        _ => None,
    }
}

fn negated(bits: &str, to: &str, from: &str) -> String {
    format!("\tnot.b{bits} \t{to}, {from};\n\tadd.s{bits} \t{to}, {to}, 1;\n")
}

fn absolute(bits: &str, to: &str, from: &str) -> String {
    let least = format!("%neg{bits}");
    let negative = negated(bits, &least, from);
    format!("\t{{ .reg .b{bits} \t{least};\n{negative}\tmax.s{bits} \t{to}, {from}, {least}; }}\n")
}

/// `name` is `max.s16` and the like.
fn widened(name: &str, to: &str, [left, right]: [&str; 2]) -> String {
    let (verb, sign) = (&name[..3], &name[4..5]);
    format!(
        "\t{{ .reg .b32 \t%left, %right;\n\tcvt.{sign}32.{sign}16 \t%left, {left};\n\
         \tcvt.{sign}32.{sign}16 \t%right, {right};\n\t{verb}.{sign}32 \t%left, %left, %right;\n\
         \tcvt.u16.u32 \t{to}, %left; }}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_may_not_wrap() {
        let ptx = "{\n\tneg.s16 \t%rs2, %rs1;\n\tsub.s32 \t%r3, 0, %r2;\n\tsub.s32 \t%r3, %r1, %r2;\n\
                   \tabs.s32 \t%r2, %r2;\n\tabs.f32 \t%r3, %r2;\n\
                   \tmin.u16 \t%rs2, %rs1, 5;\n}\n";
        expect_test::expect![[r#"
            {
            	not.b16 	%rs2, %rs1;
            	add.s16 	%rs2, %rs2, 1;
            	not.b32 	%r3, %r2;
            	add.s32 	%r3, %r3, 1;
            	sub.s32 	%r3, %r1, %r2;
            	{ .reg .b32 	%neg32;
            	not.b32 	%neg32, %r2;
            	add.s32 	%neg32, %neg32, 1;
            	max.s32 	%r2, %r2, %neg32; }
            	abs.f32 	%r3, %r2;
            	{ .reg .b32 	%left, %right;
            	cvt.u32.u16 	%left, %rs1;
            	cvt.u32.u16 	%right, 5;
            	min.u32 	%left, %left, %right;
            	cvt.u16.u32 	%rs2, %left; }
            }
        "#]]
        .assert_eq(&wrapping(ptx));
    }
}
