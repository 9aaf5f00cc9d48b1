//! What `device_print!` prints, its text and how that reaches the terminal, and what a failed `device_assert!` leaves
//! for the host to read.

use std::io::Write;

/// Fills the `{}` of a format in order; `{{` and `}}` are braces. What is no hole goes through `plain`.
pub(crate) fn fill(
    format: &str,
    parts: &[impl AsRef<str>],
    plain: impl Fn(char) -> String,
) -> String {
    let mut parts = parts.iter();
    let mut text = String::new();
    let mut rest = format;
    while let Some(c) = rest.chars().next() {
        let len = match c {
            _ if rest.starts_with("{{") || rest.starts_with("}}") => {
                text.push(c);
                2
            }
            '{' => {
                text.push_str(parts.next().map_or("", AsRef::as_ref));
                rest.find('}').map_or(rest.len(), |i| i + 1)
            }
            _ => {
                text.push_str(&plain(c));
                c.len_utf8()
            }
        };
        rest = &rest[len..];
    }
    text
}

/// The text of a print on the host.
pub(crate) fn text(format: &str, parts: &[impl AsRef<str>]) -> String {
    fill(format, parts, |c| c.to_string())
}

/// Prints a line, at once and whole. Where nobody can read it, as when the terminal has been closed, it is
/// lost: `println!` would panic, in the middle of a kernel.
pub(crate) fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Words of eight bytes that a failed assertion leaves, by number; the first holds its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failed {
    /// Which kind of number was compared: 0 none, 1 signed, 2 unsigned, 3 f64.
    Kind = 1,
    /// The program.
    X = 2,
    Y = 3,
    Z = 4,
    /// The element of the tile in row-major order, plus 1; 0 for a scalar.
    Element = 5,
    /// What was compared.
    Left = 6,
    Right = 7,
}

/// Words that an assertion may leave.
pub(crate) const FAILED_WORDS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_are_doubled_and_holes_filled_once() {
        assert_eq!(text("{{}} {} {}", &["{}", "b"]), "{} {} b");
        assert_eq!(text("x = {:?}, 5 %", &["1"]), "x = 1, 5 %");
        assert_eq!(text("{} {}", &["1"]), "1 ");
    }
}
