//! The launches of paged attention.
//!
//! What is chosen here, how many rows a tile has, how many programs share the keys of one and which kernel
//! computes a sequence, has no influence on the bits.

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::{Arg, Device};
use genesis_kernel::tuning::attention::{
    FEW_ROWS, GATHERED_KEYS, JOINED_HEADS, PagedTile, blocks_of_program, may_be_kept, prefill_tile,
};
use kernels::paged_attention as device;

use crate::error::Result;
use crate::launch;
use crate::launch::config::chip;
use crate::tensor::Tensor;

/// More than any sequence is long; kernels count keys in 32 bits.
pub(super) const MAX_KEYS: usize = 1 << 30;

/// The op with its operands checked.
pub(super) struct Paged {
    pub(super) starts: Tensor,
    pub(super) lengths: Tensor,
    pub(super) table: Tensor,
    /// New tokens and keys of a sequence.
    pub(super) most: [usize; 2],
    pub(super) scale: f64,
    pub(super) window: usize,
    pub(super) cap: Option<f64>,
    pub(super) sinks: Option<Tensor>,
}

/// The tensors of a call.
#[derive(Clone, Copy)]
pub(super) struct Call<'t> {
    pub(super) q: &'t Tensor,
    pub(super) keys: &'t Tensor,
    pub(super) values: &'t Tensor,
    pub(super) y: &'t Tensor,
}

impl Call<'_> {
    /// Heads of keys.
    pub(super) fn groups(&self) -> usize {
        self.keys.shape()[2]
    }

    /// Heads of queries that share one of keys.
    pub(super) fn each(&self) -> usize {
        self.q.shape()[1] / self.groups()
    }

    pub(super) fn page(&self) -> usize {
        self.keys.shape()[1]
    }

    /// Elements of a key of all heads.
    pub(super) fn row(&self) -> usize {
        self.groups() * self.q.shape()[2]
    }

    /// Channels as tiles have them.
    pub(super) fn width(&self) -> usize {
        self.q.shape()[2].next_power_of_two().max(16)
    }

    /// Of queries and results, of the cache, and of sums.
    pub(super) fn dtypes(&self) -> [DType; 3] {
        [self.q.dtype(), self.keys.dtype(), launch::accumulate_dtype(self.q.dtype())]
    }
}

/// How the work is shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Share {
    /// Rows of a tile.
    pub(super) rows: usize,
    /// Keys of a block.
    pub(super) keys: usize,
    pub(super) warps: u32,
    /// Whether each sequence has one tile at most.
    is_one: bool,
    /// Tiles of rows, those behind the last sequence included.
    tiles: usize,
    /// Blocks of keys that a program walks, and programs that share a tile's keys; all blocks where that is
    /// 1.
    span: usize,
    pub(super) programs: usize,
}

fn paged_tile(q: &Tensor, rows: usize) -> PagedTile {
    PagedTile::of(&chip(q.device()), q.dtype().bytes(), q.shape()[2], rows)
}

pub(super) fn whole(n: usize) -> Arg {
    Arg::Scalar(Scalar::int(DType::I64, n as i64))
}

pub(super) fn consts(sizes: &[usize], flags: &[bool]) -> Vec<i64> {
    let flags = flags.iter().map(|&flag| i64::from(flag));
    sizes.iter().map(|&n| n as i64).chain(flags).collect()
}

impl Paged {
    /// Whether pages are gathered before tiles of many tokens are computed: a program of these reads all
    /// keys again.
    fn gathers(&self, call: &Call<'_>) -> bool {
        let (q, d) = (call.q, call.q.shape()[2]);
        let bytes = [self.lengths.numel(), self.most(call) + FEW_ROWS * 2, call.groups(), d, 4];
        q.device() != Device::Cpu
            && q.dtype().bytes() == 2
            && d <= 128
            && d.is_multiple_of(8)
            && self.most[0] * call.each() > FEW_ROWS
            && may_be_kept(&bytes)
    }

    /// The most keys of a sequence.
    pub(super) fn most(&self, call: &Call<'_>) -> usize {
        let columns = self.table.shape()[1];
        self.most[1].min(columns.saturating_mul(call.page())).min(MAX_KEYS)
    }

    /// Computes the result.
    pub(super) fn attend(&self, call: &Call<'_>) -> Result<()> {
        if !self.gathers(call) {
            return self.walk(call, None);
        }
        let (tokens, sequences) = (call.q.shape()[0], self.lengths.numel());
        // Sequences of fewer tokens have rows of their own kernel, and so have rows of none.
        let is_mixed = sequences > 1 && tokens != sequences * self.most[0];
        let limit = if is_mixed { FEW_ROWS } else { 0 };
        self.prefill(call, limit)?;
        if is_mixed { self.walk(call, Some(limit)) } else { Ok(()) }
    }

    pub(super) fn share(&self, call: &Call<'_>, limit: Option<usize>) -> Share {
        let (q, groups) = (call.q, call.groups());
        let (tokens, heads) = (q.shape()[0], q.shape()[1]);
        let sequences = self.lengths.numel();
        let [queries, keys] = self.most;
        let of_sequence = limit.unwrap_or(queries.saturating_mul(call.each()));
        let PagedTile { rows, keys: block, warps } = paged_tile(q, of_sequence);
        let is_one = of_sequence <= rows;
        let tiles = tokens * call.each() / rows + sequences + 1;
        let busy = groups * if is_one { sequences } else { tiles };
        let blocks = keys.div_ceil(block).max(1);
        let kept = [tokens, heads, blocks, call.width() + 2, 4];
        let span = blocks_of_program(&chip(q.device()), blocks, tiles, busy, &kept);
        Share { rows, keys: block, warps, is_one, tiles, span, programs: blocks.div_ceil(span) }
    }

    /// Scores of heads, or anything where there are none.
    pub(super) fn sinks_or_any(&self, call: &Call<'_>) -> Result<Tensor> {
        match &self.sinks {
            Some(sinks) => Ok(sinks.clone()),
            None => call.q.select(0, 0)?.select(0, 0),
        }
    }

    pub(super) fn scales(&self, call: &Call<'_>) -> [Arg; 2] {
        let wide = call.dtypes()[2];
        [launch::number(wide, self.scale), launch::number(wide, self.cap.unwrap_or(1.0))]
    }

    /// Programs that follow the table of pages, over the sequences of no more than so many rows.
    fn walk(&self, call: &Call<'_>, limit: Option<usize>) -> Result<()> {
        let &Call { q, keys, values, y } = call;
        let share = self.share(call, limit);
        let (width, each) = (call.width(), call.each());
        let is_split = share.programs > 1;
        let blocks = if is_split { self.most[1].div_ceil(share.keys) } else { 0 };
        let kept = |last| {
            let shape = [q.shape()[0], q.shape()[1], blocks, last];
            Tensor::uninitialized(&shape, (call.dtypes()[2], q.device()))
        };
        let (sums, parts, sinks) = (kept(2)?, kept(width)?, self.sinks_or_any(call)?);
        let [starts, lengths, table] =
            [&self.starts, &self.lengths, &self.table].map(|t| launch::pointer(t, false));
        let flags = [self.cap.is_some(), self.sinks.is_some(), is_split, share.is_one];
        let tensors = [
            (q, false),
            (keys, false),
            (values, false),
            (&sinks, false),
            (y, true),
            (&sums, true),
            (&parts, true),
        ];
        let limit = limit.unwrap_or(i64::MAX as usize);
        let [sequences, columns, most, window, span] =
            [self.lengths.numel(), self.table.shape()[1], self.most(call), self.window, share.span]
                .map(whole);
        let counts = [starts, lengths, table, sequences, columns, most, window, span, whole(limit)];
        let numbers = [&counts[..], &self.scales(call)].concat();
        launch::warped_views(
            &device::paged_attention::KERNEL,
            match is_split {
                true => Grid::xyz(call.groups(), share.programs, share.tiles),
                false => Grid::x(share.tiles * call.groups()),
            },
            &call.dtypes(),
            &consts(&[share.rows, share.keys, width, each, call.page(), call.row()], &flags),
            Some(share.warps),
            &tensors,
            &numbers,
        )?;
        if is_split {
            let tensors = [(&sums, false), (&parts, false), (&sinks, false), (y, true)];
            launch::warped_views(
                &device::paged_attention_join::KERNEL,
                Grid::xy(q.shape()[0], q.shape()[1].div_ceil(JOINED_HEADS)),
                &[call.dtypes()[0], call.dtypes()[2]],
                &consts(&[JOINED_HEADS, width, share.keys], &[self.sinks.is_some()]),
                Some(4),
                &tensors,
                &[starts, lengths, sequences, most, window, whole(limit / each)],
            )?;
        }
        Ok(())
    }

    /// Tiles of many tokens, over the sequences of more than so many rows, whose pages are gathered first.
    fn prefill(&self, call: &Call<'_>, limit: usize) -> Result<()> {
        let &Call { q, keys, values, y } = call;
        let (tokens, heads) = (q.shape()[0], q.shape()[1]);
        let PagedTile { keys: block, .. } = paged_tile(q, FEW_ROWS);
        let (width, each, sequences) = (call.width(), call.each(), self.lengths.numel());
        let rows = self.most(call).next_multiple_of(block);
        let row = || {
            let shape = [sequences, rows, call.groups(), q.shape()[2]];
            Tensor::uninitialized(&shape, (q.dtype(), q.device()))
        };
        let (own_keys, own_values, sinks) = (row()?, row()?, self.sinks_or_any(call)?);
        let [starts, lengths, table] =
            [&self.starts, &self.lengths, &self.table].map(|t| launch::pointer(t, false));
        let [of_sequences, columns, most, window, limit] =
            [sequences, self.table.shape()[1], self.most(call), self.window, limit].map(whole);
        let tensors = [(keys, false), (values, false), (&own_keys, true), (&own_values, true)];
        let numbers =
            [starts, lengths, table, of_sequences, columns, whole(tokens), most, window, limit];
        launch::warped_views(
            &device::paged_gather::KERNEL,
            Grid::xyz(rows.div_ceil(GATHERED_KEYS), call.groups(), sequences),
            &call.dtypes()[..2],
            &consts(&[GATHERED_KEYS, block, width, each, call.page(), call.row()], &[]),
            Some(4),
            &tensors,
            &numbers,
        )?;
        let tiles = |of: usize| tokens / of + sequences + 1;
        let (of, warps) = prefill_tile(&chip(q.device()), |rows| tiles(rows) * heads);
        let bits = sequences.ilog2() as usize;
        let [top_bit, bits] = [1 << bits, bits + 1].map(whole);
        let tensors =
            [(q, false), (&own_keys, false), (&own_values, false), (&sinks, false), (y, true)];
        let counts = [starts, lengths, of_sequences, top_bit, bits, most, window, limit];
        launch::warped_views(
            &device::paged_prefill::KERNEL,
            Grid::xy(heads, tiles(of)),
            &[call.dtypes()[0], call.dtypes()[2]],
            &consts(&[of, block, width, each], &[self.cap.is_some(), self.sinks.is_some()]),
            Some(warps),
            &tensors,
            &[&counts[..], &self.scales(call)].concat(),
        )
    }
}
