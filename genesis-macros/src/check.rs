//! What must hold before a function is parsed at all: `syn` recurses, so source that nests without
//! end is refused here, by a loop over its tokens.
//!
//! Each token that puts something one level deeper takes some of the stack that a parser without
//! optimization has: 5 KB for an operator in a chain, 26 KB for a bracket, 62 KB for a `<` of a type.
//! What is open at one time may take a budget that leaves room on a stack of 2 MB. `hostile` tries
//! what can be repeated.

use proc_macro2::{Delimiter, Group, Spacing, Span, TokenStream, TokenTree};

use crate::messages;

/// KB of stack that a function may need to be parsed.
const BUDGET: usize = 1600;

// KB of stack, as measured with syn at `opt-level = 0`.
const OPERATOR: usize = 5;
const ASSIGNMENT: usize = 10;
const WORD: usize = 18;
const ARROW: usize = 20;
const BRACKET: usize = 26;
const BRACKET_OF_TYPE: usize = 40;
const REFERENCE_OF_TYPE: usize = 40;
const ANGLE: usize = 62;

/// The words before or after which an expression or a type goes on.
const WORDS: [&str; 22] = [
    "as", "async", "await", "break", "const", "dyn", "else", "fn", "for", "if", "impl", "let",
    "loop", "match", "move", "mut", "return", "static", "unsafe", "where", "while", "yield",
];

/// An open bracket, and where we are in it.
struct Level {
    tokens: proc_macro2::token_stream::IntoIter,
    row: Row,
    /// What all brackets around take.
    around: usize,
}

/// The tokens of one bracket since the last statement ended.
#[derive(Default)]
struct Row {
    /// What its tokens take, but for angles.
    cost: usize,
    /// Open `<`.
    angles: usize,
    /// Whether a type stands here.
    is_type: bool,
    last: Last,
}

/// What the last token was, where it matters.
#[derive(Default, PartialEq)]
enum Last {
    #[default]
    Other,
    /// `#` or `#!`, before an attribute.
    Hash,
    /// The first half of `->`, `=>` or `::`.
    Half(char),
    Braces,
}

/// Refuses what nests too deep to be parsed.
pub(crate) fn check_depth(tokens: TokenStream) -> Result<(), syn::Error> {
    let mut stack = vec![Level { tokens: tokens.into_iter(), row: Row::default(), around: 0 }];
    while let Some(level) = stack.last_mut() {
        let Some(token) = level.tokens.next() else {
            stack.pop();
            continue;
        };
        let span = token.span();
        let inner = level.row.add(&token);
        let cost = level.around + level.row.cost + ANGLE * level.row.angles;
        if let (TokenTree::Group(group), Some((takes, row))) = (token, inner) {
            let around = cost + takes;
            stack.push(Level { tokens: group.stream().into_iter(), row, around });
        }
        if stack.last().is_some_and(|level| level.around.max(cost) > BUDGET) {
            return Err(syn::Error::new(span, messages::TOO_DEEP.render("")));
        }
    }
    Ok(())
}

impl Row {
    /// Goes on by a token; for a bracket, what it takes while it is open and the row inside of it.
    fn add(&mut self, token: &TokenTree) -> Option<(usize, Row)> {
        let (last, mut inner) = (std::mem::take(&mut self.last), None);
        match token {
            TokenTree::Punct(punct) => {
                let is_joint = punct.spacing() == Spacing::Joint;
                self.punctuation(punct.as_char(), is_joint, last);
            }
            TokenTree::Ident(word) => {
                // A word after `{ .. }` begins a statement, unless it is one that goes on.
                if last == Last::Braces && word != "else" && word != "as" {
                    *self = Row::default();
                }
                self.cost += if WORDS.iter().any(|known| word == known) { WORD } else { 0 };
                self.is_type |= word == "as" || word == "type" || word == "impl";
            }
            TokenTree::Group(group) => inner = Some(self.bracket(group, last)),
            TokenTree::Literal(_) => {}
        }
        inner
    }

    fn punctuation(&mut self, char: char, is_joint: bool, last: Last) {
        match (char, &last) {
            (';', _) => *self = Row::default(),
            ('<', _) => self.angles += 1,
            ('>', Last::Half('-')) => {
                self.is_type = true;
                self.cost += ARROW;
            }
            ('>', Last::Half('=')) => self.is_type = false,
            ('>', _) => self.angles = self.angles.saturating_sub(1),
            (':', _) => self.is_type |= !is_joint && last != Last::Half(':'),
            (',', _) => {}
            ('#', _) => self.last = Last::Hash,
            ('!', Last::Hash) => self.last = Last::Hash,
            ('&' | '*' | '\'', _) if self.is_type || self.angles > 0 => {
                self.cost += REFERENCE_OF_TYPE;
            }
            ('=' | '|', _) => self.cost += ASSIGNMENT,
            _ => self.cost += OPERATOR,
        }
        if is_joint && matches!(char, '-' | '=' | ':') {
            self.last = Last::Half(char);
        }
    }

    fn bracket(&mut self, group: &Group, last: Last) -> (usize, Row) {
        if group.delimiter() == Delimiter::Brace {
            self.last = Last::Braces;
            return (BRACKET, Row::default());
        }
        if last == Last::Hash {
            return (0, Row::default());
        }
        let is_type = self.is_type || self.angles > 0;
        // A call or an index is a link of a chain when it is closed again.
        self.cost += OPERATOR;
        let takes = if is_type { BRACKET_OF_TYPE } else { BRACKET };
        (takes, Row { is_type, ..Row::default() })
    }
}

/// Whether a function stands in an `impl` or a `trait`, where what a macro makes of it can't stand. A macro sees its
/// function alone, so this looks at the source: at the nearest line above that is less indented.
pub(crate) fn stands_in_impl(name: Span) -> bool {
    let place = name.start();
    if place.column < "    fn ".len() {
        return false;
    }
    let text = name.local_file().and_then(|path| std::fs::read_to_string(path).ok());
    text.is_some_and(|text| is_in_impl(&text, place.line))
}

/// The same of the function whose name is on a line of a file, counted from 1.
fn is_in_impl(text: &str, line: usize) -> bool {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let lines: Vec<&str> = text.lines().take(line).collect();
    let Some((own, above)) = lines.split_last() else { return false };
    let outer =
        above.iter().rev().find(|line| !line.trim().is_empty() && indent(line) < indent(own));
    let mut words = outer.into_iter().flat_map(|line| line.split_whitespace());
    let first = words.find(|word| !matches!(*word, "pub" | "unsafe" | "pub(crate)"));
    first.is_some_and(|word| matches!(word, "impl" | "trait") || word.starts_with("impl<"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_fine(text: &str) -> bool {
        check_depth(text.parse().expect("the text is Rust")).is_ok()
    }

    #[test]
    fn accepts_what_people_write() {
        let docs = "/// A line.\n".repeat(1000);
        let lets = "let x: f32 = ((1 + 2) * 3 - f(x, y) << 2).exp(); ".repeat(1000);
        let branches = "if a < b { x = 1; } else if a == b { y = 2; } ".repeat(200);
        assert!(is_fine(&format!("{docs} fn f() {{ {lets} {branches} }}")));
        // A polynomial of degree 30, and a sum of 100 terms.
        let horner = format!("let y = {} 1.0{};", "0.5 + x * (".repeat(30), ")".repeat(30));
        let sum = format!("let y = {} n;", "x * 0.5 + ".repeat(100));
        assert!(is_fine(&format!("fn f() {{ {horner} {sum} }}")));
        let params = "x: PtrMut<f32>, ".repeat(60);
        assert!(is_fine(&format!("fn f<T: Float, const N: usize>({params}) {{}}")));
    }

    #[test]
    fn refuses_a_hundred_brackets() {
        assert!(!is_fine(&format!("{}1{}", "(".repeat(100), ")".repeat(100))));
    }

    #[test]
    fn refuses_a_thousand_prefixes() {
        for prefix in ["-", "&mut ", "*const ", "let x: &'a ", "return "] {
            assert!(!is_fine(&format!("{}x", prefix.repeat(1000))), "{prefix}");
        }
    }

    #[test]
    fn refuses_a_chain_of_a_hundred_thousand() {
        for (start, link) in [
            ("x", " = x"),
            ("x as A", "<A"),
            ("x as A", "<fn() -> A"),
            ("if a {}", " else if a {}"),
            ("x", " + x"),
            ("{ x }", " + { x }"),
            ("x", ".y"),
            ("x", "(0)"),
            ("x", "[0]"),
            ("x", "?"),
            ("x", " as T"),
        ] {
            assert!(!is_fine(&format!("fn f() {{ {start}{} }}", link.repeat(100_000))), "{link}");
        }
    }

    #[test]
    fn a_function_in_an_impl_is_known_by_its_lines() {
        let text = "struct S;\nimpl S {\n    #[kernel]\n    fn f() {}\n}\nmod m {\n    fn g() {}\n}\nfn h() {}\n";
        assert!(is_in_impl(text, 4));
        assert!(!is_in_impl(text, 7));
        assert!(!is_in_impl(text, 9));
        assert!(is_in_impl("impl<T> X<T> {\n  fn f() {}\n}", 2));
        assert!(is_in_impl("pub trait X {\n  fn f() {}\n}", 2));
    }
}
