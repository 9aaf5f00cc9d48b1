//! A snapshot as a page: the segments as bars, the lines that hold the most, the largest tensors.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::size;
use super::snapshot::{BlockRecord, DeviceRecord, SegmentRecord, SnapshotFile};

const STYLE: &str = "body{font:14px system-ui,sans-serif;margin:2em;max-width:80em}\
table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:left;border-bottom:1px solid #ddd}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}\
.bar{display:flex;height:22px;border:1px solid #888;margin:1px 0 6px;background:#fff}\
.bar i{display:block;min-width:1px;border-right:1px solid #fff8;box-sizing:border-box}\
.free{background:#eee}.waiting{background:repeating-linear-gradient(45deg,#ccc 0 4px,#eee 4px 8px)}\
small{color:#555}code{font-size:13px}";

/// Rows of each table.
const ROWS: usize = 50;
/// Pieces of a bar; what lies behind is summed up.
const PIECES: usize = 2000;

impl SnapshotFile {
    /// A page that shows it, in one file that needs no network.
    pub fn to_html(&self) -> String {
        let mut out =
            String::from("<!doctype html>\n<meta charset=\"utf-8\">\n<title>memory</title>\n");
        let _ = writeln!(out, "<style>{STYLE}</style>");
        for device in &self.devices {
            section(&mut out, device);
        }
        out
    }
}

fn section(out: &mut String, device: &DeviceRecord) {
    // Writing to a string can't fail.
    let _ = writeln!(out, "<h1>{}</h1>", escaped(&device.device));
    let _ = writeln!(
        out,
        "<p>{} in live tensors (most {}), {} reserved (most {}), {} segments</p>",
        size(device.allocated),
        size(device.peak_allocated),
        size(device.reserved),
        size(device.peak_reserved),
        device.segments.len()
    );
    lines(out, device);
    tensors(out, device);
    let _ = writeln!(out, "<h2>Segments</h2>");
    let mut segments: Vec<&SegmentRecord> = device.segments.iter().collect();
    segments.sort_by_key(|segment| std::cmp::Reverse(segment.bytes));
    for segment in segments {
        bar(out, segment);
    }
}

fn live(device: &DeviceRecord) -> impl Iterator<Item = &BlockRecord> {
    let blocks = device.segments.iter().flat_map(|segment| &segment.blocks);
    blocks.filter(|block| block.state == "live")
}

/// What is said of a line that is not known.
const UNKNOWN: &str = "not recorded";

fn line_of(block: &BlockRecord) -> &str {
    block.line.as_deref().unwrap_or(UNKNOWN)
}

/// The lines of the program by what they hold.
fn lines(out: &mut String, device: &DeviceRecord) {
    let mut held: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for block in live(device) {
        let entry = held.entry(line_of(block)).or_default();
        *entry = (entry.0 + block.bytes, entry.1 + 1);
    }
    let mut held: Vec<_> = held.into_iter().collect();
    held.sort_by_key(|&(line, (bytes, _))| (std::cmp::Reverse(bytes), line));
    let _ =
        writeln!(out, "<h2>By line</h2>\n<table><tr><th class=n>bytes<th class=n>tensors<th>line");
    for (line, (bytes, count)) in held.iter().take(ROWS) {
        let _ = writeln!(
            out,
            "<tr><td class=n>{}<td class=n>{count}<td><code style=\"border-left:1em solid {};\
             padding-left:.4em\">{}</code>",
            size(*bytes),
            color(line),
            escaped(line)
        );
    }
    let _ = writeln!(out, "</table>");
    rest(out, held.len());
}

fn tensors(out: &mut String, device: &DeviceRecord) {
    let mut blocks: Vec<&BlockRecord> = live(device).collect();
    blocks.sort_by_key(|block| (std::cmp::Reverse(block.bytes), block.address));
    let _ = writeln!(
        out,
        "<h2>Largest tensors</h2>\n<table><tr><th class=n>bytes<th>tensor<th>line<th>address"
    );
    for block in blocks.iter().take(ROWS) {
        let _ = writeln!(
            out,
            "<tr><td class=n>{}<td>{}<td><code>{}</code><td><code>{:#x}</code>",
            size(block.bytes),
            escaped(&tensor(block)),
            escaped(line_of(block)),
            block.address
        );
    }
    let _ = writeln!(out, "</table>");
    rest(out, blocks.len());
}

fn rest(out: &mut String, rows: usize) {
    if rows > ROWS {
        let _ = writeln!(out, "<p><small>and {} more</small></p>", rows - ROWS);
    }
}

fn tensor(block: &BlockRecord) -> String {
    match &block.dtype {
        Some(dtype) => format!("{dtype} {:?}", block.shape),
        None => "bytes".to_owned(),
    }
}

/// A segment, its blocks as wide as they are large.
fn bar(out: &mut String, segment: &SegmentRecord) {
    let pool = segment.pool.map_or(String::new(), |pool| format!(", private pool {pool}"));
    let _ = writeln!(
        out,
        "<small>{:#x}, {}, stream {}{pool}</small>\n<div class=bar>",
        segment.address,
        size(segment.bytes),
        segment.stream
    );
    let share = |bytes: usize| 100.0 * bytes as f64 / segment.bytes.max(1) as f64;
    for block in segment.blocks.iter().take(PIECES) {
        let width = share(block.bytes);
        match block.state.as_str() {
            "live" => {
                let title =
                    format!("{} for {}, {}", size(block.bytes), tensor(block), line_of(block));
                let _ = writeln!(
                    out,
                    "<i style=\"width:{width:.4}%;background:{}\" title=\"{}\"></i>",
                    color(line_of(block)),
                    escaped(&title)
                );
            }
            state => {
                let class = if state == "waiting" { "waiting" } else { "free" };
                let _ = writeln!(
                    out,
                    "<i class={class} style=\"width:{width:.4}%\" title=\"{} {class}\"></i>",
                    size(block.bytes)
                );
            }
        }
    }
    let left: usize = segment.blocks.iter().skip(PIECES).map(|block| block.bytes).sum();
    if left > 0 {
        let (width, many) = (share(left), segment.blocks.len() - PIECES);
        let _ = writeln!(
            out,
            "<i style=\"width:{width:.4}%;background:#666\" title=\"{many} more blocks\"></i>"
        );
    }
    let _ = writeln!(out, "</div>");
}

/// The color of a line: the same wherever it stands.
fn color(line: &str) -> String {
    let hash = line.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("hsl({} 65% {}%)", hash % 360, 50 + hash / 360 % 20)
}

/// Text as it stands in a page.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_lines_tensors_and_segments() {
        let block = |bytes: usize, state: &str, line: Option<&str>| BlockRecord {
            address: 4096,
            bytes,
            requested: bytes,
            state: state.to_owned(),
            dtype: Some("f32".to_owned()),
            shape: vec![2, 3],
            line: line.map(str::to_owned),
        };
        let blocks = vec![
            block(1024, "live", Some("<src>/main.rs:3")),
            block(512, "live", None),
            block(512, "free", None),
        ];
        let segment = SegmentRecord { stream: 0, pool: Some(2), address: 1, bytes: 2048, blocks };
        let device = DeviceRecord {
            device: "cpu".to_owned(),
            allocated: 1536,
            peak_allocated: 1536,
            reserved: 2048,
            peak_reserved: 2048,
            segments: vec![segment],
        };
        let page = SnapshotFile { version: 1, devices: vec![device] }.to_html();
        for part in ["&lt;src&gt;/main.rs:3", "f32 [2, 3]", UNKNOWN, "width:50.0000%", "pool 2"] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        assert!(!page.contains("http"), "it needs no network");
    }
}
