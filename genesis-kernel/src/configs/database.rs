//! What was measured, as lines of JSON: one file on this disk, and tables that come with kernels.
//!
//! ```text
//! {"kernel":"matmul","dtypes":["bf16","f32"],"sizes":{"m":4096,"n":4096,"k":4096},"forms":"rrr",
//!  "device":"NVIDIA H200","driver":13,"consts":{"BM":128,"BN":256,"BK":64},
//!  "options":{"num_warps":8,"num_stages":4},"us":173.2,"date":"2026-11-21"}
//! ```
//!
//! A later line of one key counts. A line that is not understood is skipped, so that a program may
//! read what a newer one wrote; nothing that goes wrong with the disk is an error.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::config::option_values;
use super::{Config, Problem};
use crate::front::LaunchOptions;
use crate::front::ast::FnAst;

/// A measured configuration and what it was measured for.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    /// The kernel's name.
    pub kernel: String,
    /// The dtypes, in the order of the kernel's type parameters.
    pub dtypes: Vec<String>,
    /// The sizes, by name, in the key's order.
    pub sizes: Vec<(String, i64)>,
    /// How the views lie; see [`Problem::forms`].
    pub forms: String,
    /// The device's name.
    pub device: String,
    /// The driver's major CUDA version; 0 for the processor.
    pub driver: u32,
    /// The constants, by name.
    pub consts: Vec<(String, i64)>,
    /// Warps, stages, persistence.
    pub options: LaunchOptions,
    /// Microseconds.
    pub us: f64,
    /// The day, as in 2026-11-21.
    pub date: String,
}

/// The file of measurements.
#[derive(Clone, Debug)]
pub struct Database {
    path: PathBuf,
}

impl Record {
    /// The record of a configuration measured today.
    pub fn new(ast: &FnAst, key: &[&str], problem: &Problem<'_>, best: (&Config, f64)) -> Record {
        let named = |names: &[&str], values: &[i64]| -> Vec<(String, i64)> {
            names.iter().map(|name| (*name).to_owned()).zip(values.iter().copied()).collect()
        };
        Record {
            kernel: ast.name.to_owned(),
            dtypes: problem.dtypes.iter().map(|dtype| dtype.name().to_owned()).collect(),
            sizes: named(key, problem.sizes),
            forms: problem.forms(),
            device: problem.machine.key(),
            driver: problem.machine.driver,
            consts: named(ast.declared_consts(), &best.0.consts),
            options: best.0.options,
            us: best.1,
            date: today(),
        }
    }

    /// The line in the file.
    pub fn line(&self) -> String {
        let map = |pairs: &[(String, i64)]| -> Value {
            pairs.iter().map(|(name, value)| (name.clone(), json!(value))).collect()
        };
        let options: Map<String, Value> = option_values(&self.options)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect();
        json!({
            "kernel": self.kernel,
            "dtypes": self.dtypes,
            "sizes": map(&self.sizes),
            "forms": self.forms,
            "device": self.device,
            "driver": self.driver,
            "consts": map(&self.consts),
            "options": options,
            "us": (self.us * 1e3).round() / 1e3,
            "date": self.date,
        })
        .to_string()
    }

    /// The record of a line; none if it makes no sense.
    pub fn from_line(line: &str) -> Option<Record> {
        let value: Value = serde_json::from_str(line).ok()?;
        let text = |name: &str| value.get(name)?.as_str().map(str::to_owned);
        let pairs = |name: &str| -> Option<Vec<(String, i64)>> {
            let map = value.get(name)?.as_object()?;
            map.iter().map(|(name, value)| Some((name.clone(), value.as_i64()?))).collect()
        };
        let dtypes = value.get("dtypes")?.as_array()?;
        let mut options = LaunchOptions::default();
        for (name, value) in pairs("options")? {
            if !options.set(&name, value) {
                return None;
            }
        }
        Some(Record {
            kernel: text("kernel")?,
            dtypes: dtypes.iter().map(|d| d.as_str().map(str::to_owned)).collect::<Option<_>>()?,
            sizes: pairs("sizes")?,
            forms: text("forms")?,
            device: text("device")?,
            driver: u32::try_from(value.get("driver")?.as_u64()?).ok()?,
            consts: pairs("consts")?,
            options,
            us: value.get("us")?.as_f64()?,
            date: text("date")?,
        })
    }

    /// Whether it was measured for this kernel, dtypes, forms and device, whatever the sizes.
    pub fn is_of(&self, ast: &FnAst, problem: &Problem<'_>) -> bool {
        self.kernel == ast.name
            && self.dtypes.iter().map(String::as_str).eq(problem.dtypes.iter().map(|d| d.name()))
            && self.forms == problem.forms()
            && self.device == problem.machine.key()
    }

    /// How far its sizes are from those of a problem: the sum of the logarithms to base 2 of their
    /// ratios; none if they are not the same sizes by name.
    pub fn distance(&self, key: &[&str], sizes: &[i64]) -> Option<f64> {
        if self.sizes.len() != key.len() || sizes.len() != key.len() {
            return None;
        }
        let mut sum = 0.0;
        for ((measured, name), size) in self.sizes.iter().zip(key).zip(sizes) {
            if measured.0 != *name || measured.1 <= 0 || *size <= 0 {
                return None;
            }
            sum += (measured.1 as f64 / *size as f64).log2().abs();
        }
        Some(sum)
    }

    /// The configuration, with the constants in the kernel's order.
    pub fn config(&self, ast: &FnAst) -> Option<Config> {
        let value = |name: &&str| {
            self.consts.iter().find(|(known, _)| known == name).map(|&(_, value)| value)
        };
        let declared = ast.declared_consts();
        let consts = declared.iter().map(value).collect::<Option<_>>()?;
        (self.consts.len() == declared.len()).then_some(Config { consts, options: self.options })
    }

    fn is_for_same(&self, other: &Record) -> bool {
        let key = |r: &Record| {
            let parts = (r.kernel.clone(), r.dtypes.clone(), r.sizes.clone());
            (parts, r.forms.clone(), r.device.clone(), r.driver)
        };
        key(self) == key(other)
    }
}

impl Database {
    /// The database of this user's cache folder.
    pub fn in_folder(dir: &Path) -> Database {
        Database { path: dir.join("tuned.jsonl") }
    }

    /// A database in a file.
    pub fn at(path: impl Into<PathBuf>) -> Database {
        Database { path: path.into() }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every record, each key's last one.
    pub fn records(&self) -> Vec<Record> {
        let mut text = String::new();
        let read = File::open(&self.path).and_then(|mut file| file.read_to_string(&mut text));
        if read.is_err() { Vec::new() } else { parse(&text) }
    }

    /// Adds a record at the end. Writers wait for each other.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn add(&self, record: &Record) -> std::io::Result<()> {
        if let Some(dir) = self.path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        file.lock()?;
        file.write_all(format!("{}\n", record.line()).as_bytes())
    }
}

/// The records of a text, the last one of each key.
pub(crate) fn parse(text: &str) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    for record in text.lines().filter_map(Record::from_line) {
        match records.iter_mut().find(|earlier| earlier.is_for_same(&record)) {
            Some(earlier) => *earlier = record,
            None => records.push(record),
        }
    }
    records
}

/// Today's date, in UTC.
fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    date((since.as_secs() / 86_400) as i64)
}

/// The date of a day counted from 1970-01-01, by the proleptic Gregorian calendar.
fn date(days: i64) -> String {
    // Years of this calendar begin in March, so that the leap day is the last.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Records are read once in a process; see `autotune::choose`.
pub(crate) fn of_this_user() -> &'static [Record] {
    static RECORDS: std::sync::OnceLock<Vec<Record>> = std::sync::OnceLock::new();
    RECORDS.get_or_init(|| match user_database() {
        Some(database) => database.records(),
        None => Vec::new(),
    })
}

/// The database in the cache folder, if there is one.
pub(crate) fn user_database() -> Option<Database> {
    crate::knobs::get().cache_dir.as_deref().map(Database::in_folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(m: i64, us: f64) -> Record {
        Record {
            kernel: "matmul".to_owned(),
            dtypes: vec!["bf16".to_owned()],
            sizes: vec![("m".to_owned(), m), ("k".to_owned(), 64)],
            forms: "rc".to_owned(),
            device: "NVIDIA H200".to_owned(),
            driver: 13,
            consts: vec![("BM".to_owned(), 128), ("BN".to_owned(), 256)],
            options: LaunchOptions {
                num_warps: Some(8),
                num_stages: None,
                persistent: Some(false),
                cluster: None,
                constant: 0,
            },
            us,
            date: "2026-11-21".to_owned(),
        }
    }

    #[test]
    fn a_line_reads_back() {
        let line = record(4096, 173.25).line();
        assert_eq!(Record::from_line(&line), Some(record(4096, 173.25)));
        expect_test::expect![[r#"{"kernel":"matmul","dtypes":["bf16"],"sizes":{"m":4096,"k":64},"forms":"rc","device":"NVIDIA H200","driver":13,"consts":{"BM":128,"BN":256},"options":{"num_warps":8,"persistent":0},"us":173.25,"date":"2026-11-21"}"#]]
        .assert_eq(&line);
    }

    #[test]
    fn nonsense_is_skipped() {
        let text = ["", "{", "[1]", "{\"kernel\":1}", &record(1, 2.0).line()].join("\n");
        assert_eq!(parse(&text), [record(1, 2.0)]);
        let newer = record(1, 2.0).line().replace("num_warps", "num_clusters");
        assert_eq!(Record::from_line(&newer), None);
    }

    #[test]
    fn a_later_line_counts() {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::in_folder(&dir.path().join("new"));
        assert!(database.records().is_empty());
        for record in [record(1, 9.0), record(2, 5.0), record(1, 7.0)] {
            database.add(&record).unwrap();
        }
        assert_eq!(database.records(), [record(1, 7.0), record(2, 5.0)]);
    }

    #[test]
    fn distance_is_in_doublings() {
        let near = record(4096, 1.0);
        assert_eq!(near.distance(&["m", "k"], &[4096, 64]), Some(0.0));
        assert_eq!(near.distance(&["m", "k"], &[2048, 128]), Some(2.0));
        assert_eq!(near.distance(&["n", "k"], &[4096, 64]), None);
        assert_eq!(near.distance(&["m"], &[4096]), None);
    }

    #[test]
    fn constants_come_in_the_kernels_order() {
        let ast = FnAst { consts: &["BN", "BM"], ..crate::configs::samples::TEST_AST };
        assert_eq!(record(1, 1.0).config(&ast).unwrap().consts, [256, 128]);
        let other = FnAst { consts: &["BN"], ..crate::configs::samples::TEST_AST };
        assert_eq!(record(1, 1.0).config(&other), None);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let days = [0, 59, 789, 19_782, 20_778];
        let dates = days.map(date);
        assert_eq!(dates, ["1970-01-01", "1970-03-01", "1972-02-29", "2024-02-29", "2026-11-21"]);
    }
}
