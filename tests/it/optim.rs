//! Optimizers beside PyTorch's, groups, state, clipping, averages.

use std::collections::BTreeMap;

use genesis::nn::{Linear, Module};
use genesis::optim::{
    Adafactor, AdafactorOptions, Adagrad, AdagradOptions, Adam, AdamOptions, AdamW, AdamWOptions,
    AdjustLr, Ema, Lamb, LambOptions, Lion, LionOptions, Muon, MuonOptions, Optimizer, RmsProp,
    RmsPropOptions, Sgd, SgdOptions, State, clip_grad_norm_, clip_grad_value_,
    clip_grads_with_norm_, total_norm,
};
use genesis::{DType, Device, Result, Tensor, no_grad};

const CPU: Device = Device::Cpu;
const SHAPES: [&[usize]; 3] = [&[6, 5], &[2, 3, 4], &[7]];

/// The weights that the fixtures begin with.
fn weight(shape: &[usize], dtype: DType) -> Result<Tensor> {
    let n: i64 = shape.iter().product::<usize>() as i64;
    let values: Vec<f64> = (0..n).map(|i| ((i * 29 + 7) % 51 - 25) as f64 / 16.0).collect();
    Tensor::from_f64(&values, shape, (dtype, CPU))?.requires_grad_(true)
}

/// The gradients of the fixtures.
fn gradient(shape: &[usize], step: i64, dtype: DType) -> Result<Tensor> {
    let n: i64 = shape.iter().product::<usize>() as i64;
    let value = |i: i64| ((i * 37 + step * 101 + 13) % 64 - 31) as f64 / 32.0;
    Tensor::from_f64(&(0..n).map(value).collect::<Vec<_>>(), shape, (dtype, CPU))
}

fn set_gradients(weights: &[Tensor], step: i64) -> Result<()> {
    for w in weights {
        w.set_grad(Some(gradient(w.shape(), step, w.dtype())?));
    }
    Ok(())
}

type Make = fn(Vec<Tensor>) -> Box<dyn Optimizer>;

/// The optimizer of each fixture.
const MAKERS: &[(&str, Make)] = &[
    ("sgd", |w| Box::new(Sgd::new(w, SgdOptions { lr: 0.1, ..Default::default() }))),
    ("sgd momentum", |w| {
        Box::new(Sgd::new(w, SgdOptions { lr: 0.1, momentum: 0.9, ..Default::default() }))
    }),
    ("sgd dampening", |w| {
        let options = SgdOptions { lr: 0.1, momentum: 0.9, ..Default::default() };
        Box::new(Sgd::new(w, SgdOptions { dampening: 0.2, weight_decay: 0.01, ..options }))
    }),
    ("sgd nesterov", |w| {
        let options = SgdOptions { lr: 0.1, momentum: 0.9, ..Default::default() };
        Box::new(Sgd::new(w, SgdOptions { nesterov: true, weight_decay: 0.01, ..options }))
    }),
    ("sgd maximize", |w| {
        let options = SgdOptions { lr: 0.1, weight_decay: 0.1, ..Default::default() };
        Box::new(Sgd::new(w, SgdOptions { maximize: true, ..options }))
    }),
    ("adam", |w| Box::new(Adam::new(w, AdamOptions::default()))),
    ("adam decay", |w| {
        let options = AdamOptions { lr: 0.01, weight_decay: 0.1, ..Default::default() };
        Box::new(Adam::new(w, AdamOptions { betas: (0.8, 0.95), ..options }))
    }),
    ("adam amsgrad", |w| {
        let options = AdamOptions { lr: 0.01, weight_decay: 0.1, ..Default::default() };
        Box::new(Adam::new(w, AdamOptions { amsgrad: true, maximize: true, ..options }))
    }),
    ("adamw", |w| Box::new(AdamW::new(w, AdamWOptions::default()))),
    ("adamw decay", |w| {
        let options = AdamWOptions { lr: 0.01, weight_decay: 0.1, ..Default::default() };
        Box::new(AdamW::new(w, AdamWOptions { maximize: true, ..options }))
    }),
    ("adamw amsgrad", |w| {
        let options = AdamWOptions { lr: 0.01, eps: 1e-4, ..Default::default() };
        Box::new(AdamW::new(w, AdamWOptions { amsgrad: true, ..options }))
    }),
    ("rmsprop", |w| Box::new(RmsProp::new(w, RmsPropOptions::default()))),
    ("rmsprop centered", |w| {
        let options = RmsPropOptions { centered: true, alpha: 0.9, ..Default::default() };
        Box::new(RmsProp::new(w, options))
    }),
    ("rmsprop momentum", |w| {
        let options = RmsPropOptions { momentum: 0.9, weight_decay: 0.1, ..Default::default() };
        Box::new(RmsProp::new(w, options))
    }),
    ("rmsprop all", |w| {
        let options = RmsPropOptions { momentum: 0.5, weight_decay: 0.1, ..Default::default() };
        Box::new(RmsProp::new(w, RmsPropOptions { centered: true, maximize: true, ..options }))
    }),
    ("adagrad", |w| Box::new(Adagrad::new(w, AdagradOptions::default()))),
    ("adagrad all", |w| {
        let options = AdagradOptions { lr: 0.1, lr_decay: 0.1, ..Default::default() };
        let options = AdagradOptions { weight_decay: 0.1, maximize: true, ..options };
        Box::new(Adagrad::new(w, AdagradOptions { initial_accumulator_value: 0.5, ..options }))
    }),
    ("adafactor", |w| Box::new(Adafactor::new(w, AdafactorOptions::default()))),
    ("adafactor all", |w| {
        let options = AdafactorOptions { lr: 0.1, weight_decay: 0.1, ..Default::default() };
        let options = AdafactorOptions { beta2_decay: -0.5, d: 1.5, ..options };
        Box::new(Adafactor::new(w, AdafactorOptions { maximize: true, ..options }))
    }),
    ("lion", |w| Box::new(Lion::new(w, LionOptions::default()))),
    ("lion decay", |w| {
        let options = LionOptions { lr: 0.01, weight_decay: 0.1, ..Default::default() };
        Box::new(Lion::new(w, LionOptions { maximize: true, ..options }))
    }),
    ("lamb", |w| Box::new(Lamb::new(w, LambOptions::default()))),
    ("lamb decay", |w| {
        let options = LambOptions { lr: 0.01, weight_decay: 0.1, ..Default::default() };
        Box::new(Lamb::new(w, LambOptions { maximize: true, ..options }))
    }),
    ("muon", |w| {
        Box::new(Muon::new(w, MuonOptions { lr: 0.02, bf16: false, ..Default::default() }))
    }),
    ("muon match", |w| {
        let options = MuonOptions { lr: 0.02, bf16: false, ..Default::default() };
        let adjust_lr = AdjustLr::MatchRmsAdamW;
        Box::new(Muon::new(w, MuonOptions { nesterov: false, adjust_lr, ..options }))
    }),
];

/// The shapes that an optimizer takes.
fn shapes(name: &str) -> Vec<&'static [usize]> {
    let fits = |shape: &&[usize]| !name.starts_with("muon") || shape.len() == 2;
    SHAPES.into_iter().filter(fits).collect()
}

fn fixture(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("a committed file")
}

fn numbers(value: &serde_json::Value) -> Vec<f64> {
    let list = value.as_array().expect("a list of numbers");
    list.iter().map(|number| number.as_f64().expect("a number")).collect()
}

#[test]
fn twenty_steps_are_those_of_pytorch() -> Result<()> {
    let all = fixture(include_str!("../fixtures/optim/optimizers.json"));
    assert_eq!(all.as_object().map(serde_json::Map::len), Some(MAKERS.len()));
    for (name, make) in MAKERS {
        for (dtype, key, tolerance) in [(DType::F32, "f32", 1e-6), (DType::F64, "f64", 1e-12)] {
            let weights: Vec<Tensor> =
                shapes(name).iter().map(|s| weight(s, dtype)).collect::<Result<_>>()?;
            let mut optimizer = make(weights.clone());
            for step in 1..=20 {
                set_gradients(&weights, step)?;
                optimizer.step()?;
                let Some(kept) = [1, 3, 20].iter().position(|&at| at == step) else { continue };
                let want = numbers(&all[name][key][kept]);
                let got: Vec<f64> =
                    weights.iter().map(Tensor::to_f64_vec).collect::<Result<Vec<_>>>()?.concat();
                assert_eq!(got.len(), want.len());
                for (at, (got, want)) in got.iter().zip(&want).enumerate() {
                    // Of the size of the weights: near 0 they are differences of such.
                    let error = (got - want).abs() / want.abs().max(1.0);
                    assert!(
                        error <= tolerance,
                        "{name} {key} step {step} [{at}]: {got}, not {want}"
                    );
                }
            }
        }
    }
    Ok(())
}

#[test]
fn weights_that_are_not_dense_are_stepped_in_place() -> Result<()> {
    for (name, make) in MAKERS {
        let dense = weight(&[6, 5], DType::F32)?;
        let turned = no_grad(|| dense.detach().t()?.contiguous())?.t()?.requires_grad_(true)?;
        assert!(!turned.is_contiguous());
        for w in [&dense, &turned] {
            let mut optimizer = make(vec![w.clone()]);
            set_gradients(std::slice::from_ref(w), 1)?;
            optimizer.step()?;
        }
        assert_eq!(dense.to_vec::<f32>()?, turned.to_vec::<f32>()?, "{name}");
    }
    Ok(())
}

#[test]
fn sixteen_bit_weights_follow_a_copy_in_f32() -> Result<()> {
    for (name, make) in MAKERS {
        let wide = weight(&[6, 5], DType::F32)?;
        let narrow = weight(&[6, 5], DType::BF16)?;
        let (mut first, mut second) = (make(vec![wide.clone()]), make(vec![narrow.clone()]));
        for step in 1..=4 {
            set_gradients(&[wide.clone(), narrow.clone()], step)?;
            first.step()?;
            second.step()?;
        }
        // Adafactor's least mean square is that of the parameter's dtype; it does not matter here.
        assert_eq!(narrow.to_f64_vec()?, wide.to_dtype(DType::BF16)?.to_f64_vec()?, "{name}");
        assert!(second.state_dict()?.tensors.contains_key("0/master"), "{name}");
    }
    let narrow = weight(&[6, 5], DType::BF16)?;
    let options = AdamOptions { master: false, ..Default::default() };
    let mut plain = Adam::new(vec![narrow.clone()], options);
    set_gradients(std::slice::from_ref(&narrow), 1)?;
    plain.step()?;
    assert!(!plain.state_dict()?.tensors.contains_key("0/master"));
    Ok(())
}

#[test]
fn groups_have_options_of_their_own() -> Result<()> {
    let model = Linear::new(3, 2, CPU)?;
    let (matrices, others): (Vec<_>, Vec<_>) =
        model.named_parameters().into_iter().partition(|(_, tensor)| tensor.rank() > 1);
    let options = SgdOptions { lr: 1.0, ..Default::default() };
    let mut optimizer = Sgd::new(matrices.clone(), options);
    optimizer.add_group(others, SgdOptions { lr: 0.5, ..options })?;
    let error = optimizer.add_group(matrices, options).expect_err("it is in the first group");
    assert_eq!(error.to_string(), "add_group: weight is in another group already");
    let before: Vec<Vec<f32>> =
        model.parameters().iter().map(Tensor::to_vec).collect::<Result<_>>()?;
    for parameter in model.parameters() {
        parameter.set_grad(Some(parameter.detach().ones_like()?));
    }
    optimizer.step()?;
    for ((parameter, before), lr) in model.parameters().iter().zip(before).zip([1.0f32, 0.5]) {
        let want: Vec<f32> = before.iter().map(|v| v - lr).collect();
        assert_eq!(parameter.to_vec::<f32>()?, want);
    }
    assert_eq!(optimizer.lrs(), [1.0, 0.5]);
    optimizer.set_lr(0.25);
    assert_eq!(optimizer.lrs(), [0.25, 0.25]);
    Ok(())
}

/// A weight that is given twice is stepped once: the original stepped tied weights twice.
#[test]
fn tied_weights_are_stepped_once() -> Result<()> {
    let w = weight(&[7], DType::F32)?;
    let before = w.to_vec::<f32>()?;
    let mut sgd =
        Sgd::new(vec![w.clone(), w.clone()], SgdOptions { lr: 1.0, ..Default::default() });
    w.set_grad(Some(w.detach().ones_like()?));
    sgd.step()?;
    let want: Vec<f32> = before.iter().map(|v| v - 1.0).collect();
    assert_eq!(w.to_vec::<f32>()?, want);
    Ok(())
}

/// Loading the state of an optimizer did nothing in the original.
#[test]
fn a_restored_optimizer_goes_on_to_the_bit() -> Result<()> {
    for (name, make) in MAKERS {
        for dtype in [DType::F32, DType::BF16] {
            let fresh = || -> Result<Vec<Tensor>> {
                shapes(name).iter().map(|s| weight(s, dtype)).collect()
            };
            let whole = fresh()?;
            let mut optimizer = make(whole.clone());
            let (mut state, mut weights) = (None, BTreeMap::new());
            for step in 1..=6 {
                set_gradients(&whole, step)?;
                optimizer.step()?;
                if step == 3 {
                    let mut saved = optimizer.state_dict()?;
                    for tensor in saved.tensors.values_mut() {
                        *tensor = tensor.copy()?;
                    }
                    state = Some(saved);
                    for (index, w) in whole.iter().enumerate() {
                        weights.insert(index, w.detach().copy()?);
                    }
                }
            }
            let resumed = fresh()?;
            for (index, w) in resumed.iter().enumerate() {
                no_grad(|| w.copy_(&weights[&index]))?;
            }
            let mut optimizer = make(resumed.clone());
            optimizer.set_lr(123.0);
            optimizer.load_state_dict(&state.expect("the third step saved it"))?;
            for step in 4..=6 {
                set_gradients(&resumed, step)?;
                optimizer.step()?;
            }
            for (a, b) in whole.iter().zip(&resumed) {
                assert_eq!(a.to_f64_vec()?, b.to_f64_vec()?, "{name} {dtype}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_state_that_does_not_fit_changes_nothing() -> Result<()> {
    let w = weight(&[7], DType::F32)?;
    let mut adam = Adam::new(vec![("w".to_owned(), w.clone())], AdamOptions::default());
    set_gradients(std::slice::from_ref(&w), 1)?;
    adam.step()?;
    let good = adam.state_dict()?;
    assert_eq!(good.tensors.keys().collect::<Vec<_>>(), ["w/exp_avg", "w/exp_avg_sq"]);
    assert_eq!(good.numbers["w/step"], 1.0);
    assert_eq!(good.numbers["group.0/lr"], 1e-3);
    let mut bad = good.clone();
    bad.tensors.insert("w/exp_avg".to_owned(), Tensor::zeros(&[3], CPU)?);
    let mut refusal =
        |state: &State| adam.load_state_dict(state).expect_err("it does not fit").to_string();
    assert_eq!(refusal(&bad), "load_state_dict: w/exp_avg has shape [3], the parameter needs [7]");
    bad.tensors.remove("w/exp_avg");
    assert_eq!(refusal(&bad), "load_state_dict: missing w/exp_avg");
    let mut bad = good.clone();
    bad.numbers.insert("v/step".to_owned(), 2.0);
    assert_eq!(refusal(&bad), "load_state_dict: unknown v/step");
    assert_eq!(adam.state_dict()?.numbers, good.numbers);
    Ok(())
}

/// Parameters of ones whose gradients are ones, so that each step of Adam is the learning rate, here a hundredth of what
/// bf16 has below 1.
fn step_by_less_than_a_bit(stochastic_rounding: bool, steps: usize) -> Result<(Tensor, AdamW)> {
    let options = AdamWOptions { lr: 2e-5, weight_decay: 0.0, master: false, ..Default::default() };
    let ones = || Tensor::ones(&[64, 64], (DType::BF16, CPU));
    let w = ones()?.requires_grad_(true)?;
    let mut adam = AdamW::new(vec![w.clone()], AdamWOptions { stochastic_rounding, ..options });
    for _ in 0..steps {
        w.set_grad(Some(ones()?));
        adam.step()?;
    }
    Ok((w, adam))
}

#[test]
fn stochastic_rounding_keeps_steps_of_less_than_a_bit() -> Result<()> {
    const STEPS: usize = 200;
    let mean = |t: &Tensor| t.to_dtype(DType::F64)?.mean()?.item();
    let (nearest, _) = step_by_less_than_a_bit(false, STEPS)?;
    assert_eq!(mean(&nearest)?, 1.0);
    let (w, adam) = step_by_less_than_a_bit(true, STEPS)?;
    // A weight is 1 or some 0.0039 less: the mean of 4,096 of them has a deviation of 0.00002.
    let (moved, wanted) = (1.0 - mean(&w)?, STEPS as f64 * 2e-5);
    assert!((moved - wanted).abs() < 1.5e-4, "{moved} and not {wanted}");
    let state = adam.state_dict()?;
    let (m, v) = (&state.tensors["0/exp_avg"], &state.tensors["0/exp_avg_sq"]);
    assert_eq!([m.dtype(), v.dtype()], [DType::BF16; 2]);
    assert!(!state.tensors.contains_key("0/master"));
    let wanted = 1.0 - 0.999f64.powi(STEPS as i32);
    assert!((mean(v)? / wanted - 1.0).abs() < 0.01, "{} and not {wanted}", mean(v)?);
    let (again, _) = step_by_less_than_a_bit(true, STEPS)?;
    assert_eq!(again.to_f64_vec()?, w.to_f64_vec()?);
    Ok(())
}

#[test]
fn stochastic_rounding_goes_on_from_a_saved_state() -> Result<()> {
    let (w, adam) = step_by_less_than_a_bit(true, 5)?;
    let (whole, _) = step_by_less_than_a_bit(true, 6)?;
    let (copy, mut next) = step_by_less_than_a_bit(true, 0)?;
    copy.detach().copy_(&w.detach())?;
    next.load_state_dict(&adam.state_dict()?)?;
    copy.set_grad(Some(Tensor::ones(&[64, 64], (DType::BF16, CPU))?));
    next.step()?;
    assert_eq!(copy.to_f64_vec()?, whole.to_f64_vec()?);
    next.groups_mut()[0].stochastic_rounding = false;
    let error = next.step().expect_err("the moments are in bf16");
    assert!(error.to_string().contains("can't change after the first step"), "{error}");
    // A state from before the option is of f32.
    let mut old = adam.state_dict()?;
    old.numbers.remove("group.0/stochastic_rounding");
    next.load_state_dict(&old)?;
    assert!(!next.groups()[0].stochastic_rounding);
    assert_eq!(next.state_dict()?.tensors["0/exp_avg"].dtype(), DType::F32);
    next.step()?;
    Ok(())
}

#[test]
fn chances_are_those_of_a_parameter_whatever_is_stepped_beside_it() -> Result<()> {
    let options = AdamWOptions { lr: 1e-3, stochastic_rounding: true, ..Default::default() };
    let step = |of_groups: bool| -> Result<[Vec<f64>; 2]> {
        let ones = || Tensor::ones(&[64, 64], (DType::BF16, CPU));
        let both = [ones()?.requires_grad_(true)?, ones()?.requires_grad_(true)?];
        let first = if of_groups { 1 } else { 2 };
        let mut adam = AdamW::new(both[..first].to_vec(), options);
        if of_groups {
            adam.add_group(both[1..].to_vec(), options)?;
        }
        for w in &both {
            w.set_grad(Some(ones()?));
        }
        adam.step()?;
        Ok([both[0].to_f64_vec()?, both[1].to_f64_vec()?])
    };
    let together = step(false)?;
    assert_ne!(together[0], together[1]);
    assert_eq!(together, step(true)?);
    Ok(())
}

#[test]
fn stochastic_rounding_is_of_bf16() -> Result<()> {
    let options = AdamOptions { stochastic_rounding: true, ..Default::default() };
    let half = weight(&[7], DType::F16)?;
    set_gradients(std::slice::from_ref(&half), 1)?;
    let error = Adam::new(vec![half], options).step().expect_err("it is f16");
    let message = "adam: stochastic rounding is for parameters of bf16, and not of f16";
    assert_eq!(error.to_string(), message);
    let both = [weight(&[7], DType::F32)?, weight(&[7], DType::F32)?];
    set_gradients(&both, 1)?;
    Adam::new(vec![both[0].clone()], options).step()?;
    Adam::new(vec![both[1].clone()], AdamOptions::default()).step()?;
    assert_eq!(both[0].to_f64_vec()?, both[1].to_f64_vec()?);
    Ok(())
}

#[test]
fn steps_that_are_left_out_do_not_count() -> Result<()> {
    let found = |bad: bool| Tensor::full(&[1], f64::from(u8::from(bad)), (DType::I32, CPU));
    for (name, make) in MAKERS {
        let fresh = || -> Result<Vec<Tensor>> {
            shapes(name).iter().map(|s| weight(s, DType::F32)).collect()
        };
        let (plain, skipping) = (fresh()?, fresh()?);
        let (mut first, mut second) = (make(plain.clone()), make(skipping.clone()));
        for step in 1..=5 {
            set_gradients(&plain, step)?;
            first.step()?;
            for bad in [true, false] {
                set_gradients(&skipping, step)?;
                if bad {
                    let nan = Tensor::full(skipping[0].shape(), f64::NAN, CPU)?;
                    skipping[0].set_grad(Some(nan));
                }
                second.step_unless(&found(bad)?)?;
            }
        }
        for (a, b) in plain.iter().zip(&skipping) {
            for (a, b) in a.to_f64_vec()?.iter().zip(b.to_f64_vec()?) {
                assert!((a - b).abs() <= 1e-6 * a.abs().max(1.0), "{name}: {a} {b}");
            }
        }
        assert_eq!(second.state_dict()?.numbers["0/step"], 5.0, "{name}");
    }
    Ok(())
}

#[test]
fn parameters_that_wait_keep_their_count() -> Result<()> {
    let (a, b) = (weight(&[7], DType::F32)?, weight(&[6, 5], DType::F32)?);
    let mut adam = Adam::new(vec![a.clone(), b.clone()], AdamOptions::default());
    let found = |bad: i64| Tensor::full(&[1], bad as f64, (DType::I32, CPU));
    set_gradients(&[a.clone(), b.clone()], 1)?;
    adam.step_unless(&found(0)?)?;
    b.zero_grad();
    adam.step_unless(&found(1)?)?;
    set_gradients(&[a.clone(), b.clone()], 2)?;
    adam.step_unless(&found(0)?)?;
    let state = adam.state_dict()?;
    assert_eq!((state.numbers["0/step"], state.numbers["1/step"]), (2.0, 2.0));
    Ok(())
}

#[test]
fn parameters_without_a_gradient_stay() -> Result<()> {
    let (a, b) = (weight(&[7], DType::F32)?, weight(&[0, 3], DType::F32)?);
    let mut adam = AdamW::new(vec![a.clone(), b.clone()], AdamWOptions::default());
    let before = a.to_vec::<f32>()?;
    b.set_grad(Some(Tensor::zeros(&[0, 3], CPU)?));
    adam.step()?;
    assert_eq!(a.to_vec::<f32>()?, before);
    a.set_grad(Some(a.detach().ones_like()?));
    adam.fill_grad_with_zeros()?;
    adam.step()?;
    assert_ne!(a.to_vec::<f32>()?, before, "weight decay");
    adam.zero_grad();
    assert!(a.grad().is_none());
    Ok(())
}

#[test]
fn what_cant_be_stepped_is_refused() -> Result<()> {
    let w = weight(&[7], DType::F32)?;
    w.set_grad(Some(Tensor::zeros(&[3], CPU)?));
    let mut sgd = Sgd::new(vec![w.clone()], SgdOptions::default());
    let error = sgd.step().expect_err("the shapes differ").to_string();
    assert!(error.starts_with("step: the gradient of 0 is [3] on"), "{error}");
    w.set_grad(Some(Tensor::zeros(&[7], CPU)?));
    let mut muon = Muon::new(vec![w.clone()], MuonOptions::default());
    let error = muon.step().expect_err("a vector").to_string();
    assert_eq!(error, "muon: needs matrices, got shape [7]");
    let options = SgdOptions { nesterov: true, ..Default::default() };
    let error = Sgd::new(vec![w], options).step().expect_err("no momentum").to_string();
    assert_eq!(error, "sgd: nesterov needs a momentum and no dampening");
    Ok(())
}

#[test]
fn muon_in_bf16_makes_singular_values_of_about_one() -> Result<()> {
    let w = Tensor::zeros(&[6, 5], CPU)?.requires_grad_(true)?;
    let options = MuonOptions { lr: 1.0, weight_decay: 0.0, ..Default::default() };
    let mut muon = Muon::new(vec![w.clone()], options);
    set_gradients(std::slice::from_ref(&w), 1)?;
    muon.step()?;
    // Five orthonormal columns, longer by sqrt(6 / 5) each.
    let norm = w.detach().square()?.sum()?.item()?;
    assert!((3.0..9.0).contains(&norm), "{norm}");
    Ok(())
}

fn with_gradients(values: &[&[f64]], dtype: DType) -> Result<Vec<Tensor>> {
    let leaf = |v: &&[f64]| -> Result<Tensor> {
        let w = Tensor::zeros(&[v.len()], (dtype, CPU))?.requires_grad_(true)?;
        w.set_grad(Some(Tensor::from_f64(v, &[v.len()], (dtype, CPU))?));
        Ok(w)
    };
    values.iter().map(leaf).collect()
}

fn grad_of(w: &Tensor) -> Result<Vec<f64>> {
    w.grad().expect("it has one").to_f64_vec()
}

#[test]
fn clipping_scales_all_gradients_together() -> Result<()> {
    for (order, norm) in [(2.0, 5.0), (1.0, 7.0), (f64::INFINITY, 4.0), (3.0, 91f64.cbrt())] {
        let w = with_gradients(&[&[3.0, 0.0], &[-4.0]], DType::F64)?;
        let had = clip_grad_norm_(&w, 1.0, order)?.item()?;
        assert!((had - norm).abs() < 1e-12 * norm, "{order}: {had} is not {norm}");
        let scale = 1.0 / (norm + 1e-6);
        assert!((grad_of(&w[0])?[0] - 3.0 * scale).abs() < 1e-12);
        assert!((grad_of(&w[1])?[0] + 4.0 * scale).abs() < 1e-12);
    }
    let w = with_gradients(&[&[0.3], &[0.4]], DType::F64)?;
    clip_grad_norm_(&w, 1.0, 2.0)?;
    assert_eq!((grad_of(&w[0])?, grad_of(&w[1])?), (vec![0.3], vec![0.4]), "small ones stay");
    let w = with_gradients(&[&[f64::NAN], &[1.0]], DType::F32)?;
    assert!(clip_grad_norm_(&w, 1.0, 2.0)?.item()?.is_nan());
    assert!(grad_of(&w[1])?[0].is_nan());
    assert_eq!(clip_grad_norm_(&[], 1.0, 2.0)?.item()?, 0.0);
    Ok(())
}

/// The original lost everything behind element 2,097,152.
#[test]
fn norms_of_many_elements_and_dtypes_are_whole() -> Result<()> {
    let n = 3_000_000;
    let w = Tensor::zeros(&[n], CPU)?.requires_grad_(true)?;
    w.set_grad(Some(Tensor::ones(&[n], CPU)?));
    let more = with_gradients(&[&[200.0, 300.0]], DType::F16)?;
    let all = [w.clone(), more[0].clone()];
    let norm = clip_grad_norm_(&all, 1.0, 2.0)?.item()?;
    let want = (n as f64 + 4e4 + 9e4).sqrt();
    assert!((norm - want).abs() < 1e-5 * want, "{norm} is not {want}");
    let left = total_norm(&[grad(&w), grad(&more[0])], 2.0)?.item()?;
    assert!((left - 1.0).abs() < 1e-3, "{left}");
    Ok(())
}

fn grad(w: &Tensor) -> Tensor {
    w.grad().expect("it has one")
}

/// One gradient for two parameters must not be scaled twice.
#[test]
fn a_shared_gradient_is_scaled_once() -> Result<()> {
    let w = with_gradients(&[&[3.0, 4.0], &[0.0, 0.0]], DType::F32)?;
    w[1].set_grad(w[0].grad());
    let norm = clip_grad_norm_(&w, 1.0, 2.0)?.item()?;
    let (a, b) = (grad_of(&w[0])?, grad_of(&w[1])?);
    assert_eq!(a, b);
    assert!((a[0] - 3.0 / norm).abs() < 1e-6, "{a:?}");
    let w = with_gradients(&[&[5.0, -7.0, 0.5]], DType::F32)?;
    clip_grad_value_(&w, 1.0)?;
    assert_eq!(grad_of(&w[0])?, [1.0, -1.0, 0.5]);
    Ok(())
}

/// A kernel reads it, so that one of no elements would be memory of others.
#[test]
fn a_norm_is_one_number() -> Result<()> {
    let w = Tensor::ones(&[3], DType::F32)?.requires_grad_(true)?;
    w.square()?.sum()?.backward()?;
    for shape in [&[0][..], &[2], &[1, 0, 4]] {
        let norm = Tensor::zeros(shape, DType::F32)?;
        let error =
            clip_grads_with_norm_(std::slice::from_ref(&w), 1.0, &norm).unwrap_err().to_string();
        assert!(error.contains("the norm is one number"), "{error}");
    }
    clip_grads_with_norm_(std::slice::from_ref(&w), 1.0, &Tensor::full(&[1], 4.0, DType::F32)?)?;
    assert!(grad(&w).to_vec::<f32>()?.iter().all(|g| (g - 0.5).abs() < 1e-6));
    Ok(())
}

#[test]
fn averages_follow_the_weights() -> Result<()> {
    for dtype in [DType::F64, DType::BF16] {
        let w = weight(&[7], dtype)?;
        let mut ema = Ema::new(vec![("w".to_owned(), w.clone())], 0.75)?;
        let mut want = w.to_f64_vec()?;
        for step in 0..3 {
            no_grad(|| w.fill_(f64::from(step)))?;
            ema.update()?;
            want.iter_mut().for_each(|v| *v = 0.75 * *v + 0.25 * f64::from(step));
        }
        let got = ema.averages()["w"].to_f64_vec()?;
        assert!(got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-6), "{got:?} {want:?}");
        let saved = ema.state_dict();
        let mut other = Ema::new(vec![("w".to_owned(), w.clone())], 0.1)?;
        other.load_state_dict(&saved)?;
        assert_eq!(other.averages()["w"].to_f64_vec()?, got);
        ema.with_averages(|| assert_ne!(w.to_f64_vec().unwrap_or_default(), [2.0; 7]))?;
        assert_eq!(w.to_f64_vec()?, [2.0; 7]);
    }
    Ok(())
}
