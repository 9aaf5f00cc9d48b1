//! Memory of the CPU.

use std::alloc::{self, Layout};
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use super::System;
use super::arena::Arena;
use super::ledger::Ledger;
use crate::diag::Error;
use crate::runtime::Device;

/// The alignment of CPU memory, a cache line and the widest vector, as a power of two.
const ALIGN_LOG2: u32 = 6;
/// Freed CPU memory kept for reuse; more goes back to the system.
const KEPT: usize = 1 << 30;

/// The memory of the CPU. It has one arena: what is given to the CPU runs at once, whoever gives it.
pub(crate) fn arena() -> &'static Arena {
    static ARENA: OnceLock<&'static Arena> = OnceLock::new();
    ARENA.get_or_init(|| {
        let ledger = Ledger::new(Device::Cpu, Device::Cpu.to_string(), &Host);
        let ledger: &'static Ledger = Box::leak(Box::new(ledger));
        ledger.arena(0)
    })
}

/// The system's allocator.
struct Host;

impl System for Host {
    fn granule_log2(&self) -> u32 {
        ALIGN_LOG2
    }

    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    fn reserve(&self, bytes: usize) -> Result<Option<u64>, Error> {
        let Some(layout) = layout(bytes) else { return Ok(None) };
        // SAFETY: no segment is of 0 bytes.
        let address = unsafe { alloc::alloc(layout) };
        Ok(if address.is_null() { None } else { Some(address as u64) })
    }

    fn release(&self, address: u64, bytes: usize) -> Result<(), Error> {
        if let Some(layout) = layout(bytes) {
            // SAFETY: `reserve` allocated it with this layout.
            unsafe { alloc::dealloc(address as usize as *mut u8, layout) };
        }
        Ok(())
    }

    fn settle(&self) -> Result<bool, Error> {
        Ok(true)
    }

    fn keeps(&self) -> usize {
        KEPT
    }

    /// Linux promises memory that it does not have (`vm.overcommit_memory`), and kills the process that
    /// then fills it.
    fn most(&self) -> usize {
        static MOST: OnceLock<usize> = OnceLock::new();
        *MOST.get_or_init(|| total(&meminfo().unwrap_or_default()).unwrap_or(usize::MAX))
    }

    fn space(&self) -> Option<(usize, usize)> {
        let text = meminfo()?;
        let all = total(&text)?;
        Some((bytes_of(&text, "MemAvailable:")?.min(all), all))
    }
}

fn meminfo() -> Option<String> {
    fs::read_to_string("/proc/meminfo").ok()
}

/// A line of `/proc/meminfo`, which counts KiB.
fn bytes_of(meminfo: &str, name: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<usize>().ok()?.checked_mul(1 << 10)
}

/// What this process can have at most: the machine's memory and swap, or less in a control group.
fn total(meminfo: &str) -> Option<usize> {
    let machine = bytes_of(meminfo, "MemTotal:")? + bytes_of(meminfo, "SwapTotal:").unwrap_or(0);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    Some(group_limit(&groups, Path::new("/sys/fs/cgroup")).map_or(machine, |n| n.min(machine)))
}

/// The least limit of memory of the groups that `/proc/self/cgroup` names: version 1 (a hierarchy for each
/// resource) or 2. Inside a container the name may be the one outside of it: then the root is the group.
fn group_limit(groups: &str, root: &Path) -> Option<usize> {
    let limit = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<usize>().ok();
    let of_line = |line: &str| {
        let mut words = line.splitn(3, ':').skip(1);
        let (resources, name) = (words.next()?, words.next()?.trim_start_matches('/'));
        let (root, file) = match resources {
            "" => (root.to_owned(), "memory.max"),
            _ if resources.split(',').any(|resource| resource == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let own = root.join(name);
        own.ancestors()
            .take_while(|folder| folder.starts_with(&root))
            .filter_map(|folder| limit(&folder.join(file)))
            .min()
    };
    groups.lines().filter_map(of_line).min()
}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, 1 << ALIGN_LOG2).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_says_what_there_is() {
        let (free, all) = Host.space().unwrap();
        assert!(free <= all && all >= 1 << 28, "{free} of {all} bytes");
        assert_eq!(Host.most(), all);
    }

    #[test]
    fn more_than_the_machine_has_is_refused() {
        let more = Host.most() + (1 << 20);
        assert_eq!(arena().ledger().reserve(more, 0).unwrap(), None);
    }

    #[test]
    fn the_least_limit_of_a_group_and_those_above_it_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |folder: &str, file: &str, text: &str| {
            let folder = root.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(file), text).unwrap();
        };
        let limit = |groups: &str| group_limit(groups, root.path());
        assert_eq!(limit("0::/a/b\n"), None);
        write("a/b", "memory.max", "max\n");
        assert_eq!(limit("0::/a/b\n"), None);
        write("a", "memory.max", "5000\n");
        write("a/b", "memory.max", "7000\n");
        assert_eq!(limit("0::/a/b\n"), Some(5000));
        write("memory", "memory.limit_in_bytes", "3000\n");
        assert_eq!(limit("5:devices:/\n4:memory:/not/here\n0::/a\n"), Some(3000));
        assert_eq!(limit("nonsense"), None);
    }
}
