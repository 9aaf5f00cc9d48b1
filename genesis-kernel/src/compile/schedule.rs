//! The software pipeline of a kernel's loops as text: what is prefetched into which stage, and what waits for what.
//!
//! ```text
//! loop at matmul.rs:48: 4 slots of 16384 bytes, filled by asynchronous copies
//!   before the loop   copy iterations 0 .. 3
//!   iteration i       wait for i's copies, barrier, copy i + 3, multiply from slot i % 4
//!   %31               8192 bytes at 0
//! ```

use std::fmt::Write as _;

use crate::ir::Op;
use crate::ir::print::names;
use crate::layout::MultistageBuffer;
use crate::layout::lir::LayoutIr;

/// Every ring and every channel; nothing where nothing runs ahead.
pub(super) fn schedule(lir: &LayoutIr) -> String {
    let mut text = String::new();
    for op in lir.func.walk() {
        if let Some(ring) = lir.multistage.get(&op) {
            add_ring(lir, op, ring, &mut text);
        }
    }
    for channel in 0..lir.func.tma.channels.len() {
        add_channel(lir, channel, &mut text);
    }
    text
}

/// Writing to a string can't fail, here and below.
fn add_ring(lir: &LayoutIr, op: Op, ring: &MultistageBuffer, text: &mut String) {
    let (stages, ahead) = (ring.stages, ring.stages.saturating_sub(1));
    let names = names(&lir.func);
    let place =
        lir.func.op(op).loc.map_or(String::new(), |loc| format!(" at {}:{}", loc.file, loc.line));
    let _ = write!(
        text,
        "loop{place}: {stages} slots of {} bytes, filled by asynchronous copies
  before the loop   copy iterations 0 .. {ahead}
  iteration i       wait for i's copies, barrier, copy i + {ahead}, multiply from slot i % {stages}
",
        ring.slot_bytes
    );
    for load in &ring.loads {
        let result = lir.func.op(load.op).results.first();
        let name = result.and_then(|value| names.get(value)).map_or("?", String::as_str);
        let _ = writeln!(text, "  %{name:<16} {} bytes at {}", load.bytes, load.offset);
    }
}

fn add_channel(lir: &LayoutIr, index: usize, text: &mut String) {
    let tma = &lir.func.tma;
    let channel = &tma.channels[index];
    let stages = channel.stages;
    let _ = write!(
        text,
        "channel {index}: {stages} slots of {} bytes, filled by the copy engine
  producer          wait until slot i % {stages} is empty, copy step i
  consumers         wait until slot i % {stages} is full, multiply from it, give it back
",
        channel.slot_bytes
    );
    for load in tma.loads.iter().filter(|load| usize::from(load.channel) == index) {
        let map = tma.maps.get(usize::from(load.map));
        let what = map.map_or(String::new(), |map| {
            format!(", parameter {}, panels of {} bytes", map.param, map.swizzle)
        });
        let _ = writeln!(text, "  a load            {} bytes at {}{what}", load.bytes, load.offset);
    }
}
