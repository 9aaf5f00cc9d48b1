//! Kernels that are set up while the one ahead of them on the stream still ends.
//!
//! Where a GPU has programmatic dependent launch (from sm_90 on) a launch may ask to be set up early: its blocks take the places that the last blocks
//! of the kernel ahead leave, and wait there for its end. So every kernel begins with
//!
//! ```text
//! griddepcontrol.wait;                   all that earlier kernels wrote is there from here on
//! griddepcontrol.launch_dependents;      some kernels: the next may be set up once all blocks are here
//! ```
//!
//! and both do nothing in a launch that asks for no overlap. As each kernel waits for the end of the
//! one ahead before it touches memory, and so on, the order of a stream stays what it was.
//!
//! The wait comes first. A wait is for the kernel right ahead, and makes what that one wrote visible. A kernel that
//! is set up while the one before that still runs may find lines in the first-level cache which that one replaced
//! meanwhile: with the instructions the other way round, attention to packed sequences, a chain of small kernels, was
//! wrong in 8 runs of 8 on an H100, and right in 8 of 8 with loads that pass by that cache.
//!
//! What it saves, on an H200, of an `add` of 1024 x 1024 bf16 that takes 3.20 us: 0.29 us with the wait
//! alone, where the next kernel is set up once the blocks have ended, and 0.74 us with both. But the
//! first instruction costs 1.2 ns a block on the whole device (`exp` in blocks of 1024 elements takes
//! 80 us instead of 64), and blocks that come early settle where there is room, so that a kernel of one
//! wave of long blocks ends later (a sum of columns 73 us instead of 63). So it is for kernels without
//! loops whose programs move [`LEAST_BYTES`]. For all launches of two blocks a multiprocessor or less it saves a
//! decode step 1 to 2 %, and costs small sums and the steps of a small network 3 % (H100).
//!
//! What a kernel asks for before it waits is in [`super::early`] and [`super::ahead`].
//!
//! The lines go into the text of the PTX, ahead of everything: to LLVM a load of memory that nobody
//! writes has no order, and it could move up before an assembly statement that waits.

use super::super::llvm::Emitter;

/// What waits for the kernel ahead.
const WAIT: &str = "\tgriddepcontrol.wait;\n";
/// What lets the kernel behind be set up.
const LAUNCH: &str = "\tgriddepcontrol.launch_dependents;\n";

/// The same where the kernel has something to get ready first: the barriers and tensor maps of a
/// producer. A product of 1024 x 1024 bf16 takes 5.20 us in a row of them, and 5.59 without either
/// instruction; one of 4096 gains 0.5 %. `lets_go` is for blocks that have a multiprocessor for
/// themselves and wide tiles: where blocks share one, or only wait for memory, letting the next kernel
/// go costs time (a product of 16 rows takes 5 % longer).
pub(super) fn wait_behind_setup(e: &Emitter, lets_go: bool) {
    e.intrinsic("llvm.nvvm.griddepcontrol.wait", &[], &[]);
    if lets_go {
        e.intrinsic("llvm.nvvm.griddepcontrol.launch.dependents", &[], &[]);
    }
}

/// The same in the middle of a kernel, behind what it asks for first. LLVM knows the intrinsics as ones that touch no
/// memory, and loads would pass by them.
pub(super) fn wait_and_let_go(e: &Emitter) {
    for text in [WAIT, LAUNCH] {
        e.inline_asm(e.void(), text.trim(), "~{memory}", &[], true);
    }
}

/// Bytes that take memory longer than letting the next kernel go takes a block.
pub(crate) const LEAST_BYTES: u64 = 6 << 10;

/// The PTX of a kernel for a GPU with programmatic dependent launch, which waits for the kernel ahead.
pub(super) fn waiting(ptx: &str) -> String {
    if may_overlap(ptx) {
        return ptx.to_owned();
    }
    let entry = ptx.find(".entry").unwrap_or(ptx.len());
    let (head, rest) = ptx.split_at(entry);
    head.to_owned() + &rest.replacen("\n{\n", &format!("\n{{\n{WAIT}"), 1)
}

/// The PTX of a kernel that waits, and lets the next kernel be set up as soon as it can.
pub(crate) fn letting_go(ptx: &str) -> String {
    ptx.replacen(WAIT, &format!("{WAIT}{LAUNCH}"), 1)
}

/// Whether a launch of this PTX may be set up before the kernel ahead has ended.
pub(crate) fn may_overlap(ptx: &str) -> bool {
    ptx.contains(WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_waits_before_all_else() {
        let ptx =
            ".func (.param .b32 x) f()\n{\n\tret;\n}\n.entry k(\n)\n.maxntid 32\n{\n\tret;\n}\n";
        assert!(!may_overlap(ptx));
        let after = letting_go(&waiting(ptx));
        assert!(may_overlap(&after));
        let expected = format!(".maxntid 32\n{{\n{WAIT}{LAUNCH}\tret;\n}}\n");
        assert!(after.ends_with(&expected), "{after}");
        assert_eq!(after.matches("griddepcontrol").count(), 2);
        // Not in what it calls, and not for older devices.
        assert!(after.starts_with(".func (.param .b32 x) f()\n{\n\tret;\n}\n"));
        assert_eq!(letting_go(ptx), ptx);
    }
}
