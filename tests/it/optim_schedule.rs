//! Schedules beside PyTorch's.

use genesis::optim::schedule::{
    Anneal, Chained, Constant, Cosine, CosineRestarts, Cyclic, CyclicMode, Exponential,
    InverseSqrt, Lambda, Linear, LrScheduler, MultiStep, OneCycle, Plateau, PlateauMode,
    Polynomial, Schedule, Sequential, StepDecay, WarmupStableDecay,
};
use genesis::optim::{Adam, AdamOptions, Optimizer, Sgd, SgdOptions};
use genesis::{Device, Result, Tensor};

/// The schedule of each fixture.
fn schedules() -> Vec<(&'static str, Box<dyn Schedule>)> {
    let stable =
        |linear| WarmupStableDecay { warmup: 5, stable: 10, decay: 20, min_factor: 0.1, linear };
    let cyclic = |up, down, mode| Cyclic {
        base_lr: 0.1,
        max_lr: 0.5,
        step_size_up: up,
        step_size_down: down,
        mode,
        momentum: Some((0.8, 0.9)),
    };
    let three = OneCycle {
        pct_start: 0.4,
        anneal: Anneal::Linear,
        three_phase: true,
        ..OneCycle::new(0.5, 41)
    };
    let warm_up = Linear { start_factor: 0.1, end_factor: 1.0, total_iters: 10 };
    let linear = Linear { start_factor: 0.25, end_factor: 0.75, total_iters: 8 };
    let milestones = vec![3, 10, 10, 25];
    vec![
        ("constant", Box::new(Constant::default())),
        ("linear", Box::new(linear)),
        ("exponential", Box::new(Exponential { gamma: 0.9 })),
        ("step", Box::new(StepDecay { step_size: 7, gamma: 0.5 })),
        ("multi step", Box::new(MultiStep { milestones, gamma: 0.5 })),
        ("polynomial", Box::new(Polynomial { total_iters: 30, power: 2.0 })),
        ("cosine", Box::new(Cosine { t_max: 15, eta_min: 0.01 })),
        ("restarts", Box::new(CosineRestarts { t_0: 5, t_mult: 2, eta_min: 0.01 })),
        ("restarts alike", Box::new(CosineRestarts { t_0: 7, t_mult: 1, eta_min: 0.0 })),
        ("one cycle", Box::new(OneCycle::new(0.5, 41))),
        ("one cycle three", Box::new(three)),
        ("cyclic", Box::new(cyclic(4, 6, CyclicMode::Triangular))),
        ("cyclic halves", Box::new(cyclic(5, 5, CyclicMode::Triangular2))),
        ("cyclic falls", Box::new(cyclic(5, 5, CyclicMode::ExpRange(0.95)))),
        ("inverse sqrt", Box::new(InverseSqrt { warmup: 8 })),
        ("warm-up stable decay", Box::new(stable(false))),
        ("warm-up stable line", Box::new(stable(true))),
        ("lambda", Box::new(Lambda(|step| 1.0 / (1.0 + step as f64)))),
        (
            "sequential",
            Box::new(
                Sequential::new(warm_up)
                    .then(10, Cosine { t_max: 20, eta_min: 0.0 })
                    .then(30, Exponential { gamma: 0.9 }),
            ),
        ),
        (
            "chained",
            Box::new(
                Chained::new()
                    .with(Constant { factor: 0.1, total_iters: 7 })
                    .with(Exponential { gamma: 0.9 }),
            ),
        ),
    ]
}

fn fixture() -> serde_json::Value {
    let text = include_str!("../fixtures/optim/schedules.json");
    serde_json::from_str(text).expect("a committed file")
}

fn rates(value: &serde_json::Value) -> Vec<f64> {
    let list = value.as_array().expect("a list of numbers");
    list.iter().map(|number| number.as_f64().expect("a number")).collect()
}

fn optimizer() -> Sgd {
    Sgd::new(Vec::<Tensor>::new(), SgdOptions { lr: 0.3, ..Default::default() })
}

#[test]
fn forty_rates_are_those_of_pytorch() {
    let all = fixture();
    for (name, schedule) in schedules() {
        let want = rates(&all[name]);
        assert_eq!(want.len(), 41, "{name}");
        let mut sgd = optimizer();
        let mut scheduler = LrScheduler::new(&mut sgd, schedule);
        for (step, &want) in want.iter().enumerate() {
            let got = sgd.lr();
            assert!((got - want).abs() <= 1e-12, "{name} step {step}: {got} is not {want}");
            scheduler.step(&mut sgd);
        }
    }
    // Three entries are no schedules: the metrics and two plateaus.
    assert_eq!(all.as_object().map(serde_json::Map::len), Some(schedules().len() + 3));
}

#[test]
fn plateaus_are_those_of_pytorch() -> Result<()> {
    let all = fixture();
    let mut relative = Plateau::new(PlateauMode::MinRelative);
    (relative.threshold, relative.min_lr) = (1e-2, 0.05);
    let mut absolute = Plateau::new(PlateauMode::MaxAbsolute);
    (absolute.threshold, absolute.cooldown) = (0.1, 3);
    for (name, plateau) in [("plateau min rel", relative), ("plateau max abs", absolute)] {
        let (mut sgd, mut plateau) = (optimizer(), plateau);
        (plateau.factor, plateau.patience) = (0.5, 2);
        for (step, (metric, want)) in
            rates(&all["metrics"]).into_iter().zip(rates(&all[name])).enumerate()
        {
            // Going on from a saved state is the same.
            let mut other = plateau.clone();
            other.load_state_dict(&plateau.state_dict())?;
            plateau = other;
            plateau.step(metric, &mut sgd);
            assert!((sgd.lr() - want).abs() < 1e-15, "{name} step {step}: {}", sgd.lr());
        }
        assert!(sgd.lr() < 0.3, "{name} never reduced");
    }
    Ok(())
}

#[test]
fn a_scheduler_goes_on_from_its_state() -> Result<()> {
    let mut sgd = optimizer();
    sgd.add_group(Vec::<Tensor>::new(), SgdOptions { lr: 0.6, ..Default::default() })?;
    let mut scheduler = LrScheduler::new(&mut sgd, Exponential { gamma: 0.5 });
    scheduler.step(&mut sgd);
    assert_eq!(sgd.lrs(), [0.15, 0.3]);
    let state = scheduler.state_dict();
    let mut other = LrScheduler::new(&mut sgd, Exponential { gamma: 0.5 });
    other.load_state_dict(&state)?;
    other.apply(&mut sgd);
    assert_eq!(sgd.lrs(), [0.15, 0.3]);
    assert_eq!(other.last_lrs(), scheduler.last_lrs());
    Ok(())
}

/// PyTorch's momenta, every few steps.
#[test]
fn momentum_cycles_as_pytorchs_does() -> Result<()> {
    let cyclic = |up, down, mode| Cyclic {
        base_lr: 0.1,
        max_lr: 0.5,
        step_size_up: up,
        step_size_down: down,
        mode,
        momentum: Some((0.8, 0.9)),
    };
    let three = OneCycle {
        pct_start: 0.4,
        anneal: Anneal::Linear,
        three_phase: true,
        ..OneCycle::new(0.5, 41)
    };
    let check = |schedule: &dyn Schedule, every: u64, want: &[f64]| {
        for (i, want) in want.iter().enumerate() {
            let got = schedule.momentum(every * i as u64).expect("it cycles");
            assert!((got - want).abs() < 1e-8, "{i}: {got}, PyTorch's {want}");
        }
    };
    let one = [0.95, 0.8696079, 0.856472486, 0.891018309, 0.932022769, 0.95];
    check(&OneCycle::new(0.5, 41), 8, &one);
    check(&three, 8, &[0.95, 0.898051948, 0.853896104, 0.905844156, 0.95, 0.95]);
    let triangles =
        [0.9, 0.825, 0.833333333, 0.883333333, 0.85, 0.816666667, 0.866666667, 0.875, 0.8];
    check(&cyclic(4, 6, CyclicMode::Triangular), 3, &triangles);
    let halves = [0.9, 0.84, 0.82, 0.88, 0.88, 0.85, 0.88, 0.895, 0.88];
    check(&cyclic(5, 5, CyclicMode::Triangular2), 3, &halves);

    // Of Adam it is the first beta; what has none is left alone.
    let mut adam = Adam::new(vec![Tensor::zeros(&[1], Device::Cpu)?], AdamOptions::default());
    let mut scheduler = LrScheduler::new(&mut adam, OneCycle::new(0.5, 41));
    assert_eq!(adam.groups()[0].betas.0, 0.95);
    (0..8).for_each(|_| scheduler.step(&mut adam));
    assert!((adam.groups()[0].betas.0 - one[1]).abs() < 1e-8);
    let mut sgd =
        Sgd::new(Vec::<Tensor>::new(), SgdOptions { momentum: 0.9, ..Default::default() });
    LrScheduler::new(&mut sgd, OneCycle { momentum: None, ..OneCycle::new(0.5, 41) });
    assert_eq!(sgd.groups()[0].momentum, 0.9);
    Ok(())
}

/// States come from files: a number that counts may be any.
#[test]
fn counts_end_at_the_largest_number() -> Result<()> {
    let cyclic = Cyclic {
        base_lr: 0.1,
        max_lr: 0.5,
        step_size_up: u64::MAX,
        step_size_down: 1,
        mode: CyclicMode::Triangular,
        momentum: None,
    };
    assert!(cyclic.lr(0.1, u64::MAX).is_finite());

    let w = Tensor::ones(&[1], Device::Cpu)?;
    w.set_grad(Some(w.copy()?));
    let options = AdamOptions::default();
    let mut optimizer = Adam::new(vec![w], options);
    optimizer.step()?;
    let mut state = optimizer.state_dict()?;
    state.numbers.insert("0/step".to_owned(), 1e300);
    optimizer.load_state_dict(&state)?;
    optimizer.step()?;

    let mut scheduler = LrScheduler::new(&mut optimizer, cyclic);
    let mut state = scheduler.state_dict();
    state.numbers.insert("step".to_owned(), f64::INFINITY);
    scheduler.load_state_dict(&state)?;
    scheduler.step(&mut optimizer);

    let mut plateau = Plateau::new(PlateauMode::MinRelative);
    let mut state = plateau.state_dict();
    state.numbers.insert("bad".to_owned(), 1e300);
    plateau.load_state_dict(&state)?;
    plateau.step(f64::NAN, &mut optimizer);
    Ok(())
}
