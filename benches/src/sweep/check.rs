//! `bench ops --check`: the peer's call of each row gives what ours gives, on small inputs.

use genesis::ops::info::{Growth, OpInfo, all};
use genesis::random::Generator;
use genesis::{DType, Device, Tensor};
use serde_json::{Value, json};

use super::kind::Kind;
use crate::peer::Peer;

/// Compares every row whose name contains `part` with the peer on the CPU; how many differ.
///
/// # Errors
/// If the peer is gone.
pub(crate) fn check(
    peer: &mut Peer,
    part: &str,
    mut say: impl FnMut(String),
) -> anyhow::Result<usize> {
    let (mut checked, mut wrong) = (0, 0);
    for info in all().into_iter().filter(|info| info.name.contains(part)) {
        let Ok(call) = info.peer_call() else { continue };
        let growths = [info.growth().ok(), info.broadcast_growth()];
        for growth in growths.into_iter().flatten() {
            checked += 1;
            if let Err(problem) = compare(peer, info, &call, &growth) {
                wrong += 1;
                say(format!("{:40} {:?} {problem:#}", info.name, growth.sample()));
            }
        }
    }
    say(format!("{checked} calls beside PyTorch, {wrong} differ"));
    Ok(wrong)
}

fn compare(peer: &mut Peer, info: &OpInfo, call: &str, growth: &Growth) -> anyhow::Result<()> {
    let wanted = Kind::wanted(info, true);
    let dtype = wanted.first().map_or(DType::F32, |&(_, dtype, _)| dtype);
    let inputs = info.inputs(growth.sample(), growth.sample(), dtype);
    let rng = Generator::new(0);
    let (mut tensors, mut described) = (Vec::new(), Vec::new());
    for input in &inputs {
        let x = input.draw(&input.shape, Device::Cpu, &rng)?;
        described.push(json!({
            "shape": input.shape, "dtype": input.dtype.to_string(), "values": x.to_f64_vec()?,
        }));
        tensors.push(x);
    }
    let ours = (info.call)(&tensors)?;
    let theirs = peer.ask(&json!({ "do": "evaluate", "call": call, "inputs": described }))?;
    agree(&ours, &theirs)
}

fn agree(ours: &Tensor, theirs: &Value) -> anyhow::Result<()> {
    let (shape, dtype) = (json!(ours.shape()), ours.dtype().to_string());
    anyhow::ensure!(
        shape == theirs["shape"] && theirs["dtype"] == dtype.as_str(),
        "ours is {shape} {dtype}, the peer's {} {}",
        theirs["shape"],
        theirs["dtype"]
    );
    let tolerance = match ours.dtype() {
        DType::F64 => 1e-9,
        dtype if dtype.is_float() => 1e-4,
        _ => 0.0,
    };
    let values = theirs["values"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, (ours, theirs)) in ours.to_f64_vec()?.iter().zip(values).enumerate() {
        // JSON has no NaN: it comes as null.
        let theirs = theirs.as_f64().unwrap_or(f64::NAN);
        let same = *ours == theirs || (ours.is_nan() && theirs.is_nan()) || ours.is_infinite();
        let distance = (ours - theirs).abs();
        anyhow::ensure!(
            same || distance <= tolerance * theirs.abs().max(1.0),
            "element {index} is {ours}, the peer's {theirs}"
        );
    }
    Ok(())
}
