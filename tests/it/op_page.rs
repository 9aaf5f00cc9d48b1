//! docs/ops.md: every op as its row says it. `UPDATE_EXPECT=1` writes the page anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::{Context, Result};
use expect_test::expect_file;
use genesis::amp::OPS;
use genesis::ops::info::{self, Family, OpInfo, bytes_of};
use genesis::random::Generator;
use genesis::{DType, Device, Tensor};

const HEAD: &str = "# Ops

Every op of `Tensor`, from the rows that its tests, benches and conformance calls are made of (`genesis/src/ops`). A test
writes this page, and compares it.

| column | meaning |
|---|---|
| PyTorch | the call that an op is compared with and timed beside, of the inputs `x` |
| dtypes | those that it takes |
| gradient | whether tests check one |
| in place | the form that writes to its operand |
| autocast | what its operands come in under `autocast`: `half` is the region's dtype, `single` f32, `widest` f32 where they differ |
| rounding | how exact a test holds it to an f64 reference |
| sample | shapes of inputs, with the bytes that the call moves in f32 and its FLOP; none where memory is all that counts |

| op | PyTorch | dtypes | gradient | in place | autocast | rounding | sample |
|---|---|---|---|---|---|---|---|
";

/// A word for what is compared.
fn rounding(family: Family) -> &'static str {
    match family {
        Family::Exact => "exact",
        Family::Arithmetic => "one operation",
        Family::Transcendental => "a function",
        Family::Chain => "a formula",
        Family::Sum => "a sum",
        Family::Mean => "a mean",
        Family::Softmax => "several steps",
        Family::MatMul => "a product",
    }
}

fn dtypes(of: &[DType]) -> String {
    let names: Vec<String> = of.iter().map(DType::to_string).collect();
    names.join(" ")
}

/// Inputs of the first sample in f32, or in the dtype that the op takes.
fn inputs(row: &OpInfo) -> Result<Vec<Tensor>> {
    let rng = Generator::new(0);
    let dtype = row.dtypes.iter().copied().find(|&dtype| dtype == DType::F32);
    let dtype = dtype.or(row.dtypes.first().copied()).context("an op of no dtype")?;
    let shapes = row.samples.first().context("an op without samples")?;
    let make = |(number, shape): (usize, &&[usize])| -> Result<Tensor> {
        let bound = row.index_inputs.iter().find(|(input, _)| *input == number);
        if let Some(&(_, bound)) = bound {
            return Ok(rng.randint(0, bound as i64, shape, (DType::I64, Device::Cpu))?);
        }
        let (low, high) = row.range;
        Ok(rng.uniform(shape, low, high, (DType::F64, Device::Cpu))?.to_dtype(dtype)?)
    };
    shapes.iter().enumerate().map(make).collect()
}

/// The first sample: its shapes, bytes and FLOP.
fn sample(row: &OpInfo) -> Result<String> {
    let inputs = inputs(row).with_context(|| row.name)?;
    let result = (row.call)(&inputs).with_context(|| row.name)?;
    let moved: Vec<(usize, DType)> = inputs.iter().map(|x| (x.numel(), x.dtype())).collect();
    let bytes = bytes_of(&moved, (result.numel(), result.dtype()));
    let shapes: Vec<Vec<usize>> = inputs.iter().map(|x| x.shape().to_vec()).collect();
    let mut text: Vec<String> = shapes.iter().map(|shape| format!("{shape:?}")).collect();
    text.push(format!("-> {:?}: {bytes} bytes", result.shape()));
    let flops = row.flops_of(&shapes, result.numel() as f64);
    let flops = if flops > 0.0 { format!(", {flops} FLOP") } else { String::new() };
    Ok(text.join(" ") + &flops)
}

#[test]
fn the_page_is_what_rows_say() -> Result<()> {
    let mut ops: BTreeMap<&str, Vec<&OpInfo>> = BTreeMap::new();
    for row in info::all() {
        ops.entry(row.base_name()).or_default().push(row);
    }
    let in_place: BTreeSet<&str> = info::methods().map(|method| method.name).collect();
    let mut page = HEAD.to_owned();
    for (name, rows) in ops {
        let row = rows[0];
        let peer = match row.peer_call() {
            Ok(call) => format!("`{}`", call.replace('|', "\\|")),
            Err(reason) => format!("none: {reason}"),
        };
        let is_differentiable = rows.iter().any(|row| row.is_differentiable);
        let own = format!("{name}_");
        let in_place = if in_place.contains(own.as_str()) { format!("`{own}`") } else { "".into() };
        let autocast = OPS.iter().find(|(op, _)| *op == name);
        let autocast = autocast.map_or(String::new(), |(_, precision)| format!("{precision:?}"));
        let cells = [
            format!("`{name}`"),
            peer,
            dtypes(row.dtypes),
            if is_differentiable { "yes".to_owned() } else { String::new() },
            in_place,
            autocast.to_lowercase(),
            rounding(row.family).to_owned(),
            sample(row)?,
        ];
        writeln!(page, "| {} |", cells.join(" | "))?;
    }
    expect_file!["../../docs/ops.md"].assert_eq(&page);
    Ok(())
}
