//! Kernels that start while the one ahead of them on the stream still ends.
//!
//! From sm_90 on a launch may ask to be set up early: its blocks take the places that the last blocks
//! of the kernel ahead leave, and wait there for its end. Of a kernel of 3 us this hides 0.7 us. So
//! every kernel begins with
//!
//! ```text
//! griddepcontrol.launch_dependents;      the next kernel may be set up once all blocks are here
//! griddepcontrol.wait;                   all that earlier kernels wrote is there from here on
//! ```
//!
//! and both do nothing in a launch that asks for no overlap. As each kernel waits for the end of the
//! one ahead before it touches memory, and so on, the order of a stream stays what it was.
//!
//! The lines go into the text of the PTX, ahead of everything: to LLVM a load of memory that nobody
//! writes has no order, and it could move up before an assembly statement that waits.

/// What waits for the kernel ahead.
const WAIT: &str = "griddepcontrol.wait;";

/// The PTX of a kernel for sm_90 or later with the lines of the header.
pub(super) fn overlapping(ptx: &str) -> String {
    let entry = ptx.find(".entry").unwrap_or(ptx.len());
    let (head, rest) = ptx.split_at(entry);
    let start = format!("\n{{\n\tgriddepcontrol.launch_dependents;\n\t{WAIT}\n");
    head.to_owned() + &rest.replacen("\n{\n", &start, 1)
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
        let ptx = ".func (.param .b32 x) f()\n{\n\tret;\n}\n.entry k(\n)\n.maxntid 32\n{\n\tret;\n}\n";
        assert!(!may_overlap(ptx));
        let after = overlapping(ptx);
        assert!(may_overlap(&after));
        let body = after.split(".entry").nth(1).expect("an entry");
        let lines: Vec<&str> = body.lines().skip(3).map(str::trim).collect();
        let expected = ["{", "griddepcontrol.launch_dependents;", WAIT, "ret;", "}"];
        assert_eq!(lines, expected);
        assert_eq!(after.matches("griddepcontrol").count(), 2);
    }
}
