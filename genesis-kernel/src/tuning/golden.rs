//! What is chosen for a wide set of shapes, compared with the files of `golden/`.
//!
//! A file has a line for each question. `UPDATE_EXPECT=1` writes them anew; the difference says what a change of the model
//! does, and is to be measured before it is committed.

use std::fmt::Write;

use expect_test::expect_file;

use super::attention::{self, Features, Heads, Part};
use super::elementwise::{Flat, Tile};
use super::linear::{LinearTile, QuantizedExtents, QuantizedTile};
use super::logits::logit_rows;
use super::products::{CPU_TILE, F8Sums, Product, split_k, split_long_k};
use super::reductions::{Reduction, RowTile};
use super::rows::{ColumnSums, KeptRows, Pieces, RowBlock, gated_columns, gathered_columns};
use super::{Chip, Machine, products};
use crate::ir::{DType, DotPrecision};
use crate::target::{GpuTarget, Target};

const LENGTHS: [usize; 24] = [
    1,
    7,
    16,
    100,
    600,
    896,
    1000,
    1024,
    1025,
    2048,
    4096,
    4104,
    5000,
    8192,
    12_000,
    16_384,
    16_385,
    32_768,
    40_000,
    65_536,
    65_540,
    151_936,
    200_000,
    1 << 20,
];
const BYTES: [usize; 4] = [1, 2, 4, 8];

/// An H200 and the processor.
fn chips() -> [(&'static str, Chip); 2] {
    [("gpu", Chip::of_target(&Target::sm_90a())), ("cpu", Chip::Cpu)]
}

/// Lines of a golden file.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, of: impl std::fmt::Display, choice: impl std::fmt::Display) {
        writeln!(self.0, "{of}: {choice}").expect("a string takes everything");
    }
}

fn warps(warps: Option<u32>) -> String {
    warps.map_or(String::new(), |warps| format!(" w{warps}"))
}

fn block(RowBlock { rows, cols, warps: of }: RowBlock) -> String {
    format!("{rows}x{cols}{}", warps(of))
}

fn kept_rows(kept: Option<KeptRows>) -> String {
    let Some(KeptRows { rows, cols, warps: of, cluster }) = kept else { return "-".to_owned() };
    let cluster = cluster.map_or(String::new(), |blocks| format!(" c{blocks}"));
    format!("{rows}x{cols}{}{cluster}", warps(of))
}

#[test]
fn rows() {
    let mut lines = Lines::default();
    for (name, chip) in &chips() {
        for bytes in BYTES {
            let (few, many) = (Flat::of_few(chip, bytes), Flat::of_many(chip, bytes));
            let [few, many] =
                [few, many].map(|flat| format!("{}{}", flat.block, warps(flat.warps)));
            lines.add(format!("{name} {bytes} bytes"), format!("few operands {few}, many {many}"));
            for (m, n) in [1, 64, 16_384].into_iter().flat_map(|m| LENGTHS.map(|n| (m, n))) {
                let short = block(RowBlock::kept(chip, m, n));
                let one_sum = block(RowBlock::of_one_sum(chip, m, n));
                let kept = kept_rows(KeptRows::of(chip, m, n, bytes));
                let [summed, ahead] = [0, 8192].map(|most| {
                    let sums = ColumnSums::of(chip, m, n, bytes, most);
                    sums.map_or("-".to_owned(), |of| {
                        format!("{} x{}", block(of.block), of.programs)
                    })
                });
                let all = format!(
                    "{short} | one sum {one_sum} | kept {kept} | summed {summed}, ahead {ahead}"
                );
                lines.add(format!("{name} {bytes} {m}x{n}"), all);
            }
            for n in LENGTHS {
                let pieces = |twice| {
                    let Pieces { cols, width, warps: of } = Pieces::of_row(chip, n, bytes, twice);
                    format!("{cols}/{width}{}", warps(of))
                };
                let [once, twice] = [false, true].map(pieces);
                let gathered = block(gathered_columns(chip, n, bytes));
                let gated = gated_columns(chip, n, bytes);
                let all = format!(
                    "pieces {once} | read twice {twice} | gathered {gathered} | gated {gated}"
                );
                lines.add(format!("{name} {bytes} {n}"), all);
            }
        }
    }
    expect_file!["golden/rows.txt"].assert_eq(&lines.0);
}

fn tile(Tile { rows, cols, warps: of }: Tile) -> String {
    format!("{rows}x{cols}{}", warps(of))
}

#[test]
fn elementwise() {
    let mut lines = Lines::default();
    for (name, chip) in &chips() {
        lines.add(format!("{name} transposed"), tile(Tile::transposed(chip)));
        for rows in [1, 2, 1000] {
            for cols in [1, 3, 8, 9, 33, 100, 128, 129, 300, 600, 1000, 8192] {
                let all = BYTES.map(|bytes| tile(Tile::of(chip, bytes, rows, cols))).join(" | ");
                let steps = tile(Tile::of_many_steps(chip, rows, cols));
                lines.add(format!("{name} {rows}x{cols}"), format!("{all} | many steps {steps}"));
            }
        }
    }
    expect_file!["golden/elementwise.txt"].assert_eq(&lines.0);
}

#[test]
fn reductions() {
    let mut lines = Lines::default();
    for (name, chip) in &chips() {
        for outer in [1, 3, 64, 300, 5000] {
            for n in [1, 100, 1024, 5000, 8192, 100_000, 1 << 26] {
                for shape in [1, 20, 896, 8192].map(|inner| [outer, n, inner]) {
                    let all = BYTES.map(|bytes| {
                        let Reduction { rows, cols, parts, warps: of } =
                            Reduction::of(chip, shape, bytes);
                        format!("{rows}x{cols} by {parts}{}", warps(of))
                    });
                    lines.add(format!("{name} {shape:?}"), all.join(" | "));
                }
            }
        }
        type OfRows = fn(&Chip, usize, usize, usize) -> RowTile;
        let of_rows: [(_, OfRows); 2] =
            [("indices", RowTile::of_indices), ("scans", RowTile::of_scans)];
        for (what, of_rows) in of_rows {
            for (m, n) in
                [1, 100].into_iter().flat_map(|m| [1, 100, 1024, 5000, 100_000].map(|n| (m, n)))
            {
                let all = BYTES.map(|bytes| {
                    let RowTile { rows, cols, warps: of } = of_rows(chip, m, n, bytes);
                    format!("{rows}x{cols}{}", warps(of))
                });
                lines.add(format!("{name} {what} {m}x{n}"), all.join(" | "));
            }
        }
    }
    expect_file!["golden/reductions.txt"].assert_eq(&lines.0);
}

/// GPUs with these multiprocessors, and products of these sizes.
fn linear(mut choice: impl FnMut(&Chip, [usize; 3]) -> String) -> String {
    let features = GpuTarget::SM_90A.features;
    let mut lines = Lines::default();
    for multiprocessors in [78, 132, 170] {
        let chip = Chip::Gpu { multiprocessors, features };
        for k in [100, 896, 2048, 4864, 14_336] {
            for m in [64, 1152, 4096, 151_936] {
                for n in [1, 8, 9, 16, 17, 64, 65, 8192] {
                    let choice = choice(&chip, [n, m, k]);
                    lines.add(format!("{multiprocessors}: {n}x{m}x{k}"), choice);
                }
            }
        }
    }
    lines.0
}

fn split(is_split: bool) -> &'static str {
    if is_split { " split" } else { "" }
}

fn paired(is_paired: bool) -> &'static str {
    if is_paired { " paired" } else { "" }
}

#[test]
fn products_whose_rows_keep_their_bits() {
    let text = linear(|chip, [n, m, k]| {
        let all = [(2, false), (2, true), (4, false), (4, true)].map(|(bytes, is_gated)| {
            let tile = LinearTile::of(chip, [n, m, k], bytes, is_gated);
            let LinearTile { parts, each, outputs, rows, step, warps, stages, .. } = tile;
            let LinearTile { blocks, is_paired, .. } = tile;
            let cluster = if blocks > 1 { format!(" c{blocks}") } else { String::new() };
            let is_split = tile.is_split(chip, m.div_ceil(outputs) * n.div_ceil(rows));
            let (split, paired) = (split(is_split), paired(is_paired));
            let size = format!("{parts}x{each} {outputs}x{rows}x{step}");
            format!("{size} w{warps} s{stages}{cluster}{split}{paired}")
        });
        all.join(" | ")
    });
    expect_file!["golden/linear.txt"].assert_eq(&text);
}

#[test]
fn products_by_quantized_weights() {
    let text = linear(|chip, [n, m, k]| {
        let all = [(1, false), (1, true), (2, false), (2, true)].map(|(halves, is_gated)| {
            let extents = QuantizedExtents { n, m, k, halves, is_gated };
            let of_steps = [64, 128].map(|step| {
                let tile = QuantizedTile::of(chip, extents, step);
                let QuantizedTile { parts, each, rows, tiles, stages, is_split, is_paired } = tile;
                let (split, paired) = (split(is_split), paired(is_paired));
                format!("{parts}x{each} {tiles} of {rows} s{stages}{split}{paired}")
            });
            of_steps.join(", ")
        });
        all.join(" | ")
    });
    expect_file!["golden/quantized.txt"].assert_eq(&text);
}

#[test]
fn parts_of_k() {
    let (mut lines, chip) = (Lines::default(), Chip::of_target(&Target::sm_90a()));
    for m in [1, 8, 15, 16, 128, 896, 4096] {
        for n in [1, 8, 64, 896, 4096] {
            for k in [100, 2048, 4096, 8192, 16_384, 32_768, 65_536] {
                let all = [2, 4, 8].map(|bytes| split_k(&chip, [m, n, k], bytes).to_string());
                lines.add(format!("{m}x{n}x{k}"), all.join(" "));
            }
        }
    }
    expect_file!["golden/parts.txt"].assert_eq(&lines.0);
}

#[test]
fn chunks_of_logits() {
    let mut lines = Lines::default();
    for (name, chip) in &chips() {
        for m in [1, 100, 512, 600, 8192, 100_000] {
            for n in [2, 1000, 32_000, 50_257, 151_936, 262_144, 1 << 20] {
                let all = [2, 4, 8].map(|bytes| {
                    let rows = logit_rows(chip, m, n, bytes);
                    if chip.is_cpu() {
                        return rows.to_string();
                    }
                    let (parts, each) = split_long_k(chip, [rows, 896, n], bytes);
                    format!("{rows} by {parts}x{each}")
                });
                lines.add(format!("{name} {m}x{n}"), all.join(" | "));
            }
        }
    }
    expect_file!["golden/logits.txt"].assert_eq(&lines.0);
}

#[test]
fn tiles_of_attention() {
    let parts = [
        ("forward", Part::Forward),
        ("keys", Part::Keys),
        ("only keys", Part::OnlyKeys),
        ("only values", Part::OnlyValues),
        ("queries", Part::Queries),
    ];
    let chips = [Target::sm_90a(), Target::sm_100a()].map(|target| Chip::of_target(&target));
    let mut lines = Lines::default();
    for (name, part) in parts {
        for width in [16, 32, 33, 64, 65, 96, 128, 129, 256] {
            for queries in [1, 255, 256] {
                let of_chip = |chip: &Chip| {
                    let of_features = |bits: u32| {
                        let [bias, cap, drop, packed] =
                            [0, 1, 2, 3].map(|bit| bits >> bit & 1 == 1);
                        let features = Features { bias, cap, drop, packed };
                        let heads = Heads { queries, width, bytes: 2 };
                        let attention::Tile { queries, keys, warps } =
                            attention::Tile::of(chip, part, heads, features);
                        format!("{queries}x{keys}w{warps}")
                    };
                    (0..16).map(of_features).collect::<Vec<_>>().join(" ")
                };
                let all = chips.each_ref().map(of_chip).join(" | ");
                lines.add(format!("{name} {queries} {width}"), all);
            }
        }
    }
    expect_file!["golden/attention.txt"].assert_eq(&lines.0);
}

/// Batch, M, N, K.
const SIZES: [[i64; 4]; 30] = [
    [1, 1, 1, 1],
    [1, 16, 16, 16],
    [1, 64, 64, 64],
    [1, 100, 200, 300],
    [1, 256, 256, 256],
    [1, 512, 512, 512],
    [1, 768, 768, 768],
    [1, 1024, 1024, 1024],
    [1, 1536, 1536, 1536],
    [1, 2048, 2048, 2048],
    [1, 3000, 3000, 3000],
    [1, 4096, 4096, 4096],
    [1, 8192, 8192, 8192],
    [1, 16384, 16384, 16384],
    [1, 8192, 4864, 896],
    [1, 8192, 896, 4864],
    [1, 8192, 151936, 896],
    [1, 14336, 1, 4096],
    [1, 151936, 16, 896],
    [1, 4096, 11008, 4096],
    [1, 64, 4096, 4096],
    [1, 16, 4096, 14336],
    [1, 128, 128, 65536],
    [8, 512, 512, 64],
    [64, 1024, 1024, 64],
    [128, 1024, 64, 1024],
    [1024, 64, 64, 64],
    [16, 2048, 2048, 128],
    [1, 100000, 64, 64],
    [1, 64, 100000, 64],
];

/// Whether TMA feeds MMAs with dense rows along K: f32 and f64 as they are have no such MMA, and rows are multiples of 16
/// bytes, or the only one.
fn is_fed_by_tma(machine: &Machine, dtype: DType, precision: DotPrecision, k: i64) -> bool {
    let bytes = dtype.bytes() as i64;
    let feeds = machine.gpu().is_some_and(|gpu| gpu.features.tma_feeds_mma());
    let has_mma = bytes <= 2 || precision == DotPrecision::Tf32;
    feeds && has_mma && (k * bytes % 16 == 0 || (k, bytes) == (1, 2))
}

fn of_product(tile: Option<products::Tile>) -> String {
    let [m, n, k] = CPU_TILE;
    match tile {
        Some(products::Tile { m, n, k, warps, stages }) => {
            format!("{m}x{n}x{k} w{warps} s{stages}")
        }
        None => format!("{m}x{n}x{k} w- s-"),
    }
}

#[test]
fn tiles_of_products() {
    let cases = [
        (DType::BF16, DotPrecision::Ieee),
        (DType::F32, DotPrecision::Ieee),
        (DType::F32, DotPrecision::Tf32),
        (DType::F64, DotPrecision::Ieee),
        (DType::I8, DotPrecision::Ieee),
    ];
    let mut lines = Lines::default();
    for target in ["cpu", "sm_80", "sm_86", "sm_90a", "sm_100a", "sm_120a"] {
        let target = Target::from_name(target).expect("it is in the table");
        let machine = Machine::of_target(&target);
        for is_aligned in [true, false] {
            for sizes in SIZES {
                let of = |dtype: DType, precision| Product {
                    machine: &machine,
                    dtype,
                    precision,
                    sizes,
                    is_fed_by_tma: is_aligned
                        && is_fed_by_tma(&machine, dtype, precision, sizes[3]),
                    is_off_lines: [false; 2],
                };
                let mut all = cases
                    .map(|(dtype, precision)| of_product(of(dtype, precision).tile()))
                    .to_vec();
                for sums in [F8Sums::Promoted, F8Sums::Fast] {
                    all.push(of_product(of(DType::F8E4M3, DotPrecision::Ieee).tile_f8(sums)));
                }
                let [batch, m, n, k] = sizes;
                let alignment = if is_aligned { "" } else { " unaligned" };
                let of = format!("{target}{alignment} {batch}x{m}x{n}x{k}");
                lines.add(of, all.join(" | "));
            }
        }
    }
    expect_file!["golden/products.txt"].assert_eq(&lines.0);
}
