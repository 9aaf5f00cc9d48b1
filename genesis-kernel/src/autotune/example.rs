//! Arguments made from sizes, so that a kernel is tuned without the program that uses it.

use super::check::fill_noise;
use crate::configs::Tuning;
use crate::diag::Error;
use crate::front::ast::{DTypeAst, FnAst, ParamAst, PatternAst, TypeAst};
use crate::ir::{DType, Scalar};
use crate::runtime::{Arg, Buffer, Device, PtrArg, Stream, ViewArg};

/// How a matrix lies in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// Rows one after the other.
    #[default]
    Rows,
    /// Columns one after the other: a transposed view of a matrix of rows.
    Columns,
}

/// Arguments with the memory behind them: normal numbers to read, zeros to write. Integers are 0,
/// which is an index that exists.
#[derive(Debug)]
pub struct Example {
    /// In the kernel's order.
    args: Vec<Arg>,
    /// Of each optional parameter, whether there is an argument.
    present: Vec<bool>,
    /// The memory of each argument that has any.
    pub(super) buffers: Vec<Option<Buffer>>,
}

impl Example {
    /// Arguments of these sizes, given in the key's order; the parameters named in `transposed` lie
    /// in columns.
    ///
    /// # Errors
    /// If the kernel declares no example, a parameter named is no view, or memory is short.
    pub fn new(
        stream: &Stream,
        ast: &'static FnAst,
        tuning: &Tuning,
        dtypes: &[DType],
        sizes: &[i64],
        transposed: &[&str],
    ) -> Result<Example, Error> {
        Example::make(Some(stream), ast, tuning, dtypes, sizes, transposed)
    }

    /// The arguments, in the kernel's order.
    pub fn args(&self) -> &[Arg] {
        &self.args
    }

    /// Which optional parameters have an argument, in the kernel's order.
    pub fn present(&self) -> &[bool] {
        &self.present
    }

    /// The example without the arguments of optional parameters that are not to be there; none if it lacks one that
    /// is.
    pub(super) fn with_present(mut self, ast: &FnAst, present: &[bool]) -> Option<Example> {
        let optional = ast.params.iter().enumerate().filter(|(_, param)| is_named_optional(param));
        for (((at, _), there), known) in optional.zip(present).zip(&mut self.present) {
            match (*there, *known) {
                (true, false) => return None,
                (false, true) => {
                    (self.args[at], self.buffers[at], *known) =
                        (nothing(&self.args[at]), None, false);
                }
                (true, true) | (false, false) => {}
            }
        }
        Some(self)
    }

    /// An example whose arguments have no memory behind them, to ask the model what it thinks of them.
    ///
    /// # Errors
    /// As [`Example::new`].
    pub fn without_memory(
        ast: &'static FnAst,
        tuning: &Tuning,
        dtypes: &[DType],
        sizes: &[i64],
        transposed: &[&str],
    ) -> Result<Example, Error> {
        Example::make(None, ast, tuning, dtypes, sizes, transposed)
    }

    fn make(
        stream: Option<&Stream>,
        ast: &'static FnAst,
        tuning: &Tuning,
        dtypes: &[DType],
        sizes: &[i64],
        transposed: &[&str],
    ) -> Result<Example, Error> {
        let name = ast.name;
        let Some(example) = tuning.example else {
            return Err(Error::launch(format!(
                "{name}: its #[autotune] has no `example`, so that there are no arguments to time \
                 it with"
            )));
        };
        if sizes.len() != tuning.key.len() || sizes.iter().any(|&size| size <= 0) {
            let takes = tuning.key.join(", ");
            return Err(Error::launch(format!("{name}: takes positive sizes {takes}")));
        }
        let extents = example(sizes);
        let mut made = Example { args: Vec::new(), present: Vec::new(), buffers: Vec::new() };
        for (i, param) in ast.params.iter().enumerate() {
            let known = match param.pattern {
                PatternAst::Name(name) => *name,
                PatternAst::Wild | PatternAst::Tuple(_) => "_",
            };
            let order = if transposed.contains(&known) { Order::Columns } else { Order::Rows };
            let extents = extents.get(i).map_or(&[][..], |extents| extents);
            let is_absent = param.optional && extents.is_empty();
            if is_named_optional(param) {
                made.present.push(!is_absent);
            }
            let (arg, buffer) = match is_absent {
                true => (absent(ast, dtypes, &param.ty)?, None),
                false => argument(stream, ast, dtypes, &param.ty, extents, (order, i as u64))?,
            };
            made.args.push(arg);
            made.buffers.push(buffer);
        }
        let is_view = |wanted: &&str| {
            ast.params.iter().zip(&made.args).any(|(param, arg)| {
                matches!(arg, Arg::View(view) if view.rank > 1)
                    && matches!(param.pattern, PatternAst::Name(name) if name == wanted)
            })
        };
        match transposed.iter().find(|wanted| !is_view(wanted)) {
            Some(wanted) => Err(Error::launch(format!("{name}: no matrix is called {wanted}"))),
            None => Ok(made),
        }
    }

    /// The same arguments on another device.
    pub(super) fn to_stream(&self, stream: &Stream) -> Result<Example, Error> {
        let (args, present) = (self.args.clone(), self.present.clone());
        let mut copy = Example { args, present, buffers: Vec::new() };
        for (arg, buffer) in copy.args.iter_mut().zip(&self.buffers) {
            let buffer = buffer.as_ref().map(|buffer| buffer.to_stream(stream)).transpose()?;
            if let Some(buffer) = &buffer {
                move_to(arg, buffer);
            }
            copy.buffers.push(buffer);
        }
        Ok(copy)
    }
}

/// The address of memory that is not there: aligned as buffers are.
const ALIGNED: u64 = 256;

/// Lets an argument that starts at a buffer's first element start at another's.
pub(super) fn move_to(arg: &mut Arg, buffer: &Buffer) {
    let ptr = match arg {
        Arg::Ptr(ptr) => ptr,
        Arg::View(view) => &mut view.ptr,
        Arg::Scalar(_) | Arg::Views(_) => return,
    };
    (ptr.device, ptr.address) = (buffer.device(), buffer.address());
}

/// Whether a parameter is one of those of which a launch says whether they are there.
fn is_named_optional(param: &ParamAst) -> bool {
    param.optional && matches!(param.pattern, PatternAst::Name(_))
}

/// What is passed for an optional parameter that is not there.
fn absent(ast: &FnAst, dtypes: &[DType], ty: &TypeAst) -> Result<Arg, Error> {
    let ptr = |dtype, mutable| Ok(PtrArg::nothing(resolve(ast, dtypes, dtype)?, mutable));
    match *ty {
        TypeAst::Ptr { dtype, mutable } => ptr(dtype, mutable).map(Arg::Ptr),
        TypeAst::View { dtype, rank, mutable } => {
            Ok(Arg::View(ViewArg::nothing(ptr(dtype, mutable)?, rank)))
        }
        TypeAst::Scalar(dtype) => Ok(Arg::Scalar(Scalar::zero(resolve(ast, dtypes, dtype)?))),
        TypeAst::Views { .. }
        | TypeAst::Tile(_)
        | TypeAst::Shaped(..)
        | TypeAst::Tuple(_)
        | TypeAst::Inferred => {
            Err(Error::bug("a kernel's parameter is no scalar, pointer or view"))
        }
    }
}

/// What is passed in place of an argument.
fn nothing(arg: &Arg) -> Arg {
    match arg {
        Arg::Ptr(ptr) => Arg::Ptr(PtrArg::nothing(ptr.dtype, ptr.mutable)),
        Arg::View(view) => {
            let ptr = PtrArg::nothing(view.ptr.dtype, view.ptr.mutable);
            Arg::View(ViewArg::nothing(ptr, view.rank))
        }
        Arg::Views(all) => {
            let ptr = PtrArg::nothing(all.ptr.dtype, all.ptr.mutable);
            Arg::Views(ViewArg::nothing(ptr, all.rank))
        }
        Arg::Scalar(scalar) => Arg::Scalar(Scalar::zero(scalar.dtype)),
    }
}

fn argument(
    stream: Option<&Stream>,
    ast: &FnAst,
    dtypes: &[DType],
    ty: &TypeAst,
    extents: &[i64],
    (order, seed): (Order, u64),
) -> Result<(Arg, Option<Buffer>), Error> {
    let (dtype, mutable) = match ty {
        TypeAst::Scalar(dtype) => {
            let dtype = resolve(ast, dtypes, *dtype)?;
            let value = extents.first().copied().unwrap_or(1);
            let scalar = match dtype.is_float() {
                true => Scalar::float(dtype, value as f64),
                false => Scalar::int(dtype, value),
            };
            return Ok((Arg::Scalar(scalar), None));
        }
        TypeAst::Ptr { dtype, mutable } | TypeAst::View { dtype, mutable, .. } => {
            (resolve(ast, dtypes, *dtype)?, *mutable)
        }
        TypeAst::Views { .. }
        | TypeAst::Tile(_)
        | TypeAst::Shaped(..)
        | TypeAst::Tuple(_)
        | TypeAst::Inferred => {
            return Err(Error::bug("a kernel's parameter is no scalar, pointer or view"));
        }
    };
    let numel =
        extents.iter().try_fold(1usize, |n, &extent| n.checked_mul(usize::try_from(extent).ok()?));
    let bytes = numel.and_then(|n| n.checked_mul(dtype.bytes()));
    let bytes = bytes.ok_or_else(|| Error::out_of_memory("an example of extents without end"))?;
    let buffer = stream.map(|stream| Buffer::zeroed(stream, bytes)).transpose()?;
    if let Some(buffer) = buffer.as_ref().filter(|_| !mutable && dtype.is_float()) {
        fill_noise(buffer, dtype, seed)?;
    }
    let (device, address) =
        buffer.as_ref().map_or((Device::Cpu, ALIGNED), |b| (b.device(), b.address()));
    let ptr = PtrArg { device, address, bytes: bytes as u64, dtype, mutable };
    let arg = match ty {
        TypeAst::View { rank, .. } => {
            let view = ViewArg::new(ptr, extents, &strides(extents, order));
            let view = view.filter(|view| view.rank == *rank).ok_or_else(|| {
                Error::launch(format!("{}: the example of a view has other axes", ast.name))
            })?;
            Arg::View(view)
        }
        _ => Arg::Ptr(ptr),
    };
    Ok((arg, buffer))
}

fn resolve(ast: &FnAst, dtypes: &[DType], dtype: DTypeAst) -> Result<DType, Error> {
    let known = dtype.resolve(|name| {
        let position = ast.dtypes.iter().position(|param| param.name == name);
        position.and_then(|i| dtypes.get(i)).copied()
    });
    known.ok_or_else(|| {
        let (takes, given) = (ast.dtypes.len(), dtypes.len());
        Error::launch(format!("{}: takes {takes} dtypes, not {given}", ast.name))
    })
}

fn strides(extents: &[i64], order: Order) -> Vec<i64> {
    let mut strides = vec![1; extents.len()];
    for axis in (1..extents.len()).rev() {
        strides[axis - 1] = strides[axis] * extents[axis];
    }
    if let (Order::Columns, [.., rows, _]) = (order, extents) {
        let n = extents.len();
        (strides[n - 2], strides[n - 1]) = (1, *rows);
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_a_transposed_view() {
        assert_eq!(strides(&[2, 3, 4], Order::Rows), [12, 4, 1]);
        assert_eq!(strides(&[2, 3, 4], Order::Columns), [12, 1, 3]);
        assert_eq!(strides(&[5], Order::Columns), [1]);
    }
}
