//! Shared memory: how many stages a pipeline has.
//!
//! Stages hide the latency of copies. A pipeline that TMA fills has a multiprocessor for itself, and takes what is left of
//! shared memory; a multistage buffer that `cp.async` fills leaves room for a second block, whose MMAs run while this one
//! is at a barrier.
//!
//! ```text
//! 227 KB, tiles of 48 KB a stage          TMA: 4 stages     cp.async: 2 stages of 96 KB
//! ```

use super::multiprocessor::VECTOR_BYTES;

/// Stages of the smallest pipeline that hides any latency.
pub const MIN_STAGES: u32 = 2;
/// Stages beyond which a pipeline hides no more.
const MAX_STAGES: u32 = 7;

/// Bytes of the panels of a warpgroup that TMA stores: two of the 64 rows of a `wgmma` by the widest swizzle, of which one
/// is filled while the other leaves.
pub const PANELS_BYTES: u32 = 2 * PANEL_ROWS * PANEL_ROW_BYTES;
/// Rows of a panel: those of one `wgmma`.
pub const PANEL_ROWS: u32 = 64;
/// Bytes of a panel's row: the widest swizzle.
pub const PANEL_ROW_BYTES: u32 = 128;
/// The panels of all warpgroups that store at once, at most.
pub const MOST_PANELS_BYTES: u32 = 2 * PANELS_BYTES;

/// Bytes that a pipeline leaves for barriers, and for what small ops need.
pub const SPARE_BYTES: u32 = 1024;
/// Bytes that are left for a reduction or scan over warps.
pub const REDUCTION_BYTES: u32 = 16 << 10;
/// Bytes that are left beside a multistage buffer for reductions and scans: more than they need.
pub const MULTISTAGE_SPARE_BYTES: u32 = 8 << 10;

/// Bytes up to which the default number of stages may grow: two blocks on one multiprocessor hide each other's barriers.
const MULTISTAGE_BYTES: u32 = 96 << 10;
/// The most stages of a multistage buffer where nobody asks for a number.
const MULTISTAGE_STAGES: u32 = 4;

/// Elements from which on an operand is better off in shared memory than in registers.
pub const RESIDENT_ELEMENTS: usize = 64 * 128;

/// Bytes a program must move for `launch.dependents` to pay.
pub const PDL_BYTES: u64 = 6 << 10;

/// Stages of pipelines that TMA fills: `free` bytes are theirs, of which a stage takes `slot_bytes`.
pub fn pipeline_stages(free: u32, slot_bytes: u32) -> u32 {
    (free / slot_bytes).clamp(MIN_STAGES, MAX_STAGES)
}

/// Stages of a multistage buffer, of which as many are `asked` for and no more than `free` bytes hold; none where two do
/// not fit.
pub fn multistage_stages(asked: Option<u32>, slot_bytes: u32, free: u32) -> Option<u32> {
    let most = free.checked_div(slot_bytes)?;
    let usual = (MULTISTAGE_BYTES / slot_bytes).clamp(MIN_STAGES, MULTISTAGE_STAGES);
    let stages = asked.unwrap_or(usual).min(most);
    (stages >= MIN_STAGES).then_some(stages)
}

/// Elements of this many bytes that one access of a thread has.
pub fn vector_elements(bytes: usize) -> usize {
    (VECTOR_BYTES / bytes).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_fill_shared_memory_up_to_a_limit() {
        assert_eq!(pipeline_stages(230_000, 48 << 10), 4);
        assert_eq!((pipeline_stages(230_000, 4096), pipeline_stages(4096, 48 << 10)), (7, 2));
        assert_eq!(multistage_stages(None, 16 << 10, 200 << 10), Some(4));
        assert_eq!(multistage_stages(None, 48 << 10, 200 << 10), Some(2));
        assert_eq!(multistage_stages(Some(8), 16 << 10, 99 << 10), Some(6));
        assert_eq!(multistage_stages(None, 64 << 10, 99 << 10), None);
    }
}
