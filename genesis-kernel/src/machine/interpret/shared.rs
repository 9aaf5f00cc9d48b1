//! Shared memory: what each range of bytes holds, and which threads may know it.

use std::collections::VecDeque;
use std::ops::Range;

use super::Checked;
use crate::interp::Elements;
use crate::ir::Op;

/// What bytes hold.
#[derive(Clone, Debug)]
enum What {
    /// One exchange of an op's threads.
    Scratch(Op, u32),
    /// A load's tile.
    Tile(Op, Elements),
}

/// Who may read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Nobody: it is copied in this commit group.
    Copying(u64),
    /// The thread that wrote it.
    Written,
    /// All threads.
    Visible,
}

#[derive(Clone, Debug)]
struct Cell {
    range: Range<u32>,
    what: What,
    state: State,
    /// Whether some thread has read it since the last barrier.
    read: bool,
}

/// Shared memory.
#[derive(Default)]
pub(super) struct Shared {
    cells: Vec<Cell>,
    /// The commit group of copies from here on.
    group: u64,
    /// Closed groups in flight.
    closed: VecDeque<u64>,
}

fn overlap(a: &Range<u32>, b: &Range<u32>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Shared {
    fn write(&mut self, range: Range<u32>, what: What, state: State) -> Checked {
        let is_hit = |cell: &Cell| overlap(&cell.range, &range);
        if let Some(cell) = self.cells.iter().find(|cell| is_hit(cell) && cell.read) {
            return Err(format!("{:?} is overwritten while threads may read it", cell.range));
        }
        self.cells.retain(|cell| !is_hit(cell));
        self.cells.push(Cell { range, what, state, read: false });
        Ok(())
    }

    /// Each thread writes its share of an exchange.
    pub(super) fn store(&mut self, range: Range<u32>, op: Op, number: u32) -> Checked {
        self.write(range, What::Scratch(op, number), State::Written)
    }

    /// The DSMEM stores of an exchange have all come.
    pub(super) fn arrive(&mut self, op: Op, number: u32) {
        for cell in &mut self.cells {
            if matches!(cell.what, What::Scratch(o, n) if (o, n) == (op, number)) {
                cell.state = State::Visible;
            }
        }
    }

    /// A tile is copied, or written by threads where `cp.async` can't.
    pub(super) fn copy(
        &mut self,
        range: Range<u32>,
        load: Op,
        tile: Elements,
        is_async: bool,
    ) -> Checked {
        let state = if is_async { State::Copying(self.group) } else { State::Written };
        self.write(range, What::Tile(load, tile), state)
    }

    /// Closes the commit group.
    pub(super) fn commit(&mut self) {
        self.closed.push_back(self.group);
        self.group += 1;
    }

    /// Waits until at most so many groups are in flight.
    pub(super) fn wait(&mut self, pending: u32) {
        while self.closed.len() > pending as usize {
            let done = self.closed.pop_front();
            for cell in &mut self.cells {
                if done.is_some_and(|group| cell.state == State::Copying(group)) {
                    cell.state = State::Written;
                }
            }
        }
    }

    /// All threads meet.
    pub(super) fn barrier(&mut self) {
        for cell in &mut self.cells {
            cell.read = false;
            if cell.state == State::Written {
                cell.state = State::Visible;
            }
        }
    }

    fn cell(&mut self, range: &Range<u32>) -> Result<&mut Cell, String> {
        let cell = self.cells.iter_mut().find(|cell| cell.range == *range);
        let cell = cell.ok_or_else(|| format!("nobody has written {range:?}"))?;
        if cell.state != State::Visible {
            return Err(format!("{range:?} is read while it is {:?}", cell.state));
        }
        cell.read = true;
        Ok(cell)
    }

    /// The first of an op's exchanges is read.
    pub(super) fn read_scratch(&mut self, range: &Range<u32>, op: Op) -> Checked {
        self.load(range, op, 0)
    }

    /// An exchange is read.
    pub(super) fn load(&mut self, range: &Range<u32>, op: Op, number: u32) -> Checked {
        match self.cell(range)?.what {
            What::Scratch(o, n) if (o, n) == (op, number) => Ok(()),
            ref other => Err(format!("{range:?} holds {other:?}")),
        }
    }

    /// A tile is read, with the load it is of.
    pub(super) fn read_tile(&mut self, range: &Range<u32>) -> Result<(Op, Elements), String> {
        match &self.cell(range)?.what {
            What::Tile(load, tile) => Ok((*load, tile.clone())),
            What::Scratch(..) => Err(format!("{range:?} holds no tile")),
        }
    }
}
