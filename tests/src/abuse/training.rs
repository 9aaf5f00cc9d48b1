//! What trains: optimizers, schedules, scaling, gradients, random numbers, graphs and profiles.

use std::collections::BTreeMap;

use genesis::amp::{self, Autocast, GradScaler, GradScalerOptions, autocast};
use genesis::autograd::{
    self, BackwardOptions, CheckpointPolicy, GradCheck, GradOptions, KeepBudget, KeptResults,
    after_backward, checkpoint, checkpoint_many, checkpoint_with, detect_anomaly, gradcheck,
    gradgradcheck, save_on_cpu,
};
use genesis::optim::schedule::{self, LrScheduler, Plateau, PlateauMode, Schedule};
use genesis::optim::*;
use genesis::profiler::{self, GroupBy, ProfilerOptions, SortBy};
use genesis::random::{RngState, fork_rng, set_rng_state};
use genesis::{Device, Result, Tensor, fuse, graph};

use super::calls::{Row, done};
use super::generate::{Gen, Value, structures, values};

structures! {
    SgdOptions { lr, momentum, dampening, weight_decay, nesterov, maximize, master }
    AdamOptions { lr, betas, eps, weight_decay, amsgrad, maximize, master, stochastic_rounding }
    AdamWOptions { lr, betas, eps, weight_decay, amsgrad, maximize, master, stochastic_rounding }
    AdamW8bitOptions { lr, betas, eps, weight_decay, least, maximize, master }
    AdafactorOptions { lr, beta2_decay, eps1, eps2, d, weight_decay, maximize, master }
    AdagradOptions { lr, lr_decay, weight_decay, initial_accumulator_value, eps, maximize, master }
    LambOptions { lr, betas, eps, weight_decay, maximize, master }
    LionOptions { lr, betas, weight_decay, maximize, master }
    RmsPropOptions { lr, alpha, eps, weight_decay, momentum, centered, maximize, master }
    GradScalerOptions { init_scale, growth_factor, backoff_factor, growth_interval, enabled }
    Autocast { dtype, enabled, cpu, cuda, cache }
    BackwardOptions { retain_graph, create_graph }
    GradCheck { eps, atol, rtol, nondet_tol, fast_mode, elements }
    RngState { seed, offset }
}

values! {
    AdjustLr: |g| g.one(&[AdjustLr::Original, AdjustLr::MatchRmsAdamW, AdjustLr::SpectralUnclamped]);
    MuonOptions: |g| MuonOptions {
        lr: g.v(), weight_decay: g.v(), momentum: g.v(), nesterov: g.v(), coefficients: g.v(), eps: g.v(),
        // Each iteration is asked for.
        iterations: g.v::<u32>() % 100,
        adjust_lr: g.v(), bf16: g.v(), master: g.v(),
    };
    State: |g| {
        let names = ["0/exp_avg", "0/step", "0/momentum_buffer", "group.0/lr", "step", "base.0", "bad", "best",
            "cooling", "scale", "growth_tracker", "0"].map(str::to_owned);
        let tensors = (0..g.below(3)).map(|_| (g.one(&names), g.tensor())).collect();
        let numbers = (0..g.below(12)).map(|_| (g.one(&names), f64::draw(g))).collect();
        State { tensors, numbers }
    };
    PlateauMode: |g| g.one(&[
        PlateauMode::MinRelative, PlateauMode::MinAbsolute, PlateauMode::MaxRelative, PlateauMode::MaxAbsolute,
    ]);
    schedule::Anneal: |g| g.one(&[schedule::Anneal::Cosine, schedule::Anneal::Linear]);
    schedule::CyclicMode: |g| {
        let gamma = f64::draw(g);
        g.one(&[
            schedule::CyclicMode::Triangular, schedule::CyclicMode::Triangular2,
            schedule::CyclicMode::ExpRange(gamma),
        ])
    };
}

/// A schedule of any kind.
fn any_schedule(g: &mut Gen) -> Box<dyn Schedule> {
    match g.below(14) {
        0 => Box::new(schedule::Constant { factor: g.v(), total_iters: g.v() }),
        1 => Box::new(schedule::Linear {
            start_factor: g.v(),
            end_factor: g.v(),
            total_iters: g.v(),
        }),
        2 => Box::new(schedule::Exponential { gamma: g.v() }),
        3 => Box::new(schedule::StepDecay { step_size: g.v(), gamma: g.v() }),
        4 => Box::new(schedule::MultiStep { milestones: g.v(), gamma: g.v() }),
        5 => Box::new(schedule::Polynomial { total_iters: g.v(), power: g.v() }),
        6 => Box::new(schedule::Cosine { t_max: g.v(), eta_min: g.v() }),
        7 => Box::new(schedule::InverseSqrt { warmup: g.v() }),
        8 => Box::new(schedule::WarmupStableDecay {
            warmup: g.v(),
            stable: g.v(),
            decay: g.v(),
            min_factor: g.v(),
            linear: g.v(),
        }),
        9 => Box::new(schedule::CosineRestarts { t_0: g.v(), t_mult: g.v(), eta_min: g.v() }),
        10 => Box::new(schedule::OneCycle {
            max_lr: g.v(),
            total_steps: g.v(),
            pct_start: g.v(),
            anneal: g.v(),
            div_factor: g.v(),
            final_div_factor: g.v(),
            three_phase: g.v(),
            momentum: g.v(),
        }),
        11 => Box::new(schedule::Cyclic {
            base_lr: g.v(),
            max_lr: g.v(),
            step_size_up: g.v(),
            step_size_down: g.v(),
            mode: g.v(),
            momentum: g.v(),
        }),
        12 => Box::new(
            schedule::Chained::new()
                .with(schedule::Exponential { gamma: g.v() })
                .with(schedule::Cosine { t_max: g.v(), eta_min: g.v() }),
        ),
        _ => Box::new(
            schedule::Sequential::new(schedule::Constant { factor: g.v(), total_iters: g.v() })
                .then(g.v(), schedule::Exponential { gamma: g.v() }),
        ),
    }
}

/// Parameters with gradients, some of which do not fit.
fn parameters(g: &mut Gen) -> Vec<Tensor> {
    let parameters: Vec<Tensor> = (0..1 + g.below(3)).map(|_| g.tensor().detach()).collect();
    for parameter in &parameters {
        let x = if g.below(4) == 0 { g.tensor() } else { parameter.clone() };
        if g.below(8) > 0 {
            parameter.set_grad(Some(x.detach()));
        }
    }
    parameters
}

/// A few steps, the state taken on, and a state of nonsense.
fn steps<R: Rule + Value>(g: &mut Gen) -> Result<Vec<Tensor>> {
    let parameters = parameters(g);
    let mut optimizer = Optim::new(parameters.clone(), g.v::<R>());
    if g.below(4) == 0 {
        optimizer.add_group(vec![g.tensor()], g.v::<R>())?;
    }
    for _ in 0..g.below(3) {
        optimizer.step()?;
    }
    let state = optimizer.state_dict()?;
    if g.below(2) == 0 {
        let mut other = state.clone();
        let own = g.v::<State>();
        other.tensors.extend(own.tensors);
        for value in other.numbers.values_mut() {
            if g.below(3) == 0 {
                *value = g.v();
            }
        }
        let _ = optimizer.load_state_dict(&other);
    }
    optimizer.load_state_dict(&state)?;
    optimizer.set_lr(g.v());
    optimizer.set_momentum(g.v());
    optimizer.step_unless(&g.tensor())?;
    done(Ok(parameters))
}

pub(super) fn training(rows: &mut Vec<Row>) {
    optimizers(rows);
    gradients(rows);
    checkpoints(rows);
    modes(rows);
    others(rows);
}

fn optimizers(rows: &mut Vec<Row>) {
    let mut row = |name, call| rows.push(Row::new(name, call));
    row("Sgd", steps::<SgdOptions>);
    row("Adam", steps::<AdamOptions>);
    row("AdamW", steps::<AdamWOptions>);
    row("AdamW8bit", steps::<AdamW8bitOptions>);
    row("StepInBackward", |g| {
        let parameters = parameters(g);
        let optimizer = Sgd::new(parameters.clone(), g.v::<SgdOptions>());
        let mut optimizer = StepInBackward::new(optimizer)?;
        for parameter in &parameters {
            parameter.square()?.sum()?.backward()?;
        }
        optimizer.set_lr(g.v());
        optimizer.step()?;
        done(Ok(parameters))
    });
    row("Adafactor", steps::<AdafactorOptions>);
    row("Adagrad", steps::<AdagradOptions>);
    row("Lamb", steps::<LambOptions>);
    row("Lion", steps::<LionOptions>);
    row("Muon", steps::<MuonOptions>);
    row("RmsProp", steps::<RmsPropOptions>);
    row("clip_grad_norm_", |g| done(clip_grad_norm_(&parameters(g), g.v(), g.v())));
    row("clip_grad_value_", |g| done(clip_grad_value_(&parameters(g), g.v())));
    row("clip_grads_with_norm_", |g| done(clip_grads_with_norm_(&parameters(g), g.v(), &g.v())));
    row("total_norm", |g| done(total_norm(&g.list::<Tensor>(), g.v())));
    row("Ema", |g| {
        let mut ema = Ema::new(parameters(g), g.v())?;
        ema.update()?;
        let _ = ema.load_state_dict(&g.v());
        ema.load_state_dict(&ema.state_dict())?;
        ema.with_averages(|| ())?;
        done(Ok(ema.averages().into_values().collect::<Vec<_>>()))
    });
    row("LrScheduler", |g| {
        let mut optimizer = Sgd::new(parameters(g), g.v::<SgdOptions>());
        let mut scheduler = LrScheduler::new(&mut optimizer, any_schedule(g));
        let _ = scheduler.load_state_dict(&g.v());
        (0..g.below(5)).for_each(|_| scheduler.step(&mut optimizer));
        done(Ok(scheduler.last_lrs()))
    });
    row("Schedule", |g| {
        let schedule = any_schedule(g);
        let step = g.v();
        let _ = schedule.momentum(step);
        done(Ok(schedule.lr(g.v(), step)))
    });
    row("Plateau", |g| {
        let mut optimizer = Sgd::new(parameters(g), g.v::<SgdOptions>());
        let mut plateau = Plateau::new(g.v());
        (plateau.factor, plateau.patience, plateau.cooldown) = (g.v(), g.v(), g.v());
        let _ = plateau.load_state_dict(&g.v());
        (0..g.below(5)).for_each(|_| plateau.step(g.v(), &mut optimizer));
        done(Ok(optimizer.lrs()))
    });
    row("GradScaler", |g| {
        let mut optimizer = Sgd::new(parameters(g), g.v::<SgdOptions>());
        let mut scaler = GradScaler::new(g.v(), Device::Cpu)?;
        let _ = scaler.load_state_dict(&g.v());
        let scaled = scaler.scale(&g.tensor())?;
        scaler.unscale_(&optimizer)?;
        scaler.step(&mut optimizer)?;
        scaler.update()?;
        scaler.get_scale()?;
        done(Ok(scaled))
    });
}

/// A function of tensors, of a few kinds.
fn formula(kind: usize) -> impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + Clone + 'static {
    move |x: &[Tensor]| {
        let last = &x[x.len() - 1];
        match kind {
            0 => x[0].mul(last)?.tanh(),
            1 => x[0].matmul(last),
            2 => x[0].softmax(-1)?.mul(last)?.sum(),
            3 => x[0].add(last)?.relu()?.mul_scalar(2.0)?.exp(),
            _ => x[0].div(last)?.sqrt()?.sub_scalar(1.0),
        }
    }
}

/// Whether differences are of so many elements that they take long: each is a call, and the slopes of all by all
/// are kept.
fn is_long(g: &Gen) -> bool {
    g.joint_elements() > 1500
}

/// Backward passes, hooks and checks of them.
fn gradients(rows: &mut Vec<Row>) {
    let mut row = |name, call| rows.push(Row::new(name, call));
    row("autograd::grad", |g| {
        let (kind, [x, y]) = (g.below(5), [g.tensor(), g.tensor()]);
        let out = formula(kind)(&[x.clone(), y.clone()])?;
        let dy: Vec<Option<Tensor>> = g.list();
        let dy: Vec<Option<&Tensor>> = dy.iter().map(Option::as_ref).collect();
        let options = GradOptions {
            grad_outputs: &dy,
            retain_graph: g.v(),
            create_graph: g.v(),
            allow_unused: g.v(),
            ..GradOptions::default()
        };
        done(autograd::grad(&[&out], &[&x, &y], options))
    });
    row("backward_with", |g| {
        let (kind, [x, y]) = (g.below(5), [g.tensor(), g.tensor()]);
        let out = formula(kind)(&[x.clone(), y])?;
        out.backward_with(g.v::<Option<Tensor>>().as_ref(), g.v())?;
        done(Ok(x.grad()))
    });
    row("set_grad", |g| {
        let x = g.tensor();
        x.set_grad(g.v());
        x.mul(&x)?.sum()?.backward()?;
        done(Ok(x.grad()))
    });
    row("after_backward", |g| {
        let x = g.tensor();
        let inner = x.clone();
        // What runs at the end may run a backward of its own.
        after_backward(move || inner.mul(&inner)?.sum()?.backward());
        x.mul(&x)?.sum()?.backward()?;
        done(Ok(x.grad()))
    });
    row("gradcheck", |g| {
        let (f, [x, y]) = (formula(g.below(5)), [g.tensor(), g.tensor()]);
        if is_long(g) {
            return Ok(Vec::new());
        }
        done(gradcheck(move |x| Ok(vec![f(x)?]), &[&x, &y], g.v()))
    });
    row("gradgradcheck", |g| {
        let (f, [x, y]) = (formula(g.below(5)), [g.tensor(), g.tensor()]);
        if is_long(g) {
            return Ok(Vec::new());
        }
        done(gradgradcheck(move |x| Ok(vec![f(x)?]), &[&x, &y], g.v()))
    });
}

/// Results that are computed again, or kept elsewhere, for the backward pass.
fn checkpoints(rows: &mut Vec<Row>) {
    let mut row = |name, call| rows.push(Row::new(name, call));
    row("checkpoint", |g| {
        let (kind, [x, y]) = (g.below(5), [g.tensor(), g.tensor()]);
        let out = checkpoint(formula(kind), &[&x, &y])?;
        out.sum()?.backward()?;
        done(Ok(out))
    });
    row("checkpoint_many", |g| {
        let (f, x) = (formula(g.below(5)), g.list::<Tensor>());
        let inputs: Vec<&Tensor> = x.iter().collect();
        let many = move |x: &[Tensor]| match x {
            [] => Ok(Vec::new()),
            x => Ok(vec![f(x)?, x[0].clone()]),
        };
        let out = checkpoint_many(many, &inputs)?;
        out.iter().try_for_each(|y| y.sum()?.backward())?;
        done(Ok(out))
    });
    row("checkpoint_with", |g| {
        let (f, [x, y]) = (formula(g.below(5)), [g.tensor(), g.tensor()]);
        let budget = (g.below(2) == 0).then(|| KeepBudget::new(g.below(1 << 12)));
        let keep = if g.below(3) > 0 { KeptResults::Products } else { KeptResults::Nothing };
        let part = move |x: &[Tensor]| Ok(vec![f(x)?, x[0].matmul(&x[1])?]);
        let policy = CheckpointPolicy { keep, budget };
        let out = save_on_cpu(|| checkpoint_with(part, &[&x, &y], &policy))?;
        out.iter().try_for_each(|y| y.sum()?.backward())?;
        done(Ok(out))
    });
}

/// Functions run under modes and in other dtypes, fused, and replayed.
fn modes(rows: &mut Vec<Row>) {
    let mut row = |name, call| rows.push(Row::new(name, call));
    row("modes", |g| {
        let (f, x) = (formula(g.below(5)), [g.tensor(), g.tensor()]);
        let run = || f(&x).and_then(|y| y.sum()?.backward());
        let _ = (genesis::no_grad(run), autograd::inference_mode(run), detect_anomaly(run));
        let y = autograd::inference_mode(|| f(&x))?;
        // What was summed was as large as `y`, and sums of bools and small integers are made of i64.
        g.bytes += y.numel().saturating_mul(8);
        done(y.mul(&x[0]))
    });
    row("cast_arguments", |g| {
        let x = g.list::<Tensor>();
        done(amp::cast_arguments(g.v(), &x.iter().collect::<Vec<_>>()))
    });
    row("autocast", |g| {
        let (f, x, options) = (formula(g.below(5)), [g.tensor(), g.tensor()], g.v::<Autocast>());
        done(autocast(options, || f(&x)))
    });
    row("fuse", |g| {
        let fused = fuse(formula(g.below(5)));
        let [x, y] = [g.tensor(), g.tensor()];
        done(fused.call(&[&x, &y]).and_then(|_| fused.call(&[&y, &x])))
    });
    row("graph", |g| {
        let f = formula(g.below(5));
        let mut step = graph(move |_: &mut (), x: &[Tensor]| Ok(vec![f(x)?]));
        let [x, y] = [g.tensor(), g.tensor()];
        done(step.call(&mut (), &[&x, &y]).and_then(|_| step.call(&mut (), &[&y, &x])))
    });
}

fn others(rows: &mut Vec<Row>) {
    let mut row = |name, call| rows.push(Row::new(name, call));
    row("set_rng_state", |g| {
        let state = g.v();
        fork_rng(|| {
            set_rng_state(state);
            done(Tensor::randn(&g.sizes(), Device::Cpu).and_then(|x| x.dropout(0.5)))
        })
    });
    row("profile", |g| {
        let schedule =
            g.v::<Option<[usize; 5]>>().map(|[wait, warmup, active, repeat, skip_first]| {
                profiler::Schedule { wait, warmup, active, repeat, skip_first }
            });
        let options =
            ProfilerOptions { schedule, record_shapes: g.v(), ..ProfilerOptions::default() };
        let (x, count) = (g.tensor(), g.below(5));
        // What the processor can do at best is measured by copies of as much.
        g.bytes += 128 << 20;
        let (_, profile) = profiler::profile(options, |profiler| {
            for _ in 0..count {
                let _ = x.add(&x);
                profiler.step()?;
            }
            Ok(())
        })?;
        let by = g.one(&[
            GroupBy::Name,
            GroupBy::NameAndInputs,
            GroupBy::Module,
            GroupBy::Kernel,
            GroupBy::KernelAndInputs,
        ]);
        done(Ok(profile.key_averages(by).table(g.one(&[SortBy::Calls, SortBy::Bytes]), g.v())))
    });
    row("Characters", |g| {
        let characters = genesis::train::Characters::of(
            &g.list::<u32>().iter().map(|&c| c as u8).collect::<Vec<_>>(),
        );
        let _ = characters.encode(&[0, 1, 200, 255]);
        done(Ok(characters.decode(&g.list::<i64>())))
    });
    row("summary", |g| {
        let names: BTreeMap<String, f64> = State::default().numbers;
        let _ = (names, genesis::memory::memory_stats(g.v()), genesis::memory::mem_get_info(g.v()));
        done(genesis::memory::memory_summary(g.v()))
    });
}
