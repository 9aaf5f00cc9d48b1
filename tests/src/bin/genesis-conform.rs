//! Runs a suite of calls against the library and writes what comes out.
//!
//! ```text
//! genesis-conform run SUITE_DIR OUT_DIR [--device cpu|cuda] [--only ID] [--from ID]
//! genesis-conform judge SUITE_DIR [--device cpu|cuda] [--only ID] [--from ID]
//! genesis-conform pack FILE.. [--device cpu|cuda] [--only ID] [--from ID] [--part I/N]
//! ```
//!
//! `run` writes a file a case; `judge` compares with the suite's answers and prints what differs. `pack`
//! judges the files that `tests/parity` makes, thousands of calls each; `--part 2/16` takes the second
//! sixteenth of the cases, so that several processes share them.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use genesis::Device;
use tests::conform::parity::Group;
use tests::conform::{case, judge};

const USAGE: &str =
    "usage: genesis-conform run SUITE_DIR OUT_DIR [--device cpu|cuda] [--only ID] [--from ID]
       genesis-conform judge SUITE_DIR [--device cpu|cuda] [--only ID] [--from ID]
       genesis-conform pack FILE.. [--device cpu|cuda] [--only ID] [--from ID] [--part I/N]";

#[derive(Default)]
struct Options {
    folders: Vec<PathBuf>,
    device: Option<String>,
    only: Option<String>,
    from: Option<String>,
    part: Option<String>,
}

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Options> {
        let mut options = Options::default();
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut value =
                || arguments.next().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--device" => options.device = Some(value()?),
                "--only" => options.only = Some(value()?),
                "--from" => options.from = Some(value()?),
                "--part" => options.part = Some(value()?),
                flag if flag.starts_with("--") => bail!("unknown option {flag}\n{USAGE}"),
                folder => options.folders.push(PathBuf::from(folder)),
            }
        }
        Ok(options)
    }

    fn device(&self) -> Result<Device> {
        Ok(match self.device.as_deref() {
            None | Some("cpu") => Device::Cpu,
            Some("cuda") => Device::Cuda(0),
            Some(other) => bail!("unknown device {other}\n{USAGE}"),
        })
    }

    fn cases(&self) -> Result<Vec<case::Case>> {
        let mut cases = case::load(self.folders.first().context(USAGE)?)?;
        self.choose(&mut cases)?;
        Ok(cases)
    }

    /// Leaves those cases that the options name.
    fn choose(&self, cases: &mut Vec<case::Case>) -> Result<()> {
        if let Some(part) = &self.part {
            let (number, count) = part.split_once('/').context("a part is I/N")?;
            let (number, count): (usize, usize) = (number.parse()?, count.parse()?);
            ensure!((1..=count).contains(&number), "there is no part {part}");
            let mut at = 0;
            cases.retain(|_| {
                at += 1;
                at % count == number % count
            });
        }
        if let Some(from) = &self.from {
            let start = cases.iter().position(|case| case.id == *from);
            cases.drain(..start.with_context(|| format!("no case {from}"))?);
        }
        if let Some(only) = &self.only {
            cases.retain(|case| case.id == *only);
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    if std::env::args().any(|argument| matches!(argument.as_str(), "--help" | "-h")) {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    // Not the error's own form, which has a backtrace where the environment asks for one.
    command().unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn command() -> Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().context(USAGE)?;
    let options = Options::parse(arguments)?;
    // A panic of the library is caught and written; its backtrace would drown the progress.
    std::panic::set_hook(Box::new(|_| {}));
    match (command.as_str(), options.folders.as_slice()) {
        ("run", [_, out]) => run(&options, out),
        ("judge", [_]) => judged(&options),
        ("pack", [_, ..]) => packs(&options),
        _ => bail!(USAGE),
    }
}

fn run(options: &Options, out: &PathBuf) -> Result<ExitCode> {
    std::fs::create_dir_all(out)?;
    let (device, mut refused) = (options.device()?, 0);
    let cases = options.cases()?;
    for case in &cases {
        // The name first: if the process dies, the last line says where.
        println!("{}", case.id);
        let outcome = case.run(&options.folders[0], device);
        refused += usize::from(outcome.is_err());
        case::write(out, &case.id, &outcome)?;
    }
    println!("{} cases, {refused} refused", cases.len());
    Ok(ExitCode::SUCCESS)
}

fn judged(options: &Options) -> Result<ExitCode> {
    let cases = options.cases()?;
    let verdicts = judge::all(&options.folders[0], &cases, options.device()?);
    let wrong: Vec<&String> = verdicts.iter().filter_map(|v| v.as_ref().err()).collect();
    wrong.iter().for_each(|problem| println!("{problem}"));
    println!("{} of {} right", cases.len() - wrong.len(), cases.len());
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn packs(options: &Options) -> Result<ExitCode> {
    let (device, mut all_right) = (options.device()?, true);
    for path in &options.folders {
        let mut group = Group::read(&std::fs::read(path)?).with_context(|| format!("{path:?}"))?;
        options.choose(&mut group.cases)?;
        let refused = group.cases.iter().filter(|case| case.must_fail()).count();
        let report = group.run(device, "");
        report.wrong.iter().for_each(|problem| println!("{problem}"));
        println!(
            "{}: {} of {} right, {} of them to be refused; {} wrong, {} unsupported {:?}",
            path.display(),
            report.right,
            group.cases.len(),
            refused,
            report.wrong.len(),
            report.unsupported,
            report.missing
        );
        all_right &= report.wrong.is_empty() && report.unsupported == 0;
    }
    Ok(if all_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
