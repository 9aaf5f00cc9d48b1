//! What is said when memory runs out: what was asked, what there is, who has it, and what may help.

use super::Label;
use super::snapshot::{BlockInfo, BlockState, MemorySnapshot, MemoryStats};
use super::watch;
use crate::diag::Error;

/// Live tensors that the error names.
const NAMED: usize = 10;

/// The error of a request for which there was no memory, also after free segments went back.
pub(super) fn describe(
    memory: &MemorySnapshot,
    space: Option<(usize, usize)>,
    request: usize,
    label: &Label,
) -> Error {
    let stats = memory.stats;
    let what = match label.dtype() {
        Some(_) => format!("{} for {label}", size(request)),
        None => size(request),
    };
    let mut text = format!("asked {} for {what}", memory.device);
    if let Some((free, total)) = space {
        text += &format!("; of {}, {} are free", size(total), size(free));
    }
    if let Some(limit) = stats.limit {
        text += &format!("; the limit of this process is {}", size(limit));
    }
    text += &format!(
        "; {} are in use by this process, and {} more are kept for reuse, in blocks of at most {}",
        size(stats.allocated),
        size(stats.reserved - stats.allocated.min(stats.reserved)),
        size(stats.largest_free)
    );
    text += &largest(memory);
    text += &format!("\nwhat may help: {}", advice(request, &stats, space));
    Error::out_of_memory(text)
}

/// The largest live tensors, a line each.
fn largest(memory: &MemorySnapshot) -> String {
    let blocks = memory.segments.iter().flat_map(|segment| &segment.blocks);
    let mut live: Vec<&BlockInfo> =
        blocks.filter(|block| block.state == BlockState::Live).collect();
    if live.is_empty() {
        return String::new();
    }
    live.sort_by_key(|block| std::cmp::Reverse((block.bytes, block.address)));
    let mut text = format!("\nthe largest of {} live tensors:", live.len());
    for BlockInfo { bytes, label, site, .. } in live.iter().take(NAMED) {
        let place = site.as_ref().map_or(String::new(), |site| format!("  {site}"));
        text += &format!("\n  {:>10}  {label}{place}", size(*bytes));
    }
    if !watch::is_history_on() {
        text += "\nGENESIS_MEMORY_HISTORY=1, or `genesis::memory::record_memory_history`, adds the \
                 lines that made them";
    }
    text
}

/// What is true of the situation, and no more.
fn advice(request: usize, stats: &MemoryStats, space: Option<(usize, usize)>) -> String {
    let smaller = "a smaller batch, or `autograd::checkpoint` around parts of the model, which keeps \
                   less for the backward";
    let total = space.map_or(usize::MAX, |(_, total)| total);
    let most = stats.limit.unwrap_or(usize::MAX).min(total);
    if request > most {
        return format!(
            "nothing is as large as this one request; at most {} can be had",
            size(most)
        );
    }
    if stats.free >= request {
        return format!(
            "enough is reserved but in pieces: what could go back to the system has gone back, so \
             `empty_cache` gains nothing more, each free piece lies beside a live tensor. Make what \
             lives long before what lives short, or take {smaller}"
        );
    }
    if let Some((free, total)) = space {
        let others = total.saturating_sub(free).saturating_sub(stats.reserved);
        if others >= request && others > total / 10 {
            return format!(
                "{} are held outside of this allocator, by other processes or libraries; else {smaller}",
                size(others)
            );
        }
    }
    if stats.limit.is_some_and(|limit| limit < total / 2) {
        return format!("a higher limit (`set_memory_limit`), or {smaller}");
    }
    smaller.to_owned()
}

/// Bytes for people.
pub(crate) fn size(bytes: usize) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    format!("{value:.1} {}", UNITS[unit])
}
