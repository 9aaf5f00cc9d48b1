//! Watchdog: a thread of each rank that looks whether collectives end.
//!
//! The rank that finds one which does not says so in the store. All others answer where they stand, each
//! by its own thread: also one whose program does something else, but not one that is gone. Then each
//! rank says what it found and ends, since the streams of all are stuck behind the collective.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::shared::Shared;
use super::store::Store;

/// A thread looks this often.
const TICK: Duration = Duration::from_millis(500);
/// How long ranks are given to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Where a rank says that it waits in vain.
const ALARM: &str = "alarm";
/// The exit code of a rank that ends so.
pub(super) const STUCK: i32 = 75;

/// The thread of a group.
#[derive(Debug)]
pub(super) struct Watchdog {
    /// Dropped, it tells the thread to end.
    stop: Sender<()>,
    /// Hung up once it has.
    ended: Mutex<Receiver<()>>,
}

impl Watchdog {
    pub(super) fn start(shared: &Arc<Shared>, store: Store) -> std::io::Result<Watchdog> {
        let (shared, name) = (Arc::downgrade(shared), "collectives".to_owned());
        let ((stop, stopped), (end, ended)) = (channel(), channel());
        std::thread::Builder::new().name(name).spawn(move || {
            let _end: Sender<()> = end;
            watch(&shared, &store, &stopped);
        })?;
        Ok(Watchdog { stop, ended: Mutex::new(ended) })
    }

    /// Ends the thread, so that the group is taken apart by the thread that drops it: another one might still be inside
    /// of NCCL while the process ends, which is a crash. A store that does not answer holds it up; that is waited for
    /// only so long.
    pub(super) fn end(self, patience: Duration) {
        drop(self.stop);
        let ended = self.ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        let _ = ended.recv_timeout(patience);
    }
}

fn watch(shared: &Weak<Shared>, store: &Store, stopped: &Receiver<()>) {
    loop {
        let Some(group) = shared.upgrade() else { return };
        let timeout = group.world.timeout.as_secs_f64();
        let open = group.recorder.oldest_open().filter(|&(_, _, seconds)| seconds > timeout);
        // A store that is gone is rank 0's end, which whoever waits for a collective finds by its timeout.
        let alarm = store.get_within(&group.key(ALARM), Duration::ZERO).ok().flatten();
        if open.is_some() || alarm.is_some() {
            end(&group, store);
        }
        let tick = TICK.min(group.world.timeout / 4);
        drop(group);
        if stopped.recv_timeout(tick) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// Says where all ranks stand, and ends the process.
fn end(group: &Shared, store: &Store) -> ! {
    let own = group.recorder.stands();
    let has_store = store.set(&group.key(ALARM), b"").is_ok();
    let _ = store.set(&group.key(&format!("stands/{}", group.rank())), own.1.as_bytes());
    let _ = store.set(&group.key(&format!("called/{}", group.rank())), &own.0.to_le_bytes());
    let mut answers = match has_store {
        true => answers(group, store),
        false => vec![None; group.size()],
    };
    answers[group.rank()] = Some(own);
    say(&report(group, &answers, has_store));
    // Rank 0 holds the store: it leaves last.
    if group.world.rank == 0 {
        std::thread::sleep(ANSWER);
    }
    // Nothing is taken apart while other threads wait inside of NCCL.
    signal_hook::low_level::exit(STUCK);
}

/// How many collectives each rank called, and where it stands; none of one that does not answer.
type Answers = Vec<Option<(u64, String)>>;

fn answers(group: &Shared, store: &Store) -> Answers {
    let until = Instant::now() + ANSWER;
    (0..group.size())
        .map(|rank| {
            let get = |what: &str| {
                let left = until.saturating_duration_since(Instant::now());
                store.get_within(&group.key(&format!("{what}/{rank}")), left).ok().flatten()
            };
            let called = get("called")?.try_into().map_or(0, u64::from_le_bytes);
            Some((called, String::from_utf8_lossy(&get("stands")?).into_owned()))
        })
        .collect()
}

/// What is told: who is missing first, then where each one stands.
fn report(group: &Shared, answers: &Answers, has_store: bool) -> String {
    let most = answers.iter().flatten().map(|(called, _)| *called).max().unwrap_or(0);
    let missing: Vec<String> = answers
        .iter()
        .enumerate()
        .filter_map(|(rank, answer)| match answer {
            None => Some(format!("rank {rank} does not answer: it is gone or stopped")),
            Some((called, _)) if *called < most => {
                Some(format!("rank {rank} has not called number {most}"))
            }
            Some(_) => None,
        })
        .collect();
    let mut lines = vec![format!(
        "error: rank {} of {}: a collective of group `{}` did not end within {:.0} s: {}",
        group.rank(),
        group.size(),
        group.name,
        group.world.timeout.as_secs_f64(),
        if !has_store {
            "the store of the ranks is gone, and with it rank 0 of the world, which holds it"
                .to_owned()
        } else if missing.is_empty() {
            "all ranks called it; shapes or order may differ (GENESIS_CHECK_COLLECTIVES=1 tells)"
                .to_owned()
        } else {
            missing.join("; ")
        }
    )];
    for (rank, answer) in answers.iter().enumerate() {
        let unknown = if has_store { "no answer" } else { "not known" };
        let text = answer.as_ref().map_or(unknown, |(_, text)| text);
        lines.push(format!("  rank {rank}: {text}"));
    }
    lines.join("\n")
}

pub(super) fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}
