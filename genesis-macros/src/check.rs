//! What must hold before a function is parsed at all: `syn` recurses, so source that nests without
//! end is refused here, by a loop.

use proc_macro2::{TokenStream, TokenTree};

use crate::body::MAX_DEPTH;
use crate::messages;

/// How many tokens that may each open a deeper level stand in one statement.
const MAX_OPENERS: usize = 1000;

/// Refuses tokens whose groups nest too deep, and statements with a chain of prefix operators, of
/// `else if`, of `<` or of `=` that no person writes.
pub(crate) fn check_depth(tokens: TokenStream) -> Result<(), syn::Error> {
    let mut stack = vec![(tokens.into_iter(), 0)];
    let mut prefixes = 0;
    while let Some((tokens, openers)) = stack.last_mut() {
        let Some(token) = tokens.next() else {
            stack.pop();
            continue;
        };
        let span = token.span();
        prefixes = if is_prefix(&token) { prefixes + 1 } else { 0 };
        *openers = match &token {
            TokenTree::Punct(punct) if punct.as_char() == ';' => 0,
            token => *openers + usize::from(is_opener(token)),
        };
        let is_chain = *openers > MAX_OPENERS;
        if let TokenTree::Group(group) = token {
            stack.push((group.stream().into_iter(), 0));
        }
        if stack.len() > MAX_DEPTH || prefixes > MAX_DEPTH || is_chain {
            return Err(syn::Error::new(span, messages::TOO_DEEP.render("")));
        }
    }
    Ok(())
}

fn is_prefix(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if matches!(punct.as_char(), '!' | '-' | '*' | '&'))
}

fn is_opener(token: &TokenTree) -> bool {
    match token {
        TokenTree::Punct(punct) => matches!(punct.as_char(), '<' | '=' | '|'),
        TokenTree::Ident(ident) => {
            ["else", "return", "break", "move"].iter().any(|word| ident == word)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> TokenStream {
        text.parse().expect("the text is Rust")
    }

    #[test]
    fn accepts_what_people_write() {
        assert!(check_depth(tokens("fn f() { let x = ((1 + 2) * 3); }")).is_ok());
    }

    #[test]
    fn refuses_a_thousand_brackets() {
        let text = format!("{}1{}", "(".repeat(1000), ")".repeat(1000));
        assert!(check_depth(tokens(&text)).is_err());
    }

    #[test]
    fn refuses_a_thousand_minus_signs() {
        assert!(check_depth(tokens(&format!("{}1", "-".repeat(1000)))).is_err());
    }

    #[test]
    fn refuses_a_chain_of_a_hundred_thousand() {
        for (start, link) in [("x", " = x"), ("x as A", "<A"), ("if a {}", " else if a {}")] {
            let text = format!("fn f() {{ {start}{} }}", link.repeat(100_000));
            assert!(check_depth(tokens(&text)).is_err(), "{link}");
        }
    }
}
