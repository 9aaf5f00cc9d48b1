//! Ragged sequences, grids and knobs: what no table of layers or ops says.

use genesis::nn::{
    Lstm, RecurrentOptions, pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence,
};
use genesis::ops::{BagMode, Bags, GridMode, GridPadding, GridSample, MultiMargin, Reduction};
use genesis::random::Generator;
use genesis::{DType, Device, Result, Tensor};

const CPU: Device = Device::Cpu;

fn refusal<T>(result: Result<T>) -> String {
    result.err().expect("it is refused").to_string()
}

#[test]
fn sequences_come_back_as_they_were() -> Result<()> {
    let g = Generator::new(1);
    let all: Vec<Tensor> =
        [2, 4, 1].iter().map(|&t| g.randn(&[t, 3], CPU)).collect::<Result<_>>()?;
    let parts: Vec<&Tensor> = all.iter().collect();
    let packed = pack_sequence(&parts)?;
    assert_eq!(packed.batch_sizes(), [3, 2, 1, 1]);
    assert_eq!(packed.sorted_indices(), Some(&[1, 0, 2][..]));
    assert_eq!(packed.lengths(), [2, 4, 1]);
    for is_batch_first in [true, false] {
        let (y, lengths) = pad_packed_sequence(&packed, is_batch_first, -7.0)?;
        assert_eq!(lengths, [2, 4, 1]);
        let padded = pad_sequence(&parts, is_batch_first, -7.0)?;
        assert_eq!(y.to_vec::<f32>()?, padded.to_vec::<f32>()?);
        let again = pack_padded_sequence(&y, &lengths, is_batch_first)?;
        assert_eq!(again.data().to_vec::<f32>()?, packed.data().to_vec::<f32>()?);
    }
    let x = pad_sequence(&parts, true, 0.0)?;
    assert_eq!(
        refusal(pack_padded_sequence(&x, &[2, 5, 1], true)),
        "pack_padded_sequence: lengths [2, 5, 1] do not fit 3 sequences of 4"
    );
    assert!(pack_padded_sequence(&x, &[2, 0, 1], true).is_err());
    assert!(pad_sequence(&[], true, 0.0).is_err());
    Ok(())
}

/// Each sequence of a packed batch has the outputs and states that it has alone.
#[test]
fn a_packed_sequence_does_not_see_the_others() -> Result<()> {
    let options = RecurrentOptions { num_layers: 2, bidirectional: true, ..Default::default() };
    let lstm = Lstm::with(3, 4, options, CPU)?;
    let g = Generator::new(2);
    let all: Vec<Tensor> =
        [2, 5, 3].iter().map(|&t| g.randn(&[t, 3], CPU)).collect::<Result<_>>()?;
    let packed = pack_sequence(&all.iter().collect::<Vec<_>>())?;
    let (y, states) = lstm.forward_packed(&packed, None)?;
    let (y, _) = pad_packed_sequence(&y, true, 0.0)?;
    for (i, x) in all.iter().enumerate() {
        let (alone, last) = lstm.forward(x, None)?;
        let own = y.select(0, i)?.narrow(0, 0, x.shape()[0])?;
        assert!(own.allclose(&alone, &Default::default())?, "outputs of {i}");
        for (all, own) in states.iter().zip(&last) {
            assert!(all.select(1, i)?.allclose(own, &Default::default())?, "states of {i}");
        }
    }
    let wrong = RecurrentOptions { proj_size: 4, ..Default::default() };
    assert_eq!(
        refusal(Lstm::with(3, 4, wrong, CPU)),
        "LSTM: proj_size 4 must be below 4, and is for LSTM only"
    );
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Result<()> {
    let (x, index) = (Tensor::zeros(&[7, 3], CPU)?, Tensor::zeros(&[4], (DType::I64, CPU))?);
    assert_eq!(
        refusal(x.embedding_bag(&index, &Bags::default())),
        "embedding_bag: an index [4] needs offsets, or 2 axes"
    );
    let offsets = Some(Tensor::from_slice_on(&[0i64, 5], &[2], CPU)?);
    assert_eq!(
        refusal(x.embedding_bag(&index, &Bags { offsets, ..Bags::default() })),
        "embedding_bag: offsets must grow from 0 to at most 4, got [0, 5]"
    );
    let weights = Some(Tensor::ones(&[4], CPU)?);
    let bags = Bags { per_sample_weights: weights, mode: BagMode::Max, ..Bags::default() };
    assert!(refusal(x.embedding_bag(&index, &bags)).starts_with("embedding_bag: weights are for"));
    let grid = Tensor::zeros(&[1, 2, 2, 3], CPU)?;
    assert_eq!(
        refusal(Tensor::zeros(&[1, 1, 2, 2], CPU)?.grid_sample(&grid, &GridSample::default())),
        "grid_sample: a grid [1, 2, 2, 3] does not fit shape [1, 1, 2, 2]"
    );
    assert_eq!(
        refusal(x.multi_margin_loss(&index, &MultiMargin::default())),
        "multi_margin_loss: scores must be [C] or [N, C] with a class, got [7, 3] and a target [4]"
    );
    assert!(x.local_response_norm(3, 1e-4, 0.75, 1.0).is_err());
    assert!(x.affine_grid(&[7, 1, 2, 2], false).is_err());
    Ok(())
}

/// Gradients by differences, of first and second order, in f64.
#[test]
fn gradients_of_grids_bags_and_margins_are_slopes() -> Result<()> {
    use genesis::autograd::{GradCheck, gradcheck, gradgradcheck};
    let g = Generator::new(5);
    let at = (DType::F64, CPU);
    let x = g.randn(&[1, 2, 4, 3], at)?.requires_grad_(true)?;
    let grid = g.uniform(&[1, 3, 2, 2], -0.9, 0.9, at)?.requires_grad_(true)?;
    let check = |f: &dyn Fn(&[Tensor]) -> Result<Tensor>, x: &[&Tensor]| {
        gradcheck(|x| Ok(vec![f(x)?]), x, GradCheck::default())
    };
    for mode in [GridMode::Linear, GridMode::Cubic] {
        let sample = GridSample { mode, padding: GridPadding::Zeros, align_corners: false };
        check(&|x| x[0].grid_sample(&x[1], &sample), &[&x, &grid])?;
        let f = |x: &[Tensor]| Ok(vec![x[0].grid_sample(&x[1], &sample)?]);
        gradgradcheck(f, &[&x, &grid], GradCheck::default())?;
    }
    let theta = g.randn(&[2, 2, 3], at)?.requires_grad_(true)?;
    check(&|x| x[0].affine_grid(&[2, 1, 3, 2], true), &[&theta])?;
    let norm = g.randn(&[2, 4, 3], at)?.requires_grad_(true)?;
    check(&|x| x[0].local_response_norm(3, 0.3, 0.6, 1.2), &[&norm])?;
    let table = g.randn(&[5, 3], at)?.requires_grad_(true)?;
    let index = Tensor::from_slice_on(&[1i64, 4, 4, 0, 3, 2], &[2, 3], CPU)?;
    for mode in [BagMode::Sum, BagMode::Mean, BagMode::Max] {
        let bags = Bags { mode, ..Bags::default() };
        check(&|x| x[0].embedding_bag(&index, &bags), &[&table])?;
    }
    let scores = g.randn(&[3, 4], at)?.requires_grad_(true)?;
    let target = Tensor::from_slice_on(&[1i64, 3, 0], &[3], CPU)?;
    let squares = MultiMargin { p: 2, ..MultiMargin::default() };
    check(&|x| x[0].multi_margin_loss(&target, &squares), &[&scores])?;
    let labels = Tensor::from_slice_on(&[1i64, -1, 0, 0, 2, 3, -1, 1, 0, 1, 2, -1], &[3, 4], CPU)?;
    check(&|x| x[0].multilabel_margin_loss(&labels, Reduction::Mean), &[&scores])
}

/// The knob is read once by a process, so a child of this one has it.
#[test]
fn a_knob_looks_for_anomalies_in_every_thread() -> Result<()> {
    const KNOB: &str = "GENESIS_ANOMALY";
    if std::env::var(KNOB).is_ok_and(|value| value == "1") {
        let root = || {
            let x = Tensor::from_slice_on(&[0.0f32, 1.0], &[2], CPU)?.requires_grad_(true)?;
            x.sqrt()?.sum()?.backward()
        };
        for text in [refusal(root()), std::thread::spawn(move || refusal(root())).join().unwrap()] {
            assert!(text.starts_with("sqrt: its backward made inf at [0]"), "{text}");
        }
        return Ok(());
    }
    let program = std::env::current_exe().map_err(|error| genesis::Error::io(error.to_string()))?;
    let mut child = std::process::Command::new(program);
    child.args(["--exact", "ragged::a_knob_looks_for_anomalies_in_every_thread"]).env(KNOB, "1");
    let output = child.output().map_err(|error| genesis::Error::io(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    Ok(())
}
