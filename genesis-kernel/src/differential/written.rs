//! Random kernels as text, for `#[kernel]` itself to read: what the macro makes of it must become the same
//! tile IR as the tree that the text is of.

use std::ops::Range;

use super::language::tree;
use super::syntax::numbered;
use super::text::Text;
use crate::front;
use crate::ir::print;
use crate::kernel::KernelDef;

/// The kernels of these seeds as a module's text, and a table of them, `KERNELS`, by seed: but for those
/// that the front end refuses, and those of blocks of one element, which is `Dim<1>` to rustc where the
/// block's extent is meant and `One` elsewhere.
///
/// ```
/// let text = genesis_kernel::differential::written(0..1);
/// assert!(text.contains("#[kernel]\nfn random0("));
/// ```
pub fn written(seeds: Range<u64>) -> String {
    let (mut text, mut table) = (String::new(), String::new());
    for seed in seeds {
        let (writer, ast) = tree(seed, named(seed));
        let built = front::build(ast, &[writer.generic], &[writer.block as i64], &writer.hints());
        if writer.block == 1 || built.is_err() {
            continue;
        }
        text += &format!("#[kernel]\n{}\n", Text::of(&writer, ast));
        table += &format!("({seed}, &{}::KERNEL),\n", ast.name);
    }
    format!("{text}pub(crate) static KERNELS: &[(u64, &KernelDef)] = &[\n{table}];\n")
}

/// Whether a kernel that `#[kernel]` made of [`written`] text is that of the seed.
///
/// # Errors
/// What the front end says of it, or both functions where they differ.
pub fn is_as_written(seed: u64, kernel: &KernelDef) -> Result<(), String> {
    let (writer, ast) = tree(seed, named(seed));
    let hints = writer.hints();
    let expected = front::build(ast, &[writer.generic], &[writer.block as i64], &hints);
    let expected = expected.map_err(|error| error.to_string())?;
    let found = kernel.specialize(&[], &[], &hints).map_err(|error| error.to_string())?;
    let [expected, found] = [expected, found.func].map(|func| print(&func));
    match found == expected {
        true => Ok(()),
        false => Err(format!("seed {seed}:\n{found}\ninstead of\n{expected}")),
    }
}

fn named(seed: u64) -> &'static str {
    numbered("random", seed as usize)
}
