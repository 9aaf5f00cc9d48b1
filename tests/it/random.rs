//! Random numbers: states, generators, threads, and the statistics of every distribution.

use std::collections::BTreeSet;

use genesis::random::{
    Generator, default_generator, fork_rng, get_rng_state, set_rng_state, thread_rng,
};
use genesis::{DType, Device, Result, Tensor, manual_seed};

const CPU: Device = Device::Cpu;

fn draw() -> Result<Vec<f32>> {
    Tensor::randn(&[100], CPU)?.to_vec::<f32>()
}

#[test]
fn the_same_seed_draws_the_same() -> Result<()> {
    let _own = thread_rng(0);
    manual_seed(7);
    assert_eq!(default_generator().initial_seed(), 7);
    let first = draw()?;
    let second = draw()?;
    assert_ne!(first, second);
    manual_seed(7);
    assert_eq!(first, draw()?);
    let state = get_rng_state();
    let third = draw()?;
    set_rng_state(state);
    assert_eq!(third, draw()?);
    let forked = fork_rng(draw)?;
    assert_eq!(forked, draw()?);
    Ok(())
}

#[test]
fn a_generator_is_its_own() -> Result<()> {
    let _own = thread_rng(1);
    let before = get_rng_state();
    let (a, b) = (Generator::new(5), Generator::new(5));
    let x = a.randn(&[10], CPU)?.to_vec::<f32>()?;
    assert_eq!(x, b.randn(&[10], CPU)?.to_vec::<f32>()?);
    assert_eq!(get_rng_state(), before, "the default one is not touched");
    let state = a.state();
    let next = a.rand(&[10], CPU)?.to_vec::<f32>()?;
    b.set_state(state);
    assert_eq!(next, b.rand(&[10], CPU)?.to_vec::<f32>()?);
    let (first, second) = (a.fork(), a.fork());
    assert_ne!(first.initial_seed(), second.initial_seed());
    a.set_state(state);
    b.set_state(state);
    let (x, y) = (a.fork(), b.fork());
    assert_eq!(x.initial_seed(), y.initial_seed(), "equal states fork alike");
    Ok(())
}

/// Threads that share a generator get numbers of their own, whoever comes first.
#[test]
fn threads_share_a_generator() -> Result<()> {
    let generator = Generator::new(11);
    let all: Vec<Vec<i64>> = std::thread::scope(|scope| {
        let run = || -> Result<Vec<i64>> {
            let mut drawn = Vec::new();
            for _ in 0..10 {
                drawn.extend(
                    generator.randint(0, 1 << 32, &[20], (DType::I64, CPU))?.to_vec::<i64>()?,
                );
            }
            Ok(drawn)
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect::<Result<_>>()
    })?;
    let together: BTreeSet<i64> = all.concat().into_iter().collect();
    let generator = Generator::new(11);
    let mut alone = BTreeSet::new();
    for _ in 0..40 {
        alone.extend(generator.randint(0, 1 << 32, &[20], (DType::I64, CPU))?.to_vec::<i64>()?);
    }
    assert_eq!(together, alone);
    Ok(())
}

/// A thread with a default generator of its own neither sees what others draw nor shows what it draws.
#[test]
fn a_thread_may_have_a_default_generator_of_its_own() -> Result<()> {
    let _own = thread_rng(4);
    let want = draw()?;
    set_rng_state(genesis::random::RngState { seed: 4, offset: 0 });
    std::thread::scope(|scope| scope.spawn(|| draw().map(drop)).join()).expect("no panic")?;
    {
        let _inner = thread_rng(9);
        assert_ne!(draw()?, want);
    }
    assert_eq!(draw()?, want);
    Ok(())
}

/// The largest distance between the distribution of a sample and what it should be.
fn distance(mut sample: Vec<f64>, cdf: impl Fn(f64) -> f64) -> f64 {
    sample.sort_by(f64::total_cmp);
    let n = sample.len() as f64;
    let at = |(i, &x): (usize, &f64)| {
        let f = cdf(x);
        (f - i as f64 / n).abs().max((f - (i + 1) as f64 / n).abs())
    };
    sample.iter().enumerate().map(at).fold(0.0, f64::max)
}

fn normal_cdf(x: f64) -> f64 {
    let n = 200;
    let h = x.clamp(-9.0, 9.0) / f64::from(n);
    let density = |t: f64| (-0.5 * t * t).exp();
    let sum: f64 = (0..n).map(|i| density((f64::from(i) + 0.5) * h)).sum();
    0.5 + sum * h / std::f64::consts::TAU.sqrt()
}

/// Kolmogorov and Smirnov's test: of 20,000 draws one in a hundred thousand samples is so far off.
#[test]
fn draws_have_their_distributions() -> Result<()> {
    let g = Generator::new(2024);
    let (n, limit) = (20_000, 2.47 / 20_000f64.sqrt());
    let at = |dtype| (dtype, CPU);
    type Cdf = Box<dyn Fn(f64) -> f64>;
    let cases: Vec<(&str, Tensor, Cdf)> = vec![
        ("rand", g.rand(&[n], CPU)?, Box::new(|x| x)),
        ("rand f64", g.rand(&[n], at(DType::F64))?, Box::new(|x| x)),
        ("uniform", g.uniform(&[n], -3.0, 5.0, CPU)?, Box::new(|x| (x + 3.0) / 8.0)),
        ("randn", g.randn(&[n], CPU)?, Box::new(normal_cdf)),
        ("normal", g.normal(&[n], 2.0, 3.0, CPU)?, Box::new(|x| normal_cdf((x - 2.0) / 3.0))),
        (
            "log_normal",
            g.log_normal(&[n], 0.5, 0.7, CPU)?,
            Box::new(|x| normal_cdf((x.ln() - 0.5) / 0.7)),
        ),
        ("exponential", g.exponential(&[n], 1.5, CPU)?, Box::new(|x| 1.0 - (-1.5 * x).exp())),
        (
            "cauchy",
            g.cauchy(&[n], 1.0, 2.0, CPU)?,
            Box::new(|x| 0.5 + ((x - 1.0) / 2.0).atan() / std::f64::consts::PI),
        ),
        (
            "truncated_normal",
            g.truncated_normal(&[n], [0.5, 2.0], [-1.0, 3.0], CPU)?,
            Box::new(|x| {
                let f = |x: f64| normal_cdf((x - 0.5) / 2.0);
                (f(x) - f(-1.0)) / (f(3.0) - f(-1.0))
            }),
        ),
    ];
    for (name, sample, cdf) in cases {
        let far = distance(sample.to_f64_vec()?, cdf);
        assert!(far < limit, "{name}: {far} is over {limit}");
    }
    Ok(())
}

/// Mean and variance of a sample.
fn moments(sample: &Tensor) -> Result<(f64, f64)> {
    let x = sample.to_dtype(DType::F64)?;
    Ok((x.mean()?.item()?, x.var_dims(&[0], 0.0, false)?.item()?))
}

/// Mean and variance of gamma(a) are both a, those of Poisson's counts both the rate; 5 deviations wide.
#[test]
fn what_is_drawn_by_rejection_has_its_moments() -> Result<()> {
    let (g, n) = (Generator::new(23), 20_000);
    let like = |value: f64| Tensor::full(&[n], value, (DType::F32, CPU));
    let near = |name: &str, sample: Tensor, mean: f64, spread: f64| -> Result<()> {
        let (found, variance) = moments(&sample)?;
        let error = 5.0 * (mean / n as f64).sqrt();
        assert!((found - mean).abs() < error, "{name}({mean}): mean {found}");
        assert!((variance / mean - 1.0).abs() < spread, "{name}({mean}): variance {variance}");
        Ok(())
    };
    for shape in [0.3, 1.0, 2.5, 40.0] {
        near("gamma", g.gamma(&like(shape)?)?, shape, 0.05 + 0.1 / shape)?;
    }
    for rate in [0.5, 4.0, 9.99, 10.0, 75.0] {
        near("poisson", g.poisson(&like(rate)?)?, rate, 0.08)?;
    }
    // gamma(1) is exponential.
    let far = distance(g.gamma(&like(1.0)?)?.to_f64_vec()?, |x| 1.0 - (-x).exp());
    assert!(far < 2.0 / (n as f64).sqrt(), "{far}");
    // Counts come by their probabilities, on both sides of where the method changes.
    for rate in [3.0, 12.0] {
        let drawn = g.poisson(&like(rate)?)?.to_f64_vec()?;
        let mut probability = (-rate).exp();
        let mut weights = Vec::new();
        for k in 1..24 {
            weights.push(probability);
            probability *= rate / f64::from(k);
        }
        let some: Vec<f64> = drawn.into_iter().filter(|&k| k < 23.0).collect();
        let chi = chi_square(&some, &weights[..23]);
        assert!(chi < 70.0, "{rate}: {chi} of 22 free counts");
    }
    let zero = g.poisson(&Tensor::zeros(&[100], CPU)?)?;
    assert_eq!(zero.max()?.item()?, 0.0);
    Ok(())
}

#[test]
fn draws_take_the_place_of_values() -> Result<()> {
    let _own = thread_rng(6);
    let x = Tensor::zeros(&[1000], CPU)?;
    x.uniform_(2.0, 3.0)?;
    assert!(x.min()?.item()? >= 2.0 && x.max()?.item()? < 3.0);
    x.exponential_(2.0)?;
    assert!((x.mean()?.item()? - 0.5).abs() < 0.1);
    x.normal_(5.0, 0.1)?;
    assert!((x.mean()?.item()? - 5.0).abs() < 0.05);
    x.log_normal_(0.0, 0.1)?;
    assert!(x.min()?.item()? > 0.0);
    x.cauchy_(0.0, 1.0)?;
    x.geometric_(0.5)?;
    assert!(x.min()?.item()? >= 1.0);
    x.random_(3, 5)?;
    assert_eq!((x.min()?.item()?, x.max()?.item()?), (3.0, 4.0));
    x.bernoulli_(0.5)?;
    assert!((x.mean()?.item()? - 0.5).abs() < 0.1);
    let leaf = Tensor::zeros(&[2], CPU)?.requires_grad_(true)?;
    assert!(leaf.normal_(0.0, 1.0).is_err());
    Ok(())
}

#[test]
fn ranges_keep_their_ends() -> Result<()> {
    let g = Generator::new(3);
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        let x = g.rand(&[50_000], (dtype, CPU))?;
        let (least, most) = (x.min()?.item()?, x.max()?.item()?);
        assert!(least >= 0.0 && most < 1.0 && most > 0.99, "{dtype}: {least} {most}");
        let mean = x.to_dtype(DType::F64)?.mean()?.item()?;
        assert!((mean - 0.5).abs() < 0.006, "{dtype}: {mean}");
    }
    let t = g.truncated_normal(&[5000], [0.0, 1.0], [-2.0, 2.0], CPU)?;
    assert!(t.min()?.item()? >= -2.0 && t.max()?.item()? <= 2.0);
    assert!(g.exponential(&[50_000], 1.0, CPU)?.min()?.item()? > 0.0);
    let integers = g.randint(-3, 4, &[5000], (DType::I64, CPU))?;
    assert_eq!((integers.min()?.item()?, integers.max()?.item()?), (-3.0, 3.0));
    let trials = g.geometric(&[20_000], 0.25, CPU)?;
    assert_eq!(trials.min()?.item()?, 1.0);
    assert!((trials.mean()?.item()? - 4.0).abs() < 0.15);
    Ok(())
}

/// How many of `n` draws each of `c` categories should get and gets, as chi-square.
fn chi_square(drawn: &[f64], weights: &[f64]) -> f64 {
    let total: f64 = weights.iter().sum();
    let expected = |w: f64| w / total * drawn.len() as f64;
    let count = |k: usize| drawn.iter().filter(|&&d| d == k as f64).count() as f64;
    let part = |(k, &w): (usize, &f64)| (count(k) - expected(w)).powi(2) / expected(w).max(1e-9);
    weights.iter().enumerate().filter(|(_, w)| **w > 0.0).map(part).sum()
}

#[test]
fn categories_come_by_their_weights() -> Result<()> {
    let g = Generator::new(9);
    let weights = [1.0, 0.0, 3.0, 2.0, 4.0];
    let w = Tensor::from_f64(&weights, &[5], CPU)?;
    let drawn = g.multinomial(&w, 10_000, true)?.to_f64_vec()?;
    assert!(!drawn.contains(&1.0), "a weight of 0");
    // One in a hundred thousand of four free counts is over 28.5.
    assert!(chi_square(&drawn, &weights) < 28.5);
    // The first of a draw without replacement is a draw.
    let rows = w.broadcast_to(&[5000, 5])?;
    let without = g.multinomial(&rows, 4, false)?;
    assert_eq!(without.shape(), [5000, 4]);
    let first = without.narrow(1, 0, 1)?.to_f64_vec()?;
    assert!(chi_square(&first, &weights) < 28.5);
    for row in without.to_vec::<i64>()?.chunks(4) {
        assert_eq!(row.iter().collect::<BTreeSet<_>>(), BTreeSet::from([&0, &2, &3, &4]));
    }
    let coins = g.bernoulli(&Tensor::full(&[10_000], 0.3, CPU)?)?;
    assert!((coins.mean()?.item()? - 0.3).abs() < 0.02);
    let certain = Tensor::from_f64(&[0.0, 1.0, 2.0, -1.0, f64::NAN], &[5], CPU)?;
    assert_eq!(g.bernoulli(&certain)?.to_f64_vec()?, [0.0, 1.0, 1.0, 0.0, 0.0]);
    Ok(())
}

#[test]
fn permutations_are_equally_likely() -> Result<()> {
    let g = Generator::new(4);
    let p = g.randperm(1000, (DType::I64, CPU))?.to_vec::<i64>()?;
    assert_eq!(p.iter().copied().collect::<BTreeSet<_>>(), (0..1000).collect());
    let mut codes = Vec::new();
    for _ in 0..1200 {
        let p = g.randperm(3, (DType::I64, CPU))?.to_vec::<i64>()?;
        codes.push((p[0] * 2 + i64::from(p[1] > p[2])) as f64);
    }
    assert!(chi_square(&codes, &[1.0; 6]) < 30.9, "five free counts");
    assert_eq!(g.randperm(0, (DType::I64, CPU))?.shape(), [0]);
    Ok(())
}

/// The original's draws were those of the call before, one place further.
#[test]
fn calls_do_not_depend_on_each_other() -> Result<()> {
    let g = Generator::new(77);
    let n = 20_000usize;
    let draws: Vec<Vec<f64>> =
        (0..3).map(|_| g.randn(&[n], CPU)?.to_f64_vec()).collect::<Result<_>>()?;
    // The correlation of independent samples is normal with deviation 1 / sqrt(n).
    let limit = 4.5 / (n as f64).sqrt();
    for (i, a) in draws.iter().enumerate() {
        for (j, b) in draws.iter().enumerate() {
            for shift in [0usize, 1, 2, 1024] {
                if i == j && shift == 0 {
                    continue;
                }
                let pairs = a[shift..].iter().zip(b);
                let correlation = pairs.map(|(x, y)| x * y).sum::<f64>() / n as f64;
                assert!(correlation.abs() < limit, "calls {i} and {j}, {shift}: {correlation}");
            }
        }
    }
    Ok(())
}

#[test]
fn what_cant_be_drawn_is_refused() -> Result<()> {
    let g = Generator::new(0);
    let refusal = |result: Result<Tensor>| result.expect_err("it is refused").to_string();
    let w = Tensor::from_f64(&[1.0, 0.0], &[2], CPU)?;
    assert_eq!(refusal(g.multinomial(&w, 3, false)), "multinomial: can't draw 3 of 2 categories");
    assert_eq!(
        refusal(g.multinomial(&w, 2, false)),
        "multinomial: needs 2 weights above 0 in each row"
    );
    let bad = Tensor::from_f64(&[1.0, -1.0], &[2], CPU)?;
    assert_eq!(
        refusal(g.multinomial(&bad, 1, true)),
        "multinomial: a weight is negative, infinite or NaN"
    );
    assert_eq!(refusal(g.normal(&[1], 0.0, -1.0, CPU)), "normal: std must not be negative, got -1");
    assert_eq!(
        refusal(g.randint(3, 3, &[1], CPU)),
        "randint: the range 3..3 must hold between 1 and 2^32 integers"
    );
    assert_eq!(refusal(g.geometric(&[1], 1.0, CPU)), "geometric: p must be in (0, 1), got 1");
    assert_eq!(
        refusal(g.exponential(&[1], 0.0, CPU)),
        "exponential: the rate must be above 0, got 0"
    );
    assert_eq!(refusal(g.poisson(&bad)), "poisson: has no distribution of -1");
    assert_eq!(refusal(g.gamma(&w)), "gamma: has no distribution of 0");
    assert!(g.rand(&[2], (DType::I64, CPU)).is_err());
    assert_eq!(g.rand(&[0, 3], CPU)?.shape(), [0, 3]);
    Ok(())
}

/// Every distribution on every device, to the bit.
#[test]
fn devices_draw_the_same() -> Result<()> {
    let all = |device: Device| -> Result<Vec<(&'static str, Vec<f64>)>> {
        let g = Generator::new(31);
        let n = &[5000usize];
        let weights = (0..700).map(|i| f64::from(i % 13)).collect::<Vec<_>>();
        let w = Tensor::from_f64(&weights, &[7, 100], device)?;
        let p = w.div_scalar(13.0)?;
        let tensors = [
            ("rand", g.rand(n, device)?),
            ("rand bf16", g.rand(n, (DType::BF16, device))?),
            ("rand f64", g.rand(n, (DType::F64, device))?),
            ("uniform", g.uniform(n, -1.0, 3.0, device)?),
            ("randn", g.randn(n, device)?),
            ("normal f16", g.normal(n, 1.0, 2.0, (DType::F16, device))?),
            ("log_normal", g.log_normal(n, 0.0, 1.0, device)?),
            ("truncated_normal", g.truncated_normal(n, [0.0, 1.0], [-1.0, 2.0], device)?),
            ("exponential", g.exponential(n, 2.0, device)?),
            ("cauchy", g.cauchy(n, 0.0, 1.0, device)?),
            ("geometric", g.geometric(n, 0.1, device)?),
            ("gamma", g.gamma(&w.add_scalar(0.1)?)?),
            ("poisson", g.poisson(&w.mul_scalar(3.0)?)?),
            ("randint", g.randint(-100, 100, n, (DType::I64, device))?),
            ("randperm", g.randperm(3000, (DType::I64, device))?),
            ("bernoulli", g.bernoulli(&p)?),
            ("multinomial", g.multinomial(&w, 300, true)?),
            ("multinomial, once each", g.multinomial(&w, 50, false)?),
            ("dropout", g.dropout(&Tensor::ones(n, device)?, 0.3)?),
        ];
        tensors.into_iter().map(|(name, t)| Ok((name, t.to_f64_vec()?))).collect()
    };
    let want = all(CPU)?;
    for device in crate::gpu::devices("random numbers") {
        for ((name, got), (_, want)) in all(device)?.iter().zip(&want) {
            let same = got.iter().zip(want).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{name} on {device:?}");
        }
    }
    Ok(())
}

#[test]
fn dropout_draws_its_mask_again_in_the_backward() -> Result<()> {
    let _own = thread_rng(5);
    let x = Tensor::ones(&[1000], CPU)?.requires_grad_(true)?;
    let y = x.dropout(0.25)?;
    y.sum()?.backward()?;
    let (y, dx) = (y.to_vec::<f32>()?, x.grad().expect("x has one").to_vec::<f32>()?);
    assert_eq!(y, dx);
    let zeros = y.iter().filter(|&&v| v == 0.0).count();
    assert!((200..300).contains(&zeros), "{zeros}");
    assert!(y.iter().all(|&v| v == 0.0 || (v - 4.0 / 3.0).abs() < 1e-6));
    Ok(())
}
