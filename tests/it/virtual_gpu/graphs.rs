//! The memory that graphs name.

use std::cell::RefCell;

use anyhow::{Result, ensure};
use genesis::{Tensor, graph};
use genesis_kernel::prelude::*;
use genesis_kernel::runtime::Graph;

use super::{is_on, pass};

/// Adds one to each element.
#[kernel]
pub fn count<const BLOCK: usize>(x: ViewMut<i32, 1>) {
    let first = program_id(0) * BLOCK;
    x.store([first], x.load::<BLOCK>([first]) + 1);
}

fn launch_count(stream: &Stream, x: &mut Array<i32>) -> Result<(), genesis_kernel::Error> {
    let grid = Grid::x(x.len().div_ceil(64));
    count::launch(stream, grid, count::Consts { BLOCK: 64 }, (x,))
}

fn address(array: &Array<i32>) -> u64 {
    array.buffer().address()
}

/// Arrays that get whatever memory is free.
fn others(stream: &Stream) -> Result<Vec<Array<i32>>, genesis_kernel::Error> {
    (0..8).map(|_| stream.upload(&[5, 6])).collect()
}

/// What safe launches and copies of a graph name is nobody else's while the graph lives, though it is dropped.
#[test]
fn graphs_keep_the_memory_that_they_name() -> Result<()> {
    const MACHINE: &str = "devices=1";
    if !is_on(MACHINE) {
        return pass(MACHINE, &["virtual_gpu::graphs::graphs_keep_the_memory_that_they_name"]);
    }
    let stream = Device::Cuda(0).stream();
    let (mut x, from) = (stream.upload(&[1, 2])?, stream.upload(&[7, 8])?);
    let to = Array::<i32>::zeros(&stream, 2)?;
    launch_count(&stream, &mut x)?;
    let graph = Graph::capture(&stream, || {
        launch_count(&stream, &mut x)?;
        to.buffer().copy_from(0, from.buffer(), 0, 8)
    })?;
    let named = [&x, &from, &to].map(address);
    drop((x, from, to));
    let given = others(&stream)?;
    ensure!(
        !given.iter().any(|array| named.contains(&address(array))),
        "memory of a graph was given away"
    );
    // SAFETY: all launches in it were safe.
    (0..3).try_for_each(|_| unsafe { graph.launch() })?;
    for array in &given {
        ensure!(array.to_vec()? == [5, 6]);
    }
    drop(graph);
    let again = others(&stream)?;
    ensure!(again.iter().filter(|array| named.contains(&address(array))).count() == 3);
    Ok(())
}

/// A step of the framework may launch kernels of its caller's on arrays that do not live as long as it.
#[test]
fn captured_steps_keep_the_arrays_of_their_kernels() -> Result<()> {
    const MACHINE: &str = "devices=1";
    if !is_on(MACHINE) {
        return pass(
            MACHINE,
            &["virtual_gpu::graphs::captured_steps_keep_the_arrays_of_their_kernels"],
        );
    }
    let (device, stream) = (Device::Cuda(0), Device::Cuda(0).stream());
    let counted = RefCell::new(Some(stream.upload(&[1, 2])?));
    let named = counted.borrow().as_ref().map(address);
    let mut step = graph(|(), args: &[Tensor]| {
        if let Some(counted) = &mut *counted.borrow_mut() {
            launch_count(&stream, counted)?;
        }
        Ok(vec![args[0].add_scalar(1.0)?])
    });
    let x = Tensor::ones(&[4], device)?;
    while step.captures() == 0 {
        step.call(&mut (), &[&x])?;
    }
    // Dropped while the graph lives on.
    counted.replace(None);
    let given = others(&stream)?;
    ensure!(
        !given.iter().any(|array| Some(address(array)) == named),
        "memory of a graph was given away"
    );
    (0..3).try_for_each(|_| step.call(&mut (), &[&x]).map(drop))?;
    for array in &given {
        ensure!(array.to_vec()? == [5, 6]);
    }
    Ok(())
}
