//! When a group of calls begins on the virtual clock: once the streams of all its ranks are there.
//!
//! Ranks tell each other when theirs came, over what also carries their values: all of them for a collective, both ends of
//! each transfer for transfers. So with a clock a send waits for its receive, as it may with NCCL.

use std::collections::BTreeSet;

use crate::channel::Channel;
use crate::communicator::Communicator;
use crate::kind::Kind;

/// The time at which all ranks of these calls are there, of which this one came at `own`.
pub(crate) fn meet(communicator: &Communicator, calls: &[Kind], own: u64) -> u64 {
    let (mut peers, mut has_all) = (BTreeSet::new(), false);
    for kind in calls {
        match *kind {
            Kind::Send(peer) | Kind::Receive(peer) => drop(peers.insert(peer)),
            _ => has_all = true,
        }
    }
    peers.remove(&communicator.channel.rank);
    let time = if has_all { with_all(communicator, own) } else { own };
    with_peers(&communicator.channel, time, &peers)
}

fn with_all(communicator: &Communicator, own: u64) -> u64 {
    let mut latest = own;
    communicator.channel.show(communicator.next_piece(), &own.to_ne_bytes(), |_, time| {
        latest = latest.max(read(time));
    });
    latest
}

fn with_peers(channel: &Channel, own: u64, peers: &BTreeSet<usize>) -> u64 {
    let (mut told, mut heard, mut latest) = (peers.clone(), peers.clone(), own);
    while !(told.is_empty() && heard.is_empty() || channel.is_aborted()) {
        told.retain(|&peer| !channel.try_put(peer, &own.to_ne_bytes()));
        heard.retain(|&peer| !channel.try_take(peer, |time| latest = latest.max(read(time))));
        std::thread::yield_now();
    }
    latest
}

/// A time as it came; 0 where none did, as from a communicator that was aborted.
fn read(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// What each of two ranks says in a file of their own.
    fn both(name: &str, of: impl Fn(&Communicator) -> u64 + Sync) -> [u64; 2] {
        let name = format!("nccl-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let rank = |rank| {
            let communicator = Communicator::open(Path::new(&path), rank, 2).unwrap();
            communicator.channel.wait(|| communicator.channel.is_complete());
            of(&communicator)
        };
        std::thread::scope(|scope| {
            let first = scope.spawn(|| rank(0));
            let second = rank(1);
            [first.join().unwrap(), second]
        })
    }

    #[test]
    fn all_begin_when_the_last_is_there() {
        let own = |of: &Communicator| [30, 70][of.channel.rank];
        let all = |of: &Communicator| meet(of, &[Kind::AllGather], own(of));
        assert_eq!(both("all", all), [70, 70]);
        let one_way = |of: &Communicator| {
            let kind = [Kind::Send(1), Kind::Receive(0)][of.channel.rank];
            meet(of, &[kind], own(of))
        };
        assert_eq!(both("one-way", one_way), [70, 70]);
        // What a rank sends to itself waits for nobody.
        let itself = |of: &Communicator| meet(of, &[Kind::Send(of.channel.rank)], own(of));
        assert_eq!(both("itself", itself), [30, 70]);
    }
}
