//! Files as they are read everywhere: regular ones, of no more bytes than a caller allows, or mapped.

mod limits;
mod mapped;

pub use limits::ReadLimits;
pub(crate) use limits::{
    MOST_CONFIG, MOST_TOKENIZER, can_inflate, open_regular, read_at_most, read_bytes, read_regular,
    read_regular_text, read_text_at_most, shape_bytes,
};
pub use mapped::Mapped;
