//! What the copy engine of an sm_90 GPU (TMA) moves in a function: tables that ops name entries of by
//! number.
//!
//! The pass `tma` turns loads of views into [`OpKind::TmaLoad`](super::OpKind::TmaLoad) and stores
//! into [`OpKind::TmaStore`](super::OpKind::TmaStore) where the copy engine can do them: the value of
//! such a load is in shared memory, and in registers only where its entry says so. Loads that feed one `dot` share a
//! *channel*: a ring of slots in shared memory that one thread of a producer warp fills and the
//! consumer warps, which run everything else, empty. A tile that several products of a loop read is copied
//! once: their loads have the same place in the same channel.
//!
//! ```text
//! slot 0     slot 1     slot 2        one slot of a channel, filled by one step of the loop:
//! [A | B]    [A | B]    [A | B]       each load at its offset, panel after panel
//! ```
//!
//! A *panel* is `swizzle` bytes wide along the contiguous axis and as long as the tile along the
//! other: row `r`, byte `c` of it is at `r * swizzle + c`, with bits 4.. of the address XORed by bits
//! 7.. (the hardware's swizzle). A tile wider than a panel is several panels, one copy each.
//!
//! Where a program is a cluster, its blocks have the same channels, each in its own shared memory. Of the
//! left operand of a `dot` each block loads its own rows. The right one is wanted by all: each loads
//! its share of it and sends that to all (*multicast*), so that memory is read once:
//!
//! ```text
//! block 0   slot [A0 | B0 B1]     loads A0, and B0 for both
//! block 1   slot [A1 | B0 B1]     loads A1, and B1 for both
//! ```

use super::types::DType;

/// How the copy engine reads or writes a parameter that is a view.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TensorMap {
    /// The parameter, by its number in the kernel as the user wrote it.
    pub param: u32,
    /// Its dtype.
    pub dtype: DType,
    /// The view's axis behind each axis of the map; the first is the contiguous one.
    pub axes: Vec<u8>,
    /// Extents of one copy along the axes of the map, in elements.
    pub block: Vec<u32>,
    /// Width of a panel in bytes, which is the swizzle's span too: 32, 64 or 128; 0 without a swizzle.
    pub swizzle: u32,
    /// Whether f32 is rounded to tf32 on its way, to nearest even: tensor cores cut.
    pub tf32: bool,
}

/// A load by the copy engine.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TmaLoad {
    /// The number of its map.
    pub map: u8,
    /// The number of its channel.
    pub channel: u8,
    /// Where the tile begins in a slot of the channel, in bytes; a multiple of 1024.
    pub offset: u32,
    /// Bytes of the tile, or of a block's part of it.
    pub bytes: u32,
    /// The axis of the tile that lies contiguous in memory.
    pub contiguous: u8,
    /// Whether threads read the tile into registers, each its part; else only a `dot` reads it, in shared
    /// memory.
    pub registers: bool,
    /// How it goes to the blocks of a cluster.
    pub multicast: Multicast,
    /// Whether no kernel writes its memory that this one may overlap.
    pub constant: bool,
}

/// How a tile goes to the blocks of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Multicast {
    /// No multicast: the block that loads it gets all of it.
    #[default]
    None,
    /// No multicast: each of this many blocks loads its part along axis 0.
    Partition(u8),
    /// Each of this many blocks loads a share of every panel's lines and multicasts it to all.
    All(u8),
}

impl Multicast {
    /// Parts along axis 0 of a tile, of which each block has one.
    pub fn parts(self) -> u32 {
        match self {
            Multicast::Partition(blocks) => u32::from(blocks),
            Multicast::None | Multicast::All(_) => 1,
        }
    }

    /// Shares of a panel, each of which one block brings to all.
    pub fn shares(self) -> u32 {
        match self {
            Multicast::All(blocks) => u32::from(blocks),
            Multicast::None | Multicast::Partition(_) => 1,
        }
    }
}

/// A store by the copy engine.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TmaStore {
    /// The number of its map.
    pub map: u8,
    /// The axis of the tile that lies contiguous in memory.
    pub contiguous: u8,
}

/// A TMA pipeline: a ring of stages in shared memory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Channel {
    /// Stages of the pipeline; 0 while nobody has chosen.
    pub stages: u32,
    /// Bytes of a slot.
    pub slot_bytes: u32,
}

/// The tables of a function.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tma {
    /// Tensor maps, in the order in which a launch passes them after the kernel's own parameters.
    pub maps: Vec<TensorMap>,
    /// What `tma_load` ops do.
    pub loads: Vec<TmaLoad>,
    /// What `tma_store` ops do.
    pub stores: Vec<TmaStore>,
    /// Channels.
    pub channels: Vec<Channel>,
}

impl Tma {
    /// Whether the function uses the copy engine for nothing.
    pub fn is_empty(&self) -> bool {
        self.loads.is_empty() && self.stores.is_empty()
    }

    /// The map of a load.
    pub fn map_of_load(&self, load: u8) -> Option<&TensorMap> {
        self.maps.get(usize::from(self.loads.get(usize::from(load))?.map))
    }

    /// Whether another load brings what a load of this number stands for, for another product: nothing is
    /// copied again.
    pub fn is_again(&self, load: u8) -> bool {
        let (before, rest) = self.loads.split_at(usize::from(load).min(self.loads.len()));
        let same = |own: &TmaLoad, other: &TmaLoad| {
            (own.channel, own.offset) == (other.channel, other.offset)
        };
        rest.first().is_some_and(|own| before.iter().any(|other| same(own, other)))
    }

    /// Bytes that copies bring into a slot of a channel.
    pub fn copied_bytes(&self, channel: u8) -> u32 {
        let copies = (0..).zip(&self.loads).filter(|&(n, _)| !self.is_again(n));
        copies.filter(|(_, load)| load.channel == channel).map(|(_, load)| load.bytes).sum()
    }

    /// Bytes of shared memory that the slots of all channels take.
    pub fn slot_bytes(&self) -> u32 {
        self.channels.iter().map(|channel| channel.stages * channel.slot_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_again_is_copied_once() {
        let load = |channel, offset, bytes| TmaLoad {
            map: 0,
            channel,
            offset,
            bytes,
            contiguous: 1,
            registers: false,
            multicast: Multicast::None,
            constant: false,
        };
        let loads = vec![load(0, 0, 64), load(1, 0, 64), load(0, 0, 64), load(0, 64, 16)];
        let tma = Tma { loads, ..Tma::default() };
        assert_eq!([0, 1, 2, 3, 4].map(|n| tma.is_again(n)), [false, false, true, false, false]);
        assert_eq!([0, 1].map(|channel| tma.copied_bytes(channel)), [80, 64]);
    }
}
