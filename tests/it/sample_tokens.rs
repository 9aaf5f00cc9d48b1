//! Tokens drawn on the device, beside a sort of the same weights on the host.

use genesis::ops::{Penalties, SampleTokens};
use genesis::random::Generator;
use genesis::{DType, Device, Result, Tensor};

use crate::gpu::devices;

/// The settings of a row.
#[derive(Clone, Copy, Debug)]
struct Row {
    temperature: f32,
    top_k: i64,
    top_p: f32,
    min_p: f32,
    seed: i64,
    position: i64,
}

const PLAIN: Row = Row { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 1, position: 0 };

fn floats(values: impl Iterator<Item = f32>, on: Device) -> Result<Tensor> {
    let values: Vec<f32> = values.collect();
    Tensor::from_slice_on(&values, &[values.len()], on)
}

fn wholes(values: impl Iterator<Item = i64>, on: Device) -> Result<Tensor> {
    let values: Vec<i64> = values.collect();
    Tensor::from_slice_on(&values, &[values.len()], on)
}

fn draw(
    logits: &Tensor,
    rows: &[Row],
    penalties: Option<Penalties<'_>>,
) -> Result<(Vec<i64>, Vec<f32>)> {
    let on = logits.device();
    let settings = SampleTokens {
        temperature: &floats(rows.iter().map(|row| row.temperature), on)?,
        top_k: &wholes(rows.iter().map(|row| row.top_k), on)?,
        top_p: &floats(rows.iter().map(|row| row.top_p), on)?,
        min_p: &floats(rows.iter().map(|row| row.min_p), on)?,
        seed: &wholes(rows.iter().map(|row| row.seed), on)?,
        position: &wholes(rows.iter().map(|row| row.position), on)?,
        penalties,
    };
    let (token, logprob) = logits.sample_tokens(&settings)?;
    Ok((token.to_vec::<i64>()?, logprob.to_vec::<f32>()?))
}

/// What may be drawn of a row, by a sort: by value, then by place. Weights are exact but for the last bits
/// of the exponential; `margin` says how near a bound of top-p or min-p a choice came, relative to it.
fn allowed(logits: &[f32], row: &Row) -> (Vec<usize>, f64) {
    let x: Vec<f32> = logits
        .iter()
        .map(|&v| if v.is_nan() { f32::NEG_INFINITY } else { v / row.temperature })
        .collect();
    let mut order: Vec<usize> = (0..x.len()).collect();
    order.sort_by(|&a, &b| x[b].partial_cmp(&x[a]).expect("no NaN").then(a.cmp(&b)));
    let top = x[order[0]];
    let weight = |&i: &usize| if x[i] == top { 1.0 } else { f64::from(x[i] - top).exp() };
    if row.top_k > 0 {
        order.truncate(row.top_k as usize);
    }
    let mut margin = f64::INFINITY;
    if row.top_p < 1.0 {
        let wanted = order.iter().map(weight).sum::<f64>() * f64::from(row.top_p);
        let mut sum = 0.0;
        let mut kept = 0;
        while kept == 0 || (kept < order.len() && sum < wanted) {
            sum += weight(&order[kept]);
            kept += 1;
            margin = margin.min((sum / wanted - 1.0).abs());
        }
        order.truncate(kept);
    }
    let is_in = |i: &usize| weight(i) >= f64::from(row.min_p);
    for i in &order {
        margin = margin.min((weight(i) / f64::from(row.min_p) - 1.0).abs());
    }
    order.retain(is_in);
    order.retain(|i| weight(i) > 1e-12);
    (order, margin)
}

/// Rows with ties, infinities and NaN.
fn hostile(n: usize, seed: u64) -> Result<Vec<f32>> {
    let random = Generator::new(seed);
    let mut x = random.randn(&[n], Device::Cpu)?.to_vec::<f32>()?;
    match seed % 5 {
        // Many ties.
        1 => x.iter_mut().for_each(|x| *x = (*x * 2.0).round()),
        2 => x.iter_mut().step_by(3).for_each(|x| *x = f32::NEG_INFINITY),
        3 => x.iter_mut().for_each(|x| *x = (*x * 8.0).round()),
        4 => x[n / 2] = f32::NAN,
        _ => {}
    }
    Ok(x)
}

/// Every token of a row that may be drawn is, and no other one: many seeds for each of many rows.
#[test]
fn what_is_drawn_is_what_a_sort_would_keep() -> Result<()> {
    for on in devices("sampling") {
        for number in 0..60 {
            let n = [5, 17, 64, 300, 2500][number as usize % 5];
            let logits = hostile(n, number)?;
            let row = Row {
                temperature: [0.7, 1.0, 1.5][number as usize % 3],
                top_k: [0, 3, 7, 1, 0, 40][number as usize % 6],
                top_p: [1.0, 0.9, 0.5, 0.0][number as usize % 4],
                min_p: [0.0, 0.0, 0.1][number as usize / 4 % 3],
                ..PLAIN
            };
            let (kept, margin) = allowed(&logits, &row);
            if margin < 1e-5 {
                continue;
            }
            let draws = 200;
            let rows: Vec<Row> = (0..draws).map(|seed| Row { seed, position: 3, ..row }).collect();
            let one = Tensor::from_slice_on(&logits, &[1, n], on)?;
            let many = one.broadcast_to(&[draws as usize, n])?.contiguous()?;
            let (tokens, logprobs) = draw(&many, &rows, None)?;
            for (&token, &logprob) in tokens.iter().zip(&logprobs) {
                let is_in = kept.contains(&(token as usize));
                assert!(is_in, "{on} row {number} {row:?}: {token} is none of {kept:?}");
                let finite = logits.iter().filter(|v| !v.is_nan());
                let total: f64 = finite.map(|&v| f64::from(v).exp()).sum();
                let wanted = f64::from(logits[token as usize]) - total.ln();
                assert!((f64::from(logprob) - wanted).abs() < 1e-4, "{logprob} not {wanted}");
            }
            if kept.len() <= 7 {
                let found = |i: &usize| tokens.contains(&(*i as i64));
                let top = f64::from(kept.iter().map(|&i| logits[i]).fold(f32::MIN, f32::max));
                let share = |i: &&usize| {
                    ((f64::from(logits[**i]) - top) / f64::from(row.temperature)).exp() > 0.2
                };
                assert!(
                    kept.iter().filter(share).all(found),
                    "{on} row {number}: {kept:?} {tokens:?}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn tokens_come_as_often_as_they_are_probable() -> Result<()> {
    for on in devices("sampling") {
        let logits = [1.0f32, 0.0, 2.0, 1.0, f32::NEG_INFINITY];
        let draws = 20_000;
        let one = Tensor::from_slice_on(&logits, &[1, 5], on)?;
        let many = one.broadcast_to(&[draws, 5])?.contiguous()?;
        let rows: Vec<Row> = (0..draws as i64).map(|position| Row { position, ..PLAIN }).collect();
        let (tokens, _) = draw(&many, &rows, None)?;
        let total: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
        for (i, &x) in logits.iter().enumerate() {
            let p = f64::from(x).exp() / total;
            let share = tokens.iter().filter(|&&t| t == i as i64).count() as f64 / draws as f64;
            let deviation = (p * (1.0 - p) / draws as f64).sqrt();
            assert!((share - p).abs() <= 4.0 * deviation, "{on} token {i}: {share} of {p}");
        }
    }
    Ok(())
}

#[test]
fn a_temperature_of_0_takes_the_first_of_the_largest() -> Result<()> {
    for on in devices("sampling") {
        for n in [1, 63, 1025, 151_936] {
            for dtype in [DType::F32, DType::BF16] {
                let mut x = vec![-2.0f32; 3 * n];
                x[n - 1] = 7.0;
                x[n / 2] = 7.0;
                // All alike, and no number at all.
                x[2 * n..].fill(f32::NAN);
                let logits = Tensor::from_slice(&x, &[3, n])?.to_dtype(dtype)?.to_device(on)?;
                let rows = [Row { temperature: 0.0, ..PLAIN }; 3];
                let (tokens, logprobs) = draw(&logits, &rows, None)?;
                assert_eq!(tokens, [(n / 2) as i64, 0, -1], "{on} {n} {dtype}");
                assert!((f64::from(logprobs[1]) + (n as f64).ln()).abs() < 1e-4);
                assert!((f64::from(logprobs[2]) + (n as f64).ln()).abs() < 1e-4);
            }
        }
    }
    Ok(())
}

#[test]
fn a_large_vocabulary_keeps_exactly_k_of_equal_tokens() -> Result<()> {
    for on in devices("sampling") {
        let n = 151_936;
        let logits = Tensor::zeros(&[40, n], (DType::F32, on))?;
        let rows: Vec<Row> = (0..40).map(|seed| Row { top_k: 5, seed, ..PLAIN }).collect();
        let (tokens, _) = draw(&logits, &rows, None)?;
        assert!(tokens.iter().all(|&t| t < 5), "{on}: {tokens:?}");
        assert!((0..5).all(|i| tokens.contains(&i)), "{on}: {tokens:?}");
        let p = 3.5 / n as f32;
        let rows: Vec<Row> = (0..40).map(|seed| Row { top_p: p, seed, ..PLAIN }).collect();
        let (tokens, _) = draw(&logits, &rows, None)?;
        assert!(tokens.iter().all(|&t| t < 4) && tokens.contains(&3), "{on}: {tokens:?}");
    }
    Ok(())
}

#[test]
fn a_row_draws_the_same_in_every_batch() -> Result<()> {
    for on in devices("sampling") {
        let logits = Generator::new(9).randn(&[33, 500], Device::Cpu)?.to_device(on)?;
        let row = |i: i64| Row { top_k: 50, top_p: 0.95, seed: i % 3, position: i, ..PLAIN };
        let rows: Vec<Row> = (0..33).map(row).collect();
        let (tokens, logprobs) = draw(&logits, &rows, None)?;
        for i in 0..33 {
            let one = logits.narrow(0, i, 1)?;
            let alone = draw(&one, &[rows[i]], None)?;
            assert_eq!((alone.0[0], alone.1[0]), (tokens[i], logprobs[i]));
        }
    }
    Ok(())
}

#[test]
fn penalties_move_the_largest_logit() -> Result<()> {
    for on in devices("sampling") {
        // Token 0 leads; it is in the prompt of row 1, and twice in the output of rows 2 and 3.
        let x = [2.0f32, 1.5, -1.0, -4.0];
        let one = Tensor::from_slice_on(&x, &[1, 4], on)?;
        let logits = one.broadcast_to(&[5, 4])?.contiguous()?;
        let counts = |rows: [[i32; 4]; 5]| Tensor::from_slice_on(&rows.concat(), &[5, 4], on);
        let none = [0; 4];
        let prompt = counts([none, [1, 0, 0, 0], none, none, [1, 1, 1, 0]])?;
        let output = counts([none, none, [2, 0, 0, 0], [2, 0, 0, 0], none])?;
        let penalties = Penalties {
            repetition: &floats([2.0, 2.0, 1.0, 1.0, 5.0].into_iter(), on)?,
            presence: &floats([9.0, 9.0, 0.4, 0.0, 0.0].into_iter(), on)?,
            frequency: &floats([9.0, 9.0, 0.0, 0.3, 0.0].into_iter(), on)?,
            prompt: &prompt,
            output: &output,
        };
        let rows = [Row { temperature: 0.0, ..PLAIN }; 5];
        let (tokens, logprobs) = draw(&logits, &rows, Some(penalties))?;
        // 2; 2 / 2; 2 - 0.4 is still more than 1.5; 2 - 0.6 is not; 2 / 5 is more than 1.5 / 5 and -5.
        assert_eq!(tokens, [0, 1, 0, 1, 0], "{on}");
        let total: f64 = x.iter().map(|&x| f64::from(x).exp()).sum();
        assert!((f64::from(logprobs[1]) - (1.5 - total.ln())).abs() < 1e-5);
    }
    Ok(())
}

#[test]
fn sampling_refuses_settings_that_do_not_fit() -> Result<()> {
    let logits = Tensor::zeros(&[2, 4], (DType::F32, Device::Cpu))?;
    let error = draw(&logits, &[PLAIN], None).expect_err("one row of settings for two");
    let wanted = "sample_tokens: top_k must be i64 [2] on cpu, got i64 [1] on cpu";
    assert_eq!(error.to_string(), wanted);
    let error = draw(&logits.reshape(&[8])?, &[PLAIN], None).expect_err("one axis");
    assert_eq!(error.to_string(), "sample_tokens: needs logits [R, V], got [8]");
    Ok(())
}
