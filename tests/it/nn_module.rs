//! What `#[derive(Module)]` makes of fields, and what all modules can do with them.

use std::collections::BTreeMap;

use genesis::nn::{
    self, Buffer, Dropout, Layer, LayerNorm, Linear, Module, ModuleDict, ModuleList, Parameter,
    Relu, Residual, Sequential, Training, init,
};
use genesis::random::thread_rng;
use genesis::{DType, Device, Result, Tensor};

const CPU: Device = Device::Cpu;

/// A configuration that is no state and that the library does not know.
#[derive(Clone, Debug)]
struct Config {
    depth: usize,
}

/// Every kind of field.
#[derive(Module)]
struct Everything {
    scale: Parameter,
    maybe: Option<Parameter>,
    absent: Option<Linear>,
    mean: Buffer,
    table: Buffer,
    training: Training,
    #[module(name = "self_attn")]
    attention: Linear,
    layers: Vec<Linear>,
    pair: (Linear, Relu),
    list: ModuleList<Linear>,
    dict: ModuleDict<Linear>,
    map: BTreeMap<String, Parameter>,
    boxed: Box<dyn Layer>,
    eps: f64,
    name: String,
    #[module(skip)]
    config: Config,
}

fn one() -> Result<Parameter> {
    Parameter::new(Tensor::ones(&[2], CPU)?)
}

fn everything() -> Result<Everything> {
    let linear = || Linear::without_bias(2, 2, CPU);
    Ok(Everything {
        scale: one()?,
        maybe: Some(one()?),
        absent: None,
        mean: Buffer::new(Tensor::zeros(&[2], CPU)?),
        table: Buffer::transient(Tensor::zeros(&[3], CPU)?),
        training: Training::default(),
        attention: linear()?,
        layers: vec![linear()?, linear()?],
        pair: (linear()?, Relu),
        list: [linear()?].into_iter().collect(),
        dict: ModuleDict::new().with("z", linear()?).with("a", linear()?),
        map: [("k".to_owned(), one()?)].into(),
        boxed: Box::new(linear()?),
        eps: 1e-5,
        name: "everything".to_owned(),
        config: Config { depth: 3 },
    })
}

#[test]
fn fields_are_named_by_what_they_are() -> Result<()> {
    let module = everything()?;
    let names: Vec<String> = module.named_parameters().into_iter().map(|(name, _)| name).collect();
    let expected = [
        "scale",
        "maybe",
        "self_attn.weight",
        "layers.0.weight",
        "layers.1.weight",
        "pair.0.weight",
        "list.0.weight",
        "dict.z.weight",
        "dict.a.weight",
        "map.k",
        "boxed.weight",
    ];
    assert_eq!(names, expected);
    let buffers: Vec<String> = module.named_buffers().into_iter().map(|(name, _)| name).collect();
    assert_eq!(buffers, ["mean", "table"]);
    // A transient buffer is not saved.
    let state = module.state_dict();
    assert!(state.contains_key("mean") && !state.contains_key("table"));
    assert_eq!(state.len(), expected.len() + 1);
    let plain = (module.eps, module.name.as_str(), module.config.depth);
    assert_eq!(plain, (1e-5, "everything", 3));
    Ok(())
}

#[test]
fn modules_are_listed_with_their_types() -> Result<()> {
    let module = everything()?;
    let kinds = |list: Vec<(String, &dyn Module)>| -> Vec<(String, String)> {
        list.into_iter().map(|(name, module)| (name, module.kind())).collect()
    };
    let all = kinds(module.named_modules());
    assert_eq!(all[0], (String::new(), "Everything".to_owned()));
    assert!(all.contains(&("list.0".to_owned(), "Linear".to_owned())), "{all:?}");
    assert!(all.contains(&("boxed".to_owned(), "Linear".to_owned())), "{all:?}");
    let children = kinds(module.named_children());
    assert!(!children.iter().any(|(name, _)| name == "list.0" || name.is_empty()), "{children:?}");
    assert!(
        children.contains(&("list".to_owned(), "ModuleList<Linear>".to_owned())),
        "{children:?}"
    );
    Ok(())
}

#[test]
fn training_reaches_every_flag() -> Result<()> {
    #[derive(Module)]
    struct Nested {
        inner: Vec<Dropout>,
        own: Training,
    }
    let module =
        Nested { inner: vec![Dropout::new(0.1), Dropout::new(0.2)], own: Training::default() };
    module.eval();
    assert!(!module.own.is_on() && module.inner.iter().all(|d| !d.training.is_on()));
    module.train(true);
    assert!(module.own.is_on() && module.inner.iter().all(|d| d.training.is_on()));
    Ok(())
}

/// A language model's ends: the head is the embedding's table.
#[derive(Module)]
struct Tied {
    embed: Linear,
    head: Linear,
}

fn tied() -> Result<Tied> {
    let embed = Linear::without_bias(3, 3, CPU)?;
    let head = Linear { weight: embed.weight.clone(), bias: None };
    Ok(Tied { embed, head })
}

#[test]
fn tied_weights_are_one_and_stay_one() -> Result<()> {
    let mut module = tied()?;
    assert_eq!((module.parameters().len(), module.num_parameters()), (1, 9));
    assert_eq!(module.state_dict().keys().collect::<Vec<_>>(), ["embed.weight"]);
    module.to_dtype(DType::F64)?;
    assert!(module.embed.weight.is_same(&module.head.weight));
    assert_eq!(module.head.weight.dtype(), DType::F64);
    assert_eq!(module.parameters().len(), 1);
    Ok(())
}

#[test]
fn tied_weights_load_from_any_of_their_names() -> Result<()> {
    let module = tied()?;
    let values = Tensor::full(&[3, 3], 2.0, CPU)?;
    for names in [&["embed.weight"][..], &["head.weight"], &["embed.weight", "head.weight"]] {
        init::zeros_(&module.embed.weight)?;
        let state = names.iter().map(|name| ((*name).to_owned(), values.clone())).collect();
        module.load_state_dict(&state)?;
        assert_eq!(module.head.weight.to_f64_vec()?, [2.0; 9], "{names:?}");
    }
    let other = Tensor::full(&[3, 3], 3.0, CPU)?;
    let state = [("embed.weight".to_owned(), values), ("head.weight".to_owned(), other)].into();
    let error = module.load_state_dict(&state).expect_err("one tensor can't have both values");
    assert_eq!(
        error.to_string(),
        "load_state_dict: `embed.weight` and `head.weight` are one parameter and have different values"
    );
    Ok(())
}

#[test]
fn a_module_converts_with_gradients_and_integer_buffers() -> Result<()> {
    #[derive(Module)]
    struct Counted {
        linear: Linear,
        count: Buffer,
    }
    let count = Buffer::new(Tensor::zeros(&[], (DType::I64, CPU))?);
    let mut module = Counted { linear: Linear::new(2, 1, CPU)?, count };
    module.linear.forward(&Tensor::ones(&[1, 2], CPU)?)?.sum()?.backward()?;
    let before = module.linear.weight.clone();
    module.to_dtype(DType::BF16)?;
    let weight = &module.linear.weight;
    assert_eq!((weight.dtype(), module.count.dtype()), (DType::BF16, DType::I64));
    assert!(weight.requires_grad() && weight.is_leaf());
    let grad = weight.grad().expect("it goes along");
    assert_eq!((grad.dtype(), grad.to_f64_vec()?), (DType::BF16, vec![1.0, 1.0]));
    // What need not change is the same tensor, so that optimizers keep it.
    module.to_dtype(DType::BF16)?;
    module.to_device(CPU)?;
    let again = module.linear.weight.clone();
    module.to_dtype(DType::BF16)?;
    assert!(module.linear.weight.is_same(&again) && !again.is_same(&before));
    let error = module.to_dtype(DType::I64).expect_err("weights are floats");
    assert_eq!(error.to_string(), "to_dtype: needs a float dtype, got i64");
    Ok(())
}

#[test]
fn freezing_stops_gradients() -> Result<()> {
    let net = Sequential::new().with(Linear::new(2, 2, CPU)?).with(Linear::new(2, 1, CPU)?);
    net.layers()[0].requires_grad_(false)?;
    net.forward(&Tensor::ones(&[1, 2], CPU)?)?.sum()?.backward()?;
    let has: Vec<bool> = net.parameters().iter().map(|p| p.grad().is_some()).collect();
    assert_eq!(has, [false, false, true, true]);
    net.zero_grad();
    assert!(net.parameters().iter().all(|p| p.grad().is_none()));
    Ok(())
}

#[test]
fn apply_goes_from_the_inside_out() -> Result<()> {
    let net = Sequential::new().with(Residual::new(Linear::new(2, 2, CPU)?)).with(Relu);
    let mut kinds = Vec::new();
    net.apply(&mut |module| {
        kinds.push(module.kind());
        module.downcast_ref::<Linear>().map_or(Ok(()), |linear| init::ones_(&linear.weight))
    })?;
    assert_eq!(kinds, ["Linear", "Residual<Linear>", "Relu", "Sequential"]);
    assert_eq!(net.parameters()[0].to_f64_vec()?, [1.0; 4]);
    assert_eq!(net.named_parameters()[0].0, "0.fn.weight");
    Ok(())
}

fn named(names: &[&str]) -> Result<BTreeMap<String, Tensor>> {
    names.iter().map(|name| Ok(((*name).to_owned(), Tensor::zeros(&[2], CPU)?))).collect()
}

fn two() -> Result<ModuleDict<LayerNorm>> {
    Ok(ModuleDict::new().with("norm1", LayerNorm::new(2, CPU)?))
}

#[test]
fn errors_of_loading_point_to_the_nearest_name() -> Result<()> {
    let module = two()?;
    let state = named(&["norm1.wieght", "norm1.bias", "something.else.entirely"])?;
    let error = module.load_state_dict(&state).expect_err("a name is misspelled");
    assert_eq!(
        error.to_string(),
        "load_state_dict: missing `norm1.weight` (there is `norm1.wieght`); unexpected `norm1.wieght`; \
         unexpected `something.else.entirely`"
    );
    let state = named(&["module.norm1.weight", "module.norm1.bias"])?;
    let report = module.check_state_dict(&state);
    assert_eq!(report.extra_prefix(), Some("module."));
    assert!(
        report.to_string().starts_with("all unexpected names begin with `module.`: take it away; ")
    );
    let report = module.check_state_dict(&named(&["weight", "bias"])?);
    assert_eq!(report.lost_prefix(), Some("norm1."));
    // Nothing was changed by any of it.
    assert_eq!(module.state_dict()["norm1.weight"].to_f64_vec()?, [1.0, 1.0]);
    Ok(())
}

#[test]
fn loose_loading_takes_what_fits_and_reports_the_rest() -> Result<()> {
    let module = two()?;
    let report = module.load_state_dict_loose(&named(&["norm1.weight", "extra"])?)?;
    assert_eq!(
        (report.missing, report.unexpected),
        (vec!["norm1.bias".to_owned()], vec!["extra".to_owned()])
    );
    assert_eq!(module.state_dict()["norm1.weight"].to_f64_vec()?, [0.0, 0.0]);
    // Another shape is refused even so, as in PyTorch.
    let state = [("norm1.bias".to_owned(), Tensor::zeros(&[7], CPU)?)].into();
    let error = module.load_state_dict_loose(&state).expect_err("7 is not 2");
    assert!(
        error.to_string().contains("`norm1.bias` has shape [7], the module needs [2]"),
        "{error}"
    );
    Ok(())
}

#[test]
fn a_summary_counts_parameters_flops_and_bytes() -> Result<()> {
    // Other tests seed the default generator.
    let _own = thread_rng(7);
    let net = Sequential::new()
        .with(Linear::new(4, 8, CPU)?)
        .with(Relu)
        .with(Dropout::new(0.5))
        .with(Relu)
        .with(Linear::new(8, 2, CPU)?);
    let summary = net.summary(&[3, 4])?;
    assert_eq!((summary.parameters, summary.trainable), (58, 58));
    assert_eq!(summary.flops, 2 * 3 * (4 * 8 + 8 * 2));
    assert_eq!(summary.state_bytes, 58 * 4);
    let calls: Vec<usize> = summary.rows.iter().map(|row| row.calls).collect();
    assert_eq!(calls, [1; 6]);
    let text = summary.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "layer  type        output  parameters  FLOPs  bytes");
    assert_eq!(lines[2], "0      Linear      [3, 8]          40    192    160");
    assert_eq!(lines[3], "1      Relu        [3, 8]           0      0      0");
    assert!(
        text.ends_with(
            "58 parameters, 58 trainable, 288 FLOPs, 232 bytes of state, 408 bytes of outputs"
        ),
        "{text}"
    );
    // It ran without dropout, and left the flag on.
    assert!(net.named_modules().len() == 6);
    let x = Tensor::ones(&[64, 4], CPU)?;
    assert_ne!(net.forward(&x)?.to_f64_vec()?, net.forward(&x)?.to_f64_vec()?);
    Ok(())
}

#[test]
fn a_layer_at_work_is_named() -> Result<()> {
    #[derive(Module)]
    struct Asks;
    impl Layer for Asks {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            nn::watch(self, || {
                Err(genesis::Error::op("asks", nn::module_path().unwrap_or_default()))
            })
            .or_else(|error| if x.numel() == 1 { Err(error) } else { Ok(x.clone()) })
        }
    }
    let net = Sequential::new().with(Relu).with(Asks);
    let x = Tensor::ones(&[1], CPU)?;
    let error = net.forward(&x).expect_err("it tells where it is");
    assert_eq!(error.to_string(), "asks: Sequential > Asks");
    let error = nn::observe(&net, |_| Ok(()), || net.forward(&x)).expect_err("as before");
    assert_eq!(error.to_string(), "asks: 1");
    assert_eq!(nn::module_path(), None);
    Ok(())
}
