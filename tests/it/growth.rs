//! No op's work grows as the product of two sizes: with twice the elements it takes about twice the time.
//!
//! Of each row of the table of ops the largest sample is scaled: the largest extent, wherever it stands in the shapes
//! of the inputs, is multiplied, so that extents that must agree still do. Times are the least of several runs on the
//! CPU; one that is too short to tell is no evidence, and one that was too long is taken again, as other tests run
//! beside this one.

use std::time::{Duration, Instant};

use genesis::ops::info::{Family, OpInfo, Sample, all};
use genesis::{Device, Tensor};

use crate::ops::{Lay, inputs};

/// Elements of the larger inputs, about: few, so that most ops take less than [`LEAST`] and are done; a product of two
/// such sizes is a hundred times that.
const ELEMENTS: usize = 1 << 15;
/// Twice the elements may take so many times as long.
const MOST: f64 = 2.3;
/// Shorter runs are not compared.
const LEAST: Duration = Duration::from_millis(2);
/// Measurements of an op that seems to take too long.
const ATTEMPTS: usize = 6;

/// Rows whose work is the product of extents that grow together here, and why that must be.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("cdist", "a distance for each pair of rows"),
    ("outer", "a product for each pair of elements"),
];

/// The sample with its largest extent, wherever it stands, this many times as long.
fn scaled(sample: Sample, factor: usize) -> Sample {
    let largest = sample.iter().flat_map(|shape| shape.iter()).copied().max().unwrap_or(1);
    let shapes: Vec<&'static [usize]> = sample
        .iter()
        .map(|shape| -> &'static [usize] {
            let longer = |&n: &usize| if n == largest { n * factor } else { n };
            Vec::leak(shape.iter().map(longer).collect())
        })
        .collect();
    Vec::leak(shapes)
}

fn elements(sample: Sample) -> usize {
    sample.iter().map(|shape| shape.iter().product()).max().unwrap_or(0)
}

/// The least time of a few calls; none where the op refuses these inputs.
fn time(info: &OpInfo, tensors: &[Tensor]) -> Option<Duration> {
    let run = || {
        let begin = Instant::now();
        (info.call)(tensors).ok().map(|_| begin.elapsed())
    };
    // The first compiles.
    let first = run()?;
    if first < LEAST {
        return Some(first);
    }
    let times: Option<Vec<Duration>> = (0..3).map(|_| run()).collect();
    times?.into_iter().chain([first]).min()
}

/// How many times as long twice the elements take, if that can be told.
fn growth(info: &OpInfo) -> Option<f64> {
    let sample = info.samples.iter().copied().max_by_key(|sample| elements(sample))?;
    let factor = (ELEMENTS / 2).checked_div(elements(sample))?.max(1);
    let dtype = info.dtypes.first().copied()?;
    let at = |factor: usize| -> Option<Vec<Tensor>> {
        let sample = scaled(sample, factor);
        (elements(sample) <= 8 * ELEMENTS)
            .then(|| inputs(info, sample, dtype, Lay::Contiguous, Device::Cpu).ok())
            .flatten()
            .map(|(_, tensors)| tensors)
    };
    // A result of as many elements as the product of two sizes takes as long.
    let numel = |factor: usize| Some((info.call)(&at(factor)?).ok()?.numel());
    if numel(4)? > 3 * numel(2)? {
        return None;
    }
    let (one, two) = (at(factor)?, at(2 * factor)?);
    let mut least = f64::INFINITY;
    for _ in 0..ATTEMPTS {
        let long = time(info, &two)?;
        if long < LEAST {
            return Some(1.0);
        }
        least = least.min(long.as_secs_f64() / time(info, &one)?.as_secs_f64());
        if least <= MOST {
            break;
        }
    }
    Some(least)
}

#[test]
fn no_op_takes_much_more_than_twice_as_long_for_twice_the_elements() {
    let is_exempt = |info: &OpInfo| {
        let name = info.name.split('/').next().unwrap_or_default();
        info.family == Family::MatMul || EXCEPTIONS.iter().any(|(known, _)| *known == name)
    };
    let rows: Vec<&OpInfo> = all().into_iter().filter(|info| !is_exempt(info)).collect();
    let measured: Vec<(&str, f64)> =
        rows.iter().filter_map(|info| Some((info.name, growth(info)?))).collect();
    // Rows that take other shapes only as they are cannot be scaled.
    assert!(measured.len() * 2 > rows.len(), "{} of {} rows", measured.len(), rows.len());
    let slow: Vec<String> = measured
        .iter()
        .filter(|(_, times)| *times > MOST)
        .map(|(name, times)| format!("{name}: {times:.1} times"))
        .collect();
    assert!(slow.is_empty(), "twice the elements take too long:\n{}", slow.join("\n"));
}
