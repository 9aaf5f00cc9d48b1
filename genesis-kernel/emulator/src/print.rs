//! `vprintf`, which `device_print!` becomes: formats with `%lld`, `%llu`, `%llx`, `%g` and `%%`.

use std::io::Write;

use super::cluster::Cluster;
use super::fault::Fault;
use super::memory::word;
use super::program::{Arg, LOCAL_BASE};

/// Bytes of a value: all are widened.
const VALUE_BYTES: usize = 8;

impl Cluster<'_> {
    /// Prints to standard output, where a GPU's driver does.
    pub(super) fn print(
        &self,
        number: usize,
        lane: usize,
        format: Arg,
        values: Arg,
    ) -> Result<(), Fault> {
        let warp = &self.warps[number];
        let format = warp.value(format, lane);
        let text = self.program.texts.iter().find(|(address, _)| *address == format);
        let (_, text) = text.ok_or_else(|| self.fault("a format that is no text"))?;
        let own = &warp.local[lane * self.program.local_bytes..][..self.program.local_bytes];
        let first = warp.value(values, lane).checked_sub(LOCAL_BASE);
        let mut values = first.and_then(|first| own.get(first as usize..)).unwrap_or(&[]);
        let next = || {
            let (value, rest) = values.split_at_checked(VALUE_BYTES)?;
            values = rest;
            Some(word(value))
        };
        let line = formatted(text, next).ok_or_else(|| self.fault("a strange format"))?;
        // A closed stream loses a line and nothing else.
        let _ = std::io::stdout().write_all(line.as_bytes());
        Ok(())
    }
}

/// Fills a format; none where it asks for what is not known or not there.
fn formatted(format: &str, mut next: impl FnMut() -> Option<u64>) -> Option<String> {
    let mut line = String::new();
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('%') {
        line.push_str(before);
        let known = ["lld", "llu", "llx", "g", "%"];
        let kind = known.into_iter().find(|kind| after.starts_with(kind))?;
        match kind {
            "lld" => line.push_str(&(next()? as i64).to_string()),
            "llu" => line.push_str(&next()?.to_string()),
            "llx" => line.push_str(&format!("{:x}", next()?)),
            "g" => line.push_str(&general(f64::from_bits(next()?))),
            _ => line.push('%'),
        }
        rest = &after[kind.len()..];
    }
    line.push_str(rest);
    Some(line)
}

/// A number as C's `%g` writes it: six digits, without zeros at the end.
fn general(value: f64) -> String {
    let sign = if value.is_sign_negative() { "-" } else { "" };
    if !value.is_finite() {
        return format!("{sign}{}", if value.is_nan() { "nan" } else { "inf" });
    }
    let rounded = format!("{value:.5e}");
    let (digits, exponent) = rounded.split_once('e').unwrap_or((&rounded, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    match exponent {
        -4..6 => trimmed(&format!("{value:.*}", (5 - exponent) as usize)),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trimmed(digits), exponent.abs())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_filled() {
        let mut values = [(-3i64) as u64, 1.5f64.to_bits()].into_iter();
        let line = formatted("%lld of 5%%: %g\n", || values.next());
        assert_eq!(line.as_deref(), Some("-3 of 5%: 1.5\n"));
        assert_eq!(formatted("%lld", || None), None);
        assert_eq!(formatted("%s", || Some(0)), None);
    }

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        let written = [
            (0.0, "0"),
            (1.0 / 3.0, "0.333333"),
            (100_000.0, "100000"),
            (1e6, "1e+06"),
            (-2.5e-5, "-2.5e-05"),
            (123_456.7, "123457"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, text) in written {
            assert_eq!(general(value), text);
        }
    }
}
