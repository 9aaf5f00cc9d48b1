//! Reads the tables of the copy engine, which stand before the ops of a kernel.

use super::super::tma::{Channel, Multicast, TensorMap, TmaLoad, TmaStore};
use super::{Parser, Result, TokenKind};

impl Parser {
    /// Reads `tma ..` lines.
    pub(super) fn tables(&mut self) -> Result<()> {
        while self.take_word("tma") {
            let position = self.position();
            let word = self.word("a table of the copy engine")?;
            match word.as_str() {
                "map" => {
                    let map = self.tensor_map()?;
                    self.func.tma.maps.push(map);
                }
                "channel" => {
                    let stages = self.field("stages")?;
                    let slot_bytes = self.field("bytes")?;
                    self.func.tma.channels.push(Channel { stages, slot_bytes });
                }
                "load" => {
                    let (map, channel) = (self.field("map")?, self.field("channel")?);
                    let (offset, bytes) = (self.field("offset")?, self.field("bytes")?);
                    let contiguous = self.field("contiguous")?;
                    let registers = self.take_word("registers");
                    let multicast = match () {
                        () if self.take_word("parts") => {
                            Multicast::Partition(self.number("blocks")?)
                        }
                        () if self.take_word("multicast") => Multicast::All(self.number("blocks")?),
                        () => Multicast::None,
                    };
                    let constant = self.take_word("constant");
                    self.func.tma.loads.push(TmaLoad {
                        map,
                        channel,
                        offset,
                        bytes,
                        contiguous,
                        registers,
                        multicast,
                        constant,
                    });
                }
                "store" => {
                    let map = self.field("map")?;
                    let contiguous = u8::from(!self.take_word("transposed"));
                    self.func.tma.stores.push(TmaStore { map, contiguous });
                }
                _ => return self.fail(position, format!("unknown table `{word}`")),
            }
        }
        Ok(())
    }

    fn tensor_map(&mut self) -> Result<TensorMap> {
        let param = self.field("param")?;
        let dtype = self.dtype()?;
        self.expect_word("axes")?;
        let axes = self.numbers("an axis")?;
        self.expect_word("block")?;
        let block = self.numbers("an extent")?;
        let swizzle = self.field("swizzle")?;
        let tf32 = self.take_word("tf32");
        Ok(TensorMap { param, dtype, axes, block, swizzle, tf32 })
    }

    fn field<T: std::str::FromStr>(&mut self, name: &str) -> Result<T> {
        self.expect_word(name)?;
        self.number("a number")
    }

    /// A list of numbers in brackets.
    pub(super) fn numbers<T: std::str::FromStr>(&mut self, what: &str) -> Result<Vec<T>> {
        self.expect('[')?;
        let mut numbers = Vec::new();
        while !self.take(']') {
            numbers.push(self.number(what)?);
            if *self.peek() != TokenKind::Punct(']') {
                self.expect(',')?;
            }
        }
        Ok(numbers)
    }
}
