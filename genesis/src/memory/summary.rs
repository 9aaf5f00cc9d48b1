//! A table of a device's memory for people.

use genesis_kernel::runtime::{Device, MemoryStats, pinned_memory_stats};

use super::size;
use crate::error::Result;

/// A table of what a device's memory is used for; with pinned host memory, where there is some.
///
/// # Errors
/// If the device can't be used.
///
/// # Examples
/// ```
/// let table = genesis::memory::memory_summary(genesis::Device::Cpu)?;
/// assert!(table.contains("| Allocated"));
/// # Ok::<(), genesis::Error>(())
/// ```
pub fn memory_summary(device: Device) -> Result<String> {
    let mut text = table(&device.to_string(), &device.memory_stats()?);
    if let Some(pinned) = pinned_memory_stats().filter(|stats| stats.reserved > 0) {
        text += &table("pinned host memory", &pinned);
    }
    Ok(text)
}

fn table(name: &str, stats: &MemoryStats) -> String {
    const WIDTH: usize = 58;
    let line = format!("+{}+\n", "-".repeat(WIDTH));
    let mut text = line.clone();
    text += &format!("| {:<1$} |\n", format!("memory of {name}"), WIDTH - 2);
    text += &line;
    let mut row = |what: &str, now: String, peak: String| {
        text += &format!("| {what:<24} | {now:>13} | {peak:>13} |\n");
    };
    row("", "now".to_owned(), "most".to_owned());
    row("Allocated", size(stats.allocated), size(stats.peak));
    row("  as it was asked for", size(stats.requested), String::new());
    row("Reserved", size(stats.reserved), size(stats.peak_reserved));
    row("Free of what is reserved", size(stats.free), String::new());
    row("  the largest block", size(stats.largest_free), String::new());
    row("Waiting for streams", size(stats.waiting), String::new());
    let limit = stats.limit.map_or_else(|| "none".to_owned(), size);
    row("Limit", limit, String::new());
    text += &line;
    let mut row = |what: &str, count: String| {
        text += &format!("| {what:<40} | {count:>13} |\n");
    };
    row("Live tensors", (stats.allocations - stats.frees).to_string());
    row("Allocations", stats.allocations.to_string());
    row("  without asking the system", format!("{:.2} %", 100.0 * stats.hit_rate()));
    row("Segments", stats.segments.to_string());
    row("  asked for", stats.segments_reserved.to_string());
    row("  given back", stats.segments_released.to_string());
    row("Free memory in pieces", format!("{:.2} %", 100.0 * stats.fragmentation()));
    row("Retries after giving memory back", stats.retries.to_string());
    row("Out of memory", stats.out_of_memory.to_string());
    text + &line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_straight() {
        let stats = MemoryStats {
            allocated: 3 << 30,
            reserved: 4 << 30,
            free: 1 << 30,
            largest_free: 1 << 29,
            allocations: 1000,
            hits: 990,
            frees: 900,
            ..MemoryStats::default()
        };
        let text = table("cuda:0", &stats);
        let width = text.lines().next().map(str::len);
        assert!(text.lines().all(|line| Some(line.chars().count()) == width), "{text}");
        for part in ["3.0 GiB", "99.00 %", "50.00 %", "| 100 |", "none"] {
            let squeezed = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(squeezed.contains(part), "{part} is not in {text}");
        }
    }
}
