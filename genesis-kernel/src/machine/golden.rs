//! What one pass does to a kernel, as text, for the golden test in its file; and that every pass has one.

use super::pipeline::{CONSUMERS, Context, PRODUCER, SELECTION, UNIFORM, begin, lower, pipeline};
use super::selection::Selection;
use super::{Code, RunBy, SharedMemory, print};
use crate::DType;
use crate::compile::gpu_layout;
use crate::kernel::KernelDef;
use crate::layout::{LayoutIr, LayoutOptions, assign};
use crate::prelude::*;
use crate::target::GpuTarget;

/// Layout IR of a kernel of bf16 for an H200, by so many warps.
pub(crate) fn on_hopper(kernel: &KernelDef, consts: &[i64], num_warps: u32) -> LayoutIr {
    let hints = Hints { num_warps: Some(num_warps), ..Hints::contiguous(kernel.ast) };
    let special = kernel.specialize(&[DType::BF16], consts, &hints).expect("it is well formed");
    gpu_layout(&special, &GpuTarget::SM_90A).expect("it has layouts")
}

/// Layout IR of tile IR's text, by so many warps.
pub(crate) fn assigned(text: &str, num_warps: u32) -> LayoutIr {
    let func = crate::ir::parse(text).expect("it is tile IR");
    let options = LayoutOptions { num_warps: Some(num_warps), ..LayoutOptions::default() };
    assign(&func, &options).expect("it has layouts")
}

/// A row's sum over four warps, by so many blocks.
pub(crate) fn row_sum(columns: usize, cluster: Option<u32>) -> LayoutIr {
    let text = "
kernel sum(%x: *f32 readonly multiple_of 16, %y: *f32 exclusive) {
  %0 = iota : i64[N]
  %1 = broadcast %x : *f32[N]
  %2 = ptr_add %1, %0 : *f32[N]
  %3 = load %2 : f32[N]
  %4 = reduce add 0 %3 : f32
  store %y, %4
  return
}
";
    let func = crate::ir::parse(&text.replace('N', &columns.to_string())).expect("it is tile IR");
    let options = LayoutOptions { num_warps: Some(4), cluster, ..LayoutOptions::default() };
    assign(&func, &options).expect("it has layouts")
}

/// The same in a cluster of two blocks.
pub(crate) fn in_cluster() -> LayoutIr {
    row_sum(2048, Some(2))
}

/// The lines that a pass takes out and puts in, each with the lines before and after it, or that there are none.
pub(crate) fn changes(lir: &LayoutIr, by: RunBy, pass: &str) -> String {
    let gpu = &GpuTarget::SM_90A;
    let memory = SharedMemory::of(lir, gpu).expect("it fits");
    let context = Context { lir, memory: &memory, gpu, by };
    let mut code = begin(&context);
    for one in pipeline(by) {
        let before = text(&code, lir);
        (one.run)(&mut code, &context);
        if one.name == pass {
            return difference(&before, &text(&code, lir));
        }
    }
    panic!("there is no pass {pass}");
}

/// The code of a kernel that all threads run, before all passes.
pub(crate) fn begun(lir: &LayoutIr) -> Code {
    let gpu = &GpuTarget::SM_90A;
    let memory = SharedMemory::of(lir, gpu).expect("it fits");
    begin(&Context { lir, memory: &memory, gpu, by: RunBy::Block })
}

/// What the passes select for the ops of a kernel.
pub(crate) fn selected(lir: &LayoutIr, by: RunBy) -> Selection {
    let gpu = &GpuTarget::SM_90A;
    let memory = SharedMemory::of(lir, gpu).expect("it fits");
    lower(lir, &memory, gpu, by).selection
}

/// The text before all passes.
pub(crate) fn before(lir: &LayoutIr) -> String {
    text(&begun(lir), lir)
}

fn text(code: &Code, lir: &LayoutIr) -> String {
    let entry = print(&code.entry, &lir.func);
    let mark = if entry.is_empty() { "" } else { "// then\n" };
    entry + mark + &print(&code.body, &lir.func) + &code.selection.text(&lir.func)
}

/// Both texts line by line: `-` is gone, `+` is new.
fn difference(before: &str, after: &str) -> String {
    let [old, new] = [before, after].map(|text| text.lines().collect::<Vec<_>>());
    // Lines that both have, as many as can be.
    let mut common = vec![vec![0; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = match old[i] == new[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut all) = (0, 0, Vec::new());
    while i < old.len() || j < new.len() {
        match (old.get(i), new.get(j)) {
            (Some(a), Some(b)) if a == b => {
                all.push((' ', *a));
                (i, j) = (i + 1, j + 1);
            }
            (Some(a), b) if b.is_none() || common[i + 1][j] >= common[i][j + 1] => {
                all.push(('-', *a));
                i += 1;
            }
            (_, Some(b)) => {
                all.push(('+', *b));
                j += 1;
            }
            _ => break,
        }
    }
    let is_near = |at: usize| {
        let around = at.saturating_sub(1)..(at + 2).min(all.len());
        all[around].iter().any(|(sign, _)| *sign != ' ')
    };
    if all.iter().all(|(sign, _)| *sign == ' ') {
        return "unchanged\n".into();
    }
    let mut shown = String::new();
    let mut skips = false;
    for (at, (sign, line)) in all.iter().enumerate() {
        if is_near(at) {
            shown += &format!("{sign} {line}\n");
        } else if !skips {
            shown += "  ..\n";
        }
        skips = !is_near(at);
    }
    shown
}

/// A row's weights and its sum over values, as attention computes them.
#[kernel]
pub(crate) fn attend<X: Float, const M: usize, const N: usize, const D: usize>(
    q: View<X, 2>,
    k: View<X, 2>,
    v: View<X, 2>,
    y: ViewMut<X, 2>,
) {
    let rows = q.load::<M, D>([program_id(0) * M, 0]);
    let mut acc = zeros::<f32, M, D>();
    let mut top = full::<f32, M>(-1e30);
    for j in range(0, k.dim(0), N) {
        let s = dot(rows, k.load::<N, D>([j, 0]).trans(), zeros::<f32, M, N>());
        let higher = maximum(top, max(s, 1));
        let w = exp2(s - higher.col());
        acc = acc * exp2(top - higher).col();
        acc = dot(w.to::<X>(), v.load::<N, D>([j, 0]), acc);
        top = higher;
    }
    y.store([program_id(0) * M, 0], acc.to::<X>());
}

/// Tiles of a product with a main loop each, for programs that go through several.
#[kernel]
pub(crate) fn tiles<X: Float, const M: usize, const N: usize, const K: usize>(
    a: View<X, 2>,
    b: View<X, 2>,
    y: ViewMut<X, 2>,
) {
    for i in range(program_id(0), y.dim(0), num_programs(0)) {
        let mut acc = zeros::<f32, M, N>();
        for p in range(0, a.dim(1), K) {
            acc = dot(a.load::<M, K>([i * M, p]), b.load::<K, N>([p, 0]), acc);
        }
        y.store([i * M, 0], acc.to::<X>());
    }
}

/// Two products of one tile, whose MMAs are in flight in the next iteration.
#[kernel]
pub(crate) fn gate<X: Float, const M: usize, const N: usize, const K: usize>(
    a: View<X, 2>,
    b: View<X, 2>,
    y: ViewMut<X, 2>,
) {
    for i in range(program_id(0), y.dim(0), num_programs(0)) {
        let mut gate = zeros::<f32, M, N>();
        let mut up = zeros::<f32, M, N>();
        for p in range(0, a.dim(1), K) {
            let both = b.load::<K, N>([p, 0]);
            gate = dot(a.load::<M, K>([i * M, p]), both, gate);
            up = dot(a.load::<M, K>([(i + y.dim(0)) * M, p]), both, up);
        }
        y.store([i * M, 0], (gate * up).to::<X>());
    }
}

/// Files of this folder and of layouts that are no passes: data, algebra, text, and what is tested through passes.
const NO_PASSES: &[&str] = &[
    "machine/alias.rs",
    "machine/code.rs",
    "machine/dsmem.rs",
    "machine/exchange.rs",
    "machine/golden.rs",
    "machine/interpret.rs",
    "machine/mod.rs",
    "machine/parse.rs",
    "machine/pipeline.rs",
    "machine/print.rs",
    "machine/program.rs",
    "machine/scratch.rs",
    "machine/selection.rs",
    "machine/verify.rs",
    "machine/verify_pipeline.rs",
    "machine/words.rs",
    "layout/blocked.rs",
    "layout/convert.rs",
    "layout/f2.rs",
    "layout/linear.rs",
    "layout/lir.rs",
    "layout/mma.rs",
    "layout/mod.rs",
    "layout/gather.rs",
    "layout/ping_pong.rs",
    "layout/scratch.rs",
    "layout/simulate.rs",
    "layout/swizzle.rs",
    "layout/verify.rs",
];

#[test]
fn every_pass_has_a_golden_test() {
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut lacking = Vec::new();
    for folder in ["machine", "layout"] {
        for entry in std::fs::read_dir(source.join(folder)).expect("the folder is there") {
            let path = entry.expect("it is read").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !path.is_file() || NO_PASSES.contains(&format!("{folder}/{name}").as_str()) {
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("it is text");
            let tests = path.with_extension("").join("tests.rs");
            let more = std::fs::read_to_string(tests).unwrap_or_default();
            if !(text + &more).contains("expect![") {
                lacking.push(format!("{folder}/{name}"));
            }
        }
    }
    assert!(lacking.is_empty(), "these have no golden test: {lacking:?}");
}

#[test]
fn each_pass_is_a_file_of_its_name() {
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/machine");
    let all = [UNIFORM, CONSUMERS, SELECTION, PRODUCER];
    for pass in all.into_iter().flatten() {
        assert!(source.join(format!("{}.rs", pass.name)).is_file(), "{}", pass.name);
    }
}
