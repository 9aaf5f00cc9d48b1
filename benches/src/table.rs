//! Every case, with what it must reach beside its peer.

/// The compilation that is held against Triton's; its bar stands in the table.
pub(crate) const COMPILE_MATMUL: &str = "compile/matmul/bf16/128x256x64/sm_90a";

/// What a case aims for beyond what it must.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Aim {
    /// The peer's time over ours.
    Ratio(f64),
    /// The share of the roofline.
    Roofline(f64),
}

/// A case and its bar.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Case {
    /// `<op>/<dtype>/<shape>[/<variant>]`
    pub(crate) name: String,
    /// The least ratio of the peer's time to ours; none where there is no bar.
    pub(crate) must: Option<f64>,
    /// What it aims for.
    pub(crate) aim: Option<Aim>,
}

/// Cases in the order they run: what is quick first, what takes much memory last.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: String, must: f64, aim: Aim| {
        cases.push(Case { name, must: Some(must), aim: Some(aim) });
    };
    elementwise(&mut add);
    rows(&mut add);
    reductions(&mut add);
    products(&mut add);
    attention(&mut add);
    large(&mut add);
    cases
}

type Add<'a> = dyn FnMut(String, f64, Aim) + 'a;

const FLOATS: [&str; 2] = ["f32", "bf16"];

fn elementwise(add: &mut Add<'_>) {
    use Aim::{Ratio, Roofline};
    for dtype in FLOATS {
        for n in [1024, 2048, 4096, 8192, 16384] {
            add(format!("add/{dtype}/{n}x{n}"), 0.98, Ratio(1.02));
        }
    }
    for (op, must) in [("gelu", 1.25), ("silu", 1.0), ("exp", 1.0)] {
        add(format!("{op}/bf16/8192x8192"), must, Roofline(0.95));
    }
    for op in ["add_row", "add_column"] {
        add(format!("{op}/f32/8192x8192"), 1.35, Ratio(1.5));
    }
    for dtype in FLOATS {
        add(format!("transpose/{dtype}/8192x8192"), 2.0, Ratio(3.2));
    }
    add("fused_chain/f32/64M".to_owned(), 1.0, Ratio(1.05));
}

fn rows(add: &mut Add<'_>) {
    use Aim::Ratio;
    for dtype in FLOATS {
        for shape in ["4096x1024", "4096x4096", "8192x8192"] {
            add(format!("softmax/{dtype}/{shape}"), 1.0, Ratio(1.05));
        }
    }
    add("softmax/bf16/4096x32768".to_owned(), 1.15, Ratio(1.35));
    add("softmax/bf16/2048x151936".to_owned(), 1.6, Ratio(2.1));
    for (op, must, aim) in [
        ("layer_norm", 1.5, 1.75),
        ("layer_norm_bwd", 1.5, 2.3),
        ("rms_norm", 1.4, 1.6),
        ("rms_norm_bwd", 1.4, 1.6),
    ] {
        for shape in ["8192x8192", "16384x896"] {
            add(format!("{op}/bf16/{shape}"), must, Ratio(aim));
        }
    }
}

fn reductions(add: &mut Add<'_>) {
    use Aim::Ratio;
    for axis in ["all", "-1", "0"] {
        for dtype in FLOATS {
            add(format!("sum/{dtype}/8192x8192/axis={axis}"), 1.0, Ratio(1.2));
        }
    }
    for axis in ["all", "-1", "0,1"] {
        add(format!("sum/f32/4x512x896/axis={axis}"), 1.0, Ratio(1.4));
    }
    for op in ["cumsum", "argmax"] {
        add(format!("{op}/f32/8192x8192"), 1.2, Ratio(2.0));
    }
}

fn products(add: &mut Add<'_>) {
    use Aim::Ratio;
    for n in [512, 1024, 2048, 4096, 8192, 16384] {
        let (must, aim) = if n < 4096 { (0.9, 1.05) } else { (1.0, 1.08) };
        for dtype in ["bf16", "f16"] {
            for variant in ["nn", "nt", "tn"] {
                add(format!("matmul/{dtype}/{n}/{variant}"), must, Ratio(aim));
            }
        }
    }
    for dtype in ["tf32", "f32"] {
        add(format!("matmul/{dtype}/4096/nn"), 0.85, Ratio(1.0));
    }
    for case in ["i8/4096/nn", "i8/4096/nt", "f64/4096/nn"] {
        add(format!("matmul/{case}"), 0.9, Ratio(1.0));
    }
    for variant in ["nt", "nt/fast"] {
        for n in [2048, 4096, 8192] {
            add(format!("matmul/f8e4m3/{n}/{variant}"), 0.9, Ratio(1.0));
        }
    }
    for shape in ["k896n4864", "k4864n896", "k896n151936", "k4096n14336"] {
        add(format!("linear/bf16/m8192{shape}"), 0.95, Ratio(1.07));
    }
    for m in [1, 16] {
        for shape in ["k4096n14336", "k896n151936"] {
            add(format!("linear/bf16/m{m}{shape}"), 1.0, Ratio(1.3));
        }
    }
    // Beside whole weights, which are twice and nearly four times as many bytes.
    for shape in ["k14336n4096", "k4096n14336"] {
        add(format!("quantized_linear/bf16/m1{shape}/int8"), 1.3, Ratio(1.8));
        add(format!("quantized_linear/bf16/m1{shape}/int4"), 2.15, Ratio(2.9));
    }
    add("matmul_bias_gelu/bf16/4096".to_owned(), 1.1, Ratio(1.25));
}

/// Decode of short and long sequences, and prompts.
const PAGED: [&str; 8] = [
    "b1h14g2n1s200d64",
    "b1h14g2n1s8192d64",
    "b64h14g2n1s256d64",
    "b64h14g2n1s8192d64",
    "b1h32g8n1s8192d128",
    "b16h32g8n1s8192d128",
    "b1h14g2n512s512d64",
    "b1h14g2n8192s8192d64",
];

fn attention(add: &mut Add<'_>) {
    let shapes = [
        ("b4h16s4096d128", (1.05, 1.18)),
        ("b4h16s4096d128/causal", (1.1, 1.25)),
        ("b1h16s16384d128", (1.05, 1.2)),
        ("b1h16s16384d128/causal", (1.1, 1.2)),
        ("b32h16s1024d64", (1.0, 1.15)),
        ("b4h16s4096d64", (1.05, 1.15)),
    ];
    let mut case = |op: &str, rest: String, (must, aim): (f64, f64)| {
        add(format!("{op}/bf16/{rest}"), must, Aim::Ratio(aim));
    };
    for (shape, forward) in shapes {
        case("attention", shape.to_owned(), forward);
        case("attention", format!("{shape}/flash"), (1.6, 2.2));
    }
    case("attention", "b4h14g2s4096d64".to_owned(), (1.05, 1.2));
    for part in ["", "/causal"] {
        case("attention", format!("b8h16s8192d128/varlen{part}"), (2.0, 2.5));
    }
    for shape in PAGED {
        case("paged_attention", shape.to_owned(), (1.0, 1.1));
    }
    for (shape, _) in shapes {
        case("attention_bwd", shape.to_owned(), (0.85, 1.05));
        case("attention_bwd", format!("{shape}/deterministic"), (1.3, 1.7));
        case("attention_bwd", format!("{shape}/flash"), (1.6, 2.2));
    }
    for part in ["", "/causal"] {
        case("attention_bwd", format!("b8h16s8192d128/varlen{part}"), (2.0, 2.5));
    }
}

fn large(add: &mut Add<'_>) {
    use Aim::Ratio;
    add("embedding_bwd/bf16/8192x151936x896".to_owned(), 2.0, Ratio(4.0));
    for part in ["", "/dx", "/dw", "/last"] {
        add(format!("conv2d/bf16/64x64x56x56/3x3{part}"), 0.8, Ratio(1.0));
    }
    add("adamw/f32/403M".to_owned(), 1.05, Ratio(1.2));
    for part in ["fwd", "fwd+bwd"] {
        add(format!("cross_entropy/bf16/8192x151936/{part}"), 2.0, Ratio(3.0));
    }
    for part in ["fwd", "fwd+bwd"] {
        add(format!("linear_cross_entropy/bf16/m8192k896n151936/{part}"), 1.2, Ratio(1.3));
    }
    add(COMPILE_MATMUL.to_owned(), 4.0, Ratio(8.0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::CaseName;
    use crate::ops;

    #[test]
    fn every_case_names_an_op() {
        let ops = ops::all();
        let cases = all();
        for case in cases.iter().filter(|case| case.name != COMPILE_MATMUL) {
            let name = CaseName::parse(&case.name).unwrap();
            let is_known = ops.iter().any(|op| op.name == name.op);
            assert!(is_known, "{} is no case", case.name);
        }
        for op in &ops {
            assert!(
                cases.iter().any(|case| case.name.starts_with(&format!("{}/", op.name))),
                "{} has no case",
                op.name
            );
        }
        let mut names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), cases.len());
    }
}
