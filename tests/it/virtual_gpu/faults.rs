//! What users read when a GPU stops working, on a virtual GPU whose launches fail on purpose.

use std::process::Command;

use anyhow::{Context, ensure};
use genesis::{Device, Result, Tensor};

use super::command;

/// Tells the process that is to fail what it does.
const CHILD: &str = "GENESIS_TEST_FAULTS";

/// The name of the test that is run in a process of its own.
const PROGRAM: &str = "virtual_gpu::faults::a_program_on_a_gpu_that_fails";

/// What the program says, with these variables, on a GPU whose launch of this number fails.
fn fail(launch: u32, variables: &[(&str, &str)]) -> anyhow::Result<String> {
    let machine = format!("fault={launch}");
    let (_folder, mut command): (_, Command) = command(&machine, &[PROGRAM])?;
    command.env(CHILD, "1").envs(variables.iter().copied());
    let output = command.output()?;
    let text = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
    ensure!(output.status.success(), "{text}");
    Ok(text)
}

/// A few ops, each in a line of its own, and what they say. Says where `exp` stands.
fn work() -> Result<Vec<f32>> {
    let x = Tensor::ones(&[8], Device::Cuda(0))?;
    let y = x.exp()?; // exp stands here
    let z = y.mul(&x)?;
    z.to_vec()
}

/// The line of [`work`] that calls `exp`.
fn line_of_exp() -> anyhow::Result<usize> {
    let text = include_str!("faults.rs");
    let line = text.lines().position(|line| line.ends_with("// exp stands here"));
    Ok(line.context("the line is there")? + 1)
}

#[test]
fn a_program_on_a_gpu_that_fails() -> anyhow::Result<()> {
    if std::env::var_os(CHILD).is_none() {
        return Ok(());
    }
    let before = Tensor::zeros(&[4], Device::Cpu)?.to_device(Device::Cuda(0))?;
    let error = work().err().context("a launch fails")?;
    ensure!(error.is_device_lost(), "{error}");
    println!("first: {error}");
    // Nothing that the GPU holds is given out any more, and the reason stays the same.
    for again in [before.to_vec::<f32>().err(), before.exp().err(), work().err()] {
        let again = again.context("the GPU is refused")?;
        ensure!(again.is_device_lost() && again.to_string() == error.to_string(), "{again}");
    }
    // The CPU goes on.
    ensure!(Tensor::ones(&[2], Device::Cpu)?.exp()?.to_vec::<f32>()?.len() == 2);
    Ok(())
}

#[test]
fn a_fault_lists_the_launches_that_came_last() -> anyhow::Result<()> {
    let text = fail(2, &[])?;
    ensure!(text.contains("a kernel accessed memory that is not there (CUDA error 700)"), "{text}");
    let (_, list) = text.split_once("launched last, newest first:\n").context(text.clone())?;
    let mut lines = list.lines();
    let newest = lines.next().context("a launch")?;
    ensure!(newest.contains("for mul at ") && newest.contains("kernel `"), "{text}");
    let older = lines.next().context("a second launch")?;
    let place = format!("faults.rs:{}", line_of_exp()?);
    ensure!(older.contains("for exp at ") && older.contains(&place), "{text}");
    ensure!(list.contains("GENESIS_SYNC=1 names the exact one"), "{text}");
    Ok(())
}

#[test]
fn waiting_for_each_launch_names_the_one_that_failed() -> anyhow::Result<()> {
    let text = fail(2, &[("GENESIS_SYNC", "1")])?;
    let place = format!("faults.rs:{}", line_of_exp()?);
    let first = text.lines().find(|line| line.starts_with("first: ")).context(text.clone())?;
    let (_, what) = first.split_once("; it was kernel `").context(text.clone())?;
    ensure!(what.contains("for exp at ") && what.contains(&place), "{text}");
    ensure!(!text.contains("newest first"), "{text}");
    Ok(())
}

#[test]
fn other_faults_have_their_own_words() -> anyhow::Result<()> {
    let machine = "3:misaligned";
    let (_folder, mut command) = command(&format!("fault={machine}"), &[PROGRAM])?;
    let output = command.env(CHILD, "1").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{text}");
    ensure!(text.contains("a kernel accessed a misaligned address (CUDA error 716)"), "{text}");
    Ok(())
}
