//! Groups of cases made by `tests/parity/generate.py`: drawing their inputs, judging their results.
//!
//! The format of a group's file, and the generator that both sides draw inputs from, are described in
//! `tests/parity/engine.py`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail, ensure};
use genesis::{DType, Device, Tensor};
use half::{bf16, f16};
use serde_json::Value as Json;

use super::call::dtype_of;
use super::case::{self, Case, Outcome};
use super::mutate::{Draw, mutate};
use super::tolerance::{Rule, factor};

/// Cases and their answers.
pub struct Group {
    /// The calls.
    pub cases: Vec<Case>,
    answers: Vec<u8>,
}

/// How the cases of a group went.
#[derive(Default, Debug)]
pub struct Report {
    /// Cases that agree with PyTorch.
    pub right: usize,
    /// Cases of ops that the table of calls has no row for.
    pub unsupported: usize,
    /// Those ops.
    pub missing: BTreeSet<String>,
    /// What differs, a line a case.
    pub wrong: Vec<String>,
}

impl Group {
    /// Reads the file of a group.
    ///
    /// # Errors
    /// If it is not what `generate.py` writes.
    pub fn read(file: &[u8]) -> Result<Group> {
        let mut data = Vec::new();
        flate2::read::GzDecoder::new(file).read_to_end(&mut data)?;
        let (length, rest) = data.split_first_chunk::<8>().context("no length")?;
        let length = u64::from_le_bytes(*length) as usize;
        ensure!(length <= rest.len(), "the manifest is cut off");
        let (manifest, answers) = rest.split_at(length);
        let cases = case::parse(std::str::from_utf8(manifest)?)?;
        Ok(Group { cases, answers: answers.to_vec() })
    }

    /// Runs every case whose id has `filter` in it, on all cores.
    pub fn run(&self, device: Device, filter: &str) -> Report {
        let next = AtomicUsize::new(0);
        let work = || {
            let taken = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
            let cases = taken.map_while(|at| self.cases.get(at)).filter(|c| c.id.contains(filter));
            let mut report = Report::default();
            cases.for_each(|case| self.judge(case, device, &mut report));
            report
        };
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut all = Report::default();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            for worker in workers {
                match worker.join() {
                    Ok(part) => all.add(part),
                    Err(_) => all.wrong.push("a worker died".to_owned()),
                }
            }
        });
        all.wrong.sort();
        all
    }

    /// Runs mutants of every `step`th case and gives those that panicked, with what they said.
    pub fn survives(&self, device: Device, step: usize, seed: u64) -> Vec<String> {
        let mut draw = Draw::new(seed);
        let mut died = Vec::new();
        for case in self.cases.iter().skip(draw.below(step)).step_by(step) {
            let json = mutate(case.json(), &mut draw);
            let Ok(mutant) = Case::from_json(json) else { continue };
            if let Err(message) = mutant.run_with(device, || inputs(&mutant, device))
                && message.starts_with("panic")
            {
                died.push(format!("{message}: {}", mutant.json()));
            }
        }
        died
    }

    fn judge(&self, case: &Case, device: Device, report: &mut Report) {
        let outcome = case.run_with(device, || inputs(case, device));
        match self.compare(case, &outcome) {
            Ok(()) => report.right += 1,
            Err(problem) if problem.to_string().starts_with("unsupported") => {
                report.unsupported += 1;
                report.missing.insert(case.op().to_owned());
            }
            Err(problem) => {
                let dtype = case.field("dtype").as_str().unwrap_or_default();
                report.wrong.push(format!("{} {dtype}: {problem:#}", case.id));
            }
        }
    }

    fn compare(&self, case: &Case, outcome: &Outcome) -> Result<()> {
        let results = match outcome {
            Ok(_) if case.must_fail() => bail!("was not refused"),
            Err(message) if message.starts_with("unsupported") || message.starts_with("panic") => {
                bail!("{message}")
            }
            Err(_) if case.must_fail() => return Ok(()),
            Err(message) => bail!("refused: {message}"),
            Ok(results) => results,
        };
        let count = results.keys().filter(|name| name.starts_with("out")).count();
        let wanted = case.names("out").len();
        ensure!(count == wanted, "{count} results, PyTorch gives {wanted}");
        for (name, answer) in case.field("answers").as_object().context("no answers")? {
            let got = results.get(name).with_context(|| format!("{name} is missing"))?;
            self.same(answer, got).with_context(|| name.clone())?;
        }
        Ok(())
    }

    fn same(&self, answer: &Json, got: &Tensor) -> Result<()> {
        let answer = Answer::read(answer, &self.answers)?;
        ensure!(
            (got.dtype(), got.shape()) == (answer.dtype, answer.shape.as_slice()),
            "is {:?} {:?}, PyTorch's {:?} {:?}",
            got.dtype(),
            got.shape(),
            answer.dtype,
            answer.shape
        );
        let all = got.to_f64_vec()?;
        let values = all.iter().copied().step_by(answer.every);
        let (mut square, mut count, mut worst) = (0.0, 0usize, None);
        for (index, (got, want)) in values.zip(answer.values.iter().copied()).enumerate() {
            let is_zero = got == 0.0 && want == 0.0;
            let exact = answer.rule.is_exact();
            let signs = !(is_zero && answer.rule == Rule::Exact)
                || got.is_sign_negative() == want.is_sign_negative();
            if (got == want && signs) || (got.is_nan() && want.is_nan()) {
                count += 1;
                continue;
            }
            let at = index * answer.every;
            let tell = || format!("element {at} is {got:e}, PyTorch's {want:e}");
            // The answer is in f64, and may lie beyond the largest number of the dtype.
            if rounded(answer.dtype, want) == got {
                count += 1;
                continue;
            }
            ensure!(!exact && got.is_finite() && want.is_finite(), tell());
            let error = (got - want).abs();
            square += error * error;
            count += 1;
            let allowed = answer.rule.allowed(answer.dtype, want);
            if error > allowed && worst.is_none() {
                worst = Some(format!("{}; {error:.2e} off, {allowed:.2e} may be", tell()));
            }
        }
        let Some(problem) = worst else { return Ok(()) };
        ensure!(answer.rule.forgives(), "{problem}");
        let rmse = (square / count.max(1) as f64).sqrt();
        let limit = factor(answer.dtype) * answer.rmse;
        ensure!(rmse <= limit, "{problem}; all have {rmse:.2e} > {limit:.2e}");
        Ok(())
    }
}

impl Report {
    fn add(&mut self, other: Report) {
        self.right += other.right;
        self.unsupported += other.unsupported;
        self.missing.extend(other.missing);
        self.wrong.extend(other.wrong);
    }
}

/// A number as floats of a dtype hold it; another dtype's stays.
fn rounded(dtype: DType, x: f64) -> f64 {
    match dtype {
        DType::F16 => f16::from_f64(x).to_f64(),
        DType::BF16 => bf16::from_f64(x).to_f64(),
        DType::F32 => f64::from(x as f32),
        _ => x,
    }
}

/// An answer of PyTorch.
struct Answer {
    dtype: DType,
    shape: Vec<usize>,
    rule: Rule,
    /// Which elements are kept: those whose index this divides.
    every: usize,
    /// PyTorch's root mean square error.
    rmse: f64,
    values: Vec<f64>,
}

impl Answer {
    fn read(json: &Json, bytes: &[u8]) -> Result<Answer> {
        let shape = counts(&json["shape"])?;
        let every = json["every"].as_u64().unwrap_or(1) as usize;
        let kept = dtype_of(json["kept"].as_str().context("no dtype")?)?;
        let (at, n) = (json["at"].as_u64().context("no place")? as usize, shape.iter().product());
        let len = usize::div_ceil(n, every) * kept.bytes();
        let bytes = bytes.get(at..at + len).context("the answers are cut off")?;
        Ok(Answer {
            dtype: dtype_of(json["dtype"].as_str().context("no dtype")?)?,
            rule: json["rule"].as_str().and_then(Rule::named).context("no rule")?,
            rmse: json["rmse"].as_f64().unwrap_or(0.0),
            values: bytes.chunks_exact(kept.bytes()).map(|b| number(kept, b)).collect(),
            shape,
            every,
        })
    }
}

/// A number of a dtype from its bytes.
fn number(dtype: DType, bytes: &[u8]) -> f64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let word = u64::from_le_bytes(word);
    match dtype {
        DType::F64 => f64::from_bits(word),
        DType::F32 => f64::from(f32::from_bits(word as u32)),
        DType::F16 => f16::from_bits(word as u16).to_f64(),
        DType::BF16 => bf16::from_bits(word as u16).to_f64(),
        DType::I64 => word as i64 as f64,
        DType::I32 => f64::from(word as i32),
        DType::I16 => f64::from(word as i16),
        DType::I8 => f64::from(word as i8),
        _ => word as f64,
    }
}

fn counts(json: &Json) -> Result<Vec<usize>> {
    let items = json.as_array().context("no list")?;
    items.iter().map(|n| Ok(n.as_u64().context("no count")? as usize)).collect()
}

/// The tensors of a case, drawn as its descriptions say.
///
/// # Errors
/// If a description is not what `generate.py` writes.
fn inputs(case: &Case, device: Device) -> Result<BTreeMap<String, Tensor>> {
    let described = case.field("tensors").as_object().context("no tensors")?;
    described.iter().map(|(name, d)| Ok((name.clone(), drawn(d, device)?))).collect()
}

/// 64 bits for an element of a seed.
fn draw(seed: u64, index: u64) -> u64 {
    let z = seed
        .wrapping_mul(0xD134_2543_DE82_EF95)
        .wrapping_add((index + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

fn drawn(d: &Json, device: Device) -> Result<Tensor> {
    let dtype = dtype_of(d["dtype"].as_str().context("no dtype")?)?;
    let (seed, n) = (d["seed"].as_u64().context("no seed")?, d["n"].as_u64().context("no n")?);
    ensure!(n < 1 << 24, "{n} elements are too many for a case");
    let draws = (0..n).map(|index| draw(seed, index));
    let list = |name: &str| -> Option<Vec<f64>> { d[name].as_array()?.iter().map(plain).collect() };
    let values: Vec<f64> = if let Some(values) = list("values") {
        values.iter().copied().cycle().take(n as usize).collect()
    } else if let Some(of) = list("of") {
        ensure!(!of.is_empty(), "nothing to choose from");
        draws.map(|z| of[(z % of.len() as u64) as usize]).collect()
    } else if d["order"].as_bool().unwrap_or(false) {
        let draws: Vec<u64> = draws.collect();
        let mut order: Vec<usize> = (0..draws.len()).collect();
        order.sort_by_key(|&index| draws[index]);
        let mut places = vec![0.0; draws.len()];
        order.iter().enumerate().for_each(|(place, &index)| places[index] = place as f64);
        places
    } else {
        let range = list("range").filter(|range| range.len() == 2).context("no range")?;
        let unit = draws.map(|z| (z >> 11) as f64 / (1u64 << 53) as f64);
        let values = unit.map(|u| range[0] + (range[1] - range[0]) * u);
        if dtype.is_float() { values.collect() } else { values.map(f64::floor).collect() }
    };
    // A 16-bit value is rounded to f32 first, which the other side can't avoid.
    let rounds = matches!(dtype, DType::F16 | DType::BF16);
    let rounded = |v: &f64| if rounds { f64::from(*v as f32) } else { *v };
    let values: Vec<f64> = values.iter().map(rounded).collect();
    let flat = Tensor::from_f64(&values, &[n as usize], (dtype, device))?;
    let stride: Option<Vec<i64>> =
        d["stride"].as_array().and_then(|items| items.iter().map(Json::as_i64).collect());
    let offset = d["offset"].as_u64().unwrap_or(0) as usize;
    Ok(flat.as_strided(&counts(&d["shape"])?, &stride.context("no strides")?, offset)?)
}

/// A number, or NaN or an infinity by name.
fn plain(json: &Json) -> Option<f64> {
    match json["float"].as_str() {
        Some("nan") => Some(f64::NAN),
        Some("inf") => Some(f64::INFINITY),
        Some("-inf") => Some(f64::NEG_INFINITY),
        _ => json.as_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_those_of_the_script() {
        // draws(3, 2) of tests/parity/engine.py.
        let draws = [6750377644635332274, 11294113759289322608];
        assert_eq!([draw(3, 0), draw(3, 1)], draws);
    }
}
