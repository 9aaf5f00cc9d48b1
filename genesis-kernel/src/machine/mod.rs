//! Machine IR: what the threads of a block do, in order, between layout IR and LLVM.
//!
//! Layout IR says what is computed and which thread holds which element. Machine IR adds what the hardware makes one say:
//! which bytes of shared memory an op's exchange goes through, the asynchronous copies of a multistage buffer with their
//! commit groups, and every barrier and wait. An instruction names the op of the layout IR whose values it reads and
//! gives, so that values, types and layouts are those of the layout IR.
//!
//! ```text
//! %7 = reduce add 0 %6           layout IR, over the warps of a block
//!
//! store.shared 7.0 0..64         each warp's partial result to the scratch of op 7
//! barrier
//! load.shared 7.0 0..64          all of them
//! exec 7                         the result
//! ```
//!
//! Passes make it of layout IR, each in a file of its own:
//!
//! | pass | what it adds |
//! |---|---|
//! | `expand` | the instructions of each op, without barriers but for those of multistage buffers |
//! | `prologue_prefetch` | `griddepcontrol.wait` after copies and loads that may come before it |
//! | `programmatic_dependent_launch` | the same where it comes first, and `griddepcontrol.launch_dependents` |
//! | `setup` | the initialization of mbarriers |
//! | `register_budget` | `setmaxnreg` |
//! | `resident_operands` | the release of stages that stay for a loop of MMAs |
//! | `async_mma` | `wgmma.wait_group`, and the release of the stages that were read |
//! | `late_loads` | nothing; moves loads of lines to where they are needed |
//! | `tma_pipeline` | waits for full and empty stages, and the pipeline state's advance |
//! | `ping_pong` | the turns of warpgroups that multiply while others compute |
//! | `rematerialize` | indices computed anew next to MMAs |
//! | `cluster` | the wait for the other blocks of a cluster to run |
//! | `membar` | barriers |
//! | `combine` | the steps of reductions and scans within a warp |
//! | `atomics` | which instruction an atomic is, and the fences around one that orders its program |
//! | `tma_store` | the panels that a store by the copy engine goes through |
//! | `unroll` | which loops are not copied |
//! | `casts` | casts by instructions of their own |
//! | `cache_policy` | which loads and stores pass by the caches |
//! | `carried_words` | pairs of 16-bit floats that loops carry as words |
//! | `masks` | registers of masks that are known or equal, and accesses that need no predicate |
//! | `narrow` | which 64-bit arithmetic is done in 32 bits |
//! | `strength_reduction` | registers of index tiles that are computed from each other |
//! | `rematerialize_rows` | rows of 16-bit floats computed anew after barriers |
//! | `occupancy` | the blocks of a multiprocessor that registers are left for |
//! | `partial_results` | reductions over warps whose partial results are read lane by lane |
//! | `parameters` | nothing; what is promised of the memory behind parameters |
//! | `packed_arithmetic` | whether 16-bit floats are computed with in pairs |
//!
//! Code generation writes one instruction after the other and decides nothing about their order. [`verify`] finds two
//! accesses to shared memory that no barrier or wait keeps apart; it knows nothing of the passes' rules, and runs on
//! every kernel in debug builds. The text form ([`print()`], [`parse`]) is what tests and `GENESIS_DUMP=machine` show.

mod alias;
mod allocate;
mod async_mma;
mod atomics;
mod cache_policy;
mod carried_words;
mod casts;
mod cluster;
mod code;
mod combine;
pub(crate) mod dsmem;
pub(crate) mod exchange;
mod expand;
mod late_loads;
mod masks;
mod membar;
mod narrow;
mod occupancy;
mod packed_arithmetic;
mod parameters;
mod parse;
mod partial_results;
mod ping_pong;
mod pipeline;
mod print;
mod producer_prologue;
mod program;
mod programmatic_dependent_launch;
mod prologue_prefetch;
mod register_budget;
mod rematerialize;
mod rematerialize_rows;
mod resident_operands;
pub(crate) mod scratch;
mod selection;
mod setup;
mod strength_reduction;
mod tma_pipeline;
pub(crate) mod tma_store;
mod unroll;
mod verify;
mod verify_pipeline;
mod words;

#[cfg(test)]
pub(crate) mod golden;
#[cfg(test)]
mod interpret;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use self::alias::PointsTo;
pub(crate) use self::allocate::{
    BARRIER_BYTES, PANEL_BYTES, PANELS, PipelineLayout, SWIZZLE_ALIGNMENT, SharedMemory,
};
pub(crate) use self::atomics::scope_of;
pub use self::code::{
    Across, Anew, AtomicBy, Block, Bytes, Code, For, Inst, Mma, MmaWait, Panel, Part, Stage,
};
pub(crate) use self::code::{Constant, GridWait, RunBy, producer_ir};
pub(crate) use self::parameters::{Promise, promises};
pub use self::parse::parse;
pub use self::print::print;
pub(crate) use self::program::{Program, WarpSpecialized, text};
pub(crate) use self::prologue_prefetch::grid_wait;
pub(crate) use self::selection::{Cached, Cast, Counter, Guard, Increments, Register, Short, Step};
pub use self::verify::{Race, verify};
pub(crate) use self::verify_pipeline::verify_program;
