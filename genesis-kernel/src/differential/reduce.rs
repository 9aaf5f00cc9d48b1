//! Cuts a program that fails down to the ops that it fails with.

use super::subject::{Machine, Outcome, Subject, kind};
use crate::ir::{Builder, Func, Op, OpKind, Region, Scalar, TileType, print};
use crate::passes;

/// How a program fails, and the least one that fails alike.
pub(super) fn described(subject: &Subject, machine: Machine, outcome: &Outcome) -> String {
    let (small, last) = match machine {
        // A GPU that is lost fails with every program.
        Machine::Device(_) => (subject.clone(), outcome.clone()),
        Machine::Cpu | Machine::Emulated(_) => {
            let small = minimized(subject.clone(), machine, outcome);
            let last = fails(&small, machine).unwrap_or_else(|| outcome.clone());
            (small, last)
        }
    };
    let hints = small.hints.options();
    format!(
        "{}: {}\ngrid {:?}, {hints:?}\n{}",
        last.name(),
        last.why(),
        small.program.grid,
        print(&small.program.func)
    )
}

/// How it fails, if it is valid and does.
fn fails(subject: &Subject, machine: Machine) -> Option<Outcome> {
    let expected = subject.expected().ok()?;
    Some(subject.outcome(machine, &expected)).filter(Outcome::is_failure)
}

/// Whether two failures are one: of a value that differs, any other does, and of a message the words.
fn alike(a: &Outcome, b: &Outcome) -> bool {
    let is_value = matches!(a, Outcome::Mismatch(_));
    a.name() == b.name() && (is_value || kind(a.why()) == kind(b.why()))
}

/// The program without every op that it fails without in the same way.
fn minimized(mut subject: Subject, machine: Machine, outcome: &Outcome) -> Subject {
    let is_alike = |other: &Subject| fails(other, machine).is_some_and(|o| alike(&o, outcome));
    for plain in [Some(1), None] {
        let mut other = subject.clone();
        (other.hints.num_warps, other.hints.num_stages) = (plain, None);
        if is_alike(&other) {
            subject = other;
            break;
        }
    }
    let mut single = subject.clone();
    single.program.grid = [1; 3];
    if is_alike(&single) {
        subject = single;
    }
    // A change makes others possible, but rarely after the second time.
    for _ in 0..3 {
        let before = subject.program.func.walk().len();
        for op in subject.program.func.walk().into_iter().rev() {
            let mut smaller = subject.clone();
            if remove(&mut smaller.program.func, op) && is_alike(&smaller) {
                subject = smaller;
            }
        }
        if subject.program.func.walk().len() == before {
            break;
        }
    }
    subject
}

/// Drops an op, with zeros in place of its results; whether it could be.
pub(crate) fn remove(func: &mut Func, op: Op) -> bool {
    let data = func.op(op).clone();
    let is_zero = matches!(data.kind, OpKind::Const(_) | OpKind::Broadcast);
    let tiles: Option<Vec<TileType>> = data.results.iter().map(|&r| func.ty(r).as_tile()).collect();
    let Some(tiles) = tiles.filter(|tiles| tiles.iter().all(|t| !t.is_ptr())) else { return false };
    let Some(region) = owner(func, op) else { return false };
    if is_zero || data.kind.is_terminator() {
        return false;
    }
    let at = func.region(region).ops.iter().position(|&o| o == op).expect("the region has it");
    let rest = func.region_mut(region).ops.split_off(at);
    for (&result, tile) in data.results.iter().zip(tiles) {
        let mut build = Builder::at(func, region, None);
        let zero = build.full(Scalar::zero(tile.dtype()), tile.shape);
        func.replace_uses(result, zero);
    }
    func.region_mut(region).ops.extend(&rest[1..]);
    passes::run(func, &[passes::DCE]);
    true
}

/// The region that an op stands in, if it is still in the function.
fn owner(func: &Func, op: Op) -> Option<Region> {
    let inner = func.walk().into_iter().flat_map(|o| func.op(o).regions.clone());
    [func.body].into_iter().chain(inner).find(|&r| func.region(r).ops.contains(&op))
}
