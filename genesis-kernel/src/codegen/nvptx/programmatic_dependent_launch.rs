//! Programmatic dependent launch (PDL): a kernel's prologue overlaps the tail of the kernel before it.
//!
//! Where a GPU has it (from sm_90 on) a launch may have the attribute of programmatic stream serialization: its blocks are scheduled as those
//! of the primary kernel exit, and wait there for its end. So every kernel begins with
//!
//! ```text
//! griddepcontrol.wait;                   all memory operations of the primary grid are visible from here on
//! griddepcontrol.launch_dependents;      some kernels: the dependent grid may start once all blocks are here
//! ```
//!
//! and both do nothing in a launch without the attribute. As each kernel waits for the primary grid before it touches
//! memory, and so on, the order of a stream stays what it was.
//!
//! The wait comes first. It is for the primary grid alone, and makes its writes visible. A kernel that starts while the
//! grid before the primary still runs may find stale lines in the L1 cache: with the instructions the other way round,
//! attention to packed sequences, a chain of small kernels, was wrong in 8 runs of 8 on an H100, and right in 8 of 8
//! with loads that bypass L1.
//!
//! What it saves, on an H200, of an `add` of 1024 x 1024 bf16 that takes 3.20 us: 0.29 us with the wait
//! alone, where the dependent grid starts once the blocks have exited, and 0.74 us with both. But the
//! first instruction costs 1.2 ns a block on the whole device (`exp` in blocks of 1024 elements takes
//! 80 us instead of 64), and early blocks of the dependent grid take slots, so that a kernel of one
//! wave of long blocks ends later (a sum of columns 73 us instead of 63). So it is for kernels without
//! loops whose programs move [`LEAST_BYTES`]. For all launches of two blocks a multiprocessor or less it saves a
//! decode step 1 to 2 %, and costs small sums and the steps of a small network 3 % (H100).
//!
//! What a kernel loads before it waits is in [`crate::machine::prologue_prefetch`] and [`crate::machine::producer_prologue`].
//!
//! The lines go into the text of the PTX, ahead of everything: to LLVM a load of memory that nobody
//! writes has no order, and it could move up before an assembly statement that waits.

use super::super::llvm::Emitter;

/// Waits for the primary grid.
const WAIT: &str = "\tgriddepcontrol.wait;\n";
/// Lets the dependent grid start.
const LAUNCH: &str = "\tgriddepcontrol.launch_dependents;\n";

/// The same where the kernel has something to get ready first: the barriers and tensor maps of a
/// producer. A product of 1024 x 1024 bf16 takes 5.20 us in a row of them, and 5.59 without either
/// instruction; one of 4096 gains 0.5 %. `launches_dependents` is for blocks that have a multiprocessor for
/// themselves and wide tiles: where blocks share one, or only wait for memory, letting the next kernel
/// go costs time (a product of 16 rows takes 5 % longer).
pub(super) fn wait_after_setup(e: &Emitter, launches_dependents: bool) {
    e.intrinsic("llvm.nvvm.griddepcontrol.wait", &[], &[]);
    if launches_dependents {
        e.intrinsic("llvm.nvvm.griddepcontrol.launch.dependents", &[], &[]);
    }
}

/// The same in the middle of a kernel, after its prologue loads. To LLVM the intrinsics touch no memory, and loads would
/// move across them.
pub(super) fn wait_for_grid(e: &Emitter) {
    e.inline_asm(e.void(), WAIT.trim(), "~{memory}", &[], true);
}

/// `griddepcontrol.launch_dependents`, likewise.
pub(super) fn launch_dependents(e: &Emitter) {
    e.inline_asm(e.void(), LAUNCH.trim(), "~{memory}", &[], true);
}

/// Bytes a program must move for `launch_dependents` to pay.
pub(crate) const LEAST_BYTES: u64 = 6 << 10;

/// The PTX of a kernel for a GPU with PDL, with a wait for the primary grid.
pub(super) fn with_grid_wait(ptx: &str) -> String {
    if waits_for_grid(ptx) {
        return ptx.to_owned();
    }
    let entry = ptx.find(".entry").unwrap_or(ptx.len());
    let (head, rest) = ptx.split_at(entry);
    head.to_owned() + &rest.replacen("\n{\n", &format!("\n{{\n{WAIT}"), 1)
}

/// The PTX of a kernel that waits, with `launch_dependents` right after.
pub(crate) fn with_launch_dependents(ptx: &str) -> String {
    ptx.replacen(WAIT, &format!("{WAIT}{LAUNCH}"), 1)
}

/// Whether this PTX may be launched with programmatic stream serialization.
pub(crate) fn waits_for_grid(ptx: &str) -> bool {
    ptx.contains(WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_waits_before_all_else() {
        let ptx =
            ".func (.param .b32 x) f()\n{\n\tret;\n}\n.entry k(\n)\n.maxntid 32\n{\n\tret;\n}\n";
        assert!(!waits_for_grid(ptx));
        let after = with_launch_dependents(&with_grid_wait(ptx));
        assert!(waits_for_grid(&after));
        let expected = format!(".maxntid 32\n{{\n{WAIT}{LAUNCH}\tret;\n}}\n");
        assert!(after.ends_with(&expected), "{after}");
        assert_eq!(after.matches("griddepcontrol").count(), 2);
        // Not in what it calls, and not for older devices.
        assert!(after.starts_with(".func (.param .b32 x) f()\n{\n\tret;\n}\n"));
        assert_eq!(with_launch_dependents(ptx), ptx);
    }
}
