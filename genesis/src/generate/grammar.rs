//! Constraints made of JSON schemas, regular expressions and grammars, by llguidance.
//!
//! A grammar is over bytes and a model picks tokens, so that it needs the bytes of every token: tokens that may
//! come next are found by walking the trie of all of them beside the parser. The trie is made once for a
//! tokenizer; a constraint is compiled once for a request and walked by each of its samples.
//!
//! A special token is no text: it is known here by a byte before its name that no UTF-8 has, and a grammar of
//! text never lets it come. The tokens that end a text may come where the grammar may end.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};

use super::constraint::{Constraint, ConstraintState, TokenMask};
use super::request::refused;
use crate::error::{Error, Result};

/// A token as grammars see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TokenBytes {
    /// The bytes that it adds to a text, which may be part of a character.
    Text(Vec<u8>),
    /// Its name; it adds nothing to a text.
    Special(String),
    /// There is no such token.
    Unused,
}

/// What compiles constraints for a tokenizer.
///
/// # Examples
/// ```
/// use genesis::generate::{Grammars, TokenBytes};
///
/// let mut tokens: Vec<TokenBytes> = (0..=255).map(|byte| TokenBytes::Text(vec![byte])).collect();
/// tokens.push(TokenBytes::Special("<|end|>".to_owned()));
/// let grammars = Grammars::new(&tokens, &[256])?;
/// let mut state = grammars.json_schema(&serde_json::json!({"enum": ["yes", "no"]}))?.begin()?;
/// assert!(state.allowed()?.allows(u32::from(b'"')));
/// assert!(!state.allowed()?.allows(u32::from(b'{')));
/// # Ok::<(), genesis::Error>(())
/// ```
pub struct Grammars {
    factory: ParserFactory,
}

/// The most tokens of a trie.
const MAX_TOKENS: usize = 1 << 24;

impl Grammars {
    /// For tokens in the order of their ids, of which some end a text.
    ///
    /// # Errors
    /// If no token ends a text, or one that does is not there.
    pub fn new(tokens: &[TokenBytes], end_tokens: &[u32]) -> Result<Grammars> {
        let Some(&end) = end_tokens.first() else {
            return Err(refused("a grammar needs a token that ends a text"));
        };
        if tokens.len() >= MAX_TOKENS {
            return Err(refused(format!("{} tokens are too many for a grammar", tokens.len())));
        }
        if let Some(token) = end_tokens.iter().find(|&&token| token as usize >= tokens.len()) {
            let count = tokens.len();
            return Err(refused(format!("token {token} ends texts, there are {count} tokens")));
        }
        let info = TokRxInfo::new(tokens.len() as u32, end);
        let words: Vec<Vec<u8>> = tokens.iter().map(bytes).collect();
        let made = catch(|| {
            let trie = TokTrie::from(&info, &words).with_eos_tokens(end_tokens);
            let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
            ParserFactory::new_simple(&env).map_err(|error| refused(error.to_string()))
        });
        let mut factory = made?;
        factory.quiet().limits_mut().verbose_errors = false;
        Ok(Grammars { factory })
    }

    /// Answers that are JSON and follow a schema.
    ///
    /// # Errors
    /// If the schema is none, or has what can't be followed.
    pub fn json_schema(&self, schema: &serde_json::Value) -> Result<Arc<dyn Constraint>> {
        self.compile(TopLevelGrammar::from_json_schema(schema.clone()), "json schema")
    }

    /// Answers that are a JSON object.
    ///
    /// # Errors
    /// If the tokens can't spell one.
    pub fn json_object(&self) -> Result<Arc<dyn Constraint>> {
        self.json_schema(&serde_json::json!({"type": "object"}))
    }

    /// Answers that match a regular expression as a whole.
    ///
    /// # Errors
    /// If the expression is none.
    pub fn regex(&self, expression: &str) -> Result<Arc<dyn Constraint>> {
        self.compile(TopLevelGrammar::from_regex(expression), "regex")
    }

    /// Answers of a grammar in Lark's form.
    ///
    /// # Errors
    /// If the grammar is none.
    pub fn lark(&self, grammar: &str) -> Result<Arc<dyn Constraint>> {
        self.compile(TopLevelGrammar::from_lark(grammar.to_owned()), "grammar")
    }

    fn compile(&self, grammar: TopLevelGrammar, what: &str) -> Result<Arc<dyn Constraint>> {
        let matcher = catch(|| Ok(Matcher::new(self.factory.create_parser(grammar))))?;
        if let Some(error) = matcher.get_error() {
            return Err(wrong(what, &error));
        }
        Ok(Arc::new(Compiled { start: Mutex::new(matcher), what: what.to_owned() }))
    }
}

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = self.factory.tok_env().tok_trie().vocab_size();
        f.debug_struct("Grammars").field("tokens", &tokens).finish_non_exhaustive()
    }
}

/// A compiled grammar at its start.
struct Compiled {
    start: Mutex<Matcher>,
    what: String,
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled").field("what", &self.what).finish_non_exhaustive()
    }
}

impl Constraint for Compiled {
    fn begin(&self) -> Result<Box<dyn ConstraintState>> {
        let start = self.start.lock().unwrap_or_else(PoisonError::into_inner);
        // What samples learn of the lexer on the way is not shared, so that none waits for another.
        Ok(Box::new(Walk { matcher: start.deep_clone(), what: self.what.clone() }))
    }
}

struct Walk {
    matcher: Matcher,
    what: String,
}

impl ConstraintState for Walk {
    fn allowed(&mut self) -> Result<TokenMask> {
        let mask = self.matcher.compute_mask_or_eos();
        let mask = mask.map_err(|error| wrong(&self.what, &error.to_string()))?;
        Ok(TokenMask::from_words(mask.as_slice().to_vec()))
    }

    fn accept(&mut self, token: u32) -> Result<()> {
        let accepted = self.matcher.consume_token(token);
        accepted.map_err(|error| wrong(&self.what, &error.to_string()))
    }

    fn is_complete(&self) -> bool {
        self.matcher.is_stopped()
    }
}

/// The bytes of a token as the trie takes them.
fn bytes(token: &TokenBytes) -> Vec<u8> {
    let special = |name: &[u8]| [&[TokTrie::SPECIAL_TOKEN_MARKER], name].concat();
    match token {
        // A text never begins with the marker, which is no byte of UTF-8; a single such byte may be a token.
        TokenBytes::Text(text) if text.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER) => {
            Vec::new()
        }
        TokenBytes::Text(text) => text.clone(),
        TokenBytes::Special(name) => special(name.as_bytes()),
        TokenBytes::Unused => Vec::new(),
    }
}

/// The first line of what is wrong with a grammar.
fn wrong(what: &str, error: &str) -> Error {
    refused(format!("{what}: {}", error.lines().next().unwrap_or("it can't be followed")))
}

/// A panic of the library is an error of the grammar that caused it.
fn catch<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f))
        .unwrap_or_else(|_| Err(refused("the grammar broke its compiler")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u32 = 256;

    fn grammars() -> Grammars {
        let mut tokens: Vec<TokenBytes> = (0..=255).map(|b| TokenBytes::Text(vec![b])).collect();
        tokens.push(TokenBytes::Special("<|end|>".to_owned()));
        tokens.push(TokenBytes::Text(b"{\"a\":".to_vec()));
        tokens.push(TokenBytes::Unused);
        Grammars::new(&tokens, &[END]).expect("the tokens are right")
    }

    /// How many bytes of a text are let through, and whether the text may end there.
    fn walk(constraint: &Arc<dyn Constraint>, text: &str) -> (usize, bool) {
        let mut state = constraint.begin().expect("it begins");
        for (place, byte) in text.bytes().enumerate() {
            let mask = state.allowed().expect("there is a mask");
            if state.is_complete() || !mask.allows(u32::from(byte)) {
                return (place, mask.allows(END));
            }
            state.accept(u32::from(byte)).expect("it was allowed");
        }
        (text.len(), state.is_complete() || state.allowed().expect("there is a mask").allows(END))
    }

    #[test]
    fn a_schema_lets_through_what_follows_it_and_nothing_else() {
        let schema = serde_json::json!({
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "required": ["a"],
            "additionalProperties": false,
        });
        let constraint = grammars().json_schema(&schema).expect("it is a schema");
        assert_eq!(walk(&constraint, "{\"a\": 12}"), (9, true));
        assert_eq!(walk(&constraint, "{\"b\": 12}"), (2, false));
        assert_eq!(walk(&constraint, "{\"a\": 12"), (8, false));
        let mut state = constraint.begin().expect("it begins");
        let mask = state.allowed().expect("there is a mask");
        assert!(mask.allows(257), "a token of several bytes");
        assert!(!mask.allows(END) && !mask.allows(258) && !mask.allows(9999));
    }

    #[test]
    fn samples_walk_on_their_own() {
        let constraint = grammars().regex("ab|cd").expect("it is an expression");
        assert_eq!(walk(&constraint, "ab"), (2, true));
        assert_eq!(walk(&constraint, "cd"), (2, true));
        assert_eq!(walk(&constraint, "ad"), (1, false));
    }

    #[test]
    fn wrong_grammars_are_errors() {
        let grammars = grammars();
        let schema = serde_json::json!({"type": "no type"});
        assert!(grammars.json_schema(&schema).is_err());
        let error = grammars.regex("(").expect_err("it is none").to_string();
        assert!(error.starts_with("generate: regex: "), "{error}");
        assert!(!error.contains('\n'));
        assert!(grammars.lark("start: missing").is_err());
        assert!(Grammars::new(&[TokenBytes::Unused], &[]).is_err());
        assert!(Grammars::new(&[TokenBytes::Unused], &[1]).is_err());
    }

    #[test]
    fn an_object_is_any_object() {
        let constraint = grammars().json_object().expect("it can be spelled");
        assert_eq!(walk(&constraint, "{\"x\":[1,{}]}"), (12, true));
        assert_eq!(walk(&constraint, "[1]"), (0, false));
    }
}
