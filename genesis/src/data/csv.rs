//! CSV files: text in rows and columns.
//!
//! # Source
//! RFC 4180: fields may stand in quotes, where commas, line ends and doubled quotes are text.

use std::path::Path;

use genesis_kernel::runtime::Device;

use crate::error::{Error, Result};
use crate::files::read_regular_text;
use crate::tensor::Tensor;
use crate::tensor::host::reserved;

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
///
/// All fields lie in one text, so that a table takes the memory of its file and four bytes a field.
///
/// # Examples
/// ```
/// use genesis::data::{Csv, CsvOptions};
///
/// let csv = Csv::parse("name,age\nAda,36\nAlan,41\n", CsvOptions::default())?;
/// assert_eq!((csv.len(), csv.get(1, csv.column("name")?)), (2, Some("Alan")));
/// let ages: Vec<Option<&str>> = csv.rows().map(|mut row| row.nth(1)).collect();
/// assert_eq!(ages, [Some("36"), Some("41")]);
/// # Ok::<(), genesis::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Csv {
    /// The names of the columns; empty without a header.
    pub names: Vec<String>,
    /// All fields, row by row, one after another.
    text: String,
    /// Where each field ends in the text.
    ends: Ends,
    /// Fields of a row.
    width: usize,
}

/// Places in a text; half as large where it is below 4 GiB.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Ends {
    Short(Vec<u32>),
    Long(Vec<usize>),
}

impl Ends {
    fn new(fields: usize, bytes: usize) -> Result<Ends> {
        let room = match u32::try_from(bytes) {
            Ok(_) => reserved(fields).map(Ends::Short),
            Err(_) => reserved(fields).map(Ends::Long),
        };
        room.map_err(Error::io)
    }

    fn push(&mut self, end: usize) {
        match self {
            Ends::Short(ends) => ends.push(end as u32),
            Ends::Long(ends) => ends.push(end),
        }
    }

    fn len(&self) -> usize {
        match self {
            Ends::Short(ends) => ends.len(),
            Ends::Long(ends) => ends.len(),
        }
    }

    fn get(&self, field: usize) -> Option<usize> {
        match self {
            Ends::Short(ends) => ends.get(field).map(|&end| end as usize),
            Ends::Long(ends) => ends.get(field).copied(),
        }
    }

    fn clear(&mut self) {
        match self {
            Ends::Short(ends) => ends.clear(),
            Ends::Long(ends) => ends.clear(),
        }
    }

    fn shrink(&mut self) {
        match self {
            Ends::Short(ends) => ends.shrink_to_fit(),
            Ends::Long(ends) => ends.shrink_to_fit(),
        }
    }
}

impl Csv {
    /// Reads a file. Empty lines are not rows.
    ///
    /// # Errors
    /// If it can't be read, is no UTF-8, has rows of several lengths or a quote that never ends; with
    /// the line.
    pub fn read(path: impl AsRef<Path>, options: CsvOptions) -> Result<Csv> {
        let path = path.as_ref();
        let text = read_regular_text(path)?;
        Csv::parse(&text, options)
            .map_err(|error| Error::io(format!("{}: {error}", path.display())))
    }

    /// Reads text.
    ///
    /// # Errors
    /// As [`Csv::read`].
    pub fn parse(text: &str, options: CsvOptions) -> Result<Csv> {
        let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
        Parser::new(text, options)?.parse(text, options.delimiter)
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.ends.len().checked_div(self.width).unwrap_or(0)
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The field at a row and a column; `None` where there is none.
    pub fn get(&self, row: usize, column: usize) -> Option<&str> {
        if column >= self.width {
            return None;
        }
        let field = row.checked_mul(self.width)?.checked_add(column)?;
        let start = field.checked_sub(1).map_or(Some(0), |before| self.ends.get(before))?;
        Some(&self.text[start..self.ends.get(field)?])
    }

    /// The fields of each row.
    pub fn rows(&self) -> impl Iterator<Item = impl Iterator<Item = &str>> {
        let row = move |row| (0..self.width).filter_map(move |column| self.get(row, column));
        (0..self.len()).map(row)
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
        let mut values = reserved(self.len().saturating_mul(columns.len())).map_err(Error::io)?;
        for row in 0..self.len() {
            for &column in columns {
                let field = self.get(row, column).ok_or_else(|| {
                    Error::io(format!("row {row} has {} fields, none is {column}", self.width))
                })?;
                values.push(field.trim().parse::<f32>().map_err(|_| {
                    Error::io(format!("row {row}, field {column}: {field:?} is no number"))
                })?);
            }
        }
        Tensor::from_slice_on(&values, &[self.len(), columns.len()], Device::Cpu)
    }
}

/// A table that grows field by field.
struct Parser {
    table: Csv,
    has_header: bool,
    /// Fields of the row that is read.
    fields: usize,
    /// Where the field that is read begins.
    start: usize,
    /// Whether it is or was in quotes: then it is one though it may be empty.
    was_quoted: bool,
    /// Whether the first row, which says how many fields there are, is over.
    has_width: bool,
}

impl Parser {
    fn new(text: &str, options: CsvOptions) -> Result<Parser> {
        // Most fields end at one of these; quoted ones make it fewer.
        let separators = text.matches([options.delimiter, '\n']).count();
        let ends = Ends::new(separators.saturating_add(1), text.len())?;
        let mut fields = String::new();
        let room = fields.try_reserve_exact(text.len());
        room.map_err(|_| Error::io(format!("{} bytes of text are too many", text.len())))?;
        let table = Csv { names: Vec::new(), text: fields, ends, width: 0 };
        Ok(Parser {
            table,
            has_header: options.header,
            fields: 0,
            start: 0,
            was_quoted: false,
            has_width: false,
        })
    }

    fn parse(mut self, text: &str, delimiter: char) -> Result<Csv> {
        let (mut line, mut row_line, mut quoted) = (1, 1, None);
        let mut characters = text.chars().peekable();
        while let Some(c) = characters.next() {
            line += usize::from(c == '\n');
            match (c, quoted) {
                ('"', Some(_)) if characters.peek() == Some(&'"') => {
                    characters.next();
                    self.table.text.push('"');
                }
                ('"', Some(_)) => quoted = None,
                (c, Some(_)) => self.table.text.push(c),
                ('"', None) if self.is_at_start() && !self.was_quoted => {
                    (quoted, self.was_quoted) = (Some(line), true);
                }
                (c, None) if c == delimiter => self.end_field(),
                ('\r', None) if characters.peek() == Some(&'\n') => {}
                ('\n', None) => {
                    self.end_row(row_line)?;
                    row_line = line;
                }
                (c, None) => self.table.text.push(c),
            }
        }
        if let Some(line) = quoted {
            return Err(Error::io(format!("the quote of line {line} never ends")));
        }
        self.end_row(row_line)?;
        self.table.text.shrink_to_fit();
        self.table.ends.shrink();
        Ok(self.table)
    }

    fn is_at_start(&self) -> bool {
        self.table.text.len() == self.start
    }

    fn end_field(&mut self) {
        self.start = self.table.text.len();
        self.table.ends.push(self.start);
        self.fields += 1;
        self.was_quoted = false;
    }

    /// Ends the row that began on this line, if there is anything in it.
    fn end_row(&mut self, line: usize) -> Result<()> {
        if self.fields == 0 && self.is_at_start() && !self.was_quoted {
            return Ok(());
        }
        self.end_field();
        let fields = std::mem::take(&mut self.fields);
        if self.has_width {
            let expected = self.table.width;
            if fields != expected {
                let message = format!("line {line} has {fields} fields, expected {expected}");
                return Err(Error::io(message));
            }
            return Ok(());
        }
        (self.has_width, self.table.width) = (true, fields);
        if self.has_header {
            let names = (0..fields).filter_map(|column| self.table.get(0, column));
            self.table.names = names.map(str::to_owned).collect();
            self.table.text.clear();
            self.table.ends.clear();
            self.start = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(csv: &Csv) -> Vec<Vec<&str>> {
        csv.rows().map(Iterator::collect).collect()
    }

    #[test]
    fn a_table_is_not_much_larger_than_its_text() {
        let text = "1,".repeat(99) + "1\n";
        let csv = Csv::parse(&text.repeat(100), CsvOptions::default()).unwrap();
        let Ends::Short(ends) = &csv.ends else { panic!("places of 4 bytes are enough") };
        assert_eq!((csv.text.capacity(), ends.capacity()), (9_900, 9_900));
        assert_eq!((csv.len(), csv.width(), csv.get(98, 99)), (99, 100, Some("1")));
    }

    #[test]
    fn quotes_hold_commas_lines_and_quotes() {
        let text = "a,b\r\n\"x, \"\"y\"\"\nz\",2\n\n\"\",3";
        let csv = Csv::parse(text, CsvOptions::default()).unwrap();
        assert_eq!(csv.names, ["a", "b"]);
        assert_eq!(rows(&csv), [vec!["x, \"y\"\nz", "2"], vec!["", "3"]]);
        assert_eq!((csv.get(0, 2), csv.get(2, 0), csv.get(usize::MAX, 1)), (None, None, None));
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
        assert_eq!(Csv::parse("", CsvOptions::default()).unwrap().len(), 0);
        let plain = CsvOptions { delimiter: ';', header: false };
        assert_eq!(rows(&Csv::parse("1;2", plain).unwrap()), [vec!["1", "2"]]);
    }
}
