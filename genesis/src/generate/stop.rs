//! Text as it streams, and the stop strings in it.
//!
//! A stop string may begin in one token and end in another. Text that may be the beginning of one is held
//! back until it is clear; once a stop string is complete the text ends before it, whatever the token still
//! brought. Each stop string is matched byte by byte with its failure function (Knuth, Morris and Pratt), so
//! that time is linear in the text whatever the strings are.
//!
//! ```text
//! stop "###"     tokens   "a#"   "#b"   "##"   "#c"
//!                shown    "a"    "##b"  ""     ""  and ends
//! ```

use crate::error::Result;

/// Makes text of tokens; a tokenizer.
pub trait Detokenizer: Send + Sync {
    /// The text of a sequence that begins.
    fn stream(&self) -> Box<dyn TokenText + Send>;
}

/// The text of one sequence, token by token.
pub trait TokenText {
    /// The text that is certain after one more token; never half a character.
    ///
    /// # Errors
    /// If there is no such token.
    fn push(&mut self, token: u32) -> Result<String>;

    /// What is left at the end.
    fn finish(&mut self) -> String;
}

/// The shown text of a sequence.
pub(super) struct ShownText {
    stream: Box<dyn TokenText + Send>,
    stops: Vec<StopString>,
    /// Text that may begin a stop string.
    held: String,
}

impl ShownText {
    pub(super) fn new(stream: Box<dyn TokenText + Send>, stops: &[String]) -> ShownText {
        let stops = stops.iter().map(|stop| StopString::new(stop)).collect();
        ShownText { stream, stops, held: String::new() }
    }

    /// What is shown of one more token, and whether a stop string is complete.
    pub(super) fn push(&mut self, token: u32) -> Result<(String, bool)> {
        let text = self.stream.push(token)?;
        Ok(self.show(&text))
    }

    /// What is shown at the end of a text that no stop string ended, and whether one did after all.
    pub(super) fn finish(&mut self) -> (String, bool) {
        let text = self.stream.finish();
        let (mut shown, stopped) = self.show(&text);
        if !stopped {
            shown.push_str(&std::mem::take(&mut self.held));
        }
        (shown, stopped)
    }

    fn show(&mut self, text: &str) -> (String, bool) {
        let known = self.held.len();
        self.held.push_str(text);
        for end in known..self.held.len() {
            let byte = self.held.as_bytes()[end];
            // Of strings that end here, the longest begins first.
            let complete = self.stops.iter_mut().filter_map(|stop| stop.push(byte)).max();
            if let Some(length) = complete {
                self.held.truncate(end + 1 - length);
                return (std::mem::take(&mut self.held), true);
            }
        }
        // A stop string's beginning is whole characters wherever the text is, so this is a border.
        let begun = self.stops.iter().map(|stop| stop.matched).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - begun);
        (std::mem::replace(&mut self.held, rest), false)
    }
}

impl std::fmt::Debug for ShownText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShownText").field("held", &self.held).finish_non_exhaustive()
    }
}

/// A stop string, and how much of it the text ends with.
#[derive(Debug)]
struct StopString {
    bytes: Vec<u8>,
    /// For each length of a beginning, the length of the longest shorter one that it ends with.
    failure: Vec<usize>,
    matched: usize,
}

impl StopString {
    fn new(text: &str) -> StopString {
        let bytes = text.as_bytes().to_vec();
        let mut failure = vec![0; bytes.len() + 1];
        let mut length = 0;
        for end in 1..bytes.len() {
            while length > 0 && bytes[end] != bytes[length] {
                length = failure[length];
            }
            length += usize::from(bytes[end] == bytes[length]);
            failure[end + 1] = length;
        }
        StopString { bytes, failure, matched: 0 }
    }

    /// The string's length, when this byte completes it.
    fn push(&mut self, byte: u8) -> Option<usize> {
        while self.matched > 0 && self.bytes[self.matched] != byte {
            self.matched = self.failure[self.matched];
        }
        self.matched += usize::from(self.bytes[self.matched] == byte);
        (self.matched == self.bytes.len()).then_some(self.matched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Token `i` is the text of index `i`.
    struct Words(Vec<&'static str>);

    impl TokenText for Words {
        fn push(&mut self, token: u32) -> Result<String> {
            Ok(self.0[token as usize].to_owned())
        }

        fn finish(&mut self) -> String {
            String::new()
        }
    }

    /// What each token shows, what the end shows, and which token stopped.
    fn check(stops: &[&str], tokens: &[&'static str]) -> (Vec<String>, Option<usize>) {
        let stops: Vec<String> = stops.iter().map(|&stop| stop.to_owned()).collect();
        let mut text = ShownText::new(Box::new(Words(tokens.to_vec())), &stops);
        let mut shown = Vec::new();
        for token in 0..tokens.len() {
            let (part, stopped) = text.push(token as u32).expect("the token is known");
            shown.push(part);
            if stopped {
                return (shown, Some(token));
            }
        }
        shown.push(text.finish().0);
        (shown, None)
    }

    #[test]
    fn text_without_stop_strings_is_shown_at_once() {
        let (shown, stop) = check(&[], &["ab", "", "ü"]);
        assert_eq!((shown.join("|"), stop), ("ab||ü|".to_owned(), None));
    }

    #[test]
    fn a_stop_string_is_found_across_tokens_and_not_shown() {
        let (shown, stop) = check(&["###"], &["a#", "#b", "##", "#c"]);
        assert_eq!((shown.join("|"), stop), ("a|##b||".to_owned(), Some(3)));
    }

    #[test]
    fn what_was_held_back_in_vain_is_shown_at_the_end() {
        let (shown, stop) = check(&["###"], &["a", "##"]);
        assert_eq!((shown.join("|"), stop), ("a||##".to_owned(), None));
    }

    #[test]
    fn overlapping_beginnings_are_followed() {
        let (shown, stop) = check(&["aab"], &["a", "a", "a", "b"]);
        assert_eq!((shown.join("|"), stop), ("||a|".to_owned(), Some(3)));
    }

    #[test]
    fn the_string_that_is_complete_first_ends_the_text() {
        let (shown, _) = check(&["bcd", "c"], &["abcd"]);
        assert_eq!(shown, ["ab"]);
        let (shown, _) = check(&["c", "abc"], &["xabc"]);
        assert_eq!(shown, ["x"]);
    }

    #[test]
    fn characters_of_several_bytes_stay_whole() {
        // "é" and "è" begin with the same byte.
        let (shown, stop) = check(&["é!"], &["è", "é", "é", "!"]);
        assert_eq!((shown.join("|"), stop), ("è||é|".to_owned(), Some(3)));
    }
}
