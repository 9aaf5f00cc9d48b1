//! What tests and benches know about every op: a slow and obviously right reference in f64, sample
//! inputs, and the calls that are refused with their exact text.
//!
//! Each op's rows stand in its file, or in a file `info` below it; [`all`] gathers them.

mod dense;
mod grow;
mod row;

pub use dense::Dense;
pub(in crate::ops) use dense::{
    broadcast, by_row, columns, folded, largest, map, mean, reduced, scalar, smallest, sorted, sum,
    variance, vector, zip,
};
pub use grow::{Growth, Input, Limits};
pub(in crate::ops) use row::{
    ELEMENTWISE, ELEMENTWISE2, FLOATS, INTEGERS, MOVED, NUMBERS, WIDE, cpu, numel,
};
pub use row::{Family, Flops, Method, OpInfo, Peer, Refusal, Sample, bytes_of};

use crate::ops::{attention, conv, creation, elementwise, index, linalg, loss, norm, order};
use crate::ops::{random, reduce, shape};

/// The rows of all ops.
pub fn all() -> Vec<&'static OpInfo> {
    let folders = [
        elementwise::INFOS,
        reduce::INFOS,
        norm::INFOS,
        linalg::INFOS,
        shape::INFOS,
        index::INFOS,
        order::INFOS,
        conv::INFOS,
        attention::INFOS,
        loss::INFOS,
        creation::INFOS,
        random::INFOS,
    ];
    folders.into_iter().flatten().copied().flatten().collect()
}

/// The methods that rows of tables declare.
pub fn methods() -> impl Iterator<Item = &'static Method> {
    elementwise::METHODS.iter().copied().flatten()
}
