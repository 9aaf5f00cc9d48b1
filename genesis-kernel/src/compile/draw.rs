//! Layouts drawn as text: which thread and register holds each element of a tile's upper left corner. Then the traffic
//! of layout conversions, and the software pipelines of loops.
//!
//! ```text
//! %5, %8 [4, 4], 4 registers: reg [1, 8] lane [2, 4, 0, 0, 0] warp []
//!         0     1     2     3
//!  0    0.0   0.1   1.0   1.1
//!  1    2.0   2.1   3.0   3.1
//! ```
//!
//! An entry is `thread.register`. Of the threads that hold copies of an element the first is named.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::schedule::schedule;
use super::traffic;
use crate::ir::Value;
use crate::ir::print::names;
use crate::layout::lir::LayoutIr;
use crate::layout::{LANES, LinearLayout};

/// Rows and columns of the corner.
const ROWS: u32 = 16;
const COLUMNS: u32 = 16;

/// Every layout once with the values that have it, and what moves between them.
pub(super) fn layouts(lir: &LayoutIr) -> String {
    let mut text = format!(
        "// {} warp{}; an entry is thread.register\n",
        lir.num_warps,
        plural(lir.num_warps)
    );
    let names = names(&lir.func);
    let mut drawn: BTreeMap<&Arc<LinearLayout>, Vec<&str>> = BTreeMap::new();
    let mut order = Vec::new();
    for (index, layout) in lir.layouts.iter().enumerate() {
        if let (Some(layout), Some(name)) = (layout, names.get(&Value(index as u32))) {
            let values = drawn.entry(layout).or_default();
            if values.is_empty() {
                order.push(layout);
            }
            values.push(name);
        }
    }
    for layout in order {
        let values: Vec<String> = drawn[layout].iter().map(|name| format!("%{name}")).collect();
        text += &format!("\n{} {}", values.join(", "), corner(layout));
    }
    for (at, one) in traffic::moves(lir).into_iter().enumerate() {
        // Writing to a string can't fail.
        let _ = writeln!(text, "{}{}: {}", if at == 0 { "\n" } else { "" }, one.what, one.way);
    }
    let schedule = schedule(lir);
    if !schedule.is_empty() {
        let _ = write!(text, "\n{schedule}");
    }
    text
}

/// The first rows and columns of a layout, of its last two axes.
fn corner(layout: &LinearLayout) -> String {
    let rank = layout.shape.rank();
    let columns = if rank == 0 { 1 } else { layout.shape.extent(rank - 1) as u32 };
    let rows = if rank < 2 { 1 } else { layout.shape.extent(rank - 2) as u32 };
    let n = layout.num_regs();
    let mut text = format!("{}, {n} register{}: {layout}\n    ", layout.shape, plural(n));
    for column in 0..columns.min(COLUMNS) {
        let _ = write!(text, "{column:>7}");
    }
    text.push_str(if columns > COLUMNS { " ..\n" } else { "\n" });
    for row in 0..rows.min(ROWS) {
        let _ = write!(text, "{row:>4}");
        for column in 0..columns.min(COLUMNS) {
            let place = layout
                .solve(row * columns + column)
                .map_or("-".to_owned(), |at| format!("{}.{}", at.warp * LANES + at.lane, at.reg));
            let _ = write!(text, "{place:>7}");
        }
        text.push('\n');
    }
    if rows > ROWS {
        text.push_str("  ..\n");
    }
    text
}

fn plural(n: u32) -> &'static str {
    if n == 1 { "" } else { "s" }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::ir::Shape;

    #[test]
    fn the_table_of_the_header() {
        let mut layout = LinearLayout::replicated(Shape::new(&[4, 4]), 1);
        layout.reg = vec![1, 8];
        layout.lane = vec![2, 4, 0, 0, 0];
        expect![[r#"
            [4, 4], 4 registers: reg [1, 8] lane [2, 4, 0, 0, 0] warp []
                      0      1      2      3
               0    0.0    0.1    1.0    1.1
               1    2.0    2.1    3.0    3.1
               2    0.2    0.3    1.2    1.3
               3    2.2    2.3    3.2    3.3
        "#]]
        .assert_eq(&corner(&layout));
    }
}
