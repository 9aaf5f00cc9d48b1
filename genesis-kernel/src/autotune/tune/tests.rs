//! The whole search on the CPU: real kernels, real times.

use std::time::Duration;

use super::*;
use crate::autotune::Source;
use crate::front::LaunchOptions;
use crate::prelude::*;

/// `y = 2 x`, by blocks of rows.
#[autotune(
    key = { rows: x.dim(0), cols: x.dim(1) },
    space = { ROWS: [1, 4, 64], COLS: [16, 64] },
    grid = |t| Grid::xy(rows.div_ceil(t.ROWS), cols.div_ceil(t.COLS)),
    example = { x: [rows, cols], y: [rows, cols] },
)]
#[kernel]
fn twice<T: Float, const ROWS: usize, const COLS: usize>(x: View<T, 2>, y: ViewMut<T, 2>) {
    let (i, j) = (program_id(0) * ROWS, program_id(1) * COLS);
    let v = x.load::<ROWS, COLS>([i, j]);
    y.store([i, j], v + v);
}

/// A kernel whose result depends on its configuration: right only where `STEP` is 1.
#[autotune(
    key = { n: y.dim(0) },
    space = { BLOCK: [64, 128], STEP: [1, 2] },
    grid = |t| Grid::x(n.div_ceil(t.BLOCK)),
    example = { x: [n], y: [n] },
    heuristic = usual,
    prune = not_tiny,
    table = r#"{"kernel":"wrong","dtypes":[],"sizes":{"n":4096},"forms":"rr","device":"cpu","driver":0,"consts":{"BLOCK":64,"STEP":1},"options":{},"us":1.0,"date":"2026-11-21"}"#,
)]
#[kernel]
fn wrong<const BLOCK: usize, const STEP: usize>(x: View<f32, 1>, y: ViewMut<f32, 1>) {
    let i = program_id(0) * BLOCK;
    y.store([i], x.load::<BLOCK>([i * STEP]));
}

fn usual(_: &Problem<'_>) -> (wrong::Consts, LaunchOptions) {
    (wrong::Consts { BLOCK: 128, STEP: 1 }, LaunchOptions::default())
}

fn not_tiny(consts: wrong::Consts, _: LaunchOptions, problem: &Problem<'_>) -> bool {
    consts.BLOCK as i64 <= problem.sizes[0]
}

fn quick() -> Plan {
    Plan { budget: Duration::from_secs(5), first_runs: 1, finalists: 2, final_runs: 4 }
}

fn tuned_on_cpu(kernel: &'static KernelDef, dtypes: &[DType], sizes: &[i64]) -> TuneReport {
    let stream = Device::Cpu.stream();
    let tuning = kernel.tuning().unwrap();
    let example = Example::new(&stream, kernel.ast, tuning, dtypes, sizes, &[]).unwrap();
    let request = TuneRequest { plan: quick(), ..TuneRequest::new(kernel, &stream, dtypes) };
    tune_example(&request, &example, &mut |_| ()).unwrap()
}

#[test]
fn every_configuration_is_checked_and_timed() {
    let report = tuned_on_cpu(&twice::KERNEL, &[DType::F32], &[300, 70]);
    assert_eq!(report.candidates.len(), 6);
    let times: Vec<f64> = report.candidates.iter().filter_map(|c| c.outcome.us()).collect();
    assert_eq!(times.len(), 6, "{report:?}");
    assert!(times.is_sorted());
    let record = report.record().unwrap();
    let sizes = [("rows".to_owned(), 300), ("cols".to_owned(), 70)];
    assert_eq!((record.kernel.as_str(), record.device.as_str()), ("twice", "cpu"));
    assert_eq!((&record.sizes[..], record.forms.as_str()), (&sizes[..], "xx"));
    assert_eq!(record.config(twice::KERNEL.ast).unwrap(), report.best().unwrap().config);
}

#[test]
fn a_wrong_configuration_is_refused_before_it_is_timed() {
    let report = tuned_on_cpu(&wrong::KERNEL, &[], &[4096]);
    for candidate in &report.candidates {
        match candidate.config.consts[1] {
            1 => assert!(candidate.outcome.us().is_some(), "{candidate:?}"),
            _ => assert!(
                matches!(&candidate.outcome, Outcome::Wrong(why)
                if why.ends_with("elements differ on a small problem")),
                "{candidate:?}"
            ),
        }
    }
    assert_eq!(report.best().unwrap().config.consts[1], 1);
}

#[test]
fn a_launch_takes_the_table_then_its_neighbour_then_the_heuristic() {
    let stream = Device::Cpu.stream();
    let of = |n: i64| {
        let tuning = wrong::KERNEL.tuning().unwrap();
        let example = Example::new(&stream, wrong::KERNEL.ast, tuning, &[], &[n], &[]).unwrap();
        // SAFETY: the arguments are the example's, which lives on.
        let chosen = unsafe { wrong::KERNEL.choose(&stream, &[], &[], example.args()) };
        let (config, source) = chosen.unwrap();
        (config.consts[0], source)
    };
    assert_eq!(of(4096), (64, Source::Table));
    assert_eq!(of(4096), (64, Source::Table));
    assert_eq!(of(8192), (64, Source::Near));
    assert_eq!(of(16 * 4096), (128, Source::Heuristic));
}

#[test]
fn a_tuned_launch_computes_what_any_other_does() {
    let stream = Device::Cpu.stream();
    let values: Vec<f32> = (0..300 * 70).map(|i| i as f32).collect();
    let x = stream.upload(&values).unwrap();
    let mut y = Array::<f32>::zeros(&stream, values.len()).unwrap();
    let views = (x.view([300, 70]).unwrap(), y.view_mut([300, 70]).unwrap());
    twice::tuned::<f32>(&stream, views).unwrap();
    assert!(y.to_vec().unwrap().iter().zip(&values).all(|(y, x)| *y == 2.0 * x));
}

/// `y = x + bias`, of a row; `y = scale * x` where there is a scale.
#[autotune(
    key = { n: y.dim(0), of_bias: bias.dim(0) },
    space = { BLOCK: [32, 64] },
    grid = |t| Grid::x(n.div_ceil(t.BLOCK)),
    example = { x: [n], bias: [n], y: [n] },
    heuristic = by_presence,
)]
#[kernel]
fn shifted<const BLOCK: usize>(
    x: View<f32, 1>,
    bias: Option<View<f32, 1>>,
    scale: Option<f32>,
    y: ViewMut<f32, 1>,
) {
    let i = program_id(0) * BLOCK;
    let mut v = x.load::<BLOCK>([i]);
    if let Some(scale) = scale {
        v *= scale;
    }
    if let Some(bias) = bias {
        v += bias.load::<BLOCK>([i]);
    }
    y.store([i], v);
}

/// Large blocks where there is a bias, small ones where there is none.
fn by_presence(problem: &Problem<'_>) -> (shifted::Consts, LaunchOptions) {
    let [bias, _] = problem.present else { panic!("there are two optional parameters") };
    (shifted::Consts { BLOCK: if *bias { 64 } else { 32 } }, LaunchOptions::default())
}

#[test]
fn optional_arguments_are_part_of_the_choice() {
    let stream = Device::Cpu.stream();
    let x = stream.upload(&[1.0_f32; 100]).unwrap();
    let bias = stream.upload(&[0.5_f32; 100]).unwrap();
    let mut y = Array::<f32>::zeros(&stream, 100).unwrap();
    let mut of = |bias: Option<_>, scale: Option<f32>| {
        let args = (x.view([100]).unwrap(), bias, scale, y.view_mut([100]).unwrap());
        shifted::tuned(&stream, args).unwrap();
        y.to_vec().unwrap()[99]
    };
    let view = || Some(bias.view([100]).unwrap());
    assert_eq!((of(None, None), of(view(), None)), (1.0, 1.5));
    assert_eq!((of(None, Some(3.0)), of(view(), Some(3.0))), (3.0, 3.5));
    let chosen = shifted::KERNEL.chosen.choices.read().unwrap();
    let mut blocks: Vec<i64> = chosen.iter().map(|choice| choice.config.consts[0]).collect();
    blocks.sort_unstable();
    // The bias' extent is a size too; the scale changes neither sizes nor forms of views.
    assert_eq!(blocks, [32, 32, 64, 64]);
    let absent = (x.view([100]).unwrap(), Absent, Absent, y.view_mut([100]).unwrap());
    shifted::tuned(&stream, absent).unwrap();
}

#[test]
fn an_example_has_the_optional_arguments_that_it_names() {
    let stream = Device::Cpu.stream();
    let (kernel, tuning) = (&shifted::KERNEL, shifted::KERNEL.tuning().unwrap());
    let example = Example::new(&stream, kernel.ast, tuning, &[], &[100, 100], &[]).unwrap();
    assert_eq!(example.present(), [true, false]);
    let request = TuneRequest { plan: quick(), ..TuneRequest::new(kernel, &stream, &[]) };
    let report = tune_example(&request, &example, &mut |_| ()).unwrap();
    assert!(report.best().unwrap().outcome.us().is_some(), "{report:?}");
    assert_eq!(report.record().unwrap().forms, "rrr+-");
    let without = example.with_present(kernel.ast, &[false, false]).unwrap();
    let request = TuneRequest { present: &[false, false], ..request };
    // SAFETY: the arguments are the example's, which lives on.
    let report = unsafe { tune(&request, without.args(), &mut |_| ()) }.unwrap();
    assert!(report.best().unwrap().outcome.us().is_some(), "{report:?}");
    assert!(without.with_present(kernel.ast, &[true, false]).is_none());
    // SAFETY: it is refused before anything runs.
    let wrong = unsafe { kernel.launch_tuned(&stream, &[], &[]) }.unwrap_err().to_string();
    assert_eq!(
        wrong,
        "shifted: has 2 optional parameters, and the launch says of 0 whether they are there"
    );
}

#[test]
fn loops_of_a_length_known_at_launch_count_in_the_model() {
    let stream = Device::Cpu.stream();
    let tuning = twice::KERNEL.tuning().unwrap();
    let kernel = &twice::KERNEL;
    let dtypes = [DType::F32];
    let example = Example::new(&stream, kernel.ast, tuning, &dtypes, &[256, 64], &[]).unwrap();
    let machine = Machine::of(Device::Cpu).unwrap();
    let problem = Problem {
        machine: &machine,
        dtypes: &dtypes,
        sizes: &[256, 64],
        present: &[],
        args: example.args(),
    };
    for (config, work) in rank(kernel, tuning, &problem) {
        let elements = (config.consts[0] * config.consts[1]) as f64;
        assert_eq!((work.flops, work.bytes), (elements, 8.0 * elements));
        assert_eq!(work.programs * elements, 256.0 * 64.0);
        assert_eq!(work.argument_bytes, 2.0 * 4.0 * 256.0 * 64.0);
    }
}

#[test]
fn a_kernel_without_a_space_says_so() {
    let stream = Device::Cpu.stream();
    let plain = &crate::autotune::tests::PLAIN;
    let request = TuneRequest::new(plain, &stream, &[]);
    // SAFETY: it is refused before anything runs.
    let error = unsafe { tune(&request, &[], &mut |_| ()) }.unwrap_err().to_string();
    assert_eq!(error, "matmul: the kernel has no #[autotune]");
}
