//! CSV files: text in rows and columns.
//!
//! # Source
//! RFC 4180: fields may stand in quotes, where commas, line ends and doubled quotes are text.

use std::fs;
use std::path::Path;

use genesis_kernel::runtime::Device;

use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// How a CSV file is written.
#[derive(Clone, Copy, Debug)]
pub struct CsvOptions {
    /// What stands between fields.
    pub delimiter: char,
    /// Whether the first row names the columns.
    pub header: bool,
}

impl Default for CsvOptions {
    fn default() -> CsvOptions {
        CsvOptions { delimiter: ',', header: true }
    }
}

/// A table of text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Csv {
    /// The names of the columns; empty without a header.
    pub names: Vec<String>,
    /// The fields, row by row.
    pub rows: Vec<Vec<String>>,
}

impl Csv {
    /// Reads a file. Empty lines are not rows.
    ///
    /// # Errors
    /// If it can't be read, is no UTF-8, has rows of several lengths or a quote that never ends; with
    /// the line.
    pub fn read(path: impl AsRef<Path>, options: CsvOptions) -> Result<Csv> {
        let path = path.as_ref();
        let problem =
            |what: &dyn std::fmt::Display| Error::io(format!("{}: {what}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| problem(&error))?;
        Csv::parse(&text, options).map_err(|error| problem(&error))
    }

    /// Reads text.
    ///
    /// # Errors
    /// As [`Csv::read`].
    pub fn parse(text: &str, options: CsvOptions) -> Result<Csv> {
        let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
        let mut rows = Vec::new();
        let mut width = None;
        for (line, row) in split(text, options.delimiter)? {
            let expected = *width.get_or_insert(row.len());
            if row.len() != expected {
                let message = format!("line {line} has {} fields, expected {expected}", row.len());
                return Err(Error::io(message));
            }
            rows.push(row);
        }
        let header = options.header && !rows.is_empty();
        let names = if header { rows.remove(0) } else { Vec::new() };
        Ok(Csv { names, rows })
    }

    /// The place of a named column.
    ///
    /// # Errors
    /// If there is none, with the names that there are.
    pub fn column(&self, name: &str) -> Result<usize> {
        self.names.iter().position(|own| own == name).ok_or_else(|| {
            Error::io(format!("no column is called {name}; there are {}", self.names.join(", ")))
        })
    }

    /// Some columns as numbers: f32 `[rows, columns]` on the CPU.
    ///
    /// # Errors
    /// If a column is not there or a field is no number, with its row.
    pub fn to_tensor(&self, columns: &[usize]) -> Result<Tensor> {
        let mut values = Vec::with_capacity(self.rows.len() * columns.len());
        for (number, row) in self.rows.iter().enumerate() {
            for &column in columns {
                let field = row.get(column).ok_or_else(|| {
                    Error::io(format!("row {number} has {} fields, none is {column}", row.len()))
                })?;
                values.push(field.trim().parse::<f32>().map_err(|_| {
                    Error::io(format!("row {number}, field {column}: {field:?} is no number"))
                })?);
            }
        }
        Tensor::from_slice_on(&values, &[self.rows.len(), columns.len()], Device::Cpu)
    }
}

/// Rows of fields with the lines that they begin on.
fn split(text: &str, delimiter: char) -> Result<Vec<(usize, Vec<String>)>> {
    let (mut rows, mut row, mut field) = (Vec::new(), Vec::new(), String::new());
    let (mut line, mut start, mut quoted, mut was_quoted) = (1, 1, None, false);
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        line += usize::from(c == '\n');
        match (c, quoted) {
            ('"', Some(_)) if characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            ('"', Some(_)) => quoted = None,
            (c, Some(_)) => field.push(c),
            ('"', None) if field.is_empty() && !was_quoted => {
                (quoted, was_quoted) = (Some(line), true);
            }
            (c, None) if c == delimiter => {
                row.push(std::mem::take(&mut field));
                was_quoted = false;
            }
            ('\r', None) if characters.peek() == Some(&'\n') => {}
            ('\n', None) => {
                if !(row.is_empty() && field.is_empty() && !was_quoted) {
                    row.push(std::mem::take(&mut field));
                    rows.push((start, std::mem::take(&mut row)));
                }
                (start, was_quoted) = (line, false);
            }
            (c, None) => field.push(c),
        }
    }
    if let Some(line) = quoted {
        return Err(Error::io(format!("the quote of line {line} never ends")));
    }
    if !(row.is_empty() && field.is_empty() && !was_quoted) {
        row.push(field);
        rows.push((start, row));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_commas_lines_and_quotes() {
        let text = "a,b\r\n\"x, \"\"y\"\"\nz\",2\n\n\"\",3";
        let csv = Csv::parse(text, CsvOptions::default()).unwrap();
        assert_eq!(csv.names, ["a", "b"]);
        assert_eq!(csv.rows, [vec!["x, \"y\"\nz", "2"], vec!["", "3"]]);
        assert_eq!(
            csv.to_tensor(&[csv.column("b").unwrap()]).unwrap().to_vec::<f32>().unwrap(),
            [2.0, 3.0]
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        let is = |text: &str, what: &str| {
            assert_eq!(Csv::parse(text, CsvOptions::default()).unwrap_err().to_string(), what);
        };
        is("a,b\n1,2\n3\n", "line 3 has 1 fields, expected 2");
        is("a\n\"x\ny", "the quote of line 2 never ends");
        let csv = Csv::parse("a,b\n1,x\n", CsvOptions::default()).unwrap();
        assert_eq!(
            csv.to_tensor(&[1]).unwrap_err().to_string(),
            "row 0, field 1: \"x\" is no number"
        );
        assert_eq!(
            csv.column("c").unwrap_err().to_string(),
            "no column is called c; there are a, b"
        );
        assert_eq!(Csv::parse("", CsvOptions::default()).unwrap().rows.len(), 0);
        let plain = CsvOptions { delimiter: ';', header: false };
        assert_eq!(Csv::parse("1;2", plain).unwrap().rows, [vec!["1", "2"]]);
    }
}
