//! The alphabet of byte-level BPE: each byte is a printable character.
//!
//! GPT-2's vocabulary is text, so bytes that don't print were given characters from U+0100 on, in order; the
//! others stand for themselves. A space is `Ġ` (U+0120), a newline `Ċ` (U+010A).
//!
//! ```text
//! byte   0x00 .. 0x20   0x21 .. 0x7E   0x7F .. 0xA0   0xA1 .. 0xAC   0xAD   0xAE .. 0xFF
//! char   U+100..U+120   itself         U+121..U+142   itself         U+143  itself
//! ```

/// The byte that a character of the alphabet stands for.
fn byte(c: char) -> Option<u8> {
    let code = c as u32;
    let byte = match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => code,
        0x100..=0x120 => code - 0x100,
        0x121..=0x142 => code - 0x121 + 0x7F,
        0x143 => 0xAD,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

/// Appends the bytes of a token: those its characters stand for, or its UTF-8 where one stands for none.
pub(super) fn push_bytes(token: &str, out: &mut Vec<u8>) {
    let start = out.len();
    for c in token.chars() {
        let Some(byte) = byte(c) else {
            out.truncate(start);
            out.extend_from_slice(token.as_bytes());
            return;
        };
        out.push(byte);
    }
}

/// The byte that a token of SentencePiece's byte fallback is, `<0x0A>`.
///
/// # Source
/// The rule of `tokenizers`' `ByteFallback`, which takes what `from_str_radix` takes, `+A` too.
pub(super) fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_is_that_of_the_library() {
        let library = tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet();
        let ours = (0..0x200).filter_map(char::from_u32).filter(|&c| byte(c).is_some());
        let ours: Vec<char> = ours.collect();
        assert_eq!(ours.len(), 256);
        assert!(ours.iter().all(|c| library.contains(c)));
        let mut bytes: Vec<u8> = ours.iter().filter_map(|&c| byte(c)).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn a_token_outside_of_the_alphabet_is_its_own_bytes() {
        let mut out = Vec::new();
        push_bytes("Ġhi", &mut out);
        push_bytes("a b", &mut out);
        assert_eq!(out, b" hia b");
    }

    #[test]
    fn fallback_tokens_have_two_digits() {
        assert_eq!(fallback_byte("<0xE5>"), Some(0xE5));
        for token in ["<0xE>", "<0xE55>", "<0xGG>", "0xE5", "<0xé>"] {
            assert_eq!(fallback_byte(token), None, "{token}");
        }
    }
}
