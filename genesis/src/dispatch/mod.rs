//! What an op looks at before it launches: the state of the thread that others set, and their hooks.
//!
//! Tracing, capture and autocast change what every op does, and stand above the ops: they are made of them. So an op
//! knows only this module, where each has its switch and leaves what is noted:
//!
//! | file | switch of the thread | who sets it |
//! |---|---|---|
//! | `trace` | launches that write to values without memory are noted and not made | `fuse` |
//! | `capture` | numbers that change come from cells of memory, and launches are recorded | `graph` |
//! | `autocast` | operands are cast as the registered policy says | `amp` |
//!
//! Each is one look at a thread-local where it is off. Whether ops record themselves for a backward is in
//! [`mode`](crate::mode), which memory has to know as well.

pub(crate) mod autocast;
pub(crate) mod capture;
pub(crate) mod rng_state;
pub(crate) mod trace;
