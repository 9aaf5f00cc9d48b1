//! The threads of a warp: registers, and where each one is.

use std::mem::take;

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
    pub(super) next: [u32; LANES],
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

/// The lanes of a mask, the lowest first.
pub(super) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let rest = |&rest: &u32| Some(rest & rest.wrapping_sub(1));
    let rests = std::iter::successors(Some(mask), rest).take_while(|&rest| rest != 0);
    rests.map(|rest| rest.trailing_zeros() as usize)
}

/// A value of each lane.
pub(super) type Values = [u64; LANES];

impl Warp {
    pub(super) fn new(program: &Program, first: usize, rank: u32, in_block: u32) -> Warp {
        let registers = vec![0; program.n_regs * LANES];
        let local = vec![0; program.local_bytes * LANES];
        Warp { registers, local, ..Warp::empty(first, rank, in_block) }
    }

    /// At the first instruction, without registers.
    fn empty(first: usize, rank: u32, in_block: u32) -> Warp {
        Warp {
            registers: Vec::new(),
            local: Vec::new(),
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

    /// As it begins, in the allocations of a warp that has ended.
    pub(super) fn renew(&mut self) {
        self.registers.fill(0);
        self.local.fill(0);
        let (first, rank, in_block) = (self.first, self.rank, self.in_block);
        let (registers, local) = (take(&mut self.registers), take(&mut self.local));
        *self = Warp { registers, local, ..Warp::empty(first, rank, in_block) };
    }

    /// An operand in a lane.
    pub(super) fn value(&self, arg: Arg, lane: usize) -> u64 {
        match arg {
            Arg::Reg(reg) => self.registers[reg as usize * LANES + lane],
            Arg::Imm(bits) => bits,
            Arg::Shared(offset) => (u64::from(self.rank) << RANK_SHIFT) + offset,
        }
    }

    /// An operand in every lane.
    pub(super) fn values(&self, arg: Arg) -> Values {
        match arg {
            Arg::Reg(reg) => {
                let start = reg as usize * LANES;
                std::array::from_fn(|lane| self.registers[start..start + LANES][lane])
            }
            other => [self.value(other, 0); LANES],
        }
    }

    /// Sets a register in the lanes of a mask.
    pub(super) fn set_all(&mut self, mask: u32, reg: Reg, values: &Values) {
        let start = reg as usize * LANES;
        let to = &mut self.registers[start..start + LANES];
        if mask == u32::MAX {
            to.copy_from_slice(values);
        } else {
            lanes(mask).for_each(|lane| to[lane] = values[lane]);
        }
    }

    pub(super) fn set(&mut self, reg: Reg, lane: usize, bits: u64) {
        self.registers[reg as usize * LANES + lane] = bits;
    }

    /// The next instruction that can run, and the lanes that are at it. Lanes that gathered run when
    /// all that are alive have.
    pub(super) fn ready(&mut self) -> Option<(u32, u32)> {
        let free = self.alive & !self.blocked & !self.gathered;
        if free == 0 {
            let all = self.gathered != 0 && self.gathered == self.alive;
            if !all {
                return None;
            }
            self.gathered = 0;
            return self.ready();
        }
        // Mostly all lanes are at one place; vectors of the processor tell.
        let first = self.next[free.trailing_zeros() as usize];
        if self.next.iter().fold(0, |apart, next| apart | (next ^ first)) == 0 {
            return Some((first, free));
        }
        let at = lanes(free).map(|lane| self.next[lane]).min()?;
        let mask =
            lanes(free).filter(|&lane| self.next[lane] == at).fold(0, |m, lane| m | 1 << lane);
        Some((at, mask))
    }

    pub(super) fn advance(&mut self, mask: u32) {
        if mask == u32::MAX {
            self.next.iter_mut().for_each(|next| *next += 1);
        } else {
            lanes(mask).for_each(|lane| self.next[lane] += 1);
        }
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
