//! The threads of a warp: registers, and where each one is.

use super::program::{Arg, Program, RANK_SHIFT, Reg, Vote};

/// Lanes of a warp.
pub(super) const LANES: usize = 32;

/// A warp. Its lanes run together where they are at one instruction, the one that is furthest behind
/// first.
#[derive(Debug)]
pub(super) struct Warp {
    /// By register, then by lane.
    registers: Vec<u64>,
    /// What each lane keeps to itself, one after the other.
    pub(super) local: Vec<u8>,
    /// The next instruction of each lane.
    pub(super) next: [usize; LANES],
    /// Lanes that have not ended.
    pub(super) alive: u32,
    /// Lanes that wait for the rest of the warp.
    pub(super) gathered: u32,
    /// Lanes that wait for other warps.
    pub(super) blocked: u32,
    /// The number of its first thread among those of the cluster.
    pub(super) first: usize,
    /// The number of its block in the cluster.
    pub(super) rank: u32,
    /// The number of its first thread in the block.
    pub(super) in_block: u32,
    /// Groups of products that it has committed.
    pub(super) committed: u32,
    /// Times that the cluster's barrier had opened when the warp came to it.
    pub(super) arrived_at: Option<u32>,
}

/// The lanes of a mask.
pub(super) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| mask >> lane & 1 == 1)
}

impl Warp {
    pub(super) fn new(program: &Program, first: usize, rank: u32, in_block: u32) -> Warp {
        Warp {
            registers: vec![0; program.n_regs * LANES],
            local: vec![0; program.local_bytes * LANES],
            next: [0; LANES],
            alive: u32::MAX,
            gathered: 0,
            blocked: 0,
            first,
            rank,
            in_block,
            committed: 0,
            arrived_at: None,
        }
    }

    /// An operand in a lane.
    pub(super) fn value(&self, arg: Arg, lane: usize) -> u64 {
        match arg {
            Arg::Reg(reg) => self.registers[reg as usize * LANES + lane],
            Arg::Imm(bits) => bits,
            Arg::Shared(offset) => (u64::from(self.rank) << RANK_SHIFT) + offset,
        }
    }

    pub(super) fn set(&mut self, reg: Reg, lane: usize, bits: u64) {
        self.registers[reg as usize * LANES + lane] = bits;
    }

    /// The next instruction that can run, and the lanes that are at it. Lanes that gathered run when
    /// all that are alive have.
    pub(super) fn ready(&mut self) -> Option<(usize, u32)> {
        let free = self.alive & !self.blocked & !self.gathered;
        if free == 0 {
            let all = self.gathered != 0 && self.gathered == self.alive;
            if !all {
                return None;
            }
            self.gathered = 0;
            return self.ready();
        }
        let at = lanes(free).map(|lane| self.next[lane]).min()?;
        let mask =
            lanes(free).filter(|&lane| self.next[lane] == at).fold(0, |m, lane| m | 1 << lane);
        Some((at, mask))
    }

    pub(super) fn advance(&mut self, mask: u32) {
        lanes(mask).for_each(|lane| self.next[lane] += 1);
    }

    /// Puts parts of equal width into a register, the lowest first.
    pub(super) fn pack(&mut self, mask: u32, to: Reg, parts: &[Arg], bits: u32) {
        let each = bits / parts.len().max(1) as u32;
        for lane in lanes(mask) {
            let part = |(i, &part): (u32, &Arg)| {
                (self.value(part, lane) & u64::MAX >> (64 - each)) << (i * each)
            };
            let whole = (0..).zip(parts).map(part).fold(0, |all, part| all | part);
            self.set(to, lane, whole);
        }
    }

    /// The opposite of [`Warp::pack`].
    pub(super) fn unpack(&mut self, mask: u32, to: &[Option<Reg>], from: Arg, bits: u32) {
        let each = bits / to.len().max(1) as u32;
        for lane in lanes(mask) {
            let whole = self.value(from, lane);
            for (i, &to) in (0..).zip(to) {
                let part = whole >> (i * each) & u64::MAX >> (64 - each);
                to.into_iter().for_each(|to| self.set(to, lane, part));
            }
        }
    }

    /// Tells every lane in which of them a predicate is true.
    pub(super) fn vote(&mut self, mask: u32, how: Vote, to: Reg, (from, negated): (Arg, bool)) {
        let is_true = |lane: &usize| (self.value(from, *lane) & 1 == 1) != negated;
        let ballot = lanes(mask).filter(is_true).fold(0, |all, lane| all | 1u32 << lane);
        let value = match how {
            Vote::All => u64::from(ballot == mask),
            Vote::Any => u64::from(ballot != 0),
            Vote::Ballot => u64::from(ballot),
        };
        lanes(mask).for_each(|lane| self.set(to, lane, value));
    }
}
