//! Tests of the front end: hand-made and random syntax here, real kernels beside them.

mod accumulators;
mod any_shape;
mod asts;
mod bits;
mod carets;
mod control;
mod counting;
mod functions;
mod fuzz;
mod gather;
mod histogram;
mod inline_asm;
mod jumps;
mod kernels;
mod library;
mod optional;
mod order;
mod ordering;
mod ranges;
mod refusals;
mod runs;
mod scaled;
mod special;
mod structs;
mod subviews;
mod unroll;
