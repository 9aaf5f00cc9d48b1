//! Which steps of a run are recorded.

/// Which steps of a run are recorded: after `skip_first` steps, cycles of `wait` steps without the
/// profiler, `warmup` steps whose record is thrown away, and `active` steps that are kept.
///
/// ```text
/// Schedule { wait: 2, warmup: 1, active: 3, .. }    . . w R R R | . . w R R R | ..
/// ```
///
/// # Source
/// Same meaning as `torch.profiler.schedule`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// Steps of a cycle in which nothing is recorded.
    pub wait: usize,
    /// Steps that are recorded and forgotten: what happens once only is not in the profile.
    pub warmup: usize,
    /// Steps that are kept; at least 1.
    pub active: usize,
    /// Cycles; 0 goes on to the end.
    pub repeat: usize,
    /// Steps before the first cycle.
    pub skip_first: usize,
}

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule { wait: 0, warmup: 1, active: 3, repeat: 1, skip_first: 0 }
    }
}

/// What is done with a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Nothing.
    Wait,
    /// Recorded and forgotten.
    Warmup,
    /// Recorded.
    Record,
    /// Recorded, and the window is complete after it.
    RecordLast,
}

impl Schedule {
    /// What is done with this step, from 0.
    pub(super) fn action(&self, step: usize) -> Action {
        let Schedule { wait, warmup, repeat, skip_first, .. } = *self;
        let active = self.active.max(1);
        let Some(step) = step.checked_sub(skip_first) else { return Action::Wait };
        let first = wait.saturating_add(warmup);
        let length = first.saturating_add(active);
        let (cycle, place) = (step / length, step % length);
        if repeat != 0 && cycle >= repeat || place < wait {
            Action::Wait
        } else if place < first {
            Action::Warmup
        } else if place + 1 < length {
            Action::Record
        } else {
            Action::RecordLast
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letters(schedule: Schedule, steps: usize) -> String {
        let letter = |step| match schedule.action(step) {
            Action::Wait => '.',
            Action::Warmup => 'w',
            Action::Record => 'r',
            Action::RecordLast => 'R',
        };
        (0..steps).map(letter).collect()
    }

    #[test]
    fn cycles_follow_each_other() {
        let schedule = Schedule { wait: 2, warmup: 1, active: 3, repeat: 2, skip_first: 1 };
        assert_eq!(letters(schedule, 16), "...wrrR..wrrR...");
        let forever = Schedule { repeat: 0, ..schedule };
        assert_eq!(letters(forever, 16), "...wrrR..wrrR..w");
    }

    #[test]
    fn the_shortest_cycle_records_each_step() {
        let long =
            Schedule { wait: usize::MAX, warmup: 1, active: usize::MAX, ..Schedule::default() };
        assert_eq!(long.action(usize::MAX - 1), Action::Wait);
        let schedule = Schedule { wait: 0, warmup: 0, active: 0, repeat: 0, skip_first: 0 };
        assert_eq!(letters(schedule, 3), "RRR");
    }
}
