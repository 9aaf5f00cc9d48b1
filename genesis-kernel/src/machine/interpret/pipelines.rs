//! TMA pipelines: what a producer fills, and what a consumer finds.

use std::collections::BTreeMap;

use super::{Checked, Role, Staged};
use crate::interp::Elements;
use crate::ir::{Op, Tma};
use crate::machine::Inst;

/// What the copy engine brought to one stage: tiles by their offsets.
type Fill = BTreeMap<u32, Elements>;

/// Everything that a producer fills, in order.
pub(super) struct Fills {
    channels: Vec<Filled>,
}

#[derive(Default)]
struct Filled {
    stages: usize,
    fills: Vec<Fill>,
    /// The next stage of the part of the producer that runs.
    next: usize,
    /// Stages from the next one on that a prologue filled in part.
    prefetched: usize,
}

impl Fills {
    pub(super) fn of(tma: &Tma) -> Fills {
        let channel = |stages: u32| Filled { stages: stages as usize, ..Filled::default() };
        Fills { channels: tma.channels.iter().map(|c| channel(c.stages)).collect() }
    }

    /// A part of the producer begins with the first stage.
    pub(super) fn begin_part(&mut self) {
        self.channels.iter_mut().for_each(|channel| channel.next = 0);
    }

    /// Whether a prologue has armed the next stage.
    pub(super) fn is_prefetched(&self, channel: u8) -> bool {
        self.channels[usize::from(channel)].prefetched > 0
    }

    fn arm(&mut self, channel: u8) -> Checked {
        let channel = &mut self.channels[usize::from(channel)];
        if channel.fills.len() != channel.next {
            return Err("a stage is armed twice".to_owned());
        }
        channel.fills.push(Fill::new());
        Ok(())
    }

    pub(super) fn bring(&mut self, channel: u8, offset: u32, tile: Elements) -> Checked {
        let channel = &mut self.channels[usize::from(channel)];
        let fill = channel.fills.get_mut(channel.next).ok_or("a copy to a stage before arm")?;
        fill.insert(offset, tile);
        Ok(())
    }
}

/// How far a consumer is in each pipeline.
pub(super) struct Reader {
    channels: Vec<Reading>,
}

#[derive(Clone, Default)]
struct Reading {
    stages: usize,
    /// The next stage, counted from the first fill.
    next: usize,
    /// Whether it was waited for.
    full: bool,
    /// Stages that went back to the producer.
    released: usize,
    /// A stage that MMAs in flight read, and whether these are complete.
    held: Option<(usize, bool)>,
    /// Stages that a dot's MMAs took.
    taken: Vec<(Op, usize)>,
}

impl Reader {
    pub(super) fn of(fills: &Fills) -> Reader {
        let reading = |filled: &Filled| Reading { stages: filled.stages, ..Reading::default() };
        Reader { channels: fills.channels.iter().map(reading).collect() }
    }

    fn at(&mut self, channel: u8) -> &mut Reading {
        &mut self.channels[usize::from(channel)]
    }

    /// A tile in a stage that is full and not released.
    pub(super) fn tile(
        &self,
        fills: &Fills,
        channel: u8,
        number: usize,
        offset: u32,
    ) -> Result<Elements, String> {
        let reading = &self.channels[usize::from(channel)];
        let is_full = number < reading.next || (number == reading.next && reading.full);
        if !is_full {
            return Err(format!("a stage of {channel} is read before it is full"));
        }
        if number < reading.released {
            return Err(format!("a stage of {channel} is read after its release"));
        }
        let fill = fills.channels[usize::from(channel)].fills.get(number);
        let tile = fill.and_then(|fill| fill.get(&offset)).cloned();
        tile.ok_or_else(|| format!("a stage of {channel} has no tile at {offset}"))
    }

    /// MMAs take the next stage.
    pub(super) fn take(&mut self, channel: u8, by: Op) -> Checked {
        let number = self.at(channel).pass()?;
        self.at(channel).taken.push((by, number));
        Ok(())
    }

    /// Whether no stage is left with MMAs.
    pub(super) fn is_idle(&self) -> bool {
        self.channels.iter().all(|channel| channel.held.is_none() && channel.taken.is_empty())
    }

    /// All MMAs but those issued now are complete.
    pub(super) fn complete_held(&mut self) {
        for held in self.channels.iter_mut().filter_map(|channel| channel.held.as_mut()) {
            held.1 = true;
        }
    }
}

impl Reading {
    /// Goes on to the next stage; gives the one that was next.
    fn pass(&mut self) -> Result<usize, String> {
        if !std::mem::take(&mut self.full) {
            return Err("a stage goes back that was not waited for".to_owned());
        }
        self.next += 1;
        Ok(self.next - 1)
    }

    /// Gives a stage back; stages go back in order.
    fn release(&mut self, number: usize) -> Checked {
        if number != self.released {
            return Err(format!("stage {number} goes back before {}", self.released));
        }
        self.released += 1;
        Ok(())
    }
}

impl Role<'_> {
    /// Runs an instruction of a pipeline; others do nothing that shows in tiles.
    pub(super) fn pipeline(&mut self, inst: &Inst) -> Checked {
        match inst {
            Inst::Arm(channel) => self.fills.arm(*channel),
            Inst::WaitFull(channel) => self.wait_full(*channel),
            Inst::Advance(channel) => {
                // A producer goes on to fill, a consumer leaves a stage to the other one.
                self.fills.channels[usize::from(*channel)].next += 1;
                let reading = self.reader.at(*channel);
                reading.next += 1;
                reading.released += 1;
                Ok(())
            }
            Inst::CountPrefetched { channel, more } => {
                let prefetched = &mut self.fills.channels[usize::from(*channel)].prefetched;
                *prefetched = if *more { *prefetched + 1 } else { prefetched.saturating_sub(1) };
                Ok(())
            }
            Inst::ReleaseNext(channel) | Inst::ReleaseResident(channel) => {
                let number = self.reader.at(*channel).pass()?;
                self.idle()?;
                self.reader.at(*channel).release(number)
            }
            Inst::HoldNext(channel) => {
                let number = self.reader.at(*channel).pass()?;
                match self.reader.at(*channel).held.replace((number, false)) {
                    None => Ok(()),
                    Some(_) => Err("a held stage is lost".to_owned()),
                }
            }
            Inst::ReleaseHeld(channel) => match self.reader.at(*channel).held.take() {
                None => Ok(()),
                Some((_, false)) if !self.in_flight.is_empty() => {
                    Err("a stage goes back while MMAs read it".to_owned())
                }
                Some((number, _)) => self.reader.at(*channel).release(number),
            },
            Inst::Release { channel, of } => {
                if self.in_flight.iter().any(|(_, op)| op == of) {
                    return Err("a stage goes back while MMAs read it".to_owned());
                }
                let reading = self.reader.at(*channel);
                let at = reading.taken.iter().position(|(op, _)| op == of);
                let (_, number) = reading.taken.remove(at.ok_or("nobody took the stage")?);
                reading.release(number)
            }
            _ => Ok(()),
        }
    }

    fn idle(&self) -> Checked {
        match self.in_flight.is_empty() {
            true => Ok(()),
            false => Err("a stage goes back while MMAs may read it".to_owned()),
        }
    }

    fn wait_full(&mut self, channel: u8) -> Checked {
        let filled = self.fills.channels[usize::from(channel)].fills.len();
        let reading = self.reader.at(channel);
        if reading.next >= filled {
            return Err(format!("no stage of {channel} will be full: the producer has ended"));
        }
        if reading.next >= reading.released + reading.stages {
            return Err(format!("no stage of {channel} will be full: none was released"));
        }
        if std::mem::replace(&mut reading.full, true) {
            return Err(format!("a stage of {channel} is waited for twice"));
        }
        Ok(())
    }

    /// Brings a tile, where this is the producer; or says in which stage it is.
    pub(super) fn tma_load(&mut self, op: Op, number: u8) -> Checked {
        let func = &self.lir.func;
        let load = &func.tma.loads[usize::from(number)];
        let result = func.op(op).results[0];
        let is_producer = self.lir.layouts[result.index()].is_none() && !self.is_consumer();
        if is_producer {
            let tile = self.tile_of(op, load.map, load.contiguous)?;
            return self.fills.bring(load.channel, load.offset, tile);
        }
        let at = self.reader.at(load.channel).next;
        let staged = Staged::Stage { channel: load.channel, number: at, offset: load.offset };
        self.staged.insert(result, staged);
        if load.registers {
            self.fetch(result)?;
            self.staged.remove(&result);
        }
        Ok(())
    }

    fn is_consumer(&self) -> bool {
        std::ptr::eq(self.lir, self.launch.lir)
    }
}
