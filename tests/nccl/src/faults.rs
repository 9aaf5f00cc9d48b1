//! What goes wrong on purpose.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The faults of this process's environment.
#[derive(Debug, Default, PartialEq, Eq)]
struct Faults {
    /// A rank, and the collective at which it ends.
    dead: Option<(usize, u64)>,
    /// A rank, and how late it comes.
    late: Option<(usize, Duration)>,
}

static COUNT: AtomicU64 = AtomicU64::new(0);

/// What a rank does before a collective runs.
pub(crate) fn before_collective(rank: usize) {
    static FAULTS: OnceLock<Faults> = OnceLock::new();
    let faults = FAULTS.get_or_init(|| {
        let text = std::env::var("VIRTUAL_NCCL").unwrap_or_default();
        parse(&text).unwrap_or_else(|| panic!("VIRTUAL_NCCL: `{text}` is not known"))
    });
    let number = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    if faults.dead == Some((rank, number)) {
        // Nothing is told to anybody, and nothing is cleaned up.
        std::process::abort();
    }
    if let Some((late, by)) = faults.late
        && late == rank
    {
        std::thread::sleep(by);
    }
}

fn parse(text: &str) -> Option<Faults> {
    let mut faults = Faults::default();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (name, value) = word.split_once('=')?;
        let (rank, value) = value.split_once(':')?;
        let (rank, value) = (rank.parse().ok()?, value.parse().ok()?);
        match name {
            "dead" => faults.dead = Some((rank, value)),
            "late" => faults.late = Some((rank, Duration::from_millis(value))),
            _ => return None,
        }
    }
    Some(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read() {
        let both = Faults { dead: Some((1, 3)), late: Some((0, Duration::from_millis(200))) };
        assert_eq!(parse("dead=1:3, late=0:200"), Some(both));
        assert_eq!(parse(""), Some(Faults::default()));
        assert_eq!(parse("dead=1"), None);
        assert_eq!(parse("slow=1:2"), None);
    }
}
