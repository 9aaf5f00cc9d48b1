//! PTX that lacks one of the instructions that order accesses.

/// How an instruction begins, and what may stand in its place.
type Replacement = (&'static str, fn(&str) -> String);

/// What orders accesses: how its instruction begins, and what may stand in its place.
const ORDERS: [Replacement; 11] = [
    ("bar.sync", nothing),
    ("barrier.sync", nothing),
    ("barrier.cluster.arrive", nothing),
    ("barrier.cluster.wait", nothing),
    ("fence.proxy.async", nothing),
    ("fence.mbarrier_init", nothing),
    ("cp.async.wait_group", nothing),
    ("cp.async.bulk.wait_group", nothing),
    ("wgmma.wait_group", nothing),
    ("mbarrier.arrive", nothing),
    ("mbarrier.try_wait", over_at_once),
];

fn nothing(_: &str) -> String {
    String::new()
}

/// A wait that does not wait.
fn over_at_once(wait: &str) -> String {
    let over = wait.split_whitespace().nth(1).unwrap_or_default().trim_end_matches(',');
    format!("setp.eq.b32 {over}, 0, 0;")
}

/// PTX that lacks one of [`ORDERS`].
pub(super) struct Mutant {
    /// What is missing, and where.
    pub(super) what: String,
    pub(super) ptx: String,
    /// The PTX that stops there instead.
    pub(super) stops: String,
}

/// Every [`Mutant`] of a kernel.
pub(super) fn mutants(ptx: &str) -> Vec<Mutant> {
    let mut all = Vec::new();
    for (name, instead) in ORDERS {
        for (at, _) in ptx.match_indices(name) {
            // Not in the middle of another name.
            if ptx[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '.') {
                continue;
            }
            let end = at + ptx[at..].find(';').map_or(0, |len| len + 1);
            let line = ptx[..at].matches('\n').count() + 1;
            let with = |text: &str| format!("{}{text}{}", &ptx[..at], &ptx[end..]);
            all.push(Mutant {
                what: format!("line {line}: {}", &ptx[at..end]),
                ptx: with(&instead(&ptx[at..end])),
                stops: with("trap;"),
            });
        }
    }
    all
}
