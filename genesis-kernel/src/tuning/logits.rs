//! How many rows of logits are in memory at a time.
//!
//! A loss of a large vocabulary is computed in chunks of rows, whose logits are overwritten by the next chunk's. Each chunk
//! reads the weight twice and adds to its gradient, so that few chunks of many rows are right, as far as memory goes:
//!
//! ```text
//! 8192 x 151,936 logits of bf16, 192 MiB      13 chunks of 640 rows, 194 MB of logits
//! ```

use super::Chip;

/// Bytes of logits on a GPU: with gradients of 896 x 151,936 weights in bf16, less than half a gigabyte in all.
const GPU_BYTES: usize = 192 << 20;
/// On a processor, whose products need fewer rows.
const CPU_BYTES: usize = 32 << 20;
/// Rows of a tile of a product.
const TILE_ROWS: usize = 128;

/// Rows of a chunk of `m` rows of `n` logits of this many bytes: chunks have about as many rows each, in whole tiles.
pub fn logit_rows(chip: &Chip, m: usize, n: usize, bytes: usize) -> usize {
    let budget = if chip.is_cpu() { CPU_BYTES } else { GPU_BYTES };
    let most = (budget / n.saturating_mul(bytes).max(1)).max(1);
    let most = if most > TILE_ROWS { most / TILE_ROWS * TILE_ROWS } else { most };
    if m <= most {
        return m.max(1);
    }
    m.div_ceil(m.div_ceil(most)).next_multiple_of(TILE_ROWS).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    #[test]
    fn chunks_are_of_whole_tiles_and_about_as_long() {
        let gpu = &Chip::of_target(&Target::sm_90a());
        assert_eq!(logit_rows(gpu, 8192, 151_936, 2), 640);
        assert_eq!(logit_rows(gpu, 8192, 151_936, 4), 256);
        assert_eq!(logit_rows(gpu, 600, 151_936, 2), 600);
        assert_eq!(logit_rows(gpu, 900, 151_936, 2), 512);
        assert_eq!(logit_rows(gpu, 8192, 1000, 2), 8192);
        assert_eq!(logit_rows(gpu, 0, 1000, 2), 1);
        // Of rows so long that the budget holds less than a tile, as many as it holds.
        assert_eq!(logit_rows(&Chip::Cpu, 8192, 151_936, 4), 55);
        assert_eq!(logit_rows(&Chip::Cpu, 8, 1 << 40, 4), 1);
    }
}
